"""The learning procedure: starts, stage 1, stage 2, and all at once.

Every method learns kernel, points and noise from the best of many starts;
those whose weights stay the prior's end there. EigenGP calls that stage 1,
with the weights of the GP prior, and goes on. Stage 2 holds kernel and basis
points and learns the weights of the eigenfunctions and the noise. EigenGP*
goes on from there with everything free.

The guard against over-fitting acts in three places. A share of the trace
term is added whenever basis points are learned: the more basis points for
each row, the larger. Where rows are scarce, the basis grows only while it
earns its place (see `eigengp.fitting.restarts`). Where rows are plenty some
are held out, and learned weights are kept only if they predict those rows
better.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eigengp.backend.threads import available_threads
from eigengp.data.array_source import ArraySource, by_blocks
from eigengp.data.cached_source import ready
from eigengp.data.holdout import sample_rows, training_rows
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
    """One fit.

    Parameters
    ----------
    family : Family
        The kind of model.
    plan : Plan
        What was asked for.
    source : RowSource
        All rows.
    monitor : Monitor
        Told of every iteration.
    rng : RandomState
        Makes the starts.
    box : Extent
        Around the inputs of all rows.
    checkpoint : Checkpoint or None
        Remembers every evaluation.
    """

    family: Family
    plan: Plan
    source: RowSource
    monitor: Monitor
    rng: np.random.RandomState
    box: Extent
    checkpoint: Checkpoint | None = None

    def __post_init__(self) -> None:
        self.n_threads = available_threads()
        self.n_iter = 0
        self.train: RowSource = self.source
        self.held_out: RowBlock | None = None
        self._weighed: WeightObjective | None = None
        if self.plan.hold_out:
            split = training_rows(self.source)
            self.train, self.held_out = split, split.held_out()
        self.train = self._ready(self.train)

    def learn(self, template: Any) -> Any:
        """Return the learned model; `template` holds the kernel and noise to start from."""
        screening = Screening(self.family, self.plan, self.train, self.monitor, self.rng)
        start = self._warmed(screening.best(template))
        start = self.family.computed_with(start, self.plan.arithmetic)
        if self.plan.strategy == "prior":
            return self._stage("learning", start, basis=True, weights=False)
        return self._with_weights(start)

    def _warmed(self, start: Any) -> Any:
        """Return the model after learning on growing parts of many rows, each quick to learn on.

        Early steps are large, and a part of the rows shows their direction
        well enough; the guard is that of as few rows.
        """
        model = start
        for count in self._parts():
            rows = sample_rows(self.train, count, self.rng)
            source = self._ready(ArraySource.of(rows, self.plan.n_inducing, self.n_threads))
            gamma = min(1.0, self.plan.gamma * self.train.n_rows / count)
            parameters = self.family.parameters(model, self.box)
            objective = RowObjective(parameters, source, gamma)
            name = f"{count} rows"
            model = self._minimized(name, objective, model, _WARM_ITERATIONS, _WARM_TOLERANCE)
        return model

    def _ready(self, source: RowSource) -> RowSource:
        return ready(source, self.plan.arithmetic.memory_limit)

    def _parts(self) -> list[int]:
        """Return how many rows to learn on before all of them are: none where there are few."""
        sizes: list[int] = []
        if not self.family.warms_up or self.plan.max_iter == 0 or self.plan.begins_at_once:
            return sizes
        count = max(_WARM_ROWS, _WARM_ROWS_PER_POINT * self.plan.n_inducing)
        while count <= min(self.train.n_rows // 3, _MOST_WARM_ROWS):
            sizes.append(count)
            count *= _WARM_GROWTH
        return sizes

    def _with_weights(self, start: EigenGP) -> EigenGP:
        """Return the model after the stages that give the eigenfunctions their own weights."""
        kept = min(self.plan.n_components, start.inducing_points.shape[0])
        start = replace(start, n_components=kept)
        if self.plan.strategy == "direct":
            return self._all_at_once(start)
        first = self._stage("stage 1", start, basis=True, weights=False)
        second = self._stage("stage 2", first, basis=False, weights=True)
        best = self._better(first, second)
        if self.plan.strategy == "sequential":
            return best
        return self._better(best, self._all_at_once(second))

    def _all_at_once(self, start: EigenGP) -> EigenGP:
        """Return the model after optimising everything, then weights and noise once more.

        The trace term inflates the noise while the basis is learned; the
        last step sets it by the evidence alone.
        """
        joint = self._stage("joint", start, basis=True, weights=True)
        return self._better(joint, self._stage("weights", joint, basis=False, weights=True))

    def _stage(self, name: str, model: Any, basis: bool, weights: bool) -> Any:
        """Return the model with the free parameters optimised on the training rows."""
        if self.plan.max_iter == 0:
            return model
        parameters = self.family.parameters(model, self.box, basis, weights)
        objective = self._objective(parameters, basis)
        if isinstance(objective, WeightObjective):
            self._weighed = objective
        return self._minimized(name, objective, model, self.plan.max_iter, self.plan.tol)

    def _minimized(
        self,
        name: str,
        objective: RowObjective | WeightObjective,
        model: Any,
        max_iter: int,
        tol: float,
    ) -> Any:
        """Return the model where the objective ends, and tell the monitor on the way."""
        parameters = objective.parameters
        asked: Objective = objective
        if self.checkpoint is not None and isinstance(objective, RowObjective):
            asked = CheckpointedObjective(objective, self.checkpoint, name)
        self.monitor.begin(name, max_iter)
        start, clock = parameters.pack(model), self.monitor.clock
        found = minimize(asked, start, max_iter, tol, self.monitor.step, clock.is_over)
        self.monitor.end()
        self.n_iter += found.n_iter
        return parameters.unpack(found.vector)

    def _objective(
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

    def _better(self, before: EigenGP, after: EigenGP) -> EigenGP:
        """Return `after`, unless rows were held out and `before` predicts them better."""
        if self.held_out is None:
            return after
        losses = [self._held_out_loss(model, self.held_out) for model in (before, after)]
        return before if losses[0] < losses[1] else after

    def _held_out_loss(self, model: EigenGP, rows: RowBlock) -> float:
        """Return the mean negative log density of the held-out rows."""
        posterior = model.posterior(self._outcome(model))
        both = by_blocks(
            lambda X: np.column_stack(posterior.mean_and_variance(X)), rows.X, posterior.n_columns
        )
        return mnlp(rows.y, both[:, 0], np.sqrt(both[:, 1]), sample_weight=rows.sample_weight)

    def _outcome(self, model: EigenGP) -> Outcome:
        """Return what a pass over the training rows finds; sums of stage 2 spare it."""
        if self._weighed is not None and self._weighed.knows(model):
            return self._weighed.outcome(model)
        return model.forward(self.train)
