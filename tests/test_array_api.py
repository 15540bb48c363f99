"""Rows in other libraries' arrays give what NumPy's give, in the library they came in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn import config_context

from eigengp import (
    LBFGS,
    EigenGPClassifier,
    EigenGPRegressor,
    ExactGPRegressor,
    FITCRegressor,
    Matern12,
    Matern32,
    Matern52,
    NystromRegressor,
    RationalQuadratic,
    SquaredExponential,
    SSGPRegressor,
)
from eigengp._typing import Array
from eigengp.backend.namespace import Placed, beside, namespace, on_host, place
from eigengp.data.array_source import ArraySource, map_blocks
from eigengp.data.frames import Frame
from eigengp.data.holdout import TrainingRows
from eigengp.data.open import open_dataset
from eigengp.data.standardize import Scaling, StandardizedSource, Summary
from eigengp.fitting.bound import Rows
from eigengp.fitting.learn import choose_residual
from eigengp.fitting.run import begin_run
from eigengp.fitting.settings import Settings
from eigengp.gp.model import EigenGP, Jitter
from eigengp.gp.precision import Arithmetic
from eigengp.gp.sparse_spectrum import SparseSpectrum
from eigengp.kernels import Kernel

RNG = np.random.default_rng(0)
N, D, M = 90, 3, 7
X = RNG.normal(size=(N, D))
y = np.sin(2.0 * X[:, 0]) + 0.1 * RNG.normal(size=N)
WEIGHT = RNG.uniform(0.2, 2.0, size=N)
B = X[:M] + 0.01


def strict(x: Array) -> Any:
    return pytest.importorskip("array_api_strict").asarray(x)


def torch(x: Array) -> Any:
    return pytest.importorskip("torch").asarray(x)


LIBRARIES = pytest.mark.parametrize("to", [strict, torch], ids=["strict", "torch"])
KERNELS: dict[str, Kernel] = {
    "squared_exponential": SquaredExponential(np.array([1.0, 2.0, 0.7]), 1.3),
    "matern12": Matern12(np.full(D, 1.5)),
    "matern32": Matern32(np.full(D, 1.5)),
    "matern52": Matern52(np.full(D, 1.5)),
    "rational_quadratic": RationalQuadratic(np.full(D, 1.5), alpha=0.7),
    "sum": SquaredExponential(np.full(D, 1.0)) + Matern32(np.full(D, 3.0), 0.2),
    "product": SquaredExponential(np.full(D, 1.0)) * Matern52(np.full(D, 3.0)),
}


def models() -> dict[str, Any]:
    start = EigenGP(KERNELS["squared_exponential"], B, 0.1, M, jitter=Jitter(1e-6))
    own = np.linspace(1.0, 0.2, M - 2)
    found: dict[str, Any] = {
        name: replace(start, kernel=kernel) for name, kernel in KERNELS.items()
    }
    found["weights"] = replace(start, n_components=M - 2, shrinkage=own)
    found["residual"] = replace(start, residual=True)
    found["power"] = replace(start, residual=True, power=0.5)
    found["vfe"] = replace(start, residual=True, power=0.0)
    found["waves"] = SparseSpectrum(SquaredExponential(np.full(D, 1.5)), B, 0.1)
    return found


MODELS = models()
any_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())


def source_of(to: Callable[[Array], Any], weighted: bool) -> ArraySource:
    weight = to(WEIGHT) if weighted else None
    return ArraySource(to(X), to(y), weight, block_rows=40)


def assert_same_gradient(own: Any, other: Any, relative: float) -> None:
    for name, expected in vars(other).items():
        if expected is not None:
            scale = relative * np.abs(expected).max()
            np.testing.assert_allclose(getattr(own, name), expected, rtol=0.0, atol=scale)


@LIBRARIES
@any_model
@pytest.mark.parametrize("weighted", [False, True])
def test_value_gradient_and_prediction_are_numpys(
    model: Any, weighted: bool, to: Callable[[Array], Any]
) -> None:
    own, gradient = model.evaluate(source_of(to, weighted), 0.3)
    expected, expected_gradient = model.evaluate(source_of(np.asarray, weighted), 0.3)
    assert own.value == pytest.approx(expected.value, rel=1e-12)
    assert_same_gradient(gradient, expected_gradient, 1e-10)
    predicted = model.posterior(own).mean_and_variance(to(X[:9]))
    assert all(place(part) == place(to(X)) for part in predicted)
    for part, known in zip(
        predicted, model.posterior(expected).mean_and_variance(X[:9]), strict=True
    ):
        np.testing.assert_allclose(on_host(part), known, rtol=1e-9)


@LIBRARIES
@any_model
def test_derivatives_and_draws_are_numpys(model: Any, to: Callable[[Array], Any]) -> None:
    outcome = model.forward(source_of(np.asarray, False))
    posterior = model.posterior(outcome)
    if isinstance(model, EigenGP) and model.residual:
        posterior = replace(posterior, kernel=model.kernel)
    inputs = X[:6] + 0.003
    for own in ("mean_gradient", "variance_gradient", "joint_covariance"):
        found = getattr(posterior, own)(to(inputs))
        assert place(found) == place(to(inputs))
        expected = getattr(posterior, own)(inputs)
        np.testing.assert_allclose(
            on_host(found), expected, rtol=0.0, atol=1e-9 * np.abs(expected).max()
        )
    drawn = [
        on_host(posterior.functions(2, np.random.RandomState(0))(each))
        for each in (to(inputs), inputs)
    ]
    np.testing.assert_allclose(drawn[0], drawn[1], rtol=0.0, atol=1e-6)


@LIBRARIES
@any_model
def test_float32_rows_are_good_to_float32(model: Any, to: Callable[[Array], Any]) -> None:
    single = replace(model, arithmetic=Arithmetic("single"))
    rows = ArraySource(to(X.astype(np.float32)), to(y.astype(np.float32)), block_rows=40)
    own, gradient = single.evaluate(rows)
    expected, expected_gradient = model.evaluate(source_of(np.asarray, False))
    assert own.value == pytest.approx(expected.value, rel=1e-4)
    assert_same_gradient(gradient, expected_gradient, 2e-3)


@LIBRARIES
def test_views_are_numpys(to: Callable[[Array], Any]) -> None:
    mine, theirs = source_of(to, True), source_of(np.asarray, True)
    box, expected = mine.total(Summary.of), theirs.total(Summary.of)
    np.testing.assert_array_equal(box.low, expected.low)
    np.testing.assert_array_equal(box.high, expected.high)
    scaling, known = (Scaling.of(each.total(Summary.of), True) for each in (mine, theirs))
    np.testing.assert_allclose(scaling.input_scale, known.input_scale, rtol=1e-12)
    assert scaling.target_scale == pytest.approx(known.target_scale, rel=1e-12)
    some = StandardizedSource(mine, scaling).take(np.array([3, 1, 80]))
    np.testing.assert_allclose(some.X, known.transform_inputs(X[[3, 1, 80]]), rtol=1e-12)
    split, other = TrainingRows(mine, 10), TrainingRows(theirs, 10)
    np.testing.assert_array_equal(split.take_held_out().y, other.take_held_out().y)
    model = MODELS["squared_exponential"]
    assert model.value(split) == pytest.approx(model.value(other), rel=1e-12)


def test_the_held_out_rows_are_about_one_in_the_stride() -> None:
    rows = np.arange(100_000)
    source = ArraySource(np.zeros((rows.size, 1)), rows.astype(float))
    held = TrainingRows(source, 10).take_held_out().y
    assert 9_000 < held.size < 11_000
    assert np.unique(np.diff(held)).size > 5


@LIBRARIES
def test_an_array_is_moved_once_for_each_place(to: Callable[[Array], Any]) -> None:
    placed = Placed(y)
    first = placed.beside(to(X))
    assert first is placed.beside(to(X))
    assert place(first) == place(to(X))
    assert placed.beside(X) is y
    assert str(placed.beside(to(X.astype(np.float32))).dtype).endswith("float32")
    assert beside(to(y), X).tolist() == y.tolist()


@LIBRARIES
def test_functions_of_rows_come_back_in_the_library_of_the_rows(
    to: Callable[[Array], Any],
) -> None:
    doubled = map_blocks(lambda rows: 2.0 * rows[:, 0], to(X), 1 << 22)
    assert namespace(doubled).__name__ == namespace(to(X)).__name__
    np.testing.assert_allclose(on_host(doubled), 2.0 * X[:, 0])


LARGE = RNG.normal(size=(5_400, 2))
OWN: dict[str, Any] = {"kernel": SquaredExponential(1.0), "random_state": 0}
GIVEN = OWN | {"optimizer": LBFGS(n_restarts=1, max_iter=4)}
LARGE_Y = np.sin(2.0 * LARGE[:, 0]) + 0.1 * RNG.normal(size=LARGE.shape[0])


@LIBRARIES
@pytest.mark.parametrize(
    "estimator",
    [
        EigenGPRegressor(**GIVEN, residual=None, inducing_points=LARGE[:12]),
        EigenGPRegressor(**GIVEN, inducing_points=LARGE[:12], residual="diagonal"),
        FITCRegressor(**GIVEN, inducing_points=LARGE[:12]),
        NystromRegressor(**OWN, inducing_points=LARGE[:12]),
        SSGPRegressor(12, **GIVEN),
    ],
    ids=["eigengp", "residual", "fitc", "nystrom", "ssgp"],
)
@pytest.mark.filterwarnings("ignore::eigengp.NegativeVarianceWarning")
def test_a_fit_on_more_rows_than_small_data_has_is_numpys(
    estimator: Any, to: Callable[[Array], Any]
) -> None:
    expected = estimator.fit(LARGE, LARGE_Y).predict(LARGE[:20], return_std=True)
    with config_context(array_api_dispatch=True):
        model = estimator.fit(to(LARGE), to(LARGE_Y))
        found = model.predict(to(LARGE[:20]), return_std=True)
        assert place(model.predict(to(LARGE[:3]))) == place(to(LARGE))
    for part, known in zip(found, expected, strict=True):
        assert place(part) == place(to(LARGE))
        # Nystrom magnifies rounding where it predicts far beyond the targets.
        rtol = 1e-3 if isinstance(estimator, NystromRegressor) else 1e-4
        np.testing.assert_allclose(on_host(part), known, rtol=rtol, atol=1e-6)


def test_a_device_that_is_not_there_says_so() -> None:
    pytest.importorskip("torch")
    with pytest.raises(ValueError, match="Use device=None"):
        EigenGPRegressor(5, device="cuda:77").fit(LARGE, LARGE_Y)


def test_a_device_of_torch_computes_numpys_rows() -> None:
    pytest.importorskip("torch")
    kind = EigenGPRegressor(**GIVEN, residual=None, inducing_points=LARGE[:12])
    expected = kind.fit(LARGE, LARGE_Y).predict(LARGE[:9])
    found = kind.set_params(device="cpu:0").fit(LARGE, LARGE_Y).predict(LARGE[:9])
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_rows_on_a_device_have_the_same_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a device was chosen, or the rows were there."""
    pytest.importorskip("torch")
    for module in ("fitting.settings", "backend.namespace"):
        monkeypatch.setattr(f"eigengp.{module}.find_gpu", lambda: "cpu:0")
    # All predictions are in float64, as those on the device are.
    monkeypatch.setattr("eigengp.kernels.composite._MANY_POINTS", LARGE.shape[0] + 1)
    own = EigenGPRegressor(**GIVEN, inducing_points=LARGE[:12], n_neighbors=9)
    expected = own.fit(LARGE, LARGE_Y).predict(LARGE, return_std=True)
    assert "device" not in own.selection_
    own.set_params(device="auto").fit(LARGE, LARGE_Y)
    assert own.selection_["residual"].chosen == "neighbors"
    assert "many rows are predicted on cpu:0" in own.selection_["device"].reason
    for found, known in zip(own.predict(LARGE, return_std=True), expected, strict=True):
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, known, rtol=1e-6, atol=1e-8)
    assert (place(torch(X)), "float64") in own._posterior._members
    np.testing.assert_allclose(own.predict(LARGE), expected[0], rtol=1e-6, atol=1e-8)
    assert own.predict_gradient(LARGE).shape == LARGE.shape
    with config_context(array_api_dispatch=True):
        own.set_params(device=None).fit(torch(LARGE), torch(LARGE_Y))
        there = own.predict(torch(LARGE[:9]), return_std=True)
    for found, known in zip(there, expected, strict=True):
        assert place(found) == place(torch(LARGE))
        np.testing.assert_allclose(on_host(found), known[:9], rtol=1e-6)


