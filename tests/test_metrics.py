from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import sklearn
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import integrate, stats
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import BayesianRidge, Ridge
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from eigengp import LBFGS, EigenGPRegressor
from eigengp.metrics import (
    coverage,
    coverage_scorer,
    crps_gaussian,
    crps_scorer,
    make_probabilistic_scorer,
    mnlp,
    mnlp_scorer,
    nmse,
    nmse_scorer,
)

rng = np.random.default_rng(3)
N = 40
X = rng.uniform(-2.0, 2.0, size=(N, 2))
Y = np.sin(X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=N)
MEAN = Y + 0.5 * rng.normal(size=N)
STD = rng.uniform(0.2, 0.9, size=N)
WEIGHTS = rng.integers(0, 4, size=N).astype(float)

METRICS: dict[str, Callable[..., float]] = {
    "nmse": lambda y, mean, std, **options: nmse(y, mean, **options),
    "mnlp": mnlp,
    "coverage": coverage,
    "crps": crps_gaussian,
}
SCORERS = {
    "nmse": nmse_scorer,
    "mnlp": mnlp_scorer,
    "crps": crps_scorer,
    "calibration": coverage_scorer(0.8),
}
every_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
every_scorer = pytest.mark.parametrize("scorer", SCORERS.values(), ids=SCORERS)
probabilistic_metric = pytest.mark.parametrize("metric", [mnlp, coverage, crps_gaussian])

numbers = st.floats(-100.0, 100.0)
positive = st.floats(0.01, 100.0)


@st.composite
def predictions(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n = draw(st.integers(2, 12))
    y, mean = draw(arrays(float, n, elements=numbers)), draw(arrays(float, n, elements=numbers))
    y[0] = y[1] + 1.0
    return y, mean, draw(arrays(float, n, elements=positive))


# Values


def test_nmse_is_one_minus_r2_by_default() -> None:
    assert nmse(Y, MEAN) == pytest.approx(1.0 - r2_score(Y, MEAN))
    weighted = 1.0 - r2_score(Y, MEAN, sample_weight=WEIGHTS)
    assert nmse(Y, MEAN, sample_weight=WEIGHTS) == pytest.approx(weighted)


def test_nmse_compares_with_the_given_mean() -> None:
    expected = np.sum((Y - MEAN) ** 2) / np.sum((Y - 0.7) ** 2)
    assert nmse(Y, MEAN, train_mean=0.7) == pytest.approx(expected)
    assert nmse([2.0], [1.5], train_mean=1.0) == pytest.approx(0.25)


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_nmse_bears_extreme_units(unit: float) -> None:
    assert nmse(unit * Y, unit * MEAN) == pytest.approx(nmse(Y, MEAN))


def test_mnlp_is_the_mean_of_the_log_density() -> None:
    losses = -stats.norm.logpdf(Y, MEAN, STD)
    assert mnlp(Y, MEAN, STD) == pytest.approx(losses.mean())
    weighted = np.average(losses, weights=WEIGHTS)
    assert mnlp(Y, MEAN, STD, sample_weight=WEIGHTS) == pytest.approx(weighted)


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9, 0.99])
def test_coverage_counts_the_targets_in_the_interval(level: float) -> None:
    lower, upper = stats.norm.interval(level, MEAN, STD)
    inside = (lower <= Y) & (upper >= Y)
    assert 0 < inside.sum() < N
    assert coverage(Y, MEAN, STD, level=level) == pytest.approx(inside.mean())
    weighted = WEIGHTS[inside].sum() / WEIGHTS.sum()
    found = coverage(Y, MEAN, STD, level=level, sample_weight=WEIGHTS)
    assert found == pytest.approx(weighted)


def test_coverage_of_true_error_bars_is_the_level() -> None:
    y = stats.norm.ppf((np.arange(1000) + 0.5) / 1000)
    assert coverage(3.0 + 2.0 * y, np.full(1000, 3.0), np.full(1000, 2.0), level=0.8) == 0.8


@pytest.mark.parametrize(("y", "mean", "std"), [(0.3, 0.3, 1.0), (2.0, -1.0, 0.7), (-9.0, 1.0, 3)])
def test_crps_is_the_integral_over_the_distribution(y: float, mean: float, std: float) -> None:
    below, _ = integrate.quad(lambda t: stats.norm.cdf(t, mean, std) ** 2, -40.0, y)
    above, _ = integrate.quad(lambda t: stats.norm.sf(t, mean, std) ** 2, y, 40.0)
    assert crps_gaussian([y], [mean], [std]) == pytest.approx(below + above, rel=1e-7)


