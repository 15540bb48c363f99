"""Linear maps of the inputs, which the default learns with nearest neighbours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import eigengp
from eigengp import EigenGPClassifier, EigenGPRegressor
from eigengp._typing import Array
from eigengp.data.standardize import Scaling
from eigengp.fitting.local_learner import LocalLearner
from eigengp.fitting.objectives import kernel_parameters
from eigengp.gp.blocks import RowBlock
from eigengp.gp.exact import ExactGP
from eigengp.kernels import Kernel, Matern12, RationalQuadratic, SquaredExponential
from finite_differences import gradient

D = 4
KERNELS = [
    SquaredExponential(np.array([1.0, 2.0, 0.7, 3.0]), 0.8),
    RationalQuadratic(np.array([1.0, 2.0, 0.7, 3.0]), 0.8) + Matern12(2.0, 0.4),
    Matern12(np.array([1.0, 0.5]), active_dims=[2, 0]) + SquaredExponential(1.5),
]


def make_rows(n: int, seed: int = 0) -> tuple[Array, Array]:
    """Return inputs and targets of a function of two oblique directions, with noise 0.1."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, D)) * [1.0, 10.0, 0.1, 1.0] + [0.0, 5.0, 0.0, -2.0]
    u = (X - [0.0, 5.0, 0.0, -2.0]) / [1.0, 10.0, 0.1, 1.0]
    f = np.sin(4.0 * (u[:, 0] + u[:, 1] - u[:, 2])) + np.cos(3.0 * (u[:, 1] + u[:, 2] - u[:, 3]))
    return X, f + 0.1 * rng.normal(size=n)


@pytest.fixture(scope="module")
def model() -> EigenGPRegressor:
    return EigenGPRegressor(random_state=0).fit(*make_rows(2_200))


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("compiled", [True, False])
def test_gradients_of_a_mapped_exact_gp_are_the_derivatives(kernel: Kernel, compiled: bool) -> None:
    rng = np.random.default_rng(0)
    rows = RowBlock(rng.normal(size=(30, D)), rng.normal(size=30), rng.integers(1, 3, 30) * 1.0)
    own = np.eye(D) + 0.2 * rng.normal(size=(D, D))
    template = ExactGP(kernel, 0.1, compiled=compiled, input_map=own)
    parameters = kernel_parameters(template)
    found = parameters.pack_gradient(template.evaluate(rows)[1])
    expected = gradient(lambda at: parameters.unpack(at).forward(rows).value, parameters.start)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


def test_an_identity_changes_nothing() -> None:
    rng = np.random.default_rng(1)
    rows = RowBlock(rng.normal(size=(30, D)), rng.normal(size=30))
    plain = ExactGP(KERNELS[1], 0.1)
    outcome, slopes = plain.evaluate(rows)
    other, mapped = replace(plain, input_map=np.eye(D)).evaluate(rows)
    assert other.value == outcome.value
    np.testing.assert_array_equal(mapped.theta, slopes.theta)


def test_a_scaling_undoes_its_map() -> None:
    rng = np.random.default_rng(2)
    own = np.eye(3) + 0.3 * rng.normal(size=(3, 3))
    centre, scale = np.array([1.0, -2.0, 5.0]), np.array([1.0, 10.0, 0.1])
    scaling = Scaling(centre, scale, 0.0, 1.0, scale, columns=(2, 0, 1), input_map=own)
    X = centre + scale * rng.normal(size=(20, 3))
    np.testing.assert_allclose(scaling.restore_inputs(scaling.transform_inputs(X)), X, rtol=1e-12)
    apart = scaling.transform_inputs(X[:10]) - scaling.transform_inputs(X[10:])
    assert scaling.unit_map is not None
    np.testing.assert_allclose(apart, (X[:10] - X[10:]) @ scaling.unit_map, rtol=1e-10)


def test_the_default_finds_oblique_directions(model: EigenGPRegressor) -> None:
    assert "mapped inputs" in model.selection_["kernel"].chosen
    X, y = make_rows(1_000, seed=1)
    mean, std = model.predict(X, return_std=True)
    # The noise alone is .01; a kernel with a lengthscale for each input has .016.
    assert np.mean((y - mean) ** 2) < 0.0125
    assert 0.85 < np.mean(np.abs(y - mean) < 1.645 * std) < 0.95


