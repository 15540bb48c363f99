"""What every kernel can do, and how kernels combine.

A kernel is an immutable description of a covariance function `k(x, z)`.
The flow asks three things of it: its matrix between two sets of points, its
diagonal, and the pull-back of a cotangent on that matrix to the kernel's
parameters and to the second set of points.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np

from eigengp.typing import Array


class KernelAdjoint(NamedTuple):
    """Cotangents that a kernel matrix hands back."""

    theta: Array
    """With respect to `kernel.theta`, the logarithms of the parameters."""
    points: Array
    """With respect to the second set of points `Z`, shape (m, D)."""


PullBack = Callable[[Array], KernelAdjoint]


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
    def forward(self, X: Array, Z: Array) -> tuple[Array, PullBack]:
        """Return `k(X, Z)`, shape (n, m), and the function that pulls a cotangent back.

        `Z is X` marks a Gram matrix; the pull-back still differentiates
        with respect to the second argument alone.
        """

    @abstractmethod
    def diagonal_theta_gradient(self) -> Array:
        """Return the derivative of `k(x, x)` with respect to `theta`."""

    @property
    @abstractmethod
    def total_variance(self) -> float:
        """The value `k(x, x)`, the same everywhere for the kernels here."""

    @abstractmethod
    def matrix(self, X: Array, Z: Array) -> Array:
        """Return `k(X, Z)` alone, shape (n, m)."""

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

    def matrix(self, X: Array, Z: Array) -> Array:
        return self.left.matrix(X, Z) + self.right.matrix(X, Z)

    def diagonal_theta_gradient(self) -> Array:
        return np.concatenate(
            [self.left.diagonal_theta_gradient(), self.right.diagonal_theta_gradient()]
        )

    def forward(self, X: Array, Z: Array) -> tuple[Array, PullBack]:
        K_left, back_left = self.left.forward(X, Z)
        K_right, back_right = self.right.forward(X, Z)

        def pull_back(K_bar: Array) -> KernelAdjoint:
            return _joined(back_left(K_bar), back_right(K_bar))

        return K_left + K_right, pull_back


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

    def matrix(self, X: Array, Z: Array) -> Array:
        return self.left.matrix(X, Z) * self.right.matrix(X, Z)

    def diagonal_theta_gradient(self) -> Array:
        return np.concatenate(
            [
                self.left.diagonal_theta_gradient() * self.right.total_variance,
                self.right.diagonal_theta_gradient() * self.left.total_variance,
            ]
        )

    def forward(self, X: Array, Z: Array) -> tuple[Array, PullBack]:
        K_left, back_left = self.left.forward(X, Z)
        K_right, back_right = self.right.forward(X, Z)

        def pull_back(K_bar: Array) -> KernelAdjoint:
            return _joined(back_left(K_bar * K_right), back_right(K_bar * K_left))

        return K_left * K_right, pull_back


def _joined(left: KernelAdjoint, right: KernelAdjoint) -> KernelAdjoint:
    return KernelAdjoint(np.concatenate([left.theta, right.theta]), left.points + right.points)
