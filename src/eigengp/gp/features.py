"""How a row looks to the model: its features, and how cotangents travel back through them.

The latent function of every method is a combination of features: kernels at
inducing points, or cosines and sines at spectral points. A new kind of feature
is a class here that fulfils `Features`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, beside, cast, namespace, row_dots, times
from eigengp.kernels import Columns, Kernel, KernelAdjoint, PullBack, Stationary


class Features(Columns, Protocol):
    """A map from rows to features, with its derivatives: columns that know of a prior."""

    @property
    def constant_diagonal(self) -> float | None:
        """`k(x, x)` of the GP that the features approximate, where it does not vary; else None."""

    @property
    def prior_scale(self) -> float:
        """A typical value of `k(x, x)`."""

    def prior_variance(self, X: AnyArray) -> AnyArray | float:
        """Return `k(x_n, x_n)`: one number where it does not vary, else an array of shape (n,)."""

    def diag_pull_back(self, X: AnyArray, bar: AnyArray) -> AnyArray:
        """Return the derivative of `Σ_n bar_n k(x_n, x_n)` by the kernel's `theta`."""

    def diag_input_gradient(self, X: AnyArray) -> AnyArray:
        """Return the derivative of `k(x_n, x_n)` by `x_n`, shape (n, D)."""

    @property
    def size(self) -> int:
        """P, how many features a row has."""

    def input_gradient(self, X: AnyArray, bar: AnyArray) -> AnyArray:
        """Return `d/dx Σ_p bar_np φ_p(x_n)`, shape (n, D), for `bar` of shape (n, P)."""


def left_out(features: Features, X: AnyArray, explained: AnyArray) -> AnyArray:
    """Return `k(x_n,x_n) − ‖φ_n‖²`, what `φ_n = Fᵀk_n` leaves out of the prior, shape (n,)."""
    return features.prior_variance(X) - row_dots(explained, explained)


class _OfKernel:
    """The prior variance of features, which is that of a kernel."""

    kernel: Kernel

    @property
    def constant_diagonal(self) -> float | None:
        """See `Features.constant_diagonal`."""
        return self.kernel.constant_diagonal

    def prior_variance(self, X: AnyArray) -> AnyArray | float:
        """See `Features.prior_variance`."""
        constant = self.kernel.constant_diagonal
        return self.kernel.diag(X) if constant is None else constant

    def diag_pull_back(self, X: AnyArray, bar: AnyArray) -> AnyArray:
        """See `Features.diag_pull_back`."""
        return self.kernel.diag_pull_back(X, bar)

    def diag_input_gradient(self, X: AnyArray) -> AnyArray:
        """See `Features.diag_input_gradient`."""
        return self.kernel.diag_input_gradient(X)


@dataclass(frozen=True)
class KernelFeatures(_OfKernel):
    """`k(x, B)`: one feature for each inducing point."""

    kernel: Kernel
    inducing_points: Array
    """`B`, shape (M, D)."""

    @property
    def prior_scale(self) -> float:
        """See `Features.prior_scale`; the mean over the inducing points where it varies."""
        constant = self.kernel.constant_diagonal
        return (
            float(np.mean(self.kernel.diag(self.inducing_points))) if constant is None else constant
        )

    def prior_scale_pull_back(self, bar: float) -> KernelAdjoint:
        """Return what the cotangent of `prior_scale` gives to kernel and inducing points."""
        kernel, B = self.kernel, self.inducing_points
        if kernel.constant_diagonal is not None:
            return KernelAdjoint(kernel.diag_pull_back(B[:1], np.array([bar])), np.zeros_like(B))
        share = bar / B.shape[0]
        theta = kernel.diag_pull_back(B, np.full(B.shape[0], share))
        return KernelAdjoint(theta, share * kernel.diag_input_gradient(B))

    @property
    def size(self) -> int:
        """See `Features.size`."""
        return int(self.inducing_points.shape[0])

    @property
    def kept_arrays(self) -> int:
        """See `Columns.kept_arrays`."""
        return self.columns.kept_arrays

    @cached_property
    def columns(self) -> Columns:
        """The functions `x ↦ k(x, b_m)`."""
        return self.kernel.at(self.inducing_points)

    def matrix(self, X: AnyArray, dtype: str = "float64", spare: int = 0) -> AnyArray:
        """See `Columns.matrix`."""
        return self.columns.matrix(X, dtype, spare)

    def forward(
        self, X: AnyArray, dtype: str = "float64", spare: int = 0
    ) -> tuple[AnyArray, PullBack]:
        """See `Columns.forward`."""
        return self.columns.forward(X, dtype, spare)

    def input_gradient(self, X: AnyArray, bar: AnyArray) -> AnyArray:
        """See `Features.input_gradient`: the kernel's pull-back with its arguments exchanged."""
        _, back = self.kernel.forward(beside(self.inducing_points, X), X)
        return back(bar.T).points


