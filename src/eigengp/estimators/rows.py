"""Preparing the rows that a user hands over."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_sample_weight

from eigengp.sources.arrays import ArraySource
from eigengp.typing import Array

_MERGE_UP_TO = 5_000
_SAMPLE_ROWS = 2_000


def checked_weight(sample_weight: ArrayLike | None, X: NDArray[np.floating]) -> Array | None:
    """Return the sample weights as float64, shape (N,), or None where there are none."""
    if sample_weight is None:
        return None
    weight: Array = _check_sample_weight(
        sample_weight, X, dtype=np.float64, ensure_non_negative=True
    )
    if not weight.any():
        raise ValueError("Sample weights must contain at least one non-zero number.")
    return weight


def merged(
    X: NDArray[np.floating], y: NDArray[np.floating], weight: Array | None
) -> tuple[NDArray[np.floating], Array, Array | None]:
    """Merge rows that are equal in inputs and target, and drop those of no weight.

    A row that stands twice and a row of weight two are then the same thing,
    to the last bit, and the order of the rows does not matter. Large data is
    not merged.
    """
    targets: Array = np.asarray(y, dtype=np.float64)
    if weight is not None and not np.all(weight > 0.0):
        keep = weight > 0.0
        X, targets, weight = X[keep], targets[keep], weight[keep]
    if X.shape[0] > _MERGE_UP_TO:
        return X, targets, weight
    table = np.column_stack([X.astype(np.float64), targets])
    unique, inverse = np.unique(table, axis=0, return_inverse=True)
    total = np.bincount(inverse.ravel(), weights=weight)
    single: Array | None = None if np.all(total == 1.0) else total.astype(np.float64)
    return np.ascontiguousarray(unique[:, :-1]), np.ascontiguousarray(unique[:, -1]), single


def distinct_rows(rows: ArraySource, wanted: int) -> int:
    """Return how many different inputs there are, counting no further than `wanted`.

    A few rows spread over the data settle it nearly always; only where they
    repeat themselves are all rows compared.
    """
    sample = max(2 * wanted, _SAMPLE_ROWS)
    for stride in (max(1, rows.n_rows // sample), 1):
        found = int(np.unique(rows.X[::stride], axis=0).shape[0])
        if found >= wanted:
            return wanted
    return found
