"""Learning how the noise varies, from rows that were left out one by one.

With `q = r²/v`, the squared errors in units of their variances, `η` minimises
`½ Σ (η + q e^{−η})` and a ridge on the slopes, which is convex. Several sets of
signs compete with a constant by the density of rows that were not used; a
constant wins ties.

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


def learn_varying(errors: Array, variance: Array, signs: Array, n_local: int) -> Varying:
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
    """
    squares = errors**2
    floor = float(squares.max()) / squares.size
    fold = np.arange(squares.size) % _FOLDS
    losses, scales = {}, {}
    for each in candidates(n_local):
        loss = 0.0
        for k in range(_FOLDS):
            seen, new = fold != k, fold == k
            scale = _fitted(squares[seen] / variance[seen], signs[seen], n_local, each)
            scaled = replace(scale, floor=floor)(variance[new], signs[new])
            loss += 0.5 * float(np.sum(np.log(scaled) + squares[new] / scaled))
        losses[each.name] = loss / squares.size
        scales[each.name] = replace(_fitted(squares / variance, signs, n_local, each), floor=floor)
    best = min(losses, key=lambda name: losses[name])
    return Varying(best, scales[best], losses)


def _fitted(q: Array, signs: Array, n_local: int, candidate: Candidate) -> VarianceScale:
    """Return the minimum of `½ Σ (η + q e^{−η}) + ½ ridge Σ β²`, by Newton's method.

    Local signs are standardised; eigenfunctions are in units of the prior already.
    """
    p = signs.shape[1]
    used = np.arange(p)[candidate.columns] if candidate.columns is not None else np.arange(0)
    centre, spread = signs.mean(axis=0), np.ones(p)
    spread[:n_local] = np.maximum(signs[:, :n_local].std(axis=0), 1e-12)
    design = np.column_stack([np.ones(q.size), (signs - centre)[:, used] / spread[used]])
    held = np.full(design.shape[1], candidate.ridge)
    held[0] = _LEAST_RIDGE
    beta = np.zeros(design.shape[1])
    beta[0] = np.log(max(float(q.mean()), _LEAST_MEAN))

    def value(at: Array) -> float:
        eta = design @ at
        return 0.5 * float(np.sum(eta + q * np.exp(-eta)) + held @ at**2)

    now = value(beta)
    for _ in range(_MOST_STEPS):
        weight = q * np.exp(-(design @ beta))
        slope = 0.5 * design.T @ (1.0 - weight) + held * beta
        curvature = 0.5 * (design * np.maximum(weight, _LEAST_WEIGHT)[:, None]).T @ design
        step = np.linalg.solve(curvature + np.diag(held), slope)
        length = 1.0
        while value(beta - length * step) > now and length > _SHORTEST:
            length *= 0.5
        after = value(beta - length * step)
        if not after < now - _ENOUGH * q.size:
            break
        beta, now = beta - length * step, after
    slopes = np.zeros(p)
    slopes[used] = beta[1:]
    return VarianceScale(float(beta[0]), slopes, centre, spread)
