"""Half-widths of prediction intervals, in units of the predicted standard deviation.

Gaussian ones, those of split conformal prediction, whose coverage is guaranteed for exchangeable
rows (`calibrate`), and those of leave-one-out errors. `eigengp.metrics` measures calibration.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from eigengp._typing import Array
from eigengp.metrics import standardized_residuals

_ROUNDING = 1e-9


def normal_half_width(coverage: float) -> float:
    """Return the half-width of the central interval of a normal distribution.

    Examples
    --------
    >>> round(normal_half_width(0.95), 2)
    1.96
    """
    if not 0.0 < coverage < 1.0:
        raise ValueError(f"coverage must be strictly between 0 and 1, got {coverage!r}.")
    return float(special.ndtri(0.5 + 0.5 * coverage))


def conformity(y_true: ArrayLike, y_pred: ArrayLike, y_std: ArrayLike) -> Array:
    """Return the conformity scores `|y − μ|/s` of calibration rows, sorted."""
    return np.sort(np.abs(standardized_residuals(y_true, y_pred, y_std)))


def conformal_factor(scores: Array, coverage: float) -> float:
    """Return the half-width of split conformal intervals.

    If the calibration rows and a new row are exchangeable, and the model was not fitted to the
    calibration rows, the ⌈(n + 1)·coverage⌉-th smallest score gives an interval with at least this
    coverage, whatever the distribution.

    Parameters
    ----------
    scores : array of shape (n,)
        From `conformity`.
    coverage : float
        The coverage, between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> conformal_factor(np.arange(1.0, 100.0), 0.9)
    90.0
    """
    rank = _rank(scores, coverage)
    if rank > scores.size:
        needed = int(np.ceil(coverage / (1.0 - coverage) - _ROUNDING))
        raise ValueError(
            f"{scores.size} calibration rows cannot guarantee a coverage of {coverage}; it takes "
            f"at least {needed}. Calibrate with more rows, or ask for less coverage."
        )
    return float(scores[rank - 1])


def known_factor(scores: Array, coverage: float, otherwise: float) -> float:
    """Return the half-width that leave-one-out errors give.

    If there are too few errors for this coverage, it is `otherwise` or the largest error, whichever
    is larger.

    Parameters
    ----------
    scores : array of shape (n,)
        Sorted leave-one-out errors, in standard deviations.
    coverage : float
        The coverage, between 0 and 1.
    otherwise : float
        The half-width of the model itself.
    """
    rank = _rank(scores, coverage)
    return float(scores[rank - 1]) if rank <= scores.size else max(float(scores[-1]), otherwise)


def _rank(scores: Array, coverage: float) -> int:
    return int(np.ceil((scores.size + 1) * coverage - _ROUNDING))
