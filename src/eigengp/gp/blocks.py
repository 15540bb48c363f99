"""Rows and where they come from: the seam between mathematics and data.

A source of rows needs to know nothing of the mathematics: it applies a
function to each block of rows and adds the results.

Rows with the same input share the latent function and, where the model has one, its residual with
variance `δ`. A group of `S = Σ s_i` observations `y_i`, each counted `s_i` times, has the
covariance `δ 11ᵀ + σ² diag(1/s)`. It is equivalent to its mean `ȳ = Σ s_i y_i/S`, with variance
`δ + σ²/S`, and the scatter `Σ s_i (y_i − ȳ)²`, which depends on `σ²` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, is_numpy, namespace


@dataclass(frozen=True)
class RowBlock:
    """Some rows of the data, in any library's arrays."""

    X: AnyArray  # Inputs, shape (n, D).
    y: AnyArray  # Targets, shape (n,).
    # How many times each row counts, shape (n,); None means once.
    sample_weight: AnyArray | None = None
    start: int = 0  # The index of the first row in the whole data.
    # `Σ s_i (y_i − ȳ)²` of the rows that were merged into each one, (n,); None means zero.
    scatter: AnyArray | None = None

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
        if is_numpy(self.X):  # `take` copies whole arrays in Fortran's order.
            return self.map_arrays(lambda array: np.ascontiguousarray(array[rows]), self.start)
        xp = namespace(self.X)
        return self.map_arrays(lambda array: xp.take(array, rows, axis=0), self.start)

    def cut(self, count: int) -> tuple[RowBlock, RowBlock]:
        """Return the first `count` rows, and the others."""
        return self.part(slice(count)), self.part(slice(count, None))

    def part(self, rows: slice) -> RowBlock:
        """Return some consecutive rows, without a copy."""
        return self.map_arrays(lambda array: array[rows, ...], self.start + (rows.start or 0))

    def map_inputs(self, W: AnyArray | None) -> RowBlock:
        """Return the block with the inputs `x W`; None is the identity."""
        return self if W is None else replace(self, X=self.X @ W)

    def map_arrays(self, function: Callable[[AnyArray], AnyArray], start: int) -> RowBlock:
        """Return the block with a function of each array."""
        arrays = (self.X, self.y, self.sample_weight, self.scatter)
        X, y, weight, scatter = (None if each is None else function(each) for each in arrays)
        return RowBlock(X, y, weight, start, scatter)


class Groups(NamedTuple):
    """Rows with equal inputs as one row each."""

    # One row for each distinct input, with mean targets, total weights and scatters.
    rows: RowBlock
    number: NDArray[np.intp]  # The index of the group of each original row, shape (N,).


def group_rows(rows: RowBlock) -> Groups:
    """Merge rows with equal inputs; the rows themselves are returned if all inputs differ.

    Examples
    --------
    >>> import numpy as np
    >>> groups = group_rows(RowBlock(np.array([[1.0], [0.0], [1.0]]), np.array([2.0, 5.0, 4.0])))
    >>> groups.rows.y.tolist(), groups.rows.weight.tolist(), groups.number.tolist()
    ([3.0, 5.0], [2.0, 1.0], [0, 1, 0])
    """
    if not has_equal_inputs(rows.X):
        return Groups(rows, np.arange(rows.n_rows))
    _, first, number = np.unique(rows.X, axis=0, return_index=True, return_inverse=True)
    # In the order of the first row of each, which does not depend on the order of the inputs.
    order = np.argsort(first)
    inputs, number = rows.X[first[order]], np.argsort(order)[number.ravel()]
    total = np.bincount(number, weights=rows.weight)
    mean = np.bincount(number, weights=rows.weight * rows.y) / total
    scatter = np.bincount(number, weights=rows.weight * (rows.y - mean[number]) ** 2)
    if rows.scatter is not None:
        scatter += np.bincount(number, weights=rows.scatter)
    return Groups(RowBlock(inputs, mean, total, rows.start, scatter), number)


def has_equal_inputs(X: Array) -> bool:
    """Return whether some rows of `X` are equal; rows are compared only if their hashes agree."""
    hashes = np.zeros(X.shape[0])
    factors: Array = np.random.default_rng(0).uniform(1.0, 2.0, (X.shape[1],))
    for factor, column in zip(factors, X.T, strict=True):
        hashes += factor * column
    ordered = np.sort(hashes)
    shared = ordered[1:][ordered[1:] == ordered[:-1]]
    suspects = X[np.isin(hashes, shared)] if shared.size else X[:0]
    return bool(np.unique(suspects, axis=0).shape[0] < suspects.shape[0])


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
