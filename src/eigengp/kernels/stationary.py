"""Stationary kernels `k(x, z) = variance · ρ(t)` with `t = Σ_d (x_d − z_d)²/ℓ_d²`.

A new one is a class with its profile ρ(t) and its slope dρ/dt, like `Matern32`.
A kernel with a parameter of its own declares a field for it and adds its
derivative, like `RationalQuadratic`.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, beside, cast, is_numpy, namespace
from eigengp.kernels.base import (
    LENGTHSCALE,
    SHAPE,
    VARIANCE,
    ParametricKernel,
    StackPullBack,
    parameter,
)
from eigengp.kernels.cross_covariance import ExponentialColumns, KernelColumns, StationaryColumns

_COINCIDENT = 1e-14
"""Where `t` is no more than rounding, points coincide."""


class Stationary(ParametricKernel):
    """The part that all stationary kernels share: distances, parameters, pull-back.

    Parameters
    ----------
    lengthscale : float or array of shape (D,)
        One number is shared by all inputs; an array gives each its own
        (automatic relevance determination).
    variance : float
        The prior variance `k(x, x)`.
    active_dims : sequence of int or None
        The inputs that the kernel sees; None is all of them.
    """

    lengthscale: float | Array = parameter(LENGTHSCALE, default=1.0)
    variance: float = parameter(VARIANCE, default=1.0)

    @abstractmethod
    def profile(self, t: AnyArray) -> AnyArray:
        """Return the profile ρ(t), with ρ(0) = 1, in a new array."""

    @abstractmethod
    def slope(self, t: AnyArray, rho: AnyArray) -> AnyArray:
        """Return dρ/dt, given ρ(t)."""

    def shape_slopes(self, t: AnyArray, rho: AnyArray) -> tuple[AnyArray, ...]:
        """Return dρ/d ln p for each parameter `p` beyond lengthscale and variance, in order."""
        return ()

    def mixture(self, count: int, rng: np.random.RandomState) -> Array:
        """Draw `count` values τ with `E exp(−τt/2) = ρ(t)`: mixed squared exponentials.

        Optional: only a sparse spectrum GP asks for it.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no method `mixture`, which a sparse spectrum GP needs. "
            "Add one, or use another kernel."
        )

    def draw_frequencies(self, count: int, n_features: int, rng: np.random.RandomState) -> Array:
        """Draw from the spectral density, in units of 1/lengthscale, shape (count, n_features).

        The density of a squared exponential is Gaussian, and that of a
        mixture of them the mixture of Gaussians of variance τ.
        """
        if self.active_dims is not None:
            raise ValueError(
                f"A sparse spectrum GP needs a kernel of all inputs; {type(self).__name__} has "
                f"active_dims={self.active_dims}. Use EigenGPRegressor, or drop the other inputs."
            )
        scale = np.sqrt(self.mixture(count, rng))
        return scale[:, None] * rng.standard_normal((count, n_features))

    @property
    def constant_diagonal(self) -> float:
        return self.variance

    def diag(self, X: AnyArray) -> AnyArray:
        if is_numpy(X):
            return np.full(X.shape[0], self.variance)
        xp = namespace(X)
        return cast(xp.sum(xp.zeros_like(X), axis=1), "float64") + self.variance

    def diag_pull_back(self, X: AnyArray, bar: AnyArray) -> AnyArray:
        gradient = np.zeros(self.theta.size)
        gradient[np.size(self.lengthscale)] = self.variance
        return namespace(bar).sum(bar) * beside(gradient, bar)

    def diag_input_gradient(self, X: AnyArray) -> AnyArray:
        return namespace(X).zeros_like(X)

    def _metric(self, n_active: int) -> Array:
        return np.asarray(1.0 / np.asarray(self.lengthscale))

    def _columns(self, Z: AnyArray) -> KernelColumns:
        return StationaryColumns(self, Z)

    def _stack(self, X: Array) -> tuple[Array, StackPullBack]:
        """Return `k(x_i, x_j)` within each of `n` sets of `s` points, and the pull-back to `theta`.

        Distances are taken from each set's last point, so that they keep their digits.
        With `W = K̄ ∘ dk/dt`, symmetric, `t_ij = Σ_d (z_id − z_jd)²` and `z = x/ℓ`,
        `d/d ln ℓ_d = −2 Σ_ij W_ij (z_id − z_jd)² = −4 Σ_i z_id [(W1)_i z_id − (W z_d)_i]`.

        Parameters
        ----------
        X : array of shape (n, s, D)
            The sets.
        """
        Z = (X - X[:, -1:, :]) / self.lengthscale
        squares = np.einsum("nsd,nsd->ns", Z, Z)
        t = -2.0 * Z @ Z.transpose(0, 2, 1)
        t += squares[:, :, None]
        t += squares[:, None, :]
        np.maximum(t, 0.0, out=t)
        diagonal = np.arange(t.shape[1])
        t[:, diagonal, diagonal] = 0.0
        rho = self.profile(t)
        K = self.variance * rho

        def pull_back(K_bar: Array) -> Array:
            K_bar = self.variance * K_bar
            W = K_bar * self.slope(t, rho)
            lengths = np.einsum("ns,nsd,nsd->d", W.sum(axis=2), Z, Z)
            lengths -= np.einsum("nsd,nsd->d", W @ Z, Z)
            if np.ndim(self.lengthscale) == 0:
                lengths = np.array([lengths.sum()])
            shapes = [np.vdot(K_bar, each) for each in self.shape_slopes(t, rho)]
            return np.concatenate([-4.0 * lengths, [np.vdot(K_bar, rho)], shapes])

        return K, pull_back

    def reach(self, depth: float) -> float:
        """Return the `t` at which the profile has fallen to about exp(−depth); infinite if slow."""
        return float("inf")


