"""The full GP on a part of the rows: where other methods may begin."""

from __future__ import annotations

import numpy as np
from sklearn.utils.random import sample_without_replacement

from eigengp.fitting.families import ExactFamily
from eigengp.fitting.learning import Learner
from eigengp.fitting.plan import Plan
from eigengp.fitting.progress import Monitor
from eigengp.flow.exact import ExactGP
from eigengp.flow.sums import RowSource
from eigengp.sources.arrays import ArraySource

EXACT_BLOCK_ROWS = 128
"""Rows in a block of the full GP: with N columns each, small blocks keep memory near N²."""
SUBSET_RANGE = (500, 2_000)
_RESTARTS = 8
_ITERATIONS = 100
_TOL = 1e-8


def subset_size(n_rows: int) -> int:
    """Return a tenth of the rows, within what pays and what is quick."""
    low, high = SUBSET_RANGE
    return min(n_rows, max(low, min(high, n_rows // 10)))


def exact_on_subset(
    template: ExactGP,
    source: RowSource,
    count: int,
    monitor: Monitor,
    rng: np.random.RandomState,
) -> tuple[ExactGP, int]:
    """Return the full GP learned on `count` rows drawn at random, and its iterations.

    Parameters
    ----------
    template : ExactGP
        Kernel and noise to start from.
    source : RowSource
        Standardised rows.
    count : int
        How many of them.
    monitor : Monitor
        Told of every iteration.
    rng : RandomState
        Draws the rows and makes the starts.
    """
    chosen = sample_without_replacement(source.n_rows, count, random_state=rng)
    rows = source.take(np.sort(chosen))
    part = ArraySource(rows.X, rows.y, rows.sample_weight, EXACT_BLOCK_ROWS)
    plan = Plan(count, count, _RESTARTS, _ITERATIONS, _TOL)
    learner = Learner(ExactFamily(), plan, part, monitor, rng)
    return learner.learn(template), learner.n_iter
