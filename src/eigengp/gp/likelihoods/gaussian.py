"""Gaussian noise, whose variance is learned with the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real


@dataclass(frozen=True)
class _GaussianNoise:
    """Gaussian noise with a variance to learn."""

    variance: float | None = None

    def __post_init__(self) -> None:
        own = self.variance
        if own is not None and (not isinstance(own, Real) or not 0.0 < own < float("inf")):
            raise ValueError(f"variance must be positive and finite, or None, got {own!r}.")


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
