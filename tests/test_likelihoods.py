"""Gaussian noise: its parameters, and rows that differ in their weights."""

from __future__ import annotations

import numpy as np
import pytest

from eigengp import LBFGS, EigenGPRegressor, Gaussian, SquaredExponential
from eigengp.data.array_source import ArraySource
from eigengp.fitting.objectives import NOISE_RANGE, kernel_parameters
from eigengp.gp.blocks import RowBlock
from eigengp.gp.exact import ExactGP
from eigengp.gp.model import EigenGP, Jitter


def _rows(n: int = 40) -> RowBlock:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 1))
    return RowBlock(X, np.sin(2 * X[:, 0]) + 0.1 * (1 + X[:, 0] ** 2) * rng.normal(size=n))


def test_a_weight_divides_the_noise_variance_of_a_row() -> None:
    rows, kernel = _rows(), SquaredExponential(0.7)
    pseudo = RowBlock(rows.X, rows.y, 1.0 / (1.0 + rows.X[:, 0] ** 2) ** 2)
    points = np.linspace(-2, 2, 40)[:, None]
    model = EigenGP(kernel, points, 0.01, 40, jitter=Jitter(1e-8))
    posterior = model.posterior(model.forward(ArraySource.of(pseudo)))
    noise = np.diag(0.01 * (1 + rows.X[:, 0] ** 2) ** 2)
    K = kernel.matrix(rows.X, rows.X) + noise
    X = np.linspace(-1.5, 1.5, 7)[:, None]
    expected = kernel.matrix(X, rows.X) @ np.linalg.solve(K, rows.y)
    np.testing.assert_allclose(posterior.mean(X), expected, atol=1e-4)


def test_the_noise_variance_is_learned_within_its_bounds() -> None:
    free = kernel_parameters(ExactGP(SquaredExponential(np.ones(1)), 0.2))
    vector = free.start
    assert vector[-1] == pytest.approx(np.log(0.2))
    assert tuple(each[-1] for each in free.bounds) == tuple(np.log(NOISE_RANGE))
    assert free.unpack(vector + 1.0).noise_variance == pytest.approx(0.2 * np.e)


def test_the_pull_back_of_the_noise_agrees_with_finite_differences() -> None:
    source, kernel = ArraySource.of(_rows()), SquaredExponential(np.array([0.7]))
    points = np.linspace(-2, 2, 8)[:, None]

    def value(factor: float) -> float:
        return EigenGP(kernel, points, 0.05 * factor, 8, jitter=Jitter(1e-8)).value(source)

    _, gradient = EigenGP(kernel, points, 0.05, 8, jitter=Jitter(1e-8)).evaluate(source)
    slope = (value(np.exp(1e-5)) - value(np.exp(-1e-5))) / 2e-5
    assert gradient.log_noise_variance == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("variance", [0.0, -1.0, np.inf, np.nan, "small"])
def test_bad_variances_are_refused(variance: object) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        Gaussian(variance)  # type: ignore[arg-type]


def test_the_start_of_the_noise_is_obeyed() -> None:
    X, y = _rows().X, _rows().y
    frozen = LBFGS(max_iter=0)
    model = EigenGPRegressor(5, likelihood=Gaussian(0.3), optimizer=frozen, random_state=0)
    assert model.fit(X, y).noise_variance_ == pytest.approx(0.3)
