"""The posterior mean of all rows after a fit with neighbours: means, leave-one-out, storage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from eigengp import LBFGS, EigenGPRegressor, load
from eigengp._typing import Array
from eigengp.data.array_source import ArraySource
from eigengp.data.neighbors import Nearest, NeighborSource
from eigengp.fitting import posterior_mean
from eigengp.fitting.posterior_mean import find_posterior_mean, is_affordable
from eigengp.gp.blocks import RowBlock
from eigengp.gp.exact import ExactGP
from eigengp.gp.vecchia import VecchiaPass
from eigengp.gp.vecchia_posterior import VecchiaPosterior
from eigengp.kernels import Matern32
from finite_differences import gradient as numerical_gradient

KERNEL = Matern32([0.8, 1.5], 1.3)


def _rows(n: int = 300, weighted: bool = False) -> RowBlock:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=n)
    return RowBlock(X, y, rng.integers(1, 4, n).astype(float) if weighted else None)


def _model(rows: RowBlock) -> VecchiaPass:
    return VecchiaPass.of(KERNEL, rows.X[:7] + 0.1, 0.1, 0.0)


def _source(rows: RowBlock, count: int = 8) -> NeighborSource:
    return NeighborSource.of(rows, np.ones(2), count)


def _posterior(rows: RowBlock, count: int = 8) -> VecchiaPosterior:
    outcome = _model(rows).forward(_source(rows, count))
    return VecchiaPosterior.of(outcome, rows, Nearest.of(rows.X, np.ones(2), count), count)


def _leave_one_out(posterior: VecchiaPosterior, rows: RowBlock) -> tuple[Array, Array]:
    """Return the exact errors, and the variances by neighbours."""
    inverse = np.linalg.inv(KERNEL(rows.X) + np.diag(0.1 / rows.weight))
    assert isinstance(posterior.search, Nearest)
    others = posterior.search.find_others(rows.X, np.arange(rows.n_rows))
    _, variance, _ = posterior.leave_one_out(rows, others)
    return inverse @ rows.y / np.diagonal(inverse), variance


@pytest.mark.parametrize("few", [10, 1_000])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_mean_is_that_of_the_exact_gp(
    few: int, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posterior_mean, "_FEW_ROWS", few)
    monkeypatch.setattr(posterior_mean, "_TOLERANCE", 1e-5)
    rows = _rows(weighted=weighted)
    posterior = _posterior(rows)
    errors, variance = _leave_one_out(posterior, rows)
    found = find_posterior_mean(_model(rows), _source(rows), variance[:200])
    assert found is not None
    exact = ExactGP(KERNEL, 0.1)
    source = ArraySource(rows.X, rows.y, rows.sample_weight)
    expected = exact.posterior(exact.forward(source)).mean(rows.X[:50] + 0.2)
    full = replace(posterior, coefficients=found.coefficients)
    assert_allclose(full.mean(rows.X[:50] + 0.2), expected, atol=1e-4)
    mean, variance = full.mean_and_variance(rows.X[:50] + 0.2)
    assert_allclose(mean, expected, atol=1e-4)
    assert_allclose(variance, posterior.mean_and_variance(rows.X[:50] + 0.2)[1])
    # Of many rows, leave-one-out errors are known up to how evenly neighbours know variances.
    assert_allclose(found.errors, errors[:200], atol=1e-8 if few > 300 else 0.15)
    assert np.corrcoef(found.errors, errors[:200])[0, 1] > 0.99


def test_the_gradient_of_the_mean_is_its_derivative() -> None:
    rows = _rows(80)
    posterior = _posterior(rows)
    found = find_posterior_mean(_model(rows), _source(rows), np.ones(0))
    assert found is not None
    full = replace(posterior, coefficients=found.coefficients)
    x = np.array([0.3, -0.2])
    expected = numerical_gradient(lambda at: float(full.mean(at[None])[0]), x)
    assert_allclose(full.mean_gradient(x[None])[0], expected, rtol=1e-5)


def test_time_that_is_over_leaves_the_mean_to_the_neighbours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(posterior_mean, "_FEW_ROWS", 10)
    rows = _rows()
    assert find_posterior_mean(_model(rows), _source(rows), np.ones(5), lambda: True) is None


def test_many_rows_or_little_time_leave_the_mean_to_the_neighbours() -> None:
    assert is_affordable(20_000, None)
    assert not is_affordable(100_000, None)
    assert not is_affordable(30_000, 5.0)


@pytest.mark.parametrize("likelihood", ["auto", "gaussian"])
def test_a_fit_uses_all_rows_and_can_be_stored(likelihood: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1_100, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=1_100)
    model = EigenGPRegressor(
        20,
        kernel="matern52",
        residual="neighbors",
        n_neighbors=10,
        likelihood=likelihood,
        optimizer=LBFGS(max_iter=2),
        random_state=0,
    ).fit(X, y)
    assert model.selection_["posterior_mean"].chosen == "all rows"
    mean, std = model.predict(X[:20], return_std=True)
    assert_allclose(model.predict(X[:20]), mean)
    model.save(tmp_path / "model.eigengp")
    again = load(tmp_path / "model.eigengp")
    assert_allclose(again.predict(X[:20], return_std=True), (mean, std))
    drawn = model.sample_y(X[:20], 2_000, random_state=0)
    assert_allclose(drawn.mean(axis=1), mean, atol=5.0 * float(np.max(std)) / np.sqrt(2_000))
