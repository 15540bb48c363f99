"""Latent functions without inducing points: those of few rows, and of neighbours.

Rows act as the Gaussian factors `exp(β f − ½ ω f²)` of `eigengp.gp.variational`, that is as
observations `β/ω` with the noise variance `1/ω`. For few rows with `K = k(X, X)` and `s = √ω`,

    B = I + diag(s) K diag(s),   S = diag(s) B⁻¹ diag(s),   a = β − S K β,

the latent values have the mean `K a`, the variances `(1 − diag B⁻¹)/ω`, and the divergence
`½ [ln|B| + tr B⁻¹ − n + aᵀK a]` from the prior. The log partition function of the factors has the
derivative `½ (a aᵀ − S)` by `K` (Rasmussen and Williams, 2006, chapter 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, beside, namespace
from eigengp.gp.likelihoods import NonGaussian
from eigengp.gp.linalg import cholesky, guarded, inverse_lower
from eigengp.gp.variational import Factors, TargetPosterior
from eigengp.gp.vecchia_posterior import VecchiaPosterior
from eigengp.kernels import Kernel

_LEAST_VARIANCE = 1e-12
_ADVICE = ("rows", "scale the inputs, or choose another kernel")


class DensePosterior(NamedTuple):
    """The posterior of one latent function at few rows."""

    root: Array
    """`L⁻¹` of `B = L Lᵀ`, shape (n, n)."""
    a: Array
    """Shape (n,)."""
    mean: Array
    """Shape (n,)."""
    variance: Array
    """Shape (n,)."""
    divergence: float
    """That from the prior."""


@dataclass(frozen=True)
class DenseLatent:
    """A GP prior of latent functions at few rows, O(n³); see `LatentModel`."""

    kernel: Kernel
    X: Array

    @cached_property
    def _matrix(self) -> Array:
        return np.asarray(self.kernel.matrix(self.X, self.X))

    def condition(self, factors: Factors) -> tuple[DensePosterior, ...]:
        """Return the posterior of each latent function given the factors of all rows."""
        pairs = zip(factors.precision.T, factors.shift.T, strict=True)
        return tuple(self._condition(*pair) for pair in pairs)

    def _condition(self, precision: Array, shift: Array) -> DensePosterior:
        K, s = self._matrix, np.sqrt(precision)
        B = s[:, None] * K * s
        B.flat[:: s.size + 1] += 1.0
        L = guarded(cholesky, B, *_ADVICE)
        log_determinant = 2.0 * float(np.log(L.diagonal()).sum())
        root = inverse_lower(L)
        a = shift - s * (root.T @ (root @ (s * (K @ shift))))
        mean, kept = K @ a, np.einsum("ij,ij->j", root, root)
        variance = np.maximum((1.0 - kept) / precision, _LEAST_VARIANCE)
        divergence = 0.5 * (log_determinant + float(kept.sum() - s.size + a @ mean))
        return DensePosterior(root, a, mean, variance, divergence)

    def predict(self, posteriors: tuple[DensePosterior, ...]) -> tuple[Array, Array]:
        """Return mean and variance of the latent functions at all rows, each of shape (n, C)."""
        means, variances = zip(*((each.mean, each.variance) for each in posteriors), strict=True)
        return np.stack(means, axis=1), np.stack(variances, axis=1)

    def get_divergence(self, posteriors: tuple[DensePosterior, ...]) -> float:
        """Return the divergence of all latent functions from the prior."""
        return sum(each.divergence for each in posteriors)

    def gradient(self, factors: Factors, posteriors: tuple[DensePosterior, ...]) -> Array:
        """Return the gradient of the negative log partition function by `kernel.theta`."""
        bar = np.zeros_like(self._matrix)
        for precision, each in zip(factors.precision.T, posteriors, strict=True):
            scaled = each.root * np.sqrt(precision)
            bar += 0.5 * (scaled.T @ scaled - np.outer(each.a, each.a))
        columns = self.kernel.at(self.X)
        return np.asarray(columns.forward(self.X)[1](bar, overwrite=True).theta)


@dataclass(frozen=True)
class NeighborLatent(TargetPosterior):
    """The posterior of C latent functions, each with a nearest-neighbour (Vecchia) residual.

    Parameters
    ----------
    parts : tuple of VecchiaPosterior
        One for each latent function, of pseudo-targets `β/ω` with the weights `ω` and unit noise.
    offset : array of shape (C,)
        The prior means of the latent functions.
    likelihood : NonGaussian
        What targets are, given the latent functions.
    calibration : tuple of (float, float)
        Factors of the mean and the standard deviation of latent functions in `latent`.
    """

    parts: tuple[VecchiaPosterior, ...]
    offset: Array
    likelihood: NonGaussian
    calibration: tuple[float, float] = (1.0, 1.0)

    @property
    def n_columns(self) -> int:
        """How many numbers a row becomes on the way."""
        return self.parts[0].n_columns

    def latent(self, X: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Return mean and variance of the latent functions, each of shape (n, C)."""
        index, xp = self.parts[0].search(X), namespace(X)
        found = [part.near(X, index) for part in self.parts]
        mean = xp.stack([near.mean for near in found], axis=1)
        variance = xp.stack([near.own + near.linear for near in found], axis=1) - 1.0
        a, b = self.calibration
        return a * (mean + beside(self.offset, mean)), b * b * xp.clip(
            variance, _LEAST_VARIANCE, None
        )
