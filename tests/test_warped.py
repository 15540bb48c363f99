"""Kernels of warped inputs: values, derivatives, units."""

from __future__ import annotations

import numpy as np
import pytest

from eigengp import EigenGPRegressor, Linear, Matern52, SquaredExponential, Warped, load
from eigengp.data.array_source import ArraySource
from eigengp.data.standardize import Extent
from eigengp.fitting.objectives import RowObjective, eigengp_parameters, kernel_parameters
from eigengp.gp.exact import ExactGP
from eigengp.gp.model import EigenGP, Jitter
from finite_differences import assert_close, gradient

rng = np.random.default_rng(3)
X, Z, y = rng.normal(size=(12, 2)), rng.normal(size=(5, 2)), rng.normal(size=12)
LOW, HIGH = X.min(axis=0) + 0.1, X.max(axis=0) - 0.1  # Some rows lie outside.
KERNELS = {
    "stationary": Warped(Matern52([0.9, 1.3], 1.4), LOW, HIGH, [0.7, 1.6], [1.3, 0.8]),
    "sum": Warped(SquaredExponential(1.1) + Linear(0.5), LOW, HIGH, 1.2, 0.9).with_ard(2),
    "turned": Warped(Matern52([0.9, 1.3], 1.4), HIGH, LOW, [0.7, 1.6], [1.3, 0.8]),
}
any_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())


def test_exponents_of_one_change_nothing() -> None:
    inner = SquaredExponential([0.8, 1.2], 1.5)
    np.testing.assert_allclose(Warped(inner, LOW, HIGH)(X, Z), inner(X, Z), rtol=1e-12)


def test_the_warp_is_monotone_and_keeps_the_ends() -> None:
    kernel = Warped(SquaredExponential(), [0.0], [2.0], 0.4, 2.5)
    x = np.linspace(-1.0, 3.0, 401)[:, None]
    w = kernel.warp(x)[:, 0]
    assert np.all(np.diff(w) > 0)
    np.testing.assert_allclose(w[x[:, 0] < 0], x[x < 0])
    np.testing.assert_allclose(kernel.warp(np.array([[1e-9], [2.0 - 1e-9]])), [[0], [2]], atol=1e-3)


def test_ends_in_the_other_order_warp_the_negative_input() -> None:
    low, high, exponents = np.array([0.0]), np.array([2.0]), (0.4, 2.5)
    kernel = Warped(SquaredExponential(), low, high, *exponents)
    turned = Warped(SquaredExponential(), -low, -high, *exponents)
    x = np.linspace(-1.0, 3.0, 41)[:, None]
    np.testing.assert_allclose(turned.warp(-x), -kernel.warp(x), atol=1e-14)


@any_kernel
def test_pull_back_agrees_with_finite_differences(kernel: Warped) -> None:
    bar = rng.normal(size=(12, 5))
    adjoint = kernel.at(Z).forward(X)[1](bar)

    def of_theta(theta: np.ndarray) -> float:
        return float(np.sum(bar * kernel.with_theta(theta).matrix(X, Z)))

    assert_close(adjoint.theta, gradient(of_theta, kernel.theta))
    by_points = gradient(lambda points: float(np.sum(bar * kernel.matrix(X, points))), Z, 1e-4)
    np.testing.assert_allclose(adjoint.points, by_points, atol=1e-7)
    diag_bar = rng.normal(size=12)
    by_theta = gradient(lambda t: float(diag_bar @ kernel.with_theta(t).diag(X)), kernel.theta)
    np.testing.assert_allclose(kernel.diag_adjoint(X, diag_bar).theta, by_theta, atol=1e-8)
    by_inputs = gradient(lambda points: float(diag_bar @ kernel.diag(points)), X, 1e-4)
    np.testing.assert_allclose(kernel.diag_adjoint(X, diag_bar).points, by_inputs, atol=1e-7)


@any_kernel
def test_log_marginal_likelihoods_have_the_right_gradient(kernel: Warped) -> None:
    source = ArraySource(X, y, None, 5)
    exact = ExactGP(kernel, 0.2)
    sparse = EigenGP(kernel, Z, 0.2, 5, jitter=Jitter(relative=1e-6))
    every = (
        kernel_parameters(exact),
        eigengp_parameters(sparse, Extent(X.min(axis=0), X.max(axis=0))),
    )
    for parameters in every:
        objective = RowObjective(parameters, source)
        at = parameters.start
        found = gradient(lambda vector, of=objective: of(vector).value, at, 1e-4)
        np.testing.assert_allclose(objective(at).gradient, found, atol=2e-7)


@any_kernel
def test_units_do_not_matter(kernel: Warped) -> None:
    scale, shift = np.array([3.0, 0.2]), np.array([5.0, -1.0])
    moved = kernel.rescaled(scale, 4.0, shift)
    if isinstance(kernel.kernel, Matern52):
        np.testing.assert_allclose(moved(X * scale + shift, Z * scale + shift), 4.0 * kernel(X, Z))
    assert moved.rescaled(1 / scale, 0.25, -shift / scale).theta == pytest.approx(kernel.theta)


def test_a_model_with_a_warp_is_saved_and_differentiated(tmp_path) -> None:
    x = np.linspace(0, 3, 80)[:, None]
    target = x[:, 0] * np.sin(x[:, 0] ** 3) + 0.1 * rng.normal(size=80)
    kernel = Warped(SquaredExponential(), [-0.1], [3.1])
    model = EigenGPRegressor(kernel=kernel, residual="exact", random_state=0).fit(x, target)
    assert isinstance(model.kernel_, Warped)
    model.save(tmp_path / "m.eigengp")
    again = load(tmp_path / "m.eigengp")
    new = np.linspace(0.2, 2.8, 7)[:, None]
    for mine, other in zip(*(m.predict(new, return_std=True) for m in (model, again)), strict=True):
        np.testing.assert_array_equal(mine, other)
    slope = model.predict_gradient(new)
    numerical = (model.predict(new + 1e-5) - model.predict(new - 1e-5)) / 2e-5
    np.testing.assert_allclose(slope[:, 0], numerical, atol=1e-4)


def test_what_a_warp_refuses() -> None:
    with pytest.raises(ValueError, match="must differ"):
        Warped(SquaredExponential(), [0.0], [0.0])
    with pytest.raises(ValueError, match="must be positive"):
        Warped(SquaredExponential(), [0.0], [1.0], a=-1.0)
    with pytest.raises(ValueError, match="1 inputs but X has 2"):
        Warped(SquaredExponential(), [0.0], [1.0]).with_ard(2)
    with pytest.raises(TypeError, match="residual='exact'"):
        KERNELS["sum"].stack(X[None])
