"""Boosted trees with early stopping, the same for every library.

A tenth of the training rows decides when to stop. Trees have no density of their own; unless the
library has one, the error on these rows is the variance everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from timing import Array

from peers.protocol import Prediction, Record, Request, Trace

MOST_TREES, PATIENCE, HELD_OUT, RATE = 10_000, 50, 0.1, 0.05
Rows = tuple[Array, Array]


def held_out(X: Array, y: Array) -> tuple[Rows, Rows]:
    """Return the rows to learn from, and those that decide when to stop."""
    order = np.random.default_rng(0).permutation(y.size)
    held, kept = np.split(order, [round(HELD_OUT * y.size)])
    return (X[kept], y[kept]), (X[held], y[held])


def fit_boosted(
    request: Request, variant: str, boost: Callable[[Rows, Rows], tuple[Any, int]]
) -> Iterator[Record]:
    """Fit and score; `boost` returns a predictor and its number of trees."""
    trace = Trace(request, variant)
    kept, held = held_out(*request.rows)
    model, trees = boost(kept, held)
    variance = float(np.mean((held[1] - model.predict(held[0])) ** 2))

    def predict(X_new: Array) -> Prediction:
        return np.asarray(model.predict(X_new)), np.full(X_new.shape[0], variance)

    yield from trace.end(trees, predict)
