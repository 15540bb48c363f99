"""Rows on the workers of a Dask cluster, which sum them; only sums are sent."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import reduce
from operator import iadd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigengp.backend.namespace import AnyArray, is_numpy, namespace
from eigengp.backend.threads import speed_up_passes
from eigengp.data.array_source import ArraySource, check_finite, pick_rows
from eigengp.gp.blocks import RowBlock, SumT, in_memory

_FAN_IN = 8  # The number of sums added at a time in the reduction tree.


def is_dask(X: Any) -> bool:
    """Return whether `X` is a Dask array or dataframe."""
    return type(X).__module__.split(".")[0] in ("dask", "dask_expr") and hasattr(X, "dask")


@contextmanager
def get_client() -> Iterator[Any]:
    """Yield the active client, or that of a temporary cluster in this process."""
    try:
        import distributed
    except ImportError:
        raise ImportError(
            "Dask collections need the package distributed; "
            'install it with pip install "eigengp[dask]", or compute them first and pass arrays.'
        ) from None
    try:
        client: Any = nullcontext(distributed.get_client())
    except ValueError:
        client = distributed.Client(processes=False, dashboard_address=None)
    with client as own:
        yield own


def align(X: Any, y: Any, weight: Any = None) -> tuple[Any, Any, Any | None]:
    """Return inputs, targets and weights as Dask arrays with the same chunks of rows."""
    X = _compute_lengths(X)
    if X.ndim != 2:
        raise ValueError(f"X must have two dimensions, got shape {X.shape}.")
    X = X.rechunk({1: -1})
    weight = None if weight is None else _align_column(X, "sample_weight", weight)
    return X, _align_column(X, "y", y), weight


def _compute_lengths(collection: Any) -> Any:
    """Return a Dask array with known chunk lengths."""
    if hasattr(collection, "to_dask_array"):
        return collection.to_dask_array(lengths=True)
    unknown = any(np.isnan(size) for size in collection.chunks[0])
    return collection.compute_chunk_sizes() if unknown else collection


def _align_column(X: Any, name: str, column: Any) -> Any:
    """Return a column as a Dask array with the chunks of X."""
    import dask.array

    if isinstance(column, str):
        raise TypeError(f"{name} can be the name of a column only if X is a dataframe.")
    column = _compute_lengths(column) if is_dask(column) else np.asarray(column)
    if column.shape != X.shape[:1]:
        raise ValueError(
            f"{name} must have one value for each of the {X.shape[0]} rows of X, got shape "
            f"{column.shape}."
        )
    return dask.array.asarray(column, chunks=(X.chunks[0],)).rechunk({0: X.chunks[0]})


@dataclass(frozen=True)
class Group:
    """Some rows on one worker."""

    blocks: Any  # A future that holds a list of row blocks.
    worker: str  # The address of the worker; another one takes over if it is lost.
    edges: tuple[int, int]  # The number of the first row, and of the row after the last.


@dataclass(frozen=True)
class DaskSource:
    """Rows of Dask collections.

    Every thread of every worker holds one group of consecutive partitions during the fit. Each
    term is sent to all groups, and their sums are added in the order of the rows on the way back.
    If a worker is lost, its rows and sums are computed again, with identical results.

    Parameters
    ----------
    client : distributed.Client
        The cluster.
    groups : tuple of Group
        All rows, in order.
    n_rows, n_features : int
        The number of rows, and of inputs.
    n_columns : int
        The number of features per row, which determines the size of blocks.
    """

    client: Any
    groups: tuple[Group, ...]
    n_rows: int
    n_features: int
    n_columns: int = 1

    @classmethod
    def of(cls, client: Any, X: Any, y: Any, weight: Any = None) -> DaskSource:
        """Collect the partitions of Dask arrays in groups, one for each thread.

        Parameters
        ----------
        client : distributed.Client
            The cluster.
        X : dask.array of shape (N, D)
            Inputs with known chunks; `y` and `weight`, shape (N,), have the same chunks.
        """
        edges = np.concatenate([[0], np.cumsum(X.chunks[0])]).astype(int)
        full = np.flatnonzero(X.chunks[0]).tolist()
        threads = [w for w, n in sorted(client.nthreads().items()) for _ in range(n)]
        count = min(len(threads), len(full))
        cuts = np.linspace(0, len(full), count + 1).round().astype(int).tolist()
        columns = [each.to_delayed().ravel() for each in (X, y, weight) if each is not None]
        from dask.delayed import delayed

        groups = []
        for worker, low, high in zip(threads, cuts[:-1], cuts[1:], strict=False):
            own = full[low:high]
            parts = [[column[i] for column in columns] for i in own]
            blocks = delayed(_make_blocks, pure=False)(parts, edges[own].tolist())
            future = client.compute(blocks, workers=[worker], allow_other_workers=True)
            groups.append(Group(future, worker, (int(edges[own[0]]), int(edges[own[-1] + 1]))))
        return cls(client, tuple(groups), int(edges[-1]), int(X.shape[1]))

    def sized(self, n_columns: int) -> DaskSource:
        """Return the same rows in blocks for `n_columns` features."""
        return replace(self, n_columns=n_columns)

    def total(self, term: Callable[[RowBlock], SumT]) -> SumT:
        """Return the sum of `term(block)` over all blocks, as NumPy arrays."""
        import cloudpickle

        packed = cloudpickle.dumps(term)
        sums = [
            self._submit(_sum_group, packed, each.blocks, self.n_columns, worker=each.worker)
            for each in self.groups
        ]
        workers = [each.worker for each in self.groups]
        while len(sums) > 1:
            heads = workers[::_FAN_IN]
            lots = [sums[i : i + _FAN_IN] for i in range(0, len(sums), _FAN_IN)]
            pairs = zip(lots, heads, strict=True)
            sums, workers = [self._submit(_add_sums, lot, worker=w) for lot, w in pairs], heads
        return pickle.loads(sums[0].result())

    def take(self, rows: NDArray[np.intp]) -> RowBlock:
        """Return a copy of rows, given by ascending numbers."""
        parts = []
        for each in self.groups:
            low, high = np.searchsorted(rows, each.edges)
            if high > low:
                wanted = rows[low:high]
                parts.append(self._submit(pick_rows, each.blocks, wanted, worker=each.worker))
        return in_memory(self.client.gather(parts), self.n_features)

    def batches(self, size: int, rng: np.random.RandomState) -> Iterator[RowBlock]:
        """Yield all rows once, in order, in batches of `size`."""
        for start in range(0, self.n_rows, size):
            yield self.take(np.arange(start, min(start + size, self.n_rows)))

    def _submit(self, function: Callable[..., Any], *arguments: Any, worker: str) -> Any:
        return self.client.submit(
            function, *arguments, workers=[worker], allow_other_workers=True, pure=False
        )


def _make_blocks(parts: list[list[AnyArray]], starts: list[int]) -> list[RowBlock]:
    """Return validated partitions as row blocks."""
    blocks = []
    for part, start in zip(parts, starts, strict=True):
        X, y, weight = (*part, None) if len(part) == 2 else part
        xp = namespace(X)
        if is_numpy(X):
            kind = np.float32 if X.dtype == np.float32 else np.float64
            X, y = np.asarray(X, dtype=kind), np.asarray(y, dtype=np.float64)
            weight = None if weight is None else np.asarray(weight, dtype=np.float64)
        if weight is not None and bool(xp.any(weight < 0.0)):
            raise ValueError("sample_weight must not be negative.")
        for name, values in (("X", X), ("y", y), ("sample_weight", weight)):
            if values is not None:
                check_finite(name, values, start)
        blocks.append(RowBlock(X, y, weight, start))
    return blocks


def _sum_group(packed: bytes, blocks: list[RowBlock], n_columns: int) -> bytes:
    """Return the pickled sum over a group."""
    term = pickle.loads(packed)
    with speed_up_passes(n_columns):
        sources = (ArraySource.of(each, n_columns, n_threads=1) for each in blocks)
        return pickle.dumps(reduce(iadd, (each.total(term) for each in sources)))


def _add_sums(sums: list[bytes]) -> bytes:
    """Return the pickled sum of pickled sums."""
    return pickle.dumps(reduce(iadd, map(pickle.loads, sums)))
