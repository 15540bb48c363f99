"""Predictions: what the rows taught, as a Gaussian over the coefficients.

`f(x) = k(x)ᵀa` with the features `k(x)` and `a ~ N(m, V Vᵀ)`. A posterior
holds no rows, only M × M arrays, and every variance is a sum of squares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from eigengp.flow.features import Features, left_out
from eigengp.flow.passes import Outcome
from eigengp.kernels import Kernel
from eigengp.typing import Array


class Predictive(Protocol):
    """What every fitted model can say of new inputs."""

    @property
    def n_columns(self) -> int:
        """How many numbers a row becomes on the way: basis points, or training rows."""

    def mean(self, X: Array) -> Array:
        """Return the predictive mean, shape (n,)."""

    def mean_and_variance(self, X: Array) -> tuple[Array, Array]:
        """Return mean and variance of noisy observations, each of shape (n,)."""

    def joint_covariance(self, X: Array) -> Array:
        """Return the joint covariance of noisy observations at `X`, shape (n, n)."""

    def mean_gradient(self, X: Array) -> Array:
        """Return `d mean/d x`, shape (n, D)."""

    def variance_gradient(self, X: Array) -> Array:
        """Return `d variance/d x`, shape (n, D)."""

    def functions(self, n_samples: int, rng: np.random.RandomState) -> Callable[[Array], Array]:
        """Draw latent functions; the result maps inputs (n, D) to values (n, S)."""


@dataclass(frozen=True)
class Posterior:
    """The posterior of a latent function, and of noisy observations of it."""

    features: Features
    mean_coefficients: Array
    """`m`, shape (M,)."""
    covariance_root: Array
    """`V`, shape (M, R)."""
    noise_variance: float
    prior_factor: Array | None = None
    """`F`, shape (M, R), where predictions carry the residual `k − k̃`; else None."""
    kernel: Kernel | None = None
    """Where given, the residual acts between inputs too, not on the diagonal alone."""

    @classmethod
    def of(
        cls, features: Features, noise_variance: float, outcome: Outcome, residual: bool = False
    ) -> Posterior:
        """Return the posterior after a pass over the rows, with or without the residual."""
        evidence, T = outcome.evidence, outcome.to_coefficients
        return cls(
            features,
            evidence.mean if T is None else T @ evidence.mean,
            evidence.V if T is None else T @ evidence.V,
            noise_variance,
            outcome.prior_factor if residual else None,
        )

    @property
    def n_columns(self) -> int:
        """How many features each row has."""
        return self.mean_coefficients.size

    def mean(self, X: Array) -> Array:
        """Return the predictive mean, shape (n,): O(M) for each row."""
        return self.features.matrix(X) @ self.mean_coefficients

    def mean_and_variance(self, X: Array) -> tuple[Array, Array]:
        """Return mean and variance of noisy observations, each of shape (n,)."""
        K = self.features.matrix(X)
        latent = K @ self.covariance_root
        variance = np.einsum("nr,nr->n", latent, latent) + self.noise_variance
        return K @ self.mean_coefficients, variance + self._left_out(K)

    def joint_covariance(self, X: Array) -> Array:
        """Return the joint covariance of noisy observations at `X`, shape (n, n)."""
        K = self.features.matrix(X)
        latent = K @ self.covariance_root
        joint = latent @ latent.T + self.noise_variance * np.eye(X.shape[0])
        return joint + self._joint_residual(X, K)

    def _joint_residual(self, X: Array, K: Array) -> Array:
        """Return the covariance of what the features leave out, shape (n, n)."""
        residual = np.diag(self._left_out(K))
        if self.kernel is not None and self.prior_factor is not None:
            explained = K @ self.prior_factor
            between: Array = self.kernel.matrix(X, X) - explained @ explained.T
            np.fill_diagonal(between, np.diagonal(residual))
            return 0.5 * (between + between.T)
        return residual

    def _left_out(self, K: Array) -> Array:
        """Return the residual variance `k(x,x) − ‖Fᵀk‖²`, never negative, shape (n,)."""
        if self.prior_factor is None:
            return np.zeros(K.shape[0])
        return np.maximum(left_out(self.features, K @ self.prior_factor), 0.0)

    def mean_gradient(self, X: Array) -> Array:
        """Return `d mean/d x`, shape (n, D)."""
        bar = np.broadcast_to(self.mean_coefficients, (X.shape[0], self.mean_coefficients.size))
        return self.features.input_gradient(X, bar)

    def variance_gradient(self, X: Array) -> Array:
        """Return `d variance/d x`, shape (n, D): `2 V Vᵀk`, less `2 F Fᵀk` with the residual."""
        K = self.features.matrix(X)
        bar = 2.0 * (K @ self.covariance_root) @ self.covariance_root.T
        if self.prior_factor is not None:
            open_ = (self._left_out(K) > 0.0)[:, None]
            bar -= 2.0 * open_ * ((K @ self.prior_factor) @ self.prior_factor.T)
        return self.features.input_gradient(X, bar)

    def functions(self, n_samples: int, rng: np.random.RandomState) -> Callable[[Array], Array]:
        """Draw whole latent functions; the result maps inputs (n, D) to values (n, S).

        A residual that acts between inputs is drawn at all of them together.
        """
        noise = rng.standard_normal((self.covariance_root.shape[1], n_samples))
        coefficients = self.mean_coefficients[:, None] + self.covariance_root @ noise

        def values(X: Array) -> Array:
            K = self.features.matrix(X)
            drawn = K @ coefficients
            if self.kernel is not None:
                drawn += draw_joint(self._joint_residual(X, K), n_samples, rng)
            return drawn

        return values


def draw_joint(covariance: Array, n_samples: int, rng: np.random.RandomState) -> Array:
    """Draw from a joint Gaussian of mean zero, shape (n, S).

    The covariance is factorised by its eigenvectors, and what is negative in
    it, by rounding or in the Nyström method, is left out.
    """
    lam, U = np.linalg.eigh(covariance)
    root: Array = U * np.sqrt(np.maximum(lam, 0.0))
    return root @ rng.standard_normal((covariance.shape[0], n_samples))
