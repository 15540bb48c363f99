from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.gaussian_process import kernels as sk

from eigengp._typing import Array
from eigengp.kernels import (
    Additive,
    Kernel,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Product,
    RationalQuadratic,
    SquaredExponential,
    Stationary,
    Sum,
    Warped,
)
from finite_differences import assert_close, gradient

ARD = np.array([0.7, 1.3])

SIMPLE: dict[str, Stationary] = {
    "squared_exponential": SquaredExponential(0.8, 1.7),
    "squared_exponential_ard": SquaredExponential(ARD, 1.7),
    "matern12": Matern12(1.1, 0.6),
    "matern12_ard": Matern12(ARD, 0.6),
    "matern32": Matern32(1.1, 0.6),
    "matern32_ard": Matern32(ARD, 0.6),
    "matern52": Matern52(0.9, 2.0),
    "matern52_ard": Matern52(ARD, 2.0),
    "rational_quadratic": RationalQuadratic(0.9, 1.2, 0.7),
    "rational_quadratic_ard": RationalQuadratic(ARD, 1.2, 2.5),
}
COMBINED: dict[str, Kernel] = {
    "sum": SquaredExponential(0.8, 1.7) + Matern32(ARD, 0.4),
    "product": RationalQuadratic(ARD, 1.2, 0.7) * SquaredExponential(2.0, 0.5),
    "nested": (SquaredExponential(0.8) + Matern52(ARD, 0.3)) * RationalQuadratic(2.0, 1.5)
    + Matern12(3.0, 0.2),
}
SHARED = (0.7, 1.3, 1.3, 0.7)
GROUPED: dict[str, Kernel] = {
    "squared_exponential": SquaredExponential(SHARED, 1.7, groups=(0, 1, 1, 0)),
    "matern32": Matern32(SHARED, 0.6, groups=(0, 1, 1, 0)),
    "rational_quadratic": RationalQuadratic(SHARED, 1.2, 0.7, groups=(0, 1, 1, 0)),
    "linear": Linear(np.array(SHARED), groups=(0, 1, 1, 0)),
    "additive": Additive(SHARED, 0.8, groups=(0, 1, 1, 0)),
    "sum": (SquaredExponential(0.9) + Matern52(0.5)).with_ard(4).with_groups((5, 3, 3, 5)),
    "active": Matern12(0.9, active_dims=(1, 2, 3)).with_ard(4).with_groups((0, 1, 1, 0)),
    "warped": Warped(SquaredExponential(SHARED, groups=(0, 1, 1, 0)), [-9.0] * 4, [9.0] * 4),
}
KERNELS: dict[str, Kernel] = {**SIMPLE, **COMBINED}

any_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
simple_kernel = pytest.mark.parametrize("kernel", SIMPLE.values(), ids=SIMPLE.keys())


def points(n: int, seed: int, n_features: int = 2) -> Array:
    return np.random.default_rng(seed).normal(size=(n, n_features))


def differences(X: Array, Z: Array, lengthscale: float | Array) -> Array:
    return np.sum(((X[:, None, :] - Z[None, :, :]) / lengthscale) ** 2, axis=2)


FORMULAS: dict[type[Stationary], Callable[[Stationary], sk.Kernel]] = {
    SquaredExponential: lambda k: sk.RBF(k.lengthscale),
    Matern12: lambda k: sk.Matern(k.lengthscale, nu=0.5),
    Matern32: lambda k: sk.Matern(k.lengthscale, nu=1.5),
    Matern52: lambda k: sk.Matern(k.lengthscale, nu=2.5),
}


@simple_kernel
def test_values_are_those_of_an_independent_formula(kernel: Stationary) -> None:
    X, Z = points(12, 0), points(7, 1)
    if isinstance(kernel, RationalQuadratic):
        t = differences(X, Z, kernel.lengthscale)
        expected = (1.0 + t / (2.0 * kernel.alpha)) ** -kernel.alpha
    else:
        expected = FORMULAS[type(kernel)](kernel)(X, Z)
    np.testing.assert_allclose(kernel(X, Z), kernel.variance * expected, rtol=1e-12)


def test_scalar_rational_quadratic_is_that_of_scikit_learn() -> None:
    X, Z = points(12, 0), points(7, 1)
    kernel = RationalQuadratic(0.9, 1.0, 0.7)
    expected = sk.RationalQuadratic(length_scale=0.9, alpha=0.7)(X, Z)
    np.testing.assert_allclose(kernel(X, Z), expected, rtol=1e-12)


