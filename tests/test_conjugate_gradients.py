"""Conjugate gradients and their preconditioner, against dense algebra."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from eigengp.gp import conjugate_gradients
from eigengp.gp.conjugate_gradients import Preconditioner, SymmetricKernelMatrix, solve
from eigengp.kernels import Kernel, Matern12, Matern32, SquaredExponential

KERNELS = [
    SquaredExponential([0.8, 1.5], 1.3),
    Matern32([0.8, 1.5], 1.3),
    SquaredExponential([0.8, 1.5], 0.7) + Matern12([2.0, 0.5], 0.4),
]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conjugate_gradients, "_BLOCK", 32)


def _inputs(n: int = 150) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, 2))


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_products_with_blocks_are_those_with_the_kernel_matrix(
    kernel: Kernel, n_threads: int
) -> None:
    X = _inputs()
    x = np.random.default_rng(1).normal(size=(150, 3))
    K = SymmetricKernelMatrix.of(kernel, X, n_threads)
    assert sum(block.values.size for block in K.blocks) < 0.7 * 150**2
    assert_allclose(K.multiply(x), kernel(X) @ x, atol=2e-5)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_preconditioner_is_the_inverse_covariance_of_eigengp_plus(kernel: Kernel) -> None:
    X, points = _inputs(), _inputs(20) + 0.1
    noise = np.random.default_rng(2).uniform(0.1, 0.3, 150)
    between = kernel(X, points)
    gram = kernel(points) + 1e-6 * np.diag(kernel.diag(points))
    explained = between @ np.linalg.solve(gram, between.T)
    P = explained + np.diag(kernel.diag(X) - np.diagonal(explained) + noise)
    r = np.random.default_rng(3).normal(size=(150, 2))
    found = Preconditioner.of(kernel, X, noise, points).solve(r)
    assert_allclose(found, np.linalg.solve(P, r), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_conjugate_gradients_solve_several_systems_side_by_side(kernel: Kernel) -> None:
    X, noise = _inputs(), np.full(150, 0.05)
    C = kernel(X) + np.diag(noise)
    right = np.column_stack([np.sin(X[:, 0]), X[:, 1], np.zeros(150)])
    P = Preconditioner.of(kernel, X, noise, X[:30])
    found = solve(lambda p: C @ p, P.solve, right, 1e-8, 200)
    assert found.n_iter < 100
    assert np.all(found.errors <= 1e-8)
    assert_allclose(found.x, np.linalg.solve(C, right), atol=1e-6)


def test_a_preconditioner_saves_iterations() -> None:
    X, noise, kernel = _inputs(), np.full(150, 1e-3), KERNELS[0]
    C = kernel(X) + np.diag(noise)
    right = np.sin(X[:, :1])
    P = Preconditioner.of(kernel, X, noise, X[:40])
    slow = solve(lambda p: C @ p, lambda r: r.copy(), right, 1e-4, 1_000)
    fast = solve(lambda p: C @ p, P.solve, right, 1e-4, 1_000)
    assert fast.n_iter < slow.n_iter / 2


def test_iterations_end_when_time_is_over() -> None:
    X, noise, kernel = _inputs(), np.full(150, 1e-3), KERNELS[0]
    C = kernel(X) + np.diag(noise)
    left = iter([False, False, True])
    found = solve(lambda p: C @ p, lambda r: r.copy(), X[:, :1], 1e-8, 99, lambda: next(left))
    assert found.n_iter == 2
    assert found.errors[0] > 1e-8
