"""Data sets that are made on the spot, and the data set as an object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from eigengp import ExactGPRegressor, datasets
from eigengp.datasets import Dataset


def test_the_nonstationary_set_is_x_sin_x_cubed_plus_noise_on_an_even_grid() -> None:
    data = datasets.make_nonstationary(n=4000, noise=0.5, random_state=0)
    x = data.X[:, 0]
    np.testing.assert_array_equal(x, np.linspace(0.0, 3.0, 4000))
    noise = data.y - x * np.sin(x**3)
    assert abs(noise.mean()) < 4 * 0.5 / np.sqrt(4000)
    assert noise.std() == pytest.approx(0.5, rel=0.05)
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < 0.06
    assert data.X_test is not None
    np.testing.assert_array_equal(data.X_test[:, 0], np.linspace(0.0, 3.0, 500))
    np.testing.assert_array_equal(data.f_test, datasets.nonstationary_function(data.X_test[:, 0]))


def test_without_noise_the_targets_are_the_function() -> None:
    data = datasets.make_nonstationary(n=7, noise=0.0)
    np.testing.assert_array_equal(data.y, datasets.nonstationary_function(data.X[:, 0]))


def test_the_grids_are_those_of_the_authors(paper_data: Callable[[str], Any]) -> None:
    made, theirs = datasets.make_nonstationary(), paper_data("nonstationary_test")
    assert made.X_test is not None
    np.testing.assert_allclose(made.X_test[:, 0], theirs["x"], atol=1e-15)
    np.testing.assert_allclose(made.f_test, theirs["f"], atol=1e-13)
    inputs = np.unique(paper_data("nonstationary")["x"])
    np.testing.assert_allclose(made.X[:, 0], inputs, atol=1e-15)


def test_the_snelson_like_rows_scatter_about_the_curve_and_are_thin_near_the_left_end() -> None:
    data = datasets.make_snelson_like(n=20_000, random_state=0)
    x = data.X[:, 0]
    noise = data.y - datasets.snelson_like_function(x)
    assert abs(noise.mean()) < 4 * 0.28 / np.sqrt(20_000)
    assert noise.std() == pytest.approx(0.28, rel=0.02)
    assert x.min() >= 0.0
    assert x.max() <= 6.0
    assert np.mean((x > 0.5) & (x < 1.0)) == pytest.approx(0.04, abs=0.006)
    assert np.mean(x < 0.5) == pytest.approx(0.095, abs=0.009)
    assert np.mean(x > 3.5) == pytest.approx(0.865 / 2, abs=0.015)


def test_the_exact_gp_learns_from_snelson_like_rows_what_it_learns_from_snelsons() -> None:
    data = datasets.make_snelson_like(n=200, random_state=1)
    model = ExactGPRegressor(standardize=False, n_restarts=1, random_state=0).fit(data.X, data.y)
    assert float(np.ravel(model.kernel_.lengthscale)[0]) == pytest.approx(0.612, rel=0.15)
    assert np.sqrt(model.kernel_.variance) == pytest.approx(0.877, rel=0.15)
    assert np.sqrt(model.noise_variance_) == pytest.approx(0.282, rel=0.1)


@pytest.mark.parametrize("make", [datasets.make_nonstationary, datasets.make_snelson_like])
def test_a_seed_is_the_same_rows_and_another_seed_others(make: Callable[..., Dataset]) -> None:
    first, second, other = make(random_state=3), make(random_state=3), make(random_state=4)
    np.testing.assert_array_equal(first.X, second.X)
    np.testing.assert_array_equal(first.y, second.y)
    assert not np.array_equal(first.y, other.y)
    rng = np.random.RandomState(3)
    np.testing.assert_array_equal(make(random_state=rng).y, first.y)
    assert not np.array_equal(make(random_state=rng).y, first.y)
    assert first.X.shape == (200, 1)
    assert first.X.dtype == first.y.dtype == np.float64


def test_makers_refuse_sizes_and_noise_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        datasets.make_snelson_like(n=0)
    for noise in (-0.1, np.nan, np.inf):
        with pytest.raises(ValueError, match="noise must be finite and not negative"):
            datasets.make_nonstationary(noise=noise)


def test_a_split_is_the_permutation_of_the_benchmarks() -> None:
    data = datasets.make_snelson_like(n=50, random_state=0)
    train, test = data.split(30, seed=5)
    order = np.random.default_rng(5).permutation(50)
    np.testing.assert_array_equal(train.X, data.X[order[:30]])
    np.testing.assert_array_equal(train.y, data.y[order[:30]])
    np.testing.assert_array_equal(test.X, data.X[order[30:]])
    np.testing.assert_array_equal(test.y, data.y[order[30:]])


def test_a_split_takes_the_usual_size_unless_told_and_needs_one() -> None:
    data = Dataset("small", np.zeros((9, 1)), np.arange(9.0), ("x",), "", n_train=6)
    assert [part.y.size for part in data.split()] == [6, 3]
    assert [part.y.size for part in data.split(2)] == [2, 7]
    with pytest.raises(ValueError, match=r"small has no usual split: say how many of its 6 rows"):
        data.split()[0].split()
    for n_train in (0, 9, 10, -1):
        with pytest.raises(ValueError, match=rf"from 1 to 8 for small, got {n_train}"):
            data.split(n_train)


def test_a_split_of_runs_splits_every_run() -> None:
    X, runs = np.arange(4.0)[:, None], np.arange(8.0).reshape(2, 4)
    data = Dataset("two", X, runs[0], ("x",), "", y_runs=runs)
    train, _ = data.split(3)
    np.testing.assert_array_equal(train.run(2).y, train.run(1).y + 4.0)
    assert repr(data) == "<Dataset two: 4 rows, 1 input, 2 runs>"


def test_runs_count_from_one() -> None:
    data = datasets.make_nonstationary(n=5)
    assert data.run(1) is data
    for number in (0, 2):
        with pytest.raises(ValueError, match=rf"from 1 to 1 for nonstationary, got {number}"):
            data.run(number)


def test_arrays_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="do not belong together"):
        Dataset("odd", np.zeros((3, 2)), np.zeros(3), ("a",), "")
