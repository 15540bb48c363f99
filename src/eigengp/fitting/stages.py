"""The stages of EigenGP: stage 1, stage 2, and joint learning.

Stage 1 learns kernel, points and noise with the weights of the GP prior (see
`eigengp.fitting.restarts`). Stage 2 fixes kernel and inducing points and learns the weights of the
eigenfunctions and the noise. EigenGP* continues with all parameters free.

The guard against over-fitting has three parts. A fraction of the trace term is added whenever
inducing points are learned; it grows with the number of inducing points per row. With few rows,
inducing points are added only while they pay off (see `eigengp.fitting.restarts`). With many rows,
learned weights are kept only if they improve the predictions of a held-out set.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np

from eigengp._typing import Array
from eigengp.data.array_source import map_blocks
from eigengp.data.holdout import group_source, split_training
from eigengp.fitting.initialization import Family
from eigengp.fitting.objectives import Evaluation, Parameters, RowObjective
from eigengp.fitting.restarts import FirstStage
from eigengp.fitting.run import Run
from eigengp.fitting.settings import Plan
from eigengp.gp.approximations import SpectralPass
from eigengp.gp.blocks import RowBlock, RowSource
from eigengp.gp.evidence import Outcome
from eigengp.gp.linalg import JitterWarning
from eigengp.gp.model import EigenGP
from eigengp.gp.sums import Sums


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
        return model.inducing_points is own.inducing_points and model.kernel is own.kernel

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


@dataclass
class Stages(FirstStage):
    """The stages of one fit; the first learns kernel and inducing points from the training rows.

    Parameters
    ----------
    held_out : RowBlock or None
        The rows that judge learned weights.
    """

    held_out: RowBlock | None = None
    _weight_objective: WeightObjective | None = None

    @classmethod
    def begin(cls, run: Run, family: Family, plan: Plan) -> Stages:
        """Split the rows as the plan says."""
        train, held_out = run.source, None
        if plan.hold_out:
            train = split_training(train)
            held_out = train.take_held_out()
        return cls(run, family, plan, group_source(train) if plan.groups else train, held_out)

    def learn_all(self, template: EigenGP) -> EigenGP:
        """Learn a model; `template` holds the kernel and noise to start from."""
        start = self.choose_start(template)
        kept = min(self.plan.n_components, start.inducing_points.shape[0])
        start = replace(start, n_components=kept)
        if self.plan.strategy == "direct":
            return self._learn_jointly(start)
        first = self.learn("stage 1", start)
        second = self._learn_weights("stage 2", first)
        best = self._choose_better(first, second)
        if self.plan.strategy == "sequential":
            return best
        return self._choose_better(best, self._learn_jointly(second))

    def _learn_jointly(self, start: EigenGP) -> EigenGP:
        """Optimise all parameters, then weights and noise once more.

        The trace term inflates the noise while inducing points are learned; the last step corrects
        it by the log marginal likelihood alone.
        """
        joint = self.learn("joint", start, weights=True)
        return self._choose_better(joint, self._learn_weights("weights", joint))

    def _learn_weights(self, stage: str, model: EigenGP) -> EigenGP:
        """Learn the weights of the eigenfunctions and the noise."""
        plan, run, train = self.plan, self.run, self.train
        if plan.max_iter == 0:
            return model
        free = self.family.free(model, run.dataset.extent, basis=False, weights=True)
        objective: RowObjective | WeightObjective = RowObjective(free, train)
        if not model.residual:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", JitterWarning)
                objective = self._weight_objective = WeightObjective.of(free, train)
        # Weights are evaluated faster than a checkpoint is written.
        found = run.learn(stage, objective, plan.max_iter, plan.tol, stored=model.residual)
        return found.model

    def _choose_better(self, before: EigenGP, after: EigenGP) -> EigenGP:
        """Return `after`, unless there is a held-out set and `before` predicts it better."""
        if self.held_out is None:
            return after
        losses = [self._score_held_out(model, self.held_out) for model in (before, after)]
        return before if losses[0] < losses[1] else after

    def _score_held_out(self, model: EigenGP, rows: RowBlock) -> float:
        """Return twice the mean negative log density of the held-out set, without constants."""
        known = self._weight_objective
        if known is not None and known.knows(model):  # The sums of stage 2 save a pass.
            posterior = model.posterior(known.compute_outcome(model))
        else:
            posterior = model.posterior(model.forward(self.train))
        both = map_blocks(
            lambda X: np.column_stack(posterior.mean_and_variance(X)), rows.X, posterior.n_columns
        )
        mean, variance = both.T
        loss = np.log(variance) + (rows.y - mean) ** 2 / variance
        return float(np.average(loss, weights=rows.sample_weight))
