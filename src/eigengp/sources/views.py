"""Sources that show another source differently: standardised, or with rows held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.random import sample_without_replacement

from eigengp.flow.sums import Additive, RowBlock, RowSource
from eigengp.typing import Array

SumT = TypeVar("SumT", bound=Any)

_HASH = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class _Moments(Additive):
    weight: float
    total: Array


@dataclass(frozen=True)
class Extent:
    """The smallest box around the inputs; adding two gives the box around both."""

    low: Array
    high: Array

    @classmethod
    def of(cls, source: RowSource) -> Extent:
        """Measure a source in one pass."""
        return source.total(lambda block: cls(block.X.min(axis=0), block.X.max(axis=0)))

    def __add__(self, other: Extent) -> Extent:
        return Extent(np.minimum(self.low, other.low), np.maximum(self.high, other.high))


@dataclass(frozen=True)
class Scaling:
    """Centres and scales that bring inputs and targets to order one."""

    input_centre: Array
    input_scale: Array
    target_centre: float
    target_scale: float

    @classmethod
    def of(cls, source: RowSource, standardize: bool) -> Scaling:
        """Measure a source in two passes.

        With `standardize` each input has its own scale and the mean of the
        targets is taken off. Without it all inputs share one scale, which
        keeps their geometry, and the prior mean of the targets is zero;
        the scales then only keep the arithmetic well conditioned.
        """
        first = source.total(_sums_of)
        centre = first.total / first.weight
        second = source.total(lambda block: _sums_of(block, centre))
        scale = np.sqrt(second.total / second.weight)
        if not standardize:
            scale[:-1] = np.sqrt(np.mean(scale[:-1] ** 2))
        scale = _usable(scale, centre)
        mean = float(centre[-1]) if standardize else 0.0
        return cls(centre[:-1], scale[:-1], mean, float(scale[-1]))

    def inputs(self, X: Array) -> Array:
        """Return standardised inputs."""
        return (X - self.input_centre) / self.input_scale

    def block(self, block: RowBlock) -> RowBlock:
        """Return a standardised row block."""
        y = (block.y - self.target_centre) / self.target_scale
        return RowBlock(self.inputs(block.X), y, block.sample_weight, block.start)


def _sums_of(block: RowBlock, centre: Array | None = None) -> _Moments:
    """Return the weighted sums of `[X, y]`, or of its squares about a centre."""
    values = np.column_stack([block.X, block.y])
    if centre is not None:
        values = (values - centre) ** 2
    if block.sample_weight is None:
        return _Moments(float(values.shape[0]), values.sum(axis=0))
    return _Moments(float(block.sample_weight.sum()), block.sample_weight @ values)


def _usable(scale: Array, centre: Array) -> Array:
    """Replace the scale of what is constant, up to rounding, by its magnitude or by one."""
    magnitude = np.abs(centre)
    constant = scale <= 8.0 * np.finfo(np.float64).eps * magnitude
    return np.where(constant | (scale == 0.0), np.where(magnitude > 0.0, magnitude, 1.0), scale)


def sample_rows(source: RowSource, count: int, rng: np.random.RandomState) -> RowBlock:
    """Return a copy of `count` rows drawn at random, in their order; all if there are fewer."""
    count = min(count, source.n_rows)
    return source.take(np.sort(sample_without_replacement(source.n_rows, count, random_state=rng)))


@dataclass(frozen=True)
class _View:
    """What all views take over from the source they show."""

    source: RowSource

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return self.source.n_rows

    @property
    def n_features(self) -> int:
        """How many inputs each row has."""
        return self.source.n_features


@dataclass(frozen=True)
class StandardizedSource(_View):
    """A source seen through a scaling, block by block: nothing is copied."""

    scaling: Scaling

    def total(self, term: Callable[[RowBlock], SumT]) -> SumT:
        """Return the sum of `term(block)` over all blocks."""
        return self.source.total(lambda block: term(self.scaling.block(block)))

    def take(self, rows: NDArray[np.intp]) -> RowBlock:
        """Return a copy of a few rows."""
        return self.scaling.block(self.source.take(rows))


@dataclass(frozen=True)
class TrainingRows(_View):
    """A source without its held-out rows: about one in `stride`, picked by a fixed hash.

    `n_rows` counts the held-out ones too.
    """

    stride: int

    def total(self, term: Callable[[RowBlock], SumT]) -> SumT:
        """Return the sum of `term(block)` over all blocks, held-out rows left out."""
        return self.source.total(lambda block: term(self._kept(block)))

    def take(self, rows: NDArray[np.intp]) -> RowBlock:
        """Return a copy of a few rows; held-out ones among them are left out."""
        return self.source.take(rows[~_held_out(rows, self.stride)])

    def held_out(self) -> RowBlock:
        """Return a copy of the held-out rows."""
        chunk = 1 << 16
        starts = range(0, self.n_rows, chunk)
        parts = (np.arange(i, min(i + chunk, self.n_rows)) for i in starts)
        rows = np.concatenate([part[_held_out(part, self.stride)] for part in parts])
        return self.source.take(rows)

    def _kept(self, block: RowBlock) -> RowBlock:
        keep = ~_held_out(np.arange(block.start, block.start + block.y.size), self.stride)
        weight = None if block.sample_weight is None else block.sample_weight[keep]
        return RowBlock(block.X[keep], block.y[keep], weight, block.start)


def _held_out(rows: NDArray[np.intp], stride: int) -> NDArray[np.bool_]:
    mixed = (rows.astype(np.uint64) * _HASH) >> np.uint64(40)
    held: NDArray[np.bool_] = mixed % np.uint64(stride) == 0
    return held
