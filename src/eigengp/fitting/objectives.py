"""What is minimised: the negative evidence per row, as a function of a vector."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eigengp._typing import Array
from eigengp.fitting.optimizer import Evaluation
from eigengp.fitting.parameters import Parameters
from eigengp.gp.approximations import Outcome, SpectralPass
from eigengp.gp.blocks import RowSource
from eigengp.gp.model import EigenGP
from eigengp.gp.sums import Sums


@dataclass(frozen=True)
class RowObjective:
    """The evidence as a function of any free parameters: two passes over the rows.

    Parameters
    ----------
    parameters : Parameters
        Which parameters are free.
    source : RowSource
        The rows.
    gamma : float
        How much of the trace term is added to guard against over-fitting.
    """

    parameters: Parameters[Any]
    source: RowSource
    gamma: float = 0.0

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Lower and upper bound of each entry."""
        return self.parameters.bounds()

    def __call__(self, vector: Array) -> Evaluation:
        """Evaluate, per row."""
        outcome, gradient = self.parameters.unpack(vector).evaluate(self.source, self.gamma)
        evidence = outcome.evidence.negative_log if self.gamma else outcome.value
        packed, n = self.parameters.gradient(gradient), outcome.n
        return Evaluation(outcome.value / n, packed / n, evidence / n)


@dataclass(frozen=True)
class WeightObjective:
    """Stage 2: the evidence as a function of weights and noise, from the sums alone.

    Parameters
    ----------
    parameters : Parameters
        Noise and weights.
    flow : SpectralPass
        The pass that made the sums, whose eigenvectors they are in.
    sums : Sums
        Of the whitened features.
    """

    parameters: Parameters[EigenGP]
    flow: SpectralPass
    sums: Sums

    @classmethod
    def of(cls, parameters: Parameters[EigenGP], source: RowSource) -> WeightObjective:
        """Go over the rows once; after that every evaluation is M × M work."""
        ones = np.ones(parameters.template.n_components)
        flow = replace(parameters.template, shrinkage=ones).flow
        assert isinstance(flow, SpectralPass)
        return cls(parameters, flow, flow.sums(source))

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Lower and upper bound of each entry."""
        return self.parameters.bounds()

    def flow_at(self, vector: Array) -> SpectralPass:
        """Return the pass with the noise and weights of a vector `[ln σ², ln v]`."""
        shrinkage = np.exp(self.flow.spectrum.tied(vector[1:]))
        return replace(self.flow, noise_variance=float(np.exp(vector[0])), shrinkage=shrinkage)

    def knows(self, model: EigenGP) -> bool:
        """Say whether a model has the eigenfunctions that the sums are of."""
        own = self.parameters.template
        return model.inducing_points is own.inducing_points and model.kernel == own.kernel

    def outcome(self, model: EigenGP) -> Outcome:
        """Return the evidence and the posterior of a model with these eigenfunctions."""
        v = np.ones(model.n_components) if model.shrinkage is None else model.shrinkage
        vector = np.log(np.append(model.noise_variance, v))
        return self.flow_at(vector).from_sums(self.sums)

    def __call__(self, vector: Array) -> Evaluation:
        """Evaluate, per row."""
        flow = self.flow_at(vector)
        outcome = flow.from_sums(self.sums)
        log_shrinkage, noise_bar = flow.weight_gradient(outcome)
        n, value = self.sums.n, outcome.value
        weights = self.flow.spectrum.tied(log_shrinkage)
        gradient = np.concatenate([[flow.noise_variance * noise_bar], weights])
        return Evaluation(value / n, gradient / n, value / n)
