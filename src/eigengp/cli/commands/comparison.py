"""The cross-validation behind `compare`: methods, baselines and scores."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Sequence
from statistics import fmean
from typing import Any, Self

import numpy as np
from rich.console import Console
from rich.progress import track
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold, cross_val_predict, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from eigengp import metrics
from eigengp._typing import Array
from eigengp.cli.commands.compare import LEVEL
from eigengp.cli.commands.methods import METHODS, build_model
from eigengp.cli.commands.session import Session
from eigengp.cli.commands.training import TrainingData
from eigengp.data.frames import encoded_inputs

_SCORING = {
    "nmse": metrics.nmse_scorer,
    "rmse": "neg_root_mean_squared_error",
    "mnlp": metrics.mnlp_scorer,
    "crps": metrics.crps_scorer,
    "coverage": metrics.make_probabilistic_scorer(metrics.coverage, level=LEVEL),
}
_FOLDS = 5  # The number of folds that give the error bar of a baseline.


# scikit-learn ships no types, so its classes are Any to mypy.
class ConstantErrorBar(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Give a regressor the same error bar for all rows: its cross-validated error.

    Parameters
    ----------
    estimator : estimator
        Predicts the means.

    Examples
    --------
    >>> model = ConstantErrorBar(DummyRegressor()).fit([[0.0]] * 2, [1.0, 3.0])
    >>> model.predict([[0.0]], return_std=True)
    (array([2.]), array([2.]))
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the means to all rows, and the error bar by cross-validation."""
        targets = np.asarray(y, dtype=np.float64)
        folds = KFold(min(_FOLDS, targets.size))
        errors = targets - cross_val_predict(self.estimator, X, targets, cv=folds)
        self.std_ = float(np.sqrt(np.mean(errors**2)))
        self.estimator_ = clone(self.estimator).fit(X, targets)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return means, and standard deviations with `return_std`."""
        mean: Array = self.estimator_.predict(X)
        return (mean, np.full(mean.shape, self.std_)) if return_std else mean


def cross_validate_methods(
    out: Session,
    training: TrainingData,
    names: Sequence[str],
    rows: int,
    folds: int,
    components: int,
    seed: int,
) -> tuple[list[dict[str, Any]], int]:
    """Return the scores of each method on each fold, the smallest squared error first.

    A method that fails has the key "error" instead. Also returns the number of sampled rows.
    """
    X, y, _ = training.rows
    if len(y) > rows:
        out.note(f"A sample of {rows:,} of {len(y):,} rows is used; --rows changes its size.")
        chosen = np.sort(np.random.RandomState(seed).permutation(len(y))[:rows])
        X, y = X[chosen], y[chosen]
    results: list[dict[str, Any]] = []
    bar: dict[str, Any] = {
        "console": Console(stderr=True),
        "transient": True,
        "disable": out.verbose != 1,
    }
    for name in track(names, "Methods", **bar):
        try:
            with warnings.catch_warnings(), encoded_inputs(training.schema.encoder):
                warnings.simplefilter("ignore")
                own = _score(_build(name, components, seed), X, y, folds, seed)
        except (ValueError, ArithmeticError, MemoryError) as error:
            own = {"error": " ".join(str(error).split())}
            out.note(f"{name} failed: {own['error']}")
        results.append({"name": name, **own})
        if out.verbose == 2:  # There is no terminal, and no bar.
            print(f"{len(results)} of {len(names)} methods: {name}", file=sys.stderr)
    return sorted(results, key=lambda each: fmean(each.get("nmse", [math.inf]))), len(y)


def _build(name: str, components: int, seed: int) -> Any:
    baselines = {
        "mean": DummyRegressor(),
        "linear": make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3.0, 3.0, 13))),
        "boosting": HistGradientBoostingRegressor(random_state=seed),
    }
    if name in baselines:
        return ConstantErrorBar(baselines[name])
    model = build_model(METHODS[name], seed)
    sized = name != "auto" and "n_components" in model.get_params()
    return model.set_params(n_components=components) if sized else model


def _score(estimator: Any, X: Array, y: Array, folds: int, seed: int) -> dict[str, Any]:
    """Return the scores of each fold, and the mean seconds of a fit."""
    cv = KFold(folds, shuffle=True, random_state=seed)
    found = cross_validate(estimator, X, y, scoring=_SCORING, cv=cv, error_score="raise")
    signs = {name: 1.0 if name == "coverage" else -1.0 for name in _SCORING}
    scores = {name: (sign * found[f"test_{name}"]).tolist() for name, sign in signs.items()}
    return {"seconds": float(found["fit_time"].mean()), **scores}
