"""XGBoost: boosted trees, stopped early on held-out rows."""

from __future__ import annotations

from collections.abc import Iterator

import xgboost

from peers.boosting import MOST_TREES, PATIENCE, RATE, Rows, fit_boosted
from peers.protocol import Record, Request, serve


def boost(kept: Rows, held: Rows) -> tuple[xgboost.XGBRegressor, int]:
    model = xgboost.XGBRegressor(
        n_estimators=MOST_TREES,
        learning_rate=RATE,
        early_stopping_rounds=PATIENCE,
        random_state=0,
    )
    model.fit(*kept, eval_set=[held], verbose=False)
    return model, int(model.best_iteration)


def fit(request: Request) -> Iterator[Record]:
    yield from fit_boosted(request, "", boost)


if __name__ == "__main__":
    serve(["xgboost", "scikit-learn"], fit=fit)
