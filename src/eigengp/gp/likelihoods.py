"""Likelihoods: what the targets are, given the latent function."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real


@dataclass(frozen=True)
class _GaussianNoise:
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
        Where learning starts, in the units of the data; None is a tenth of the variance of the
        targets.

    Examples
    --------
    >>> from eigengp import EigenGPRegressor, Gaussian
    >>> model = EigenGPRegressor(20, likelihood=Gaussian(variance=0.1))
    """


class Heteroscedastic(_GaussianNoise):
    """Gaussian noise whose variance depends on the input.

    A log-linear model of the variance is fitted to leave-one-out residuals, and kept only if it
    improves the leave-one-out density.

    Parameters
    ----------
    variance : float or None
        Where learning of the constant part starts, as in `Gaussian`.
    """