def test_rational_quadratic_of_large_alpha_is_the_squared_exponential() -> None:
    X, Z = points(12, 0), points(7, 1)
    limit = RationalQuadratic(ARD, 1.7, 1e9)(X, Z)
    np.testing.assert_allclose(limit, SquaredExponential(ARD, 1.7)(X, Z), rtol=1e-6)


def test_sum_and_product_combine_the_values() -> None:
    X, Z = points(12, 0), points(7, 1)
    left, right = SquaredExponential(0.8, 1.7), Matern32(ARD, 0.4)
    assert isinstance(left + right, Sum)
    assert isinstance(left * right, Product)
    np.testing.assert_allclose((left + right)(X, Z), left(X, Z) + right(X, Z), rtol=1e-14)
    np.testing.assert_allclose((left * right)(X, Z), left(X, Z) * right(X, Z), rtol=1e-14)


@pytest.mark.parametrize("operation", [lambda k: k + 1.0, lambda k: 2.0 * k, lambda k: k * "k"])
def test_kernels_combine_with_kernels_only(operation: Callable[[Kernel], object]) -> None:
    with pytest.raises(TypeError):
        operation(SquaredExponential())


@any_kernel
def test_one_argument_means_the_gram_matrix(kernel: Kernel) -> None:
    X = points(9, 0)
    np.testing.assert_allclose(kernel(X), kernel(X, X.copy()), atol=1e-7)
    assert np.all(np.diag(kernel(X)) == np.diag(kernel(X))[0])


@any_kernel
def test_constant_diagonal_is_the_diagonal(kernel: Kernel) -> None:
    X = points(9, 0)
    np.testing.assert_allclose(np.diag(kernel(X)), kernel.constant_diagonal, rtol=1e-14)
    np.testing.assert_array_equal(kernel.diag(X), np.full(9, kernel.constant_diagonal))


@any_kernel
def test_forward_returns_the_matrix(kernel: Kernel) -> None:
    X, Z = points(12, 0), points(7, 1)
    np.testing.assert_array_equal(kernel.forward(X, Z)[0], kernel(X, Z))
    np.testing.assert_array_equal(kernel.forward(X, X)[0], kernel(X))


@any_kernel
def test_pull_back_to_theta_is_the_derivative(kernel: Kernel) -> None:
    X, Z, K_bar = points(12, 0), points(7, 1), points(12, 2, 7)
    numeric = gradient(lambda t: np.vdot(K_bar, kernel.with_theta(t)(X, Z)), kernel.theta)
    assert_close(kernel.forward(X, Z)[1](K_bar).theta, numeric, 1e-9)


@any_kernel
def test_pull_back_to_the_second_points_is_the_derivative(kernel: Kernel) -> None:
    X, Z, K_bar = points(12, 0), points(7, 1), points(12, 2, 7)
    numeric = gradient(lambda at: np.vdot(K_bar, kernel(X, at)), Z, step=2e-3)
    assert_close(kernel.forward(X, Z)[1](K_bar).points, numeric, 1e-9)


@any_kernel
def test_pull_back_of_a_gram_matrix_is_the_derivative(kernel: Kernel) -> None:
    X = points(6, 0)
    K_bar = points(6, 2, 6)
    K_bar = K_bar + K_bar.T
    adjoint = kernel.forward(X, X)[1](K_bar)
    theta = gradient(lambda t: np.vdot(K_bar, kernel.with_theta(t)(X)), kernel.theta)
    both = gradient(lambda at: np.vdot(K_bar, kernel(at)), X, step=2e-3)
    assert_close(adjoint.theta, theta, 1e-8)
    assert_close(2.0 * adjoint.points, both, 1e-8)


def test_pull_back_of_a_matern12_gram_matrix_keeps_its_digits_at_short_lengthscales() -> None:
    # Points far apart in lengthscales: the matrix is the identity, whatever the lengthscale.
    X, K_bar = points(20, 0), points(20, 2, 20)
    assert abs(Matern12(1e-3).forward(X, X)[1](K_bar).theta[0]) < 1e-9


@any_kernel
def test_pull_back_leaves_the_cotangent_as_it_was(kernel: Kernel) -> None:
    X, Z, K_bar = points(12, 0), points(7, 1), points(12, 2, 7)
    before = K_bar.copy()
    back = kernel.forward(X, Z)[1]
    first, second = back(K_bar), back(K_bar)
    np.testing.assert_array_equal(K_bar, before)
    np.testing.assert_array_equal(first.theta, second.theta)
    np.testing.assert_array_equal(first.points, second.points)


@any_kernel
def test_pull_back_is_finite_where_points_coincide(kernel: Kernel) -> None:
    Z = points(4, 0)[[0, 0, 1, 2]]
    K, back = kernel.forward(Z[[0, 1, 1]], Z)
    adjoint = back(np.ones_like(K))
    assert np.all(np.isfinite(adjoint.theta))
    assert np.all(np.isfinite(adjoint.points))


