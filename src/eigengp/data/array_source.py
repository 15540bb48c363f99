"""Rows in arrays: NumPy arrays, possibly memory-mapped, or arrays on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from operator import iadd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigengp.backend.namespace import AnyArray, is_numpy, namespace, on_host
from eigengp.backend.threads import (
    join_rows,
    map_in_threads,
    reuse_buffers,
    sum_in_threads,
    use_one_blas_thread,
)
from eigengp.gp.blocks import RowBlock, RowSource, SumT, in_memory

BLOCK_ROWS = 1024  # The default number of rows in a block.
# The approximate number of features in a block, so large that threads seldom wait for the GIL.
_BLOCK_ENTRIES = 1 << 19
_BLOCK_RANGE = (512, 16384)
_TOGETHER = 4  # Several blocks are a multiple of this, so that two or four threads have equal work.
_WORTH_THREADS = 1 << 17  # The number of features from which predictions in threads are faster.
_MOST_CHUNK_ROWS = 1 << 16
_CHUNK_NUMBERS = 1 << 21
_MOST_ENTRIES = 1 << 22
_DEVICE_BYTES = 1 << 33  # The assumed memory of a device that does not report it.
# Bytes per feature, eight times its size: a device needs large blocks, and several arrays of a
# block exist at once.
_DEVICE_SHARE = 64
_DEVICE_RANGE = (1 << 12, 1 << 24)
# The number of rows in a block on a device is a multiple of this, for fused passes.
_DEVICE_STEP = 1 << 10


def count_chunk_rows(n_features: int) -> int:
    """Return the number of rows in a chunk, which is read or summed at a time.

    Sums over chunks are added in order, so that a file gives the same bits as an array.
    """
    return max(1, min(_MOST_CHUNK_ROWS, _CHUNK_NUMBERS // (n_features + 1)))


def choose_block_rows(X: AnyArray, n_columns: int) -> int:
    """Return the number of rows in a block with `n_columns` features."""
    if not isinstance(X, np.ndarray):
        least, most = _DEVICE_RANGE
        return max(least, min(most, _get_free_bytes(X) // (_DEVICE_SHARE * n_columns)))
    least, most = _BLOCK_RANGE
    rows = max(least, min(most, _BLOCK_ENTRIES // n_columns))
    return max(1, min(rows, _MOST_ENTRIES // n_columns))


def _get_free_bytes(X: AnyArray) -> int:
    """Return the free memory of the device of `X`, in bytes."""
    if not getattr(X, "is_cuda", False):
        return _DEVICE_BYTES
    import torch

    return int(torch.cuda.mem_get_info(X.device)[0])


def check_finite(name: str, values: AnyArray, start: int) -> None:
    """Raise on the first missing or infinite value."""
    xp = namespace(values)
    wrong = xp.nonzero(~xp.isfinite(values))
    if wrong[0].shape[0]:
        column = f", column {int(wrong[1][0])}" if values.ndim == 2 else ""
        raise ValueError(
            f"{name} has a missing or infinite value in row {start + int(wrong[0][0])}{column} "
            "(counted from 0). Drop such rows, or fill them in."
        )


@dataclass(frozen=True)
class ArraySource:
    """Row blocks cut from arrays.

    Blocks of NumPy arrays are summed by a pool of threads, with BLAS limited to one thread. Blocks,
    and the order in which they are added, do not depend on the number of threads, which gives the
    same bits. Blocks of other arrays are summed one after another.

    Parameters
    ----------
    X : array of shape (N, D)
        Inputs, in float64 or float32.
    y : array of shape (N,)
        Targets.
    sample_weight : array of shape (N,) or None
        Sample weights.
    block_rows : int
        Rows in a block; memory beyond the data is proportional to it.
    n_threads : int or None
        None uses as many threads as BLAS.
    first : int
        The number of the first row, if the arrays are a part of a larger source.
    scatter : array of shape (N,) or None
        The scatter of the targets that were merged into each row.
    """

    X: AnyArray
    y: AnyArray
    sample_weight: AnyArray | None = None
    block_rows: int = BLOCK_ROWS
    n_threads: int | None = None
    first: int = 0
    scatter: AnyArray | None = None

    @classmethod
    def of(
        cls, rows: RowBlock, n_columns: int | None = None, n_threads: int | None = None
    ) -> ArraySource:
        """Return the source of rows in memory, in blocks for `n_columns` features."""
        size = BLOCK_ROWS if n_columns is None else choose_block_rows(rows.X, n_columns)
        own = rows.X, rows.y, rows.sample_weight
        return cls(*own, size, n_threads, rows.start, rows.scatter)

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """The number of inputs."""
        return int(self.X.shape[1])

    def take(self, rows: NDArray[np.intp]) -> RowBlock:
        """Return a copy of some rows, as NumPy arrays."""
        own: Any = (self.X, self.y, self.sample_weight, self.scatter)
        if isinstance(self.X, np.ndarray):
            own = (None if each is None else np.asarray(each[rows], np.float64) for each in own)
        else:
            xp = namespace(self.X)
            at = xp.asarray(rows, device=self.X.device)
            own = (None if each is None else on_host(xp.take(each, at, axis=0)) for each in own)
        X, y, weight, scatter = own
        return RowBlock(X, y, weight, scatter=scatter)

    def batches(self, size: int, rng: np.random.RandomState) -> Iterator[RowBlock]:
        """Yield all rows once, in random order, in batches of `size`, as NumPy arrays."""
        order = rng.permutation(self.n_rows)
        for start in range(0, self.n_rows, size):
            yield self.take(order[start : start + size])

    def sized(self, n_columns: int) -> ArraySource:
        """Return the same rows in blocks for `n_columns` features."""
        return replace(self, block_rows=choose_block_rows(self.X, n_columns))

    def _get_block(self, rows: slice) -> RowBlock:
        weight = None if self.sample_weight is None else self.sample_weight[rows]
        X, y = self.X[rows, :], self.y[rows]
        if isinstance(X, np.ndarray):
            X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
        scatter = None if self.scatter is None else self.scatter[rows]
        return RowBlock(X, y, weight, self.first + rows.start, scatter)

    def total(self, term: Callable[[RowBlock], SumT]) -> SumT:
        """Return the sum of `term(block)` over all blocks, as NumPy arrays."""
        n_threads = self.n_threads if isinstance(self.X, np.ndarray) else 1

        def sum_part(part: Sequence[slice]) -> SumT:
            return reduce(iadd, (term(self._get_block(rows)) for rows in part))

        sums = (
            sum_part(blocks) if len(blocks) == 1 else sum_in_threads(sum_part, blocks, n_threads)
            for blocks in self._cut_chunks()
        )
        total: Any = reduce(iadd, sums)
        return total.on_host() if hasattr(total, "on_host") else total

    def _cut_chunks(self) -> Iterator[Sequence[slice]]:
        """Yield the blocks of each chunk; on a device all rows are one chunk."""
        if not isinstance(self.X, np.ndarray):
            step = _DEVICE_STEP if self.block_rows > _DEVICE_STEP else 1
            yield _cut_blocks(0, self.n_rows, self.block_rows, 1, step)
            return
        size = count_chunk_rows(self.n_features)
        for start in range(0, self.n_rows, size):
            yield _cut_blocks(start, min(start + size, self.n_rows), self.block_rows)


def pick_rows(blocks: Iterable[RowBlock], rows: NDArray[np.intp]) -> RowBlock:
    """Return a copy of rows of consecutive blocks, given by ascending numbers, in NumPy arrays."""
    parts, n_features = [], 0
    for block in blocks:
        low, high = np.searchsorted(rows, (block.start, block.start + block.n_rows))
        n_features = block.X.shape[1]
        if high > low:
            parts.append(ArraySource.of(block).take(rows[low:high] - block.start))
        if high == rows.size:
            break
    return in_memory(parts, n_features)


def get_rows(source: RowSource) -> RowBlock:
    """Return all rows in memory, without a copy if they are NumPy's arrays in float64."""
    if isinstance(source, ArraySource) and is_numpy(source.X) and source.X.dtype == np.float64:
        return RowBlock(source.X, source.y, source.sample_weight, scatter=source.scatter)
    first, n = source.take(np.zeros(1, dtype=np.intp)), source.n_rows
    whole = first.map_arrays(lambda each: np.empty((n, *each.shape[1:]), order="F"), 0)

    def keep(block: RowBlock) -> int:
        own = slice(block.start, block.start + block.n_rows)
        for name in ("X", "y", "sample_weight", "scatter"):
            if getattr(whole, name) is not None:
                getattr(whole, name)[own] = on_host(getattr(block, name))
        return 0

    source.total(keep)  # Few blocks exist at a time.
    return whole


