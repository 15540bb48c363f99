"""Learning how the noise varies, from rows that were left out one by one.

With `q = r²/v`, the squared errors in units of their variances, `η` minimises
`½ Σ (η + q e^{−η})` and a ridge on the slopes, which is convex; every row
counts as often as it weighs. One factor for all variances, and several sets of
covariates, compete by the density of rows that were not used, and must be clearly
better than the variances of the model itself.

Rows tell little of rare surprises, and one that was thought impossible costs
more than all the others gain. The largest squared error is therefore taken to
come once more, anywhere: spread over all rows it is the floor below which no
variance falls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from eigengp._typing import Array
from eigengp.gp.heteroscedastic import VarianceScale

OF_THE_MODEL = "model variance"
"""The variances of the model itself."""
_FOLDS = 5
_MARGIN = 0.01
_ERRORS = 2.0
"""How much better than the model itself they must be: so much, and so many standard errors."""
_KNOWN = (0.005, 0.995)
"""Between these quantiles of the rows' covariates a sign is known."""
_LEAST_SPREAD = 1e-3
_MOST_STEPS = 50
_LEAST_WEIGHT = 0.05
"""Curvature that rows without error are taken to have, so that steps stay short."""
_LEAST_MEAN = 1e-12
_RIDGE_PER_ROW = 1e-3
"""What a slope of one costs, twice, for each row: it must pay however many rows there are."""
_LEAST_RIDGE = 1e-6
_SHORTEST = 1e-4
_ENOUGH = 1e-6


def list_candidates(n_local: int, n_signs: int) -> dict[str, tuple[slice, ...]]:
    """Return which sets of covariates compete, where the first so many are not eigenfunctions.

    Neighbours tell much, and are at times wrong together; beside them what the
    eigenfunctions say alone has half of the say.
    """
    eigenfunctions = slice(n_local, n_signs)
    found: dict[str, tuple[slice, ...]] = {
        "constant": (slice(0, 0),),
        "eigenfunctions": (eigenfunctions,),
    }
    if n_local > 1:
        found["neighbors"] = (eigenfunctions, slice(0, n_signs))
    return found


@dataclass(frozen=True)
class FittedVariance:
    """What was learned, and what each candidate reached."""

    name: str
    scale: VarianceScale | None
    """None where variances are best as the model has them."""
    losses: dict[str, float]
    """Mean negative log density of rows not used, by candidate, without constants."""
    errors: Array
    """Errors of the rows in standard deviations that were learned without them, shape (n,)."""


def fit_heteroscedastic(
    errors: Array, variance: Array, covariates: Array, n_local: int, weight: Array | None = None
) -> FittedVariance:
    """Return the best of the candidates, learned on all rows.

    Parameters
    ----------
    errors : array of shape (n,)
        Of rows that were left out.
    variance : array of shape (n,)
        What they were predicted to have.
    covariates : array of shape (n, p)
        See `eigengp.gp.heteroscedastic.covariates`.
    n_local : int
        How many of them are not eigenfunctions.
    weight : array of shape (n,) or None
        How many times each row counts; None is once.
    """
    squares = errors**2
    count = np.ones_like(squares) if weight is None else weight
    floor = float(np.max(count * squares) / count.sum())
    fold = np.arange(squares.size) % _FOLDS
    q = squares / variance
    unseen = {OF_THE_MODEL: variance}
    sets = list_candidates(n_local, covariates.shape[1])
    for name, each in sets.items():
        scaled = np.empty_like(variance)
        for k in range(_FOLDS):
            seen, new = fold != k, fold == k
            scale = _fit_scale(q[seen], covariates[seen], count[seen], n_local, each)
            scaled[new] = replace(scale, floor=floor)(variance[new], covariates[new])
        unseen[name] = scaled
    each_row = {name: 0.5 * (np.log(v) + squares / v) for name, v in unseen.items()}
    losses = {name: float(np.average(loss, weights=count)) for name, loss in each_row.items()}
    best = min(losses, key=lambda name: losses[name])
    if not _is_clearly_less(each_row[best], each_row[OF_THE_MODEL], count):
        best = OF_THE_MODEL
    in_deviations = np.abs(errors) / np.sqrt(unseen[best])
    if best == OF_THE_MODEL:
        return FittedVariance(best, None, losses, in_deviations)
    learned = _fit_scale(q, covariates, count, n_local, sets[best])
    return FittedVariance(best, replace(learned, floor=floor), losses, in_deviations)


def _is_clearly_less(loss: Array, other: Array, count: Array) -> bool:
    """Say whether a loss is less than another, beyond what single rows can make of it."""
    gain = other - loss
    mean = float(np.average(gain, weights=count))
    spread = float(np.sqrt(np.average((gain - mean) ** 2, weights=count) / gain.size))
    return mean > max(_MARGIN, _ERRORS * spread)


def _fit_scale(
    q: Array, covariates: Array, count: Array, n_local: int, sets: tuple[slice, ...]
) -> VarianceScale:
    """Return what a candidate learns; eigenfunctions are in units of the prior already."""
    p = covariates.shape[1]
    centre, spread = np.average(covariates, axis=0, weights=count), np.ones(p)
    around = np.average((covariates[:, :n_local] - centre[:n_local]) ** 2, axis=0, weights=count)
    spread[:n_local] = np.maximum(np.sqrt(around), _LEAST_SPREAD)
    intercept, slopes = np.zeros(len(sets)), np.zeros((p, len(sets)))
    for c, each in enumerate(sets):
        used = np.arange(p)[each]
        design = np.column_stack([np.ones(q.size), (covariates - centre)[:, used] / spread[used]])
        beta = _minimize(q, count, design)
        intercept[c], slopes[used, c] = beta[0], beta[1:] / spread[used]
    low, high = np.quantile(covariates, _KNOWN, axis=0)
    return VarianceScale(intercept, slopes, centre, low, high)


def _minimize(q: Array, count: Array, design: Array) -> Array:
    """Return where `½ Σ (η + q e^{−η}) + ½ ridge Σ β²` is least, by Newton's method."""
    held = np.full(design.shape[1], _RIDGE_PER_ROW * float(count.sum()))
    held[0] = _LEAST_RIDGE
    beta = np.zeros(design.shape[1])
    beta[0] = np.log(max(float(np.average(q, weights=count)), _LEAST_MEAN))

    def value(at: Array) -> float:
        eta = design @ at
        return 0.5 * float(count @ (eta + q * np.exp(-eta)) + held @ at**2)

    now = value(beta)
    for _ in range(_MOST_STEPS):
        weight = q * np.exp(-(design @ beta))
        slope = 0.5 * design.T @ (count * (1.0 - weight)) + held * beta
        bend = count * np.maximum(weight, _LEAST_WEIGHT)
        curvature = 0.5 * (design * bend[:, None]).T @ design
        step = np.linalg.solve(curvature + np.diag(held), slope)
        length = 1.0
        while value(beta - length * step) > now and length > _SHORTEST:
            length *= 0.5
        after = value(beta - length * step)
        if not after < now - _ENOUGH * float(count.sum()):
            break
        beta, now = beta - length * step, after
    return beta
