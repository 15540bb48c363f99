"""Predictions from the eigenfunctions and the nearest rows together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eigengp._typing import Array
from eigengp.gp.blocks import RowBlock
from eigengp.gp.heteroscedastic import (
    VarianceScale,
    covariates,
    leave_one_out_moments,
)
from eigengp.gp.vecchia import (
    Neighborhoods,
    VecchiaOutcome,
    VecchiaPass,
    innovation_weights,
    solve_stack,
)
from eigengp.kernels import KernelColumns

Search = Callable[[Array], NDArray[np.intp]]
"""Takes inputs (n, D) to the numbers of their nearest rows (n, m), the nearest first."""

_CHUNK = 128
"""For so many inputs at a time gradients are made."""


class Near(NamedTuple):
    """What a few inputs and their neighbours say, before eigenfunctions are integrated out."""

    mean: Array
    """Predictive means, shape (n,)."""
    own: Array
    """`d`, the variance given eigenfunctions and neighbours, noise included, shape (n,)."""
    shared: Array
    """`t = k(x) − Σ_j b_j k(x_j)`, through which the coefficients still matter, (n, M)."""
    explained: Array
    """`Fᵀk(x)`, shape (n, M)."""
    surprise: Array
    """Squares of what each neighbour adds to those nearer, shape (n, m)."""


class Factorized(NamedTuple):
    """Inputs beside their neighbours, with the covariance of all factorised."""

    hoods: Neighborhoods
    K: Array
    """`k(x, B)` of all members, shape (n, s, M)."""
    G: Array
    """`K F`."""
    L: Array
    """The factor of the neighbours' covariance `C`, shape (n, m, m)."""
    b: Array
    """The weights of the neighbours, shape (n, m)."""
    own: Array
    """`d`, shape (n,)."""

    def solved(self, r: Array) -> Array:
        """Return `C⁻¹r`, shape (n, m)."""
        return solve_stack(self.L, solve_stack(self.L, r), transposed=True)


