"""Strictly increasing maps of targets to values that are closer to normal, and back.

Each takes all real numbers, or all positive ones, onto all real numbers, so that a normal
distribution of the values is a distribution of the targets that adds up to one, with the density
`N(m(y)) · m′(y)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from scipy import special
from scipy.optimize import minimize_scalar

from eigengp._typing import Array

_DIGITS = 3
_ROUNDING = 1e-9
"""The relative difference of targets that may be rounding."""
_INVERSE_ERROR = 1e-6
"""The largest error of an inverse, relative to the range of the targets."""
_RANGE_ERROR, _SLOPE_ERROR, _STEP = 1e-3, 1e-2, 1e-5
"""The same beyond the targets, the error of a logarithm of slopes, and the step of differences."""


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
    def of(cls, y: Array, weight: Array | None = None) -> Self:
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
        return np.exp(t)

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
    def of(cls, y: Array, weight: Array | None = None) -> Self:
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
        return (self.power - 1.0) * np.sign(y) * np.log1p(np.abs(y))


MAPS: dict[str, type[LogMap] | type[YeoJohnsonMap]] = {"yeo-johnson": YeoJohnsonMap, "log": LogMap}
"""The maps that have names."""


def check_map(own: TargetMap, y: Array) -> None:
    """Check at some targets that a map is finite and strictly increasing, and has its inverse.

    Targets that differ by rounding alone may have the same value.
    """
    y = np.unique(y)
    with np.errstate(all="ignore"):  # What is no number is reported below.
        values = own.values(y)
        again = own.targets(values)
    if not np.all(np.isfinite(values)):
        raise ValueError(
            f"values(y) of transformer={own!r} is not finite at y={y[~np.isfinite(values)][0]:.6g}."
            " Use a map of all targets, or drop those that it does not take."
        )
    differ = ~np.isclose(y[1:], y[:-1], rtol=_ROUNDING, atol=1e-3 * _ROUNDING * np.abs(y).max())
    falls = np.flatnonzero(differ & (np.diff(values) <= 0.0))
    if falls.size:
        low, high = y[falls[0]], y[falls[0] + 1]
        raise ValueError(
            f"transformer={own!r} is not strictly increasing between the targets {low:.6g} and "
            f"{high:.6g}. Use a map that is; change the sign of one that decreases."
        )
    wrong = ~np.isclose(again, y, rtol=_ROUNDING, atol=_INVERSE_ERROR * (np.ptp(y) or 1.0))
    if np.any(wrong):
        raise ValueError(
            f"targets(values(y)) of transformer={own!r} is {again[wrong][0]:.6g} at "
            f"y={y[wrong][0]:.6g}. Let targets(t) be the inverse of values(y)."
        )
    if np.ptp(y) > 0.0:
        _check_range_and_slope(own, y, values)


def _check_range_and_slope(own: TargetMap, y: Array, values: Array) -> None:
    """Check that a map has its inverse beyond the values of the targets, and has its slope."""
    reach, h = np.ptp(values), _STEP * np.ptp(y)
    with np.errstate(all="ignore"):
        wide = np.linspace(values[0] - reach, values[-1] + reach, 65)
        again = own.values(own.targets(wide))
        slope = np.log((own.values(y + h) - own.values(y - h)) / (2.0 * h))
        errors = np.abs(slope - own.log_slope(y))
    if not np.allclose(again, wide, atol=_RANGE_ERROR * reach):
        raise ValueError(
            f"values(targets(t)) of transformer={own!r} is not t beyond the values of the targets, "
            "which intervals reach. Use a map onto all real numbers, such as 'yeo-johnson', or "
            "'log' for positive targets."
        )
    errors = errors[np.isfinite(errors)]
    if errors.size and np.median(errors) > _SLOPE_ERROR:
        raise ValueError(
            f"log_slope(y) of transformer={own!r} is not the logarithm of the slope of values(y): "
            f"it is off by {np.median(errors):.3g}. Let it be the logarithm of the derivative."
        )
