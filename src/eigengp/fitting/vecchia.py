"""Learning with the nearest-neighbour (Vecchia) residual: kernel, inducing points, noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from eigengp.backend.threads import at_work, available_threads, in_threads
from eigengp.data.neighbors import Nearest, NeighborSource
from eigengp.data.standardize import Extent
from eigengp.fitting.checkpoint import Checkpoint, CheckpointedObjective
from eigengp.fitting.initialization import BasisInit
from eigengp.fitting.leave_one_out import LeaveOneOut, predictive_loss, score
from eigengp.fitting.model_selection import Decision
from eigengp.fitting.objectives import (
    Parameters,
    RowObjective,
    eigengp_parameters,
    kernel_parameters,
)
from eigengp.fitting.optimizer import Objective, minimize
from eigengp.fitting.progress import Clock, Monitor
from eigengp.fitting.run import Run
from eigengp.fitting.settings import RELATIVE_JITTER, Plan, is_small
from eigengp.gp.blocks import RowBlock
from eigengp.gp.exact import ExactGP
from eigengp.gp.linalg import FactorizationError
from eigengp.gp.model import EigenGP, Jitter
from eigengp.gp.vecchia import VecchiaOutcome, VecchiaPass
from eigengp.gp.vecchia_posterior import VecchiaPosterior
from eigengp.kernels import (
    Kernel,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
    Stationary,
)


class _From(NamedTuple):
    """Where a kernel begins."""

    kind: type[Stationary] | None
    """After which other kernel; None is the start itself."""
    stretch: float
    """How much longer its lengthscales are than that one's."""


CANDIDATES: dict[type[Stationary], _From] = {
    SquaredExponential: _From(None, 1.0),
    RationalQuadratic: _From(SquaredExponential, 1.0),
    Matern52: _From(SquaredExponential, 1.3),
    Matern32: _From(Matern52, 1.3),
    Matern12: _From(Matern32, 2.4),
}
"""The kernels that are tried: each begins where a smoother one ended."""


class _Heat(NamedTuple):
    """One round of the competition of kernels."""

    n_rows: int
    """On how many."""
    steps: int
    """For how many iterations."""
    keep: int
    """How many go on."""
    until: float
    """Until which share of a limited time it may take."""


_HEATS = (_Heat(1_000, 15, 3, 0.12), _Heat(3_000, 25, 1, 0.3))
_ENOUGH_SECONDS = 20.0
_ROWS_PER_SECOND, _FEWEST_ROWS, _FEW_STEPS = 80, 200, 8
"""A heat where time is short: what more would take is better spent on all that comes after it."""
_NEIGHBOURS = 15
_TOLERANCE = 1e-6


_FIRST_STEPS = 20
_TRIED_POINTS = 50
_TRIED_ROWS = 5_000
_KERNEL_STEPS = 15
_STEPS = 25
_LEARNED_ROWS = 10_000
_LEAST_LEARNED_ROWS = 1_000
_CONDITIONED = 32
"""How many neighbours rows have at most while the coefficients are learned: more change little."""
_LEFT_OUT_ROWS = 6_000
_LEFT_OUT_CHUNK = 256
_FIRST_SIZE, _LAST_SIZE = 200, 400
"""With how many basis points a model begins to grow, and how many it has at most in a minute."""
_WORTH = 0.01
"""By how much twice as many must be better, in nats for each row held out, to be taken."""
_ROWS_PER_POINT = 25
_LEAST_SIZE, _MOST_SIZE = 50, 800
_MOST_FEATURES = 40_000_000
"""So many features of all rows are held in memory without being asked."""
_SIZE_PER_SECOND = 10
_LEARNED_ROWS_PER_SECOND = 500
_UNTIL = (0.4, 0.7, 0.9)
"""Until which share of a limited time stage 1, the local evidence and rows left out may take."""


