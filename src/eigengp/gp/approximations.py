"""The passes over the rows, one for each kind of prior factor.

Each makes the sums, hands them to `evidence`, and takes the cotangents
back over the rows: `PriorPass` is stage 1, and VFE with the whole trace term;
`SpectralPass` has weights of its own (stage 2 and EigenGP*); `ResidualPass`
is EigenGP+, FITC and power EP; `WhitePass` is for features whose weights are
independent from the start (SSGP).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from eigengp._typing import Array
from eigengp.gp.blocks import RowSource
from eigengp.gp.evidence import Evidence, FactorEvidence, PriorEvidence, TraceAdjoint, TraceTerm
from eigengp.gp.precision import Arithmetic
from eigengp.gp.prior import CholeskyFactor, Spectrum
from eigengp.gp.sums import (
    Kept,
    PlainRows,
    ResidualRows,
    Sums,
    SumsAdjoint,
    WhitenedRows,
    WhitenedSums,
)
from eigengp.kernels.cross_covariance import KernelColumns

_EPSILON = float(np.finfo(np.float64).eps)
_MOST_LOST = 1e-2
_MOST_LOST_PER_ROW = 1e-5


@dataclass(frozen=True)
class PassAdjoint:
    """Derivatives of `−ln p(y)`, before `K_BB` is pulled back to its own parameters."""

    theta: Array
    points: Array
    gram: Array | None
    """Of `K_BB`, symmetric, shape (M, M); None where features have no such matrix."""
    noise_variance: float
    log_shrinkage: Array | None = None
    """Of `ln v`, shape (R,)."""


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
class Outcome:
    """Value of one pass, and the posterior that came with it."""

    flow: Pass
    """The pass that made it, and that takes its cotangents back."""
    evidence: Evidence
    trace: TraceTerm | None
    to_coefficients: Array | None
    """From the coordinates of `evidence` to those of the features; None if they agree."""
    kept: Kept | None = None
    """Features on their way to the next pass."""

    n: float = field(init=False)
    """The number of rows, each counted as often as it weighs."""
    value: float = field(init=False)
    """`−ln p(y)`, with the trace term if there is one."""

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

    def pull_back(self, source: RowSource, outcome: Outcome) -> PassAdjoint:
        """Go over the rows again and return the derivatives."""


@dataclass(frozen=True)
class PriorPass:
    """Stage 1: all eigenfunctions, with the weights of the GP prior."""

    features: KernelColumns
    noise_variance: float
    factor: CholeskyFactor
    arithmetic: Arithmetic = field(default_factory=Arithmetic)

    @property
    def prior_factor(self) -> Array:
        """See `Pass.prior_factor`."""
        return self.factor.matrix

    @property
    def _rows(self) -> PlainRows:
        return PlainRows(self.features, self.arithmetic.sums)

    def forward(self, source: RowSource, gamma: float = 0.0, kept: Kept | None = None) -> Outcome:
        """See `Pass.forward`.

        Raises
        ------
        DigitsLostError
            If the rounding of `A` would show in `G = I + FᵀAF/σ²`.
        """
        rows, s2 = self._rows, self.noise_variance
        sums = source.total(lambda block: rows.sums(block, kept))
        evidence = PriorEvidence(sums, self.factor, s2)
        in_float64 = _is_trusted(evidence)
        single = self.arithmetic.sums == "float32"
        if not (_is_trusted_in_float32(evidence) if single else in_float64):
            raise DigitsLostError(in_float64=not in_float64)
        trace = None
        if gamma:
            constant = self.features.kernel.constant_diagonal
            trace = TraceTerm(sums, self.factor.inverse, s2, constant, gamma)
        return Outcome(self, evidence, trace, None, kept)

    def pull_back(self, source: RowSource, outcome: Outcome) -> PassAdjoint:
        """See `Pass.pull_back`."""
        evidence, kept = outcome.evidence, outcome.kept
        assert isinstance(evidence, PriorEvidence)
        sums_bar, s2_bar = evidence.sums_adjoint(), evidence.noise_adjoint()
        gram = evidence.gram_adjoint(sums_bar)
        diagonal: Array | float = 0.0
        if outcome.trace:
            trace = outcome.trace.adjoint()
            sums_bar, diagonal = _add_trace(self.features, evidence.sums, sums_bar, trace)
            gram += self.factor.weights_pull_back(trace.weights)
            s2_bar += trace.noise_variance
        rows = _for_pull_back(self._rows, self.arithmetic, sums_bar, evidence.sums)
        pulled = source.total(lambda block: rows.pull_back(block, sums_bar, kept))
        return PassAdjoint(pulled.theta + diagonal, pulled.points, gram, s2_bar)


def _add_trace(
    features: KernelColumns, sums: Sums, bar: SumsAdjoint, trace: TraceAdjoint
) -> tuple[SumsAdjoint, Array | float]:
    """Add the trace term to the cotangents of the sums, and return what it gives to `theta`.

    That is zero where `k(x,x)` varies: rows then pull it back one by one.
    """
    own = replace(bar, A=bar.A + trace.A, diagonal=bar.diagonal + trace.diagonal)
    kernel = features.kernel
    if kernel.constant_diagonal is None:
        return own, 0.0
    through = np.array([trace.diagonal * sums.precision])
    return own, kernel.diag_pull_back(features.points[:1], through)


def _for_pull_back(
    rows: PlainRows, arithmetic: Arithmetic, bar: SumsAdjoint, sums: Sums
) -> PlainRows:
    """Return the rows as these cotangents can be taken back: data type, and fused passes."""
    if arithmetic.precision == "double":
        return rows
    dtype = arithmetic.gradient_for(lambda: measure_rounding(bar, sums))
    if dtype == "float64":
        return replace(rows, pulled=dtype)
    scatter = measure_scatter(bar, sums, rows.features.prior_scale)
    pieces = arithmetic.pieces_for(scatter, measure_residual_scatter(bar, sums))
    return replace(rows, pulled=dtype, pieces=pieces)


def measure_rounding(bar: SumsAdjoint, sums: Sums) -> float:
    """Return how much the rounding of these cotangents shows in the gradient of a row.

    An entry rounds the same way for all rows, and meets `Σ_n k_nm k_nm'`;
    entries of a column round independently.
    """
    met = bar.about_mean * sums.A
    return float(np.sqrt(np.max(np.einsum("ij,ij->j", met, met)))) / max(sums.n, 1.0)


def measure_residual_scatter(bar: SumsAdjoint, sums: Sums) -> float:
    """Return how much the rounding of features in `y − Km` shows in the same.

    It is independent from row to row.
    """
    squares = np.diagonal(sums.A) / max(sums.n, 1.0)
    in_residual = np.sqrt(np.sum(bar.centre**2 * squares))
    return float(in_residual * np.max(np.abs(bar.b) * np.sqrt(squares)) / np.sqrt(sums.n))


def measure_scatter(bar: SumsAdjoint, sums: Sums, variance: float) -> float:
    """Return how much the rounding of features, where they meet these, shows in the same.

    It is independent from row to row, and for rows without weights
    `Σ_n k_nm² k_nm'²` is at most `Σ_n k_nm k_nm'` times the largest
    feature, about the prior variance, squared.
    """
    square = np.einsum("ij,ij,ij->j", bar.about_mean, bar.about_mean, np.abs(sums.A))
    return float(variance * np.sqrt(np.max(square))) / max(sums.n, 1.0)


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
    if not evidence.exists:
        return False
    sums, F, s2, m = evidence.sums, evidence.prior.matrix, evidence.noise_variance, evidence.mean
    rounding = np.finfo(np.float32).eps * np.mean(np.diagonal(sums.A)) / np.sqrt(sums.n)
    kept = np.einsum("mr,mr->r", F, sums.A @ F) / s2
    in_G = rounding * np.sqrt(m.size) * np.einsum("mr,mr->r", F, F) / s2
    lost = np.max(in_G / (1.0 + np.maximum(kept, 0.0)))
    return bool(lost <= _MOST_LOST and rounding * (m @ m) < _MOST_LOST_PER_ROW * s2 * sums.n)


@dataclass(frozen=True)
class SpectralPass:
    """The top R eigenfunctions, with weights of their own.

    The trace term stays that of the prior's weights, so that it measures the
    inducing points and not the weights.
    """

    features: KernelColumns
    noise_variance: float
    spectrum: Spectrum
    shrinkage: Array
    """`v`, shape (R,)."""

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
        trace = TraceTerm(sums, identity, s2, constant, gamma) if gamma else None
        evidence = FactorEvidence(sums, np.sqrt(self.shrinkage), s2)
        return Outcome(self, evidence, trace, self._rows.whitening, kept)

    def forward(self, source: RowSource, gamma: float = 0.0, kept: Kept | None = None) -> Outcome:
        """See `Pass.forward`."""
        return self.from_sums(self.sums(source, kept), gamma, kept)

    def weight_gradient(self, outcome: Outcome) -> tuple[Array, float]:
        """Return the derivatives by `ln v` and `σ²`, without touching the rows."""
        extra = outcome.trace.adjoint().noise_variance if outcome.trace else 0.0
        evidence = outcome.evidence
        assert isinstance(evidence, FactorEvidence)
        return evidence.log_scale_adjoint(), evidence.noise_adjoint() + extra

    def pull_back(self, source: RowSource, outcome: Outcome) -> PassAdjoint:
        """See `Pass.pull_back`.

        `T̄ = 2 KᵀΩΦ Ā + KᵀΩy b̄ᵀ` is known from the sums.
        """
        sums = outcome.evidence.sums
        assert isinstance(sums, WhitenedSums)
        bar = outcome.evidence.sums_adjoint()
        T_bar = 2.0 * sums.cross @ bar.A + np.outer(sums.features, bar.b)
        gram = self.spectrum.pull_back(T_bar, self.shrinkage)
        diagonal: Array | float = 0.0
        if outcome.trace:
            trace = outcome.trace.adjoint()
            prior = np.ones_like(self.shrinkage)
            gram = gram + self.spectrum.pull_back(2.0 * sums.cross @ trace.A, prior)
            bar, diagonal = _add_trace(self.features, sums, bar, trace)
        rows, kept = self._rows, outcome.kept
        pulled = source.total(lambda block: rows.pull_back(block, bar, kept))
        log_shrinkage, s2_bar = self.weight_gradient(outcome)
        theta = pulled.theta + diagonal
        return PassAdjoint(theta, pulled.points, gram, s2_bar, log_shrinkage)


@dataclass(frozen=True)
class ResidualPass:
    """EigenGP+, FITC, power EP: rows carry the variance that the features leave out.

    That variance already does what the trace term is for, so `gamma` is ignored.
    """

    features: KernelColumns
    noise_variance: float
    factor: CholeskyFactor | Spectrum
    shrinkage: Array | None
    power: float = 1.0
    """`α`: FITC at 1; smaller is closer to VFE."""
    shared: bool = True
    """Whether rows with equal inputs share their residual; see `ResidualRows`."""

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

    def pull_back(self, source: RowSource, outcome: Outcome) -> PassAdjoint:
        """See `Pass.pull_back`."""
        bar = outcome.evidence.sums_adjoint()
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


@dataclass(frozen=True)
class WhitePass:
    """Features whose weights are independent, with variance one, under the prior (SSGP).

    They leave nothing out of the prior, so the trace term is zero.
    """

    features: KernelColumns
    noise_variance: float
    arithmetic: Arithmetic = field(default_factory=Arithmetic)

    @property
    def prior_factor(self) -> None:
        """See `Pass.prior_factor`."""

    @property
    def _rows(self) -> PlainRows:
        return PlainRows(self.features)  # Nothing tells here whether float32 sums would do.

    def forward(self, source: RowSource, gamma: float = 0.0, kept: Kept | None = None) -> Outcome:
        """See `Pass.forward`."""
        rows = self._rows
        sums = source.total(lambda block: rows.sums(block, kept))
        evidence = FactorEvidence(sums, np.ones(sums.b.size), self.noise_variance)
        return Outcome(self, evidence, None, None, kept)

    def pull_back(self, source: RowSource, outcome: Outcome) -> PassAdjoint:
        """See `Pass.pull_back`."""
        evidence, kept = outcome.evidence, outcome.kept
        bar = evidence.sums_adjoint()
        rows = _for_pull_back(self._rows, self.arithmetic.guarded, bar, evidence.sums)
        pulled = source.total(lambda block: rows.pull_back(block, bar, kept))
        return PassAdjoint(pulled.theta, pulled.points, None, evidence.noise_adjoint())
