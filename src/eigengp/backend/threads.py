"""A pool of threads, with one BLAS thread each, within the limits of the user."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, lru_cache
from itertools import pairwise
from queue import SimpleQueue
from threading import Lock, Thread, local
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from eigengp.backend.buffers import reuse_buffers

T = TypeVar("T")

_SMALL = 1000
"""The size of matrices up to which one BLAS thread is fastest: idle ones keep spinning."""


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def count_available_threads() -> int:
    """Return the number of threads that BLAS may use, which also limits the pool.

    It respects the settings of the user and the limits of joblib in worker processes.
    """
    counts = [lib["num_threads"] for lib in _controller().info() if lib["user_api"] == "blas"]
    return max(counts, default=1)


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

    @contextmanager
    def use_one_thread(self) -> Iterator[None]:
        with self._lock:
            if self._inside == 0:
                self._limiter = _controller().limit(limits=1, user_api="blas")
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0:
                    self._limiter.restore_original_limits()


_BLAS_LIMIT = _BlasLimit()
use_one_blas_thread = _BLAS_LIMIT.use_one_thread
"""A context that limits BLAS to one thread, which is faster for small matrices."""


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
