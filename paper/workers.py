"""Carry out runs in worker processes, a few at a time, and store each as it ends.

Every worker has its share of the cores, so that the seconds of different runs can be compared. A
worker whose parent dies ends at once: nothing goes on unseen, and nothing that had ended is lost.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import wait as wait_for
from typing import Protocol

from threadpoolctl import threadpool_limits

from paper.measure import measure
from paper.runs import Record, Run, with_starts
from paper.store import Store


class Audience(Protocol):
    """Who is told how it goes."""

    def began(self, run: Run) -> None:
        """Hear that a worker has taken up a run."""

    def ended(self, run: Run, record: Record) -> None:
        """Hear that a run has ended and is stored."""

    def failed(self, run: Run, error: BaseException) -> None:
        """Hear that a run has failed."""


@dataclass(frozen=True)
class Failure:
    """A run that could not be carried out, and why."""

    run: Run
    error: BaseException


def carry_out(runs: Iterable[Run], store: Store, jobs: int, audience: Audience) -> list[Failure]:
    """Carry out all runs that are not stored yet.

    Parameters
    ----------
    runs : iterable of Run
        In the order in which they are taken up.
    store : Store
        Takes each record as its run ends.
    jobs : int
        How many at once.
    audience : Audience
        Told of every run.

    Returns
    -------
    failures : list of Failure
        The runs that failed, and those that begin from them.
    """
    waiting = [run for run in with_starts(runs) if store.find(run) is None]
    busy: dict[Future[Record], Run] = {}
    failures: list[Failure] = []
    pool = _pool(jobs) if waiting else None
    try:
        while pool and (waiting or busy):
            for run in _next(waiting, jobs - len(busy), store):
                audience.began(run)
                start = None if run.start is None else store.find(run.start)
                busy[pool.submit(measure, run, start)] = run
            done = wait(busy, return_when=FIRST_COMPLETED).done
            # Results first: a worker that died must not take another's result with it.
            for future in sorted(done, key=lambda future: future.exception() is not None):
                run, error = busy.pop(future), future.exception()
                if error is None:
                    # The key as of now: a worker would see sources that have changed since.
                    record = future.result() | {"key": run.key}
                    store.add(record)
                    audience.ended(run, record)
                    continue
                if isinstance(error, BrokenProcessPool):
                    raise error
                for lost in (run, *_remove(waiting, start=run)):
                    failures.append(Failure(lost, error))
                    audience.failed(lost, error)
    except BrokenProcessPool as error:
        raise WorkerDiedError from error
    finally:
        if pool:
            _stop(pool)
    return failures


class WorkerDiedError(RuntimeError):
    """A worker process was killed from outside, most likely for want of memory."""

    def __init__(self) -> None:
        super().__init__(
            "A worker process was killed, most likely for want of memory. What had ended is "
            "stored: run the same command again, with --jobs 1 if memory is short."
        )


def _next(waiting: list[Run], free: int, store: Store) -> list[Run]:
    """Remove and return the next runs that can begin, as many as there are free workers."""
    ready = [run for run in waiting if run.start is None or store.find(run.start) is not None]
    for run in ready[:free]:
        waiting.remove(run)
    return ready[:free]


def _remove(waiting: list[Run], start: Run) -> list[Run]:
    """Remove and return the runs that were to begin from this one, or from one of those."""
    lost = [run for run in waiting if start in run.before]
    for run in lost:
        waiting.remove(run)
    return lost


def _pool(jobs: int) -> ProcessPoolExecutor:
    threads = max(1, _cores() // jobs)
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, context, initializer=_prepare, initargs=(threads,))


def _prepare(threads: int) -> None:
    """Hold this worker to its cores, and end it when its parent does, not at Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(limits=threads)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait_for([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _stop(pool: ProcessPoolExecutor) -> None:
    """End the workers without waiting for what they are doing."""
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()


def _cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
