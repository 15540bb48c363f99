"""What `compare` compares: the methods of eigengp, and plain ones that they should beat."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from eigengp._typing import Array
from eigengp.cli.commands.methods import METHODS, Name

_PENALTIES = np.logspace(-3.0, 3.0, 13)


# scikit-learn ships no types, so its classes are Any to mypy.
class ConstantErrorBar(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Any regressor with one error bar for all rows: its error when it is cross-validated.

    Parameters
    ----------
    estimator : estimator
        What predicts the means.
    n_folds : int
        How many folds.

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
        """Learn the means from all rows, and the error bar from folds."""
        targets = np.asarray(y, dtype=np.float64)
        folds = KFold(min(self.n_folds, targets.size))
        errors = targets - cross_val_predict(self.estimator, X, targets, cv=folds)
        self.std_ = float(np.sqrt(np.mean(errors**2)))
        self.estimator_ = clone(self.estimator).fit(X, targets)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return means, and the error bar for each row if asked."""
        mean: Array = self.estimator_.predict(X)
        return (mean, np.full(mean.shape, self.std_)) if return_std else mean


def baselines(seed: int) -> dict[str, Any]:
    """Return regressors of scikit-learn, each with one error bar for all rows."""
    plain = {
        "mean": DummyRegressor(),
        "linear": make_pipeline(StandardScaler(), RidgeCV(_PENALTIES)),
        "boosting": HistGradientBoostingRegressor(random_state=seed),
    }
    return {name: ConstantErrorBar(estimator) for name, estimator in plain.items()}


def candidate(name: str, components: int, seed: int) -> Any:
    """Return the estimator of this name."""
    plain = baselines(seed)
    return plain[name] if name in plain else METHODS[Name(name)].made(components, seed)
