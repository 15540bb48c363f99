"""Frames of pandas and Polars: names are stored and compared, weights are routed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import config_context
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from eigengp import LBFGS, EigenFeatures, EigenGPRegressor, ExactGPRegressor

QUICK: dict[str, Any] = {"optimizer": LBFGS(n_restarts=1, max_iter=5), "random_state": 0}
rng = np.random.default_rng(0)
X = rng.normal(size=(40, 2))
y = np.sin(X[:, 0]) + 0.1 * X[:, 1] + 0.05 * rng.normal(size=40)
weight = rng.integers(1, 4, size=40).astype(float)
NAMES = ["age", "größe (cm)"]
columns = dict(zip(NAMES, X.T, strict=True))
MAKERS = [pytest.param(pd.DataFrame, id="pandas"), pytest.param(pl.DataFrame, id="Polars")]
any_frame = pytest.mark.parametrize("frame_of", MAKERS)


def small(**settings: Any) -> EigenGPRegressor:
    return EigenGPRegressor(**({"n_components": 4} | QUICK | settings))


@pytest.fixture(scope="module")
def plain() -> EigenGPRegressor:
    return small().fit(X, y, weight)


@any_frame
def test_a_frame_is_its_values_with_names(frame_of: Any, plain: EigenGPRegressor) -> None:
    frame = frame_of(columns)
    series = frame_of({"y": y, "w": weight})
    model = small().fit(frame, series["y"], sample_weight=series["w"])
    assert list(model.feature_names_in_) == NAMES
    mean, std = model.predict(frame, return_std=True)
    np.testing.assert_array_equal([mean, std], plain.predict(X, return_std=True))
    lower, _ = model.predict_interval(frame[:5])
    np.testing.assert_array_equal(lower, plain.predict_interval(X[:5])[0])
    np.testing.assert_array_equal(model.sample_y(frame[:5]), plain.sample_y(X[:5]))
    np.testing.assert_array_equal(model.eigenfunctions(frame[:5]), plain.eigenfunctions(X[:5]))
    assert model.score(frame, series["y"]) == plain.score(X, y)
    assert model.calibrate(frame, series["y"]).conformity_.size == 40


def test_a_model_of_one_library_predicts_for_the_other(plain: EigenGPRegressor) -> None:
    model = small().fit(pl.DataFrame(columns), y, weight)
    np.testing.assert_array_equal(model.predict(pd.DataFrame(columns)), plain.predict(X))


@any_frame
def test_other_names_or_another_order_are_refused(frame_of: Any) -> None:
    frame = frame_of(columns)
    model = small().fit(frame, y)
    with pytest.raises(ValueError, match="same order"):
        model.predict(frame[NAMES[::-1]])
    with pytest.raises(ValueError, match=r"yet now missing:\n- age"):
        model.predict(frame_of({"years": X[:, 0], NAMES[1]: X[:, 1]}))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(X)
    with pytest.raises(ValueError, match="should match"):
        model.partial_fit(frame_of({"years": X[:, 0], NAMES[1]: X[:, 1]}), y)


@any_frame
def test_a_column_of_text_is_named(frame_of: Any) -> None:
    text = frame_of(columns | {"colour": ["red"] * 39 + ["blue"]})
    with pytest.raises(ValueError, match="Column 'colour' of X holds text such as 'red'"):
        small().set_params(categorical_features=None).fit(text, y)
    numbers = frame_of(columns)
    model = small().fit(numbers, y)
    with pytest.raises(ValueError, match="Column 'age' of X holds text such as 'old'"):
        model.predict(frame_of(columns | {"age": ["old"] * 40}))
    assert list(model.feature_names_in_) == NAMES


@any_frame
def test_a_column_of_dates_is_named(frame_of: Any) -> None:
    days = np.datetime64("2026-01-01") + np.arange(40)
    with pytest.raises(ValueError, match="Column 'day' of X holds dates or times"):
        small().set_params(categorical_features=None).fit(
            frame_of(columns | {"day": days.astype("datetime64[us]")}), y
        )


@any_frame
def test_whole_numbers_truth_values_and_numbers_as_objects_are_numbers(frame_of: Any) -> None:
    frame = frame_of({"whole": np.arange(40), "is": X[:, 0] > 0})
    values = np.column_stack([np.arange(40.0), X[:, 0] > 0])
    expected = ExactGPRegressor(optimizer=LBFGS(max_iter=0)).fit(values, y).predict(values)
    np.testing.assert_array_equal(
        ExactGPRegressor(optimizer=LBFGS(max_iter=0)).fit(frame, y).predict(frame), expected
    )
    objects = pd.DataFrame(values, columns=["whole", "is"], dtype=object)
    model = ExactGPRegressor(optimizer=LBFGS(max_iter=0)).fit(objects, y)
    np.testing.assert_array_equal(model.predict(objects), expected)


@any_frame
def test_missing_values_are_told(frame_of: Any) -> None:
    holes = frame_of(columns | {"age": [None, *X[1:, 0]]})
    with pytest.raises(ValueError, match="contains NaN"):
        small().set_params(categorical_features=None).fit(holes, y)
    with pytest.raises(ValueError, match="contains NaN"):
        small().fit(frame_of(columns), y).predict(holes)


def test_names_that_are_no_use_are_refused() -> None:
    twice = pd.DataFrame(np.column_stack([X, X[:, 0]]), columns=["a", "b", "a"])
    with pytest.raises(ValueError, match="same name: a"):
        small().fit(twice, y)
    with pytest.raises(TypeError, match="all input features have string names"):
        small().fit(pd.DataFrame(X, columns=["a", 1]), y)
    numbered = small().fit(pd.DataFrame(X), y)
    assert not hasattr(numbered, "feature_names_in_")
    with pytest.raises(TypeError, match=r"pass X\.collect\(\)"):
        small().fit(pl.LazyFrame(columns), y)


def test_features_come_as_the_frame_that_is_asked_for() -> None:
    frame = pl.DataFrame(columns)
    features = EigenFeatures(small()).set_output(transform="polars").fit(frame, y)
    values = features.transform(frame)
    assert isinstance(values, pl.DataFrame)
    assert values.columns == [f"eigenfeatures{j}" for j in range(4)]


@pytest.fixture
def _routing() -> Iterator[None]:
    with config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("_routing")
def test_weights_are_routed_through_a_pipeline() -> None:
    frame = pd.DataFrame(columns)
    scaler = StandardScaler().set_fit_request(sample_weight=False)
    pipeline = make_pipeline(scaler, small().set_fit_request(sample_weight=True))
    pipeline.fit(frame, y, sample_weight=weight)
    scaled = StandardScaler().fit_transform(frame)
    direct = small().fit(scaled, y, sample_weight=weight)
    np.testing.assert_array_equal(pipeline.predict(frame), direct.predict(scaled))
    unweighted = small().fit(scaled, y)
    assert not np.allclose(direct.predict(scaled), unweighted.predict(scaled))


@pytest.mark.usefixtures("_routing")
def test_weights_are_routed_through_a_search() -> None:
    model = small().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    search = GridSearchCV(model, {"n_components": [2, 5]}, cv=2)
    search.fit(X, y, sample_weight=weight)
    best = small(**search.best_params_).fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(search.predict(X), best.predict(X))
    scores = cross_validate(model, X, y, cv=2, params={"sample_weight": weight})["test_score"]
    half = small().fit(X[20:], y[20:], weight[20:])
    assert scores[0] == pytest.approx(half.score(X[:20], y[:20], weight[:20]))


@pytest.mark.usefixtures("_routing")
def test_weights_are_routed_to_features_and_refused_unasked() -> None:
    features = EigenFeatures(small()).set_fit_request(sample_weight=True)
    last = ExactGPRegressor(optimizer=LBFGS(max_iter=0)).set_fit_request(sample_weight=False)
    pipeline = make_pipeline(features, last)
    pipeline.fit(X, y, sample_weight=weight)
    direct = EigenFeatures(small()).fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(pipeline[0].transform(X), direct.transform(X))
    with pytest.raises(ValueError, match="sample_weight"):
        make_pipeline(StandardScaler(), small()).fit(X, y, sample_weight=weight)
