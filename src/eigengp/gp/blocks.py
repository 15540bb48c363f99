"""Rows, what is summed over them, and where they come from: the seam between mathematics and data.

A source of rows needs to know nothing of the mathematics: it applies a
function to each block of rows and adds the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import Field, dataclass, replace
from operator import add, sub
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from eigengp.backend.namespace import AnyArray, namespace, on_host


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
        xp, own = namespace(self.X), self.sample_weight
        weight = None if own is None else xp.take(own, rows, axis=0)
        scatter = None if self.scatter is None else xp.take(self.scatter, rows, axis=0)
        X, y = xp.take(self.X, rows, axis=0), xp.take(self.y, rows, axis=0)
        return RowBlock(X, y, weight, self.start, scatter)

    def cut(self, count: int) -> tuple[RowBlock, RowBlock]:
        """Return the first `count` rows, and the others."""
        return self._part(slice(None, count), 0), self._part(slice(count, None), count)

    def _part(self, rows: slice, offset: int) -> RowBlock:
        own = self.sample_weight
        weight = None if own is None else own[rows]
        scatter = None if self.scatter is None else self.scatter[rows]
        return RowBlock(self.X[rows, :], self.y[rows], weight, self.start + offset, scatter)


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


class Additive:
    """A dataclass of arrays and numbers that adds field by field."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __add__(self, other: Self) -> Self:
        return self._paired(other, add)

    def __sub__(self, other: Self) -> Self:
        return self._paired(other, sub)

    def __mul__(self, factor: float) -> Self:
        return self._made(factor * each for each in self._values())

    def __iadd__(self, other: Self) -> Self:
        """Add in the memory of this one's arrays, which are lost."""
        return self._paired(other, _added_in_place)

    def _paired(self, other: Self, combine: Callable[[Any, Any], Any]) -> Self:
        return self._made(map(combine, self._values(), other._values()))

    def _made(self, values: Iterable[Any]) -> Self:
        return type(self)(**dict(zip(self.__dataclass_fields__, values, strict=True)))

    def _values(self) -> list[Any]:
        return [getattr(self, name) for name in self.__dataclass_fields__]

    def on_host(self) -> Self:
        """Return the same in NumPy's arrays and plain numbers."""
        return self._made(map(_hosted, self._values()))


def _hosted(x: Any) -> Any:
    """Return a number as it is, and an array as one of NumPy's."""
    if isinstance(x, float):
        return x
    hosted = on_host(x)
    return np.ascontiguousarray(hosted) if hosted.ndim else float(hosted)


def _added_in_place(x: Any, other: Any) -> Any:
    """Return `x + other`, in the memory of `x` if that is an array; numbers may be shared."""
    if not getattr(x, "ndim", 0):
        return x + other
    x += other
    return x


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