def test_crps_of_small_deviations_is_the_absolute_error() -> None:
    tiny = np.full(N, 1e-12)
    assert crps_gaussian(Y, MEAN, tiny) == pytest.approx(np.abs(Y - MEAN).mean())


@every_metric
def test_lists_columns_and_single_precision_are_accepted(metric: Callable[..., float]) -> None:
    expected = metric(Y, MEAN, STD)
    assert type(expected) is float
    assert metric(Y.tolist(), MEAN[:, None], STD) == expected
    single = [column.astype(np.float32) for column in (Y, MEAN, STD)]
    assert metric(*single) == pytest.approx(expected, rel=1e-5)


# Properties


@given(predictions())
def test_crps_is_not_negative_and_below_the_absolute_error_plus_spread(
    case: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    y, mean, std = case
    assert 0.0 <= crps_gaussian(y, mean, std) <= np.mean(np.abs(y - mean) + 0.25 * std)


@given(predictions(), positive, numbers)
def test_metrics_follow_the_units_of_the_target(
    case: tuple[np.ndarray, np.ndarray, np.ndarray], scale: float, shift: float
) -> None:
    y, mean, std = case
    other = scale * y + shift, scale * mean + shift, scale * std
    close = partial(pytest.approx, rel=1e-6, abs=1e-6)
    assert nmse(*other[:2]) == close(nmse(y, mean))
    assert mnlp(*other) == close(mnlp(y, mean, std) + np.log(scale))
    assert crps_gaussian(*other) == close(scale * crps_gaussian(y, mean, std))


@given(predictions(), st.integers(-6, 6))
def test_coverage_does_not_depend_on_the_units(
    case: tuple[np.ndarray, np.ndarray, np.ndarray], power: int
) -> None:
    y, mean, std = case
    unit = 2.0**power
    assert coverage(unit * y, unit * mean, unit * std) == coverage(y, mean, std)


@given(predictions())
def test_nmse_of_the_mean_is_one(case: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    y = case[0]
    assert nmse(y, np.full(y.size, y.mean())) == pytest.approx(1.0)
    assert nmse(y, y) == 0.0


@every_metric
@given(case=predictions(), data=st.data())
def test_a_weight_counts_how_often_a_row_stands_there(
    metric: Callable[..., float], case: tuple[np.ndarray, np.ndarray, np.ndarray], data: Any
) -> None:
    counts = data.draw(arrays(int, case[0].size, elements=st.integers(0, 3)))
    counts[:2] = 1, 2
    repeated = metric(*(np.repeat(column, counts) for column in case))
    assert metric(*case, sample_weight=counts) == pytest.approx(repeated, rel=1e-9, abs=1e-9)


# Errors


@every_metric
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": [0.0, np.nan, 1.0]}, "y_true contains NaN"),
        ({"mean": [0.0, np.inf, 1.0]}, "y_pred contains infinity"),
        ({"mean": [0.0, 1.0]}, "inconsistent numbers of samples"),
        ({"y": np.ones((3, 2))}, "1d array"),
        ({"y": [], "mean": []}, r"0 sample\(s\)"),
        ({"sample_weight": [1.0, 1.0]}, "inconsistent numbers of samples"),
        ({"sample_weight": [1.0, -1.0, 1.0]}, "non-negative.* between -1 and 1"),
        ({"sample_weight": [0.0, 0.0, 0.0]}, "not all zero"),
        ({"sample_weight": [1.0, np.nan, 0.0]}, "sample_weight contains NaN"),
    ],
)
def test_what_is_no_prediction_is_refused(
    metric: Callable[..., float], changes: dict[str, Any], message: str
) -> None:
    valid = {"y": [0.0, 1.0, 2.0], "mean": [0.0, 1.0, 1.0], "std": [1.0, 1.0, 1.0]}
    arguments = valid | changes
    columns = [arguments.pop(name) for name in valid]
    with pytest.raises(ValueError, match=message):
        metric(*columns, **arguments)


@probabilistic_metric
@pytest.mark.parametrize("bad", [0.0, -0.5])
def test_deviations_must_be_positive(metric: Callable[..., float], bad: float) -> None:
    message = f"strictly positive, but 1 of 2 values are not; the smallest is {bad:.6g}.*floor"
    with pytest.raises(ValueError, match=message):
        metric([0.0, 1.0], [0.0, 1.0], [1.0, bad])


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 90, np.nan])
def test_the_level_is_a_probability(level: float) -> None:
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        coverage(Y, MEAN, STD, level=level)
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        coverage_scorer(level)


