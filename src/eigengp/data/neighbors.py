"""Nearest neighbours: exact and approximate searches, and rows with their neighbours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from eigengp._typing import Array
from eigengp.backend.loops import find_loops
from eigengp.backend.namespace import AnyArray, Placed, beside, is_numpy, namespace, on_host
from eigengp.backend.threads import map_in_threads, use_one_openmp_thread
from eigengp.gp.blocks import RowBlock

# The largest number of inputs for which a tree is used, and for which it is among few points.
_TREE_UP_TO, _FLAT = 10, 3
# The least number of points for which a tree is used, and the same for up to three inputs.
_TREE_FROM, _FLAT_TREE_FROM = 50_000, 2_000
_MANY_POINTS = 100_000  # The largest number of points among which the search is always exact.
# The number of points on which a tree is tried, and of neighbours for each.
_TRIED, _TRIED_NEIGHBOURS = 256, 64
_QUICK = 4_000  # The number of distances per input at which a tree is as fast as cells.
# The approximate number of points per cell, and the least number of searched cells.
_CELL_SIZE, _CELLS_SEARCHED = 100, 128
_BATCH = 20  # Faiss rounds differently for fewer inputs.
_SEARCHED_AT_ONCE, _SCANNED_AT_ONCE = 1_024, 128
# The number of distances that a device computes at once, and of points up to which it is faster
# than a tree, which is on the CPU.
_PAIRS_ON_DEVICE, _SCANNED_ON_DEVICE = 1 << 26, 200_000
_FAR = 1e15  # Inputs are clipped here, because float32 cannot hold larger squares.


def build_index(points: Array) -> Exact | Approximate:
    """Build a search among points of shape (N, D).

    It is approximate among more than 100,000 points for which a tree is slow, if Faiss is
    installed, and otherwise exact.

    Examples
    --------
    >>> import numpy as np
    >>> index = build_index(np.array([[0.0], [1.0], [5.0]]))
    >>> index.find_nearest(np.array([[4.0], [0.1]]), 2).tolist()
    [[2, 1], [0, 1]]
    """
    if points.shape[0] <= _MANY_POINTS or not _has_faiss():
        return Exact.of(points)
    tree = Exact.of(points) if _suits_tree(points) else None
    return tree if tree is not None and tree.is_quick(points) else Approximate.of(points)


def _suits_tree(points: Array) -> bool:
    n, D = points.shape
    return D <= _TREE_UP_TO and n >= (_FLAT_TREE_FROM if D <= _FLAT else _TREE_FROM)


def _has_faiss() -> bool:
    return find_spec("faiss") is not None


def _import_faiss() -> Any:
    if not _has_faiss():
        raise ImportError(
            'The approximate search for neighbours needs Faiss: pip install "eigengp[neighbors]".'
        )
    return import_module("faiss")


@dataclass(frozen=True)
class Exact:
    """Exact search: a tree among many points with few inputs, otherwise a scan of all points.

    Parameters
    ----------
    columns : array of shape (D, N)
        The points, one row for each input.
    tree : NearestNeighbors or None
        The fitted search of scikit-learn; None for a scan.
    """

    columns: Array
    tree: NearestNeighbors | None = None

    @classmethod
    def of(cls, points: Array) -> Exact:
        """Prepare the search among points of shape (N, D)."""
        columns = np.ascontiguousarray(points.T)
        if not _suits_tree(points):
            return cls(columns)
        return cls(columns, NearestNeighbors(algorithm="kd_tree").fit(points))

    def is_quick(self, points: Array) -> bool:
        """Return whether a tree computes few distances; this does not depend on timing."""
        assert self.tree is not None
        tree: Any = self.tree._tree
        some = points[:: points.shape[0] // _TRIED]
        tree.reset_n_calls()
        tree.query(some, _TRIED_NEIGHBOURS, return_distance=False)
        return bool(tree.get_n_calls() <= _QUICK * some.shape[0])

    @property
    def n_points(self) -> int:
        """The number of points."""
        return int(self.columns.shape[1])

    @cached_property
    def _placed(self) -> Placed:
        return Placed(self.columns)

    def find_nearest(self, X: AnyArray, count: int) -> AnyArray:
        """Return the indices of the nearest points, the nearest first, shape (n, count)."""
        few = not is_numpy(X) and self.n_points <= _SCANNED_ON_DEVICE
        if self.tree is None or few:
            xp = namespace(X)
            limit = xp.full(X.shape[:1], self.n_points, dtype=xp.int64, device=X.device)
            return _scan(self._placed.beside(X), X, limit, count)
        search = partial(self.tree.kneighbors, n_neighbors=count, return_distance=False)
        found = _search_in_parts(search, X if is_numpy(X) else on_host(X))
        return beside(found, X, "int64")


def _scan(columns: AnyArray, X: AnyArray, limit: AnyArray, count: int) -> AnyArray:
    """Return the nearest of the first `limit_i` points to each row, in threads, (n, count)."""
    host = is_numpy(X)
    X = np.ascontiguousarray(X) if host else X
    size = _SCANNED_AT_ONCE if host else max(1, _PAIRS_ON_DEVICE // columns.shape[1])
    parts = [slice(i, i + size) for i in range(0, X.shape[0], size)]
    xp = namespace(X)
    found = xp.empty((X.shape[0], count), dtype=xp.int64, device=X.device)
    find_nearest = find_loops(X).find_nearest
    map_in_threads(
        lambda rows: find_nearest(X[rows], columns, limit[rows], found[rows]),
        *(parts, None if host else 1),
    )
    return found


def _search_in_parts(search: Callable[[Array], NDArray[np.intp]], X: Array) -> NDArray[np.intp]:
    """Search for all inputs in threads, shape (n, count).

    The parts do not depend on the number of threads.
    """
    parts = [X[i : i + _SEARCHED_AT_ONCE] for i in range(0, X.shape[0], _SEARCHED_AT_ONCE)] or [X]
    return np.concatenate(map_in_threads(search, parts))


@dataclass(frozen=True)
class Approximate:
    """Approximate search: looks only into the cells whose centres are nearest.

    Every hundredth point is a centre, so that the same points give the same cells. Cells hold the
    points in float32; the results are sorted by distances in float64.

    Parameters
    ----------
    points : array of shape (N, D)
        All points.
    cells : faiss.IndexIVFFlat
        The points, scaled to order one, each in the cell of the nearest centre.
    centre, scale : array of shape (D,), float
        The centre and scale of that scaling.
    """

    points: Array
    cells: Any
    centre: Array
    scale: float

    @classmethod
    def of(cls, points: Array) -> Approximate:
        """Put points of shape (N, D) into cells."""
        faiss = _import_faiss()
        centre, D = points.mean(axis=0), points.shape[1]
        scale = float(np.abs(points - centre).max()) or 1.0
        coarse = _to_float32(points, centre, scale)
        # Duplicate centres would have empty cells.
        centres = np.unique(coarse[::_CELL_SIZE], axis=0)
        nearest_centre = faiss.IndexFlatL2(D)
        with use_one_openmp_thread():
            nearest_centre.add(centres)
            cells = faiss.IndexIVFFlat(nearest_centre, D, centres.shape[0])
            cells.add(coarse)
        return cls(points, cells, centre, scale)

    @property
    def n_points(self) -> int:
        """The number of points."""
        return int(self.points.shape[0])

    def find_nearest(self, X: AnyArray, count: int) -> AnyArray:
        """Return the indices of near points, the nearest first, shape (n, count)."""
        own = on_host(X)
        found = _search_in_parts(partial(self._search_cells, count=count), own)
        missed = np.flatnonzero((found < 0).any(axis=1))
        if missed.size:
            found[missed] = Exact.of(self.points).find_nearest(own[missed], count)
        return beside(found, X, "int64")

    def _search_cells(self, X: Array, count: int) -> NDArray[np.intp]:
        """Return the nearest points in the nearest cells, the nearest first; −1 if there are fewer.

        Faiss measures in float32, so the points found are sorted by their distances in float64.
        """
        n = X.shape[0]
        coarse = np.resize(_to_float32(X, self.centre, self.scale), (max(_BATCH, n), X.shape[1]))
        how = _import_faiss().SearchParametersIVF(nprobe=max(_CELLS_SEARCHED, 2 * count))
        with use_one_openmp_thread():
            _, found = self.cells.search(coarse, count, params=how)
        found = found[:n].astype(np.intp)
        between = self.points[found] - X[:, None, :]
        order = np.argsort(np.einsum("nkd,nkd->nk", between, between), axis=1, kind="stable")
        return np.take_along_axis(found, order, axis=1)


def _to_float32(X: Array, centre: Array, scale: float) -> NDArray[np.float32]:
    """Return points in float32, scaled to lose little precision."""
    return np.clip((X - centre) / scale, -_FAR, _FAR).astype(np.float32)


@dataclass(frozen=True)
class Nearest:
    """Finds the nearest of some points under a metric.

    Parameters
    ----------
    index : Exact or Approximate
        The search among the points.
    metric : array of shape (D,)
        The factor on each input.
    count : int
        The number of neighbours.
    """

    index: Exact | Approximate
    metric: Array
    count: int

    @classmethod
    def of(cls, points: Array, metric: Array, count: int) -> Nearest:
        """Prepare the search among points of shape (N, D)."""
        return cls(build_index(points * metric), metric, min(count, points.shape[0]))

    def __call__(self, X: AnyArray) -> AnyArray:
        """Return the indices of the nearest points, the nearest first, shape (n, count)."""
        metric = self.metric if is_numpy(X) else beside(np.asarray(self.metric), X)
        return self.index.find_nearest(X * metric, self.count)

    def find_others(self, X: Array, own: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the neighbours of the points with indices `own`, without themselves."""
        count = min(self.count + 1, self.index.n_points)
        found = self.index.find_nearest(X * self.metric, count)
        itself = found == own[:, None]
        # The search may return a duplicate instead of the point, or miss it.
        itself[:, -1] |= ~itself.any(axis=1)
        return np.asarray(found[~itself]).reshape(X.shape[0], count - 1)


