"""EigenGPRegressor with other likelihoods, and with several outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import poisson
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

import eigengp
from eigengp import (
    LBFGS,
    EigenGPClassifier,
    EigenGPRegressor,
    ExactGPRegressor,
    NegativeBinomial,
    Poisson,
    Quantile,
    Stochastic,
    StudentT,
)
from eigengp._typing import Array


def quick(likelihood: Any, n_components: Any = 15, **settings: Any) -> EigenGPRegressor:
    """Return a regressor that is fitted in a moment."""
    own = {"kernel": "squared_exponential", "optimizer": LBFGS(max_iter=20), "random_state": 0}
    return EigenGPRegressor(n_components, likelihood=likelihood, **{**own, **settings})


def line(n: int = 150, seed: int = 0) -> tuple[Array, Array]:
    X = np.random.default_rng(seed).uniform(0.0, 6.0, (n, 1))
    return X, np.sin(2.0 * X[:, 0])


def counts(n: int, seed: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    rate = np.exp(1.0 + np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1])
    return X, rng.poisson(rate).astype(float), rate


@parametrize_with_checks([quick("student_t", 5, optimizer=LBFGS(max_iter=2))])
def test_scikit_learn_estimator_checks(estimator: EigenGPRegressor, check: Any) -> None:
    check(estimator)


def test_outliers_cost_student_t_little_more_than_their_rows() -> None:
    rng, x = np.random.default_rng(1), np.linspace(0.0, 3.0, 200)
    X, truth = x[:, None], x * np.sin(x**3)
    clean = truth + 0.5 * rng.normal(size=200)
    y, hit = clean.copy(), rng.choice(200, 20, replace=False)
    y[hit] += 10.0 * rng.normal(size=20)
    kept = np.setdiff1d(np.arange(200), hit)

    def error(model: EigenGPRegressor) -> float:
        return float(np.mean((model.predict(X) - truth) ** 2))

    robust = EigenGPRegressor(likelihood="student_t", random_state=0).fit(X, y)
    without = EigenGPRegressor(random_state=0).fit(X[kept], clean[kept])
    assert error(robust) < 1.3 * error(without)
    assert robust.likelihood_.degrees_of_freedom < 4.0
    lower, upper = robust.predict_interval(X, 0.9)
    assert 0.8 < np.mean((lower < y) & (y < upper)) < 0.99


def test_student_t_of_clean_rows_is_nearly_gaussian() -> None:
    X, f = line()
    y = f + 0.1 * np.random.default_rng(1).normal(size=150)
    model = quick("student_t").fit(X, y)
    assert model.likelihood_.degrees_of_freedom > 10.0
    assert model.likelihood_.scale == pytest.approx(0.1, rel=0.25)
    np.testing.assert_allclose(model.predict(X), f, atol=0.12)
    other = quick("student_t").fit(X, 1e3 * y + 7.0)
    np.testing.assert_allclose(other.predict(X), 1e3 * model.predict(X) + 7.0, rtol=1e-3, atol=1.0)
    assert other.log_marginal_likelihood_ == pytest.approx(
        model.log_marginal_likelihood_ - 150 * np.log(1e3), abs=0.5
    )


def test_counts_are_as_dense_as_those_of_gradient_boosting() -> None:
    X, y, rate = counts(400, 0)
    X_test, y_test, _ = counts(2_000, 1)
    model = quick("poisson", 30).fit(X, y)
    trees = HistGradientBoostingRegressor(loss="poisson", random_state=0).fit(X, y)
    ours = poisson.logpmf(y_test, model.predict(X_test)).mean()
    assert ours > poisson.logpmf(y_test, trees.predict(X_test)).mean()
    np.testing.assert_allclose(model.predict(X), rate, rtol=0.6)
    mean, std = model.predict(X_test, return_std=True)
    assert np.mean((y_test - mean) ** 2 / std**2) == pytest.approx(1.0, abs=0.2)
    lower, upper = model.predict_interval(X_test, 0.9)
    assert np.all(lower == np.floor(lower))
    assert np.mean((lower <= y_test) & (y_test <= upper)) > 0.87
    drawn = model.sample_y(X_test[:50], 40, random_state=1)
    assert drawn.shape == (50, 40)
    assert np.all((drawn >= 0.0) & (drawn == np.floor(drawn)))


def test_a_rate_is_proportional_to_the_exposure() -> None:
    X, _, rate = counts(300, 2)
    exposure = np.random.default_rng(3).uniform(0.5, 20.0, 300)
    y = np.random.default_rng(4).poisson(rate * exposure).astype(float)
    rows = np.column_stack([X, exposure])
    for likelihood in (Poisson(exposure=2), NegativeBinomial(exposure=2)):
        model = quick(likelihood, 30).fit(rows, y)
        twice = rows * np.array([1.0, 1.0, 2.0])
        np.testing.assert_allclose(model.predict(twice), 2.0 * model.predict(rows), rtol=1e-6)
        np.testing.assert_allclose(model.predict(rows) / exposure, rate, rtol=0.5)
    with pytest.raises(ValueError, match="not one of the inputs"):
        quick(Poisson(exposure=7)).fit(rows, y)
    with pytest.raises(ValueError, match="positive"):
        quick(Poisson(exposure=0)).fit(rows, y)


def test_overdispersion_is_learned() -> None:
    X, _, rate = counts(600, 5)
    y = np.random.default_rng(6).negative_binomial(2.0, 2.0 / (2.0 + rate)).astype(float)
    model = quick("negative_binomial", 30).fit(X, y)
    assert 1.0 < model.likelihood_.dispersion < 4.0
    _, upper = model.predict_interval(X, 0.9)
    assert 0.9 < np.mean(y <= upper) < 0.99


def test_quantiles_have_their_level_of_rows_below() -> None:
    X, f = line(600)
    y = f + np.random.default_rng(7).exponential(0.5, 600)
    low, high = (quick(Quantile(level), 20).fit(X, y) for level in (0.1, 0.9))
    assert np.mean(y < low.predict(X)) == pytest.approx(0.1, abs=0.04)
    assert np.mean(y < high.predict(X)) == pytest.approx(0.9, abs=0.04)
    with pytest.raises(ValueError, match="one quantile"):
        high.predict_interval(X)
    with pytest.raises(ValueError, match="one quantile"):
        high.sample_y(X)


def test_gaussian_quantiles_are_the_ends_of_intervals() -> None:
    X, f = line(80)
    model = EigenGPRegressor(8, random_state=0, optimizer=LBFGS(max_iter=5, n_restarts=1)).fit(X, f)
    lower, upper = model.predict_interval(X, 0.8)
    np.testing.assert_allclose(model.predict_quantile(X, 0.1), lower)
    np.testing.assert_allclose(model.predict_quantile(X, 0.9), upper)
    np.testing.assert_allclose(model.predict_quantile(X, 0.5), model.predict(X))
    with pytest.raises(ValueError, match="between 0 and 1"):
        model.predict_quantile(X, 1.0)


@pytest.mark.parametrize(
    "likelihood",
    ["student_t", "poisson", "negative_binomial", "quantile", Poisson(exposure=1)],
)
def test_a_saved_model_predicts_the_same(tmp_path: Path, likelihood: Any) -> None:
    X, y, _ = counts(60, 8)
    X[:, 1] += 3.0
    model = quick(likelihood, optimizer=LBFGS(max_iter=2)).fit(X, y)
    model.save(tmp_path / "model.eigengp")
    again = eigengp.load(tmp_path / "model.eigengp")
    for one, other in zip(
        model.predict(X, return_std=True), again.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("targets", [[-1.0, 2.0, 3.0], [0.5, 1.0, 2.0]])
def test_targets_that_are_no_counts_are_refused(targets: list[float]) -> None:
    X = np.arange(3.0)[:, None]
    for name in ("poisson", "negative_binomial"):
        with pytest.raises(ValueError, match="whole numbers"):
            quick(name).fit(X, targets)


@pytest.mark.parametrize(
    "settings",
    [
        {"residual": "diagonal"},
        {"residual": None},
        {"precision": "single"},
        {"optimizer": Stochastic()},
        {"optimizer": LBFGS("joint")},
        {"mean": "linear"},
    ],
)
def test_combinations_that_cannot_be_had_are_refused(settings: dict[str, Any]) -> None:
    X, y, _ = counts(40, 9)
    with pytest.raises(ValueError, match="cannot be combined"):
        quick("poisson", **settings).fit(X, y)


def test_methods_without_meaning_are_refused() -> None:
    X, y, _ = counts(40, 10)
    with pytest.raises(AttributeError, match="partial_fit"):
        quick("poisson").partial_fit(X, y)
    model = quick("poisson", optimizer=LBFGS(max_iter=1)).fit(X, y)
    for method in (model.predict_gradient, model.predict_average):
        with pytest.raises(ValueError, match="not available"):
            method(X)


def test_a_scarce_output_learns_from_a_full_one() -> None:
    rng = np.random.default_rng(11)
    X = np.sort(rng.uniform(0.0, 12.0, (300, 1)), axis=0)
    f = np.sin(3.0 * X[:, 0]) + 0.3 * np.sin(X[:, 0])
    Y = np.column_stack([f, 5.0 - 2.0 * f]) + 0.1 * rng.normal(size=(300, 2))
    scarce = rng.choice(300, 30, replace=False)
    known = np.zeros(300, bool)
    known[scarce] = True
    missing = Y.copy()
    missing[~known, 1] = np.nan
    both = quick("auto", 60).fit(X, missing)
    alone = EigenGPRegressor(random_state=0).fit(X[known], Y[known, 1])
    truth = 5.0 - 2.0 * f
    errors = [np.sqrt(np.mean((p - truth) ** 2)) for p in (both.predict(X)[:, 1], alone.predict(X))]
    assert errors[0] < 0.5 * errors[1]
    assert both.output_covariance_[0, 1] < 0.0
    assert both.noise_variance_.shape == (2,)
    mean, std = both.predict(X, return_std=True)
    assert mean.shape == std.shape == (300, 2)
    lower, upper = both.predict_interval(X, 0.9)
    assert 0.8 < np.mean((lower < Y) & (upper > Y)) < 0.98
    assert both.sample_y(X[:5], 3).shape == (5, 2, 3)
    assert both.score(X, Y) > 0.95


def test_several_outputs_are_saved_and_refuse_what_is_for_one(tmp_path: Path) -> None:
    X, f = line(40)
    Y = np.column_stack([f, -f])
    model = quick("auto", optimizer=LBFGS(max_iter=2)).fit(X, Y)
    model.save(tmp_path / "model.eigengp")
    again = eigengp.load(tmp_path / "model.eigengp")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="one output"):
        model.calibrate(X, Y)
    with pytest.raises(ValueError, match="Gaussian noise"):
        quick("poisson").fit(X, np.abs(np.round(Y)))
    with pytest.raises(ValueError, match="fewer than two"):
        quick("auto").fit(X, np.column_stack([f, np.full(40, np.nan)]))
    with pytest.raises(ValueError, match="cannot be combined"):
        quick("auto", residual="diagonal").fit(X, Y)


def test_student_t_object_starts_from_its_parameters() -> None:
    X, f = line(60)
    model = quick(StudentT(0.2, 5.0), optimizer=LBFGS(max_iter=0)).fit(X, f)
    assert model.n_iter_ == 0
    points = np.linspace(0.0, 6.0, 70)[:, None]
    given = quick("student_t", "auto", inducing_points=points, optimizer=LBFGS(max_iter=0))
    np.testing.assert_allclose(given.fit(X, f).inducing_points_, points)


def test_summaries_and_effects_of_other_likelihoods_and_outputs() -> None:
    X, y, _ = counts(60, 12)
    own = LBFGS(max_iter=1)
    for model in (
        quick("poisson", optimizer=own).fit(X, y),
        quick("auto", optimizer=own).fit(X, np.column_stack([y, -y])),
    ):
        assert model.input_effects().shape == (2,)
        assert "Kernel" in model._repr_html_()
    classifier = EigenGPClassifier(8, kernel="matern52", optimizer=own).fit(X, y > y.mean())
    assert "Bernoulli" in classifier._repr_html_()


def test_files_and_densities_refuse_them(tmp_path: Path) -> None:
    X, y, _ = counts(40, 13)
    model = quick("poisson", optimizer=LBFGS(max_iter=1)).fit(X, y)
    with pytest.raises(ValueError, match="one output"):
        model.predict_to_file(tmp_path / "rows.csv", tmp_path / "out.csv", coverage=0.9)
    with pytest.raises(ValueError, match="Gaussian noise"):
        model.log_density(X, y)


def test_a_constant_output_beside_another_is_predicted() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (40, 1))
    Y = np.column_stack([np.full(40, 3.0), np.sin(X[:, 0])])
    optimizer = LBFGS(n_restarts=1, max_iter=5)
    model = EigenGPRegressor(8, optimizer=optimizer, random_state=0).fit(X, Y)
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(std).all()
    np.testing.assert_allclose(mean[:, 0], 3.0, atol=1e-3)


def test_unlabelled_rows_place_the_eigenfunctions() -> None:
    X, f = line(200)
    y = np.where(X[:, 0] < 3.0, f, np.nan)
    settings = {"residual": None, "optimizer": LBFGS(max_iter=0, n_restarts=1), "random_state": 0}
    model = EigenGPRegressor(8, inducing_points=20, **settings).fit(X, y)
    known = np.isfinite(y)
    alone = EigenGPRegressor(8, inducing_points=20, **settings).fit(X[known], y[known])
    assert model.inducing_points_.max() > 5.0 > 3.0 > alone.inducing_points_.max()
    assert model.target_mean_ == pytest.approx(alone.target_mean_)
    assert model._scaling.target_scale == pytest.approx(alone._scaling.target_scale)
    assert model._scaling.input_centre[0] == pytest.approx(X.mean())
    exact = EigenGPRegressor(random_state=0, optimizer=LBFGS(max_iter=3)).fit(X, y)
    assert "unlabelled" in exact.selection_
    with pytest.raises(ValueError, match="All targets in y are missing"):
        model.fit(X, np.full(200, np.nan))
    with pytest.raises(ValueError, match="NaN"):
        ExactGPRegressor().fit(X, y)
