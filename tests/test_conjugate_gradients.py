"""Conjugate gradients and their preconditioner, against dense algebra."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from eigengp.data.neighbors import NeighborSource
from eigengp.gp import conjugate_gradients
from eigengp.gp.blocks import RowBlock
from eigengp.gp.conjugate_gradients import Preconditioner, SymmetricKernelMatrix, solve
from eigengp.gp.vecchia import VecchiaPass
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


def _precondition(kernel: Kernel, X: np.ndarray, noise: float, count: int) -> Preconditioner:
    rows = RowBlock(X, np.sin(X[:, 0]))
    model = VecchiaPass.of(kernel, X[:20] + 0.1, noise, 0.0)
    return Preconditioner.of(model.forward(NeighborSource.of(rows, np.ones(2), count)))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_with_nearly_all_neighbours_the_preconditioner_is_the_inverse(kernel: Kernel) -> None:
    X = _inputs(60)
    inverse = np.linalg.inv(kernel(X) + 0.1 * np.eye(60))
    P = _precondition(kernel, X, 0.1, 58)
    assert_allclose(P.solve(np.eye(60)), inverse, atol=0.02)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_the_preconditioner_of_the_first_rows_is_that_of_a_pass_over_them(kernel: Kernel) -> None:
    X = _inputs()
    own = _precondition(kernel, X[:120], 1e-3, 8)
    whole = _precondition(kernel, X, 1e-3, 8)
    r = np.random.default_rng(3).normal(size=(150, 2))
    r[120:, 0] = 0.0
    expected = whole.solve(r)
    expected[:120, :1], expected[120:, 0] = own.solve(r[:120, :1]), 0.0
    found = whole.hold_out(120).solve(r)
    assert_allclose(found, expected, atol=1e-6 * float(np.abs(expected).max()))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_conjugate_gradients_solve_several_systems_side_by_side(kernel: Kernel) -> None:
    X = _inputs()
    C = kernel(X) + 0.05 * np.eye(150)
    right = np.column_stack([np.sin(X[:, 0]), X[:, 1], np.zeros(150)])
    P = _precondition(kernel, X, 0.05, 8)
    found = solve(lambda p: C @ p, P.solve, right, 1e-8, 200)
    assert found.n_iter < 60
    assert np.all(found.errors <= 1e-8)
    assert_allclose(found.x, np.linalg.solve(C, right), atol=1e-6)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_a_preconditioner_saves_iterations(kernel: Kernel) -> None:
    X = _inputs()
    C = kernel(X) + 1e-3 * np.eye(150)
    right = np.sin(X[:, :1])
    P = _precondition(kernel, X, 1e-3, 8)
    slow = solve(lambda p: C @ p, lambda r: r.copy(), right, 1e-4, 1_000)
    fast = solve(lambda p: C @ p, P.solve, right, 1e-4, 1_000)
    assert fast.n_iter < slow.n_iter / 4


def test_iterations_end_when_time_is_over() -> None:
    X, noise, kernel = _inputs(), np.full(150, 1e-3), KERNELS[0]
    C = kernel(X) + np.diag(noise)
    left = iter([False, False, True])
    found = solve(lambda p: C @ p, lambda r: r.copy(), X[:, :1], 1e-8, 99, lambda: next(left))
    assert found.n_iter == 2
    assert found.errors[0] > 1e-8
