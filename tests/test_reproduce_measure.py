"""A record tells what a run has found, and the problems are those of the paper."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from eigengp import ExactGPRegressor, SquaredExponential, datasets, metrics
from eigengp.reproduce.measure import measure, rounded
from eigengp.reproduce.problems import SOURCES, problem
from eigengp.reproduce.runs import Run

DATA = "nonstationary-made"
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
    task, data = problem("snelson-like", 1), datasets.make_snelson_like(random_state=1)
    assert not task.standardize
    assert task.X_test[[0, -1], 0].tolist() == [-1.0, 7.0]
    exact = ExactGPRegressor(standardize=False, random_state=0).fit(data.X, data.y)
    np.testing.assert_allclose(task.y_test, exact.predict(task.X_test), rtol=1e-6)
    K = exact.kernel_(data.X, data.X) + exact.noise_variance_ * np.eye(data.y.size)
    mean = exact.kernel_(task.X_test, data.X) @ np.linalg.solve(K, data.y)
    np.testing.assert_allclose(task.y_test, mean, rtol=1e-5, atol=1e-8)
    assert isinstance(exact.kernel_, SquaredExponential)


def test_data_set_2_is_measured_against_the_true_function() -> None:
    task = problem(DATA, 2)
    np.testing.assert_allclose(task.y_test, datasets.nonstationary_function(task.X_test[:, 0]))
    assert not np.array_equal(task.y, problem(DATA, 3).y)


@pytest.mark.parametrize("name", ["friedman1", "friedman2", "friedman3"])
def test_built_in_problems_are_standardised_by_the_training_rows(name: str) -> None:
    task = problem(name, 0)
    assert (task.y.mean(), task.y.std()) == (pytest.approx(0.0, abs=1e-12), pytest.approx(1.0))
    assert task.y_test.std() == pytest.approx(1.0, abs=0.2)
    assert not task.is_curve
    assert not np.array_equal(task.X, problem(name, 1).X)


def test_the_papers_own_data_are_used_where_they_are(
    named_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("nonstationary", "snelson", "pole"):
        monkeypatch.setenv("EIGENGP_DATA", str(named_folder(f"{name}.parquet")))
    draws = datasets.fetch_nonstationary()
    np.testing.assert_array_equal(SOURCES["nonstationary"].load(4).y, draws.run(5).y)
    snelson = SOURCES["snelson"].load(0)
    assert snelson.X.shape == (200, 1)
    assert snelson.X_test.min() >= -1.0
    assert snelson.X_test.max() <= 7.0
    pole = SOURCES["pole"].load(0)
    assert (len(pole.X), len(pole.X_test)) == (10_000, 5_000)
    assert (pole.y.mean(), pole.y.std()) == (pytest.approx(0.0, abs=1e-9), pytest.approx(1.0))
