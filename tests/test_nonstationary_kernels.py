from __future__ import annotations

import inspect
import tokenize
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigengp import (
    LBFGS,
    EigenGPRegressor,
    ExactGPRegressor,
    FITCRegressor,
    SSGPRegressor,
    load,
)
from eigengp._typing import Array
from eigengp.data.array_source import ArraySource
from eigengp.data.neighbors import NeighborSource
from eigengp.gp.blocks import RowBlock
from eigengp.gp.exact import ExactGP
from eigengp.gp.model import EigenGP, Jitter
from eigengp.gp.vecchia import VecchiaPass
from eigengp.gp.vecchia_posterior import VecchiaPosterior
from eigengp.kernels import (
    KERNELS,
    LENGTHSCALE,
    Additive,
    Kernel,
    Linear,
    Matern32,
    PairwiseKernel,
    Parameter,
    Periodic,
    Polynomial,
    RationalQuadratic,
    SquaredExponential,
    parameter,
)
from finite_differences import assert_close, gradient

ARD = np.array([0.7, 1.3])
CENTER = np.array([0.3, -0.4])
UNLEARNED = LBFGS(max_iter=0)

SIMPLE: dict[str, Kernel] = {
    "periodic": Periodic(0.9, 2.3, 1.7),
    "periodic_ard": Periodic(ARD, [2.0, 3.1], 0.8),
    "linear": Linear(0.6, 0.4),
    "linear_ard": Linear(ARD, 0.4, center=CENTER),
    "additive": Additive(0.9, 1.7),
    "additive_ard": Additive(ARD, 0.8),
    "polynomial": Polynomial(0.6, 0.4, 3),
    "polynomial_ard": Polynomial(ARD, 1.4, center=CENTER),
}
COMBINED: dict[str, Kernel] = {
    "sum": SquaredExponential(0.8, 1.7) + Linear(ARD, 0.4),
    "product": Periodic(1.3, 2.0) * Linear(0.7, 0.9),
    "stationary_product": SquaredExponential(0.8, 1.7) * RationalQuadratic(ARD, 0.6),
    "nested": Matern32(ARD) * (Polynomial(0.3, 1.0) + RationalQuadratic(2.0)) + Periodic(1.0, 3.0),
    "active": SquaredExponential(0.9, active_dims=[1]) + Matern32(1.1, active_dims=[0]),
    "active_product": Linear(0.5, active_dims=[0]) * Periodic(1.2, 2.5, active_dims=[1]),
    "swapped": RationalQuadratic(ARD, active_dims=[1, 0]) + Linear(ARD, active_dims=[1, 0]),
}
EVERY: dict[str, Kernel] = {**SIMPLE, **COMBINED}

every_kernel = pytest.mark.parametrize("kernel", EVERY.values(), ids=EVERY.keys())
few_kernels = pytest.mark.parametrize(
    "kernel",
    [
        EVERY[name]
        for name in ("periodic_ard", "additive_ard", "linear_ard", "nested", "active_product")
    ],
    ids=["periodic_ard", "additive_ard", "linear_ard", "nested", "active_product"],
)


def points(n: int, seed: int, n_features: int = 2) -> Array:
    return np.random.default_rng(seed).normal(size=(n, n_features))


ROWS = RowBlock(points(14, 0), points(14, 3, 1)[:, 0], np.tile([1.0, 2.0], 7))
FORMULAS: dict[str, Callable[[Array, Array], float]] = {
    "periodic": lambda x, z: (
        1.7 * np.exp(-2.0 * np.sum(np.sin(np.pi * (x - z) / 2.3) ** 2) / 0.9**2)
    ),
    "linear_ard": lambda x, z: 0.4 + np.sum(ARD * (x - CENTER) * (z - CENTER)),
    "polynomial": lambda x, z: (0.4 + 0.6 * x @ z) ** 3,
}


@pytest.mark.parametrize("name", FORMULAS)
def test_values_are_those_of_the_formula(name: str) -> None:
    X, Z = points(6, 0), points(4, 1)
    expected = [[FORMULAS[name](x, z) for z in Z] for x in X]
    np.testing.assert_allclose(EVERY[name](X, Z), expected, rtol=1e-12)


@every_kernel
def test_matrix_is_positive_semidefinite_and_its_diagonal_is_diag(kernel: Kernel) -> None:
    X = points(20, 0)
    K = kernel(X)
    np.testing.assert_allclose(np.diag(K), kernel.diag(X), rtol=1e-13)
    np.testing.assert_allclose(K, K.T, atol=1e-12 * np.max(K))
    assert np.linalg.eigvalsh(K)[0] > -1e-11 * np.max(np.abs(K))