def _cut_blocks(
    start: int, end: int, block_rows: int, multiple: int = _TOGETHER, step: int = 1
) -> tuple[slice, ...]:
    """Return blocks of nearly equal size; several blocks are a multiple of `multiple`.

    All edges but the last are multiples of `step` from the first.
    """
    n_rows = end - start
    count = -(-n_rows // block_rows)
    if count <= 1:
        return (slice(start, end),)
    count = -(-count // multiple) * multiple
    edges = np.linspace(0, n_rows, min(count, n_rows) + 1)
    inner = start + np.unique((edges[1:-1] / step).round().astype(int)) * step
    inner = inner[(inner > start) & (inner < end)]
    return tuple(slice(low, high) for low, high in pairwise([start, *inner.tolist(), end]))


def map_blocks(function: Callable[[AnyArray], Any], X: AnyArray, n_columns: int = 1) -> Any:
    """Apply a function to all rows of `X`, block by block, in threads on a CPU.

    Parameters
    ----------
    function : callable
        Maps rows to an array with the same number of rows, or to a tuple of such arrays.
    X : array of shape (n, D)
        All rows.
    n_columns : int
        The number of features per row, which determines the size of blocks.
    """
    size = choose_block_rows(X, n_columns)
    if isinstance(X, np.ndarray) and X.shape[0] * n_columns > _WORTH_THREADS:
        size = min(size, -(-X.shape[0] // _TOGETHER))
    blocks, host = _cut_blocks(0, X.shape[0], size), isinstance(X, np.ndarray)
    cut = (lambda rows: np.asarray(X[rows], dtype=np.float64)) if host else lambda rows: X[rows, :]
    if len(blocks) == 1:
        with use_one_blas_thread():
            return function(cut(blocks[0]))
    with reuse_buffers():
        found = map_in_threads(lambda rows: function(cut(rows)), blocks, None if host else 1)
    return join_rows(found)
