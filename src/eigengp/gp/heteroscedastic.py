"""Heteroscedastic predictive variance.

The variance is multiplied by `exp(η(x))`, with `η` linear in covariates: the variance itself, how
well nearest rows predict one another, and the eigenfunctions. A floor covers outliers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, Placed, beside, cast, dtype_name, namespace
from eigengp.gp.blocks import RowBlock
from eigengp.gp.exact_posterior import ConditionalPosterior, MixturePosterior
from eigengp.gp.posterior import Posterior
from eigengp.kernels import KernelColumns

# Number of nearest rows used to measure prediction errors among neighbours.
_NEAR = (8, 16, 32, 64)
_PSEUDO = 2.0  # Pseudo-observations with error one that are added to those of the neighbours.
_MOST_CHANGE = 18.0  # The largest `|η|`.


def covariates(variance: AnyArray, surprise: AnyArray | None, explained: AnyArray) -> AnyArray:
    """Return what `η` depends on, shape (n, p).

    Parameters
    ----------
    variance : array of shape (n,)
        Of the predictions, with a constant noise.
    surprise : array of shape (n, m) or None
        Squares, with mean one if the model is right, of what each neighbour
        adds to those nearer; None where there are no neighbours.
    explained : array of shape (n, M)
        `Fᵀk(x)`, the eigenfunctions in coordinates with a white prior, in units
        of the prior's standard deviation.
    """
    xp, few = namespace(explained), [variance]
    if surprise is not None:
        m = surprise.shape[1]
        counts = [k for k in (*(k for k in _NEAR if k < m), m) if k]
        few += [(_PSEUDO + xp.sum(surprise[:, :k], axis=1)) / (_PSEUDO + k) for k in counts]
    logs = [cast(xp.log(each), dtype_name(explained))[:, None] for each in few]
    return xp.concat([*logs, explained], axis=1)


@dataclass(frozen=True)
class VarianceScale:
    """`v ↦ v mean_c exp(η_c) + floor`, with `η_c = β₀ + Σ_j β_j (z_j − centre_j)` of covariates z.

    There may be several `η`; where they disagree the largest dominates. Covariates outside their
    range in training are clipped to it, so that far from the data error bars grow with the variance
    of the GP, and no faster. No error bar changes by more than a factor of `e⁹`, and none is
    smaller than those of enough training rows.
    """

    intercept: Array  # Shape (c,).
    slopes: Array  # In units of the covariates, shape (p, c).
    centre: Array
    low: Array
    high: Array
    floor: float = 0.0
    least: float = 0.0  # The smallest variance that enough training rows have to be trusted.

    def __call__(self, variance: AnyArray, found: AnyArray) -> AnyArray:
        """Return scaled variances, shape (n,), from covariates of shape (n, p)."""
        xp = namespace(found)
        low, high, centre, slopes, intercept = (
            beside(each, found)
            for each in (self.low, self.high, self.centre, self.slopes, self.intercept)
        )
        known = xp.minimum(xp.maximum(found, low), high)
        eta = xp.clip(intercept + (known - centre) @ slopes, -_MOST_CHANGE, _MOST_CHANGE)
        scaled = variance * (xp.sum(xp.exp(eta), axis=1) / self.intercept.size) + self.floor
        return xp.maximum(scaled, beside(np.full(1, self.least), scaled))

    def pull_back(self, variance: Array, gradient: Array) -> Array:
        """Return the gradient of scaled variances, if the scale is nothing but a limit."""
        if np.any(self.slopes) or np.any(self.intercept) or self.floor:
            raise ValueError(
                "The variance cannot be differentiated with heteroscedastic noise; fit with "
                "likelihood='gaussian'."
            )
        return gradient * (variance > self.least)[:, None]

    def joint(self, covariance: AnyArray, found: AnyArray) -> AnyArray:
        """Return a joint covariance with this diagonal and the same correlations."""
        xp = namespace(covariance)
        variance = xp.linalg.diagonal(covariance)
        root = xp.sqrt(self(variance, found) / variance)
        return covariance * root[:, None] * root


def _get_own(name: str) -> Any:
    """Return the attribute of a heteroscedastic posterior that is that of its own posterior."""
    return property(lambda posterior: getattr(posterior.own, name))


@dataclass(frozen=True)
class HeteroscedasticPosterior:
    """A posterior with heteroscedastic variance.

    Parameters
    ----------
    own : Posterior, ConditionalPosterior or MixturePosterior
        The posterior with constant noise.
    factor : array of shape (M, R)
        `F`, which takes features to eigenfunctions with a white prior.
    scale : VarianceScale or None
        The variance factor; None before it is fitted.
    basis : KernelColumns or None
        The features `k(x, B)` of the eigenfunctions; None are those of the posterior.
    """

    own: Posterior | ConditionalPosterior | MixturePosterior
    factor: Array
    scale: VarianceScale | None = None
    basis: KernelColumns | None = None

    features, noise_variance, n_columns = map(_get_own, ("features", "noise_variance", "n_columns"))
    mean, mean_gradient = map(_get_own, ("mean", "mean_gradient"))
    average, functions = map(_get_own, ("average", "functions"))

    @cached_property
    def _F(self) -> Placed:
        return Placed(self.factor)

    def refine(self, **changes: Any) -> HeteroscedasticPosterior:
        """Return the posterior with another `scale`."""
        return replace(self, **changes)

    def covariates(self, X: AnyArray, variance: AnyArray) -> AnyArray:
        """Return what the variance depends on, shape (n, 1 + R)."""
        basis = self.basis or self.features
        K = basis.matrix(X)
        explained = K @ self._F.beside(K) / np.sqrt(basis.prior_scale)
        return covariates(variance, None, explained)

    def leave_one_out(self, rows: RowBlock) -> tuple[Array, Array, Array]:
        """Return mean, variance and covariates of training rows as if each had been left out."""
        mean, variance = self.own.leave_one_out(rows)
        return mean, variance, self.covariates(rows.X, variance)

    def mean_and_variance(self, X: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Return mean and variance of noisy observations, each of shape (n,)."""
        mean, variance = self.own.mean_and_variance(X)
        if self.scale is None:
            return mean, variance
        return mean, self.scale(variance, self.covariates(X, variance))

    def joint_covariance(self, X: AnyArray) -> AnyArray:
        """Return the joint covariance of noisy observations at `X`, shape (n, n)."""
        joint = self.own.joint_covariance(X)
        if self.scale is None:
            return joint
        return self.scale.joint(joint, self.covariates(X, namespace(joint).linalg.diagonal(joint)))

    def variance_gradient(self, X: AnyArray) -> AnyArray:
        """Return `d variance/d x`; refuse if it needs the unknown slopes of covariates."""
        gradient = self.own.variance_gradient(X)
        if self.scale is None:
            return gradient
        return self.scale.pull_back(self.own.mean_and_variance(X)[1], gradient)
