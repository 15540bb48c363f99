"""Heteroscedastic noise, fitted to leave-one-out residuals.

With `q = r²/v`, the squared residuals in units of their predicted variances, the log factor `η`
minimises `½ Σ (η + q e^{−η})` plus a ridge penalty on the slopes, which is convex; rows count by
their sample weights. A constant factor and several sets of covariates compete by cross-validated
log density. The best must clearly improve on the variances of the model.

Training rows show few outliers, and one outlier with a tiny variance costs more than all other
rows gain. The mean share of the largest squared error is therefore a floor of all variances.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eigengp._typing import Array
from eigengp.gp.heteroscedastic import VarianceScale

OF_THE_MODEL = "model variance"
"""The variances of the model itself."""
_FOLDS = 5
_MARGIN = 0.01
_ERRORS = 2.0
"""The required improvement in nats per row, and in standard errors."""
_KNOWN = (0.005, 0.995)
"""Covariates are clipped at these quantiles of the training rows."""
_LEAST_SPREAD = 1e-3
_MOST_STEPS = 50
_LEAST_WEIGHT = 0.05
"""The least curvature of a row, which keeps steps short where residuals are zero."""
_LEAST_MEAN = 1e-12
_RIDGE_PER_ROW = 1e-3
"""The ridge penalty per row, so that its effect does not depend on the number of rows."""
_LEAST_RIDGE = 1e-6
_SHORTEST = 1e-4
_ENOUGH = 1e-6


def list_candidates(n_local: int, n_covariates: int) -> dict[str, tuple[slice, ...]]:
    """Return the candidate sets of covariates; the first `n_local` are not eigenfunctions.

    Neighbours are informative, but their errors are correlated. The candidate with neighbours
    therefore averages two variance models, with and without them.
    """
    eigenfunctions = slice(n_local, n_covariates)
    found: dict[str, tuple[slice, ...]] = {
        "constant": (slice(0, 0),),
        "eigenfunctions": (eigenfunctions,),
    }
    if n_local > 1:
        found["neighbors"] = (eigenfunctions, slice(0, n_covariates))
    return found


@dataclass(frozen=True)
class FittedVariance:
    """The chosen variance model, and the losses of all candidates."""

    name: str
    scale: VarianceScale | None
    """None if the variances of the model are best."""
    losses: dict[str, float]
    """Cross-validated mean negative log density of each candidate, without constants."""
    errors: Array
    """Absolute errors in units of cross-validated standard deviations, shape (n,)."""


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
    floor = float(np.max(count * squares) / count.sum())
    fold = (np.arange(squares.size) if number is None else number) % _FOLDS
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
    """Return whether a loss is lower than another, beyond the influence of single rows."""
    gain = other - loss
    mean = float(np.average(gain, weights=count))
    spread = float(np.sqrt(np.average((gain - mean) ** 2, weights=count) / count.sum()))
    return mean > max(_MARGIN, _ERRORS * spread)


def _fit_scale(
    q: Array, covariates: Array, count: Array, n_local: int, sets: tuple[slice, ...]
) -> VarianceScale:
    """Fit the coefficients of a candidate; eigenfunctions need no scaling."""
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
    """Minimise `½ Σ (η + q e^{−η}) + ½ ridge Σ β²` by Newton's method."""
    ridge = np.full(design.shape[1], _RIDGE_PER_ROW * float(count.sum()))
    ridge[0] = _LEAST_RIDGE
    beta = np.zeros(design.shape[1])
    beta[0] = np.log(max(float(np.average(q, weights=count)), _LEAST_MEAN))

    def value(at: Array) -> float:
        eta = design @ at
        return 0.5 * float(count @ (eta + q * np.exp(-eta)) + ridge @ at**2)

    now = value(beta)
    for _ in range(_MOST_STEPS):
        weight = q * np.exp(-(design @ beta))
        slope = 0.5 * design.T @ (count * (1.0 - weight)) + ridge * beta
        bend = count * np.maximum(weight, _LEAST_WEIGHT)
        curvature = 0.5 * (design * bend[:, None]).T @ design
        step = np.linalg.solve(curvature + np.diag(ridge), slope)
        length = 1.0
        while value(beta - length * step) > now and length > _SHORTEST:
            length *= 0.5
        after = value(beta - length * step)
        if not after < now - _ENOUGH * float(count.sum()):
            break
        beta, now = beta - length * step, after
    return beta
