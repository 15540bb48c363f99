"""The sparse spectrum GP: a GP whose kernel is a mean of cosines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from eigengp import LBFGS, SSGPRegressor
from eigengp._typing import Array
from eigengp.data.array_source import ArraySource
from eigengp.fitting.objectives import spectrum_parameters
from eigengp.gp.sparse_spectrum import SparseSpectrum
from eigengp.kernels import (
    Kernel,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
    Stationary,
)
from finite_differences import assert_close, gradient

N, WAVES, NOISE = 30, 4, 0.15
rng = np.random.default_rng(4)
X = rng.uniform(-2.0, 2.0, size=(N, 2))
y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * rng.normal(size=N)
counts = rng.integers(1, 4, size=N)
X_new = rng.uniform(-3.0, 3.0, size=(8, 2))
S = rng.normal(size=(WAVES, 2))
ROWS = ArraySource(X, y, block_rows=11, n_threads=1)
WEIGHTED = replace(ROWS, sample_weight=counts.astype(float))
REPEATED = (np.repeat(X, counts, axis=0), np.repeat(y, counts))

KERNELS: dict[str, Stationary] = {
    "squared_exponential": SquaredExponential(np.array([0.9, 1.3]), 1.4),
    "matern12": Matern12(np.array([1.5, 2.0]), 1.4),
    "matern32": Matern32(np.array([1.2, 1.6]), 0.5),
    "matern52": Matern52(np.array([1.0, 1.5]), 1.4),
    "rational_quadratic": RationalQuadratic(np.array([0.9, 1.3]), 1.4, 0.8),
}
any_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
any_weight = pytest.mark.parametrize("weighted", [False, True], ids=["once", "weighted"])


def waves(X: Array, Z: Array, frequencies: Array, variance: float) -> Array:
    """Return `k̃(x, z)`, the mean of the cosines of `s_rᵀ(x − z)`, times the variance."""
    phases = np.einsum("nmd,rd->nmr", X[:, None, :] - Z[None, :, :], frequencies)
    return variance * np.cos(phases).mean(axis=2)


def k_tilde(model: SparseSpectrum, X: Array, Z: Array) -> Array:
    frequencies = model.spectral_points / model.kernel.lengthscale
    return waves(X, Z, frequencies, model.kernel.variance)


def packed(model: SparseSpectrum, source: ArraySource) -> Array:
    return spectrum_parameters(model).pack_gradient(model.evaluate(source)[1])


def value(model: SparseSpectrum, source: ArraySource) -> float:
    return model.forward(source).value


@any_kernel
@any_weight
def test_value_is_that_of_the_dense_formula(kernel: Stationary, weighted: bool) -> None:
    inputs, targets = REPEATED if weighted else (X, y)
    model = SparseSpectrum(kernel, S, NOISE)
    C = k_tilde(model, inputs, inputs) + NOISE * np.eye(targets.size)
    expected = -multivariate_normal(np.zeros(targets.size), C).logpdf(targets)
    outcome = model.forward(WEIGHTED if weighted else ROWS)
    assert outcome.value == pytest.approx(expected, rel=1e-10)
    assert outcome.n == targets.size


@any_kernel
@any_weight
def test_gradient_is_the_derivative(kernel: Stationary, weighted: bool) -> None:
    model, source = SparseSpectrum(kernel, S, NOISE), WEIGHTED if weighted else ROWS
    parameters = spectrum_parameters(model)
    at = parameters.start
    numeric = gradient(lambda vector: value(parameters.unpack(vector), source), at, step=4e-3)
    outcome, own = model.evaluate(source)
    assert outcome.value == value(model, source)
    assert own.theta.shape == kernel.theta.shape
    assert own.inducing_points.shape == S.shape
    assert_close(parameters.pack_gradient(own), numeric, 2e-8)


def test_sample_weights_are_repetitions() -> None:
    model, repeated = SparseSpectrum(KERNELS["matern32"], S, NOISE), ArraySource(*REPEATED)
    assert value(model, WEIGHTED) == pytest.approx(value(model, repeated), rel=1e-12)
    assert_close(packed(model, WEIGHTED), packed(model, repeated), 1e-11)


def test_blocks_and_threads_do_not_matter() -> None:
    model = SparseSpectrum(KERNELS["matern52"], S, NOISE)
    expected, derivative = value(model, WEIGHTED), packed(model, WEIGHTED)
    for block_rows, n_threads in [(1, 3), (7, 2), (10 * N, 2)]:
        other = replace(WEIGHTED, block_rows=block_rows, n_threads=n_threads)
        assert value(model, other) == pytest.approx(expected, rel=1e-12)
        assert_close(packed(model, other), derivative, 1e-10)


def test_the_trace_term_is_nothing_here() -> None:
    model = SparseSpectrum(KERNELS["matern52"], S, NOISE)
    assert model.forward(ROWS, gamma=0.7).value == value(model, ROWS)


def test_one_wave_more_than_needed_costs_no_digits() -> None:
    doubled = SparseSpectrum(KERNELS["matern52"], np.vstack([S, S]), NOISE)
    single = SparseSpectrum(KERNELS["matern52"], S, NOISE)
    assert value(doubled, ROWS) == pytest.approx(value(single, ROWS), rel=1e-12)


@any_kernel
@any_weight
def test_predictions_are_the_dense_gaussian_conditional(kernel: Stationary, weighted: bool) -> None:
    inputs, targets = REPEATED if weighted else (X, y)
    model = SparseSpectrum(kernel, S, NOISE)
    C = k_tilde(model, inputs, inputs) + NOISE * np.eye(targets.size)
    cross = k_tilde(model, X_new, inputs)
    solved = np.linalg.solve(C, np.column_stack([targets, cross.T]))
    covariance = k_tilde(model, X_new, X_new) - cross @ solved[:, 1:] + NOISE * np.eye(8)
    posterior = model.posterior(model.forward(WEIGHTED if weighted else ROWS))
    mean, variance = posterior.mean_and_variance(X_new)
    np.testing.assert_allclose(mean, cross @ solved[:, 0], rtol=0.0, atol=1e-10)
    np.testing.assert_allclose(variance, np.diag(covariance), rtol=0.0, atol=1e-10)
    np.testing.assert_allclose(posterior.joint_covariance(X_new), covariance, rtol=0.0, atol=1e-10)


def test_gradients_of_mean_and_variance_are_derivatives() -> None:
    model = SparseSpectrum(KERNELS["squared_exponential"], S, NOISE)
    posterior = model.posterior(model.forward(ROWS))
    means = [gradient(lambda at: posterior.mean(at[None])[0], row) for row in X_new]
    variances = [
        gradient(lambda at: posterior.mean_and_variance(at[None])[1][0], row, step=4e-3)
        for row in X_new
    ]
    assert_close(posterior.mean_gradient(X_new), np.array(means), 1e-8)
    assert_close(posterior.variance_gradient(X_new), np.array(variances), 1e-8)


QUICK: dict[str, Any] = {"optimizer": LBFGS(n_restarts=4, max_iter=30), "random_state": 0}


def dense_evidence(model: SSGPRegressor, X: Array, y: Array) -> float:
    covariance = waves(X, X, model.spectral_points_, model.kernel_.variance)
    covariance += model.noise_variance_ * np.eye(y.size)
    return float(multivariate_normal(np.full(y.size, model.target_mean_), covariance).logpdf(y))


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("max_iter", [0, 30])
def test_attributes_reproduce_the_evidence_in_the_units_of_the_data(
    max_iter: int, standardize: bool
) -> None:
    inputs, targets = X * [1e-1, 50.0] + [7.0, -1e3], 1e4 * y + 3e4
    optimizer = LBFGS(n_restarts=4, max_iter=max_iter)
    mean = "constant" if standardize else "zero"
    settings = QUICK | {"optimizer": optimizer, "mean": mean, "standardize": standardize}
    model = SSGPRegressor(8, **settings).fit(inputs, targets)
    assert model.spectral_points_.shape == (4, 2)
    assert model.log_marginal_likelihood_ == pytest.approx(
        dense_evidence(model, inputs, targets), rel=1e-8
    )
    assert model.target_mean_ == (pytest.approx(targets.mean()) if standardize else 0.0)


@pytest.mark.parametrize(("n_components", "points"), [(1, 1), (2, 1), (3, 2), (7, 4), ("auto", 4)])
def test_a_spectral_point_is_two_components(n_components: Any, points: int) -> None:
    model = SSGPRegressor(
        n_components, **(QUICK | {"optimizer": LBFGS(n_restarts=4, max_iter=0)})
    ).fit(X, y)
    assert model.spectral_points_.shape == (points, 2)
    assert model.log_marginal_likelihood_ == pytest.approx(dense_evidence(model, X, y), rel=1e-8)


def test_sample_weights_of_the_regressor_are_repetitions() -> None:
    weighted = SSGPRegressor(8, **QUICK).fit(X, y, sample_weight=counts)
    repeated = SSGPRegressor(8, **QUICK).fit(*REPEATED)
    np.testing.assert_array_equal(weighted.predict(X_new), repeated.predict(X_new))
    assert weighted.log_marginal_likelihood_ == pytest.approx(
        dense_evidence(weighted, *REPEATED), rel=1e-8
    )


def test_the_frequency_of_a_wave_is_found_in_the_units_of_the_data() -> None:
    where = np.linspace(0.0, 600.0, 150)[:, None]
    targets = 40.0 * np.sin(0.05 * where[:, 0])
    model = SSGPRegressor(6, optimizer=LBFGS(n_restarts=8, max_iter=200), random_state=0).fit(
        where, targets
    )
    assert np.abs(np.abs(model.spectral_points_) - 0.05).min() < 1e-4
    beyond = np.linspace(600.0, 900.0, 30)[:, None]
    np.testing.assert_allclose(model.predict(beyond), 40.0 * np.sin(0.05 * beyond[:, 0]), atol=2.0)


@any_kernel
def test_every_stationary_kernel_can_be_asked_for(kernel: Stationary) -> None:
    model = SSGPRegressor(
        16, kernel=kernel, **(QUICK | {"optimizer": LBFGS(n_restarts=4, max_iter=60)})
    ).fit(X, y)
    assert type(model.kernel_) is type(kernel)
    assert model.score(X, y) > 0.9
    assert model.log_marginal_likelihood_ == pytest.approx(dense_evidence(model, X, y), rel=1e-8)


def test_spectral_points_begin_as_a_draw_from_the_density_of_the_kernel() -> None:
    kernel, optimizer = Matern32([0.5, 3.0], 2.0), LBFGS(n_restarts=4, max_iter=0)
    settings = QUICK | {"optimizer": optimizer, "standardize": False}
    model = SSGPRegressor(1200, kernel=kernel, **settings).fit(X[:9], y[:9])
    own = waves(X[:5], X[:5], model.spectral_points_, 2.0)
    np.testing.assert_allclose(own, kernel(X[:5]), rtol=0.0, atol=3.0 * 2.0 / np.sqrt(600))


@pytest.mark.parametrize(
    "kernel",
    [SquaredExponential() + Matern32(), SquaredExponential() * RationalQuadratic()],
    ids=["sum", "product"],
)
def test_sums_and_products_of_kernels_are_refused(kernel: Kernel) -> None:
    with pytest.raises(TypeError, match="one stationary kernel"):
        SSGPRegressor(4, kernel=kernel, **QUICK).fit(X, y)


class Cubic(Stationary):
    """A kernel that has no method `mixture`."""

    def profile(self, t: Array) -> Array:
        return np.exp(-(t**1.5))

    def slope(self, t: Array, rho: Array) -> Array:
        return -1.5 * np.sqrt(t) * rho


def test_a_kernel_without_a_spectral_density_says_so() -> None:
    with pytest.raises(NotImplementedError, match="Cubic has no method `mixture`"):
        SSGPRegressor(4, kernel=Cubic(), **QUICK).fit(X, y)
