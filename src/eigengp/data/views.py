"""Sources that show another source differently: standardised, or with rows held out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.random import sample_without_replacement

from eigengp._typing import Array, Standardize
from eigengp.backend.namespace import AnyArray, Placed, beside, cast, namespace
from eigengp.data.summary import Extent, Summary
from eigengp.data.tails import KNEE, compressed, slope, stretched
from eigengp.gp.blocks import RowBlock, RowSource

SumT = TypeVar("SumT", bound=Any)
Shown: TypeAlias = Callable[[RowBlock], RowBlock]
"""What a view makes of a block."""

_HELD_OUT_ROWS = 5_000
_MANY = 50
_BITS = 40
_QUANTILE_ROWS = 10_000
"""From so many rows quantiles are taken, where there are more."""
_IQR_PER_DEVIATION = 1.349
"""The interquartile range of a normal distribution, in standard deviations."""
_HASH = 0x9E3779B97F4A7C15 - (1 << 64)


@dataclass(frozen=True)
class Scaling:
    """Centres and scales that bring inputs and targets to order one, and what inputs have beyond.

    A standardised input is `g((x − centre)/scale)`, where `g` compresses tails (see
    `eigengp.data.tails`); without a knee it is the identity.
    """

    input_centre: Array
    input_scale: Array
    target_centre: float
    target_scale: float
    input_spread: Array
    """The standard deviation of each input, zero where it is constant; with `standardize` that is
    its scale. That of a robust scaling is of the standardised inputs, times the scale."""
    knee: float = math.inf
    """Where tails begin that are compressed, in units of `input_scale`."""

    @classmethod
    def measured(cls, source: RowSource, summary: Summary, standardize: Standardize) -> Scaling:
        """Return the scaling for the rows of a source, of which there is a summary.

        A robust one takes quantiles of 10,000 rows, the same for every source of this length.
        """
        scaling = cls.of(summary, bool(standardize))
        if standardize != "robust":
            return scaling
        return scaling.robust(sample_rows(source, _QUANTILE_ROWS, np.random.RandomState(0)))

    @classmethod
    def of(cls, summary: Summary, standardize: bool) -> Scaling:
        """Return the scaling for rows that were measured.

        With `standardize` each input has its own scale and the mean of the
        targets is taken off. Without it all inputs share one scale, which
        keeps their geometry, and the prior mean of the targets is zero;
        the scales then only keep the arithmetic well conditioned.
        """
        centre = summary.mean
        scale = np.sqrt(summary.squares / summary.weight)
        spread = np.where(_constant(scale, centre), 0.0, _rounded(scale, scale))[:-1]
        if not standardize:
            scale[:-1] = np.sqrt(np.mean(scale[:-1] ** 2))
        scale = _rounded(_usable(scale, centre), scale)
        centre = _rounded(centre, scale)
        mean = float(centre[-1]) if standardize else 0.0
        return cls(centre[:-1], scale[:-1], mean, float(scale[-1]), spread)

    def robust(self, sample: RowBlock) -> Scaling:
        """Return the scaling with medians and interquartile ranges, and with compressed tails.

        An input whose quartiles are equal keeps its standard deviation as its scale. Weights
        count as repetitions. Targets are scaled as they were.
        """
        X, weight = sample.X, sample.sample_weight
        if weight is not None and not weight.any():
            weight = None
        low, middle, high = np.quantile(
            X, [0.25, 0.5, 0.75], axis=0, weights=weight, method="inverted_cdf"
        )
        deviation = (high - low) / _IQR_PER_DEVIATION
        scale = np.where(_constant(deviation, middle), self.input_scale, deviation)
        own = replace(self, input_centre=middle, input_scale=scale, knee=KNEE)
        inputs = own.inputs(X)
        about = inputs - np.average(inputs, axis=0, weights=weight)
        spread = scale * np.sqrt(np.average(about**2, axis=0, weights=weight))
        return replace(own, input_spread=np.where(self.input_spread > 0.0, spread, 0.0))

    @cached_property
    def _placed(self) -> tuple[Placed, Placed]:
        return Placed(self.input_centre), Placed(1.0 / self.input_scale)

    def inputs(self, X: AnyArray) -> AnyArray:
        """Return standardised inputs, in the library and precision of `X`."""
        deviations = self._deviations(X)
        return deviations if math.isinf(self.knee) else compressed(deviations, self.knee)

    def _deviations(self, X: AnyArray) -> AnyArray:
        centre, per_scale = (each.beside(X) for each in self._placed)
        deviations = X - centre
        deviations *= per_scale
        return deviations

    def in_units(self, standardised: Array) -> Array:
        """Return standardised inputs in the units of the data: what `inputs` takes back."""
        if not math.isinf(self.knee):
            standardised = stretched(standardised, self.knee)
        return standardised * self.input_scale + self.input_centre

    def gradient_unit(self, X: AnyArray) -> AnyArray:
        """Return what takes derivatives by standardised inputs to those in the data's units.

        It is `target_scale · d inputs(x)/dx`, shape (n, D), or (D,) where that is the same for
        all rows.
        """
        unit = beside(self.target_scale / self.input_scale, X)
        if math.isinf(self.knee):
            return unit
        return unit * slope(self._deviations(cast(X, "float64")), self.knee)

    def extent(self, extent: Extent) -> Extent:
        """Return a box around inputs as a box around standardised ones."""
        return Extent(*self.inputs(np.stack(extent)))

    def block(self, block: RowBlock) -> RowBlock:
        """Return a standardised row block."""
        y = (block.y - self.target_centre) / self.target_scale
        return RowBlock(self.inputs(block.X), y, block.sample_weight, block.start)


def _rounded(values: Array, scale: Array) -> Array:
    """Return values without their last digits, in which sums over other blocks would differ.

    Rows are then standardised to the same bits however they are cut up, and
    learning, which magnifies every bit, takes the same way.
    """
    unit = np.exp2(np.floor(np.log2(np.where(scale > 0.0, scale, 1.0))) - _BITS)
    rounded: Array = np.round(values / unit) * unit
    return rounded


def _usable(scale: Array, centre: Array) -> Array:
    """Replace the scale of what is constant, up to rounding, by its magnitude or by one."""
    magnitude = np.abs(centre)
    return np.where(_constant(scale, centre), np.where(magnitude > 0.0, magnitude, 1.0), scale)


def _constant(scale: Array, centre: Array) -> NDArray[np.bool_]:
    """Say what varies by no more than rounding."""
    constant: NDArray[np.bool_] = scale <= 8.0 * np.finfo(np.float64).eps * np.abs(centre)
    return constant


def sample_rows(source: RowSource, count: int, rng: np.random.RandomState) -> RowBlock:
    """Return a copy of `count` rows drawn at random, in their order; all if there are fewer."""
    count = min(count, source.n_rows)
    return source.take(np.sort(sample_without_replacement(source.n_rows, count, random_state=rng)))


@dataclass(frozen=True)
class View:
    """What all views take over from the source they show."""

    source: RowSource

    @property
    def shown(self) -> Shown | None:
        """What becomes of a block; None where sums are not made of blocks alone.

        It may travel, and must not take the rows with it.
        """
        return None

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return self.source.n_rows

    @property
    def n_features(self) -> int:
        """How many inputs each row has."""
        return self.source.n_features

    def sized(self, n_columns: int) -> RowSource:
        """Return the same view of rows in blocks that suit so many features."""
        return replace(self, source=self.source.sized(n_columns))

    def total(self, term: Callable[[RowBlock], SumT]) -> SumT:
        """Return the sum of `term(block)` over all blocks, as they are shown."""
        shown = self.shown
        assert shown is not None
        return self.source.total(lambda block: term(shown(block)))

    def take(self, rows: NDArray[np.intp]) -> RowBlock:
        """Return a copy of a few rows."""
        return self.source.take(rows)

    def batches(self, size: int, rng: np.random.RandomState) -> Iterator[RowBlock]:
        """Yield all rows once, in random order, about so many at a time, in NumPy's arrays."""
        order = rng.permutation(self.n_rows)
        for start in range(0, self.n_rows, size):
            yield self.take(np.sort(order[start : start + size]))


