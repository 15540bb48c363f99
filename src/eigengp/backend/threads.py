"""Threads of our own, each with one of BLAS, within what the user allows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from itertools import pairwise
from queue import SimpleQueue
from threading import Lock, Thread, local
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from eigengp.backend.buffers import reuse_buffers

T = TypeVar("T")

_SMALL = 1000
"""The size of matrices up to which one BLAS thread is best: more stay awake and in the way."""


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def count_available_threads() -> int:
    """Return how many threads BLAS may use here, which is how many we may use.

    That number already respects the user's settings and the limits that
    joblib sets in worker processes.
    """
    counts = [lib["num_threads"] for lib in _controller().info() if lib["user_api"] == "blas"]
    return max(counts, default=1)


class _OneBlasThread:
    """Holds BLAS to one thread from the first to enter until the last to leave.

    The limit is the whole process', so fits in several threads must share it.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Hold nothing: at the start, and in a process that was forked."""
        self._lock = Lock()
        self._inside = 0
        self._limiter: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._limiter = _controller().limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limiter.restore_original_limits()


_ONE_BLAS_THREAD = _OneBlasThread()


def use_one_blas_thread() -> AbstractContextManager[None]:
    """Hold BLAS to one thread: for small matrices its threads cost more than they bring."""
    return _ONE_BLAS_THREAD


def use_one_openmp_thread() -> AbstractContextManager[Any]:
    """Hold OpenMP to one thread, in this thread of Python.

    Its teams add in an order of their own, so that equal seeds give other
    results, and they do not survive a fork. The libraries are looked up anew,
    for some are loaded late.
    """
    return ThreadpoolController().limit(limits=1, user_api="openmp")


def limit_threads(size: int) -> AbstractContextManager[None]:
    """Hold BLAS to one thread where matrices of this size count as small."""
    return use_one_blas_thread() if size <= _SMALL else nullcontext()


@contextmanager
def speed_up_passes(size: int) -> Iterator[None]:
    """Do many passes over rows with so many features: few threads, memory that is used again."""
    with limit_threads(size), reuse_buffers():
        yield


class _ThreadPool:
    """Threads that stay and are asked through queues.

    To make threads costs as much as a pass over few rows, and so do the
    conditions of futures.
    """

    here = local()
    """Has `member` in threads of a crew, which do not submit a crew themselves."""

    def __init__(self, n_threads: int) -> None:
        self._tasks: SimpleQueue[tuple[Callable[[Any], Any], Any, SimpleQueue[Any]]]
        self._tasks = SimpleQueue()
        for number in range(n_threads):
            Thread(target=self._serve, name=f"eigengp_{number}", daemon=True).start()

    def submit(self, work: Callable[[Any], Any], argument: Any) -> SimpleQueue[Any]:
        """Have `work(argument)` done; the queue will hold what it returned, and what it raised."""
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
    os.register_at_fork(after_in_child=_ONE_BLAS_THREAD.reset)


def run_in_threads(
    work: Callable[[Sequence[slice]], T], blocks: Sequence[slice], n_threads: int
) -> list[T]:
    """Return `[work(stripe), …]` for contiguous stripes, one for each thread, this one included."""
    if len(blocks) <= 1 or hasattr(_ThreadPool.here, "member"):
        return [work(blocks)]
    stripes = [
        blocks[low:high] for low, high in _split_evenly(len(blocks), min(n_threads, len(blocks)))
    ]
    with use_one_blas_thread():
        if len(stripes) == 1:
            return [work(stripes[0])]
        asked = [_get_pool(n_threads - 1).submit(work, stripe) for stripe in stripes[1:]]
        try:
            first = work(stripes[0])  # This thread has nothing else to do.
        finally:
            answers = [each.get() for each in asked]
    for _, error in answers:
        if error is not None:
            try:
                raise error
            finally:
                del error, answers  # They hold this frame, and it would hold them.
    return [first, *(result for result, _ in answers)]


@cache
def _split_evenly(length: int, count: int) -> list[tuple[int, int]]:
    """Return where `count` parts of nearly equal length reset and end."""
    edges = np.linspace(0, length, count + 1).round().astype(int)
    return list(pairwise(edges.tolist()))
