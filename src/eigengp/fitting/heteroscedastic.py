"""Leave-one-out scores of a fitted model, and the noise that is fitted to its residuals.

With `q = r²/v`, the squared residuals in units of their predicted variances, the log factor `η`
minimises `½ Σ (η + q e^{−η})` plus a ridge penalty on the slopes, which is convex; rows count by
their sample weights. A constant factor and several sets of covariates compete by cross-validated
log density. The best must clearly improve on the variances of the model. Where noise is
heteroscedastic, rows with little noise should count more (`reweight_rows`).

Cross-validation also chooses a floor of all variances, since a row with a large error and a tiny
variance costs more than all other rows gain. Variances are trusted only as far as training rows
prove them: if `k` of them have no larger variance than `v`, one more could still have a typical
error, and no variance is smaller than the least `max(v, mean r²/k)`. That matters for inputs that
repeat a training row, which are few.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eigengp._typing import Array
from eigengp.backend.threads import cut_rows, join_rows, map_in_threads, use_one_blas_thread
from eigengp.data.holdout import sample_rows
from eigengp.fitting.model_selection import Decision
from eigengp.gp.blocks import RowBlock, RowSource, group_rows
from eigengp.gp.evidence import Outcome
from eigengp.gp.heteroscedastic import HeteroscedasticPosterior, VarianceScale
from eigengp.gp.model import EigenGP

OF_THE_MODEL = "model variance"  # The variances of the model itself.
_LOSS = "leave-one-out negative log density per row"
_FOLDS = 5
_MARGIN, _ERRORS = 0.01, 2.0  # The required improvement in nats per row, and in standard errors.
# The loss of a row, in nats more than that of another variance model, from which one fails.
_FAILS = 3.0
_KNOWN = (0.005, 0.995)  # Covariates are clipped at these quantiles of the training rows.
# The ratio of the smallest trusted variance to the smallest one from which the former limits the
# variances of the model.
_FAR = 10.0
_MOST_WEIGHT = 100.0
# The largest ratio of mean squared errors, of reweighted to equal rows, at which the former are
# used.
_NOT_WORSE = 1.02
_LEAST_SPREAD = 1e-3
_MOST_STEPS = 50
# The least curvature of a row, which keeps steps short where residuals are zero.
_LEAST_WEIGHT = 0.05
_LEAST_MEAN = 1e-12
# The ridge penalty per row, so that its effect does not depend on the number of rows.
_RIDGE_PER_ROW = 1e-3
_LEAST_RIDGE = 1e-6
_SHORTEST = 1e-4
_ENOUGH = 1e-6
# Candidate floors, relative to the mean share of the largest squared error.
_FLOORS: Array = np.exp2(np.arange(-12.0, 9.0))

_SOME_ROWS = 6_000
_CHUNK, _COLUMNS = 1_024, 32  # The number of rows, and of covariates, that are treated at once.
LEAST_ROWS = 100  # Fewer rows cannot show how the noise depends on the input.
_MOST_REPEATED = 50_000


@dataclass(frozen=True)
class LeaveOneOut:
    """A posterior and its leave-one-out score.

    Parameters
    ----------
    posterior : VecchiaPosterior or HeteroscedasticPosterior
        With the fitted variance model.
    errors : array of shape (n,) or None
        Sorted errors in units of their standard deviations; None if the noise was not fitted.
    decision : Decision or None
        The chosen variance model, with the loss of each; None if the noise was not fitted.
    smooth : VarianceScale or None
        What `reweight_rows` needs, if the noise is heteroscedastic.
    square : float
        The mean squared error.
    """

    posterior: Any
    errors: Array | None = None
    decision: Decision | None = None
    smooth: VarianceScale | None = None
    square: float = 0.0

    def choose_weights(self, reweighted: LeaveOneOut) -> tuple[LeaveOneOut, Decision]:
        """Choose this, or that of reweighted rows if its log density is larger.

        Its squared errors must not be clearly larger: where noise is skewed, rows with little noise
        are those with small targets, and means that follow them are too small.
        """
        losses: dict[str, float] = {}
        for name, own in (("equal", self), ("by noise", reweighted)):
            assert own.decision is not None
            losses[name] = own.decision.scores[own.decision.chosen]
        chosen = min(losses, key=lambda name: losses[name])
        if reweighted.square > _NOT_WORSE * self.square:
            chosen = "equal"
        return self if chosen == "equal" else reweighted, Decision("weights", chosen, _LOSS, losses)


class LeftOut(NamedTuple):
    """Leave-one-out predictions."""

    rows: RowBlock  # Some of the training rows.
    number: NDArray[np.intp]  # The number of the input of each row, shape (n,).
    # Mean, variance and covariates of each distinct input, from the rows with other inputs.
    predicted: tuple[Array, ...]
    n_eigenfunctions: int  # The number of covariates that are eigenfunctions.
    # By how much the posterior weights the rows of each distinct input more; None is one.
    factor: Array | None = None


def score(posterior: Any, left_out: LeftOut) -> LeaveOneOut:
    """Fit the noise of a posterior to leave-one-out predictions, and score them.

    A row is predicted from all other rows, those with the same input included. A row with a whole
    weight counts as so many rows.
    """
    rows, number = _repeat_rows(left_out.rows, left_out.number)
    mean, variance, covariates = (each[number] for each in left_out.predicted)
    if number.size > left_out.predicted[0].size:
        noise = posterior.noise_variance
        factor = left_out.factor
        own_noise = np.full(number.size, noise) if factor is None else noise / factor[number]
        mean, variance = _condition_on_repeats(rows, number, mean, variance, noise, own_noise)
        covariates[:, 0] = np.log(variance)  # See `gp.heteroscedastic.covariates`.
    constant = getattr(posterior, "own", posterior)  # A wrapper without a scale changes nothing.
    if float(rows.weight.sum()) < LEAST_ROWS:
        return LeaveOneOut(constant)
    errors = rows.y - mean
    n_local = covariates.shape[1] - left_out.n_eigenfunctions
    found = fit_heteroscedastic(errors, variance, covariates, n_local, rows.sample_weight, number)
    scaled = constant if found.scale is None else posterior.refine(scale=found.scale)
    square = float(np.average(errors**2, weights=rows.weight))
    decision = Decision("likelihood", found.name, _LOSS, found.losses)
    errors = np.sort(found.errors)
    if rows.sample_weight is not None:  # As many, of which each row has its share.
        levels = (np.arange(errors.size) + 0.5) / errors.size
        options: Any = {"weights": rows.sample_weight, "method": "inverted_cdf"}
        errors = np.quantile(found.errors, levels, **options)
    return LeaveOneOut(scaled, errors, decision, found.smooth, square)


def _repeat_rows(rows: RowBlock, number: NDArray[np.intp]) -> tuple[RowBlock, NDArray[np.intp]]:
    """Return rows with whole weights as often as they count, without weights."""
    weight = rows.sample_weight
    whole = weight is not None and np.all(weight == np.round(weight))
    if weight is None or not whole or weight.sum() > _MOST_REPEATED:
        return rows, number
    at = np.repeat(np.arange(rows.n_rows), weight.astype(int))
    return RowBlock(rows.X[at], rows.y[at]), number[at]


def _condition_on_repeats(
    rows: RowBlock,
    number: NDArray[np.intp],
    mean: Array,
    variance: Array,
    noise_variance: float,
    own_noise: Array,
) -> tuple[Array, Array]:
    """Condition predictions from rows with other inputs on the other rows with the same input.

    With `S` the weight of the others, `ȳ` their mean and `f ~ N(μ, v)` given the rows with other
    inputs, the gain is `g = S v/(S v + τ²)` with the noise `τ²` of these rows: the mean becomes
    `μ + g (ȳ − μ)` and the variance of a new observation `(1 − g) v + σ²`. A row with a whole
    weight is one of so many rows; others are left out whole. New rows repeat a training input as
    often as training rows repeat each other, so this is what shows whether the noise is large
    enough for them.
    """
    whole = bool(np.all(rows.weight == np.round(rows.weight)))
    unit = np.minimum(rows.weight, 1.0) if whole else rows.weight
    others = np.maximum(np.bincount(number, rows.weight)[number] - unit, 0.0)
    total = np.bincount(number, rows.weight * rows.y)[number] - unit * rows.y
    latent = np.maximum(variance - noise_variance, 0.0)
    gain = others * latent / (others * latent + own_noise)
    centre = np.divide(total, others, out=mean.copy(), where=others > 0.0)
    return mean + gain * (centre - mean), (1.0 - gain) * latent + noise_variance


def make_posterior(
    model: EigenGP, outcome: Outcome, scale: VarianceScale | None = None
) -> HeteroscedasticPosterior:
    """Make the posterior of a model without neighbours, with a variance model."""
    factor = outcome.flow.prior_factor
    assert factor is not None
    return HeteroscedasticPosterior(model.posterior(outcome), factor, scale)


def score_leave_one_out(
    model: EigenGP, outcome: Outcome, source: RowSource, rng: np.random.RandomState
) -> LeaveOneOut:
    """Fit the noise of a model without neighbours by leave-one-out on a sample of its rows."""
    posterior = make_posterior(model, outcome)
    rows = sample_rows(source, min(_SOME_ROWS, source.n_rows), rng)
    inputs, number = group_rows(rows)
    parts = [posterior.leave_one_out(inputs.part(own)) for own in cut_rows(inputs.n_rows, _CHUNK)]
    size = posterior.factor.shape[1]
    return score(posterior, LeftOut(rows, number, join_rows(parts), size))


def list_candidates(n_local: int, n_covariates: int) -> tuple[list[slice], dict[str, list[int]]]:
    """Return sets of covariates, and the sets of each candidate; the first `n_local` are local.

    Neighbours are informative, but their errors are correlated. The candidate with neighbours
    therefore averages two variance models, with and without them.
    """
    sets = [slice(0, 0), slice(n_local, n_covariates)]
    candidates = {"constant": [0], "eigenfunctions": [1]}
    if n_local > 1:
        sets.append(slice(0, n_covariates))
        candidates["neighbors"] = [1, 2]
    return sets, candidates


@dataclass(frozen=True)
class FittedVariance:
    """The chosen variance model, and the losses of all candidates."""

    name: str
    scale: VarianceScale | None  # None if the variances of the model are best.
    # Cross-validated mean negative log density of each candidate, without constants.
    losses: dict[str, float]
    errors: Array  # Absolute errors in units of cross-validated standard deviations, shape (n,).
    # A factor of eigenfunctions alone, if the noise is heteroscedastic; see `reweight_rows`.
    smooth: VarianceScale | None = None


def reweight_rows(rows: RowBlock, smooth: VarianceScale, explained: Array) -> RowBlock:
    """Return rows that count less where their noise is larger, with the same total weight.

    Parameters
    ----------
    rows : RowBlock
        All training rows.
    smooth : VarianceScale
        The factor `exp(η)` of the variance.
    explained : array of shape (N, M)
        The eigenfunctions, which are the last covariates.
    """
    own = slice(-explained.shape[1], None)
    known = np.clip(explained, smooth.low[own], smooth.high[own])
    factor = np.exp(-(known - smooth.centre[own]) @ smooth.slopes[own, 0])
    weight = rows.weight * np.clip(factor, 1.0 / _MOST_WEIGHT, _MOST_WEIGHT)
    return replace(rows, sample_weight=weight * (rows.weight.sum() / weight.sum()))


def fit_heteroscedastic(
    errors: Array,
    variance: Array,
    covariates: Array,
    n_local: int,
    weight: Array | None = None,
    number: NDArray[np.intp] | None = None,
) -> FittedVariance:
    """Choose the best candidate by cross-validation, and fit it to all rows.

    Parameters
    ----------
    errors : array of shape (n,)
        Leave-one-out errors.
    variance : array of shape (n,)
        Their predicted variances.
    covariates : array of shape (n, p)
        See `eigengp.gp.heteroscedastic.covariates`.
    n_local : int
        The number of covariates that are not eigenfunctions; they come first.
    weight : array of shape (n,) or None
        Sample weights; None is one.
    number : array of shape (n,) or None
        The number of the input of each row; equal inputs are in one fold. None is one for each.
    """
    squares = errors**2
    count = np.ones_like(squares) if weight is None else weight
    fold = (np.arange(squares.size) if number is None else number) % _FOLDS
    rows = _Rows(squares / variance, covariates, count, n_local)
    unseen, limits = {OF_THE_MODEL: variance}, {}
    sets, candidates = list_candidates(n_local, covariates.shape[1])
    with use_one_blas_thread():
        full = _fit_scale(rows, rows.measure(), sets)
        found = _cross_validate(rows, variance, fold, full, sets)
    for name, own in candidates.items() if np.ptp(fold) > 0 else ():
        scaled = found[:, own].mean(axis=1)
        limits[name] = _choose_limits(squares, scaled, count)
        unseen[name] = np.maximum(scaled + limits[name][0], limits[name][1])
    each_row = {name: 0.5 * (np.log(v) + squares / v) for name, v in unseen.items()}
    losses = {name: float(np.average(loss, weights=count)) for name, loss in each_row.items()}
    best = _choose(each_row, losses, count)
    in_deviations = np.abs(errors) / np.sqrt(unseen[best])
    if best == OF_THE_MODEL:
        least = _find_least(variance, squares, count)
        none = np.zeros(covariates.shape[1])
        limit = VarianceScale(np.zeros(1), none[:, None], none, none, none, least=least)
        only = limit if least > _FAR * variance.min() else None
        return FittedVariance(best, only, losses, in_deviations)
    smooth = None if best == "constant" else _pick(full, candidates["eigenfunctions"])
    floor, least = limits[best]
    scale = replace(_pick(full, candidates[best]), floor=floor, least=least)
    return FittedVariance(best, scale, losses, in_deviations, smooth)


def _pick(scale: VarianceScale, own: list[int]) -> VarianceScale:
    """Return the scale with some of its log factors."""
    return replace(scale, intercept=scale.intercept[own], slopes=scale.slopes[:, own])


def _cross_validate(
    rows: _Rows, variance: Array, fold: NDArray[np.intp], full: VarianceScale, sets: list[slice]
) -> Array:
    """Return the variances of each row scaled by what the other folds call for, (n, sets)."""
    found = np.empty((variance.size, len(sets)))
    seen = [fold != k for k in range(_FOLDS) if 0 < np.sum(fold == k) < fold.size]

    def predict(task: tuple[int, int]) -> None:
        c, k = task
        scale = _fit_scale(rows.picked(seen[k]), measured[k], [sets[c]], _pick(full, [c]))
        found[~seen[k], c] = scale(variance[~seen[k]], rows.covariates[~seen[k]])

    measured = map_in_threads(lambda own: rows.picked(own).measure(), seen)
    tasks = [(c, k) for c in range(len(sets)) for k in range(len(seen))]
    map_in_threads(predict, tasks[::-1])  # The largest sets first.
    return found


def _choose(each_row: dict[str, Array], losses: dict[str, float], count: Array) -> str:
    """Return the candidate of lowest loss if it clearly improves on simpler ones.

    The variances of the model have no floor. Where they fail, they fail by far, and few rows show.
    """
    best = min(losses, key=lambda name: losses[name])
    if "constant" in losses and not _is_clearly_less(each_row[best], each_row["constant"], count):
        best = "constant"
    own = each_row[OF_THE_MODEL]
    failing = float(np.average(np.maximum(own - each_row[best] - _FAILS, 0.0), weights=count))
    if losses[best] < losses[OF_THE_MODEL] - _MARGIN and failing > _MARGIN:
        return best
    return best if _is_clearly_less(each_row[best], own, count) else OF_THE_MODEL


def _choose_limits(squares: Array, variance: Array, count: Array) -> tuple[float, float]:
    """Return the floor of largest log density, and the smallest variance that is trusted.

    Parameters
    ----------
    squares, variance, count : array of shape (n,)
        Squared errors, variances and weights of rows that were not seen.
    """
    floors = _FLOORS * float(np.max(count * squares) / count.sum())
    scaled = variance[:, None] + floors
    losses = count @ (np.log(scaled) + squares[:, None] / scaled)
    floor = float(floors[np.argmin(losses)])
    return floor, _find_least(variance + floor, squares, count)


def _find_least(variance: Array, squares: Array, count: Array) -> float:
    """Return the smallest variance that is trusted."""
    order = np.argsort(variance)
    mean = float(np.average(squares, weights=count))
    return float(np.min(np.maximum(variance[order], mean / np.cumsum(count[order]))))


def _is_clearly_less(loss: Array, other: Array, count: Array) -> bool:
    """Return whether a loss is lower than another, beyond the influence of single rows."""
    gain = other - loss
    mean = float(np.average(gain, weights=count))
    spread = float(np.sqrt(np.average((gain - mean) ** 2, weights=count) / count.sum()))
    return mean > max(_MARGIN, _ERRORS * spread)


class _Known(NamedTuple):
    """Mean, unit and limits of covariates, each of shape (p,)."""

    centre: Array
    spread: Array  # One for eigenfunctions, which need no scaling.
    low: Array
    high: Array


class _Rows(NamedTuple):
    """Rows to which log factors are fitted."""

    q: Array  # Squared residuals in units of their predicted variances.
    covariates: Array
    weight: Array
    n_local: int

    def picked(self, own: NDArray[np.bool_]) -> _Rows:
        """Return some rows."""
        return _Rows(self.q[own], self.covariates[own], self.weight[own], self.n_local)

    def measure(self) -> _Known:
        """Measure the covariates of weighted rows."""
        n_local, p = self.n_local, self.covariates.shape[1]
        centre, spread = np.average(self.covariates, axis=0, weights=self.weight), np.ones(p)
        around = (self.covariates[:, :n_local] - centre[:n_local]) ** 2
        root = np.sqrt(np.average(around, axis=0, weights=self.weight))
        spread[:n_local] = np.maximum(root, _LEAST_SPREAD)
        limits = map_in_threads(
            lambda own: np.quantile(self.covariates[:, own], _KNOWN, 0),
            [slice(i, i + _COLUMNS) for i in range(0, p, _COLUMNS)],
        )
        return _Known(centre, spread, *np.hstack(limits))


def _fit_scale(
    rows: _Rows, known: _Known, sets: list[slice], start: VarianceScale | None = None
) -> VarianceScale:
    """Fit a log factor to each set of covariates."""
    p = rows.covariates.shape[1]
    intercept, slopes = np.zeros(len(sets)), np.zeros((p, len(sets)))
    for c, own in enumerate(sets):
        spread = known.spread[own]
        design = np.ones((rows.q.size, 1 + spread.size))
        design[:, 1:] = (rows.covariates[:, own] - known.centre[own]) / spread
        beta = np.zeros(design.shape[1])
        beta[0] = np.log(max(float(np.average(rows.q, weights=rows.weight)), _LEAST_MEAN))
        if start is not None:
            beta[0], beta[1:] = start.intercept[c], start.slopes[own, c] * spread
        beta = _minimize(rows.q, rows.weight, design, beta)
        intercept[c], slopes[own, c] = beta[0], beta[1:] / spread
    return VarianceScale(intercept, slopes, known.centre, known.low, known.high)


def _minimize(q: Array, count: Array, design: Array, beta: Array) -> Array:
    """Minimise `½ Σ (η + q e^{−η}) + ½ ridge Σ β²` by Newton's method."""
    ridge = np.full(design.shape[1], _RIDGE_PER_ROW * float(count.sum()))
    ridge[0] = _LEAST_RIDGE

    def value(at: Array) -> tuple[float, Array]:
        eta = design @ at
        with np.errstate(over="ignore", invalid="ignore"):  # A step that is too long is halved.
            q_scaled = q * np.exp(-eta)
            return 0.5 * float(count @ (eta + q_scaled) + ridge @ at**2), q_scaled

    def bend(rows: slice) -> Array:
        root = np.sqrt(0.5 * count[rows] * np.maximum(weight[rows], _LEAST_WEIGHT))
        scaled = design[rows] * root[:, None]
        return scaled.T @ scaled

    now, weight = value(beta)
    chunks = [slice(i, i + _CHUNK) for i in range(0, q.size, _CHUNK)]
    for _ in range(_MOST_STEPS):
        slope = 0.5 * design.T @ (count * (1.0 - weight)) + ridge * beta
        hessian = sum(map_in_threads(bend, chunks)) + np.diag(ridge)
        step = np.linalg.solve(hessian, slope)
        length = 1.0
        while not (found := value(beta - length * step))[0] <= now and length > _SHORTEST:
            length *= 0.5
        if not found[0] < now - _ENOUGH * float(count.sum()):
            break
        beta, (now, weight) = beta - length * step, found
    return beta
