"""How a row looks to the model: its features, and how cotangents travel back through them.

The latent function of every method is a combination of features: kernels at
basis points, or cosines and sines at spectral points. A new kind of feature
is a class here that fulfils `Features`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from eigengp.kernels import Kernel, KernelAdjoint, PullBack, Stationary
from eigengp.typing import Array


class Features(Protocol):
    """A map from rows to features, with its derivatives."""

    @property
    def prior_variance(self) -> float:
        """`k(x, x)` of the GP that the features approximate."""

    def prior_variance_gradient(self) -> Array:
        """Return the derivative of `k(x, x)` with respect to the kernel's `theta`."""

    def matrix(self, X: Array) -> Array:
        """Return the features of the rows, shape (n, P)."""

    def forward(self, X: Array) -> tuple[Array, PullBack]:
        """Return the features, and the function that pulls a cotangent on them back."""

    def input_gradient(self, X: Array, bar: Array) -> Array:
        """Return `d/dx Σ_p bar_np φ_p(x_n)`, shape (n, D), for `bar` of shape (n, P)."""


def left_out(features: Features, explained: Array) -> Array:
    """Return `k(x_n,x_n) − ‖φ_n‖²`, what `φ_n = Fᵀk_n` leaves out of the prior, shape (n,)."""
    rest: Array = features.prior_variance - np.einsum("nr,nr->n", explained, explained)
    return rest


@dataclass(frozen=True)
class KernelFeatures:
    """`k(x, B)`: one feature for each basis point."""

    kernel: Kernel
    inducing_inputs: Array
    """`B`, shape (M, D)."""

    @property
    def prior_variance(self) -> float:
        """See `Features.prior_variance`."""
        return self.kernel.total_variance

    def prior_variance_gradient(self) -> Array:
        """See `Features.prior_variance_gradient`."""
        return self.kernel.diagonal_theta_gradient()

    def matrix(self, X: Array) -> Array:
        """See `Features.matrix`."""
        return self.kernel.matrix(X, self.inducing_inputs)

    def forward(self, X: Array) -> tuple[Array, PullBack]:
        """See `Features.forward`."""
        return self.kernel.forward(X, self.inducing_inputs)

    def input_gradient(self, X: Array, bar: Array) -> Array:
        """See `Features.input_gradient`: the kernel's pull-back with its arguments exchanged."""
        _, back = self.kernel.forward(self.inducing_inputs, X)
        return back(bar.T).points


@dataclass(frozen=True)
class SpectralFeatures:
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
    def prior_variance(self) -> float:
        """See `Features.prior_variance`; here `‖φ(x)‖²` is just that, everywhere."""
        return self.kernel.total_variance

    def prior_variance_gradient(self) -> Array:
        """See `Features.prior_variance_gradient`."""
        return self.kernel.diagonal_theta_gradient()

    @property
    def _amplitude(self) -> float:
        return float(np.sqrt(self.kernel.variance / self.spectral_points.shape[0]))

    def matrix(self, X: Array) -> Array:
        """See `Features.matrix`."""
        phase = (X / self.kernel.lengthscale) @ self.spectral_points.T
        return self._amplitude * np.hstack([np.cos(phase), np.sin(phase)])

    def forward(self, X: Array) -> tuple[Array, PullBack]:
        """See `Features.forward`; with the cotangent `P̄` of the phases `P = (X/ℓ) Sᵀ`.

        `S̄ = P̄ᵀ(X/ℓ)`, and `d/d ln ℓ_d = −Σ_n (x_nd/ℓ_d)(P̄ S)_nd`.
        """
        Phi = self.matrix(X)

        def pull_back(Phi_bar: Array) -> KernelAdjoint:
            scaled, phase_bar = X / self.kernel.lengthscale, self._phase_bar(Phi, Phi_bar)
            theta = np.zeros(self.kernel.theta.size)
            n_inputs = X.shape[1]
            theta[:n_inputs] = -np.sum(scaled * (phase_bar @ self.spectral_points), axis=0)
            theta[n_inputs] = 0.5 * np.vdot(Phi_bar, Phi)
            return KernelAdjoint(theta, phase_bar.T @ scaled)

        return Phi, pull_back

    def _phase_bar(self, Phi: Array, Phi_bar: Array) -> Array:
        """Return the cotangent of the phases: cosines fall by sines, sines grow by cosines."""
        m = self.spectral_points.shape[0]
        return Phi_bar[:, m:] * Phi[:, :m] - Phi_bar[:, :m] * Phi[:, m:]

    def input_gradient(self, X: Array, bar: Array) -> Array:
        """See `Features.input_gradient`."""
        phase_bar = self._phase_bar(self.matrix(X), bar)
        return (phase_bar @ self.spectral_points) / self.kernel.lengthscale
