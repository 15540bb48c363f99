"""Derivatives by extrapolated central differences, to check the analytic ones against."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from eigengp._typing import Array


def gradient(
    function: Callable[[Any], float], at: ArrayLike, step: float = 1e-2, levels: int = 3
) -> Array:
    """Return the gradient of `function` in the shape of `at`.

    Central differences with steps `step`, `step/2`, … have an error in even powers of the
    step; Richardson's extrapolation removes the first `levels − 1` of them.
    """
    point = np.array(at, dtype=np.float64)
    result = np.empty(point.size)
    for i in range(point.size):

        def difference(h: float, i: int = i) -> float:
            values = []
            for sign in (1.0, -1.0):
                moved = point.copy()
                moved.flat[i] += sign * h
                values.append(function(moved))
            return (values[0] - values[1]) / (2.0 * h)

        table = [difference(step / 2**level) for level in range(levels)]
        for order in range(1, levels):
            factor = 4.0**order
            table = [(factor * fine - coarse) / (factor - 1.0) for coarse, fine in pairwise(table)]
        result[i] = table[0]
    return result.reshape(point.shape)


def symmetric_gradient(
    function: Callable[[Array], float], at: Array, step: float = 1e-2, levels: int = 3
) -> Array:
    """Return the symmetric `G` with `d function = tr(G dK)` for symmetric `K`."""
    rows, columns = np.tril_indices(at.shape[0])

    def of_lower(lower: Array) -> float:
        K = np.empty_like(at)
        K[rows, columns] = lower
        K[columns, rows] = lower
        return function(K)

    lower_bar = gradient(of_lower, at[rows, columns], step, levels)
    G = np.zeros_like(at)
    G[rows, columns] += 0.5 * lower_bar
    G[columns, rows] += 0.5 * lower_bar
    return G


def assert_close(actual: ArrayLike, expected: ArrayLike, relative: float = 1e-8) -> None:
    """Assert that two gradients agree, relative to the largest entry of the expected one."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    scale = max(float(np.abs(expected).max()), 1e-300)
    np.testing.assert_allclose(actual, expected, rtol=0.0, atol=relative * scale)
