"""Likelihoods of counts, with a rate that is positive: Poisson and negative binomial."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import gammaln
from scipy.stats import nbinom, poisson

from eigengp._typing import Array
from eigengp.gp.likelihoods.base import Expectation, NonGaussian
from eigengp.gp.likelihoods.classes import make_weight

_FIRST_VARIANCE = 1.0
_LARGEST_EXPONENT = 60.0  # Logarithms of rates are cut here, so that no rate is infinite.


class _Counts(NonGaussian):
    """Whole numbers, of which the first mean is that of all rows as if half a count were added."""

    def check_targets(self, y: Array) -> None:
        """See `NonGaussian.check_targets`."""
        wrong = y[(y < 0.0) | (y != np.floor(y))]
        if wrong.size:
            raise ValueError(
                f"likelihood={self!r} needs counts, the whole numbers 0, 1, 2, …, but y contains "
                f"{wrong[0]:g}. Use another likelihood, or an exposure instead of rates."
            )

    def start(self, y: Array, weight: Array) -> tuple[Self, Array, float]:
        """See `NonGaussian.start`."""
        return self, np.log([(weight @ y + 0.5) / weight.sum()]), _FIRST_VARIANCE


@dataclass(frozen=True)
class Poisson(_Counts):
    """Counts with the rate `e·exp(f)`, where `e` is the exposure of the row.

    `ln p = y f − e^f − ln y!`, for `f` with `ln e` added. The expectation is in closed form,
    `ℓ = y μ − r − ln y!` with `r = E e^f = exp(μ + v/2)`, and `∂ℓ/∂μ = y − r`, `∂ℓ/∂v = −r/2`: a
    row weighs as much as the count that is expected there.

    Parameters
    ----------
    exposure : int, str or None
        The input that holds the exposure of each row, by its number or name: time at risk, area
        or population. The rate is proportional to it, and the kernel does not use it, unless it is
        a `Kernel` object without `active_dims`. None is an exposure of one.

    Examples
    --------
    >>> from eigengp import EigenGPRegressor, Poisson
    >>> model = EigenGPRegressor(likelihood=Poisson(exposure="population"))
    """

    exposure: int | str | None = None

    def expect(self, y: Array, mean: Array, variance: Array) -> Expectation:
        """See `NonGaussian.expect`."""
        m = mean[:, 0]
        rate = np.exp(np.minimum(m + 0.5 * variance[:, 0], _LARGEST_EXPONENT))
        value = y * m - rate - gammaln(y + 1.0)
        return Expectation(value, (y - rate)[:, None], -0.5 * rate[:, None])

    def distribution(self, f: Array) -> Any:
        """See `NonGaussian.distribution`."""
        return poisson(np.exp(np.minimum(f, _LARGEST_EXPONENT)))


@dataclass(frozen=True)
class NegativeBinomial(_Counts):
    """Counts that vary more than Poisson's: mean `m = e·exp(f)` and variance `m + m²/r`.

    With `ψ = f + ln e − ln r`, `p = Γ(y+r)/(Γ(r) y!) · e^{yψ}/(1 + e^ψ)^{y+r}`, and hence
    `ln p = ln C + ½(y − r) ψ − (y + r) ln 2cosh(ψ/2)`. As for `Bernoulli`, the Pólya–Gamma bound
    replaces `ψ²` by its expectation `c²`: the weight is `ω = (y + r) tanh(c/2)/(2c)`, and
    `β = ½(y − r) + ω ln r` for `f`.

    Parameters
    ----------
    dispersion : float or None
        The initial `r`, which is learned; None estimates it from the variance of the counts.
    exposure : int, str or None
        The input that holds the exposure of each row; see `Poisson`.

    Examples
    --------
    >>> from eigengp import EigenGPRegressor, NegativeBinomial
    >>> model = EigenGPRegressor(likelihood=NegativeBinomial(dispersion=2.0))
    """

    dispersion: float | None = None
    exposure: int | str | None = None

    learned: ClassVar[dict[str, tuple[float, float]]] = {"dispersion": (1e-2, 1e5)}

    def start(self, y: Array, weight: Array) -> tuple[Self, Array, float]:
        """See `NonGaussian.start`: half of what exceeds Poisson's variance is the function's."""
        mean = float(np.average(y, weights=weight))
        more = float(np.average((y - mean) ** 2, weights=weight)) - mean
        found = 2.0 * mean**2 / more if more > 0.0 else 100.0
        own = self if self.dispersion else replace(self, dispersion=float(np.clip(found, 0.1, 1e3)))
        return super(NegativeBinomial, own).start(y, weight)

    def expect(self, y: Array, mean: Array, variance: Array) -> Expectation:
        """See `NonGaussian.expect`."""
        r = self.dispersion or 1.0
        psi = mean[:, 0] - np.log(r)
        c = np.sqrt(psi * psi + variance[:, 0])
        half, weight = 0.5 * (y - r), (y + r) * make_weight(c)
        log_c = gammaln(y + r) - gammaln(r) - gammaln(y + 1.0)
        value = log_c + half * psi - (y + r) * np.logaddexp(0.5 * c, -0.5 * c)
        return Expectation(value, (half - weight * psi)[:, None], -0.5 * weight[:, None])

    def distribution(self, f: Array) -> Any:
        """See `NonGaussian.distribution`."""
        r = self.dispersion or 1.0
        return nbinom(r, r / (r + np.exp(np.minimum(f, _LARGEST_EXPONENT))))
