"""Strictly increasing maps of targets to values that are closer to normal, and back.

If a GP predicts `t = m(y)` to be `N(μ, s²)`, the target has the density `N(m(y) | μ, s²) m′(y)`.
Each map takes all real numbers, or all positive ones, onto all real numbers, so this density
integrates to one. Functions of values take arrays of any library.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from scipy.optimize import minimize_scalar

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, namespace, positive

_DIGITS = 3
# The relative difference of targets that may be rounding.
_ROUNDING = 1e-9
# The largest error of an inverse, relative to the range of the targets.
_INVERSE_ERROR = 1e-6
# The same beyond the targets, the error of a logarithm of slopes, and the step of differences.
_RANGE_ERROR, _SLOPE_ERROR, _STEP = 1e-3, 1e-2, 1e-5
_LARGEST = 1e150
# The largest number of targets from which a power is learned.
_MOST_ROWS = 10_000
_NODES = np.arange(-8.0, 8.25, 0.25)
# The trapezoidal rule for means under the standard normal distribution: exact to rounding for
# smooth maps, and better than Gauss and Hermite's for those with corners.
_WEIGHTS = np.exp(-0.5 * _NODES**2) / np.sum(np.exp(-0.5 * _NODES**2))


class TargetMap(Protocol):
    """A strictly increasing map `m`, entry by entry."""

    def values(self, y: Array) -> Array:
        """Return `m(y)`."""

    def targets(self, t: AnyArray) -> AnyArray:
        """Return `m⁻¹(t)`."""

    def log_slope(self, y: AnyArray) -> AnyArray:
        """Return `ln m′(y)`."""


@dataclass(frozen=True)
class LogMap:
    """`m(y) = ln y`, for positive targets."""

    @classmethod
    def of(cls, y: Array, weight: Array) -> Self:
        """Check that targets are positive."""
        if not np.all(y > 0.0):
            raise ValueError(
                f'transform="log" needs positive targets, and the smallest is {y.min():.6g}. Use '
                '"yeo-johnson", or add a constant to the targets.'
            )
        return cls()

    def values(self, y: AnyArray) -> AnyArray:
        """Return `ln y`, and −∞ where `y` is not positive."""
        xp = namespace(y)
        return xp.where(y > 0.0, xp.log(xp.where(y > 0.0, y, 1.0)), -np.inf)

    def targets(self, t: AnyArray) -> AnyArray:
        """Return `exp(t)`."""
        return namespace(t).exp(t)

    def log_slope(self, y: AnyArray) -> AnyArray:
        """Return `−ln y`, and −∞ where `y` is not positive, for there is no density."""
        return namespace(y).where(y > 0.0, -self.values(y), -np.inf)


@dataclass(frozen=True)
class YeoJohnsonMap:
    """Yeo and Johnson's power transform of `u = y/unit`.

    `((1 + u)^λ − 1)/λ` for `u ≥ 0`, and `−((1 − u)^(2−λ) − 1)/(2 − λ)` for `u < 0`. λ, of largest
    likelihood, lies between 0 and 2, for beyond that not every value has a target. The unit is the
    median size of the targets.
    """

    power: float
    unit: float = 1.0

    def __str__(self) -> str:
        return f"power {self.power:.3g} of Yeo and Johnson, in units of {self.unit:.4g}"

    @classmethod
    def of(cls, y: Array, weight: Array) -> Self:
        """Learn λ, to three digits: rounding of sums must not decide what is learned from it."""
        size = np.abs(y)
        unit = float(np.quantile(size, 0.5, weights=weight, method="inverted_cdf"))
        own = cls(1.0, unit or float(size.max()) or 1.0)
        if np.ptp(y) == 0.0:
            return own

        def loss(power: float) -> float:
            return -measure_normality(cls(power, own.unit), y, weight)

        found = minimize_scalar(loss, bounds=(0.0, 2.0), method="bounded").x
        return cls(round(float(found), _DIGITS), own.unit)

    def values(self, y: AnyArray) -> AnyArray:
        """Return `m(y)`."""
        u = y / self.unit
        below = _raise_to_power(positive(-u), 2.0 - self.power)
        return namespace(u).where(u >= 0.0, _raise_to_power(positive(u), self.power), -below)

    def targets(self, t: AnyArray) -> AnyArray:
        """Return `m⁻¹(t)`."""
        below = _take_root(positive(-t), 2.0 - self.power)
        u = namespace(t).where(t >= 0.0, _take_root(positive(t), self.power), -below)
        return self.unit * u

    def log_slope(self, y: AnyArray) -> AnyArray:
        """Return `(λ − 1) sign(u) ln(1 + |u|) − ln unit`."""
        xp, u = namespace(y), y / self.unit
        return (self.power - 1.0) * xp.sign(u) * xp.log1p(xp.abs(u)) - np.log(self.unit)


def _raise_to_power(x: AnyArray, power: float) -> AnyArray:
    """Return `((1 + x)^power − 1)/power`, and its limit `ln(1 + x)` for zero."""
    xp = namespace(x)
    return xp.expm1(power * xp.log1p(x)) / power if power else xp.log1p(x)


def _take_root(t: AnyArray, power: float) -> AnyArray:
    """Return the inverse of `_raise_to_power`."""
    xp = namespace(t)
    return xp.expm1(xp.log1p(power * t) / power if power else t)


@dataclass(frozen=True)
class StraightTail:
    """A map that is continued as a straight line beyond the targets, where its inverse is steep.

    The inverse of a map of skewed targets grows faster and faster beyond the targets, and means of
    uncertain predictions would be as large as it pleases. The line begins one standard deviation of
    the values beyond the last target, so that a new largest target is not called a surprise.
    """

    own: YeoJohnsonMap
    end: float  # Where the line begins.
    upper: bool

    @classmethod
    def of(cls, own: YeoJohnsonMap, y: Array) -> Self:
        """Continue a map of these targets beyond the end where its inverse is steeper."""
        values = own.values(y)
        spread = np.array([-1.0, 1.0]) * np.std(values)
        ends = own.targets(np.array([values.min(), values.max()]) + spread)
        upper = int(np.diff(own.log_slope(ends))[0] < 0.0)
        return cls(own, float(ends[upper]), bool(upper))

    def __str__(self) -> str:
        return str(self.own)

    def _cut(self, x: AnyArray, end: float) -> AnyArray:
        return namespace(x).where(x < end if self.upper else x > end, x, end)

    @property
    def _slope(self) -> float:
        return float(np.exp(self.own.log_slope(np.array(self.end))))

    def values(self, y: AnyArray) -> AnyArray:
        """Return `m(y)`."""
        inside = self._cut(y, self.end)
        return self.own.values(inside) + self._slope * (y - inside)

    def targets(self, t: AnyArray) -> AnyArray:
        """Return `m⁻¹(t)`."""
        inside = self._cut(t, float(self.own.values(np.array(self.end))))
        return self.own.targets(inside) + (t - inside) / self._slope

    def log_slope(self, y: AnyArray) -> AnyArray:
        """Return `ln m′(y)`."""
        return self.own.log_slope(self._cut(y, self.end))


def learn_power_map(y: Array, weight: Array) -> StraightTail:
    """Return the power transform of largest likelihood, with a straight tail."""
    some = np.random.RandomState(0).permutation(y.size)[:_MOST_ROWS]
    return StraightTail.of(YeoJohnsonMap.of(y[some], weight[some]), y)


# How maps with names are made from targets and their weights.
MAPS: dict[str, Callable[[Array, Array], TargetMap]] = {
    "log": LogMap.of,
    "yeo-johnson": learn_power_map,
}


def measure_normality(own: TargetMap, y: Array, weight: Array) -> float:
    """Return the log likelihood of targets whose values are independent and normal."""
    t = own.values(y)
    about = t - np.average(t, weights=weight)
    size = float(np.abs(about).max())  # Its square may be no number.
    if size == 0.0:
        return 0.0
    deviation = 0.5 * np.log(np.average((about / size) ** 2, weights=weight)) + np.log(size)
    return float(weight @ own.log_slope(y) - weight.sum() * deviation)


def compute_moments(own: TargetMap, mean: AnyArray, std: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Return mean and standard deviation of targets whose values are normal."""
    middle = _bound(own, mean)
    first = second = 0.0 * mean
    for node, weight in zip(_NODES.tolist(), _WEIGHTS.tolist(), strict=True):
        about = _bound(own, mean + node * std) - middle
        first, second = first + weight * about, second + weight * about * about
    return middle + first, namespace(mean).sqrt(positive(second - first * first))


