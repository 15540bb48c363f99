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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eigengp.backend.threads import count_available_threads
from eigengp.data.array_source import ArraySource, map_blocks
from eigengp.data.cached_source import cache_blocks
from eigengp.data.grouping import group_source
from eigengp.data.holdout import sample_rows, split_training
from eigengp.data.standardize import Extent
from eigengp.fitting.checkpoint import Checkpoint, CheckpointedObjective
from eigengp.fitting.initialization import Family
from eigengp.fitting.objectives import Parameters, RowObjective, WeightObjective
from eigengp.fitting.optimizer import Objective, minimize
from eigengp.fitting.progress import Monitor
from eigengp.fitting.restarts import Screening
from eigengp.fitting.settings import Plan
from eigengp.gp.approximations import Outcome
from eigengp.gp.blocks import RowBlock, RowSource
from eigengp.gp.linalg import JitterWarning
from eigengp.gp.model import EigenGP
from eigengp.metrics import mnlp

_WARM_ROWS = 2_000
_WARM_ROWS_PER_POINT = 10
_WARM_GROWTH = 9
_MOST_WARM_ROWS = 1 << 18
_WARM_ITERATIONS = 30
_WARM_TOLERANCE = 1e-7


@dataclass
class Stages:
    """The stages of one fit.

    Parameters
    ----------
    family : Family
        The kind of model.
    plan : Plan
        The resolved settings.
    source : RowSource
        All rows.
    monitor : Monitor
        Called after every iteration.
    rng : RandomState
        The random number generator.
    box : Extent
        The box around all inputs.
    checkpoint : Checkpoint or None
        Stores every evaluation.
    """

    family: Family
    plan: Plan
    source: RowSource
    monitor: Monitor
    rng: np.random.RandomState
    box: Extent
    checkpoint: Checkpoint | None = None

    def __post_init__(self) -> None:
        self.n_threads = count_available_threads()
        self.n_iter = 0
        self.train: RowSource = self.source
        self.held_out: RowBlock | None = None
        self._weight_objective: WeightObjective | None = None
        if self.plan.hold_out:
            split = split_training(self.source)
            self.train, self.held_out = split, split.take_held_out()
        if self.plan.groups:
            self.train = group_source(self.train)
        self.train = self._cache_blocks(self.train)

    def learn(self, template: Any) -> Any:
        """Learn a model; `template` holds the kernel and noise to start from."""
        screening = Screening(self.family, self.plan, self.train, self.monitor, self.rng)
        start = self._warm_up(screening.choose_start(template))
        start = self.family.set_arithmetic(start, self.plan.arithmetic)
        if self.plan.strategy == "prior":
            return self._run_stage("learning", start, basis=True, weights=False)
        return self._learn_weights(start)

    def _warm_up(self, start: Any) -> Any:
        """Learn on growing subsets of the rows before all of them.

        A subset shows the direction of the large early steps well enough. The weight of the trace
        term is that of a data set of this size.
        """
        model = start
        for count in self._list_warm_up_sizes():
            rows = sample_rows(self.train, count, self.rng)
            source = self._cache_blocks(ArraySource.of(rows, self.plan.n_inducing, self.n_threads))
            gamma = min(1.0, self.plan.gamma * self.train.n_rows / count)
            parameters = self.family.parameters(model, self.box)
            objective = RowObjective(parameters, source, gamma)
            name = f"{count} rows"
            model = self._minimize(name, objective, model, _WARM_ITERATIONS, _WARM_TOLERANCE)
        return model

    def _cache_blocks(self, source: RowSource) -> RowSource:
        return cache_blocks(source, self.plan.arithmetic.memory_limit)

    def _list_warm_up_sizes(self) -> list[int]:
        """Return the sizes of the subsets to warm up on: none if there are few rows."""
        sizes: list[int] = []
        if not self.family.warms_up or self.plan.max_iter == 0 or self.plan.begins_at_once:
            return sizes
        count = max(_WARM_ROWS, _WARM_ROWS_PER_POINT * self.plan.n_inducing)
        while count <= min(self.train.n_rows // 3, _MOST_WARM_ROWS):
            sizes.append(count)
            count *= _WARM_GROWTH
        return sizes

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
        if self.plan.max_iter == 0:
            return model
        parameters = self.family.parameters(model, self.box, basis, weights)
        objective = self._make_objective(parameters, basis)
        if isinstance(objective, WeightObjective):
            self._weight_objective = objective
        return self._minimize(name, objective, model, self.plan.max_iter, self.plan.tol)

    def _minimize(
        self,
        name: str,
        objective: RowObjective | WeightObjective,
        model: Any,
        max_iter: int,
        tol: float,
    ) -> Any:
        """Minimise an objective, report to the monitor, and return the model at the minimum."""
        parameters = objective.parameters
        evaluated: Objective = objective
        if self.checkpoint is not None and isinstance(objective, RowObjective):
            evaluated = CheckpointedObjective(objective, self.checkpoint, name)
        self.monitor.begin(name, max_iter)
        start, bounds, clock = parameters.pack(model), parameters.bounds, self.monitor.clock
        found = minimize(evaluated, start, bounds, max_iter, tol, self.monitor.step, clock.is_over)
        self.monitor.end()
        self.n_iter += found.n_iter
        return parameters.unpack(found.vector)

    def _make_objective(
        self, parameters: Parameters[Any], basis: bool
    ) -> RowObjective | WeightObjective:
        """Return the cheapest objective for these free parameters."""
        if basis:
            return RowObjective(parameters, self.train, self.plan.gamma)
        if parameters.template.residual:
            return RowObjective(parameters, self.train)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", JitterWarning)
            return WeightObjective.of(parameters, self.train)

    def _choose_better(self, before: EigenGP, after: EigenGP) -> EigenGP:
        """Return `after`, unless there is a held-out set and `before` predicts it better."""
        if self.held_out is None:
            return after
        losses = [self._score_held_out(model, self.held_out) for model in (before, after)]
        return before if losses[0] < losses[1] else after

    def _score_held_out(self, model: EigenGP, rows: RowBlock) -> float:
        """Return the mean negative log density of the held-out set."""
        posterior = model.posterior(self._compute_outcome(model))
        both = map_blocks(
            lambda X: np.column_stack(posterior.mean_and_variance(X)), rows.X, posterior.n_columns
        )
        return mnlp(rows.y, both[:, 0], np.sqrt(both[:, 1]), sample_weight=rows.sample_weight)

    def _compute_outcome(self, model: EigenGP) -> Outcome:
        """Condition on the training rows; the sums of stage 2 save a pass over them."""
        if self._weight_objective is not None and self._weight_objective.knows(model):
            return self._weight_objective.compute_outcome(model)
        return model.forward(self.train)
