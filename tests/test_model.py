"""The model: value and gradient of every variant against dense formulas."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import dense
from eigengp._typing import Array
from eigengp.data.array_source import ArraySource
from eigengp.data.standardize import Extent
from eigengp.fitting.objectives import eigengp_parameters
from eigengp.gp.approximations import DigitsLostError, PriorPass, SpectralPass
from eigengp.gp.model import EigenGP, Jitter
from eigengp.gp.residual import ResidualPass
from eigengp.kernels import (
    Kernel,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
)
from finite_differences import assert_close, gradient

N, M, R = 30, 5, 3
rng = np.random.default_rng(4)
X = rng.uniform(-2.0, 2.0, size=(N, 2))
y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * rng.normal(size=N)
counts = rng.integers(1, 4, size=N).astype(float)
B = np.array([[-1.3, -1.1], [-0.9, 1.2], [0.1, -0.2], [1.2, 1.4], [1.5, -0.8]])
BOX = Extent(X.min(axis=0), X.max(axis=0))
ROWS = ArraySource(X, y, block_rows=11, n_threads=1)

KERNELS: dict[str, Kernel] = {
    "squared_exponential": SquaredExponential([0.9, 1.3], 1.4),
    "squared_exponential_scalar": SquaredExponential(1.1, 1.4),
    "matern12": Matern12([1.5, 2.0], 1.4),
    "matern32": Matern32([1.2, 1.6], 1.4),
    "matern52": Matern52([1.0, 1.5], 1.4),
    "rational_quadratic": RationalQuadratic([0.9, 1.3], 1.4, 0.8),
    "sum": SquaredExponential([0.9, 1.3], 1.1) + Matern32(2.0, 0.5),
    "product": RationalQuadratic([1.5, 2.0], 1.4) * SquaredExponential(1.8, 0.9),
    "nested": (SquaredExponential(0.9) + Matern52([1.0, 2.0], 0.4)) * RationalQuadratic(2.5),
}
any_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())


@dataclass(frozen=True)
class Variant:
    """How a model departs from stage 1."""

    shrinkage: tuple[float, ...] | None = None
    n_components: int = M
    residual: bool = False
    gamma: float = 0.0
    sample_weight: Array | None = None

    def model(self, kernel: Kernel, points: Array = B) -> EigenGP:
        shrinkage = None if self.shrinkage is None else np.array(self.shrinkage)
        return EigenGP(
            kernel, points, 0.15, self.n_components, shrinkage, self.residual, Jitter(1e-6, 1e-7)
        )

    @property
    def rows(self) -> ArraySource:
        return replace(ROWS, sample_weight=self.sample_weight)


LEARNED = (1.6, 0.4, 1.1, 0.2, 0.7)
SHRUNK = (0.9, 0.4, 0.8, 0.2, 0.6)
VARIANTS = {
    "stage_1": Variant(),
    "truncated": Variant(n_components=R),
    "learned": Variant(LEARNED),
    "learned_truncated": Variant(LEARNED[:R], R),
    "residual": Variant(residual=True),
    "residual_truncated": Variant(n_components=R, residual=True),
    "residual_learned": Variant(SHRUNK, residual=True),
    "trace": Variant(gamma=0.7),
    "trace_learned_truncated": Variant(LEARNED[:R], R, gamma=0.7),
    "weighted": Variant(gamma=0.5, sample_weight=counts),
    "weighted_learned": Variant(LEARNED, gamma=0.5, sample_weight=counts),
    "weighted_residual": Variant(SHRUNK[:R], R, residual=True, sample_weight=counts),
}
any_variant = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())


@any_kernel
@any_variant
def test_value_is_that_of_the_dense_formula(kernel: Kernel, variant: Variant) -> None:
    model, times = variant.model(kernel), np.ones(N, dtype=int)
    if variant.sample_weight is not None:
        times = variant.sample_weight.astype(int)
    many, targets = np.repeat(X, times, axis=0), np.repeat(y, times)
    expected = dense.negative_log_evidence(model, many, targets, variant.gamma)
    assert model.value(variant.rows, variant.gamma) == pytest.approx(expected, rel=1e-9)


@any_kernel
@any_variant
def test_gradient_is_the_derivative(kernel: Kernel, variant: Variant) -> None:
    model = variant.model(kernel)
    parameters = eigengp_parameters(model, BOX, weights=model.shrinkage is not None)
    at = parameters.start
    value, own = parameters.unpack(at).value_and_gradient(variant.rows, variant.gamma)
    assert value == pytest.approx(model.value(variant.rows, variant.gamma), rel=1e-12)
    numeric = gradient(
        lambda vector: parameters.unpack(vector).value(variant.rows, variant.gamma), at, step=4e-3
    )
    assert_close(parameters.pack_gradient(own), numeric, 2e-8)


@pytest.mark.parametrize("jitter", [Jitter(relative=0.05), Jitter(absolute=0.05)])
@pytest.mark.parametrize("shrinkage", [None, np.array(SHRUNK)], ids=["stage_1", "learned"])
@pytest.mark.parametrize("residual", [False, True])
def test_jitter_enters_the_gradient_as_it_enters_the_value(
    jitter: Jitter, shrinkage: Array | None, residual: bool
) -> None:
    for kernel in (SquaredExponential([0.9, 1.3], 1.4), KERNELS["sum"], KERNELS["product"]):
        model = EigenGP(kernel, B, 0.15, M, shrinkage, residual, jitter)
        own = model.value_and_gradient(ROWS)[1].theta
        numeric = gradient(
            lambda theta, m=model: replace(m, kernel=m.kernel.with_theta(theta)).value(ROWS),
            kernel.theta,
        )
        assert_close(own, numeric, 1e-8)


@any_variant
def test_gradient_with_inducing_points_held_is_that_of_noise_and_weights(variant: Variant) -> None:
    model = variant.model(KERNELS["matern32"])
    parameters = eigengp_parameters(model, BOX, basis=False, weights=model.shrinkage is not None)
    at = parameters.start
    assert at.size == 1 + (0 if model.shrinkage is None else model.shrinkage.size)
    own = parameters.pack_gradient(model.value_and_gradient(variant.rows, variant.gamma)[1])
    numeric = gradient(
        lambda vector: parameters.unpack(vector).value(variant.rows, variant.gamma), at
    )
    assert_close(own, numeric, 1e-8)


@any_variant
def test_gradient_has_the_shapes_of_the_parameters(variant: Variant) -> None:
    model = variant.model(KERNELS["nested"])
    own = model.value_and_gradient(variant.rows, variant.gamma)[1]
    assert own.theta.shape == model.kernel.theta.shape
    assert own.inducing_points.shape == (M, 2)
    assert np.ndim(own.log_noise_variance) == 0
    if model.shrinkage is None:
        assert own.log_shrinkage is None
    else:
        assert own.log_shrinkage is not None
        assert own.log_shrinkage.shape == model.shrinkage.shape


@any_variant
def test_blocks_and_threads_do_not_change_value_and_gradient(variant: Variant) -> None:
    model = variant.model(KERNELS["sum"])
    parameters = eigengp_parameters(model, BOX, weights=model.shrinkage is not None)
    value, own = model.value_and_gradient(variant.rows, variant.gamma)
    for block_rows, n_threads in [(1, 3), (7, 2), (N, 1), (10 * N, 2)]:
        rows = replace(variant.rows, block_rows=block_rows, n_threads=n_threads)
        other_value, other = model.value_and_gradient(rows, variant.gamma)
        assert other_value == pytest.approx(value, rel=1e-12)
        assert_close(parameters.pack_gradient(other), parameters.pack_gradient(own), 1e-10)


@any_kernel
@any_variant
def test_gradient_stays_finite_where_inducing_points_coincide(
    kernel: Kernel, variant: Variant
) -> None:
    model = variant.model(kernel, B[[0, 1, 1, 3, 4]])
    value, own = model.value_and_gradient(variant.rows, variant.gamma)
    assert np.isfinite(value)
    assert np.all(np.isfinite(own.theta))
    assert np.all(np.isfinite(own.inducing_points))
    assert np.isfinite(own.log_noise_variance)
    assert own.log_shrinkage is None or np.all(np.isfinite(own.log_shrinkage))


@pytest.mark.parametrize("residual", [False, True])
def test_gradient_is_the_derivative_even_where_inducing_points_coincide(residual: bool) -> None:
    variant = Variant(residual=residual)
    model = replace(
        variant.model(SquaredExponential([0.9, 1.3]), B[[0, 1, 1, 3, 4]]), jitter=Jitter(1e-3)
    )
    parameters = eigengp_parameters(model, BOX)
    own = parameters.pack_gradient(model.value_and_gradient(ROWS)[1])
    numeric = gradient(
        lambda vector: parameters.unpack(vector).value(ROWS), parameters.start, step=1e-3
    )
    assert_close(own, numeric, 1e-7)


@any_kernel
@pytest.mark.parametrize("gamma", [0.0, 0.7])
@pytest.mark.parametrize("residual", [False, True])
def test_unit_shrinkage_equals_the_cholesky_route(
    kernel: Kernel, gamma: float, residual: bool
) -> None:
    prior = Variant(residual=residual).model(kernel)
    unit = replace(prior, shrinkage=np.ones(M))
    value, own = prior.value_and_gradient(ROWS, gamma)
    unit_value, unit_own = unit.value_and_gradient(ROWS, gamma)
    assert unit_value == pytest.approx(value, rel=1e-11)
    assert_close(unit_own.theta, own.theta, 1e-8)
    assert_close(unit_own.inducing_points, own.inducing_points, 1e-8)
    assert unit_own.log_noise_variance == pytest.approx(own.log_noise_variance, rel=1e-9)


def test_each_variant_has_its_own_pass() -> None:
    kernel = KERNELS["matern32"]
    assert isinstance(VARIANTS["stage_1"].model(kernel).flow, PriorPass)
    assert isinstance(VARIANTS["truncated"].model(kernel).flow, SpectralPass)
    assert isinstance(VARIANTS["learned"].model(kernel).flow, SpectralPass)
    assert isinstance(VARIANTS["residual"].model(kernel).flow, ResidualPass)
    assert isinstance(VARIANTS["residual_learned"].model(kernel).flow, ResidualPass)


@pytest.mark.parametrize("gamma", [0.0, 0.7])
def test_weights_and_noise_can_be_learned_from_the_sums_alone(gamma: float) -> None:
    model = VARIANTS["learned_truncated"].model(KERNELS["matern52"])
    flow = model.flow
    assert isinstance(flow, SpectralPass)
    sums = flow.sums(ROWS)
    other = replace(flow, noise_variance=0.4, shrinkage=np.array([0.3, 2.0, 0.9]))
    outcome = other.from_sums(sums, gamma)
    full = replace(model, noise_variance=0.4, shrinkage=other.shrinkage)
    value, own = full.value_and_gradient(ROWS, gamma)
    log_shrinkage, noise = other.weight_gradient(outcome)
    assert outcome.value == pytest.approx(value, rel=1e-13)
    assert_close(log_shrinkage, own.log_shrinkage, 1e-12)
    assert 0.4 * noise == pytest.approx(own.log_noise_variance, rel=1e-12)


GRID = np.stack(np.meshgrid(np.linspace(-2, 2, 4), np.linspace(-2, 2, 5)), axis=-1).reshape(-1, 2)
TARGETS = np.sin(GRID[:, 0]) * GRID[:, 1]


@any_kernel
@pytest.mark.parametrize("residual", [False, True])
def test_inducing_points_at_all_rows_are_the_exact_gp(kernel: Kernel, residual: bool) -> None:
    size = GRID.shape[0]
    model = EigenGP(kernel, GRID, 0.1, size, residual=residual, jitter=Jitter(relative=1e-12))
    rows = ArraySource(GRID, TARGETS)
    C = kernel(GRID) + 0.1 * np.eye(size)
    expected = -multivariate_normal(np.zeros(size), C).logpdf(TARGETS)
    assert model.value(rows) == pytest.approx(expected, rel=1e-8)

    posterior = model.posterior(model.forward(rows))
    cross = kernel(X, GRID)
    np.testing.assert_allclose(posterior.mean(X), cross @ np.linalg.solve(C, TARGETS), atol=1e-7)
    where, exact_cross = (X, cross) if residual else (GRID, kernel(GRID))
    reduction = np.sum(exact_cross * np.linalg.solve(C, exact_cross.T).T, axis=1)
    exact = kernel.constant_diagonal - reduction + 0.1
    np.testing.assert_allclose(posterior.mean_and_variance(where)[1], exact, atol=1e-7)


def test_the_variational_bound_lies_below_the_exact_gp() -> None:
    for kernel in KERNELS.values():
        model = EigenGP(kernel, B, 0.15, M)
        exact = multivariate_normal(np.zeros(N), kernel(X) + 0.15 * np.eye(N)).logpdf(y)
        assert -model.value(ROWS, gamma=1.0) <= exact


def test_jitter_is_relative_to_the_variance_plus_absolute() -> None:
    kernel = SquaredExponential(1.0, 4.0)
    both = EigenGP(kernel, B, 0.1, M, jitter=Jitter(1e-3, 1e-5))
    assert both.gram.jitter == pytest.approx(4.01e-3, rel=1e-14)
    plain, shaken = EigenGP(kernel, B, 0.1, M), EigenGP(kernel, B, 0.1, M, jitter=Jitter(1e-3))
    np.testing.assert_allclose(
        shaken.spectrum.values, plain.spectrum.values + 4e-3, rtol=1e-12, atol=0.0
    )


def test_one_inducing_point_and_one_row_are_enough() -> None:
    rows = ArraySource(X[:1], y[:1])
    for variant in (Variant(n_components=1), Variant((0.5,), 1), Variant(None, 1, residual=True)):
        model = variant.model(KERNELS["squared_exponential"], B[:1])
        value, own = model.value_and_gradient(rows)
        assert value == pytest.approx(dense.negative_log_evidence(model, X[:1], y[:1]), rel=1e-12)
        assert own.inducing_points.shape == (1, 2)


@any_variant
def test_a_far_row_and_a_far_inducing_point_leave_everything_finite(variant: Variant) -> None:
    points = B.copy()
    points[2] = 1e6
    far = ArraySource(np.vstack([X, [[1e7, -1e7]]]), np.append(y, 1.0))
    for kernel in KERNELS.values():
        value, own = variant.model(kernel, points).value_and_gradient(far, variant.gamma)
        assert np.isfinite(value)
        assert np.all(np.isfinite(own.theta))
        assert np.all(np.isfinite(own.inducing_points))


def test_many_rows_with_little_noise_go_on_with_whitened_rows_and_exact_gradients() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 1))
    rows = ArraySource(X, np.sin(X[:, 0]) + 0.003 * rng.normal(size=1200))
    B = np.linspace(-2, 2, 25)[:, None]
    model = EigenGP(SquaredExponential(np.array([1.0])), B, 1e-5, 25, jitter=Jitter(relative=1e-6))
    with pytest.raises(DigitsLostError):
        model.flow.forward(rows)
    value, derivative = model.value_and_gradient(rows, 0.1)
    assert value == pytest.approx(dense.negative_log_evidence(model, X, rows.y, 0.1), rel=1e-6)
    assert derivative.log_shrinkage is None

    def along(theta: Array) -> float:
        return replace(model, kernel=model.kernel.with_theta(theta)).value(rows, 0.1)

    assert value == along(model.kernel.theta)
    assert_close(derivative.theta, gradient(along, model.kernel.theta), 1e-5)


def test_weights_of_coinciding_eigenvalues_are_tied() -> None:
    X = np.linspace(-1, 1, 40)[:, None]
    rows = ArraySource(X, np.sin(5 * X[:, 0]))
    B = np.array([[-9.0], [0.0], [9.0], [18.0]])
    weights = np.array([0.1, 2.0, 0.4, 0.7])
    model = EigenGP(SquaredExponential(np.array([0.2])), B, 0.1, 4, weights)
    shuffled = replace(model, inducing_points=B[::-1])
    assert model.value(rows) == pytest.approx(shuffled.value(rows), rel=1e-9)
    np.testing.assert_allclose(model.effective_shrinkage, np.exp(np.mean(np.log(weights))))
    _, derivative = model.value_and_gradient(rows)

    def along(log_weights: Array) -> float:
        return replace(model, shrinkage=np.exp(log_weights)).value(rows)

    assert derivative.log_shrinkage is not None
    assert_close(derivative.log_shrinkage, gradient(along, np.log(weights)), 1e-7)
