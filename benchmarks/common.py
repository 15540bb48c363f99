"""The data that the benchmarks share."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eigengp import datasets

Array = NDArray[np.float64]

SETS = {
    "california": datasets.fetch_california,
    "protein": datasets.fetch_protein,
    "pole": datasets.fetch_pole,
    "kin40k": datasets.fetch_kin40k,
}
NOISE = 0.1
_CHUNK = 1 << 18

_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
if _BESIDE.is_dir():
    os.environ.setdefault("EIGENGP_DATA", str(_BESIDE))


def data_folder() -> Path:
    """Return the folder with the real data, or say how to name it."""
    folder = os.environ.get("EIGENGP_DATA")
    if folder is None:
        raise ValueError("EIGENGP_DATA must name the folder with the data as Parquet files.")
    return Path(folder)


def check_known(names: Iterable[str], known: Iterable[str]) -> None:
    """Say which names there are if some are not."""
    unknown = set(names) - set(known)
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))}: not among {', '.join(known)}.")


def split(name: str, seed: int = 0) -> tuple[Array, Array, Array, Array]:
    """Return training inputs and targets, then test inputs and targets; targets standardised."""
    train, test = SETS[name]().split(seed=seed)
    centre, scale = train.y.mean(), train.y.std()
    return train.X, (train.y - centre) / scale, test.X, (test.y - centre) / scale


def synthetic(n_rows: int, n_inputs: int, seed: int = 0) -> tuple[Array, Array]:
    """Return normal inputs and `sin(x₁) + x₂x₃ + noise`, made in place: no large temporaries."""
    rng = np.random.default_rng(seed)
    X, y = np.empty((n_rows, n_inputs)), np.empty(n_rows)
    rng.standard_normal(out=X)
    rng.standard_normal(out=y)
    for start in range(0, n_rows, _CHUNK):
        rows = X[start : start + _CHUNK]
        y[start : start + _CHUNK] *= NOISE
        y[start : start + _CHUNK] += np.sin(rows[:, 0]) + rows[:, 1] * rows[:, 2]
    return X, y
