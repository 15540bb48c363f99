"""Total Sobol indices of the inputs: of a given function, or expected under a stationary prior."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from scipy import special

from eigengp._typing import Array

_N_DIFFERENCES, _LEAST_DIFFERENCES = 500, 25
# Beyond a hundred inputs, so many numbers stand for the differences along one of them.
_ENTRIES = 50_000
_MOST_DRAWS, _PAIRS = 8, 1_000


def sensitivities(
    correlation: Callable[[Array], Array],
    spread: Array,
    groups: Sequence[Sequence[int]] | None = None,
) -> Array:
    """Return the total Sobol index that a stationary prior expects of each input, shape (D,).

    The index of input d is `½ E(f(x) − f(x′))² / Var f`, with `x′` equal to `x` but for input d,
    drawn anew. Under the prior the expected numerator is `k(0) − E k(δ e_d)`, with `δ ~ N(0, 2s²)`
    the difference of two draws of standard deviation `s`. The expectation is a mean over quantiles
    of |δ|, which is accurate for every kernel, also for one much narrower than `s`.

    Parameters
    ----------
    correlation : callable
        Takes differences (n, D) to `k(δ)/k(0)`, shape (n,).
    spread : array of shape (D,)
        The standard deviation of each input.
    groups : sequence of sequences of int or None
        Inputs that are drawn anew together; None is each alone.

    Examples
    --------
    >>> import numpy as np
    >>> def squared_exponential(apart):
    ...     return np.exp(-0.5 * np.sum((apart / [0.5, 10.0]) ** 2, axis=1))
    >>> sensitivities(squared_exponential, np.array([1.0, 1.0])).round(2)
    array([0.67, 0.01])
    """
    count = int(np.clip(_ENTRIES // max(spread.size, 1), _LEAST_DIFFERENCES, _N_DIFFERENCES))
    probability = (np.arange(count) + 0.5) / count
    distances = np.sqrt(2.0) * special.ndtri(0.5 + 0.5 * probability)
    wanted = np.arange(spread.size)[:, None] if groups is None else [list(each) for each in groups]
    values = np.empty(len(wanted))
    apart = np.zeros((count, spread.size))
    for g, group in enumerate(wanted):
        apart[:, group] = distances[:, None] * spread[group]
        values[g] = 1.0 - np.mean(correlation(apart))
        apart[:, group] = 0.0
    return np.clip(values, 0.0, 1.0)


def total_indices(
    function: Callable[[Array], Array], points: Array, groups: Iterable[Sequence[int]]
) -> Array:
    """Return Sobol's total index of each group of inputs, shape (G,), between 0 and 1.

    The index of a group is `½ E(f(x) − f(x′))² / Var f`, with `x′` equal to `x` but for the inputs
    of the group, which are drawn anew (Jansen's estimate). It includes interactions, so the indices
    of interacting inputs add up to more than one. Here `x` runs over the points, and the group in
    `x′` takes its values at up to eight other points, which preserves its distribution. Dependent
    inputs can lead to an estimate above one, which is clipped.

    Parameters
    ----------
    function : callable
        Takes inputs (n, D) to values (n,).
    points : array of shape (n, D)
        Points that represent the distribution of the inputs.
    groups : iterable of sequences of int
        The inputs of each group; `[[0], [1], …]` for single inputs.

    Examples
    --------
    >>> import numpy as np
    >>> points = np.random.default_rng(0).normal(size=(4000, 3))
    >>> total_indices(lambda X: 2 * X[:, 0] + X[:, 1], points, [[0], [1, 2]]).round(1)
    array([0.8, 0.2])
    """
    n, wanted = len(points), [list(group) for group in groups]
    # In random order, so that those a few places apart are independent.
    points = points[np.random.default_rng(0).permutation(n)]
    values = function(points)
    variance = float(np.var(values))
    indices = np.zeros(len(wanted))
    if variance == 0.0:
        return indices
    n_draws = min(n - 1, _MOST_DRAWS, max(1, _PAIRS // n))
    steps = np.linspace(1, n - 1, n_draws).astype(int)
    others = ((np.arange(n) + steps[:, None]) % n).ravel()
    for g, group in enumerate(wanted):
        anew = np.tile(points, (steps.size, 1))
        anew[:, group] = points[others][:, group]
        apart = function(anew).reshape(steps.size, n) - values
        indices[g] = min(1.0, 0.5 * float(np.mean(apart**2)) / variance)
    return indices
