"""ONNX graphs predict what the models predict, in onnxruntime."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import eigengp
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
    PowerEPRegressor,
    RationalQuadratic,
    RVMRegressor,
    SquaredExponential,
    SSGPRegressor,
    Stochastic,
    VFERegressor,
    Warped,
)
from eigengp._typing import Array
from eigengp.backend.namespace import namespace
from eigengp.export import onnx as export
from eigengp.export import to_onnx, write_onnx
from eigengp.gp.heteroscedastic import HeteroscedasticPosterior
from eigengp.gp.precision import Arithmetic
from eigengp.kernels import Stationary

pytest.importorskip("onnx", reason='needs pip install "eigengp[onnx]"')

from eigengp.export.graph import Graph, Namespace

runtime = pytest.importorskip("onnxruntime", reason="runs graphs in onnxruntime")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))
Y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=80)
NEW = RNG.normal(size=(12, 3))
QUICK: dict[str, Any] = {
    "kernel": SquaredExponential(1.0),
    "optimizer": LBFGS(n_restarts=1, max_iter=2),
    "random_state": 0,
}

MODELS: dict[str, Any] = {
    "sequential": EigenGPRegressor(8, **QUICK),
    "joint": EigenGPRegressor(
        8, **(QUICK | {"optimizer": LBFGS("joint", n_restarts=1, max_iter=2)})
    ),
    "direct": EigenGPRegressor(
        8, **(QUICK | {"optimizer": LBFGS("direct", n_restarts=1, max_iter=2)})
    ),
    "stochastic": EigenGPRegressor(
        8, **(QUICK | {"optimizer": Stochastic(n_restarts=1, max_iter=2)})
    ),
    "fewer_than_points": EigenGPRegressor(5, inducing_points=8, **QUICK),
    "residual": EigenGPRegressor(8, residual="diagonal", **QUICK),
    "not_standardized": EigenGPRegressor(8, standardize=False, **QUICK),
    "linear_mean": EigenGPRegressor(8, mean="linear", **QUICK),
    "FITC": FITCRegressor(8, **QUICK),
    "VFE": VFERegressor(8, **QUICK),
    "PowerEP": PowerEPRegressor(n_components=8, **QUICK),
    "SSGP": SSGPRegressor(8, **QUICK),
    "RVM": RVMRegressor(lengthscale=1.0),
    "ExactGP": ExactGPRegressor(**QUICK),
    "averaged": EigenGPRegressor(residual="exact", **QUICK),
    "Nystrom": NystromRegressor(
        40, optimizer=LBFGS(max_iter=0), kernel=SquaredExponential(1.0), random_state=0
    ),
}
KERNELS: dict[str, Any] = {
    "matern12": Matern12(1.5),
    "matern32": Matern32(1.5),
    "matern52": Matern52(1.5),
    "rational_quadratic": RationalQuadratic(1.5, alpha=0.7),
    "sum": SquaredExponential(1.0) + Matern32(3.0, 0.2),
    "warped": Warped(SquaredExponential(1.0), [-1.0, -9.0, -2.0], [1.0, 9.0, 2.0], 0.6, 1.4),
    "product": SquaredExponential(1.0) * (Matern52(3.0) + RationalQuadratic(2.0)),
}


@cache
def fitted(name: str) -> Any:
    return clone(MODELS[name]).fit(X, Y)


def run(model: Any, inputs: Array, **settings: Any) -> tuple[Array, Array]:
    session = runtime.InferenceSession(to_onnx(model, **settings).SerializeToString())
    mean, std = session.run(["mean", "std"], {"X": inputs})
    return mean, std


def assert_same(model: Any, inputs: Array, tolerance: float = 1e-9) -> None:
    """Compare with the native prediction, relative to the scale of the targets."""
    expected = model.predict(inputs, return_std=True)
    assert np.all(np.isfinite(expected))
    scale = tolerance * model._scaling.target_scale
    for own, known in zip(run(model, inputs), expected, strict=True):
        assert own.dtype == np.float64
        np.testing.assert_allclose(own, known, rtol=tolerance, atol=scale)


@pytest.mark.filterwarnings("ignore::eigengp.NegativeVarianceWarning")
@pytest.mark.parametrize("name", MODELS)
def test_every_method_predicts_the_same(name: str) -> None:
    assert_same(fitted(name), np.concatenate([NEW, X[:5]]))


def test_error_bars_that_vary_do_so_in_the_graph() -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2.0, 2.0, size=(300, 1))
    noise = np.exp(rows[:, 0]) * rng.normal(size=300)
    model = EigenGPRegressor(8, likelihood="heteroscedastic", **QUICK).fit(
        rows, np.sin(rows[:, 0]) + noise
    )
    assert isinstance(model._posterior, HeteroscedasticPosterior)
    assert_same(model, np.linspace(-4.0, 4.0, 9)[:, None])


@pytest.mark.parametrize("residual", [None, "diagonal"])
@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_predicts_the_same(name: str, residual: str | None) -> None:
    model = EigenGPRegressor(
        8,
        kernel=KERNELS[name],
        residual=residual,
        inducing_points=X[:8],
        optimizer=LBFGS(n_restarts=1, max_iter=0),
    )
    assert_same(model.fit(X, Y), np.concatenate([NEW, X[:8]]))


@pytest.mark.parametrize(
    "model",
    [
        EigenGPRegressor(1, kernel=Matern32(1.0, 1.7), optimizer=LBFGS(n_restarts=1, max_iter=2)),
        FITCRegressor(
            1, kernel=RationalQuadratic(1.0, 1.7), optimizer=LBFGS(n_restarts=1, max_iter=2)
        ),
        SSGPRegressor(2, **QUICK),
    ],
    ids=["eigengp", "fitc", "ssgp"],
)
@pytest.mark.parametrize("n_inputs", [1, 2])
def test_numbers_keep_their_digits_where_there_is_one_input_or_feature(
    model: Any, n_inputs: int
) -> None:
    assert_same(clone(model).fit(X[:, :n_inputs], Y), NEW[:, :n_inputs])


@pytest.mark.parametrize("name", ["sequential", "residual", "SSGP", "ExactGP"])
def test_any_number_of_rows(name: str) -> None:
    model = fitted(name)
    assert_same(model, NEW[:1])
    assert [part.shape for part in run(model, NEW[:0])] == [(0,), (0,)]


@pytest.mark.parametrize("kernel", [SquaredExponential(1.0), *KERNELS.values()])
def test_far_from_the_data(kernel: Any) -> None:
    model = EigenGPRegressor(
        8, kernel=kernel, residual="diagonal", optimizer=LBFGS(n_restarts=1, max_iter=0)
    )
    far = NEW[:4] * np.array([1e2, 1e4, 1e8, 1e160])[:, None]
    assert_same(model.fit(X, Y), far)


@pytest.mark.parametrize(
    ("inputs", "targets"), [(1e-12, 1e-9), (1e9, 1e12), (np.array([1e-9, 1.0, 1e9]), 1.0)]
)
def test_extreme_scales(inputs: Any, targets: float) -> None:
    shift = 1e3 * np.abs(inputs)
    kernel = SquaredExponential(np.full(3, 1.0) * inputs, targets**2)
    settings: dict[str, Any] = {"kernel": kernel, "optimizer": LBFGS(n_restarts=1, max_iter=0)}
    model = EigenGPRegressor(8, residual="diagonal", random_state=0, **settings)
    model.fit(inputs * X + shift, targets * (Y + 5.0))
    assert_same(model, inputs * NEW + shift, 1e-6)


def test_after_learning_online() -> None:
    model = EigenGPRegressor(8, **QUICK).partial_fit(X[:40], Y[:40]).partial_fit(X[40:], Y[40:])
    assert_same(model, NEW)


def test_lower_precision_is_exported_in_float64() -> None:
    model = EigenGPRegressor(8, precision="single", **QUICK).fit(X, Y)
    own = replace(model._posterior, arithmetic=Arithmetic())
    assert model._posterior._mean_type == "float32"
    mean, _ = own.mean_and_variance(model._scaling.transform_inputs(NEW))
    np.testing.assert_allclose(
        run(model, NEW)[0], model._scaling.restore_targets(NEW, mean), rtol=1e-12
    )


def test_float32_in_and_out() -> None:
    model = fitted("residual")
    inputs = NEW.astype(np.float32)
    expected = model.predict(inputs.astype(np.float64), return_std=True)
    for own, known in zip(run(model, inputs, input_type="float32"), expected, strict=True):
        assert own.dtype == np.float32
        np.testing.assert_allclose(own, known, rtol=1e-6, atol=1e-6)


def test_the_graph_says_where_it_comes_from() -> None:
    frame = pd.DataFrame(X, columns=["warm", "wet", "windy"])
    graph = to_onnx(EigenGPRegressor(4, optimizer=LBFGS(max_iter=0)).fit(frame, Y))
    about = {each.key: each.value for each in graph.metadata_props}
    assert json.loads(about["feature_names"]) == ["warm", "wet", "windy"]
    assert about["method"] == "EigenGPRegressor"
    assert about["kernel"].startswith("SquaredExponential")
    assert float(about["noise_variance"]) > 0.0
    assert (graph.producer_name, graph.producer_version) == ("eigengp", eigengp.__version__)


def test_inputs_without_names_are_numbered() -> None:
    about = {each.key: each.value for each in to_onnx(fitted("VFE")).metadata_props}
    assert json.loads(about["feature_names"]) == ["x0", "x1", "x2"]


def test_the_graph_is_no_longer_than_the_formula() -> None:
    graph = to_onnx(fitted("sequential")).graph
    assert len(graph.node) < 30
    used = {name for node in graph.node for name in node.input}
    assert {each.name for each in graph.initializer} <= used
    numbers = sum(len(each.raw_data) for each in graph.initializer)
    assert numbers < 8 * (8 * 8 + 8 * 10) + 1000


def test_a_model_is_left_as_it_was() -> None:
    model = clone(MODELS["residual"]).fit(X, Y)
    to_onnx(model)
    posterior = model._posterior
    assert not posterior._V._copies
    assert not posterior.features._scaled_points.keys() - {"numpy"}


def test_the_residual_between_neighbors_is_refused() -> None:
    model = EigenGPRegressor(5, residual="neighbors", optimizer=LBFGS(max_iter=0)).fit(X, Y)
    with pytest.raises(ValueError, match="Fit with residual=None"):
        to_onnx(model)


class Numpys(Stationary):
    """A kernel that calls NumPy."""

    def profile(self, t: Any) -> Any:
        return np.exp(-0.5 * t)

    def slope(self, t: Any, rho: Any) -> Any:
        return -0.5 * rho


class Standards(Numpys):
    """The same by the functions of the standard."""

    def profile(self, t: Any) -> Any:
        return namespace(t).exp(-0.5 * t)


def test_a_kernel_of_ones_own_needs_the_standards_functions() -> None:
    settings: dict[str, Any] = {
        "inducing_points": X[:6],
        "optimizer": LBFGS(n_restarts=1, max_iter=0),
    }
    assert_same(EigenGPRegressor(6, kernel=Standards(1.0), **settings).fit(X, Y), NEW)
    model = EigenGPRegressor(6, kernel=Numpys(1.0), **settings).fit(X, Y)
    with pytest.raises(ValueError, match=r"kernel Numpys\(.*namespace\(t\)"):
        to_onnx(model)


def test_what_cannot_be_exported_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFittedError):
        to_onnx(EigenGPRegressor(5))
    with pytest.raises(ValueError, match=r"got 'float16'"):
        to_onnx(fitted("sequential"), input_type="float16")  # type: ignore[arg-type]
    monkeypatch.setattr(export, "_MAX_BYTES", 100)
    with pytest.raises(ValueError, match="ONNX allows 2 GB"):
        to_onnx(fitted("ExactGP"))


@pytest.mark.parametrize("package", ["onnx", "array_api_compat"])
def test_without_a_package_the_error_says_what_to_install(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf'{package}: pip install "eigengp\[onnx\]"'):
        to_onnx(fitted("sequential"))


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_text("before")
    with pytest.raises(NotFittedError):
        write_onnx(EigenGPRegressor(5), path)
    assert path.read_text() == "before"
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_onnx(fitted("sequential"), tmp_path / "folder")
    write_onnx(fitted("sequential"), path)
    assert {each.name for each in tmp_path.iterdir()} == {"model.onnx", "folder"}
    mean, _ = runtime.InferenceSession(path).run(None, {"X": NEW})
    np.testing.assert_allclose(mean, fitted("sequential").predict(NEW), rtol=1e-9)


FORMULAS: dict[str, Callable[[Any, Any], Any]] = {
    "arithmetic": lambda xp, x: (2.0 - x) / (x * x + 1.0) - x / 3.0 + 1.0 / (2.0 + x * x) - (-x),
    "power": lambda xp, x: (x * x + 0.5) ** 1.5,
    "constants": lambda xp, x: X[:1, :] - x * X[1, :],
    "products": lambda xp, x: X[:, :] @ (x.T) + X @ x.T,
    "functions": lambda xp, x: xp.tanh(x) + xp.cos(x) * xp.log(xp.abs(x)) + xp.log1p(x * x),
    "choice": lambda xp, x: xp.where(x > 0.0, xp.sqrt(xp.abs(x)), -1.0),
    "comparisons": lambda xp, x: xp.where(x <= 0.3, xp.where(x < -0.3, x, 0.0 * x), 2.0 + 0.0 * x),
    "at_least": lambda xp, x: xp.where(x >= NEW[0, 0], x, X[0, :]),
    "clip": lambda xp, x: xp.clip(x, -0.5, 0.5),
    "slices": lambda xp, x: x[:, 1:3] * x[:, :2] + x[:, -1:],
    "sums": lambda xp, x: xp.sum(x, axis=1, keepdims=True) * xp.ones_like(x),
    "concat": lambda xp, x: xp.concat([x, xp.zeros_like(x[:, :0]), xp.zeros_like(x)], axis=1),
    "float32": lambda xp, x: xp.astype(xp.astype(x, xp.float32), xp.float64),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_traced_formulas_are_numpys(name: str) -> None:
    graph = Graph(3, "float64")
    result = FORMULAS[name](Namespace, graph.argument)
    expected = FORMULAS[name](np, NEW)
    assert all(a in (None, b) for a, b in zip(result.shape, expected.shape, strict=True))
    session = runtime.InferenceSession(graph.model({"y": result}).SerializeToString())
    np.testing.assert_allclose(session.run(None, {"X": NEW})[0], expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "formula",
    [
        np.exp,
        bool,
        float,
        iter,
        lambda x: x[0],
        lambda x: x[:2, :],
        lambda x: x[:, ::2],
        lambda x: np.ones((5, 3)) + x,
        lambda x: x + np.ones(4),
    ],
)
def test_what_a_graph_cannot_hold_is_an_error(formula: Callable[[Any], Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        formula(Graph(3, "float64").argument)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_classifier_has_probabilities_and_its_labels(n_classes: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    labels = np.array(["low", "middle", "top"])[np.digitize(X[:, 0], [0.0, 0.8][: n_classes - 1])]
    model = EigenGPClassifier(10, kernel="matern32", optimizer=LBFGS(max_iter=3)).fit(X, labels)
    graph = to_onnx(model)
    session = runtime.InferenceSession(graph.SerializeToString())
    (found,) = session.run(None, {"X": X})
    np.testing.assert_allclose(found, model.predict_proba(X), atol=1e-12)
    known = {each.key: each.value for each in graph.metadata_props}
    assert json.loads(known["classes"]) == model.classes_.tolist()