@dataclass(frozen=True)
class StandardizedSource(View):
    """A source seen through a scaling, block by block: nothing is copied."""

    scaling: Scaling

    @property
    def shown(self) -> Shown:
        """See `View.shown`."""
        return self.scaling.block

    def take(self, rows: NDArray[np.intp]) -> RowBlock:
        """Return a copy of a few rows."""
        return self.scaling.block(self.source.take(rows))

    def batches(self, size: int, rng: np.random.RandomState) -> Iterator[RowBlock]:
        """Yield all rows once, about so many at a time, in NumPy's arrays."""
        return map(self.scaling.block, self.source.batches(size, rng))


@dataclass(frozen=True)
class TrainingRows(View):
    """A source without its held-out rows: about one in `stride`, picked by a fixed hash.

    `n_rows` counts the held-out ones too.
    """

    stride: int

    @property
    def shown(self) -> Shown:
        """See `View.shown`."""
        return partial(_training, stride=self.stride)

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


def _training(block: RowBlock, stride: int) -> RowBlock:
    """Return a block without its held-out rows."""
    xp, start = namespace(block.X), block.start
    rows = xp.arange(start, start + block.y.shape[0], dtype=xp.int64, device=block.X.device)
    return block.picked(xp.nonzero(~_held_out(rows, stride))[0])


@dataclass(frozen=True)
class ManyTrainingRows(View):
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
