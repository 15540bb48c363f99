"""Rows with equal inputs: merged exactly, and the same as rows with weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dense
from eigengp import (
    LBFGS,
    EigenGPRegressor,
    ExactGPRegressor,
    FITCRegressor,
    SquaredExponential,
    log_marginal_likelihood,
)
from eigengp._typing import Array
from eigengp.data.array_source import ArraySource
from eigengp.data.holdout import group_source
from eigengp.data.neighbors import NeighborSource
from eigengp.gp.blocks import RowBlock, group_rows, has_equal_inputs, joined
from eigengp.gp.exact import ExactGP
from eigengp.gp.model import EigenGP, Jitter
from eigengp.gp.posterior import draw_by_input
from eigengp.gp.vecchia import VecchiaPass
from finite_differences import assert_close, gradient

KERNEL = SquaredExponential([0.6], 1.3)
B = np.linspace(-1.5, 1.5, 4)[:, None]


def _repeated(n_inputs: int = 10, each: int = 4) -> RowBlock:
    rng = np.random.default_rng(0)
    X = np.repeat(rng.uniform(-2.0, 2.0, size=(n_inputs, 1)), each, axis=0)
    y = np.sin(3.0 * X[:, 0]) + 0.3 * rng.normal(size=len(X))
    order = rng.permutation(len(X))
    return RowBlock(X[order], y[order], rng.integers(1, 4, len(X)).astype(float))


def _once(rows: RowBlock) -> RowBlock:
    """Return rows as often as they count."""
    count = rows.weight.astype(int)
    return RowBlock(np.repeat(rows.X, count, axis=0), np.repeat(rows.y, count))


def _model(**changes: Any) -> EigenGP:
    return replace(EigenGP(KERNEL, B, 0.1, 4, jitter=Jitter(1e-6)), **changes)


def test_groups_have_means_weights_and_scatters() -> None:
    rows = _repeated()
    groups = group_rows(rows)
    assert groups.rows.n_rows == 10
    assert_array_equal(groups.rows.X[groups.number], rows.X)
    for g in range(10):
        own = groups.number == g
        mean = np.average(rows.y[own], weights=rows.weight[own])
        scatter = rows.weight[own] @ (rows.y[own] - mean) ** 2
        assert_allclose(groups.rows.y[g], mean)
        assert_allclose(groups.rows.weight[g], rows.weight[own].sum())
        assert groups.rows.scatter is not None
        assert_allclose(groups.rows.scatter[g], scatter)
    again = group_rows(joined([groups.rows, groups.rows])).rows
    assert_allclose(again.total_scatter, 2.0 * groups.rows.total_scatter)


def test_rows_without_equal_inputs_stay_as_they_are() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    rows = RowBlock(X, X[:, 0])
    assert not has_equal_inputs(X)
    assert group_rows(rows).rows is rows
    source = ArraySource(X, X[:, 0])
    assert group_source(source) is source
    assert has_equal_inputs(np.vstack([X, X[7]]))


@pytest.mark.parametrize("residual", [False, True], ids=["EigenGP", "EigenGP+"])
@pytest.mark.parametrize("shrinkage", [None, np.array([0.9, 0.5, 0.3])])
def test_evidence_and_posterior_of_groups_are_those_of_the_dense_formula(
    residual: bool, shrinkage: Array | None
) -> None:
    rows = _repeated()
    R = 4 if shrinkage is None else 3
    model = _model(residual=residual, shrinkage=shrinkage, n_components=R)
    source, single = ArraySource.of(group_rows(rows).rows), _once(rows)
    expected = dense.negative_log_evidence(model, single.X, single.y)
    assert model.value(source) == pytest.approx(expected, rel=1e-9)
    new = np.linspace(-3.0, 3.0, 7)[:, None]
    mean, variance = model.posterior(model.forward(source)).mean_and_variance(new)
    own, covariance = dense.conditional(model, single.X, single.y, new)
    assert_allclose(mean, own, atol=1e-9)
    assert_allclose(variance, np.diag(covariance), atol=1e-9)


@pytest.mark.parametrize("power", [0.3, 1.0])
def test_gradient_by_the_noise_knows_the_scatter(power: float) -> None:
    rows = group_rows(_repeated()).rows
    models: list[tuple[Any, Any]] = [
        (_model(residual=True, power=power), ArraySource.of(rows)),
        (_model(), ArraySource.of(rows)),
        (ExactGP(KERNEL, 0.1), ArraySource.of(rows)),
    ]
    for model, source in models:
        _, own = model.evaluate(source)
        numeric = gradient(
            lambda ln, model=model, source=source: (
                replace(model, noise_variance=float(np.exp(ln[0]))).forward(source).value
            ),
            np.log([0.1]),
        )
        assert_close(own.log_noise_variance, numeric[0])


def test_the_exact_gp_and_neighbours_of_groups_are_those_of_single_rows() -> None:
    rows = _repeated()
    grouped = group_rows(rows).rows
    exact = ExactGP(KERNEL, 0.1)
    expected = exact.forward(ArraySource.of(_once(rows))).value
    assert exact.forward(ArraySource.of(grouped)).value == pytest.approx(expected, rel=1e-10)
    vecchia = replace(VecchiaPass.of(KERNEL, B, 0.1, 1e-8), jitter=0.0)
    source = NeighborSource.of(grouped, np.ones(1), 9)
    assert vecchia.forward(source).value == pytest.approx(expected, rel=1e-8)


def test_the_function_of_the_evidence_shares_residuals_of_equal_inputs() -> None:
    single = _once(_repeated())
    found = log_marginal_likelihood(
        single.X,
        single.y,
        inducing_points=B,
        kernel=KERNEL,
        noise_variance=0.1,
        residual="diagonal",
        jitter=1e-6,
    )
    model = _model(residual=True, jitter=Jitter(absolute=1e-6))
    assert found == pytest.approx(-dense.negative_log_evidence(model, single.X, single.y))


FAST: dict[str, Any] = {"random_state": 0, "optimizer": LBFGS(n_restarts=3, max_iter=20)}
HELD: dict[str, Any] = {
    "inducing_points": np.linspace(-2.0, 2.0, 6)[:, None],
    "optimizer": LBFGS(max_iter=0),
    "random_state": 0,
}
"""Exact copies say that there is no noise, where a residual explains all else; that is chaotic."""
METHODS: dict[str, Any] = {
    "EigenGP": EigenGPRegressor(6, residual=None, **FAST),
    "default size": EigenGPRegressor(residual=None, **FAST),
    "EigenGP+": EigenGPRegressor(6, residual="diagonal", **HELD),
    "heteroscedastic": EigenGPRegressor(6, residual=None, likelihood="heteroscedastic", **FAST),
    "neighbors": EigenGPRegressor(6, residual="neighbors", n_neighbors=8, **HELD),
    "FITC": FITCRegressor(6, **HELD),
    "exact": ExactGPRegressor(**FAST),
}


@pytest.mark.parametrize("name", METHODS)
def test_whole_weights_are_repeated_rows(name: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(62, 1))
    y = np.sin(3.0 * X[:, 0]) + np.exp(0.8 * X[:, 0] - 2.0) * rng.normal(size=62)
    count = rng.integers(1, 4, size=62)
    # Rows that differ a little in their targets are not merged when they are read.
    nearly = np.repeat(y, count) + 1e-10 * rng.normal(size=count.sum())
    repeated = METHODS[name].fit(np.repeat(X, count, axis=0), nearly)
    new = np.linspace(-2.0, 2.0, 20)[:, None]
    expected = *repeated.predict(new, return_std=True), repeated.log_marginal_likelihood_
    weighted = METHODS[name].fit(X, y, sample_weight=count.astype(float))
    found = *weighted.predict(new, return_std=True), weighted.log_marginal_likelihood_
    for own, other in zip(found, expected, strict=True):
        assert_allclose(own, other, rtol=5e-3, atol=5e-3)


def test_draws_of_eigengp_plus_have_the_variance_of_predictions() -> None:
    rng = np.random.default_rng(1)
    X = rng.uniform(-2.0, 2.0, size=(80, 1))
    y = np.sin(3.0 * X[:, 0]) + 0.1 * rng.normal(size=80)
    model = EigenGPRegressor(4, residual="diagonal", **FAST).fit(X, y)
    new = np.array([[0.3], [9.0], [0.3], [9.5]])
    draws = model.sample_y(new, 20_000, random_state=0)
    std = model.predict(new, return_std=True)[1]
    assert_allclose(draws.var(axis=1), std**2 - model.noise_variance_, rtol=0.04, atol=1e-3)
    assert_array_equal(draws[0], draws[2])
    assert abs(np.corrcoef(draws[1], draws[3])[0, 1]) < 0.05
    assert_array_equal(model.sample_y(new[1:2], 20_000, random_state=0)[0], draws[1])


def test_numbers_of_an_input_are_normal_and_its_own() -> None:
    X = np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0]])
    drawn = draw_by_input(X, 100_000, seed=3)
    assert_array_equal(drawn[0], drawn[1])
    assert_allclose(drawn.mean(axis=1), 0.0, atol=0.02)
    assert_allclose(drawn.std(axis=1), 1.0, atol=0.02)
    assert abs(np.corrcoef(drawn[0], drawn[2])[0, 1]) < 0.02
    assert not np.array_equal(draw_by_input(X, 3, seed=4), drawn[:, :3])
