"""The benchmark data sets that can be fetched, one function for each.

`train, test = fetch_california().split(seed=0)` is all it takes. Each looks for its Parquet file in
the folder that `EIGENGP_DATA` names, then for that file or an earlier download in the cache, and
then downloads if it can. Rows, columns, and mean and spread of the target are checked every time.
"""

from __future__ import annotations

import os
from typing import TypeAlias

from eigengp.datasets import entries
from eigengp.datasets.dataset import Dataset
from eigengp.datasets.lookup import fetch

PathLike: TypeAlias = str | os.PathLike[str] | None


def fetch_snelson(*, data_home: PathLike = None) -> Dataset:
    """Return Snelson's one-dimensional toy set: 200 rows, and 301 inputs to predict at.

    Snelson and Ghahramani, "Sparse Gaussian processes using pseudo-inputs", NIPS 2005. It has no
    download here: `snelson.parquet` and `snelson_test.parquet` have to be in the folder that
    `EIGENGP_DATA` names or in the cache. `make_snelson_like` makes rows of the same kind.

    Parameters
    ----------
    data_home : path, optional
        The folder in which the cache `eigengp` lies; by default scikit-learn's data folder.

    Returns
    -------
    data : Dataset
        With `X_test`; there are no true values for it.
    """
    return fetch(entries.SNELSON, data_home)


def fetch_nonstationary(*, data_home: PathLike = None) -> Dataset:
    """Return the authors' ten draws of `x·sin(x³)` plus noise: 200 rows each.

    The second synthetic set of the EigenGP paper. It has no download here:
    `nonstationary.parquet` and `nonstationary_test.parquet` have to be in the folder that
    `EIGENGP_DATA` names or in the cache. `make_nonstationary` makes the like.

    Parameters
    ----------
    data_home : path, optional
        The folder in which the cache `eigengp` lies; by default scikit-learn's data folder.

    Returns
    -------
    data : Dataset
        The first draw; `run(number)` has the others. `X_test` and `f_test` hold 500 inputs and
        the noiseless truth.
    """
    return fetch(entries.NONSTATIONARY, data_home)


def fetch_california(*, data_home: PathLike = None) -> Dataset:
    """Return house values in California in 1990: 20,640 rows, 8 inputs.

    The rows and columns are those of `sklearn.datasets.fetch_california_housing`.

    Parameters
    ----------
    data_home : path, optional
        The folder in which the cache `eigengp` lies; by default scikit-learn's data folder.

    Returns
    -------
    data : Dataset
        `split` trains on 10,000 rows unless told otherwise.
    """
    return fetch(entries.CALIFORNIA, data_home)


def fetch_protein(*, data_home: PathLike = None) -> Dataset:
    """Return physicochemical properties of proteins (CASP): 45,730 rows, 9 inputs.

    Downloaded rows may come in another order than those of a Parquet file, and then the same seed
    is another split. Some 1,700 rows repeat an earlier one.

    Parameters
    ----------
    data_home : path, optional
        The folder in which the cache `eigengp` lies; by default scikit-learn's data folder.

    Returns
    -------
    data : Dataset
        `split` trains on 20,000 rows unless told otherwise.
    """
    return fetch(entries.PROTEIN, data_home)


def fetch_pole(*, data_home: PathLike = None) -> Dataset:
    """Return the pole telecommunication data: 15,000 rows, 26 inputs.

    Each input is shifted so that its minimum is 0. Downloaded rows may come in another order than
    those of a Parquet file, and then the same seed is another split.

    Parameters
    ----------
    data_home : path, optional
        The folder in which the cache `eigengp` lies; by default scikit-learn's data folder.

    Returns
    -------
    data : Dataset
        `split` trains on 10,000 rows unless told otherwise.
    """
    return fetch(entries.POLE, data_home)


def fetch_kin40k(*, data_home: PathLike = None) -> Dataset:
    """Return the kinematics of a simulated robot arm: 40,000 rows, 8 inputs.

    It has no download here: `kin40k.parquet` has to be in the folder that `EIGENGP_DATA` names or
    in the cache.

    Parameters
    ----------
    data_home : path, optional
        The folder in which the cache `eigengp` lies; by default scikit-learn's data folder.

    Returns
    -------
    data : Dataset
        `split` trains on 10,000 rows unless told otherwise.
    """
    return fetch(entries.KIN40K, data_home)
