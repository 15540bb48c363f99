"""The factors of the prior: Cholesky and spectrum, and their pull-backs."""

from __future__ import annotations

import numpy as np
import pytest

from eigengp._typing import Array
from eigengp.gp.linalg import CholeskyFactor, Spectrum
from eigengp.kernels import SquaredExponential
from finite_differences import assert_close, gradient, symmetric_gradient

M = 5
SHRINKAGES = {
    "prior": np.ones(M),
    "constant": np.full(M, 0.3),
    "descending": np.array([1.5, 1.0, 0.6, 0.2, 0.05]),
    "mixed": np.array([0.2, 2.0, 0.01, 5.0, 0.7]),
    "top_three": np.array([0.2, 2.0, 0.7]),
    "top_three_of_prior": np.ones(3),
    "top_one": np.array([0.4]),
}
any_shrinkage = pytest.mark.parametrize("v", SHRINKAGES.values(), ids=SHRINKAGES.keys())


def orthogonal(seed: int) -> Array:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(M, M)))[0]


def symmetric(seed: int) -> Array:
    S = np.random.default_rng(seed).normal(size=(M, M))
    return S + S.T


def gram_of(values: list[float]) -> Array:
    U = orthogonal(0)
    return U * np.array(values) @ U.T


SEPARATE = gram_of([3.0, 2.0, 1.4, 0.9, 0.5])
C, D = symmetric(1), symmetric(2)


def scalar(W: Array) -> float:
    """Stand in for the evidence: some smooth function of `W = F Fᵀ`."""
    return float(np.vdot(C, W) + 0.5 * np.vdot(W @ D, D @ W))


def scalar_bar(W: Array) -> Array:
    return C + D @ W @ D


def weight_matrix(gram: Array, v: Array) -> Array:
    T = Spectrum.of(gram).whitening(v.size)
    return T * v @ T.T


def pulled_back(gram: Array, v: Array) -> Array:
    """Pull `scalar` of `W` back through the spectrum, the way a pass over the rows does."""
    spectrum = Spectrum.of(gram)
    T = spectrum.whitening(v.size)
    return spectrum.pull_back(2.0 * scalar_bar(T * v @ T.T) @ T * v, v)


def test_cholesky_factor_is_a_root_of_the_inverse() -> None:
    F = CholeskyFactor.of(SEPARATE).matrix
    np.testing.assert_allclose(F @ F.T, np.linalg.inv(SEPARATE), rtol=1e-12, atol=1e-14)


def test_cholesky_pull_back_is_the_derivative() -> None:
    factor = CholeskyFactor.of(SEPARATE)
    F = factor.matrix
    gram_bar = factor.pull_back(2.0 * scalar_bar(F @ F.T) @ F)
    numeric = symmetric_gradient(lambda K: scalar(np.linalg.inv(K)), SEPARATE)
    assert_close(gram_bar, numeric, 1e-9)
    np.testing.assert_allclose(gram_bar, gram_bar.T, rtol=1e-12)
    assert_close(factor.weights_pull_back(scalar_bar(F @ F.T)), numeric, 1e-9)
    np.testing.assert_allclose(factor.inverse, F @ F.T, rtol=1e-12, atol=1e-14)


def test_spectrum_multiplies_back_and_descends() -> None:
    spectrum = Spectrum.of(SEPARATE)
    np.testing.assert_allclose(spectrum.values, [3.0, 2.0, 1.4, 0.9, 0.5], rtol=1e-12)
    U = spectrum.vectors
    np.testing.assert_allclose(U * spectrum.values @ U.T, SEPARATE, atol=1e-13)


def test_whitening_whitens_the_gram_matrix() -> None:
    T = Spectrum.of(SEPARATE).whitening(3)
    np.testing.assert_allclose(T.T @ SEPARATE @ T, np.eye(3), atol=1e-13)


def test_whitening_with_all_components_is_a_root_of_the_inverse() -> None:
    W = weight_matrix(SEPARATE, np.ones(M))
    np.testing.assert_allclose(W, np.linalg.inv(SEPARATE), rtol=1e-12, atol=1e-14)


@any_shrinkage
def test_weights_and_shrinkage_are_inverse_to_each_other(v: Array) -> None:
    spectrum = Spectrum.of(SEPARATE)
    w = spectrum.weights(v)
    np.testing.assert_allclose(w, v * np.array([3.0, 2.0, 1.4, 0.9, 0.5])[: v.size] / M)
    np.testing.assert_allclose(spectrum.shrinkage(w), v, rtol=1e-14)


@any_shrinkage
def test_whitened_and_shrunk_is_the_factor_of_the_paper(v: Array) -> None:
    spectrum = Spectrum.of(SEPARATE)
    R = v.size
    F = spectrum.vectors[:, :R] * np.sqrt(M * spectrum.weights(v)) / spectrum.values[:R]
    np.testing.assert_allclose(spectrum.whitening(R) * np.sqrt(v), F, rtol=1e-12)


