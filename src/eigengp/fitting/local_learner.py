"""Learning kernels and noise from local GPs, and the tournament of kernels.

Nearby rows are grouped, and each group is an exact GP; all share one kernel and the noise. Their
`ln p(y) = Σ_g ln p(y_g)` is that of a block-diagonal covariance. It needs O(N n²) time for groups
of n rows, where the exact GP needs O(N³), and it knows all distances inside a group, where a few
nearest neighbours know short ones alone, from which the lengthscales of smooth functions cannot be
learned. With one group it is the exact GP.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eigengp._typing import Array
from eigengp.backend.threads import map_in_threads
from eigengp.fitting.checkpoint import Checkpoint
from eigengp.fitting.initialization import CLEARLY, draw_kernels, shorten_lengthscales
from eigengp.fitting.model_selection import Decision
from eigengp.fitting.objectives import LocalObjective, kernel_parameters, minimize
from eigengp.fitting.progress import Monitor
from eigengp.fitting.run import Run
from eigengp.gp.blocks import RowBlock
from eigengp.gp.exact import ExactGP
from eigengp.gp.linalg import FactorizationError, leave_one_out
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

_MOST_STEPS = 1_000  # More iterations than any round has.
# The default relative change of the log marginal likelihood at which learning stops.
_TOLERANCE = 1e-6


# The candidate kernels; each starts where a smoother one ended, with lengthscales times a factor.
# None is the start of the fit.
CANDIDATES: dict[type[Stationary], tuple[type[Stationary] | None, float]] = {
    SquaredExponential: (None, 1.0),
    RationalQuadratic: (SquaredExponential, 1.0),
    Matern52: (SquaredExponential, 1.3),
    Matern32: (Matern52, 1.3),
    Matern12: (Matern32, 2.4),
}
# Candidate sums; each starts where its parts ended, see `add_kernels`.
SUMS: tuple[tuple[type[Stationary], ...], ...] = (
    (SquaredExponential, RationalQuadratic),
    (RationalQuadratic, Matern12),
    (SquaredExponential, RationalQuadratic, Matern12),
)
# Where learning of a rational quadratic starts at most: beyond, gradients vanish.
_LARGEST_ALPHA = 10.0
LEARNED_ROWS = 20_000  # The largest number of rows that are grouped.


class Round(NamedTuple):
    """One round of the tournament of kernels."""

    n_rows: int  # The number of rows.
    size: int  # The number of rows of a group.
    steps: int  # The largest number of iterations.
    sum_steps: int  # The same for sums of kernels.
    keep: int  # The number of kernels that reach the next round.
    until: float  # The fraction of `max_time` by which the round must end.
    # The number of the best kernels that are learned with and without a map of the inputs; if such
    # maps are possible, the others are dropped.
    mapped: int = 0


_ROUNDS = (
    Round(1_000, 100, 15, 10, 4, 0.1),
    Round(3_000, 300, 12, 10, 4, 0.2),
    Round(LEARNED_ROWS, 400, 15, 15, 3, 0.5, mapped=2),
)
MAP_STEPS = 25  # The largest number of iterations for a kernel of mapped inputs.
# The fewest rows with which a map of the inputs is learned, for each of its entries, and the same
# if only half of them learn it.
LEAST_MAPPED_ROWS, _ROWS_PER_ENTRY, _JUDGED_ROWS_PER_ENTRY = 500, 5, 10
# The loss, in nats per row, by which a kernel is so much worse that it is not compared further.
_CLEARLY_WORSE = 0.2
# The number of lengthscales beside those of a given kernel, and of iterations for each.
_TRIED_LENGTHSCALES, _TRIED_STEPS = 4, 8
_TRIED_UNTIL = 0.25  # The fraction of `max_time` by which that must end.
# The least noise variance at the start of a round. Targets of a few groups may be nearly free of
# noise, and those of others are then so unlikely that the first step ends far away.
_LEAST_NOISE = 0.01
_ENOUGH_SECONDS = 4.0
# The largest number of rows of the last round for each second of `max_time`.
_LAST_ROWS_PER_SECOND = 1_000
# With less than `_ENOUGH_SECONDS` there are only the first and the last round, of so many rows.
_FEWEST_ROWS, _ROWS_PER_SECOND = (200, 1_000), (400, 2_000)


def learn_kernels(run: Run, rows: RowBlock, start: ExactGP) -> list[ExactGP]:
    """Learn kernel and noise from rows in random order; by default, return the best kernels.

    If the noise is not fitted, there are no leave-one-out predictions to choose among them, and the
    best of local GPs is chosen.
    """
    own, settings = run.settings.kernel, run.settings
    model = replace(start, compiled=True)
    most = _MOST_STEPS if settings.max_iter is None else settings.max_iter
    tol = _TOLERANCE if settings.tol is None else settings.tol
    if most == 0:
        return [model]
    learner = LocalLearner(rows, run.monitor, run.n_threads, run.checkpoint, tol)
    if isinstance(own, Kernel) and settings.n_restarts != 1:
        model = learner.choose_lengthscales(model, most)
    models = learner.learn_kernels(model, most, given=isinstance(own, Kernel) or own != "auto")
    run.n_iter += learner.n_iter
    for losses in list(learner.losses.values())[-1:]:
        least = min(losses.values())
        models = [each for each in models if losses[name_model(each)] < least + _CLEARLY_WORSE]
    if learner.losses and (len(models) == 1 or settings.noise == "gaussian"):
        n, losses = list(learner.losses.items())[-1]
        reason = f"lowest loss of local GPs of {min(n, rows.n_rows):,} rows"
        run.decisions.append(Decision("kernel", name_model(models[0]), reason, losses))
        return models[:1]
    return models


def choose_map(run: Run, rows: RowBlock, start: ExactGP, until: float) -> ExactGP | None:
    """Return the model of linearly mapped inputs if it is better for held-out local GPs.

    Half of the local GPs learn the map and the others judge, since it has many parameters. This
    ends by the fraction `until` of `max_time`.
    """
    settings, n, is_over = run.settings, rows.n_rows, run.monitor.clock.is_over
    own = _ROUNDS[-1]._replace(until=until)
    if n > own.n_rows:
        rows = rows.picked(run.rng.permutation(n)[: own.n_rows])
    tol = _TOLERANCE if settings.tol is None else settings.tol
    most = MAP_STEPS if settings.max_iter is None else settings.max_iter
    learner = LocalLearner(rows, run.monitor, run.n_threads, run.checkpoint, tol)
    start = replace(start, device=None, compiled=True)
    tried = learner.map_inputs([start], _JUDGED_ROWS_PER_ENTRY)
    run.monitor.clock.allow(until)
    if not tried or is_over():
        return None
    groups = group_nearby(learner.rows, start.kernel, rows.n_rows, min(own.size, n // 4))
    half, others = groups[::2], groups[1::2]
    plain = learner.learn_in_round(own, start, half, most, 3)
    mapped = learner.learn_in_round(own, tried[0], half, most, 2)
    scores = {"as given": learner.score_model(plain, others)}
    scores["mapped"] = learner.score_model(mapped, others)
    better = scores["mapped"] < scores["as given"]
    if better and not is_over():
        mapped = learner.learn_in_round(own, mapped, groups, most)
    chosen, reason = "mapped" if better else "as given", "loss of held-out local GPs"
    run.decisions.append(Decision("inputs", chosen, reason, scores))
    run.n_iter += learner.n_iter
    return mapped if better else None


@dataclass
class LocalLearner:
    """Maximises the log marginal likelihood of local GPs.

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

    plan: ClassVar[Sequence[Round]] = _ROUNDS
    shortens: ClassVar[bool] = True  # Whether short lengthscales are tried.

    rows: RowBlock
    monitor: Monitor
    n_threads: int
    checkpoint: Checkpoint | None = None
    tol: float = _TOLERANCE
    n_iter: int = 0
    # The loss of each kernel, by the number of rows; lower is better.
    losses: dict[int, dict[str, float]] = field(default_factory=dict)

    def choose_lengthscales(self, given: ExactGP, most: int) -> ExactGP:
        """Return the model with a given kernel, or one with plausible lengthscales, if better.

        The gradient vanishes where lengthscales are far too short or too long. The default, 1, is
        one or the other in the units of most data. Each is learned from few rows, briefly.
        """
        rng = np.random.RandomState(0)  # Does not advance the random numbers of the fit.
        others = draw_kernels(given.kernel, self.rows.X, _TRIED_LENGTHSCALES, rng)
        first, clock = self.plan[0], self.monitor.clock
        best, least, steps = given, np.inf, min(_TRIED_STEPS, most)
        for i, kernel in enumerate((given.kernel, *others)):
            clock.spread(_TRIED_UNTIL, 1 + _TRIED_LENGTHSCALES - i)
            if i and clock.is_over():
                break
            model = replace(given, kernel=kernel)
            objective = self._make_objective(
                model, group_nearby(self.rows, model.kernel, first.n_rows, first.size)
            )
            with suppress(FactorizationError), self.monitor.stage("lengthscales", steps):
                own = (self.tol, self.monitor.step, self.checkpoint, f"lengthscales {kernel}")
                value = minimize(objective, steps, *own).value
                best, least = (model, value) if value < least else (best, least)
        return best

    def learn_kernels(self, start: ExactGP, most: int, given: bool = False) -> list[ExactGP]:
        """Return the best models of a tournament of kernels, or that with the given kernel.

        Kernels are learned on a part of the rows, in rounds of at most `most` iterations. The best
        kernels of each round, by `score_model`, reach the next.
        """
        models, rounds = [start], list(self._plan_rounds())
        if not given:
            models = self._learn_candidates(start, rounds.pop(0), most)
        for each in rounds:
            mapped = [] if given else self.map_inputs(models[: each.mapped])
            learned, groups = [], group_nearby(self.rows, models[0].kernel, each.n_rows, each.size)
            models = [*models[: len(mapped) or None], *mapped]
            for i, model in enumerate(models):
                learned.append(self.learn_in_round(each, model, groups, most, len(models) - i))
            models = self._keep_best(learned, each, groups)
        return models

    def map_inputs(
        self, models: Sequence[ExactGP], n_rows_per_entry: int = _ROWS_PER_ENTRY
    ) -> list[ExactGP]:
        """Return models with maps of their inputs, which start at the identity, if possible."""
        n, D = min(self.rows.n_rows, LEARNED_ROWS), self.rows.X.shape[1]
        able = [each for each in models if each.kernel.groups is None]
        if D == 1 or n < max(LEAST_MAPPED_ROWS, n_rows_per_entry * D**2):
            return []
        return [replace(each, input_map=np.eye(D)) for each in able]

    def _keep_best(
        self, models: list[ExactGP], own: Round, groups: list[RowBlock]
    ) -> list[ExactGP]:
        """Return the best models of a round, in order.

        As in Akaike's criterion, each parameter costs one nat: those of sums and maps are many.
        """
        if len(models) == 1:
            return models
        names = [name_model(model) for model in models]
        n = sum(float(rows.weight.sum()) for rows in groups)
        maps = [() if each.input_map is None else each.input_map for each in models]
        counts = [len(m.kernel.parameters) + np.size(W) for m, W in zip(models, maps, strict=True)]
        scores = [
            self.score_model(model, groups) + count / n
            for model, count in zip(models, counts, strict=True)
        ]
        self.losses[own.n_rows] = dict(zip(names, scores, strict=True))
        return [models[i] for i in np.argsort(scores, kind="stable")[: own.keep]]

    @property
    def _has_time(self) -> bool:
        limit = self.monitor.clock.limit
        return limit is None or limit >= _ENOUGH_SECONDS

    def _plan_rounds(self) -> Sequence[Round]:
        """Return the rounds of the tournament: two small ones if time is short."""
        limit = self.monitor.clock.limit
        if limit is None:
            return self.plan
        last = self.plan[-1]
        last = last._replace(mapped=min(1, last.mapped))
        if self._has_time:
            most = round(_LAST_ROWS_PER_SECOND * limit)
            return [*self.plan[:-1], last._replace(n_rows=min(last.n_rows, most))]
        first, last = self.plan[0]._replace(keep=1, until=self.plan[1].until), last._replace(keep=1)
        planned = zip((first, last), _FEWEST_ROWS, _ROWS_PER_SECOND, strict=True)
        return [
            each._replace(n_rows=min(each.n_rows, max(fewest, round(rate * limit))))
            for each, fewest, rate in planned
        ]

    def _learn_candidates(self, start: ExactGP, own: Round, most: int) -> list[ExactGP]:
        """Learn all candidate kernels, each from where a smoother one ended, and return the best.

        Rough kernels learn slowly, and not at all from a poor start. The first kernel tells which
        inputs matter, by which rows are then grouped.
        """
        learned: dict[type[Stationary] | None, ExactGP] = {None: start}
        groups = group_nearby(self.rows, start.kernel, own.n_rows, own.size)
        pairs = SUMS if self._has_time else ()
        n_candidates = len(CANDIDATES) + len(pairs)
        for i, (kind, (origin, stretch)) in enumerate(CANDIDATES.items()):
            model = learned[origin]
            before: Any = model.kernel
            lengths = before.lengthscale * stretch
            model = replace(model, kernel=kind(lengths, before.variance, groups=before.groups))
            model = self.learn_in_round(own, model, groups, most, n_candidates - i)
            if origin is None and self.shortens:
                model = self._shorten(own, start, model, groups, most)
            if origin is None:
                groups = group_nearby(self.rows, model.kernel, own.n_rows, own.size)
            learned[kind] = model
        sums = []
        for i, parts in enumerate(pairs, len(CANDIDATES)):
            model = add_kernels(*(learned[kind] for kind in parts))
            sums.append(self.learn_in_round(own, model, groups, most, n_candidates - i))
        return self._keep_best([*list(learned.values())[1:], *sums], own, groups)

    def _shorten(
        self, own: Round, start: ExactGP, best: ExactGP, groups: list[RowBlock], most: int
    ) -> ExactGP:
        """Return the best model, or one from short lengthscales, if clearly better.

        It must also be better than what as many steps find from the lengthscales as they are.
        """
        kernel, X = best.kernel, np.concatenate([rows.X for rows in groups])
        dense = shorten_lengthscales(kernel, X, dense=True)
        short: list[Any] = list(dense) if self._has_time else []
        n = sum(float(rows.weight.sum()) for rows in groups)
        given: Any = start.kernel
        own = own._replace(steps=_TRIED_STEPS)
        least = self._evaluate(best, groups) if short else 0.0
        for i, each in enumerate([kernel, *short] if short else []):
            model = replace(start, kernel=replace(each, variance=given.variance))
            with suppress(FactorizationError):
                model = self.learn_in_round(own, model, groups, most, 2 * len(short) - i)
                value = self._evaluate(model, groups)
                if i == 0:
                    least = min(least, value)
                elif n * (least - value) > CLEARLY:
                    best, least = model, value
        return best

    def _evaluate(self, model: ExactGP, groups: list[RowBlock]) -> float:
        objective = self._make_objective(model, groups)
        return float(objective(objective.parameters.start).value)

    def learn_in_round(
        self, own: Round, model: ExactGP, groups: list[RowBlock], most: int, n_stages: int = 1
    ) -> ExactGP:
        """Learn kernel and noise in one round, as the next of so many stages in its time.

        There are at most `most` iterations.
        """
        steps = own.steps if isinstance(model.kernel, Stationary) else own.sum_steps
        steps = min(steps if model.input_map is None else MAP_STEPS, most)
        name, size = name_model(model), sum(rows.n_rows for rows in groups)
        model = replace(model, noise_variance=max(model.noise_variance, _LEAST_NOISE))
        objective = self._make_objective(model, groups)
        self.monitor.clock.spread(own.until, n_stages)
        with self.monitor.stage(name, steps):
            key = f"{name} {(len(groups), size)}"
            found = minimize(objective, steps, self.tol, self.monitor.step, self.checkpoint, key)
        self.n_iter += found.n_iter
        return found.model

    def _make_objective(self, model: ExactGP, groups: list[RowBlock]) -> LocalObjective:
        free = kernel_parameters(replace(model, kernel=limit_alpha(model.kernel)))
        return LocalObjective(free, groups, self.n_threads)

    def score_model(self, model: ExactGP, groups: list[RowBlock]) -> float:
        """Return the mean of two losses per row: `−ln p(y)`, and that with one variance for all.

        The second term measures leave-one-out means alone, since the variances are learned again at
        the end.
        """

        def score(rows: RowBlock) -> tuple[float, float, float]:
            outcome = model.forward(rows)
            errors, _ = leave_one_out(outcome.L, outcome.solved)
            return outcome.value, outcome.n, float(rows.weight @ errors**2)

        try:
            found = map_in_threads(score, groups, self.n_threads)
        except FactorizationError:
            return float("inf")
        value, n, squares = np.sum(found, axis=0)
        square = max(squares / n, np.finfo(np.float64).tiny)
        alike = 0.5 * float(np.log(2.0 * np.pi * square) + 1.0)
        return float(0.5 * (value / n + alike))


