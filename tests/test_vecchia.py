"""The nearest-neighbour residual: gradients, and the exact GP where all rows are neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from eigengp.backend import loops, loops_numpy
from eigengp.data.array_source import ArraySource
from eigengp.data.neighbors import Nearest, NeighborSource, find_nearest_before
from eigengp.fitting.heteroscedastic import (
    OF_THE_MODEL,
    _condition_on_repeats,
    fit_heteroscedastic,
    make_posterior,
)
from eigengp.gp.blocks import RowBlock
from eigengp.gp.exact import ExactGP
from eigengp.gp.model import EigenGP, Jitter
from eigengp.gp.vecchia import VecchiaPass
from eigengp.gp.vecchia_posterior import VecchiaPosterior
from eigengp.kernels import (
    Kernel,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
)
from finite_differences import assert_close
from finite_differences import gradient as numerical_gradient

KERNELS = [
    SquaredExponential([0.8, 1.5], 1.3),
    Matern12([0.8, 1.5], 1.3),
    Matern32([0.8, 1.5], 1.3),
    Matern52([0.8, 1.5], 1.3),
    RationalQuadratic([0.8, 1.5], 1.3, alpha=0.7),
    SquaredExponential([0.8, 1.5], 0.7) + Matern32([2.0, 0.5], 0.4),
    SquaredExponential([0.8, 1.5], 0.7) * Matern52([2.0, 0.5], 0.4),
]


def _rows(n: int = 40, weighted: bool = False, seed: int = 0) -> RowBlock:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=n)
    return RowBlock(X, y, rng.integers(1, 4, n).astype(float) if weighted else None)


def _model(kernel: Kernel, rows: RowBlock, noise: float = 0.2) -> VecchiaPass:
    return VecchiaPass.of(kernel, rows.X[:7] + 0.1, noise, 1e-6)


def _source(rows: RowBlock, count: int = 5, n_threads: int = 1) -> NeighborSource:
    return NeighborSource.of(rows, np.ones(2), count, n_threads)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_stack_is_the_kernel(kernel: Kernel) -> None:
    X = np.random.default_rng(0).normal(size=(3, 4, 2))
    for each, points in zip(kernel.stack(X), X, strict=True):
        assert_allclose(each, kernel.matrix(points, points)[np.triu_indices(4)], atol=1e-12)


@pytest.fixture(params=["compiled", "NumPy"])
def either_loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the test with compiled loops, and with those of NumPy."""
    if request.param == "NumPy":
        monkeypatch.setattr(loops, "import_module", lambda name: loops_numpy)
    loops.load_loops.cache_clear()
    yield
    loops.load_loops.cache_clear()


@pytest.mark.usefixtures("either_loops")
@pytest.mark.parametrize("weighted", [False, True])
def test_all_rows_as_neighbours_give_the_exact_gp(weighted: bool) -> None:
    rows = _rows(weighted=weighted)
    kernel = Matern32([0.8, 1.5], 1.3)
    vecchia = VecchiaPass.of(kernel, rows.X[:7] + 0.1, 0.2, 1e-12)
    exact = ExactGP(kernel, vecchia.noise_variance)
    expected = exact.forward(ArraySource.of(rows)).value
    assert_allclose(vecchia.forward(_source(rows, rows.n_rows - 1)).value, expected, rtol=1e-7)


def test_threads_do_not_change_a_bit() -> None:
    rows = _rows(1_300)
    model = _model(Matern32([0.8, 1.5], 1.3), rows)
    one, *others = (model.forward(_source(rows, 5, n)) for n in (1, 2, 4))
    for other in others:
        assert other.value == one.value
        assert_array_equal(other.evidence.mean, one.evidence.mean)


def test_neighbours_come_before_and_the_nearest_is_first() -> None:
    points = np.random.default_rng(0).normal(size=(900, 3))
    found = find_nearest_before(points, 4)
    assert (found < np.arange(900)[:, None]).all()
    assert (found[4:] >= 0).all()
    distance = np.linalg.norm(points[found] - points[:, None], axis=2)
    assert (np.diff(distance[4:], axis=1) >= -1e-12).all()
    assert found[1].tolist() == [0, -1, -1, -1]


