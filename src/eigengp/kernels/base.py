"""What every kernel can do, and how a kernel declares its parameters.

A kernel is an immutable description of a covariance function `k(x, z)`. A model asks for its
matrix between rows and a set of points, its diagonal, and the pull-back of a cotangent on either
to the kernel's parameters and to the points. Rows may lie in any library's arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    dataclass_transform,
)

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import Additive, AnyArray, beside, is_numpy

if TYPE_CHECKING:
    from eigengp.kernels.composite import Product, Sum


@dataclass(frozen=True)
class KernelAdjoint(Additive):
    """Cotangents that a kernel matrix hands back; those of blocks of rows add up."""

    theta: AnyArray
    """With respect to `kernel.theta`, the logarithms of the parameters."""
    points: AnyArray
    """With respect to the second set of points `Z`, shape (m, D)."""


class PullBack(Protocol):
    """Takes a cotangent on a kernel matrix back through the kernel."""

    def __call__(self, K_bar: AnyArray, /, overwrite: bool = False) -> KernelAdjoint:
        """Return what a cotangent hands back.

        Parameters
        ----------
        K_bar : array of shape (n, m)
            The cotangent.
        overwrite : bool
            Offers its memory, and says that this is the last call.
        """


WithPullBack: TypeAlias = tuple[AnyArray, PullBack]  # A kernel matrix and its pull-back.


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

    @property
    @abstractmethod
    def parameters(self) -> tuple[Parameter, ...]:
        """The declaration of each entry of `theta`: bounds, and how it is scaled."""

    @abstractmethod
    def with_theta(self, theta: Array) -> Self:
        """Return the same kernel with other parameters."""

    @abstractmethod
    def with_ard(self, n_features: int) -> Self:
        """Return the kernel with one lengthscale for each of `n_features` inputs."""

    groups: tuple[int, ...] | None = None
    """The group of each input; inputs of a group share one lengthscale. None has no groups."""

    @abstractmethod
    def with_groups(self, groups: Sequence[int] | None) -> Self:
        """Return the kernel with one lengthscale for each group of inputs; None has no groups."""

    @abstractmethod
    def rescaled(
        self, input_scale: Array, variance_scale: float, input_shift: Array | float = 0.0
    ) -> Self:
        """Return the kernel after a change of units.

        Inputs are multiplied by `input_scale` and then moved by `input_shift`; values are
        multiplied by `√variance_scale`.
        """

    def embed(self, inputs: Sequence[int], n_features: int) -> Self:
        """Return the kernel for rows of `n_features` inputs, of which it uses only `inputs`.

        Its first input is the number `inputs[0]` of the rows, and so on. Parameters of unused
        inputs are those that let an input matter least.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define embed.")

    @abstractmethod
    def at(self, Z: AnyArray) -> KernelColumns:
        """Return the functions `x ↦ k(x, z_m)` at these points, shape (m, D)."""

    def forward(self, X: AnyArray, Z: AnyArray) -> WithPullBack:
        """Return `k(X, Z)`, shape (n, m), and its pull-back; see `KernelColumns.forward`."""
        return self.at(Z).forward(X)

    def matrix(self, X: AnyArray, Z: AnyArray) -> AnyArray:
        """Return `k(X, Z)` alone, shape (n, m)."""
        return self.at(Z).matrix(X)

    @abstractmethod
    def stack(self, X: AnyArray) -> AnyArray:
        """Return the Gram matrices of `n` sets of points, in memory that may be recycled.

        They are packed: the entries on and above the diagonal, row by row, as
        `np.triu_indices(s)` lists them, shape (n, P) with `P = s (s + 1)/2`.

        Parameters
        ----------
        X : array of shape (n, s, D)
            The sets.
        """

    @property
    @abstractmethod
    def constant_diagonal(self) -> float | None:
        """The value of `k(x, x)` where it is the same for all `x`; else None."""

    @abstractmethod
    def diag(self, X: AnyArray) -> AnyArray:
        """Return `k(x_n, x_n)`, shape (n,), in float64."""

    @abstractmethod
    def diag_adjoint(self, X: AnyArray, bar: AnyArray) -> KernelAdjoint:
        """Return the derivatives of `Σ_n bar_n k(x_n, x_n)` with respect to `theta` and `X`."""

    @abstractmethod
    def metric(self, n_features: int) -> Array:
        """Return the factors of the inputs in the distance of a neighbour search.

        They measure how fast functions change along each input, relative to their size:
        shape (D,), zero for inputs that the kernel does not use, or one number for all.
        """

    def __call__(self, X: Array, Z: Array | None = None) -> Array:
        """Return the matrix `k(X, Z)`, or `k(X, X)` where `Z` is not given."""
        X = _as_points(X)
        ard = self.with_ard(X.shape[1])
        return ard.matrix(X, X if Z is None else _as_points(Z))

    def __add__(self, other: Kernel) -> Sum:
        from eigengp.kernels.composite import Sum

        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Kernel) -> Product:
        from eigengp.kernels.composite import Product

        return Product(self, other) if isinstance(other, Kernel) else NotImplemented

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return (type(self).__name__, *self.parameter_names, *self.theta.tolist())


