"""Factorisations, and what happens where they fail."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg

from eigengp._typing import Array
from eigengp.gp.linalg import (
    FactorizationError,
    JitterWarning,
    cholesky,
    descending_eigh,
    guarded,
    solve_lower,
)

INDEFINITE = np.array([[1.0, 2.0], [2.0, 1.0]])


def positive(size: int, seed: int = 0) -> Array:
    root = np.random.default_rng(seed).normal(size=(size, size))
    return root @ root.T + np.eye(size)


class Failing:
    """Fails a number of times, then returns the matrix it was given."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.seen: list[Array] = []

    def __call__(self, K: Array) -> Array:
        self.seen.append(K.copy())
        if len(self.seen) <= self.failures:
            raise linalg.LinAlgError("not yet")
        return K


@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_cholesky_is_lower_triangular_and_multiplies_back(size: int) -> None:
    K = positive(size)
    L = cholesky(K)
    np.testing.assert_allclose(L @ L.T, K, rtol=1e-13)
    np.testing.assert_array_equal(L, np.tril(L))


@pytest.mark.parametrize(
    "K", [INDEFINITE, np.ones((3, 3)), np.zeros((2, 2)), np.full((3, 3), np.nan)]
)
def test_cholesky_refuses_what_has_no_factor(K: Array) -> None:
    with pytest.raises(linalg.LinAlgError):
        cholesky(K)


@pytest.mark.parametrize("entry", [(0, 0), (2, 2), (3, 1), (4, 4)])
def test_both_factorisations_refuse_a_single_nan(entry: tuple[int, int]) -> None:
    K = positive(5)
    K[entry] = K[entry[::-1]] = np.nan
    for factorize in (cholesky, descending_eigh):
        with pytest.raises(linalg.LinAlgError):
            factorize(K)


def test_eigenvalues_descend_and_multiply_back() -> None:
    K = positive(6)
    values, vectors = descending_eigh(K)
    assert np.all(np.diff(values) <= 0.0)
    assert values[-1] > 0.0
    np.testing.assert_allclose(vectors * values @ vectors.T, K, rtol=1e-12)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(6), atol=1e-13)


@pytest.mark.parametrize("K", [INDEFINITE, np.ones((3, 3)), np.full((3, 3), np.inf)])
def test_eigen_decomposition_refuses_what_is_not_positive_definite(K: Array) -> None:
    with pytest.raises(linalg.LinAlgError):
        descending_eigh(K)


def test_factorisations_leave_the_matrix_as_it_was() -> None:
    K = positive(6)
    before = K.copy()
    cholesky(K)
    descending_eigh(K)
    np.testing.assert_array_equal(K, before)


@pytest.mark.parametrize("shape", [(6,), (6, 1), (6, 4)])
@pytest.mark.parametrize("transposed", [False, True])
def test_solve_lower_solves(shape: tuple[int, ...], transposed: bool) -> None:
    L = cholesky(positive(6))
    right = np.random.default_rng(1).normal(size=shape)
    solution = solve_lower(L, right, transposed)
    assert solution.shape == shape
    np.testing.assert_allclose((L.T if transposed else L) @ solution, right, rtol=1e-11)


@pytest.mark.parametrize("shape", [(6, 6), (5, 6), (6, 5)])
def test_solve_lower_refuses_shapes_that_lapack_would_complain_of(
    shape: tuple[int, int], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(linalg.LinAlgError, match="do not agree"):
        solve_lower(np.eye(*shape), np.ones((5, 2)))
    assert capfd.readouterr() == ("", "")


def test_guarded_passes_a_good_matrix_through_untouched() -> None:
    factorize, K = Failing(0), positive(3)
    assert guarded(factorize, K) is K
    assert len(factorize.seen) == 1


@pytest.mark.parametrize("failures", [1, 2, 7])
def test_guarded_adds_ten_times_more_jitter_at_each_failure_and_says_so(failures: int) -> None:
    factorize, K = Failing(failures), 4.0 * np.eye(3)
    before = K.copy()
    with pytest.warns(JitterWarning, match="nearly singular") as caught:
        result = guarded(factorize, K)
    added = [seen[0, 0] - 4.0 for seen in factorize.seen[1:]]
    expected = 4e-10 * 10.0 ** np.arange(failures)
    np.testing.assert_allclose(added, expected, rtol=1e-5)
    np.testing.assert_allclose(result, K + expected[-1] * np.eye(3), rtol=1e-14)
    np.testing.assert_array_equal(K, before)
    assert len(caught) == 1
    assert f"{expected[-1]:.1e}" in str(caught[0].message)


@pytest.mark.parametrize("factorize", [cholesky, descending_eigh])
def test_guarded_mends_a_singular_matrix_with_a_warning(factorize: object) -> None:
    with pytest.warns(JitterWarning):
        guarded(factorize, np.ones((4, 4)))


def test_guarded_gives_up_after_a_ten_thousandth_of_the_scale() -> None:
    factorize = Failing(100)
    with pytest.raises(FactorizationError, match=r"even with 4\.0e-04 added"):
        guarded(factorize, 4.0 * np.eye(3))
    assert len(factorize.seen) == 8


@pytest.mark.parametrize("factorize", [cholesky, descending_eigh])
@pytest.mark.parametrize(
    "K", [INDEFINITE, np.full((2, 2), np.nan), np.zeros((2, 2))], ids=["indefinite", "nan", "zero"]
)
def test_the_error_names_size_causes_and_remedies(factorize: object, K: Array) -> None:
    with pytest.raises(FactorizationError) as caught:
        guarded(factorize, K)
    message = str(caught.value)
    for words in (
        "2 x 2",
        f"scale {np.mean(np.diag(K)):.2e}",
        "duplicated inducing points",
        "constant columns",
        "huge scale",
        "standardise",
        "use fewer of them",
    ):
        assert words in message
    assert isinstance(caught.value, ValueError)