@every_kernel
def test_pull_backs_are_the_derivatives(kernel: Kernel) -> None:
    X, Z, K_bar = points(12, 0), points(7, 1), points(12, 2, 7)
    adjoint = kernel.forward(X, Z)[1](K_bar)
    theta = gradient(lambda t: np.vdot(K_bar, kernel.with_theta(t)(X, Z)), kernel.theta)
    assert_close(adjoint.theta, theta, 1e-8)
    moved = gradient(lambda at: np.vdot(K_bar, kernel(X, at)), Z, step=2e-3)
    assert_close(adjoint.points, moved, 1e-8)
    features = kernel.at(Z)
    inputs = gradient(lambda at: np.vdot(K_bar, features.matrix(at)), X, step=2e-3)
    assert_close(features.input_gradient(X, K_bar), inputs, 1e-8)


@every_kernel
def test_diagonal_pull_backs_are_the_derivatives(kernel: Kernel) -> None:
    X, bar = points(9, 0), points(9, 1, 1)[:, 0]
    theta = gradient(lambda t: float(bar @ kernel.with_theta(t).diag(X)), kernel.theta)
    assert_close(kernel.diag_adjoint(X, bar).theta, theta, 1e-8)
    inputs = gradient(lambda at: float(np.sum(kernel.diag(at))), X, step=2e-3)
    np.testing.assert_allclose(kernel.diag_adjoint(X, np.ones(len(X))).points, inputs, atol=1e-8)
    if kernel.constant_diagonal is not None:
        np.testing.assert_allclose(kernel.diag(X), kernel.constant_diagonal, rtol=1e-14)


@every_kernel
def test_stack_holds_the_gram_matrices(kernel: Kernel) -> None:
    X = points(15, 0).reshape(3, 5, 2)
    dense = [kernel(each)[np.triu_indices(5)] for each in X]
    np.testing.assert_allclose(kernel.stack(X), dense, rtol=1e-9, atol=1e-12)


def test_rows_in_parts_give_the_same_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Z, K_bar = points(12, 0), points(7, 1), points(12, 2, 7)
    K, back = Periodic(ARD).forward(X, Z)
    whole, stack = back(K_bar), Periodic(ARD).stack(X.reshape(3, 4, 2))
    monkeypatch.setattr("eigengp.kernels.nonstationary.MOST_ENTRIES", 40)
    K_parts, back = Periodic(ARD).forward(X, Z)
    np.testing.assert_array_equal(K_parts, K)
    np.testing.assert_allclose(back(K_bar).theta, whole.theta, rtol=1e-13)
    np.testing.assert_allclose(back(K_bar).points, whole.points, rtol=1e-13)
    np.testing.assert_array_equal(Periodic(ARD).stack(X.reshape(3, 4, 2)), stack)


@every_kernel
def test_rescaled_is_the_kernel_of_other_units(kernel: Kernel) -> None:
    X, Z = points(12, 0), points(7, 1)
    scale, shift = np.array([3.0, 0.2]), np.array([50.0, -7.0])
    own = kernel.with_ard(2)
    other = own.rescaled(scale, 2.5, shift)
    expected = 2.5 * kernel(X, Z)
    atol = 1e-11 * np.max(np.abs(expected))
    np.testing.assert_allclose(other(X * scale + shift, Z * scale + shift), expected, atol=atol)
    back = other.rescaled(1.0 / scale, 1.0 / 2.5, -shift / scale)
    np.testing.assert_allclose(back.theta, own.theta, atol=1e-13)


@every_kernel
def test_parameters_are_declared_in_the_order_of_theta(kernel: Kernel) -> None:
    ard = kernel.with_ard(2)
    assert len(ard.parameters) == len(ard.parameter_names) == ard.theta.size
    low, high = np.log([each.bounds for each in ard.parameters]).T
    assert np.all((low < ard.theta) & (ard.theta < high))
    assert not any(name.endswith("lengthscale") for name in ard.parameter_names)


def test_active_dims_see_some_inputs_alone() -> None:
    X, Z = points(9, 0, 4), points(5, 1, 4)
    for kind in KERNELS.values():
        kernel = kind(active_dims=(3, 1))
        expected = kind()(X[:, [3, 1]], Z[:, [3, 1]])
        np.testing.assert_allclose(kernel(X, Z), expected, rtol=1e-12)
        ard = kernel.with_ard(4)
        assert ard.metric(4)[[0, 2]].tolist() == [0.0, 0.0]
        assert np.all(ard.metric(4)[[1, 3]] > 0.0)
        other = ard.rescaled(np.array([1.0, 2.0, 3.0, 4.0]), 1.0)
        np.testing.assert_allclose(other(X * [1, 2, 3, 4]), ard(X), rtol=1e-9)


