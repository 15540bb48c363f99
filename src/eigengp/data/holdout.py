"""Views of a source: a sample of its rows, all but a held-out set, or merged rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.random import sample_without_replacement

from eigengp.backend.namespace import AnyArray, beside, is_numpy, namespace
from eigengp.data.array_source import ArraySource
from eigengp.gp.blocks import RowBlock, RowSource, group_rows, has_equal_inputs

SumT = TypeVar("SumT", bound=Any)
# A function from a block of the source to a block of the view.
BlockMap: TypeAlias = Callable[[RowBlock], RowBlock]

_HELD_OUT_ROWS = 5_000
_MANY = 50
_MOST_GROUPED = 200_000
_SLOW_FROM = 1_000_000  # With more rows than this, scikit-learn's sampling may take seconds.
# Up to so many rows on a device are standardised at once, and copied without the held-out set.
COPIED_ROWS = 1 << 21
_HASH = 0x9E3779B97F4A7C15 - (1 << 64)


def sample_rows(source: RowSource, count: int, rng: np.random.RandomState) -> RowBlock:
    """Draw `count` rows at random, or all if there are fewer; their order is kept."""
    n, count = source.n_rows, min(count, source.n_rows)
    if n <= _SLOW_FROM:
        return source.take(np.sort(sample_without_replacement(n, count, random_state=rng)))
    fast = np.random.default_rng(rng.randint(1 << 31))
    return source.take(np.sort(fast.choice(n, count, replace=False, shuffle=False)))


def beside_source(rows: RowBlock, source: Any) -> RowBlock:
    """Return rows in the library and on the device of the arrays of a source, if it has some."""
    arrays = _get_arrays(source)
    if arrays is None or is_numpy(arrays.X):
        return rows
    like = arrays.X[:0, :]
    return rows.map_arrays(lambda array: beside(array, like), rows.start)


def _get_arrays(source: RowSource) -> ArraySource | None:
    """Return the arrays behind a source, if it has some."""
    while isinstance(source, View):
        source = source.source
    return source if isinstance(source, ArraySource) else None


@dataclass(frozen=True)
class View:
    """A source whose blocks are computed from those of another source."""

    source: RowSource

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self.source.n_rows

    @property
    def n_features(self) -> int:
        """The number of inputs."""
        return self.source.n_features

    @property
    def block_map(self) -> BlockMap:
        """The map from blocks of the source to blocks of the view.

        It is sent to workers, so it must not hold the rows.
        """
        return lambda block: block

    def sized(self, n_columns: int) -> RowSource:
        """Return the same view in blocks for `n_columns` features."""
        return replace(self, source=self.source.sized(n_columns))

    def total(self, term: Callable[[RowBlock], SumT]) -> SumT:
        """Return the sum of `term(block)` over all blocks of the view."""
        block_map = self.block_map
        return self.source.total(lambda block: term(block_map(block)))

    def take(self, rows: NDArray[np.intp]) -> RowBlock:
        """Return a copy of some rows."""
        return self.block_map(self.source.take(rows))

    def batches(self, size: int, rng: np.random.RandomState) -> Iterator[RowBlock]:
        """Yield all rows once, in batches of about `size`, as NumPy arrays."""
        return map(self.block_map, self.source.batches(size, rng))


@dataclass(frozen=True)
class TrainingRows(View):
    """A source without a held-out set: about one row in `stride`, chosen by a fixed hash.

    `n_rows` includes the held-out rows. Blocks of arrays are kept; NumPy's have contiguous columns.
    """

    stride: int
    # Blocks by the number of their first row.
    _blocks: dict[int, RowBlock] = field(default_factory=dict, init=False, repr=False)

    @property
    def block_map(self) -> BlockMap:
        """See `View.block_map`."""
        return partial(_drop_held_out, stride=self.stride)

    def total(self, term: Callable[[RowBlock], SumT]) -> SumT:
        """Return the sum of `term(block)` over all blocks of the view."""
        if not isinstance(self.source, ArraySource):
            return super().total(term)
        return self.source.total(lambda block: term(self._get_block(block)))

    def _get_block(self, block: RowBlock) -> RowBlock:
        if block.start not in self._blocks:
            own = _drop_held_out(block, self.stride)
            X = np.asfortranarray(own.X) if is_numpy(own.X) else own.X
            self._blocks[block.start] = replace(own, X=X)
        return self._blocks[block.start]

    def take(self, rows: NDArray[np.intp]) -> RowBlock:
        """Return a copy of those of the rows that are not held out."""
        return self.source.take(rows[~_is_held_out(rows, self.stride)])

    def take_held_out(self) -> RowBlock:
        """Return a copy of the held-out set."""
        return self.source.take(np.flatnonzero(_is_held_out(np.arange(self.n_rows), self.stride)))


def _drop_held_out(block: RowBlock, stride: int) -> RowBlock:
    """Return a block without its held-out rows."""
    xp, start = namespace(block.X), block.start
    rows = xp.arange(start, start + block.y.shape[0], dtype=xp.int64, device=block.X.device)
    return block.picked(xp.nonzero(~_is_held_out(rows, stride))[0])


@dataclass(frozen=True)
class ManyTrainingRows(View):
    """A large source without a small held-out set, which is subtracted from each sum.

    Dropping rows from every block would cost more than the sums, and copying the others too much
    memory; on a device, where a sum of few rows costs as much as one of many, up to two million
    are copied. `n_rows` includes the held-out rows.
    """

    held: RowBlock
    held_rows: NDArray[np.intp]

    @cached_property
    def _held_beside(self) -> RowBlock:
        return beside_source(self.held, self.source)

    @cached_property
    def _copied(self) -> ArraySource | None:
        """The rows that are not held out, if they are copied."""
        own = self.source
        if not isinstance(own, ArraySource) or is_numpy(own.X) or own.n_rows > COPIED_ROWS:
            return None
        kept = np.delete(np.arange(own.n_rows), self.held_rows)
        at = namespace(own.X).asarray(kept, device=own.X.device)
        rows = RowBlock(own.X, own.y, own.sample_weight).picked(at)
        return replace(own, X=rows.X, y=rows.y, sample_weight=rows.sample_weight)

    @classmethod
    def of(cls, source: RowSource, count: int) -> ManyTrainingRows:
        """Hold out `count` rows, the same rows for all sources of equal length."""
        # Not a RandomState, whose draws could coincide with those of the user's seed.
        rng = np.random.default_rng(0)
        rows = np.sort(rng.choice(source.n_rows, count, replace=False, shuffle=False))
        return cls(source, replace(source.take(rows), start=-1), rows)

    def total(self, term: Callable[[RowBlock], SumT]) -> SumT:
        """Return the sum of `term(block)` over all rows that are not held out."""
        if self._copied is not None:
            return self._copied.total(term)
        whole = self.source.total(term)
        return whole - term(self._held_beside).on_host()

    def take(self, rows: NDArray[np.intp]) -> RowBlock:
        """Return a copy of those of the rows that are not held out."""
        return self.source.take(rows[~np.isin(rows, self.held_rows)])

    def take_held_out(self) -> RowBlock:
        """Return a copy of the held-out set."""
        return self.held


def split_training(source: RowSource) -> TrainingRows | ManyTrainingRows:
    """Hold out one row in ten, and about 5,000 of more than 50,000 rows."""
    if source.n_rows >= _MANY * _HELD_OUT_ROWS:
        return ManyTrainingRows.of(source, _HELD_OUT_ROWS)
    return TrainingRows(source, max(10, source.n_rows // _HELD_OUT_ROWS))


def _is_held_out(rows: AnyArray, stride: int) -> AnyArray:
    """Return which rows are held out; integer products wrap around in every library."""
    return ((rows * _HASH >> 40) & 0xFFFFFF) % stride == 0


def group_source(source: RowSource) -> RowSource:
    """Merge rows with equal inputs if all rows are in NumPy arrays in memory.

    More than 200,000 rows, and those of files, Dask collections and GPUs, stay as they are: the
    residual of EigenGP+ is then independent between rows with equal inputs.
    """
    arrays = _get_arrays(source)
    if arrays is None or not is_numpy(arrays.X) or arrays.n_rows > _MOST_GROUPED:
        return source
    if not has_equal_inputs(arrays.X):
        return source
    rows = group_rows(source.take(np.arange(source.n_rows))).rows
    found = ArraySource.of(rows, n_threads=arrays.n_threads)
    return replace(found, block_rows=arrays.block_rows)
