"""The regressor as scikit-learn and its users see it."""

from __future__ import annotations

import pickle
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from eigengp import (
    LBFGS,
    EigenGPRegressor,
    Matern32,
    RationalQuadratic,
    SquaredExponential,
    Stochastic,
    log_marginal_likelihood,
)
from eigengp.fitting.initialization import InducingFamily
from eigengp.gp.model import EigenGP
from finite_differences import assert_close
from finite_differences import gradient as numerical_gradient

pytestmark = pytest.mark.usefixtures("short_search")

STRATEGIES: dict[str, Any] = {
    "EigenGP*": "joint",
    "EigenGP* direct": "direct",
    "EigenGP*+": "joint",
}
METHODS: dict[str, dict[str, Any]] = {
    "EigenGP": {},
    "EigenGP*": {},
    "EigenGP* direct": {},
    "EigenGP+": {"residual": "diagonal"},
    "EigenGP*+": {"residual": "diagonal"},
    "more inducing points": {"inducing_points": 12},
    "no guard": {"guard": False},
}
any_method = pytest.mark.parametrize("name", METHODS)


def make_data(n: int = 150, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, size=(n, 2))
    y = 5.0 + np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=n)
    return X, y


def quick(
    n_components: Any = 6,
    strategy: Any = "auto",
    *,
    n_restarts: Any = 2,
    max_iter: int = 20,
    **settings: Any,
) -> EigenGPRegressor:
    """Return a regressor whose optimizer stops early."""
    optimizer = LBFGS(strategy, n_restarts=n_restarts, max_iter=max_iter)
    return EigenGPRegressor(n_components, optimizer=optimizer, random_state=0, **settings)


def make(name: str, n_components: int = 8, **settings: Any) -> EigenGPRegressor:
    strategy = STRATEGIES.get(name, "auto")
    return quick(n_components, strategy, **settings, **METHODS[name])


@cache
def fitted(name: str) -> EigenGPRegressor:
    """Return a model that was fitted once for all tests, which must not change it."""
    return make(name).fit(*make_data())


@parametrize_with_checks(
    [
        EigenGPRegressor(4, optimizer=LBFGS(n_restarts=1, max_iter=3)),
        EigenGPRegressor(residual="diagonal", optimizer=LBFGS("joint", n_restarts=1, max_iter=3)),
        EigenGPRegressor(4, optimizer=Stochastic(batch_size=20, n_restarts=1)),
    ]
)
def test_scikit_learn_estimator_checks(estimator: EigenGPRegressor, check: Any) -> None:
    check(estimator)


def test_the_default_regressor_clones_and_declares_its_tags() -> None:
    default = EigenGPRegressor()
    assert clone(default).get_params() == default.get_params()
    assert default.__sklearn_tags__().target_tags.required


@any_method
def test_it_learns_a_smooth_function(name: str) -> None:
    X, y = make_data()
    X_test, y_test = make_data(seed=1)
    model = make(name, 10, max_iter=100).fit(X, y)
    mean, std = model.predict(X_test, return_std=True)
    assert np.mean((y_test - mean) ** 2) < 0.05 * np.var(y_test)
    assert np.all(std > 0)
    lower, upper = model.predict_interval(X_test, coverage=0.9)
    assert 0.75 < np.mean((lower < y_test) & (y_test < upper)) <= 1.0
    assert model.score(X_test, y_test) > 0.95


@any_method
def test_attributes_reproduce_the_log_marginal_likelihood_in_the_units_of_the_data(
    name: str,
) -> None:
    X, y = make_data()
    X, y = X * [1e-3, 50.0] + [7.0, -1e3], 1e4 * y
    model = make(name).fit(X, y)
    value = log_marginal_likelihood(
        X,
        y - model.target_mean_,
        inducing_points=model.inducing_points_,
        kernel=model.kernel_,
        noise_variance=model.noise_variance_,
        weights=model.weights_,
        residual=METHODS[name].get("residual"),
        jitter=model.jitter_,
    )
    assert value == pytest.approx(model.log_marginal_likelihood_, rel=1e-6)
    assert model.log_marginal_likelihood() == model.log_marginal_likelihood_
    assert model.inducing_points_.shape == (METHODS[name].get("inducing_points", 8), 2)
    assert model.weights_.shape == model.eigenvalues_.shape == (8,)
    assert np.all(np.diff(model.eigenvalues_) <= 0)
    assert model.kernel_.lengthscale.shape == (2,)


