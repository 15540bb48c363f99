"""Predictions: what the rows taught, as a Gaussian over the coefficients.

`f(x) = k(x,B) a` with `a ~ N(m, V Vᵀ)`. A posterior holds no rows, only
M × M arrays, and every variance is a sum of squares.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eigengp.flow.model import EigenGP
from eigengp.flow.passes import Outcome
from eigengp.kernels import Kernel
from eigengp.typing import Array


@dataclass(frozen=True)
class Posterior:
    """The posterior of a latent function, and of noisy observations of it."""

    kernel: Kernel
    inducing_inputs: Array
    """`B`, shape (M, D)."""
    mean_coefficients: Array
    """`m`, shape (M,)."""
    covariance_root: Array
    """`V`, shape (M, R)."""
    noise_variance: float
    prior_factor: Array | None = None
    """`F`, shape (M, R), where predictions carry the residual `k − k̃`; else None."""

    @classmethod
    def of(cls, model: EigenGP, outcome: Outcome) -> Posterior:
        """Return the posterior of `model` after a pass over the rows."""
        evidence, T = outcome.evidence, outcome.to_coefficients
        return cls(
            model.kernel,
            model.inducing_inputs,
            evidence.mean if T is None else T @ evidence.mean,
            evidence.V if T is None else T @ evidence.V,
            model.noise_variance,
            T if model.residual else None,
        )

    def mean(self, X: Array) -> Array:
        """Return the predictive mean, shape (n,): O(M) for each row."""
        return self.kernel.matrix(X, self.inducing_inputs) @ self.mean_coefficients

    def mean_and_variance(self, X: Array) -> tuple[Array, Array]:
        """Return mean and variance of noisy observations, each of shape (n,)."""
        K = self.kernel.matrix(X, self.inducing_inputs)
        latent = K @ self.covariance_root
        variance = np.einsum("nr,nr->n", latent, latent) + self.noise_variance
        return K @ self.mean_coefficients, variance + self._left_out(K)

    def covariance(self, X: Array) -> Array:
        """Return the joint covariance of noisy observations at `X`, shape (n, n)."""
        K = self.kernel.matrix(X, self.inducing_inputs)
        latent = K @ self.covariance_root
        return latent @ latent.T + np.diag(self.noise_variance + self._left_out(K))

    def _left_out(self, K: Array) -> Array:
        """Return the residual variance `k(x,x) − ‖Fᵀk‖²`, never negative, shape (n,)."""
        if self.prior_factor is None:
            return np.zeros(K.shape[0])
        explained = K @ self.prior_factor
        rest = self.kernel.total_variance - np.einsum("nr,nr->n", explained, explained)
        left_out: Array = np.maximum(rest, 0.0)
        return left_out

    def mean_gradient(self, X: Array) -> Array:
        """Return `d mean/d x`, shape (n, D)."""
        _, back = self.kernel.forward(self.inducing_inputs, X)
        return back(np.tile(self.mean_coefficients[:, None], X.shape[0])).points

    def variance_gradient(self, X: Array) -> Array:
        """Return `d variance/d x`, shape (n, D): `2 V Vᵀk`, less `2 F Fᵀk` with the residual."""
        K, back = self.kernel.forward(self.inducing_inputs, X)
        bar = 2.0 * self.covariance_root @ (self.covariance_root.T @ K)
        if self.prior_factor is not None:
            open_ = self._left_out(K.T) > 0.0
            bar -= 2.0 * self.prior_factor @ (self.prior_factor.T @ K) * open_
        return back(bar).points

    def draw_coefficients(self, n_samples: int, rng: np.random.RandomState) -> Array:
        """Return coefficients of whole functions drawn from the posterior, shape (M, S)."""
        noise = rng.standard_normal((self.covariance_root.shape[1], n_samples))
        return self.mean_coefficients[:, None] + self.covariance_root @ noise
