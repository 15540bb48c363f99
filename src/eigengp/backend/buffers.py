"""Memory that passes over rows use again and again.

Fresh memory costs more than the arithmetic that fills it. Arrays as large as a
block of features are made by `make_buffer` and offered back by `recycle`; outside
`reuse_buffers` these are plain allocations.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Literal

import numpy as np

from eigengp.backend.namespace import AnyArray, cast, dtype_name, is_numpy

_SMALLEST_BUFFER = 1 << 15
_MOST_FREE_BYTES = 1 << 27


class _Memory(np.ndarray[Any, Any]):
    """Bytes that arrays of changing shapes are laid out in."""


class _Buffers:
    """Free memory, held up to a limit from the first to enter until the last to leave.

    Threads take and give without a lock, at which they would wait for one
    another: single operations on a dictionary are whole.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Hold nothing: at the start, and in a process that was forked."""
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
        size = max(1, math.prod(shape) * dtype.itemsize)
        if not self._inside or size < _SMALLEST_BUFFER:
            return np.empty(shape, dtype, order)
        return np.ndarray(shape, dtype, self._find_memory(size), order=order)

    def _find_memory(self, size: int) -> _Memory:
        """Return the smallest free memory that holds so many bytes and not many more, or new.

        That of float64 may hold float32.
        """
        free = self._free
        fitting = [each for each in list(free.values()) if size <= each.size <= 3 * size]
        fitting.reverse()  # The last given is still in the cache.
        for best in sorted(fitting, key=len):
            if free.pop(id(best), None) is not None:  # Another thread may have been faster.
                return best
        return _Memory((size + size // 8,), np.uint8)

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
"""A context in which `recycled` arrays are used again."""
recycle = _BUFFERS.give
"""Offer the memory of an array that nobody will look at again."""


def make_buffer(
    shape: tuple[int, ...], dtype: Any = np.float64, order: Literal["C", "F"] = "C"
) -> AnyArray:
    """Return an array to be filled, in recycled memory where there is some."""
    return _BUFFERS.take(shape, np.dtype(dtype), order)


def convert(x: AnyArray, name: str) -> AnyArray:
    """Return `x` in the data type called `name`, in recycled memory where there is some."""
    if not is_numpy(x) or dtype_name(x) == name:
        return cast(x, name)
    result = make_buffer(x.shape, name, "F")
    result[...] = x
    return result
