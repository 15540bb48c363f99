"""The two passes over the rows, each a sum over row blocks.

Rows enter the model only here. Pass 1 reduces them to M × M sums; pass 2
takes the cotangents of those sums back to the parameters. A source of rows
needs to know nothing of the mathematics: it applies a function to each block
and adds the results.

Letters: `K = k(X,B)` is a block's features, (n, M), and `ω_n` the precision of
a row; `k_n` stands for a row of `K`, or of `Φ = K F` where the rows enter
through that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from eigengp.kernels import Kernel, PullBack
from eigengp.typing import Array


@dataclass(frozen=True)
class RowBlock:
    """Some rows of the data."""

    X: Array
    """Inputs, shape (n, D)."""
    y: Array
    """Targets, shape (n,)."""
    sample_weight: Array | None = None
    """Relative precision of each row, shape (n,); None means one for all."""


class Additive:
    """A dataclass of arrays and numbers that adds field by field."""

    def __add__(self, other: Self) -> Self:
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
    """`Σ ln ω_n`."""
    precision: float
    """`Σ ω_n`."""
    n: int
    """The number of rows."""


@dataclass(frozen=True)
class SumsAdjoint:
    """Cotangents of `A`, `b`, `c` and `log_precision`."""

    A: Array
    b: Array
    c: float
    log_precision: float


@dataclass(frozen=True)
class RowAdjoint(Additive):
    """What the rows hand back: cotangents of everything a row depends on."""

    theta: Array
    """Of the kernel's parameters."""
    inducing_inputs: Array
    """Of `B`, shape (M, D)."""
    factor: Array | float
    """Of the prior factor `F`, shape (M, R), where rows depend on it; else 0."""
    noise_variance: float
    """Of `σ²`, through the residual; else 0."""


class Rows(Protocol):
    """How a row enters the sums: with which precision `ω_n`."""

    def sums(self, block: RowBlock) -> Sums:
        """Pass 1, one block."""

    def pull_back(self, block: RowBlock, bar: SumsAdjoint) -> RowAdjoint:
        """Pass 2, one block."""


def _accumulate(K: Array, y: Array, precision: Array | None) -> Sums:
    """Return the sums of one block; symmetric products cost half a general one."""
    n = y.size
    if precision is None:
        return Sums(K.T @ K, y @ K, float(y @ y), 0.0, float(n), n)
    weighted = K * np.sqrt(precision)[:, None]
    wy = precision * y
    log_precision, total = float(np.log(precision).sum()), float(precision.sum())
    return Sums(weighted.T @ weighted, wy @ K, float(wy @ y), log_precision, total, n)


@dataclass(frozen=True)
class PlainRows:
    """Rows that enter through their features `K`, with noise `σ²/s_n`.

    `ω_n = s_n`, and `σ²` is applied to the sums afterwards. The cheapest
    way, for stage 1.
    """

    kernel: Kernel
    inducing_inputs: Array

    def sums(self, block: RowBlock) -> Sums:
        """Pass 1, one block."""
        K = self.kernel.matrix(block.X, self.inducing_inputs)
        return _accumulate(K, block.y, block.sample_weight)

    def pull_back(self, block: RowBlock, bar: SumsAdjoint) -> RowAdjoint:
        """Pass 2: `K̄ = ω ∘ (2 K Ā + y b̄ᵀ)`, pulled back through the kernel."""
        K, back = self.kernel.forward(block.X, self.inducing_inputs)
        K_bar = K @ (2.0 * bar.A)
        K_bar += np.outer(block.y, bar.b)
        if block.sample_weight is not None:
            K_bar *= block.sample_weight[:, None]
        adjoint = back(K_bar)
        return RowAdjoint(adjoint.theta, adjoint.points, 0.0, 0.0)


