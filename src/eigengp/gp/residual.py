"""EigenGP+, FITC and power EP: rows carry the variance that the features leave out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, Placed, cast, namespace, positive, row_dots
from eigengp.gp.blocks import RowBlock, RowSource
from eigengp.gp.evidence import FactorEvidence, Outcome, PassAdjoint
from eigengp.gp.linalg import CholeskyFactor, Spectrum
from eigengp.gp.sums import Kept, Sums, SumsAdjoint, accumulate, make_features, take_features
from eigengp.kernels import KernelAdjoint, KernelColumns


@dataclass(frozen=True)
class ResidualAdjoint(KernelAdjoint):
    """What rows with a residual hand back in addition."""

    factor: Array  # The cotangent of `F`, shape (M, R).
    noise_variance: float  # The cotangent of `σ²`.


@dataclass(frozen=True)
class ResidualRows:
    """Rows that carry the variance which the features leave out (EigenGP+, FITC, power EP).

    They enter through `Φ = K F`, whose prior is white, with `ω_n = 1/λ_n`,
    `λ_n = σ²/s_n + α r_n` and `r_n = max(0, k(x_n,x_n) − ‖φ_n‖²)`: the `s_n` observations of a row
    have the same input and share its residual. Power EP with `0 < α < 1` adds
    `(1−α)/(2α) ln(1 + α r_n s_n/σ²)` to the negative log likelihood of each row, which together
    with `½ ln λ_n` and what `s_n` observations add to their mean makes
    `½ [s_n ln σ² + ln(1 + α r_n s_n/σ²)/α]`; as α → 0 that is what the trace term makes of it,
    `½ s_n [ln σ² + r_n/σ²]`.
    """

    features: KernelColumns
    factor: Array  # `F`, shape (M, R).
    noise_variance: float
    power: float = 1.0  # `α`, between 0 (not included) and 1.
    # Whether the observations of a row share its residual (EigenGP+); else each has its own, and a
    # row is `s_n` rows with `s = 1`.
    shared: bool = True

    @cached_property
    def _F(self) -> Placed:
        return Placed(self.factor)

    def _weigh(self, block: RowBlock, Phi: AnyArray) -> tuple[AnyArray, ...]:
        """Return five numbers of each row, each of shape (n,).

        They are how many observations share a residual, how often that occurs, the residual
        variance `r`, the variance `sλ` and the precision `ω`, which counts all occurrences.
        """
        one = namespace(block.y).ones_like(block.y)
        s, times = (block.weight, one) if self.shared else (one, block.weight)
        residual = positive(self.features.kernel.diag(block.X) - row_dots(Phi, Phi))
        variance = self.noise_variance + self.power * residual * s
        return s, times, residual, variance, times * s / variance

    def sums(self, block: RowBlock, kept: Kept | None = None) -> Sums:
        """Pass 1, one block."""
        s2, alpha = self.noise_variance, self.power
        K = make_features(self.features, block, "float64", kept)
        Phi, xp = K @ self._F.beside(K), namespace(K)
        s, times, residual, _, precision = self._weigh(block, Phi)
        wide = xp.concat([Phi, cast(block.y, "float64")[:, None]], axis=1)
        own = accumulate(wide, block, precision, s2)
        log_variance = s * float(np.log(s2)) + xp.log1p(alpha * residual * s / s2) / alpha
        total = xp.sum(times * log_variance, dtype=xp.float64)
        return replace(own, log_precision=-total, n=xp.sum(s * times, dtype=xp.float64))

    def pull_back(
        self, block: RowBlock, bar: SumsAdjoint, kept: Kept | None = None
    ) -> ResidualAdjoint:
        """Pass 2: `Φ̄ = ω ∘ (2 Φ Ā + y b̄ᵀ) − 2 r̄ ∘ Φ`, then `K̄ = Φ̄ Fᵀ` and `F̄ = Kᵀ Φ̄`.

        With the cotangent `ω̄_n = φ_nᵀĀφ_n + y_n b̄ᵀφ_n + c̄ y_n²` of the
        precisions, `r̄_n = −ω_n (α ω_n ω̄_n + l̄)` where the residual is not
        clipped, and the noise receives
        `−ω_n (ω_n ω̄_n/s_n + l̄ (1 + (α s_n − 1) r_n/σ²)) − c̄ scatter_n/σ⁴`.
        """
        K, back = take_features(self.features, block, "float64", kept)
        xp, s2, alpha = namespace(K), self.noise_variance, self.power
        F, stacked, y = self._F.beside(K), bar.stacked.beside(K), cast(block.y, "float64")
        Phi = K @ F
        Phi_A, b_bar = Phi @ stacked[:-1, :], stacked[-1, :]
        quadratic = 0.5 * row_dots(Phi, Phi_A) + y * (Phi @ b_bar + bar.c * y)
        s, _, residual, variance, precision = self._weigh(block, Phi)
        through = quadratic / variance
        own = bar.log_precision * (1.0 + (alpha * s - 1.0) * residual / s2)
        residual_bar = -precision * (alpha * s * through + bar.log_precision)
        residual_bar = xp.where(residual > 0.0, residual_bar, 0.0 * residual)

        Phi_bar = precision[:, None] * (Phi_A + y[:, None] * b_bar)
        Phi_bar -= (2.0 * residual_bar)[:, None] * Phi
        adjoint = back(Phi_bar @ F.T, overwrite=True)
        noise_bar = -xp.sum(precision * (through + own)) - bar.c * block.total_scatter / s2**2
        own = self.features.kernel.diag_adjoint(block.X, residual_bar)
        return ResidualAdjoint(adjoint.theta + own.theta, adjoint.points, K.T @ Phi_bar, noise_bar)


@dataclass(frozen=True)
class ResidualPass:
    """EigenGP+, FITC, power EP: rows carry the variance that the features leave out.

    That variance already does what the trace term is for, so `gamma` is ignored.
    """

    features: KernelColumns
    noise_variance: float
    factor: CholeskyFactor | Spectrum
    shrinkage: Array | None
    power: float = 1.0  # `α`: FITC at 1; smaller is closer to VFE.
    shared: bool = True  # Whether rows with equal inputs share their residual; see `ResidualRows`.

    @cached_property
    def _rows(self) -> ResidualRows:
        return ResidualRows(
            self.features, self.prior_factor, self.noise_variance, self.power, self.shared
        )

    @cached_property
    def prior_factor(self) -> Array:
        """See `Pass.prior_factor`."""
        if isinstance(self.factor, CholeskyFactor):
            return self.factor.matrix
        assert self.shrinkage is not None
        return self.factor.whitening(self.shrinkage.size) * np.sqrt(self.shrinkage)

    def forward(self, source: RowSource, gamma: float = 0.0, kept: Kept | None = None) -> Outcome:
        """See `Pass.forward`."""
        return self.from_sums(self.sums(source, kept), kept=kept)

    def sums(self, source: RowSource, kept: Kept | None = None) -> Sums:
        """Return the sums, which noise and weights are part of."""
        rows = self._rows
        return source.total(lambda block: rows.sums(block, kept))

    def from_sums(self, sums: Sums, gamma: float = 0.0, kept: Kept | None = None) -> Outcome:
        """Return the log marginal likelihood without a pass over the rows."""
        F = self.prior_factor
        return Outcome(self, FactorEvidence(sums, np.ones(F.shape[1]), 1.0), None, F, kept)

    def pull_back(self, source: RowSource, outcome: Outcome, bar: SumsAdjoint) -> PassAdjoint:
        """See `Pass.pull_back`."""
        rows, kept = self._rows, outcome.kept
        pulled = source.total(lambda block: rows.pull_back(block, bar, kept))
        if isinstance(self.factor, CholeskyFactor):
            gram, log_shrinkage = self.factor.pull_back(pulled.factor), None
        else:
            assert self.shrinkage is not None
            root = np.sqrt(self.shrinkage)
            gram = self.factor.pull_back(pulled.factor * root, self.shrinkage)
            log_shrinkage = 0.5 * np.einsum("mr,mr->r", self.prior_factor, pulled.factor)
        return PassAdjoint(pulled.theta, pulled.points, gram, pulled.noise_variance, log_shrinkage)
