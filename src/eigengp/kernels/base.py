"""What every kernel can do, and how kernels combine.

A kernel is an immutable description of a covariance function `k(x, z)`.
The flow asks three things of it: its matrix between rows and a set of points,
its diagonal, and the pull-back of a cotangent on that matrix to the kernel's
parameters and to the points. Rows may lie in any library's arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol, Self

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, namespace
from eigengp.kernels.stacks import StackPullBack


class KernelAdjoint(NamedTuple):
    """Cotangents that a kernel matrix hands back."""

    theta: AnyArray
    """With respect to `kernel.theta`, the logarithms of the parameters."""
    points: AnyArray
    """With respect to the second set of points `Z`, shape (m, D)."""


class PullBack(Protocol):
    """Takes a cotangent on a kernel matrix back through the kernel."""

    def __call__(
        self, K_bar: AnyArray, /, overwrite: bool = False, K: AnyArray | None = None
    ) -> KernelAdjoint:
        """Return what a cotangent hands back.

        Parameters
        ----------
        K_bar : array of shape (n, m)
            The cotangent.
        overwrite : bool
            Offers its memory, and says that this is the last call.
        K : array or None
            If given, the matrix in the data type of `K_bar`. It stands for the one that was
            returned, whose memory may hold something else by now.
        """


class Columns(Protocol):
    """The functions `x ↦ k(x, z_m)` of a kernel at fixed points `Z`."""

    @property
    def kept_arrays(self) -> int:
        """How many arrays of shape (n, m) a pull-back holds on to."""

    def matrix(self, X: AnyArray, dtype: str = "float64", spare: int = 0) -> AnyArray:
        """Return `k(X, Z)`, shape (n, m + spare), in the library of `X`.

        Parameters
        ----------
        X : array of shape (n, D)
            Rows; the points themselves mark a Gram matrix.
        dtype : {"float64", "float32"}
            The precision of the result.
        spare : {0, 1}
            How many columns to add at the end, for the caller to fill.
        """

    def forward(
        self, X: AnyArray, dtype: str = "float64", spare: int = 0
    ) -> tuple[AnyArray, PullBack]:
        """Return `k(X, Z)` and the function that pulls a cotangent on it back.

        The pull-back differentiates with respect to `Z` alone, even where
        `X` are the same points.
        """


class Kernel(ABC):
    """A covariance function with positive parameters."""

    @property
    @abstractmethod
    def theta(self) -> Array:
        """The natural logarithms of all parameters, as one vector."""

    @property
    @abstractmethod
    def parameter_names(self) -> tuple[str, ...]:
        """One name for each entry of `theta`."""

    @abstractmethod
    def with_theta(self, theta: Array) -> Self:
        """Return the same kernel with other parameters."""

    @abstractmethod
    def with_ard(self, n_features: int) -> Self:
        """Return the kernel with one lengthscale for each of `n_features` inputs."""

    @abstractmethod
    def rescaled(self, input_scale: Array, variance_scale: float) -> Self:
        """Return the kernel for inputs times `input_scale`, values times √`variance_scale`."""

    @abstractmethod
    def at(self, Z: AnyArray) -> Columns:
        """Return the functions `x ↦ k(x, z_m)` at these points, shape (m, D)."""

    def forward(self, X: AnyArray, Z: AnyArray) -> tuple[AnyArray, PullBack]:
        """Return `k(X, Z)`, shape (n, m), and its pull-back; see `Columns.forward`."""
        return self.at(Z).forward(X)

    def matrix(self, X: AnyArray, Z: AnyArray) -> AnyArray:
        """Return `k(X, Z)` alone, shape (n, m)."""
        return self.at(Z).matrix(X)

    @abstractmethod
    def stack(self, X: Array) -> tuple[Array, StackPullBack]:
        """Return the Gram matrices of `n` sets of points, and their pull-back to `theta`.

        Parameters
        ----------
        X : array of shape (n, s, D)
            The sets; the matrices have shape (n, s, s).
        """

    @abstractmethod
    def diagonal_theta_gradient(self) -> Array:
        """Return the derivative of `k(x, x)` with respect to `theta`."""

    @property
    @abstractmethod
    def total_variance(self) -> float:
        """The value `k(x, x)`, the same everywhere for the kernels here."""

    @property
    @abstractmethod
    def metric(self) -> Array:
        """What inputs are multiplied by to tell who is near whom, shape (D,) or one number."""

    def __call__(self, X: Array, Z: Array | None = None) -> Array:
        """Return the matrix `k(X, Z)`, or `k(X, X)` where `Z` is not given."""
        X = _as_points(X)
        ard = self.with_ard(X.shape[1])
        return ard.matrix(X, X if Z is None else _as_points(Z))

    def __add__(self, other: Kernel) -> Sum:
        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Kernel) -> Product:
        return Product(self, other) if isinstance(other, Kernel) else NotImplemented

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return (type(self).__name__, *self.parameter_names, *self.theta.tolist())


def _as_points(X: Array) -> Array:
    points = np.asarray(X, dtype=np.float64)
    if points.ndim != 2:
        raise ValueError(
            f"Points must form a 2-D array (points, inputs), got shape {points.shape}. "
            "Reshape a single input with X.reshape(-1, 1)."
        )
    return points


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

    def with_theta(self, theta: Array) -> Self:
        split = self.left.theta.size
        return type(self)(self.left.with_theta(theta[:split]), self.right.with_theta(theta[split:]))

    def with_ard(self, n_features: int) -> Self:
        return type(self)(self.left.with_ard(n_features), self.right.with_ard(n_features))

    @property
    def metric(self) -> Array:
        return np.maximum(self.left.metric, self.right.metric)

    def __repr__(self) -> str:
        return f"({self.left!r} {self._symbol} {self.right!r})"

    def _key(self) -> tuple[object, ...]:
        return (type(self).__name__, self.left._key(), self.right._key())


class Sum(_Pair):
    """`k(x, z) = left(x, z) + right(x, z)`; written `left + right`."""

    _symbol = "+"

    @property
    def total_variance(self) -> float:
        return self.left.total_variance + self.right.total_variance

    def rescaled(self, input_scale: Array, variance_scale: float) -> Self:
        return type(self)(
            self.left.rescaled(input_scale, variance_scale),
            self.right.rescaled(input_scale, variance_scale),
        )

    def diagonal_theta_gradient(self) -> Array:
        return np.concatenate(
            [self.left.diagonal_theta_gradient(), self.right.diagonal_theta_gradient()]
        )

    def at(self, Z: AnyArray) -> Columns:
        return _SumColumns(self.left.at(Z), self.right.at(Z))

    def stack(self, X: Array) -> tuple[Array, StackPullBack]:
        (K_left, left), (K_right, right) = self.left.stack(X), self.right.stack(X)
        return K_left + K_right, lambda K_bar: np.concatenate([left(K_bar), right(K_bar)])


class Product(_Pair):
    """`k(x, z) = left(x, z) · right(x, z)`; written `left * right`."""

    _symbol = "*"

    @property
    def total_variance(self) -> float:
        return self.left.total_variance * self.right.total_variance

    def rescaled(self, input_scale: Array, variance_scale: float) -> Self:
        return type(self)(
            self.left.rescaled(input_scale, variance_scale), self.right.rescaled(input_scale, 1.0)
        )

    def diagonal_theta_gradient(self) -> Array:
        return np.concatenate(
            [
                self.left.diagonal_theta_gradient() * self.right.total_variance,
                self.right.diagonal_theta_gradient() * self.left.total_variance,
            ]
        )

    def at(self, Z: AnyArray) -> Columns:
        return _ProductColumns(self.left.at(Z), self.right.at(Z))

    def stack(self, X: Array) -> tuple[Array, StackPullBack]:
        (K_left, left), (K_right, right) = self.left.stack(X), self.right.stack(X)

        def pull_back(K_bar: Array) -> Array:
            return np.concatenate([left(K_bar * K_right), right(K_bar * K_left)])

        return K_left * K_right, pull_back


class _PairColumns:
    """The columns of two kernels side by side."""

    def __init__(self, left: Columns, right: Columns) -> None:
        self.left = left
        self.right = right

    @property
    def kept_arrays(self) -> int:
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
