"""The paper's synthetic data sets, a few runs each; benchmarks/synthetic.py has all ten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from eigengp import (
    EigenGPRegressor,
    ExactGPRegressor,
    FITCRegressor,
    RVMRegressor,
    SquaredExponential,
    SSGPRegressor,
)
from eigengp.metrics import mnlp, nmse


def scores(model: Any, data: Any, grid: Any, truth: Any) -> tuple[float, float]:
    mean, std = model.fit(data["x"][:, None], data["y"]).predict(grid, return_std=True)
    return nmse(truth, mean, train_mean=data["y"].mean()), mnlp(truth, mean, std)


@pytest.mark.parametrize(
    ("model", "most_nmse", "most_mnlp"),
    [
        (EigenGPRegressor(7, n_restarts=8), 0.0045, -0.335),
        (EigenGPRegressor(7, n_restarts=8, optimization="joint"), 0.0045, -0.335),
        (EigenGPRegressor(7, n_restarts=8, residual="diagonal"), 0.014, -0.08),
        (FITCRegressor(7, n_restarts=8), 0.02, -0.07),
        (SSGPRegressor(7), 0.54, 1.22),
        (RVMRegressor(n_folds=3, n_jobs=1), 0.048, -0.2),
        (ExactGPRegressor(), 1e-6, -0.147),
    ],
    ids=str,
)
def test_data_set_1_is_close_to_the_exact_gp(
    model: Any, most_nmse: float, most_mnlp: float, paper_data: Callable[[str], Any]
) -> None:
    data, grid = paper_data("snelson"), paper_data("snelson_test")["x"][:, None]
    grid = grid[(grid[:, 0] >= -1) & (grid[:, 0] <= 7)]
    kernel, X = SquaredExponential(0.61234, 0.87702**2), data["x"][:, None]
    covariance = kernel(X) + 0.28222**2 * np.eye(200)
    exact = kernel(grid, X) @ np.linalg.solve(covariance, data["y"])
    assert grid.shape == (184, 1)
    model.set_params(standardize=False, random_state=0)
    found = scores(model, data, grid, exact)
    assert found[0] <= most_nmse
    assert found[1] <= most_mnlp


@pytest.mark.parametrize(
    ("model", "runs", "most_nmse", "most_mnlp"),
    [
        (EigenGPRegressor(14, n_restarts=8), 2, 0.035, 0.34),
        (EigenGPRegressor(14, n_restarts=8, optimization="joint"), 2, 0.035, 0.34),
        (SSGPRegressor(14), 2, 0.22, 0.87),
        (RVMRegressor(n_folds=3, n_jobs=1), 1, 0.05, 0.36),
    ],
    ids=str,
)
def test_data_set_2_is_followed_where_it_is_calm_and_where_it_is_wild(
    model: Any, runs: int, most_nmse: float, most_mnlp: float, paper_data: Callable[[str], Any]
) -> None:
    data, test = paper_data("nonstationary"), paper_data("nonstationary_test")
    found = [
        scores(
            model.set_params(random_state=run),
            data[data["run"] == run],
            test["x"][:, None],
            test["f"],
        )
        for run in range(1, runs + 1)
    ]
    assert np.mean(found, axis=0)[0] <= most_nmse
    assert np.mean(found, axis=0)[1] <= most_mnlp
