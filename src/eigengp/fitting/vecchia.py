"""Fits with the nearest-neighbour (Vecchia) residual, from the choice of the kernel to calibration.

Eigenfunctions and neighbours approximate one GP, so its kernel and noise are learned first, from
local GPs. Inducing points are not parameters of the GP: more of them make the approximation better,
and they are placed once, for the learned kernel. Coefficients of the eigenfunctions are conditioned
on all rows, or on a sample of many; the mean is that of the neighbours or of all rows; the noise is
fitted to leave-one-out residuals.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from eigengp._typing import Array
from eigengp.backend.threads import map_in_threads, map_rows
from eigengp.data.neighbors import Nearest, NeighborSource
from eigengp.fitting.heteroscedastic import LeaveOneOut, LeftOut, reweight_rows, score
from eigengp.fitting.initialization import place_points
from eigengp.fitting.local_learner import group_nearby, learn_kernels, name_model
from eigengp.fitting.model_selection import Decision
from eigengp.fitting.noise_level import choose_noise
from eigengp.fitting.posterior_mean import find_posterior_mean, is_affordable
from eigengp.fitting.run import FitResult, Run
from eigengp.fitting.settings import MOST_NEIGHBORS, RELATIVE_JITTER
from eigengp.gp.blocks import RowBlock, group_rows
from eigengp.gp.exact import ExactGP
from eigengp.gp.heteroscedastic import VarianceScale
from eigengp.gp.linalg import FactorizationError
from eigengp.gp.vecchia import VecchiaOutcome, VecchiaPass, Whitened
from eigengp.gp.vecchia_posterior import VecchiaPosterior
from eigengp.kernels import Kernel

_TRIED_ROWS = 5_000
_LEAST_LEARNED_ROWS = 1_000
# The largest number of rows from which hyperparameters and coefficients are learned. Predictions
# find their neighbours among all rows.
SAMPLE_ROWS = 100_000
_SAMPLE_ROWS_PER_SECOND = 4_000  # The largest number of them for each second of `max_time`.
# The first and the largest default number of inducing points, without `max_time`.
_FIRST_SIZE, _LAST_SIZE = 200, 400
# The improvement of the held-out loss, in nats per row, that doubling them must bring.
_WORTH = 0.01
_ROWS_PER_POINT = 25
_LEAST_SIZE, _MOST_SIZE = 50, 800
# The largest number of features of all rows that the default keeps in memory.
_MOST_FEATURES = 40_000_000
_SIZE_PER_SECOND = 12
_CHUNK = 128  # The number of rows predicted at once.
# The number of rows between looks at the clock, which does not depend on the threads.
_AT_ONCE = 16 * _CHUNK
# The largest number of distinct inputs, and of their rows, that are left out.
_LEFT_OUT_ROWS, _MOST_SINGLE_ROWS = 6_000, 20_000
# For each so many of the first inputs, one more that several rows share is left out.
_FIRST_PER_REPEAT = 20
# The number of rows from which the noise level is chosen, and that of each group of them.
_SCORED_ROWS = (4_000, 2_000)
_LEAST_SECONDS = 10.0  # The least `max_time` with which the noise level is chosen.
# The largest ratio of mean squared errors, of the mean from all rows to that from neighbours, at
# which the former is used: it is smoother, and its predictions are faster.
_NOT_WORSE = 1.02
# Fractions of `max_time` by which the choice of inducing points, leave-one-out, and the solution
# for all rows must end.
_UNTIL = (0.55, 0.75, 1.0)


def learn_with_neighbors(run: Run, start: ExactGP) -> FitResult:
    """Fit eigenfunctions and the nearest-neighbour residual."""
    fit = NeighborFit.begin(run)
    kernels = learn_kernels(run, fit.sample, start)
    fit, own = fit.choose_kernel(kernels)
    own = fit.choose_noise(own)
    scored = fit.score(own)
    run.map_inputs(fit.input_map)
    # That of a sample of the rows is scaled to all of them.
    total = own.outcome.value * (run.dataset.summary.weight / own.outcome.n)
    return run.make_result(own.model, total, scored, _online=None)


def _get_sample_size(seconds: float | None) -> int:
    """Return the largest number of rows from which a fit of so many seconds learns."""
    if seconds is None:
        return SAMPLE_ROWS
    few = max(_LEAST_LEARNED_ROWS, round(_SAMPLE_ROWS_PER_SECOND * seconds))
    return min(SAMPLE_ROWS, few)


def get_largest_size(n_rows: int, seconds: float | None = None) -> int:
    """Return the largest default number of inducing points; short fits use few."""
    size = _LAST_SIZE
    if seconds is not None:
        size = min(_MOST_SIZE, max(_LEAST_SIZE, round(_SIZE_PER_SECOND * seconds)))
    return max(1, min(size, n_rows // _ROWS_PER_POINT, _MOST_FEATURES // max(1, n_rows)))


class _Predicted(NamedTuple):
    """A model, its posterior, and leave-one-out predictions of some rows."""

    model: VecchiaPass
    outcome: VecchiaOutcome  # What a pass over the rows found.
    posterior: VecchiaPosterior  # With constant noise.
    # Numbers of predicted inputs: the first `n_first`, and some that several rows share.
    at: NDArray[np.intp]
    n_first: int  # The number of inputs among which the mean of all rows is compared.
    left_out: LeftOut  # The predictions of their rows.
    # With the noise that is fitted to the predictions; None if it is not fitted.
    scored: LeaveOneOut | None = None


@dataclass(frozen=True)
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
    sample : RowBlock
        The first of `rows`, from which models and coefficients are learned.
    n_neighbors : int
        The number of neighbours of a prediction; all rows if a row has all others.
    input_map : array of shape (D, D) or None
        The linear map that the inputs of the rows have passed; None is the identity.
    """

    run: Run
    rows: RowBlock
    single: RowBlock
    number: NDArray[np.intp]
    sample: RowBlock
    n_neighbors: int
    input_map: Array | None = None

    @classmethod
    def begin(cls, run: Run) -> NeighborFit:
        """Read all rows into memory, in random order."""
        most, asked = _get_sample_size(run.monitor.clock.limit), run.settings.n_neighbors
        single = run.source.take(np.arange(run.source.n_rows))
        groups = group_rows(single)
        order = run.rng.permutation(groups.rows.n_rows)
        rows, number = groups.rows.picked(order), np.argsort(order)[groups.number]
        at = np.argsort(number, kind="stable")
        n_neighbors = order.size if asked >= order.size - 1 else asked
        return cls(run, rows, single.picked(at), number[at], rows.cut(most)[0], n_neighbors)

    def map_inputs(self, input_map: Array | None) -> NeighborFit:
        """Return the fit with linearly mapped inputs; None is the identity."""
        own = (self.rows, self.single, self.sample)
        rows, single, sample = (each.map_inputs(input_map) for each in own)
        return replace(self, rows=rows, single=single, sample=sample, input_map=input_map)

    def choose_size(self, model: ExactGP) -> int:
        """Choose the number of inducing points: double it while the held-out loss improves.

        Eigenfunctions describe the smooth part of a function and neighbours the rough part.
        """
        run, given, clock = self.run, self.run.inducing_points, self.run.monitor.clock
        asked = run.settings.n_components or run.settings.n_inducing
        if not isinstance(given, str):
            return given.shape[0]
        if asked:
            if asked > self.sample.n_rows:
                run.note_few_inputs(self.sample.n_rows, asked)
            return min(asked, self.sample.n_rows)
        clock.allow(_UNTIL[0])
        most = get_largest_size(self.sample.n_rows, clock.limit)
        size = min(_FIRST_SIZE, most)
        losses: dict[int, float] = {}
        while most >= 1.5 * size and not clock.is_over():
            more = min(2 * size, most)
            for each in sorted({size, more} - losses.keys()):
                losses[each] = self._score_held_out(model, each)
            if not losses[more] < losses[size] - _WORTH:
                break
            size = more
        if losses:
            scores = {str(each): loss for each, loss in losses.items()}
            reason = "loss of a held-out set"
            run.decisions.append(Decision("n_components", str(size), reason, scores))
        return min(size, self.sample.n_rows)

    def choose_kernel(self, models: Sequence[ExactGP]) -> tuple[NeighborFit, _Predicted]:
        """Condition models on all rows, and return that with the lowest leave-one-out loss.

        A local GP sees only some neighbours of a row, and assumes constant noise. The predictions
        compared here use all neighbours and the fitted noise, as predictions of new rows do. Each
        entry of a map costs one nat, since leave-one-out does not learn it again.
        """
        clock = self.run.monitor.clock
        size = self.map_inputs(models[0].input_map).choose_size(models[0])
        trials: dict[str, tuple[NeighborFit, _Predicted]] = {}
        for model in models:
            clock.allow(_UNTIL[0])
            if trials and clock.is_over():
                break
            fit = self.map_inputs(model.input_map)
            points = fit._place(model.kernel, size, fit.sample)
            try:
                made = VecchiaPass.of(model.kernel, points, model.noise_variance, RELATIVE_JITTER)
                own = fit.condition_and_predict(made)
            except FactorizationError:
                if not trials and model is models[-1]:
                    raise
                continue
            trials[name_model(model)] = fit, own
        best = next(iter(trials))
        if len(models) > 1:
            losses = {name: fit._get_loss(own) for name, (fit, own) in trials.items()}
            best = min(losses, key=lambda name: losses[name])
            reason = f"leave-one-out loss of the best {len(trials)} kernels of local GPs"
            self.run.decisions.append(Decision("kernel", best, reason, losses))
        return trials[best]

    def choose_noise(self, own: _Predicted) -> _Predicted:
        """Condition the model again if leave-one-out errors call for another noise variance."""
        run, features, clock = self.run, own.model.features, self.run.monitor.clock
        short = clock.limit is not None and clock.limit < _LEAST_SECONDS
        fitted = own.scored is not None and own.scored.decision
        if not fitted or run.settings.learns_nothing or short or clock.is_over():
            return own
        groups = group_nearby(self.sample, features.kernel, *_SCORED_ROWS)
        model = ExactGP(features.kernel, own.model.noise_variance, compiled=True)
        with suppress(FactorizationError):
            model, decisions = choose_noise(model, groups, run.n_threads)
            if decisions:
                other = replace(own.model, noise_variance=model.noise_variance)
                own = self.condition_and_predict(other)
                run.decisions.extend(decisions)
        return own

    def _get_loss(self, own: _Predicted) -> float:
        """Return the leave-one-out loss, in nats per row, as that of `_score_predictions`."""
        squares = (self.rows.y[own.at] - own.left_out.predicted[0]) ** 2
        if self.rows.scatter is not None:
            squares += (self.rows.scatter / self.rows.weight)[own.at]
        alike = _get_alike_loss(squares, self.rows.weight[own.at])
        decision = None if own.scored is None else own.scored.decision
        best = alike if decision is None else min(decision.scores.values())
        n_entries = 0 if self.input_map is None else self.input_map.size
        return 0.5 * (best + alike) + n_entries / self.sample.n_rows

    def _score_held_out(self, model: ExactGP, size: int) -> float:
        """Score a held-out fifth of some rows with so many inducing points."""
        few, _ = self.rows.cut(_TRIED_ROWS)
        seen, held_out = few.cut(few.n_rows - few.n_rows // 5)
        try:
            points = self._place(model.kernel, size, seen)
            made = VecchiaPass.of(model.kernel, points, model.noise_variance, RELATIVE_JITTER)
            _, posterior = self.run_pass(made, seen, seen)
        except FactorizationError:
            return float("inf")
        mean, variance = map_rows(
            lambda own: posterior.mean_and_variance(held_out.X[own]),
            *(held_out.n_rows, _CHUNK, self.run.n_threads),
        )
        return _score_predictions(held_out, mean, variance)

    def _place(self, kernel: Kernel, size: int, rows: RowBlock) -> Array:
        """Return so many inducing points, placed among the rows."""
        rng = check_random_state(0)  # Does not advance the random numbers of the fit.
        given = self.run.inducing_points
        if not isinstance(given, str) and self.input_map is not None:
            given = given @ self.input_map
        return place_points(given, rows, size, kernel, rng)

    def condition_and_predict(self, model: VecchiaPass) -> _Predicted:
        """Condition a model on all rows; if the noise is fitted, predict rows from all others."""
        outcome, posterior = self.condition(model)
        if self.run.settings.noise == "gaussian":
            none = np.empty(0)
            left_out = LeftOut(self.single, self.number, 3 * (none,), 0)
            return _Predicted(model, outcome, posterior, none.astype(np.intp), 0, left_out)
        self.run.monitor.clock.allow(_UNTIL[1])
        own = self._predict(model, outcome, posterior)
        return own._replace(scored=score(posterior, own.left_out))

    def condition(self, model: VecchiaPass) -> tuple[VecchiaOutcome, VecchiaPosterior]:
        """Condition the coefficients of the model on all rows, or on a sample of many.

        With all rows as neighbours it is the exact GP, without the jitter of neighbourhoods.
        """
        if self.n_neighbors < self.rows.n_rows:
            most = min(self.n_neighbors, MOST_NEIGHBORS)
            return self.run_pass(model, self.sample, self.rows, most)
        return self.run_pass(replace(model, jitter=0.0), self.sample, self.rows, self.rows.n_rows)

    def run_pass(
        self, model: VecchiaPass, seen: RowBlock, rows: RowBlock, count: int = MOST_NEIGHBORS
    ) -> tuple[VecchiaOutcome, VecchiaPosterior]:
        """Condition the coefficients of a model on rows that are seen, with so many neighbours.

        The posterior finds neighbours among all `rows`.
        """
        metric, n_threads = model.features.kernel.metric(rows.X.shape[1]), self.run.n_threads
        search = Nearest.of(rows.X, metric, self.n_neighbors)
        outcome = model.forward(NeighborSource.of(seen, metric, count, n_threads))
        posterior = VecchiaPosterior.of(outcome, rows, search, search.count)
        posterior.prepare(n_threads)
        return outcome, posterior

    def score(self, own: _Predicted) -> LeaveOneOut:
        """Return the posterior of a model given all rows, with its leave-one-out score.

        Where the noise is heteroscedastic, rows that count by their noise compete with equal ones.
        The mean of all rows then competes with that of the neighbours.
        """
        scored, many = own.scored, self.rows.n_rows > self.sample.n_rows
        decisions: list[Decision] = []
        smooth = None if scored is None else scored.smooth
        if scored and smooth and not many and self.run.monitor.clock.limit is None:
            with suppress(FactorizationError):
                weighted = self._reweight(own.model, smooth)
                again = score(weighted.posterior, weighted.left_out)
                best, decision = scored.choose_weights(again)
                decisions.append(decision)
                own, scored = (own if best is scored else weighted), best
        own, decision = self._use_all_rows(own)
        self.run.decisions += [decision, *decisions]
        if scored is None:
            return LeaveOneOut(own.posterior)
        all_rows = decision.chosen == "all rows"
        return score(own.posterior, own.left_out) if all_rows else scored

    def _predict(
        self,
        model: VecchiaPass,
        outcome: VecchiaOutcome,
        posterior: VecchiaPosterior,
        factor: Array | None = None,
    ) -> _Predicted:
        """Predict rows from all others, as many as time allows, with the mean of the neighbours.

        They are the first inputs, with a limited number of rows, and some of those after them that
        several rows share: few rows repeat an input, and they alone show how far targets at one
        input differ.
        """
        count = min(_LEFT_OUT_ROWS, self.rows.n_rows)
        if self.number.size > _MOST_SINGLE_ROWS:
            count = min(count, int(self.number[_MOST_SINGLE_ROWS]))
        count = max(1, count)
        n_rows = np.bincount(self.number, self.single.sample_weight)
        repeats = count + np.flatnonzero(n_rows[count:] > 1.0)
        at = np.concatenate([np.arange(count), repeats[: count // _FIRST_PER_REPEAT]])
        search: Any = posterior.search
        parts: list[Any] = []
        for start in range(0, at.size, _AT_ONCE):
            own = at[start : start + _AT_ONCE]
            index = search.find_others(self.rows.X[own], own)
            edges = range(0, own.size, _CHUNK)
            chunks = [(self.rows.picked(own[i : i + _CHUNK]), index[i : i + _CHUNK]) for i in edges]
            parts += map_in_threads(
                lambda chunk: posterior.leave_one_out(*chunk), chunks, self.run.n_threads
            )
            if self.run.monitor.clock.is_over():
                break
        found = tuple(np.concatenate(each) for each in zip(*parts, strict=True))
        at = at[: found[0].size]
        seen = np.flatnonzero(np.isin(self.number, at))
        rows, number = self.single.picked(seen), np.searchsorted(at, self.number[seen])
        factor = None if factor is None else factor[at]
        left_out = LeftOut(rows, number, found, posterior.mean_coefficients.size, factor)
        return _Predicted(model, outcome, posterior, at, count, left_out)

    def _reweight(self, model: VecchiaPass, smooth: VarianceScale) -> _Predicted:
        """Predict rows again, where those with much noise count less."""
        unit = np.sqrt(model.features.prior_scale)
        explained = map_rows(
            lambda own: model.features.matrix(self.rows.X[own]) @ model.prior_factor / unit,
            *(self.rows.n_rows, _AT_ONCE, self.run.n_threads),
        )
        rows = reweight_rows(self.rows, smooth, explained)
        again = replace(self, rows=rows, sample=rows)
        return again._predict(model, *again.condition(model), rows.weight / self.rows.weight)

    def _use_all_rows(self, own: _Predicted) -> tuple[_Predicted, Decision]:
        """Replace the mean by that of the full GP, if memory and time allow and it is not worse."""
        predicted = own.left_out.predicted
        mean, variance = (each[: own.n_first] for each in predicted[:2])
        rows, whitened, full = own.posterior.rows, own.outcome.whitened, None
        reason = self._find_obstacle(whitened)
        if reason is None and whitened is not None:
            source = NeighborSource(rows, whitened.index, self.run.n_threads)
            full = find_posterior_mean(own.model, source, variance, self.run.monitor.clock.is_over)
            reason = "conjugate gradients did not converge"
        if full is None:
            return own, Decision("posterior_mean", "neighbors", str(reason))
        posterior = own.posterior.refine(coefficients=full.coefficients)
        if not mean.size:
            reason = "memory and time allow"
            return own._replace(posterior=posterior), Decision("posterior_mean", "all rows", reason)
        targets = rows.y[: mean.size]
        errors, other, how = full.errors, targets - mean, "leave-one-out mean squared error"
        if full.held_out is not None:
            errors, how = full.held_out, "mean squared error of a held-out set"
            other = self._predict_held_out(own.posterior, errors.size)
        scores = {"all rows": float(np.mean(errors**2)), "neighbors": float(np.mean(other**2))}
        if scores["all rows"] > _NOT_WORSE * scores["neighbors"]:
            return own, Decision("posterior_mean", "neighbors", how, scores)
        means = np.concatenate([targets - full.errors, predicted[0][own.n_first :]])
        left_out = own.left_out._replace(predicted=(means, *predicted[1:]))
        own = own._replace(posterior=posterior, left_out=left_out)
        return own, Decision("posterior_mean", "all rows", how, scores)

    def _find_obstacle(self, whitened: Whitened | None) -> str | None:
        """Return why the mean cannot be that of all rows; None if it can."""
        clock, n = self.run.monitor.clock, self.rows.n_rows
        if whitened is None:
            return "all rows are neighbours"
        if whitened.w.shape[0] < n or not is_affordable(n, clock.limit):
            return "the kernel matrix of all rows takes too much memory or time"
        clock.allow(_UNTIL[2])
        return "no time is left for all rows" if clock.is_over() else None

    def _predict_held_out(self, posterior: VecchiaPosterior, count: int) -> Array:
        """Return the errors of the last rows, with neighbours among the others alone."""
        seen, held_out = posterior.rows.cut(posterior.rows.n_rows - count)
        metric = posterior.features.kernel.metric(seen.X.shape[1])
        index = Nearest.of(seen.X, metric, self.n_neighbors)(held_out.X)
        means = map_rows(
            lambda own: posterior.leave_one_out(held_out.part(own), index[own])[0],
            *(count, _CHUNK, self.run.n_threads),
        )
        return np.asarray(held_out.y - means)


def _score_predictions(rows: RowBlock, mean: Array, variance: Array) -> float:
    """Return a loss of predictions for rows, in nats per row.

    It is the average of the negative log density and of its value with one variance for all rows,
    without constants, so that means count as much as variances.
    """
    squares = (rows.y - mean) ** 2
    if rows.scatter is not None:
        squares += rows.scatter / rows.weight
    own = float(np.average(np.log(variance) + squares / variance, weights=rows.weight))
    return 0.5 * (0.5 * own + _get_alike_loss(squares, rows.weight))


def _get_alike_loss(squares: Array, weight: Array) -> float:
    """Return the negative log density, without constants, if all rows have the same variance."""
    average = max(float(np.average(squares, weights=weight)), np.finfo(np.float64).tiny)
    return 0.5 * (float(np.log(average)) + 1.0)
