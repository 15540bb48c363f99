"""Rows that lie in NumPy arrays, in memory or mapped from a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, reduce
from itertools import pairwise
from operator import add
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from eigengp.flow.sums import RowBlock
from eigengp.typing import Array

T = TypeVar("T")
SumT = TypeVar("SumT", bound=Any)

BLOCK_ROWS = 1024
_BLOCK_ENTRIES = 1 << 22


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


def few_threads(size: int, small: int) -> AbstractContextManager[None]:
    """Hold BLAS to one thread where matrices of this size count as small."""
    return one_blas_thread() if size <= small else nullcontext()


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

    @classmethod
    def of(cls, rows: RowBlock, block_rows: int = BLOCK_ROWS) -> ArraySource:
        """Return the source of rows that are in memory."""
        return cls(rows.X, rows.y, rows.sample_weight, block_rows)

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


def by_blocks(
    function: Callable[[Array], Array], X: NDArray[np.floating], n_columns: int = 1
) -> Array:
    """Return `function` of all rows of `X`, computed block by block in threads.

    Parameters
    ----------
    function : callable
        Takes some rows, and returns an array with as many.
    X : array of shape (n, D)
        All rows.
    n_columns : int
        How many numbers a row becomes on the way; the more, the smaller the blocks.
    """
    size = max(1, min(BLOCK_ROWS, _BLOCK_ENTRIES // n_columns))
    starts = range(0, X.shape[0], size)

    def stripe(part: range) -> list[Array]:
        blocks = (np.asarray(X[i : i + size], dtype=np.float64) for i in part)
        return [function(block) for block in blocks]

    return np.concatenate([out for part in in_threads(stripe, starts, None) for out in part])