@dataclass(frozen=True)
class WhitenedRows:
    """Rows that enter through `Φ = K F`, whose prior is white: the sums are of `Φ`.

    Eigenfunctions with small eigenvalues and large weights lose their digits
    in `Fᵀ(KᵀK)F`, and keep them in `(KF)ᵀ(KF)`, for about three times the
    work. With `residual` each row also carries the variance that the
    eigenfunctions leave out (EigenGP+, FITC):
    `1/ω_n = σ²/s_n + r_n`, `r_n = max(0, k(x_n,x_n) − ‖φ_n‖²)`; without it
    `ω_n = s_n`, and `σ²` is applied to the sums afterwards.
    """

    kernel: Kernel
    inducing_inputs: Array
    factor: Array
    noise_variance: float
    residual: bool

    def _left_out(self, Phi: Array) -> Array:
        """Return `k(x_n,x_n) − ‖φ_n‖²`, shape (n,)."""
        return self.kernel.total_variance - np.einsum("nr,nr->n", Phi, Phi)

    def _precision(self, left_out: Array, sample_weight: Array | None) -> Array:
        noise = self.noise_variance / _or_one(sample_weight)
        precision: Array = 1.0 / (noise + np.maximum(left_out, 0.0))
        return precision

    def sums(self, block: RowBlock) -> Sums:
        """Pass 1, one block."""
        Phi = self.kernel.matrix(block.X, self.inducing_inputs) @ self.factor
        if not self.residual:
            return _accumulate(Phi, block.y, block.sample_weight)
        precision = self._precision(self._left_out(Phi), block.sample_weight)
        return _accumulate(Phi, block.y, precision)

    def pull_back(self, block: RowBlock, bar: SumsAdjoint) -> RowAdjoint:
        """Pass 2: `Φ̄ = ω ∘ (2 Φ Ā + y b̄ᵀ)`, then `K̄ = Φ̄ Fᵀ` and `F̄ = Kᵀ Φ̄`."""
        K, back = self.kernel.forward(block.X, self.inducing_inputs)
        Phi = K @ self.factor
        Phi_bar = Phi @ (2.0 * bar.A)
        Phi_bar += np.outer(block.y, bar.b)
        if not self.residual:
            Phi_bar *= np.reshape(_or_one(block.sample_weight), (-1, 1))
            return self._through_kernel(K, Phi_bar, back, 0.0, 0.0)
        return self._with_residual(block, bar, K, Phi, Phi_bar, back)

    def _with_residual(
        self, block: RowBlock, bar: SumsAdjoint, K: Array, Phi: Array, Phi_bar: Array, back: PullBack
    ) -> RowAdjoint:
        """Take the row precisions along.

        `ω̄_n = φ_nᵀĀφ_n + y_n b̄ᵀφ_n + c̄ y_n² + l̄/ω_n`, so the variance
        `1/ω_n` has the cotangent `−ω_n² ω̄_n`; where the residual is not
        clipped it goes on to `k(x_n,x_n)` and, times `−2φ_n`, to `φ_n`.
        """
        left_out = self._left_out(Phi)
        precision = self._precision(left_out, block.sample_weight)
        linear = Phi @ bar.b
        quadratic = 0.5 * (np.einsum("nr,nr->n", Phi, Phi_bar) - block.y * linear)
        precision_bar = quadratic + block.y * (linear + bar.c * block.y)
        precision_bar += bar.log_precision / precision
        variance_bar = -(precision**2) * precision_bar
        residual_bar = np.where(left_out > 0.0, variance_bar, 0.0)
        Phi_bar *= precision[:, None]
        Phi_bar -= 2.0 * residual_bar[:, None] * Phi
        noise_bar = float(np.sum(variance_bar / _or_one(block.sample_weight)))
        return self._through_kernel(K, Phi_bar, back, float(residual_bar.sum()), noise_bar)

    def _through_kernel(
        self, K: Array, Phi_bar: Array, back: PullBack, diagonal_bar: float, noise_bar: float
    ) -> RowAdjoint:
        adjoint = back(Phi_bar @ self.factor.T)
        theta = adjoint.theta + diagonal_bar * self.kernel.diagonal_theta_gradient()
        return RowAdjoint(theta, adjoint.points, K.T @ Phi_bar, noise_bar)


def _or_one(sample_weight: Array | None) -> Array | float:
    return 1.0 if sample_weight is None else sample_weight
