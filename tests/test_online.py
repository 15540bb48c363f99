"""Rows that keep coming: exact updates for fixed eigenfunctions, and learning from batches."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eigengp import LBFGS, EigenGPRegressor, Gaussian, SquaredExponential, Stochastic
from eigengp._typing import Array
from eigengp.data.array_source import ArraySource
from eigengp.fitting.stochastic import Adam, Belief, Reservoir, step_on_batch
from eigengp.gp.blocks import RowBlock
from eigengp.gp.linalg import CholeskyFactor
from eigengp.gp.model import EigenGP, Jitter
from eigengp.metrics import nmse
from finite_differences import assert_close, gradient, symmetric_gradient

pytestmark = pytest.mark.usefixtures("short_search")

rng = np.random.default_rng(0)
X = rng.uniform(-2.0, 2.0, size=(900, 2))
y = 5.0 + np.sin(2.0 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=900)
weight = rng.integers(1, 4, 900).astype(float)
POINTS = rng.uniform(-2.0, 2.0, size=(15, 2))
KERNEL = SquaredExponential(np.array([0.8, 1.1]), 2.0)


def fixed(**settings: Any) -> EigenGPRegressor:
    """Return a regressor that learns nothing but the weights' posterior."""
    own = {"inducing_points": POINTS, "optimizer": LBFGS(max_iter=0)} | settings
    noise, standardize = Gaussian(variance=0.02), {"mean": "zero", "standardize": False}
    return EigenGPRegressor(kernel=KERNEL, likelihood=noise, **standardize, **own)


@pytest.mark.parametrize("residual", [None, "diagonal"])
@pytest.mark.parametrize("components", ["auto", 9])
def test_batches_give_the_posterior_of_all_rows(residual: Any, components: Any) -> None:
    settings = {"residual": residual, "n_components": components}
    whole = fixed(**settings).fit(X, y, sample_weight=weight)
    own = fixed(**settings)
    for rows in np.array_split(np.arange(900), 6):
        own.partial_fit(X[rows], y[rows], sample_weight=weight[rows])
    expected, found = (each.predict(X, return_std=True) for each in (whole, own))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-8)
    assert own.noise_variance_ == pytest.approx(0.02, rel=1e-12)
    evidence = whole.log_marginal_likelihood_
    assert own.log_marginal_likelihood_ == pytest.approx(evidence, rel=1e-8)


def test_memory_does_not_grow() -> None:
    own = fixed().fit(X, y)
    size = len(pickle.dumps(own))
    assert size < 2 * X.nbytes
    before = sum(each.nbytes for each in vars(own._online.sums).values() if hasattr(each, "nbytes"))
    for _ in range(5):
        own.partial_fit(X, y)
    after = sum(each.nbytes for each in vars(own._online.sums).values() if hasattr(each, "nbytes"))
    assert before == after
    assert len(pickle.dumps(own)) < 1.01 * size
    assert own._online.sums.n == 6 * 900


def test_noise_and_weights_are_learned_again() -> None:
    own = EigenGPRegressor(15, optimizer=LBFGS(n_restarts=1, max_iter=40), random_state=0).fit(
        X[:300], y[:300]
    )
    noisier = y + 0.5 * rng.normal(size=900)
    before, points = own.noise_variance_, own.inducing_points_.copy()
    for _ in range(4):
        own.partial_fit(X[300:], noisier[300:])
    assert own.noise_variance_ > 5.0 * before
    assert own.noise_variance_ == pytest.approx((300 * 0.01 + 2400 * 0.26) / 2700, rel=0.15)
    np.testing.assert_array_equal(own.inducing_points_, points)
    assert np.isfinite(own.log_marginal_likelihood_)


def test_forgetting_follows_a_drift() -> None:
    """A slope that turns: old rows mislead, and forgetting them helps."""
    lasting, fading = fixed(), fixed()
    draws = np.random.default_rng(1)
    for phase in np.linspace(0.0, np.pi, 12):
        inputs = draws.uniform(-2.0, 2.0, size=(150, 2))
        targets = np.cos(phase) * np.sin(inputs[:, 0]) + np.sin(phase) * inputs[:, 1]
        for each, kept in ((lasting, 1.0), (fading, 0.5)):
            each.partial_fit(inputs, targets + 0.1 * draws.normal(size=150), forgetting=kept)
    truth = np.cos(np.pi) * np.sin(X[:, 0])
    assert nmse(truth, fading.predict(X)) < 0.2 * nmse(truth, lasting.predict(X))


