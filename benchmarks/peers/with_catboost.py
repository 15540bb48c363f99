"""CatBoost: boosted trees, stopped early on held-out rows.

The second variant also learns a variance for each row, with the loss RMSEWithUncertainty.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import catboost
from timing import Array

from peers.boosting import MOST_TREES, PATIENCE, RATE, Rows, fit_boosted, held_out
from peers.protocol import Prediction, Record, Request, Trace, serve


def boost(kept: Rows, held: Rows, **settings: Any) -> tuple[catboost.CatBoostRegressor, int]:
    model = catboost.CatBoostRegressor(
        iterations=MOST_TREES,
        learning_rate=RATE,
        random_seed=0,
        verbose=False,
        allow_writing_files=False,
        **settings,
    )
    model.fit(*kept, eval_set=held, early_stopping_rounds=PATIENCE)
    return model, int(model.get_best_iteration())


def fit(request: Request) -> Iterator[Record]:
    yield from fit_boosted(request, "", boost)
    trace = Trace(request, "RMSEWithUncertainty")
    model, trees = boost(*held_out(*request.rows), loss_function="RMSEWithUncertainty")

    def predict(X_new: Array) -> Prediction:
        mean, variance = model.predict(X_new).T
        return mean, variance

    yield from trace.end(trees, predict)


if __name__ == "__main__":
    serve(["catboost"], fit=fit)