@any_shrinkage
def test_spectral_pull_back_is_the_derivative(v: Array) -> None:
    numeric = symmetric_gradient(lambda K: scalar(weight_matrix(K, v)), SEPARATE)
    assert_close(pulled_back(SEPARATE, v), numeric, 1e-8)


@any_shrinkage
def test_spectral_pull_back_is_the_derivative_over_eight_orders_of_magnitude(v: Array) -> None:
    gram = np.diag([1.0, 1e-2, 1e-4, 1e-6, 1e-8])
    gram_bar = pulled_back(gram, v)
    lam = np.diag(gram)
    g = np.zeros(M)
    g[: v.size] = v / lam[: v.size]
    gap = lam - lam[:, None] + np.eye(M)
    divided = (g - g[:, None]) / gap
    slopes = np.zeros(M)
    slopes[: v.size] = -v / lam[: v.size] ** 2
    divided[np.diag_indices(M)] = slopes
    expected = divided * scalar_bar(weight_matrix(gram, v))
    # The broadening is 1e-7 of the largest eigenvalue: below it, poles are smoothed away.
    seen = np.ix_(lam > 1e-5, lam > 1e-5)
    np.testing.assert_allclose(gram_bar[seen], expected[seen], rtol=1e-4)
    assert np.all(np.isfinite(gram_bar))


@any_shrinkage
def test_shrinkage_pull_back_is_the_derivative_at_held_weights(v: Array) -> None:
    bar = np.random.default_rng(3).normal(size=v.size)
    w = Spectrum.of(SEPARATE).weights(v)
    numeric = symmetric_gradient(
        lambda K: float(bar @ np.log(Spectrum.of(K).shrinkage(w))), SEPARATE
    )
    assert_close(Spectrum.of(SEPARATE).shrinkage_pull_back(bar), numeric, 1e-9)


def duplicated_points(jitter: float) -> Array:
    B = np.array([[0.0], [0.0], [1.0], [1.0], [2.5]])
    return SquaredExponential(0.4)(B) + jitter * np.eye(M)


COINCIDING = {
    "identity": np.eye(M),
    "double": gram_of([3.0, 2.0, 2.0, 0.5, 0.5]),
    "nearly_double": gram_of([3.0, 2.0, 2.0 - 1e-12, 0.5 + 1e-15, 0.5]),
    "duplicated_points": duplicated_points(1e-4),
    "equilateral": np.eye(M) + np.ones((M, M)),
}
coinciding = pytest.mark.parametrize("gram", COINCIDING.values(), ids=COINCIDING.keys())


@coinciding
@any_shrinkage
def test_spectral_pull_back_stays_finite_where_eigenvalues_coincide(gram: Array, v: Array) -> None:
    gram_bar = pulled_back(gram, v)
    assert np.all(np.isfinite(gram_bar))
    np.testing.assert_array_equal(gram_bar, gram_bar.T)


@coinciding
@pytest.mark.parametrize("level", [1.0, 0.3])
def test_constant_shrinkage_has_no_pole_where_eigenvalues_coincide(
    gram: Array, level: float
) -> None:
    inverse = np.linalg.inv(gram)
    expected = -level * inverse @ scalar_bar(level * inverse) @ inverse
    assert_close(pulled_back(gram, np.full(M, level)), expected, 1e-9)


@coinciding
def test_with_the_weights_of_the_prior_both_factors_pull_back_alike(gram: Array) -> None:
    factor = CholeskyFactor.of(gram)
    F = factor.matrix
    assert_close(
        pulled_back(gram, np.ones(M)), factor.pull_back(2.0 * scalar_bar(F @ F.T) @ F), 1e-9
    )


def test_vanishing_shrinkage_divides_by_nothing() -> None:
    v = np.array([1.0, 0.5, 1e-300, 0.0, 0.0])
    assert np.all(np.isfinite(pulled_back(SEPARATE, v)))


def test_vanishing_shrinkage_is_the_limit_of_a_small_one() -> None:
    small = pulled_back(SEPARATE, np.array([1.0, 0.5, 0.3, 1e-13, 1e-13]))
    assert_close(pulled_back(SEPARATE, np.array([1.0, 0.5, 0.3, 0.0, 0.0])), small, 1e-10)
    assert_close(pulled_back(SEPARATE, np.array([1.0, 0.5, 0.3])), small, 1e-10)


def test_the_scalar_of_these_tests_has_the_stated_derivative() -> None:
    W = symmetric(4)
    assert_close(gradient(lambda at: scalar(0.5 * (at + at.T)), W), scalar_bar(W), 1e-9)
