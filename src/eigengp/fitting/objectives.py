"""The negative log marginal likelihood per row as a function of free parameters, and its minimum.

All positive parameters are moved through their logarithms, inside bounds wide enough for any
sensible model of standardised data and narrow enough that every point within them can be
factorised. L-BFGS-B minimises, and the best point of all evaluations is returned.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from scipy import optimize

from eigengp._typing import Array
from eigengp.backend.threads import map_in_threads
from eigengp.data.standardize import Extent
from eigengp.fitting.checkpoint import Checkpoint
from eigengp.gp.blocks import RowBlock, RowSource
from eigengp.gp.exact import ExactGP
from eigengp.gp.linalg import FactorizationError, JitterWarning
from eigengp.gp.model import EigenGP
from eigengp.gp.sparse_spectrum import SparseSpectrum

NOISE_RANGE = (1e-6, 1e2)  # Bounds of a noise variance, relative to that of the targets.
SHRINKAGE_RANGE = (1e-8, 1e4)
HIGHEST_FREQUENCY = 1e3
# Mean and standard deviation of the log noise variance of standardised targets.
_NOISE_LOG_PRIOR = (float(np.log(0.1)), 2.5)
# Lengthscales beyond about the range of a standardised input count as if they were that.
LEAST_METRIC = 0.3
# The bound of an entry of a map of standardised inputs, which starts at the identity.
_LARGEST_MAP = 10.0
_MEMORY = 20
_REJECTED = 1e3
_ATTEMPTS = 4
_WORTH_GOING_ON = 1e-6

ModelT = TypeVar("ModelT")
KernelT = TypeVar("KernelT", ExactGP, EigenGP)


@dataclass(frozen=True)
class Part:
    """One kind of free parameter: its entries and bounds, how to write it and get its gradient."""

    start: Array  # The entries of the template as a vector.
    low: Array
    high: Array
    write: Callable[[Any, Array], Any]  # Returns the model with new entries.
    # Returns the derivatives by these entries from a gradient of the model.
    slope: Callable[[Any], Array]


@dataclass(frozen=True)
class Parameters(Generic[ModelT]):
    """The free parameters of a model, and their order in the vector."""

    template: ModelT
    """Where they start; holds all other parameters."""
    parts: tuple[Part, ...]

    @cached_property
    def bounds(self) -> tuple[Array, Array]:
        """The lower and the upper bound of each entry."""
        low = np.concatenate([part.low for part in self.parts])
        return low, np.concatenate([part.high for part in self.parts])

    @property
    def start(self) -> Array:
        """The free parameters of the template as one vector, within the bounds."""
        return np.clip(np.concatenate([part.start for part in self.parts]), *self.bounds)

    def unpack(self, vector: Array) -> ModelT:
        """Return the model with the free parameters of `vector`."""
        model, start = self.template, 0
        for part in self.parts:
            model = part.write(model, vector[start : start + part.low.size])
            start += part.low.size
        return model

    def pack_gradient(self, gradient: Any) -> Array:
        """Return the gradient of a model in the order of the vector."""
        return np.concatenate([part.slope(gradient) for part in self.parts])


def eigengp_parameters(
    model: EigenGP, box: Extent, basis: bool = True, weights: bool = False, scaled: bool = False
) -> Parameters[EigenGP]:
    """Free kernel and inducing points (if `basis`), noise, and weights (if `weights`).

    Inducing points may leave the box around the inputs by its width. If `scaled`, they
    move in units of the first lengthscales, so that inputs of short and of long ones are learned
    equally fast.
    """
    kernel, noise = _free_kernel_and_noise(model)
    parts = [noise]
    if basis:
        reach, count = box.high - box.low, model.inducing_points.shape[0]
        low, high = np.tile(box.low - reach, count), np.tile(box.high + reach, count)
        metric = model.kernel.metric(reach.size) if scaled else 1.0
        unit = np.tile(np.broadcast_to(1.0 / np.maximum(metric, LEAST_METRIC), reach.shape), count)
        parts = [kernel, _free_points(model, "inducing_points", low, high, unit), noise]
    if weights:
        parts.append(_free_weights(model))
    return Parameters(model, tuple(parts))


def spectrum_parameters(model: SparseSpectrum) -> Parameters[SparseSpectrum]:
    """Free kernel, spectral points and noise."""
    kernel, noise = _free_kernel_and_noise(model)
    most = np.full(model.spectral_points.size, HIGHEST_FREQUENCY)
    points = _free_points(model, "spectral_points", -most, most)
    return Parameters(model, (kernel, points, noise))


def kernel_parameters(model: KernelT) -> Parameters[KernelT]:
    """Free kernel and noise, and the map of the inputs if the model has one."""
    parts: tuple[Part, ...] = _free_kernel_and_noise(model)
    own = getattr(model, "input_map", None)
    if own is not None:
        most = np.full(own.size, _LARGEST_MAP)
        parts = (*parts, _free_points(model, "input_map", -most, most))
    return Parameters(model, parts)


def _free_kernel_and_noise(model: Any) -> tuple[Part, Part]:
    ranges = np.log([each.bounds for each in model.kernel.parameters])
    kernel = Part(
        start=model.kernel.theta,
        low=ranges[:, 0],
        high=ranges[:, 1],
        write=lambda model, values: replace(model, kernel=model.kernel.with_theta(values)),
        slope=lambda gradient: gradient.theta,
    )
    noise = Part(
        start=np.log([model.noise_variance]),
        low=np.log(NOISE_RANGE[:1]),
        high=np.log(NOISE_RANGE[1:]),
        write=lambda model, values: replace(model, noise_variance=float(np.exp(values[0]))),
        slope=lambda gradient: np.array([gradient.log_noise_variance]),
    )
    return kernel, noise


def _free_points(model: Any, name: str, low: Array, high: Array, unit: Array | float = 1.0) -> Part:
    """Free points, in these units of the inputs: one number for all entries, or one for each."""
    points = getattr(model, name)
    return Part(
        start=points.ravel() / unit,
        low=low / unit,
        high=high / unit,
        write=lambda model, values: replace(model, **{name: (values * unit).reshape(points.shape)}),
        slope=lambda gradient: gradient.inducing_points.ravel() * unit,
    )


def _free_weights(model: EigenGP) -> Part:
    """Free the weights; with a residual they may not exceed those of the prior, `v ≤ 1`.

    Then `k − k̃` is a covariance, and no variance is negative at any input.
    """
    ones = np.ones(model.n_components)
    top = 1.0 if model.residual else SHRINKAGE_RANGE[1]
    return Part(
        start=np.log(ones if model.shrinkage is None else model.shrinkage),
        low=ones * np.log(SHRINKAGE_RANGE[0]),
        high=ones * np.log(top),
        write=lambda model, values: replace(model, shrinkage=np.exp(values)),
        slope=lambda gradient: gradient.log_shrinkage,
    )


class Evaluation(NamedTuple):
    """One evaluation of an objective; all per row."""

    value: float  # The minimised value.
    gradient: Array
    evidence: float  # `−ln p(y)`, without the guard against over-fitting.


class Objective(Protocol):
    """A function of the free parameters of a model, with its gradient."""

    @property
    def parameters(self) -> Parameters[Any]:
        """The free parameters."""

    def __call__(self, vector: Array) -> Evaluation:
        """Evaluate, per row."""


@dataclass(frozen=True)
class Minimum:
    """The result of an optimisation."""

    model: Any  # The model with the best parameters.
    vector: Array  # These parameters.
    value: float
    evidence: float
    n_iter: int = 0


class OutOfTimeError(Exception):
    """Raised by an objective that has no time for a further evaluation."""


def minimize(
    objective: Objective,
    max_iter: int,
    tol: float = 1e-9,
    on_iteration: Callable[[float], bool | None] | None = None,
    checkpoint: Checkpoint | None = None,
    name: str = "",
) -> Minimum:
    """Minimise by L-BFGS-B, stepping back from points that cannot be factorised.

    A line search can fail early where eigenvalues cross. L-BFGS-B is then restarted with an empty
    memory while that still improves the value.

    Parameters
    ----------
    objective : Objective
        The function of the free parameters to minimise, from where these start; of order one, like
        `−ln p(y)` per row.
    max_iter : int
        The largest number of iterations.
    tol : float
        Relative decrease of the value at which to stop.
    on_iteration : callable or None
        Called with `−ln p(y)` per row at the best point after each iteration; returns whether to
        stop.
    checkpoint : Checkpoint or None
        Stores every evaluation.
    name : str
        The name of the objective in the checkpoint, unique within the fit.

    Raises
    ------
    FactorizationError
        If the starting point cannot be evaluated.
    """
    parameters = objective.parameters
    evaluate: Callable[[Array], Evaluation] = objective
    if checkpoint is not None:
        evaluate = recall(objective, checkpoint, name)
    search = _Search(evaluate, parameters.start, Evaluation(np.inf, np.empty(0), np.inf))

    n_iter = 0

    def report(_: Array) -> None:
        nonlocal n_iter
        n_iter += 1
        search.stopped = on_iteration is not None and bool(on_iteration(search.best.evidence))
        if search.stopped:
            raise StopIteration

    bounds = np.column_stack(parameters.bounds)
    how: Any = {"jac": True, "method": "L-BFGS-B", "bounds": bounds, "callback": report}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JitterWarning)
        search.evaluate(search.vector)
        for _ in range(_ATTEMPTS):
            before, remaining = search.best.value, max_iter - n_iter
            if remaining < 1:
                break
            options = {"maxiter": remaining, "maxcor": _MEMORY, "ftol": tol, "gtol": 1e-7}
            with suppress(OutOfTimeError):
                optimize.minimize(search.evaluate, search.vector, options=options, **how)
            gained = before - search.best.value
            if search.stopped or gained <= _WORTH_GOING_ON * max(1.0, abs(search.best.value)):
                break
    value, _, evidence = search.best
    return Minimum(parameters.unpack(search.vector), search.vector, value, evidence, n_iter)


@dataclass
class _Search:
    """An objective with its best point so far; points that cannot be factorised are rejected."""

    objective: Callable[[Array], Evaluation]
    vector: Array  # The best point, or that to start from.
    best: Evaluation
    stopped: bool = False

    def evaluate(self, vector: Array) -> tuple[float, Array]:
        """Return value and gradient."""
        try:
            found = self.objective(vector)
            if not (np.isfinite(found.value) and np.all(np.isfinite(found.gradient))):
                raise FactorizationError("The log marginal likelihood is not finite.")
        except OutOfTimeError:
            self.stopped = True
            raise
        except FactorizationError:
            if not np.isfinite(self.best.value):
                raise
            return self.best.value + _REJECTED, np.zeros_like(vector)
        if found.value < self.best.value:
            self.vector, self.best = vector.copy(), found
        return found.value, found.gradient


@dataclass(frozen=True)
class RowObjective:
    """The objective of any free parameters: two passes over the rows per evaluation.

    Parameters
    ----------
    parameters : Parameters
        The free parameters.
    source : RowSource
        The rows.
    gamma : float
        The weight of the trace term, which guards against over-fitting.
    """

    parameters: Parameters[Any]
    source: RowSource
    gamma: float = 0.0

    def __call__(self, vector: Array) -> Evaluation:
        """Evaluate, per row."""
        outcome, gradient = self.parameters.unpack(vector).evaluate(self.source, self.gamma)
        evidence = outcome.evidence.negative_log if self.gamma else outcome.value
        packed, n = self.parameters.pack_gradient(gradient), outcome.n
        return Evaluation(outcome.value / n, packed / n, evidence / n)


@dataclass(frozen=True)
class LocalObjective:
    """`−ln p(y)` of groups of rows, each an exact GP, per row.

    Parameters
    ----------
    parameters : Parameters
        The free parameters of the GP.
    groups : sequence of RowBlock
        The rows.
    n_threads : int
        The number of threads.
    """

    parameters: Parameters[ExactGP]
    groups: Sequence[RowBlock]
    n_threads: int

    def __call__(self, vector: Array) -> Evaluation:
        """Evaluate, per row."""
        model = self.parameters.unpack(vector)
        parts = map_in_threads(model.evaluate, self.groups, self.n_threads)
        found, slopes = zip(*parts, strict=True)
        gradient = np.sum([self.parameters.pack_gradient(each) for each in slopes], axis=0)
        n = sum(each.n for each in found)
        value = sum(each.value for each in found) / n
        return Evaluation(value, gradient / n, value)


@dataclass(frozen=True)
class PriorObjective:
    """The negative log posterior density of kernel and noise, up to a constant, per row.

    Logarithms of kernel parameters have the weak normal priors that their declarations say, and
    that of the noise variance one about a tenth of the variance of the targets.

    Parameters
    ----------
    likelihood : RowObjective
        The log marginal likelihood.
    weight : float
        The number of rows, each counted as often as it weighs.
    n_inputs : int
        The number of inputs that are not constant.
    """

    likelihood: RowObjective
    weight: float
    n_inputs: int

    @cached_property
    def prior(self) -> tuple[Array, Array]:
        """Mean and standard deviation of the normal prior of each entry."""
        kernel = self.likelihood.parameters.template.kernel
        half = 0.5 * np.log(self.n_inputs)
        own = [(p.log_prior[0] + half * p.restarts, p.log_prior[1]) for p in kernel.parameters]
        mean, deviation = np.array([*own, _NOISE_LOG_PRIOR]).T
        return mean, deviation

    @property
    def parameters(self) -> Parameters[ExactGP]:
        """The free parameters."""
        return self.likelihood.parameters

    def hold(self, held: Array) -> PriorObjective:
        """Return the objective with some parameters of the kernel held at their prior means."""
        kernel, *others = self.parameters.parts
        mean = self.prior[0][: held.size]
        low, high = (np.where(held, mean, each) for each in (kernel.low, kernel.high))
        parts = (replace(kernel, low=low, high=high), *others)
        parameters = replace(self.parameters, parts=parts)
        return replace(self, likelihood=replace(self.likelihood, parameters=parameters))

    def __call__(self, vector: Array) -> Evaluation:
        """Evaluate, per row."""
        found = self.likelihood(vector)
        mean, deviation = self.prior
        apart = (vector - mean) / deviation
        value = found.value + 0.5 * float(apart @ apart) / self.weight
        gradient = found.gradient + apart / deviation / self.weight
        return Evaluation(value, gradient, found.evidence)


def recall(
    objective: Callable[[Array], Evaluation], checkpoint: Checkpoint, name: str
) -> Callable[[Array], Evaluation]:
    """Return an objective of this name, evaluated only at points that the checkpoint lacks."""

    def evaluate(vector: Array) -> Evaluation:
        key = blake2b(name.encode() + vector.tobytes(), digest_size=16).digest()
        known = checkpoint.look_up(key)
        if known is None:
            found = objective(vector)
            checkpoint.add(key, found)
            return found
        if known[1].shape != vector.shape:
            raise checkpoint.make_error("a record is damaged")
        return Evaluation(*known)

    return evaluate