KernelT = TypeVar("KernelT", bound=Kernel)


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
    """How many arrays of shape (n, m) a pull-back holds on to."""

    @abstractmethod
    def matrix(self, X: AnyArray, dtype: str = "float64", spare: int = 0) -> AnyArray:
        """Return `k(X, Z)`, shape (n, m + spare), in the library of `X`.

        Parameters
        ----------
        X : array of shape (n, D)
            Rows. If they are the points themselves, the diagonal is exact.
        dtype : {"float64", "float32"}
            The precision of the result.
        spare : {0, 1}
            How many columns to add at the end, for the caller to fill.
        """

    @abstractmethod
    def forward(self, X: AnyArray, dtype: str = "float64", spare: int = 0) -> WithPullBack:
        """Return `k(X, Z)` and the function that pulls a cotangent on it back.

        The pull-back differentiates with respect to `Z` alone, even where
        `X` are the same points.
        """

    def input_gradient(self, X: AnyArray, bar: AnyArray) -> AnyArray:
        """Return `d/dx Σ_m bar_nm k(x_n, z_m)`, shape (n, D), for `bar` of shape (n, m).

        It is the kernel's pull-back with its arguments exchanged.
        """
        _, back = self.kernel.forward(beside(self.points, X), X)
        return back(bar.T).points

    @cached_property
    def prior_scale(self) -> float:
        """A typical value of `k(x, x)`: the mean over the points where it varies."""
        return float(np.mean(self.prior_variance(self.points)))

    def prior_variance(self, X: AnyArray) -> AnyArray | float:
        """Return `k(x_n, x_n)`: one number where it does not vary, else an array of shape (n,)."""
        constant = self.kernel.constant_diagonal
        return self.kernel.diag(X) if constant is None else constant


def _as_points(X: Array) -> Array:
    points = np.asarray(X, dtype=np.float64)
    if points.ndim != 2:
        raise ValueError(
            f"Points must form a 2-D array (points, inputs), got shape {points.shape}. "
            "Reshape a single input with X.reshape(-1, 1)."
        )
    return points


@dataclass(frozen=True)
class Parameter:
    """The declaration of a positive kernel parameter.

    Parameters
    ----------
    bounds : pair of float
        The range in which it is learned, for standardised inputs and targets.
    per_input : bool
        Whether each input may have a value of its own.
    input_power : float
        Inputs in units that are `s` times smaller multiply it by `s**input_power`.
    variance_power : float
        The same for the variance of the function's values.
    restarts : bool
        Whether restarts spread it over the range of sensible lengthscales.
    log_prior : pair of float
        Mean and standard deviation of the weak normal prior of its logarithm, for standardised
        inputs and targets; the mean of a lengthscale is that of one input, and grows like ½ ln D.
    """

    bounds: tuple[float, float] = (1e-2, 1e3)
    per_input: bool = False
    input_power: float = 0.0
    variance_power: float = 0.0
    restarts: bool = False
    log_prior: tuple[float, float] = (0.0, 1.5)


_NUMBERS = np.finfo(np.float64)
LENGTHSCALE = Parameter(
    (1e-3, 1e3), per_input=True, input_power=1.0, restarts=True, log_prior=(float(np.log(3.0)), 1.5)
)
VARIANCE = Parameter((1e-4, 1e6), variance_power=1.0, log_prior=(0.0, 3.0))
SHAPE = Parameter((1e-2, 1e3))


def parameter(kind: Parameter, *, default: Any) -> Any:
    """Return the field of a kernel that is a parameter of this kind."""
    return field(default=default, metadata={"parameter": kind})


