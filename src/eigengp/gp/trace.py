"""The trace term, from the sums alone: what a basis leaves out of the prior at the rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eigengp._typing import Array
from eigengp.gp.sums import Sums


@dataclass(frozen=True)
class TraceAdjoint:
    """Cotangents of all that the trace term depends on."""

    A: Array
    weights: Array
    noise_variance: float
    prior_variance: float


@dataclass(frozen=True)
class TraceTerm:
    """What the eigenfunctions leave out of the prior, `γ Σ_n ω_n (k(x_n,x_n) − k_nᵀW k_n)/(2σ²)`.

    Added to `−ln p(y)` it keeps the basis from chasing noise: γ = 0 is the
    evidence of the model, γ = 1 with `W = K_BB⁻¹` the variational bound on
    the evidence of the full GP.

    Parameters
    ----------
    sums : Sums
        Pass 1 over the rows.
    weights : array of shape (M, M)
        `W = F Fᵀ`, in the coordinates of the sums.
    noise_variance, prior_variance : float
        `σ²` and `k(x,x)`.
    gamma : float
        `γ`.
    """

    sums: Sums
    weights: Array
    noise_variance: float
    prior_variance: float
    gamma: float

    @cached_property
    def value(self) -> float:
        """The trace term itself; never negative for weights of the prior."""
        explained = float(np.vdot(self.weights, self.sums.A))
        left_out = self.sums.precision * self.prior_variance - explained
        return 0.5 * self.gamma * left_out / self.noise_variance

    def adjoint(self) -> TraceAdjoint:
        """Return the cotangents of `A`, `W`, `σ²` and `k(x,x)`."""
        scale = self.gamma / self.noise_variance
        return TraceAdjoint(
            A=-0.5 * scale * self.weights,
            weights=-0.5 * scale * self.sums.A,
            noise_variance=-self.value / self.noise_variance,
            prior_variance=0.5 * scale * self.sums.precision,
        )
