"""FITC, power EP and VFE: one model, in which `power` says how rows carry what is left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import multivariate_normal

import dense
from eigengp import LBFGS, FITCRegressor, PowerEPRegressor, VFERegressor
from eigengp._typing import Array
from eigengp.data.array_source import ArraySource
from eigengp.data.standardize import Extent
from eigengp.fitting.objectives import eigengp_parameters
from eigengp.gp.approximations import DigitsLostError
from eigengp.gp.blocks import RowBlock, group_rows
from eigengp.gp.model import EigenGP, Jitter
from eigengp.kernels import Kernel, Matern32, Matern52, RationalQuadratic, SquaredExponential
from finite_differences import assert_close, gradient

N, M, R, NOISE = 30, 5, 3, 0.15
rng = np.random.default_rng(4)
X = rng.uniform(-2.0, 2.0, size=(N, 2))
y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * rng.normal(size=N)
counts = rng.integers(1, 4, size=N)
B = np.array([[-1.3, -1.1], [-0.9, 1.2], [0.1, -0.2], [1.2, 1.4], [1.5, -0.8]])
X_new = np.vstack([rng.uniform(-3.0, 3.0, size=(8, 2)), [[40.0, -40.0]]])
BOX = Extent(X.min(axis=0), X.max(axis=0))
ROWS = ArraySource(X, y, block_rows=11, n_threads=1)
WEIGHTED = replace(ROWS, sample_weight=counts.astype(float))
REPEATED = (np.repeat(X, counts, axis=0), np.repeat(y, counts))

KERNELS: dict[str, Kernel] = {
    "squared_exponential": SquaredExponential([0.9, 1.3], 1.4),
    "matern52": Matern52([1.0, 1.5], 1.4),
    "rational_quadratic": RationalQuadratic([0.9, 1.3], 1.4, 0.8),
    "sum": SquaredExponential([0.9, 1.3], 1.1) + Matern32(2.0, 0.5),
}
POWERS = (0.0, 1e-6, 0.3, 1.0)
any_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
any_power = pytest.mark.parametrize("power", POWERS)
any_size = pytest.mark.parametrize("n_components", [M, R], ids=["all", "truncated"])
any_weight = pytest.mark.parametrize("weighted", [False, True], ids=["once", "weighted"])


def model_of(kernel: Kernel, power: float, n_components: int = M) -> EigenGP:
    return EigenGP(
        kernel,
        B,
        NOISE,
        n_components,
        residual=True,
        jitter=Jitter(1e-6, 1e-7),
        power=power,
    )


def residual_variance(model: EigenGP, X: Array) -> Array:
    return np.diag(model.kernel(X) - dense.low_rank(model, X, X))


def row_covariance(model: EigenGP, X: Array) -> Array:
    """Return `Q + α δ(x − x′)(K − Q) + σ²I`: equal inputs share their residual."""
    equal = (X[:, None] == X).all(axis=2)
    shared = model.power * equal * residual_variance(model, X)
    return dense.low_rank(model, X, X) + shared + model.noise_variance * np.eye(X.shape[0])


def log_evidence(model: EigenGP, X: Array, y: Array) -> float:
    """Return the approximate evidence of power EP (Bui et al., 2017), or the bound of VFE."""
    s2, alpha, rest = model.noise_variance, model.power, residual_variance(model, X)
    _, first, count = np.unique(X, axis=0, return_index=True, return_counts=True)
    rest = rest[first] * count
    if alpha == 0.0:
        penalty = 0.5 * np.sum(rest) / s2
    else:
        penalty = 0.5 * (1.0 - alpha) / alpha * np.sum(np.log1p(alpha * rest / s2))
    normal = multivariate_normal(np.zeros(y.size), row_covariance(model, X))
    return float(normal.logpdf(y) - penalty)


def exact_log_evidence(kernel: Kernel, noise_variance: float) -> float:
    C = kernel(X) + noise_variance * np.eye(N)
    return float(multivariate_normal(np.zeros(N), C).logpdf(y))


def predictions(model: EigenGP, rows: ArraySource = ROWS) -> tuple[Array, Array]:
    return model.posterior(model.forward(rows)).mean_and_variance(X_new)


def test_low_rank_with_all_components_is_the_formula_of_the_papers() -> None:
    model = model_of(KERNELS["sum"], 1.0)
    K_XB = model.kernel(X, B)
    Q = K_XB @ np.linalg.solve(dense.gram(model), K_XB.T)
    np.testing.assert_allclose(dense.low_rank(model, X, X), Q, rtol=0.0, atol=1e-12)


@any_kernel
@any_power
@any_size
@any_weight
def test_value_is_that_of_the_dense_formula(
    kernel: Kernel, power: float, n_components: int, weighted: bool
) -> None:
    model = model_of(kernel, power, n_components)
    expected = log_evidence(model, *REPEATED) if weighted else log_evidence(model, X, y)
    assert -model.value(WEIGHTED if weighted else ROWS) == pytest.approx(expected, rel=1e-9)


def assert_gradient_is_the_derivative(model: EigenGP, rows: ArraySource) -> None:
    parameters = eigengp_parameters(model, BOX, weights=model.shrinkage is not None)
    at = parameters.start
    value, own = model.value_and_gradient(rows)
    assert value == pytest.approx(model.value(rows), rel=1e-13)
    numeric = gradient(lambda vector: parameters.unpack(vector).value(rows), at, step=4e-3)
    assert_close(parameters.pack_gradient(own), numeric, 2e-8)


@any_kernel
@any_power
@any_weight
def test_gradient_is_the_derivative(kernel: Kernel, power: float, weighted: bool) -> None:
    assert_gradient_is_the_derivative(model_of(kernel, power), WEIGHTED if weighted else ROWS)


@any_power
@any_weight
def test_gradient_of_a_truncated_model_is_the_derivative(power: float, weighted: bool) -> None:
    model = model_of(KERNELS["matern52"], power, R)
    assert_gradient_is_the_derivative(model, WEIGHTED if weighted else ROWS)


@pytest.mark.parametrize("power", [1e-6, 0.3, 1.0])
def test_gradient_by_weights_of_their_own_is_the_derivative(power: float) -> None:
    shrunk = np.array([0.9, 0.4, 0.7])
    model = replace(model_of(KERNELS["matern52"], power, R), shrinkage=shrunk)
    assert_gradient_is_the_derivative(model, WEIGHTED)


@any_power
def test_a_weight_of_two_is_the_row_twice(power: float) -> None:
    model = model_of(KERNELS["sum"], power)
    parameters = eigengp_parameters(model, BOX)
    value, own = model.value_and_gradient(WEIGHTED)
    grouped = group_rows(RowBlock(*REPEATED)).rows
    repeated_value, repeated = model.value_and_gradient(ArraySource.of(grouped))
    assert value == pytest.approx(repeated_value, rel=1e-12)
    assert_close(parameters.pack_gradient(own), parameters.pack_gradient(repeated), 1e-11)


@any_kernel
def test_power_one_is_the_residual_as_it_was(kernel: Kernel) -> None:
    fitc = EigenGP(kernel, B, NOISE, M, residual=True, jitter=Jitter(1e-6, 1e-7))
    assert fitc.value(ROWS) == model_of(kernel, 1.0).value(ROWS)
    expected = dense.negative_log_evidence(fitc, X, y)
    assert model_of(kernel, 1.0).value(ROWS) == pytest.approx(expected, rel=1e-9)


@any_kernel
def test_power_zero_is_the_evidence_with_the_whole_trace_term(kernel: Kernel) -> None:
    vfe, stage_1 = model_of(kernel, 0.0), replace(model_of(kernel, 1.0), residual=False)
    assert vfe.value(ROWS) == stage_1.value(ROWS, gamma=1.0)
    assert vfe.value(ROWS, gamma=0.2) == vfe.value(ROWS)


@any_kernel
def test_a_small_power_is_nearly_vfe_and_a_smaller_one_nearer(kernel: Kernel) -> None:
    vfe = model_of(kernel, 0.0)
    parameters = eigengp_parameters(vfe, BOX)
    value, own = vfe.value_and_gradient(ROWS)
    off = []
    for power in (1e-4, 1e-6):
        near_value, near = model_of(kernel, power).value_and_gradient(ROWS)
        off.append(abs(near_value - value))
    assert off[1] < 1e-5 * abs(value)
    assert off[1] == pytest.approx(1e-2 * off[0], rel=0.01)
    assert_close(parameters.pack_gradient(near), parameters.pack_gradient(own), 1e-5)
    for own_values, values in zip(
        predictions(model_of(kernel, 1e-6)), predictions(vfe), strict=True
    ):
        np.testing.assert_allclose(own_values, values, rtol=0.0, atol=1e-5)


@any_kernel
@any_power
@any_size
@any_weight
def test_predictions_are_those_of_the_dense_formula(
    kernel: Kernel, power: float, n_components: int, weighted: bool
) -> None:
    model = model_of(kernel, power, n_components)
    inputs, targets = REPEATED if weighted else (X, y)
    cross, C = dense.low_rank(model, X_new, inputs), row_covariance(model, inputs)
    solved = np.linalg.solve(C, np.column_stack([targets, cross.T]))
    latent = kernel(X_new) - cross @ solved[:, 1:]
    mean, variance = predictions(model, WEIGHTED if weighted else ROWS)
    np.testing.assert_allclose(mean, cross @ solved[:, 0], rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(variance, np.diag(latent) + NOISE, rtol=0.0, atol=1e-9)


@any_kernel
@any_power
def test_with_every_row_as_a_basis_point_it_is_the_exact_gp(kernel: Kernel, power: float) -> None:
    model = EigenGP(kernel, X, NOISE, N, residual=True, jitter=Jitter(1e-10), power=power)
    C = kernel(X) + NOISE * np.eye(N)
    assert -model.value(ROWS) == pytest.approx(exact_log_evidence(kernel, NOISE), rel=1e-7)
    cross = kernel(X_new, X)
    solved = np.linalg.solve(C, np.column_stack([y, cross.T]))
    mean, variance = predictions(model)
    np.testing.assert_allclose(mean, cross @ solved[:, 0], rtol=0.0, atol=1e-6)
    expected = kernel.constant_diagonal - np.sum(cross * solved[:, 1:].T, axis=1) + NOISE
    np.testing.assert_allclose(variance, expected, rtol=0.0, atol=1e-6)


@given(
    points=arrays(np.float64, (4, 2), elements=st.floats(-3.0, 3.0)),
    log_length=st.floats(-1.5, 2.0),
    log_variance=st.floats(-2.0, 3.0),
    log_noise=st.floats(-6.0, 2.0),
    matern=st.booleans(),
)
def test_the_bound_of_vfe_is_below_the_evidence_and_grows_with_the_basis(
    points: Array, log_length: float, log_variance: float, log_noise: float, matern: bool
) -> None:
    length, variance, noise = np.exp([log_length, log_variance, log_noise]).tolist()
    kernel = Matern32(length, variance) if matern else SquaredExponential(length, variance)
    bounds = [
        -EigenGP(
            kernel, points[:count], noise, count, residual=True, jitter=Jitter(1e-6), power=0.0
        ).value(ROWS)
        for count in (1, 2, 3, 4)
    ]
    bounds.append(exact_log_evidence(kernel, noise))
    slack = 1e-8 * max(abs(bound) for bound in bounds)
    assert np.all(np.diff(bounds) >= -slack)


@any_power
def test_variance_is_the_prior_far_away_and_never_below_the_noise(power: float) -> None:
    for kernel in KERNELS.values():
        model = model_of(kernel, power, R)
        variance = predictions(model)[1]
        assert np.all(variance >= NOISE)
        if not isinstance(kernel, RationalQuadratic):
            assert variance[-1] == pytest.approx(kernel.constant_diagonal + NOISE, rel=1e-9)


@any_power
def test_blocks_and_threads_do_not_change_value_and_gradient(power: float) -> None:
    model = model_of(KERNELS["sum"], power)
    parameters = eigengp_parameters(model, BOX)
    value, own = model.value_and_gradient(WEIGHTED)
    for block_rows, n_threads in [(1, 3), (7, 2), (10 * N, 2)]:
        rows = replace(WEIGHTED, block_rows=block_rows, n_threads=n_threads)
        other_value, other = model.value_and_gradient(rows)
        assert other_value == pytest.approx(value, rel=1e-12)
        assert_close(parameters.pack_gradient(other), parameters.pack_gradient(own), 1e-10)


def test_vfe_keeps_its_digits_where_basis_points_crowd_and_noise_is_little() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(300, 1))
    rows = ArraySource(X, np.sin(X[:, 0]) + 0.001 * rng.normal(size=300))
    B = np.linspace(-2.0, 2.0, 25)[:, None]
    kernel = SquaredExponential(np.array([1.0]))
    vfe = EigenGP(kernel, B, 1e-6, 25, residual=True, jitter=Jitter(1e-6), power=0.0)
    with pytest.raises(DigitsLostError):
        vfe.flow.forward(rows)
    assert -vfe.value(rows) == pytest.approx(log_evidence(vfe, X, rows.y), rel=1e-6)

    def along(theta: Array) -> float:
        return replace(vfe, kernel=kernel.with_theta(theta)).value(rows)

    assert_close(vfe.value_and_gradient(rows)[1].theta, gradient(along, kernel.theta), 1e-5)


REGRESSORS: dict[str, tuple[Any, float]] = {
    "FITC": (FITCRegressor(6), 1.0),
    "VFE": (VFERegressor(6), 0.0),
    "power EP, one": (PowerEPRegressor(6, alpha=1.0), 1.0),
    "power EP, between": (PowerEPRegressor(6, alpha=0.3), 0.3),
    "power EP, zero": (PowerEPRegressor(6, alpha=0), 0.0),
}


@pytest.mark.parametrize(("regressor", "power"), REGRESSORS.values(), ids=REGRESSORS.keys())
def test_attributes_reproduce_evidence_and_predictions_in_the_units_of_the_data(
    regressor: Any, power: float
) -> None:
    inputs, targets = X * [1e-1, 50.0] + [7.0, -1e3], 1e4 * y + 3e4
    fit = regressor.set_params(optimizer=LBFGS(n_restarts=1, max_iter=20), random_state=0).fit(
        inputs, targets
    )
    points, noise, jitter = fit.inducing_points_, fit.noise_variance_, Jitter(0.0, fit.jitter_)
    model = EigenGP(fit.kernel_, points, noise, 6, residual=True, jitter=jitter, power=power)
    centred = targets - fit.target_mean_
    assert fit.log_marginal_likelihood_ == pytest.approx(log_evidence(model, inputs, centred))
    C, Q = row_covariance(model, inputs), dense.low_rank(model, inputs, inputs)
    mean, std = fit.predict(inputs, return_std=True)
    np.testing.assert_allclose(
        mean - fit.target_mean_, Q @ np.linalg.solve(C, centred), rtol=0.0, atol=1.0
    )
    latent = fit.kernel_(inputs) - Q @ np.linalg.solve(C, Q)
    np.testing.assert_allclose(std, np.sqrt(np.diag(latent) + noise), rtol=1e-3)
    joint, scale = fit.predict(inputs, return_cov=True)[1], fit.kernel_.constant_diagonal
    np.testing.assert_allclose(joint, latent + noise * np.eye(N), rtol=0.0, atol=1e-4 * scale)
