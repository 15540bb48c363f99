"""A pool of threads, with one BLAS thread each, within the limits of the user.

Results do not depend on the number of threads: rows are cut into stripes whose sums are added in
order, whichever thread computes them, and BLAS, whose partition of a product depends on its
threads, is held to one. Factorisations of large matrices are the exception; threads pay off there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, lru_cache
from itertools import pairwise
from operator import iadd
from queue import SimpleQueue
from threading import Event, Lock, Thread, local
from typing import Any, Generic, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from eigengp.backend.buffers import reuse_buffers

T = TypeVar("T")

_SMALL = 2000
"""The size of matrices up to which BLAS has one thread: as many rows as the default exact GP has.
Threads would be a third faster on an idle machine, and far slower on a busy one, since idle ones
keep spinning."""
_STRIPES = 16
"""The largest number of stripes, and so of threads; it does not depend on the machine."""


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


class _BlasLimit:
    """Limits BLAS to one thread while at least one context is open.

    The limit applies to the whole process, so fits in several threads must share it.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Set no limit: at the start, and in a forked process."""
        self._lock = Lock()
        self._inside = 0
        self._limiter: Any = None
        self._available = 1

    @contextmanager
    def use_one_thread(self) -> Iterator[None]:
        with self._lock:
            if self._inside == 0:
                self._available = _count_blas_threads()
                self._limiter = _controller().limit(limits=1, user_api="blas")
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0:
                    self._limiter.restore_original_limits()

    def count_available(self) -> int:
        """Return the number of threads that BLAS may use outside of all contexts."""
        with self._lock:
            return self._available if self._inside else _count_blas_threads()


def _count_blas_threads() -> int:
    counts = [lib["num_threads"] for lib in _controller().info() if lib["user_api"] == "blas"]
    return max(counts, default=1)


_BLAS_LIMIT = _BlasLimit()
use_one_blas_thread = _BLAS_LIMIT.use_one_thread
"""A context that limits BLAS to one thread, so that its results do not depend on their number."""


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


def limit_threads(size: int) -> AbstractContextManager[None]:
    """Limit BLAS to one thread if matrices of this size are small."""
    return use_one_blas_thread() if size <= _SMALL else nullcontext()


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
        self._tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        for number in range(n_threads):
            Thread(target=self._serve, name=f"eigengp_{number}", daemon=True).start()

    def submit(self, task: Callable[[], None]) -> None:
        """Run a task, which must not raise, in the pool."""
        self._tasks.put(task)

    def _serve(self) -> None:
        self.here.member = True
        while True:
            self._tasks.get()()


_get_pool = cache(_ThreadPool)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_get_pool.cache_clear)
    os.register_at_fork(after_in_child=_BLAS_LIMIT.reset)


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
        work: Callable[[Sequence[slice]], T],
        stripes: Sequence[Sequence[slice]],
        receive: Callable[[T], object],
    ) -> None:
        self._work, self._receive = work, receive
        self._stripes: Sequence[Sequence[slice]] = stripes
        self._lock, self._over = Lock(), Event()
        self._taken = self._received = self._running = 0
        self._receiving = False
        self._results: dict[int, T] = {}
        self._errors: dict[int, BaseException] = {}

    def run(self) -> None:
        """Compute stripes until none is left."""
        while (number := self._take()) is not None:
            try:
                self._put(number, self._work(self._stripes[number]))
            except BaseException as error:
                with self._lock:
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

    def _put(self, number: int, result: T) -> None:
        """Hand on a result and those that waited for it, or leave it to the thread that does so."""
        with self._lock:
            self._results[number] = result
            if self._receiving:
                return
            self._receiving = True
        while True:
            with self._lock:
                if self._received not in self._results:
                    self._receiving = False
                    return
                result = self._results.pop(self._received)
                self._received += 1
            self._receive(result)


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
        if n_threads <= 1 or hasattr(_ThreadPool.here, "member"):
            for stripe in stripes:
                receive(work(stripe))
            return
        job = _Job(work, stripes, receive)
        for _ in range(n_threads - 1):
            _get_pool(n_threads - 1).submit(job.run)
        job.run()
        job.finish()


def run_in_threads(
    work: Callable[[Sequence[Any]], T], blocks: Sequence[Any], n_threads: int | None = None
) -> list[T]:
    """Return `[work(stripe), …]` for contiguous stripes of the blocks."""
    results: list[T] = []
    _run_job(work, blocks, n_threads, results.append)
    return results


def map_in_threads(
    function: Callable[[Any], T], items: Sequence[Any], n_threads: int | None = None
) -> list[T]:
    """Return `[function(item), …]`, in order; each thread takes contiguous stripes of the items."""
    done = run_in_threads(lambda own: [function(each) for each in own], items, n_threads)
    return [each for own in done for each in own]


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
