"""Preparing the rows that a user hands over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.utils.validation import _check_sample_weight, validate_data

from eigengp._typing import Array
from eigengp.backend.namespace import (
    AnyArray,
    beside,
    dtype_name,
    is_numpy,
    namespace,
    on_host,
    place,
)
from eigengp.data.frames import check_frame
from eigengp.gp.blocks import RowBlock, RowSource

MERGE_UP_TO = 5_000
_SAMPLE_ROWS = 2_000


def follows_dispatch(X: Any) -> bool:
    """Say whether `X` is another library's array, and scikit-learn is told to leave it so."""
    if not get_config()["array_api_dispatch"] or isinstance(X, np.ndarray | list | tuple):
        return False
    try:
        return namespace(X) is not np
    except (TypeError, ImportError):
        return False


def checked_inputs(estimator: Any, X: Any) -> AnyArray:
    """Return the inputs of a fitted estimator, checked; in the array they came in."""
    check_frame(X)
    dtypes = _float_types(X)
    return validate_data(estimator, X, reset=False, dtype=dtypes)


def checked_rows(estimator: Any, X: Any, y: Any) -> tuple[AnyArray, AnyArray]:
    """Return what was handed to `fit`, checked; targets follow the inputs' library and device."""
    check_frame(X)
    dtypes = _float_types(X)
    if follows_dispatch(X):
        y = np.asarray(y) if isinstance(y, list) else y
        y = beside(y, X, "float32" if dtype_name(y) == "float32" else "float64")
    elif follows_dispatch(y):
        y = on_host(y)
    X, y = validate_data(estimator, X, y, dtype=dtypes, y_numeric=True)
    return X, y


def _float_types(X: Any) -> list[Any]:
    xp = namespace(X) if follows_dispatch(X) else np
    return [xp.float64, xp.float32]


def further_rows(estimator: Any, X: Any, y: Any, sample_weight: Any) -> RowBlock:
    """Return more rows for a fitted estimator, checked, standardised as the first were."""
    check_frame(X)
    X, y = (on_host(each) if follows_dispatch(each) else each for each in (X, y))
    X, y = validate_data(estimator, X, y, reset=False, dtype=np.float64, y_numeric=True)
    weight = checked_weight(sample_weight, X.shape[0])
    block: RowBlock = estimator._scaling.block(RowBlock(X, np.asarray(y, np.float64), weight))
    return block


def on_device(X: AnyArray, device: str | None) -> AnyArray:
    """Return NumPy's array on a device that PyTorch knows; None leaves it where it is."""
    if device is None or device == "cpu" or not is_numpy(X):
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
            f"device={device!r} is not to be had: {str(error).splitlines()[0]} Use device=None to "
            "compute on the CPU."
        ) from error


def check_same_place(estimator: Any, X: AnyArray, fitted: Any, method: str) -> None:
    """Raise where an array of another library or device is handed over than in `fit`."""
    if get_config()["array_api_dispatch"] and place(X) != fitted:
        raise ValueError(
            f"Inputs passed to {type(estimator).__name__}.{method}() must use the same namespace "
            f"and the same device as those passed to fit(): {fitted} then, {place(X)} now. "
            "Convert them, or fit again."
        )


def checked_weight(sample_weight: Any, n_rows: int) -> Array | None:
    """Return the sample weights as float64, shape (N,), or None where there are none."""
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
    if X.shape[0] > MERGE_UP_TO:
        return X, targets, weight
    table = np.column_stack([X.astype(np.float64), targets])
    unique, inverse = np.unique(table, axis=0, return_inverse=True)
    total = np.bincount(inverse.ravel(), weights=weight)
    single: Array | None = None if np.all(total == 1.0) else total.astype(np.float64)
    return np.ascontiguousarray(unique[:, :-1]), np.ascontiguousarray(unique[:, -1]), single


def distinct_rows(rows: RowSource, wanted: int) -> int:
    """Return how many different inputs there are, counting no further than `wanted`.

    A few rows spread over the data settle it nearly always; only where they
    repeat themselves are all rows compared.
    """
    stride = max(1, rows.n_rows // max(2 * wanted, _SAMPLE_ROWS))
    sample = _Distinct.among(rows.take(np.arange(0, rows.n_rows, stride)).X, wanted)
    if sample.count >= wanted:
        return wanted
    return rows.total(lambda block: _Distinct.among(on_host(block.X), wanted)).count


@dataclass(frozen=True)
class _Distinct:
    """Different inputs, at most as many as wanted; adding two gives those among both."""

    inputs: Array
    wanted: int

    @classmethod
    def among(cls, X: Array, wanted: int) -> _Distinct:
        return cls(np.unique(X, axis=0)[:wanted], wanted)

    @property
    def count(self) -> int:
        return int(self.inputs.shape[0])

    def __add__(self, other: _Distinct) -> _Distinct:
        if self.count >= self.wanted:
            return self
        return _Distinct.among(np.concatenate([self.inputs, other.inputs]), self.wanted)
