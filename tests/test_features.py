"""Features and their pull-backs, and the spectral densities that waves are drawn from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from eigengp._typing import Array
from eigengp.gp.sparse_spectrum import SpectralFeatures
from eigengp.kernels import (
    Kernel,
    KernelColumns,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
    Stationary,
)
from finite_differences import assert_close, gradient

N, M, INPUTS = 9, 5, 2
rng = np.random.default_rng(7)
X = rng.normal(size=(N, INPUTS))
POINTS = 1.5 * rng.normal(size=(M, INPUTS))
ARD = np.array([0.7, 1.3])

FEATURES: dict[str, KernelColumns] = {
    "kernel": SquaredExponential(ARD, 1.7).at(POINTS),
    "kernel_one_lengthscale": Matern52(0.9, 0.6).at(POINTS),
    "kernel_rational_quadratic": RationalQuadratic(ARD, 1.7, 0.8).at(POINTS),
    "kernel_sum": (SquaredExponential(ARD, 1.7) + Matern32(1.1, 0.4)).at(POINTS),
    "kernel_product": (Matern32(ARD, 1.7) * RationalQuadratic(2.0, 0.5)).at(POINTS),
    "spectral": SpectralFeatures(SquaredExponential(ARD, 1.7), POINTS),
    "spectral_rational_quadratic": SpectralFeatures(RationalQuadratic(ARD, 0.6, 0.8), POINTS),
    "one_wave": SpectralFeatures(Matern32(ARD, 0.6), POINTS[:1]),
}
any_features = pytest.mark.parametrize("features", FEATURES.values(), ids=FEATURES.keys())
SPECTRAL = {name: each for name, each in FEATURES.items() if isinstance(each, SpectralFeatures)}
any_spectral = pytest.mark.parametrize("features", SPECTRAL.values(), ids=SPECTRAL.keys())

STATIONARY: dict[str, Stationary] = {
    "squared_exponential": SquaredExponential(ARD, 1.7),
    "matern12": Matern12(ARD, 0.6),
    "matern32": Matern32(ARD, 0.6),
    "matern52": Matern52(ARD, 2.0),
    "rational_quadratic": RationalQuadratic(ARD, 1.2, 0.6),
    "rational_quadratic_large_alpha": RationalQuadratic(ARD, 1.2, 7.0),
}
any_stationary = pytest.mark.parametrize("kernel", STATIONARY.values(), ids=STATIONARY.keys())


def with_theta(features: KernelColumns, theta: Array) -> KernelColumns:
    kernel: Any = features.kernel.with_theta(theta)
    return replace(features, kernel=kernel)


def cotangent(features: KernelColumns) -> Array:
    return np.random.default_rng(1).normal(size=features.matrix(X).shape)


@any_features
def test_forward_gives_the_matrix(features: KernelColumns) -> None:
    np.testing.assert_array_equal(features.forward(X)[0], features.matrix(X))


@any_features
def test_pull_back_to_the_kernel_is_the_derivative(features: KernelColumns) -> None:
    bar = cotangent(features)
    numeric = gradient(
        lambda theta: np.vdot(bar, with_theta(features, theta).matrix(X)), features.kernel.theta
    )
    own = features.forward(X)[1](bar).theta
    assert own.shape == features.kernel.theta.shape
    assert_close(own, numeric)


@any_features
def test_pull_back_to_the_points_is_the_derivative(features: KernelColumns) -> None:
    bar = cotangent(features)
    numeric = gradient(
        lambda points: np.vdot(bar, replace(features, points=points).matrix(X)),
        features.points,
        step=4e-3,
    )
    assert_close(features.forward(X)[1](bar).points, numeric)


@any_features
def test_input_gradient_is_the_derivative(features: KernelColumns) -> None:
    bar = cotangent(features)
    numeric = gradient(lambda at: np.vdot(bar, features.matrix(at)), X, step=4e-3)
    own = features.input_gradient(X, bar)
    assert own.shape == X.shape
    assert_close(own, numeric)


@any_features
def test_input_gradient_takes_one_cotangent_for_all_rows(features: KernelColumns) -> None:
    one = cotangent(features)[0]
    shared = np.broadcast_to(one, (N, one.size))
    numeric = gradient(lambda at: float(np.sum(features.matrix(at) @ one)), X, step=4e-3)
    assert_close(features.input_gradient(X, shared), numeric)


@any_features
def test_prior_variance_is_that_of_the_kernel_and_so_is_its_gradient(
    features: KernelColumns,
) -> None:
    diagonal = np.diag(features.kernel(X))
    np.testing.assert_allclose(diagonal, features.prior_variance(X), rtol=1e-14)
    assert features.prior_scale == features.kernel.constant_diagonal == features.prior_variance(X)
    numeric = gradient(lambda theta: with_theta(features, theta).prior_scale, features.kernel.theta)
    assert_close(features.kernel.diag_adjoint(X, np.full(N, 1.0 / N)).theta, numeric)


@any_features
def test_a_row_has_the_features_that_it_has_alone(features: KernelColumns) -> None:
    together = features.matrix(X)
    for row in range(N):
        alone = features.matrix(X[row : row + 1])[0]
        np.testing.assert_allclose(alone, together[row], rtol=1e-12, atol=1e-14)


def test_kernel_features_are_the_kernel_between_rows_and_points() -> None:
    kernel = SquaredExponential(ARD, 1.7)
    expected = [[1.7 * np.exp(-0.5 * np.sum(((x - z) / ARD) ** 2)) for z in POINTS] for x in X]
    np.testing.assert_allclose(kernel.at(POINTS).matrix(X), expected, rtol=1e-12)


def test_spectral_features_are_cosines_and_then_sines() -> None:
    features = SpectralFeatures(SquaredExponential(ARD, 1.7), POINTS)
    phases = np.array([[s @ (x / ARD) for s in POINTS] for x in X])
    expected = np.sqrt(1.7 / M) * np.hstack([np.cos(phases), np.sin(phases)])
    np.testing.assert_allclose(features.matrix(X), expected, rtol=1e-13, atol=1e-15)


@any_spectral
@given(where=arrays(np.float64, (3, INPUTS), elements=st.floats(-1e3, 1e3)))
def test_spectral_features_have_the_length_of_the_prior_everywhere(
    features: SpectralFeatures, where: Array
) -> None:
    squared = np.sum(features.matrix(where) ** 2, axis=1)
    np.testing.assert_allclose(squared, features.kernel.variance, rtol=1e-12)


@any_spectral
def test_products_of_spectral_features_depend_on_differences_alone(
    features: SpectralFeatures,
) -> None:
    Phi, moved = features.matrix(X), features.matrix(X + np.array([3.0, -8.0]))
    np.testing.assert_allclose(moved @ moved.T, Phi @ Phi.T, rtol=0.0, atol=1e-12)
    phase = ((X[0] - X[1]) / ARD) @ features.points.T
    waves = features.kernel.variance * np.mean(np.cos(phase))
    assert Phi[0] @ Phi[1] == pytest.approx(waves, rel=1e-12)


DRAWS = 200_000
STANDARD_ERRORS = 4.0


@any_stationary
@pytest.mark.parametrize("n_features", [1, 3])
def test_drawn_frequencies_have_the_kernel_as_their_mean_cosine(
    kernel: Stationary, n_features: int
) -> None:
    omega = kernel.draw_frequencies(DRAWS, n_features, np.random.RandomState(0))
    assert omega.shape == (DRAWS, n_features)
    direction = np.array([0.6, -0.3, 0.9])[:n_features]
    for step in (0.2, 1.0, 3.0):
        r = step * direction
        cosines, sines = np.cos(omega @ r), np.sin(omega @ r)
        error = cosines.std() / np.sqrt(DRAWS)
        expected = float(kernel.profile(np.array(r @ r)))
        assert abs(cosines.mean() - expected) < STANDARD_ERRORS * error
        assert abs(sines.mean()) < STANDARD_ERRORS * sines.std() / np.sqrt(DRAWS)


@any_stationary
def test_a_kernel_is_the_mixture_of_squared_exponentials_that_it_says(kernel: Stationary) -> None:
    tau = kernel.mixture(DRAWS, np.random.RandomState(1))
    assert np.all(tau > 0.0)
    for t in (0.1, 1.0, 9.0):
        mixed = np.exp(-0.5 * tau * t)
        error = mixed.std() / np.sqrt(DRAWS)
        expected = float(kernel.profile(np.array(t)))
        assert abs(mixed.mean() - expected) < STANDARD_ERRORS * error + 1e-12


@any_stationary
def test_many_waves_approach_the_kernel(kernel: Stationary) -> None:
    spectral_points = kernel.draw_frequencies(DRAWS, INPUTS, np.random.RandomState(2))
    Phi = SpectralFeatures(kernel, spectral_points).matrix(X[:4])
    tolerance = STANDARD_ERRORS * kernel.variance / np.sqrt(DRAWS)
    np.testing.assert_allclose(Phi @ Phi.T, kernel(X[:4]), rtol=0.0, atol=tolerance)


@any_stationary
def test_the_same_seed_draws_the_same_frequencies(kernel: Stationary) -> None:
    first, second, third = (
        kernel.draw_frequencies(5, INPUTS, np.random.RandomState(seed)) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, second)
    assert not np.any(first == third)


class Matern72(Stationary):
    """A kernel as a user would add one, without a mixture."""

    def profile(self, t: Array) -> Array:
        s = np.sqrt(7.0 * t)
        return (1.0 + s + 0.4 * s**2 + s**3 / 15.0) * np.exp(-s)

    def slope(self, t: Array, rho: Array) -> Array:
        s = np.sqrt(7.0 * t)
        return -0.7 * (1.0 + s + s**2 / 3.0) * np.exp(-s)


def test_a_kernel_without_a_mixture_says_so() -> None:
    kernel: Kernel = Matern72(ARD)
    assert isinstance(kernel, Stationary)
    for ask in (
        lambda: kernel.mixture(3, np.random.RandomState(0)),
        lambda: kernel.draw_frequencies(3, INPUTS, np.random.RandomState(0)),
    ):
        with pytest.raises(NotImplementedError, match="Matern72 has no method `mixture`"):
            ask()