@pytest.mark.parametrize("bad", [[], [-1], [1, 1]])
def test_active_dims_must_be_different_inputs(bad: list[int]) -> None:
    with pytest.raises(ValueError, match="active_dims must be distinct indices"):
        SquaredExponential(active_dims=bad)


def test_active_dims_must_be_inputs_of_the_data() -> None:
    with pytest.raises(ValueError, match=r"active_dims=\(2,\) but X has 2 features"):
        Periodic(active_dims=[2])(points(3, 0))
    with pytest.raises(ValueError, match="2 lengthscales but X has 1 active features"):
        Periodic(ARD, active_dims=[1])(points(3, 0))


def test_parameters_and_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="period of Periodic must be positive"):
        Periodic(period=0.0)
    with pytest.raises(ValueError, match="degree must be a positive whole number"):
        Polynomial(degree=0)
    with pytest.raises(ValueError, match="center has 2 entries for 3 inputs"):
        Linear(center=CENTER)(points(3, 0, 3))
    with pytest.raises(ValueError, match="center must be one finite number per input"):
        Linear(center=[np.nan])


def test_kernels_that_differ_in_a_setting_differ() -> None:
    every = [
        Linear(),
        Linear(center=[1.0]),
        Linear(active_dims=[0]),
        Polynomial(),
        Polynomial(degree=3),
    ]
    assert len(set(every)) == len(every)
    assert repr(Linear(center=[1.0])) == "Linear(variance=1.0, offset=1.0, center=array([1.]))"
    text = "Polynomial(variance=1.0, offset=1.0, degree=3, active_dims=(1,))"
    assert repr(Polynomial(degree=3, active_dims=[1])) == text


def code_lines(kind: type) -> int:
    """Return how many lines of a class are code, its docstring left out."""
    text = inspect.getsource(kind)
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if token.type not in skipped and not token.string.startswith('"""') and token.string:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines)


def test_a_periodic_kernel_is_a_class_of_at_most_twenty_lines() -> None:
    assert code_lines(Periodic) <= 20


class Growth(PairwiseKernel):
    """`variance · exp(Σ_d (x_d + z_d)/ℓ_d)`: a kernel as a user writes it."""

    lengthscale: float | Array = parameter(LENGTHSCALE, default=1.0)
    variance: float = parameter(Parameter((1e-4, 1e4), variance_power=1.0), default=1.0)

    def values(self, x: Array, z: Array) -> Array:
        return self.variance * np.exp(np.sum((x + z) / self.lengthscale, axis=-1))

    def derivatives(self, x: Array, z: Array, k: Array) -> dict[str, Array]:
        by_z = k[..., None] / self.lengthscale
        return {"z": by_z, "lengthscale": -(x + z) * by_z, "variance": k}


def test_a_kernel_of_the_user_works_at_once() -> None:
    X = np.linspace(0.0, 5.0, 60)[:, None]
    y = 1.0 + np.exp(0.8 * X[:, 0])
    kernel = Growth(2.0) + SquaredExponential()
    model = ExactGPRegressor(kernel, optimizer=LBFGS(n_restarts=1), random_state=0)
    model.fit(X[:50], y[:50])
    np.testing.assert_allclose(model.predict(X), y, rtol=0.05)


VARIANTS: dict[str, dict[str, Any]] = {
    "stage1": {},
    "truncated": {"n_components": 3},
    "weights": {"n_components": 3, "shrinkage": np.array([1.5, 0.7, 0.4])},
    "residual": {"residual": True},
    "residual_weights": {
        "residual": True,
        "n_components": 3,
        "shrinkage": np.array([0.9, 0.7, 0.4]),
    },
    "power": {"residual": True, "power": 0.5},
    "vfe": {"residual": True, "power": 0.0},
}


def model_of(kernel: Kernel, variant: dict[str, Any]) -> EigenGP:
    settings = {"n_components": 5, "jitter": Jitter(1e-3, 1e-5), **variant}
    return EigenGP(kernel.with_ard(2), points(5, 4), 0.3, **settings)


