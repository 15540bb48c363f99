"""Stationary kernels `k(x, z) = variance · ρ(t)` with `t = Σ_d (x_d − z_d)²/ℓ_d²`.

A new one is a class with its profile ρ(t) and its slope dρ/dt, like `Matern32`.
A kernel with a parameter of its own declares a field for it and adds its
derivative, like `RationalQuadratic`.

The second half of this file computes their matrices: `t`, in units of the lengthscales, is one
matrix product for a whole block of rows, `[x, 1, |x|²]·[−2z, |z|², 1]`. Large terms cancel in it,
so it is formed in float64 whatever the precision of the rest.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from eigengp._typing import Array
from eigengp.backend.loops import find_loops
from eigengp.backend.namespace import (
    AnyArray,
    beside,
    cast,
    dtype_name,
    empty_beside,
    is_numpy,
    namespace,
    place,
    put_inputs,
    take_inputs,
)
from eigengp.backend.threads import (
    clip_in_place,
    contraction,
    convert,
    make_buffer,
    product,
    recycle,
    with_diagonal,
)
from eigengp.kernels.base import (
    LENGTHSCALE,
    SHAPE,
    VARIANCE,
    KernelAdjoint,
    KernelColumns,
    ParametricKernel,
    WithPullBack,
    parameter,
)

_COINCIDENT = 1e-14  # Where `t` is no more than rounding, points coincide.
# Where exponents are cut off: products of smaller values underflow, which is slow.
_DEEPEST = {"float64": 300.0, "float32": 85.0}


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
        The inputs that the kernel uses; None is all of them.
    groups : sequence of int or None
        The group of each of these inputs; inputs of a group share one lengthscale.
    """

    lengthscale: float | Array = parameter(LENGTHSCALE, default=1.0)
    variance: float = parameter(VARIANCE, default=1.0)

    decay: ClassVar[tuple[float, float, float, float] | None] = None
    """The profile as compiled loops know it; None if they do not.

    `(0, …)` is `exp(−t/2)`, `(1, a, b, c)` is `(1 + b s + c s²) exp(−s)` with `s = √(at)`, and
    `(2, a, b, …)` is `(1 + bt)^(−a)`."""

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
        xp = namespace(X)
        return cast(xp.sum(xp.zeros_like(X), axis=1), "float64") + self.variance

    def diag_adjoint(self, X: AnyArray, bar: AnyArray) -> KernelAdjoint:
        gradient = np.zeros(self.theta.size)
        gradient[len(self._get_free("lengthscale"))] = self.variance
        theta = namespace(bar).sum(bar) * beside(gradient, bar)
        return KernelAdjoint(theta, namespace(X).zeros_like(X))

    def metric(self, n_features: int) -> Array:
        own = np.asarray(1.0 / np.asarray(self.lengthscale))
        return own if self.active_dims is None else self._of_all(own, n_features)

    def at(self, Z: AnyArray) -> KernelColumns:
        return StationaryColumns(self, Z)

    def stack(self, X: AnyArray) -> AnyArray:
        """See `Kernel.stack`."""
        X = take_inputs(X, self.active_dims)
        X = np.ascontiguousarray(X, dtype=np.float64) if is_numpy(X) else X
        n, s, D = X.shape
        size = (n, s * (s + 1) // 2)
        t = make_buffer(size) if is_numpy(X) else empty_beside(size, X)
        per_length = np.full(D, 1.0 / np.asarray(self.lengthscale))
        find_loops(X).measure_distances(X, per_length, t)
        return self.variance * self.profile(t)

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

    decay = (0.0, 0.0, 0.0, 0.0)

    def profile(self, t: AnyArray) -> AnyArray:
        return namespace(t).exp(-0.5 * t)

    def slope(self, t: AnyArray, rho: AnyArray) -> AnyArray:
        return -0.5 * rho

    def at(self, Z: AnyArray) -> KernelColumns:
        return ExponentialColumns(self, Z)

    def mixture(self, count: int, rng: np.random.RandomState) -> Array:
        return np.ones(count)


class _Matern(Stationary):
    """Functions of `s = √(at)` that fall like `exp(−s)`: squared exponentials mixed by `a/χ²_a`."""

    decay: ClassVar[tuple[float, float, float, float]]

    def reach(self, depth: float) -> float:
        return depth**2 / self.decay[1]

    def mixture(self, count: int, rng: np.random.RandomState) -> Array:
        return self.decay[1] / rng.chisquare(self.decay[1], count)


class Matern12(_Matern):
    """The exponential kernel `variance · exp(−√t)`: continuous, rough functions.

    Its derivative is infinite at t = 0; the gradient of equal points is taken as zero.
    """

    decay = (1.0, 1.0, 0.0, 0.0)

    def profile(self, t: AnyArray) -> AnyArray:
        xp = namespace(t)
        return xp.exp(-xp.sqrt(xp.where(t > _COINCIDENT, t, 0.0 * t)))

    def slope(self, t: AnyArray, rho: AnyArray) -> AnyArray:
        xp, apart = namespace(t), t > _COINCIDENT
        return xp.where(apart, -0.5 * rho / xp.sqrt(xp.where(apart, t, 1.0 + t)), 0.0 * rho)


class Matern32(_Matern):
    """`variance · (1 + s) exp(−s)`, `s = √(3t)`: functions with one derivative."""

    decay = (1.0, 3.0, 1.0, 0.0)

    def profile(self, t: AnyArray) -> AnyArray:
        xp = namespace(t)
        s = xp.sqrt(3.0 * t)
        rho = xp.exp(-s)
        rho *= 1.0 + s
        return rho

    def slope(self, t: AnyArray, rho: AnyArray) -> AnyArray:
        return -1.5 * rho / (1.0 + namespace(t).sqrt(3.0 * t))


class Matern52(_Matern):
    """`variance · (1 + s + s²/3) exp(−s)`, `s = √(5t)`: functions with two derivatives."""

    decay = (1.0, 5.0, 1.0, 1.0 / 3.0)

    def profile(self, t: AnyArray) -> AnyArray:
        xp = namespace(t)
        s = xp.sqrt(5.0 * t)
        return (1.0 + s + s * s / 3.0) * xp.exp(-s)

    def slope(self, t: AnyArray, rho: AnyArray) -> AnyArray:
        s = namespace(t).sqrt(5.0 * t)
        return (-5.0 / 6.0) * rho * (1.0 + s) / (1.0 + s + s * s / 3.0)


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

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "decay", (2.0, self.alpha, 0.5 / self.alpha, 0.0))

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