def test_changing_units_changes_nothing_else() -> None:
    X, y = make_data(80)
    plain = quick().fit(X, y)
    scaled = quick().fit(X * [4.0, 0.25], 8.0 * y)
    mean, std = plain.predict(X[:9], return_std=True)
    mean_scaled, std_scaled = scaled.predict(X[:9] * [4.0, 0.25], return_std=True)
    np.testing.assert_allclose(mean_scaled, 8.0 * mean, rtol=1e-6)
    np.testing.assert_allclose(std_scaled, 8.0 * std, rtol=1e-6)


def test_eigenfunctions_and_weights_are_the_prior_covariance() -> None:
    (X, y), model = make_data(), fitted("EigenGP")
    phi = model.eigenfunctions(X)
    covariance = phi * model.weights_ @ phi.T + model.noise_variance_ * np.eye(y.size)
    from scipy.stats import multivariate_normal

    dense = multivariate_normal(np.full(y.size, model.target_mean_), covariance).logpdf(y)
    assert dense == pytest.approx(model.log_marginal_likelihood_, rel=1e-7)


@any_method
def test_joint_covariance_and_standard_deviation_agree(name: str) -> None:
    (X, _), model = make_data(), fitted(name)
    mean, std = model.predict(X[:15], return_std=True)
    same_mean, covariance = model.predict(X[:15], return_cov=True)
    np.testing.assert_allclose(same_mean, mean)
    np.testing.assert_allclose(np.sqrt(np.diagonal(covariance)), std)
    assert np.linalg.eigvalsh(covariance)[0] > 0
    with pytest.raises(ValueError, match="not for both"):
        model.predict(X, return_std=True, return_cov=True)


@pytest.mark.parametrize("name", ["EigenGP", "EigenGP+"])
def test_gradients_of_mean_and_variance_are_derivatives(name: str) -> None:
    model = fitted(name)
    point = np.array([0.3, -0.7])
    mean_gradient, variance_gradient = model.predict_gradient(point[None], return_variance=True)
    np.testing.assert_array_equal(mean_gradient, model.predict_gradient(point[None]))

    def mean(x: np.ndarray) -> float:
        return float(model.predict(x[None])[0])

    def variance(x: np.ndarray) -> float:
        return float(model.predict(x[None], return_std=True)[1][0] ** 2)

    assert_close(mean_gradient[0], numerical_gradient(mean, point), 1e-6)
    assert_close(variance_gradient[0], numerical_gradient(variance, point), 1e-5)


def test_a_sample_is_the_same_function_wherever_it_is_evaluated() -> None:
    X, model = make_data()[0][:80], fitted("EigenGP")
    whole = model.sample_y(X, n_samples=3, random_state=7)
    assert whole.shape == (80, 3)
    np.testing.assert_allclose(model.sample_y(X[20:30], 3, random_state=7), whole[20:30])
    many = model.sample_y(X[:5], n_samples=20_000, random_state=1)
    mean, covariance = model.predict(X[:5], return_cov=True)
    np.testing.assert_allclose(many.mean(axis=1), mean, atol=0.02)
    latent = covariance - model.noise_variance_ * np.eye(5)
    np.testing.assert_allclose(np.cov(many), latent, atol=0.05 * latent.max() + 1e-4)


def test_without_the_guard_no_stage_lowers_the_log_marginal_likelihood() -> None:
    X, y = make_data()
    sequential = quick(8, max_iter=60, guard=False).fit(X, y)
    joint = quick(8, "joint", max_iter=60, guard=False).fit(X, y)
    last = {step["stage"]: step["log_marginal_likelihood"] for step in sequential.history_}
    assert last["stage 2"] >= last["stage 1"] - 1e-9
    assert sequential.log_marginal_likelihood_ == pytest.approx(last["stage 2"], rel=1e-6)
    assert joint.log_marginal_likelihood_ >= sequential.log_marginal_likelihood_ - 1e-6


def test_joint_begins_at_the_sequential_optimum() -> None:
    X, y = make_data()
    sequential = quick(8, guard=False).fit(X, y)
    joint = quick(8, "joint", guard=False).fit(X, y)
    stages = [step["stage"] for step in joint.history_]
    before = joint.history_[stages.index("joint") - 1]["log_marginal_likelihood"]
    assert before == pytest.approx(sequential.log_marginal_likelihood_, rel=1e-9)