@pytest.mark.parametrize("variant", VARIANTS)
@few_kernels
def test_gradient_of_the_log_marginal_likelihood(kernel: Kernel, variant: str) -> None:
    model = model_of(kernel, VARIANTS[variant])
    source, gamma = ArraySource.of(ROWS), 0.7
    found = model.value_and_gradient(source, gamma)[1]

    def value(**changes: Any) -> float:
        return replace(model, **changes).value(source, gamma)

    theta = gradient(lambda t: value(kernel=model.kernel.with_theta(t)), model.kernel.theta)
    assert_close(found.theta, theta, 1e-6)
    moved = gradient(lambda at: value(inducing_points=at), model.inducing_points, step=2e-3)
    assert_close(found.inducing_points, moved, 1e-6)
    noise = gradient(lambda at: value(noise_variance=float(np.exp(at))), np.log(0.3))
    assert_close(found.log_noise_variance, noise, 1e-6)


@every_kernel
def test_gradient_of_the_exact_log_marginal_likelihood(kernel: Kernel) -> None:
    source, model = ArraySource.of(ROWS), ExactGP(kernel, 0.3)
    theta = gradient(
        lambda t: ExactGP(kernel.with_theta(t), 0.3).forward(source).value, kernel.theta
    )
    assert_close(model.evaluate(source)[1].theta, theta, 1e-7)


@every_kernel
def test_all_rows_as_inducing_points_are_the_exact_gp(kernel: Kernel) -> None:
    source = ArraySource.of(ROWS)
    exact = ExactGP(kernel, 0.3).forward(source).value
    for variant in ({}, {"residual": True}, {"residual": True, "power": 0.0}):
        model = EigenGP(kernel, ROWS.X, 0.3, 14, jitter=Jitter(1e-9), **variant)
        assert model.value(source, 0.5) == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
@every_kernel
def test_predictive_variance_is_never_negative_and_has_its_gradient(
    kernel: Kernel, variant: dict[str, Any]
) -> None:
    model, X = model_of(kernel, variant), 2.0 * points(12, 7)
    _check_variance(model.posterior(model.forward(ArraySource.of(ROWS))), X)


@every_kernel
def test_variance_with_neighbours_is_never_negative_and_has_its_gradient(kernel: Kernel) -> None:
    X = 2.0 * points(12, 7)
    model = VecchiaPass.of(kernel.with_ard(2), points(5, 4), 0.3, 1e-3)
    outcome = model.forward(NeighborSource.of(ROWS, np.ones(2), 4))
    near = np.argsort(np.sum((X[:, None] - ROWS.X) ** 2, axis=2), axis=1)[:, :4]
    _check_variance(VecchiaPosterior.of(outcome, ROWS, lambda at: near[: len(at)], 4), X)


def _check_variance(posterior: Any, X: Array) -> None:
    assert np.all(posterior.mean_and_variance(X)[1] >= 0.3 * (1.0 - 1e-9))
    inputs = gradient(lambda at: float(np.sum(posterior.mean_and_variance(at)[1])), X, step=1e-3)
    assert_close(posterior.variance_gradient(X), inputs, 1e-5)


@every_kernel
def test_exact_variance_is_never_negative_and_has_its_gradient(kernel: Kernel) -> None:
    model, X = ExactGP(kernel, 0.3), 2.0 * points(12, 7)
    posterior = model.posterior(model.forward(ArraySource.of(ROWS)))
    assert np.all(posterior.mean_and_variance(X)[1] >= 0.3)
    inputs = gradient(lambda at: float(np.sum(posterior.mean_and_variance(at)[1])), X, step=1e-3)
    assert_close(posterior.variance_gradient(X), inputs, 1e-6)


@pytest.mark.parametrize(
    "kernel",
    [Linear() + SquaredExponential(), Periodic(period=3.0), Polynomial(active_dims=[0])],
    ids=["linear", "periodic", "polynomial"],
)
@pytest.mark.parametrize(
    "make",
    [
        lambda kernel: ExactGPRegressor(
            kernel, optimizer=LBFGS(n_restarts=2, max_iter=5), random_state=0
        ),
        lambda kernel: FITCRegressor(8, kernel=kernel, optimizer=UNLEARNED, random_state=0),
        lambda kernel: EigenGPRegressor(
            8, kernel=kernel, residual="neighbors", optimizer=UNLEARNED, random_state=0
        ),
        lambda kernel: EigenGPRegressor(
            8, kernel=kernel, residual=None, optimizer=UNLEARNED, random_state=0
        ),
    ],
    ids=["exact", "FITC", "neighbours", "EigenGP"],
)
def test_a_fit_does_not_depend_on_units_and_can_be_saved(
    make: Callable[[Kernel], Any], kernel: Kernel, tmp_path: Path
) -> None:
    X = points(60, 0)
    y = X[:, 0] + np.sin(2.0 * X[:, 1]) + 0.1 * points(60, 1, 1)[:, 0]
    model = make(kernel).fit(X, y)
    mean, std = model.predict(X[:9], return_std=True)
    scale, shift = np.array([10.0, 0.01]), np.array([2000.0, -3.0])
    other = make(kernel.rescaled(scale, 4.0, shift)).fit(X * scale + shift, 2.0 * y + 5.0)
    again, wide = other.predict(X[:9] * scale + shift, return_std=True)
    np.testing.assert_allclose(again, 2.0 * mean + 5.0, rtol=0.0, atol=0.02)
    np.testing.assert_allclose(wide, 2.0 * std, rtol=0.05)

    model.save(tmp_path / "model.eigengp")
    loaded = load(tmp_path / "model.eigengp")
    np.testing.assert_array_equal(loaded.predict(X[:9]), mean)
    assert loaded.kernel_ == model.kernel_
    assert np.all(np.isfinite(model.input_relevance()))
    assert model._repr_html_()


