"""Dask workers that are killed, memory that is limited, and disks that are full.

A fit gives the same to the last bit, or an error of its kind; what was there before stays usable.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import threading
import time
import warnings
from contextlib import suppress
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import numpy as np

from eigengp import EigenGPRegressor
from eigengp.fitting.checkpoint import CheckpointWarning
from faults import promise
from faults.fits import Rng
from faults.processes import check_one, fitted, join, make, make_rows, start

_WORKERS = 2
_REPLACED = 5
"""Seconds in which Dask replaces a worker, unless it never does."""
_MEMORY_ERROR = 3
"""The exit code of a child whose memory did not suffice, as promised."""


@cache
def _client() -> Any:
    """Return the client of a cluster whose lost workers are replaced."""
    import distributed

    for name in ("core", "nanny", "scheduler", "worker"):
        logging.getLogger(f"distributed.{name}").setLevel(logging.CRITICAL)
    cluster = distributed.LocalCluster(
        n_workers=_WORKERS, threads_per_worker=1, dashboard_address=":0"
    )
    client = distributed.Client(cluster)
    for order, each in enumerate((cluster, client)):  # Also at the end of a child, unlike atexit.
        Finalize(None, each.close, exitpriority=order)
    return client


def _list_workers() -> list[int]:
    """Return the process ids of the workers, when all are there."""
    try:
        _client().wait_for_workers(_WORKERS, timeout=_REPLACED)
    except TimeoutError:  # Dask sometimes waits for ever for the worker that it has started.
        _client.cache_clear()
        _client().wait_for_workers(_WORKERS, timeout=60)
    workers = _client().run(os.getpid)
    return [workers[each] for each in sorted(workers)]


def _fit_on_cluster() -> Any:
    import dask.array

    X, y = _large_rows()
    model = EigenGPRegressor(12, residual=None, optimizer=make(0).optimizer, random_state=0)
    chunks = X.shape[0] // 6
    model.fit(dask.array.from_array(X, (chunks, 2)), dask.array.from_array(y, chunks))
    return model.predict(X[:100])


@cache
def _large_rows() -> Any:
    rng = np.random.default_rng(1)
    X = rng.uniform(size=(12_000, 2))
    return X, np.sin(6.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=X.shape[0])


@cache
def _undisturbed() -> Any:
    """Return the predictions of a fit on the cluster, and the seconds that it took."""
    _list_workers()
    _fit_on_cluster()
    began = time.perf_counter()
    return _fit_on_cluster(), time.perf_counter() - began


def kill_worker(rng: Rng, folder: Path) -> None:
    """Kill a worker of a cluster during a fit."""
    expected, delay = _undisturbed()
    delay *= float(rng.random())
    killed = threading.Event()

    def kill(victim: int) -> None:
        os.kill(victim, signal.SIGKILL)
        killed.set()

    while not killed.is_set():
        timer = threading.Timer(delay, kill, [int(rng.choice(_list_workers()))])
        timer.start()
        found = _fit_on_cluster()
        timer.cancel()
        timer.join()
        promise(np.array_equal(found, expected), "a lost worker changes a result")
        delay *= 0.5  # A fit that has ended before is repeated.


def _fit_with_little_memory(kind: int, room: int, expected: Any) -> None:
    X, y = _large_rows()
    count = 1_500 if kind == 2 else X.shape[0]  # The exact GP takes N² memory.
    model = fitted(kind).set_params(optimizer__max_iter=1, optimizer__n_restarts=1)
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    before = resource.getrlimit(resource.RLIMIT_DATA)  # Unlike RLIMIT_AS without free arenas.
    limit = pages * resource.getpagesize() + room
    resource.setrlimit(resource.RLIMIT_DATA, (limit, before[1]))
    try:
        model.fit(X[:count], y[:count])
    except MemoryError:
        resource.setrlimit(resource.RLIMIT_DATA, before)
        same = np.array_equal(model.predict(make_rows()[0]), expected)
        os._exit(_MEMORY_ERROR if same else 1)
    resource.setrlimit(resource.RLIMIT_DATA, before)
    os._exit(0 if np.isfinite(model.predict(X[:100])).all() else 1)


def limit_memory(rng: Rng, folder: Path) -> str:
    """Fit where memory runs out: a model, or a `MemoryError` that leaves the earlier model."""
    kind = int(rng.choice([0, 2, 3]))
    room = int(2.0 ** rng.uniform(*((20, 26) if kind == 2 else (15, 24))))
    expected = fitted(kind).predict(make_rows()[0])
    child = start("fork", _fit_with_little_memory, kind, room, expected)
    child.join(60.0)
    hung = child.is_alive()
    if hung:
        child.kill()
    promise(not hung, "a child hangs")
    promise(child.exitcode in (0, _MEMORY_ERROR), f"a child ended with {child.exitcode}")
    return "refused" if child.exitcode == _MEMORY_ERROR else "kept"


def _leave_room(room: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))


def _fit_with_little_room(kind: int, path: Path, room: int) -> None:
    _leave_room(room)
    warnings.simplefilter("ignore", CheckpointWarning)
    with suppress(OSError):
        make(kind, path).fit(*make_rows())
    os._exit(0)


def fill_disk_of_checkpoint(rng: Rng, folder: Path) -> None:
    """Fit with a checkpoint where there is little room, and resume it."""
    kind, path = int(rng.integers(4)), folder / "checkpoint"
    join(start("fork", _fit_with_little_room, kind, path, int(10.0 ** rng.uniform(0, 5))))
    mean = make(kind, path).fit(*make_rows()).predict(make_rows()[0])
    promise(np.array_equal(mean, fitted(kind).predict(make_rows()[0])), "a resumed fit differs")
    promise(not [*folder.iterdir()], "a checkpoint is left")


def _predict_with_little_room(table: Path, out: Path, room: int) -> None:
    _leave_room(room)
    with suppress(OSError):
        fitted(0).predict_to_file(table, out)
    os._exit(0)


def fill_disk_of_predictions(rng: Rng, folder: Path) -> None:
    """Write predictions over older ones where there is little room."""
    table, out = folder / "rows.csv", folder / f"out{rng.choice(['.csv', '.parquet', '.arrow'])}"
    table.write_text("\n".join(["x0,x1", *(f"{a},{b}" for a, b in make_rows()[0])]))
    fitted(0).predict_to_file(table, out)
    before = out.read_bytes()
    join(start("fork", _predict_with_little_room, table, out, int(10.0 ** rng.uniform(0, 4))))
    promise(out.read_bytes() == before, "predictions are lost")
    promise(sorted(folder.iterdir()) == sorted([table, out]), "scratch files are left")


RESOURCES = (kill_worker, limit_memory, fill_disk_of_checkpoint, fill_disk_of_predictions)


def check(seed: int, folder: Path) -> str:
    """Kill a Dask worker, limit memory, or fill the disk."""
    return check_one(RESOURCES, seed, folder)
