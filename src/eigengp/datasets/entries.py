"""What is known of each data set that can be fetched, and how its files and downloads are read."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sklearn.datasets

from eigengp.datasets.dataset import Dataset
from eigengp.datasets.lookup import Entry
from eigengp.datasets.makers import nonstationary_function
from eigengp.datasets.storage import Rows, pick, read_parquet


def _read_snelson(entry: Entry, folder: Path) -> Dataset:
    path, test_path = folder / "snelson.parquet", folder / "snelson_test.parquet"
    columns = read_parquet(path)
    x, y = pick(columns, "x", path), pick(columns, "y", path)
    test = pick(read_parquet(test_path), "x", test_path)
    return replace(entry.dataset((x[:, None], y, ("x",))), X_test=test[:, None])


def _read_nonstationary(entry: Entry, folder: Path) -> Dataset:
    path, test_path = folder / "nonstationary.parquet", folder / "nonstationary_test.parquet"
    columns, test = read_parquet(path), read_parquet(test_path)
    run, x, y = (pick(columns, name, path) for name in ("run", "x", "y"))
    runs = [run == number for number in np.unique(run)]
    if not runs or any(not np.array_equal(x[rows], x[runs[0]]) for rows in runs):
        raise ValueError(f"The runs of {path} have different inputs: replace it by a sound copy.")
    grid, f = (pick(test, name, test_path) for name in ("x", "f"))
    if not np.allclose(f, nonstationary_function(grid), rtol=0.0, atol=1e-9):
        raise ValueError(f"f is not x·sin(x³) in {test_path}: replace it by a sound copy.")
    y_runs = np.stack([y[rows] for rows in runs])
    data = entry.dataset((x[runs[0], None], y_runs[0], ("x",)))
    return replace(data, X_test=grid[:, None], f_test=f, y_runs=y_runs)


def _download_california(data_home: str) -> Rows:
    return _rows(sklearn.datasets.fetch_california_housing(data_home=data_home))


def _download_openml(data_home: str, data_id: int) -> Rows:
    # This parser needs no pandas; our own cache takes the place of scikit-learn's.
    found = sklearn.datasets.fetch_openml(
        data_id=data_id, data_home=data_home, cache=False, as_frame=False, parser="liac-arff"
    )
    return _rows(found)


def _download_pole(data_home: str) -> Rows:
    X, y, names = _download_openml(data_home, 44133)
    return X - X.min(axis=0), y, names


def _rows(found: Any) -> Rows:
    X, y = (np.asarray(part, dtype=np.float64) for part in (found.data, found.target))
    return X, y, tuple(found.feature_names)


SNELSON = Entry(
    name="snelson",
    n_rows=200,
    n_inputs=1,
    n_test=301,
    target_mean=-0.34274,
    target_std=0.84474,
    tolerance=1e-5,
    description=(
        "One-dimensional toy set of E. Snelson and Z. Ghahramani, Sparse Gaussian processes using "
        "pseudo-inputs, NIPS 2005. Distributed with academic code; no licence stated."
    ),
    files="snelson.parquet (columns x and y) and snelson_test.parquet (column x)",
    origin=(
        "train_inputs, train_outputs and test_inputs of the SPGP_dist archive on E. Snelson's "
        "page. make_snelson_like() makes rows of the same kind."
    ),
    read=_read_snelson,
)

NONSTATIONARY = Entry(
    name="nonstationary",
    n_rows=2000,
    n_inputs=1,
    n_test=500,
    target_mean=0.16469,
    target_std=1.34783,
    tolerance=1e-5,
    description=(
        "The second synthetic set of the EigenGP paper, the authors' ten draws: x·sin(x³) on an "
        "even grid of [0, 3], noise of standard deviation 0.5. From the public GitHub project "
        "hao-peng/EigenGPandOthersTest."
    ),
    files="nonstationary.parquet (columns run, x and y) and nonstationary_test.parquet (x and f)",
    origin=(
        "the GitHub project hao-peng/EigenGPandOthersTest. make_nonstationary() makes the like."
    ),
    read=_read_nonstationary,
)

CALIFORNIA = Entry(
    name="california",
    n_rows=20_640,
    n_inputs=8,
    target_mean=2.0686,
    target_std=1.1540,
    tolerance=5e-5,
    n_train=10_000,
    description=(
        "Median house value (100,000 US$) of block groups in the census of 1990. R. K. Pace and "
        "R. Barry, Sparse Spatial Autoregressions, Statistics & Probability Letters 33, 1997. The "
        "target is capped at 5.00001. No licence stated; US census data."
    ),
    files="california.parquet (inputs and a column target)",
    origin="sklearn.datasets.fetch_california_housing.",
    download=_download_california,
)

PROTEIN = Entry(
    name="protein",
    n_rows=45_730,
    n_inputs=9,
    target_mean=7.7485,
    target_std=6.1183,
    tolerance=5e-5,
    n_train=20_000,
    description=(
        "Physicochemical Properties of Protein Tertiary Structure: RMSD (ångström) of decoys of "
        "CASP 5-9. P. S. Rana, UCI Machine Learning Repository, data set 265, 2013. CC BY 4.0 by "
        "UCI's general terms."
    ),
    files="protein.parquet (inputs and a column target)",
    origin="OpenML 44963, or CASP.csv of UCI's data set 265 with RMSD as target.",
    download=partial(_download_openml, data_id=44963),
)

POLE = Entry(
    name="pole",
    n_rows=15_000,
    n_inputs=26,
    target_mean=28.945,
    target_std=41.726,
    tolerance=5e-4,
    n_train=10_000,
    description=(
        "Pole Telecomm of L. Torgo's regression collection, the 26 informative inputs of 48. Used "
        "in S. M. Weiss and N. Indurkhya, Rule-based machine learning methods for functional "
        "prediction, JAIR 3, 1995. No licence stated."
    ),
    files="pole.parquet (inputs and a column target)",
    origin="OpenML 44133.",
    download=_download_pole,
)

KIN40K = Entry(
    name="kin40k",
    n_rows=40_000,
    n_inputs=8,
    target_mean=0.0,
    target_std=0.997,
    tolerance=5e-4,
    n_train=10_000,
    description=(
        "Forward kinematics of a simulated robot arm with eight links, inputs and target "
        "standardised. A. Schwaighofer and V. Tresp, Transductive and inductive methods for "
        "approximate Gaussian process regression, NIPS 2002. No licence stated."
    ),
    files="kin40k.parquet (inputs and a column target)",
    origin="the GitHub project treforevans/uci_datasets.",
)