class SquaredExponential(Stationary):
    """The paper's ARD kernel, `variance · exp(−½ Σ_d (x_d − z_d)²/ℓ_d²)`.

    In the paper's letters `a0 = variance` and `η_d = 1/(2ℓ_d²)`.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp.kernels import SquaredExponential
    >>> kernel = SquaredExponential(lengthscale=2.0, variance=3.0)
    >>> kernel(np.array([[0.0]]), np.array([[0.0], [2.0]])).round(4)
    array([[3.    , 1.8196]])
    """

    def profile(self, t: AnyArray) -> AnyArray:
        return namespace(t).exp(-0.5 * t)

    def slope(self, t: AnyArray, rho: AnyArray) -> AnyArray:
        return -0.5 * rho

    def _columns(self, Z: AnyArray) -> KernelColumns:
        return ExponentialColumns(self, Z)

    def reach(self, depth: float) -> float:
        return 2.0 * depth

    def mixture(self, count: int, rng: np.random.RandomState) -> Array:
        return np.ones(count)


class Matern12(Stationary):
    """The exponential kernel `variance · exp(−√t)`: continuous, rough functions.

    Its slope is infinite at t = 0; coinciding points pull back zero.
    """

    def profile(self, t: AnyArray) -> AnyArray:
        xp = namespace(t)
        return xp.exp(-xp.sqrt(xp.where(t > _COINCIDENT, t, 0.0 * t)))

    def slope(self, t: AnyArray, rho: AnyArray) -> AnyArray:
        xp = namespace(t)
        apart = t > _COINCIDENT
        return xp.where(apart, -0.5 * rho / xp.sqrt(xp.where(apart, t, 1.0 + t)), 0.0 * rho)

    def reach(self, depth: float) -> float:
        return depth**2

    def mixture(self, count: int, rng: np.random.RandomState) -> Array:
        return 1.0 / rng.chisquare(1, count)


class Matern32(Stationary):
    """`variance · (1 + s) exp(−s)`, `s = √(3t)`: functions with one derivative."""

    def profile(self, t: AnyArray) -> AnyArray:
        xp = namespace(t)
        s = xp.sqrt(3.0 * t)
        return (1.0 + s) * xp.exp(-s)

    def slope(self, t: AnyArray, rho: AnyArray) -> AnyArray:
        return -1.5 * rho / (1.0 + namespace(t).sqrt(3.0 * t))

    def reach(self, depth: float) -> float:
        return depth**2 / 3.0

    def mixture(self, count: int, rng: np.random.RandomState) -> Array:
        return 3.0 / rng.chisquare(3, count)


class Matern52(Stationary):
    """`variance · (1 + s + s²/3) exp(−s)`, `s = √(5t)`: functions with two derivatives."""

    def profile(self, t: AnyArray) -> AnyArray:
        xp = namespace(t)
        s = xp.sqrt(5.0 * t)
        return (1.0 + s + s * s / 3.0) * xp.exp(-s)

    def slope(self, t: AnyArray, rho: AnyArray) -> AnyArray:
        s = namespace(t).sqrt(5.0 * t)
        return (-5.0 / 6.0) * rho * (1.0 + s) / (1.0 + s + s * s / 3.0)

    def reach(self, depth: float) -> float:
        return depth**2 / 5.0

    def mixture(self, count: int, rng: np.random.RandomState) -> Array:
        return 5.0 / rng.chisquare(5, count)


class RationalQuadratic(Stationary):
    """`variance · (1 + t/(2α))^(−α)`: squared exponentials of many lengthscales at once.

    Parameters
    ----------
    lengthscale : float or array of shape (D,)
        As in every stationary kernel.
    variance : float
        As in every stationary kernel.
    alpha : float
        How alike those lengthscales are; α → ∞ is the squared exponential.
    """

    alpha: float = parameter(SHAPE, default=1.0)

    def profile(self, t: AnyArray) -> AnyArray:
        xp = namespace(t)
        return xp.exp(-self.alpha * xp.log1p(t / (2.0 * self.alpha)))

    def slope(self, t: AnyArray, rho: AnyArray) -> AnyArray:
        return -0.5 * rho / (1.0 + t / (2.0 * self.alpha))

    def shape_slopes(self, t: AnyArray, rho: AnyArray) -> tuple[AnyArray, ...]:
        u = t / (2.0 * self.alpha)
        return (self.alpha * rho * (u / (1.0 + u) - namespace(t).log1p(u)),)

    def mixture(self, count: int, rng: np.random.RandomState) -> Array:
        return rng.gamma(self.alpha, 1.0 / self.alpha, count)
