"""The evidence and its adjoints, from the sums alone: M × M work, no rows.

Letters: `A, b, c, n` are the sums of `eigengp.flow.sums`, `F` the prior
factor, `S = FᵀAF/σ²`, `G = I + S = L_G L_Gᵀ`, `h = G⁻¹Fᵀb/σ²` the posterior
mean of `z`, `m = F h` the coefficients of the posterior mean, and
`V = F L_G⁻ᵀ`, so that `P = V Vᵀ` is the posterior covariance of the
coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgError

from eigengp.flow.linalg import (
    FactorizationError,
    cholesky,
    inverse_lower,
    solve_lower,
    times_upper,
)
from eigengp.flow.sums import Sums, SumsAdjoint
from eigengp.typing import Array

LOG_2PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class Evidence:
    """The algebra shared by the evidence, its adjoints and the posterior.

    Parameters
    ----------
    sums : Sums
        Pass 1 over the rows.
    factor : array of shape (M, R) or (R,)
        The prior factor `F` in the coordinates of the sums; a vector is its
        diagonal, and saves the products with it.
    noise_variance : float
        `σ²`, applied to sums that were made without it (1 otherwise).
    triangular : bool
        Whether `F` is upper triangular, which saves half of the products with it.
    """

    sums: Sums
    factor: Array
    noise_variance: float
    triangular: bool = False

    @cached_property
    def AF(self) -> Array:
        """`A F/σ²`, shape (M, R)."""
        return self._times_factor(self.sums.A) / self.noise_variance

    @cached_property
    def S(self) -> Array:
        """`FᵀAF/σ²`, shape (R, R)."""
        if self.factor.ndim == 1:
            return self._transposed_times(self.AF)
        return self._times_factor(np.ascontiguousarray(self.AF.T))

    def _times_factor(self, x: Array) -> Array:
        """Return `x F`; stage 1's factor is triangular."""
        F = self.factor
        if F.ndim == 1:
            return x * F
        return times_upper(x, F) if self.triangular else x @ F

    def _transposed_times(self, x: Array) -> Array:
        """Return `Fᵀ x` for a vector or a matrix."""
        if self.factor.ndim == 1:
            return (self.factor * x.T).T
        return self.factor.T @ x

    @cached_property
    def L_G(self) -> Array:
        """The Cholesky factor of `I + S`, shape (R, R)."""
        try:
            return cholesky(np.eye(self.S.shape[0]) + 0.5 * (self.S + self.S.T))
        except LinAlgError:
            raise FactorizationError(
                f"The posterior precision of {self.S.shape[0]} coefficients is not positive "
                f"definite at noise variance {self.noise_variance:.1e}: targets or kernel hold NaN "
                "or infinity, or the noise is far below what rounding allows. Check the data, or "
                "start from a larger noise variance."
            ) from None

    @property
    def exists(self) -> bool:
        """Whether `G` can be factorised."""
        try:
            return bool(self.L_G.size)
        except FactorizationError:
            return False

    @cached_property
    def _whitened(self) -> Array:
        """`L_G⁻¹ Fᵀb/σ²`, whose square is `hᵀGh`, shape (R,)."""
        return solve_lower(self.L_G, self._transposed_times(self.sums.b) / self.noise_variance)

    @cached_property
    def h(self) -> Array:
        """The posterior mean of `z`, shape (R,)."""
        return solve_lower(self.L_G, self._whitened, transposed=True)

    @cached_property
    def mean(self) -> Array:
        """`m = F h`, shape (M,)."""
        return self.factor * self.h if self.factor.ndim == 1 else self.factor @ self.h

    @cached_property
    def V(self) -> Array:
        """`F L_G⁻ᵀ`, shape (M, R)."""
        if self.factor.ndim == 1:
            return self.factor[:, None] * self.root.T
        root = np.ascontiguousarray(self.root.T)
        return times_upper(self.factor, root)

    @cached_property
    def root(self) -> Array:
        """`L_G⁻¹`, whose squared columns sum to the posterior variances of `z`, (R, R)."""
        return inverse_lower(self.L_G)

    @cached_property
    def variances(self) -> Array:
        """The posterior variances of `z`, the diagonal of `G⁻¹`, shape (R,)."""
        variances: Array = np.einsum("ij,ij->j", self.root, self.root)
        return variances

    @cached_property
    def negative_log(self) -> float:
        """`−ln p(y) = ½ [n ln 2πσ² + Σ s_n ln(s_n/ω_n) + ln|G| + c/σ² − hᵀGh]`."""
        sums = self.sums
        log_det = 2.0 * float(np.log(np.diagonal(self.L_G)).sum())
        fit = sums.c / self.noise_variance - float(self._whitened @ self._whitened)
        constant = sums.n * (np.log(self.noise_variance) + LOG_2PI) - sums.log_precision
        return float(0.5 * (constant + log_det + fit))

    def sums_adjoint(self) -> SumsAdjoint:
        """Return `Ā = ½ (P + m mᵀ)/σ²`, `b̄ = −m/σ²`, and those of `c` and `Σ ln ω`."""
        s2, m = self.noise_variance, self.mean
        A_bar = self.V @ self.V.T + np.outer(m, m)
        return SumsAdjoint(0.5 * A_bar / s2, -m / s2, 0.5 / s2, -0.5, self.sums.n)

    def gram_adjoint(self, sums_bar: SumsAdjoint) -> Array:
        """Return the cotangent of `K_BB` where `F Fᵀ = K_BB⁻¹`, shape (M, M).

        `F̄ = A F (G⁻¹ + h hᵀ)/σ² − b hᵀ/σ²`, so that
        `FᵀF̄ = S G⁻¹ + (S h − Fᵀb/σ²) hᵀ = I − G⁻¹ − h hᵀ`, and
        `K̄ = −½ F (FᵀF̄) Fᵀ = ½ (P + m mᵀ − K_BB⁻¹)`, of which the sums' own
        cotangent `Ā = ½ (P + m mᵀ)/σ²` is the larger part.
        """
        return self.noise_variance * sums_bar.A - 0.5 * (self.factor @ self.factor.T)

    def log_scale_adjoint(self) -> Array:
        """Return the cotangents of `ln s²` when the columns of `F` are scaled by `s`, (R,).

        `½ (FᵀF̄)_jj = ½ [(S G⁻¹)_jj + (S h − Fᵀb/σ²)_j h_j]`, and `G = I + S`
        leaves `½ [1 − (G⁻¹)_jj − h_j²]`.
        """
        return 0.5 * (1.0 - self.variances - self.h**2)

    def noise_adjoint(self) -> float:
        """Return the cotangent of `σ²`.

        `½ [n − tr(G⁻¹S) − c/σ² + 2hᵀh + hᵀSh]/σ²`, where
        `tr(G⁻¹S) = R − tr(G⁻¹) = R − ‖L_G⁻¹‖²`.
        """
        s2, h = self.noise_variance, self.h
        explained = h.size - float(np.vdot(self.root, self.root))
        fit = float(2.0 * h @ h + h @ self.S @ h) - self.sums.c / s2
        return 0.5 * (self.sums.n - explained + fit) / s2


