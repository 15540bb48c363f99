"""A cache of the blocks that views compute: standardised rows without the held-out set.

Views compute each block again in every pass, which needs no memory. With few features that takes a
fifth of the time, so small data in memory is cached instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any, NamedTuple, TypeVar

import numpy as np

from eigengp.backend.namespace import is_numpy
from eigengp.data.array_source import ArraySource
from eigengp.data.holdout import BlockMap, View
from eigengp.gp.blocks import RowBlock, RowSource

SumT = TypeVar("SumT", bound=Any)

_SHARE = 4
"""Cached rows may use this fraction, 1/4, of the memory limit for features."""


class _Parts(NamedTuple):
    """The arrays behind a source, and the views on them."""

    rows: ArraySource
    maps: tuple[BlockMap, ...]
    """The map of each view, innermost first."""


def cache_blocks(source: RowSource, memory_limit: int) -> RowSource:
    """Return a source that caches its blocks, or the source itself if that is not possible.

    Parameters
    ----------
    source : RowSource
        Rows, possibly behind views. Only NumPy arrays are cached.
    memory_limit : int
        The memory limit for features, in bytes; rows may use a quarter of it.
    """
    parts = _split_views(source)
    if parts is None:
        return source
    rows = parts.rows
    columns = rows.n_features + (1 if rows.sample_weight is None else 2)
    fits = _SHARE * rows.n_rows * columns * 8 <= memory_limit
    return CachedSource(source, memory_limit) if fits else source


def get_arrays(source: RowSource) -> ArraySource | None:
    """Return the NumPy arrays behind views; None if there are none."""
    parts = _split_views(source)
    return None if parts is None else parts.rows


def _split_views(source: RowSource) -> _Parts | None:
    """Return the NumPy arrays and the maps of the views, or None if blocks are not mapped alone."""
    maps: list[BlockMap] = []
    while isinstance(source, View):
        if source.block_map is None:
            return None
        maps.insert(0, source.block_map)
        source = source.source
    if not isinstance(source, ArraySource) or not is_numpy(source.X):
        return None
    return _Parts(source, tuple(maps))


@dataclass(frozen=True)
class CachedSource(View):
    """Blocks of a view, computed in the first pass and kept, with contiguous columns."""

    memory_limit: int
    _blocks: dict[int, RowBlock] = field(default_factory=dict, init=False, repr=False)
    """Blocks by the number of their first row."""

    @cached_property
    def _parts(self) -> _Parts:
        parts = _split_views(self.source)
        assert parts is not None
        return parts

    def sized(self, n_columns: int) -> RowSource:
        """Return the same rows in blocks for `n_columns` features."""
        return cache_blocks(self.source.sized(n_columns), self.memory_limit)

    def batches(self, size: int, rng: np.random.RandomState) -> Iterator[RowBlock]:
        """Yield all rows once, in random order, in batches of about `size`, as NumPy arrays."""
        return self.source.batches(size, rng)

    def total(self, term: Callable[[RowBlock], SumT]) -> SumT:
        """Return the sum of `term(block)` over all blocks."""
        return self._parts.rows.total(lambda block: term(self._get_block(block)))

    def _get_block(self, block: RowBlock) -> RowBlock:
        cached = self._blocks.get(block.start)
        if cached is None:
            cached = reduce(lambda seen, apply: apply(seen), self._parts.maps, block)
            cached = replace(cached, X=np.asfortranarray(cached.X))
            self._blocks[block.start] = cached
        return cached
