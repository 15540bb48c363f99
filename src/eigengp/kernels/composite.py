"""Kernels made of kernels: sums, products, and kernels of some of the inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, is_numpy, namespace
from eigengp.kernels.base import (
    Kernel,
    KernelAdjoint,
    Parameter,
    ParametricKernel,
    PullBack,
    StackPullBack,
)
from eigengp.kernels.cross_covariance import KernelColumns


class _Pair(Kernel):
    """Two kernels side by side: the bookkeeping that sums and products share."""

    _symbol = "?"

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

    def metric(self, n_features: int) -> Array:
        return np.maximum(self.left.metric(n_features), self.right.metric(n_features))

    def __repr__(self) -> str:
        return f"({self.left!r} {self._symbol} {self.right!r})"

    def _key(self) -> tuple[object, ...]:
        return (type(self).__name__, self.left._key(), self.right._key())


class Sum(_Pair):
    """`k(x, z) = left(x, z) + right(x, z)`; written `left + right`."""

    _symbol = "+"

    def rescaled(
        self, input_scale: Array, variance_scale: float, input_shift: Array | float = 0.0
    ) -> Self:
        units = (input_scale, variance_scale, input_shift)
        return type(self)(self.left.rescaled(*units), self.right.rescaled(*units))

    @property
    def constant_diagonal(self) -> float | None:
        left, right = self.left.constant_diagonal, self.right.constant_diagonal
        return None if left is None or right is None else left + right

    def diag(self, X: AnyArray) -> AnyArray:
        return self.left.diag(X) + self.right.diag(X)

    def diag_pull_back(self, X: AnyArray, bar: AnyArray) -> AnyArray:
        both = [self.left.diag_pull_back(X, bar), self.right.diag_pull_back(X, bar)]
        return namespace(bar).concat(both)

    def diag_input_gradient(self, X: AnyArray) -> AnyArray:
        return self.left.diag_input_gradient(X) + self.right.diag_input_gradient(X)

    def at(self, Z: AnyArray) -> KernelColumns:
        return _SumColumns(self, Z)

    def stack(self, X: Array) -> tuple[Array, StackPullBack]:
        (K_left, left), (K_right, right) = self.left.stack(X), self.right.stack(X)
        return K_left + K_right, lambda K_bar: np.concatenate([left(K_bar), right(K_bar)])


class Product(_Pair):
    """`k(x, z) = left(x, z) · right(x, z)`; written `left * right`."""

    _symbol = "*"

    def rescaled(
        self, input_scale: Array, variance_scale: float, input_shift: Array | float = 0.0
    ) -> Self:
        return type(self)(
            self.left.rescaled(input_scale, variance_scale, input_shift),
            self.right.rescaled(input_scale, 1.0, input_shift),
        )

    @property
    def constant_diagonal(self) -> float | None:
        left, right = self.left.constant_diagonal, self.right.constant_diagonal
        return None if left is None or right is None else left * right

    def diag(self, X: AnyArray) -> AnyArray:
        return self.left.diag(X) * self.right.diag(X)

    def diag_pull_back(self, X: AnyArray, bar: AnyArray) -> AnyArray:
        xp = namespace(bar)
        if self.left.constant_diagonal is None or self.right.constant_diagonal is None:
            left = self.left.diag_pull_back(X, bar * self.right.diag(X))
            return xp.concat([left, self.right.diag_pull_back(X, bar * self.left.diag(X))])
        one = X[:1, :], xp.ones_like(bar[:1])
        left = self.left.diag_pull_back(*one) * self.right.constant_diagonal
        right = self.right.diag_pull_back(*one) * self.left.constant_diagonal
        return xp.sum(bar) * xp.concat([left, right])

    def diag_input_gradient(self, X: AnyArray) -> AnyArray:
        left = self.left.diag_input_gradient(X) * self.right.diag(X)[:, None]
        return left + self.right.diag_input_gradient(X) * self.left.diag(X)[:, None]

    def at(self, Z: AnyArray) -> KernelColumns:
        return _ProductColumns(self, Z)

    def stack(self, X: Array) -> tuple[Array, StackPullBack]:
        (K_left, left), (K_right, right) = self.left.stack(X), self.right.stack(X)

        def pull_back(K_bar: Array) -> Array:
            return np.concatenate([left(K_bar * K_right), right(K_bar * K_left)])

        return K_left * K_right, pull_back


@dataclass(eq=False)
class _PairColumns(KernelColumns):
    """The columns of two kernels side by side."""

    kernel: _Pair

    def __post_init__(self) -> None:
        self.left, self.right = self.kernel.left.at(self.points), self.kernel.right.at(self.points)

    @property
    def kept_arrays(self) -> int:  # type: ignore[override]
        return self.left.kept_arrays + self.right.kept_arrays + 1


class _SumColumns(_PairColumns):
    def matrix(self, X: AnyArray, dtype: str = "float64", spare: int = 0) -> AnyArray:
        return self.left.matrix(X, dtype, spare) + self.right.matrix(X, dtype, spare)

    def forward(
        self, X: AnyArray, dtype: str = "float64", spare: int = 0
    ) -> tuple[AnyArray, PullBack]:
        K_left, back_left = self.left.forward(X, dtype, spare)
        K_right, back_right = self.right.forward(X, dtype, spare)

        def pull_back(
            K_bar: AnyArray, overwrite: bool = False, K: AnyArray | None = None
        ) -> KernelAdjoint:
            return _joined(back_left(K_bar), back_right(K_bar, overwrite))

        return K_left + K_right, pull_back


class _ProductColumns(_PairColumns):
    def matrix(self, X: AnyArray, dtype: str = "float64", spare: int = 0) -> AnyArray:
        return self.left.matrix(X, dtype, spare) * self.right.matrix(X, dtype, spare)

    def forward(
        self, X: AnyArray, dtype: str = "float64", spare: int = 0
    ) -> tuple[AnyArray, PullBack]:
        K_left, back_left = self.left.forward(X, dtype, spare)
        K_right, back_right = self.right.forward(X, dtype, spare)

        def pull_back(
            K_bar: AnyArray, overwrite: bool = False, K: AnyArray | None = None
        ) -> KernelAdjoint:
            m = K_bar.shape[1]
            bars = K_bar * K_right[:, :m], K_bar * K_left[:, :m]
            return _joined(back_left(bars[0], overwrite), back_right(bars[1], overwrite))

        return K_left * K_right, pull_back


def _joined(left: KernelAdjoint, right: KernelAdjoint) -> KernelAdjoint:
    theta = namespace(left.theta).concat([left.theta, right.theta])
    return KernelAdjoint(theta, left.points + right.points)


@dataclass(eq=False)
class ActiveColumns(KernelColumns):
    """The columns of a kernel that sees some of the inputs alone; points have all of them."""

    kernel: ParametricKernel

    def __post_init__(self) -> None:
        assert self.kernel.active_dims is not None
        self.dims = self.kernel.active_dims
        self._own_points = take_inputs(self.points, self.dims)
        self._columns = self.kernel._columns(self._own_points)

    @property
    def kept_arrays(self) -> int:  # type: ignore[override]
        return self._columns.kept_arrays

    def _rows(self, X: AnyArray) -> AnyArray:
        """Return the rows that the kernel sees; its own points where they are the points."""
        return self._own_points if X is self.points else take_inputs(X, self.dims)

    def matrix(self, X: AnyArray, dtype: str = "float64", spare: int = 0) -> AnyArray:
        """See `Columns.matrix`."""
        return self._columns.matrix(self._rows(X), dtype, spare)

    def forward(
        self, X: AnyArray, dtype: str = "float64", spare: int = 0
    ) -> tuple[AnyArray, PullBack]:
        """See `Columns.forward`; inputs that the kernel does not see receive zero."""
        K, back = self._columns.forward(self._rows(X), dtype, spare)

        def pull_back(
            K_bar: AnyArray, overwrite: bool = False, K: AnyArray | None = None
        ) -> KernelAdjoint:
            own = back(K_bar, overwrite, K)
            return KernelAdjoint(own.theta, put_inputs(own.points, self.dims, X.shape[1]))

        return K, pull_back


def take_inputs(X: AnyArray, dims: tuple[int, ...] | None) -> AnyArray:
    """Return some inputs of all rows, in any library's arrays; None is all of them."""
    if dims is None:
        return X
    if is_numpy(X):
        return X[:, list(dims)]
    return namespace(X).concat([X[:, d : d + 1] for d in dims], axis=1)


def put_inputs(own: AnyArray, dims: tuple[int, ...] | None, n_features: int) -> AnyArray:
    """Return columns in the place of these inputs, zero for the others, shape (n, D)."""
    if dims is None:
        return own
    xp = namespace(own)
    columns = [xp.zeros_like(own[:, :1])] * n_features
    for i, d in enumerate(dims):
        columns[d] = own[:, i : i + 1]
    return xp.concat(columns, axis=1)
