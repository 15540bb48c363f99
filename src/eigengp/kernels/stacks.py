"""Many small Gram matrices at once, with their pull-back: a kernel within neighbourhoods."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from eigengp._typing import Array

if TYPE_CHECKING:
    from eigengp.kernels.stationary import Stationary

StackPullBack = Callable[[Array], Array]
"""Takes symmetric cotangents of shape (n, s, s) to the derivatives by `theta`."""


def stationary_stack(kernel: Stationary, X: Array) -> tuple[Array, StackPullBack]:
    """Return `k(x_i, x_j)` within each of `n` sets of `s` points, and the pull-back to `theta`.

    Distances are taken from each set's last point, so that they keep their digits.
    With `W = K̄ ∘ dk/dt`, symmetric, `t_ij = Σ_d (z_id − z_jd)²` and `z = x/ℓ`,
    `d/d ln ℓ_d = −2 Σ_ij W_ij (z_id − z_jd)² = −4 Σ_i z_id [(W1)_i z_id − (W z_d)_i]`.

    Parameters
    ----------
    kernel : Stationary
        Gives profile and slope.
    X : array of shape (n, s, D)
        The sets.
    """
    Z = (X - X[:, -1:, :]) / kernel.lengthscale
    squares = np.einsum("nsd,nsd->ns", Z, Z)
    t = -2.0 * Z @ Z.transpose(0, 2, 1)
    t += squares[:, :, None]
    t += squares[:, None, :]
    np.maximum(t, 0.0, out=t)
    diagonal = np.arange(t.shape[1])
    t[:, diagonal, diagonal] = 0.0
    rho = kernel.profile(t)
    K = kernel.variance * rho

    def pull_back(K_bar: Array) -> Array:
        K_bar = kernel.variance * K_bar
        W = K_bar * kernel.slope(t, rho)
        lengths = np.einsum("ns,nsd,nsd->d", W.sum(axis=2), Z, Z)
        lengths -= np.einsum("nsd,nsd->d", W @ Z, Z)
        if np.ndim(kernel.lengthscale) == 0:
            lengths = np.array([lengths.sum()])
        shapes = [np.vdot(K_bar, each) for each in kernel.shape_slopes(t, rho)]
        return np.concatenate([-4.0 * lengths, [np.vdot(K_bar, rho)], shapes])

    return K, pull_back
