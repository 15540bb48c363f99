"""Few rows in memory, whose blocks are made once and stay as the passes want them.

Views make each block anew in every pass: they standardise rows, and leave some
out. That takes no memory, and little time beside the sums of many features;
beside those of few it is a fifth of the time, and few rows can be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any, NamedTuple, TypeVar

import numpy as np

from eigengp.backend.namespace import is_numpy
from eigengp.data.array_source import ArraySource
from eigengp.data.holdout import Shown, View
from eigengp.gp.blocks import RowBlock, RowSource

SumT = TypeVar("SumT", bound=Any)

_SHARE = 4
"""Rows may take one part in so many of the memory that features may take."""


class _Parts(NamedTuple):
    """What a source consists of."""

    rows: ArraySource
    shown: tuple[Shown, ...]
    """What becomes of a block, view by view."""


def ready(source: RowSource, memory_limit: int) -> RowSource:
    """Return the same rows in the same blocks, which are kept where rows are few and in memory.

    Parameters
    ----------
    source : RowSource
        The rows, perhaps seen through views.
    memory_limit : int
        How many bytes features may take; rows may take a quarter of it.
    """
    parts = _parts_of(source)
    if parts is None or _SHARE * _bytes(parts.rows) > memory_limit:
        return source
    return ReadyRows(source, memory_limit)


def _parts_of(source: RowSource) -> _Parts | None:
    """Return arrays of NumPy and what is shown of each of their blocks, if that is all there is."""
    shown: list[Shown] = []
    while isinstance(source, View):
        if source.shown is None:
            return None
        shown.insert(0, source.shown)
        source = source.source
    if not isinstance(source, ArraySource) or not is_numpy(source.X):
        return None
    return _Parts(source, tuple(shown))


def _bytes(rows: ArraySource) -> int:
    columns = rows.n_features + (1 if rows.sample_weight is None else 2)
    return rows.n_rows * columns * 8


@dataclass(frozen=True)
class ReadyRows(View):
    """What views show of rows in memory, kept from the first pass on.

    Each input lies in one piece, as passes read it.
    """

    memory_limit: int
    _made: dict[int, RowBlock] = field(default_factory=dict, init=False, repr=False)
    """Blocks by their first row."""

    @cached_property
    def _parts(self) -> _Parts:
        parts = _parts_of(self.source)
        assert parts is not None
        return parts

    def sized(self, n_columns: int) -> RowSource:
        """Return the same rows in blocks that suit so many features."""
        return ready(self.source.sized(n_columns), self.memory_limit)

    def batches(self, size: int, rng: np.random.RandomState) -> Iterator[RowBlock]:
        """Yield all rows once, in random order, about so many at a time, in NumPy's arrays."""
        return self.source.batches(size, rng)

    def total(self, term: Callable[[RowBlock], SumT]) -> SumT:
        """Return the sum of `term(block)` over all blocks."""
        return self._parts.rows.total(lambda block: term(self._ready(block)))

    def _ready(self, block: RowBlock) -> RowBlock:
        made = self._made.get(block.start)
        if made is None:
            made = reduce(lambda seen, show: show(seen), self._parts.shown, block)
            made = replace(made, X=np.asfortranarray(made.X))
            self._made[block.start] = made
        return made