@dataclass
class VecchiaLearner:
    """Learns by the local evidence.

    Parameters
    ----------
    rows : RowBlock
        All rows, in random order.
    box : Extent
        Around their inputs.
    monitor : Monitor
        Told of every iteration.
    n_threads : int
        How many threads sum.
    checkpoint : Checkpoint or None
        Remembers every evaluation.
    """

    rows: RowBlock
    box: Extent
    monitor: Monitor
    n_threads: int
    checkpoint: Checkpoint | None = None
    n_iter: int = 0
    losses: dict[int, dict[str, float]] = field(default_factory=dict)
    """What each kernel reached on how many rows, smaller is better."""

    def best_kernel(self, start: EigenGP, most: int) -> EigenGP:
        """Return the best of several kernels, learned on a part of the rows with basis points held.

        Some go on after each heat, of at most `most` iterations; see `_loss` for what decides.
        """
        left: list[EigenGP] = []
        for count, steps, keep, until in self._heats():
            heat = (count, min(steps, most), until)
            found = self._again(left, *heat) if left else self._rougher(start, *heat)
            losses = {_name(model): self._loss(model, count) for model in found}
            self.losses[count] = losses
            found.sort(key=lambda model: losses[_name(model)])
            left = found[:keep]
        return left[0]

    def _heats(self) -> Sequence[_Heat]:
        """Return one small heat where time is short."""
        limit = self.monitor.clock.limit
        if limit is None or limit >= _ENOUGH_SECONDS:
            return _HEATS
        count = min(_HEATS[0].n_rows, max(_FEWEST_ROWS, round(_ROWS_PER_SECOND * limit)))
        return (_Heat(count, _FEW_STEPS, 1, _HEATS[-1].until),)

    def _rougher(self, start: EigenGP, count: int, steps: int, until: float) -> list[EigenGP]:
        """Return all kernels, each learned from where a smoother one ended.

        Rough ones learn slowly, and from a poor start not at all.
        """
        found: dict[type[Stationary] | None, EigenGP] = {None: start}
        for i, (kind, begins) in enumerate(CANDIDATES.items()):
            model = found[begins.kind]
            before = model.kernel
            assert isinstance(before, Stationary)
            self.monitor.clock.spread(until, i, len(CANDIDATES))
            kernel = kind(before.lengthscale * begins.stretch, before.variance)
            found[kind] = self._tried(replace(model, kernel=kernel, vecchia=True), count, steps)
        return list(found.values())[1:]

    def _again(self, models: list[EigenGP], count: int, steps: int, until: float) -> list[EigenGP]:
        """Return models learned on."""
        found = []
        for i, model in enumerate(models):
            self.monitor.clock.spread(until, i, len(models))
            found.append(self._tried(model, count, steps))
        return found

    def _tried(self, model: EigenGP, count: int, steps: int) -> EigenGP:
        return self._learned(_name(model), kernel_parameters(model), count, steps)

    def _loss(self, model: EigenGP, count: int) -> float:
        """Return the mean of `−ln p(y)` per row and of what it would be with one variance for all.

        Variances are learned anew in the end, so a kernel is to be good at means too.
        """
        source = self._source(model, count)
        try:
            outcome = model.forward(source, kept=model.arithmetic.kept())
        except FactorizationError:
            return float("inf")
        assert isinstance(outcome, VecchiaOutcome)
        assert outcome.whitened is not None
        seen = outcome.whitened
        errors = (seen.eta - seen.kappa @ outcome.evidence.mean) / seen.w[:, -1]
        weight = source.rows.weight[source.index[:, -1]]
        alike = 0.5 * float(np.log(2.0 * np.pi * np.average(errors**2, weights=weight)) + 1.0)
        return 0.5 * (outcome.value / outcome.n + alike)

    def kernel(self, model: EigenGP, count: int, steps: int) -> EigenGP:
        """Return the model with kernel and noise learned on so many rows."""
        return self._learned("kernel", kernel_parameters(model), count, steps)

    def everything(self, model: EigenGP, count: int, steps: int) -> EigenGP:
        """Return the model with basis points learned too."""
        return self._learned("local", eigengp_parameters(model, self.box), count, steps)

    def _learned(
        self, name: str, parameters: Parameters[EigenGP], count: int, steps: int
    ) -> EigenGP:
        """Minimise over the last so many rows, whose neighbours are as near as those of all."""
        model = parameters.template
        objective: Objective = RowObjective(parameters, self._source(model, count))
        if self.checkpoint is not None:
            objective = CheckpointedObjective(objective, self.checkpoint, f"{name} {count}")
        self.monitor.begin(name, steps)
        start, clock = parameters.pack(model), self.monitor.clock
        found = minimize(objective, start, steps, _TOLERANCE, self.monitor.step, clock.is_over)
        self.monitor.end()
        self.n_iter += found.n_iter
        return parameters.unpack(found.vector)

    def _source(self, model: EigenGP, count: int) -> Any:
        metric = model.kernel.metric(self.rows.X.shape[1])
        return NeighborSource.of(self.rows, metric, _NEIGHBOURS, self.n_threads, count, "auto")


def _name(model: EigenGP) -> str:
    return type(model.kernel).__name__


