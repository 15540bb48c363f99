"""Kernels at fixed points: values and pull-back.

For a stationary kernel `t = |x − z|²`, in units of the lengthscales, is one matrix
product for a whole block, `[x, 1, |x|²]·[−2z, |z|², 1]`. Large terms cancel in it, so
it is formed in float64 whatever the precision of the rest. Other kernels give values
and derivatives of pairs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from eigengp.backend.buffers import convert, make_buffer, recycle
from eigengp.backend.matmul import contraction, product
from eigengp.backend.namespace import (
    AnyArray,
    beside,
    cast,
    dtype_name,
    is_numpy,
    namespace,
    place,
    row_dots,
)
from eigengp.kernels.base import KernelAdjoint, PullBack

if TYPE_CHECKING:
    from eigengp.kernels.nonstationary import PairwiseKernel
    from eigengp.kernels.stationary import Stationary

_DEEPEST = {"float64": 300.0, "float32": 85.0}
"""Where exponents are cut off: products of smaller values underflow, which is slow."""
_SPARE = 1
"""How many columns a caller may ask for beyond those of the points."""
PAIRED = 1 << 16
"""How many entries arrays of shape (n, m, D) may have."""


@dataclass(eq=False)
class KernelColumns(ABC):
    """The functions `x ↦ k(x, z_m)` of a kernel at fixed points `Z`: the features of a row.

    Parameters
    ----------
    kernel : Kernel
        `k`.
    points : array of shape (m, D)
        `Z`.
    """

    kernel: Any
    points: AnyArray

    kept_arrays: ClassVar[int] = 1
    """See `Columns.kept_arrays`."""

    @abstractmethod
    def matrix(self, X: AnyArray, dtype: str = "float64", spare: int = 0) -> AnyArray:
        """See `Columns.matrix`."""

    @abstractmethod
    def forward(
        self, X: AnyArray, dtype: str = "float64", spare: int = 0
    ) -> tuple[AnyArray, PullBack]:
        """See `Columns.forward`."""

    def input_gradient(self, X: AnyArray, bar: AnyArray) -> AnyArray:
        """Return `d/dx Σ_m bar_nm k(x_n, z_m)`, shape (n, D), for `bar` of shape (n, m).

        It is the kernel's pull-back with its arguments exchanged.
        """
        _, back = self.kernel.forward(beside(self.points, X), X)
        return back(bar.T).points

    @cached_property
    def prior_scale(self) -> float:
        """A typical value of `k(x, x)`: the mean over the points where it varies."""
        constant: float | None = self.kernel.constant_diagonal
        return float(np.mean(self.kernel.diag(self.points))) if constant is None else constant

    def prior_variance(self, X: AnyArray) -> AnyArray | float:
        """Return `k(x_n, x_n)`: one number where it does not vary, else an array of shape (n,)."""
        constant = self.kernel.constant_diagonal
        return self.kernel.diag(X) if constant is None else constant


@dataclass(frozen=True)
class Side:
    """The points as rows of one library and device meet them, in units of the lengthscales."""

    centre: AnyArray
    """The mean of the points, in units of the data: differences from it keep their digits."""
    per_length: AnyArray
    """The inverse lengthscales, shape (D,) or a number."""
    points: AnyArray
    """`Z`, shape (m, D)."""
    scale: float
    shift: float

    @classmethod
    def of(cls, kernel: Stationary, points: AnyArray, scale: float, shift: float) -> Side:
        """Prepare the points; the products of `rows` with them are `scale·t + shift`."""
        per_length = beside(1.0 / np.asarray(kernel.lengthscale), points)
        centre = namespace(points).mean(points, axis=0)
        return cls(centre, per_length, (points - centre) * per_length, scale, shift)

    @cached_property
    def _factor(self) -> AnyArray:
        """`[−2z, |z|², 1]`, scaled and shifted, with rows of zeros to spare: (m + 1, D + 2)."""
        xp, (m, D) = namespace(self.points), self.points.shape
        right = xp.zeros((m + _SPARE, D + 2), dtype=self.points.dtype, device=self.points.device)
        right[:m, :D] = self.points * (-2.0 * self.scale)
        right[:m, D] = self._norms * self.scale + self.shift
        right[:m, D + 1] = self.scale
        return right

    @cached_property
    def squares(self) -> AnyArray:
        """`z²`, entry by entry, shape (m, D)."""
        return self.points * self.points

    @cached_property
    def _norms(self) -> AnyArray:
        """`|z|²`, shape (m,)."""
        return row_dots(self.points, self.points)

    @cached_property
    def _largest(self) -> float:
        """The largest `|z|²`."""
        return float(namespace(self.points).max(self._norms))

    def rows(self, X: AnyArray) -> AnyArray:
        """Return `[x, 1, |x|²]` of each row as a column, shape (D + 2, n)."""
        n, D = X.shape
        xp = namespace(X)
        if is_numpy(X):
            rows = make_buffer((D + 2, n))
            scaled = np.subtract(X.T, self.centre[:, None], out=rows[:D])
            scaled *= self._column
            rows[D] = 1.0
            np.einsum("dn,dn->n", scaled, scaled, out=rows[D + 1])
            return rows
        scaled = (X.T - self.centre[:, None]) * self._column
        squares = xp.sum(scaled * scaled, axis=0, keepdims=True)
        return xp.concat([scaled, xp.ones_like(squares), squares], axis=0)

    @cached_property
    def _column(self) -> AnyArray:
        return namespace(self.points).reshape(self.per_length, (-1, 1))

    def farthest(self, rows: AnyArray) -> float:
        """Return a bound on all distances `t`; infinity for rows that are not there yet."""
        n = rows.shape[1]
        if not n:
            return float("inf") if n is None else 0.0
        return 2.0 * (float(namespace(rows).max(rows[-1, :])) + self._largest)

    def distances(self, rows: AnyArray, dtype: str, spare: int) -> AnyArray:
        """Return `scale·t + shift`, shape (n, m + spare); zero in the spare columns."""
        m = self.points.shape[0] + spare
        t = product(rows.T, self._factor[:m, :].T)
        found = cast(t, dtype)
        if found is not t:
            recycle(t)
        return found


@dataclass(eq=False)
class StationaryColumns(KernelColumns):
    """The functions `x ↦ k(x, z_m)` of a stationary kernel, which gives profile and slope."""

    kernel: Stationary
    _sides: dict[Hashable, Side] = field(default_factory=dict, init=False)

    kept_arrays = 3

    def __getstate__(self) -> dict[str, Any]:
        """Keep kernel and points alone: what lies on a device is of no use elsewhere."""
        return {"kernel": self.kernel, "points": self.points, "_sides": {}}

    @property
    def _scale_and_shift(self) -> tuple[float, float]:
        """What products of rows and points are to be: `scale·t + shift`."""
        return 1.0, 0.0

    def side(self, X: AnyArray) -> Side:
        """Return the points beside the rows, prepared once for each library and device."""
        key = place(X)
        if key not in self._sides:
            points = beside(self.points, X)
            self._sides[key] = Side.of(self.kernel, points, *self._scale_and_shift)
        return self._sides[key]

    def matrix(self, X: AnyArray, dtype: str = "float64", spare: int = 0) -> AnyArray:
        """See `Columns.matrix`."""
        side = self.side(X)
        rows = side.rows(X)
        K = self._values(X, side, rows, dtype, spare)
        recycle(rows)
        return K

    def forward(
        self, X: AnyArray, dtype: str = "float64", spare: int = 0
    ) -> tuple[AnyArray, PullBack]:
        """See `Columns.forward`; `T = K̄ ∘ variance·ρ'(t)`."""
        side, m, variance = self.side(X), self.points.shape[0], self.kernel.variance
        rows = side.rows(X)
        t = self._cut_distances(X, side, rows, dtype, spare)
        rho = self.kernel.profile(t)

        def pull_back(
            K_bar: AnyArray, overwrite: bool = False, K: AnyArray | None = None
        ) -> KernelAdjoint:
            own, at = rho[:, :m], t[:, :m]
            slopes = (own, *self.kernel.shape_slopes(at, own))
            others = [variance * _inner(K_bar, each) for each in slopes]
            T = times(K_bar, self.kernel.slope(at, own), overwrite)
            return _adjoint(self.kernel, side, rows, T, variance, overwrite, others)

        return variance * rho, pull_back

    def _values(self, X: AnyArray, side: Side, rows: AnyArray, dtype: str, spare: int) -> AnyArray:
        K = self.kernel.profile(self._cut_distances(X, side, rows, dtype, spare))
        K *= self.kernel.variance
        return K

    def _cut_distances(
        self, X: AnyArray, side: Side, rows: AnyArray, dtype: str, spare: int
    ) -> AnyArray:
        """Return `t`, cut off where the kernel is as good as zero."""
        t = side.distances(rows, dtype, spare)
        t = _clip_in_place(t, 0.0, self.kernel.reach(_DEEPEST[dtype]))
        return _with_diagonal(t, 0.0) if X is self.points else t


class ExponentialColumns(StationaryColumns):
    """The same for the squared exponential, whose slope is `−½ρ`: `K` is all that is kept.

    The products of rows and points are the exponents, variance included.
    """

    kept_arrays = 1

    @property
    def _scale_and_shift(self) -> tuple[float, float]:
        return -0.5, float(np.log(self.kernel.variance))

    def forward(
        self, X: AnyArray, dtype: str = "float64", spare: int = 0
    ) -> tuple[AnyArray, PullBack]:
        """See `Columns.forward`; `T = −½ K̄ ∘ K`."""
        side = self.side(X)
        rows = side.rows(X)
        made = self._values(X, side, rows, dtype, spare)

        def pull_back(
            K_bar: AnyArray, overwrite: bool = False, K: AnyArray | None = None
        ) -> KernelAdjoint:
            own = made if K is None else K
            T = times(K_bar, own[:, : K_bar.shape[1]], overwrite)
            return _adjoint(self.kernel, side, rows, T, -0.5, overwrite)

        return made, pull_back

    def _values(self, X: AnyArray, side: Side, rows: AnyArray, dtype: str, spare: int) -> AnyArray:
        farthest = side.farthest(rows)
        exponent = side.distances(rows, dtype, spare)
        if farthest > 2.0 * _DEEPEST[dtype]:
            exponent = _clip_in_place(exponent, side.shift - _DEEPEST[dtype], side.shift)
        if is_numpy(exponent):
            K = np.exp(exponent, out=exponent)
        else:
            K = exponent.exp_() if hasattr(exponent, "exp_") else namespace(exponent).exp(exponent)
        return _with_diagonal(K, self.kernel.variance) if X is self.points else K


def _adjoint(
    kernel: Stationary,
    side: Side,
    rows: AnyArray,
    T: AnyArray,
    scale: float,
    overwrite: bool,
    others: list[AnyArray] | None = None,
) -> KernelAdjoint:
    """Return what `scale·T` hands back; `others` are the cotangents of variance and shape.

    Without `others` the kernel's variance has the sum of `T`.
    """
    xp, D = namespace(T), side.points.shape[1]
    ones = xp.ones((T.shape[1],), dtype=T.dtype, device=T.device)
    thin = rows[:-1, :].T
    if T.dtype == rows.dtype:
        both = scale * contraction(thin, T).T
    else:
        thin = convert(thin, dtype_name(T))
        both = scale * cast(contraction(thin, T), "float64").T
        recycle(thin)
    scaled = rows[:D, :]
    squares = scale * (times(scaled, scaled, overwrite) @ cast(T @ ones, "float64"))
    if overwrite:
        recycle(rows)
    if others is None:
        others = [xp.sum(both[:, -1]) / scale]
    return assembled(kernel, side, both[:, :D], both[:, -1], squares, others)


def assembled(
    kernel: Stationary,
    side: Side,
    TX: AnyArray,
    column: AnyArray,
    row_squares: AnyArray,
    others: list[AnyArray],
) -> KernelAdjoint:
    """Return the adjoint from the sums through which rows enter it.

    In units of the lengthscales `Z̄ = 2 (diag(Tᵀ1) Z − TᵀX)` and
    `d/d ln ℓ_d = −2 Σ_nm T_nm (x_nd − z_md)²`, the square expanded so that no
    n × m × D array appears.

    Parameters
    ----------
    kernel : Stationary
        The kernel.
    side : Side
        Its points.
    TX, column : arrays of shape (m, D) and (m,)
        `TᵀX` and `Tᵀ1`.
    row_squares : array of shape (D,)
        `Σ_n (T1)_n x_nd²`.
    others : list of numbers
        The cotangents of the kernel's other parameters.
    """
    xp, Z = namespace(TX), side.points
    squares = row_squares + column @ side.squares - 2.0 * xp.sum(TX * Z, axis=0)
    if np.ndim(kernel.lengthscale) == 0:
        squares = xp.sum(squares)[None]
    rest = xp.stack([xp.asarray(each, dtype=xp.float64) for each in others])
    points = 2.0 * (column[:, None] * Z - TX) * side.per_length
    return KernelAdjoint(xp.concat([-2.0 * squares, rest]), points)


def times(x: AnyArray, z: AnyArray, overwrite: bool) -> AnyArray:
    """Return `x ∘ z` in the data type of `x`; `overwrite` allows to compute it in place."""
    if not is_numpy(x):
        z = cast(z, dtype_name(x))
    if not overwrite:
        return x * z
    x *= z
    return x


def _clip_in_place(x: AnyArray, low: float, high: float) -> AnyArray:
    """Clip `x` between two numbers, in place if the library can."""
    return np.clip(x, low, high, out=x) if is_numpy(x) else namespace(x).clip(x, low, high)


def _inner(x: AnyArray, z: AnyArray) -> AnyArray:
    """Return the sum of the entries of `x ∘ z`, in float64."""
    if is_numpy(x):
        return np.einsum("ni,ni->", x, z, dtype=np.float64)
    xp = namespace(x)
    return xp.sum(x * z, dtype=xp.float64)


def _with_diagonal(K: AnyArray, value: float) -> AnyArray:
    """Return a square matrix, perhaps with columns to spare, with this number on its diagonal."""
    n = K.shape[0]
    if is_numpy(K):
        np.fill_diagonal(K[:, :n], value)
        return K
    xp: Any = namespace(K)
    eye = xp.eye(n, K.shape[1], dtype=xp.bool, device=K.device)
    return xp.where(eye, xp.asarray(value, dtype=K.dtype, device=K.device), K)


class PairwiseColumns(KernelColumns):
    """The functions `x ↦ k(x, z_m)` of a kernel that gives values and derivatives of pairs.

    Rows are taken a few at a time, so that arrays of shape (n, m, D) stay small.
    """

    kernel: PairwiseKernel

    def matrix(self, X: AnyArray, dtype: str = "float64", spare: int = 0) -> AnyArray:
        """See `Columns.matrix`."""
        xp, kernel, Z = namespace(X), self.kernel.beside(X), beside(self.points, X)[None, :, :]
        parts = [cast(kernel.values(x[:, None, :], Z), dtype) for x in _in_parts(X, Z)]
        K = parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)
        return xp.concat([K, xp.zeros_like(K[:, :spare])], axis=1) if spare else K

    def forward(
        self, X: AnyArray, dtype: str = "float64", spare: int = 0
    ) -> tuple[AnyArray, PullBack]:
        """See `Columns.forward`; derivatives are computed once a cotangent is there."""

        def pull_back(
            K_bar: AnyArray, overwrite: bool = False, K: AnyArray | None = None
        ) -> KernelAdjoint:
            kernel, Z = self.kernel.beside(X), beside(self.points, X)[None, :, :]
            start, theta, points = 0, 0.0, 0.0
            for x in _in_parts(X, Z):
                bar = cast(K_bar[start : start + x.shape[0], :], "float64")
                by = kernel.contracted(x[:, None, :], Z, bar)
                start, theta = start + x.shape[0], theta + by.theta
                points = points + namespace(X).sum(by.points, axis=0)
            return KernelAdjoint(theta, points)

        return self.matrix(X, dtype, spare), pull_back


def _in_parts(X: AnyArray, Z: AnyArray) -> list[AnyArray]:
    """Return rows in float64, a few at a time; those of an array to be traced at once."""
    n, rows = X.shape[0], cast(X, "float64")
    step = max(1, PAIRED // (Z.shape[1] * Z.shape[2] + 1))
    if n is None or n <= step:
        return [rows]
    return [rows[i : i + step, :] for i in range(0, n, step)]
