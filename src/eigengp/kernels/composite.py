"""Kernels made of kernels: sums and products; and sums of kernels as compiled loops know them.

Compiled loops know stationary kernels with a `decay`, `Additive`, and sums of them:
`describe_terms` returns None for others.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import add, iadd, imul, mul
from typing import Any, ClassVar, Self

import numpy as np

from eigengp._typing import Array
from eigengp.backend.loops import find_loops, load_loops
from eigengp.backend.namespace import AnyArray, namespace
from eigengp.backend.threads import make_buffer, recycle
from eigengp.kernels.base import Kernel, KernelAdjoint, KernelColumns, Parameter, WithPullBack
from eigengp.kernels.nonstationary import Additive
from eigengp.kernels.stationary import Stationary

# The least number of points for products in float32, the number at which it is tried, and the
# largest root mean square of the change of values, systematic errors included, relative to the
# standard deviation of the noise, whose variance then grows by at most a ten-thousandth.
_MANY_POINTS, _TRIED_POINTS, _LITTLE = 4_000, 100, 1e-2


class _Pair(Kernel):
    """Two kernels side by side: the bookkeeping that sums and products share."""

    _symbol: ClassVar[str]
    # Takes the values of both to those of the kernel.
    _join: ClassVar[staticmethod[[Any, Any], Any]]
    _join_in_place: ClassVar[staticmethod[[Any, Any], Any]]
    # Whether the variances of both change with the unit of the values, or that of the left one.
    _both_vary: ClassVar[bool]

    def __init__(self, left: Kernel, right: Kernel) -> None:
        self.left = left
        self.right = right

    @property
    def theta(self) -> Array:
        return np.concatenate([self.left.theta, self.right.theta])

    @property
    def parameter_names(self) -> tuple[str, ...]:
        names = [f"left.{name}" for name in self.left.parameter_names]
        return (*names, *(f"right.{name}" for name in self.right.parameter_names))

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (*self.left.parameters, *self.right.parameters)

    def with_theta(self, theta: Array) -> Self:
        split = self.left.theta.size
        return type(self)(self.left.with_theta(theta[:split]), self.right.with_theta(theta[split:]))

    def with_ard(self, n_features: int) -> Self:
        return type(self)(self.left.with_ard(n_features), self.right.with_ard(n_features))

    def with_groups(self, groups: Sequence[int] | None) -> Self:
        return type(self)(self.left.with_groups(groups), self.right.with_groups(groups))

    @property
    def groups(self) -> tuple[int, ...] | None:  # type: ignore[override]  # That of its parts.
        return self.left.groups or self.right.groups

    def rescaled(
        self, input_scale: Array, variance_scale: float, input_shift: Array | float = 0.0
    ) -> Self:
        left = self.left.rescaled(input_scale, variance_scale, input_shift)
        right_scale = variance_scale if self._both_vary else 1.0
        return type(self)(left, self.right.rescaled(input_scale, right_scale, input_shift))

    def embed(self, inputs: Sequence[int], n_features: int) -> Self:
        own = (inputs, n_features)
        return type(self)(self.left.embed(*own), self.right.embed(*own))

    def metric(self, n_features: int) -> Array:
        return np.maximum(self.left.metric(n_features), self.right.metric(n_features))

    @property
    def constant_diagonal(self) -> float | None:
        left, right = self.left.constant_diagonal, self.right.constant_diagonal
        return None if left is None or right is None else self._join(left, right)

    def diag(self, X: AnyArray) -> AnyArray:
        return self._join(self.left.diag(X), self.right.diag(X))

    def diag_adjoint(self, X: AnyArray, bar: AnyArray) -> KernelAdjoint:
        left, right = self._split(bar, self.left.diag(X), self.right.diag(X))
        return _join_adjoints(self.left.diag_adjoint(X, left), self.right.diag_adjoint(X, right))

    def at(self, Z: AnyArray) -> KernelColumns:
        return _PairColumns(self, Z)

    def stack(self, X: AnyArray) -> AnyArray:
        K, other = self.left.stack(X), self.right.stack(X)
        K = self._join_in_place(K, other)
        recycle(other)
        return K

    @abstractmethod
    def _split(
        self, K_bar: AnyArray, K_left: AnyArray, K_right: AnyArray
    ) -> tuple[AnyArray, AnyArray]:
        """Return the cotangents of both matrices, which may have columns to spare, or diagonals."""

    def __repr__(self) -> str:
        return f"({self.left!r} {self._symbol} {self.right!r})"

    def _key(self) -> tuple[object, ...]:
        return (type(self).__name__, self.left._key(), self.right._key())


class Sum(_Pair):
    """`k(x, z) = left(x, z) + right(x, z)`; written `left + right`."""

    _symbol, _both_vary = "+", True
    _join, _join_in_place = staticmethod(add), staticmethod(iadd)

    def _split(
        self, K_bar: AnyArray, K_left: AnyArray, K_right: AnyArray
    ) -> tuple[AnyArray, AnyArray]:
        return K_bar, K_bar


class Product(_Pair):
    """`k(x, z) = left(x, z) · right(x, z)`; written `left * right`."""

    _symbol, _both_vary = "*", False
    _join, _join_in_place = staticmethod(mul), staticmethod(imul)

    def diag_adjoint(self, X: AnyArray, bar: AnyArray) -> KernelAdjoint:
        left, right = self.left.constant_diagonal, self.right.constant_diagonal
        if left is None or right is None:
            return super().diag_adjoint(X, bar)
        one = X[:1, :], namespace(bar).ones_like(bar[:1])
        parts = self.left.diag_adjoint(*one) * right, self.right.diag_adjoint(*one) * left
        theta = namespace(bar).sum(bar) * _join_adjoints(*parts).theta
        return KernelAdjoint(theta, namespace(X).zeros_like(X))

    def _split(
        self, K_bar: AnyArray, K_left: AnyArray, K_right: AnyArray
    ) -> tuple[AnyArray, AnyArray]:
        m = K_bar.shape[-1]
        return K_bar * K_right[..., :m], K_bar * K_left[..., :m]


@dataclass(eq=False)
class _PairColumns(KernelColumns):
    """The columns of two kernels side by side."""

    kernel: _Pair

    @cached_property
    def _parts(self) -> tuple[KernelColumns, KernelColumns]:
        return self.kernel.left.at(self.points), self.kernel.right.at(self.points)

    @property
    def kept_arrays(self) -> int:  # type: ignore[override]
        return 1 + sum(part.kept_arrays for part in self._parts)

    def matrix(self, X: AnyArray, dtype: str = "float64", spare: int = 0) -> AnyArray:
        return self.kernel._join(*(part.matrix(X, dtype, spare) for part in self._parts))

    def forward(self, X: AnyArray, dtype: str = "float64", spare: int = 0) -> WithPullBack:
        (K_left, back_left), (K_right, back_right) = (
            part.forward(X, dtype, spare) for part in self._parts
        )

        def pull_back(K_bar: AnyArray, overwrite: bool = False) -> KernelAdjoint:
            left_bar, right_bar = self.kernel._split(K_bar, K_left, K_right)
            left = back_left(left_bar, overwrite and left_bar is not right_bar)
            return _join_adjoints(left, back_right(right_bar, overwrite))

        return self.kernel._join(K_left, K_right), pull_back


def _join_adjoints(left: KernelAdjoint, right: KernelAdjoint) -> KernelAdjoint:
    theta = namespace(left.theta).concat([left.theta, right.theta])
    return KernelAdjoint(theta, left.points + right.points)


def describe_terms(kernel: Kernel, n_features: int) -> tuple[Array, Array] | None:
    """Return the terms whose sum a kernel is, if compiled loops know them all, else None.

    They are inverse lengthscales, (k, D), and profiles with variances, (k, 5), of k terms. Each
    function of one input, or of a group of them, is a term.
    """
    if isinstance(kernel, Sum):
        left, right = (describe_terms(each, n_features) for each in (kernel.left, kernel.right))
        if left is None or right is None:
            return None
        return np.concatenate([left[0], right[0]]), np.concatenate([left[1], right[1]])
    if isinstance(kernel, Additive):
        used = list(kernel.active_dims or range(n_features))
        number = list(kernel.groups or range(len(used)))
        per_length = np.zeros((1 + max(number), n_features))
        per_length[number, used] = 1.0 / np.asarray(kernel.lengthscale)
        part = kernel.variance / len(per_length)
        return per_length, np.tile([0.0, 0.0, 0.0, 0.0, part], (len(per_length), 1))
    if not isinstance(kernel, Stationary) or kernel.decay is None:
        return None
    per_length = np.broadcast_to(kernel.metric(n_features), (1, n_features))
    return np.ascontiguousarray(per_length), np.array([(*kernel.decay, kernel.variance)])


def pull_back_terms(kernel: Kernel, sums: Array) -> Array:
    """Return the derivatives by `kernel.theta` from the sums of `loops_numba.evaluate_gram`."""
    if isinstance(kernel, Sum):
        left: Any = describe_terms(kernel.left, sums.shape[1] - 2)
        parts = np.split(sums, [len(left[0])])
        pairs = zip((kernel.left, kernel.right), parts, strict=True)
        return np.concatenate([pull_back_terms(*each) for each in pairs])
    assert isinstance(kernel, Additive | Stationary)
    lengths, others = -2.0 * sums[:, :-2].sum(axis=0), sums[:, -2:].sum(axis=0)
    if kernel.active_dims is not None:
        lengths = lengths[list(kernel.active_dims)]
    if np.ndim(kernel.lengthscale) == 0:
        lengths = lengths.sum(keepdims=True)
    elif kernel.groups is not None:
        lengths = kernel.sum_groups(lengths)
    n_others = len(kernel.parameters) - lengths.size
    return kernel.variance / len(sums) * np.concatenate([lengths, others[:n_others]])


class LoopColumns:
    """The functions `x ↦ k(x, z_m)` by compiled loops, of a kernel whose terms they know.

    Parameters
    ----------
    terms : pair of arrays
        What `describe_terms` returns.
    Z : array of shape (m, D)
        The points.
    """

    def __init__(self, terms: tuple[Array, Array], Z: Array) -> None:
        self._per_length, self._known = terms
        self._centre = Z.mean(axis=0)
        self._points = np.ascontiguousarray(self._scale(Z).swapaxes(1, 2))

    @classmethod
    def of(cls, columns: KernelColumns) -> LoopColumns | None:
        """Return the functions, or None where compiled loops are missing or do not know them."""
        if not hasattr(load_loops(), "fill_matrix"):
            return None
        terms = describe_terms(columns.kernel, columns.points.shape[1])
        return None if terms is None else cls(terms, columns.points)

    def matrix(self, X: Array) -> Array:
        """Return `k(X, Z)`, shape (n, m)."""
        K, scaled = np.empty((X.shape[0], self._points.shape[2])), self._scale(X)
        find_loops(X).fill_matrix(np.ascontiguousarray(scaled), self._points, self._known, K)
        return K

    def stack(self, X: Array, at: Array, own: Array | None, dtype: str) -> Array:
        """Return `Kernel.stack` of rows of X, and of one more in each set if `own` is given.

        Parameters
        ----------
        X : array of shape (N, D)
            The rows.
        at : array of shape (n, m)
            The numbers of the rows in each set.
        own : array of shape (n, D) or None
            The last members.
        dtype : {"float64", "float32"}
            The type of the result. Rounding is relative to the variance of the kernel.
        """
        s, known = at.shape[1] + (own is not None), self._known.astype(dtype)
        R = make_buffer((at.shape[0], s * (s + 1) // 2), dtype)
        X, own = (np.ascontiguousarray(each) for each in (X, X[:0] if own is None else own))
        find_loops(X).fill_stack(X, at, own, self._per_length, known, R)
        return R

    def _scale(self, X: Array) -> Array:
        """Return inputs in units of the lengthscales of each term, shape (k, n, D)."""
        return (X - self._centre) * self._per_length[:, None]


class KernelProduct(LoopColumns):
    """The function `x ↦ k(x, Z) v` by compiled loops.

    Parameters
    ----------
    terms, Z
        See `LoopColumns`.
    v : array of shape (m,)
        The coefficients.
    noise : float
        The standard deviation of the noise. If rounding in float32 changes the values at some of
        many points by far less, all are computed in float32.
    """

    def __init__(self, terms: tuple[Array, Array], Z: Array, v: Array, noise: float) -> None:
        super().__init__(terms, Z)
        self._v = np.ascontiguousarray(v)
        self._dtype: Any = np.float64
        if v.size >= _MANY_POINTS:
            some = Z[:: v.size // _TRIED_POINTS]
            error = self._multiply(some, np.float32) - self(some)
            change = np.sqrt(np.mean(error**2))
            self._dtype = np.float32 if change < _LITTLE * noise else np.float64
        self._points = self._points.astype(self._dtype)

    def __call__(self, X: Array) -> Array:
        """Return the values at X, shape (n,)."""
        return self._multiply(X, self._dtype)

    def _multiply(self, X: Array, dtype: Any) -> Array:
        arrays, out = (self._scale(X), self._points, self._known), np.zeros(X.shape[0])
        given = (np.ascontiguousarray(each, dtype=dtype) for each in arrays)
        find_loops(X).multiply(*given, self._v, out)
        return out
