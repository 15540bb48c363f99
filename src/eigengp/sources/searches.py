"""Searches for the nearest of some points: exact ones, and approximate ones where they are many."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import KDTree, NearestNeighbors

from eigengp.typing import Array, NeighborSearch

_TREE_UP_TO = 10
"""How many inputs a tree is good for."""
_TREE_FROM = 50_000
_FEW_POINTS = 4_096
"""Among fewer the exact search is the faster one, whatever was asked for."""
_FEW_SEARCHED = 10_000
"""For so many the exact search is done before a graph of the points is."""
_MANY_POINTS = 100_000
_PROBED, _PROBED_NEIGHBOURS = 256, 64
_QUICK = 4_000
"""A tree that measures so many distances for each input is about as fast as a graph."""
_LINKS = 16
_BUILT_AMONG = 64
_SOUGHT_AMONG = 128
_CHUNK = 4_096
_FAR = 1e15


class Index(Protocol):
    """A search among points."""

    @property
    def n_points(self) -> int:
        """How many there are."""
        ...

    def nearest(self, X: Array, count: int) -> NDArray[np.intp]:
        """Return the numbers of the nearest points, the nearest first, shape (n, count)."""
        ...


def index_among(
    points: Array, search: NeighborSearch = "exact", n_searched: int | None = None
) -> Index:
    """Return a search among points.

    Parameters
    ----------
    points : array of shape (N, D)
        The points.
    search : {"auto", "exact", "approximate"}
        Which kind. Among fewer than 4,096 points it is exact. "auto" is approximate among more
        than 100,000 points for which a tree is slow, if Faiss is installed.
    n_searched : int or None
        For how many inputs it will be used; for up to 10,000 it is exact. None is not known.

    Examples
    --------
    >>> import numpy as np
    >>> index = index_among(np.array([[0.0], [1.0], [5.0]]))
    >>> index.nearest(np.array([[4.0], [0.1]]), 2).tolist()
    [[2, 1], [0, 1]]
    """
    n = points.shape[0]
    few = n < _FEW_POINTS or (n_searched is not None and n_searched <= _FEW_SEARCHED)
    if few or search == "exact" or (search == "auto" and _is_exact_quick(points)):
        return Exact.of(points)
    return Approximate.of(points)


def _is_exact_quick(points: Array) -> bool:
    """Say whether the exact search is quick, or all there is; on the points alone, not on time."""
    if points.shape[0] <= _MANY_POINTS or not _is_installed():
        return True
    if not _suits_tree(points):
        return False
    tree, some = KDTree(points), points[:: points.shape[0] // _PROBED]
    tree.query(some, _PROBED_NEIGHBOURS, return_distance=False)
    return bool(tree.get_n_calls() <= _QUICK * some.shape[0])


def _suits_tree(points: Array) -> bool:
    n, D = points.shape
    return D <= _TREE_UP_TO and n >= _TREE_FROM


def check_search(search: NeighborSearch) -> None:
    """Raise if a search is asked for that needs a package that is not there."""
    if search == "approximate" and not _is_installed():
        raise ImportError(
            "neighbor_search='approximate' needs Faiss: pip install \"eigengp[neighbors]\", or "
            "use 'auto' or 'exact'."
        )


def _is_installed() -> bool:
    return find_spec("faiss") is not None


def _faiss() -> Any:
    check_search("approximate")
    return import_module("faiss")


@dataclass(frozen=True)
class Exact:
    """Finds the nearest by a tree where points are many with few inputs, else by all pairs.

    Parameters
    ----------
    search : NearestNeighbors
        The search of scikit-learn.
    """

    search: NearestNeighbors

    @classmethod
    def of(cls, points: Array) -> Exact:
        """Prepare the search among points of shape (N, D)."""
        algorithm = "kd_tree" if _suits_tree(points) else "brute"
        return cls(NearestNeighbors(algorithm=algorithm).fit(points))

    @property
    def n_points(self) -> int:
        """How many there are."""
        return int(self.search.n_samples_fit_)

    def nearest(self, X: Array, count: int) -> NDArray[np.intp]:
        """Return the numbers of the nearest points, the nearest first, shape (n, count)."""
        found: NDArray[np.intp] = self.search.kneighbors(
            X, n_neighbors=count, return_distance=False
        )
        return found


@dataclass(frozen=True)
class Approximate:
    """Finds most of the nearest by walking along a graph that links near points (HNSW).

    Equal points would be linked to each other alone, out of reach of the rest, so that the graph
    is one of distinct points, each of which stands for its group. It is built by one thread, which
    makes it the same whenever it is built of the same points. It has them in float32; those found
    are sorted by distances in float64.

    Parameters
    ----------
    points : array of shape (N, D)
        All points.
    graph : faiss.IndexHNSWFlat
        The distinct ones, moved and scaled to be of order one.
    centre, scale : array of shape (D,), float
        By what.
    members : array of shape (N,)
        The numbers of the points of one group after the other.
    sizes : array of shape (G,)
        How many points are in each group.
    """

    points: Array
    graph: Any
    centre: Array
    scale: float
    members: NDArray[np.intp]
    sizes: NDArray[np.intp]

    @classmethod
    def of(cls, points: Array) -> Approximate:
        """Build the graph of points of shape (N, D)."""
        faiss = _faiss()
        centre = points.mean(axis=0)
        scale = float(np.abs(points - centre).max()) or 1.0
        distinct, group, sizes = np.unique(
            _coarse(points, centre, scale), axis=0, return_inverse=True, return_counts=True
        )
        graph = faiss.IndexHNSWFlat(points.shape[1], _LINKS)
        graph.hnsw.efConstruction = _BUILT_AMONG
        with _one_thread():
            graph.add(distinct)
        members = np.argsort(group.ravel(), kind="stable")
        return cls(points, graph, centre, scale, members, sizes)

    @property
    def n_points(self) -> int:
        """How many there are."""
        return int(self.points.shape[0])

    def nearest(self, X: Array, count: int) -> NDArray[np.intp]:
        """Return the numbers of points that are near, the nearest first, shape (n, count)."""
        found = np.empty((X.shape[0], count), dtype=np.intp)
        for start in range(0, X.shape[0], _CHUNK):
            rows = slice(start, start + _CHUNK)
            found[rows] = self._nearest(X[rows], count)
        return found

    def _nearest(self, X: Array, count: int) -> NDArray[np.intp]:
        groups = self._groups(X, min(count, self.sizes.size))
        complete = (groups >= 0).all(axis=1)
        found = np.empty((X.shape[0], count), dtype=np.intp)
        found[complete] = self._by_distance(X[complete], self._spread(groups[complete], count))
        if not complete.all():
            found[~complete] = Exact.of(self.points).nearest(X[~complete], count)
        return found

    def _groups(self, X: Array, count: int) -> NDArray[np.intp]:
        """Return the numbers of the nearest groups; −1 where the graph leads to no more."""
        how = _faiss().SearchParametersHNSW(efSearch=max(_SOUGHT_AMONG, 2 * count))
        _, found = self.graph.search(_coarse(X, self.centre, self.scale), count, params=how)
        return np.asarray(found, dtype=np.intp)

    def _spread(self, groups: NDArray[np.intp], count: int) -> NDArray[np.intp]:
        """Return the first so many points of groups (n, k), those of the nearest group first."""
        ends = np.minimum(np.cumsum(self.sizes[groups], axis=1), count)
        taken = np.diff(ends, axis=1, prepend=0)
        first = (np.cumsum(self.sizes) - self.sizes)[groups]
        shift = np.repeat((first - (ends - taken)).ravel(), taken.ravel())
        return np.asarray(self.members[shift.reshape(-1, count) + np.arange(count)])

    def _by_distance(self, X: Array, found: NDArray[np.intp]) -> NDArray[np.intp]:
        between = self.points[found] - X[:, None, :]
        order = np.argsort(np.einsum("nkd,nkd->nk", between, between), axis=1, kind="stable")
        return np.take_along_axis(found, order, axis=1)


def _coarse(X: Array, centre: Array, scale: float) -> NDArray[np.float32]:
    """Return points in float32, where they lose least."""
    return np.clip((X - centre) / scale, -_FAR, _FAR).astype(np.float32)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let Faiss use one thread: several add points in an order that nobody knows."""
    faiss = _faiss()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
