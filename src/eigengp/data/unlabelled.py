"""Rows without a target: their inputs take part in the scaling and in placing inducing points."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing, check_array, check_consistent_length
from sklearn.utils._missing import is_pandas_na, is_scalar_nan

from eigengp._typing import Array


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
