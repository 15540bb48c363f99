"""Array libraries: NumPy, PyTorch, CuPy and others that follow the array API standard.

Code that touches rows takes its functions from the namespace of the rows. M × M matrices are NumPy
arrays in float64, and are moved to the library and device of the rows when needed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import Field
from importlib.util import find_spec
from operator import add, sub
from typing import Any, ClassVar, Self

import numpy as np

from eigengp._typing import Array

AnyArray = Any  # An array of any library that follows the array API standard.

_NUMPY_NAMES = {np.dtype(np.float64): "float64", np.dtype(np.float32): "float32"}


def namespace(x: AnyArray) -> Any:
    """Return the array namespace of `x`: NumPy for NumPy arrays."""
    if isinstance(x, np.ndarray | np.generic):
        return np
    try:
        from array_api_compat import array_namespace
    except ImportError:
        raise ImportError(
            f"Arrays of type {type(x).__name__} need the package array-api-compat; install it "
            'with pip install "eigengp[array-api]", or pass NumPy arrays.'
        ) from None
    return array_namespace(x)


def is_numpy(x: AnyArray) -> bool:
    """Return whether `x` is a NumPy array."""
    return isinstance(x, np.ndarray)


def place(x: AnyArray) -> Hashable:
    """Return the library and device of an array, as a key."""
    return "numpy" if is_numpy(x) else (namespace(x).__name__, str(x.device))


def dtype_name(x: AnyArray) -> str:
    """Return the name of an array's data type, the same in every library."""
    if isinstance(x, np.ndarray):
        return _NUMPY_NAMES.get(x.dtype) or x.dtype.name
    return str(x.dtype).rsplit(".", 1)[-1]


def cast(x: AnyArray, name: str) -> AnyArray:
    """Return `x` in the data type `name`, without a copy if it has it already."""
    if dtype_name(x) == name:
        return x
    xp = namespace(x)
    return xp.astype(x, getattr(xp, name))


def beside(x: AnyArray, other: AnyArray, name: str = "float64") -> AnyArray:
    """Return `x` in the library and on the device of `other`, in the data type `name`."""
    if place(x) == place(other):
        return cast(x, name)
    xp = namespace(other)
    if is_numpy(other):
        return on_host(x).astype(name, copy=False)
    return xp.asarray(np.array(on_host(x)), dtype=getattr(xp, name), device=other.device)


def empty_beside(shape: tuple[int, ...], other: AnyArray, name: str = "float64") -> AnyArray:
    """Return an uninitialised array in the library and on the device of `other`."""
    xp = namespace(other)
    return xp.empty(shape, dtype=getattr(xp, name), device=other.device)


def on_host(x: AnyArray) -> Array:
    """Return an array of any library as a NumPy array in float64."""
    if not isinstance(x, np.ndarray | np.generic):
        if hasattr(x, "cpu"):
            x = x.detach().cpu().numpy()
        elif hasattr(x, "get"):
            x = x.get()
        else:
            x = np.from_dlpack(x)
    return np.asarray(x, dtype=np.float64)


class Placed:
    """An array that many blocks of rows need: moved and cast once for each library and device."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self._copies: dict[Hashable, AnyArray] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the array without its copies, which are useless in other processes."""
        return {"_array": self._array, "_copies": {}}

    def beside(self, other: AnyArray) -> AnyArray:
        """Return the array in the library, on the device and in the data type of `other`."""
        name = dtype_name(other)
        key = (place(other), name)
        if key not in self._copies:
            self._copies[key] = beside(self._array, other, name)
        return self._copies[key]


def positive(x: AnyArray) -> AnyArray:
    """Return `max(x, 0)`, entry by entry."""
    return namespace(x).where(x > 0.0, x, 0.0 * x)


def row_dots(x: AnyArray, z: AnyArray) -> AnyArray:
    """Return the inner product of each row of `x` with the same row of `z`, shape (n,)."""
    return np.einsum("ni,ni->n", x, z) if is_numpy(x) else namespace(x).sum(x * z, axis=1)


def take_inputs(X: AnyArray, dims: Sequence[int] | None) -> AnyArray:
    """Return some inputs of all rows, in any library's arrays; None is all of them."""
    if dims is None:
        return X
    if is_numpy(X):
        return X[..., list(dims)]
    rows = (slice(None),) * (X.ndim - 1)
    return namespace(X).concat([X[*rows, d : d + 1] for d in dims], axis=X.ndim - 1)


def put_inputs(own: AnyArray, dims: Sequence[int] | None, n_features: int) -> AnyArray:
    """Return columns in the place of these inputs, zero for the others, shape (n, D)."""
    if dims is None:
        return own
    xp = namespace(own)
    columns = [xp.zeros_like(own[:, :1])] * n_features
    for i, d in enumerate(dims):
        columns[d] = own[:, i : i + 1]
    return xp.concat(columns, axis=1)


class Additive:
    """A dataclass of arrays and numbers that adds field by field."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __add__(self, other: Self) -> Self:
        return self._of_each(add, self, other)

    def __sub__(self, other: Self) -> Self:
        return self._of_each(sub, self, other)

    def __mul__(self, factor: float) -> Self:
        return self._of_each(lambda each: factor * each, self)

    def __iadd__(self, other: Self) -> Self:
        """Add in the memory of this one's arrays, which are lost."""
        return self._of_each(_added_in_place, self, other)

    def on_host(self) -> Self:
        """Return the same in NumPy's arrays and plain numbers."""
        return self._of_each(_hosted, self)

    @classmethod
    def _of_each(cls, function: Callable[..., Any], *own: Self) -> Self:
        names = cls.__dataclass_fields__
        return cls(**{name: function(*(getattr(each, name) for each in own)) for name in names})


def _hosted(x: Any) -> Any:
    """Return a number as it is, and an array as one of NumPy's."""
    if isinstance(x, float):
        return x
    hosted = on_host(x)
    return np.ascontiguousarray(hosted) if hosted.ndim else float(hosted)


def _added_in_place(x: Any, other: Any) -> Any:
    """Return `x + other`, in the memory of `x` if that is an array; numbers may be shared."""
    if not getattr(x, "ndim", 0):
        return x + other
    x += other
    return x


def find_gpu() -> str | None:
    """Return the device of PyTorch that is a GPU; None if there is none."""
    if find_spec("torch") is None:
        return None
    import torch

    return "cuda" if torch.cuda.is_available() else None


def move_to_device(X: AnyArray, device: str | None) -> AnyArray:
    """Move a NumPy array to a device of PyTorch; None does not move it."""
    device = find_gpu() if device == "auto" else device
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
