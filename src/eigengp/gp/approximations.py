"""Stages 1 and 2: rows enter through their features, all with the same noise.

`PriorPass` is stage 1, and VFE with the whole trace term; `SpectralPass` has weights of its own
(stage 2 and EigenGP*). Each makes the sums, hands them to the evidence, and takes the cotangents
back over the rows. `eigengp.gp.residual` and `eigengp.gp.vecchia` do so for rows with a residual.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, Placed, cast, dtype_name, namespace
from eigengp.backend.threads import convert, product, recycle
from eigengp.gp.blocks import RowBlock, RowSource
from eigengp.gp.evidence import FactorEvidence, Outcome, PassAdjoint, PriorEvidence, TraceTerm
from eigengp.gp.gpu.fused import fused_for
from eigengp.gp.linalg import CholeskyFactor, FactorizationError, Spectrum
from eigengp.gp.precision import Arithmetic, choose_pull_back
from eigengp.gp.sums import (
    Kept,
    Sums,
    SumsAdjoint,
    accumulate,
    complete_sums,
    make_features,
    take_features,
)
from eigengp.kernels import KernelAdjoint, KernelColumns, PullBack

_EPSILON = float(np.finfo(np.float64).eps)
_MOST_LOST = 1e-2
_MOST_LOST_PER_ROW = 1e-7


@dataclass(frozen=True)
class WhitenedSums(Sums):
    """Sums of `Φ = K T`, with what the cotangent of `T` needs."""

    cross: Array  # `KᵀΩΦ`, shape (M, R).
    features: Array  # `KᵀΩy`, shape (M,).


@dataclass(frozen=True)
class PlainRows:
    """Rows that enter through their features `K`, all with the noise `σ²`.

    `ω_n = s_n`, and `σ²` is applied to the sums afterwards. The cheapest
    way, for stage 1, and the one that mixed precision makes cheaper.
    """

    features: KernelColumns
    made: str = "float64"  # The data type of features.
    pulled: str = "float64"  # The data type of the products of pass 2.
    # Float16 that make up a feature in the products of a fused pass 2: one is faster, two keep more
    # digits, and none leaves the rows to the general path.
    pieces: int = 0

    def sums(self, block: RowBlock, kept: Kept | None = None) -> Sums:
        """Pass 1, one block."""
        if fused := fused_for(self.features, block.X, self.made):
            whole, rest = block.cut(fused.whole(block.n_rows))
            A, b = fused.sums(whole.X, whole.y, whole.sample_weight)
            own = complete_sums(A, b, whole, whole.sample_weight)
            return own + PlainRows(self.features).sums(rest) if rest.n_rows else own
        wide = make_features(self.features, block, self.made, kept, targets=True)
        sums = accumulate(wide, block, block.sample_weight)
        sums = _with_diagonal(sums, self.features, block)
        if kept is None or not kept.holds(block):
            recycle(wide)
        return sums

    def pull_back(
        self, block: RowBlock, bar: SumsAdjoint, kept: Kept | None = None
    ) -> KernelAdjoint:
        """Pass 2: `K̄ = ω ∘ (2KĀ + y b̄ᵀ)`, pulled back through the kernel.

        It is formed as `K (2Ā + m b̄ᵀ) + (y − Km) b̄ᵀ`, in which far less cancels.
        """
        fused = fused_for(self.features, block.X, self.pulled) if self.pieces else None
        if fused:
            whole, rest = block.cut(fused.whole(block.n_rows))
            weight = whole.sample_weight
            pieces = self.pieces if weight is None else 2
            own = fused.pull_back(whole.X, whole.y, weight, bar.about, pieces, bar.target_scale)
            if rest.n_rows:
                own += PlainRows(self.features).pull_back(rest, bar)
            return own
        K, back = take_features(self.features, block, self.made, kept, targets=True)
        residual = K @ bar.residual.beside(K)
        wide = K if self.pulled == self.made else convert(K, self.pulled)
        wide[:, -1] = cast(residual, self.pulled)
        K_bar = product(wide, bar.about.beside(wide)[:-1, :])
        pulled = _pull_back(self.features, block, bar, K_bar, back)
        recycle(K)
        if wide is not K:
            recycle(wide)
        return pulled


@dataclass(frozen=True)
class WhitenedRows:
    """Rows that enter through `Φ = K T`, the eigenfunctions with unit prior variance.

    Eigenfunctions with small eigenvalues lose their digits in `Tᵀ(KᵀK)T`
    and keep them in `(KT)ᵀ(KT)`, for about twice the work, and only in
    float64. The sums do not depend on noise and weights: stage 2 needs them
    once.
    """

    features: KernelColumns
    whitening: Array  # `T`, shape (M, R).

    @cached_property
    def _T(self) -> Placed:
        """`T`, and a one through which targets pass: it takes `[K, y]` to `[Φ, y]`."""
        M, R = self.whitening.shape
        passing = np.zeros((M + 1, R + 1))
        passing[:M, :R] = self.whitening
        passing[M, R] = 1.0
        return Placed(passing)

    def sums(self, block: RowBlock, kept: Kept | None = None) -> Sums:
        """Pass 1, one block; with what a pull-back needs where `kept` says that one is to come."""
        K = make_features(self.features, block, "float64", kept, targets=True)
        wide, s = product(K, self._T.beside(K)), block.sample_weight
        sums = _with_diagonal(accumulate(wide, block, s), self.features, block)
        if kept is not None:
            weighted = wide if s is None else wide * cast(s, dtype_name(K))[:, None]
            cross = cast(K[:, :-1].T @ weighted, "float64")
            sums = WhitenedSums(**vars(sums), cross=cross[:, :-1], features=cross[:, -1])
        if kept is None or not kept.holds(block):
            recycle(K)
        recycle(wide)
        return sums

    def pull_back(
        self, block: RowBlock, bar: SumsAdjoint, kept: Kept | None = None
    ) -> KernelAdjoint:
        """Pass 2: `K̄ = ω ∘ (2 Φ Ā + y b̄ᵀ) Tᵀ`, with `Φ` formed first to keep its digits."""
        K, back = take_features(self.features, block, "float64", kept, targets=True)
        T = self._T.beside(K)
        wide = product(K, T)
        K_bar = product(wide, bar.stacked.beside(K) @ T[:-1, :-1].T)
        recycle(wide)
        pulled = _pull_back(self.features, block, bar, K_bar, back)
        recycle(K)
        return pulled


def _with_diagonal(sums: Sums, features: KernelColumns, block: RowBlock) -> Sums:
    """Add the sum of the prior variances of a block with `ω = s`, where these vary."""
    if features.kernel.constant_diagonal is not None:
        return sums
    xp, variance = namespace(block.y), features.prior_variance(block.X)
    return replace(sums, diagonal=xp.sum(block.weight * variance, dtype=xp.float64))


def _pull_back(
    features: KernelColumns, block: RowBlock, bar: SumsAdjoint, K_bar: AnyArray, back: PullBack
) -> KernelAdjoint:
    """Take the cotangents of `K`, whose memory is lost, and of a varying diagonal to the kernel."""
    if block.sample_weight is not None:
        K_bar *= cast(block.sample_weight, dtype_name(K_bar))[:, None]
    adjoint = back(K_bar, overwrite=True)
    recycle(K_bar)
    if bar.diagonal:
        theta = features.kernel.diag_adjoint(block.X, bar.diagonal * block.weight).theta
        adjoint = replace(adjoint, theta=adjoint.theta + theta)
    return adjoint


class DigitsLostError(ArithmeticError):
    """Sums of plain features do not hold enough digits for this prior factor.

    Attributes
    ----------
    in_float64 : bool
        Whether those of float64 would not either.
    """

    def __init__(self, in_float64: bool) -> None:
        super().__init__("Sums of plain features do not hold enough digits.")
        self.in_float64 = in_float64


@dataclass(frozen=True)
class PriorPass:
    """Stage 1: all eigenfunctions, with the weights of the GP prior."""

    features: KernelColumns
    noise_variance: float
    # None for features with a white prior, which they leave nothing out of (SSGP).
    factor: CholeskyFactor | None
    arithmetic: Arithmetic = field(default_factory=Arithmetic)

    @property
    def prior_factor(self) -> Array | None:
        """See `Pass.prior_factor`."""
        return None if self.factor is None else self.factor.matrix

    @property
    def _rows(self) -> PlainRows:
        return PlainRows(self.features, self.arithmetic.of_sums)

    def forward(self, source: RowSource, gamma: float = 0.0, kept: Kept | None = None) -> Outcome:
        """See `Pass.forward`.

        Raises
        ------
        DigitsLostError
            If the rounding of `A` would show in `G = I + FᵀAF/σ²`.
        """
        rows, s2 = self._rows, self.noise_variance
        sums = source.total(lambda block: rows.sums(block, kept))
        if self.factor is None:
            return Outcome(self, FactorEvidence(sums, np.ones(sums.b.size), s2), None, None, kept)
        evidence = PriorEvidence(sums, 1.0, s2, self.factor)
        in_float64 = _is_trusted(evidence)
        single = rows.made == "float32"
        if not (_is_trusted_in_float32(evidence) if single else in_float64):
            raise DigitsLostError(in_float64=not in_float64)
        trace = None
        if gamma:
            constant = self.features.kernel.constant_diagonal
            trace = TraceTerm.of(sums, self.factor.inverse, s2, constant, gamma)
        return Outcome(self, evidence, trace, None, kept)

    def pull_back(self, source: RowSource, outcome: Outcome, bar: SumsAdjoint) -> PassAdjoint:
        """See `Pass.pull_back`."""
        evidence, kept = outcome.evidence, outcome.kept
        s2_bar, gram = evidence.noise_adjoint(), None
        if isinstance(evidence, PriorEvidence):
            gram = evidence.gram_adjoint(bar)
            if trace := outcome.trace:
                gram += evidence.prior.weights_pull_back(trace.weights)
                s2_bar += trace.noise_variance
        bar, diagonal = _add_trace(self.features, outcome, bar)
        rows = self._rows
        if self.arithmetic.precision != "double":
            dtype, pieces = choose_pull_back(bar, evidence.sums, self.features.prior_scale)
            rows = replace(rows, pulled=dtype, pieces=pieces)
        pulled = source.total(lambda block: rows.pull_back(block, bar, kept))
        return PassAdjoint(pulled.theta + diagonal, pulled.points, gram, s2_bar)


def _add_trace(
    features: KernelColumns, outcome: Outcome, bar: SumsAdjoint
) -> tuple[SumsAdjoint, Array | float]:
    """Add the trace term to the cotangents of the sums, and return what it gives to `theta`.

    That is zero where `k(x,x)` varies: rows then pull it back one by one.
    """
    trace, kernel = outcome.trace, features.kernel
    if trace is None:
        return bar, 0.0
    bar = replace(bar, A=bar.A + trace.A)
    if kernel.constant_diagonal is None:
        return replace(bar, diagonal=trace.diagonal), 0.0
    through = np.array([trace.diagonal * outcome.evidence.sums.precision])
    return bar, kernel.diag_adjoint(features.points[:1], through).theta


def _is_trusted(evidence: PriorEvidence) -> bool:
    """Return whether float64 sums keep enough digits of `G = I + FᵀAF/σ²` in the worst case."""
    largest = np.max(np.diagonal(evidence.prior.inverse)) / evidence.noise_variance
    return bool(_EPSILON * np.trace(evidence.sums.A) * largest <= _MOST_LOST)


def _is_trusted_in_float32(evidence: PriorEvidence) -> bool:
    """Return whether float32 sums keep enough digits of `G` and of the value per row.

    The roundings of the rows are taken as independent. Those in `FᵀAF/σ²`
    are measured beside `G`; they change `mᵀAm/σ²` by about
    `ε ‖m‖² tr(A)/(M √n σ²)`, which is much where coefficients are large and
    cancel.
    """
    try:
        exists = np.isfinite(evidence.log_determinant)
    except FactorizationError:
        return False
    sums, F, s2, m = evidence.sums, evidence.prior.matrix, evidence.noise_variance, evidence.mean
    rounding = np.finfo(np.float32).eps * np.mean(np.diagonal(sums.A)) / np.sqrt(sums.n)
    kept = np.einsum("mr,mr->r", F, sums.A @ F) / s2
    in_G = rounding * np.sqrt(m.size) * np.einsum("mr,mr->r", F, F) / s2
    lost = np.max(in_G / (1.0 + np.maximum(kept, 0.0)))
    return bool(
        exists and lost <= _MOST_LOST and rounding * (m @ m) < _MOST_LOST_PER_ROW * s2 * sums.n
    )


@dataclass(frozen=True)
class SpectralPass:
    """The top R eigenfunctions, with weights of their own.

    The trace term stays that of the prior's weights, so that it measures the
    inducing points and not the weights.
    """

    features: KernelColumns
    noise_variance: float
    spectrum: Spectrum
    shrinkage: Array  # `v`, shape (R,).

    @cached_property
    def _rows(self) -> WhitenedRows:
        T = self.spectrum.whitening(self.shrinkage.size)
        return WhitenedRows(self.features, T)

    @property
    def prior_factor(self) -> Array:
        """See `Pass.prior_factor`."""
        return self._rows.whitening * np.sqrt(self.shrinkage)

    def sums(self, source: RowSource, kept: Kept | None = None) -> Sums:
        """Return the sums, which depend neither on the noise nor on the weights."""
        rows = self._rows
        return source.total(lambda block: rows.sums(block, kept))

    def from_sums(self, sums: Sums, gamma: float = 0.0, kept: Kept | None = None) -> Outcome:
        """Return the log marginal likelihood without a pass over the rows."""
        s2, identity = self.noise_variance, np.eye(self.shrinkage.size)
        constant = self.features.kernel.constant_diagonal
        trace = TraceTerm.of(sums, identity, s2, constant, gamma) if gamma else None
        evidence = FactorEvidence(sums, np.sqrt(self.shrinkage), s2)
        return Outcome(self, evidence, trace, self._rows.whitening, kept)

    def forward(self, source: RowSource, gamma: float = 0.0, kept: Kept | None = None) -> Outcome:
        """See `Pass.forward`."""
        return self.from_sums(self.sums(source, kept), gamma, kept)

    def weight_gradient(self, outcome: Outcome) -> tuple[Array, float]:
        """Return the derivatives by `ln v` and `σ²`, without touching the rows."""
        extra = outcome.trace.noise_variance if outcome.trace else 0.0
        evidence = outcome.evidence
        return evidence.log_scale_adjoint(), evidence.noise_adjoint() + extra

    def pull_back(self, source: RowSource, outcome: Outcome, bar: SumsAdjoint) -> PassAdjoint:
        """See `Pass.pull_back`.

        `T̄ = 2 KᵀΩΦ Ā + KᵀΩy b̄ᵀ` is known from the sums.
        """
        sums = outcome.evidence.sums
        assert isinstance(sums, WhitenedSums)
        T_bar = 2.0 * sums.cross @ bar.A + np.outer(sums.features, bar.b)
        gram = self.spectrum.pull_back(T_bar, self.shrinkage)
        if trace := outcome.trace:
            prior = np.ones_like(self.shrinkage)
            gram = gram + self.spectrum.pull_back(2.0 * sums.cross @ trace.A, prior)
        bar, diagonal = _add_trace(self.features, outcome, bar)
        rows, kept = self._rows, outcome.kept
        pulled = source.total(lambda block: rows.pull_back(block, bar, kept))
        log_shrinkage, s2_bar = self.weight_gradient(outcome)
        theta = pulled.theta + diagonal
        return PassAdjoint(theta, pulled.points, gram, s2_bar, log_shrinkage)
