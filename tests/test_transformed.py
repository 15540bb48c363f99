"""Transformed targets: moments, quantiles and densities in the units of the data."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import special
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import eigengp
from eigengp import LBFGS, EigenGPRegressor, ExactGPRegressor, Gaussian, Heteroscedastic, io
from eigengp._typing import Array
from eigengp.conformal import normal_half_width
from eigengp.gp.target_maps import (
    LogMap,
    StraightTail,
    YeoJohnsonMap,
    check_map,
    compute_moments,
    learn_power_map,
)
from eigengp.inspection import measure_log_density, predict_rows, scores
from eigengp.metrics import mnlp, mnlp_scorer
from finite_differences import assert_close, gradient


@dataclass(frozen=True)
class ArcsinhMap:
    """A map that is not the library's: `m(y) = arcsinh(y/scale)`."""

    scale: float = 1.0

    def values(self, y: Array) -> Array:
        return np.arcsinh(y / self.scale)

    def targets(self, t: Array) -> Array:
        return self.scale * np.sinh(t)

    def log_slope(self, y: Array) -> Array:
        return -0.5 * np.log(y**2 + self.scale**2)


@dataclass(frozen=True)
class LogitMap:
    """Takes shares between zero and one to all numbers."""

    def values(self, y: Array) -> Array:
        return special.logit(y)

    def targets(self, t: Array) -> Array:
        return special.expit(t)

    def log_slope(self, y: Array) -> Array:
        return -np.log(y * (1.0 - y))


TRANSFORMS: dict[str, Any] = {
    "auto": "auto",
    "yeo-johnson": "yeo-johnson",
    "log": "log",
    "own": ArcsinhMap(2.0),
}
any_transform = pytest.mark.parametrize("name", TRANSFORMS)


