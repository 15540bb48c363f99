"""Processes that are killed, forked, spawned and threaded, and a disk that is full.

Files are whole, old or new; a fit that is resumed, or runs elsewhere, gives the same to the last
bit.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed

import eigengp
from eigengp import LBFGS, EigenGPRegressor, ExactGPRegressor, VFERegressor
from eigengp.io import save
from faults import promise
from faults.fits import Rng

_PATIENCE = 60.0
"""Seconds after which a child counts as hung."""


@cache
def make_rows() -> Any:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(150, 2))
    return X, np.sin(6.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=150)


def make(kind: int, checkpoint: Path | None = None) -> Any:
    optimizer = LBFGS(n_restarts=2, max_iter=15, checkpoint=checkpoint)
    makers: tuple[Callable[[], Any], ...] = (
        lambda: EigenGPRegressor(10, residual=None, optimizer=optimizer, random_state=0),
        lambda: EigenGPRegressor(8, residual="neighbors", optimizer=optimizer, random_state=0),
        lambda: ExactGPRegressor("matern32", optimizer=optimizer, random_state=0),
        lambda: VFERegressor(10, optimizer=optimizer, random_state=0),
    )
    return makers[kind]()


@cache
def fitted(kind: int) -> Any:
    """Return a model of which no fit was interrupted."""
    return make(kind).fit(*make_rows())


def start(method: str, work: Callable[..., None], *arguments: Any) -> Any:
    child = multiprocessing.get_context(method).Process(target=work, args=arguments)
    child.start()
    return child


def _kill(rng: Rng, child: Any, longest: float) -> None:
    """Kill a child after a random time."""
    time.sleep(float(rng.uniform(0.0, longest)))
    with suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGKILL)
    child.join()


def join(child: Any) -> None:
    child.join(_PATIENCE)
    hung = child.is_alive()
    if hung:
        child.kill()
    promise(not hung, "a child hangs")
    promise(child.exitcode == 0, f"a child ended with {child.exitcode}")


def _save_often(path: Path) -> None:
    while True:
        for kind in (0, 2):
            save(fitted(kind), path)


def _check_files(folder: Path, path: Path) -> None:
    """Check that the next save leaves nothing but the file."""
    save(fitted(0), path)
    promise([*folder.iterdir()] == [path], "scratch files are left")


def kill_save(rng: Rng, folder: Path) -> None:
    """Kill a process that saves one of two models over the other."""
    path = folder / "model.eigengp"
    save(fitted(0), path)
    _kill(rng, start("fork", _save_often, path), 0.1)
    mean = eigengp.load(path).predict(make_rows()[0])
    known = (fitted(kind).predict(make_rows()[0]) for kind in (0, 2))
    promise(any(np.array_equal(mean, each) for each in known), "a file is neither old nor new")
    _check_files(folder, path)


def _fit_quietly(kind: int, checkpoint: Path) -> None:
    make(kind, checkpoint).fit(*make_rows())


def kill_fit(rng: Rng, folder: Path) -> None:
    """Kill a fit with a checkpoint up to three times, and resume it."""
    kind, path = int(rng.integers(4)), folder / "checkpoint"
    for _ in range(int(rng.integers(1, 4))):
        _kill(rng, start("fork", _fit_quietly, kind, path), 0.3)
    mean = make(kind, path).fit(*make_rows()).predict(make_rows()[0])
    promise(np.array_equal(mean, fitted(kind).predict(make_rows()[0])), "a resumed fit differs")
    promise(not [*folder.iterdir()], "a checkpoint is left")


def _predict_often(table: Path, out: Path) -> None:
    while True:
        fitted(0).predict_to_file(table, out)


def kill_predictions(rng: Rng, folder: Path) -> None:
    """Kill a process that writes predictions."""
    table, out = folder / "rows.csv", folder / "out.csv"
    lines = ["x0,x1", *(f"{a},{b}" for a, b in make_rows()[0])]
    table.write_text("\n".join(lines))
    _kill(rng, start("fork", _predict_often, table, out), 0.2)
    if out.exists():
        promise(len(out.read_text().splitlines()) == len(lines), "predictions are cut off")


def _call_fit(table: Path, out: Path) -> None:
    from eigengp.cli.app import app

    with Path(os.devnull).open("w") as sys.stdout:
        app(["fit", str(table), "-t", "y", "-o", str(out), "--method", "vfe", "-q"])


def kill_command(rng: Rng, folder: Path) -> None:
    """Kill `eigengp fit` over an older model."""
    table, out = folder / "rows.csv", folder / "model.eigengp"
    X, y = make_rows()
    table.write_text(
        "\n".join(["x0,x1,y", *(f"{a},{b},{c}" for (a, b), c in zip(X, y, strict=True))])
    )
    save(fitted(0), out)
    _kill(rng, start("fork", _call_fit, table, out), 1.0)
    promise(np.isfinite(eigengp.load(out).predict(X)).all(), "a model is lost")
    table.unlink()
    _check_files(folder, out)


def _save_with_little_room(path: Path, room: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    try:
        save(fitted(2), path)
    except OSError:
        os._exit(0)
    os._exit(0 if path.stat().st_size <= room else 1)


def fill_disk(rng: Rng, folder: Path) -> None:
    """Save a model where there is little room."""
    path = folder / "model.eigengp"
    save(fitted(0), path)
    join(start("fork", _save_with_little_room, path, int(10.0 ** rng.uniform(0, 5))))
    eigengp.load(path)
    _check_files(folder, path)


def _fit_and_compare(kind: int, expected: Any) -> None:
    mean = make(kind).fit(*make_rows()).predict(make_rows()[0])
    os._exit(0 if np.array_equal(mean, expected) else 3)


def fork(rng: Rng, folder: Path) -> None:
    """Fit in a child forked after a fit."""
    kind = int(rng.integers(4))
    join(start("fork", _fit_and_compare, kind, fitted(kind).predict(make_rows()[0])))


def spawn(rng: Rng, folder: Path) -> None:
    """Fit in a new process."""
    kind = int(rng.integers(4))
    join(start("spawn", _fit_and_compare, kind, fitted(kind).predict(make_rows()[0])))


def thread(rng: Rng, folder: Path) -> None:
    """Fit several models in threads at the same time, and predict with one of them in all."""
    kinds = rng.integers(0, 4, 6).tolist()
    shared = fitted(int(rng.integers(4)))
    expected = shared.predict(make_rows()[0])

    def work(kind: int) -> bool:
        mean = make(kind).fit(*make_rows()).predict(make_rows()[0])
        same = np.array_equal(shared.predict(make_rows()[0]), expected)
        return same and np.array_equal(mean, fitted(kind).predict(make_rows()[0]))

    with ThreadPoolExecutor(4) as pool:
        promise(all(pool.map(work, kinds)), "threads change a result")


def loky(rng: Rng, folder: Path) -> None:
    """Fit and predict in the workers of joblib."""
    kinds = rng.integers(0, 4, 4).tolist()
    found = Parallel(n_jobs=2)(delayed(_fit_and_predict)(kind) for kind in kinds)
    same = (
        np.array_equal(mean, fitted(kind).predict(make_rows()[0]))
        for kind, mean in zip(kinds, found, strict=True)
    )
    promise(all(same), "workers of joblib change a result")


def _fit_and_predict(kind: int) -> Any:
    return make(kind).fit(*make_rows()).predict(make_rows()[0])


KILLS = (kill_save, kill_fit, kill_predictions, kill_command, fill_disk)
OTHERS = (fork, loky, fork, thread, spawn)


def check_one(parts: Any, seed: int, folder: Path) -> str:
    """Run the part that a seed names, in a folder of its own."""
    for kind in range(4):
        fitted(kind)  # Before a child needs it.
    rng = np.random.default_rng(seed)
    own = folder / f"process{os.getpid()}-{seed}"
    own.mkdir()
    try:
        return parts[seed % len(parts)](rng, own) or "kept"
    finally:
        for each in own.iterdir():
            each.unlink()
        own.rmdir()


def check_kills(seed: int, folder: Path) -> str:
    """Kill a process, or fill the disk."""
    return check_one(KILLS, seed, folder)


def check(seed: int, folder: Path) -> str:
    """Fit in other processes and threads."""
    return check_one(OTHERS, seed, folder)
