"""What holds for every method, as scikit-learn and its users see it."""

from __future__ import annotations

import pickle
import warnings
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from eigengp import (
    LBFGS,
    EigenGPRegressor,
    ExactGPRegressor,
    FITCRegressor,
    Gaussian,
    Heteroscedastic,
    Matern52,
    NystromRegressor,
    PowerEPRegressor,
    RVMRegressor,
    SquaredExponential,
    SSGPRegressor,
    Stochastic,
    VFERegressor,
)
from eigengp._typing import Array
from finite_differences import assert_close, gradient

QUICK: dict[str, Any] = {"optimizer": LBFGS(n_restarts=1, max_iter=40), "random_state": 0}
BRIEF = LBFGS(n_restarts=1, max_iter=3)
METHODS: dict[str, Any] = {
    "EigenGP": EigenGPRegressor(10, **QUICK),
    "FITC": FITCRegressor(10, **QUICK),
    "VFE": VFERegressor(10, **QUICK),
    "PowerEP": PowerEPRegressor(10, **QUICK),
    "SSGP": SSGPRegressor(16, **QUICK),
    "Nystrom": NystromRegressor(40, random_state=0),
    "Nystrom*": NystromRegressor(10, **QUICK),
    "ExactGP": ExactGPRegressor(**QUICK),
    "RVM": RVMRegressor(lengthscale=1.0, random_state=0),
}
# EigenGPRegressor is checked in test_eigengp_regressor.py.
CHECKED = [
    FITCRegressor(4, optimizer=BRIEF),
    VFERegressor(4, optimizer=BRIEF),
    PowerEPRegressor(4, optimizer=BRIEF),
    SSGPRegressor(4, optimizer=BRIEF),
    NystromRegressor(4),
    NystromRegressor(optimizer=BRIEF),
    ExactGPRegressor(optimizer=BRIEF),
    RVMRegressor(lengthscale=1.0, max_iter=20),
    RVMRegressor(n_folds=2, n_jobs=1, max_iter=5),
]

SPARSE = [name for name in METHODS if hasattr(METHODS[name], "n_components")]
# Nyström* with few inducing points maximises a likelihood that its predictions do not follow: means
# are far off and variances negative, as its docstring says.
CONSISTENT = [name for name in METHODS if name != "Nystrom*"]
WITH_INDUCING_POINTS = [name for name in METHODS if hasattr(METHODS[name], "inducing_points")]
WITH_OPTIMIZER = [name for name in METHODS if getattr(METHODS[name], "optimizer", None)]
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


def unlearned(name: str, **settings: Any) -> Any:
    """Return a small model whose optimizer takes no step."""
    if name in WITH_OPTIMIZER:
        settings["optimizer__max_iter"] = 0
    elif name == "RVM":
        settings["max_iter"] = 0
    return small(name, **settings)


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
    monkeypatch.setattr("eigengp.baselines.rvm.regressor.N_WIDTHS", 2)


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
    model = unlearned(name).fit(single, y)
    assert_same_predictions(model, unlearned(name).fit(single.astype(np.float64), y))
    mean = model.predict(X_new.astype(np.float32))
    assert mean.dtype == np.float64
    np.testing.assert_allclose(mean, model.predict(X_new.astype(np.float32).astype(np.float64)))


@any_method
def test_feature_names_are_remembered(name: str) -> None:
    frame = pd.DataFrame(X, columns=["east", "north"])
    model = unlearned(name).fit(frame, pd.Series(y))
    assert list(model.feature_names_in_) == ["east", "north"]
    plain = unlearned(name).fit(X, y)
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
    # An optimizer is compared by its own parameters, which `get_params` lists too.
    own, theirs = ({**each.get_params(), "optimizer": None} for each in (copy, model))
    assert own == theirs
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
    assert_close(variances, np.array([gradient(variance, x, step) for x in X_new[:3]]), 1e-4)


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


def from_exact(name: str, **settings: Any) -> Any:
    """Return a model that starts from an exact GP, as Nyström without an optimizer always does."""
    return (
        make(name, **settings)
        if name == "Nystrom"
        else make(name, optimizer=LBFGS(n_restarts=1, exact_start=True, **settings))
    )


