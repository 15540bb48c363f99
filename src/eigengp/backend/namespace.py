"""The seam between the formulas and the libraries that hold arrays.

Rows may lie in NumPy, in PyTorch or CuPy on a GPU, or in any other array that
follows the Python array API standard. Formulas that touch rows ask the rows
for their namespace; all that is M × M lies in NumPy, in float64, and is moved
beside the rows where it meets them.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from eigengp._typing import Array

AnyArray = Any
"""An array of any library that follows the array API standard."""

_NUMPY_NAMES = {np.dtype(np.float64): "float64", np.dtype(np.float32): "float32"}


def namespace(x: AnyArray) -> Any:
    """Return the functions of the library that `x` belongs to: NumPy itself for its own arrays."""
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
    """Say whether `x` lies in NumPy."""
    return isinstance(x, np.ndarray)


def place(x: AnyArray) -> Hashable:
    """Return what library and device an array belongs to, as a key."""
    return "numpy" if is_numpy(x) else (namespace(x).__name__, str(x.device))


def dtype_name(x: AnyArray) -> str:
    """Return the name of an array's data type, the same in every library."""
    if isinstance(x, np.ndarray):
        return _NUMPY_NAMES.get(x.dtype) or x.dtype.name
    return str(x.dtype).rsplit(".", 1)[-1]


def cast(x: AnyArray, name: str) -> AnyArray:
    """Return `x` in the data type called `name`; itself where it is so already."""
    if dtype_name(x) == name:
        return x
    xp = namespace(x)
    return xp.astype(x, getattr(xp, name))


def beside(x: AnyArray, other: AnyArray, name: str = "float64") -> AnyArray:
    """Return `x` in the library and on the device of `other`, in the data type called `name`."""
    if place(x) == place(other):
        return cast(x, name)
    xp = namespace(other)
    if is_numpy(other):
        return on_host(x).astype(name, copy=False)
    return xp.asarray(np.array(on_host(x)), dtype=getattr(xp, name), device=other.device)


def on_host(x: AnyArray) -> Array:
    """Return an array of any library as one of NumPy, in float64."""
    if not isinstance(x, np.ndarray | np.generic):
        if hasattr(x, "cpu"):
            x = x.detach().cpu().numpy()
        elif hasattr(x, "get"):
            x = x.get()
        else:
            x = np.from_dlpack(x)
    return np.asarray(x, dtype=np.float64)


class Placed:
    """An array that many blocks of rows need beside them: moved and cast once for each place."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self._copies: dict[Hashable, AnyArray] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Keep the array alone: copies on a device are of no use elsewhere."""
        return {"_array": self._array, "_copies": {}}

    def beside(self, other: AnyArray) -> AnyArray:
        """Return the array in the library, on the device and in the data type of `other`."""
        name = dtype_name(other)
        key = (place(other), name)
        if key not in self._copies:
            self._copies[key] = beside(self._array, other, name)
        return self._copies[key]


def exp_in_place(x: AnyArray) -> AnyArray:
    """Return `exp(x)`, in the memory of `x` where the library can."""
    if is_numpy(x):
        return np.exp(x, out=x)
    return x.exp_() if hasattr(x, "exp_") else namespace(x).exp(x)


def row_dots(x: AnyArray, z: AnyArray) -> AnyArray:
    """Return the inner product of each row of `x` with the same row of `z`, shape (n,)."""
    if is_numpy(x):
        return np.einsum("ni,ni->n", x, z)
    return namespace(x).sum(x * z, axis=1)


def positive(x: AnyArray) -> AnyArray:
    """Return `max(x, 0)`, entry by entry."""
    return namespace(x).where(x > 0.0, x, 0.0 * x)


def clip_in_place(x: AnyArray, low: float, high: float) -> AnyArray:
    """Return `x` held between two numbers, in its own memory where the library can."""
    return np.clip(x, low, high, out=x) if is_numpy(x) else namespace(x).clip(x, low, high)


def times(x: AnyArray, z: AnyArray, overwrite: bool) -> AnyArray:
    """Return `x ∘ z` in the data type of `x`, and in its memory where that may be overwritten."""
    if not is_numpy(x):
        z = cast(z, dtype_name(x))
    if not overwrite:
        return x * z
    x *= z
    return x
