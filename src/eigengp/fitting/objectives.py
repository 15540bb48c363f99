"""The negative log marginal likelihood per row as a function of a vector of free parameters.

All positive parameters are moved through their logarithms, inside bounds wide enough for any
sensible model of standardised data and narrow enough that every point within them can be
factorised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np

from eigengp._typing import Array
from eigengp.data.standardize import Extent
from eigengp.fitting.optimizer import Evaluation
from eigengp.gp.approximations import Outcome, SpectralPass
from eigengp.gp.blocks import RowSource
from eigengp.gp.exact import ExactGP
from eigengp.gp.likelihoods import Likelihood
from eigengp.gp.model import EigenGP
from eigengp.gp.sparse_spectrum import SparseSpectrum
from eigengp.gp.sums import Sums
from eigengp.kernels import Kernel

SHRINKAGE_RANGE = (1e-8, 1e4)
HIGHEST_FREQUENCY = 1e3
_NOISE_LOG_PRIOR = (float(np.log(0.1)), 2.5)
"""Mean and standard deviation of the log noise variance of standardised targets."""

ModelT = TypeVar("ModelT")
KernelT = TypeVar("KernelT", ExactGP, EigenGP)


@dataclass(frozen=True)
class Part:
    """One kind of free parameter: how to read it, write it and get its gradient."""

    read: Callable[[Any], Array]
    """Returns the entries of a model as a vector."""
    write: Callable[[Any, Array], Any]
    """Returns the model with new entries."""
    slope: Callable[[Any], Array]
    """Returns the derivatives by these entries from a gradient of the model."""
    low: Array
    high: Array


@dataclass(frozen=True)
class Parameters(Generic[ModelT]):
    """The free parameters of a model, and their order in the vector."""

    template: ModelT
    """Holds all other parameters."""
    parts: tuple[Part, ...]
    bounds: tuple[Array, Array] = field(init=False)
    """The lower and the upper bound of each entry."""

    def __post_init__(self) -> None:
        low = np.concatenate([part.low for part in self.parts])
        high = np.concatenate([part.high for part in self.parts])
        object.__setattr__(self, "bounds", (low, high))

    def pack(self, model: ModelT) -> Array:
        """Return the free parameters of `model` as one vector, within the bounds."""
        entries: Array = np.concatenate([part.read(model) for part in self.parts])
        return np.clip(entries, *self.bounds)

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
    model: EigenGP, box: Extent, basis: bool = True, weights: bool = False
) -> Parameters[EigenGP]:
    """Free kernel and inducing points (if `basis`), noise, and weights (if `weights`).

    Inducing points may leave the box around the inputs by its width.
    """
    parts: list[Part] = []
    if basis:
        reach, count = box.high - box.low, model.inducing_points.shape[0]
        low, high = np.tile(box.low - reach, count), np.tile(box.high + reach, count)
        shape = model.inducing_points.shape
        parts = [_free_kernel(model.kernel), _free_points("inducing_points", shape, low, high)]
    parts.append(_free_likelihood(model.likelihood))
    if weights:
        parts.append(_free_weights(model))
    return Parameters(model, tuple(parts))


def spectrum_parameters(model: SparseSpectrum) -> Parameters[SparseSpectrum]:
    """Free kernel, spectral points and noise."""
    most = np.full(model.spectral_points.size, HIGHEST_FREQUENCY)
    points = _free_points("spectral_points", model.spectral_points.shape, -most, most)
    return Parameters(
        model, (_free_kernel(model.kernel), points, _free_likelihood(model.likelihood))
    )


def kernel_parameters(model: KernelT) -> Parameters[KernelT]:
    """Free kernel and noise."""
    return Parameters(model, (_free_kernel(model.kernel), _free_likelihood(model.likelihood)))


def _free_kernel(kernel: Kernel) -> Part:
    ranges = np.log([each.bounds for each in kernel.parameters])
    return Part(
        read=lambda model: model.kernel.theta,
        write=lambda model, values: replace(model, kernel=model.kernel.with_theta(values)),
        slope=lambda gradient: gradient.theta,
        low=ranges[:, 0],
        high=ranges[:, 1],
    )


def _free_points(name: str, shape: tuple[int, ...], low: Array, high: Array) -> Part:
    return Part(
        read=lambda model: getattr(model, name).ravel(),
        write=lambda model, values: replace(model, **{name: values.reshape(shape)}),
        slope=lambda gradient: getattr(gradient, name).ravel(),
        low=low,
        high=high,
    )


def _free_likelihood(likelihood: Likelihood) -> Part:
    low, high = likelihood.bounds
    return Part(
        read=lambda model: model.likelihood.theta,
        write=lambda model, values: replace(model, likelihood=likelihood.with_theta(values)),
        slope=lambda gradient: likelihood.gradient(gradient.log_noise_variance),
        low=low,
        high=high,
    )


def _free_weights(model: EigenGP) -> Part:
    """Free the weights; with a residual they may not exceed those of the prior, `v ≤ 1`.

    Then `k − k̃` is a covariance, and no variance is negative at any input.
    """
    ones = np.ones(model.n_components)
    top = 1.0 if model.residual else SHRINKAGE_RANGE[1]
    return Part(
        read=lambda model: np.log(ones if model.shrinkage is None else model.shrinkage),
        write=lambda model, values: replace(model, shrinkage=np.exp(values)),
        slope=lambda gradient: gradient.log_shrinkage,
        low=ones * np.log(SHRINKAGE_RANGE[0]),
        high=ones * np.log(top),
    )


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
    """

    likelihood: RowObjective
    weight: float
    mean: Array = field(init=False)
    deviation: Array = field(init=False)

    def __post_init__(self) -> None:
        kernel = self.likelihood.parameters.template.kernel
        half = 0.5 * np.log(self.likelihood.source.n_features)
        own = [(p.log_prior[0] + half * p.restarts, p.log_prior[1]) for p in kernel.parameters]
        mean, deviation = np.array([*own, _NOISE_LOG_PRIOR]).T
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "deviation", deviation)

    @property
    def parameters(self) -> Parameters[ExactGP]:
        """The free parameters."""
        return self.likelihood.parameters

    def __call__(self, vector: Array) -> Evaluation:
        """Evaluate, per row."""
        found = self.likelihood(vector)
        apart = (vector - self.mean) / self.deviation
        value = found.value + 0.5 * float(apart @ apart) / self.weight
        gradient = found.gradient + apart / self.deviation / self.weight
        return Evaluation(value, gradient, found.evidence)


