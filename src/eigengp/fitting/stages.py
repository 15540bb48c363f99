"""The learning procedure: restarts, stage 1, stage 2, and joint learning.

Every method learns kernel, points and noise from the best of many starts. For EigenGP that is
stage 1, with the weights of the GP prior; other methods end there. Stage 2 fixes kernel and
inducing points and learns the weights of the eigenfunctions and the noise. EigenGP* continues with
all parameters free.

The guard against over-fitting has three parts. A fraction of the trace term is added whenever
inducing points are learned; it grows with the number of inducing points per row. With few rows,
inducing points are added only while they pay off (see `eigengp.fitting.restarts`). With many rows,
learned weights are kept only if they improve the predictions of a held-out set.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from eigengp.backend.threads import count_available_threads, speed_up_passes
from eigengp.data.array_source import ArraySource, map_blocks
from eigengp.data.grouping import group_source
from eigengp.data.holdout import sample_rows, split_training
from eigengp.fitting.initialization import ExactFamily, Family, Start
from eigengp.fitting.objectives import RowObjective, WeightObjective, learn_parameters
from eigengp.fitting.plan import Plan
from eigengp.fitting.restarts import Screening
from eigengp.fitting.run import EXACT_BLOCK_ROWS, Run
from eigengp.gp.blocks import RowBlock
from eigengp.gp.exact import ExactGP
from eigengp.gp.linalg import JitterWarning
from eigengp.gp.model import EigenGP

SUBSET_RANGE = (500, 2_000)
"""The smallest and largest number of rows of the exact GP that a fit starts from."""
_WARM_ROWS = 2_000
_WARM_ROWS_PER_POINT = 10
_WARM_GROWTH = 9
_MOST_WARM_ROWS = 1 << 18
_WARM_ITERATIONS = 30
_WARM_TOLERANCE = 1e-7


def learn_exact_on_subset(run: Run, start: Start, plan: Plan | None = None) -> ExactGP:
    """Learn the exact GP on a subset of the rows; by default a tenth, within limits."""
    low, high = SUBSET_RANGE
    n = run.dataset.n_rows
    count = min(n, max(low, min(high, n // 10))) if plan is None else plan.n_inducing
    plan = plan or Plan(count, count, n_restarts=8, max_iter=100, tol=1e-8)
    rows = sample_rows(run.source, count, run.rng)
    part = run.restrict(rows)
    part.dataset = replace(part.dataset, resizable=False)
    part.source = ArraySource(rows.X, rows.y, rows.sample_weight, EXACT_BLOCK_ROWS)
    template = ExactGP(start.kernel, start.likelihood)
    model: ExactGP = Stages(part, ExactFamily(), plan).learn(template)
    run.n_iter += part.n_iter
    return model


@dataclass
class Stages:
    """The stages of one fit.

    Parameters
    ----------
    run : Run
        Its rows, random numbers, progress and checkpoint.
    family : Family
        The kind of model.
    plan : Plan
        The resolved settings.
    """

    run: Run
    family: Family
    plan: Plan
    n_threads: int = field(default_factory=count_available_threads)
    """The number of threads before BLAS is limited to one."""
    held_out: RowBlock | None = None
    _weight_objective: WeightObjective | None = None

    def learn(self, template: Any) -> Any:
        """Learn a model, with the rows in blocks for its number of features.

        `template` holds the kernel and noise to start from.
        """
        run, plan = self.run, self.plan
        if run.dataset.resizable:
            run.source = run.source.sized(plan.n_inducing)
        self.train = run.source
        with speed_up_passes(plan.n_inducing):
            if plan.hold_out:
                self.train = split_training(run.source)
                self.held_out = self.train.take_held_out()
            if plan.groups:
                self.train = group_source(self.train)
            screening = Screening(self.family, plan, self.train, run.monitor, run.rng)
            start = screening.choose_start(template)
            if self.family.warms_up and plan.max_iter > 0 and not plan.begins_at_once:
                start = self._warm_up(start)
            if hasattr(start, "arithmetic"):  # The exact GP has only one.
                start = replace(start, arithmetic=plan.arithmetic)
            if plan.strategy == "prior":
                return self._run_stage("learning", start, basis=True, weights=False)
            return self._learn_weights(start)

    def _warm_up(self, start: Any) -> Any:
        """Learn on growing subsets of the rows before all of them.

        A subset shows the direction of the large early steps well enough. The weight of the trace
        term is that of a data set of this size.
        """
        model, plan, run = start, self.plan, self.run
        count = max(_WARM_ROWS, _WARM_ROWS_PER_POINT * plan.n_inducing)
        while count <= min(self.train.n_rows // 3, _MOST_WARM_ROWS):
            rows = sample_rows(self.train, count, run.rng)
            rows = replace(rows, X=np.asfortranarray(rows.X))
            objective = RowObjective(
                self.family.parameters(model, run.dataset.extent),
                ArraySource.of(rows, plan.n_inducing, self.n_threads),
                min(1.0, plan.gamma * self.train.n_rows / count),
            )
            limits = (_WARM_ITERATIONS, _WARM_TOLERANCE)
            stage = f"{count} rows"
            found = learn_parameters(objective, *limits, stage, run.monitor, run.checkpoint)
            run.n_iter += found.n_iter
            model = objective.parameters.unpack(found.vector)
            count *= _WARM_GROWTH
        return model

    def _learn_weights(self, start: EigenGP) -> EigenGP:
        """Run the stages that learn the weights of the eigenfunctions."""
        kept = min(self.plan.n_components, start.inducing_points.shape[0])
        start = replace(start, n_components=kept)
        if self.plan.strategy == "direct":
            return self._learn_jointly(start)
        first = self._run_stage("stage 1", start, basis=True, weights=False)
        second = self._run_stage("stage 2", first, basis=False, weights=True)
        best = self._choose_better(first, second)
        if self.plan.strategy == "sequential":
            return best
        return self._choose_better(best, self._learn_jointly(second))

    def _learn_jointly(self, start: EigenGP) -> EigenGP:
        """Optimise all parameters, then weights and noise once more.

        The trace term inflates the noise while inducing points are learned; the last step corrects
        it by the log marginal likelihood alone.
        """
        joint = self._run_stage("joint", start, basis=True, weights=True)
        return self._choose_better(
            joint, self._run_stage("weights", joint, basis=False, weights=True)
        )

    def _run_stage(self, name: str, model: Any, basis: bool, weights: bool) -> Any:
        """Optimise the free parameters on the training rows."""
        plan, run = self.plan, self.run
        if plan.max_iter == 0:
            return model
        parameters = self.family.parameters(model, run.dataset.extent, basis, weights)
        objective: RowObjective | WeightObjective
        checkpoint = run.checkpoint
        if basis or parameters.template.residual:
            objective = RowObjective(parameters, self.train, plan.gamma if basis else 0.0)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", JitterWarning)
                objective = self._weight_objective = WeightObjective.of(parameters, self.train)
            checkpoint = None  # Cheaper to evaluate than to store.
        found = learn_parameters(objective, plan.max_iter, plan.tol, name, run.monitor, checkpoint)
        run.n_iter += found.n_iter
        return parameters.unpack(found.vector)

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
