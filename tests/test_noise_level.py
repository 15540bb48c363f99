"""The noise level chosen by leave-one-out."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from eigengp import LBFGS, EigenGPRegressor, SquaredExponential
from eigengp.fitting.model_selection import Decision
from eigengp.fitting.noise_level import _sum_squares_of_group, choose_noise
from eigengp.gp.blocks import RowBlock, group_rows
from eigengp.gp.exact import ExactGP


def draw(n: int, noise: float, seed: int = 0) -> RowBlock:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 1))
    y = np.sin(2 * X[:, 0]) + noise * rng.normal(size=n)
    return RowBlock(X, (y - y.mean()) / y.std())


@pytest.mark.parametrize(("start", "factor"), [(0.004, 4.0), (0.3, 1.0), (400.0, 0.25)])
def test_a_wrong_level_moves_towards_the_right_one(start: float, factor: float) -> None:
    rows = draw(300, 0.5)
    model = ExactGP(SquaredExponential([0.05], 1.0), start)
    found, decisions = choose_noise(model, [rows])
    ratio = found.noise_variance / start
    assert (ratio > 1.0) == (factor > 1.0)
    assert (ratio < 1.0) == (factor < 1.0)
    assert len(decisions) == (factor != 1.0)


def test_a_useless_mean_is_smoothed() -> None:
    rng = np.random.default_rng(0)
    y = rng.standard_t(2, size=200)
    rows = RowBlock(rng.normal(size=(200, 3)), (y - y.mean()) / y.std())
    found, _ = choose_noise(ExactGP(SquaredExponential([0.5] * 3, 1.0), 0.2), [rows])
    assert found.noise_variance > 0.2


def test_repeated_inputs_leave_one_row_out_and_keep_the_others() -> None:
    rng = np.random.default_rng(0)
    X = np.repeat(rng.uniform(-2, 2, (12, 1)), 3, axis=0)
    rows = RowBlock(X, rng.normal(size=36))
    model = ExactGP(SquaredExponential([0.8], 1.0), 0.3)
    mean, _ = model.posterior(model.forward(rows)).leave_one_out(rows)
    groups = group_rows(rows)
    expected = np.bincount(groups.number, (rows.y - mean) ** 2)
    np.testing.assert_allclose(_sum_squares_of_group(model, groups.rows), expected, rtol=1e-8)


def test_groups_count_together() -> None:
    parts = [draw(200, 0.5, seed) for seed in (0, 1)]
    model = ExactGP(SquaredExponential([0.05], 1.0), 0.004)
    _, (decision,) = choose_noise(model, parts, 2)
    alone = [_sum_squares_of_group(model, each).sum() for each in parts]
    assert decision.scores["× 1"] == pytest.approx(sum(alone) / 400)


@pytest.mark.parametrize(("n", "module"), [(300, "exact"), (2_100, "vecchia")])
def test_variances_do_not_depend_on_the_level(
    n: int, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def multiply(model: ExactGP, *_: Any) -> tuple[ExactGP, list[Decision]]:
        noise = 8.0 * model.noise_variance
        return replace(model, noise_variance=noise), [Decision("noise", "× 8", "a test")]

    rows, new = draw(n, 0.5), draw(2_000, 0.5, seed=1)
    first = EigenGPRegressor(kernel="matern52", random_state=0).fit(rows.X, rows.y)
    monkeypatch.setattr(f"eigengp.fitting.{module}.choose_noise", multiply)
    model = EigenGPRegressor(kernel="matern52", random_state=0).fit(rows.X, rows.y)
    assert model.selection_["noise"].chosen == "× 8"
    assert model.noise_variance_ == pytest.approx(8.0 * first.noise_variance_, rel=1e-6)
    mean, std = model.predict(new.X, return_std=True)
    assert 0.86 < np.mean(np.abs(new.y - mean) < 1.645 * std) < 0.94
    given = EigenGPRegressor(kernel="matern52", likelihood="gaussian", random_state=0)
    assert "noise" not in given.fit(rows.X, rows.y).selection_


def test_weights_count_alike_whether_or_not_other_rows_repeat_an_input() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.uniform(0.0, 1.0, (50, 1)), rng.normal(size=50)
    model = ExactGP(SquaredExponential(0.05), 0.3)
    weighted = RowBlock(X, y, np.full(50, 3.0))
    assert_allclose(
        _sum_squares_of_group(model, replace(weighted, scatter=np.zeros(50))),
        _sum_squares_of_group(model, weighted),
    )


def test_few_rows_with_neighbours_keep_their_noise() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.uniform(0.0, 1.0, (60, 1)), rng.normal(size=60)
    optimizer = LBFGS(max_iter=1, n_restarts=1)
    own = {"kernel": SquaredExponential(0.1), "optimizer": optimizer, "random_state": 0}
    model = EigenGPRegressor(residual="neighbors", **own).fit(X, y)
    assert "noise" not in model.selection_
    assert model.predict(X, return_std=True)[1].max() < 2.0


def test_a_default_fit_of_few_rows_loads_no_compiler() -> None:
    program = """
import sys, numpy as np
from eigengp import EigenGPRegressor
rng = np.random.default_rng(0)
X = rng.normal(size=(120, 2))
EigenGPRegressor(max_time=1.0, random_state=0).fit(X, X[:, 0] + rng.normal(size=120))
assert "numba" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)