def test_sample_weights_are_repetitions() -> None:
    X, y = make_data(60)
    weight = np.random.default_rng(3).integers(0, 4, size=60)
    weighted = quick().fit(X, y, sample_weight=weight)
    repeated = quick().fit(np.repeat(X, weight, 0), np.repeat(y, weight))
    np.testing.assert_array_equal(weighted.predict(X), repeated.predict(X))
    assert weighted.log_marginal_likelihood_ == repeated.log_marginal_likelihood_
    with pytest.raises(ValueError, match="at least one non-zero"):
        quick().fit(X, y, sample_weight=np.zeros(60))
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        quick().fit(X, y, sample_weight=-np.ones(60))


def test_residual_widens_error_bars_far_from_the_data() -> None:
    far, plain, plus = np.full((1, 2), 60.0), fitted("EigenGP"), fitted("EigenGP+")
    assert plain.predict(far, return_std=True)[1] ** 2 == pytest.approx(plain.noise_variance_)
    prior = plus.kernel_.constant_diagonal + plus.noise_variance_
    assert plus.predict(far, return_std=True)[1] ** 2 == pytest.approx(prior)


@pytest.mark.parametrize("name", ["EigenGP+", "EigenGP*+"])
def test_residual_keeps_every_weight_below_the_prior(name: str) -> None:
    (X, _), model = make_data(), fitted(name)
    prior = model.eigenvalues_ / model.inducing_points_.shape[0]
    assert np.all(model.weights_ <= prior * (1 + 1e-9))
    explained = model.eigenfunctions(X) ** 2 @ model.weights_
    assert np.all(explained <= model.kernel_.constant_diagonal * (1 + 1e-9))


@pytest.mark.parametrize("method", ["auto", "kmeans", "random", "greedy"])
def test_every_placement_of_inducing_points_leads_to_a_good_fit(method: Any) -> None:
    X, y = make_data()
    model = quick(10, inducing_points=method, n_restarts=1, max_iter=60).fit(X, y)
    assert model.score(X, y) > 0.95


def test_inducing_points_are_given_in_the_units_of_the_data() -> None:
    X, y = make_data()
    points = X[:7]
    model = quick("auto", inducing_points=points, max_iter=0).fit(X, y)
    np.testing.assert_allclose(model.inducing_points_, points, rtol=1e-12)
    assert quick(3, inducing_points=points, max_iter=0).fit(X, y).weights_.shape == (3,)
    with pytest.raises(ValueError, match="inducing_points has 1 columns but X has 2 features"):
        quick("auto", inducing_points=points[:, :1]).fit(X, y)
    with pytest.raises(ValueError, match=r"n_components=9 .* inducing_points gives 7"):
        quick(9, inducing_points=points).fit(X, y)


@pytest.mark.parametrize(
    "kernel",
    [
        Matern32(lengthscale=2.0),
        RationalQuadratic() + SquaredExponential(0.5),
        Matern32() * Matern32(9.0),
    ],
)
def test_other_kernels_are_learned(kernel: Any) -> None:
    X, y = make_data()
    model = quick(12, kernel=kernel, max_iter=80).fit(X, y)
    assert type(model.kernel_) is type(kernel)
    assert model.score(X, y) > 0.9


def test_a_kernel_begins_where_the_user_says() -> None:
    X, y = make_data()
    kernel = SquaredExponential([0.7, 3.0], variance=2.5)
    points, optimizer = X[:8], LBFGS(n_restarts=1, max_iter=0)
    model = EigenGPRegressor(
        kernel=kernel, inducing_points=points, optimizer=optimizer, guard=False
    ).fit(X, y)
    np.testing.assert_allclose(model.kernel_.theta, kernel.theta, rtol=1e-9)
    np.testing.assert_allclose(model.inducing_points_, X[:8], rtol=1e-9)
    assert model.n_iter_ == 0


@pytest.mark.parametrize("unit", [1e-5, 1e5])
def test_a_kernel_in_the_wrong_units_is_rescued_by_the_restarts(unit: float) -> None:
    X, y = make_data()
    model = quick(10, kernel=Matern32(), n_restarts=8, max_iter=60).fit(X, unit * y)
    assert model.score(X, unit * y) > 0.9


def test_without_the_guard_all_inducing_points_are_used() -> None:
    X, y = make_data(60)
    model = quick(30, guard=False, max_iter=5).fit(X, y)
    assert model.inducing_points_.shape == (30, 2)