@dataclass(frozen=True)
class ScaledPoints:
    """The points as rows of one library and device meet them, in units of the lengthscales."""

    kernel: Stationary
    # How many inputs there are; those that the kernel sees are the `D` of what follows.
    n_features: int
    # The mean of the points, in units of the data: differences from it keep their digits.
    centre: AnyArray
    per_length: AnyArray  # The inverse lengthscales, shape (D,) or a number.
    points: AnyArray  # `Z`, shape (m, D).
    # `[−2z, |z|², 1]`, scaled and shifted, with rows of zeros to spare: (m + 1, D + 2).
    factor: AnyArray
    largest: float  # The largest `|z|²`.

    @classmethod
    def of(cls, kernel: Stationary, points: AnyArray, scale: float, shift: float) -> ScaledPoints:
        """Prepare the points; the products of `[x, 1, |x|²]` with them are `scale·t + shift`."""
        xp, n_features = namespace(points), points.shape[1]
        points = take_inputs(points, kernel.active_dims)
        m, D = points.shape
        per_length = beside(1.0 / np.asarray(kernel.lengthscale), points)
        centre = xp.mean(points, axis=0)
        Z = (points - centre) * per_length
        squares = np.einsum("md,md->m", Z, Z) if is_numpy(Z) else xp.sum(Z * Z, axis=1)
        factor = xp.zeros((m + 1, D + 2), dtype=Z.dtype, device=Z.device)  # One to spare.
        factor[:m, :D] = Z * (-2.0 * scale)
        factor[:m, D] = squares * scale + shift
        factor[:m, D + 1] = scale
        return cls(kernel, n_features, centre, per_length, Z, factor, float(xp.max(squares)))

    def measure(self, X: AnyArray, dtype: str, spare: int) -> tuple[AnyArray, AnyArray]:
        """Return rows as columns `[x, 1, |x|²]`, (D + 2, n), and `scale·t + shift`, (n, m + spare).

        The latter is zero in the spare columns.
        """
        X = take_inputs(X, self.kernel.active_dims)
        xp, (n, D) = namespace(X), X.shape
        column = namespace(self.points).reshape(self.per_length, (-1, 1))
        if is_numpy(X):
            rows = make_buffer((D + 2, n))
            scaled = np.subtract(X.T, self.centre[:, None], out=rows[:D])
            scaled *= column
            rows[D] = 1.0
            np.einsum("dn,dn->n", scaled, scaled, out=rows[D + 1])
        else:
            scaled = (X.T - self.centre[:, None]) * column
            squares = xp.sum(scaled * scaled, axis=0, keepdims=True)
            rows = xp.concat([scaled, xp.ones_like(squares), squares], axis=0)
        t = product(rows.T, self.factor[: self.points.shape[0] + spare, :].T)
        if dtype == "float64":
            return rows, t
        narrow = cast(t, dtype)
        recycle(t)
        return rows, narrow

    def pull_back(
        self,
        rows: AnyArray,
        T: AnyArray,
        scale: float,
        overwrite: bool,
        others: list[AnyArray] | None = None,
    ) -> KernelAdjoint:
        """Return what `scale·T` hands back; `others` are the cotangents of variance and shape.

        Without `others` the kernel's variance has the sum of `T`.
        """
        xp, D = namespace(T), self.points.shape[1]
        ones = xp.ones((T.shape[1],), dtype=T.dtype, device=T.device)
        thin = rows[:-1, :].T
        if T.dtype == rows.dtype:
            both = scale * contraction(thin, T).T
        else:
            thin = convert(thin, dtype_name(T))
            both = scale * cast(contraction(thin, T), "float64").T
            recycle(thin)
        inputs = rows[:D, :]
        squares = scale * (times(inputs, inputs, overwrite) @ cast(T @ ones, "float64"))
        if overwrite:
            recycle(rows)
        others = others or [xp.sum(both[:, -1]) / scale]
        return self.assemble(both[:, :D], both[:, -1], squares, others)

    def assemble(
        self, TX: AnyArray, column: AnyArray, row_squares: AnyArray, others: list[AnyArray]
    ) -> KernelAdjoint:
        """Return the adjoint from the sums through which rows enter it.

        In units of the lengthscales `Z̄ = 2 (diag(Tᵀ1) Z − TᵀX)` and
        `d/d ln ℓ_d = −2 Σ_nm T_nm (x_nd − z_md)²`, the square expanded so that no
        n × m × D array appears.

        Parameters
        ----------
        TX, column : arrays of shape (m, D) and (m,)
            `TᵀX` and `Tᵀ1`.
        row_squares : array of shape (D,)
            `Σ_n (T1)_n x_nd²`.
        others : list of numbers
            The cotangents of the kernel's other parameters.
        """
        xp, Z = namespace(TX), self.points
        squares = row_squares + column @ (Z * Z) - 2.0 * xp.sum(TX * Z, axis=0)
        if np.ndim(self.kernel.lengthscale) == 0:
            squares = xp.sum(squares)[None]
        rest = xp.stack([xp.asarray(each, dtype=xp.float64) for each in others])
        points = 2.0 * (column[:, None] * Z - TX) * self.per_length
        if self.kernel.active_dims is not None:
            points = put_inputs(points, self.kernel.active_dims, self.n_features)
        lengths = -2.0 * squares
        if self.kernel.groups is not None:
            lengths = self.kernel.sum_groups(lengths)
        return KernelAdjoint(xp.concat([lengths, rest]), points)