def make_data(n: int, seed: int) -> tuple[Array, Array]:
    """Draw log-normal targets."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 6.0, size=(n, 1))
    return X, np.exp(1.0 + np.sin(X[:, 0]) + 0.5 * rng.normal(size=n))


X, y = make_data(200, seed=0)
X_test, y_test = make_data(300, seed=1)
X_new = np.array([[0.4], [1.6], [4.7]])


def inner(transform: Any = None, **settings: Any) -> EigenGPRegressor:
    return EigenGPRegressor(
        6,
        residual=None,
        likelihood=Gaussian(transform=transform),
        optimizer=LBFGS(n_restarts=1, max_iter=15),
        random_state=0,
        **settings,
    )


@cache
def fitted(name: str) -> EigenGPRegressor:
    """Return a model that was fitted once for all tests, which must not change it."""
    return inner(TRANSFORMS[name]).fit(X, y)


@cache
def plain_logarithms() -> EigenGPRegressor:
    return inner().fit(X, np.log(y))


def density(model: EigenGPRegressor, x: Array, grid: Array) -> Array:
    return np.exp(model.log_density(np.repeat(x[None, :], grid.size, axis=0), grid))


def maps(y: Array) -> list[Any]:
    one = np.ones(y.size)
    found = [YeoJohnsonMap.of(y, one), learn_power_map(y, one), ArcsinhMap(2.0)]
    return [*found, LogMap.of(y, one)] if np.all(y > 0.0) else found


@pytest.mark.parametrize("shift", [0.0, -3.0])
def test_maps_increase_and_are_taken_back(shift: float) -> None:
    targets = np.linspace(0.1, 12.0, 400) + shift
    for own in maps(y + shift):
        values = own.values(targets)
        assert np.all(np.diff(values) > 0.0)
        np.testing.assert_allclose(own.targets(values), targets, rtol=1e-9, atol=1e-9)
        at = np.array([0.5, 2.1, 7.7, 11.0]) + shift
        slope = gradient(lambda x, own=own: float(np.sum(own.values(x))), at, step=1e-6, levels=1)
        assert_close(np.exp(own.log_slope(at)), slope, 1e-6)
        tails = np.array([-40.0, 40.0])
        far = own.targets(0.2 * tails)
        assert np.all(np.isfinite(far))


def test_the_power_is_that_of_scikit_learn_where_both_allow_it() -> None:
    one, shifted = np.ones(y.size), y - 3.0
    unit = float(np.quantile(np.abs(shifted), 0.5, method="inverted_cdf"))
    known = PowerTransformer(standardize=False).fit((shifted / unit)[:, None])
    own = YeoJohnsonMap.of(shifted, one)
    assert 0.0 < own.power < 2.0
    assert own.unit == unit
    assert own.power == pytest.approx(known.lambdas_[0], abs=2e-3)
    expected = known.set_output().transform((shifted / unit)[:, None])[:, 0]
    np.testing.assert_allclose(own.values(shifted), expected, atol=0.05)
    assert YeoJohnsonMap.of(np.exp(3.0 * np.log(y)), one).power == 0.0
    assert YeoJohnsonMap.of(np.full(3, 2.0), np.ones(3)).power == 1.0


@pytest.mark.parametrize("unit", [1e-9, 1e7])
def test_the_power_map_does_not_depend_on_the_unit_of_the_targets(unit: float) -> None:
    one = np.ones(y.size)
    own, other = learn_power_map(y, one), learn_power_map(unit * y, one)
    np.testing.assert_allclose(other.values(unit * y_test), own.values(y_test), rtol=1e-9)


def test_weights_of_maps_count_as_repetitions() -> None:
    counts = np.random.default_rng(0).integers(1, 4, y.size)
    repeated, weight = np.repeat(y, counts), counts.astype(float)
    own, known = YeoJohnsonMap.of(y, weight), YeoJohnsonMap.of(repeated, np.ones(repeated.size))
    np.testing.assert_allclose(own.values(y_test), known.values(y_test), rtol=1e-12)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_map_is_a_straight_line_beyond_the_skewed_end(sign: float) -> None:
    targets = sign * y
    own = learn_power_map(targets, np.ones(y.size))
    assert own.upper == (sign > 0.0)
    values = own.own.values(targets)
    last = own.own.values(np.array(sign * y.max()))
    assert own.own.values(np.array(own.end)) == pytest.approx(last + sign * np.std(values))
    beyond = own.end + sign * np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(np.diff(own.values(beyond), 2), 0.0, atol=1e-12)
    np.testing.assert_array_equal(own.values(targets), values)
    plain, uncertain = own.own, (np.zeros(1), np.full(1, 8.0))
    assert abs(compute_moments(own, *uncertain)[0][0]) < 60.0 * y.max()
    assert abs(compute_moments(plain, *uncertain)[0][0]) > 1e6 * y.max()


@any_transform
def test_the_density_integrates_to_one_and_has_the_moments(name: str) -> None:
    model = fitted(name)
    mean, std = model.predict(X_new, return_std=True)
    np.testing.assert_array_equal(model.predict(X_new), mean)
    edges = np.concatenate([-np.geomspace(60.0, 1e-6, 4_000), np.geomspace(1e-6, 400.0, 60_000)])
    grid, width = 0.5 * (edges[1:] + edges[:-1]), np.diff(edges)
    for n, x in enumerate(X_new):
        mass = density(model, x, grid) * width
        assert np.sum(mass) == pytest.approx(1.0, abs=2e-4)
        assert np.sum(mass * grid) == pytest.approx(mean[n], rel=1e-3)
        second = np.sum(mass * (grid - mean[n]) ** 2)
        assert np.sqrt(second) == pytest.approx(std[n], rel=5e-3)


@any_transform
def test_quantiles_agree_with_draws_and_with_the_density(name: str) -> None:
    model, levels = fitted(name), np.array([0.05, 0.3, 0.5, 0.9])
    quantiles = np.stack([model.predict_quantile(X_new, level) for level in levels], axis=1)
    own = model.target_map_
    functions = own.values(model.sample_y(X_new, 20_000, random_state=1))
    noise = np.random.default_rng(2).normal(size=functions.shape)
    drawn = own.targets(functions + np.sqrt(model.noise_variance_) * noise)
    share = np.mean(drawn[:, :, None] <= quantiles[:, None, :], axis=1)
    np.testing.assert_allclose(share, np.tile(levels, (3, 1)), atol=0.015)
    lower, upper = model.predict_interval(X_new, coverage=0.8)
    both = [model.predict_quantile(X_new, level) for level in (0.1, 0.9)]
    np.testing.assert_allclose([lower, upper], both, rtol=1e-12)


def test_moments_of_logarithms_are_the_known_ones() -> None:
    model = fitted("log")
    m, s = plain_logarithms().predict(X_new, return_std=True)
    mean, std = model.predict(X_new, return_std=True)
    np.testing.assert_allclose(mean, np.exp(m + 0.5 * s**2), rtol=1e-10)
    np.testing.assert_allclose(std, mean * np.sqrt(np.expm1(s**2)), rtol=1e-10)
    assert np.all(np.isneginf(model.log_density(X_new, [0.0, -1.0, -1e9])))


@any_transform
def test_it_beats_the_density_of_plain_targets(name: str) -> None:
    plain = inner().fit(X, y)
    known = mnlp(y_test, *plain.predict(X_test, return_std=True))
    assert -np.mean(fitted(name).log_density(X_test, y_test)) < known - 0.1


def test_a_transform_is_the_model_of_transformed_targets() -> None:
    model, plain = fitted("log"), plain_logarithms()
    slope = -np.sum(np.log(y))
    assert model.log_marginal_likelihood_ == pytest.approx(plain.log_marginal_likelihood_ + slope)
    assert model.noise_variance_ == plain.noise_variance_
    np.testing.assert_allclose(
        model.predict_interval(X_new), np.exp(plain.predict_interval(X_new)), rtol=1e-12
    )
    np.testing.assert_allclose(model.sample_y(X_new, 3), np.exp(plain.sample_y(X_new, 3)))


def test_intervals_hold_their_coverage_once_calibrated() -> None:
    model = inner("log").fit(X, y)
    before = model.predict(X_new)
    model.calibrate(X_test[:150], y_test[:150])
    np.testing.assert_array_equal(model.predict(X_new), before)
    lower, upper = model.predict_interval(X_test[150:], 0.8)
    held = np.mean((y_test[150:] >= lower) & (y_test[150:] <= upper))
    assert abs(held - 0.8) < 0.1
    plain = (
        clone(plain_logarithms()).fit(X, np.log(y)).calibrate(X_test[:150], np.log(y_test[:150]))
    )
    np.testing.assert_allclose(model.conformity_, plain.conformity_)


@any_transform
@pytest.mark.parametrize(
    ("precision", "step", "tol"), [("double", 1e-4, 1e-5), ("mixed", 0.02, 0.01)]
)
def test_gradients_are_those_of_the_predictions(
    name: str, precision: Any, step: float, tol: float
) -> None:
    model = fitted(name)
    if precision == "mixed":  # Means in float32, of which small differences are noise.
        model = clone(model).set_params(precision=precision).fit(X, y)
    gradients = model.predict_gradient(X_new, return_variance=True)
    for n, x in enumerate(X_new):
        for k, found in enumerate(gradients):

            def predict(p: Array, k: int = k) -> float:
                return float(model.predict(p[None, :], return_std=True)[k][0] ** (1 + k))

            assert_close(found[n], gradient(predict, x, step, levels=2), tol)


def test_gradients_with_heteroscedastic_noise_are_those_of_the_predictions() -> None:
    rng = np.random.default_rng(5)
    targets = np.exp(np.sin(X[:, 0]) + 0.1 * (1.0 + X[:, 0]) * rng.normal(size=X.shape[0]))
    likelihood = Heteroscedastic(transform="log")
    model = inner().set_params(likelihood=likelihood, residual="exact", n_components="auto")
    model.fit(X, targets)
    known = gradient(lambda p: float(model.predict(p[None, :])[0]), X_new[1], 1e-4, levels=2)
    assert_close(model.predict_gradient(X_new)[1], known, 1e-4)


@any_transform
def test_covariances_have_the_variances_of_the_predictions(name: str) -> None:
    model = fitted(name)
    mean, cov = model.predict(X_new, return_cov=True)
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), model.predict(X_new, return_std=True)[1])
    np.testing.assert_array_equal(mean, model.predict(X_new))


def test_averages_are_those_of_draws() -> None:
    model = fitted("log")
    mean, std = model.predict_average(X_new)
    noise = 0.5 * model.noise_variance_  # The mean of a log-normal target above its median.
    drawn = (model.sample_y(X_new, 20_000) * np.exp(noise)).mean(axis=0)
    assert mean == pytest.approx(model.predict(X_new).mean())
    assert mean == pytest.approx(drawn.mean(), rel=0.01)
    assert std == pytest.approx(drawn.std(), rel=0.05)


def test_the_default_transforms_skewed_targets_alone() -> None:
    model = EigenGPRegressor(random_state=0).fit(X, y)
    decision = model.selection_["transform"]
    assert decision.chosen == "yeo-johnson"
    assert decision.scores["yeo-johnson"] < decision.scores["None"]
    assert isinstance(model.target_map_, StraightTail)
    plain = EigenGPRegressor(likelihood="heteroscedastic", random_state=0).fit(X, y)
    assert not hasattr(plain, "target_map_")
    gain = np.mean(model.log_density(X_test, y_test) - plain.log_density(X_test, y_test))
    assert gain > 0.1
    normal = 10.0 + np.sin(X[:, 0]) + 0.1 * np.random.default_rng(2).normal(size=X.shape[0])
    kept = EigenGPRegressor(random_state=0).fit(X, normal)
    plain.fit(X, normal)
    assert not hasattr(kept, "target_map_")
    np.testing.assert_array_equal(kept.predict(X_new), plain.predict(X_new))


def test_a_skewed_function_with_noise_that_is_not_skewed_is_not_transformed() -> None:
    x = np.linspace(-2.0, 2.0, 120)[:, None]
    noise = 0.5 * np.random.default_rng(0).normal(size=120)
    model = EigenGPRegressor(random_state=0).fit(x, x[:, 0] ** 4 + noise)
    assert model.selection_["transform"].chosen == "None"
    assert not hasattr(model, "target_map_")


def test_a_map_that_changes_nothing_is_not_chosen() -> None:
    targets = 1e6 + np.exp(np.random.default_rng(0).normal(size=X.shape[0]))
    model = EigenGPRegressor(random_state=0).fit(X, targets)
    assert model.selection_["transform"].chosen == "None"


def test_scores_and_histograms_are_those_of_the_density() -> None:
    model = fitted("log")
    found = predict_rows(model, X_test, y_test)
    values, mean, std = found.normal
    np.testing.assert_allclose(values, np.log(y_test))
    np.testing.assert_allclose(found.lower, np.exp(mean - normal_half_width(0.9) * std))
    density = measure_log_density(model, X_test, y_test)
    known = scores(y_test, model.predict(X_test, return_std=True), (mean, std), None, density)
    assert known["mnlp"] == pytest.approx(-np.mean(model.log_density(X_test, y_test)))
    assert "transformed" in model._repr_html_()


def test_neighbors_and_other_regressors_transform_targets_too() -> None:
    rng = np.random.default_rng(3)
    rows = rng.uniform(0.0, 6.0, (1_200, 4))
    targets = np.exp(np.sin(rows[:, 0]) + 0.4 * rng.normal(size=1_200))
    settings: Any = {"optimizer": LBFGS(max_iter=3), "random_state": 0}
    model = EigenGPRegressor(max_time=8, **settings).fit(rows[:1_100], targets[:1_100])
    assert "neighbors" in str(model.selection_["residual"])
    assert model.selection_["transform"].chosen == "yeo-johnson"
    assert np.all(model.predict_interval(rows[1_100:])[0] > -0.1)
    exact = ExactGPRegressor(likelihood=Gaussian(transform="log"), **settings).fit(X, y)
    assert np.all(exact.predict_interval(X_new)[0] > 0.0)
    few = EigenGPRegressor(likelihood=Heteroscedastic(transform="log"), **settings).fit(X, y)
    assert isinstance(few.target_map_, LogMap)


def test_shares_keep_between_zero_and_one() -> None:
    shares = special.expit(3.0 * np.log(y) - 4.0)
    model = inner(LogitMap())
    lower, upper = model.fit(X, shares).predict_interval(X_new, 0.99)
    assert np.all((lower > 0.0) & (upper < 1.0))
    grid = np.linspace(0.0, 1.0, 100_001)[1:-1]
    assert np.mean(density(model, X_new[1], grid)) == pytest.approx(1.0, abs=1e-3)


def test_rows_without_weight_say_nothing() -> None:
    more = np.concatenate([X, X_new]), np.concatenate([y, [-1.0, 0.0, 1e9]])
    weight = np.concatenate([np.ones(y.size), np.zeros(3)])
    model = inner("log").fit(*more, sample_weight=weight)
    np.testing.assert_allclose(model.predict(X_new), fitted("log").predict(X_new), rtol=1e-6)


def test_clones_pickles_names_pipelines_and_scorers() -> None:
    frame = pd.DataFrame(X, columns=["time"])
    model = clone(fitted("log")).fit(frame, y)
    assert list(model.feature_names_in_) == ["time"]
    assert model.n_features_in_ == 1
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(frame[:5]), model.predict(frame[:5]))
    pipeline = make_pipeline(StandardScaler(), clone(model)).fit(X, y)
    assert pipeline.predict(X_new, return_std=True)[1].shape == (3,)
    inside = pipeline[-1]
    density = inside.log_density(pipeline[:-1].transform(X_test), y_test)
    assert mnlp_scorer(pipeline, X_test, y_test) == pytest.approx(np.mean(density))
    weight = {"sample_weight": y_test}
    expected = np.average(fitted("log").log_density(X_test, y_test), weights=y_test)
    assert mnlp_scorer(inner("log").fit(X, y), X_test, y_test, **weight) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["auto", "yeo-johnson", "log"])
def test_models_are_saved(name: str, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    model = fitted(name)
    model.save(tmp_path / "model.eigengp")
    again = eigengp.load(tmp_path / "model.eigengp")
    assert str(again) == str(model)
    assert again.target_map_ == model.target_map_
    for method in ("predict", "sample_y"):
        own, known = getattr(again, method)(X_new), getattr(model, method)(X_new)
        np.testing.assert_array_equal(own, known)
    np.testing.assert_array_equal(
        again.predict_quantile(X_new, 0.3), model.predict_quantile(X_new, 0.3)
    )
    np.testing.assert_array_equal(again.log_density(X_new, y[:3]), model.log_density(X_new, y[:3]))
    assert clone(again).fit(X[:30], y[:30]).n_features_in_ == 1


def test_a_map_that_is_not_registered_cannot_be_saved(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    with pytest.raises(io.SavedModelError, match="ArcsinhMap"):
        fitted("own").save(tmp_path / "model.eigengp")
    assert not list(tmp_path.iterdir())


def test_files_are_predicted_like_arrays(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    model = inner("log").fit(pd.DataFrame(X, columns=["x"]), y)
    path = tmp_path / "new.csv"
    pd.DataFrame(X_new, columns=["x"]).to_csv(path, index=False)
    new = pd.DataFrame(X_new, columns=["x"])
    np.testing.assert_allclose(model.predict(path), model.predict(new))
    np.testing.assert_allclose(model.predict_quantile(path, 0.5), model.predict_quantile(new, 0.5))
    np.testing.assert_allclose(model.log_density(path, y[:3]), model.log_density(new, y[:3]))
    known = clone(model).fit(pd.DataFrame(X, columns=["x"]), y).calibrate(path, y[:3])
    np.testing.assert_allclose(
        known.conformity_,
        clone(known).fit(pd.DataFrame(X, columns=["x"]), y).calibrate(new, y[:3]).conformity_,
    )
    model.predict_to_file(path, tmp_path / "out.csv", coverage=0.8)
    found = pd.read_csv(tmp_path / "out.csv")
    ends = model.predict_interval(new, 0.8)
    np.testing.assert_allclose(found[["lower", "upper"]].to_numpy().T, ends)


def test_rows_of_other_libraries_are_taken() -> None:
    torch = pytest.importorskip("torch")
    with config_context(array_api_dispatch=True):
        model = clone(fitted("log")).fit(torch.asarray(X), torch.asarray(y))
        mean = model.predict(torch.asarray(X_new))
        values = model.log_density(torch.asarray(X_new), torch.asarray(y[:3]))
    np.testing.assert_allclose(mean, fitted("log").predict(X_new), rtol=1e-5)
    np.testing.assert_allclose(values, fitted("log").log_density(X_new, y[:3]), rtol=1e-4)


def test_unsuitable_targets_and_maps_are_refused() -> None:
    with pytest.raises(ValueError, match="positive targets"):
        inner("log").fit(X, y - 3.0)
    for transform in ("square", PowerTransformer()):
        with pytest.raises(ValueError, match="transform must be one of"):
            Gaussian(transform=transform)
    with pytest.raises(ValueError, match="mean='constant'"):
        inner("log", mean="linear").fit(X, y)
    with pytest.raises(AttributeError, match="partial_fit"):
        inner("log").partial_fit(X, y)
    with pytest.raises(AttributeError, match="partial_fit"):
        inner("log").fit(X, y).set_params(likelihood="auto").partial_fit(X, y)
    several = EigenGPRegressor(likelihood=Gaussian(transform="log"))
    with pytest.raises(ValueError, match="one output"):
        several.fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="not finite under the transform"):
        inner("log").fit(X, y).calibrate(X_test[:20], np.zeros(20))
    with pytest.raises(NotFittedError):
        inner("log").log_density(X, y)


@pytest.mark.parametrize(
    ("values", "targets", "what"),
    [
        (np.negative, np.negative, "not strictly increasing between"),
        (np.floor, lambda t: t, "not strictly increasing between"),
        (lambda y: np.log(y - 2.0), lambda t: np.exp(t) + 2.0, "not finite at y="),
        (np.log, np.log, r"targets\(values\(y\)\)"),
        (np.log, lambda t: np.exp(t) + 1e-4, r"targets\(values\(y\)\)"),
    ],
)
def test_maps_of_the_users_own_are_checked(values: Any, targets: Any, what: str) -> None:
    own = SimpleNamespace(values=values, targets=targets, log_slope=np.zeros_like)
    with pytest.raises(ValueError, match=f"transform=.*{what}|{what}.*transform="):
        inner(own).fit(X, y)


def test_a_map_must_have_all_values_and_the_slope_that_it_names() -> None:
    root = SimpleNamespace(values=np.sqrt, targets=np.square)
    root.log_slope = lambda y: -np.log(2.0 * np.sqrt(y))
    with pytest.raises(ValueError, match="onto all real numbers"):
        check_map(root, y)
    wrong = SimpleNamespace(values=np.log, targets=np.exp, log_slope=lambda y: 5.0 - np.log(y))
    with pytest.raises(ValueError, match=r"log_slope\(y\).*off by 5"):
        check_map(wrong, y)
    check_map(LogitMap(), np.linspace(0.01, 0.99, 50))


def test_targets_that_differ_by_rounding_may_have_the_same_value() -> None:
    close = np.array([0.3, 0.1 + 0.2, 1e-17, 2e-17, 700.0, 700.0 * (1.0 + 2e-16)])
    own = SimpleNamespace(values=np.log1p, targets=np.expm1)
    own.log_slope = lambda y: -np.log1p(y)
    assert np.unique(close).size > np.unique(np.log1p(close)).size
    check_map(own, close)
    own.values = lambda y: np.log1p(np.minimum(y, 0.3))
    with pytest.raises(ValueError, match=r"between the targets 0\.3 and 700"):
        check_map(own, close)
    check_map(ArcsinhMap(), np.zeros(1))


@pytest.mark.parametrize("slope", [np.nan, -np.inf, np.inf])
def test_a_map_without_density_is_an_error_and_changes_nothing(slope: float) -> None:
    own = SimpleNamespace(values=np.log, targets=np.exp, log_slope=lambda y: np.full_like(y, slope))
    model = inner(own)
    with pytest.raises(ValueError, match="log_slope"):
        model.fit(X, y)
    assert not hasattr(model, "target_map_")


def test_other_wrong_arguments_are_named(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    many = pd.DataFrame({"x": np.linspace(0.0, 1.0, 6_000), "y": np.ones(6_000)})
    many.to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(TypeError, match="in memory"):
        inner("log").fit(tmp_path / "rows.parquet", "y")
    with pytest.raises(ValueError, match="inconsistent"):
        fitted("log").log_density(X_new, y[:2])


@parametrize_with_checks(
    [
        ExactGPRegressor(
            likelihood=Gaussian(transform="yeo-johnson"),
            optimizer=LBFGS(n_restarts=1, max_iter=1),
            random_state=0,
        )
    ]
)
def test_scikit_learn_estimator_checks(estimator: Any, check: Any) -> None:
    check(estimator)
