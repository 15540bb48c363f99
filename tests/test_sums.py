from __future__ import annotations

from dataclasses import fields, replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigengp._typing import Array
from eigengp.data.array_source import ArraySource
from eigengp.gp.approximations import PlainRows, WhitenedRows, WhitenedSums
from eigengp.gp.blocks import RowBlock, group_rows
from eigengp.gp.residual import ResidualRows
from eigengp.gp.sums import Kept, Sums, SumsAdjoint
from eigengp.kernels import Kernel, Matern32, SquaredExponential
from finite_differences import assert_close, gradient

N, M, R, INPUTS = 37, 5, 3, 2
Rows = PlainRows | WhitenedRows | ResidualRows

rng = np.random.default_rng(0)
X, B = rng.normal(size=(N, INPUTS)), rng.normal(size=(M, INPUTS))
y, weight = rng.normal(size=N), rng.uniform(0.2, 3.0, size=N)
T = 0.5 * rng.normal(size=(M, R))
KERNEL: Kernel = SquaredExponential([0.8, 1.4], 1.3) + Matern32(1.1, 0.5)
FEATURES = KERNEL.at(B)
NOISE = 0.3

ROWS: dict[str, Rows] = {
    "plain": PlainRows(FEATURES),
    "whitened": WhitenedRows(FEATURES, T),
    "residual": ResidualRows(FEATURES, 0.1 * T, NOISE),
    "partly_clipped_residual": ResidualRows(FEATURES, T, NOISE),
    "power": ResidualRows(FEATURES, 0.1 * T, NOISE, 0.4),
    "small_power": ResidualRows(FEATURES, T, NOISE, 1e-6),
}
any_rows = pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS.keys())
weighted = pytest.mark.parametrize("s", [None, weight], ids=["unweighted", "weighted"])


def adjoint_for(rows: Rows) -> SumsAdjoint:
    size = M if isinstance(rows, PlainRows) else R
    generator = np.random.default_rng(1)
    A = generator.normal(size=(size, size))
    return SumsAdjoint(A + A.T, generator.normal(size=size), 0.7, -0.4)


def functional(bar: SumsAdjoint, sums: Sums) -> float:
    linear = np.vdot(bar.A, sums.A) + bar.b @ sums.b
    return float(linear + bar.c * sums.c + bar.log_precision * sums.log_precision)


def assert_same(actual: object, expected: object, relative: float) -> None:
    assert type(actual) is type(expected)
    for field in fields(expected):
        a, b = getattr(actual, field.name), getattr(expected, field.name)
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=0.0, atol=relative * max(np.abs(b).max(), 1e-12))


@weighted
def test_plain_sums_are_the_dense_products(s: Array | None) -> None:
    sums = PlainRows(FEATURES).sums(RowBlock(X, y, s))
    K, omega = KERNEL(X, B), np.ones(N) if s is None else s
    np.testing.assert_allclose(sums.A, K.T @ np.diag(omega) @ K, rtol=1e-12)
    np.testing.assert_allclose(sums.b, K.T @ (omega * y), rtol=1e-12)
    assert sums.c == pytest.approx(float(np.sum(omega * y**2)), rel=1e-13)
    assert sums.precision == pytest.approx(omega.sum(), rel=1e-14)
    assert sums.n == pytest.approx(omega.sum(), rel=1e-14)
    assert sums.log_precision == 0.0


@weighted
def test_whitened_sums_are_those_of_the_combined_features(s: Array | None) -> None:
    sums = WhitenedRows(FEATURES, T).sums(RowBlock(X, y, s), Kept(0))
    assert isinstance(sums, WhitenedSums)
    K, omega = KERNEL(X, B), np.ones(N) if s is None else s
    Phi = K @ T
    np.testing.assert_allclose(sums.A, Phi.T @ np.diag(omega) @ Phi, rtol=1e-11)
    np.testing.assert_allclose(sums.b, Phi.T @ (omega * y), rtol=1e-11)
    np.testing.assert_allclose(sums.cross, K.T @ np.diag(omega) @ Phi, rtol=1e-11)
    np.testing.assert_allclose(sums.features, K.T @ (omega * y), rtol=1e-11)
    assert sums.c == pytest.approx(float(np.sum(omega * y**2)), rel=1e-13)
    assert sums.n == sums.precision == pytest.approx(omega.sum(), rel=1e-14)
    assert sums.log_precision == 0.0


