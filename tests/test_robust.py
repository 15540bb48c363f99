"""Columns with heavy tails: `standardize="robust"`, wherever rows come from and models go."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.utils import estimator_checks

import eigengp
from eigengp import (
    LBFGS,
    EigenGPRegressor,
    ExactGPRegressor,
    FITCRegressor,
    Matern32,
    NystromRegressor,
    PowerEPRegressor,
    RVMRegressor,
    SSGPRegressor,
    VFERegressor,
)
from eigengp._typing import Array
from eigengp.cli.report.page import are_training_rows
from eigengp.cli.report.rows import Rows
from eigengp.data.array_source import ArraySource
from eigengp.data.open import check_further_rows
from eigengp.data.standardize import (
    KNEE,
    Scaling,
    Summary,
    compress_tails,
    compute_slope,
    stretch_tails,
)
from eigengp.gp.blocks import RowBlock
from eigengp.inspection import ranges
from eigengp.metrics import mnlp, nmse
from finite_differences import assert_close, gradient

PLAIN: dict[str, Any] = {"residual": None, "likelihood": "gaussian"}
NOTHING = LBFGS(n_restarts=1, max_iter=0)
QUICK: dict[str, Any] = {
    "optimizer": LBFGS(n_restarts=1, max_iter=8),
    "standardize": "robust",
    "random_state": 0,
}
METHODS: dict[str, Any] = {
    "EigenGP": EigenGPRegressor(10, **PLAIN, **QUICK),
    "EigenGP+": EigenGPRegressor(10, residual="diagonal", **QUICK),
    "FITC": FITCRegressor(10, **QUICK),
    "VFE": VFERegressor(10, **QUICK),
    "PowerEP": PowerEPRegressor(n_components=10, **QUICK),
    "SSGP": SSGPRegressor(16, **QUICK),
    "Nystrom": NystromRegressor(30, random_state=0, standardize="robust"),
    "ExactGP": ExactGPRegressor(**QUICK),
    "RVM": RVMRegressor(lengthscale=1.0, random_state=0, standardize="robust"),
}
any_method = pytest.mark.parametrize("name", METHODS)
pytestmark = [
    pytest.mark.filterwarnings("ignore::eigengp.NegativeVarianceWarning"),
    pytest.mark.filterwarnings("ignore:The relevance vector machine has not converged"),
]


def make_data(n: int, seed: int) -> tuple[Array, Array]:
    """Draw rows with a column of very heavy tails, a plain one, and one that is mostly zero."""
    rng = np.random.default_rng(seed)
    heavy = 1000.0 + 50.0 * rng.standard_t(1.2, size=n)
    X = np.column_stack([heavy, rng.normal(size=n), 7.0 * (rng.uniform(size=n) < 0.1)])
    y = np.arctan((heavy - 1000.0) / 50.0) + np.sin(X[:, 1]) + 0.1 * rng.normal(size=n)
    return X, y


X, y = make_data(150, seed=0)
X_test, y_test = make_data(200, seed=1)
TAILS = np.array([[1000.0, 0.3, 0.0], [2500.0, -4.1, 7.0], [-8e4, 0.2, 0.0], [1010.0, 5.0, 20.0]])


@cache
def fitted(name: str) -> Any:
    """Return a model that was fitted once for all tests, which must not change it."""
    return clone(METHODS[name]).fit(X, y)


def scaling_of(X: Array, weight: Array | None = None) -> Scaling:
    source = ArraySource(X, np.arange(float(X.shape[0])), weight)
    return Scaling.measure(source, source.total(Summary.of), "robust")


def test_the_map_is_the_identity_in_the_middle_and_a_logarithm_beyond() -> None:
    middle = np.linspace(-KNEE, KNEE, 101)
    np.testing.assert_array_equal(compress_tails(middle, KNEE), middle)
    assert compress_tails(np.array([1e6]), KNEE)[0] == pytest.approx(3.0 + np.log(1e6 - 2.0))
    z = np.concatenate([-np.logspace(6, -3, 200), np.logspace(-3, 6, 200)])
    u = compress_tails(z, KNEE)
    assert np.all(np.diff(u) > 0.0)
    np.testing.assert_allclose(stretch_tails(u, KNEE), z, rtol=1e-9)
    at = np.array([-40.0, -3.2, 0.4, 3.1, 700.0])
    own = gradient(lambda z: float(np.sum(compress_tails(z, KNEE))), at, step=1e-3)
    assert_close(compute_slope(at, KNEE), own)
    ends = compute_slope(KNEE * (1.0 + np.array([-1e-12, 1e-12])), KNEE)
    np.testing.assert_allclose(ends, 1.0, atol=1e-10)


def test_quantiles_make_the_scaling_and_equal_quartiles_leave_the_deviation() -> None:
    values = np.array([0.0, 1.0, 2.0, 3.0, 1e9])
    capped = np.array([5.0, 5.0, 5.0, 5.0, 1.0])
    scaling = scaling_of(np.column_stack([values, capped, np.full(5, -3.0)]))
    np.testing.assert_array_equal(scaling.input_centre, [2.0, 5.0, -3.0])
    np.testing.assert_allclose(scaling.input_scale, [2.0 / 1.349, capped.std(), 3.0])
    assert scaling.input_spread[2] == 0.0
    inputs = scaling.transform_inputs(np.column_stack([values, capped, np.full(5, -3.0)]))
    np.testing.assert_allclose(inputs[:4, 0], (values[:4] - 2.0) * 1.349 / 2.0)
    np.testing.assert_allclose(scaling.input_spread[:2], (inputs.std(0) * scaling.input_scale)[:2])


def test_weights_count_as_repetitions() -> None:
    counts = np.random.default_rng(0).integers(1, 5, X.shape[0])
    weighted, plain = scaling_of(X, counts.astype(float)), scaling_of(np.repeat(X, counts, axis=0))
    np.testing.assert_array_equal(weighted.input_centre, plain.input_centre)
    np.testing.assert_allclose(weighted.input_scale, plain.input_scale)
    np.testing.assert_allclose(weighted.input_spread, plain.input_spread)


def test_other_scalings_stay_as_they_are_to_the_last_bit() -> None:
    source = ArraySource(X, y)
    for standardize in (True, False):
        summary = source.total(Summary.of)
        own = Scaling.measure(source, summary, standardize)
        known = Scaling.of(summary, standardize)
        np.testing.assert_array_equal(
            own.transform_inputs(X), (X - known.input_centre) * (1.0 / known.input_scale)
        )
        np.testing.assert_array_equal(
            own.restore_gradient(X, X), own.target_scale / own.input_scale * X
        )


def test_many_rows_are_measured_by_a_sample_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eigengp.data.standardize._QUANTILE_ROWS", 60)
    sampled, again, other = scaling_of(X), scaling_of(X), scaling_of(X[:60])
    np.testing.assert_array_equal(sampled.input_centre, again.input_centre)
    assert sampled.input_centre[0] != other.input_centre[0]
    assert abs(sampled.input_centre[0] - np.median(X[:, 0])) < 30.0


def test_it_learns_what_outliers_hide() -> None:
    settings = {**QUICK, **PLAIN, "optimizer": LBFGS(n_restarts=1, max_iter=40)}
    plain = EigenGPRegressor(12, **(settings | {"standardize": True})).fit(X, y)
    robust = EigenGPRegressor(12, **settings).fit(X, y)
    own, other = (model.predict(X_test, return_std=True) for model in (robust, plain))
    assert nmse(y_test, own[0]) < 0.5 * nmse(y_test, other[0])
    assert mnlp(y_test, *own) < mnlp(y_test, *other) - 0.3


@any_method
def test_gradients_follow_the_map(name: str) -> None:
    model = fitted(name)
    unit = np.array([50.0, 1.0, 7.0])
    mean, variance = model.predict_gradient(TAILS, return_variance=True)
    for n, row in enumerate(TAILS):
        steps = np.zeros(3)

        def moments(step: Array, row: Array = row) -> tuple[Array, Array]:
            return model.predict((row + unit * step)[None, :], return_std=True)

        own = gradient(lambda step: float(moments(step)[0][0]), steps, 1e-2)
        assert_close(mean[n] * unit, own, 1e-5)
        own = gradient(lambda step: float(moments(step)[1][0] ** 2), steps, 1e-2)
        np.testing.assert_allclose(variance[n] * unit, own, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["EigenGP", "SSGP", "RVM"])
def test_units_do_not_matter(name: str) -> None:
    model = clone(METHODS[name]).fit(1024.0 * X, y)
    np.testing.assert_allclose(model.predict(1024.0 * TAILS), fitted(name).predict(TAILS), 1e-7)


@pytest.mark.parametrize("name", ["EigenGP", "EigenGP+", "FITC", "VFE", "PowerEP"])
def test_inducing_points_are_in_the_units_of_the_data(name: str) -> None:
    model = fitted(name)
    own = model._scaling.transform_inputs(model.inducing_points_)
    np.testing.assert_allclose(own, model._posterior.features.points, atol=1e-9)
    assert np.ptp(model.inducing_points_[:, 0]) > 300.0


def test_points_and_kernel_of_the_user_are_kept() -> None:
    kernel = Matern32([70.0, 2.0, 9.0], 1.5)
    model = EigenGPRegressor(
        inducing_points=X[:9], kernel=kernel, **(QUICK | PLAIN | {"optimizer": NOTHING})
    )
    model.fit(X, y)
    np.testing.assert_allclose(model.inducing_points_, X[:9], rtol=1e-9)
    np.testing.assert_allclose(model.kernel_.lengthscale, kernel.lengthscale)
    middle = np.array([[980.0, 0.1, 0.0], [1030.0, -0.4, 0.0]])
    inside = model._posterior.features.kernel(
        *(model._scaling.transform_inputs(middle)[[n]] for n in (0, 1))
    )
    unit = model._scaling.target_scale**2
    np.testing.assert_allclose(unit * inside, kernel(middle[:1], middle[1:]))


def test_relevance_and_ranges_are_those_of_the_middle() -> None:
    model = fitted("ExactGP")
    scaling = model._scaling
    length, spread = (
        model.kernel_.lengthscale,
        replace(scaling, columns=None).transform_inputs(X).std(axis=0) * scaling.input_scale,
    )
    known = 1.0 - 1.0 / np.sqrt(1.0 + 2.0 * (spread / length) ** 2)
    np.testing.assert_allclose(model.input_relevance(), known, atol=1e-4)
    assert np.argmax(model.input_effects()) == 0
    low, high = ranges(model)[0]
    assert 600.0 < low < 900.0
    assert 1100.0 < high < 1400.0


def test_files_and_other_arrays_give_the_same(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    torch = pytest.importorskip("torch")
    many, targets = make_data(5_200, seed=2)
    known = clone(METHODS["EigenGP"]).set_params(optimizer__max_iter=3).fit(many, targets)
    names = ["heavy", "plain", "mostly zero"]
    table = pa.table({**dict(zip(names, many.T, strict=True)), "target": targets})
    parquet.write_table(table, tmp_path / "rows.parquet")
    own = clone(known).fit(tmp_path / "rows.parquet", "target")
    np.testing.assert_array_equal(own.inducing_points_, known.inducing_points_)
    inputs = tmp_path / "inputs.parquet"
    parquet.write_table(table.drop(["target"]), inputs)
    np.testing.assert_allclose(own.predict(inputs), known.predict(many), rtol=1e-12)
    with config_context(array_api_dispatch=True):
        here = clone(known).fit(torch.asarray(many), torch.asarray(targets))
        mean, slopes = (
            here.predict(torch.asarray(TAILS)),
            here.predict_gradient(torch.asarray(TAILS)),
        )
    np.testing.assert_array_equal(here._scaling.input_scale, known._scaling.input_scale)
    np.testing.assert_allclose(mean.numpy(), known.predict(TAILS), rtol=3e-3)
    expected = known.predict_gradient(TAILS)
    np.testing.assert_allclose(slopes.numpy(), expected, rtol=1e-2, atol=1e-3)


@pytest.mark.filterwarnings("ignore")
def test_dask_gives_the_same() -> None:
    distributed, da = pytest.importorskip("distributed"), pytest.importorskip("dask.array")
    settings = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    model = clone(METHODS["EigenGP"]).set_params(optimizer__max_iter=3)
    many, targets = make_data(5_200, seed=2)
    with distributed.Client(dashboard_address=None, **settings):
        lazy = da.from_array(many, chunks=(1_000, 3)), da.from_array(targets, chunks=1_000)
        own = clone(model).fit(*lazy)
        mean = own.predict(lazy[0][:1_000]).compute()
    known = model.fit(many, targets)
    np.testing.assert_array_equal(own._scaling.input_centre, known._scaling.input_centre)
    np.testing.assert_allclose(mean, known.predict(many[:1_000]), rtol=1e-5, atol=1e-5)


def test_more_rows_are_scaled_as_the_first_were() -> None:
    model = EigenGPRegressor(inducing_points=X[:9], **(QUICK | PLAIN | {"optimizer": NOTHING}))
    model.fit(X[:100], y[:100])
    scaling, before = model._scaling, nmse(y_test, model.predict(X_test))
    rows = scaling.transform_block(check_further_rows(model, X[100:], y[100:], None))
    np.testing.assert_array_equal(rows.X, scaling.transform_inputs(X[100:]))
    assert np.abs(rows.X).max() < 20.0
    model.partial_fit(X[100:], y[100:])
    assert model._scaling is scaling
    assert nmse(y_test, model.predict(X_test)) < before


@pytest.mark.parametrize("name", ["EigenGP", "SSGP", "ExactGP"])
def test_models_are_saved_and_pickled(name: str, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    model = fitted(name)
    model.save(tmp_path / "model.eigengp")
    for again in (eigengp.load(tmp_path / "model.eigengp"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.predict(TAILS), model.predict(TAILS))
        np.testing.assert_array_equal(again.predict_gradient(TAILS), model.predict_gradient(TAILS))


@pytest.mark.parametrize("name", ["EigenGP+", "SSGP", "ExactGP"])
def test_graphs_hold_the_map(name: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    from eigengp.export import to_onnx

    session = runtime.InferenceSession(to_onnx(fitted(name)).SerializeToString())
    own = session.run(["mean", "std"], {"X": TAILS})
    np.testing.assert_allclose(own, fitted(name).predict(TAILS, return_std=True), rtol=1e-7)


@pytest.mark.parametrize("name", ["EigenGP", "ExactGP"])
def test_botorch_differentiates_through_the_map(name: str) -> None:
    pytest.importorskip("botorch")
    import torch

    from eigengp.export.botorch import BoTorchModel

    points = torch.tensor(TAILS, requires_grad=True)
    mean = BoTorchModel(fitted(name)).posterior(points).mean
    np.testing.assert_allclose(mean.detach().numpy()[:, 0], fitted(name).predict(TAILS), rtol=1e-7)
    (own,) = torch.autograd.grad(mean.sum(), points)
    assert_close(own.numpy(), fitted(name).predict_gradient(TAILS))


def test_a_report_knows_the_training_rows() -> None:
    def recognised(X: Array, y: Array) -> bool:
        return are_training_rows(fitted("ExactGP"), Rows(X, y, (), "target", []))

    assert recognised(X, y)
    assert not recognised(X_test, y_test)


def test_a_robust_sample_without_weight_is_taken_as_it_is() -> None:
    block = RowBlock(X, y, np.zeros(X.shape[0]))
    source = ArraySource(X, y)
    own = Scaling.of(source.total(Summary.of), True).make_robust(block)
    np.testing.assert_array_equal(own.input_centre, scaling_of(X).input_centre)


@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_sample_weight_equivalence_on_dense_data,
        estimator_checks.check_regressors_int,
        estimator_checks.check_fit2d_1sample,
        estimator_checks.check_fit2d_1feature,
    ],
    ids=lambda check: check.__name__,
)
def test_scikit_learn_estimator_checks(check: Any) -> None:
    model = ExactGPRegressor(optimizer=LBFGS(n_restarts=1, max_iter=2), standardize="robust")
    check(type(model).__name__, model)
