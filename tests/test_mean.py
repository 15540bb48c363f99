"""Mean functions: zero, constant, linear, and any regressor, cross-fitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import RandomForestRegressor, StackingRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import eigengp
from eigengp import LBFGS, EigenGPRegressor, ExactGPRegressor, FITCRegressor, SSGPRegressor
from eigengp._typing import Array
from eigengp.data.array_source import ArraySource
from eigengp.gp.mean import LinearMean, RegressorMean

SHORT = LBFGS(n_restarts=1, max_iter=10)


def _rows(n: int = 120, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.normal([3.0, -100.0], [1.0, 20.0], (n, 2))
    y = 7.0 + 2.0 * X[:, 0] - 0.3 * X[:, 1] + np.sin(2 * X[:, 0]) + 0.05 * rng.normal(size=n)
    return X, y


def _fit(mean: Any, **settings: Any) -> Any:
    model = ExactGPRegressor(mean=mean, optimizer=SHORT, random_state=0, **settings)
    return model.fit(*_rows())


@pytest.mark.parametrize("weighted", [False, True])
def test_the_linear_mean_is_the_least_squares_fit(weighted: bool) -> None:
    X, y = _rows()
    weight = np.random.default_rng(1).uniform(0.5, 2.0, y.size) if weighted else None
    found = LinearMean.fit(ArraySource(X, y, weight, 32), X.mean(axis=0), X.std(axis=0))
    expected = LinearRegression().fit(X, y, weight)
    np.testing.assert_allclose(found.coefficients, expected.coef_, rtol=1e-9)
    np.testing.assert_allclose(found.intercept, expected.intercept_, rtol=1e-9)
    np.testing.assert_allclose(found(X), expected.predict(X), rtol=1e-9)


def test_the_linear_mean_takes_constant_columns() -> None:
    X, y = _rows()
    X = np.column_stack([X, np.full(len(X), 4.0)])
    model = ExactGPRegressor(mean="linear", optimizer=SHORT, random_state=0).fit(X, y)
    assert np.all(np.isfinite(model.predict(X)))


def test_far_from_the_data_a_model_follows_its_mean() -> None:
    far = np.array([[60.0, -2000.0]])
    X, y = _rows()
    line = LinearRegression().fit(X, y)
    assert _fit("zero").predict(far) == pytest.approx(0.0, abs=1e-6)
    assert _fit("constant").predict(far) == pytest.approx(y.mean(), abs=1e-6)
    assert _fit("linear").predict(far) == pytest.approx(line.predict(far), abs=1e-6)
    assert _fit(Ridge(1e-9)).predict(far) == pytest.approx(line.predict(far), rel=1e-6)


@pytest.mark.parametrize("mean", ["linear", Ridge(), RandomForestRegressor(20, random_state=0)])
def test_a_mean_keeps_predictions_good_and_calibrated(mean: Any) -> None:
    X, y = _rows(seed=1)
    model = _fit(mean)
    predicted, std = model.predict(X, return_std=True)
    assert np.mean((predicted - y) ** 2) < 0.1 * np.var(y)
    lower, upper = model.predict_interval(X, 0.9)
    assert np.mean((lower < y) & (y < upper)) > 0.7
    assert np.all(std > 0)


class _Memory(RegressorMixin, BaseEstimator):
    """Returns the targets of the rows that it has seen, and zero elsewhere."""

    def fit(self, X: Array, y: Array) -> _Memory:
        self.seen_ = {row.tobytes(): target for row, target in zip(X, y, strict=True)}
        return self

    def predict(self, X: Array) -> Array:
        return np.array([self.seen_.get(row.tobytes(), 0.0) for row in X])


def test_a_regressor_never_sees_the_rows_whose_residuals_it_leaves() -> None:
    X, y = _rows(40)
    model = ExactGPRegressor(mean=_Memory(), optimizer=SHORT, random_state=0).fit(X, y)
    plain = ExactGPRegressor(mean="zero", optimizer=SHORT, random_state=0).fit(X, y)
    assert isinstance(model._scaling.mean, RegressorMean)
    # Residuals are the targets themselves: nothing of what it memorised reached the GP.
    assert model.log_marginal_likelihood_ == pytest.approx(plain.log_marginal_likelihood_)
    np.testing.assert_allclose(model.predict(X + 1e-3), plain.predict(X + 1e-3))


@pytest.mark.parametrize("mean", ["constant", "zero", "linear"])
def test_gradients_include_the_mean(mean: str) -> None:
    model, (X, _) = _fit(mean), _rows(5, seed=3)
    found = model.predict_gradient(X)
    for d, step in enumerate((1e-3, 1e-2)):
        ahead, back = X.copy(), X.copy()
        ahead[:, d] += step
        back[:, d] -= step
        slope = (model.predict(ahead) - model.predict(back)) / (2 * step)
        np.testing.assert_allclose(found[:, d], slope, rtol=1e-4, atol=1e-4)


def test_averages_and_draws_include_the_mean() -> None:
    model, (X, _) = _fit("linear"), _rows(30, seed=4)
    assert model.predict_average(X)[0] == pytest.approx(model.predict(X).mean())
    drawn = model.sample_y(X, 300, random_state=0)
    np.testing.assert_allclose(drawn.mean(axis=1), model.predict(X), atol=0.2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: EigenGPRegressor(8, residual=None, mean="linear", optimizer=SHORT, random_state=0),
        lambda: EigenGPRegressor(
            8, residual="neighbors", mean="linear", optimizer=SHORT, random_state=0
        ),
        lambda: FITCRegressor(8, mean="linear", optimizer=SHORT, random_state=0),
        lambda: SSGPRegressor(8, mean="linear", optimizer=SHORT, random_state=0),
    ],
)
def test_every_method_takes_a_mean(make: Any) -> None:
    X, y = _rows()
    model = clone(make()).fit(X, y)
    far = np.array([[4.0, 900.0]])
    assert model.predict(far) == pytest.approx(LinearRegression().fit(X, y).predict(far), rel=0.05)


def test_more_rows_are_centred_by_the_same_mean() -> None:
    X, y = _rows(200)
    model = EigenGPRegressor(10, residual=None, mean="linear", optimizer=SHORT, random_state=0)
    for part in np.array_split(np.arange(200), 2):
        model.partial_fit(X[part], y[part])
    assert np.mean((model.predict(X) - y) ** 2) < 0.05 * np.var(y)


def test_files_take_a_linear_mean_and_refuse_a_regressor(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    X, y = _rows(6000)
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "y": y}), path)
    settings = {"residual": None, "optimizer": SHORT, "random_state": 0}
    own = EigenGPRegressor(8, mean="linear", **settings).fit(path, "y")
    arrays = EigenGPRegressor(8, mean="linear", **settings).fit(X, y)
    np.testing.assert_allclose(own.predict(path), arrays.predict(X), rtol=1e-6)
    with pytest.raises(ValueError, match="needs all rows in NumPy"):
        EigenGPRegressor(8, mean=Ridge(), **settings).fit(path, "y")


def test_a_linear_mean_is_saved_and_a_regressor_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    model, (X, _) = _fit("linear"), _rows(5)
    model.save(tmp_path / "m.eigengp")
    again = eigengp.load(tmp_path / "m.eigengp")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="mean is a Ridge cannot be saved"):
        _fit(Ridge()).save(tmp_path / "other.eigengp")
    assert not (tmp_path / "other.eigengp").exists()


def test_bad_means_are_refused() -> None:
    X, y = _rows(4)
    with pytest.raises(ValueError, match="'mean' parameter"):
        ExactGPRegressor(mean="quadratic").fit(X, y)
    with pytest.raises(ValueError, match="5 folds"):
        ExactGPRegressor(mean=Ridge()).fit(X, y)
    with pytest.raises(ValueError, match="derivative is not known"):
        _fit(Ridge()).predict_gradient(X)


def test_a_regressor_without_weights_sees_every_row() -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 6, (300, 1)).astype(float)
    y = (rng.random(300) < 0.9) + X[:, 0]
    pipeline = make_pipeline(StandardScaler(), LinearRegression())
    model = ExactGPRegressor(mean=pipeline, optimizer=SHORT, random_state=0).fit(X, y)
    expected = clone(pipeline).fit(X, y).predict([[0.0]])
    found = model._scaling.mean.regressor.predict([[0.0]])
    np.testing.assert_allclose(found, expected)
    with pytest.raises(ValueError, match="takes no sample_weight"):
        ExactGPRegressor(mean=pipeline).fit(X, y, sample_weight=rng.uniform(0.5, 1.5, 300))


def test_rows_with_equal_inputs_are_in_one_fold() -> None:
    X, y = _rows(30)
    X, y = np.tile(X, (2, 1)), np.concatenate([y, y + 1.0])
    model = ExactGPRegressor(mean=_Memory(), optimizer=SHORT, random_state=0).fit(X, y)
    plain = ExactGPRegressor(mean="zero", optimizer=SHORT, random_state=0).fit(X, y)
    assert model.log_marginal_likelihood_ == pytest.approx(plain.log_marginal_likelihood_)


@pytest.mark.parametrize("mean", ["constant", "zero", "linear", LinearRegression()])
@pytest.mark.parametrize("value", [7.3, 0.0, 1e-13])
def test_constant_targets_take_every_mean(mean: Any, value: float) -> None:
    X, _ = _rows(60)
    model = ExactGPRegressor(mean=mean, optimizer=SHORT, random_state=0).fit(X, np.full(60, value))
    predicted, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(predicted, value, atol=1e-4)
    assert np.all(np.isfinite(std))


def test_targets_that_a_mean_explains_exactly_keep_their_scale() -> None:
    X, _ = _rows(60)
    y = 3.0 + X @ [1.0, 2.0]
    model = ExactGPRegressor(mean="linear", optimizer=SHORT, random_state=0).fit(X, y)
    assert model._scaling.target_scale == pytest.approx(y.std(), rel=1e-6)


def test_regressors_whose_predict_appears_after_fitting_are_taken() -> None:
    stacked = StackingRegressor([("ridge", Ridge())], final_estimator=Ridge())
    assert np.all(np.isfinite(_fit(stacked).predict(_rows()[0])))
