"""What makes passes over rows fast: threads, recycled memory, and products in tiles.

A pool of threads, with one BLAS thread each, works within the limits of the user.

Allocating memory costs more than the arithmetic that fills it. Arrays as large as a block of
features come from `make_buffer` and are returned by `recycle`; outside `reuse_buffers` these are
plain allocations.

BLAS copies the factors of a large product before it multiplies them, which takes as long as the
product itself if they have many rows and few columns. It does not copy small factors, so the long
side is split into tiles, and one call multiplies them all.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, lru_cache
from itertools import pairwise
from queue import SimpleQueue
from threading import Lock, Thread, local
from typing import Any, Literal, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from eigengp.backend.namespace import AnyArray, cast, is_numpy

T = TypeVar("T")

_SMALL_MATRIX = 1000
"""The size of matrices up to which one BLAS thread is fastest: idle ones keep spinning."""
_SMALLEST_BUFFER = 1 << 15
_MOST_FREE_BYTES = 1 << 27
_SMALL = 1_000_000
"""The largest number of multiplications that OpenBLAS treats as small."""
_SHORTEST_TILE = 256
"""Shorter tiles cost more in calls than they save in copies."""


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def count_available_threads() -> int:
    """Return the number of threads that BLAS may use, which also limits the pool.

    It respects the settings of the user and the limits of joblib in worker processes.
    """
    counts = [lib["num_threads"] for lib in _controller().info() if lib["user_api"] == "blas"]
    return max(counts, default=1)


class _SharedContext:
    """A context of the whole process: it begins with the first that enters, ends with the last.

    Parameters
    ----------
    begin : callable
        Called by the first; returns what the last calls.
    """

    def __init__(self, begin: Callable[[], Callable[[], None]]) -> None:
        self._begin = begin
        self.reset()

    def reset(self) -> None:
        """Be outside: at the start, and in a forked process."""
        self._lock = Lock()
        self._inside = 0

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Enter the context in this thread."""
        with self._lock:
            if self._inside == 0:
                self._end = self._begin()
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0:
                    self._end()


class _Memory(np.ndarray[Any, Any]):
    """Bytes that hold arrays of varying shapes."""


class _Buffers(_SharedContext):
    """Free memory, held up to a limit; single dictionary operations need no lock."""

    def __init__(self) -> None:
        self._free: dict[int, _Memory] = {}
        super().__init__(lambda: self._free.clear)

    def reset(self) -> None:
        super().reset()
        self._free.clear()

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


_BLAS_LIMIT = _SharedContext(
    lambda: _controller().limit(limits=1, user_api="blas").restore_original_limits
)
_BUFFERS = _Buffers()
use_one_blas_thread = _BLAS_LIMIT.enter
"""A context that limits BLAS to one thread, which is faster for small matrices."""
reuse_buffers = _BUFFERS.enter
"""A context in which recycled arrays are reused."""
recycle = _BUFFERS.give
"""Return the memory of an array that is no longer used."""


def use_one_openmp_thread() -> AbstractContextManager[Any]:
    """Limit OpenMP to one thread, in this Python thread.

    Several OpenMP threads add in a random order, so that equal seeds give different results, and
    they do not survive a fork. The libraries are looked up again whenever a module was imported
    since, because some are loaded late.
    """
    return _find_libraries(len(sys.modules)).limit(limits=1, user_api="openmp")


@lru_cache(maxsize=1)
def _find_libraries(n_modules: int) -> ThreadpoolController:
    """Return the loaded libraries; `n_modules` tells when they must be looked up again."""
    return ThreadpoolController()


def limit_threads(size: int) -> AbstractContextManager[None]:
    """Limit BLAS to one thread if matrices of this size are small."""
    return use_one_blas_thread() if size <= _SMALL_MATRIX else nullcontext()


@contextmanager
def speed_up_passes(size: int) -> Iterator[None]:
    """Limit BLAS threads and reuse buffers during many passes with `size` features."""
    with limit_threads(size), reuse_buffers():
        yield


class _ThreadPool:
    """Threads that stay alive and take tasks from a queue.

    Starting threads, or waiting on futures, takes as long as a pass over a few rows.
    """

    here = local()
    """Has the attribute `member` in threads of a pool, which do not use a pool themselves."""

    def __init__(self, n_threads: int) -> None:
        self._tasks: SimpleQueue[tuple[Callable[[Any], Any], Any, SimpleQueue[Any]]]
        self._tasks = SimpleQueue()
        for number in range(n_threads):
            Thread(target=self._serve, name=f"eigengp_{number}", daemon=True).start()

    def submit(self, work: Callable[[Any], Any], argument: Any) -> SimpleQueue[Any]:
        """Run `work(argument)` in the pool; the queue receives its result and its exception."""
        answer: SimpleQueue[Any] = SimpleQueue()
        self._tasks.put((work, argument, answer))
        return answer

    def _serve(self) -> None:
        self.here.member = True
        while True:
            _execute(*self._tasks.get())


def _execute(work: Callable[[Any], Any], argument: Any, answer: SimpleQueue[Any]) -> None:
    try:
        answer.put((work(argument), None))
    except BaseException as error:
        answer.put((None, error))


_get_pool = cache(_ThreadPool)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_get_pool.cache_clear)
    os.register_at_fork(after_in_child=_BLAS_LIMIT.reset)
    os.register_at_fork(after_in_child=_BUFFERS.reset)


def run_in_threads(
    work: Callable[[Sequence[slice]], T], blocks: Sequence[slice], n_threads: int
) -> list[T]:
    """Return `[work(stripe), …]` for contiguous stripes, one per thread, including this one."""
    if len(blocks) <= 1 or hasattr(_ThreadPool.here, "member"):
        return [work(blocks)]
    edges = np.linspace(0, len(blocks), min(n_threads, len(blocks)) + 1).round().astype(int)
    stripes = [blocks[low:high] for low, high in pairwise(edges.tolist())]
    with use_one_blas_thread():
        if len(stripes) == 1:
            return [work(stripes[0])]
        pending = [_get_pool(n_threads - 1).submit(work, stripe) for stripe in stripes[1:]]
        try:
            first = work(stripes[0])  # This thread takes the first stripe.
        finally:
            answers = [each.get() for each in pending]
    for _, error in answers:
        if error is not None:
            try:
                raise error
            finally:
                del error, answers  # Break the reference cycle with this frame.
    return [first, *(result for result, _ in answers)]


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