def _largest_size(n_rows: int, seconds: float | None = None) -> int:
    """Return the largest default number of inducing points; short fits use few."""
    size = _LAST_SIZE
    if seconds is not None:
        size = min(_MOST_SIZE, max(_LEAST_SIZE, round(_SIZE_PER_SECOND * seconds)))
    return max(1, min(size, n_rows // _ROWS_PER_POINT, _MOST_FEATURES // max(1, n_rows)))


def _is_smooth(kernel: Kernel) -> bool:
    """Return whether functions have derivatives; mixtures of many lengthscales count as rough."""
    if isinstance(kernel, RationalQuadratic):
        return kernel.alpha >= 1.0
    return isinstance(kernel, SquaredExponential | Matern52)


@dataclass
class NeighborFit:
    """One fit with the residual between neighbours.

    Parameters
    ----------
    run : Run
        The fit that it is a part of.
    rows : RowBlock
        All standardised rows, in random order.
    learner : VecchiaLearner
        Maximises the Vecchia log marginal likelihood.
    max_iter : int or None
        The largest number of iterations in each stage; None is 25.
    best : EigenGP or None
        The chosen kernel, with what was learned about it on a part of the rows.
    """

    run: Run
    rows: RowBlock
    learner: VecchiaLearner
    max_iter: int | None
    best: EigenGP | None = None

    @classmethod
    def begin(cls, run: Run) -> NeighborFit:
        """Take all rows into memory, in random order."""
        rows = run.source.take(np.arange(run.source.n_rows))
        rows = rows.picked(run.rng.permutation(rows.n_rows))
        learner = VecchiaLearner(
            rows, run.dataset.extent, run.monitor, available_threads(), run.checkpoint
        )
        max_iter = run.settings.optimizer.max_iter
        return cls(run, rows, learner, None if isinstance(max_iter, str) else max_iter)

    @property
    def _clock(self) -> Clock:
        return self.run.monitor.clock

    @property
    def _learned_rows(self) -> int:
        """How many rows hyperparameters are learned on."""
        limit = self._clock.limit
        few = _LEARNED_ROWS if limit is None else round(_LEARNED_ROWS_PER_SECOND * limit)
        return min(_LEARNED_ROWS, max(few, _LEAST_LEARNED_ROWS))

    @property
    def _steps(self) -> int:
        return _STEPS if self.max_iter is None else self.max_iter

    @property
    def largest_size(self) -> int:
        """The largest default number of inducing points."""
        return _largest_size(self.rows.n_rows, self._clock.limit)

    def best_kernel(self, start: ExactGP) -> ExactGP:
        """Return where to start with the best of several kernels, and keep what it learned."""
        if self._steps == 0:
            return start
        few, _ = self.rows.cut(_TRIED_ROWS)
        count = min(_TRIED_POINTS, max(1, few.n_rows // 4))
        points = BasisInit("kmeans").place(few, count, start.kernel, self.run.rng)
        jitter = Jitter(relative=RELATIVE_JITTER)
        template = EigenGP(start.kernel, points, start.likelihood, count, jitter=jitter)
        with at_work(count):
            self.best = self.learner.best_kernel(template, self._steps)
        n, losses = list(self.learner.losses.items())[-1]
        for earlier in list(self.learner.losses.values())[-2::-1]:
            losses = {**earlier, **losses}
        reason = f"lowest loss on up to {n:,} rows"
        self._decide("kernel", type(self.best.kernel).__name__, reason, losses)
        self._clock.allow(_UNTIL[0])
        first, best = start.kernel, self.best.kernel
        assert isinstance(first, Stationary)
        assert isinstance(best, Stationary)
        kernel = replace(best, lengthscale=first.lengthscale, variance=first.variance)
        return replace(start, kernel=kernel)

    def _decide(self, name: str, chosen: str, reason: str, scores: dict[str, float]) -> None:
        self.run.decisions.append(Decision(name, chosen, reason, scores))

    def best_size(self, kernel: Kernel) -> int:
        """Return how many inducing points to use: doubled while a held-out set gains by it.

        Eigenfunctions describe the smooth part of a function and neighbours the rough part. Where
        the kernel was not chosen, its smoothness decides.
        """
        most = self.largest_size
        size = min(_FIRST_SIZE, most)
        if self.best is None:
            return min(_LAST_SIZE, most) if _is_smooth(kernel) else size
        losses: dict[int, float] = {}
        while most >= 1.5 * size and not self._clock.is_over():
            more = min(2 * size, most)
            for each in sorted({size, more} - losses.keys()):
                losses[each] = self._held_out_loss(self.best, each)
            if not losses[more] < losses[size] - _WORTH:
                break
            size = more
        if losses:
            scores = {str(each): loss for each, loss in losses.items()}
            self._decide("n_components", str(size), "loss of a held-out set", scores)
            self._clock.allow(_UNTIL[0])
        return size

    def _held_out_loss(self, model: EigenGP, size: int) -> float:
        """Return the loss of a held-out fifth of some rows, with inducing points by k-means."""
        few, _ = self.rows.cut(_TRIED_ROWS)
        seen, held_out = few.cut(few.n_rows - few.n_rows // 5)
        rng = check_random_state(0)  # The fit's own random numbers stay as they are.
        with at_work(size):
            points = BasisInit("kmeans").place(seen, size, model.kernel, rng)
            model = replace(model, inducing_points=points, n_components=points.shape[0])
            try:
                outcome = self._outcome(model, seen, _CONDITIONED)
            except FactorizationError:
                return float("inf")
            posterior, _ = self._posterior(outcome, seen)
            edges = range(0, held_out.n_rows, _LEFT_OUT_CHUNK)
            parts = [
                posterior.mean_and_variance(held_out.X[i : i + _LEFT_OUT_CHUNK]) for i in edges
            ]
        mean, variance = (np.concatenate(each) for each in zip(*parts, strict=True))
        return predictive_loss(held_out, mean, variance)

    def first_plan(self, plan: Plan) -> Plan:
        """Return the plan of a short stage 1, before the residual is learned."""
        small = is_small(self.rows.n_rows, plan.n_inducing)
        return replace(
            plan,
            max_iter=min(plan.max_iter, _FIRST_STEPS),
            n_restarts=plan.n_restarts if small else 1,
            settled=True,
        )

    def learn(self, first: EigenGP) -> EigenGP:
        """Return the model of stage 1 after learning with the residual between neighbours."""
        model, steps = replace(first, vecchia=True, shrinkage=None, residual=False), self._steps
        self._clock.allow(_UNTIL[1])
        with at_work(model.inducing_points.shape[0]):
            if self.best is not None:
                own, noise = self.best.kernel, self.best.likelihood
                model = replace(model, kernel=own, likelihood=noise)
            elif steps:
                model = self.learner.kernel(model, self._learned_rows, min(steps, _KERNEL_STEPS))
            if steps:
                model = self.learner.everything(model, self._learned_rows, steps)
        self.run.n_iter += self.learner.n_iter
        return model

    def condition(self, model: EigenGP) -> VecchiaOutcome:
        """Return the outcome of a pass over all rows."""
        with at_work(model.inducing_points.shape[0]):
            count = min(self.run.settings.n_neighbors, _CONDITIONED)
            return self._outcome(model, self.rows, count)

    def _outcome(self, model: EigenGP, rows: RowBlock, count: int) -> VecchiaOutcome:
        metric, n_threads = model.kernel.metric(rows.X.shape[1]), self.learner.n_threads
        source: Any = NeighborSource.of(rows, metric, count, n_threads, search="auto")
        outcome = model.forward(source)
        assert isinstance(outcome, VecchiaOutcome)
        return outcome

    def _posterior(
        self, outcome: VecchiaOutcome, rows: RowBlock
    ) -> tuple[VecchiaPosterior, Nearest]:
        """Return the posterior after a pass over these rows, and the search among them."""
        assert isinstance(outcome.flow, VecchiaPass)
        metric = outcome.flow.features.kernel.metric(rows.X.shape[1])
        search = Nearest.of(rows.X, metric, self.run.settings.n_neighbors, "auto")
        return VecchiaPosterior.of(outcome, rows, search, search.count), search

    def score(self, outcome: VecchiaOutcome, heteroscedastic: bool, compare: bool) -> LeaveOneOut:
        """Return the posterior after a pass over the rows, with its leave-one-out score."""
        posterior, search = self._posterior(outcome, self.rows)
        if not (heteroscedastic or compare):
            return LeaveOneOut(posterior)
        some, _ = self.rows.cut(min(_LEFT_OUT_ROWS, self.rows.n_rows))
        self._clock.allow(_UNTIL[2])
        size = posterior.features.size
        with at_work(size):
            predicted = self._leave_one_out(posterior, search, some)
        seen, _ = some.cut(predicted[0].size)
        return score(posterior, seen, predicted, size, heteroscedastic)

    def _leave_one_out(
        self, posterior: VecchiaPosterior, search: Nearest, some: RowBlock
    ) -> tuple[Any, ...]:
        """Return leave-one-out mean, variance and covariates of as many rows as time allows."""
        count, n_threads = some.n_rows, self.learner.n_threads
        step = _LEFT_OUT_CHUNK * n_threads
        parts: list[Any] = []
        for start in range(0, count, step):
            own = np.arange(start, min(start + step, count))
            index = search.others(some.X[own], own)
            edges = range(0, own.size, _LEFT_OUT_CHUNK)
            chunks = [slice(i, min(i + _LEFT_OUT_CHUNK, own.size)) for i in edges]

            def stripe(part: Sequence[slice], own: Any = own, index: Any = index) -> list[Any]:
                return [posterior.leave_one_out(some.picked(own[at]), index[at]) for at in part]

            done = in_threads(stripe, chunks, n_threads)
            parts.extend(each for found in done for each in found)
            if self._clock.is_over():
                break
        return tuple(np.concatenate(each) for each in zip(*parts, strict=True))
