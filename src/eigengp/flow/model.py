"""One EigenGP model, its evidence and its gradient: the whole flow in one place.

rows ─▶ features ─▶ sums ─▶ evidence ─▶ cotangents of the sums ─▶ rows ─▶ gradient
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from eigengp.flow.evidence import Evidence
from eigengp.flow.factors import CholeskyFactor, Factor, SpectralFactor, Spectrum
from eigengp.flow.sums import PlainRows, Rows, RowSource, Sums, WhitenedRows
from eigengp.kernels import Kernel, KernelAdjoint
from eigengp.typing import Array


@dataclass(frozen=True)
class Jitter:
    """What is added to the diagonal of `K_BB`: `relative · k(x,x) + absolute`."""

    relative: float = 0.0
    absolute: float = 0.0

    def of(self, kernel: Kernel) -> float:
        """Return the number that is added."""
        return self.relative * kernel.total_variance + self.absolute


@dataclass(frozen=True)
class Gradient:
    """Derivatives of `−ln p(y)`; positive parameters through their logarithms."""

    theta: Array
    """With respect to `kernel.theta`."""
    inducing_inputs: Array
    """With respect to `B`, shape (M, D)."""
    log_noise_variance: float
    """With respect to `ln σ²`."""
    log_shrinkage: Array | None
    """With respect to `ln v`, shape (R,); None while the weights are the prior's."""


@dataclass(frozen=True)
class EigenGP:
    """The model: eigenfunctions of a kernel at inducing inputs, their weights, the noise.

    Parameters
    ----------
    kernel : Kernel
        The GP prior whose eigenfunctions are used.
    inducing_inputs : array of shape (M, D)
        The basis points `B`.
    noise_variance : float
        `σ²`.
    n_components : int
        `R ≤ M`, how many eigenfunctions are kept.
    shrinkage : array of shape (R,) or None
        `v_j = M w_j/λ_j`; None holds the weights of the prior, `v = 1` (stage 1).
    residual : bool
        Whether rows carry the variance that the eigenfunctions leave out (EigenGP+).
    jitter : Jitter
        What is added to the diagonal of `K_BB`.
    """

    kernel: Kernel
    inducing_inputs: Array
    noise_variance: float
    n_components: int
    shrinkage: Array | None = None
    residual: bool = False
    jitter: Jitter = field(default_factory=Jitter)

    @cached_property
    def _gram(self) -> tuple[Array, Callable[[Array], KernelAdjoint]]:
        K, back = self.kernel.forward(self.inducing_inputs, self.inducing_inputs)
        K[np.diag_indices_from(K)] += self.jitter.of(self.kernel)
        return K, back

    @cached_property
    def spectrum(self) -> Spectrum:
        """The eigen-decomposition of `K_BB`."""
        return Spectrum.of(self._gram[0])

    @cached_property
    def factor(self) -> Factor:
        """The prior factor `F` with its pull-back."""
        if self.shrinkage is None and self.n_components == self.inducing_inputs.shape[0]:
            return CholeskyFactor.of(self._gram[0])
        held = np.ones(self.n_components) if self.shrinkage is None else self.shrinkage
        return SpectralFactor(self.spectrum, held)

    @cached_property
    def rows(self) -> Rows:
        """How rows enter the sums."""
        if self.whitened:
            F, s2 = self.factor.matrix, self.noise_variance
            return WhitenedRows(self.kernel, self.inducing_inputs, F, s2, self.residual)
        return PlainRows(self.kernel, self.inducing_inputs)

    @property
    def whitened(self) -> bool:
        """Whether rows enter through `Φ = K F` rather than through `K`."""
        return self.residual or isinstance(self.factor, SpectralFactor)

    def evidence(self, sums: Sums, trace_weight: float = 0.0) -> Evidence:
        """Return the evidence algebra for sums made by `rows`."""
        F = np.eye(self.n_components) if self.whitened else self.factor.matrix
        s2 = 1.0 if self.residual else self.noise_variance
        return Evidence(sums, F, s2, trace_weight, self.kernel.total_variance)

    def value(self, source: RowSource, trace_weight: float = 0.0) -> float:
        """Return `−ln p(y)` of the rows (with the trace term, if asked for)."""
        return self.evidence(source.total(self.rows.sums), trace_weight).negative_log

    def value_and_gradient(
        self, source: RowSource, trace_weight: float = 0.0
    ) -> tuple[float, Gradient]:
        """Return `−ln p(y)` and its gradient: two passes over the rows."""
        evidence = self.evidence(source.total(self.rows.sums), trace_weight)
        value, bar = evidence.negative_log, evidence.adjoint()
        rows_bar = source.total(lambda block: self.rows.pull_back(block, bar.sums))
        F_bar = rows_bar.factor if self.whitened else bar.factor
        factor_bar = self.factor.pull_back(np.asarray(F_bar))
        gram_bar = self.gram_pull_back(factor_bar.gram)

        direct = rows_bar.noise_variance if self.residual else bar.noise_variance
        diagonal = bar.prior_trace * self.kernel.diagonal_theta_gradient()
        gradient = Gradient(
            theta=rows_bar.theta + gram_bar.theta + diagonal,
            inducing_inputs=rows_bar.inducing_inputs + gram_bar.points,
            log_noise_variance=self.noise_variance * direct,
            log_shrinkage=None if self.shrinkage is None else factor_bar.log_shrinkage,
        )
        return value, gradient

    def gram_pull_back(self, gram_bar: Array) -> KernelAdjoint:
        """Pull a symmetric cotangent of `K_BB` (jitter included) back to `θ` and `B`.

        Both arguments of `k(B,B)` move, hence twice the pull-back to one.
        """
        adjoint = self._gram[1](gram_bar)
        jitter = self.jitter.relative * np.trace(gram_bar) * self.kernel.diagonal_theta_gradient()
        return KernelAdjoint(adjoint.theta + jitter, 2.0 * adjoint.points)