@dataclass(eq=False)
class StationaryColumns(KernelColumns):
    """The functions `x ↦ k(x, z_m)` of a stationary kernel, which gives profile and slope."""

    kernel: Stationary
    _scaled_points: dict[Hashable, ScaledPoints] = field(default_factory=dict, init=False)

    kept_arrays = 3
    # Whether products of rows and points are the exponents, variance included, instead of `t`.
    _in_exponent: ClassVar[bool] = False

    def __getstate__(self) -> dict[str, Any]:
        """Keep kernel and points alone: what lies on a device is of no use elsewhere."""
        return {"kernel": self.kernel, "points": self.points, "_scaled_points": {}}

    def scale_points(self, X: AnyArray) -> ScaledPoints:
        """Return the points beside the rows, prepared once for each library and device."""
        key = place(X)
        if key not in self._scaled_points:
            points = beside(self.points, X)
            log_variance = float(np.log(self.kernel.variance))
            scale, shift = (-0.5, log_variance) if self._in_exponent else (1.0, 0.0)
            self._scaled_points[key] = ScaledPoints.of(self.kernel, points, scale, shift)
        return self._scaled_points[key]

    def matrix(self, X: AnyArray, dtype: str = "float64", spare: int = 0) -> AnyArray:
        """See `KernelColumns.matrix`."""
        rows, t = self._measure(X, dtype, spare)
        recycle(rows)
        K = self.kernel.profile(t)
        K *= self.kernel.variance
        return K

    def _measure(self, X: AnyArray, dtype: str, spare: int) -> tuple[AnyArray, AnyArray]:
        """Return the rows, and `t`, cut off where the kernel is as good as zero."""
        farthest = self.kernel.reach(_DEEPEST[dtype])
        rows, t = self.scale_points(X).measure(X, dtype, spare)
        t = with_diagonal(t, 0.0) if X is self.points else t
        return rows, clip_in_place(t, 0.0, farthest)

    def forward(self, X: AnyArray, dtype: str = "float64", spare: int = 0) -> WithPullBack:
        """See `KernelColumns.forward`; `T = K̄ ∘ variance·ρ'(t)`."""
        scaled, (rows, t) = self.scale_points(X), self._measure(X, dtype, spare)
        rho, m, variance = self.kernel.profile(t), self.points.shape[0], self.kernel.variance

        def pull_back(K_bar: AnyArray, overwrite: bool = False) -> KernelAdjoint:
            own, at = rho[:, :m], t[:, :m]
            slopes = (own, *self.kernel.shape_slopes(at, own))
            others = [variance * _inner(K_bar, each) for each in slopes]
            T = times(K_bar, self.kernel.slope(at, own), overwrite)
            return scaled.pull_back(rows, T, variance, overwrite, others)

        return variance * rho, pull_back


