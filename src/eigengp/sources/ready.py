"""Few rows in memory, whose blocks are made once and stay as the passes want them.

Views make each block anew in every pass: they standardise rows, and leave some
out. That takes no memory, and little time beside the sums of many features;
beside those of few it is a fifth of the time, and few rows can be kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, TypeVar

import numpy as np

from eigengp.arrays import is_numpy
from eigengp.flow.rows import RowBlock, RowSource
from eigengp.sources.arrays import ArraySource
from eigengp.sources.views import Shown, View

SumT = TypeVar("SumT", bound=Any)

_SHARE = 4
"""Rows may take one part in so many of the memory that features may take."""


def ready(source: RowSource, memory_limit: int) -> RowSource:
    """Return the same rows in the same blocks, which are kept where rows are few and in memory.

    Parameters
    ----------
    source : RowSource
        The rows, perhaps seen through views.
    memory_limit : int
        How many bytes may be kept between passes, of which these take a small part.
    """
    shown: list[Shown] = []
    inner = source
    while isinstance(inner, View):
        if inner.shown is None:
            return source
        shown.insert(0, inner.shown)
        inner = inner.source
    if not isinstance(inner, ArraySource) or not is_numpy(inner.X):
        return source
    if _SHARE * inner.n_rows * (inner.n_features + 1) * 8 > memory_limit:
        return source
    return ReadyRows(source, inner, tuple(shown), memory_limit)


@dataclass(frozen=True)
class ReadyRows(View):
    """What views show of rows in memory, kept from the first pass on.

    Each input lies in one piece, as passes read it.
    """

    inner: ArraySource
    steps: tuple[Shown, ...]
    """What becomes of a block, view by view."""
    memory_limit: int
    _made: dict[int, RowBlock] = field(default_factory=dict, init=False, repr=False)

    def sized(self, n_columns: int) -> RowSource:
        """Return the same rows in blocks that suit so many features."""
        return ready(self.source.sized(n_columns), self.memory_limit)

    def total(self, term: Callable[[RowBlock], SumT]) -> SumT:
        """Return the sum of `term(block)` over all blocks."""
        return self.inner.total(lambda block: term(self._ready(block)))

    def _ready(self, block: RowBlock) -> RowBlock:
        made = self._made.get(block.start)
        if made is None:
            made = reduce(lambda seen, step: step(seen), self.steps, block)
            made = replace(made, X=np.asfortranarray(made.X))
            self._made[block.start] = made
        return made
