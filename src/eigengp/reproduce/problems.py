"""The data of the experiments, as rows to learn from and values to predict.

Data set 1 has no true values: the mean of the exact GP stands for them, on [−1, 7], as in the
paper. That GP has prior mean zero, and so does every method there (`standardize=False`). On the
large data sets targets are standardised by the training rows, which is the scale of the MNLP.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
import sklearn.datasets

from eigengp import ExactGPRegressor, datasets
from eigengp._typing import Array
from eigengp.datasets import Dataset

FIRST_RANGE = (-1.0, 7.0)
_FRIEDMAN_ROWS = (600, 1_000)
_FRIEDMAN_NOISE = 0.1
"""As a share of the function's standard deviation."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows to learn from, and what to predict.

    Parameters
    ----------
    X, y : arrays of shape (N, D) and (N,)
        The training rows.
    X_test, y_test : arrays of shape (n, D) and (n,)
        Where to predict, and what is right there.
    standardize : bool
        Whether methods may standardise; without it their prior mean is zero.
    """

    X: Array
    y: Array
    X_test: Array
    y_test: Array
    standardize: bool = True

    @property
    def is_curve(self) -> bool:
        """Whether there is one input, so that predictions can be drawn."""
        return bool(self.X.shape[1] == 1)

    def thinned(self, share: int, seed: int) -> Problem:
        """Return the problem with one training row in `share`, drawn at random."""
        order = np.random.default_rng(seed).permutation(self.y.size)
        kept = order[: self.y.size // share]
        return replace(self, X=self.X[kept], y=self.y[kept])


@dataclass(frozen=True)
class Source:
    """Where a problem comes from.

    Parameters
    ----------
    title : str
        What figures call it.
    load : callable
        Returns the problem for a seed.
    stand_in : str or None
        The problem that can take its place where its data are missing.
    """

    title: str
    load: Callable[[int], Problem]
    stand_in: str | None = None


@lru_cache(maxsize=4)
def problem(name: str, seed: int) -> Problem:
    """Return the problem of this name for a seed: a draw, a split, or the same rows again."""
    return SOURCES[name].load(seed)


def _fetched_snelson(seed: int) -> Problem:
    data = datasets.fetch_snelson()
    assert data.X_test is not None
    low, high = FIRST_RANGE
    x = data.X_test[:, 0]
    return _against_exact_gp(data, x[(low <= x) & (x <= high)])


def _made_snelson(seed: int) -> Problem:
    data = datasets.make_snelson_like(random_state=seed)
    return _against_exact_gp(data, np.linspace(*FIRST_RANGE, 241))


def _against_exact_gp(data: Dataset, x: Array) -> Problem:
    grid = x[:, None]
    exact = ExactGPRegressor(standardize=False, random_state=0).fit(data.X, data.y)
    return Problem(data.X, data.y, grid, exact.predict(grid), standardize=False)


def _against_truth(data: Dataset) -> Problem:
    assert data.X_test is not None
    assert data.f_test is not None
    return Problem(data.X, data.y, data.X_test, data.f_test)


def _fetched_draw(seed: int) -> Problem:
    return _against_truth(datasets.fetch_nonstationary().run(seed + 1))


def _made_draw(seed: int) -> Problem:
    return _against_truth(datasets.make_nonstationary(random_state=seed))


def _split(fetch: Callable[[], Dataset], seed: int) -> Problem:
    train, test = fetch().split(seed=seed)
    return _standardized(Problem(train.X, train.y, test.X, test.y))


def _friedman(make: Callable[..., tuple[Array, Array]], seed: int) -> Problem:
    n_train, n_test = _FRIEDMAN_ROWS
    X, y = make(n_samples=n_train + n_test, random_state=seed)
    y = y + _FRIEDMAN_NOISE * y.std() * np.random.default_rng(seed).normal(size=y.size)
    return _standardized(Problem(X[:n_train], y[:n_train], X[n_train:], y[n_train:]))


def _standardized(rows: Problem) -> Problem:
    centre, scale = rows.y.mean(), rows.y.std()
    return replace(rows, y=(rows.y - centre) / scale, y_test=(rows.y_test - centre) / scale)


SOURCES = {
    "snelson": Source("data set 1 (Snelson's)", _fetched_snelson, stand_in="snelson-like"),
    "snelson-like": Source("data set 1 (stand-in)", _made_snelson),
    "nonstationary": Source("data set 2, x·sin(x³)", _fetched_draw, stand_in="nonstationary-made"),
    "nonstationary-made": Source("data set 2, x·sin(x³)", _made_draw),
    "california": Source("California Housing", partial(_split, datasets.fetch_california)),
    "protein": Source("PPPTS (protein)", partial(_split, datasets.fetch_protein)),
    "pole": Source("Pole Telecomm", partial(_split, datasets.fetch_pole)),
    "friedman1": Source("Friedman 1", partial(_friedman, sklearn.datasets.make_friedman1)),
    "friedman2": Source("Friedman 2", partial(_friedman, sklearn.datasets.make_friedman2)),
    "friedman3": Source("Friedman 3", partial(_friedman, sklearn.datasets.make_friedman3)),
}