def test_the_guard_adds_inducing_points_only_while_they_pay() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(100, 1))
    y = X[:, 0] + 0.3 * rng.normal(size=100)
    model = quick(40, n_restarts=3).fit(X, y)
    assert model.inducing_points_.shape[0] < 40


@pytest.mark.parametrize(
    ("n_restarts", "screened"), [("auto", []), (1, []), (3, [3])], ids=["auto", "one", "three"]
)
def test_large_data_has_the_restarts_that_are_asked_for(
    n_restarts: Any, screened: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eigengp.fitting.settings._SMALL_PROBLEM", 0)
    usual, counts = InducingFamily.make_starts, []

    def counted(self: Any, template: Any, rows: Any, size: int, count: int, rng: Any) -> Any:
        counts.append(count)
        return usual(self, template, rows, size, count, rng)

    monkeypatch.setattr(InducingFamily, "make_starts", counted)
    quick(n_restarts=n_restarts, max_iter=2, residual=None).fit(*make_data(60))
    assert counts == screened


def test_a_refit_that_fails_leaves_the_fitted_model_as_it_was() -> None:
    X, y = make_data()
    model = quick().fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match="need at least as many inducing points"):
        model.set_params(inducing_points=2).fit(100 * X, -y)
    np.testing.assert_array_equal(model.predict(X), before)
    with pytest.raises(ValueError, match="need at least as many inducing points"):
        (fresh := EigenGPRegressor(6, inducing_points=2)).fit(X, y)
    with pytest.raises(NotFittedError):
        fresh.predict(X)


@pytest.mark.parametrize("optimizer", [LBFGS(n_restarts=1, max_iter=5), Stochastic(n_restarts=1)])
def test_a_partial_fit_that_fails_changes_no_attribute(
    optimizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = make_data(60)
    fresh = EigenGPRegressor(6, residual=None, optimizer=optimizer, random_state=0)
    model = clone(fresh).partial_fit(X, y).calibrate(X[:20], y[:20])
    for regressor in (fresh, model):
        before = {name: pickle.dumps(value) for name, value in vars(regressor).items()}
        with pytest.raises(ValueError, match="NaN"):
            regressor.partial_fit(np.full((5, 2), np.nan), y[:5])
        with pytest.raises(ValueError, match="forgetting must be above 0"):
            regressor.partial_fit(X, y, forgetting=0.0)
        with monkeypatch.context() as patched:
            patched.setattr(EigenGP, "posterior", broken_off)
            with pytest.raises(RuntimeError, match="broken off"):
                regressor.partial_fit(X, y)
        assert {name: pickle.dumps(value) for name, value in vars(regressor).items()} == before


def broken_off(*arguments: Any) -> Any:
    raise RuntimeError("broken off")


def test_random_state_makes_it_repeatable_and_row_order_does_not_matter() -> None:
    X, y = make_data(80)
    first = quick().fit(X, y)
    second = quick().fit(X[::-1], y[::-1])
    np.testing.assert_array_equal(first.predict(X), second.predict(X))


def test_pandas_pipelines_searches_clones_and_pickles() -> None:
    X, y = make_data(90)
    frame = pd.DataFrame(X, columns=["east", "north"])
    regressor = quick(n_restarts=1, max_iter=10)
    model = clone(regressor).fit(frame, pd.Series(y))
    assert list(model.feature_names_in_) == ["east", "north"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["north", "east"]])
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    assert clone(model).get_params()["n_components"] == 6

    grid = {"eigengpregressor__n_components": [3, 6]}
    search = GridSearchCV(make_pipeline(StandardScaler(), regressor), grid, cv=2)
    assert search.fit(X, y).best_score_ > 0.5
    assert cross_val_score(clone(model), X, y, cv=2).min() > 0.5


def test_progress_shows_the_log_marginal_likelihood(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = make_data(60)
    model = quick(4, verbose=True).fit(X, y)
    shown = capsys.readouterr().err
    assert "stage 1" in shown
    assert f"{model.history_[-1]['log_marginal_likelihood']:.3f}" in shown
    seconds = [step["seconds"] for step in model.history_]
    assert seconds == sorted(seconds)


def test_nothing_is_predicted_before_fit() -> None:
    for method in ("predict", "predict_interval", "predict_gradient", "eigenfunctions", "sample_y"):
        with pytest.raises(NotFittedError):
            getattr(EigenGPRegressor(), method)([[0.0]])
    with pytest.raises(NotFittedError):
        EigenGPRegressor().log_marginal_likelihood()