def test_the_kernel_is_that_of_mapped_inputs(model: EigenGPRegressor) -> None:
    X, _ = make_rows(20, seed=2)
    inner = model._posterior
    features = getattr(inner, "own", inner).features
    Z = model._scaling.transform_inputs(X)
    expected = model._scaling.target_scale**2 * features.kernel(Z)
    np.testing.assert_allclose(model.kernel_(X @ model.input_map_), expected, rtol=1e-9)


def test_gradients_of_predictions_go_through_the_map(model: EigenGPRegressor) -> None:
    X, _ = make_rows(3, seed=3)
    steps = 1e-5 * np.array([1.0, 10.0, 0.1, 1.0])
    found = model.predict_gradient(X)
    for d, step in enumerate(steps):
        ahead, behind = X.copy(), X.copy()
        ahead[:, d] += step
        behind[:, d] -= step
        expected = (model.predict(ahead) - model.predict(behind)) / (2.0 * step)
        np.testing.assert_allclose(found[:, d], expected, rtol=1e-4, atol=1e-6 / step * 1e-5)


def test_relevance_of_inputs_follows_the_map(model: EigenGPRegressor) -> None:
    relevance = model.input_relevance()
    assert relevance.shape == (D,)
    assert np.all(relevance > 0.1)


def test_a_saved_model_keeps_its_map(model: EigenGPRegressor, tmp_path: Path) -> None:
    model.save(tmp_path / "model.eigengp")
    other = eigengp.load(tmp_path / "model.eigengp")
    X, _ = make_rows(50, seed=4)
    np.testing.assert_array_equal(other.predict(X), model.predict(X))
    np.testing.assert_array_equal(other.input_map_, model.input_map_)


def test_a_named_kernel_sees_the_inputs_as_they_are() -> None:
    X, y = make_rows(1_200)
    model = EigenGPRegressor(kernel="matern32", residual="neighbors", random_state=0).fit(X, y)
    assert not hasattr(model, "input_map_")


def test_many_inputs_have_no_map() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1_100, 20))
    model = EigenGPRegressor(residual="neighbors", max_time=2.0, random_state=0)
    model.fit(X, X[:, 0] + 0.1 * rng.normal(size=1_100))
    assert not hasattr(model, "input_map_")


@pytest.fixture(scope="module")
def few() -> EigenGPRegressor:
    X, y = make_rows(600)
    return EigenGPRegressor(random_state=0).fit(np.column_stack([X, np.full(600, 3.0)]), y)


def test_the_exact_gp_of_few_rows_maps_inputs_that_vary(few: EigenGPRegressor) -> None:
    assert few.selection_["residual"].chosen == "exact"
    assert few.selection_["inputs"].chosen == "mapped"
    assert few.input_map_.shape == (D + 1, D)
    assert not few.input_map_[D].any()
    X, y = make_rows(1_000, seed=1)
    mean = few.predict(np.column_stack([X, np.full(1_000, 3.0)]))
    assert np.mean((y - mean) ** 2) < 0.02


def test_iterations_of_the_map_count(few: EigenGPRegressor) -> None:
    assert few.n_iter_ == len(few.history_)


def test_the_summary_says_that_inputs_are_mapped(few: EigenGPRegressor) -> None:
    assert "of mapped inputs" in few._repr_html_()


def test_an_exported_graph_maps_its_inputs(few: EigenGPRegressor) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="runs graphs in onnxruntime")
    pytest.importorskip("onnx", reason="makes graphs")
    from eigengp.export import to_onnx

    session = onnxruntime.InferenceSession(to_onnx(few).SerializeToString())
    X = np.column_stack([make_rows(20, seed=5)[0], np.full(20, 3.0)])
    mean = session.run(["mean"], {session.get_inputs()[0].name: X})[0]
    np.testing.assert_allclose(np.ravel(mean), few.predict(X), rtol=1e-9)


def test_inputs_without_oblique_directions_stay_as_they_are() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (600, 3))
    y = np.sin(3.0 * X[:, 0]) + X[:, 1] ** 2 + 0.3 * rng.normal(size=600)
    model = EigenGPRegressor(random_state=0).fit(X, y)
    assert model.selection_["inputs"].chosen == "as given"
    assert not hasattr(model, "input_map_")


def test_local_gps_of_classes_have_no_map(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    own = LocalLearner.map_inputs

    def spy(self: LocalLearner, models: list[ExactGP], *given: int) -> list[ExactGP]:
        made.extend(own(self, models, *given))
        return []

    monkeypatch.setattr(LocalLearner, "map_inputs", spy)
    X, y = make_rows(1_200)
    EigenGPClassifier(max_time=3.0, random_state=0).fit(X, y > 0.0)
    assert not made
