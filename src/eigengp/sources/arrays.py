"""Rows that lie in NumPy arrays, in memory or mapped from a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, reduce
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
        Relative precision of each row.
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

    def take(self, rows: NDArray[np.intp]) -> ArraySource:
        """Return a source of these rows alone, copied."""
        weight = None if self.sample_weight is None else self.sample_weight[rows]
        return ArraySource(self.X[rows], self.y[rows], weight, self.block_rows, self.n_threads)

    def _block(self, start: int) -> RowBlock:
        rows = slice(start, start + self.block_rows)
        return RowBlock(
            np.asarray(self.X[rows], dtype=np.float64),
            np.asarray(self.y[rows], dtype=np.float64),
            None if self.sample_weight is None else self.sample_weight[rows],
        )

    def total(self, term: Callable[[RowBlock], SumT]) -> SumT:
        """Return the sum of `term(block)` over all blocks."""
        starts = range(0, self.n_rows, self.block_rows)

        def stripe(part: range) -> SumT:
            return reduce(add, (term(self._block(start)) for start in part))

        return reduce(add, in_threads(stripe, starts, self.n_threads))


def in_threads(work: Callable[[range], T], starts: range, n_threads: int | None) -> list[T]:
    """Return `[work(stripe), …]` for contiguous stripes of `starts`, one for each thread."""
    if len(starts) <= 1:
        return [work(starts)]
    wanted = available_threads() if n_threads is None else n_threads
    stripes = list(_stripes(starts, min(wanted, len(starts))))
    with _controller().limit(limits=1, user_api="blas"):
        if len(stripes) == 1:
            return [work(stripes[0])]
        with ThreadPoolExecutor(len(stripes)) as pool:
            return list(pool.map(work, stripes))


def _stripes(starts: range, count: int) -> Iterator[range]:
    edges = np.linspace(0, len(starts), count + 1).round().astype(int)
    for low, high in zip(edges[:-1], edges[1:], strict=True):
        yield starts[low:high]
