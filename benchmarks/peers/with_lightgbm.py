"""LightGBM: boosted trees with default settings, stopped early on held-out rows.

Trees have no density of their own; the error on the held-out rows is the variance everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator

import lightgbm
import numpy as np
from timing import Array

from peers.protocol import Prediction, Record, Request, Trace, prediction_speeds, serve

MOST_TREES, PATIENCE, HELD_OUT = 10_000, 50, 0.1


def boosted(X: Array, y: Array) -> tuple[lightgbm.LGBMRegressor, float]:
    """Return the model, and its mean squared error on the held-out rows."""
    order = np.random.default_rng(0).permutation(y.size)
    held, kept = np.split(order, [round(HELD_OUT * y.size)])
    model = lightgbm.LGBMRegressor(n_estimators=MOST_TREES, random_state=0, verbose=-1)
    stop = lightgbm.early_stopping(PATIENCE, verbose=False)
    model.fit(X[kept], y[kept], eval_set=[(X[held], y[held])], callbacks=[stop])
    return model, float(np.mean((y[held] - model.predict(X[held])) ** 2))


def fit(request: Request) -> Iterator[Record]:
    trace = Trace(request, "")
    model, variance = boosted(*request.rows)

    def predict(X_new: Array) -> Prediction:
        return model.predict(X_new), np.full(X_new.shape[0], variance)

    yield from trace.end(int(model.best_iteration_), predict)


def predict(request: Request) -> Iterator[Record]:
    model, _ = boosted(*request.rows)
    yield from prediction_speeds(request, {("", "mean"): model.predict})


if __name__ == "__main__":
    serve(["lightgbm", "scikit-learn"], fit=fit, predict=predict)
