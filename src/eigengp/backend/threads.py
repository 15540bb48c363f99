"""How passes over the rows use the machine: threads, recycled memory, and products in tiles.

A pool of threads, with one BLAS thread each, works within the limits of the user. Results do not
depend on the number of threads: rows are cut into stripes whose sums are added in order, whichever
thread computes them, and BLAS, whose partition of a product depends on its threads, is held to one.
Factorisations of large matrices are the exception; threads pay off there.

Allocating memory costs more than the arithmetic that fills it. Arrays as large as a block of
features come from `make_buffer` and are returned by `recycle`; outside `reuse_buffers` these are
plain allocations.

BLAS copies the factors of a large product before it multiplies them, which takes as long as the
product itself if they have many rows and few columns. It does not copy small factors, so the long
side is split into tiles, and one call multiplies them all.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, lru_cache
from itertools import pairwise
from operator import iadd
from queue import SimpleQueue
from threading import Event, Lock, Thread, local
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from scipy.linalg import cython_lapack
from threadpoolctl import ThreadpoolController

from eigengp.backend.namespace import AnyArray, cast, is_numpy, namespace

T = TypeVar("T")

# The size of matrices up to which BLAS has one thread: as many rows as the default exact GP has.
# Threads would be a third faster on an idle machine, and far slower on a busy one, since idle ones
# keep spinning.
_SMALL = 2000
# The largest number of stripes, and so of threads; it does not depend on the machine.
_STRIPES = 16
_SMALLEST_BUFFER = 1 << 15
_MOST_FREE_BYTES = 1 << 27
_SMALL_PRODUCT = 1_000_000  # The largest number of multiplications that OpenBLAS treats as small.
_SHORTEST_TILE = 256  # Shorter tiles cost more in calls than they save in copies.


class _SharedContext:
    """What holds while at least one context is open, in any thread; a forked process has none."""

    _close: Callable[[], object]  # Called when the last context has closed.

    def __init__(self) -> None:
        self.reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.reset)

    def reset(self) -> None:
        """Have no open context."""
        self._lock, self._inside = Lock(), 0

    def begin(self) -> None:
        """Act before the first context opens."""

    @contextmanager
    def open(self) -> Iterator[None]:
        """Open one more context."""
        with self._lock:
            if self._inside == 0:
                self.begin()
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0:
                    self._close()


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


class _BlasLimit(_SharedContext):
    """Limits BLAS to one thread while at least one context is open.

    The limit applies to the whole process, so fits in several threads must share it.
    """

    def begin(self) -> None:
        self._available = _count_blas_threads()
        self._close = _controller().limit(limits=1, user_api="blas").restore_original_limits

    def count_available(self) -> int:
        """Return the number of threads that BLAS may use outside of all contexts."""
        with self._lock:
            return self._available if self._inside else _count_blas_threads()


def _count_blas_threads() -> int:
    counts = [lib["num_threads"] for lib in _controller().info() if lib["user_api"] == "blas"]
    return max(counts, default=1)


_BLAS_LIMIT = _BlasLimit()
# A context that limits BLAS to one thread, so that its results do not depend on their number.
use_one_blas_thread = _BLAS_LIMIT.open


def count_available_threads() -> int:
    """Return the number of threads that BLAS may use, which also limits the pool.

    It respects the settings of the user and the limits of joblib in worker processes.
    """
    return _BLAS_LIMIT.count_available()


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


class _Memory(np.ndarray[Any, Any]):
    """Bytes that hold arrays of varying shapes."""


class _Buffers(_SharedContext):
    """Free memory, held up to a limit while at least one context is open.

    Threads need no lock, because single dictionary operations are atomic.
    """

    def reset(self) -> None:
        super().reset()
        self._free: dict[int, _Memory] = {}
        self._close = self._free.clear

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
reuse_buffers = _BUFFERS.open  # A context in which recycled arrays are reused.
recycle = _BUFFERS.give  # Return the memory of an array that is no longer used.


def make_buffer(
    shape: tuple[int, ...], dtype: Any = np.float64, order: Literal["C", "F"] = "C"
) -> AnyArray:
    """Return an uninitialised array, in recycled memory if possible."""
    return _BUFFERS.take(shape, np.dtype(dtype), order)


@contextmanager
def speed_up_passes(size: int) -> Iterator[None]:
    """Reuse buffers during many passes; BLAS has one thread if their `size` features are few."""
    with use_one_blas_thread() if size <= _SMALL else nullcontext(), reuse_buffers():
        yield


# Has the attribute `member` in threads of a pool, which do not use a pool themselves.
_HERE = local()


@cache
def _get_pool(n_threads: int) -> SimpleQueue[Callable[[], None]]:
    """Start threads that stay alive, and return the queue from which they take tasks.

    Tasks must not raise. Starting threads, or waiting on futures, takes as long as a pass over a
    few rows.
    """
    tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
    for number in range(n_threads):
        Thread(target=_serve, args=(tasks,), name=f"eigengp_{number}", daemon=True).start()
    return tasks


def _serve(tasks: SimpleQueue[Callable[[], None]]) -> None:
    _HERE.member = True
    while True:
        tasks.get()()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_get_pool.cache_clear)


class _Job(Generic[T]):
    """Stripes of which threads take one after another; their results are received in order.

    Parameters
    ----------
    work : callable
        Computes the result of a stripe.
    stripes : sequence
        All stripes.
    receive : callable
        Called with the results, in the order of the stripes, in one thread at a time.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Any]], T],
        stripes: Sequence[Sequence[Any]],
        receive: Callable[[T], object],
    ) -> None:
        self._work, self._stripes, self._receive = work, stripes, receive
        self._lock, self._over = Lock(), Event()
        self._taken = self._received = self._running = 0
        self._results: dict[int, T] = {}
        self._errors: dict[int, BaseException] = {}

    def run(self) -> None:
        """Compute stripes until none is left."""
        while (number := self._take()) is not None:
            try:
                result = self._work(self._stripes[number])
                with self._lock:
                    self._results[number] = result
                    while self._received in self._results:
                        self._receive(self._results.pop(self._received))
                        self._received += 1
            except BaseException as error:
                self._errors[number] = error
            with self._lock:
                self._running -= 1
                if not self._running and self._is_empty():
                    self._over.set()

    def finish(self) -> None:
        """Wait for the stripes that other threads have taken, and raise the first error."""
        self._over.wait()
        if self._errors:
            error = self._errors[min(self._errors)]
            self._errors.clear()
            try:
                raise error
            finally:
                del error  # Break the reference cycle with this frame.

    def _is_empty(self) -> bool:
        return bool(self._errors) or self._taken == len(self._stripes)

    def _take(self) -> int | None:
        with self._lock:
            if self._is_empty():
                return None
            self._taken += 1
            self._running += 1
            return self._taken - 1


