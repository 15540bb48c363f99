"""The log marginal likelihood (evidence) and its adjoints, from the sums alone: M × M work.

Letters: `A, b, c, n` are the sums of `eigengp.gp.sums`, `F` the prior
factor, `S = FᵀAF/σ²`, `G = I + S = L_G L_Gᵀ`, `h = G⁻¹Fᵀb/σ²` the posterior
mean of `z`, `m = F h` the coefficients of the posterior mean, and
`V = F L_G⁻ᵀ`, so that `P = V Vᵀ` is the posterior covariance of the
coefficients. Where `F Fᵀ = K_BB⁻¹`, that is `P = Λ⁻¹` with
`Λ = K_BB + A/σ² = L_Λ L_Λᵀ`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from scipy.linalg import LinAlgError, lapack

from eigengp._typing import Array
from eigengp.gp.blocks import RowSource
from eigengp.gp.linalg import (
    CholeskyFactor,
    FactorizationError,
    cholesky,
    inverse_from,
    inverse_lower,
    sum_log_diagonal,
)
from eigengp.gp.sums import Kept, Sums, SumsAdjoint

LOG_2PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class FactorEvidence:
    """The evidence for a diagonal prior factor, through `G`, with its adjoints and the posterior.

    Parameters
    ----------
    sums : Sums
        Pass 1 over the rows.
    factor : array of shape (R,) or 1.0
        The diagonal of the prior factor `F` in the coordinates of the sums, which takes `h`, the
        solution of the normal equations, to the coefficients `m`.
    noise_variance : float
        `σ²`, applied to sums that were made without it (1 otherwise).
    """

    sums: Sums
    factor: Any
    noise_variance: float

    @cached_property
    def L_G(self) -> Array:
        """The Cholesky factor of the posterior precision."""
        precision = self.precision()
        try:
            return cholesky(precision)
        except LinAlgError:
            raise FactorizationError(
                f"The posterior precision of {precision.shape[0]} coefficients is not positive "
                f"definite at noise variance {self.noise_variance:.1e}: targets or kernel hold NaN "
                "or infinity, or the noise is far below what rounding allows. Check the data, or "
                "start from a larger noise variance."
            ) from None

    @cached_property
    def log_determinant(self) -> float:
        """`ln|G|`."""
        return 2.0 * float(np.log(self.L_G.diagonal()).sum())

    @cached_property
    def whitened(self) -> Array:
        """`L_G⁻¹ Fᵀb/σ²`, whose square is `hᵀGh = mᵀb/σ²`, shape (R,)."""
        right = self.factor * self.sums.b / self.noise_variance
        return lapack.dtrtrs(self.L_G, right, lower=1)[0]

    @cached_property
    def h(self) -> Array:
        """The posterior mean of `z`, or of the coefficients themselves, shape (R,)."""
        return lapack.dtrtrs(self.L_G, self.whitened, lower=1, trans=1)[0]

    @cached_property
    def mean(self) -> Array:
        """`m`, shape (M,)."""
        return self.factor * self.h

    @cached_property
    def root(self) -> Array:
        """`L_G⁻¹`, whose squared columns sum to the posterior variances of `z`, (R, R)."""
        return inverse_lower(self.L_G)

    @cached_property
    def V(self) -> Array:
        """`F L_G⁻ᵀ`, a root of `P`, shape (M, R)."""
        return (self.root * self.factor).T

    @cached_property
    def negative_log(self) -> float:
        """`−ln p(y) = ½ [n ln 2πσ² + Σ s_n ln(s_n/ω_n) + ln|G| + c/σ² − hᵀGh]`."""
        sums = self.sums
        fit = sums.c / self.noise_variance - float(self.whitened @ self.whitened)
        constant = sums.n * (np.log(self.noise_variance) + LOG_2PI) - sums.log_precision
        return float(0.5 * (constant + self.log_determinant + fit))

    def sums_adjoint(self) -> SumsAdjoint:
        """Return `Ā = ½ (P + m mᵀ)/σ²`, `b̄ = −m/σ²`, and those of `c` and `Σ ln ω`."""
        s2, m = self.noise_variance, self.mean
        A_bar = np.outer(m, m)
        A_bar += self.covariance
        A_bar *= 0.5 / s2
        scale = float(np.sqrt(self.sums.c / max(self.sums.precision, 1e-300)))
        return SumsAdjoint(A_bar, -m / s2, 0.5 / s2, -0.5, m, scale)

    def noise_adjoint(self) -> float:
        """Return the cotangent of `σ²`, `½ [n − tr(G⁻¹S) − c/σ² + 2hᵀh + hᵀSh]/σ²`.

        `hᵀSh = hᵀGh − hᵀh`.
        """
        s2 = self.noise_variance
        fit = self.mean_norm + float(self.whitened @ self.whitened) - self.sums.c / s2
        return 0.5 * (self.sums.n - self.determined + fit) / s2

    def precision(self) -> Array:
        """Return `I + S`, shape (R, R)."""
        S = self.factor[:, None] * (self.sums.A * self.factor) / self.noise_variance
        return np.eye(S.shape[0]) + 0.5 * (S + S.T)

    @property
    def mean_norm(self) -> float:
        """`hᵀh`."""
        return float(self.h @ self.h)

    @cached_property
    def covariance(self) -> Array:
        """`P = V Vᵀ`, shape (R, R)."""
        return self.V @ self.V.T

    @cached_property
    def variances(self) -> Array:
        """The posterior variances of `z`, the diagonal of `G⁻¹`, shape (R,)."""
        return np.einsum("ij,ij->j", self.root, self.root)

    @property
    def determined(self) -> float:
        """`R − tr(G⁻¹)`."""
        return self.factor.size - float(np.vdot(self.root, self.root))

    def log_scale_adjoint(self) -> Array:
        """Return the cotangents of `ln s²` when the columns of `F` are scaled by `s`, (R,).

        `½ (FᵀF̄)_jj = ½ [(S G⁻¹)_jj + (S h − Fᵀb/σ²)_j h_j]`, and `G = I + S`
        leaves `½ [1 − (G⁻¹)_jj − h_j²]`.
        """
        return 0.5 * (1.0 - self.variances - self.h**2)


@dataclass(frozen=True)
class PriorEvidence(FactorEvidence):
    """The evidence for the prior of the GP itself, through `Λ`, at a third of the work.

    `F Fᵀ = K_BB⁻¹` gives `G = Fᵀ Λ F`, hence `ln|G| = ln|Λ| − ln|K_BB|`,
    `m = Λ⁻¹b/σ²`, `hᵀh = mᵀK_BB m` and `tr(G⁻¹) = tr(P K_BB)`: `Λ` takes the place of `G`, and
    one that of `F`.

    Parameters
    ----------
    prior : CholeskyFactor
        Of `K_BB`; `factor` is 1.
    """

    prior: CholeskyFactor

    def precision(self) -> Array:
        """Return `Λ`, shape (M, M)."""
        precision = self.sums.A / self.noise_variance
        precision += self.prior.gram
        return precision

    @cached_property
    def log_determinant(self) -> float:
        """`ln|Λ| − ln|K_BB|`."""
        return 2.0 * (sum_log_diagonal(self.L_G) - sum_log_diagonal(self.prior.L))

    @property
    def mean_norm(self) -> float:
        """`mᵀK_BB m`."""
        return float(self.mean @ self.prior.gram @ self.mean)

    @cached_property
    def covariance(self) -> Array:
        """`Λ⁻¹`, shape (M, M)."""
        return inverse_from(self.L_G)

    @property
    def determined(self) -> float:
        """`M − tr(P K_BB)`."""
        return self.mean.size - float(np.vdot(self.covariance, self.prior.gram))

    def gram_adjoint(self, sums_bar: SumsAdjoint) -> Array:
        """Return the cotangent of `K_BB`, shape (M, M).

        `F̄ = A F (G⁻¹ + h hᵀ)/σ² − b hᵀ/σ²`, so that
        `FᵀF̄ = S G⁻¹ + (S h − Fᵀb/σ²) hᵀ = I − G⁻¹ − h hᵀ`, and
        `K̄ = −½ F (FᵀF̄) Fᵀ = ½ (P + m mᵀ − K_BB⁻¹)`, of which the sums' own
        cotangent `Ā = ½ (P + m mᵀ)/σ²` is the larger part.
        """
        gram_bar = -0.5 * self.prior.inverse
        gram_bar += self.noise_variance * sums_bar.A
        return gram_bar


@dataclass(frozen=True)
class TraceTerm:
    """What the eigenfunctions leave out of the prior, `γ Σ_n ω_n (k(x_n,x_n) − k_nᵀW k_n)/(2σ²)`.

    Added to `−ln p(y)` it keeps the inducing points from chasing noise: γ = 0 is the log marginal
    likelihood of the model, γ = 1 with `W = K_BB⁻¹` the variational bound on that of the full GP.
    """

    value: float  # The trace term itself; never negative for weights of the prior.
    A: Array  # The cotangent of `A`, and so on.
    weights: Array
    noise_variance: float
    diagonal: float  # Of `Σ_n ω_n k(x_n,x_n)`.

    @classmethod
    def of(
        cls, sums: Sums, weights: Array, noise_variance: float, constant: float | None, gamma: float
    ) -> TraceTerm:
        """Return the term and its cotangents.

        Parameters
        ----------
        sums : Sums
            Pass 1 over the rows.
        weights : array of shape (M, M)
            `W = F Fᵀ`, in the coordinates of the sums.
        noise_variance : float
            `σ²`.
        constant : float or None
            `k(x,x)` where it does not vary; None where the sums hold `Σ_n ω_n k(x_n,x_n)`.
        gamma : float
            `γ`.
        """
        prior = sums.diagonal if constant is None else sums.precision * constant
        left_out = prior - float(np.vdot(weights, sums.A))
        value, half = 0.5 * gamma * left_out / noise_variance, 0.5 * (gamma / noise_variance)
        return cls(value, -half * weights, -half * sums.A, -value / noise_variance, half)


@dataclass(frozen=True)
class Gradient:
    """Derivatives of `−ln p(y)`; positive parameters through their logarithms."""

    theta: Array  # With respect to `kernel.theta`.
    # With respect to `B`, shape (M, D), or to spectral points; empty if there are none.
    inducing_points: Array
    log_noise_variance: float  # With respect to `ln σ²`.
    # With respect to `ln v`, shape (R,); None while the weights are the prior's.
    log_shrinkage: Array | None = None


@dataclass(frozen=True)
class PassAdjoint:
    """Derivatives of `−ln p(y)`, before `K_BB` is pulled back to its own parameters."""

    theta: Array
    points: Array
    # Of `K_BB`, symmetric, shape (M, M); None where features have no such matrix.
    gram: Array | None
    noise_variance: float
    log_shrinkage: Array | None = None  # Of `ln v`, shape (R,).


@dataclass(frozen=True)
class Outcome:
    """Value of one pass, and the posterior that came with it."""

    flow: Pass  # The pass that made it, and that takes its cotangents back.
    evidence: FactorEvidence
    trace: TraceTerm | None
    # From the coordinates of `evidence` to those of the features; None if they agree.
    to_coefficients: Array | None
    kept: Kept | None = None  # Features on their way to the next pass.

    n: float = field(init=False)  # The number of rows, each counted as often as it weighs.
    value: float = field(init=False)  # `−ln p(y)`, with the trace term if there is one.

    def __post_init__(self) -> None:
        value = self.evidence.negative_log + (self.trace.value if self.trace else 0.0)
        object.__setattr__(self, "n", self.evidence.sums.n)
        object.__setattr__(self, "value", value)


class Pass(Protocol):
    """One kind of pass over the rows: log marginal likelihood and derivatives."""

    @property
    def prior_factor(self) -> Array | None:
        """`F`, with `f(x) = k(x)ᵀF z` and `z` white under the prior, (M, R); None: the identity."""

    def forward(self, source: RowSource, gamma: float = 0.0, kept: Kept | None = None) -> Outcome:
        """Sum over the rows and return the log marginal likelihood; `gamma` weights the trace term.

        Features go into `kept` for a pull-back to come.
        """

    def pull_back(self, source: RowSource, outcome: Outcome, bar: SumsAdjoint) -> PassAdjoint:
        """Go over the rows again, with the cotangents of their sums, and return the derivatives."""