@dataclass(frozen=True)
class WeightObjective:
    """The objective of stage 2, with weights and noise free: M × M work per evaluation.

    Parameters
    ----------
    parameters : Parameters
        Noise and weights.
    flow : SpectralPass
        The pass that computed the sums, in the basis of its eigenvectors.
    sums : Sums
        The sums of the whitened features.
    """

    parameters: Parameters[EigenGP]
    flow: SpectralPass
    sums: Sums

    @classmethod
    def of(cls, parameters: Parameters[EigenGP], source: RowSource) -> WeightObjective:
        """Compute the sums in one pass over the rows."""
        ones = np.ones(parameters.template.n_components)
        flow = replace(parameters.template, shrinkage=ones).flow
        assert isinstance(flow, SpectralPass)
        return cls(parameters, flow, flow.sums(source))

    def make_pass(self, vector: Array) -> SpectralPass:
        """Return the pass with the noise and weights of a vector `[ln σ², ln v]`."""
        shrinkage = np.exp(self.flow.spectrum.tied(vector[1:]))
        return replace(self.flow, noise_variance=float(np.exp(vector[0])), shrinkage=shrinkage)

    def knows(self, model: EigenGP) -> bool:
        """Return whether a model has the eigenfunctions of the sums."""
        own = self.parameters.template
        return model.inducing_points is own.inducing_points and model.kernel == own.kernel

    def compute_outcome(self, model: EigenGP) -> Outcome:
        """Condition a model with these eigenfunctions on the rows."""
        v = np.ones(model.n_components) if model.shrinkage is None else model.shrinkage
        vector = np.log(np.append(model.noise_variance, v))
        return self.make_pass(vector).from_sums(self.sums)

    def __call__(self, vector: Array) -> Evaluation:
        """Evaluate, per row."""
        flow = self.make_pass(vector)
        outcome = flow.from_sums(self.sums)
        log_shrinkage, noise_bar = flow.weight_gradient(outcome)
        n, value = self.sums.n, outcome.value
        weights = self.flow.spectrum.tied(log_shrinkage)
        gradient = np.concatenate([[flow.noise_variance * noise_bar], weights])
        return Evaluation(value / n, gradient / n, value / n)
