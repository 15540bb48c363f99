"""Kernels of any form, given by their values and derivatives.

A new one is a class with its parameters, `values` and `derivatives`, like `Periodic`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import field, fields, replace
from typing import ClassVar, Self

import numpy as np

from eigengp._typing import Array
from eigengp.backend.loops_numpy import list_pairs
from eigengp.backend.namespace import (
    AnyArray,
    beside,
    cast,
    empty_beside,
    is_numpy,
    namespace,
    put_inputs,
    take_inputs,
)
from eigengp.kernels.base import (
    LENGTHSCALE,
    VARIANCE,
    KernelAdjoint,
    KernelColumns,
    Parameter,
    ParametricKernel,
    WithPullBack,
    parameter,
)

_STEP = 1e-4  # The step of finite differences in `metric`.
MOST_ENTRIES = 1 << 16  # The largest number of entries of arrays of shape (n, m, D).


class PairwiseKernel(ParametricKernel):
    """A kernel that gives its values for pairs of points, and their derivatives.

    Everything else follows: matrices, pull-backs, diagonal, input gradients.
    """

    @abstractmethod
    def values(self, x: AnyArray, z: AnyArray) -> AnyArray:
        """Return `k(x, z)` of pairs.

        Parameters
        ----------
        x, z : arrays of shape (…, D)
            The two points of each pair. Their leading axes are broadcast together, and are
            those of the result.
        """

    @abstractmethod
    def derivatives(self, x: AnyArray, z: AnyArray, k: AnyArray) -> dict[str, AnyArray]:
        """Return the derivatives of `k(x, z)`, given its values.

        Returns
        -------
        derivatives : dict
            "z" holds those by the second point, shape (…, D), and the name of each parameter
            those by its logarithm, shape (…), or (…, D) if it is declared for each input.
        """

    def contract(self, x: AnyArray, z: AnyArray, bar: AnyArray) -> KernelAdjoint:
        """Return `Σ bar ∘ dk/dθ`, and `bar ∘ dk/dz` for each pair, shape (…, D)."""
        xp, k = namespace(bar), self.values(x, z)
        by, flat, theta = self.derivatives(x, z, k), xp.reshape(bar, (-1,)), list[AnyArray]()
        for name, kind in self._kinds.items():
            if not kind.per_input:
                each = flat @ xp.reshape(xp.broadcast_to(by[name], bar.shape), (-1,))
            else:
                shape = (*bar.shape, x.shape[-1])
                each = flat @ xp.reshape(xp.broadcast_to(by[name], shape), (-1, x.shape[-1]))
                single = np.size(getattr(self, name)) == 1
                each = xp.sum(each) if single else self.sum_groups(each)
            theta.append(xp.reshape(each, (-1,)))
        return KernelAdjoint(xp.concat(theta), bar[..., None] * by["z"])

    @property
    def constant_diagonal(self) -> float | None:
        return None

    def diag(self, X: AnyArray) -> AnyArray:
        x = self._active(X)
        return self.beside(X).values(x, x)

    def diag_adjoint(self, X: AnyArray, bar: AnyArray) -> KernelAdjoint:
        x = self._active(X)
        own = self.beside(X).contract(x, x, cast(bar, "float64"))
        points = put_inputs(2.0 * own.points, self.active_dims, X.shape[1])
        return KernelAdjoint(own.theta, points)

    def _active(self, X: AnyArray) -> AnyArray:
        """Return the inputs that the kernel sees, in float64."""
        return cast(take_inputs(X, self.active_dims), "float64")

    def beside(self, X: AnyArray) -> Self:
        """Return the kernel with its arrays in the library and on the device of `X`."""
        if is_numpy(X):
            return self
        own = copy(self)
        for each in fields(self):
            if isinstance(value := getattr(self, each.name), np.ndarray):
                object.__setattr__(own, each.name, beside(value, X))
        return own

    def at(self, Z: AnyArray) -> KernelColumns:
        return PairwiseColumns(self, Z)

    def stack(self, X: AnyArray) -> AnyArray:
        X = take_inputs(X, self.active_dims)
        kernel = self.beside(X)
        first, second = list_pairs(X.shape[1])
        step = max(1, MOST_ENTRIES // (first.size * X.shape[2] + 1))
        K = empty_beside((X.shape[0], first.size), X)
        for i in range(0, X.shape[0], step):
            some = X[i : i + step]
            K[i : i + step] = kernel.values(some[:, first], some[:, second])
        return K

    def metric(self, n_features: int) -> Array:
        """Return the root of `E(f(x) − f(z))²/(|x − z|² k(x, x))` for small steps along each input.

        The steps are taken from the origin, and `k(x, x)` from one standard deviation away.
        """
        n_active = self._n_active(n_features)
        x, z = np.zeros((n_active, n_active)), _STEP * np.eye(n_active)
        change = self.values(x, x) + self.values(z, z) - 2.0 * self.values(x, z)
        size = self.values(*(2 * [np.ones((1, n_active))]))
        found = np.sqrt(np.maximum(change, 0.0) / size) / _STEP
        return found if self.active_dims is None else self._of_all(found, n_features)


class PairwiseColumns(KernelColumns):
    """The functions `x ↦ k(x, z_m)` of a kernel that gives values and derivatives of pairs.

    Rows are taken a few at a time, so that arrays of shape (n, m, D) stay small.
    """

    kernel: PairwiseKernel

    def matrix(self, X: AnyArray, dtype: str = "float64", spare: int = 0) -> AnyArray:
        """See `KernelColumns.matrix`."""
        xp, kernel, Z = namespace(X), self.kernel.beside(X), self._points_beside(X)
        parts = [cast(kernel.values(x[:, None, :], Z), dtype) for x in self._in_parts(X, Z)]
        K = parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)
        return xp.concat([K, xp.zeros_like(K[:, :spare])], axis=1) if spare else K

    def forward(self, X: AnyArray, dtype: str = "float64", spare: int = 0) -> WithPullBack:
        """See `KernelColumns.forward`; derivatives are computed once a cotangent is there."""

        def pull_back(K_bar: AnyArray, overwrite: bool = False) -> KernelAdjoint:
            kernel, Z = self.kernel.beside(X), self._points_beside(X)
            start, theta, points = 0, 0.0, 0.0
            for x in self._in_parts(X, Z):
                bar = cast(K_bar[start : start + x.shape[0], :], "float64")
                by = kernel.contract(x[:, None, :], Z, bar)
                start, theta = start + x.shape[0], theta + by.theta
                points = points + namespace(X).sum(by.points, axis=0)
            return KernelAdjoint(theta, put_inputs(points, kernel.active_dims, X.shape[1]))

        return self.matrix(X, dtype, spare), pull_back

    def _points_beside(self, X: AnyArray) -> AnyArray:
        """Return the points in the library and on the device of `X`, shape (1, m, D)."""
        return beside(self.kernel._active(self.points), X)[None, :, :]

    def _in_parts(self, X: AnyArray, Z: AnyArray) -> list[AnyArray]:
        """Return rows, a few at a time; those of an array to be traced at once."""
        n, rows = X.shape[0], self.kernel._active(X)
        step = max(1, MOST_ENTRIES // (Z.shape[1] * Z.shape[2] + 1))
        if n is None or n <= step:
            return [rows]
        return [rows[i : i + step, :] for i in range(0, n, step)]


ROUGHNESS = Parameter((1e-2, 1e2), per_input=True)
PERIOD = Parameter((1e-4, 1e3), per_input=True, input_power=1.0, log_prior=(0.0, 3.0))


class Periodic(PairwiseKernel):
    """`variance · exp(−2 Σ_d sin²(π (x_d − z_d)/p_d)/ℓ_d²)`: functions that repeat themselves.

    Parameters
    ----------
    lengthscale : float or array of shape (D,)
        Smoothness within a period; it has no unit. Large values give nearly sinusoidal functions.
    period : float or array of shape (D,)
        The distance after which functions repeat themselves.
    variance : float
        The prior variance `k(x, x)`.
    active_dims : sequence of int or None
        The inputs that the kernel uses; None is all of them.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp.kernels import Periodic
    >>> Periodic(period=2.0)(np.array([[0.0]]), np.array([[0.5], [1.0], [2.0]])).round(4)
    array([[0.3679, 0.1353, 1.    ]])
    """

    lengthscale: float | Array = parameter(ROUGHNESS, default=1.0)
    period: float | Array = parameter(PERIOD, default=1.0)
    variance: float = parameter(VARIANCE, default=1.0)

    def values(self, x: AnyArray, z: AnyArray) -> AnyArray:
        xp = namespace(x)
        s = xp.sin((x - z) * (np.pi / self.period)) / self.lengthscale
        return self.variance * xp.exp(-2.0 * xp.sum(s * s, axis=-1))

    def derivatives(self, x: AnyArray, z: AnyArray, k: AnyArray) -> dict[str, AnyArray]:
        xp, angle = namespace(x), (x - z) * (np.pi / self.period)
        s, c = xp.sin(angle) / self.lengthscale, xp.cos(angle) / self.lengthscale
        by_angle = -4.0 * s * c * k[..., None]
        by_length = 4.0 * s * s * k[..., None]
        by_z = by_angle * (-np.pi / self.period)
        return {"z": by_z, "lengthscale": by_length, "period": -angle * by_angle, "variance": k}

    @property
    def constant_diagonal(self) -> float:
        return self.variance


class Additive(PairwiseKernel):
    """`variance/D · Σ_d exp(−(x_d − z_d)²/(2ℓ_d²))`: sums of smooth functions of one input each.

    In a sum with another kernel it describes what each input does by itself, which few rows can
    tell, and leaves the interactions to the other kernel. A group of inputs has one function.

    Parameters
    ----------
    lengthscale : float or array of shape (D,)
        One number is shared by all inputs; an array gives each its own.
    variance : float
        The prior variance `k(x, x)`.
    active_dims : sequence of int or None
        The inputs that the kernel uses; None is all of them.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp.kernels import Additive
    >>> Additive()(np.array([[0.0, 0.0]]), np.array([[0.0, 9.0], [1.0, 1.0]])).round(4)
    array([[0.5   , 0.6065]])
    """

    lengthscale: float | Array = parameter(LENGTHSCALE, default=1.0)
    variance: float = parameter(VARIANCE, default=1.0)

    def values(self, x: AnyArray, z: AnyArray) -> AnyArray:
        return namespace(x).sum(self._parts((x - z) / self.lengthscale), axis=-1)

    def _parts(self, s: AnyArray) -> AnyArray:
        """Return what each input, or group of them, adds to the kernel."""
        t = s * s if self.groups is None else (s * s) @ self._members(s)
        return namespace(s).exp(-0.5 * t) * (self.variance / t.shape[-1])

    def _members(self, x: AnyArray) -> AnyArray:
        """Return which inputs each group has, shape (D, number of groups)."""
        groups = self.groups or ()
        return beside(np.equal.outer(groups, np.unique(groups)).astype(np.float64), x)

    def derivatives(self, x: AnyArray, z: AnyArray, k: AnyArray) -> dict[str, AnyArray]:
        s = (x - z) / self.lengthscale
        parts = self._parts(s)
        by_s = s * (parts if self.groups is None else parts @ self._members(s).T)
        return {"z": by_s / self.lengthscale, "lengthscale": by_s * s, "variance": k}

    @property
    def constant_diagonal(self) -> float:
        return self.variance

    def embed(self, inputs: Sequence[int], n_features: int) -> Self:
        own = self.with_ard(len(inputs))
        used = range(len(inputs)) if own.active_dims is None else own.active_dims
        return replace(own, active_dims=tuple(inputs[d] for d in used))


SLOPE = Parameter(
    (1e-6, 1e4), per_input=True, input_power=-2.0, variance_power=1.0, log_prior=(0.0, 3.0)
)


class Linear(PairwiseKernel):
    """`offset + Σ_d variance_d (x_d − c_d)(z_d − c_d)`: straight lines.

    A line `a + Σ_d b_d (x_d − c_d)` has independent coefficients only about one point `c`. It is
    the centre of the training inputs unless it is given, so that data in any units and with any
    origin give the same model; fitted kernels name it.

    Parameters
    ----------
    variance : float or array of shape (D,)
        The prior variance of the slope along each input.
    offset : float
        The prior variance of the value at the centre.
    center : array of shape (D,) or None
        `c`, which is not learned. None is the centre of the training inputs in a regressor, and
        the origin elsewhere.
    active_dims : sequence of int or None
        The inputs that the kernel uses, and that `center` is given for; None is all of them.
    """

    variance: float | Array = parameter(SLOPE, default=1.0)
    offset: float = parameter(VARIANCE, default=1.0)
    center: Array | None = field(default=None, kw_only=True)

    degree: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.center is not None:
            center = np.array(self.center, dtype=np.float64, ndmin=1)
            if center.ndim > 1 or not np.all(np.isfinite(center)):
                raise ValueError(f"center must be one finite number per input, got {center!r}.")
            center.setflags(write=False)
            object.__setattr__(self, "center", center)

    def values(self, x: AnyArray, z: AnyArray) -> AnyArray:
        return self._inner(x, z) ** self.degree

    def _inner(self, x: AnyArray, z: AnyArray) -> AnyArray:
        x, z = self._centred(x), self._centred(z)
        return namespace(x).sum(x * z * self.variance, axis=-1) + self.offset

    def _centred(self, x: AnyArray) -> AnyArray:
        return x if self.center is None else x - self.center

    def derivatives(self, x: AnyArray, z: AnyArray, k: AnyArray) -> dict[str, AnyArray]:
        slope = self.degree * self._inner(x, z) ** (self.degree - 1)
        x, z = self._centred(x), self._centred(z)
        by_z = slope[..., None] * x * self.variance
        return {"z": by_z, "variance": by_z * z, "offset": slope * self.offset}

    def with_ard(self, n_features: int) -> Self:
        own = super().with_ard(n_features)
        size = self._n_active(n_features)
        if self.center is not None and self.center.size != size:
            raise ValueError(f"center has {self.center.size} entries for {size} inputs.")
        return own if self.center is not None else replace(own, center=np.zeros(size))

    def rescaled(
        self, input_scale: Array, variance_scale: float, input_shift: Array | float = 0.0
    ) -> Self:
        own = super().rescaled(input_scale, variance_scale ** (1.0 / self.degree))
        if self.center is None:
            return own
        moved = self.center * self._of_active(input_scale) + self._of_active(input_shift)
        return replace(own, center=moved)

    def embed(self, inputs: Sequence[int], n_features: int) -> Self:
        own = super().embed(inputs, n_features)
        if self.active_dims is not None or own.center is None:
            return own
        center = np.zeros(n_features)
        center[list(inputs)] = own.center
        return replace(own, center=center)


class Polynomial(Linear):
    """`(offset + Σ_d variance_d (x_d − c_d)(z_d − c_d))^degree`: polynomials of this degree.

    Parameters
    ----------
    variance : float or array of shape (D,)
        What each input counts for.
    offset : float
        What lower degrees count for.
    degree : int
        The degree, which is not learned.
    center : array of shape (D,) or None
        `c`; see `Linear`.
    active_dims : sequence of int or None
        The inputs that the kernel uses; None is all of them.
    """

    degree: int = 2  # type: ignore[misc]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.degree != int(self.degree) or self.degree < 1:
            raise ValueError(f"degree must be a positive whole number, got {self.degree!r}.")