def get_lengthscale_range(n_features: int) -> tuple[float, float]:
    """Return the shortest and longest plausible lengthscale of standardised inputs.

    For one input these are 1 and 100 % of the range of a uniform variable, √12 standard deviations.
    Distances grow like √D with more inputs, and short lengthscales isolate every row.
    """
    root = np.sqrt(n_features)
    return float(max(0.035, 0.3 * root * (1.0 - 1.0 / n_features))), float(max(3.46, 2.0 * root))


def with_lengthscale(kernel: KernelT, lengthscale: float, rng: np.random.RandomState) -> KernelT:
    """Return the kernel with all lengthscales at one value.

    In sums and products each part gets its own multiple of it, so that the parts can learn
    different structure.
    """
    theta = kernel.theta.copy()
    shift: dict[str, float] = {}
    named = zip(kernel.parameter_names, kernel.parameters, strict=True)
    for i, (name, parameter) in enumerate(named):
        part = name.rpartition(".")[0]
        if parameter.restarts:
            extra = shift.setdefault(part, rng.uniform(-1.0, 1.0) if part else 0.0)
            theta[i] = np.log(lengthscale) + extra
    return kernel.with_theta(theta)


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(parameter, field))
@dataclass(frozen=True, eq=False, repr=False)
class ParametricKernel(Kernel):
    """A kernel whose parameters are fields, declared by `parameter`; subclasses are dataclasses.

    Parameters
    ----------
    active_dims : sequence of int or None
        The inputs that the kernel uses, in this order; None is all of them.
    groups : sequence of int or None
        The group of each of these inputs, counted from 0. Inputs of a group share one lengthscale,
        as the indicators of one category do; None gives each its own.
    """

    _kinds: ClassVar[dict[str, Parameter]] = {}

    active_dims: tuple[int, ...] | None = field(default=None, kw_only=True)
    groups: tuple[int, ...] | None = field(default=None, kw_only=True)

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        dataclass(frozen=True, eq=False, repr=False)(cls)
        declared = {each.name: each.metadata.get("parameter") for each in _fields_of(cls)}
        cls._kinds = {name: kind for name, kind in declared.items() if kind is not None}

    def __post_init__(self) -> None:
        for name, kind in self._kinds.items():
            value = np.array(getattr(self, name), dtype=np.float64)
            value.setflags(write=False)
            if value.ndim > kind.per_input or value.size == 0:
                expected = "one positive number" + " or one for each input" * kind.per_input
                raise ValueError(f"{name} must be {expected}, got an array of shape {value.shape}.")
            if not (np.all(np.isfinite(value)) and np.all(value > 0)):
                raise ValueError(
                    f"{name} of {type(self).__name__} must be positive and finite, "
                    f"got {getattr(self, name)!r}."
                )
            object.__setattr__(self, name, float(value) if value.ndim == 0 else value)
        if self.active_dims is not None:
            object.__setattr__(self, "active_dims", _as_dims(self.active_dims))
        if self.groups is not None:
            object.__setattr__(self, "groups", tuple(int(each) for each in self.groups))
        _ = self.parameters  # Every fit needs them and `theta`.
        self.theta.setflags(write=False)

    def _get_free(self, name: str) -> list[int]:
        """Return the entries of a parameter that are learned: the first one of each group."""
        value = getattr(self, name)
        if self.groups is None or np.ndim(value) == 0:
            return list(range(np.size(value)))
        return np.unique(self.groups, return_index=True)[1].tolist()

    @cached_property
    def theta(self) -> Array:
        values = [np.atleast_1d(getattr(self, name))[self._get_free(name)] for name in self._kinds]
        return cast(Array, np.log(np.concatenate(values)))

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return tuple(
            f"{name}[{d}]" if np.ndim(getattr(self, name)) else name
            for name in self._kinds
            for d in self._get_free(name)
        )

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        return tuple(kind for name, kind in self._kinds.items() for _ in self._get_free(name))

    def with_theta(self, theta: Array) -> Self:
        values, start, changed = np.exp(theta), 0, dict[str, Any]()
        for name in self._kinds:
            before = getattr(self, name)
            stop = start + len(self._get_free(name))
            own = values[start:stop]
            if np.ndim(before) and self.groups is not None:
                own = own[list(self.groups)]
            changed[name] = own if np.ndim(before) else float(own[0])
            start = stop
        return replace(self, **changed)

    def with_ard(self, n_features: int) -> Self:
        if self.active_dims is not None and max(self.active_dims) >= n_features:
            raise ValueError(
                f"{type(self).__name__} has active_dims={self.active_dims} but X has "
                f"{n_features} features."
            )
        count, changed = self._n_active(n_features), dict[str, Any]()
        for name, kind in self._kinds.items():
            value = getattr(self, name)
            if kind.per_input and np.ndim(value) == 0:
                changed[name] = np.full(count, value)
            elif kind.per_input and np.size(value) != count:
                raise ValueError(
                    f"The kernel has {np.size(value)} {name}s but X has {count} "
                    f"{'features' if self.active_dims is None else 'active features'}. "
                    f"Give one {name} for each of them, or a single number."
                )
        return replace(self, **changed) if changed else self

    def sum_groups(self, bar: AnyArray) -> AnyArray:
        """Return derivatives by the parameters of single inputs as those by what is learned."""
        if self.groups is None:
            return bar
        if is_numpy(bar):
            return np.bincount(self.groups, weights=bar)
        member = np.equal.outer(self.groups, range(max(self.groups) + 1))
        return bar @ beside(member.astype(np.float64), bar)

    def with_groups(self, groups: Sequence[int] | None) -> Self:
        own = [] if groups is None else [groups[d] for d in self.active_dims or range(len(groups))]
        if len(set(own)) == len(own):
            return self
        return replace(self, groups=np.unique(own, return_inverse=True)[1].tolist())

    def rescaled(
        self, input_scale: Array, variance_scale: float, input_shift: Array | float = 0.0
    ) -> Self:
        scale, changed = self._of_active(input_scale), dict[str, Any]()
        for name, kind in self._kinds.items():
            if kind.input_power or kind.variance_power:
                with np.errstate(over="ignore"):  # Units far apart leave the numbers.
                    value = getattr(self, name) * variance_scale**kind.variance_power
                    value = value * scale**kind.input_power if kind.input_power else value
                changed[name] = np.clip(value, _NUMBERS.tiny, _NUMBERS.max)
        return replace(self, **changed)

    def embed(self, inputs: Sequence[int], n_features: int) -> Self:
        if self.active_dims is not None:
            return replace(self, active_dims=tuple(inputs[d] for d in self.active_dims))
        own, changed = self.with_ard(len(inputs)), dict[str, Any]()
        for name, kind in self._kinds.items():
            if kind.per_input:
                changed[name] = np.full(n_features, kind.bounds[kind.input_power >= 0.0])
                changed[name][list(inputs)] = getattr(own, name)
        return replace(own, **changed)

    def _of_all(self, own: Array, n_features: int) -> Array:
        """Return numbers of the active inputs as numbers of all, zero for the others."""
        found = np.zeros(n_features)
        found[list(self.active_dims or ())] = own
        return found

    def _n_active(self, n_features: int) -> int:
        return n_features if self.active_dims is None else len(self.active_dims)

    def _of_active(self, per_input: Array | float) -> Array:
        """Return those of some numbers, one for each input or one for all, that concern this."""
        own = np.asarray(per_input, dtype=np.float64)
        return own if self.active_dims is None or own.size == 1 else own[list(self.active_dims)]

    def __repr__(self) -> str:
        shown = (
            f"{each.name}={getattr(self, each.name)!r}"
            for each in _fields_of(type(self))
            if each.name in self._kinds or getattr(self, each.name) is not None
        )
        return f"{type(self).__name__}({', '.join(shown)})"

    def _key(self) -> tuple[object, ...]:
        rest = [each.name for each in _fields_of(type(self)) if each.name not in self._kinds]
        fixed = [(name, np.asarray(getattr(self, name)).tolist()) for name in rest]
        return (*super()._key(), repr(fixed))


def _fields_of(cls: Any) -> Sequence[Any]:
    """Return the fields, those that are given by keyword alone at the end."""
    return sorted(fields(cls), key=lambda each: bool(each.kw_only))


def _as_dims(dims: Sequence[int]) -> tuple[int, ...]:
    found = tuple(int(each) for each in np.atleast_1d(dims))
    if not found or min(found) < 0 or len(set(found)) < len(found):
        raise ValueError(
            f"active_dims must be distinct indices of inputs, counted from 0, got {dims!r}."
        )
    return found
