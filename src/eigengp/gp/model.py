"""A model with inducing points, its log marginal likelihood and its gradient.

rows ─▶ features ─▶ sums ─▶ log marginal likelihood ─▶ cotangents of the sums ─▶ rows ─▶ gradient
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from eigengp._typing import Array
from eigengp.gp.approximations import DigitsLostError, PriorPass, SpectralPass
from eigengp.gp.blocks import RowSource
from eigengp.gp.evidence import Gradient, Outcome, Pass
from eigengp.gp.linalg import CholeskyFactor, Spectrum
from eigengp.gp.posterior import Posterior
from eigengp.gp.precision import Arithmetic
from eigengp.gp.residual import ResidualPass
from eigengp.gp.sums import Kept
from eigengp.kernels import Kernel, KernelAdjoint, KernelColumns


@dataclass(frozen=True)
class Jitter:
    """What is added to the diagonal of `K_BB`: `relative · k(x,x) + absolute`.

    Where `k(x,x)` varies it is the mean over the inducing points.
    """

    relative: float = 0.0
    absolute: float = 0.0


class Gram(NamedTuple):
    """The kernel matrix of the inducing points."""

    matrix: Array  # `K_BB` with the jitter, shape (M, M).
    jitter: float  # What was added to its diagonal.
    pull_back: Callable[[Array], KernelAdjoint]  # That of `K_BB` without the jitter.


@dataclass(frozen=True)
class EigenGP:
    """The model: eigenfunctions of a kernel at inducing points, their weights, the noise.

    FITC, VFE and power EP are the same model with the weights of the prior
    and the residual, which enters the log marginal likelihood as `power` says.

    Parameters
    ----------
    kernel : Kernel
        The GP prior whose eigenfunctions are used.
    inducing_points : array of shape (M, D)
        `B`.
    noise_variance : float
        `σ²`.
    n_components : int
        `R ≤ M`, how many eigenfunctions are kept.
    shrinkage : array of shape (R,) or None
        `v_j = M w_j/λ_j`; None holds the weights of the prior, `v = 1` (stage 1).
    residual : bool
        Whether rows and predictions carry the variance that the
        eigenfunctions leave out (EigenGP+, FITC, VFE, power EP).
    jitter : Jitter
        What is added to the diagonal of `K_BB`.
    power : float
        How much of that variance is noise to the rows: all of it (1, EigenGP+
        and FITC), a part (power EP), or none, the trace term taking its place
        (0, VFE).
    arithmetic : Arithmetic
        How passes over the rows are computed.
    shared : bool
        Whether rows with equal inputs share their residual (EigenGP+). FITC and power EP give
        each observation its own.
    """

    kernel: Kernel
    inducing_points: Array
    noise_variance: float
    n_components: int
    shrinkage: Array | None = None
    residual: bool = False
    jitter: Jitter = field(default_factory=Jitter)
    power: float = 1.0
    arithmetic: Arithmetic = field(default_factory=Arithmetic)
    shared: bool = True

    def __getstate__(self) -> dict[str, Any]:
        """Keep what the model is, and nothing that can be made again."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def gram(self) -> Gram:
        """`K_BB`, with the jitter that was asked for."""
        K, back = self.features.forward(self.inducing_points)
        scale = float(np.mean(self.kernel.diag(self.inducing_points)))
        added = self.jitter.relative * scale + self.jitter.absolute
        gram = K.copy()  # The pull-back needs it without the jitter.
        gram.flat[:: gram.shape[0] + 1] += added
        return Gram(gram, added, back)

    @cached_property
    def spectrum(self) -> Spectrum:
        """The eigen-decomposition of `K_BB`."""
        return Spectrum.of(self.gram.matrix)

    @cached_property
    def effective_shrinkage(self) -> Array:
        """`v` as the model uses it, shape (R,): one where it is held, tied where `λ` coincide."""
        if self.shrinkage is None:
            return np.ones(self.n_components)
        return np.exp(self.spectrum.tied(np.log(self.shrinkage)))

    @cached_property
    def flow(self) -> Pass:
        """The pass over the rows that fits this model."""
        noisy = self.residual and self.power > 0.0
        if self.shrinkage is None and self.n_components == self.inducing_points.shape[0]:
            factor = CholeskyFactor.of(self.gram.matrix, whitens=noisy)
            common = (self.features, self.noise_variance, factor)
            if noisy:
                return ResidualPass(*common, None, self.power, self.shared)
            return PriorPass(*common, self.arithmetic)
        v = self.effective_shrinkage
        whitened = (self.features, self.noise_variance, self.spectrum, v)
        if noisy:
            return ResidualPass(*whitened, self.power, self.shared)
        return SpectralPass(*whitened)

    @cached_property
    def features(self) -> KernelColumns:
        """The features `k(x, B)`."""
        return self.kernel.at(self.inducing_points)

    def forward(self, source: RowSource, gamma: float = 0.0, kept: Kept | None = None) -> Outcome:
        """Go over the rows once; `gamma` weighs the trace term, which VFE has in full.

        Where the sums of plain features lose too many digits (many rows,
        little noise, inducing points close together) float64 takes the place of
        float32, and where that does not do either the rows enter whitened.
        """
        if self.residual and self.power == 0.0:
            gamma = 1.0
        try:
            return self.flow.forward(source, gamma, kept)
        except DigitsLostError as lost:
            if lost.in_float64:
                robust = replace(self, shrinkage=np.ones(self.n_components))
            else:
                robust = replace(self, arithmetic=self.arithmetic.guarded)
        kept = kept and Kept(self.arithmetic.memory_limit)  # What the pass kept is of no more use.
        return robust.forward(source, gamma, kept)

    def posterior(self, outcome: Outcome) -> Posterior:
        """Return the posterior after a pass over the rows."""
        return Posterior.of(self, outcome, self.residual)

    def value(self, source: RowSource, gamma: float = 0.0) -> float:
        """Return `−ln p(y)` of the rows, plus `gamma` times the trace term."""
        return self.forward(source, gamma).value

    def value_and_gradient(self, source: RowSource, gamma: float = 0.0) -> tuple[float, Gradient]:
        """Return `value` and its gradient: two passes over the rows."""
        outcome, gradient = self.evaluate(source, gamma)
        return outcome.value, gradient

    def evaluate(self, source: RowSource, gamma: float = 0.0) -> tuple[Outcome, Gradient]:
        """Return what a pass over the rows found, and the gradient of its value."""
        outcome = self.forward(source, gamma, Kept(self.arithmetic.memory_limit))
        bar = outcome.flow.pull_back(source, outcome, outcome.evidence.sums_adjoint())
        assert bar.gram is not None
        gram_bar, log_shrinkage = self.gram_pull_back(bar.gram), None
        if self.shrinkage is not None and bar.log_shrinkage is not None:
            log_shrinkage = self.spectrum.tied(bar.log_shrinkage)
        theta, points = bar.theta + gram_bar.theta, bar.points + gram_bar.points
        log_noise = self.noise_variance * bar.noise_variance
        return outcome, Gradient(theta, points, log_noise, log_shrinkage)

    def gram_pull_back(self, gram_bar: Array) -> KernelAdjoint:
        """Pull a symmetric cotangent of `K_BB` (jitter included) back to `θ` and `B`.

        Both arguments of `k(B,B)` move, hence twice the pull-back to one.
        """
        adjoint, kernel, B = self.gram.pull_back(gram_bar), self.kernel, self.inducing_points
        # All inducing points count alike, and one does where `k(x,x)` does not vary.
        at = B if kernel.constant_diagonal is None else B[:1]
        share = self.jitter.relative * float(np.trace(gram_bar)) / at.shape[0]
        jitter = kernel.diag_adjoint(at, np.full(at.shape[0], share))
        return KernelAdjoint(adjoint.theta + jitter.theta, 2.0 * adjoint.points + jitter.points)
