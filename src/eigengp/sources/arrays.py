"""Rows that lie in NumPy arrays, in memory or mapped from a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, reduce
from itertools import pairwise
from operator import add
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from eigengp.flow.sums import RowBlock
from eigengp.typing import Array

T = TypeVar("T")
SumT = TypeVar("SumT", bound=Any)

BLOCK_ROWS = 1024


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


def one_blas_thread() -> AbstractContextManager[Any]:
    """Hold BLAS to one thread: for small matrices its threads cost more than they bring."""
    limiter: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limiter


@dataclass(frozen=True)
class ArraySource:
    """Row blocks cut from arrays, summed by a pool of threads.

    Each thread takes one contiguous stripe of blocks, with BLAS held to one
    thread meanwhile, and the stripes are added in order: the same number of
    threads gives the same bits.

    Parameters
    ----------
    X : array of shape (N, D)
        Inputs; converted to float64 block by block.
    y : array of shape (N,)
        Targets.
    sample_weight : array of shape (N,) or None
        How many times each row counts.
    block_rows : int
        Rows in a block; memory beyond the data is proportional to it.
    n_threads : int or None
        None uses as many as BLAS would.
    """

    X: NDArray[np.floating]
    y: NDArray[np.floating]
    sample_weight: Array | None = None
    block_rows: int = BLOCK_ROWS
    n_threads: int | None = None

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """How many inputs each row has."""
        return int(self.X.shape[1])

    def take(self, rows: NDArray[np.intp]) -> RowBlock:
        """Return a copy of these rows."""
        return self._rows(rows, 0)

    def _rows(self, rows: slice | NDArray[np.intp], start: int) -> RowBlock:
        return RowBlock(
            np.asarray(self.X[rows], dtype=np.float64),
            np.asarray(self.y[rows], dtype=np.float64),
            None if self.sample_weight is None else self.sample_weight[rows],
            start,
        )

    def total(self, term: Callable[[RowBlock], SumT]) -> SumT:
        """Return the sum of `term(block)` over all blocks."""
        starts = range(0, self.n_rows, self.block_rows)

        def stripe(part: range) -> SumT:
            blocks = (self._rows(slice(i, i + self.block_rows), i) for i in part)
            return reduce(add, (term(block) for block in blocks))

        return reduce(add, in_threads(stripe, starts, self.n_threads))


def in_threads(work: Callable[[range], T], starts: range, n_threads: int | None) -> list[T]:
    """Return `[work(stripe), …]` for contiguous stripes of `starts`, one for each thread."""
    if len(starts) <= 1:
        return [work(starts)]
    wanted = available_threads() if n_threads is None else n_threads
    stripes = list(_stripes(starts, min(wanted, len(starts))))
    with one_blas_thread():
        if len(stripes) == 1:
            return [work(stripes[0])]
        with ThreadPoolExecutor(len(stripes)) as pool:
            return list(pool.map(work, stripes))


def _stripes(starts: range, count: int) -> Iterator[range]:
    edges = np.linspace(0, len(starts), count + 1).round().astype(int)
    for low, high in pairwise(edges.tolist()):
        yield starts[low:high]


def by_blocks(function: Callable[[Array], Array], X: NDArray[np.floating]) -> Array:
    """Return `function` of all rows of `X`, computed block by block in threads."""
    starts = range(0, X.shape[0], BLOCK_ROWS)

    def stripe(part: range) -> list[Array]:
        blocks = (np.asarray(X[i : i + BLOCK_ROWS], dtype=np.float64) for i in part)
        return [function(block) for block in blocks]

    return np.concatenate([out for part in in_threads(stripe, starts, None) for out in part])