@pytest.mark.parametrize("name", SPARSE)
def test_it_can_start_from_the_exact_gp(name: str) -> None:
    own = {} if name == "Nystrom" else {"max_iter": 0}
    model = from_exact(name, **own).fit(X, y)
    learned = fitted("ExactGP")
    np.testing.assert_allclose(model.kernel_.theta, learned.kernel_.theta, rtol=0.0, atol=1e-2)
    assert model.noise_variance_ == pytest.approx(learned.noise_variance_, rel=1e-2)
    assert model.history_


@pytest.mark.parametrize("name", sorted(set(SPARSE) & set(CONSISTENT)))
def test_it_learns_on_from_the_exact_gp(name: str) -> None:
    own = {} if name == "Nystrom" else {"max_iter": 40}
    assert from_exact(name, **own).fit(X, y).score(X_test, y_test) > 0.95


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
    model = unlearned(name).fit(X, y)
    before, kernel = model.predict(X_new), model.kernel_
    with pytest.raises(ValueError, match="3 lengthscales but X has 2"):
        model.set_params(kernel=SquaredExponential([1.0, 1.0, 1.0])).fit(100 * X, -y)
    np.testing.assert_array_equal(model.predict(X_new), before)
    assert model.kernel_ is kernel


@any_method
def test_what_is_no_data_is_refused(name: str) -> None:
    for inputs, targets, message in (
        ([[np.nan], [1.0]], [0.0, 1.0], "NaN"),
        ([[0.0], [1.0]], [np.nan, np.nan], "NaN"),
        ([[np.inf], [1.0]], [0.0, 1.0], "infinity"),
        ([[0.0], [1.0]], [0.0], "inconsistent numbers of samples"),
        ([0.0, 1.0], [0.0, 1.0], "Reshape your data"),
    ):
        with pytest.raises(ValueError, match=message):
            make(name).fit(inputs, targets)
    with pytest.raises(ValueError, match="NaN"):
        fitted(name).predict([[np.nan, 0.0]])


BAD: list[tuple[str, dict[str, Any]]] = [
    (name, {"likelihood": "cauchy"}) for name in METHODS if name != "RVM"
]
BAD += [(name, {"kernel": "rbf"}) for name in METHODS]
BAD += [(name, {"n_components": value}) for name in SPARSE for value in (0, None)]
BAD += [(name, {"inducing_points": "corners"}) for name in WITH_INDUCING_POINTS]
BAD += [(name, {"optimizer": "adam"}) for name in METHODS if name != "RVM"]
BAD += [("PowerEP", {"alpha": alpha}) for alpha in (-0.1, 1.1, np.nan, None)]
BAD += [(name, {"optimizer": None}) for name in WITH_OPTIMIZER if name != "Nystrom*"]
BAD += [(name, {"optimizer": Stochastic()}) for name in METHODS if name not in ("EigenGP", "RVM")]


@pytest.mark.parametrize(("name", "settings"), BAD, ids=str)
def test_bad_parameters_are_named(name: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"'{next(iter(settings))}' parameter of"):
        make(name, **settings).fit(X, y)


@pytest.mark.parametrize("name", WITH_INDUCING_POINTS)
def test_inducing_points_are_in_the_units_of_the_data_and_match_it(name: str) -> None:
    model = unlearned(name, inducing_points=X[:7])
    model.set_params(n_components="auto").fit(X, y)
    np.testing.assert_allclose(model.inducing_points_, X[:7], rtol=1e-12)
    with pytest.raises(ValueError, match="inducing_points has 1 columns but X has 2 features"):
        make(name, inducing_points=X[:10, :1], n_components=10).fit(X, y)
    with pytest.raises(ValueError, match="inducing_points contains NaN"):
        make(name, inducing_points=np.full((10, 2), np.nan), n_components=10).fit(X, y)


@any_method
def test_a_kernel_can_be_named(name: str) -> None:
    model = small(name, kernel="matern52").fit(X, y)
    assert isinstance(model.kernel_, Matern52)
    assert np.all(np.isfinite(model.predict(X_new)))
    with pytest.raises(ValueError, match=r"'kernel' parameter of .*'matern52'.* Got 'Matern52'"):
        small(name, kernel="Matern52").fit(X, y)


