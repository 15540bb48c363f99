"""Learning kernels, inducing points and noise by the Vecchia log marginal likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from eigengp._typing import Array
from eigengp.data.neighbors import NeighborSource
from eigengp.data.standardize import Extent
from eigengp.fitting.candidate_kernels import (
    CANDIDATES,
    SUMS,
    add_kernels,
    limit_alpha,
    name_kernel,
)
from eigengp.fitting.checkpoint import Checkpoint, CheckpointedObjective
from eigengp.fitting.objectives import (
    Parameters,
    RowObjective,
    eigengp_parameters,
    kernel_parameters,
)
from eigengp.fitting.optimizer import Objective, minimize
from eigengp.fitting.progress import Monitor
from eigengp.gp.blocks import RowBlock
from eigengp.gp.linalg import FactorizationError
from eigengp.gp.model import EigenGP
from eigengp.gp.sums import Kept
from eigengp.gp.vecchia import VecchiaOutcome
from eigengp.kernels import Stationary


class _Round(NamedTuple):
    """One round of the tournament of kernels."""

    n_rows: int
    """The number of rows."""
    steps: int
    """The largest number of iterations."""
    keep: int
    """The number of kernels, beside sums, that reach the next round."""
    until: float
    """The fraction of `max_time` by which the round must end."""


_ROUNDS = (_Round(1_000, 15, 3, 0.12), _Round(3_000, 25, 1, 0.3))
_SUM_STEPS, _KEPT_SUMS = 10, 2
"""The largest number of iterations of a sum of kernels in a round, and how many sums are kept:
rounds rank sums, which are then learned again from one kernel of all rows."""
_ENOUGH_SECONDS = 20.0
_ROWS_PER_SECOND, _FEWEST_ROWS, _FEW_STEPS = 80, 200, 8
"""The only round if `max_time` is less than that: later steps need the time more."""
_NEIGHBOURS = 15
_REFINED_ROWS, _REFINED_STEPS, _REFINED_NEIGHBOURS = 3_000, 20, 30
"""The last learning of kernel and noise: few neighbours bias lengthscales and noise, and the few
parameters need fewer rows."""
_TOLERANCE = 1e-6
_MOVED, _MATTERS = 1.5, 0.1
"""If time is short, neighbours are searched again only if the metric of inputs that matter has
changed by this ratio; others have less than this fraction of the largest metric."""


@dataclass
class VecchiaLearner:
    """Maximises the Vecchia log marginal likelihood.

    Parameters
    ----------
    rows : RowBlock
        All rows, in random order.
    box : Extent
        The box around their inputs.
    monitor : Monitor
        Called after every iteration.
    n_threads : int
        The number of threads.
    checkpoint : Checkpoint or None
        Stores every evaluation.
    """

    rows: RowBlock
    box: Extent
    monitor: Monitor
    n_threads: int
    checkpoint: Checkpoint | None = None
    n_iter: int = 0
    losses: dict[int, dict[str, float]] = field(default_factory=dict)
    """The loss of each kernel, by the number of rows; lower is better."""
    single: EigenGP | None = None
    """The best model of the last round whose kernel is not a sum."""
    _known: dict[tuple[int, int], tuple[Array, Any]] = field(default_factory=dict)
    """The metric and the neighbours found with it, by the numbers of rows and of neighbours."""

    def choose_kernel(self, start: EigenGP, most: int) -> EigenGP:
        """Return the winner of a tournament of kernels.

        Kernels are learned on a part of the rows with fixed inducing points, in rounds of at most
        `most` iterations. The best kernels and the best sums of each round, by `_score_kernel`,
        reach the next.
        """
        best: list[EigenGP] = []
        for count, steps, keep, until in self._plan_rounds():
            limits = (count, min(steps, most), until)
            if best:
                models = self._continue_learning(best, *limits)
            else:
                models = self._learn_candidates(start, *limits)
            losses = {
                name_kernel(model.kernel): self._score_kernel(model, count) for model in models
            }
            self.losses[count] = losses
            models.sort(key=lambda model: losses[name_kernel(model.kernel)])
            single = [model for model in models if isinstance(model.kernel, Stationary)]
            sums = [model for model in models if not isinstance(model.kernel, Stationary)]
            best = [*single[:keep], *sums[:_KEPT_SUMS]]
        self.single = single[0]
        return models[0]

    @property
    def _has_time(self) -> bool:
        limit = self.monitor.clock.limit
        return limit is None or limit >= _ENOUGH_SECONDS

    def _plan_rounds(self) -> Sequence[_Round]:
        """Return the rounds of the tournament: a single small one if time is short."""
        limit = self.monitor.clock.limit
        if limit is None or self._has_time:
            return _ROUNDS
        count = min(_ROUNDS[0].n_rows, max(_FEWEST_ROWS, round(_ROWS_PER_SECOND * limit)))
        return (_Round(count, _FEW_STEPS, 1, _ROUNDS[-1].until),)

    def _learn_candidates(
        self, start: EigenGP, count: int, steps: int, until: float
    ) -> list[EigenGP]:
        """Learn all candidate kernels, each from where a smoother one ended.

        Rough kernels learn slowly, and not at all from a poor start.
        """
        learned: dict[type[Stationary] | None, EigenGP] = {None: start}
        pairs = SUMS if self._has_time else ()
        n_candidates = len(CANDIDATES) + len(pairs)
        for i, (kind, origin) in enumerate(CANDIDATES.items()):
            model = learned[origin.kind]
            before = model.kernel
            assert isinstance(before, Stationary)
            self.monitor.clock.spread(until, i, n_candidates)
            kernel = kind(before.lengthscale * origin.stretch, before.variance)
            model = replace(model, kernel=kernel, vecchia=True)
            learned[kind] = self._learn_on_part(model, count, steps)
        sums = []
        for i, parts in enumerate(pairs, len(CANDIDATES)):
            self.monitor.clock.spread(until, i, n_candidates)
            model = add_kernels(*(learned[kind] for kind in parts))
            sums.append(self._learn_on_part(model, count, min(steps, _SUM_STEPS)))
        return [*list(learned.values())[1:], *sums]

    def _continue_learning(
        self, models: list[EigenGP], count: int, steps: int, until: float
    ) -> list[EigenGP]:
        """Continue learning the kernels of an earlier round."""
        learned = []
        for i, model in enumerate(models):
            self.monitor.clock.spread(until, i, len(models))
            most = steps if isinstance(model.kernel, Stationary) else min(steps, _SUM_STEPS)
            learned.append(self._learn_on_part(model, count, most))
        return learned

    def _learn_on_part(self, model: EigenGP, count: int, steps: int) -> EigenGP:
        model = replace(model, kernel=limit_alpha(model.kernel))
        return self._minimize(name_kernel(model.kernel), kernel_parameters(model), count, steps)

    def _score_kernel(self, model: EigenGP, count: int) -> float:
        """Average `−ln p(y)` per row and its value with one variance for all rows.

        The second term measures the means alone, since the variances are learned again at the end.
        """
        source = self._find_neighbors(model, count)
        try:
            outcome = model.forward(source, kept=Kept(model.arithmetic.memory_limit))
        except FactorizationError:
            return float("inf")
        assert isinstance(outcome, VecchiaOutcome)
        assert outcome.whitened is not None
        seen = outcome.whitened
        errors = (seen.eta - seen.kappa @ outcome.evidence.mean) / seen.w[:, -1]
        weight = source.rows.weight[source.index[:, -1]]
        alike = 0.5 * float(np.log(2.0 * np.pi * np.average(errors**2, weights=weight)) + 1.0)
        return 0.5 * (outcome.value / outcome.n + alike)

    def learn_kernel(self, model: EigenGP, count: int, steps: int) -> EigenGP:
        """Learn kernel and noise on `count` rows."""
        return self._minimize("kernel", kernel_parameters(model), count, steps)

    def learn_all(self, model: EigenGP, count: int, steps: int) -> EigenGP:
        """Learn kernel, noise and inducing points on `count` rows."""
        return self._minimize("local", eigengp_parameters(model, self.box), count, steps)

    def choose_start(self, models: list[EigenGP]) -> EigenGP:
        """Return the model of largest log marginal likelihood before its kernel is refined."""

        def value(model: EigenGP) -> float:
            try:
                return model.value(self._find_neighbors(model, _REFINED_ROWS, _REFINED_NEIGHBOURS))
            except FactorizationError:
                return float("inf")

        return min(models, key=value)

    def refine_kernel(self, model: EigenGP, steps: int) -> EigenGP:
        """Learn kernel and noise on few rows with more neighbours."""
        model = replace(model, kernel=limit_alpha(model.kernel))
        limits = (_REFINED_ROWS, min(steps, _REFINED_STEPS), _REFINED_NEIGHBOURS)
        return self._minimize("refine", kernel_parameters(model), *limits)

    def _minimize(
        self,
        name: str,
        parameters: Parameters[EigenGP],
        count: int,
        steps: int,
        n_neighbors: int = _NEIGHBOURS,
    ) -> EigenGP:
        """Minimise over the last `count` rows, with neighbours among all rows."""
        model = parameters.template
        source = self._find_neighbors(model, count, n_neighbors)
        objective: Objective = RowObjective(parameters, source)
        if self.checkpoint is not None:
            objective = CheckpointedObjective(objective, self.checkpoint, f"{name} {count}")
        self.monitor.begin(name, steps)
        start, bounds, clock = parameters.pack(model), parameters.bounds, self.monitor.clock
        found = minimize(
            objective, start, bounds, steps, _TOLERANCE, self.monitor.step, clock.is_over
        )
        self.monitor.end()
        self.n_iter += found.n_iter
        return parameters.unpack(found.vector)

    def _find_neighbors(self, model: EigenGP, count: int, n_neighbors: int = _NEIGHBOURS) -> Any:
        """Find the neighbours; if time is short, those found with nearly the same metric serve."""
        metric = np.broadcast_to(model.kernel.metric(self.rows.X.shape[1]), self.rows.X.shape[1:])
        known = self._known.get((count, n_neighbors))
        moved = 1.0 if self._has_time else _MOVED
        if known is None or not _are_alike(metric, known[0], moved):
            found = NeighborSource.of(self.rows, metric, n_neighbors, self.n_threads, count, "auto")
            known = self._known[count, n_neighbors] = (metric, found)
        return known[1]


def _are_alike(metric: Array, other: Array, moved: float) -> bool:
    """Return whether two metrics of the inputs that matter agree up to a ratio."""
    least = np.finfo(float).tiny
    metric, other = (np.maximum(each / max(each.max(), least), least) for each in (metric, other))
    ratio = (metric / other)[np.maximum(metric, other) > _MATTERS]
    return ratio.size == 0 or bool(ratio.max() <= moved * ratio.min())