@pytest.mark.parametrize(("n", "D", "count"), [(3, 2, 4), (700, 2, 15), (2_500, 3, 6)])
def test_neighbours_are_the_nearest_of_all_earlier_points(n: int, D: int, count: int) -> None:
    points = 5.0 + np.random.default_rng(0).normal(size=(n, D))
    squares = ((points[:, None] - points) ** 2).sum(axis=2)
    squares[np.triu_indices(n)] = np.inf
    nearest = np.argsort(squares, axis=1, kind="stable")[:, :count]
    expected = np.full((n, count), -1)
    expected[:, : nearest.shape[1]] = np.where(
        np.isfinite(np.take_along_axis(squares, nearest, axis=1)), nearest, -1
    )
    assert_array_equal(find_nearest_before(points, count), expected)


def test_one_factorisation_of_all_rows_gives_the_sums_of_complete_neighbourhoods() -> None:
    rows = _rows(60, weighted=True)
    model = _model(Matern32([0.8, 1.5], 1.3), rows)
    source = _source(rows, rows.n_rows - 1)
    together = model.forward(source)
    index = np.hstack([np.full((rows.n_rows, 1), -1), source.index])
    row_by_row = model.forward(replace(source, index=index, is_complete=False))
    assert together.whitened is None
    assert row_by_row.whitened is not None
    assert model.forward(_source(rows, rows.n_rows - 2)).whitened is not None
    assert_allclose(together.value, row_by_row.value, rtol=1e-12)
    assert_allclose(together.evidence.mean, row_by_row.evidence.mean, rtol=1e-7)


def _posterior(model: VecchiaPass, rows: RowBlock, count: int) -> VecchiaPosterior:
    outcome = model.forward(_source(rows, rows.n_rows - 1))
    return VecchiaPosterior.of(outcome, rows, Nearest.of(rows.X, np.ones(2), count), count)


