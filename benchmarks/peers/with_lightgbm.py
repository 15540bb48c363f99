"""LightGBM: boosted trees, stopped early on held-out rows."""

from __future__ import annotations

from collections.abc import Iterator

import lightgbm

from peers.boosting import MOST_TREES, PATIENCE, RATE, Rows, fit_boosted, held_out
from peers.protocol import Record, Request, prediction_speeds, serve


def boost(kept: Rows, held: Rows) -> tuple[lightgbm.LGBMRegressor, int]:
    model = lightgbm.LGBMRegressor(
        n_estimators=MOST_TREES, learning_rate=RATE, random_state=0, verbose=-1
    )
    stop = lightgbm.early_stopping(PATIENCE, verbose=False)
    model.fit(*kept, eval_set=[held], callbacks=[stop])
    return model, int(model.best_iteration_)


def fit(request: Request) -> Iterator[Record]:
    yield from fit_boosted(request, "", boost)


def predict(request: Request) -> Iterator[Record]:
    model, _ = boost(*held_out(*request.rows))
    yield from prediction_speeds(request, {("", "mean"): model.predict})


if __name__ == "__main__":
    serve(["lightgbm", "scikit-learn"], fit=fit, predict=predict)
