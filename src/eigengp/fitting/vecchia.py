"""Fits with the nearest-neighbour (Vecchia) residual: from kernel choice to calibration."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from sklearn.utils import check_random_state

from eigengp.backend.threads import count_available_threads, speed_up_passes
from eigengp.data.grouping import group_rows
from eigengp.fitting.conditioning import CHUNK, Conditioning
from eigengp.fitting.initialization import InducingPointInit, Start, draw_kernels
from eigengp.fitting.leave_one_out import score_predictions
from eigengp.fitting.model_selection import Decision
from eigengp.fitting.objectives import Clock
from eigengp.fitting.plan import RELATIVE_JITTER, Plan, is_small
from eigengp.fitting.run import Run
from eigengp.fitting.vecchia_learner import VecchiaLearner, name_kernel, split_kernel
from eigengp.gp.blocks import RowBlock
from eigengp.gp.linalg import FactorizationError
from eigengp.gp.model import EigenGP, Jitter
from eigengp.kernels import (
    Kernel,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
    Stationary,
    Sum,
)

_FIRST_STEPS = 20
_TRIED_POINTS = 50
_TRIED_ROWS = 5_000
_TRIED_LENGTHSCALES, _TRIED_STEPS = 4, 8
_KERNEL_STEPS = 15
_STEPS = 25
_LEARNED_ROWS = 10_000
_LEAST_LEARNED_ROWS = 1_000
SAMPLE_ROWS = 100_000
"""The largest number of rows from which hyperparameters and coefficients are learned. Predictions
find their neighbours among all rows."""
_SAMPLE_ROWS_PER_SECOND = 4_000
"""The largest number of them for each second of `max_time`."""
_REFINED_FROM = 10.0
"""The `max_time` from which kernel and noise are refined."""
_COMPARED_ROWS = 2_000
"""The number of rows on which the models before and after refinement are compared."""
_FIRST_SIZE, _LAST_SIZE = 200, 400
"""The first and the largest default number of inducing points, without `max_time`."""
_WORTH = 0.01
"""The improvement of the held-out loss, in nats per row, that doubling them must bring."""
_ROWS_PER_POINT = 25
_LEAST_SIZE, _MOST_SIZE = 50, 800
_MOST_FEATURES = 40_000_000
"""The largest number of features of all rows that the default keeps in memory."""
_SIZE_PER_SECOND = 12
_LEARNED_ROWS_PER_SECOND = 800
_UNTIL = (0.35, 0.5, 0.6)
"""Fractions of `max_time` by which stage 1, Vecchia learning and its refinement must end."""


def _get_sample_size(seconds: float | None) -> int:
    """Return the largest number of rows from which a fit of so many seconds learns."""
    if seconds is None:
        return SAMPLE_ROWS
    few = max(_LEAST_LEARNED_ROWS, round(_SAMPLE_ROWS_PER_SECOND * seconds))
    return min(SAMPLE_ROWS, few)


def _get_largest_size(n_rows: int, seconds: float | None = None) -> int:
    """Return the largest default number of inducing points; short fits use few."""
    size = _LAST_SIZE
    if seconds is not None:
        size = min(_MOST_SIZE, max(_LEAST_SIZE, round(_SIZE_PER_SECOND * seconds)))
    return max(1, min(size, n_rows // _ROWS_PER_POINT, _MOST_FEATURES // max(1, n_rows)))


def _is_smooth(kernel: Kernel) -> bool:
    """Return whether functions are differentiable; mixtures of many lengthscales count as rough."""
    if isinstance(kernel, RationalQuadratic):
        return kernel.alpha >= 1.0
    return isinstance(kernel, SquaredExponential | Matern52)


@dataclass
class NeighborFit:
    """One fit with the nearest-neighbour (Vecchia) residual.

    Parameters
    ----------
    run : Run
        The fit to which it belongs.
    conditioning : Conditioning
        The rows on which models are conditioned.
    learner : VecchiaLearner
        Maximises the Vecchia log marginal likelihood.
    max_iter : int or None
        The largest number of iterations in each stage; None is 25.
    best : EigenGP or None
        The model with the chosen kernel, learned on a part of the rows; the best one that is not a
        sum if a sum is chosen.
    chosen_sum : Sum or None
        The chosen kernel, if it is a sum.
    """

    run: Run
    conditioning: Conditioning
    learner: VecchiaLearner
    max_iter: int | None
    best: EigenGP | None = None
    chosen_sum: Sum | None = None

    @classmethod
    def begin(cls, run: Run) -> NeighborFit:
        """Read all rows into memory, in random order."""
        clock, n_threads = run.monitor.clock, count_available_threads()
        sample_size = _get_sample_size(clock.limit)
        single = run.source.take(np.arange(run.source.n_rows))
        groups = group_rows(single)
        order = run.rng.permutation(groups.rows.n_rows)
        rows, number = groups.rows.picked(order), np.argsort(order)[groups.number]
        at = np.argsort(number, kind="stable")
        sample, _ = rows.cut(sample_size)
        n, asked = rows.n_rows, run.settings.n_neighbors
        n_neighbors = n if asked >= n - 1 else asked
        own = (rows, single.picked(at), number[at], sample, n_neighbors, n_threads, clock)
        learner = VecchiaLearner(sample, run.dataset.extent, run.monitor, n_threads, run.checkpoint)
        max_iter = run.settings.optimizer.max_iter
        steps = None if isinstance(max_iter, str) else max_iter
        return cls(run, Conditioning(*own), learner, steps)

    @property
    def rows(self) -> RowBlock:
        """All standardised rows, those with equal inputs merged, in random order."""
        return self.conditioning.rows

    @property
    def _clock(self) -> Clock:
        return self.run.monitor.clock

    @property
    def _n_learning_rows(self) -> int:
        """The number of rows on which hyperparameters are learned."""
        limit = self._clock.limit
        few = _LEARNED_ROWS if limit is None else round(_LEARNED_ROWS_PER_SECOND * limit)
        return min(_LEARNED_ROWS, max(few, _LEAST_LEARNED_ROWS))

    @property
    def _steps(self) -> int:
        return _STEPS if self.max_iter is None else self.max_iter

    @property
    def largest_size(self) -> int:
        """The largest default number of inducing points."""
        return _get_largest_size(self.learner.rows.n_rows, self._clock.limit)

    def choose_kernel(self, start: Start) -> Start:
        """Choose the kernel and return where to start; `best` keeps the learned one."""
        if self._steps == 0:
            return start
        template = self._make_template(start, self.run.rng)
        with speed_up_passes(template.n_components):
            winner = self.learner.choose_kernel(template, self._steps)
        self.best = self.learner.single
        assert self.best is not None
        if isinstance(winner.kernel, Sum):
            self.chosen_sum = winner.kernel
        n, losses = list(self.learner.losses.items())[-1]
        tried = len(next(iter(self.learner.losses.values())))
        n = min(n, self.rows.n_rows)
        reason = f"lowest loss on {n:,} rows, the best {len(losses)} of {tried} kernels"
        self._decide("kernel", name_kernel(winner.kernel), reason, losses)
        self._clock.allow(_UNTIL[0])
        first, best = start.kernel, self.best.kernel
        assert isinstance(first, Stationary)
        assert isinstance(best, Stationary)
        kernel = replace(best, lengthscale=first.lengthscale, variance=first.variance)
        return replace(start, kernel=kernel)

    def choose_lengthscales(self, start: Start) -> Start:
        """Return the start, or one with lengthscales of plausible size if it learns faster.

        Far too short or too long lengthscales have no gradient, and 1, that of a kernel without
        arguments, is either in the units of most data.
        """
        if self._steps == 0 or self.run.settings.optimizer.n_restarts == 1:
            return start
        rng = check_random_state(0)  # Does not advance the random numbers of the fit.
        given = replace(self._make_template(start, rng), vecchia=True)
        others = draw_kernels(start.kernel, self.rows.X, _TRIED_LENGTHSCALES, rng)
        steps, until = min(_TRIED_STEPS, self._steps), 0.5 * _UNTIL[0]
        best, least = start, np.inf
        with speed_up_passes(given.n_components):
            for i, kernel in enumerate((start.kernel, *others)):
                self._clock.spread(until, i, 1 + _TRIED_LENGTHSCALES)
                if i and self._clock.is_over():
                    break
                value = self.learner.try_kernel(replace(given, kernel=kernel), steps)
                if value < least:
                    best, least = replace(start, kernel=kernel), value
        self._clock.allow(_UNTIL[0])
        return best

    def _make_template(self, start: Start, rng: np.random.RandomState) -> EigenGP:
        """Return a model with few inducing points, on which kernels are tried."""
        few, _ = self.rows.cut(_TRIED_ROWS)
        count = min(_TRIED_POINTS, max(1, few.n_rows // 4))
        points = InducingPointInit("kmeans").place(few, count, start.kernel, rng)
        jitter = Jitter(relative=RELATIVE_JITTER)
        return EigenGP(start.kernel, points, start.likelihood, count, jitter=jitter)

    def _decide(self, name: str, chosen: str, reason: str, scores: dict[str, float]) -> None:
        self.run.decisions.append(Decision(name, chosen, reason, scores))

    def choose_size(self, kernel: Kernel) -> int:
        """Choose the number of inducing points: double it while the held-out loss improves.

        Eigenfunctions describe the smooth part of a function and neighbours the rough part. If the
        kernel is given, its smoothness decides.
        """
        most = self.largest_size
        size = min(_FIRST_SIZE, most)
        if self.best is None:
            return min(_LAST_SIZE, most) if _is_smooth(kernel) else size
        losses: dict[int, float] = {}
        while most >= 1.5 * size and not self._clock.is_over():
            more = min(2 * size, most)
            for each in sorted({size, more} - losses.keys()):
                losses[each] = self._score_held_out(self.best, each)
            if not losses[more] < losses[size] - _WORTH:
                break
            size = more
        if losses:
            scores = {str(each): loss for each, loss in losses.items()}
            self._decide("n_components", str(size), "loss of a held-out set", scores)
            self._clock.allow(_UNTIL[0])
        return size

    def _score_held_out(self, model: EigenGP, size: int) -> float:
        """Score a held-out fifth of some rows, with inducing points by k-means."""
        few, _ = self.rows.cut(_TRIED_ROWS)
        seen, held_out = few.cut(few.n_rows - few.n_rows // 5)
        rng = check_random_state(0)  # Does not advance the random numbers of the fit.
        with speed_up_passes(size):
            points = InducingPointInit("kmeans").place(seen, size, model.kernel, rng)
            model = replace(model, inducing_points=points, n_components=points.shape[0])
            try:
                outcome = self.conditioning.run_pass(model, seen)
            except FactorizationError:
                return float("inf")
            posterior, _ = self.conditioning.make_posterior(outcome, seen)
            edges = range(0, held_out.n_rows, CHUNK)
            parts = [posterior.mean_and_variance(held_out.X[i : i + CHUNK]) for i in edges]
        mean, variance = (np.concatenate(each) for each in zip(*parts, strict=True))
        return score_predictions(held_out, mean, variance)

    def plan_first_stage(self, plan: Plan) -> Plan:
        """Plan a short stage 1, before the residual is learned."""
        small = is_small(self.learner.rows.n_rows, plan.n_inducing) and self._clock.limit is None
        return replace(
            plan,
            max_iter=min(plan.max_iter, _FIRST_STEPS),
            n_restarts=plan.n_restarts if small else 1,
            settled=True,
        )

    def learn(self, first: EigenGP) -> EigenGP:
        """Learn the model of stage 1 with the nearest-neighbour residual."""
        model, steps = replace(first, vecchia=True, shrinkage=None, residual=False), self._steps
        self._clock.allow(_UNTIL[1])
        with speed_up_passes(model.inducing_points.shape[0]):
            if self.best is not None:
                own, noise = self.best.kernel, self.best.likelihood
                model = replace(model, kernel=own, likelihood=noise)
            elif steps:
                model = self.learner.learn_kernel(
                    model, self._n_learning_rows, min(steps, _KERNEL_STEPS)
                )
            if steps:
                model = self.learner.learn_all(model, self._n_learning_rows, steps)
                model = self._refine(model, steps)
        self.run.n_iter += self.learner.n_iter
        return model

    def _refine(self, model: EigenGP, steps: int) -> EigenGP:
        """Learn kernel and noise with more neighbours, and keep what leave-one-out prefers.

        A chosen sum of kernels enters here. With many inputs, the rows of the refinement are few
        for its parameters.
        """
        self._clock.allow(_UNTIL[2])
        limit = self._clock.limit
        if self._clock.is_over() or (limit is not None and limit < _REFINED_FROM):
            return model
        start = model
        if self.chosen_sum is not None:
            assert isinstance(model.kernel, Stationary)
            both = (split_kernel(model.kernel, self.chosen_sum), self.chosen_sum)
            start = self.learner.choose_start([replace(model, kernel=each) for each in both])
        refined = self.learner.refine_kernel(start, steps)
        found = {"learned": model, "refined": refined}
        losses = self._score_leave_one_out(found)
        chosen = min(losses, key=lambda name: losses[name])
        self._decide("refinement", chosen, "leave-one-out loss", losses)
        if self.chosen_sum is not None and chosen == "learned":
            self._decide_against_sum(model.kernel)
        return found[chosen]

    def _decide_against_sum(self, kernel: Kernel) -> None:
        """Correct the decision about the kernel: a sum did not improve leave-one-out."""
        decisions = self.run.decisions
        at = next(i for i, each in enumerate(decisions) if each.name == "kernel")
        reason = f"{decisions[at].reason}; a sum was no better in leave-one-out"
        decisions[at] = replace(decisions[at], chosen=name_kernel(kernel), reason=reason)

    def _score_leave_one_out(self, models: dict[str, EigenGP]) -> dict[str, float]:
        """Return leave-one-out losses of the same rows; those of the refinement are the last.

        Where time ends, a model may predict fewer rows than another.
        """
        own, predicted = self.conditioning, {}
        at = np.arange(min(_COMPARED_ROWS, self.rows.n_rows))
        for name, model in models.items():
            with suppress(FactorizationError):
                posterior, search = own.make_posterior(own.condition(model), own.rows)
                predicted[name] = own.predict_leave_one_out(posterior, search, at)[:2]
        seen, _ = self.rows.cut(min((mean.size for mean, _ in predicted.values()), default=0))
        scored = {
            name: score_predictions(seen, *(each[: seen.n_rows] for each in both))
            for name, both in predicted.items()
        }
        return {name: scored.get(name, float("inf")) for name in models}