@any_kernel
def test_diagonal_pull_back_is_the_derivative_of_the_diagonal(kernel: Kernel) -> None:
    X, bar = points(9, 0), points(9, 1)[:, 0]
    numeric = gradient(lambda t: float(bar @ kernel.with_theta(t).diag(X)), kernel.theta)
    np.testing.assert_allclose(kernel.diag_adjoint(X, bar).theta, numeric, atol=1e-10)
    assert not kernel.diag_adjoint(X, bar).points.any()


@any_kernel
@given(X=arrays(np.float64, (6, 2), elements=st.floats(-5.0, 5.0)))
def test_matrix_is_symmetric_and_positive_semidefinite(kernel: Kernel, X: Array) -> None:
    # Where √t enters the profile, the rounding of t near zero enters as its root.
    tolerance = 1e-6 if "Matern12" in repr(kernel) else 1e-12
    K = kernel(X)
    np.testing.assert_allclose(K, K.T, rtol=0.0, atol=tolerance * kernel.constant_diagonal)
    lowest = np.linalg.eigvalsh(0.5 * (K + K.T))[0]
    assert lowest >= -X.shape[0] * tolerance * kernel.constant_diagonal


@any_kernel
@given(X=arrays(np.float64, (5, 2), elements=st.floats(-1e3, 1e3)))
def test_values_lie_between_zero_and_the_diagonal(kernel: Kernel, X: Array) -> None:
    K = kernel(X[:3], X)
    assert np.all(K >= 0.0)
    assert K.max() <= kernel.constant_diagonal * (1.0 + 1e-12)


@any_kernel
def test_rescaled_is_the_kernel_of_rescaled_inputs_and_values(kernel: Kernel) -> None:
    X, Z = points(12, 0), points(7, 1)
    scale = np.array([3.0, 0.2])
    other = kernel.rescaled(scale, 2.5)
    np.testing.assert_allclose(other(X * scale, Z * scale), 2.5 * kernel(X, Z), rtol=1e-12)
    assert other.constant_diagonal == pytest.approx(2.5 * kernel.constant_diagonal, rel=1e-14)


@any_kernel
def test_with_theta_goes_there_and_back(kernel: Kernel) -> None:
    theta = kernel.theta + np.linspace(-0.5, 0.5, kernel.theta.size)
    moved = kernel.with_theta(theta)
    assert type(moved) is type(kernel)
    np.testing.assert_allclose(moved.theta, theta, rtol=0.0, atol=1e-14)
    assert moved.parameter_names == kernel.parameter_names
    assert len(moved.parameter_names) == theta.size


def test_theta_holds_the_logarithms_in_the_order_of_the_names() -> None:
    kernel = SquaredExponential(2.0, 3.0) + RationalQuadratic([4.0, 5.0], 6.0, 7.0)
    assert kernel.parameter_names == (
        "left.lengthscale",
        "left.variance",
        "right.lengthscale[0]",
        "right.lengthscale[1]",
        "right.variance",
        "right.alpha",
    )
    np.testing.assert_allclose(np.exp(kernel.theta), [2.0, 3.0, 4.0, 5.0, 6.0, 7.0])


@any_kernel
def test_with_ard_keeps_the_values(kernel: Kernel) -> None:
    X, Z = points(12, 0), points(7, 1)
    wide = kernel.with_ard(2)
    np.testing.assert_allclose(wide(X, Z), kernel(X, Z), rtol=1e-13)
    assert not any(name.endswith("lengthscale") for name in wide.parameter_names)
    assert wide.with_ard(2) == wide


def test_with_ard_refuses_another_number_of_inputs() -> None:
    with pytest.raises(ValueError, match=r"2 lengthscales but X has 3"):
        (SquaredExponential() + Matern32(ARD)).with_ard(3)


@any_kernel
def test_equal_kernels_are_equal_and_hash_alike(kernel: Kernel) -> None:
    twin = pickle.loads(pickle.dumps(kernel))
    assert twin == kernel
    assert hash(twin) == hash(kernel)
    assert repr(twin) == repr(kernel)
    assert kernel.with_theta(kernel.theta + 0.1) != kernel


def test_different_kernels_differ() -> None:
    everything = [*KERNELS.values(), SquaredExponential(), Matern32(), Matern52()]
    everything += [Matern32() + Matern52(), Matern32() * Matern52(), Matern52() + Matern32()]
    assert len(set(everything)) == len(everything)
    assert SquaredExponential() != "SquaredExponential()"
    assert SquaredExponential([1.0]) != SquaredExponential(1.0)


