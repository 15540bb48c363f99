"""Threads of our own, each with one of BLAS, within what the user allows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from itertools import pairwise
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from eigengp.buffers import reused_buffers

T = TypeVar("T")

_SMALL = 1000
"""The size of matrices up to which one BLAS thread is best: more stay awake and in the way."""


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def available_threads() -> int:
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
        self.begin()

    def begin(self) -> None:
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


def one_blas_thread() -> AbstractContextManager[None]:
    """Hold BLAS to one thread: for small matrices its threads cost more than they bring."""
    return _ONE_BLAS_THREAD


def few_threads(size: int) -> AbstractContextManager[None]:
    """Hold BLAS to one thread where matrices of this size count as small."""
    return one_blas_thread() if size <= _SMALL else nullcontext()


@contextmanager
def at_work(size: int) -> Iterator[None]:
    """Do many passes over rows with so many features: few threads, memory that is used again."""
    with few_threads(size), reused_buffers():
        yield


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    """Return threads that stay: to make them costs as much as a pass over few rows."""
    return ThreadPoolExecutor(n_threads, thread_name_prefix="eigengp")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)
    os.register_at_fork(after_in_child=_ONE_BLAS_THREAD.begin)


def in_threads(
    work: Callable[[Sequence[slice]], T], blocks: Sequence[slice], n_threads: int
) -> list[T]:
    """Return `[work(stripe), …]` for contiguous stripes, one for each thread, this one included."""
    if len(blocks) <= 1:
        return [work(blocks)]
    stripes = list(_stripes(blocks, min(n_threads, len(blocks))))
    with one_blas_thread():
        if len(stripes) == 1:
            return [work(stripes[0])]
        running = [_pool(n_threads).submit(work, stripe) for stripe in stripes[1:]]
        try:
            first = work(stripes[0])  # This thread has nothing else to do.
        finally:
            wait(running)
        return [first, *(each.result() for each in running)]


def _stripes(blocks: Sequence[slice], count: int) -> Iterator[Sequence[slice]]:
    edges = np.linspace(0, len(blocks), count + 1).round().astype(int)
    for low, high in pairwise(edges.tolist()):
        yield blocks[low:high]
