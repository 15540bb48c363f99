"""The relevance vector machine against dense formulas, and where it could break."""

from __future__ import annotations

import tracemalloc
from functools import cache

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from eigengp._typing import Array
from eigengp.baselines.rvm.learning import Relevance, learn_relevance
from eigengp.data.array_source import ArraySource
from eigengp.gp.linalg import FactorizationError
from eigengp.kernels import Kernel, Matern32, SquaredExponential

TIGHT = 1e-13


def rows(seed: int, n: int = 200) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(0.0, 3.0, size=(n, 1)), axis=0)
    return X, X[:, 0] * np.sin(X[:, 0] ** 3) + 0.5 * rng.normal(size=n)


KERNELS = (SquaredExponential(0.12), SquaredExponential(0.06, variance=3.0), Matern32(0.3))
CASES = [(kernel, seed) for kernel in KERNELS for seed in (0, 1)]


@cache
def learned(kernel: Kernel, seed: int) -> Relevance:
    return learn_relevance(ArraySource(*rows(seed)), kernel, tol=TIGHT)


def dense_covariance(found: Relevance, kernel: Kernel, X: Array) -> Array:
    Phi = kernel(X, found.inputs)
    return found.noise_variance * np.eye(X.shape[0]) + (Phi / found.precisions) @ Phi.T


def dense_alignment(found: Relevance, kernel: Kernel, X: Array, y: Array) -> tuple[Array, Array]:
    """Return `s_i` and `q_i` of every row, from `C` without the row's own function."""
    Phi, C = kernel(X), dense_covariance(found, kernel, X)
    s, q = np.sum(Phi * np.linalg.solve(C, Phi), axis=0), Phi.T @ np.linalg.solve(C, y)
    for i, alpha in zip(found.indices, found.precisions, strict=True):
        without = C - np.outer(Phi[i], Phi[i]) / alpha
        s[i], q[i] = Phi[i] @ np.linalg.solve(without, np.column_stack([Phi[i], y]))
    return s, q


@pytest.mark.parametrize(("kernel", "seed"), CASES)
def test_evidence_is_the_dense_one(kernel: Kernel, seed: int) -> None:
    X, y = rows(seed)
    found = learned(kernel, seed)
    C = dense_covariance(found, kernel, X)
    dense = -multivariate_normal(np.zeros(y.size), C).logpdf(y)
    assert found.evidence.negative_log == pytest.approx(dense, rel=1e-9)


@pytest.mark.parametrize(("kernel", "seed"), CASES)
def test_mean_and_covariance_of_the_weights_are_the_dense_ones(kernel: Kernel, seed: int) -> None:
    X, y = rows(seed)
    found = learned(kernel, seed)
    np.testing.assert_array_equal(found.inputs, X[found.indices])
    Phi = kernel(X, found.inputs)
    precision = Phi.T @ Phi / found.noise_variance + np.diag(found.precisions)
    covariance = np.linalg.inv(precision)
    mean = covariance @ Phi.T @ y / found.noise_variance
    np.testing.assert_allclose(found.evidence.mean, mean, rtol=1e-6, atol=1e-8)
    root = found.evidence.V
    np.testing.assert_allclose(root @ root.T, covariance, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("kernel", "seed"), CASES)
def test_the_end_is_stationary_by_the_dense_formulas(kernel: Kernel, seed: int) -> None:
    X, y = rows(seed)
    found = learned(kernel, seed)
    assert found.converged
    s, q = dense_alignment(found, kernel, X, y)
    inside = np.isin(np.arange(y.size), found.indices)
    best = s[inside] ** 2 / (q[inside] ** 2 - s[inside])
    order = np.argsort(found.indices)
    np.testing.assert_allclose(found.precisions[order], best, rtol=1e-4)
    assert np.all(q[~inside] ** 2 <= (1.0 + 1e-4) * s[~inside])
    relative_slope = 2.0 * found.noise_variance * found.evidence.noise_adjoint() / y.size
    assert abs(relative_slope) < 10.0 * np.sqrt(TIGHT)  # Gains are seen down to its square.


