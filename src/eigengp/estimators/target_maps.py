"""Strictly increasing maps of targets to values that are closer to normal, and back.

Each takes all real numbers, or all positive ones, onto all real numbers, so that a normal
distribution of the values is a distribution of the targets that adds up to one, with the density
`N(m(y)) · m′(y)`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from scipy import special
from scipy.optimize import minimize_scalar
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from eigengp._typing import Array

_KNOTS, _ROWS_PER_KNOT = 100, 10
_DIGITS = 3
_NEAR, _FAR = 7.0, 15.0
_STEP = float(np.finfo(np.float64).eps) ** (1.0 / 3.0)


class TargetMap(Protocol):
    """A strictly increasing map `m`, entry by entry."""

    def values(self, y: Array) -> Array:
        """Return `m(y)`."""

    def targets(self, t: Array) -> Array:
        """Return `m⁻¹(t)`."""

    def log_slope(self, y: Array) -> Array:
        """Return `ln m′(y)`."""


@dataclass(frozen=True)
class LogMap:
    """`m(y) = ln y`, for positive targets."""

    @classmethod
    def of(cls, y: Array, weight: Array | None) -> Self:
        """Check that targets are positive."""
        if not np.all(y > 0.0):
            raise ValueError(
                f'transformer="log" needs positive targets, and the smallest is {y.min():.6g}. Use '
                '"yeo-johnson", or add a constant to the targets.'
            )
        return cls()

    def values(self, y: Array) -> Array:
        """Return `ln y`, and −∞ where `y` is not positive."""
        positive = y > 0.0
        return np.where(positive, np.log(np.where(positive, y, 1.0)), -np.inf)

    def targets(self, t: Array) -> Array:
        """Return `exp(t)`."""
        targets: Array = np.exp(t)
        return targets

    def log_slope(self, y: Array) -> Array:
        """Return `−ln y`, and −∞ where `y` is not positive, for there is no density."""
        logarithms = self.values(y)
        return np.where(np.isneginf(logarithms), -np.inf, -logarithms)


@dataclass(frozen=True)
class YeoJohnsonMap:
    """`((1 + y)^λ − 1)/λ` for `y ≥ 0`, and `−((1 − y)^(2−λ) − 1)/(2 − λ)` for `y < 0`.

    λ, of largest likelihood, lies between 0 and 2, for beyond that not every value has a target.
    """

    power: float

    @classmethod
    def of(cls, y: Array, weight: Array | None) -> Self:
        """Learn λ, to three digits: rounding of sums must not decide what is learned from it."""
        logarithm = np.average(np.sign(y) * np.log1p(np.abs(y)), weights=weight)

        def loss(power: float) -> float:
            t = cls(power).values(y)
            about = t - np.average(t, weights=weight)
            size = float(np.abs(about).max()) or 1.0  # Its square may be no number.
            variance = np.average((about / size) ** 2, weights=weight)
            return float(0.5 * np.log(variance) + np.log(size) - (power - 1.0) * logarithm)

        if np.ptp(y) == 0.0:
            return cls(1.0)
        return cls(round(float(minimize_scalar(loss, bounds=(0.0, 2.0)).x), _DIGITS))

    def values(self, y: Array) -> Array:
        """Return `m(y)`."""
        above = special.boxcox1p(np.maximum(y, 0.0), self.power)
        return np.where(y >= 0.0, above, -special.boxcox1p(np.maximum(-y, 0.0), 2.0 - self.power))

    def targets(self, t: Array) -> Array:
        """Return `m⁻¹(t)`."""
        above = special.inv_boxcox1p(np.maximum(t, 0.0), self.power)
        below = special.inv_boxcox1p(np.maximum(-t, 0.0), 2.0 - self.power)
        return np.where(t >= 0.0, above, -below)

    def log_slope(self, y: Array) -> Array:
        """Return `(λ − 1) sign(y) ln(1 + |y|)`."""
        slope: Array = (self.power - 1.0) * np.sign(y) * np.log1p(np.abs(y))
        return slope


@dataclass(frozen=True)
class QuantileMap:
    """Quantiles of the targets to those of the normal distribution, with lines between them.

    The first and the last line go on for ever. There is a knot for every ten targets, and no
    more than 100.
    """

    knots: Array
    """Targets, increasing, shape (K,)."""
    scores: Array
    """Their values, increasing, shape (K,)."""

    @classmethod
    def of(cls, y: Array, weight: Array | None) -> Self:
        """Learn the quantiles; where several are equal, their levels are averaged."""
        total = float(y.size if weight is None else np.sum(weight))
        count = int(np.clip(total / _ROWS_PER_KNOT, 2, _KNOTS))
        levels = (np.arange(count) + 0.5) / count
        found = np.quantile(y, levels, weights=weight, method="inverted_cdf")
        knots, which = np.unique(found, return_inverse=True)
        levels = np.bincount(which, weights=levels) / np.bincount(which)
        if knots.size == 1:
            unit = max(1.0, 1e-6 * abs(float(knots[0])))
            return cls(knots + np.array([-unit, unit]), np.array([-1.0, 1.0]))
        return cls(knots, special.ndtri(levels))

    def values(self, y: Array) -> Array:
        """Return `m(y)`."""
        return _along(y, self.knots, self.scores)

    def targets(self, t: Array) -> Array:
        """Return `m⁻¹(t)`."""
        return _along(t, self.scores, self.knots)

    def log_slope(self, y: Array) -> Array:
        """Return the logarithm of the slope of the line."""
        slopes = np.diff(self.scores) / np.diff(self.knots)
        logarithms: Array = np.log(slopes[_line(y, self.knots)])
        return logarithms


def _line(x: Array, knots: Array) -> Any:
    """Return which line between knots holds each `x`; the outer ones go on for ever."""
    return np.clip(np.searchsorted(knots, x, side="right") - 1, 0, knots.size - 2)


def _along(x: Array, knots: Array, heights: Array) -> Array:
    """Return the height of the lines through knots at each `x`."""
    line = _line(x, knots)
    slopes = np.diff(heights) / np.diff(knots)
    found: Array = heights[line] + slopes[line] * (x - knots[line])
    return found


@dataclass(frozen=True)
class TransformerMap:
    """A fitted transformer of scikit-learn, of one column."""

    transformer: Any
    unit: float
    """The spread of the targets, beside which a step is small."""

    @classmethod
    def learned(cls, transformer: Any, y: Array, weight: Array | None) -> TransformerMap:
        """Fit a clone of a transformer, and check that it increases and can be taken back."""
        own = clone(transformer)
        weights = {"sample_weight": weight} if has_fit_parameter(own, "sample_weight") else {}
        distinct = np.unique(y)
        found = cls(own.fit(y[:, None], **weights), float(np.std(distinct)) or 1.0)
        values = found.values(distinct)
        if not (np.all(np.isfinite(values)) and np.all(np.diff(values) > 0.0)):
            raise ValueError(
                f"transformer={transformer!r} is not strictly increasing, so it cannot be "
                "inverted. Use one that is."
            )
        if not np.allclose(found.targets(values), distinct, atol=1e-6 * np.ptp(distinct)):
            raise ValueError(
                f"inverse_transform of transformer={transformer!r} does not return the original "
                "targets."
            )
        if not found._reaches(values):
            raise ValueError(
                f"transformer={transformer!r} does not map onto all real numbers, so a normal "
                'distribution cannot be transformed back. Use "yeo-johnson" or "quantile", which '
                "do."
            )
        return found

    def _reaches(self, values: Array) -> bool:
        """Say whether what is far beyond all values has targets, and what is near, others."""
        middle, deviation = float(np.mean(values)), float(np.std(values)) or 1.0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            far = self.targets(middle + deviation * np.array([-_FAR, _FAR]))
            near = self.targets(middle + deviation * np.linspace(-_NEAR, _NEAR, 29))
        return bool(np.all(np.isfinite(far)) and np.all(np.diff(near) > 0.0))

    def values(self, y: Array) -> Array:
        """Return `m(y)`."""
        return self._column(self.transformer.transform, y)

    def targets(self, t: Array) -> Array:
        """Return `m⁻¹(t)`."""
        return self._column(self.transformer.inverse_transform, t)

    def log_slope(self, y: Array) -> Array:
        """Return the logarithm of the slope, by central differences."""
        low, high = y - _STEP * self.unit, y + _STEP * self.unit
        with np.errstate(divide="ignore"):  # Where it is flat there is no density.
            slope: Array = np.log((self.values(high) - self.values(low)) / (high - low))
        return slope

    @staticmethod
    def _column(function: Any, x: Array) -> Array:
        column = np.asarray(function(np.reshape(x, (-1, 1))), dtype=np.float64)
        return column.reshape(np.shape(x))


MAPS: dict[str, type[LogMap] | type[YeoJohnsonMap] | type[QuantileMap]] = {
    "yeo-johnson": YeoJohnsonMap,
    "log": LogMap,
    "quantile": QuantileMap,
}
"""The maps that have names."""
