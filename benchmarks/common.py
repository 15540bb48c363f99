"""The data that the benchmarks share."""

from __future__ import annotations

import os
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

_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
if _BESIDE.is_dir():
    os.environ.setdefault("EIGENGP_DATA", str(_BESIDE))


def split(name: str, seed: int = 0) -> tuple[Array, Array, Array, Array]:
    """Return training inputs and targets, then test inputs and targets; targets standardised."""
    train, test = SETS[name]().split(seed=seed)
    centre, scale = train.y.mean(), train.y.std()
    return train.X, (train.y - centre) / scale, test.X, (test.y - centre) / scale
