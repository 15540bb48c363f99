"""Arrays as large as a block of features: recycled memory, and products in tiles.

Allocating memory costs more than the arithmetic that fills it. Such arrays come from `make_buffer`
and are returned by `recycle`; outside `reuse_buffers` these are plain allocations.

BLAS copies the factors of a large product before it multiplies them, which takes as long as the
product itself if they have many rows and few columns. It does not copy small factors, so the long
side is split into tiles, and one call multiplies them all.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Literal

import numpy as np

from eigengp.backend.namespace import AnyArray, cast, is_numpy, namespace

_SMALLEST_BUFFER = 1 << 15
_MOST_FREE_BYTES = 1 << 27
_SMALL = 1_000_000
"""The largest number of multiplications that OpenBLAS treats as small."""
_SHORTEST_TILE = 256
"""Shorter tiles cost more in calls than they save in copies."""


class _Memory(np.ndarray[Any, Any]):
    """Bytes that hold arrays of varying shapes."""


class _Buffers:
    """Free memory, held up to a limit while at least one context is open.

    Threads need no lock, because single dictionary operations are atomic.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Hold no memory: at the start, and in a forked process."""
        self._lock = Lock()
        self._inside = 0
        self._free: dict[int, _Memory] = {}

    @contextmanager
    def reuse(self) -> Iterator[None]:
        with self._lock:
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0:
                    self._free = {}

    def take(self, shape: tuple[int, ...], dtype: Any, order: Literal["C", "F"] = "C") -> AnyArray:
        """Return an array in the smallest free memory that is at most three times its size."""
        size = max(1, math.prod(shape) * dtype.itemsize)
        if not self._inside or size < _SMALLEST_BUFFER:
            return np.empty(shape, dtype, order)
        fitting = [each for each in list(self._free.values()) if size <= each.size <= 3 * size]
        fitting.reverse()  # The last returned is still in the CPU cache.
        for memory in sorted(fitting, key=len):
            if self._free.pop(id(memory), None) is not None:  # Another thread may have taken it.
                break
        else:
            memory = _Memory((size + size // 8,), np.uint8)
        return np.ndarray(shape, dtype, memory, order=order)

    def give(self, x: AnyArray) -> None:
        memory = getattr(x, "base", None)
        if not (self._inside and isinstance(memory, _Memory)):
            return
        held = sum(each.size for each in list(self._free.values()))
        if held + memory.size <= _MOST_FREE_BYTES:
            self._free[id(memory)] = memory


_BUFFERS = _Buffers()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_BUFFERS.reset)
reuse_buffers = _BUFFERS.reuse
"""A context in which recycled arrays are reused."""
recycle = _BUFFERS.give
"""Return the memory of an array that is no longer used."""


def make_buffer(
    shape: tuple[int, ...], dtype: Any = np.float64, order: Literal["C", "F"] = "C"
) -> AnyArray:
    """Return an uninitialised array, in recycled memory if possible."""
    return _BUFFERS.take(shape, np.dtype(dtype), order)


def convert(x: AnyArray, name: str) -> AnyArray:
    """Convert `x` to another data type, in recycled memory if possible."""
    if not is_numpy(x):
        return cast(x, name)
    result = make_buffer(x.shape, name, "F")
    result[...] = x
    return result


def product(x: AnyArray, z: AnyArray) -> AnyArray:
    """Return `x z` in recycled memory if possible, with contiguous columns in NumPy.

    `x` has many rows and few columns, and BLAS is faster by up to a half if the long side is
    contiguous.
    """
    if not is_numpy(x) or x.dtype != z.dtype:
        return x @ z
    n, m = x.shape[0], z.shape[1]
    out = make_buffer((n, m), x.dtype, "F")
    count, tile = _count_tiles(n, x.shape[1] * m)
    whole = count * tile
    np.matmul(_view_tiles(x[:whole], count), z, out=_view_tiles(out[:whole], count))
    if whole < n:
        np.matmul(x[whole:], z, out=out[whole:])
    return out


def contraction(x: AnyArray, z: AnyArray) -> AnyArray:
    """Return `xᵀ z`, where both have many rows and few columns."""
    if not is_numpy(x) or x.dtype != z.dtype:
        return x.T @ z
    n = x.shape[0]
    count, tile = _count_tiles(n, x.shape[1] * z.shape[1])
    if count <= 1:
        return x.T @ z
    whole = count * tile
    parts = np.matmul(_view_tiles(x[:whole], count).swapaxes(1, 2), _view_tiles(z[:whole], count))
    found = parts.sum(axis=0)
    if whole < n:
        found += x[whole:].T @ z[whole:]
    return found


def _count_tiles(n: int, multiplications: int) -> tuple[int, int]:
    """Return the number of tiles for `n` rows, and the number of rows in each.

    `multiplications` is the number per row. Fewer rows than tiles remain, and none if possible.
    """
    longest = _SMALL // max(multiplications, 1)
    if longest < _SHORTEST_TILE or n <= longest:
        return 1, n
    fewest = -(-n // longest)
    most = min(2 * fewest, 2 * n // _SHORTEST_TILE)
    divisors = (count for count in range(fewest, most + 1) if n % count == 0)
    count = next(divisors, fewest)
    return count, n // count


def _view_tiles(x: AnyArray, count: int) -> AnyArray:
    """Return a view of a matrix with contiguous columns as `count` tiles of rows."""
    n, m = x.shape
    return x.T.reshape(m, count, n // count).transpose(1, 2, 0)


def clip_in_place(x: AnyArray, low: float, high: float) -> AnyArray:
    """Clip `x` between two numbers, in place if the library can."""
    return np.clip(x, low, high, out=x) if is_numpy(x) else namespace(x).clip(x, low, high)


def with_diagonal(K: AnyArray, value: float) -> AnyArray:
    """Return a square matrix, perhaps with columns to spare, with this number on its diagonal."""
    n = K.shape[0]
    if is_numpy(K):
        np.fill_diagonal(K[:, :n], value)
        return K
    xp: Any = namespace(K)
    eye = xp.eye(n, K.shape[1], dtype=xp.bool, device=K.device)
    return xp.where(eye, xp.asarray(value, dtype=K.dtype, device=K.device), K)