@any_method
def test_every_fit_tells_what_it_chose_one_line_per_decision(name: str) -> None:
    model = fitted(name)
    lines = str(model.selection_).splitlines()
    decisions = list(model.selection_)
    assert lines == ([str(each) for each in decisions] or ["nothing to choose"])
    for line, each in zip(lines, decisions, strict=False):
        assert line.startswith(f"{each.name}: {each.chosen} (")
        assert model.selection_[each.name] is each
        assert each.name in model.selection_
    assert (name == "EigenGP") == bool(decisions)
    with pytest.raises(KeyError, match="no decision about 'colour'"):
        model.selection_["colour"]


@any_method
def test_selection_is_that_of_the_last_fit_and_is_pickled(name: str) -> None:
    model = unlearned(name).fit(X, y)
    first = model.selection_
    assert model.fit(X, y).selection_ == first
    assert pickle.loads(pickle.dumps(model)).selection_ == first
    assert not hasattr(clone(model), "selection_")


def test_the_lengthscale_of_the_rvm_is_a_decision() -> None:
    model = RVMRegressor(n_folds=2, n_jobs=1, max_iter=5, random_state=0).fit(X, y)
    decision = model.selection_["lengthscale"]
    assert decision.chosen in decision.scores
    assert len(decision.scores) == 16
    assert str(decision).startswith(f"lengthscale: {decision.chosen} (largest log marginal")


def state(model: Any) -> dict[str, Any]:
    """Return copies of all attributes, as bytes, so that changes inside them show too."""
    return {name: pickle.dumps(value) for name, value in vars(model).items()}


def fail(*arguments: Any, **settings: Any) -> Any:
    raise RuntimeError("broken off")


@pytest.mark.parametrize("again", [False, True], ids=["first fit", "refit"])
@pytest.mark.parametrize("step", ["open", "settings", "learn", "condition"])
@any_method
def test_a_fit_that_fails_changes_no_attribute(
    name: str, step: str, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = unlearned(name)
    if again:
        model.fit(pd.DataFrame(X, columns=["east", "north"]), y).calibrate(
            pd.DataFrame(X_new, columns=["east", "north"]), y_test[:9]
        )
    targets = {
        "open": "eigengp.estimators.base.open_dataset",
        "settings": "eigengp.fitting.settings.Settings.from_estimator",
        "learn": "eigengp.fitting.restarts.FirstStage.choose_start",
        "condition": "eigengp.fitting.run.Run.make_result",
    }
    monkeypatch.setattr(targets[step], fail)
    if step == "learn":
        monkeypatch.setattr("eigengp.baselines.rvm.regressor.learn_relevance", fail)
    before, objects = state(model), dict(vars(model))
    with pytest.raises(RuntimeError, match="broken off"):
        model.fit(100 * X[:40], -y[:40])
    assert state(model) == before
    assert all(value is objects[key] for key, value in vars(model).items())


@any_method
def test_a_fit_of_bad_data_or_settings_changes_no_attribute(name: str) -> None:
    model = unlearned(name).fit(X, y)
    before = state(model)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full((9, 3), np.nan), y[:9])
    with pytest.raises(ValueError, match="inconsistent"):
        model.fit(X[:30], y)
    assert state(model) == before
    model.set_params(kernel=SquaredExponential([1.0, 1.0, 1.0]))
    before = state(model)
    with pytest.raises(ValueError, match="3 lengthscales but X has 2"):
        model.fit(X, y)
    assert state(model) == before


@pytest.mark.parametrize("name", ["EigenGP", "FITC", "Nystrom"])
def test_a_warning_points_at_the_call_of_fit_and_may_be_an_error(name: str) -> None:
    model = unlearned(name).set_params(n_components=9)
    with pytest.warns(UserWarning, match="only 4 distinct rows") as caught:
        model.fit(X[:4], y[:4])
    assert [each.filename for each in caught] == [__file__]
    for regressor in (model, clone(model)):
        before = state(regressor)
        with warnings.catch_warnings(action="error"), pytest.raises(UserWarning, match="distinct"):
            regressor.fit(X[:5], y[:5])
        assert state(regressor) == before


