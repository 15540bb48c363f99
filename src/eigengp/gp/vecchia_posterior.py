"""Predictions from the eigenfunctions and the nearest rows together."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eigengp._typing import Array
from eigengp.backend.loops import find_loops, load_loops
from eigengp.backend.namespace import AnyArray, Placed, beside, cast, is_numpy, namespace, place
from eigengp.backend.threads import map_in_threads, recycle
from eigengp.gp.blocks import RowBlock
from eigengp.gp.heteroscedastic import VarianceScale, covariates
from eigengp.gp.linalg import leave_one_out_moments
from eigengp.gp.vecchia import VecchiaOutcome, VecchiaPass, solve_stack
from eigengp.kernels import KernelColumns
from eigengp.kernels.composite import KernelProduct, describe_terms

# Takes inputs (n, D) to the numbers of their nearest rows (n, m), the nearest first.
Search = Callable[[AnyArray], AnyArray]

_CHUNK = 128  # For so many inputs at a time gradients are made.
# The number of inputs that are treated at once, and of training rows whose covariance with them is
# made at once: what belongs to them then stays in the cache of the processor.
_AT_ONCE, _COLUMNS = 96, 1_024
_BLOCK = 512  # The number of training rows whose features are made at once.
_ON_DEVICE = 8_192  # All of these numbers on a device.
# The largest rounding of features, relative to the noise variance, that does not show.
_LITTLE = 1e-3
_MANY_FEATURES = 1_000_000  # More features than fit into the cache of the processor are rounded.
# The largest memory of features of all training rows that are kept, in bytes.
_MOST_BYTES, _MOST_ON_DEVICE = 200_000_000, 4_000_000_000


class Near(NamedTuple):
    """What a few inputs and their neighbours say, before eigenfunctions are integrated out."""

    mean: Array  # Predictive means, shape (n,).
    own: Array  # `d`, the variance given eigenfunctions and neighbours, noise included, shape (n,).
    # `Vᵀt`, `t = k(x) − Σ_j b_j k(x_j)`, through which the coefficients still matter, (n, M).
    latent: Array
    explained: Array  # `g = Fᵀk(x)`, in units of the prior's standard deviation, shape (n, M).
    linear: Array  # `tᵀP t`, the variance that the coefficients add, shape (n,).
    surprise: Array  # Squares of what each neighbour adds to those nearer, shape (n, m).


class Members(NamedTuple):
    """Training rows that may be neighbours."""

    X: Array  # The inputs of each, shape (N, D).
    G: Array  # `Fᵀk` of each, shape (N, M).
    fitted: Array  # `k·m`, what the eigenfunctions say at each, shape (N,).


class Factorized(NamedTuple):
    """Inputs beside their neighbours, with the covariance of all factorised."""

    rows: NDArray[np.intp]  # The numbers of the neighbours among the training rows, shape (n, m).
    at: NDArray[np.intp]  # The same in the table of members.
    members: Members
    K: Array  # `k(x)`, shape (n, M).
    g: Array  # `g = Fᵀk(x)`.
    L: Array  # The packed factors of neighbours and input, of which the input is the last, (n, P).
    b: Array  # The weights of the neighbours, shape (n, m).
    own: Array  # `d`, shape (n,).
    t: Array  # `g − Σ_j b_j g_j`, which is `Fᵀt`, shape (n, M).
    missed: Array  # What the eigenfunctions miss at the neighbours, shape (n, m).


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

    # How many numbers a row becomes on the way: pairs of neighbours, or features.
    n_columns: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        s = self.n_neighbors + 1
        n_columns = max(2 * s * (s + 1), s * self.rows.X.shape[1], self.mean_coefficients.size)
        object.__setattr__(self, "n_columns", max(n_columns, _COLUMNS))

    @cached_property
    def _dtype(self) -> str:
        """The type of features in NumPy: float32 if they are many and rounding is below noise."""
        rounding = float(np.finfo(np.float32).eps) * self.flow.features.prior_scale
        many = self.rows.y.size * self.mean_coefficients.size > _MANY_FEATURES
        rounded = many and rounding < _LITTLE * self.flow.noise_variance
        return "float32" if rounded else "float64"

    def __getstate__(self) -> dict[str, Any]:
        """Keep the fields alone: the rest can be made again."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def of(
        cls, outcome: VecchiaOutcome, rows: RowBlock, search: Search, n_neighbors: int
    ) -> VecchiaPosterior:
        """Return the posterior after a pass over the rows."""
        assert isinstance(outcome.flow, VecchiaPass)
        return cls(outcome.flow, *outcome.coefficients, rows, search, n_neighbors)

    def refine(self, **changes: Any) -> VecchiaPosterior:
        """Return the posterior with another `scale` or other `coefficients`.

        What was made of the training rows is kept.
        """
        found = replace(self, **changes)
        vars(found).update(vars(self) | changes)
        vars(found).pop("_product", None)
        return found

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

    def near(self, X: AnyArray, index: AnyArray) -> Near:
        """Return what inputs and their neighbours, given by their numbers, say."""
        return Near(*_in_blocks(self._near, X, index))

    def _near(self, X: AnyArray, index: AnyArray) -> Near:
        found = self._factorize(X, index, self._dtype if is_numpy(X) else "float64")
        xp = namespace(X)
        surprise = xp.asarray(found.missed, copy=True)
        find_loops(X).solve(found.L, surprise, False)
        recycle(found.L)
        # Where all rows are neighbours, a row that is left out has one neighbour less.
        surprise = surprise[:, : max(0, self.rows.y.size - 1)] ** 2
        mean = found.K @ self._placed["mean"].beside(found.K)
        mean += xp.vecdot(found.b, found.missed)
        latent = found.t @ self._placed["root"].beside(found.t)
        linear = cast(xp.vecdot(latent, latent), "float64")
        explained = found.g / np.sqrt(self.features.prior_scale)
        return Near(mean, found.own, latent, explained, linear, surprise)

    def _factorize(self, X: AnyArray, index: AnyArray, dtype: str = "float64") -> Factorized:
        placed, xp = self._placed, namespace(X)
        members, at = self._find_members(X, index, dtype)
        K = self.flow.evaluate_features(X)
        K = np.ascontiguousarray(K) if is_numpy(K) else K
        g = K @ placed["factor"].beside(K)
        own = xp.full_like(K[:, :1], self.flow.noise_variance)
        noise = xp.concat([placed["noise"].beside(K)[index], own], axis=1)
        w = xp.empty_like(noise)
        g_own = cast(g, dtype)
        t = xp.empty_like(g_own)
        L = self.flow.whiten(members.X, at, noise, members.G, w, t, (X, g_own))
        last = w[:, -1:]
        t /= cast(last, dtype)
        missed = placed["y"].beside(K)[index] - members.fitted[at]
        return Factorized(
            *(index, at, members, K, g, L, -w[:, :-1] / last, last[:, 0] ** -2.0, t, missed)
        )

    def _find_members(self, X: AnyArray, index: AnyArray, dtype: str) -> tuple[Members, AnyArray]:
        """Return features of training rows, all of them if they are few, and the numbers there."""
        rows, host = self._placed["X"].beside(X), is_numpy(X)
        if self._count_bytes(dtype) > (_MOST_BYTES if host else _MOST_ON_DEVICE):
            distinct, at = namespace(index).unique_inverse(index)
            return self._make_members(rows[distinct], dtype), at.reshape(index.shape)
        key = (place(X), dtype)
        with self._making:  # Threads would make them once each.
            if key not in self._members:
                self._members[key] = self._make_members(rows, dtype)
        return self._members[key], np.ascontiguousarray(index) if host else index

    def _count_bytes(self, dtype: str) -> int:
        """Return the memory of the features of all training rows."""
        return self.rows.y.size * self.mean_coefficients.size * np.dtype(dtype).itemsize

    def prepare(self, n_threads: int) -> None:
        """Make the features of all training rows that predictions will need, in threads."""
        X = self.rows.X
        if self._count_bytes(self._dtype) <= _MOST_BYTES:
            self._members[place(X), self._dtype] = self._make_members(X, self._dtype, n_threads)

    @cached_property
    def _members(self) -> dict[Hashable, Members]:
        """Those of all training rows, by place and type."""
        return {}

    @cached_property
    def _making(self) -> Any:
        return Lock()

    def _make_members(self, X: AnyArray, dtype: str, n_threads: int = 1) -> Members:
        n, step = X.shape[0], _BLOCK if is_numpy(X) else _ON_DEVICE
        xp = namespace(X)
        shape, fitted = (n, self.mean_coefficients.size), xp.empty_like(X[:, 0])
        G = xp.empty(shape, dtype=getattr(xp, dtype), device=X.device)

        def fill(rows: slice) -> None:
            K = self.features.matrix(X[rows])
            G[rows] = K @ self._placed["factor"].beside(K)
            fitted[rows] = K @ self._placed["mean"].beside(K)

        map_in_threads(fill, [slice(i, i + step) for i in range(0, n, step)], n_threads)
        return Members(np.ascontiguousarray(X) if is_numpy(X) else X, G, fitted)

    @cached_property
    def _placed(self) -> dict[str, Placed]:
        """What predictions need where the inputs are; "root" is `F⁻¹V`."""
        noise, weight = np.full(self.rows.y.shape, self.noise_variance), self.rows.sample_weight
        arrays = {
            "X": self.rows.X,
            "y": self.rows.y,
            "noise": noise if weight is None else noise / weight,
            "factor": self.flow.factor.matrix,
            "mean": self.mean_coefficients,
            "root": self._whitened_root,
        }
        return {name: Placed(array) for name, array in arrays.items()}

    @cached_property
    def _whitened_root(self) -> Array:
        """`F⁻¹V`, so that `Vᵀk = (F⁻¹V)ᵀg`, shape (M, M)."""
        return np.asarray(self.flow.factor.L.T @ self.covariance_root)

    @cached_property
    def _columns(self) -> list[tuple[KernelColumns, slice]]:
        """`k(x, X)`, in blocks of training rows."""
        n, kernel = self.rows.y.size, self.features.kernel
        parts = [slice(i, min(i + _COLUMNS, n)) for i in range(0, n, _COLUMNS)]
        return [(kernel.at(self.rows.X[part]), part) for part in parts]

    def mean(self, X: AnyArray) -> AnyArray:
        """Return the predictive mean, shape (n,)."""
        if self.coefficients is None:
            return self.near(X, self.search(X)).mean
        if is_numpy(X) and self._product is not None:
            return self._product(X)
        mean, step = 0.0 * X[:, 0], _AT_ONCE if is_numpy(X) else _ON_DEVICE
        for i in range(0, X.shape[0], step):
            own = slice(i, i + step)
            for columns, part in self._columns:
                K = columns.matrix(X[own])
                mean[own] += K @ beside(self.coefficients[part], K)
                recycle(K)
        return mean

    @cached_property
    def _product(self) -> KernelProduct | None:
        """The mean by compiled loops, if they know the kernel."""
        if self.coefficients is None or not hasattr(load_loops(), "multiply"):
            return None
        X, noise = self.rows.X, float(np.sqrt(self.flow.noise_variance))
        terms = describe_terms(self.features.kernel, X.shape[1])
        return None if terms is None else KernelProduct(terms, X, self.coefficients, noise)

    def mean_and_variance(self, X: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Return mean and variance of noisy observations, each of shape (n,)."""
        of_all = None if self.coefficients is None else self.mean(X)
        mean, variance = _in_blocks(self._moments, X, self.search(X))
        return mean if of_all is None else of_all, variance

    def _moments(self, X: AnyArray, index: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Return the mean from the neighbours, and the variance of noisy observations."""
        near = self._near(X, index)
        variance = near.own + near.linear
        if self.scale is not None:
            variance = self.scale(variance, covariates(variance, near.surprise, near.explained))
        return near.mean, variance

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
        mean, variance = leave_one_out_moments(
            rows, near.mean, near.linear, near.own, self.flow.noise_variance
        )
        return mean, variance, covariates(variance, near.surprise, near.explained)

    def joint_covariance(self, X: Array) -> Array:
        """Return the joint covariance of noisy observations at `X`, shape (n, n)."""
        near = self.near(X, self.search(X))
        joint = near.latent @ near.latent.T + np.diag(near.own)
        if self.scale is None:
            return joint
        found = covariates(np.diagonal(joint), near.surprise, near.explained)
        return np.asarray(self.scale.joint(joint, found))

    def average(self, X: Array, share: Array) -> tuple[float, float]:
        """See `Predictive.average`; what neighbours leave open is independent between inputs."""
        near = self._predict(X)
        latent = share @ near.latent
        open_ = np.maximum(near.own - self.noise_variance, 0.0)
        return float(share @ near.mean), float(latent @ latent + share**2 @ open_)

    def functions(self, n_samples: int, rng: np.random.RandomState) -> Callable[[Array], Array]:
        """Draw latent functions at all inputs together; the result maps (n, D) to (n, S)."""

        def values(X: Array) -> Array:
            near = self._predict(X)
            drawn = near.latent @ rng.standard_normal((near.latent.shape[1], n_samples))
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
            gradient = np.zeros_like(X)
            for columns, part in self._columns:
                bar = np.broadcast_to(self.coefficients[part], (X.shape[0], part.stop - part.start))
                gradient += columns.input_gradient(X, bar)
            return gradient
        found = self._factorize(X, self.search(X))
        alpha = solve_stack(found.L, found.missed)
        return self._pulled(X, found, alpha, np.tile(self.mean_coefficients, (X.shape[0], 1)))

    def variance_gradient(self, X: Array) -> Array:
        """Return `d variance/d x` with the neighbours held, shape (n, D).

        With `q = 2P t`, `c̄ = −2b − C⁻¹K_S q` is the cotangent of the residual's covariance with
        the neighbours, and `q − 2 F Fᵀk(x)` that of `k(x)` itself.
        """
        gradient = self._by_chunk(self._variance_gradient, X)
        if self.scale is None:
            return gradient
        variance = self.refine(scale=None, coefficients=None).mean_and_variance(X)[1]
        return self.scale.pull_back(variance, gradient)

    def _variance_gradient(self, X: Array) -> Array:
        found = self._factorize(X, self.search(X))
        latent = 2.0 * found.t @ self._whitened_root
        through = found.members.G[found.at] @ (latent @ self._whitened_root.T)[:, :, None]
        k_bar = latent @ self.covariance_root.T - 2.0 * found.g @ self.flow.prior_factor.T
        c_bar = -2.0 * found.b - solve_stack(found.L, through[:, :, 0])
        gradient = self._pulled(X, found, c_bar, k_bar)
        own = np.full(X.shape[0], 1.0 + self.flow.jitter)
        return gradient + self.features.kernel.diag_adjoint(X, own).points

    def _pulled(self, X: Array, found: Factorized, c_bar: Array, k_bar: Array) -> Array:
        """Return what the cotangents of `k_r(x, x_j)` and `k(x)` give to the inputs."""
        mixed = (c_bar[:, None, :] @ found.members.G[found.at])[:, 0]
        k_bar = k_bar - mixed @ self.flow.prior_factor.T
        distinct, at = np.unique(found.rows, return_inverse=True)
        between = np.zeros((X.shape[0], distinct.size))
        np.put_along_axis(between, at.reshape(found.rows.shape), c_bar, axis=1)
        near = self.features.kernel.at(self.rows.X[distinct])
        return self.features.input_gradient(X, k_bar) + near.input_gradient(X, between)

    def _by_chunk(self, function: Callable[[Array], Array], X: Array) -> Array:
        parts = [function(X[i : i + _CHUNK]) for i in range(0, X.shape[0], _CHUNK)]
        return np.concatenate(parts) if parts else np.empty_like(X)


def _in_blocks(
    function: Callable[[AnyArray, AnyArray], tuple[AnyArray, ...]], X: AnyArray, index: AnyArray
) -> list[AnyArray]:
    """Return what a function of inputs and their neighbours returns, a few inputs at a time."""
    step, join = _AT_ONCE if is_numpy(X) else _ON_DEVICE, namespace(X).concat
    edges = range(0, max(1, X.shape[0]), step)
    parts = (function(X[i : i + step], index[i : i + step]) for i in edges)
    return [join(each, axis=0) for each in zip(*parts, strict=True)]