@dataclass(frozen=True)
class VecchiaPosterior:
    """The posterior with a nearest-neighbour residual: coefficients, and the rows that are near.

    `f(x) = k(x)ᵀa + Σ_j b_j (y_j − k(x_j)ᵀa)` with variance `d + tᵀP t`; the residuals at different
    inputs are taken as independent given their neighbours. With `coefficients` the mean is that of
    the full GP, `k(x, X) c`, which also uses rows that are not near; variances stay the same.

    Parameters
    ----------
    flow : VecchiaPass
        Kernel, inducing points and noise.
    mean_coefficients : array of shape (M,)
        `m`.
    covariance_root : array of shape (M, M)
        `V`, with `P = V Vᵀ`.
    rows : RowBlock
        The training rows.
    search : callable
        Finds the nearest of them.
    n_neighbors : int
        How many it finds.
    scale : VarianceScale or None
        The heteroscedastic variance factor.
    coefficients : array of shape (N,) or None
        `c = (k(X, X) + σ²S⁻¹)⁻¹ y`; None where the mean is that of the neighbours.
    """

    flow: VecchiaPass
    mean_coefficients: Array
    covariance_root: Array
    rows: RowBlock
    search: Search
    n_neighbors: int
    scale: VarianceScale | None = None
    coefficients: Array | None = None
    n_columns: int = field(init=False, repr=False)
    """How many numbers a row becomes on the way: features of its own and of neighbours."""
    _all_rows: KernelColumns = field(init=False, repr=False, compare=False)
    """`k(x, X)`."""

    def __post_init__(self) -> None:
        own = self.mean_coefficients.size * (self.n_neighbors + 1)
        n_columns = own if self.coefficients is None else max(own, self.coefficients.size)
        object.__setattr__(self, "n_columns", n_columns)
        object.__setattr__(self, "_all_rows", self.features.kernel.at(self.rows.X))

    @classmethod
    def of(
        cls, outcome: VecchiaOutcome, rows: RowBlock, search: Search, n_neighbors: int
    ) -> VecchiaPosterior:
        """Return the posterior after a pass over the rows."""
        evidence, flow = outcome.evidence, outcome.flow
        assert isinstance(flow, VecchiaPass)
        return cls(flow, evidence.mean, evidence.V, rows, search, n_neighbors)

    @property
    def features(self) -> KernelColumns:
        """The features `k(x, B)`."""
        return self.flow.features

    @property
    def noise_variance(self) -> float:
        """`σ²`."""
        return self.flow.noise_variance

    def _predict(self, X: Array) -> Near:
        """Return what the nearest rows say, with the mean of all rows where it is known."""
        if self.coefficients is None:
            return self.near(X, self.search(X))
        mean = self.mean(X)
        return self.near(X, self.search(X))._replace(mean=mean)

    def near(self, X: Array, index: NDArray[np.intp]) -> Near:
        """Return what inputs and their neighbours, given by their numbers, say."""
        found = self._factorized(X, index)
        missed = self._missed(found)
        mean = found.K[:, -1] @ self.mean_coefficients
        mean += np.einsum("nm,nm->n", found.b, missed)
        surprise = solve_stack(found.L, missed)
        return Near(mean, found.own, _shared(found), found.G[:, -1, :], surprise**2)

    def _factorized(self, X: Array, index: NDArray[np.intp]) -> Factorized:
        hoods = self._hoods(X, index)
        K = self.features.matrix(hoods.rows.X)
        G = (K @ self.flow.prior_factor)[hoods.at]
        R, _ = self.flow.residual.stack(hoods, G)
        L, w = innovation_weights(R)
        b = -w[:, :-1] / w[:, -1:]
        return Factorized(hoods, K[hoods.at], G, L[:, :-1, :-1], b, w[:, -1] ** -2.0)

    def _missed(self, found: Factorized) -> Array:
        """Return what the eigenfunctions miss at the neighbours, shape (n, m)."""
        targets: Array = found.hoods.rows.y[found.hoods.at[:, :-1]]
        return targets - found.K[:, :-1] @ self.mean_coefficients

    def _hoods(self, X: Array, index: NDArray[np.intp]) -> Neighborhoods:
        """Return the inputs as rows of their own, beside those of their neighbours."""
        distinct, back = np.unique(index, return_inverse=True)
        rows, n = self.rows, X.shape[0]
        weight = None
        if rows.sample_weight is not None:
            weight = np.concatenate([rows.sample_weight[distinct], np.ones(n)])
        both = RowBlock(
            np.concatenate([rows.X[distinct], X]),
            np.concatenate([rows.y[distinct], np.zeros(n)]),
            weight,
        )
        own = distinct.size + np.arange(n)[:, None]
        return Neighborhoods(both, np.hstack([back.reshape(index.shape), own]))

    def mean(self, X: Array) -> Array:
        """Return the predictive mean, shape (n,)."""
        if self.coefficients is None:
            return self.near(X, self.search(X)).mean
        return np.asarray(self._all_rows.matrix(X) @ self.coefficients)

    def mean_and_variance(self, X: Array) -> tuple[Array, Array]:
        """Return mean and variance of noisy observations, each of shape (n,)."""
        near = self._predict(X)
        variance = near.own + self._linear(near)
        return near.mean, self._scaled(variance, near)

    def _linear(self, near: Near) -> Array:
        """Return `tᵀP t`, shape (n,)."""
        latent = near.shared @ self.covariance_root
        return np.asarray(np.einsum("nm,nm->n", latent, latent))

    def covariates(self, variance: Array, near: Near) -> Array:
        """Return what the variance factor depends on, shape (n, p)."""
        unit = np.sqrt(self.features.prior_scale)
        # Where all rows are neighbours, a row that is left out has one neighbour less.
        surprise = near.surprise[:, : max(0, self.rows.n_rows - 1)]
        return covariates(variance, surprise, near.explained / unit)

    def _scaled(self, variance: Array, near: Near) -> Array:
        if self.scale is None:
            return variance
        return self.scale(variance, self.covariates(variance, near))

    def leave_one_out(self, rows: RowBlock, index: NDArray[np.intp]) -> tuple[Array, Array, Array]:
        """Return mean, variance and covariates of training rows as if each had been left out.

        The neighbours of a row are others.

        Parameters
        ----------
        rows : RowBlock
            Some of the training rows.
        index : array of shape (n, m)
            The numbers of their neighbours among all, themselves not included.
        """
        near = self.near(rows.X, index)
        linear = self._linear(near)
        mean, variance = leave_one_out_moments(
            rows, near.mean, linear, near.own, self.noise_variance
        )
        return mean, variance, self.covariates(variance, near)

    def joint_covariance(self, X: Array) -> Array:
        """Return the joint covariance of noisy observations at `X`, shape (n, n)."""
        near = self.near(X, self.search(X))
        latent = near.shared @ self.covariance_root
        joint = latent @ latent.T + np.diag(near.own)
        if self.scale is None:
            return joint
        return np.asarray(self.scale.joint(joint, self.covariates(np.diagonal(joint), near)))

    def average(self, X: Array, share: Array) -> tuple[float, float]:
        """See `Predictive.average`; what neighbours leave open is independent between inputs."""
        near = self._predict(X)
        latent = share @ near.shared @ self.covariance_root
        open_ = np.maximum(near.own - self.noise_variance, 0.0)
        return float(share @ near.mean), float(latent @ latent + share**2 @ open_)

    def functions(self, n_samples: int, rng: np.random.RandomState) -> Callable[[Array], Array]:
        """Draw latent functions at all inputs together; the result maps (n, D) to (n, S)."""

        def values(X: Array) -> Array:
            near = self._predict(X)
            latent = near.shared @ self.covariance_root
            drawn = latent @ rng.standard_normal((latent.shape[1], n_samples))
            own = np.sqrt(np.maximum(near.own - self.noise_variance, 0.0))
            drawn += own[:, None] * rng.standard_normal(drawn.shape)
            return near.mean[:, None] + drawn

        return values

    def mean_gradient(self, X: Array) -> Array:
        """Return `d mean/d x` with the neighbours held, shape (n, D).

        With `α = C⁻¹(y − f)` at the neighbours, `C` their covariance, the mean is
        `k(x)ᵀ(m − F Gᵀα) + Σ_j α_j k(x, x_j)`; with `coefficients` it is `k(x, X) c`.
        """
        return self._by_chunk(self._mean_gradient, X)

    def _mean_gradient(self, X: Array) -> Array:
        if self.coefficients is not None:
            bar = np.broadcast_to(self.coefficients, (X.shape[0], self.coefficients.size))
            return np.asarray(self._all_rows.input_gradient(X, bar))
        found = self._factorized(X, self.search(X))
        alpha = found.solved(self._missed(found))
        return self._pulled(X, found, alpha, np.tile(self.mean_coefficients, (X.shape[0], 1)))

    def variance_gradient(self, X: Array) -> Array:
        """Return `d variance/d x` with the neighbours held, shape (n, D).

        With `q = 2P t`, `c̄ = −2b − C⁻¹K_S q` is the cotangent of the residual's covariance with
        the neighbours, and `q − 2 F Fᵀk(x)` that of `k(x)` itself.
        """
        gradient = self._by_chunk(self._variance_gradient, X)
        if self.scale is None:
            return gradient
        variance = replace(self, scale=None, coefficients=None).mean_and_variance(X)[1]
        return self.scale.pull_back(variance, gradient)

    def _variance_gradient(self, X: Array) -> Array:
        found = self._factorized(X, self.search(X))
        q = 2.0 * (_shared(found) @ self.covariance_root) @ self.covariance_root.T
        through = (found.K[:, :-1] @ q[:, :, None])[:, :, 0]
        k_bar = q - 2.0 * found.G[:, -1] @ self.flow.prior_factor.T
        gradient = self._pulled(X, found, -2.0 * found.b - found.solved(through), k_bar)
        if self.features.kernel.constant_diagonal is None:
            gradient += (1.0 + self.flow.jitter) * self.features.kernel.diag_input_gradient(X)
        return gradient

    def _pulled(self, X: Array, found: Factorized, c_bar: Array, k_bar: Array) -> Array:
        """Return what the cotangents of `k_r(x, x_j)` and `k(x)` give to the inputs."""
        k_bar = k_bar - _combined(c_bar, found.G[:, :-1]) @ self.flow.prior_factor.T
        others = found.hoods.rows.X[: -X.shape[0]]
        between = np.zeros((X.shape[0], others.shape[0]))
        np.put_along_axis(between, found.hoods.index[:, :-1], c_bar, axis=1)
        near = self.features.kernel.at(others)
        return self.features.input_gradient(X, k_bar) + near.input_gradient(X, between)

    def _by_chunk(self, function: Callable[[Array], Array], X: Array) -> Array:
        parts = [function(X[i : i + _CHUNK]) for i in range(0, X.shape[0], _CHUNK)]
        return np.concatenate(parts) if parts else np.empty_like(X)


def _shared(found: Factorized) -> Array:
    """Return `t = k(x) − Σ_j b_j k(x_j)`, shape (n, M)."""
    own: Array = found.K[:, -1]
    return own - _combined(found.b, found.K[:, :-1])


def _combined(weights: Array, members: Array) -> Array:
    """Return `Σ_j w_j k_j` of each neighbourhood, shape (n, M)."""
    return np.asarray((weights[:, None, :] @ members)[:, 0, :])
