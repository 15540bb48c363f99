"""Clocks, peak memory, and the arithmetic that no program can do without.

Peers import this in their own environment: NumPy and threadpoolctl are all it needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

Array = NDArray[np.float64]
Work = Callable[[], object]

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_BLOCK_ROWS = 1024
_ASLEEP = 0.3
_TURN = 0.2
"""A turn lasts so many seconds, or as long as the work takes once."""


def best_of(turns: int, *works: Work) -> list[float]:
    """Return the least seconds of each piece of work; the pieces take turns.

    Between turns the threads of a BLAS fall asleep, which would else be in the next one's way. In
    its turn a short piece is done again and again, as in a fit: the first time it finds caches cold
    and processors asleep.
    """
    least = [float("inf")] * len(works)
    for _ in range(turns):
        for i, work in enumerate(works):
            time.sleep(_ASLEEP)
            begin = time.perf_counter()
            while True:
                start = time.perf_counter()
                work()
                end = time.perf_counter()
                least[i] = min(least[i], end - start)
                if end - begin >= _TURN:
                    break
    return least


class Stopwatch:
    """The seconds since it was made, without those in which it was paused."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._paused = 0.0

    @property
    def seconds(self) -> float:
        """What the watch shows."""
        return time.perf_counter() - self._start - self._paused

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stand still for a while."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._paused += time.perf_counter() - start


def peak_memory(work: Work) -> float | None:
    """Return the peak MB of resident memory beyond what was there before; None outside Linux."""
    if not _STATUS.exists():
        work()
        return None
    _CLEAR_REFS.write_text("5")  # The peak begins anew.
    before = _resident("VmRSS")
    work()
    return _resident("VmHWM") - before


def _resident(name: str) -> float:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(name))
    return float(line.split()[1]) / 1024


def squared_exponential(X: Array, points: Array, lengthscale: float) -> Array:
    """Return `exp(−½|x − b|²/ℓ²)` for all rows and points, shape (n, M)."""
    rows, columns = _augmented(X / lengthscale, points / lengthscale)
    E = rows @ columns
    return np.exp(E, out=E)


def product_floor(K: Array) -> Work:
    """Return the products of one value and gradient: `KᵀK` and `K·P`, all BLAS threads."""
    P = np.ones((K.shape[1], K.shape[1]))
    return lambda: (K.T @ K, K @ P)


def prediction_floors(X: Array, points: Array, threads: int) -> dict[str, Work]:
    """Return the arithmetic of a prediction, for the mean alone and with the standard deviation.

    `E = exp(X'·B')` and `E·m` give the mean, `E·V` and its rows' sums of squares the variance. Each
    thread has its own stripe of rows, with BLAS held to one thread.
    """
    rows, columns = _augmented(X, points)
    mean_weights, V = np.ones(points.shape[0]), np.eye(points.shape[0])
    stripes = np.array_split(rows, threads)
    controller, pool = ThreadpoolController(), ThreadPoolExecutor(threads)

    def stripe(part: Array, with_std: bool) -> None:
        E, F = (np.empty((_BLOCK_ROWS, V.shape[0])) for _ in range(2))
        for start in range(0, part.shape[0], _BLOCK_ROWS):
            block = part[start : start + _BLOCK_ROWS]
            e, f = E[: block.shape[0]], F[: block.shape[0]]
            np.exp(np.matmul(block, columns, out=e), out=e)
            e @ mean_weights
            if with_std:
                np.matmul(e, V, out=f)
                np.einsum("ij,ij->i", f, f)

    def run(with_std: bool) -> None:
        with controller.limit(limits=1, user_api="blas"):
            list(pool.map(lambda part: stripe(part, with_std), stripes))

    return {"mean": lambda: run(False), "mean and std": lambda: run(True)}


def _augmented(X: Array, points: Array) -> tuple[Array, Array]:
    """Return factors of shapes (n, D+2) and (D+2, M) whose product is `−½|x − b|²`."""
    rows = np.column_stack([X, -0.5 * (X**2).sum(axis=1), np.ones(X.shape[0])])
    columns = np.column_stack([points, np.ones(points.shape[0]), -0.5 * (points**2).sum(axis=1)])
    return rows, np.ascontiguousarray(columns.T)
