from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import dense
from eigengp._typing import Array
from eigengp.data.array_source import ArraySource
from eigengp.gp.model import EigenGP, Jitter
from eigengp.gp.posterior import Posterior
from eigengp.kernels import Matern32, RationalQuadratic, SquaredExponential
from finite_differences import assert_close, gradient

N, M, R = 30, 6, 4
rng = np.random.default_rng(1)
X = rng.uniform(-2.0, 2.0, size=(N, 2))
y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * rng.normal(size=N)
X_new = np.vstack([rng.uniform(-3.0, 3.0, size=(8, 2)), [[40.0, -40.0]]])
ROWS = ArraySource(X, y, block_rows=13, n_threads=1)

KERNEL = SquaredExponential([0.9, 1.3], 1.4) + Matern32(1.7, 0.5)
STAGE_1 = EigenGP(KERNEL, X[:M], 0.2, M, jitter=Jitter(1e-6))
MODELS = {
    "stage_1": STAGE_1,
    "truncated": replace(STAGE_1, n_components=R),
    "learned": replace(STAGE_1, n_components=R, shrinkage=np.array([2.0, 0.4, 0.9, 3.0])),
    "residual": replace(STAGE_1, residual=True),
    "residual_truncated": replace(STAGE_1, n_components=R, residual=True),
    "residual_learned": replace(
        STAGE_1, n_components=R, shrinkage=np.array([0.9, 0.4, 0.8, 0.5]), residual=True
    ),
    "residual_clipped": replace(
        STAGE_1, n_components=R, shrinkage=np.array([4.0, 3.0, 2.0, 5.0]), residual=True
    ),
}
any_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())


def posterior_of(model: EigenGP) -> Posterior:
    return model.posterior(model.forward(ROWS))


