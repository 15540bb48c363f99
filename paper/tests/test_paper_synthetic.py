"""The paper's synthetic data sets, a few runs each; `python paper table1` has all ten."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eigengp.metrics import mnlp, nmse
from paper.methods import build
from paper.problems import problem

FEW = {"n_restarts": 8}
FOLDS = {"n_folds": 3}


def scores(method: str, size: int | None, options: dict[str, Any], data: str, seed: int) -> Any:
    task = problem(data, seed)
    model = build(method, size, seed=seed, standardize=task.standardize, options=options)
    mean, std = model.fit(task.X, task.y).predict(task.X_test, return_std=True)
    return nmse(task.y_test, mean, train_mean=task.y.mean()), mnlp(task.y_test, mean, std)


@pytest.mark.parametrize(
    ("method", "size", "options", "most_nmse", "most_mnlp"),
    [
        ("EigenGP, guarded", 7, FEW, 0.0045, -0.335),
        ("EigenGP*, guarded", 7, FEW, 0.0045, -0.335),
        ("EigenGP+", 7, FEW, 0.014, -0.08),
        ("FITC", 7, FEW, 0.02, -0.07),
        ("SSGP", 7, {}, 0.54, 1.22),
        ("RVM", None, FOLDS, 0.048, -0.2),
        ("exact GP", None, {}, 1e-6, -0.147),
    ],
)
def test_data_set_1_is_close_to_the_exact_gp(
    method: str, size: int | None, options: dict[str, Any], most_nmse: float, most_mnlp: float
) -> None:
    found = scores(method, size, options, "snelson", 0)
    assert found[0] <= most_nmse
    assert found[1] <= most_mnlp


@pytest.mark.parametrize(
    ("method", "size", "options", "runs", "most_nmse", "most_mnlp"),
    [
        ("EigenGP, guarded", 14, FEW, 2, 0.035, 0.34),
        ("EigenGP*, guarded", 14, FEW, 2, 0.035, 0.34),
        ("SSGP", 14, {}, 2, 0.22, 0.87),
        ("RVM", None, FOLDS, 1, 0.05, 0.36),
    ],
)
def test_data_set_2_is_followed_where_it_is_calm_and_where_it_is_wild(
    method: str,
    size: int | None,
    options: dict[str, Any],
    runs: int,
    most_nmse: float,
    most_mnlp: float,
) -> None:
    found = [scores(method, size, options, "nonstationary", run) for run in range(runs)]
    assert np.mean(found, axis=0)[0] <= most_nmse
    assert np.mean(found, axis=0)[1] <= most_mnlp
