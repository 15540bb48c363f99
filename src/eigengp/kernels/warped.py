"""A kernel of warped inputs, for functions that vary faster in one region than in another.

Each input is mapped by a monotone function before the kernel sees it, which stretches the regions
in which functions vary quickly: `k(w(x), w(z))` (Snoek, Swersky, Zemel and Adams, 2014).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, beside, cast, namespace
from eigengp.kernels.base import Kernel, KernelAdjoint, KernelColumns, Parameter, WithPullBack

_EXPONENT = Parameter((0.1, 10.0), per_input=True, log_prior=(0.0, 0.75))


@dataclass(frozen=True, eq=False)
class Warped(Kernel):
    """`k(w(x), w(z))`, where `w` warps each input by the distribution function of Kumaraswamy.

    Between `low` and `high`, `w(x) = low + (high − low) (1 − (1 − u^a)^b)` with
    `u = (x − low)/(high − low)`; beyond them `w(x) = x`. `a = b = 1` is the identity. `a < 1`
    stretches the neighbourhood of `low`, and `b < 1` that of `high`. The two exponents act
    differently, so an input with `low` above `high` is warped as its negative would be.

    Parameters
    ----------
    kernel : Kernel
        The kernel of the warped inputs.
    low, high : arrays of shape (D,)
        The ends of the range that is warped, which are not learned.
    a, b : float or arrays of shape (D,)
        The exponents, which are learned.

    Examples
    --------
    >>> from eigengp import EigenGPRegressor, SquaredExponential, Warped
    >>> kernel = Warped(SquaredExponential(), low=[0.0], high=[3.0])
    >>> model = EigenGPRegressor(kernel=kernel, residual="exact")
    """

    kernel: Kernel
    low: Array
    high: Array
    a: float | Array = 1.0
    b: float | Array = 1.0

    def __post_init__(self) -> None:
        low, high = (np.array(each, float, ndmin=1) for each in (self.low, self.high))
        if low.shape != high.shape or not np.all(low != high):
            raise ValueError(
                "low and high must have one entry for each input, and must differ, got "
                f"{self.low!r} and {self.high!r}."
            )
        a, b = (np.broadcast_to(np.asarray(each, float), low.shape) for each in (self.a, self.b))
        if not (np.all(a > 0) and np.all(b > 0)):
            raise ValueError(f"a and b must be positive, got {self.a!r} and {self.b!r}.")
        for name, value in {"low": low, "high": high, "a": a, "b": b}.items():
            object.__setattr__(self, name, value)

    @property
    def theta(self) -> Array:
        return np.concatenate([self.kernel.theta, np.log(self.a), np.log(self.b)])

    @property
    def parameter_names(self) -> tuple[str, ...]:
        own = [f"{name}[{d}]" for name in "ab" for d in range(self.low.size)]
        return (*(f"kernel.{name}" for name in self.kernel.parameter_names), *own)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (*self.kernel.parameters, *(2 * self.low.size * (_EXPONENT,)))

    def with_theta(self, theta: Array) -> Self:
        count = self.kernel.theta.size
        a, b = np.split(np.exp(theta[count:]), 2)
        return replace(self, kernel=self.kernel.with_theta(theta[:count]), a=a, b=b)

    def with_ard(self, n_features: int) -> Self:
        if self.low.size != n_features:
            raise ValueError(
                f"The warp has {self.low.size} inputs but X has {n_features} features."
            )
        return replace(self, kernel=self.kernel.with_ard(n_features))

    def with_groups(self, groups: Sequence[int] | None) -> Self:
        return replace(self, kernel=self.kernel.with_groups(groups))

    @property
    def groups(self) -> tuple[int, ...] | None:  # type: ignore[override]  # That of its kernel.
        return self.kernel.groups

    def rescaled(
        self, input_scale: Array, variance_scale: float, input_shift: Array | float = 0.0
    ) -> Self:
        low, high = (each * input_scale + input_shift for each in (self.low, self.high))
        kernel = self.kernel.rescaled(input_scale, variance_scale, input_shift)
        return replace(self, kernel=kernel, low=low, high=high)

    def embed(self, inputs: Sequence[int], n_features: int) -> Self:
        unused = {"low": -1.0, "high": 1.0, "a": 1.0, "b": 1.0}
        changed = {name: np.full(n_features, value) for name, value in unused.items()}
        for name, values in changed.items():
            values[list(inputs)] = getattr(self, name)
        return replace(self, kernel=self.kernel.embed(inputs, n_features), **changed)

    def warp(self, X: AnyArray) -> AnyArray:
        """Return `w(x)` of each row, shape (n, D)."""
        xp, low, width = namespace(X), beside(self.low, X), beside(self.high - self.low, X)
        u, inside = self._unit(X)
        power = (1.0 - u ** beside(self.a, X)) ** beside(self.b, X)
        return xp.where(inside, low + width * (1.0 - power), cast(X, "float64"))

    def _unit(self, X: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Return `u` and whether it lies inside the range; outside, one half stands for it."""
        xp = namespace(X)
        u = (cast(X, "float64") - beside(self.low, X)) / beside(self.high - self.low, X)
        inside = (u > 0.0) & (u < 1.0)
        return xp.where(inside, u, 0.5 * xp.ones_like(u)), inside

    def slopes(self, X: AnyArray) -> tuple[AnyArray, AnyArray, AnyArray]:
        """Return `dw/dx`, `dw/d ln a` and `dw/d ln b`, each of shape (n, D)."""
        xp, width = namespace(X), beside(self.high - self.low, X)
        a, b = beside(self.a, X), beside(self.b, X)
        u, inside = self._unit(X)
        power, none = u**a, xp.zeros_like(u)
        outer = b * (1.0 - power) ** (b - 1.0)
        by_x = xp.where(inside, outer * a * power / u, none + 1.0)
        by_a = xp.where(inside, width * outer * power * xp.log(u) * a, none)
        by_b = xp.where(inside, -width * (1.0 - power) ** b * xp.log(1.0 - power) * b, none)
        return by_x, by_a, by_b

    def pull_back(self, X: AnyArray, bar: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Pull a cotangent on `w(X)` back to the exponents, shape (2D,), and to `X`."""
        xp, (by_x, by_a, by_b) = namespace(X), self.slopes(X)
        return xp.concat([xp.sum(bar * by_a, axis=0), xp.sum(bar * by_b, axis=0)]), bar * by_x

    @property
    def constant_diagonal(self) -> float | None:
        return self.kernel.constant_diagonal

    def diag(self, X: AnyArray) -> AnyArray:
        return self.kernel.diag(self.warp(X))

    def diag_adjoint(self, X: AnyArray, bar: AnyArray) -> KernelAdjoint:
        own = self.kernel.diag_adjoint(self.warp(X), bar)
        exponents, points = self.pull_back(X, own.points)
        return KernelAdjoint(namespace(bar).concat([own.theta, exponents]), points)

    def at(self, Z: AnyArray) -> KernelColumns:
        return _WarpedColumns(self, Z)

    def metric(self, n_features: int) -> Array:
        return self.kernel.metric(n_features)

    def stack(self, X: AnyArray) -> AnyArray:
        raise TypeError(
            "A warped kernel cannot be used with residual='neighbors'; use residual='exact', None "
            "or 'diagonal'."
        )

    def _key(self) -> tuple[object, ...]:
        ends = (*self.low.tolist(), *self.high.tolist())
        return (type(self).__name__, self.kernel._key(), *self.theta.tolist(), *ends)


class _WarpedColumns(KernelColumns):
    """The functions `x ↦ k(w(x), w(z_m))`."""

    kernel: Warped

    @cached_property
    def _own_points(self) -> AnyArray:
        return self.kernel.warp(self.points)

    @cached_property
    def _columns(self) -> KernelColumns:
        return self.kernel.kernel.at(self._own_points)

    @property
    def kept_arrays(self) -> int:  # type: ignore[override]  # That of the warped columns.
        """See `KernelColumns.kept_arrays`."""
        return self._columns.kept_arrays

    def _rows(self, X: AnyArray) -> AnyArray:
        return self._own_points if X is self.points else self.kernel.warp(X)

    def matrix(self, X: AnyArray, dtype: str = "float64", spare: int = 0) -> AnyArray:
        """See `KernelColumns.matrix`."""
        return self._columns.matrix(self._rows(X), dtype, spare)

    def forward(self, X: AnyArray, dtype: str = "float64", spare: int = 0) -> WithPullBack:
        """See `KernelColumns.forward`; the exponents move both rows and points."""
        rows = self._rows(X)
        K, back = self._columns.forward(rows, dtype, spare)

        def pull_back(K_bar: AnyArray, overwrite: bool = False) -> KernelAdjoint:
            of_rows = cast(self._columns.input_gradient(rows, K_bar), "float64")
            own = back(K_bar, overwrite)
            by_rows, _ = self.kernel.pull_back(X, of_rows)
            by_points, points = self.kernel.pull_back(
                beside(self.points, own.points), cast(own.points, "float64")
            )
            theta = namespace(own.theta).concat([cast(own.theta, "float64"), by_rows + by_points])
            return KernelAdjoint(theta, points)

        return K, pull_back
