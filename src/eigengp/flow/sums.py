"""The two passes over the rows, each a sum over row blocks.

Rows enter the model only here. Pass 1 reduces them to M × M sums; pass 2
takes the cotangents of those sums back to the parameters. A source of rows
needs to know nothing of the mathematics: it applies a function to each block
and adds the results.

Letters: `K` is a block's features, (n, M), `k(X,B)` unless others are used, and
`ω_n` the precision of a row, which counts `s_n` times; `k_n` stands for a row
of `K`, or of the combinations of its columns through which a row enters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from eigengp.flow.features import Features, left_out
from eigengp.kernels import PullBack
from eigengp.typing import Array


@dataclass(frozen=True)
class RowBlock:
    """Some rows of the data."""

    X: Array
    """Inputs, shape (n, D)."""
    y: Array
    """Targets, shape (n,)."""
    sample_weight: Array | None = None
    """How many times each row counts, shape (n,); None means once."""
    start: int = 0
    """The index of the first row in the whole data."""

    @property
    def weight(self) -> Array:
        """The sample weights, ones where there are none, shape (n,)."""
        return np.ones(self.y.size) if self.sample_weight is None else self.sample_weight


class Additive:
    """A dataclass of arrays and numbers that adds field by field."""

    def __add__(self, other: Self) -> Self:
        # Only subclasses are dataclasses, which mypy cannot know.
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))  # type: ignore[arg-type]
        return type(self)(*(a + b for a, b in pairs))


SumT = TypeVar("SumT", bound=Any)


class RowSource(Protocol):
    """Where row blocks come from: the one seam between mathematics and data."""

    @property
    def n_rows(self) -> int:
        """How many rows there are."""

    @property
    def n_features(self) -> int:
        """How many inputs each row has."""

    def total(self, term: Callable[[RowBlock], SumT]) -> SumT:
        """Return the sum of `term(block)` over all blocks."""

    def take(self, rows: NDArray[np.intp]) -> RowBlock:
        """Return a copy of a few rows."""


@dataclass(frozen=True)
class Sums(Additive):
    """What the evidence needs to know of the rows."""

    A: Array
    """`Σ ω_n k_n k_nᵀ`, shape (M, M)."""
    b: Array
    """`Σ ω_n y_n k_n`, shape (M,)."""
    c: float
    """`Σ ω_n y_n²`."""
    log_precision: float
    """`Σ s_n ln(ω_n/s_n)`, or what stands in its place where rows carry a residual."""
    precision: float
    """`Σ ω_n`."""
    n: float
    """`Σ s_n`, the number of rows."""


@dataclass(frozen=True)
class WhitenedSums(Sums):
    """Sums of `Φ = K T`, with what the cotangent of `T` needs."""

    cross: Array
    """`KᵀΩΦ`, shape (M, R)."""
    features: Array
    """`KᵀΩy`, shape (M,)."""


@dataclass(frozen=True)
class SumsAdjoint:
    """Cotangents of `A`, `b`, `c` and `log_precision`."""

    A: Array
    b: Array
    c: float
    log_precision: float

    def plus(self, A: Array) -> SumsAdjoint:
        """Return the cotangents with something added to that of `A`."""
        return SumsAdjoint(self.A + A, self.b, self.c, self.log_precision)


@dataclass(frozen=True)
class RowAdjoint(Additive):
    """What the rows hand back."""

    theta: Array
    """The cotangent of the kernel's parameters."""
    points: Array
    """The cotangent of the points that the features stand at, shape (M, D)."""


@dataclass(frozen=True)
class ResidualAdjoint(RowAdjoint):
    """What rows with a residual hand back in addition."""

    factor: Array
    """The cotangent of `F`, shape (M, R)."""
    noise_variance: float
    """The cotangent of `σ²`."""


def _accumulate(K: Array, y: Array, weight: Array | None) -> Sums:
    """Return the sums of a block with `ω = s`; symmetric products cost half a general one."""
    if weight is None:
        return Sums(K.T @ K, y @ K, float(y @ y), 0.0, float(y.size), float(y.size))
    weighted, wy, n = K * np.sqrt(weight)[:, None], weight * y, float(weight.sum())
    return Sums(weighted.T @ weighted, wy @ K, float(wy @ y), 0.0, n, n)


def _pulled_back(K_bar: Array, weight: Array | None, back: PullBack) -> RowAdjoint:
    """Weigh the cotangent of `K` and take it through the kernel."""
    if weight is not None:
        K_bar *= weight[:, None]
    adjoint = back(K_bar)
    return RowAdjoint(adjoint.theta, adjoint.points)


@dataclass(frozen=True)
class PlainRows:
    """Rows that enter through their features `K`, all with the noise `σ²`.

    `ω_n = s_n`, and `σ²` is applied to the sums afterwards. The cheapest
    way, for stage 1.
    """

    features: Features

    def sums(self, block: RowBlock) -> Sums:
        """Pass 1, one block."""
        K = self.features.matrix(block.X)
        return _accumulate(K, block.y, block.sample_weight)

    def pull_back(self, block: RowBlock, bar: SumsAdjoint) -> RowAdjoint:
        """Pass 2: `K̄ = ω ∘ (2 K Ā + y b̄ᵀ)`, pulled back through the kernel."""
        K, back = self.features.forward(block.X)
        K_bar = K @ (2.0 * bar.A)
        K_bar += np.outer(block.y, bar.b)
        return _pulled_back(K_bar, block.sample_weight, back)


