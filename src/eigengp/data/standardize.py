"""Standardising rows: their summary statistics, the scaling, and a standardised source.

`standardize="robust"` keeps the middle of a column and compresses its tails. With `z` in
robust deviations from the centre, a knee `c`, and the excess `e = z − min(max(z, −c), c)`:

    g(z)  = z − e + sign(e) ln(1 + |e|)
    g′(z) = 1/(1 + |e|)
    g⁻¹(u) = u − e + sign(e) (exp|e| − 1), where e is that of u

It increases strictly, has a continuous derivative, is the identity to the last bit for `|z| ≤ c`,
and maps an outlier at a million deviations to about 17. It works for arrays of any library.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eigengp._typing import Array, Standardize
from eigengp.backend.namespace import (
    AnyArray,
    Placed,
    beside,
    cast,
    namespace,
    on_host,
    positive,
    put_inputs,
    take_inputs,
)
from eigengp.data.array_source import ArraySource
from eigengp.data.holdout import COPIED_ROWS, BlockMap, View, sample_rows
from eigengp.gp.blocks import RowBlock, RowSource
from eigengp.gp.mean import Mean
from eigengp.kernels.base import KernelT

_BITS = 40
# Standardised rows in memory may use this fraction, 1/4, of the memory limit for features.
_SHARE = 4
_LARGEST = 1e140  # Values up to this size, and as small as its inverse, have sums of squares.
# Where inputs are moved to that are farther away, in scales: squares stay finite in float32.
_FARTHEST = 1e15
_QUANTILE_ROWS = 10_000  # The number of rows from which quantiles of larger data are estimated.
# The interquartile range of a normal distribution, in standard deviations.
_IQR_PER_DEVIATION = 1.349
# Where tails begin, in robust deviations: 0.3% of the values of a normal column lie beyond.
KNEE = 3.0


class Extent(NamedTuple):
    """The smallest box around inputs."""

    low: Array
    high: Array


@dataclass(frozen=True)
class Summary:
    """Total weight, means, sums of squares and ranges of `[X, y]`; two summaries can be added.

    Sums of squares are about the mean of each block and are combined by the difference of the means
    (Chan, Golub and LeVeque), so that a large common offset costs no precision.
    """

    weight: float  # `Σ s_n`.
    mean: Array  # The weighted means, shape (D + 1,).
    squares: Array  # `Σ s_n (v_n − mean)²`, shape (D + 1,).
    low: Array  # The smallest values, shape (D + 1,).
    high: Array  # The largest values, shape (D + 1,).

    @classmethod
    def of(cls, block: RowBlock) -> Summary:
        """Measure a block, wherever its arrays are."""
        xp = namespace(block.X)
        X, y = block.X, block.y
        values = xp.concat([X, y[:, None]], axis=1)  # Of the finer of their types.
        weight = block.sample_weight
        count = float(values.shape[0])
        if weight is not None:
            weight = cast(weight, "float64")[:, None]
            count = float(xp.sum(weight))
        least = max(count, np.finfo(float).tiny)
        with np.errstate(over="ignore", invalid="ignore"):  # `check_range` refuses such values.
            mean = _sum_weighted(values, weight) / least
            about = values - xp.astype(mean, values.dtype, copy=False)
            shift = _sum_weighted(about, weight) / least
            squares = _sum_weighted(about * about, weight) - count * shift * shift
            mean = mean + shift
        ends = xp.min(values, axis=0), xp.max(values, axis=0)
        found = mean, squares, *ends
        mean, squares, low, high = found if xp is np else map(on_host, found)
        return cls(count, mean, np.maximum(squares, 0.0), low, high)

    def with_inputs(self, X: Array) -> Summary:
        """Return the summary with the inputs of further rows, which have no targets."""
        both = self + Summary.of(RowBlock(X, np.full(X.shape[0], self.mean[-1])))
        spread = both.squares * (self.weight / both.weight)
        spread[-1] = self.squares[-1]
        return replace(both, weight=self.weight, squares=spread)

    def __add__(self, other: Summary) -> Summary:
        weight = self.weight + other.weight
        share = other.weight / max(weight, np.finfo(float).tiny)
        with np.errstate(over="ignore", invalid="ignore"):
            apart = other.mean - self.mean
            mean = self.mean + share * apart
            squares = self.squares + other.squares + self.weight * share * apart**2
        ends = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return Summary(weight, mean, squares, *ends)

    def check_range(self) -> None:
        """Raise if a column is so large, or varies so little, that squares leave float64."""
        size = np.maximum(-self.low, self.high)
        with np.errstate(over="ignore"):
            width = self.high - self.low
        large = size > _LARGEST
        small = (width < 1.0 / _LARGEST) & (width > 8.0 * np.finfo(np.float64).eps * size)
        for column in np.flatnonzero(large | small)[:1]:
            name = f"Input {column}" if column < size.size - 1 else "The target"
            found = f"has values of size {size[column]:.3g}"
            if not large[column]:
                found = f"varies by {width[column]:.3g}"
            raise ValueError(
                f"{name} {found}, but squares of values must be numbers: at most {_LARGEST:g} in "
                f"size, and differences of at least {1.0 / _LARGEST:g}. Change its unit."
            )


def _sum_weighted(values: AnyArray, weight: AnyArray | None) -> AnyArray:
    """Return `Σ s_n v_n`, in float64, shape (D + 1,)."""
    xp = namespace(values)
    if weight is not None:
        values = cast(values, "float64") * weight
    return xp.sum(values, axis=0, dtype=xp.float64)


def compress_tails(z: AnyArray, knee: float) -> AnyArray:
    """Return `g(z)`, entry by entry."""
    xp = namespace(z)
    middle = xp.clip(z, -knee, knee)
    excess = z - middle
    return middle + xp.log1p(positive(excess)) - xp.log1p(positive(-excess))


def compute_slope(z: AnyArray, knee: float) -> AnyArray:
    """Return `g′(z)`, entry by entry."""
    xp = namespace(z)
    return 1.0 / (1.0 + xp.abs(z - xp.clip(z, -knee, knee)))


def stretch_tails(u: Array, knee: float) -> Array:
    """Return `g⁻¹(u)`, entry by entry."""
    middle = np.clip(u, -knee, knee)
    excess = u - middle
    return middle + np.sign(excess) * np.expm1(np.abs(excess))


@dataclass(frozen=True)
class Scaling:
    """Centres and scales that bring inputs and targets to order one.

    Standardised inputs are `g((x − centre)/scale) W`, where `g` compresses tails (see
    `eigengp.data.standardize`); without a knee it is the identity. `W` is a linear map.
    """

    input_centre: Array
    input_scale: Array
    target_centre: Any  # A number, or one for each of several outputs.
    target_scale: Any
    # The standard deviation of each input, zero if it is constant; the scale if `standardize` is
    # True. With a robust scaling it is that of the standardised inputs, times the scale.
    input_spread: Array
    knee: float = math.inf  # Where the compressed tails begin, in units of `input_scale`.
    # The mean function added to `target_centre`, in the units of the data.
    mean: Mean | None = None
    # The inputs that are learned from, in this order; None is all of them, as they are given.
    columns: tuple[int, ...] | None = None
    # `W`, shape (D, D): standardised inputs are multiplied by it; None is the identity.
    input_map: Array | None = None

    @classmethod
    def measure(
        cls,
        source: RowSource,
        summary: Summary,
        standardize: Standardize,
        centred: bool = True,
        groups: Sequence[int] | None = None,
    ) -> Scaling:
        """Return the scaling for the rows of a source, given their summary.

        Inputs that share their group with others, as the indicators of a category do, keep their
        scale, and with it the ratios of their distances.

        A robust scaling uses quantiles of 10,000 rows, the same rows for sources of equal length.
        """
        scaling = cls.of(summary, bool(standardize), centred)
        if standardize == "robust":
            few = sample_rows(source, _QUANTILE_ROWS, np.random.RandomState(0))
            scaling = scaling.make_robust(few)
        if groups is None or not standardize:
            return scaling
        shared = np.bincount(groups)[list(groups)] > 1
        return replace(scaling, input_scale=np.where(shared, 1.0, scaling.input_scale))

    @classmethod
    def of(cls, summary: Summary, standardize: bool, centred: bool = True) -> Scaling:
        """Return the scaling for a summary of rows.

        With `standardize` each input has its own scale. Without it all inputs share one scale,
        which keeps their geometry and conditions the arithmetic. `centred` subtracts the mean of
        the targets.
        """
        summary.check_range()
        centre = summary.mean
        scale = np.sqrt(summary.squares / summary.weight)
        spread = np.where(_is_constant(scale, centre), 0.0, _round_off(scale, scale))[:-1]
        if not standardize:
            scale[:-1] = np.sqrt(np.mean(scale[:-1][spread > 0.0] ** 2)) if spread.any() else 0.0
        usable = make_usable(scale, centre)
        scale = _round_off(usable, usable)
        centre = _round_off(centre, scale)
        mean = float(centre[-1]) if centred else 0.0
        return cls(centre[:-1], scale[:-1], mean, float(scale[-1]), spread)

    def make_robust(self, sample: RowBlock) -> Scaling:
        """Return the scaling with medians and interquartile ranges, and with compressed tails.

        An input whose quartiles are equal keeps its standard deviation as its scale. Weights
        count as repetitions. The scaling of targets does not change.
        """
        X, weight = sample.X, sample.sample_weight
        if weight is not None and not weight.any():
            weight = None
        below, above = (
            np.quantile(each, [0.25, 0.5, 0.75], axis=0, weights=weight, method="inverted_cdf")
            for each in (X, -X)
        )
        low, middle, high = 0.5 * (below - above[::-1])  # The sign of an input does not matter.
        deviation = (high - low) / _IQR_PER_DEVIATION
        scale = np.where(_is_constant(deviation, middle), self.input_scale, deviation)
        own = replace(self, input_centre=middle, input_scale=scale, knee=KNEE)
        inputs = own.transform_inputs(X)
        about = inputs - np.average(inputs, axis=0, weights=weight)
        spread = scale * np.sqrt(np.average(about**2, axis=0, weights=weight))
        return replace(own, input_spread=np.where(self.input_spread > 0.0, spread, 0.0))

    @property
    def n_columns(self) -> int:
        """The number of inputs that are learned from."""
        return self.input_scale.size if self.columns is None else len(self.columns)

    @property
    def _own(self) -> Any:
        """The index of the inputs that are learned from."""
        return slice(None) if self.columns is None else list(self.columns)

    @cached_property
    def _placed(self) -> tuple[Placed, Placed]:
        """Centre and inverse scale of the inputs that are learned from, in their order."""
        own = self._own
        return Placed(self.input_centre[own]), Placed(1.0 / self.input_scale[own])

    def transform_inputs(self, X: AnyArray) -> AnyArray:
        """Return standardised inputs, in the library and precision of `X`."""
        inputs = self._deviations(X)
        if not math.isinf(self.knee):
            inputs = compress_tails(inputs, self.knee)
        return inputs if self.input_map is None else inputs @ self._map.beside(inputs)

    @cached_property
    def _map(self) -> Placed:
        """The linear map of the inputs."""
        assert self.input_map is not None
        return Placed(self.input_map)

    def _deviations(self, X: AnyArray) -> AnyArray:
        """Return the inputs that are learned from, about their centres and scaled."""
        placed = self._placed
        X = take_inputs(X, self.columns)
        centre, per_scale = (each.beside(X) for each in placed)
        with np.errstate(over="ignore"):
            deviations = X - centre
            deviations *= per_scale
        return namespace(X).clip(deviations, -_FARTHEST, _FARTHEST)

    def restore_inputs(self, standardised: Array) -> Array:
        """Return standardised inputs in the units of the data; undoes `transform_inputs`.

        Inputs that are not learned from are at their centre.
        """
        if self.input_map is not None:
            standardised = standardised @ np.linalg.inv(self.input_map)
        if not math.isinf(self.knee):
            standardised = stretch_tails(standardised, self.knee)
        shape = (*standardised.shape[:-1], self.input_centre.size)
        found = np.broadcast_to(self.input_centre, shape).copy()
        own = self._own
        found[..., own] = standardised * self.input_scale[own] + self.input_centre[own]
        return found

    def restore_gradient(self, X: AnyArray, gradient: AnyArray) -> AnyArray:
        """Return derivatives by standardised inputs, shape (n, D), in the units of the data.

        They are multiplied by `target_scale` and by the derivative of `transform_inputs`.
        """
        if self.input_map is not None:
            gradient = gradient @ self._map.beside(gradient).T
        if not math.isinf(self.knee):
            gradient = gradient * compute_slope(self._deviations(cast(X, "float64")), self.knee)
        gradient = put_inputs(gradient, self.columns, X.shape[1])
        return beside(self.target_scale / self.input_scale, X) * gradient

    def restore_kernel(self, kernel: KernelT, unit: float) -> KernelT:
        """Return a kernel of standardised inputs for those of the data, with `unit` variances.

        With a map it is that of the mapped inputs, see `unit_map`.
        """
        if self.input_map is not None:
            return kernel.rescaled(np.ones(self.n_columns), unit)
        own = self._own
        kernel = kernel.rescaled(self.input_scale[own], unit, self.input_centre[own])
        return kernel if self.columns is None else kernel.embed(self.columns, self.input_scale.size)

    @property
    def unit_map(self) -> Array | None:
        """The linear map of inputs in the units of the data; None is the identity."""
        if self.input_map is None:
            return None
        found = np.zeros((self.input_scale.size, self.n_columns))
        found[self._own] = self.input_map / self.input_scale[self._own, None]
        return found

    def restore_targets(self, X: AnyArray, standardised: AnyArray) -> AnyArray:
        """Return standardised values at inputs `X` in the units of the targets."""
        values = self.target_centre + self.target_scale * standardised
        if self.mean is None:
            return values
        mean = self.mean(X)
        return values + (mean if values.ndim == 1 else mean[:, None])

    def transform_block(self, block: RowBlock) -> RowBlock:
        """Return a standardised row block."""
        y = block.y if self.mean is None else block.y - self.mean(block.X)
        y = (y - self.target_centre) / self.target_scale
        return RowBlock(self.transform_inputs(block.X), y, block.sample_weight, block.start)


def _round_off(values: Array, scale: Array) -> Array:
    """Round values to the digits that do not depend on how rows are split into blocks.

    Rows are then standardised to the same bits for all block sizes, and learning, which magnifies
    every bit, takes the same path.
    """
    unit = np.exp2(np.floor(np.log2(np.where(scale > 0.0, scale, 1.0))) - _BITS)
    return np.round(values / unit) * unit


def make_usable(scale: Array, centre: Array) -> Array:
    """Replace the scale of constant columns by their magnitude or by one."""
    magnitude = np.abs(centre)
    unit = np.where(magnitude > 1.0 / _LARGEST, magnitude, 1.0)
    return np.where(_is_constant(scale, centre), unit, scale)


def _is_constant(scale: Array, centre: Array) -> NDArray[np.bool_]:
    """Return which columns are constant up to rounding."""
    return scale <= 8.0 * np.finfo(np.float64).eps * np.abs(centre)


def standardize_rows(rows: RowSource, scaling: Scaling, memory_limit: int) -> RowSource:
    """Standardise rows: few rows in arrays at once, others block by block in every pass.

    Passes over standardised rows are up to a fifth faster, but need memory for a copy of them; in
    NumPy's arrays it may take a quarter of the limit, which is in bytes.
    """
    if not isinstance(rows, ArraySource):
        return StandardizedSource(rows, scaling)
    X, y, weight, most = rows.X, rows.y, rows.sample_weight, COPIED_ROWS
    if host := isinstance(X, np.ndarray):
        most = memory_limit // (_SHARE * 8 * (X.shape[1] + (1 if weight is None else 2)))
    if rows.n_rows > most:
        return StandardizedSource(rows, scaling)
    if host:
        X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    block = scaling.transform_block(RowBlock(X, y, weight))
    return replace(rows, X=np.asfortranarray(block.X) if host else block.X, y=block.y)


@dataclass(frozen=True)
class StandardizedSource(View):
    """A source whose blocks are standardised in every pass, without a copy of the data."""

    scaling: Scaling

    @property
    def n_features(self) -> int:
        """The number of inputs that are learned from."""
        return self.scaling.n_columns

    @property
    def block_map(self) -> BlockMap:
        """See `View.block_map`."""
        return self.scaling.transform_block


def reweight(rows: RowSource, summary: Summary, weight: Array | None) -> tuple[RowSource, Summary]:
    """Return rows that count less by these factors, and their weight; None is one for each."""
    if weight is None:
        return rows, summary
    assert isinstance(rows, ArraySource)
    own, given = beside(weight, rows.y), rows.sample_weight
    own = own if given is None else own * given
    total = float(namespace(own).sum(own))
    return replace(rows, sample_weight=own), replace(summary, weight=total)
