"""Validation of the data passed to `fit` and `predict`, and preparation of rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.utils import check_X_y
from sklearn.utils.validation import _check_sample_weight, _get_feature_names, validate_data

from eigengp._typing import Array
from eigengp.backend.namespace import (
    AnyArray,
    beside,
    dtype_name,
    namespace,
    on_host,
    place,
)
from eigengp.gp.blocks import RowBlock

_TIED = 9
"""Decimals to which distances are compared."""
MERGE_UP_TO = 5_000


def follows_dispatch(X: Any) -> bool:
    """Return whether `X` is an array of another library, with `array_api_dispatch` enabled."""
    if not get_config()["array_api_dispatch"] or isinstance(X, np.ndarray | list | tuple):
        return False
    try:
        return namespace(X) is not np
    except (TypeError, ImportError):
        return False


def check_inputs(estimator: Any, X: Any) -> AnyArray:
    """Return the validated inputs of a fitted estimator, in their array library."""
    check_frame(X)
    return validate_data(estimator, X, reset=False, dtype=_get_float_types(X))


def check_rows(name: str, X: Any, y: Any) -> tuple[AnyArray, AnyArray, NDArray[Any] | None]:
    """Return validated inputs and targets, and the names of the inputs.

    Targets are moved to the library and device of the inputs. `name` is that of the estimator.
    """
    check_frame(X)
    names, dtypes = _get_feature_names(X), _get_float_types(X)
    if y is None:
        raise ValueError(
            f"This {name} estimator requires y to be passed, but the target y is None."
        )
    if follows_dispatch(X):
        y = np.asarray(y) if isinstance(y, list) else y
        y = beside(y, X, "float32" if dtype_name(y) == "float32" else "float64")
    elif follows_dispatch(y):
        y = on_host(y)
    X, y = check_X_y(X, y, dtype=dtypes, y_numeric=True, estimator=name)
    return X, y, names


def _get_float_types(X: Any) -> list[Any]:
    xp = namespace(X) if follows_dispatch(X) else np
    return [xp.float64, xp.float32]


def check_further_rows(estimator: Any, X: Any, y: Any, sample_weight: Any) -> RowBlock:
    """Return more validated rows for a fitted estimator, as NumPy arrays."""
    check_frame(X)
    X, y = (on_host(each) if follows_dispatch(each) else each for each in (X, y))
    X, y = validate_data(estimator, X, y, reset=False, dtype=np.float64, y_numeric=True)
    return RowBlock(X, np.asarray(y, np.float64), check_weight(sample_weight, X.shape[0]))


def move_to_device(X: AnyArray, device: str | None) -> AnyArray:
    """Move a NumPy array to a device of PyTorch; None does not move it."""
    if device is None or device == "cpu" or not isinstance(X, np.ndarray):
        return X
    try:
        import torch
    except ImportError:
        raise ImportError(
            f"device={device!r} needs PyTorch; install it with pip install "
            '"eigengp[torch]", or leave device=None to compute on the CPU.'
        ) from None
    try:
        return torch.as_tensor(np.require(X, requirements=["C", "W"]), device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ValueError(
            f"device={device!r} is not available: {str(error).splitlines()[0]} Use device=None to "
            "compute on the CPU."
        ) from error


def check_same_place(estimator: Any, X: AnyArray, fitted: Any, method: str) -> None:
    """Raise if an array is of another library or on another device than in `fit`."""
    if get_config()["array_api_dispatch"] and place(X) != fitted:
        raise ValueError(
            f"Inputs passed to {type(estimator).__name__}.{method}() must use the same namespace "
            f"and the same device as those passed to fit(): {fitted} then, {place(X)} now. "
            "Convert them, or fit again."
        )


def check_weight(sample_weight: Any, n_rows: int) -> Array | None:
    """Return validated sample weights as float64, shape (N,), or None."""
    if sample_weight is None:
        return None
    if follows_dispatch(sample_weight):
        sample_weight = on_host(sample_weight)
    weight: Array = _check_sample_weight(
        sample_weight, np.empty((n_rows, 1)), dtype=np.float64, ensure_non_negative=True
    )
    if not weight.any():
        raise ValueError("Sample weights must contain at least one non-zero number.")
    return weight


def merge_rows(
    X: NDArray[np.floating], y: NDArray[np.floating], weight: Array | None
) -> tuple[NDArray[np.floating], Array, Array | None]:
    """Merge rows with equal inputs and targets, and drop those of weight zero.

    A repeated row and a row of weight two then give identical results, and the order of the rows
    does not matter. Large data is not merged.
    """
    targets: Array = np.asarray(y, dtype=np.float64)
    if weight is not None and not np.all(weight > 0.0):
        keep = weight > 0.0
        X, targets, weight = X[keep], targets[keep], weight[keep]
    if X.shape[0] > MERGE_UP_TO:
        return X, targets, weight
    table = np.column_stack([X.astype(np.float64), targets])
    unique, inverse = np.unique(table, axis=0, return_inverse=True)
    total = np.bincount(inverse.ravel(), weights=weight)
    single: Array | None = None if np.all(total == 1.0) else total.astype(np.float64)
    order = _order_rows(unique[:, :-1], unique[:, -1])
    if single is not None:
        single = single[order]
    return np.ascontiguousarray(unique[order, :-1]), np.ascontiguousarray(unique[order, -1]), single


def _order_rows(X: Array, y: Array) -> NDArray[np.intp]:
    """Return an order of rows that no order, sign, shift or scale of the inputs changes.

    Rows are ordered by their targets, and rows of equal targets by their distance from the mean.
    Starts, subsets and folds, which are drawn by the numbers of rows, are then the same rows.
    """
    centred = X - X.mean(axis=0)
    spread = np.abs(centred).max(axis=0)
    squares = np.sort((centred[:, spread > 0.0] / spread[spread > 0.0]) ** 2, axis=1)
    distance = np.zeros(y.size)
    for column in squares.T:  # One by one: the sum does not depend on the number of columns.
        distance += column
    return np.lexsort((distance.round(_TIED), y))


def check_frame(X: Any) -> None:
    """Raise if a column of a pandas or Polars frame cannot be an input, and name the column."""
    if type(X).__name__ == "LazyFrame":
        raise TypeError("X is a lazy frame without rows; pass X.collect().")
    if isinstance(X, np.ndarray) or not hasattr(X, "columns"):
        return
    names = list(X.columns)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            f"X has more than one column named {twice[0]!r}; give each input a unique name."
        )
    for name in names:
        _check_column(name, np.asarray(X[name]))


def _check_column(name: Any, values: Any) -> None:
    if values.dtype.kind in "mM":
        raise ValueError(
            f"Column {name!r} of X holds dates or times, but inputs are numbers. Convert it to "
            "numbers, such as days since the first date, or drop it."
        )
    if values.dtype.kind in "biufc":
        return
    text = next((value for value in values if not _is_number(value)), None)
    if text is not None:
        raise ValueError(
            f"Column {name!r} of X holds text such as {str(text)!r}, but inputs are numbers. "
            "Encode it, for example by TableEncoder or scikit-learn's OneHotEncoder, or drop it."
        )


def _is_number(value: Any) -> bool:
    """Return whether a value is a number; missing values count as numbers."""
    try:
        float(value)
    except ValueError:
        return False
    except TypeError:
        pass
    return True
