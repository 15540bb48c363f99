"""What holds for every method, as scikit-learn and its users see it."""

from __future__ import annotations

import pickle
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from eigengp import (
    EigenGPRegressor,
    ExactGPRegressor,
    FITCRegressor,
    NystromRegressor,
    PowerEPRegressor,
    RVMRegressor,
    SquaredExponential,
    SSGPRegressor,
    VFERegressor,
)
from eigengp._typing import Array
from finite_differences import assert_close, gradient

QUICK: dict[str, Any] = {"n_restarts": 1, "max_iter": 40, "random_state": 0}
METHODS: dict[str, Any] = {
    "EigenGP": EigenGPRegressor(10, **QUICK),
    "FITC": FITCRegressor(10, **QUICK),
    "VFE": VFERegressor(10, **QUICK),
    "PowerEP": PowerEPRegressor(n_components=10, **QUICK),
    "SSGP": SSGPRegressor(16, **QUICK),
    "Nystrom": NystromRegressor(40, random_state=0),
    "Nystrom*": NystromRegressor(10, optimize=True, **QUICK),
    "ExactGP": ExactGPRegressor(**QUICK),
    "RVM": RVMRegressor(lengthscale=1.0, random_state=0),
}
# EigenGPRegressor is checked in test_eigengp_regressor.py.
CHECKED = [
    FITCRegressor(4, n_restarts=1, max_iter=3),
    VFERegressor(4, n_restarts=1, max_iter=3),
    PowerEPRegressor(n_components=4, n_restarts=1, max_iter=3),
    SSGPRegressor(4, n_restarts=1, max_iter=3),
    NystromRegressor(4),
    NystromRegressor(optimize=True, n_restarts=1, max_iter=3),
    ExactGPRegressor(n_restarts=1, max_iter=3),
    RVMRegressor(lengthscale=1.0, max_iter=20),
    RVMRegressor(n_folds=2, n_jobs=1, max_iter=5),
]

SPARSE = [name for name in METHODS if hasattr(METHODS[name], "n_components")]
# The better the evidence of Nyström* with few points, the less do its predictions belong to it:
# means are far off and variances negative, which is what the class says of itself.
CONSISTENT = [name for name in METHODS if name != "Nystrom*"]
WITH_BASIS_POINTS = [name for name in METHODS if hasattr(METHODS[name], "init")]
any_method = pytest.mark.parametrize("name", METHODS)
consistent_method = pytest.mark.parametrize("name", CONSISTENT)
pytestmark = [
    pytest.mark.filterwarnings("ignore::eigengp.NegativeVarianceWarning"),
    pytest.mark.filterwarnings("ignore:The relevance vector machine has not converged"),
]


def make_data(n: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, size=(n, 2))
    y = 5.0 + np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=n)
    return X, y


X, y = make_data(80, seed=0)
X_test, y_test = make_data(300, seed=1)
X_new = X_test[:9]


def make(name: str, **settings: Any) -> Any:
    return clone(METHODS[name]).set_params(**settings)


def small(name: str, **settings: Any) -> Any:
    return make(name, **({"n_components": 5} if name in SPARSE else {}), **settings)


@cache
def fitted(name: str) -> Any:
    """Return a model that was fitted once for all tests, which must not change it."""
    return make(name).fit(X, y)


