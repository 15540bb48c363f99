"""Fits with the nearest-neighbour (Vecchia) residual, from the choice of the kernel to calibration.

Eigenfunctions and neighbours approximate one GP, so its kernel and noise are learned first, from
local GPs. Inducing points are no parameters of the GP: more of them make the approximation better,
and they are placed once, for the learned kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from eigengp._typing import Array
from eigengp.backend.threads import count_available_threads, speed_up_passes
from eigengp.fitting.conditioning import CHUNK, Conditioning
from eigengp.fitting.initialization import InducingPointInit, Start, draw_kernels
from eigengp.fitting.local_learner import LocalLearner, name_kernel
from eigengp.fitting.model_selection import Decision
from eigengp.fitting.noise_level import choose_noise
from eigengp.fitting.progress import Clock
from eigengp.fitting.run import FitResult, Run
from eigengp.fitting.settings import RELATIVE_JITTER
from eigengp.gp.blocks import RowBlock, group_rows
from eigengp.gp.exact import ExactGP
from eigengp.gp.linalg import FactorizationError
from eigengp.gp.model import EigenGP, Jitter
from eigengp.kernels import Kernel

_TRIED_ROWS = 5_000
_TRIED_LENGTHSCALES, _TRIED_STEPS = 4, 8
_STEPS = 15
"""The largest number of iterations in a round in which kernels are learned."""
_TOLERANCE = 1e-6
"""The default relative change of the log marginal likelihood at which learning stops."""
_LEAST_LEARNED_ROWS = 1_000
SAMPLE_ROWS = 100_000
"""The largest number of rows from which hyperparameters and coefficients are learned. Predictions
find their neighbours among all rows."""
_SAMPLE_ROWS_PER_SECOND = 4_000
"""The largest number of them for each second of `max_time`."""
_FIRST_SIZE, _LAST_SIZE = 200, 400
"""The first and the largest default number of inducing points, without `max_time`."""
_WORTH = 0.01
"""The improvement of the held-out loss, in nats per row, that doubling them must bring."""
_ROWS_PER_POINT = 25
_LEAST_SIZE, _MOST_SIZE = 50, 800
_MOST_FEATURES = 40_000_000
"""The largest number of features of all rows that the default keeps in memory."""
_SIZE_PER_SECOND = 12
_SCORED_ROWS = (4_000, 2_000)
"""The number of rows from which the noise level is chosen, and that of each group of them."""
_UNTIL = (0.25, 0.6)
"""Fractions of `max_time` by which the choices of lengthscales and of inducing points must end."""


def learn_with_neighbors(run: Run, start: Start) -> FitResult:
    """Fit eigenfunctions and the nearest-neighbour residual."""
    fit = NeighborFit.begin(run)
    model = fit.place_points(fit.choose_kernel(start))
    outcome = fit.conditioning.condition(model)
    scored = fit.conditioning.score(model, outcome, run.settings.noise != "gaussian")
    run.decisions.extend(scored.decisions)
    # That of a sample of the rows is scaled to all of them.
    total = outcome.value * (run.dataset.summary.weight / outcome.n)
    return run.make_result(model, total, scored.kept_posterior, scored.errors, _online=None)


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


@dataclass(frozen=True)
class NeighborFit:
    """One fit with the nearest-neighbour (Vecchia) residual.

    Parameters
    ----------
    run : Run
        The fit to which it belongs.
    conditioning : Conditioning
        The rows on which models are conditioned.
    learner : LocalLearner
        Learns kernel and noise.
    max_iter : int
        The largest number of iterations in each step.
    init : InducingPointInit
        How inducing points are placed.
    """

    run: Run
    conditioning: Conditioning
    learner: LocalLearner
    max_iter: int
    init: InducingPointInit

    @classmethod
    def begin(cls, run: Run) -> NeighborFit:
        """Read all rows into memory, in random order."""
        settings, clock = run.settings, run.monitor.clock
        n_threads, most = count_available_threads(), _get_sample_size(clock.limit)
        init = InducingPointInit(run.inducing_points)
        single = run.source.take(np.arange(run.source.n_rows))
        groups = group_rows(single)
        order = run.rng.permutation(groups.rows.n_rows)
        rows, number = groups.rows.picked(order), np.argsort(order)[groups.number]
        at = np.argsort(number, kind="stable")
        sample, _ = rows.cut(most)
        n, asked = rows.n_rows, settings.n_neighbors
        n_neighbors = n if asked >= n - 1 else asked
        own = (rows, single.picked(at), number[at], sample, n_neighbors, n_threads, clock)
        optimizer: Any = settings.optimizer
        tol = _TOLERANCE if isinstance(optimizer.tol, str) else optimizer.tol
        learner = LocalLearner(sample, run.monitor, n_threads, run.checkpoint, tol)
        steps = _STEPS if isinstance(optimizer.max_iter, str) else optimizer.max_iter
        return cls(run, Conditioning(*own), learner, steps, init)

    @property
    def rows(self) -> RowBlock:
        """All standardised rows, those with equal inputs merged, in random order."""
        return self.conditioning.rows

    @property
    def _clock(self) -> Clock:
        return self.run.monitor.clock

    def choose_kernel(self, start: Start) -> ExactGP:
        """Choose the kernel, and learn it and the noise."""
        model = ExactGP(start.kernel, start.likelihood)
        if self.max_iter:
            model = self._learn_kernel(model)
            self.run.n_iter += self.learner.n_iter
            if self.run.settings.noise != "gaussian" and not self._clock.is_over():
                groups = self.learner.group(model, *_SCORED_ROWS)
                model, decisions = choose_noise(model, groups, self.learner.n_threads)
                self.run.decisions.extend(decisions)
        return model

    def _learn_kernel(self, model: ExactGP) -> ExactGP:
        own, most = self.run.settings.kernel, self.max_iter
        if isinstance(own, Kernel):
            model = self._choose_lengthscales(model)
        if isinstance(own, Kernel) or own != "auto":
            return self.learner.choose_kernel(model, most, given=True)
        winner = self.learner.choose_kernel(model, most)
        n, losses = list(self.learner.losses.items())[-1]
        tried = len(next(iter(self.learner.losses.values())))
        reason = f"lowest loss on {min(n, self.rows.n_rows):,} rows"
        if len(losses) < tried:
            reason += f", the best {len(losses)} of {tried} kernels"
        self._decide("kernel", name_kernel(winner.kernel), reason, losses)
        return winner

    def _choose_lengthscales(self, given: ExactGP) -> ExactGP:
        """Return the model with a given kernel, or one with plausible lengthscales, if better.

        Far too short or too long lengthscales have no gradient, and 1, that of a kernel without
        arguments, is either in the units of most data.
        """
        if self.run.settings.optimizer.n_restarts == 1:
            return given
        rng = check_random_state(0)  # Does not advance the random numbers of the fit.
        others = draw_kernels(given.kernel, self.rows.X, _TRIED_LENGTHSCALES, rng)
        steps = min(_TRIED_STEPS, self.max_iter)
        best, least = given, np.inf
        for i, kernel in enumerate((given.kernel, *others)):
            self._clock.spread(_UNTIL[0], i, 1 + _TRIED_LENGTHSCALES)
            if i and self._clock.is_over():
                break
            model = replace(given, kernel=kernel)
            value = self.learner.try_kernel(model, steps)
            if value < least:
                best, least = model, value
        return best

    def _decide(self, name: str, chosen: str, reason: str, scores: dict[str, float]) -> None:
        self.run.decisions.append(Decision(name, chosen, reason, scores))

    def place_points(self, model: ExactGP) -> EigenGP:
        """Place all inducing points for the learned kernel."""
        settings, given = self.run.settings, self.init.method
        asked = settings.n_components or settings.n_inducing
        if not isinstance(given, str):
            return self._place(model, given.shape[0], self.rows)
        size = min(asked or self._choose_size(model), self.learner.rows.n_rows)
        if asked and size < asked:
            self.run.note_few_inputs(size, asked)
        return self._place(model, size, self.learner.rows)

    def _choose_size(self, model: ExactGP) -> int:
        """Choose the number of inducing points: double it while the held-out loss improves.

        Eigenfunctions describe the smooth part of a function and neighbours the rough part.
        """
        self._clock.allow(_UNTIL[1])
        most = _get_largest_size(self.learner.rows.n_rows, self._clock.limit)
        size = min(_FIRST_SIZE, most)
        losses: dict[int, float] = {}
        while most >= 1.5 * size and not self._clock.is_over():
            more = min(2 * size, most)
            for each in sorted({size, more} - losses.keys()):
                losses[each] = self._score_held_out(model, each)
            if not losses[more] < losses[size] - _WORTH:
                break
            size = more
        if losses:
            scores = {str(each): loss for each, loss in losses.items()}
            self._decide("n_components", str(size), "loss of a held-out set", scores)
        return size

    def _score_held_out(self, model: ExactGP, size: int) -> float:
        """Score a held-out fifth of some rows with so many inducing points."""
        few, _ = self.rows.cut(_TRIED_ROWS)
        seen, held_out = few.cut(few.n_rows - few.n_rows // 5)
        with speed_up_passes(size):
            try:
                outcome = self.conditioning.run_pass(self._place(model, size, seen), seen)
            except FactorizationError:
                return float("inf")
            posterior, _ = self.conditioning.make_posterior(outcome, seen)
            edges = range(0, held_out.n_rows, CHUNK)
            parts = [posterior.mean_and_variance(held_out.X[i : i + CHUNK]) for i in edges]
        mean, variance = (np.concatenate(each) for each in zip(*parts, strict=True))
        return _score_predictions(held_out, mean, variance)

    def _place(self, model: ExactGP, size: int, rows: RowBlock) -> EigenGP:
        """Return the model with so many inducing points, placed among the rows."""
        rng = check_random_state(0)  # Does not advance the random numbers of the fit.
        points = self.init.place(rows, size, model.kernel, rng)
        jitter = Jitter(relative=RELATIVE_JITTER)
        own = (model.kernel, points, model.likelihood, points.shape[0])
        return EigenGP(*own, jitter=jitter, vecchia=True)


def _score_predictions(rows: RowBlock, mean: Array, variance: Array) -> float:
    """Return a loss of predictions for rows, in nats per row.

    It is the average of the negative log density and of its value with one variance for all rows,
    without constants, so that means count as much as variances.
    """
    squares = (rows.y - mean) ** 2
    if rows.scatter is not None:
        squares += rows.scatter / rows.weight
    own = float(np.average(np.log(variance) + squares / variance, weights=rows.weight))
    average = max(float(np.average(squares, weights=rows.weight)), np.finfo(np.float64).tiny)
    return 0.25 * (own + float(np.log(average)) + 1.0)
