"""Are the error bars honest? How often targets fall where they were predicted to.

Intervals that hold their coverage by construction are made by `conformal_factor`; estimators use it
after `calibrate`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from eigengp._typing import Array

_ROUNDING = 1e-9
_LEVELS = np.linspace(0.05, 0.95, 19)


def pit(y_true: ArrayLike, y_pred: ArrayLike, y_std: ArrayLike) -> Array:
    """Return the predictive distribution function at each target, shape (n,).

    For honest predictions these are uniform between 0 and 1 (the probability
    integral transform). A hump in the middle of their histogram says that
    error bars are too wide, horns at its ends that they are too narrow.

    Parameters
    ----------
    y_true, y_pred, y_std : arrays of shape (n,)
        Targets, predictive means, and standard deviations with the noise included.

    Examples
    --------
    >>> pit([0.0, 1.0], [0.0, 0.0], [1.0, 1.0]).round(3)
    array([0.5  , 0.841])
    """
    target, mean, std = _columns(y_true, y_pred, y_std)
    values: Array = special.ndtr((target - mean) / std)
    return values


def pit_histogram(
    y_true: ArrayLike, y_pred: ArrayLike, y_std: ArrayLike, bins: int = 10
) -> tuple[Array, Array]:
    """Return the density of `pit` in bins of equal width, one everywhere if honest, and the edges.

    Examples
    --------
    >>> density, edges = pit_histogram([0.0, 1.0], [0.0, 0.0], [1.0, 1.0], bins=2)
    >>> density, edges
    (array([0., 2.]), array([0. , 0.5, 1. ]))
    """
    density, edges = np.histogram(
        pit(y_true, y_pred, y_std), bins=bins, range=(0.0, 1.0), density=True
    )
    return density, edges


def coverage_curve(
    y_true: ArrayLike, y_pred: ArrayLike, y_std: ArrayLike, levels: ArrayLike | None = None
) -> tuple[Array, Array]:
    """Return probabilities, and how often central intervals of each held the target.

    Parameters
    ----------
    y_true, y_pred, y_std : arrays of shape (n,)
        Targets, predictive means, and standard deviations with the noise included.
    levels : array or None
        The probabilities; None is 0.05, 0.10, …, 0.95.

    Examples
    --------
    >>> coverage_curve([0.0, 1.0, 2.0, 3.0], [0.0] * 4, [1.0] * 4, levels=[0.5, 0.9])
    (array([0.5, 0.9]), array([0.25, 0.5 ]))
    """
    asked = _LEVELS if levels is None else np.asarray(levels, dtype=np.float64)
    if not np.all((asked > 0.0) & (asked < 1.0)):
        raise ValueError("levels must lie strictly between 0 and 1.")
    central = 2.0 * np.abs(pit(y_true, y_pred, y_std) - 0.5)
    held: Array = np.mean(central[:, None] <= asked, axis=0)
    return asked, held


def sharpness(y_std: ArrayLike) -> float:
    """Return the root mean square of the error bars: of two honest ones the smaller is better.

    Examples
    --------
    >>> sharpness([3.0, 4.0])
    3.5355339059327378
    """
    std = np.asarray(y_std, dtype=np.float64)
    return float(np.sqrt(np.mean(std**2)))


def normal_half_width(coverage: float) -> float:
    """Return how many standard deviations hold a normal target with this probability.

    Examples
    --------
    >>> round(normal_half_width(0.95), 2)
    1.96
    """
    if not 0.0 < coverage < 1.0:
        raise ValueError(f"coverage must lie strictly between 0 and 1, got {coverage!r}.")
    return float(special.ndtri(0.5 + 0.5 * coverage))


def conformity(y_true: ArrayLike, y_pred: ArrayLike, y_std: ArrayLike) -> Array:
    """Return the sorted errors of calibration rows, in units of their standard deviations."""
    target, mean, std = _columns(y_true, y_pred, y_std)
    return np.sort(np.abs(target - mean) / std)


def conformal_factor(scores: Array, coverage: float) -> float:
    """Return how many standard deviations hold a new target with at least this probability.

    If the calibration rows and the new one are exchangeable, and the model has
    not seen them, the ⌈(n + 1)·coverage⌉-th smallest score does so, whatever
    the distribution: split conformal prediction, in units of the predicted
    error bars.

    Parameters
    ----------
    scores : array of shape (n,)
        From `conformity`.
    coverage : float
        The probability, between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> conformal_factor(np.arange(1.0, 100.0), 0.9)
    90.0
    """
    rank = int(np.ceil((scores.size + 1) * coverage - _ROUNDING))
    if rank > scores.size:
        needed = int(np.ceil(coverage / (1.0 - coverage) - _ROUNDING))
        raise ValueError(
            f"{scores.size} calibration rows cannot guarantee a coverage of {coverage}; it takes "
            f"at least {needed}. Calibrate with more rows, or ask for less coverage."
        )
    return float(scores[rank - 1])


def known_factor(scores: Array, coverage: float, otherwise: float) -> float:
    """Return how many standard deviations hold this share of rows that were left out.

    Beyond what so many rows can tell it is `otherwise`, or the largest score if that is larger.

    Parameters
    ----------
    scores : array of shape (n,)
        Sorted, as from `conformity`.
    coverage : float
        The share, between 0 and 1.
    otherwise : float
        What the model itself says.
    """
    rank = int(np.ceil((scores.size + 1) * coverage - _ROUNDING))
    return float(scores[rank - 1]) if rank <= scores.size else max(float(scores[-1]), otherwise)


def _columns(y_true: ArrayLike, y_pred: ArrayLike, y_std: ArrayLike) -> tuple[Array, Array, Array]:
    target, mean, std = (np.asarray(each, dtype=np.float64) for each in (y_true, y_pred, y_std))
    if not (target.ndim == 1 and target.shape == mean.shape == std.shape and target.size):
        raise ValueError(
            "y_true, y_pred and y_std must be one-dimensional, of the same length, and not empty, "
            f"got shapes {target.shape}, {mean.shape} and {std.shape}."
        )
    if not np.all(std > 0.0):
        raise ValueError("y_std must be positive.")
    return target, mean, std