def test_noise_is_the_residual_over_the_free_rows() -> None:
    X, y = rows(0)
    found = learned(KERNELS[0], 0)
    residual = y - KERNELS[0](X, found.inputs) @ found.evidence.mean
    root = found.evidence.V
    determined = 1.0 - found.precisions * np.sum(root**2, axis=1)
    expected = residual @ residual / (y.size - determined.sum())
    assert found.noise_variance == pytest.approx(expected, rel=1e-5)


def test_default_tolerance_is_close_to_the_end() -> None:
    found = learn_relevance(ArraySource(*rows(0)), KERNELS[0])
    assert found.converged
    best = learned(KERNELS[0], 0).evidence.negative_log
    assert found.evidence.negative_log == pytest.approx(best, abs=1e-3)


def test_few_functions_recover_the_signal() -> None:
    X, found = rows(0)[0], learned(KERNELS[0], 0)
    signal = X[:, 0] * np.sin(X[:, 0] ** 3)
    error = signal - KERNELS[0](X, found.inputs) @ found.evidence.mean
    assert found.indices.size < 25
    assert np.mean(error**2) < 0.05 * np.var(signal)
    assert found.noise_variance == pytest.approx(0.25, rel=0.3)


def test_weight_two_is_a_row_twice() -> None:
    X, y = rows(2, n=80)
    weight = 1.0 + np.arange(80) % 2
    weighted = learn_relevance(ArraySource(X, y, weight), KERNELS[0], tol=TIGHT)
    twice = np.repeat(np.arange(80), weight.astype(int))
    repeated = learn_relevance(ArraySource(X[twice], y[twice]), KERNELS[0], tol=TIGHT)
    assert weighted.evidence.negative_log == pytest.approx(repeated.evidence.negative_log, rel=1e-9)
    assert weighted.noise_variance == pytest.approx(repeated.noise_variance, rel=1e-5)
    np.testing.assert_array_equal(np.sort(weighted.inputs[:, 0]), np.sort(repeated.inputs[:, 0]))


def test_weight_zero_is_an_absent_row() -> None:
    X, y = rows(3, n=80)
    weight = (np.arange(80) % 3 > 0).astype(float)
    weighted = learn_relevance(ArraySource(X, y, weight), KERNELS[0], tol=TIGHT)
    here = weight > 0
    absent = learn_relevance(ArraySource(X[here], y[here]), KERNELS[0], tol=TIGHT)
    assert weighted.evidence.negative_log == pytest.approx(absent.evidence.negative_log, rel=1e-9)
    np.testing.assert_array_equal(weighted.inputs, absent.inputs)


@pytest.mark.parametrize(("block_rows", "n_threads"), [(7, 1), (64, 2)])
def test_blocks_and_threads_do_not_matter(block_rows: int, n_threads: int) -> None:
    X, y = rows(0)
    source = ArraySource(X, y, block_rows=block_rows, n_threads=n_threads)
    found, whole = learn_relevance(source, KERNELS[0], tol=TIGHT), learned(KERNELS[0], 0)
    np.testing.assert_array_equal(found.indices, whole.indices)
    assert found.evidence.negative_log == pytest.approx(whole.evidence.negative_log, rel=1e-10)


def test_every_step_reports_an_evidence_that_never_falls() -> None:
    values: list[float] = []
    X, y = rows(0)
    found = learn_relevance(ArraySource(X, y), KERNELS[0], step=values.append)
    assert len(values) == found.n_iter
    assert np.all(np.diff(values) <= 0.0)
    assert values[-1] == pytest.approx(found.evidence.negative_log / y.size, rel=1e-12)