def find_nearest_before(points: Array, count: int) -> NDArray[np.intp]:
    """Return the indices of the nearest earlier points, the nearest first, shape (n, count).

    −1 means none.
    """
    columns = np.ascontiguousarray(points.T)
    return _scan(columns, points, np.arange(points.shape[0]), count)


@dataclass(frozen=True)
class NeighborSource:
    """Rows in memory, each with its nearest earlier rows.

    Parameters
    ----------
    rows : RowBlock
        All rows, in random order.
    index : array of shape (n, s)
        The indices of the neighbours, the nearest first, and of the row itself, for each row of
        the sum.
    n_threads : int
        The number of threads.
    """

    rows: RowBlock
    index: NDArray[np.intp]
    n_threads: int = 1
    is_complete: bool = False  # Whether every row is summed, with all earlier rows as neighbours.

    @property
    def n_rows(self) -> int:
        """The number of rows in the sum."""
        return int(self.index.shape[0])

    @classmethod
    def of(cls, rows: RowBlock, metric: Array, count: int, n_threads: int = 1) -> NeighborSource:
        """Find the neighbours of all rows.

        Parameters
        ----------
        rows : RowBlock
            All rows.
        metric : array of shape (D,)
            The factor on each input.
        count : int
            The number of neighbours.
        n_threads : int
            The number of threads.
        """
        count = min(count, max(1, rows.n_rows - 1))
        before = find_nearest_before(rows.X * metric, count)
        own = np.arange(rows.n_rows)[:, None]
        return cls(rows, np.hstack([before, own]), n_threads, count == rows.n_rows - 1)
