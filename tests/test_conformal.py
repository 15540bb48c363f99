"""Calibration: what is measured of error bars, and intervals that hold what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from eigengp import LBFGS, EigenGPRegressor, conformal, metrics


def _honest(n: int, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=n), rng.uniform(0.5, 2.0, n)
    return mean + scale * std * rng.normal(size=n), mean, std


def test_honest_predictions_are_uniform_and_cover_what_they_say() -> None:
    y, mean, std = _honest(20_000)
    density, edges = metrics.pit_histogram(y, mean, std)
    assert_allclose(density, 1.0, atol=0.08)
    assert edges.size == 11
    levels, held = metrics.coverage_curve(y, mean, std)
    assert_allclose(held, levels, atol=0.02)


def test_too_narrow_error_bars_are_seen() -> None:
    y, mean, std = _honest(5_000, scale=2.0)
    density, _ = metrics.pit_histogram(y, mean, std)
    assert density[0] > 1.5
    assert density[-1] > 1.5
    _, held = metrics.coverage_curve(y, mean, std, [0.9])
    assert held[0] < 0.7


def test_conformal_intervals_hold_their_coverage_on_average_over_small_samples() -> None:
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(2_000):
        scores = np.sort(np.abs(rng.standard_cauchy(29)))
        inside.append(np.abs(rng.standard_cauchy()) <= conformal.conformal_factor(scores, 0.9))
    assert 0.88 < np.mean(inside) < 0.93


def _heavy(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise with heavy tails, for which Gaussian intervals of 50 % are too wide."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, size=(n, 1))
    return X, np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_t(2, size=n)


def test_a_calibrated_model_holds_a_coverage_that_it_would_miss() -> None:
    X, y = _heavy(200, 0)
    model = EigenGPRegressor(10, optimizer=LBFGS(n_restarts=2, max_iter=50), random_state=0).fit(
        X, y
    )
    Z, z = _heavy(4_000, 1)
    before = _covered(model, Z, z)
    assert model.calibrate(*_heavy(1_000, 2)) is model
    after = _covered(model, Z, z)
    assert abs(after - 0.5) < 0.03
    assert before > 0.6
    model.partial_fit(X[:1], y[:1])
    assert not hasattr(model, "conformity_")
    model.fit(X, y)
    assert _covered(model, Z, z) == before


def _covered(model: EigenGPRegressor, Z: np.ndarray, z: np.ndarray) -> float:
    lower, upper = model.predict_interval(Z, coverage=0.5)
    return float(np.mean((lower <= z) & (z <= upper)))


def test_what_cannot_be_promised_is_refused() -> None:
    X, y = _heavy(60, 0)
    model = EigenGPRegressor(5, optimizer=LBFGS(n_restarts=1, max_iter=5), random_state=0).fit(X, y)
    model.calibrate(X[:8], y[:8])
    with pytest.raises(ValueError, match="it takes at least 9"):
        model.predict_interval(X, coverage=0.9)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.calibrate(X[:8], y[:7])
    with pytest.raises(ValueError, match="must be strictly positive"):
        metrics.pit([0.0], [0.0], [0.0])
    with pytest.raises(ValueError, match="strictly between"):
        metrics.coverage_curve([0.0], [0.0], [1.0], [1.0])
