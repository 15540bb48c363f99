"""A record tells what a run has found, and the problems are those of the paper."""

from __future__ import annotations

import json

import numpy as np
import pytest

from eigengp import SquaredExponential, metrics
from eigengp.datasets import make_nonstationary, nonstationary_function
from paper.measure import measure, rounded
from paper.problems import MORE_ROWS, fixed_draw, problem
from paper.runs import Run

DATA = "nonstationary"
QUICKLY = (("max_iter", 2), ("n_restarts", 1))


def test_a_record_has_the_numbers_that_its_curves_give() -> None:
    run = Run(DATA, "EigenGP", 6, 3, QUICKLY)
    record, task = measure(run), problem(DATA, 3)
    mean, std = (np.array(record["curves"][name]) for name in ("mean", "std"))
    nmse = np.sum((task.y_test - mean) ** 2) / np.sum((task.y_test - task.y.mean()) ** 2)
    assert record["nmse"] == pytest.approx(nmse, rel=1e-6)
    assert record["mnlp"] == pytest.approx(metrics.mnlp(task.y_test, mean, std), rel=1e-6)
    assert np.shape(record["curves"]["eigenfunctions"]) == (5, task.y_test.size)
    assert np.shape(record["hyperparameters"]["inducing_points"]) == (6, 1)
    assert record["options"] == {"max_iter": 2, "n_restarts": 1}
    assert record["seconds"] > 0
    assert (record["key"], record["seed"], record["size"]) == (run.key, 3, 6)
    assert json.loads(json.dumps(record)) == record


def test_the_same_run_gives_the_same_record_but_for_time() -> None:
    first, second = (measure(Run(DATA, "FITC", 5, 1, QUICKLY)) for _ in range(2))
    for name in ("nmse", "mnlp", "log_evidence", "hyperparameters", "curves", "iterations"):
        assert first[name] == second[name]


def test_a_run_begins_from_the_kernel_and_noise_of_its_start() -> None:
    start = {"hyperparameters": {"lengthscale": [0.3], "variance": 2.5, "noise_variance": 0.07}}
    run = Run(DATA, "EigenGP", 5, options=(("max_iter", 0),), start=Run(DATA, "exact GP"))
    found = measure(run, start)["hyperparameters"]
    for name, value in start["hyperparameters"].items():
        assert found[name] == pytest.approx(value)


def test_warnings_of_a_fit_are_written_down_and_not_raised() -> None:
    record = measure(Run(DATA, "RVM", options=(("max_iter", 2), ("lengthscale", 1.0))))
    assert ["has not converged in 2 iterations" in text for text in record["warnings"]] == [True]
    assert measure(Run(DATA, "EigenGP", 5, options=QUICKLY))["warnings"] == []


def test_large_problems_leave_no_curves() -> None:
    record = measure(Run("friedman1", "SSGP", 5, options=QUICKLY, share=10))
    assert "curves" not in record
    assert np.shape(record["hyperparameters"]["spectral_points"])[1] == 10


def test_a_share_of_the_rows_is_drawn_from_them() -> None:
    task = problem("friedman1", 0)
    thinned = task.thinned(10, seed=0)
    n_kept = len(task.X) // 10
    assert thinned.X.shape == (n_kept, 10)
    assert n_kept > 50
    rows = {tuple(x): y for x, y in zip(task.X, task.y, strict=True)}
    assert all(rows[tuple(x)] == y for x, y in zip(thinned.X, thinned.y, strict=True))
    assert thinned.X_test is task.X_test
    assert not np.array_equal(thinned.X, task.thinned(10, seed=1).X)
    assert not np.array_equal(thinned.X, task.X[:n_kept])


def test_numbers_are_kept_with_eight_digits() -> None:
    assert rounded([[1.23456789012, -9.87654321098e-7]]) == [[1.2345679, -9.8765432e-7]]


def test_data_set_1_is_measured_against_the_mean_of_the_exact_gp() -> None:
    task = problem("snelson", 1)
    assert not task.standardize
    assert task.X.shape == (200, 1)
    assert task.X_test.shape == (184, 1)
    assert task.X_test.min() >= -1.0
    assert task.X_test.max() <= 7.0
    kernel = SquaredExponential(0.61234, 0.87702**2)
    covariance = kernel(task.X) + 0.28222**2 * np.eye(200)
    exact = kernel(task.X_test, task.X) @ np.linalg.solve(covariance, task.y)
    np.testing.assert_allclose(task.y_test, exact, atol=2e-4)


def test_data_set_2_is_the_authors_ten_draws_against_the_true_function() -> None:
    draws = [problem(DATA, seed) for seed in range(10)]
    truth = nonstationary_function(draws[0].X[:, 0])
    noise = np.array([task.y - truth for task in draws])
    np.testing.assert_allclose(noise.std(axis=1), 0.5, rtol=0.2)
    assert np.abs(np.corrcoef(noise) - np.eye(10)).max() < 0.3
    for task in draws:
        np.testing.assert_allclose(
            task.y_test, nonstationary_function(task.X_test[:, 0]), atol=1e-9
        )
    made = make_nonstationary()
    np.testing.assert_allclose(made.X, draws[0].X, atol=1e-15)
    np.testing.assert_allclose(made.X_test, draws[0].X_test, atol=1e-15)


def test_a_fixed_draw_is_the_same_for_every_seed() -> None:
    for seed in (0, 5):
        np.testing.assert_array_equal(problem(fixed_draw(3), seed).y, problem(DATA, 2).y)
    assert problem(MORE_ROWS, 0).X.shape == (300, 1)
    assert not np.array_equal(problem(MORE_ROWS, 0).y, problem(MORE_ROWS, 1).y)


@pytest.mark.parametrize("name", ["friedman1", "friedman2", "friedman3"])
def test_built_in_problems_are_standardised_by_the_training_rows(name: str) -> None:
    task = problem(name, 0)
    assert (task.y.mean(), task.y.std()) == (pytest.approx(0.0, abs=1e-12), pytest.approx(1.0))
    assert task.y_test.std() == pytest.approx(1.0, abs=0.2)
    assert not task.is_curve
    assert not np.array_equal(task.X, problem(name, 1).X)
