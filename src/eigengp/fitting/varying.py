"""Learning how the noise varies, from rows that were left out one by one.

With `q = r²/v`, the squared errors in units of their variances, `η` minimises
`½ Σ (η + q e^{−η})` and a ridge on the slopes, which is convex; every row
counts as often as it weighs. Several sets of signs compete with one factor for
all variances by the density of rows that were not used, and must be clearly
better.

Rows tell little of rare surprises, and one that was thought impossible costs
more than all the others gain. The largest squared error is therefore taken to
come once more, anywhere: spread over all rows it is the floor below which no
variance falls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from eigengp.flow.variance import VarianceScale
from eigengp.typing import Array

_FOLDS = 5
_MARGIN = 0.01
_KNOWN = (0.005, 0.995)
"""Between these quantiles of the rows' signs a sign is known."""
_LEAST_SPREAD = 1e-3
_MOST_STEPS = 50
_LEAST_WEIGHT = 0.05
"""Curvature that rows without error are taken to have, so that steps stay short."""
_LEAST_MEAN = 1e-12
_LEAST_RIDGE = 1e-6
_SHORTEST = 1e-4
_ENOUGH = 1e-6


@dataclass(frozen=True)
class Candidate:
    """Some signs, and how strongly their slopes are held."""

    name: str
    columns: slice | None
    """Which signs may matter beside the constant; None for none of them."""
    ridge: float


def candidates(n_local: int) -> tuple[Candidate, ...]:
    """Return what competes, where the first so many signs are not eigenfunctions."""
    return (
        Candidate("constant", None, 1.0),
        Candidate("local", slice(0, n_local), 3.0),
        Candidate("eigenfunctions", slice(n_local, None), 3.0),
        Candidate("both", slice(0, None), 30.0),
    )


@dataclass(frozen=True)
class Varying:
    """What was learned, and what each candidate reached."""

    name: str
    scale: VarianceScale
    losses: dict[str, float]
    """Mean negative log density of rows not used, by candidate, without constants."""


def learn_varying(
    errors: Array, variance: Array, signs: Array, n_local: int, weight: Array | None = None
) -> Varying:
    """Return the best of the candidates, learned on all rows.

    Parameters
    ----------
    errors : array of shape (n,)
        Of rows that were left out.
    variance : array of shape (n,)
        What they were predicted to have.
    signs : array of shape (n, p)
        See `eigengp.flow.variance.signs`.
    n_local : int
        How many of them are not eigenfunctions.
    weight : array of shape (n,) or None
        How many times each row counts; None is once.
    """
    squares = errors**2
    count = np.ones_like(squares) if weight is None else weight
    floor = float(np.max(count * squares) / count.sum())
    fold = np.arange(squares.size) % _FOLDS
    losses, scales = {}, {}
    for each in candidates(n_local):
        loss = 0.0
        for k in range(_FOLDS):
            seen, new = fold != k, fold == k
            q = squares[seen] / variance[seen]
            scale = _fitted(q, signs[seen], count[seen], n_local, each)
            scaled = replace(scale, floor=floor)(variance[new], signs[new])
            loss += 0.5 * float(count[new] @ (np.log(scaled) + squares[new] / scaled))
        losses[each.name] = loss / float(count.sum())
        learned = _fitted(squares / variance, signs, count, n_local, each)
        scales[each.name] = replace(learned, floor=floor)
    best = min(losses, key=lambda name: losses[name] + (_MARGIN if name != "constant" else 0.0))
    return Varying(best, scales[best], losses)


def _fitted(
    q: Array, signs: Array, count: Array, n_local: int, candidate: Candidate
) -> VarianceScale:
    """Return what one candidate learns; eigenfunctions are in units of the prior already."""
    p = signs.shape[1]
    used = np.arange(p)[candidate.columns] if candidate.columns is not None else np.arange(0)
    centre, spread = np.average(signs, axis=0, weights=count), np.ones(p)
    around = np.average((signs[:, :n_local] - centre[:n_local]) ** 2, axis=0, weights=count)
    spread[:n_local] = np.maximum(np.sqrt(around), _LEAST_SPREAD)
    design = np.column_stack([np.ones(q.size), (signs - centre)[:, used] / spread[used]])
    beta = _minimum(q, count, design, candidate.ridge)
    slopes = np.zeros(p)
    slopes[used] = beta[1:]
    low, high = np.quantile(signs, _KNOWN, axis=0)
    return VarianceScale(float(beta[0]), slopes, centre, spread, low, high)


def _minimum(q: Array, count: Array, design: Array, ridge: float) -> Array:
    """Return where `½ Σ (η + q e^{−η}) + ½ ridge Σ β²` is least, by Newton's method."""
    held = np.full(design.shape[1], ridge)
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