def _bound(own: TargetMap, t: AnyArray) -> AnyArray:
    """Return targets of which the squares are numbers, however far a map stretches."""
    return namespace(t).clip(own.targets(t), -_LARGEST, _LARGEST)


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
            f"values(y) of transform={own!r} is not finite at y={y[~np.isfinite(values)][0]:.6g}."
            " Use a map of all targets, or drop those that it does not take."
        )
    differ = ~np.isclose(y[1:], y[:-1], rtol=_ROUNDING, atol=1e-3 * _ROUNDING * np.abs(y).max())
    falls = np.flatnonzero(differ & (np.diff(values) <= 0.0))
    if falls.size:
        low, high = y[falls[0]], y[falls[0] + 1]
        raise ValueError(
            f"transform={own!r} is not strictly increasing between the targets {low:.6g} and "
            f"{high:.6g}. Use a map that is; change the sign of one that decreases."
        )
    wrong = ~np.isclose(again, y, rtol=_ROUNDING, atol=_INVERSE_ERROR * (np.ptp(y) or 1.0))
    if np.any(wrong):
        raise ValueError(
            f"targets(values(y)) of transform={own!r} is {again[wrong][0]:.6g} at "
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
            f"values(targets(t)) of transform={own!r} is not t beyond the values of the targets, "
            "which intervals reach. Use a map onto all real numbers, such as 'yeo-johnson', or "
            "'log' for positive targets."
        )
    errors = errors[np.isfinite(errors)]
    if errors.size and np.median(errors) > _SLOPE_ERROR:
        raise ValueError(
            f"log_slope(y) of transform={own!r} is not the logarithm of the slope of values(y): "
            f"it is off by {np.median(errors):.3g}. Let it be the logarithm of the derivative."
        )