def test_what_stochastic_learning_cannot_do_is_said() -> None:
    for settings in ({"residual": "diagonal"}, {"inducing_points": 20}):
        own = EigenGPRegressor(10, optimizer=Stochastic(), **settings)
        with pytest.raises(ValueError, match="keeps all eigenfunctions and has no residual"):
            own.fit(X, y)
    with pytest.raises(TypeError, match="partial_fit takes arrays"):
        fixed().partial_fit("data.parquet", "price")


def test_rows_without_weight_are_passed_over() -> None:
    some = np.where(np.arange(900) < 600, 1.0, 0.0)
    optimizer = Stochastic(batch_size=150, n_restarts=4)
    own = EigenGPRegressor(10, optimizer=optimizer, random_state=0)
    own.partial_fit(X[:300], y[:300]).partial_fit(X[300:], y[300:], sample_weight=some[300:])
    assert nmse(y, own.predict(X)) < 0.3


def test_no_iterations_learn_nothing_from_a_stream() -> None:
    own = fixed(optimizer=Stochastic(max_iter=0))
    own.partial_fit(X[:400], y[:400]).partial_fit(X[400:], y[400:])
    np.testing.assert_allclose(own.inducing_points_, POINTS, rtol=1e-12)
    expected = fixed().fit(X, y).predict(X)
    np.testing.assert_allclose(own.predict(X), expected, rtol=1e-8, atol=1e-8)


def test_bad_batches_are_refused_and_nothing_is_lost() -> None:
    own = fixed().fit(X, y)
    before = own.predict(X)
    with pytest.raises(ValueError, match="expecting 2 features"):
        own.partial_fit(X[:, :1], y)
    with pytest.raises(ValueError, match="NaN"):
        own.partial_fit(np.full((3, 2), np.nan), np.zeros(3))
    np.testing.assert_array_equal(own.predict(X), before)
    with pytest.raises(ValueError, match="forgetting"):
        fixed().partial_fit(X, y, forgetting=0.0)


def model_of(points: Array = POINTS, noise: float = 0.1) -> EigenGP:
    return EigenGP(KERNEL, points, noise, points.shape[0], jitter=Jitter(1e-3))


