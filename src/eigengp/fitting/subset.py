"""The full GP on a part of the rows: where other methods may begin."""

from __future__ import annotations

import numpy as np

from eigengp.backend.threads import few_threads
from eigengp.data.array_source import ArraySource
from eigengp.data.summary import Extent
from eigengp.data.views import sample_rows
from eigengp.fitting.families import ExactFamily
from eigengp.fitting.progress import Monitor
from eigengp.fitting.settings import Plan
from eigengp.fitting.stages import Learner
from eigengp.gp.blocks import RowSource
from eigengp.gp.exact import ExactGP

EXACT_BLOCK_ROWS = 128
"""Rows in a block of the full GP: with N columns each, small blocks keep memory near N²."""
SUBSET_RANGE = (500, 2_000)


def subset_plan(n_rows: int) -> Plan:
    """Return the plan for a tenth of the rows, within what pays and what is quick."""
    low, high = SUBSET_RANGE
    count = min(n_rows, max(low, min(high, n_rows // 10)))
    return Plan(count, count, n_restarts=8, max_iter=100, tol=1e-8)


def exact_on_subset(
    template: ExactGP,
    source: RowSource,
    plan: Plan,
    monitor: Monitor,
    rng: np.random.RandomState,
) -> tuple[ExactGP, int]:
    """Return the full GP learned on rows drawn at random, and its iterations.

    Parameters
    ----------
    template : ExactGP
        Kernel and noise to start from.
    source : RowSource
        Standardised rows.
    plan : Plan
        How to learn; its `n_inducing` says on how many rows.
    monitor : Monitor
        Told of every iteration.
    rng : RandomState
        Draws the rows and makes the starts.
    """
    count = plan.n_inducing
    rows = sample_rows(source, count, rng)
    part = ArraySource(rows.X, rows.y, rows.sample_weight, EXACT_BLOCK_ROWS)
    learner = Learner(ExactFamily(), plan, part, monitor, rng, Extent.around(rows.X))
    with few_threads(count):
        return learner.learn(template), learner.n_iter
