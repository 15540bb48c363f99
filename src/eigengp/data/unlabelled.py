"""Targets: rows without one, targets of two distinct values, several outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing, check_array, check_consistent_length
from sklearn.utils._missing import is_pandas_na, is_scalar_nan

from eigengp._typing import Array

_FEWEST_OF_CLASSES = 100
"""Fewer targets of two distinct values may have them by chance."""


def find_unlabelled(y: Any) -> NDArray[np.bool_] | None:
    """Return which targets are NaN, None or NA, shape (N,); None if there are none."""
    values = np.asarray(y)
    if values.ndim != 1 or values.dtype.kind not in "fO":
        return None
    if values.dtype.kind == "f":
        missing = np.isnan(values)
    else:
        missing = np.array([v is None or is_scalar_nan(v) or is_pandas_na(v) for v in values], bool)
    return missing if missing.any() else None


def split_labelled(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any, Array | None]:
    """Return the labelled rows (X, y, weights), and the inputs of the others if there are any.

    Examples
    --------
    >>> X, y, weight, others = split_labelled([[0.0], [1.0], [2.0]], [1.0, np.nan, 3.0], None)
    >>> y, others
    (array([1., 3.]), array([[1.]]))
    """
    missing = None if y is None else find_unlabelled(y)
    if missing is None:
        return X, y, sample_weight, None
    check_consistent_length(X, y)
    if missing.all():
        raise ValueError("All targets in y are missing (NaN or None); some rows need a target.")
    known = np.flatnonzero(~missing)
    others = _safe_indexing(X, np.flatnonzero(missing))
    weight = None if sample_weight is None else np.asarray(sample_weight)[known]
    labelled = _safe_indexing(X, known)
    return labelled, np.asarray(y)[known], weight, check_array(others, dtype=np.float64)


def has_two_values(y: Any) -> bool:
    """Return whether targets in memory have two distinct values, in too many rows for chance."""
    if isinstance(y, list) or (hasattr(y, "to_numpy") and not hasattr(y, "dask")):
        y = np.asarray(y)
    if not isinstance(y, np.ndarray) or y.ndim != 1 or y.size < _FEWEST_OF_CLASSES:
        return False
    others = y[y != y[0]]
    return bool(others.size and np.all(others == others[0]))


def count_outputs(y: Any) -> int:
    """Return the number of columns of targets with two dimensions, and 0 for other targets."""
    shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
    return int(shape[1]) if len(shape) == 2 else 0