def assert_same_predictions(model: Any, other: Any) -> None:
    for own, theirs in zip(
        model.predict(X_new, return_std=True), other.predict(X_new, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(own, theirs)


@pytest.fixture
def short_runs(short_search: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Search for less long; not for tests that share a fitted model."""
    monkeypatch.setattr("eigengp.baselines.rvm.width.N_WIDTHS", 2)


@pytest.mark.usefixtures("short_runs")
@parametrize_with_checks(CHECKED)
def test_scikit_learn_estimator_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@consistent_method
def test_it_learns_a_smooth_function(name: str) -> None:
    model = fitted(name)
    mean, std = model.predict(X_test, return_std=True)
    assert np.mean((y_test - mean) ** 2) < 0.05 * np.var(y_test)
    assert np.all(std**2 >= model.noise_variance_ * (1 - 1e-12))
    lower, upper = model.predict_interval(X_test, coverage=0.9)
    assert 0.8 < np.mean((lower < y_test) & (y_test < upper)) < 0.99
    assert model.score(X_test, y_test) > 0.95


@any_method
def test_changing_units_changes_nothing_else(name: str) -> None:
    units = np.array([4.0, 0.25])
    plain, scaled = fitted(name), make(name).fit(X * units, 8.0 * y)
    mean, std = plain.predict(X_new, return_std=True)
    mean_scaled, std_scaled = scaled.predict(X_new * units, return_std=True)
    np.testing.assert_allclose(mean_scaled, 8.0 * mean, rtol=1e-6)
    np.testing.assert_allclose(std_scaled, 8.0 * std, rtol=1e-6)
    shifted = plain.log_marginal_likelihood_ - y.size * np.log(8.0)
    assert scaled.log_marginal_likelihood_ == pytest.approx(shifted, rel=1e-8)
    assert scaled.noise_variance_ == pytest.approx(64.0 * plain.noise_variance_, rel=1e-6)
    # The basis functions of the RVM have variance one in any unit.
    in_units = plain.kernel_.rescaled(units, 1.0 if name == "RVM" else 64.0)
    np.testing.assert_allclose(scaled.kernel_.theta, in_units.theta, rtol=0.0, atol=1e-6)


@pytest.mark.usefixtures("short_runs")
@any_method
def test_sample_weights_are_repetitions(name: str) -> None:
    weight = np.random.default_rng(3).integers(0, 4, size=y.size)
    weighted = small(name).fit(X, y, sample_weight=weight)
    repeated = small(name).fit(np.repeat(X, weight, 0), np.repeat(y, weight))
    assert_same_predictions(weighted, repeated)
    assert weighted.log_marginal_likelihood_ == repeated.log_marginal_likelihood_


@pytest.mark.usefixtures("short_runs")
@any_method
def test_random_state_makes_it_repeatable_and_row_order_does_not_matter(name: str) -> None:
    first, second = small(name).fit(X, y), small(name).fit(X[::-1], y[::-1])
    assert_same_predictions(first, second)
    np.testing.assert_array_equal(first.kernel_.theta, second.kernel_.theta)
    assert first.log_marginal_likelihood_ == second.log_marginal_likelihood_


@any_method
def test_single_precision_is_taken_as_it_is(name: str) -> None:
    single = X.astype(np.float32)
    model = small(name, max_iter=0).fit(single, y)
    assert_same_predictions(model, small(name, max_iter=0).fit(single.astype(np.float64), y))
    mean = model.predict(X_new.astype(np.float32))
    assert mean.dtype == np.float64
    np.testing.assert_allclose(mean, model.predict(X_new.astype(np.float32).astype(np.float64)))


@any_method
def test_feature_names_are_remembered(name: str) -> None:
    frame = pd.DataFrame(X, columns=["east", "north"])
    model = small(name, max_iter=0).fit(frame, pd.Series(y))
    assert list(model.feature_names_in_) == ["east", "north"]
    plain = small(name, max_iter=0).fit(X, y)
    np.testing.assert_array_equal(model.predict(frame), plain.predict(X))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["north", "east"]])


@any_method
def test_pickles_and_clones(name: str) -> None:
    model = fitted(name)
    again = pickle.loads(pickle.dumps(model))
    assert_same_predictions(again, model)
    assert again.log_marginal_likelihood() == model.log_marginal_likelihood_
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(X_new)


@any_method
def test_gradients_of_mean_and_variance_are_derivatives(name: str) -> None:
    model = fitted(name)
    means, variances = model.predict_gradient(X_new[:3], return_variance=True)
    np.testing.assert_array_equal(means, model.predict_gradient(X_new[:3]))

    def mean(x: Array) -> float:
        return float(model.predict(x[None])[0])

    def variance(x: Array) -> float:
        return float(model.predict(x[None], return_std=True)[1][0] ** 2)

    step = 4e-2
    assert_close(means, np.array([gradient(mean, x, step) for x in X_new[:3]]), 1e-6)
    assert_close(variances, np.array([gradient(variance, x, step) for x in X_new[:3]]), 1e-5)


@consistent_method
def test_joint_covariance_and_standard_deviation_agree(name: str) -> None:
    model = fitted(name)
    mean, std = model.predict(X_new, return_std=True)
    same_mean, covariance = model.predict(X_new, return_cov=True)
    np.testing.assert_allclose(same_mean, mean, rtol=1e-12)
    np.testing.assert_allclose(np.diagonal(covariance), std**2, rtol=1e-7)
    np.testing.assert_array_equal(covariance, covariance.T)
    assert np.linalg.eigvalsh(covariance)[0] > 0


@consistent_method
def test_samples_are_functions_around_the_mean(name: str) -> None:
    model, n_samples = fitted(name), 4000
    drawn = model.sample_y(X_new, n_samples, random_state=7)
    assert drawn.shape == (9, n_samples)
    assert model.sample_y(X_new).shape == (9, 1)
    np.testing.assert_array_equal(model.sample_y(X_new, n_samples, random_state=7), drawn)
    assert not np.any(model.sample_y(X_new, n_samples, random_state=8) == drawn)
    mean, std = model.predict(X_new, return_std=True)
    spread = drawn.std(axis=1)
    assert np.all(np.abs(drawn.mean(axis=1) - mean) < 4.5 * spread / np.sqrt(n_samples))
    np.testing.assert_allclose(spread**2, std**2 - model.noise_variance_, rtol=0.1)


@pytest.mark.parametrize("name", SPARSE)
def test_it_can_start_from_the_full_gp(name: str) -> None:
    model = make(name, kernel="exact", max_iter=0).fit(X, y)
    learned = fitted("ExactGP")
    np.testing.assert_allclose(model.kernel_.theta, learned.kernel_.theta, rtol=0.0, atol=1e-2)
    assert model.noise_variance_ == pytest.approx(learned.noise_variance_, rel=1e-2)
    assert model.history_


@pytest.mark.parametrize("name", sorted(set(SPARSE) & set(CONSISTENT)))
def test_it_learns_on_from_the_full_gp(name: str) -> None:
    assert make(name, kernel="exact").fit(X, y).score(X_test, y_test) > 0.95


@any_method
def test_history_tells_of_every_iteration(name: str) -> None:
    model = fitted(name)
    seconds = [step["seconds"] for step in model.history_]
    assert seconds == sorted(seconds)
    assert {"stage", "iteration", "log_marginal_likelihood"} <= set(model.history_[0])
    if name != "Nystrom":
        last = model.history_[-1]["log_marginal_likelihood"]
        assert model.log_marginal_likelihood_ == pytest.approx(last, rel=1e-8)
        assert 1 <= model.n_iter_ <= len(model.history_)


@any_method
def test_a_refit_that_fails_leaves_the_fitted_model_as_it_was(name: str) -> None:
    model = small(name, max_iter=0).fit(X, y)
    before, kernel = model.predict(X_new), model.kernel_
    with pytest.raises(ValueError, match="3 lengthscales but X has 2"):
        model.set_params(kernel=SquaredExponential([1.0, 1.0, 1.0])).fit(100 * X, -y)
    np.testing.assert_array_equal(model.predict(X_new), before)
    assert model.kernel_ is kernel


@any_method
def test_what_is_no_data_is_refused(name: str) -> None:
    for inputs, targets, message in (
        ([[np.nan], [1.0]], [0.0, 1.0], "NaN"),
        ([[0.0], [1.0]], [0.0, np.nan], "NaN"),
        ([[np.inf], [1.0]], [0.0, 1.0], "infinity"),
        ([[0.0], [1.0]], [0.0], "inconsistent numbers of samples"),
        ([0.0, 1.0], [0.0, 1.0], "Reshape your data"),
    ):
        with pytest.raises(ValueError, match=message):
            make(name).fit(inputs, targets)
    with pytest.raises(ValueError, match="NaN"):
        fitted(name).predict([[np.nan, 0.0]])


WITH_NOISE = [name for name in METHODS if hasattr(METHODS[name], "noise_variance")]
BAD = [(name, {"noise_variance": value}) for name in WITH_NOISE for value in (-1.0, 0.0)]
BAD += [(name, {"kernel": "rbf"}) for name in METHODS]
BAD += [(name, {"n_components": 0}) for name in SPARSE]
BAD += [(name, {"init": "corners"}) for name in WITH_BASIS_POINTS]
BAD += [("PowerEP", {"alpha": alpha}) for alpha in (-0.1, 1.1, np.nan, None)]
BAD += [("Nystrom", {"optimize": "yes"}), ("ExactGP", {"kernel": "exact"})]


@pytest.mark.parametrize(("name", "settings"), BAD, ids=str)
def test_bad_parameters_are_named(name: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"'{next(iter(settings))}' parameter of"):
        make(name, **settings).fit(X, y)


@pytest.mark.parametrize("name", WITH_BASIS_POINTS)
def test_basis_points_are_in_the_units_of_the_data_and_must_fit_it(name: str) -> None:
    model = make(name, init=X[:7], n_components=None, max_iter=0).fit(X, y)
    np.testing.assert_allclose(model.inducing_points_, X[:7], rtol=1e-12)
    with pytest.raises(ValueError, match="init has 1 columns but X has 2 features"):
        make(name, init=X[:10, :1], n_components=10).fit(X, y)
    with pytest.raises(ValueError, match="init contains NaN"):
        make(name, init=np.full((10, 2), np.nan), n_components=10).fit(X, y)
