"""Real data sets of the literature, for the benchmarks, the paper's experiments and the tests.

A set is read from `<name>.parquet` in the folder that the environment variable `EIGENGP_DATA`
names (unless it is set, in `../shared/data` beside the checkout), or downloaded through
scikit-learn, which keeps a copy. Its size, and the mean and standard deviation of its target, are
checked every time, so a wrong or damaged copy is never used.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import sklearn.datasets
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rows = tuple[Array, Array]
"""Inputs (n, D) and targets (n,)."""

VARIABLE = "EIGENGP_DATA"
_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"


@dataclass(frozen=True)
class RealData:
    """What is known of a data set before it is read."""

    n_rows: int
    n_inputs: int
    n_train: int
    """How many rows the usual split trains on."""
    mean: float
    std: float
    """Of the target; the standard deviation with n − 1."""
    tolerance: float
    """Half of the last digit of both."""
    source: str
    """Where a person gets the data."""
    download: Callable[[], Any] | None = None


def _openml(data_id: int) -> Any:
    # This parser needs no pandas.
    return sklearn.datasets.fetch_openml(data_id=data_id, as_frame=False, parser="liac-arff")


SETS = {
    # R. K. Pace and R. Barry, Sparse Spatial Autoregressions, Statistics & Probability Letters 33,
    # 1997: median house values of 1990, in 100,000 US$, capped at 5.00001.
    "california": RealData(
        *(20_640, 8, 10_000, 2.0686, 1.1540, 5e-5),
        source="sklearn.datasets.fetch_california_housing",
        download=lambda: sklearn.datasets.fetch_california_housing(),
    ),
    # P. S. Rana, Physicochemical Properties of Protein Tertiary Structure, UCI data set 265, 2013:
    # RMSD in ångström. CC BY 4.0.
    "protein": RealData(
        *(45_730, 9, 20_000, 7.7485, 6.1183, 5e-5),
        source="OpenML 44963, or CASP.csv of UCI's data set 265 with RMSD as target",
        download=partial(_openml, 44963),
    ),
    # Pole Telecomm of L. Torgo's collection, its 26 informative inputs; S. M. Weiss and
    # N. Indurkhya, Rule-based machine learning methods for functional prediction, JAIR 3, 1995.
    "pole": RealData(
        *(15_000, 26, 10_000, 28.945, 41.726, 5e-4),
        source="OpenML 44133",
        download=partial(_openml, 44133),
    ),
    # A. Schwaighofer and V. Tresp, Transductive and inductive methods for approximate Gaussian
    # process regression, NIPS 2002: a simulated robot arm, standardised.
    "kin40k": RealData(
        *(40_000, 8, 10_000, 0.0, 0.997, 5e-4),
        source="the GitHub project treforevans/uci_datasets",
    ),
}


def load(name: str) -> Rows:
    """Return the inputs and targets of a data set, raw as its source has them.

    Downloaded rows may come in another order than those of a Parquet file.

    Parameters
    ----------
    name : str
        A key of `SETS`.

    Returns
    -------
    X, y : arrays of shape (n, D) and (n,)
        All rows.
    """
    facts, folder = SETS[name], data_folder()
    path = None if folder is None else folder / f"{name}.parquet"
    if path is not None and path.exists():
        return _checked(facts, _read_parquet(path), str(path))
    remedy = (
        f"put {name}.parquet (inputs and a column target) into a folder that the environment "
        f"variable {VARIABLE} names. Source: {facts.source}."
    )
    if facts.download is None:
        raise FileNotFoundError(f"{name} is not here and cannot be downloaded: {remedy}")
    try:
        found = facts.download()
    except (URLError, ConnectionError, TimeoutError, HTTPException) as error:
        raise ConnectionError(
            f"{name} could not be downloaded: {error}. Try again with a network, or {remedy}"
        ) from error
    X, y = (np.asarray(part, dtype=np.float64) for part in (found.data, found.target))
    return _checked(facts, (X, y), f"The download of {name}")


def split(name: str, seed: int = 0) -> tuple[Array, Array, Array, Array]:
    """Return the usual split, with targets standardised by the training rows.

    The first `n_train` rows of `numpy.random.default_rng(seed).permutation(n)` train.

    Parameters
    ----------
    name : str
        A key of `SETS`.
    seed : int
        Another seed is another split.

    Returns
    -------
    X, y, X_test, y_test : arrays
        Training inputs and targets, then test inputs and targets.
    """
    X, y = load(name)
    order = np.random.default_rng(seed).permutation(y.size)
    train, test = np.split(order, [SETS[name].n_train])
    y = (y - y[train].mean()) / y[train].std()
    return X[train], y[train], X[test], y[test]


def data_folder() -> Path | None:
    """Return the folder with Parquet files, None if there is none."""
    named = os.environ.get(VARIABLE)
    if not named:
        return _BESIDE if _BESIDE.is_dir() else None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(
            f"The environment variable {VARIABLE} names {named}, which is not a folder. Correct or "
            "unset it."
        )
    return folder


def _read_parquet(path: Path) -> Rows:
    """Read a file in which the column `target` is the target and all others are inputs."""
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError as error:
        raise ImportError(f'{path} needs pyarrow: pip install "eigengp[data]".') from error
    try:
        # Unlike read_table, ParquetFile adds no columns for folders named like key=value.
        with parquet.ParquetFile(path) as file:
            table = file.read()
        inputs = [name for name in table.column_names if name != "target"]
        X = np.column_stack([np.asarray(table[name], dtype=np.float64) for name in inputs])
        return X, np.array(table["target"], dtype=np.float64)
    # pyarrow reports damage, and a missing column, as one of these.
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"Cannot read {path}: {error} Replace it by a sound copy.") from error


def _checked(facts: RealData, rows: Rows, place: str) -> Rows:
    """Return the rows if they are those that were asked for."""
    X, y = rows
    if X.shape != (facts.n_rows, facts.n_inputs) or y.shape != X.shape[:1]:
        wrong = f"inputs of shape {X.shape} instead of {(facts.n_rows, facts.n_inputs)}"
    elif not (np.isfinite(X).all() and np.isfinite(y).all()):
        wrong = "values that are not finite"
    elif max(abs(y.mean() - facts.mean), abs(y.std(ddof=1) - facts.std)) > facts.tolerance:
        wrong = (
            f"a target of mean {y.mean():.7g} and standard deviation {y.std(ddof=1):.7g} instead "
            f"of {facts.mean:.7g} and {facts.std:.7g}"
        )
    else:
        return X, y
    raise ValueError(f"{place} has {wrong}: replace it by a sound copy.")