@pytest.mark.parametrize("weighted", [False, True])
def test_predictions_from_all_rows_are_those_of_the_exact_gp(weighted: bool) -> None:
    rows = _rows(weighted=weighted)
    model = VecchiaPass.of(Matern32([0.8, 1.5], 1.3), rows.X[:7] + 0.1, 0.2, 1e-12)
    posterior = _posterior(model, rows, rows.n_rows)
    exact = ExactGP(model.features.kernel, model.noise_variance)
    expected = exact.posterior(exact.forward(ArraySource.of(rows)))
    X = np.random.default_rng(1).normal(size=(9, 2))
    for found, wanted in zip(
        posterior.mean_and_variance(X), expected.mean_and_variance(X), strict=True
    ):
        assert_allclose(found, wanted, rtol=1e-6)
    assert_allclose(posterior.mean(X), expected.mean(X), rtol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_leave_one_out_predictions_are_those_of_a_model_without_the_row(weighted: bool) -> None:
    rows = _rows(weighted=weighted)
    model = VecchiaPass.of(Matern32([0.8, 1.5], 1.3), rows.X[:7] + 0.1, 0.2, 1e-12)
    posterior = _posterior(model, rows, rows.n_rows)
    own = np.arange(rows.n_rows)
    index = Nearest.of(rows.X, np.ones(2), rows.n_rows - 1).find_others(rows.X, own)
    mean, variance, _ = posterior.leave_one_out(rows, index)
    for i in (0, 7, 23):
        others = rows.picked(np.delete(own, i))
        exact = ExactGP(model.features.kernel, model.noise_variance)
        expected = exact.posterior(exact.forward(ArraySource.of(others)))
        wanted = expected.mean_and_variance(rows.X[i : i + 1])
        assert_allclose([mean[i], variance[i]], np.ravel(wanted), rtol=1e-6)


@pytest.mark.usefixtures("either_loops")
def test_gradients_of_predictions_are_derivatives_with_the_neighbours_held() -> None:
    rows = _rows()
    posterior = _posterior(_model(Matern52([0.8, 1.5], 1.3), rows), rows, rows.n_rows)
    x = np.array([[0.2, -0.4]])
    mean = numerical_gradient(lambda at: float(posterior.mean(at)[0]), x)
    assert_close(posterior.mean_gradient(x), mean)
    variance = numerical_gradient(lambda at: float(posterior.mean_and_variance(at)[1][0]), x)
    assert_close(posterior.variance_gradient(x), variance)


def test_heteroscedastic_noise_is_found_where_there_is_some_and_only_there() -> None:
    rng = np.random.default_rng(0)
    covariates = rng.normal(size=(2_000, 6))
    variance = np.ones(2_000)
    noise = rng.normal(size=2_000)
    flat = fit_heteroscedastic(noise, variance, covariates, 3)
    assert flat.name == OF_THE_MODEL
    assert flat.scale is None
    narrow = fit_heteroscedastic(3.0 * noise, variance, covariates, 3)
    assert narrow.name == "constant"
    assert narrow.scale is not None
    assert_allclose(narrow.scale(variance, covariates), 9.0, rtol=0.1)
    found = fit_heteroscedastic(noise * np.exp(0.5 * covariates[:, 1]), variance, covariates, 3)
    assert found.name == "neighbors"
    assert found.scale is not None
    scale = found.scale(variance, covariates)
    assert np.corrcoef(np.log(scale), covariates[:, 1])[0, 1] > 0.9
    assert found.losses[found.name] < found.losses["constant"] - 0.1


def test_a_few_outliers_do_not_make_the_noise_heteroscedastic() -> None:
    rng = np.random.default_rng(2)
    covariates = rng.normal(size=(1_500, 30))
    outliers = fit_heteroscedastic(
        rng.standard_t(2.0, size=1_500), np.full(1_500, 4.0), covariates, 1
    )
    assert outliers.name in (OF_THE_MODEL, "constant")


def test_leave_one_out_without_neighbours_is_that_of_a_model_without_the_row() -> None:
    rows = _rows()
    points = rows.X[:7] + 0.1
    model = EigenGP(Matern32([0.8, 1.5], 1.3), points, 0.2, 7, jitter=Jitter(1e-6))
    posterior = make_posterior(model, model.forward(ArraySource.of(rows)))
    mean, variance, _ = posterior.leave_one_out(rows)
    for i in (0, 7, 23):
        others = rows.picked(np.delete(np.arange(rows.n_rows), i))
        without = model.posterior(model.forward(ArraySource.of(others)))
        wanted = without.mean_and_variance(rows.X[i : i + 1])
        assert_allclose([mean[i], variance[i]], np.ravel(wanted), rtol=1e-6)


def test_a_row_is_predicted_from_others_with_the_same_input_too() -> None:
    rng = np.random.default_rng(4)
    inputs = rng.normal(size=(12, 2))
    X, number = np.repeat(inputs, 3, axis=0), np.repeat(np.arange(12), 3)
    y, noise, kernel = rng.normal(size=36), 0.2, Matern32([0.8, 1.5], 1.3)
    inverse = np.linalg.inv(kernel(X) + noise * np.eye(36))
    expected = y - inverse @ y / np.diagonal(inverse), 1.0 / np.diagonal(inverse)
    mean, variance = np.empty(36), np.empty(36)
    for group in range(12):
        own, others = number == group, number != group
        C = kernel(X[others]) + noise * np.eye(33)
        cross = kernel(X[own], X[others])
        mean[own] = cross @ np.linalg.solve(C, y[others])
        latent = kernel(X[own]) - cross @ np.linalg.solve(C, cross.T)
        variance[own] = np.diagonal(latent) + noise
    own = np.full(36, noise)
    found = _condition_on_repeats(RowBlock(X, y), number, mean, variance, noise, own)
    assert_allclose(found, expected, rtol=1e-8)


def test_tiny_variances_are_trusted_only_as_far_as_rows_prove_them() -> None:
    rng = np.random.default_rng(0)
    errors, variance = rng.normal(size=2_000), np.ones(2_000)
    errors[:40], variance[:40] = 1e-4 * errors[:40], 1e-6
    covariates = np.column_stack([np.log(variance), rng.normal(size=(2_000, 4))])
    found = fit_heteroscedastic(errors, variance, covariates, 1)
    assert found.scale is not None
    scaled = found.scale(variance, covariates)
    assert np.all(scaled[:40] >= 1.0 / 60.0)
    assert_allclose(scaled[40:], 1.0, rtol=0.2)
