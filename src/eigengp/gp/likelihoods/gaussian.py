"""Gaussian noise, whose variance is learned with the kernel, and what models ask of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from numbers import Real
from typing import ClassVar, Protocol, Self

import numpy as np

from eigengp._typing import Array

_LEAST_VARIANCE, _LARGEST_VARIANCE = 1e-6, 1e2
"""Bounds of a noise variance, relative to that of the targets."""


class Likelihood(Protocol):
    """What the targets are, given the latent function."""

    @property
    def scale(self) -> float:
        """`σ²`, which is applied to the sums of all rows."""

    @property
    def theta(self) -> Array:
        """The logarithms of the parameters that are learned."""

    @property
    def bounds(self) -> tuple[Array, Array]:
        """The lower and upper bounds of `theta`, for standardised targets."""

    @property
    def log_scale_slopes(self) -> Array:
        """The derivatives of `ln σ²` by `theta`."""

    def with_theta(self, theta: Array) -> Self:
        """Return the likelihood with other parameters."""

    def with_scale(self, scale: float) -> Self:
        """Return the likelihood with another `σ²`."""


@dataclass(frozen=True)
class _GaussianNoise:
    """Gaussian noise with a variance to learn."""

    variance: float | None = None
    theta: Array = field(init=False, repr=False, compare=False)
    """See `Likelihood.theta`: `ln σ²`, where there is a variance."""
    scale: float = field(init=False, repr=False, compare=False)
    """See `Likelihood.scale`: `σ²`, where there is a variance."""

    bounds: ClassVar[tuple[Array, Array]] = np.log([_LEAST_VARIANCE]), np.log([_LARGEST_VARIANCE])
    """See `Likelihood.bounds`."""
    log_scale_slopes: ClassVar[Array] = np.ones(1)
    """See `Likelihood.log_scale_slopes`."""

    def __post_init__(self) -> None:
        own = self.variance
        if own is not None and (not isinstance(own, Real) or not 0.0 < own < float("inf")):
            raise ValueError(f"variance must be positive and finite, or None, got {own!r}.")
        if own is not None:
            object.__setattr__(self, "theta", np.log([own]))
            object.__setattr__(self, "scale", own)

    def with_theta(self, theta: Array) -> Self:
        """See `Likelihood.with_theta`."""
        return self.with_scale(float(np.exp(theta[0])))

    def with_scale(self, scale: float) -> Self:
        """See `Likelihood.with_scale`."""
        return replace(self, variance=scale)


class Gaussian(_GaussianNoise):
    """Gaussian noise of one variance, `y = f(x) + ε` with `ε ~ N(0, σ²)`.

    Parameters
    ----------
    variance : float or None
        The initial noise variance, in the units of the data; None is a tenth of the variance of
        the targets.

    Examples
    --------
    >>> from eigengp import EigenGPRegressor, Gaussian
    >>> model = EigenGPRegressor(20, likelihood=Gaussian(variance=0.1))
    """


class Heteroscedastic(_GaussianNoise):
    """Gaussian noise whose variance depends on the input.

    The predictive variance is multiplied by a factor whose logarithm is linear in covariates. The
    factor is fitted to leave-one-out errors, and kept only if it clearly improves the leave-one-out
    density.

    Parameters
    ----------
    variance : float or None
        The initial noise variance without this factor, as in `Gaussian`.
    """
