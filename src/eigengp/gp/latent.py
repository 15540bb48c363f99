"""Latent functions without inducing points: those of few rows, and of neighbours.

Rows act as the Gaussian factors `exp(β f − ½ ω f²)` of `eigengp.gp.variational`, that is as
observations `β/ω` with the noise variance `1/ω`. For few rows with `K = k(X, X)` and

    C = K + diag(1/ω),   a = C⁻¹ (β/ω),

the latent values have the mean `K a = (β − a)/ω`, the variances `(1 − diag(C⁻¹)/ω)/ω`, and the
divergence `½ [ln|C| + Σ ln ω + Σ diag(C⁻¹)/ω − n + aᵀK a]` from the prior. The log partition
function of the factors has the derivative `½ (a aᵀ − C⁻¹)` by `K` (Rasmussen and Williams, 2006,
chapter 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, beside, namespace
from eigengp.gp.blocks import RowBlock
from eigengp.gp.evidence import Gradient
from eigengp.gp.exact import ExactGP
from eigengp.gp.likelihoods import NonGaussian
from eigengp.gp.linalg import inverse_diagonal, sum_log_diagonal
from eigengp.gp.variational import Factors, TargetPosterior, Use
from eigengp.gp.vecchia_posterior import VecchiaPosterior
from eigengp.kernels import Kernel

_LEAST_VARIANCE = 1e-12


class DensePosterior(NamedTuple):
    """The posterior of one latent function at few rows."""

    mean: Array  # Shape (n,).
    variance: Array  # Shape (n,).
    divergence: float  # That from the prior.


@dataclass(frozen=True)
class DenseLatent:
    """A GP prior of latent functions at few rows, O(n³); see `LatentModel`."""

    kernel: Kernel
    X: Array

    def _observe(self, factors: Factors) -> list[RowBlock]:
        """Return the rows of each latent function: observations `β/ω` with the noise `1/ω`."""
        pairs = zip(factors.precision.T, factors.shift.T, strict=True)
        return [RowBlock(self.X, shift / precision, precision) for precision, shift in pairs]

    def condition(self, factors: Factors) -> tuple[DensePosterior, ...]:
        """Return the posterior of each latent function given the factors of all rows."""
        pairs = zip(self._observe(factors), factors.shift.T, strict=True)
        return tuple(self._condition(*pair) for pair in pairs)

    def _condition(self, rows: RowBlock, shift: Array) -> DensePosterior:
        found, precision = ExactGP(self.kernel, 1.0, compiled=True).forward(rows), rows.weight
        a, log_determinant = found.solved, 2.0 * sum_log_diagonal(found.L)
        kept = inverse_diagonal(found.L) / precision
        mean = (shift - a) / precision
        variance = np.maximum((1.0 - kept) / precision, _LEAST_VARIANCE)
        divergence = log_determinant + float(np.log(precision).sum() + kept.sum() - a.size)
        return DensePosterior(mean, variance, 0.5 * (divergence + float(a @ mean)))

    def visit(self, posteriors: tuple[DensePosterior, ...], use: Use) -> Array:
        """See `LatentModel.visit`; all rows are one block."""
        means, variances, _ = zip(*posteriors, strict=True)
        return use(slice(None), np.stack(means, axis=1), np.stack(variances, axis=1))

    def get_divergence(self, posteriors: tuple[DensePosterior, ...]) -> float:
        """Return the divergence of all latent functions from the prior."""
        return sum(each.divergence for each in posteriors)

    def gradient(self, factors: Factors, posteriors: tuple[DensePosterior, ...]) -> Gradient:
        """Return the gradient of the negative log partition function by `kernel.theta`.

        It is that of a GP with the observations `β/ω`.
        """
        gp = ExactGP(self.kernel, 1.0, compiled=True)
        slopes = [gp.evaluate(rows)[1].theta for rows in self._observe(factors)]
        return Gradient(np.sum(slopes, axis=0), self.X[:0], 0.0)


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
