"""Synthetic data to try a model on: one curve that turns ever faster, and one like Snelson's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from eigengp._typing import Array

__all__ = [
    "Dataset",
    "make_nonstationary",
    "make_snelson_like",
    "nonstationary_function",
    "snelson_like_function",
]

NONSTATIONARY_RANGE = (0.0, 3.0)
SNELSON_RANGE = (0.0, 6.0)
SNELSON_LENGTHSCALE = 0.6
SNELSON_NOISE = 0.28

# A draw of a GP with variance 0.77 at these knots, as the weights of the kernels around them. It is
# chosen so that the exact GP learns from it nearly what it learns from Snelson's set.
_KNOTS = np.arange(-0.5, 7.0, 0.5)
_WEIGHTS = np.array(
    [-2.2, 3.4, -3.3, -1.2, 1.1, 2.8, -4.4, 3.1, -2.7, 2.9, -2.0, 0.5, 0.8, -1.5, 0.3]
)
# Snelson's inputs are thin between 0.5 and 1: the share of the rows to the left of each edge.
_EDGES = (0.0, 0.5, 1.0, 6.0)
_SHARES = (0.0, 0.095, 0.135, 1.0)

RandomState: TypeAlias = int | np.random.RandomState | None


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Rows to learn from, and a test grid.

    Parameters
    ----------
    X, y : arrays of shape (n, D) and (n,)
        Inputs and noisy targets.
    X_test : array of shape (m, D)
        Inputs to predict at.
    f_test : array of shape (m,)
        The noiseless truth at `X_test`.
    """

    X: Array
    y: Array
    X_test: Array
    f_test: Array


def nonstationary_function(x: ArrayLike) -> Array:
    """Return `x·sin(x³)`, which is flat near 0 and oscillates faster and faster as x grows.

    Parameters
    ----------
    x : array of any shape
        Where to evaluate it.

    Returns
    -------
    f : array of the shape of x
        Its values.

    Examples
    --------
    >>> nonstationary_function([0.0, 1.0, 3.0]).round(4).tolist()
    [0.0, 0.8415, 2.8691]
    """
    x = np.asarray(x, dtype=np.float64)
    return np.asarray(x * np.sin(x**3))


def snelson_like_function(x: ArrayLike) -> Array:
    """Return the noiseless curve of `make_snelson_like`.

    It is `Σ_j w_j exp(−(x − z_j)²/(2·0.6²))` with fixed weights and a knot z_j at every half from
    −0.5 to 6.5: a draw of a GP on [0, 6], which fades to 0 outside.

    Parameters
    ----------
    x : array of any shape
        Where to evaluate it.

    Returns
    -------
    f : array of the shape of x
        Its values.

    Examples
    --------
    >>> snelson_like_function([0.0, 3.0, 6.0]).round(3).tolist()
    [-0.727, -0.539, -0.675]
    """
    distance = (np.asarray(x, dtype=np.float64)[..., None] - _KNOTS) / SNELSON_LENGTHSCALE
    return np.asarray(np.exp(-0.5 * distance**2) @ _WEIGHTS)


def make_nonstationary(
    n: int = 200, noise: float = 0.5, random_state: RandomState = None
) -> Dataset:
    """Make rows of `x·sin(x³)` plus noise on an even grid of [0, 3].

    This is the second synthetic set of the EigenGP paper.

    Parameters
    ----------
    n : int
        Number of rows.
    noise : float
        Standard deviation of the Gaussian noise.
    random_state : int, RandomState or None
        Seeds the noise; an int gives the same rows each time.

    Returns
    -------
    data : Dataset
        With a test grid of 500 inputs and the noiseless values there.

    Examples
    --------
    >>> data = make_nonstationary(random_state=0)
    >>> data.X[[0, 1, -1], 0].round(4).tolist()
    [0.0, 0.0151, 3.0]
    >>> round(float(np.std(data.y - nonstationary_function(data.X[:, 0]))), 2)
    0.51
    """
    _check(n, noise)
    x, grid = np.linspace(*NONSTATIONARY_RANGE, n), np.linspace(*NONSTATIONARY_RANGE, 500)
    return _add_noise(nonstationary_function, x, grid, noise, check_random_state(random_state))


def make_snelson_like(n: int = 200, random_state: RandomState = None) -> Dataset:
    """Make rows similar to Snelson's one-dimensional data set (not a copy).

    The curve is fixed; the inputs in [0, 6] are uneven as Snelson's are, thin between 0.5 and 1,
    and the noise has standard deviation 0.28. From 200 rows the exact GP learns a lengthscale near
    0.6 and a signal standard deviation near 0.9, as it does from Snelson's.

    Parameters
    ----------
    n : int
        Number of rows.
    random_state : int, RandomState or None
        Seeds inputs and noise; an int gives the same rows each time.

    Returns
    -------
    data : Dataset
        With a test grid of 301 inputs in [0, 6] and the noiseless values there.

    Examples
    --------
    >>> data = make_snelson_like(random_state=0)
    >>> data.X.shape, data.X_test.shape
    ((200, 1), (301, 1))
    >>> float(data.X.min()) >= 0.0 and float(data.X.max()) <= 6.0
    True
    """
    _check(n, SNELSON_NOISE)
    rng = check_random_state(random_state)
    x, grid = np.interp(rng.uniform(size=n), _SHARES, _EDGES), np.linspace(*SNELSON_RANGE, 301)
    return _add_noise(snelson_like_function, x, grid, SNELSON_NOISE, rng)


def _add_noise(
    function: Callable[[Array], Array], x: Array, grid: Array, noise: float, rng: Any
) -> Dataset:
    """Return noisy rows of a function, and its values on a grid."""
    y = function(x) + noise * rng.normal(size=x.size)
    return Dataset(x[:, None], y, grid[:, None], function(grid))


def _check(n: int, noise: float) -> None:
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n!r}: it is the number of rows to make.")
    if not 0.0 <= noise < np.inf:
        raise ValueError(
            f"noise must be finite and not negative, got {noise!r}: it is a standard deviation."
        )