@pytest.mark.parametrize("name", WITH_OPTIMIZER)
def test_parameters_of_the_optimizer_are_parameters_of_the_regressor(name: str) -> None:
    model = make(name)
    assert model.get_params()["optimizer__max_iter"] == 40
    model.set_params(optimizer__max_iter=3)
    assert model.optimizer.max_iter == 3
    copy = clone(model)
    assert copy.optimizer is not model.optimizer
    assert copy.get_params()["optimizer__max_iter"] == 3
    copy.set_params(optimizer__max_iter=5)
    assert model.optimizer.max_iter == 3
    assert METHODS[name].optimizer.max_iter == 40
    stages = {step["stage"] for step in model.fit(X, y).history_}
    assert 1 <= model.n_iter_ <= 3 * len(stages)


@pytest.mark.parametrize("name", sorted(set(WITH_OPTIMIZER) & set(CONSISTENT)))
def test_a_grid_search_reaches_the_optimizer(name: str) -> None:
    grid = {"optimizer__max_iter": [0, 10], "optimizer__tol": [1e-3]}
    search = GridSearchCV(small(name), grid, cv=2).fit(X, y)
    assert search.best_params_["optimizer__max_iter"] == 10
    assert search.best_estimator_.optimizer.tol == 1e-3
    assert METHODS[name].optimizer.tol == "auto"


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (LBFGS("both"), "'strategy' parameter of LBFGS"),
        (LBFGS(n_restarts=0), "'n_restarts' parameter of LBFGS"),
        (LBFGS(n_restarts=1.5), "'n_restarts' parameter of LBFGS"),
        (LBFGS(max_iter=-1), "'max_iter' parameter of LBFGS"),
        (LBFGS(max_iter=None), "'max_iter' parameter of LBFGS"),
        (LBFGS(tol=-1.0), "'tol' parameter of LBFGS"),
        (LBFGS(exact_start="yes"), "'exact_start' parameter of LBFGS"),
        (LBFGS(checkpoint=3), "'checkpoint' parameter of LBFGS"),
        (Stochastic(batch_size=0), "'batch_size' parameter of Stochastic"),
        (Stochastic(max_iter=-1), "'max_iter' parameter of Stochastic"),
        (Stochastic(max_iter="auto"), "'max_iter' parameter of Stochastic"),
        (Stochastic(n_restarts=0), "'n_restarts' parameter of Stochastic"),
    ],
    ids=repr,
)
def test_bad_parameters_of_an_optimizer_are_named(optimizer: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EigenGPRegressor(4, optimizer=optimizer).fit(X, y)
    if isinstance(optimizer, LBFGS):
        with pytest.raises(ValueError, match=message):
            FITCRegressor(4, optimizer=optimizer).fit(X, y)


@pytest.mark.parametrize("name", [name for name in WITH_OPTIMIZER if name != "EigenGP"])
def test_strategies_belong_to_eigengp(name: str) -> None:
    with pytest.raises(ValueError, match="learns all parameters in one stage"):
        make(name, optimizer__strategy="joint").fit(X, y)


@pytest.mark.parametrize("make_likelihood", [Gaussian, Heteroscedastic])
@pytest.mark.parametrize("variance", [-1.0, 0.0, np.nan, np.inf, "much"])
def test_a_noise_variance_to_start_from_is_positive(make_likelihood: Any, variance: Any) -> None:
    with pytest.raises(ValueError, match="variance must be positive and finite"):
        make_likelihood(variance)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("EigenGP", "RVM")])
def test_heteroscedastic_noise_belongs_to_eigengp(name: str) -> None:
    with pytest.raises(ValueError, match=f"'likelihood' parameter of {type(make(name)).__name__}"):
        make(name, likelihood=Heteroscedastic()).fit(X, y)


@pytest.mark.parametrize("name", ["EigenGP", "FITC", "VFE", "PowerEP", "SSGP", "ExactGP"])
def test_the_noise_variance_starts_where_the_likelihood_says(name: str) -> None:
    settings = {"kernel": SquaredExponential(), "likelihood": Gaussian(variance=0.25)}
    model = unlearned(name, **settings)
    if name == "EigenGP":
        model.set_params(guard=False)
    near = model.fit(X, y).noise_variance_
    far = model.set_params(likelihood=Gaussian(variance=25.0)).fit(X, y).noise_variance_
    assert far > near
