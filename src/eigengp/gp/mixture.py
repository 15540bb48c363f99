"""Predictions averaged over the hyperparameters.

With few rows many hyperparameters are plausible, and one optimum is over-confident. The predictive
distribution is the average of those of some draws from their posterior; it has the mean
`μ = mean_s μ_s` and the variance `mean_s v_s + var_s μ_s`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, beside, namespace
from eigengp.gp.blocks import RowBlock
from eigengp.gp.exact import ConditionalPosterior
from eigengp.kernels import KernelColumns


@dataclass(frozen=True)
class MixturePosterior:
    """The average of several posteriors of the same rows.

    Parameters
    ----------
    parts : tuple of ConditionalPosterior
        One posterior for each draw of the hyperparameters; all count alike.
    """

    parts: tuple[ConditionalPosterior, ...]

    @property
    def features(self) -> KernelColumns:
        """`k(x, X)` of the first draw, with the training inputs `X`."""
        return self.parts[0].features

    @property
    def noise_variance(self) -> float:
        """The average noise variance."""
        return float(np.mean([each.noise_variance for each in self.parts]))

    @property
    def n_columns(self) -> int:
        """How many numbers a row becomes on the way."""
        return self.parts[0].n_columns

    def mean(self, X: AnyArray) -> AnyArray:
        """Return the predictive mean, shape (n,)."""
        return _average(each.mean(X) for each in self.parts)

    def mean_and_variance(self, X: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Return mean and variance of noisy observations, each of shape (n,)."""
        return _combine([each.mean_and_variance(X) for each in self.parts])

    def leave_one_out(self, rows: RowBlock) -> tuple[Array, Array]:
        """Return mean and variance of all training rows, each predicted from the others."""
        return _combine([each.leave_one_out(rows) for each in self.parts])

    def latent_covariance(self, X: AnyArray) -> AnyArray:
        """Return the joint covariance of the function at `X`, shape (n, n)."""
        within = _average(each.latent_covariance(X) for each in self.parts)
        means = [each.mean(X) for each in self.parts]
        apart = namespace(X).stack(means) - _average(means)
        return within + apart.T @ apart / len(means)

    def joint_covariance(self, X: AnyArray) -> AnyArray:
        """Return the joint covariance of noisy observations at `X`, shape (n, n)."""
        return self.latent_covariance(X) + beside(self.noise_variance * np.eye(X.shape[0]), X)

    def mean_gradient(self, X: Array) -> Array:
        """Return `d mean/d x`, shape (n, D)."""
        return _average(each.mean_gradient(X) for each in self.parts)

    def variance_gradient(self, X: Array) -> Array:
        """Return `d variance/d x`, shape (n, D)."""
        slopes = [each.mean_gradient(X) for each in self.parts]
        apart = [each.mean(X) - self.mean(X) for each in self.parts]
        between = (2.0 * d[:, None] * s for d, s in zip(apart, slopes, strict=True))
        within = _average(each.variance_gradient(X) for each in self.parts)
        return within + _average(between)

    def average(self, X: Array, share: Array) -> tuple[float, float]:
        """See `Predictive.average`."""
        means, variances = zip(*(each.average(X, share) for each in self.parts), strict=True)
        return float(np.mean(means)), float(np.mean(variances) + np.var(means))

    def functions(self, n_samples: int, rng: np.random.RandomState) -> Callable[[Array], Array]:
        """Draw latent functions, each from one of the parts."""
        chosen = rng.randint(len(self.parts), size=n_samples)

        def values(X: Array) -> Array:
            drawn = np.empty((X.shape[0], n_samples))
            for part in np.unique(chosen):
                own = np.flatnonzero(chosen == part)
                drawn[:, own] = self.parts[part].functions(own.size, rng)(X)
            return drawn

        return values


def _average(values: Iterable[AnyArray]) -> AnyArray:
    found = list(values)
    return sum(found[1:], start=found[0]) / len(found)


def _combine(parts: list[tuple[AnyArray, AnyArray]]) -> tuple[AnyArray, AnyArray]:
    """Return mean and variance of a mixture, from those of its parts."""
    mean = _average(mean for mean, _ in parts)
    return mean, _average(variance + (own - mean) ** 2 for own, variance in parts)