def group_nearby(rows: RowBlock, kernel: Kernel, count: int, size: int) -> list[RowBlock]:
    """Return about `count` rows in groups of at most `size`, as near as all rows make them."""
    some, _ = rows.cut(LEARNED_ROWS)
    at = some.X * kernel.metric(some.X.shape[1])
    groups = list(bisect_rows(at, np.arange(some.n_rows), size))
    step = max(1, len(groups) // max(1, round(count / size)))
    return [some.picked(each) for each in groups[::step]]


def bisect_rows(X: Array, rows: NDArray[np.intp], size: int) -> Iterator[NDArray[np.intp]]:
    """Yield the rows in groups of about equal, limited size, cut across the widest input.

    They are sorted towards the longer tail, so that the sign of an input does not matter.
    """
    n_groups = -(-rows.size // size)
    if n_groups <= 1:
        yield np.sort(rows)
        return
    widest = int(np.argmax(np.std(X[rows], axis=0)))
    x = X[rows, widest]
    skewed_down = np.sum((x - x.mean()) ** 3) < 0.0
    order = rows[np.argsort(-x if skewed_down else x, kind="stable")]
    cut = rows.size * (n_groups // 2) // n_groups
    yield from bisect_rows(X, order[:cut], size)
    yield from bisect_rows(X, order[cut:], size)


def name_model(model: ExactGP) -> str:
    """Return the name of the kernel, and whether its inputs are mapped."""
    return name_kernel(model.kernel) + " of mapped inputs" * (model.input_map is not None)


def name_kernel(kernel: Kernel) -> str:
    """Return the name of a kernel, or those of the parts of a sum."""
    if isinstance(kernel, Sum):
        return f"{name_kernel(kernel.left)} + {name_kernel(kernel.right)}"
    return type(kernel).__name__


def add_kernels(*models: ExactGP) -> ExactGP:
    """Return a model with an equal part of each kernel and the smallest noise.

    A squared exponential starts as a rational quadratic, which may become rougher.
    """
    parts: list[Any] = []
    for model in models:
        own: Any = model.kernel
        if isinstance(own, SquaredExponential):
            same = (own.lengthscale, own.variance)
            own = RationalQuadratic(*same, groups=own.groups, alpha=_LARGEST_ALPHA)
        own = limit_alpha(own)
        parts.append(replace(own, variance=own.variance / len(models)))
    best = min(models, key=lambda model: model.noise_variance)
    return replace(best, kernel=reduce(Sum, parts))


def limit_alpha(kernel: Kernel) -> Kernel:
    """Return the kernel with each α of a rational quadratic where its gradient is not lost."""
    if isinstance(kernel, Sum):
        return Sum(limit_alpha(kernel.left), limit_alpha(kernel.right))
    if isinstance(kernel, RationalQuadratic) and kernel.alpha > _LARGEST_ALPHA:
        return replace(kernel, alpha=_LARGEST_ALPHA)
    return kernel
