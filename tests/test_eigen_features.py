"""Eigenfunctions as features for other models."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from eigengp import LBFGS, EigenFeatures, EigenGPRegressor, ExactGPRegressor

QUICK: dict[str, Any] = {"optimizer": LBFGS(n_restarts=1, max_iter=10), "random_state": 0}
rng = np.random.default_rng(0)
X = rng.uniform(-3, 3, size=(80, 2))
y = 5.0 + np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=80)
frame = pd.DataFrame(X, columns=["age", "income"])


@pytest.fixture(scope="module")
def features() -> EigenFeatures:
    return EigenFeatures(EigenGPRegressor(6, **QUICK)).fit(frame, y)


@parametrize_with_checks(
    [EigenFeatures(EigenGPRegressor(3, optimizer=LBFGS(n_restarts=1, max_iter=1)))]
)
def test_scikit_learn_estimator_checks(estimator: EigenFeatures, check: Any) -> None:
    check(estimator)


def test_features_are_the_eigenfunctions_of_the_regressor(features: EigenFeatures) -> None:
    alone = EigenGPRegressor(6, **QUICK).fit(frame, y)
    np.testing.assert_array_equal(features.transform(frame), alone.eigenfunctions(frame))
    assert features.n_features_in_ == 2
    assert list(features.feature_names_in_) == ["age", "income"]


@pytest.mark.parametrize("guard", [True, False])
def test_ridge_regression_on_them_has_the_mean_of_the_regressor(guard: bool) -> None:
    features = EigenFeatures(EigenGPRegressor(6, residual=None, guard=guard, **QUICK)).fit(frame, y)
    model, Phi = features.estimator_, features.transform(frame)
    penalties = np.diag(model.noise_variance_ / model.weights_)
    coefficients = np.linalg.solve(Phi.T @ Phi + penalties, Phi.T @ (y - model.target_mean_))
    new = frame + 0.1
    mean = features.transform(new) @ coefficients + model.target_mean_
    np.testing.assert_allclose(mean, model.predict(new), rtol=1e-8)


@pytest.mark.parametrize("estimator", [None, EigenGPRegressor()], ids=["none", "default"])
def test_a_regressor_that_chooses_has_eigenfunctions(estimator: Any) -> None:
    features = EigenFeatures(estimator, random_state=0).fit(X[:20], y[:20])
    assert features.transform(X).shape == (80, features.estimator_.weights_.size)
    if estimator is not None:
        assert estimator.residual == "auto"
    with pytest.raises(ValueError, match="residual='exact' has no eigenfunctions"):
        EigenFeatures(EigenGPRegressor(residual="exact")).fit(X, y)


def test_they_come_as_a_frame_with_names(features: EigenFeatures) -> None:
    named = clone(features).set_output(transform="pandas").fit(frame, y)
    values = named.transform(frame.iloc[:3])
    assert list(values.columns) == [f"eigenfeatures{j}" for j in range(6)]
    assert list(values.columns) == list(features.get_feature_names_out())
    np.testing.assert_array_equal(values, features.transform(frame.iloc[:3]))
    assert list(values.index) == [0, 1, 2]


def test_a_weight_of_two_is_a_row_twice(features: EigenFeatures) -> None:
    weight = np.where(np.arange(80) < 40, 2.0, 1.0)
    weighted = clone(features).fit(X, y, sample_weight=weight)
    repeated = clone(features).fit(np.vstack([X, X[:40]]), np.append(y, y[:40]))
    np.testing.assert_allclose(weighted.transform(X), repeated.transform(X), rtol=1e-6, atol=1e-8)
    assert not np.allclose(weighted.transform(X), features.transform(frame))


def test_they_are_tuned_in_a_pipeline() -> None:
    steps = [("scale", StandardScaler()), ("eigen", EigenFeatures(EigenGPRegressor(**QUICK)))]
    pipeline = Pipeline([*steps, ("ridge", Ridge(alpha=1e-3))])
    search = GridSearchCV(pipeline, {"eigen__estimator__n_components": [2, 10]}, cv=2)
    search.fit(X, y)
    assert search.best_params_ == {"eigen__estimator__n_components": 10}
    assert search.score(X, y) > 0.9
    assert len(search.best_estimator_[:-1].get_feature_names_out()) == 10


def test_the_default_is_eigengp_without_neighbours() -> None:
    fitted = EigenFeatures(random_state=3).fit(X[:8], y[:8])
    plain = EigenGPRegressor(residual=None, random_state=3)
    assert fitted.estimator_.get_params() == plain.get_params()
    assert fitted.transform(X).shape == (80, fitted.estimator_.weights_.size)


def test_the_given_regressor_stays_as_it_was(features: EigenFeatures) -> None:
    given = EigenGPRegressor(3, **QUICK)
    EigenFeatures(given).fit(X, y)
    assert not hasattr(given, "weights_")
    again = pickle.loads(pickle.dumps(features))
    np.testing.assert_array_equal(again.transform(frame), features.transform(frame))


def test_other_regressors_and_names_are_refused(features: EigenFeatures) -> None:
    with pytest.raises(ValueError, match="'estimator' parameter of EigenFeatures"):
        EigenFeatures(ExactGPRegressor()).fit(X, y)
    with pytest.raises(ValueError, match="feature names should match"):
        features.transform(frame.rename(columns={"age": "years"}))
    with pytest.raises(AttributeError, match="before fit"):
        EigenFeatures().n_features_in_  # noqa: B018
    assert not hasattr(clone(features).fit(X, y), "feature_names_in_")


def test_it_is_drawn_in_a_pipeline() -> None:
    html = make_pipeline(EigenFeatures(EigenGPRegressor(3)), Ridge())._repr_html_()
    assert "EigenFeatures" in html