@weighted
def test_whitened_sums_are_no_more_than_needed_without_a_pull_back(s: Array | None) -> None:
    rows, block = WhitenedRows(FEATURES, T), RowBlock(X, y, s)
    own, whole = rows.sums(block), rows.sums(block, Kept(0))
    assert type(own) is Sums
    np.testing.assert_array_equal(own.A, whole.A)
    np.testing.assert_array_equal(own.b, whole.b)
    assert (own.c, own.n, own.precision) == (whole.c, whole.n, whole.precision)


@weighted
@pytest.mark.parametrize("name", ["residual", "partly_clipped_residual"])
def test_residual_sums_weigh_each_row_by_its_own_variance(name: str, s: Array | None) -> None:
    rows = ROWS[name]
    assert isinstance(rows, ResidualRows)
    sums = rows.sums(RowBlock(X, y, s))
    counts = np.ones(N) if s is None else s
    Phi = KERNEL(X, B) @ rows.factor
    rest = np.diag(KERNEL(X)) - np.sum(Phi**2, axis=1)
    assert np.any(rest < 0.0) == (name == "partly_clipped_residual")
    variance = NOISE / counts + np.maximum(rest, 0.0)
    omega = 1.0 / variance
    np.testing.assert_allclose(sums.A, Phi.T @ np.diag(omega) @ Phi, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(sums.b, Phi.T @ (omega * y), rtol=1e-11)
    assert sums.c == pytest.approx(float(np.sum(omega * y**2)), rel=1e-12)
    assert sums.precision == pytest.approx(float(omega.sum()), rel=1e-12)
    assert sums.n == pytest.approx(float(counts.sum()), rel=1e-14)
    scatter = (counts - 1.0) * np.log(NOISE) + np.log(counts)
    expected = -float(np.sum(np.log(variance) + scatter))
    assert sums.log_precision == pytest.approx(expected, rel=1e-12)


@any_rows
@given(
    block_rows=st.integers(1, N), n_threads=st.sampled_from([1, 2, 3]), use_weights=st.booleans()
)
def test_blocks_and_threads_do_not_change_sums_and_gradients(
    rows: Rows, block_rows: int, n_threads: int, use_weights: bool
) -> None:
    s, bar = weight if use_weights else None, adjoint_for(rows)
    whole = RowBlock(X, y, s)
    source = ArraySource(X, y, s, block_rows, n_threads)
    assert_same(source.total(rows.sums), rows.sums(whole), 1e-10)
    back = partial(rows.pull_back, bar=bar)
    assert_same(source.total(back), back(whole), 1e-10)


@weighted
def test_plain_rows_may_be_taken_about_any_coefficients(s: Array | None) -> None:
    rows = ROWS["plain"]
    bar = adjoint_for(rows)
    about = replace(bar, mean=np.random.default_rng(3).normal(size=M))
    block = RowBlock(X, y, s)
    assert_same(rows.pull_back(block, about), rows.pull_back(block, bar), 1e-11)


@any_rows
def test_an_integer_weight_is_a_repeated_row(rows: Rows) -> None:
    counts = np.random.default_rng(2).integers(0, 4, size=N)
    bar = adjoint_for(rows)
    once = RowBlock(X, y, counts.astype(float))
    repeated = RowBlock(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    if isinstance(rows, ResidualRows):  # Rows with equal inputs share their residual.
        repeated = group_rows(repeated).rows
    assert_same(rows.sums(once), rows.sums(repeated), 1e-12)
    assert_same(rows.pull_back(once, bar), rows.pull_back(repeated, bar), 1e-12)


@any_rows
@weighted
def test_an_empty_block_adds_nothing(rows: Rows, s: Array | None) -> None:
    bar, empty = adjoint_for(rows), np.zeros(0, dtype=int)
    nothing = RowBlock(X[empty], y[empty], None if s is None else s[empty])
    whole = RowBlock(X, y, s)
    assert_same(rows.sums(whole) + rows.sums(nothing), rows.sums(whole), 1e-15)
    back = rows.pull_back(whole, bar)
    assert_same(back + rows.pull_back(nothing, bar), back, 1e-15)


@any_rows
@weighted
def test_pull_back_to_kernel_and_inducing_inputs_is_the_derivative(
    rows: Rows, s: Array | None
) -> None:
    bar, block = adjoint_for(rows), RowBlock(X, y, s)
    own = {f.name: getattr(rows, f.name) for f in fields(rows)}

    def value(**changes: object) -> float:
        return functional(bar, type(rows)(**{**own, **changes}).sums(block))

    adjoint = rows.pull_back(block, bar)
    kernels = gradient(
        lambda t: value(features=KERNEL.with_theta(t).at(B)), KERNEL.theta, step=2e-3
    )
    points = gradient(lambda at: value(features=KERNEL.at(at)), B, step=2e-3)
    assert_close(adjoint.theta, kernels)
    assert_close(adjoint.points, points)


@weighted
@pytest.mark.parametrize("name", ["residual", "partly_clipped_residual", "power", "small_power"])
def test_residual_pull_back_to_factor_and_noise_is_the_derivative(
    name: str, s: Array | None
) -> None:
    rows, block = ROWS[name], RowBlock(X, y, s)
    assert isinstance(rows, ResidualRows)
    bar = adjoint_for(rows)
    adjoint = rows.pull_back(block, bar)

    def value(factor: Array, noise: float) -> float:
        return functional(bar, ResidualRows(FEATURES, factor, noise, rows.power).sums(block))

    factor = gradient(lambda at: value(at, NOISE), rows.factor, step=2e-3)
    noise = gradient(lambda at: value(rows.factor, float(at)), NOISE)
    assert_close(adjoint.factor, factor)
    assert_close(adjoint.noise_variance, noise)


@weighted
def test_whitened_sums_hold_the_derivative_by_the_whitening(s: Array | None) -> None:
    rows, block = WhitenedRows(FEATURES, T), RowBlock(X, y, s)
    bar, sums = adjoint_for(rows), rows.sums(block, Kept(0))
    assert isinstance(sums, WhitenedSums)
    numeric = gradient(lambda at: functional(bar, WhitenedRows(FEATURES, at).sums(block)), T)
    assert_close(2.0 * sums.cross @ bar.A + np.outer(sums.features, bar.b), numeric)


@any_rows
def test_the_same_number_of_threads_gives_the_same_bits(rows: Rows) -> None:
    source = ArraySource(X, y, weight, block_rows=4, n_threads=3)
    assert_same(source.total(rows.sums), source.total(rows.sums), 0.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_are_taken_as_double_precision_whatever_their_type(dtype: type) -> None:
    source = ArraySource(X.astype(dtype), y.astype(dtype), block_rows=8, n_threads=1)
    exact = ArraySource(X.astype(dtype).astype(float), y.astype(dtype).astype(float))
    rows = ROWS["plain"]
    assert_same(source.total(rows.sums), exact.total(rows.sums), 1e-13)


def test_blocks_know_where_they_start() -> None:
    source = ArraySource(X, y, weight, block_rows=10, n_threads=2)
    seen: list[tuple[int, int]] = []

    def note(block: RowBlock) -> int:
        seen.append((block.start, block.y.size))
        np.testing.assert_array_equal(block.X, X[block.start : block.start + block.y.size])
        return block.y.size

    assert source.total(note) == N
    assert sorted(seen) == [(0, 9), (9, 9), (18, 10), (28, 9)]