def _run_job(
    work: Callable[[Sequence[Any]], T],
    blocks: Sequence[Any],
    n_threads: int | None,
    receive: Callable[[T], object],
) -> None:
    """Call `receive` with `work(stripe)` for contiguous stripes of the blocks, in order.

    The stripes do not depend on the number of threads, of which this thread is one; None uses as
    many as BLAS.
    """
    if len(blocks) == 1:
        receive(work(blocks))
        return
    edges = np.linspace(0, len(blocks), min(_STRIPES, len(blocks)) + 1).round().astype(int)
    stripes = [blocks[low:high] for low, high in pairwise(edges.tolist())]
    n_threads = min(n_threads or count_available_threads(), len(stripes))
    with use_one_blas_thread():
        if n_threads <= 1 or hasattr(_HERE, "member"):
            for stripe in stripes:
                receive(work(stripe))
            return
        job = _Job(work, stripes, receive)
        for _ in range(n_threads - 1):
            _get_pool(n_threads - 1).put(job.run)
        job.run()
        job.finish()


def cut_rows(n: int, size: int) -> list[slice]:
    """Return `n` rows in parts of so many."""
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]


def join_rows(parts: Sequence[Any]) -> Any:
    """Return the arrays of consecutive parts of the rows as one; or tuples of arrays as a tuple."""
    if isinstance(parts[0], tuple):
        return tuple(map(join_rows, zip(*parts, strict=True)))
    return namespace(parts[0]).concat(parts, axis=0)


def map_in_threads(
    function: Callable[[Any], T], items: Sequence[Any], n_threads: int | None = None
) -> list[T]:
    """Return `[function(item), …]`, in order; each thread takes contiguous stripes of the items."""
    found: list[T] = []
    _run_job(lambda own: [function(each) for each in own], items, n_threads, found.extend)
    return found


def map_rows(
    function: Callable[[slice], Any], n: int, size: int, n_threads: int | None = None
) -> Any:
    """Return what a function returns for `n` rows, so many at a time; see `join_rows`."""
    return join_rows(map_in_threads(function, cut_rows(n, size) or [slice(0)], n_threads))


def sum_in_threads(
    work: Callable[[Sequence[Any]], T], blocks: Sequence[Any], n_threads: int | None = None
) -> T:
    """Return the sum of `work(stripe)` over contiguous stripes, added in order, in place.

    Few of the parts exist at a time.
    """
    total: list[Any] = []
    add: Any = iadd  # It has no types.
    _run_job(
        work,
        blocks,
        n_threads,
        lambda part: total.append(add(total.pop(), part) if total else part),
    )
    found: T = total[0]
    return found


@cache
def find_address(name: str) -> int:
    """Return the address of a function of the LAPACK that SciPy uses.

    SciPy's own functions hold the interpreter's lock while they work, so that threads that call
    them factorise one matrix after another.
    """
    api, capsule = ctypes.pythonapi, cython_lapack.__pyx_capi__[name]
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return int(api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule)))


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
    longest = _SMALL_PRODUCT // max(multiplications, 1)
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


def with_diagonal(K: AnyArray, value: float) -> AnyArray:
    """Return a square matrix, perhaps with columns to spare, with this number on its diagonal."""
    n = K.shape[0]
    if is_numpy(K):
        np.fill_diagonal(K[:, :n], value)
        return K
    xp: Any = namespace(K)
    eye = xp.eye(n, K.shape[1], dtype=xp.bool, device=K.device)
    return xp.where(eye, xp.asarray(value, dtype=K.dtype, device=K.device), K)


def clip_in_place(x: AnyArray, low: float, high: float) -> AnyArray:
    """Clip `x` between two numbers, in place if the library can."""
    return np.clip(x, low, high, out=x) if is_numpy(x) else namespace(x).clip(x, low, high)