def test_a_whole_step_on_all_rows_is_the_posterior_and_the_gradient_of_the_evidence() -> None:
    own, source = model_of(), ArraySource(X, y - 5.0, weight)
    step = step_on_batch(own, Belief.prior(15), source, float(weight.sum()), rate=1.0)
    outcome, expected = own.evaluate(source)
    m, S = step.belief.compute_moments()
    F = CholeskyFactor.of(own.gram.matrix).matrix
    np.testing.assert_allclose(F @ m, outcome.evidence.mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(F @ S @ F.T, outcome.evidence.covariance, rtol=1e-6, atol=1e-10)
    assert_close(step.gradient.theta, expected.theta, 1e-6)
    assert_close(step.gradient.inducing_points, expected.inducing_points, 1e-6)
    assert step.gradient.log_noise_variance == pytest.approx(expected.log_noise_variance, rel=1e-6)


def test_the_gradient_is_that_of_the_bound_for_any_belief() -> None:
    source, total = ArraySource(X[:60], y[:60] - 5.0), 900.0
    root = rng.normal(size=(15, 15))
    belief = Belief(root @ root.T + 5.0 * np.eye(15), rng.normal(size=15))
    own = model_of()
    step = step_on_batch(own, belief, source, total, rate=0.0)

    def value(model: EigenGP) -> float:
        return step_on_batch(model, belief, source, total, rate=0.0).value

    def with_kernel(theta: Array) -> float:
        return value(replace(own, kernel=KERNEL.with_theta(theta)))

    assert_close(step.gradient.theta, gradient(with_kernel, KERNEL.theta), 1e-6)
    points = gradient(lambda at: value(model_of(at)), POINTS)
    assert_close(step.gradient.inducing_points, points, 1e-6)
    noise = gradient(lambda at: value(model_of(noise=float(np.exp(at)))), np.log(0.1))
    assert_close(step.gradient.log_noise_variance, noise, 1e-6)


def test_the_general_pull_back_of_a_factor_is_the_derivative() -> None:
    root = np.random.default_rng(3).normal(size=(5, 5))
    gram, weights = root @ root.T + np.eye(5), np.random.default_rng(4).normal(size=(5, 5))
    factor = CholeskyFactor.of(gram)
    own = factor.general_pull_back(weights)
    expected = symmetric_gradient(
        lambda at: float(np.vdot(weights, CholeskyFactor.of(at).matrix)), gram
    )
    assert_close(own, expected, 1e-8)


def test_a_reservoir_holds_each_row_with_the_same_chance() -> None:
    counts = np.zeros(200)
    for seed in range(300):
        kept = Reservoir(20, np.random.RandomState(seed))
        for rows in np.array_split(np.arange(200.0), 9):
            kept.add(RowBlock(rows[:, None].copy(), rows.copy(), rows.copy()))
        assert kept.rows.y.shape == (20,)
        assert np.unique(kept.rows.y).size == 20
        np.testing.assert_array_equal(kept.rows.X[:, 0], kept.rows.y)
        np.testing.assert_array_equal(kept.rows.sample_weight, kept.rows.y)
        counts[kept.rows.y.astype(int)] += 1
    assert abs(counts[:100].mean() - counts[100:].mean()) < 3.0
    assert counts.min() > 10
    assert kept.draw(50).y.shape == (20,)


def test_adam_walks_downhill() -> None:
    at, walker = np.array([3.0, -2.0]), Adam()
    for _ in range(500):
        at = at + walker.step(2.0 * at, 0.05)
    assert np.all(np.abs(at) < 0.1)


def test_one_pass_over_a_stream_is_enough() -> None:
    draws = np.random.default_rng(2)
    inputs = draws.uniform(-2.0, 2.0, size=(1_600, 2))
    clean = np.sin(3.0 * inputs[:, 0]) * np.cos(2.0 * inputs[:, 1])
    targets = clean + 0.1 * draws.normal(size=1_600)
    settings = {"optimizer": Stochastic(batch_size=200, n_restarts=8), "random_state": 0}
    own = EigenGPRegressor(30, **settings)
    for rows in np.array_split(np.arange(1_600), 8):
        own.partial_fit(inputs[rows], targets[rows])
    at_once = EigenGPRegressor(30, **settings).fit(inputs, targets)
    for each in (own, at_once):
        mean, std = each.predict(inputs, return_std=True)
        assert nmse(clean, mean) < 0.01
        inside = np.mean(np.abs(targets - mean) < 1.645 * std)
        assert 0.86 < inside < 0.94
    assert at_once.history_[-1]["stage"] == "batches"


@pytest.mark.parametrize("kind", [LBFGS, Stochastic])
def test_a_stream_goes_on_after_it_was_pickled(kind: Any) -> None:
    own = EigenGPRegressor(8, optimizer=kind(n_restarts=1, max_iter=5), random_state=0)
    own.partial_fit(X[:400], y[:400])
    other = pickle.loads(pickle.dumps(own))
    for each in (own, other):
        each.partial_fit(X[400:], y[400:])
    np.testing.assert_array_equal(own.predict(X), other.predict(X))


def test_weighted_batches_are_taken() -> None:
    optimizer = Stochastic(batch_size=200, n_restarts=4)
    own = EigenGPRegressor(10, optimizer=optimizer, random_state=0)
    for rows in np.array_split(np.arange(900), 3):
        own.partial_fit(X[rows], y[rows], sample_weight=weight[rows])
    assert nmse(y, own.predict(X)) < 0.2


def test_another_kind_of_optimizer_cannot_go_on() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 1))
    model = EigenGPRegressor(5, residual=None, random_state=0).fit(X, X[:, 0])
    model.set_params(optimizer=Stochastic())
    with pytest.raises(ValueError, match="kind of optimizer"):
        model.partial_fit(X, X[:, 0])