@pytest.mark.parametrize(
    ("y", "options"),
    [
        ([5.0], {}),
        ([0.1, 0.1, 0.1], {}),
        ([0.0, 0.0], {}),
        ([3.0, 3.0], {"train_mean": 3.0}),
        ([1.0, 2.0], {"sample_weight": [1.0, 0.0]}),
    ],
)
def test_nmse_needs_targets_that_differ(y: list[float], options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"spread of y_true about .* is zero.*train_mean"):
        nmse(y, np.ones(len(y)), **options)


@pytest.mark.parametrize("centre", [np.nan, np.inf])
def test_nmse_needs_a_finite_mean(centre: float) -> None:
    with pytest.raises(ValueError, match="train_mean must be finite"):
        nmse(Y, MEAN, train_mean=centre)


# Scorers


def by_hand(estimator: Any, **options: Any) -> dict[str, float]:
    mean, std = estimator.predict(X, return_std=True)
    return {
        "nmse": -nmse(Y, mean, **options),
        "mnlp": -mnlp(Y, mean, std, **options),
        "crps": -crps_gaussian(Y, mean, std, **options),
        "calibration": -abs(coverage(Y, mean, std, level=0.8, **options) - 0.8),
    }


@pytest.mark.parametrize(
    "estimator",
    [
        BayesianRidge(),
        GaussianProcessRegressor(alpha=0.1, optimizer=None),
        make_pipeline(StandardScaler(), BayesianRidge()),
        EigenGPRegressor(5, optimizer=LBFGS(n_restarts=1, max_iter=5), random_state=0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_scorers_work_with_whatever_predicts_deviations(estimator: Any) -> None:
    fitted = clone(estimator).fit(X, Y)
    scores = {name: scorer(fitted, X, Y) for name, scorer in SCORERS.items()}
    assert scores == pytest.approx(by_hand(fitted))
    assert all(score <= 0.0 for name, score in scores.items() if name != "mnlp")


def test_a_scorer_takes_sample_weight() -> None:
    fitted = BayesianRidge().fit(X, Y)
    scores = {name: s(fitted, X, Y, sample_weight=WEIGHTS) for name, s in SCORERS.items()}
    assert scores == pytest.approx(by_hand(fitted, sample_weight=WEIGHTS))


def test_greater_is_better_sets_the_sign_and_kwargs_reach_the_metric() -> None:
    fitted = BayesianRidge().fit(X, Y)
    mean, std = fitted.predict(X, return_std=True)
    score = make_probabilistic_scorer(coverage, level=0.3)(fitted, X, Y)
    loss = make_probabilistic_scorer(coverage, level=0.3, greater_is_better=False)(fitted, X, Y)
    assert score == -loss == coverage(Y, mean, std, level=0.3)


def test_grid_search_finds_the_best_of_a_pipeline() -> None:
    pipeline = Pipeline([("features", PolynomialFeatures()), ("regressor", BayesianRidge())])
    grid = {"features__degree": [1, 3]}
    search = GridSearchCV(pipeline, grid, scoring=mnlp_scorer, cv=4, error_score="raise")
    search = clone(search).fit(X, Y)
    scores = search.cv_results_["mean_test_score"]
    for degree, score in zip(grid["features__degree"], scores, strict=True):
        model = clone(pipeline).set_params(features__degree=degree)
        folds = [
            mnlp(Y[test], *model.fit(X[train], Y[train]).predict(X[test], return_std=True))
            for train, test in KFold(4).split(X)
        ]
        assert score == pytest.approx(-np.mean(folds))
    assert search.best_score_ == scores.max()
    assert search.score(X, Y) == mnlp_scorer(search.best_estimator_, X, Y)


def test_grid_search_takes_several_scorers() -> None:
    grid = {"alpha_1": [1e-6, 1e3]}
    search = GridSearchCV(BayesianRidge(), grid, scoring=SCORERS, refit="crps", cv=3).fit(X, Y)
    best = np.argmax(search.cv_results_["mean_test_crps"])
    assert search.best_index_ == best
    assert {f"mean_test_{name}" for name in SCORERS} <= set(search.cv_results_)


def test_several_scorers_agree_with_each_alone() -> None:
    both = cross_validate(BayesianRidge(), X, Y, scoring=SCORERS, cv=3, error_score="raise")
    for name, scorer in SCORERS.items():
        alone = cross_val_score(BayesianRidge(), X, Y, scoring=scorer, cv=3)
        np.testing.assert_array_equal(both[f"test_{name}"], alone)


@every_scorer
def test_scorers_pickle_and_copy(scorer: Any) -> None:
    fitted = BayesianRidge().fit(X, Y)
    for twin in (pickle.loads(pickle.dumps(scorer)), copy.deepcopy(scorer), copy.copy(scorer)):
        assert repr(twin) == repr(scorer)
        assert twin(fitted, X, Y) == scorer(fitted, X, Y)


def test_the_repr_shows_how_to_make_the_scorer() -> None:
    assert repr(crps_scorer) == "make_probabilistic_scorer(crps_gaussian, greater_is_better=False)"
    scorer = make_probabilistic_scorer(partial(coverage, level=0.5), sample_weight=None)
    assert repr(scorer).startswith("make_probabilistic_scorer(functools.partial(<function coverage")
    assert repr(scorer).endswith(", sample_weight=None)")


class TakesAnything(RegressorMixin, BaseEstimator):
    """Ignores what it does not know, and so returns means only."""

    def fit(self, X: Any, y: Any) -> TakesAnything:
        return self

    def predict(self, X: Any, **options: Any) -> Any:
        return np.zeros(len(X))


class Broken(TakesAnything):
    def predict(self, X: Any, return_std: bool = False) -> Any:
        raise TypeError("broken inside")


@pytest.mark.parametrize(
    "estimator", [Ridge(), make_pipeline(StandardScaler(), Ridge()), TakesAnything()]
)
@pytest.mark.parametrize("routing", [False, True])
def test_an_estimator_without_deviations_is_refused(estimator: Any, routing: bool) -> None:
    fitted = clone(estimator).fit(X, Y)
    message = f"{type(fitted).__name__} gives no standard deviations.*return_std=True.*nmse_scorer"
    with (
        sklearn.config_context(enable_metadata_routing=routing),
        pytest.raises(TypeError, match=message),
    ):
        mnlp_scorer(fitted, X, Y)


def test_errors_inside_predict_are_shown_as_they_are() -> None:
    with pytest.raises(TypeError, match=r"^broken inside$"):
        mnlp_scorer(Broken(), X, Y)


# Metadata routing


def weighted_folds(model: Any) -> list[float]:
    folds = []
    for train, test in KFold(4).split(X):
        fitted = clone(model).fit(X[train], Y[train])
        mean, std = fitted.predict(X[test], return_std=True)
        folds.append(-crps_gaussian(Y[test], mean, std, sample_weight=WEIGHTS[test]))
    return folds


def test_weights_are_routed_to_the_scorer_that_requests_them() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        model = BayesianRidge().set_fit_request(sample_weight=False)
        weighted = copy.copy(crps_scorer).set_score_request(sample_weight=True)
        plain = copy.copy(crps_scorer).set_score_request(sample_weight=False)
        scores = cross_validate(
            model,
            X,
            Y,
            scoring={"weighted": weighted, "plain": plain},
            cv=4,
            params={"sample_weight": WEIGHTS},
            error_score="raise",
        )
        search = GridSearchCV(model, {"alpha_1": [1e-6]}, scoring=weighted, cv=4)
        search.fit(X, Y, sample_weight=WEIGHTS)
    np.testing.assert_allclose(scores["test_weighted"], weighted_folds(BayesianRidge()))
    unweighted = cross_val_score(BayesianRidge(), X, Y, scoring=crps_scorer, cv=4)
    np.testing.assert_allclose(scores["test_plain"], unweighted)
    assert search.best_score_ == pytest.approx(np.mean(scores["test_weighted"]))


def test_a_request_on_a_copy_leaves_the_scorer_of_the_module_alone() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        before = str(mnlp_scorer.get_metadata_routing())
        copy.copy(mnlp_scorer).set_score_request(sample_weight="weights")
        assert str(mnlp_scorer.get_metadata_routing()) == before


def test_pipelines_need_no_request_for_the_deviations() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), BayesianRidge())
        routed = cross_val_score(pipeline, X, Y, scoring=mnlp_scorer, cv=3, error_score="raise")
    plain = cross_val_score(pipeline, X, Y, scoring=mnlp_scorer, cv=3)
    np.testing.assert_array_equal(routed, plain)


def test_a_parameter_given_twice_is_warned_about() -> None:
    scorer = make_probabilistic_scorer(mnlp, sample_weight=np.ones(N))
    fitted = BayesianRidge().fit(X, Y)
    with pytest.warns(UserWarning, match="set in the scorer and passed to it.*sample_weight"):
        score = scorer(fitted, X, Y, sample_weight=WEIGHTS)
    assert score == mnlp(Y, *fitted.predict(X, return_std=True), sample_weight=WEIGHTS)


def test_a_search_is_scored_through_its_best_estimator() -> None:
    search = GridSearchCV(BayesianRidge(), {"alpha_1": [1e-6]}, cv=3, scoring=mnlp_scorer)
    nested = cross_val_score(search, X, Y, cv=3, scoring=mnlp_scorer, error_score="raise")
    plain = cross_val_score(BayesianRidge(), X, Y, cv=3, scoring=mnlp_scorer)
    np.testing.assert_allclose(nested, plain)
