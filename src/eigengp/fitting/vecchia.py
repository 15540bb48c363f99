"""Fits with the nearest-neighbour (Vecchia) residual: from kernel choice to calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from eigengp.backend.threads import count_available_threads, run_in_threads, speed_up_passes
from eigengp.data.grouping import group_rows
from eigengp.data.neighbors import Nearest, NeighborSource
from eigengp.fitting.candidate_kernels import (
    name_kernel,
    split_kernel,
)
from eigengp.fitting.initialization import InducingPointInit
from eigengp.fitting.leave_one_out import LeaveOneOut, score, score_predictions
from eigengp.fitting.model_selection import Decision
from eigengp.fitting.posterior_mean import find_posterior_mean, is_affordable
from eigengp.fitting.progress import Clock
from eigengp.fitting.run import Run
from eigengp.fitting.settings import RELATIVE_JITTER, Plan, is_small
from eigengp.fitting.vecchia_learner import VecchiaLearner
from eigengp.gp.blocks import RowBlock
from eigengp.gp.exact import ExactGP
from eigengp.gp.linalg import FactorizationError
from eigengp.gp.model import EigenGP, Jitter
from eigengp.gp.vecchia import VecchiaOutcome, VecchiaPass
from eigengp.gp.vecchia_posterior import VecchiaPosterior
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
_KERNEL_STEPS = 15
_STEPS = 25
_LEARNED_ROWS = 10_000
_LEAST_LEARNED_ROWS = 1_000
_CONDITIONED = 32
"""The largest number of neighbours while the coefficients are learned; more change little."""
SAMPLE_ROWS = 100_000
"""The largest number of rows from which hyperparameters and coefficients are learned. Predictions
find their neighbours among all rows."""
_LEFT_OUT_ROWS = 6_000
_COMPARED_ROWS = 2_000
"""The number of rows on which the models before and after refinement are compared."""
_LEFT_OUT_CHUNK = 256
_FIRST_SIZE, _LAST_SIZE = 200, 400
"""The first and the largest default number of inducing points, without `max_time`."""
_WORTH = 0.01
"""The improvement of the held-out loss, in nats per row, that doubling them must bring."""
_ROWS_PER_POINT = 25
_LEAST_SIZE, _MOST_SIZE = 50, 800
_MOST_FEATURES = 40_000_000
"""The largest number of features of all rows that the default keeps in memory."""
_NOT_WORSE = 1.05
"""The largest ratio of leave-one-out mean squared errors, of the mean from all rows to that from
neighbours, at which the former is used; the approximation adds a few per cent to its errors."""
_SIZE_PER_SECOND = 10
_LEARNED_ROWS_PER_SECOND = 500
_UNTIL = (0.4, 0.62, 0.7, 0.85, 0.95)
"""Fractions of `max_time` by which stage 1, Vecchia learning, its refinement, leave-one-out and the
solution for all rows must end."""


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
    rows : RowBlock
        All standardised rows, those with equal inputs merged, in random order.
    single : RowBlock
        All standardised rows, in the same order.
    number : array of shape (N,)
        The indices in `rows` of those in `single`.
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
    rows: RowBlock
    single: RowBlock
    number: NDArray[np.intp]
    learner: VecchiaLearner
    max_iter: int | None
    best: EigenGP | None = None
    chosen_sum: Sum | None = None

    @classmethod
    def begin(cls, run: Run) -> NeighborFit:
        """Read all rows into memory, in random order."""
        single = run.source.take(np.arange(run.source.n_rows))
        groups = group_rows(single)
        order = run.rng.permutation(groups.rows.n_rows)
        rows, number = groups.rows.picked(order), np.argsort(order)[groups.number]
        at = np.argsort(number, kind="stable")
        sample, _ = rows.cut(SAMPLE_ROWS)
        learner = VecchiaLearner(
            sample, run.dataset.extent, run.monitor, count_available_threads(), run.checkpoint
        )
        max_iter = run.settings.optimizer.max_iter
        return cls(
            run,
            rows,
            single.picked(at),
            number[at],
            learner,
            None if isinstance(max_iter, str) else max_iter,
        )

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

    def choose_kernel(self, start: ExactGP) -> ExactGP:
        """Choose the kernel and return the model to start from; `best` keeps the learned one."""
        if self._steps == 0:
            return start
        few, _ = self.rows.cut(_TRIED_ROWS)
        count = min(_TRIED_POINTS, max(1, few.n_rows // 4))
        points = InducingPointInit("kmeans").place(few, count, start.kernel, self.run.rng)
        jitter = Jitter(relative=RELATIVE_JITTER)
        template = EigenGP(start.kernel, points, start.likelihood, count, jitter=jitter)
        with speed_up_passes(count):
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
                outcome = self._run_pass(model, seen, _CONDITIONED)
            except FactorizationError:
                return float("inf")
            posterior, _ = self._make_posterior(outcome, seen)
            edges = range(0, held_out.n_rows, _LEFT_OUT_CHUNK)
            parts = [
                posterior.mean_and_variance(held_out.X[i : i + _LEFT_OUT_CHUNK]) for i in edges
            ]
        mean, variance = (np.concatenate(each) for each in zip(*parts, strict=True))
        return score_predictions(held_out, mean, variance)

    def plan_first_stage(self, plan: Plan) -> Plan:
        """Plan a short stage 1, before the residual is learned."""
        small = is_small(self.learner.rows.n_rows, plan.n_inducing)
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
        if self._clock.is_over():
            return model
        start = model
        if self.chosen_sum is not None:
            assert isinstance(model.kernel, Stationary)
            both = (split_kernel(model.kernel, self.chosen_sum), self.chosen_sum)
            start = self.learner.choose_start([replace(model, kernel=each) for each in both])
        refined = self.learner.refine_kernel(start, steps)
        found = {"learned": model, "refined": refined}
        losses = {name: self._score_leave_one_out(each) for name, each in found.items()}
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

    def _score_leave_one_out(self, model: EigenGP) -> float:
        """Return the leave-one-out loss of some rows; those of the refinement are the last."""
        try:
            posterior, search = self._make_posterior(self.condition(model), self.rows)
        except FactorizationError:
            return float("inf")
        some, _ = self.rows.cut(min(_COMPARED_ROWS, self.rows.n_rows))
        mean, variance, _ = self._predict_leave_one_out(posterior, search, some)
        seen, _ = some.cut(mean.size)
        return score_predictions(seen, mean, variance)

    def condition(self, model: EigenGP) -> VecchiaOutcome:
        """Condition the coefficients of the model on all rows, or on a sample of many.

        With all rows as neighbours it is the exact GP, without the jitter of neighbourhoods.
        """
        count = min(self._n_neighbors, _CONDITIONED)
        if self._n_neighbors == self.rows.n_rows:
            count = self.rows.n_rows
            model = replace(model, jitter=Jitter(absolute=model.jitter.of(model.features)))
        with speed_up_passes(model.inducing_points.shape[0]):
            return self._run_pass(model, self.learner.rows, count)

    @property
    def _n_neighbors(self) -> int:
        """The number of neighbours of a prediction: all rows if a row has all others."""
        n, asked = self.rows.n_rows, self.run.settings.n_neighbors
        return n if asked >= n - 1 else asked

    def _run_pass(self, model: EigenGP, rows: RowBlock, count: int) -> VecchiaOutcome:
        metric, n_threads = model.kernel.metric(rows.X.shape[1]), self.learner.n_threads
        source: Any = NeighborSource.of(rows, metric, count, n_threads, search="auto")
        outcome = model.forward(source)
        assert isinstance(outcome, VecchiaOutcome)
        return outcome

    def _make_posterior(
        self, outcome: VecchiaOutcome, rows: RowBlock
    ) -> tuple[VecchiaPosterior, Nearest]:
        """Return the posterior given these rows, and the neighbour search among them."""
        assert isinstance(outcome.flow, VecchiaPass)
        metric = outcome.flow.features.kernel.metric(rows.X.shape[1])
        search = Nearest.of(rows.X, metric, self._n_neighbors, "auto")
        return VecchiaPosterior.of(outcome, rows, search, search.count), search

    def score(self, outcome: VecchiaOutcome, heteroscedastic: bool, compare: bool) -> LeaveOneOut:
        """Return the posterior given all rows, with its leave-one-out score."""
        posterior, search = self._make_posterior(outcome, self.rows)
        if not (heteroscedastic or compare):
            none = np.empty(0)
            return LeaveOneOut(self._use_all_rows(posterior, none, (none, none, none))[0])
        some, _ = self.rows.cut(min(_LEFT_OUT_ROWS, self.rows.n_rows))
        self._clock.allow(_UNTIL[3])
        size = posterior.mean_coefficients.size
        with speed_up_passes(size):
            predicted = self._predict_leave_one_out(posterior, search, some)
        targets = some.y[: predicted[0].size]
        posterior, predicted = self._use_all_rows(posterior, targets, predicted)
        count = int(np.searchsorted(self.number, predicted[0].size))
        seen, _ = self.single.cut(count)
        return score(posterior, seen, predicted, self.number[:count], size, heteroscedastic)

    def _use_all_rows(
        self, posterior: VecchiaPosterior, targets: Any, predicted: tuple[Any, ...]
    ) -> tuple[VecchiaPosterior, tuple[Any, ...]]:
        """Replace the mean by that of the full GP, if memory and time allow and it is not worse."""
        name, clock = "posterior_mean", self._clock
        if not is_affordable(self.rows.n_rows, clock.limit):
            reason = "the kernel matrix of all rows takes too much memory or time"
            self._decide(name, "neighbors", reason, {})
            return posterior, predicted
        clock.allow(_UNTIL[4])
        own, variance, covariates = predicted
        found = find_posterior_mean(posterior, variance, self.learner.n_threads, clock.is_over)
        if found is None:
            self._decide(name, "neighbors", "conjugate gradients did not converge", {})
            return posterior, predicted
        scores: dict[str, float] = {}
        if targets.size:
            scores["all rows"] = float(np.mean(found.errors**2))
            scores["neighbors"] = float(np.mean((targets - own) ** 2))
        worse = bool(scores) and scores["all rows"] > _NOT_WORSE * scores["neighbors"]
        reason = "leave-one-out mean squared error" if scores else "memory and time allow"
        self._decide(name, "neighbors" if worse else "all rows", reason, scores)
        if worse:
            return posterior, predicted
        posterior = replace(posterior, coefficients=found.coefficients)
        return posterior, (targets - found.errors, variance, covariates)

    def _predict_leave_one_out(
        self, posterior: VecchiaPosterior, search: Nearest, some: RowBlock
    ) -> tuple[Any, ...]:
        """Return leave-one-out mean, variance and covariates of the rows that time allows."""
        count, n_threads = some.n_rows, self.learner.n_threads
        step = _LEFT_OUT_CHUNK * n_threads
        parts: list[Any] = []
        for start in range(0, count, step):
            own = np.arange(start, min(start + step, count))
            index = search.find_others(some.X[own], own)
            edges = range(0, own.size, _LEFT_OUT_CHUNK)
            chunks = [slice(i, min(i + _LEFT_OUT_CHUNK, own.size)) for i in edges]

            def stripe(part: Sequence[slice], own: Any = own, index: Any = index) -> list[Any]:
                return [posterior.leave_one_out(some.picked(own[at]), index[at]) for at in part]

            done = run_in_threads(stripe, chunks, n_threads)
            parts.extend(each for found in done for each in found)
            if self._clock.is_over():
                break
        return tuple(np.concatenate(each) for each in zip(*parts, strict=True))
