"""Learning kernels and noise by the Vecchia log marginal likelihood.

The candidates of `kernel="auto"` are here too, and where learning of each starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from eigengp._typing import Array
from eigengp.data.neighbors import NeighborSource
from eigengp.fitting.checkpoint import Checkpoint
from eigengp.fitting.objectives import (
    RowObjective,
    kernel_parameters,
    learn_parameters,
)
from eigengp.fitting.progress import Monitor
from eigengp.gp.blocks import RowBlock
from eigengp.gp.linalg import FactorizationError
from eigengp.gp.model import EigenGP
from eigengp.gp.sums import Kept
from eigengp.gp.vecchia import VecchiaOutcome
from eigengp.kernels import (
    Kernel,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
    Stationary,
    Sum,
)


class _Origin(NamedTuple):
    """Where learning of a candidate kernel starts."""

    kind: type[Stationary] | None
    """At the learned parameters of this kernel; None is the start of the fit."""
    stretch: float
    """The factor by which its lengthscales are multiplied."""


CANDIDATES: dict[type[Stationary], _Origin] = {
    SquaredExponential: _Origin(None, 1.0),
    RationalQuadratic: _Origin(SquaredExponential, 1.0),
    Matern52: _Origin(SquaredExponential, 1.3),
    Matern32: _Origin(Matern52, 1.3),
    Matern12: _Origin(Matern32, 2.4),
}
"""The candidate kernels; each starts where a smoother one ended."""
SUMS: tuple[tuple[type[Stationary], type[Stationary]], ...] = (
    (SquaredExponential, Matern52),
    (RationalQuadratic, Matern12),
    (Matern32, Matern12),
)
"""Candidate sums of a smooth and a rougher kernel; each starts where its parts ended."""
_LARGEST_ALPHA = 10.0
"""Where learning of a rational quadratic starts at most: beyond, gradients vanish."""


class _Round(NamedTuple):
    """One round of the tournament of kernels."""

    n_rows: int
    """The number of rows."""
    steps: int
    """The largest number of iterations."""
    keep: int
    """The number of kernels that reach the next round."""
    until: float
    """The fraction of `max_time` by which the round must end."""


_ROUNDS = (_Round(1_000, 15, 4, 0.12), _Round(3_000, 25, 1, 0.3))
_SUM_STEPS = 10
"""The largest number of iterations of a sum of kernels in a round."""
_ENOUGH_SECONDS = 10.0
_ROWS_PER_SECOND, _FEWEST_ROWS, _FEW_STEPS = 200, 200, 15
"""The only round if `max_time` is less than that: later steps need the time more."""
_NEIGHBOURS = 15
_MORE_NEIGHBOURS = 30
"""For the last learning of kernel and noise, since few neighbours bias lengthscales and noise."""
_MOVED, _MATTERS = 1.5, 0.1
"""If time is short, neighbours are searched again only if the metric of inputs that matter has
changed by this ratio; others have less than this fraction of the largest metric."""


@dataclass
class VecchiaLearner:
    """Maximises the Vecchia log marginal likelihood.

    Parameters
    ----------
    rows : RowBlock
        The rows to learn from, in random order.
    monitor : Monitor
        Called after every iteration.
    n_threads : int
        The number of threads.
    checkpoint : Checkpoint or None
        Stores every evaluation.
    tol : float
        Relative change of the log marginal likelihood at which learning stops.
    """

    rows: RowBlock
    monitor: Monitor
    n_threads: int
    checkpoint: Checkpoint | None = None
    tol: float = 1e-6
    n_iter: int = 0
    losses: dict[int, dict[str, float]] = field(default_factory=dict)
    """The loss of each kernel, by the number of rows; lower is better."""
    _known: dict[tuple[int, int], tuple[Array, Any]] = field(default_factory=dict)
    """The metric and the neighbours found with it, by the numbers of rows and of neighbours."""

    def choose_kernel(self, start: EigenGP, most: int) -> EigenGP:
        """Return the winner of a tournament of kernels.

        Kernels are learned on a part of the rows with fixed inducing points, in rounds of at most
        `most` iterations. The best kernels of each round, by `_score_kernel`, reach the next.
        """
        first, *others = self._plan_rounds()
        models = self._learn_candidates(start, first, most)
        return self.learn_in_rounds(self._keep_best(models, first), most, others)

    def learn_in_rounds(
        self, models: list[EigenGP], most: int, rounds: Sequence[_Round] | None = None
    ) -> EigenGP:
        """Learn kernels in rounds, by default all, and return the best model of the last."""
        for each in self._plan_rounds() if rounds is None else rounds:
            learned = []
            for i, model in enumerate(models):
                self.monitor.clock.spread(each.until, i, len(models))
                learned.append(self._learn_on_part(model, each, most))
            models = self._keep_best(learned, each)
        return models[0]

    def _keep_best(self, models: list[EigenGP], own: _Round) -> list[EigenGP]:
        """Return the best models of a round, in order."""
        if len(models) == 1:
            return models
        losses = {
            name_kernel(model.kernel): self._score_kernel(model, own.n_rows) for model in models
        }
        self.losses[own.n_rows] = losses
        return sorted(models, key=lambda model: losses[name_kernel(model.kernel)])[: own.keep]

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

    def _learn_candidates(self, start: EigenGP, own: _Round, most: int) -> list[EigenGP]:
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
            self.monitor.clock.spread(own.until, i, n_candidates)
            lengths = before.lengthscale * origin.stretch
            kernel = kind(lengths, before.variance, groups=before.groups)
            model = replace(model, kernel=kernel)
            learned[kind] = self._learn_on_part(model, own, most)
        sums = []
        for i, parts in enumerate(pairs, len(CANDIDATES)):
            self.monitor.clock.spread(own.until, i, n_candidates)
            model = add_kernels(*(learned[kind] for kind in parts))
            sums.append(self._learn_on_part(model, own, most))
        return [*list(learned.values())[1:], *sums]

    def _learn_on_part(self, model: EigenGP, own: _Round, most: int) -> EigenGP:
        """Learn kernel and noise in one round of at most `most` iterations."""
        model = replace(model, kernel=limit_alpha(model.kernel))
        steps = own.steps if isinstance(model.kernel, Stationary) else min(own.steps, _SUM_STEPS)
        return self._minimize(name_kernel(model.kernel), model, own.n_rows, min(steps, most))

    def _score_kernel(self, model: EigenGP, count: int) -> float:
        """Average `−ln p(y)` per row and its value with one variance for all rows.

        The second term measures the means alone, since the variances are learned again at the end.
        As in Akaike's criterion, each parameter costs one nat: those of sums are many.
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
        weight, own = source.rows.sample_weight, source.index[:, -1]
        mean = np.average(errors**2, weights=None if weight is None else weight[own])
        square = max(float(mean), np.finfo(np.float64).tiny)
        alike = 0.5 * float(np.log(2.0 * np.pi * square) + 1.0)
        return 0.5 * (outcome.value / outcome.n + alike) + len(model.kernel.parameters) / outcome.n

    def learn_kernel(self, model: EigenGP, count: int, steps: int) -> EigenGP:
        """Learn kernel and noise on `count` rows, with more neighbours than in the rounds."""
        model = replace(model, kernel=limit_alpha(model.kernel))
        return self._minimize("kernel", model, count, steps, _MORE_NEIGHBOURS)

    def try_kernel(self, model: EigenGP, steps: int) -> float:
        """Return `−ln p(y)` after a few steps on few rows; infinite where they fail."""
        count = _ROUNDS[0].n_rows
        try:
            learned = self._minimize("lengthscales", model, count, steps)
            return learned.forward(self._find_neighbors(model, count)).value
        except FactorizationError:
            return float("inf")

    def _minimize(
        self,
        name: str,
        model: EigenGP,
        count: int,
        steps: int,
        n_neighbors: int = _NEIGHBOURS,
    ) -> EigenGP:
        """Learn kernel and noise on the last `count` rows; their neighbours are among all."""
        source = self._find_neighbors(model, count, n_neighbors)
        free = kernel_parameters(model)
        objective, limits = RowObjective(free, source), (steps, self.tol)
        found = learn_parameters(objective, *limits, name, self.monitor, self.checkpoint, count)
        self.n_iter += found.n_iter
        return free.unpack(found.vector)

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


def name_kernel(kernel: Kernel) -> str:
    """Return the name of a kernel, or those of both parts of a sum."""
    parts = [kernel.left, kernel.right] if isinstance(kernel, Sum) else [kernel]
    return " + ".join(type(part).__name__ for part in parts)


def add_kernels(left: EigenGP, right: EigenGP) -> EigenGP:
    """Return a model with half of each kernel and the smaller noise."""
    halves = [_halve(limit_alpha(model.kernel)) for model in (left, right)]
    best = min((left, right), key=lambda model: model.noise_variance)
    return replace(best, kernel=Sum(*halves))


def _halve(kernel: Kernel) -> Kernel:
    assert isinstance(kernel, Stationary)
    return replace(kernel, variance=0.5 * kernel.variance)


def limit_alpha(kernel: Kernel) -> Kernel:
    """Return the kernel with each α of a rational quadratic where its gradient is not lost."""
    if isinstance(kernel, Sum):
        return Sum(limit_alpha(kernel.left), limit_alpha(kernel.right))
    if isinstance(kernel, RationalQuadratic) and kernel.alpha > _LARGEST_ALPHA:
        return replace(kernel, alpha=_LARGEST_ALPHA)
    return kernel
