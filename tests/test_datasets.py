"""Synthetic data sets have the stated curve, inputs and noise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from eigengp import LBFGS, ExactGPRegressor, datasets
from eigengp.datasets import Dataset


def test_the_nonstationary_set_is_x_sin_x_cubed_plus_noise_on_an_even_grid() -> None:
    data = datasets.make_nonstationary(n=4000, noise=0.5, random_state=0)
    x = data.X[:, 0]
    np.testing.assert_array_equal(x, np.linspace(0.0, 3.0, 4000))
    noise = data.y - x * np.sin(x**3)
    assert abs(noise.mean()) < 4 * 0.5 / np.sqrt(4000)
    assert noise.std() == pytest.approx(0.5, rel=0.05)
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < 0.06
    np.testing.assert_array_equal(data.X_test[:, 0], np.linspace(0.0, 3.0, 500))
    np.testing.assert_array_equal(data.f_test, datasets.nonstationary_function(data.X_test[:, 0]))


def test_without_noise_the_targets_are_the_function() -> None:
    data = datasets.make_nonstationary(n=7, noise=0.0)
    np.testing.assert_array_equal(data.y, datasets.nonstationary_function(data.X[:, 0]))


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
    model = ExactGPRegressor(
        mean="zero", optimizer=LBFGS(n_restarts=1), standardize=False, random_state=0
    ).fit(data.X, data.y)
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