@any_model
def test_predictions_are_the_dense_gaussian_conditional(model: EigenGP) -> None:
    posterior = posterior_of(model)
    mean, covariance = dense.conditional(model, X, y, X_new)
    own_mean, own_variance = posterior.mean_and_variance(X_new)
    np.testing.assert_allclose(own_mean, mean, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(own_variance, np.diag(covariance), rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(posterior.joint_covariance(X_new), covariance, rtol=0.0, atol=1e-9)


@any_model
def test_mean_alone_is_the_mean_with_a_variance(model: EigenGP) -> None:
    posterior = posterior_of(model)
    np.testing.assert_array_equal(posterior.mean(X_new), posterior.mean_and_variance(X_new)[0])


@any_model
def test_variance_is_the_diagonal_of_the_covariance(model: EigenGP) -> None:
    posterior = posterior_of(model)
    variance = posterior.mean_and_variance(X_new)[1]
    np.testing.assert_allclose(np.diag(posterior.joint_covariance(X_new)), variance, rtol=1e-13)


@any_model
def test_predictions_of_a_row_do_not_depend_on_its_neighbours(model: EigenGP) -> None:
    posterior = posterior_of(model)
    mean, variance = posterior.mean_and_variance(X_new)
    for i in range(X_new.shape[0]):
        alone = posterior.mean_and_variance(X_new[i : i + 1])
        np.testing.assert_allclose(alone[0], mean[i : i + 1], rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(alone[1], variance[i : i + 1], rtol=1e-11)


@any_model
def test_far_from_all_rows_the_prior_returns(model: EigenGP) -> None:
    mean, variance = posterior_of(model).mean_and_variance(np.array([[1e4, 1e4]]))
    prior = model.kernel.constant_diagonal if model.residual else 0.0
    np.testing.assert_allclose(mean, [0.0], atol=1e-12)
    np.testing.assert_allclose(variance, [0.2 + prior], rtol=1e-12)


@any_model
@given(where=arrays(np.float64, (4, 2), elements=st.floats(-1e3, 1e3)))
def test_variance_never_falls_below_the_noise(model: EigenGP, where: Array) -> None:
    posterior = posterior_of(model)
    variance = posterior.mean_and_variance(where)[1]
    assert np.all(variance >= model.noise_variance)
    joint = posterior.joint_covariance(where)
    lowest = np.linalg.eigvalsh(joint)[0]
    assert lowest >= model.noise_variance * (1.0 - 1e-10) - 1e-13 * variance.max()


@given(
    log_noise=st.floats(-14.0, 2.0),
    log_length=st.floats(-3.0, 4.0),
    shrinkage=arrays(np.float64, R, elements=st.floats(1e-8, 1e4)),
    residual=st.booleans(),
)
def test_variance_never_falls_below_the_noise_whatever_the_parameters(
    log_noise: float, log_length: float, shrinkage: Array, residual: bool
) -> None:
    kernel, noise = SquaredExponential(float(np.exp(log_length))), float(np.exp(log_noise))
    model = EigenGP(kernel, X[:M], noise, R, shrinkage, residual, Jitter(1e-6))
    mean, variance = posterior_of(model).mean_and_variance(X_new)
    assert np.all(np.isfinite(mean))
    assert np.all(variance >= noise)


@any_model
def test_mean_gradient_is_the_derivative(model: EigenGP) -> None:
    posterior, near = posterior_of(model), X_new[:8]
    numeric = [gradient(lambda at: posterior.mean(at[None, :])[0], row, step=4e-3) for row in near]
    assert posterior.mean_gradient(near).shape == near.shape
    assert_close(posterior.mean_gradient(near), np.array(numeric), 1e-9)


@any_model
def test_variance_gradient_is_the_derivative(model: EigenGP) -> None:
    posterior, near = posterior_of(model), X_new[:8]

    def variance(at: Array) -> float:
        return float(posterior.mean_and_variance(at[None, :])[1][0])

    numeric = [gradient(variance, row, step=2e-3) for row in near]
    assert_close(posterior.variance_gradient(near), np.array(numeric), 1e-8)


def test_gradients_are_right_at_the_inducing_inputs_themselves() -> None:
    model = replace(STAGE_1, kernel=RationalQuadratic([0.9, 1.3], 1.4, 0.8))
    posterior = posterior_of(model)
    numeric = [
        gradient(lambda at: posterior.mean(at[None, :])[0], row) for row in model.inducing_points
    ]
    assert_close(posterior.mean_gradient(model.inducing_points), np.array(numeric), 1e-9)


def test_some_residual_is_clipped_in_the_model_made_for_that() -> None:
    model = MODELS["residual_clipped"]
    assert np.any(dense.residual_variance(model, X) == 0.0)
    assert np.any(dense.residual_variance(model, X) > 0.0)


class Identity:
    """A random state that draws the columns of the identity."""

    def standard_normal(self, shape: tuple[int, int]) -> Array:
        return np.eye(*shape)


@any_model
def test_draws_spread_by_the_root_of_the_covariance(model: EigenGP) -> None:
    posterior = replace(posterior_of(model), prior_factor=None)  # The residual has no such root.
    columns = posterior.covariance_root.shape[1]
    drawn = posterior.functions(columns, Identity())(X_new)
    spread = drawn - posterior.mean(X_new)[:, None]
    latent = posterior.joint_covariance(X_new) - model.noise_variance * np.eye(X_new.shape[0])
    np.testing.assert_allclose(spread @ spread.T, latent, rtol=0.0, atol=1e-8)


@any_model
def test_draws_have_the_mean_and_covariance_of_the_posterior(model: EigenGP) -> None:
    posterior, n_samples = posterior_of(model), 20_000
    near = X_new[:8]
    functions = posterior.functions(n_samples, np.random.RandomState(0))(near)
    assert functions.shape == (8, n_samples)
    latent = posterior.joint_covariance(near) - model.noise_variance * np.eye(8)
    sd = np.sqrt(np.diag(latent))
    off = (functions.mean(axis=1) - posterior.mean(near)) / (sd / np.sqrt(n_samples))
    assert np.abs(off).max() < 5.0
    tolerance = 6.0 * np.outer(sd, sd) / np.sqrt(n_samples)
    assert np.all(np.abs(np.cov(functions) - latent) < tolerance)


def test_the_same_seed_draws_the_same_functions() -> None:
    posterior = posterior_of(STAGE_1)
    first, second, third = (
        posterior.functions(3, np.random.RandomState(seed))(X_new) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, second)
    assert not np.allclose(first, third)


@any_model
def test_a_posterior_survives_pickling(model: EigenGP) -> None:
    posterior = posterior_of(model)
    twin = pickle.loads(pickle.dumps(posterior))
    for own, other in zip(
        posterior.mean_and_variance(X_new), twin.mean_and_variance(X_new), strict=True
    ):
        np.testing.assert_array_equal(own, other)
