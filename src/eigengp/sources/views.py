"""Sources that show another source differently: standardised, or with rows held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.random import sample_without_replacement

from eigengp.arrays import AnyArray, Placed, cast, dtype_name, namespace, on_host
from eigengp.flow.sums import Additive, RowBlock, RowSource
from eigengp.typing import Array

SumT = TypeVar("SumT", bound=Any)

_HELD_OUT_ROWS = 5_000
_MANY = 50
_HASH = 0x9E3779B97F4A7C15 - (1 << 64)


@dataclass(frozen=True)
class _Moments(Additive):
    weight: AnyArray
    total: AnyArray


@dataclass(frozen=True)
class Extent:
    """The smallest box around the inputs; adding two gives the box around both."""

    low: AnyArray
    high: AnyArray

    @classmethod
    def around(cls, X: AnyArray) -> Extent:
        """Return the box around these inputs, shape (n, D)."""
        xp = namespace(X)
        return cls(xp.min(X, axis=0), xp.max(X, axis=0))

    @classmethod
    def of(cls, source: RowSource) -> Extent:
        """Measure a source in one pass."""
        return source.total(lambda block: cls.around(block.X))

    def __add__(self, other: Extent) -> Extent:
        xp = namespace(self.low)
        return Extent(xp.minimum(self.low, other.low), xp.maximum(self.high, other.high))

    def on_host(self) -> Extent:
        """Return the same in NumPy's arrays."""
        return Extent(on_host(self.low), on_host(self.high))


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
        about = Placed(centre)
        second = source.total(lambda block: _sums_of(block, about))
        scale = np.sqrt(second.total / second.weight)
        if not standardize:
            scale[:-1] = np.sqrt(np.mean(scale[:-1] ** 2))
        scale = _usable(scale, centre)
        mean = float(centre[-1]) if standardize else 0.0
        return cls(centre[:-1], scale[:-1], mean, float(scale[-1]))

    @cached_property
    def _placed(self) -> tuple[Placed, Placed]:
        return Placed(self.input_centre), Placed(1.0 / self.input_scale)

    def inputs(self, X: AnyArray) -> AnyArray:
        """Return standardised inputs, in the library and precision of `X`."""
        centre, per_scale = (each.beside(X) for each in self._placed)
        standardised = X - centre
        standardised *= per_scale
        return standardised

    def block(self, block: RowBlock) -> RowBlock:
        """Return a standardised row block."""
        y = (block.y - self.target_centre) / self.target_scale
        return RowBlock(self.inputs(block.X), y, block.sample_weight, block.start)


def _sums_of(block: RowBlock, centre: Placed | None = None) -> _Moments:
    """Return the weighted sums of `[X, y]`, or of its squares about a centre, in float64."""
    xp = namespace(block.X)
    values = xp.concat([block.X, block.y[:, None]], axis=1)
    if centre is not None:
        values = (values - centre.beside(values)) ** 2
    n = float(values.shape[0])
    if block.sample_weight is not None:
        values *= cast(block.sample_weight, dtype_name(values))[:, None]
        n = xp.sum(block.sample_weight, dtype=xp.float64)
    return _Moments(n, xp.sum(values, axis=0, dtype=xp.float64))


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
        xp, start = namespace(block.X), block.start
        rows = xp.arange(start, start + block.y.shape[0], dtype=xp.int64, device=block.X.device)
        keep = xp.nonzero(~_held_out(rows, self.stride))[0]
        weight = block.sample_weight
        own = None if weight is None else xp.take(weight, keep, axis=0)
        X, y = (xp.take(each, keep, axis=0) for each in (block.X, block.y))
        return RowBlock(X, y, own, start)


@dataclass(frozen=True)
class ManyTrainingRows(_View):
    """A source without a few of very many rows, whose share is taken off each sum.

    That leaves the blocks as they are, where to pick rows out of each would
    cost more than the sums themselves. `n_rows` counts the held-out ones too.
    """

    held: RowBlock
    held_rows: NDArray[np.intp]

    @classmethod
    def of(cls, source: RowSource, count: int) -> ManyTrainingRows:
        """Hold out `count` rows, the same for every source of this length."""
        # Not a RandomState: whatever the user's seed, its draws must not be these.
        rng = np.random.default_rng(0)
        rows = np.sort(rng.choice(source.n_rows, count, replace=False, shuffle=False))
        return cls(source, replace(source.take(rows), start=-1), rows)

    def total(self, term: Callable[[RowBlock], SumT]) -> SumT:
        """Return the sum of `term(block)` over all blocks, held-out rows left out."""
        whole = self.source.total(term)
        return whole - term(self.held).on_host()

    def take(self, rows: NDArray[np.intp]) -> RowBlock:
        """Return a copy of a few rows; held-out ones among them are left out."""
        return self.source.take(rows[~np.isin(rows, self.held_rows)])

    def held_out(self) -> RowBlock:
        """Return a copy of the held-out rows."""
        return self.held


def training_rows(source: RowSource) -> TrainingRows | ManyTrainingRows:
    """Hold out one row in ten, and about 5,000 of many."""
    if source.n_rows >= _MANY * _HELD_OUT_ROWS:
        return ManyTrainingRows.of(source, _HELD_OUT_ROWS)
    return TrainingRows(source, max(10, source.n_rows // _HELD_OUT_ROWS))


def _held_out(rows: AnyArray, stride: int) -> AnyArray:
    """Say which rows are held out; products of integers wrap around in every library."""
    return ((rows * _HASH >> 40) & 0xFFFFFF) % stride == 0
