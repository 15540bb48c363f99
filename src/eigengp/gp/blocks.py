"""Rows and where they come from: the seam between mathematics and data.

A source of rows needs to know nothing of the mathematics: it applies a
function to each block of rows and adds the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from eigengp.backend.namespace import AnyArray, namespace


@dataclass(frozen=True)
class RowBlock:
    """Some rows of the data, in any library's arrays."""

    X: AnyArray
    """Inputs, shape (n, D)."""
    y: AnyArray
    """Targets, shape (n,)."""
    sample_weight: AnyArray | None = None
    """How many times each row counts, shape (n,); None means once."""
    start: int = 0
    """The index of the first row in the whole data."""
    scatter: AnyArray | None = None
    """`Σ s_i (y_i − ȳ)²` of the rows that were merged into each one, (n,); None means zero."""

    @classmethod
    def empty(cls, n_features: int = 0) -> RowBlock:
        """Return no rows."""
        return cls(np.empty((0, n_features)), np.empty(0))

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return int(self.y.shape[0])

    @property
    def weight(self) -> AnyArray:
        """The sample weights, ones where there are none, shape (n,)."""
        own = self.sample_weight
        return namespace(self.y).ones_like(self.y) if own is None else own

    @property
    def total_scatter(self) -> float:
        """The sum of the scatters of merged rows."""
        return 0.0 if self.scatter is None else float(self.scatter.sum())

    @property
    def nbytes(self) -> int:
        """How much memory NumPy's arrays take."""
        own = self.sample_weight
        return int(self.X.nbytes + self.y.nbytes + (0 if own is None else own.nbytes))

    def picked(self, rows: AnyArray) -> RowBlock:
        """Return a copy of the rows with these numbers, counted from the first of the block."""
        xp = namespace(self.X)
        return self.map_arrays(lambda array: xp.take(array, rows, axis=0), self.start)

    def cut(self, count: int) -> tuple[RowBlock, RowBlock]:
        """Return the first `count` rows, and the others."""
        first = self.map_arrays(lambda array: array[:count, ...], self.start)
        return first, self.map_arrays(lambda array: array[count:, ...], self.start + count)

    def map_arrays(self, function: Callable[[AnyArray], AnyArray], start: int) -> RowBlock:
        """Return the block with a function of each array."""
        arrays = (self.X, self.y, self.sample_weight, self.scatter)
        X, y, weight, scatter = (None if each is None else function(each) for each in arrays)
        return RowBlock(X, y, weight, start, scatter)


def joined(parts: Sequence[RowBlock]) -> RowBlock:
    """Return consecutive blocks in NumPy's arrays as one."""
    first = parts[0]
    if len(parts) == 1:
        return first
    weighted = first.sample_weight is not None
    weight = np.concatenate([part.weight for part in parts]) if weighted else None
    X, y = (np.concatenate([getattr(part, each) for part in parts]) for each in ("X", "y"))
    scatters = [part.scatter for part in parts if part.scatter is not None]
    return RowBlock(X, y, weight, first.start, np.concatenate(scatters) if scatters else None)


def in_memory(parts: Sequence[RowBlock], n_features: int) -> RowBlock:
    """Return blocks in NumPy's arrays as one, in float64; there may be none."""
    whole = joined(parts) if parts else RowBlock.empty(n_features)
    return replace(whole, X=np.asarray(whole.X, dtype=np.float64), start=0)


def regrouped(blocks: Iterable[RowBlock], size: int) -> Iterator[RowBlock]:
    """Yield the rows of consecutive blocks, `size` at a time and the rest at last."""
    left: list[RowBlock] = []
    for block in blocks:
        left.append(block)
        while sum(each.n_rows for each in left) >= size:
            whole, rest = joined(left).cut(size)
            left = [rest]
            yield whole
    if left and left[-1].n_rows:
        yield joined(left)


SumT = TypeVar("SumT", bound=Any)


class RowSource(Protocol):
    """Where row blocks come from: the one seam between mathematics and data."""

    @property
    def n_rows(self) -> int:
        """How many rows there are."""

    @property
    def n_features(self) -> int:
        """How many inputs each row has."""

    def total(self, term: Callable[[RowBlock], SumT]) -> SumT:
        """Return the sum of `term(block)` over all blocks, in NumPy's arrays.

        A term's arrays are the source's: it adds to them in place.
        """

    def take(self, rows: NDArray[np.intp]) -> RowBlock:
        """Return a copy of a few rows, whose numbers ascend, in NumPy's arrays."""

    def sized(self, n_columns: int) -> RowSource:
        """Return the same rows, in blocks that suit so many features."""

    def batches(self, size: int, rng: np.random.RandomState) -> Iterator[RowBlock]:
        """Yield all rows once, about so many at a time, in NumPy's arrays."""