def test_a_fitted_linear_kernel_names_its_centre() -> None:
    X = points(50, 0) + np.array([100.0, -20.0])
    model = ExactGPRegressor(Linear(), optimizer=LBFGS(n_restarts=1, max_iter=20))
    model.fit(X, X @ [1.0, 2.0])
    np.testing.assert_allclose(model.kernel_.center, X.mean(axis=0))
    np.testing.assert_allclose(model.predict([[110.0, -10.0]]), [90.0], rtol=1e-2)


def test_other_array_libraries_give_the_same() -> None:
    torch = pytest.importorskip("torch")
    X, Z, K_bar = points(12, 0), points(7, 1), points(12, 2, 7)
    for kernel in EVERY.values():
        K, back = kernel.forward(X, Z)
        tensors = map(torch.asarray, (X, Z, K_bar))
        X_t, Z_t, bar_t = tensors
        K_t, back_t = kernel.forward(X_t, Z_t)
        np.testing.assert_allclose(K_t.numpy(), K, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(back_t(bar_t).theta.numpy(), back(K_bar).theta, rtol=1e-9)
        np.testing.assert_allclose(
            back_t(bar_t).points.numpy(), back(K_bar).points, rtol=1e-9, atol=1e-12
        )
        np.testing.assert_allclose(kernel.diag(X_t).numpy(), kernel.diag(X), rtol=1e-12)
        bar = K_bar[:, 0].copy()
        own, theirs = kernel.diag_adjoint(X, bar), kernel.diag_adjoint(X_t, torch.asarray(bar))
        np.testing.assert_allclose(theirs.points.numpy(), own.points, rtol=1e-12)
        np.testing.assert_allclose(theirs.theta.numpy(), own.theta, rtol=1e-10)


def test_trend_and_season_extrapolate_to_the_noise() -> None:
    noise, years = 0.4, np.arange(12 * 12) / 12.0
    season = 2.8 * np.sin(2 * np.pi * years) + 0.8 * np.cos(4 * np.pi * years)
    truth = 338.0 + 1.5 * years + 0.02 * years**2 + season
    X = 1980.0 + years[:, None]
    y = truth + noise * np.random.default_rng(0).normal(size=years.size)
    past = years < 10.0
    kernel = SquaredExponential(lengthscale=30.0, variance=1000.0)
    kernel += Periodic(lengthscale=1.5, period=1.0, variance=10.0) * SquaredExponential(50.0)
    kernel += RationalQuadratic(lengthscale=0.5, variance=0.1)
    model = ExactGPRegressor(kernel, optimizer=LBFGS(n_restarts=2), random_state=0)
    mean, std = model.fit(X[past], y[past]).predict(X[~past], return_std=True)
    assert np.sqrt(np.mean((y[~past] - mean) ** 2)) <= 1.2 * noise
    assert std.max() < 3.0 * noise


def test_a_sparse_spectrum_needs_all_inputs() -> None:
    with pytest.raises(ValueError, match="needs a kernel of all inputs"):
        SSGPRegressor(4, kernel=SquaredExponential(active_dims=[0])).fit(points(20, 0), np.ones(20))


@pytest.mark.parametrize("name", ["periodic_ard", "sum", "active_product", "polynomial"])
def test_models_can_be_exported(name: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("eigengp.export.onnx")
    X = points(30, 0)
    model = FITCRegressor(6, kernel=EVERY[name], optimizer=UNLEARNED, random_state=0)
    model.fit(X, X[:, 0])
    session = runtime.InferenceSession(onnx.to_onnx(model).SerializeToString())
    found = session.run(None, {session.get_inputs()[0].name: X[:5]})
    for ours, theirs in zip(model.predict(X[:5], return_std=True), found, strict=False):
        np.testing.assert_allclose(theirs.ravel(), ours, rtol=1e-9, atol=1e-9)