@dataclass(frozen=True)
class SpectralFeatures(_OfKernel):
    """`√(a/m) [cos(S x/ℓ), sin(S x/ℓ)]` at `m` spectral points: 2m features with a white prior.

    `φ(x)ᵀφ(z) = (a/m) Σ_r cos(s_rᵀ(x − z)/ℓ)` is a Monte Carlo estimate of a
    stationary kernel of variance `a` whose spectral density the `s_r/ℓ` are
    drawn from; integrating out the weights of both cosine and sine
    integrates out amplitude and phase.
    """

    kernel: Stationary
    """Gives lengthscales, one for each input, and the variance `a`."""
    spectral_points: Array
    """`S`, angular frequencies in units of the inverse lengthscales, shape (m, D)."""

    @property
    def prior_scale(self) -> float:
        """See `Features.prior_scale`; here `‖φ(x)‖²` is just that, everywhere."""
        return self.kernel.variance

    @property
    def _amplitude(self) -> float:
        return float(np.sqrt(self.kernel.variance / self.spectral_points.shape[0]))

    @property
    def size(self) -> int:
        """See `Features.size`."""
        return 2 * int(self.spectral_points.shape[0])

    @property
    def kept_arrays(self) -> int:
        """See `Columns.kept_arrays`."""
        return 1

    def matrix(self, X: AnyArray, dtype: str = "float64", spare: int = 0) -> AnyArray:
        """See `Columns.matrix`; phases are formed in float64, for they may be many turns."""
        xp = namespace(X)
        phase = cast(self._scaled(X) @ beside(self.spectral_points, X).T, dtype)
        room = xp.zeros_like(phase[:, :spare])
        Phi = xp.concat([xp.cos(phase), xp.sin(phase), room], axis=1)
        Phi *= self._amplitude
        return Phi

    def _scaled(self, X: AnyArray) -> AnyArray:
        """Return rows divided by the lengthscales."""
        return X / beside(np.asarray(self.kernel.lengthscale), X)

    def forward(
        self, X: AnyArray, dtype: str = "float64", spare: int = 0
    ) -> tuple[AnyArray, PullBack]:
        """See `Columns.forward`; with the cotangent `P̄` of the phases `P = (X/ℓ) Sᵀ`.

        `S̄ = P̄ᵀ(X/ℓ)`, and `d/d ln ℓ_d = −Σ_n (x_nd/ℓ_d)(P̄ S)_nd`.
        """
        Phi = self.matrix(X, dtype, spare)

        def pull_back(
            Phi_bar: AnyArray, overwrite: bool = False, K: AnyArray | None = None
        ) -> KernelAdjoint:
            xp, scaled, phase_bar = namespace(X), self._scaled(X), self._phase_bar(Phi, Phi_bar)
            points_bar = cast(phase_bar.T @ cast(scaled, dtype), "float64")
            lengths = -xp.sum(points_bar * beside(self.spectral_points, X), axis=0)
            product = times(Phi_bar, Phi[:, : self.size], overwrite)
            variance = 0.5 * xp.sum(product, dtype=xp.float64)
            theta = xp.concat([lengths, xp.reshape(variance, (1,))])
            rest = xp.zeros(self.kernel.theta.size - theta.shape[0], device=X.device)
            return KernelAdjoint(xp.concat([theta, cast(rest, "float64")]), points_bar)

        return Phi, pull_back

    def _phase_bar(self, Phi: AnyArray, Phi_bar: AnyArray) -> AnyArray:
        """Return the cotangent of the phases: cosines fall by sines, sines grow by cosines."""
        m = self.spectral_points.shape[0]
        return Phi_bar[:, m:] * Phi[:, :m] - Phi_bar[:, :m] * Phi[:, m : 2 * m]

    def input_gradient(self, X: AnyArray, bar: AnyArray) -> AnyArray:
        """See `Features.input_gradient`."""
        phase_bar = self._phase_bar(self.matrix(X), bar)
        return self._scaled(phase_bar @ beside(self.spectral_points, X))
