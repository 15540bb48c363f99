"""How much a GP prior lets functions vary along each input."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import special

from eigengp.typing import Array

_N_DIFFERENCES = 500


def sensitivities(correlation: Callable[[Array], Array], spread: Array) -> Array:
    """Return the total Sobol index that a stationary prior expects of each input, shape (D,).

    The index of input d is `½ E(f(x) − f(x′))² / Var f`, with `x′` equal to `x` but for input d,
    drawn anew. Under the prior the expected numerator is `k(0) − E k(δ e_d)`, with `δ ~ N(0, 2s²)`
    the difference of two draws of spread `s`. Its mean is taken at the midpoints of equally
    likely parts of the normal distribution, of which one half is enough: every kernel suits, and
    those much narrower than the spread too.

    Parameters
    ----------
    correlation : callable
        Takes differences (n, D) to `k(δ)/k(0)`, shape (n,).
    spread : array of shape (D,)
        The standard deviation of each input.

    Examples
    --------
    >>> import numpy as np
    >>> def squared_exponential(apart):
    ...     return np.exp(-0.5 * np.sum((apart / [0.5, 10.0]) ** 2, axis=1))
    >>> sensitivities(squared_exponential, np.array([1.0, 1.0])).round(2)
    array([0.67, 0.01])
    """
    probability = (np.arange(_N_DIFFERENCES) + 0.5) / _N_DIFFERENCES
    distances = np.sqrt(2.0) * special.ndtri(0.5 + 0.5 * probability)
    values = np.empty(spread.size)
    for d in range(spread.size):
        apart = np.zeros((_N_DIFFERENCES, spread.size))
        apart[:, d] = spread[d] * distances
        values[d] = 1.0 - np.mean(correlation(apart))
    return np.clip(values, 0.0, 1.0)