@dataclass(frozen=True)
class WhitenedRows:
    """Rows that enter through `Φ = K T`, the eigenfunctions with unit prior variance.

    Eigenfunctions with small eigenvalues lose their digits in `Tᵀ(KᵀK)T`
    and keep them in `(KT)ᵀ(KT)`, for about twice the work. The sums do not
    depend on noise and weights: stage 2 needs them once.
    """

    features: Features
    whitening: Array
    """`T`, shape (M, R)."""

    def sums(self, block: RowBlock) -> WhitenedSums:
        """Pass 1, one block."""
        K = self.features.matrix(block.X)
        Phi = K @ self.whitening
        own = _accumulate(Phi, block.y, block.sample_weight)
        s = block.sample_weight
        weighted, wy = (Phi, block.y) if s is None else (Phi * s[:, None], block.y * s)
        return WhitenedSums(**vars(own), cross=K.T @ weighted, features=wy @ K)

    def pull_back(self, block: RowBlock, bar: SumsAdjoint) -> RowAdjoint:
        """Pass 2: `K̄ = ω ∘ (2 Φ Ā + y b̄ᵀ) Tᵀ`, with `Φ` formed first to keep its digits."""
        K, back = self.features.forward(block.X)
        K_bar = (K @ self.whitening) @ (2.0 * bar.A @ self.whitening.T)
        K_bar += np.outer(block.y, self.whitening @ bar.b)
        return _pulled_back(K_bar, block.sample_weight, back)


@dataclass(frozen=True)
class ResidualRows:
    """Rows that carry the variance which the features leave out (EigenGP+, FITC, power EP).

    They enter through `Φ = K F`, whose prior is white, with `ω_n = s_n/λ_n`,
    `λ_n = σ² + α r_n` and `r_n = max(0, k(x_n,x_n) − ‖φ_n‖²)`. Power EP with
    `0 < α < 1` adds `(1−α)/(2α) ln(1 + α r_n/σ²)` to the negative evidence of
    each row, which together with `½ ln λ_n` makes
    `½ [ln σ² + ln(1 + α r_n/σ²)/α]`: `½ ln λ_n` at α = 1, and as α → 0 what
    the trace term makes of it, `½ [ln σ² + r_n/σ²]`.
    """

    features: Features
    factor: Array
    """`F`, shape (M, R)."""
    noise_variance: float
    power: float = 1.0
    """`α`, between 0 (not included) and 1."""

    def sums(self, block: RowBlock) -> Sums:
        """Pass 1, one block."""
        Phi = self.features.matrix(block.X) @ self.factor
        s2, alpha = self.noise_variance, self.power
        share = alpha * np.maximum(left_out(self.features, Phi), 0.0)
        s = block.weight
        own = _accumulate(Phi, block.y, s / (s2 + share))
        log_variance = np.log(s2) + np.log1p(share / s2) / alpha
        return replace(own, log_precision=-float(s @ log_variance), n=float(s.sum()))

    def pull_back(self, block: RowBlock, bar: SumsAdjoint) -> ResidualAdjoint:
        """Pass 2: `Φ̄ = ω ∘ (2 Φ Ā + y b̄ᵀ) − 2 r̄ ∘ Φ`, then `K̄ = Φ̄ Fᵀ` and `F̄ = Kᵀ Φ̄`.

        With the cotangent `ω̄_n = φ_nᵀĀφ_n + y_n b̄ᵀφ_n + c̄ y_n²` of the
        precisions, `r̄_n = −ω_n (α ω̄_n/λ_n + l̄)` where the residual is not
        clipped, and the noise receives
        `−ω_n (ω̄_n/λ_n + l̄ (σ² − (1−α) r_n)/σ²)`.
        """
        K, back = self.features.forward(block.X)
        Phi, y, s2, alpha = K @ self.factor, block.y, self.noise_variance, self.power
        rest = left_out(self.features, Phi)
        residual = np.maximum(rest, 0.0)
        variance = s2 + alpha * residual
        precision = block.weight / variance
        Phi_A, linear = Phi @ bar.A, Phi @ bar.b
        precision_bar = np.einsum("nr,nr->n", Phi, Phi_A) + y * (linear + bar.c * y)
        through = precision_bar / variance
        own = bar.log_precision * (1.0 - (1.0 - alpha) * residual / s2)
        noise_bar = -float(precision @ (through + own))
        residual_bar = -precision * (alpha * through + bar.log_precision)
        residual_bar[rest <= 0.0] = 0.0

        Phi_bar = 2.0 * precision[:, None] * Phi_A
        Phi_bar += np.outer(precision * y, bar.b)
        Phi_bar -= 2.0 * residual_bar[:, None] * Phi
        adjoint = back(Phi_bar @ self.factor.T)
        theta = adjoint.theta + residual_bar.sum() * self.features.prior_variance_gradient()
        return ResidualAdjoint(theta, adjoint.points, K.T @ Phi_bar, noise_bar)
