"""Bad and extreme data: a clear error or a correct fit, never a crash in linear algebra."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eigengp import LBFGS, EigenGPRegressor

pytestmark = pytest.mark.usefixtures("short_search")

STEPS: dict[str, Any] = {"n_restarts": 2, "max_iter": 15, "tol": "auto"}


def quick(n_components: Any = "auto", strategy: Any = "auto", **settings: Any) -> EigenGPRegressor:
    """Return a regressor whose optimizer stops early."""
    own = {name: settings.pop(name, value) for name, value in STEPS.items()}
    optimizer = LBFGS(strategy, **own)
    return EigenGPRegressor(n_components, optimizer=optimizer, random_state=0, **settings)


def make_data(n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=n)


def assert_sane(model: EigenGPRegressor, X: np.ndarray, y: np.ndarray) -> None:
    mean, std = model.predict(X, return_std=True)
    assert np.all(np.isfinite(mean))
    assert np.all(std > 0)
    assert np.isfinite(model.log_marginal_likelihood_)
    assert np.sqrt(np.mean((mean - y) ** 2)) <= np.std(y) * 1.01 + 1e-9 * np.abs(y).max()


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([[np.nan], [1.0]], [0.0, 1.0], "NaN"),
        ([[0.0], [1.0]], [0.0, np.inf], "infinity"),
        ([[np.inf], [1.0]], [0.0, 1.0], "infinity"),
        ([0.0, 1.0], [0.0, 1.0], "Reshape your data"),
        ([[0.0], [1.0]], [0.0], "inconsistent numbers of samples"),
        ([["a"], ["b"]], [0.0, 1.0], "could not convert string to float"),
        ([[0.0], [1.0]], ["a", "b"], "Use EigenGPClassifier"),
        (np.empty((0, 2)), [], r"0 sample\(s\)"),
        (np.empty((3, 0)), [0.0, 1.0, 2.0], r"0 feature\(s\)"),
        ([[0.0], [1.0]], [[[0.0]], [[1.0]]], "dim 3"),
    ],
)
def test_what_is_no_data_is_refused(X: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick().fit(X, y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 0}, "n_components"),
        ({"n_components": 2.5}, "n_components"),
        ({"n_components": 8, "inducing_points": 4}, "at least as many inducing points"),
        ({"kernel": "rbf"}, "kernel"),
        ({"strategy": "both"}, "strategy"),
        ({"residual": "full"}, "residual"),
        ({"inducing_points": "corners"}, "inducing_points"),
        ({"inducing_points": 0}, "inducing_points"),
        ({"inducing_points": [[np.nan, 0.0]]}, "inducing_points contains NaN"),
        ({"n_restarts": 0}, "n_restarts"),
        ({"max_iter": -1}, "max_iter"),
        ({"tol": -1.0}, "tol"),
        ({"standardize": "yes"}, "standardize"),
        ({"likelihood": "student"}, "likelihood"),
        ({"mean": "median"}, "mean"),
        ({"n_neighbors": 0}, "n_neighbors"),
        ({"max_time": 0.0}, "max_time"),
        ({"guard": "yes"}, "guard"),
    ],
)
def test_bad_parameters_are_named(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick(**parameters).fit(*make_data())


def test_bad_coverage_and_wrong_lengthscales_are_named() -> None:
    from eigengp import SquaredExponential

    X, y = make_data()
    model = quick(4).fit(X, y)
    with pytest.raises(ValueError, match="coverage"):
        model.predict_interval(X, coverage=90)
    with pytest.raises(ValueError, match="3 lengthscales but X has 2"):
        quick(4, kernel=SquaredExponential([1.0, 1.0, 1.0])).fit(X, y)


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e6, 1e12])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_any_scale_is_fitted(scale: float, offset: float) -> None:
    X, y = make_data()
    X, y = scale * (X + offset), scale * (y + offset)
    model = quick(8, max_iter=40).fit(X, y)
    assert_sane(model, X, y)
    assert model.score(X, y) > 0.9


def test_columns_of_very_different_scale_are_fitted() -> None:
    X, y = make_data()
    X = X * [1e-12, 1e12]
    assert quick(8, max_iter=40).fit(X, y).score(X, y) > 0.9


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("prior", ["constant", "zero"])
@pytest.mark.parametrize("value", [0.0, 3.0, -1e-9, 1e9])
def test_constant_targets_are_predicted(value: float, prior: str, standardize: bool) -> None:
    X, _ = make_data()
    model = quick(4, mean=prior, standardize=standardize).fit(X, np.full(60, value))
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, value, rtol=1e-2, atol=1e-6)
    assert np.all(std > 0)
    assert np.all(std <= 0.1 * max(abs(value), 1.0))


@pytest.mark.parametrize("kind", ["constant", "nearly constant", "duplicated", "all constant"])
def test_degenerate_columns_are_fitted(kind: str) -> None:
    X, y = make_data()
    extra = {
        "constant": np.full((60, 1), 1e5),
        "nearly constant": 1e5 + 1e-11 * X[:, :1],
        "duplicated": X[:, :1],
        "all constant": np.zeros((60, 1)),
    }[kind]
    X = extra if kind == "all constant" else np.hstack([X, extra])
    assert_sane(quick(6 if X.shape[1] > 1 else "auto").fit(X, y), X, y)


def test_duplicated_rows_are_fitted() -> None:
    X, y = make_data(20)
    X, y = np.repeat(X, 5, axis=0), np.repeat(y, 5) + 0.01 * np.arange(100)
    assert_sane(quick(10).fit(X, y), X, y)


def test_more_inducing_points_than_rows_are_cut_with_a_warning() -> None:
    X, y = make_data(5)
    with pytest.warns(UserWarning, match="only 5 distinct rows"):
        model = quick(20).fit(X, y)
    assert model.inducing_points_.shape == (5, 2)
    assert_sane(model, X, y)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_handful_of_rows_is_fitted(n: int) -> None:
    X, y = make_data(n)
    assert_sane(quick().fit(X, y), X, y)


def test_sorted_data_that_begins_with_equal_rows_keeps_its_inducing_points() -> None:
    X = np.concatenate([np.zeros(5_500), np.linspace(0, 6, 2_500)])[:, None]
    y = np.sin(2 * X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=8_000)
    model = quick(20, residual=None, max_iter=40).fit(X, y)
    assert model.weights_.shape == (20,)
    assert model.score(X, y) > 0.9


def test_rows_of_no_weight_are_as_good_as_absent_however_many() -> None:
    X, y = make_data(6_000)
    weight = np.zeros(6_000)
    weight[-60:] = 1.0
    weighted = quick(5).fit(X, y, sample_weight=weight)
    alone = quick(5).fit(X[-60:], y[-60:])
    np.testing.assert_array_equal(weighted.predict(X[:9]), alone.predict(X[:9]))


def test_a_column_whose_variation_is_small_beside_its_mean_still_counts() -> None:
    X, y = make_data()
    offset = 1e9 + 5e-5 * X
    assert quick(8, max_iter=40).fit(offset, y).score(offset, y) > 0.8


def test_with_a_zero_mean_an_offset_is_learned_as_signal() -> None:
    X, y = make_data()
    model = quick(8, mean="zero", standardize=False, max_iter=60, n_restarts=6)
    assert model.fit(X, y + 100.0).score(X, y + 100.0) > 0.88


def test_inducing_points_that_coincide_are_fitted() -> None:
    X, y = make_data()
    for strategy in ("sequential", "joint"):
        model = quick("auto", strategy, inducing_points=np.zeros((5, 2)))
        assert_sane(model.fit(X, y), X, y)


def test_float32_and_integers_and_memory_layout_are_accepted() -> None:
    X, y = make_data()
    reference = quick(4).fit(X.astype(np.float32).astype(float), y).predict(X)
    single = quick(4).fit(X.astype(np.float32), y)
    np.testing.assert_allclose(single.predict(X), reference)
    fortran = quick(4).fit(np.asfortranarray(X), y)
    np.testing.assert_array_equal(fortran.predict(X), quick(4).fit(X, y).predict(X))
    whole = np.arange(30).reshape(-1, 1)
    assert quick(4).fit(whole, whole[:, 0] // 2).score(whole, whole // 2) > 0.9


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**16),
    n=st.integers(4, 40),
    features=st.integers(1, 4),
    log_scale=st.floats(-9, 9),
    noise=st.sampled_from([0.0, 1e-6, 1.0]),
    residual=st.sampled_from([None, "diagonal"]),
    strategy=st.sampled_from(["sequential", "joint"]),
)
def test_whatever_the_data_variances_are_positive(
    seed: int,
    n: int,
    features: int,
    log_scale: float,
    noise: float,
    residual: Any,
    strategy: Any,
) -> None:
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, features)), 1)
    y = 10.0**log_scale * (np.sign(X[:, 0]) + noise * rng.normal(size=n))
    optimizer = LBFGS(strategy, n_restarts=2, max_iter=8)
    model = EigenGPRegressor(residual=residual, optimizer=optimizer, random_state=seed).fit(
        10.0**-log_scale * X, y
    )
    mean, std = model.predict(10.0**-log_scale * (X + rng.normal(size=X.shape)), return_std=True)
    assert np.all(np.isfinite(mean))
    assert np.all(np.isfinite(std) & (std > 0))
    assert np.isfinite(model.log_marginal_likelihood_)
