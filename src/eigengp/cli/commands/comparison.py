"""The cross-validation behind `compare`: methods, baselines and scores."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Self

import numpy as np
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
from eigengp.cli.commands.methods import METHODS, Name
from eigengp.cli.commands.session import Session
from eigengp.data.frames import encoded_inputs

_SCORING = {
    "nmse": metrics.nmse_scorer,
    "rmse": "neg_root_mean_squared_error",
    "mnlp": metrics.mnlp_scorer,
    "crps": metrics.crps_scorer,
    "coverage": metrics.make_probabilistic_scorer(metrics.coverage, level=LEVEL),
}


# scikit-learn ships no types, so its classes are Any to mypy.
class ConstantErrorBar(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Give a regressor the same error bar for all rows: its cross-validated error.

    Parameters
    ----------
    estimator : estimator
        Predicts the means.
    n_folds : int
        Number of folds.

    Examples
    --------
    >>> model = ConstantErrorBar(DummyRegressor(), n_folds=2)
    >>> mean, std = model.fit([[0.0]] * 4, [1.0, 3.0, 1.0, 3.0]).predict([[0.0]], return_std=True)
    >>> mean, std
    (array([2.]), array([1.]))
    """

    def __init__(self, estimator: Any, n_folds: int = 5) -> None:
        self.estimator = estimator
        self.n_folds = n_folds

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the means to all rows, and the error bar by cross-validation."""
        targets = np.asarray(y, dtype=np.float64)
        folds = KFold(min(self.n_folds, targets.size))
        errors = targets - cross_val_predict(self.estimator, X, targets, cv=folds)
        self.std_ = float(np.sqrt(np.mean(errors**2)))
        self.estimator_ = clone(self.estimator).fit(X, targets)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return means, and standard deviations with `return_std`."""
        mean: Array = self.estimator_.predict(X)
        return (mean, np.full(mean.shape, self.std_)) if return_std else mean


@dataclass(frozen=True)
class CrossValidation:
    """A cross-validation of several methods on the same folds."""

    X: Array
    y: Array
    folds: int
    components: int
    seed: int
    encoder: Any

    def run(
        self, names: list[str], step: Callable[[str], None], out: Session
    ) -> list[dict[str, Any]]:
        """Return the scores of each method on each fold, the smallest squared error first.

        A method that fails has the key "error" instead.
        """
        results: list[dict[str, Any]] = []
        for name in names:
            step(name)
            try:
                results.append({"name": name, **self._score(self._build(name))})
            except (ValueError, ArithmeticError, MemoryError) as error:
                results.append({"name": name, "error": " ".join(str(error).split())})
                out.note(f"{name} failed: {results[-1]['error']}")
        return sorted(results, key=lambda each: fmean(each.get("nmse", [math.inf])))

    def _build(self, name: str) -> Any:
        baselines = {
            "mean": DummyRegressor(),
            "linear": make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3.0, 3.0, 13))),
            "boosting": HistGradientBoostingRegressor(random_state=self.seed),
        }
        if name in baselines:
            return ConstantErrorBar(baselines[name])
        method = METHODS[Name(name)]
        sized = method.sized and name != Name.AUTO
        return method.build({"n_components": self.components if sized else None}, self.seed)

    def _score(self, estimator: Any) -> dict[str, Any]:
        """Return the scores of each fold, and the mean seconds of a fit."""
        folds = KFold(self.folds, shuffle=True, random_state=self.seed)
        with warnings.catch_warnings(), encoded_inputs(self.encoder):
            warnings.simplefilter("ignore")
            found = cross_validate(
                estimator, self.X, self.y, scoring=_SCORING, cv=folds, error_score="raise"
            )
        signs = {name: 1.0 if name == "coverage" else -1.0 for name in _SCORING}
        scores = {name: (sign * found[f"test_{name}"]).tolist() for name, sign in signs.items()}
        return {"seconds": float(found["fit_time"].mean()), **scores}