class ExponentialColumns(StationaryColumns):
    """The same for the squared exponential, whose slope is `−½ρ`: `K` is all that is kept."""

    kept_arrays, _in_exponent = 1, True

    def matrix(self, X: AnyArray, dtype: str = "float64", spare: int = 0) -> AnyArray:
        """See `KernelColumns.matrix`."""
        rows, K = self._evaluate(X, dtype, spare)
        recycle(rows)
        return K

    def _evaluate(self, X: AnyArray, dtype: str, spare: int) -> tuple[AnyArray, AnyArray]:
        """Return the rows, and `K`."""
        scaled, deepest = self.scale_points(X), _DEEPEST[dtype]
        rows, exponent = scaled.measure(X, dtype, spare)
        n = X.shape[0]  # None for rows that are not there yet, which may be anywhere.
        if n is None or (n and float(namespace(rows).max(rows[-1, :])) + scaled.largest > deepest):
            shift = float(np.log(self.kernel.variance))
            exponent = clip_in_place(exponent, shift - deepest, shift)
        if is_numpy(exponent):
            K = np.exp(exponent, out=exponent)
        else:
            K = exponent.exp_() if hasattr(exponent, "exp_") else namespace(exponent).exp(exponent)
        return rows, with_diagonal(K, self.kernel.variance) if X is self.points else K

    def forward(self, X: AnyArray, dtype: str = "float64", spare: int = 0) -> WithPullBack:
        """See `KernelColumns.forward`; `T = −½ K̄ ∘ K`."""
        scaled, (rows, K) = self.scale_points(X), self._evaluate(X, dtype, spare)

        def pull_back(K_bar: AnyArray, overwrite: bool = False) -> KernelAdjoint:
            own = cast(K[:, : K_bar.shape[1]], dtype_name(K_bar))
            T = times(K_bar, own, overwrite)
            return scaled.pull_back(rows, T, -0.5, overwrite)

        return K, pull_back


def times(x: AnyArray, z: AnyArray, overwrite: bool) -> AnyArray:
    """Return `x ∘ z` in the data type of `x`; `overwrite` allows to compute it in place."""
    if not is_numpy(x):
        z = cast(z, dtype_name(x))
    if overwrite:
        x *= z
    return x if overwrite else x * z


def _inner(x: AnyArray, z: AnyArray) -> AnyArray:
    """Return the sum of the entries of `x ∘ z`, in float64."""
    if is_numpy(x):
        return np.einsum("ni,ni->", x, z, dtype=np.float64)
    xp = namespace(x)
    return xp.sum(x * z, dtype=xp.float64)
