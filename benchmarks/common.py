"""The data that the benchmarks share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Array = NDArray[np.float64]

TRAIN_ROWS = {"california": 10_000, "protein": 20_000, "pole": 10_000, "kin40k": 10_000}


def data_folder() -> Path:
    """Return the folder of the Parquet files: EIGENGP_DATA, or ../shared/data."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("EIGENGP_DATA", default))
    if not folder.is_dir():
        sys.exit(f"No data folder at {folder}: set EIGENGP_DATA to the folder of Parquet files.")
    return folder


def table(name: str) -> pd.DataFrame:
    """Return one Parquet file of the data folder."""
    return pd.read_parquet(data_folder() / f"{name}.parquet")


def split(name: str, seed: int = 0) -> tuple[Array, Array, Array, Array]:
    """Return training inputs and targets, then test inputs and targets; targets standardised."""
    frame = table(name)
    X, y = frame.drop(columns="target").to_numpy(float), frame["target"].to_numpy(float)
    order = np.random.default_rng(seed).permutation(y.size)
    train, test = order[: TRAIN_ROWS[name]], order[TRAIN_ROWS[name] :]
    centre, scale = y[train].mean(), y[train].std()
    return X[train], (y[train] - centre) / scale, X[test], (y[test] - centre) / scale
