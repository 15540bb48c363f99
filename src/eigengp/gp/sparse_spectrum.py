"""The sparse spectrum GP: cosines and sines at learned spectral points."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, beside, cast, namespace
from eigengp.gp.approximations import PriorPass
from eigengp.gp.blocks import RowSource
from eigengp.gp.evidence import Gradient, Outcome
from eigengp.gp.posterior import Posterior
from eigengp.gp.precision import Arithmetic
from eigengp.gp.sums import Kept
from eigengp.kernels import KernelAdjoint, KernelColumns, Stationary
from eigengp.kernels.base import WithPullBack
from eigengp.kernels.stationary import times


class SpectralFeatures(KernelColumns):
    """`√(a/m) [cos(S x/ℓ), sin(S x/ℓ)]` at `m` spectral points: 2m features with a white prior.

    `φ(x)ᵀφ(z) = (a/m) Σ_r cos(s_rᵀ(x − z)/ℓ)` is a Monte Carlo estimate of a
    stationary kernel of variance `a` whose spectral density the `s_r/ℓ` are
    drawn from; integrating out the weights of both cosine and sine
    integrates out amplitude and phase.
    """

    kernel: Stationary  # Gives lengthscales, one for each input, and the variance `a`.
    points: Array  # `S`, angular frequencies in units of the inverse lengthscales, shape (m, D).

    kept_arrays = 2  # Cosines and sines.

    def matrix(self, X: AnyArray, dtype: str = "float64", spare: int = 0) -> AnyArray:
        """See `KernelColumns.matrix`; phases are formed in float64, for they may be many turns."""
        xp = namespace(X)
        phase = cast(self._scaled(X) @ beside(self.points, X).T, dtype)
        room = xp.zeros_like(phase[:, :spare])
        Phi = xp.concat([xp.cos(phase), xp.sin(phase), room], axis=1)
        Phi *= float(np.sqrt(self.kernel.variance / self.points.shape[0]))
        return Phi

    def _scaled(self, X: AnyArray) -> AnyArray:
        """Return rows divided by the lengthscales."""
        return X / beside(np.asarray(self.kernel.lengthscale), X)

    def forward(self, X: AnyArray, dtype: str = "float64", spare: int = 0) -> WithPullBack:
        """See `KernelColumns.forward`; with the cotangent `P̄` of the phases `P = (X/ℓ) Sᵀ`.

        `S̄ = P̄ᵀ(X/ℓ)`, and `d/d ln ℓ_d = −Σ_n (x_nd/ℓ_d)(P̄ S)_nd`.
        """
        Phi = self.matrix(X, dtype, spare)

        def pull_back(Phi_bar: AnyArray, overwrite: bool = False) -> KernelAdjoint:
            xp, scaled, phase_bar = namespace(X), self._scaled(X), self._phase_bar(Phi, Phi_bar)
            points_bar = cast(phase_bar.T @ cast(scaled, dtype), "float64")
            lengths = -xp.sum(points_bar * beside(self.points, X), axis=0)
            lengths = self.kernel.sum_groups(lengths)
            product = times(Phi_bar, Phi[:, : Phi_bar.shape[1]], overwrite)
            variance = 0.5 * xp.sum(product, dtype=xp.float64)
            theta = xp.concat([lengths, xp.reshape(variance, (1,))])
            rest = xp.zeros(self.kernel.theta.size - theta.shape[0], device=X.device)
            return KernelAdjoint(xp.concat([theta, cast(rest, "float64")]), points_bar)

        return Phi, pull_back

    def _phase_bar(self, Phi: AnyArray, Phi_bar: AnyArray) -> AnyArray:
        """Return the cotangent of the phases: cosines fall by sines, sines grow by cosines."""
        m = self.points.shape[0]
        return Phi_bar[:, m:] * Phi[:, :m] - Phi_bar[:, :m] * Phi[:, m : 2 * m]

    def input_gradient(self, X: AnyArray, bar: AnyArray) -> AnyArray:
        """See `KernelColumns.input_gradient`."""
        phase_bar = self._phase_bar(self.matrix(X), bar)
        return self._scaled(phase_bar @ beside(self.points, X))


@dataclass(frozen=True)
class SparseSpectrum:
    """The model: amplitudes and phases of waves integrated out, their frequencies learned.

    Parameters
    ----------
    kernel : Stationary
        Lengthscales, one for each input, and variance.
    spectral_points : array of shape (m, D)
        Angular frequencies in units of the inverse lengthscales.
    noise_variance : float
        `σ²`.
    arithmetic : Arithmetic
        How passes over the rows are computed.
    """

    kernel: Stationary
    spectral_points: Array
    noise_variance: float
    arithmetic: Arithmetic = field(default_factory=Arithmetic)

    @property
    def features(self) -> SpectralFeatures:
        """The 2m cosines and sines."""
        return SpectralFeatures(self.kernel, self.spectral_points)

    @property
    def flow(self) -> PriorPass:
        """The pass over the rows."""
        # Nothing tells whether float32 sums would do.
        return PriorPass(self.features, self.noise_variance, None, self.arithmetic.guarded)

    def forward(self, source: RowSource, gamma: float = 0.0, kept: Kept | None = None) -> Outcome:
        """Go over the rows once."""
        return self.flow.forward(source, gamma, kept)

    def posterior(self, outcome: Outcome) -> Posterior:
        """Return the posterior after a pass over the rows."""
        return Posterior.of(self, outcome)

    def evaluate(self, source: RowSource, gamma: float = 0.0) -> tuple[Outcome, Gradient]:
        """Return what a pass over the rows found, and the gradient of its value."""
        outcome = self.forward(source, gamma, Kept(self.arithmetic.memory_limit))
        bar = outcome.flow.pull_back(source, outcome, outcome.evidence.sums_adjoint())
        return outcome, Gradient(bar.theta, bar.points, self.noise_variance * bar.noise_variance)
