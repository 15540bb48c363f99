"""What the benchmarks share: synthetic rows, and a check of names."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NOISE = 0.1
_CHUNK = 1 << 18


def check_known(names: Iterable[str], known: Iterable[str]) -> None:
    """Say which names there are if some are not."""
    unknown = set(names) - set(known)
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))}: not among {', '.join(known)}.")


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