def test_stopped_early_says_so() -> None:
    found = learn_relevance(ArraySource(*rows(0)), KERNELS[0], max_iter=5)
    assert found.n_iter == 5
    assert not found.converged
    assert np.isfinite(found.evidence.negative_log)


def test_repeated_inputs_enter_once() -> None:
    rng = np.random.default_rng(4)
    X = np.repeat(np.linspace(0.0, 3.0, 40), 5)[:, None]
    y = np.sin(3.0 * X[:, 0]) + 0.1 * rng.normal(size=200)
    found = learn_relevance(ArraySource(X, y), SquaredExponential(0.4))
    assert found.converged
    assert np.unique(found.inputs[:, 0]).size == found.indices.size
    assert found.noise_variance == pytest.approx(0.01, rel=0.3)


@pytest.mark.parametrize("target", [0.0, 3.0, -1e-7])
@pytest.mark.parametrize("lengthscale", [0.01, 0.3, 3.0, 100.0])
def test_constant_targets_are_fitted(target: float, lengthscale: float) -> None:
    X = np.linspace(0.0, 3.0, 60)[:, None]
    kernel = SquaredExponential(lengthscale)
    found = learn_relevance(ArraySource(X, np.full(60, target)), kernel)
    assert np.isfinite(found.evidence.negative_log)
    fitted = kernel(X, found.inputs) @ found.evidence.mean
    np.testing.assert_allclose(fitted, target, atol=0.1 * abs(target))


@pytest.mark.parametrize("lengthscale", [0.2, 0.3, 0.6, 2.0])
def test_nearly_parallel_functions_do_not_break_it(lengthscale: float) -> None:
    X, y = rows(0)
    kernel = SquaredExponential(lengthscale)
    found = learn_relevance(ArraySource(X, y), kernel)
    L = np.linalg.cholesky(dense_covariance(found, kernel, X))
    white = np.linalg.solve(L, y)
    dense = 0.5 * (white @ white + y.size * np.log(2.0 * np.pi)) + np.log(np.diag(L)).sum()
    assert found.evidence.negative_log == pytest.approx(dense, abs=0.1)


def test_targets_without_noise_are_interpolated() -> None:
    X = np.linspace(0.0, 3.0, 150)[:, None]
    y, kernel = np.sin(3.0 * X[:, 0]), SquaredExponential(0.3)
    found = learn_relevance(ArraySource(X, y), kernel)
    np.testing.assert_allclose(kernel(X, found.inputs) @ found.evidence.mean, y, atol=1e-3)
    assert found.noise_variance < 1e-5


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_few_rows_are_enough(count: int) -> None:
    X, y = np.arange(count, dtype=float)[:, None], np.array([1.0, -2.0, 3.0])[:count]
    found = learn_relevance(ArraySource(X, y), SquaredExponential(0.5))
    assert np.isfinite(found.evidence.negative_log)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_units_of_the_targets_do_not_matter(scale: float) -> None:
    X, y = rows(0)
    found = learn_relevance(ArraySource(X, scale * y), KERNELS[0], tol=TIGHT)
    plain = learned(KERNELS[0], 0)
    np.testing.assert_array_equal(found.indices, plain.indices)
    assert found.noise_variance == pytest.approx(scale**2 * plain.noise_variance, rel=1e-6)


def test_nan_in_the_targets_raises() -> None:
    X, y = rows(0)
    y[3] = np.nan
    with pytest.raises(FactorizationError, match=r"NaN"):
        learn_relevance(ArraySource(X, y), KERNELS[0])


def test_memory_stays_far_below_a_full_kernel_matrix() -> None:
    n, rng = 4000, np.random.default_rng(5)
    X = rng.uniform(-1.0, 1.0, size=(n, 2))
    y = np.sin(3.0 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=n)
    tracemalloc.start()
    found = learn_relevance(ArraySource(X, y, n_threads=2), SquaredExponential(0.7))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.converged
    assert peak < 0.4 * 8 * n**2