@dataclass(frozen=True)
class TraceAdjoint:
    """Cotangents of all that the trace term depends on."""

    A: Array
    factor: Array
    noise_variance: float
    prior_variance: float


@dataclass(frozen=True)
class TraceTerm:
    """What the eigenfunctions leave out of the prior, `γ Σ_n ω_n (k(x_n,x_n) − ‖Fᵀk_n‖²)/(2σ²)`.

    Added to `−ln p(y)` it keeps the basis from chasing noise: γ = 0 is the
    evidence of the model, γ = 1 with `F Fᵀ = K_BB⁻¹` the variational bound
    on the evidence of the full GP.
    """

    sums: Sums
    factor: Array
    noise_variance: float
    prior_variance: float
    gamma: float

    @cached_property
    def value(self) -> float:
        """The trace term itself; never negative for a factor of the prior."""
        explained = float(np.vdot(self.factor, self.sums.A @ self.factor))
        left_out = self.sums.precision * self.prior_variance - explained
        return 0.5 * self.gamma * left_out / self.noise_variance

    def adjoint(self) -> TraceAdjoint:
        """Return the cotangents of `A`, `F`, `σ²` and `k(x,x)`."""
        scale = self.gamma / self.noise_variance
        return TraceAdjoint(
            A=-0.5 * scale * (self.factor @ self.factor.T),
            factor=-scale * (self.sums.A @ self.factor),
            noise_variance=-self.value / self.noise_variance,
            prior_variance=0.5 * scale * self.sums.precision,
        )
