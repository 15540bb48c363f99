"""Who is near whom: nearest rows, and rows that come with those before them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import iadd
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from eigengp._typing import Array, NeighborSearch
from eigengp.backend.threads import in_threads
from eigengp.data.array_source import ArraySource
from eigengp.data.neighbor_search import Index, index_among
from eigengp.gp.blocks import RowBlock
from eigengp.gp.vecchia import Neighborhoods

SumT = TypeVar("SumT", bound=Any)

_CHUNK = 256
_MEMBER_COLUMNS = 512
_FIRST = 256
_GROWTH = 1.5


@dataclass(frozen=True)
class Nearest:
    """Finds the nearest of some points.

    Parameters
    ----------
    index : Index
        The search among them.
    metric : array of shape (D,)
        What inputs are multiplied by.
    count : int
        How many are found.
    """

    index: Index
    metric: Array
    count: int

    @classmethod
    def of(
        cls, points: Array, metric: Array, count: int, search: NeighborSearch = "exact"
    ) -> Nearest:
        """Prepare the search among points of shape (N, D)."""
        return cls(index_among(points * metric, search), metric, min(count, points.shape[0]))

    def __call__(self, X: Array) -> NDArray[np.intp]:
        """Return the numbers of the nearest points, the nearest first, shape (n, count)."""
        return self.index.nearest(X * self.metric, self.count)

    def others(self, X: Array, own: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the same for the points with numbers `own`, without themselves."""
        count = min(self.count + 1, self.index.n_points)
        found = self.index.nearest(X * self.metric, count)
        itself = found == own[:, None]
        # Duplicates may stand in a point's own place, or the search may have missed it.
        itself[:, -1] |= ~itself.any(axis=1)
        return np.asarray(found[~itself]).reshape(X.shape[0], count - 1)


def nearest_before(
    points: Array, count: int, last: int | None = None, search: NeighborSearch = "exact"
) -> NDArray[np.intp]:
    """Return the numbers of the nearest points among those that come before, (n, count).

    The nearest is first. −1 stands for none. Beyond the first few, points come in lots, each half
    as large as all before it, and look among those before their lot. Where only the `last` so many
    are asked for, there are no others.
    """
    n = points.shape[0]
    wanted = n if last is None else min(last, n)
    found = np.full((n, count), -1, dtype=np.intp)
    first = min(n, max(_FIRST, count + 1))
    _among_few(points[:first], found)
    start = max(first, n - wanted)
    while start < n:
        stop = min(n, int(start * _GROWTH) + 1)
        index = index_among(points[:start], search, stop - start)
        found[start:stop] = index.nearest(points[start:stop], count)
        start = stop
    return found[n - wanted :]


def _among_few(points: Array, found: NDArray[np.intp]) -> None:
    """Fill in the nearest of all points before each."""
    count = found.shape[1]
    squares = np.einsum("nd,nd->n", points, points)
    distance = squares[:, None] + squares - 2.0 * points @ points.T
    for i in range(1, points.shape[0]):
        near = np.argsort(distance[i, :i], kind="stable")[:count]
        found[i, : near.size] = near


@dataclass(frozen=True)
class NeighborSource:
    """Rows in memory, each with its nearest among those before it.

    Parameters
    ----------
    rows : RowBlock
        All rows, in an order that has nothing to do with where they are.
    index : array of shape (n, s)
        The numbers of the neighbours, the nearest first, and of the row itself, for the rows that
        are summed over.
    n_threads : int
        How many threads sum.
    """

    rows: RowBlock
    index: NDArray[np.intp]
    n_threads: int = 1

    @classmethod
    def of(
        cls,
        rows: RowBlock,
        metric: Array,
        count: int,
        n_threads: int = 1,
        last: int | None = None,
        search: NeighborSearch = "exact",
    ) -> NeighborSource:
        """Find the neighbours of all rows, or of the `last` so many among all.

        Parameters
        ----------
        rows : RowBlock
            All rows.
        metric : array of shape (D,)
            What inputs are multiplied by.
        count : int
            How many neighbours.
        search : {"auto", "exact", "approximate"}
            How they are sought.
        """
        count = min(count, max(1, rows.n_rows - 1))
        before = nearest_before(rows.X * metric, count, last, search)
        own = np.arange(rows.n_rows - before.shape[0], rows.n_rows)[:, None]
        index = np.hstack([before, own])
        if last is None or last >= rows.n_rows:
            return cls(rows, index, n_threads)
        used, at = np.unique(index, return_inverse=True)
        at = at.reshape(index.shape) - int(used[0] < 0)
        return cls(rows.picked(used[used >= 0]), at, n_threads)

    @property
    def n_rows(self) -> int:
        """How many rows are summed over."""
        return int(self.index.shape[0])

    @property
    def members(self) -> ArraySource:
        """All rows, without their neighbours."""
        return ArraySource.of(self.rows, _MEMBER_COLUMNS, self.n_threads)

    @property
    def n_members(self) -> int:
        """How many rows a neighbourhood has, its own included."""
        return int(self.index.shape[1])

    def total(self, term: Callable[[Neighborhoods], SumT]) -> SumT:
        """Return the sum of `term(neighbourhoods)` over all rows."""
        chunks = [slice(i, min(i + _CHUNK, self.n_rows)) for i in range(0, self.n_rows, _CHUNK)]

        def stripe(part: Sequence[slice]) -> SumT:
            hoods = (Neighborhoods(self.rows, self.index[rows], rows.start) for rows in part)
            total: SumT = reduce(iadd, map(term, hoods))
            return total

        total: SumT = reduce(iadd, in_threads(stripe, chunks, self.n_threads))
        return total