def _classes(count: int) -> Array:
    quantiles = np.linspace(0.0, 1.0, count + 1)[1:-1]
    return np.digitize(LARGE_Y, np.quantile(LARGE_Y, quantiles))


def test_few_inputs_may_be_warped_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("eigengp.fitting.settings.find_gpu", lambda: "cpu:0")
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 3, (1_000, 1))
    y = X[:, 0] * np.sin(X[:, 0] ** 3) + 0.3 * rng.normal(size=1_000)
    model = EigenGPRegressor(device="auto", optimizer=LBFGS(max_iter=3), random_state=0).fit(X, y)
    assert "Warped(SquaredExponential)" in model.selection_["kernel"].scores
    assert np.isfinite(model.predict(X, return_std=True)).all()


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        (EigenGPClassifier(residual=None, kernel="squared_exponential"), _classes(2)),
        (EigenGPClassifier(kernel="matern32"), _classes(3)),
        (EigenGPRegressor(likelihood="student_t", kernel="squared_exponential"), LARGE_Y),
    ],
    ids=["two", "three", "student"],
)
def test_other_likelihoods_on_a_device_are_numpys(
    kind: Any, target: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("eigengp.fitting.bound._WORTH_MOVING", 1)
    monkeypatch.setattr("eigengp.fitting.settings.find_gpu", lambda: "cpu:0")
    monkeypatch.setattr("eigengp.backend.namespace.find_gpu", lambda: "cpu:0")
    moved: list[str] = []
    whole = Rows.make_latent

    def make_latent(rows: Rows, model: EigenGP) -> Any:
        latent = whole(rows, model)
        moved.append(str(place(latent.source.X)))
        return latent

    monkeypatch.setattr(Rows, "make_latent", make_latent)
    own = {"inducing_points": LARGE[:12], "optimizer": LBFGS(max_iter=2), "random_state": 0}
    model = kind.set_params(**own, device=None).fit(LARGE, target)
    predict = "predict_proba" if hasattr(model, "predict_proba") else "predict"
    expected = getattr(model, predict)(LARGE)
    assert set(moved) == {"numpy"}
    moved.clear()
    model.set_params(device="auto").fit(LARGE, target)
    assert moved
    assert all("torch" in each for each in moved)
    assert "a GPU is available" in model.selection_["device"].reason
    found = getattr(model, predict)(LARGE)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_classes_of_tensors_have_probabilities_in_tensors() -> None:
    own: dict[str, Any] = {"residual": None, "kernel": "squared_exponential"}
    model = EigenGPClassifier(5, **own, optimizer=LBFGS(max_iter=1), random_state=0)
    labels = np.where(y > 0.0, "up", "down")
    expected = model.fit(X, labels).predict_proba(X)
    with config_context(array_api_dispatch=True):
        rows = torch(X)
        for given in (labels, torch((y > 0.0).astype(int))):
            model.fit(rows, given)
            found = model.predict_proba(rows)
            assert place(found) == place(rows)
            np.testing.assert_allclose(on_host(found), expected, rtol=1e-8)
            assert model.predict(rows).tolist() == model.classes_[expected.argmax(axis=1)].tolist()
            for each in (model.predict_log_proba(rows), model.decision_function(rows)):
                assert place(each) == place(rows)


def test_many_rows_of_classes_with_neighbours_are_predicted_on_a_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch")
    own: dict[str, Any] = {"residual": "neighbors", "kernel": Matern32(1.5), "n_neighbors": 9}
    model = EigenGPClassifier(8, **own, optimizer=LBFGS(max_iter=0), random_state=0)
    few, labels = LARGE[:200], LARGE_Y[:200] > 0.0
    expected = model.fit(few, labels).predict_proba(LARGE)
    model.set_params(device="cpu:0").fit(few, labels)
    assert "many rows are predicted on cpu:0" in model.selection_["device"].reason
    found = model.predict_proba(LARGE)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    assert (place(torch(X)), "float64") in model._posterior.parts[0]._members


def test_predicting_with_another_library_than_in_fit_is_an_error() -> None:
    with config_context(array_api_dispatch=True):
        model = EigenGPRegressor(3, optimizer=LBFGS(n_restarts=1, max_iter=1)).fit(
            strict(X), strict(y)
        )
        with pytest.raises(ValueError, match=r"EigenGPRegressor.predict\(\) must use the same"):
            model.predict(X)


def test_a_gpu_is_chosen_where_there_is_one_and_selection_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("eigengp.fitting.settings.find_gpu", lambda: "cpu:0")
    own = EigenGPRegressor(**GIVEN, inducing_points=LARGE[:12], residual=None, device="auto")
    assert "a GPU is available" in own.fit(LARGE, LARGE_Y).selection_["device"].reason
    few = ExactGPRegressor(optimizer=LBFGS(n_restarts=1, max_iter=1), device="auto")
    assert few.fit(X, y).selection_["device"].chosen == "cpu:0"
    monkeypatch.setattr("eigengp.fitting.settings.find_gpu", lambda: None)
    assert "no GPU is available" in few.fit(X, y).selection_["device"].reason
    assert "device" not in ExactGPRegressor(optimizer=few.optimizer).fit(X, y).selection_


def test_a_gpu_has_the_exact_gp_of_more_rows() -> None:
    """The choice alone: there need be no GPU."""
    settings = Settings.from_estimator(EigenGPRegressor(device="cuda"))
    options = settings.reading._replace(device=None)
    with open_dataset(Frame(LARGE, LARGE_Y, None), options) as dataset:
        with begin_run(dataset, settings) as run:
            residual, decision = choose_residual(run)
        assert residual == "exact"
        assert "on cuda" in decision.reason
        on_cpu = replace(settings, device=None, reading=settings.reading._replace(device=None))
        with begin_run(dataset, on_cpu) as run:
            assert choose_residual(run)[0] == "neighbors"
