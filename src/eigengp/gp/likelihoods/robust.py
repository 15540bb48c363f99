"""Likelihoods about a location: Student's t for outliers, and quantiles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import gammaln
from scipy.stats import t as student

from eigengp._typing import Array
from eigengp.gp.likelihoods.base import Expectation, NonGaussian

_MAD_PER_DEVIATION = 0.6745
_FIRST_NOISE = 0.1
_LEAST_SPREAD = 1e-3  # The smallest robust spread of standardised targets to start from.


class _Located(NonGaussian):
    """A density of targets about the latent function, with a scale in their units."""

    scale: float | None
    scales_targets: ClassVar[bool] = True

    def rescaled(self, unit: float) -> Self:
        """See `NonGaussian.rescaled`."""
        own: Any = self
        other: Self = own if self.scale is None else replace(own, scale=unit * self.scale)
        return other


def _find_spread(y: Array) -> tuple[float, float]:
    """Return the median of targets, and their spread by the median absolute deviation."""
    middle = float(np.median(y))
    return middle, max(float(np.median(np.abs(y - middle))) / _MAD_PER_DEVIATION, _LEAST_SPREAD)


@dataclass(frozen=True)
class StudentT(_Located):
    """Noise with heavy tails, `y = f + σ t_ν`: a few outliers do not move the function.

    `ln p = ln C − ½(ν+1) ln(1 + r²/(νσ²))` with `r = y − f` is convex in `r²`, so that
    `E r² = ξ² = (y − μ)² + v` in its place gives a bound, that of a Gamma mixture of Gaussians
    (Lange, Little and Taylor, 1989). A row has the weight `ω = (ν+1)/(νσ² + ξ²)` and its own target
    as its pseudo-target: rows far from the function weigh little.

    Where a tenth of the rows have twenty times the noise of the others, the likelihood is largest
    at `ν ≈ 1.2`, and the variance of an estimated location is 1.36 times that without outliers at
    `ν = 2`, 1.28 times at 3 and 1.25 times at 4: small `ν` also distrust good rows. So learned
    values are at least 3.

    Parameters
    ----------
    scale : float or None
        The initial `σ`, in the units of the targets; None estimates it. It is learned.
    degrees_of_freedom : float
        The initial `ν`, above 2, which is learned; large values are Gaussian noise.

    Examples
    --------
    >>> from eigengp import EigenGPRegressor, StudentT
    >>> model = EigenGPRegressor(likelihood=StudentT(degrees_of_freedom=3.0))
    """

    scale: float | None = None
    degrees_of_freedom: float = 4.0

    learned: ClassVar[dict[str, tuple[float, float]]] = {
        "scale": (1e-5, 1e2),
        "degrees_of_freedom": (3.0, 1e3),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2.0 < self.degrees_of_freedom < np.inf:
            raise ValueError(
                "degrees_of_freedom must be above 2, where the variance is finite, got "
                f"{self.degrees_of_freedom!r}."
            )

    def start(self, y: Array, weight: Array) -> tuple[StudentT, Array, float]:
        """See `NonGaussian.start`: median, and the noise from the median absolute deviation."""
        middle, spread = _find_spread(y)
        scale = float(np.sqrt(_FIRST_NOISE)) * spread if self.scale is None else self.scale
        return replace(self, scale=scale), np.array([middle]), spread**2

    def expect(self, y: Array, mean: Array, variance: Array) -> Expectation:
        """See `NonGaussian.expect`."""
        (sigma, nu), r = np.exp(self.theta), y - mean[:, 0]
        scaled = nu * sigma**2
        square = r * r + variance[:, 0]
        constant = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * nu) - 0.5 * np.log(np.pi * scaled)
        value = constant - 0.5 * (nu + 1.0) * np.log1p(square / scaled)
        weight = (nu + 1.0) / (scaled + square)
        return Expectation(value, (weight * r)[:, None], -0.5 * weight[:, None])

    def distribution(self, f: Array) -> Any:
        """See `NonGaussian.distribution`."""
        sigma, nu = np.exp(self.theta)
        return student(nu, f, sigma)


@dataclass(frozen=True)
class Quantile(_Located):
    """The τ-quantile of the targets as a smooth function of the inputs.

    The check loss is the negative log density of an asymmetric Laplace distribution,
    `ln p = ln(τ(1−τ)/s) − (½|r| + (τ − ½) r)/s` with `r = y − f`. `−|r|` is convex in `r²`, so that
    `ξ² = E r² = (y − μ)² + v` in its place gives a bound. A row has the weight `ω = 1/(2sξ)`, and
    `β = ω y + (τ − ½)/s`. The distribution is a means to the quantile, not a model of the targets.

    Parameters
    ----------
    level : float
        `τ`, between 0 and 1; 0.5 is the median.
    scale : float or None
        The initial `s`, in the units of the targets; None estimates it. It is learned.

    Examples
    --------
    >>> from eigengp import EigenGPRegressor, Quantile
    >>> model = EigenGPRegressor(likelihood=Quantile(0.9))
    """

    level: float = 0.5
    scale: float | None = None

    learned: ClassVar[dict[str, tuple[float, float]]] = {"scale": (1e-5, 1e2)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.level < 1.0:
            raise ValueError(f"level must be between 0 and 1, got {self.level!r}.")

    def start(self, y: Array, weight: Array) -> tuple[Quantile, Array, float]:
        """See `NonGaussian.start`."""
        spread = _find_spread(y)[1]
        scale = _FIRST_NOISE * spread if self.scale is None else self.scale
        return replace(self, scale=scale), np.array([np.quantile(y, self.level)]), spread**2

    def expect(self, y: Array, mean: Array, variance: Array) -> Expectation:
        """See `NonGaussian.expect`."""
        tau, s, r = self.level, float(np.exp(self.theta[0])), y - mean[:, 0]
        size = np.sqrt(r * r + variance[:, 0])
        value = np.log(tau * (1.0 - tau) / s) - (0.5 * size + (tau - 0.5) * r) / s
        weight = 0.5 / (s * np.maximum(size, 1e-10))
        by_mean = weight * r + (tau - 0.5) / s
        return Expectation(value, by_mean[:, None], -0.5 * weight[:, None])

    def predict(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return the quantile and the variance of its posterior, each of shape (n,)."""
        return mean[:, 0], variance[:, 0]

    def distribution(self, f: Array) -> Any:
        """Raise: one quantile is not a distribution."""
        raise ValueError(
            f"likelihood=Quantile({self.level:g}) models one quantile, which predict returns, and "
            "not the distribution of the targets. For an interval fit two quantiles, such as "
            "Quantile(0.05) and Quantile(0.95), or use another likelihood."
        )
