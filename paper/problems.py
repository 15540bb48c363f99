"""The data of the experiments, as rows to learn from and values to predict.

Data set 1 has no true values: the mean of the exact GP stands for them, on [−1, 7], as in the
paper. That GP has prior mean zero, and so does every method there (`standardize=False`). On the
large data sets targets are standardised by the training rows, which is the scale of the MNLP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path

import numpy as np
import sklearn.datasets

import realdata
from eigengp._typing import Array
from eigengp.datasets import make_nonstationary
from paper.methods import build

DATA = Path(__file__).resolve().parent / "data"
FIRST, SECOND = "snelson", "nonstationary"
SYNTHETIC = {1: FIRST, 2: SECOND}
"""The paper's data sets 1 and 2."""
N_DRAWS = 10
"""Of data set 2, by the authors."""
MORE_ROWS = "nonstationary-300"
"""Data set 2 with half as many rows again."""
_FIRST_RANGE = (-1.0, 7.0)
_FRIEDMAN_ROWS = (600, 1_000)
_FRIEDMAN_NOISE = 0.1
"""As a fraction of the function's standard deviation."""


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
    """What figures call a problem, and the function that returns it for a seed."""

    title: str
    load: Callable[[int], Problem]


class DataError(RuntimeError):
    """Data are damaged or cannot be read."""


@lru_cache(maxsize=4)
def problem(name: str, seed: int) -> Problem:
    """Return the problem of this name for a seed: a draw, a split, or the same rows again."""
    return SOURCES[name].load(seed)


def fixed_draw(number: int) -> str:
    """Return the name of the problem that is one draw of data set 2, whatever the seed."""
    return f"{SECOND}-draw{number}"


def find_missing(names: Iterable[str]) -> dict[str, str]:
    """Return the problems whose data are not here, each with what to do about it."""
    missing = {}
    for name in sorted(names):
        try:
            problem(name, 0)
        except (FileNotFoundError, ConnectionError) as error:
            missing[name] = str(error)
        except (OSError, ValueError, ImportError) as error:
            raise DataError(str(error)) from error
    return missing


def read_columns(name: str) -> dict[str, Array]:
    """Return the columns of a file in `paper/data`, by name."""
    table = np.genfromtxt(DATA / f"{name}.csv", delimiter=",", names=True)
    return {column: table[column] for column in table.dtype.names}


@cache
def _snelson() -> Problem:
    train, x = read_columns("snelson"), read_columns("snelson_test")["x"]
    X, y = train["x"][:, None], train["y"]
    low, high = _FIRST_RANGE
    grid = x[(low <= x) & (x <= high), None]
    exact = build("exact GP", seed=0, standardize=False).fit(X, y)
    return Problem(X, y, grid, exact.predict(grid), standardize=False)


def _draw(number: int) -> Problem:
    """Return one of the authors' draws, from 1 to 10."""
    train, test = read_columns("nonstationary"), read_columns("nonstationary_test")
    return Problem(train["x"][:, None], train[f"run{number}"], test["x"][:, None], test["f"])


def _more_rows(seed: int) -> Problem:
    data = make_nonstationary(300, random_state=seed)
    return Problem(data.X, data.y, data.X_test, data.f_test)


def _friedman(make: Callable[..., tuple[Array, Array]], seed: int) -> Problem:
    n_train, n_test = _FRIEDMAN_ROWS
    X, y = make(n_samples=n_train + n_test, random_state=seed)
    y = y + _FRIEDMAN_NOISE * y.std() * np.random.default_rng(seed).normal(size=y.size)
    y = (y - y[:n_train].mean()) / y[:n_train].std()
    return Problem(X[:n_train], y[:n_train], X[n_train:], y[n_train:])


def _real(name: str, seed: int) -> Problem:
    return Problem(*realdata.split(name, seed))


SOURCES = {
    FIRST: Source("data set 1 (Snelson's)", lambda seed: _snelson()),
    SECOND: Source("data set 2, x·sin(x³)", lambda seed: _draw(seed + 1)),
    MORE_ROWS: Source("data set 2 with 300 rows", _more_rows),
    "california": Source("California Housing", partial(_real, "california")),
    "protein": Source("PPPTS (protein)", partial(_real, "protein")),
    "pole": Source("Pole Telecomm", partial(_real, "pole")),
    "friedman1": Source("Friedman 1", partial(_friedman, sklearn.datasets.make_friedman1)),
    "friedman2": Source("Friedman 2", partial(_friedman, sklearn.datasets.make_friedman2)),
    "friedman3": Source("Friedman 3", partial(_friedman, sklearn.datasets.make_friedman3)),
} | {
    fixed_draw(number): Source(f"draw {number} of data set 2", lambda seed, n=number: _draw(n))
    for number in range(1, N_DRAWS + 1)
}