def test_repr_names_class_and_parameters() -> None:
    assert repr(Matern32(2.0, 3.0)) == "Matern32(lengthscale=2.0, variance=3.0)"
    text = repr(SquaredExponential() + Matern12() * RationalQuadratic(alpha=2.0))
    assert text == (
        "(SquaredExponential(lengthscale=1.0, variance=1.0) + "
        "(Matern12(lengthscale=1.0, variance=1.0) * "
        "RationalQuadratic(lengthscale=1.0, variance=1.0, alpha=2.0)))"
    )


def test_a_kernel_does_not_share_the_array_it_was_given() -> None:
    lengthscale = np.array([1.0, 2.0])
    kernel = SquaredExponential(lengthscale)
    lengthscale[0] = 50.0
    assert kernel == SquaredExponential([1.0, 2.0])


def test_a_kernel_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        SquaredExponential().variance = 2.0


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
@pytest.mark.parametrize("name", ["lengthscale", "variance", "alpha"])
def test_parameters_must_be_positive_and_finite(name: str, bad: float) -> None:
    with pytest.raises(ValueError, match=rf"{name} of RationalQuadratic must be positive"):
        RationalQuadratic(**{name: bad})


@pytest.mark.parametrize("bad", [[1.0, -1.0], [np.nan, 1.0]])
def test_every_lengthscale_must_be_positive(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="lengthscale of Matern12 must be positive"):
        Matern12(bad)


@pytest.mark.parametrize("bad", [np.ones((2, 2)), []])
def test_lengthscale_must_be_a_number_or_a_vector(bad: object) -> None:
    with pytest.raises(ValueError, match="one positive number or one for each input"):
        SquaredExponential(bad)


@pytest.mark.parametrize("name", ["variance", "alpha"])
def test_only_the_lengthscale_may_be_a_vector(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        RationalQuadratic(**{name: [1.0, 2.0]})


def test_points_must_form_a_table() -> None:
    with pytest.raises(ValueError, match=r"reshape\(-1, 1\)"):
        SquaredExponential()(np.arange(3.0))


@any_kernel
def test_large_offsets_keep_their_digits(kernel: Kernel) -> None:
    # Differences of numbers near 1e8 are exact: both computations see the same points.
    X, Z, K_bar = points(12, 0) + 1e8, points(7, 1) + 1e8, points(12, 2, 7)
    near_X, near_Z = X - 1e8, Z - 1e8
    far, far_back = kernel.forward(X, Z)
    near, near_back = kernel.forward(near_X, near_Z)
    np.testing.assert_allclose(far, near, rtol=1e-12)
    assert_close(far_back(K_bar).theta, near_back(K_bar).theta, 1e-12)
    assert_close(far_back(K_bar).points, near_back(K_bar).points, 1e-12)


def test_one_input_and_one_point_are_enough() -> None:
    X = np.array([[0.5]])
    for kernel in (SquaredExponential(), Matern12([2.0]), RationalQuadratic()):
        K, back = kernel.forward(X, X)
        np.testing.assert_array_equal(K, [[1.0]])
        assert back(np.ones((1, 1))).points.shape == (1, 1)


@pytest.mark.parametrize("kernel", GROUPED.values(), ids=GROUPED.keys())
def test_inputs_of_a_group_share_one_lengthscale(kernel: Kernel) -> None:
    X, Z = points(6, 0, 4), points(5, 1, 4)
    assert len(kernel.parameter_names) == len(kernel.parameters) == kernel.theta.size
    assert kernel.with_theta(kernel.theta) == kernel
    assert pickle.loads(pickle.dumps(kernel)) == kernel
    bar = points(6, 2, 5)

    def value(theta: Array) -> float:
        return float(np.sum(bar * kernel.with_theta(theta).matrix(X, Z)))

    _, pull_back = kernel.forward(X, Z)
    assert_close(pull_back(bar.copy()).theta, gradient(value, kernel.theta))
    weight = points(6, 3, 1)[:, 0]
    assert_close(
        kernel.diag_adjoint(X, weight).theta,
        gradient(lambda theta: float(weight @ kernel.with_theta(theta).diag(X)), kernel.theta),
    )


def test_groups_of_single_inputs_are_no_groups() -> None:
    kernel = SquaredExponential().with_ard(3)
    assert kernel.with_groups((2, 0, 1)) is kernel
    assert kernel.with_groups(None) is kernel
    one = kernel.with_groups((0, 0, 0))
    assert one.theta.size == 2
    assert one.rescaled(np.full(3, 2.0), 1.0).groups == (0, 0, 0)
