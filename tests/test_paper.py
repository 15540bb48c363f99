"""The paper's synthetic data sets, a few runs each; benchmarks/synthetic.py has all ten."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from eigengp import EigenGPRegressor, SquaredExponential

SharedData = Callable[[str], Path]


def scores(
    model: EigenGPRegressor, grid: Any, truth: Any, train_mean: float
) -> tuple[float, float]:
    mean, std = model.predict(grid, return_std=True)
    nmse = np.sum((truth - mean) ** 2) / np.sum((truth - train_mean) ** 2)
    mnlp = 0.5 * np.mean(((truth - mean) / std) ** 2 + 2 * np.log(std) + np.log(2 * np.pi))
    return float(nmse), float(mnlp)


@pytest.mark.parametrize(
    ("settings", "nmse", "mnlp"),
    [
        ({}, 0.0045, -0.335),
        ({"optimization": "joint"}, 0.0045, -0.335),
        ({"residual": "diagonal"}, 0.014, -0.08),
    ],
)
def test_data_set_1_is_close_to_the_exact_gp(
    shared_data: SharedData, settings: dict[str, Any], nmse: float, mnlp: float
) -> None:
    frame = pd.read_parquet(shared_data("snelson.parquet"))
    grid = pd.read_parquet(shared_data("snelson_test.parquet")).to_numpy(float)
    grid = grid[(grid[:, 0] >= -1) & (grid[:, 0] <= 7)]
    X, y = frame[["x"]].to_numpy(float), frame["y"].to_numpy(float)
    kernel = SquaredExponential(0.61234, 0.87702**2)
    exact = kernel(grid, X) @ np.linalg.solve(kernel(X) + 0.28222**2 * np.eye(200), y)
    assert grid.shape == (184, 1)
    model = EigenGPRegressor(7, standardize=False, random_state=0, **settings).fit(X, y)
    found = scores(model, grid, exact, y.mean())
    assert found[0] <= nmse
    assert found[1] <= mnlp


@pytest.mark.parametrize("optimization", ["sequential", "joint"])
def test_data_set_2_is_followed_where_it_is_calm_and_where_it_is_wild(
    shared_data: SharedData, optimization: Any
) -> None:
    frame = pd.read_parquet(shared_data("nonstationary.parquet"))
    grid = pd.read_parquet(shared_data("nonstationary_test.parquet"))
    found = []
    for run in (1, 2, 3):
        rows = frame[frame["run"] == run]
        X, y = rows[["x"]].to_numpy(float), rows["y"].to_numpy(float)
        model = EigenGPRegressor(14, optimization=optimization, random_state=run).fit(X, y)
        found.append(scores(model, grid[["x"]].to_numpy(float), grid["f"].to_numpy(), y.mean()))
    assert np.mean(found, axis=0)[0] <= 0.035
    assert np.mean(found, axis=0)[1] <= 0.34
