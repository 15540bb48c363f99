"""Non-Gaussian likelihoods against dense references, finite differences and each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

from eigengp._typing import Array
from eigengp.fitting.bound import Approximation, Rows, collect_moments
from eigengp.fitting.class_neighbors import BoundLearner, NeighborRounds
from eigengp.fitting.progress import Monitor
from eigengp.gp.blocks import RowBlock
from eigengp.gp.exact import ExactGP
from eigengp.gp.latent import DenseLatent
from eigengp.gp.likelihoods import (
    Bernoulli,
    Coregionalized,
    NegativeBinomial,
    NonGaussian,
    Poisson,
    Quantile,
    Softmax,
    StudentT,
)
from eigengp.gp.model import EigenGP, Jitter
from eigengp.gp.vecchia import VecchiaPass
from eigengp.kernels import SquaredExponential

N = 30


def _inputs() -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (N, 2))
    return np.asfortranarray(X), 2.0 * np.sin(2.0 * X[:, 0]) + X[:, 1]


def _outputs(f: Array) -> Array:
    rng = np.random.default_rng(1)
    Y = np.stack([f + 0.1 * rng.normal(size=N), -f + 0.3 * rng.normal(size=N)], axis=1)
    Y[::3, 1] = np.nan
    return Y


def _make(name: str) -> tuple[NonGaussian, Array]:
    """Return a likelihood and targets for it."""
    _X, f = _inputs()
    rng = np.random.default_rng(2)
    coin = (rng.uniform(size=N) < 1.0 / (1.0 + np.exp(-f))).astype(float)
    made: dict[str, Callable[[], tuple[NonGaussian, Array]]] = {
        "bernoulli": lambda: (Bernoulli(), coin),
        "polya_gamma": lambda: (Bernoulli(augmented=True), coin),
        "softmax": lambda: (Softmax(3), np.digitize(f + rng.normal(size=N), [-1, 1]) * 1.0),
        "poisson": lambda: (Poisson(), rng.poisson(np.exp(f)) * 1.0),
        "negative_binomial": lambda: (NegativeBinomial(), rng.poisson(np.exp(f)) * 1.0),
        "student_t": lambda: (StudentT(), f + 0.2 * rng.standard_t(3, N)),
        "quantile": lambda: (Quantile(0.8), f + 0.2 * rng.normal(size=N)),
        "outputs": lambda: (Coregionalized(_outputs(f)), np.arange(N) * 1.0),
    }
    return made[name]()


NAMES = [
    *("bernoulli", "polya_gamma", "softmax", "poisson", "negative_binomial"),
    *("student_t", "quantile", "outputs"),
]


def _rows(y: Array, weight: Array | None = None) -> Rows:
    return Rows(RowBlock(_inputs()[0], y, weight), n_threads=1)


def _find_moments(latent: Any, found: Approximation) -> tuple[Array, Array]:
    return collect_moments(partial(latent.visit, found.posteriors), found.factors.shift.shape)


def _model(theta: Array, points: Array, jitter: float = 1e-6) -> EigenGP:
    kernel = SquaredExponential(np.ones(2), 1.0).with_theta(theta)
    return EigenGP(kernel, points, 1.0, points.shape[0], jitter=Jitter(jitter))


THETA = np.log([1.0, 1.5, 2.0])


@pytest.mark.parametrize("name", NAMES)
def test_expectations_have_the_derivatives_that_they_return(name: str) -> None:
    likelihood, y = _make(name)
    likelihood = likelihood.start(y, np.ones(N))[0]
    rng = np.random.default_rng(3)
    mean = rng.normal(size=(N, likelihood.n_latent))
    variance = rng.uniform(0.2, 1.0, mean.shape)
    found = likelihood.expect(y, mean, variance)
    step = np.zeros_like(mean)
    step[:, -1] = 1e-5
    slopes = [
        (likelihood.expect(y, mean + a, variance + b).value
         - likelihood.expect(y, mean - a, variance - b).value) / 2e-5
        for a, b in ((step, 0.0), (0.0, step))
    ]  # fmt: skip
    np.testing.assert_allclose(found.by_mean[:, -1], slopes[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.by_variance[:, -1], slopes[1], rtol=1e-4, atol=1e-6)
    assert np.all(found.by_variance <= 0.0)


@pytest.mark.parametrize("name", ["bernoulli", "polya_gamma", "poisson", "negative_binomial"])
def test_expectations_bound_the_integral_of_the_log_density(name: str) -> None:
    likelihood, y = _make(name)
    likelihood = likelihood.start(y, np.ones(N))[0]
    m, v = 0.3, 0.8
    own = likelihood.expect(y[:1], np.array([[m]]), np.array([[v]])).value[0]

    def integrand(f: float) -> float:
        at = np.array([[f]])
        exact = Bernoulli() if name == "polya_gamma" else likelihood
        log_p = exact.expect(y[:1], at, np.full((1, 1), 1e-12)).value[0]
        return float(log_p * norm.pdf(f, m, np.sqrt(v)))

    exact = quad(integrand, m - 8, m + 8)[0]
    assert own <= exact + 1e-6
    assert own > exact - 0.3
    if name in ("bernoulli", "poisson"):
        assert own == pytest.approx(exact, abs=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_of_the_bound_agrees_with_finite_differences(name: str) -> None:
    likelihood, y = _make(name)
    X, weight = _inputs()[0], np.random.default_rng(4).uniform(0.5, 2.0, N)
    rows, points = _rows(y, weight), X[:12].copy()
    model = _model(THETA, points)
    rounds, tol = 3_000, 1e-13
    found = rows.improve(rows.make_latent(model), rows.begin(likelihood), rounds, tol)
    latent = rows.make_latent(model)
    gradient = latent.gradient(found.factors, found.posteriors)

    def bound(theta: Array, points: Array) -> float:
        other = rows.make_latent(_model(theta, points))
        return rows.improve(other, found, rounds, tol).bound

    h = 1e-3
    step, move = np.array([h, 0.0, 0.0]), np.zeros_like(points)
    move[3, 1] = h
    by_theta = (bound(THETA + step, points) - bound(THETA - step, points)) / (2 * h)
    by_point = (bound(THETA, points + move) - bound(THETA, points - move)) / (2 * h)
    rel = {"quantile": 0.02}.get(name, 2e-3)
    assert -gradient.theta[0] == pytest.approx(by_theta, rel=rel, abs=2e-3)
    assert -gradient.inducing_points[3, 1] == pytest.approx(by_point, rel=rel, abs=2e-3)


@pytest.mark.parametrize("name", NAMES)
def test_the_bound_never_falls_from_round_to_round(name: str) -> None:
    likelihood, y = _make(name)
    rows = _rows(y)
    latent = rows.make_latent(_model(THETA, _inputs()[0]))
    now: Approximation = rows.begin(likelihood)
    bounds = []
    for _ in range(12):
        now = rows.improve(latent, now, 1, 0.0)
        bounds.append(now.bound)
    assert np.all(np.diff(bounds) >= -1e-9 * abs(bounds[-1]))
    assert bounds[-1] > bounds[0]


def test_polya_gamma_has_the_fixed_point_of_a_dense_solution() -> None:
    likelihood, y = _make("polya_gamma")
    X = _inputs()[0]
    rows, model = _rows(y), _model(THETA, X, 1e-9)
    found = rows.improve(rows.make_latent(model), rows.begin(likelihood), 2_000, 1e-14)
    K, c, offset = model.kernel.matrix(X, X), np.ones(N), float(found.offset[0])
    for _ in range(2_000):
        omega = np.tanh(0.5 * c) / (2.0 * c)
        S = K - K @ np.linalg.solve(K + np.diag(1.0 / omega), K)
        mean = S @ (y - 0.5 - omega * offset)
        c = np.sqrt((mean + offset) ** 2 + np.diag(S))
    own_mean, own_variance = _find_moments(rows.make_latent(model), found)
    np.testing.assert_allclose(own_mean[:, 0], mean, atol=1e-4)
    np.testing.assert_allclose(own_variance[:, 0], np.diag(S), atol=1e-4)
    np.testing.assert_allclose(found.factors.precision[:, 0], omega, atol=1e-4)
    pseudo = (y - 0.5) / omega - offset
    log_z = multivariate_normal(np.zeros(N), K + np.diag(1.0 / omega)).logpdf(pseudo)
    log_z += 0.5 * np.sum(np.log(2.0 * np.pi / omega) + omega * pseudo**2)
    shifted = (y - 0.5) * offset - 0.5 * omega * offset**2
    local = 0.5 * omega * c**2 - np.log(2.0 * np.cosh(0.5 * c))
    assert found.bound == pytest.approx(log_z + np.sum(local + shifted), abs=1e-3)


def test_student_t_of_many_degrees_of_freedom_is_gaussian_noise() -> None:
    X, f = _inputs()
    y = f + 0.3 * np.random.default_rng(5).normal(size=N)
    rows, model = _rows(y), _model(THETA, X, 1e-8)

    class Fixed(StudentT):
        def refit(self, *_: Array) -> Fixed:
            return self

    own = Fixed(0.3, 1e7)
    found = rows.improve(rows.make_latent(model), rows.begin(own), 500, 1e-13)
    K, offset = model.kernel.matrix(X, X) + 0.09 * np.eye(N), float(found.offset[0])
    exact = multivariate_normal(np.full(N, offset), K).logpdf(y)
    assert found.bound == pytest.approx(exact, abs=1e-2)
    mean = (K - 0.09 * np.eye(N)) @ np.linalg.solve(K, y - offset)
    own_mean, _ = _find_moments(rows.make_latent(model), found)
    np.testing.assert_allclose(own_mean[:, 0], mean, atol=1e-3)


def test_independent_outputs_are_separate_fits() -> None:
    X, f = _inputs()
    Y = _outputs(f)
    model = _model(THETA, X[:15])
    own = Coregionalized(Y, np.eye(2), np.array([0.05, 0.1]))
    rows = _rows(np.arange(N) * 1.0)
    both = rows.evaluate(rows.make_latent(model), rows.begin(own))
    mean, _ = _find_moments(rows.make_latent(model), both)
    separate = []
    for p, noise in enumerate((0.05, 0.1)):
        known = np.isfinite(Y[:, p])
        one = Rows(RowBlock(np.asfortranarray(X[known]), np.arange(known.sum()) * 1.0), n_threads=1)
        alone = Coregionalized(Y[known, p : p + 1], np.eye(1), np.array([noise]))
        found = one.evaluate(one.make_latent(model), one.begin(alone))
        own_mean, _ = _find_moments(one.make_latent(model), found)
        np.testing.assert_allclose(mean[known, p], own_mean[:, 0], atol=1e-8)
        separate.append(found.bound)
    assert both.bound == pytest.approx(sum(separate), abs=1e-7)


def test_mixtures_have_the_moments_and_quantiles_of_draws() -> None:
    mean, variance = np.array([[0.5], [1.5]]), np.array([[0.3], [0.1]])
    rng = np.random.RandomState(0)
    f = mean[:, 0] + np.sqrt(variance[:, 0]) * rng.standard_normal((200_000, 2))
    for likelihood in (Poisson(), NegativeBinomial(3.0), StudentT(0.4, 6.0)):
        drawn = likelihood.draw(f[..., None], rng)
        first, second = likelihood.predict(mean, variance)
        np.testing.assert_allclose(first, drawn.mean(axis=0), rtol=0.02)
        np.testing.assert_allclose(second, drawn.var(axis=0), rtol=0.05)
        for level in (0.1, 0.5, 0.9):
            found = likelihood.predict_quantile(level, mean, variance)
            np.testing.assert_allclose(found, np.quantile(drawn, level, axis=0), atol=0.03)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: StudentT(-1.0), "scale must be positive"),
        (lambda: StudentT(degrees_of_freedom=2.0), "above 2"),
        (lambda: Quantile(1.0), "between 0 and 1"),
        (lambda: Quantile(0.5, 0.0), "scale must be positive"),
        (lambda: NegativeBinomial(0.0), "dispersion must be positive"),
    ],
)
def test_bad_parameters_are_refused(make: Callable[[], NonGaussian], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make()


@pytest.mark.parametrize("name", ["bernoulli", "softmax"])
def test_dense_latent_functions_are_those_with_all_rows_as_inducing_points(name: str) -> None:
    likelihood, y = _make(name)
    X, rows = _inputs()[0], _rows(y, np.random.default_rng(4).uniform(0.5, 2.0, N))
    model = _model(THETA, X, 1e-10)
    start = rows.begin(likelihood)
    sparse = rows.improve(rows.make_latent(model), start, 500, 1e-12)
    latent: Any = DenseLatent(model.kernel, X)
    dense = rows.improve(latent, start, 500, 1e-12)
    assert dense.bound == pytest.approx(sparse.bound, abs=1e-5)
    expected = _find_moments(rows.make_latent(model), sparse)
    np.testing.assert_allclose(_find_moments(latent, dense), expected, atol=1e-4)


@pytest.mark.parametrize("name", ["bernoulli", "softmax"])
def test_the_gradient_of_local_bounds_agrees_with_finite_differences(name: str) -> None:
    likelihood, y = _make(name)
    block = RowBlock(_inputs()[0], y, np.random.default_rng(4).uniform(0.5, 2.0, N))
    offset = likelihood.start(y, block.weight)[1]
    learner = BoundLearner(
        block, Monitor(False, N, 0.0), 1, likelihood=likelihood, offset=offset, variance=4.0
    )
    model = ExactGP(SquaredExponential(np.ones(2), 1.0).with_theta(THETA), 1.0)
    groups = [block.cut(12)[0], block.cut(12)[1]]

    def evaluate(theta: Array) -> Any:
        objective = learner._make_objective(model, groups)
        for _ in range(30):  # Each call starts from the factors of the one before.
            objective.least = np.inf
            found = objective(theta)
        return found

    h, gradient = 1e-4, evaluate(THETA).gradient
    for i in range(THETA.size):
        step = h * np.eye(THETA.size)[i]
        slope = (evaluate(THETA + step).value - evaluate(THETA - step).value) / (2 * h)
        assert gradient[i] == pytest.approx(slope, rel=5e-3, abs=1e-5)


@pytest.mark.parametrize("name", ["bernoulli", "softmax"])
def test_all_rows_as_neighbours_give_the_dense_solution(name: str) -> None:
    likelihood, y = _make(name)
    X = np.ascontiguousarray(_inputs()[0])
    block = RowBlock(X, y)
    rows = Rows(block, n_threads=1, offset=likelihood.start(y, block.weight)[1])
    model = _model(THETA, X[:7].copy(), 1e-10)
    latent: Any = DenseLatent(model.kernel, X)
    dense = rows.improve(latent, rows.begin(likelihood), 500, 1e-12)
    flow = VecchiaPass.of(model.kernel, model.inducing_points, 1.0, 1e-10)
    rounds = NeighborRounds(flow, rows, likelihood, N, 1, rounds=40)
    posterior, bound = rounds.find_posterior()
    mean, variance = replace(posterior, calibration=(1.0, 1.0)).latent(X)
    own_mean, own_variance = _find_moments(latent, dense)
    np.testing.assert_allclose(mean, own_mean + rows.offset, atol=1e-3)
    np.testing.assert_allclose(variance, own_variance, rtol=1e-3)
    assert bound == pytest.approx(dense.bound, abs=1e-3)


def test_rows_with_equal_inputs_are_merged_among_neighbours() -> None:
    likelihood, y = _make("bernoulli")
    X, weight = np.ascontiguousarray(_inputs()[0]), np.where(np.arange(N) < 6, 2.0, 1.0)
    offset, twice = np.array([0.3]), [*range(N), *range(6)]
    model = VecchiaPass.of(_model(THETA, X[:7]).kernel, X[:7].copy(), 1.0, 1e-6)
    found = []
    for block in (RowBlock(X, y, weight), RowBlock(X[twice], y[twice])):
        rounds = NeighborRounds(
            model, Rows(block, n_threads=1, offset=offset), likelihood, N, 1, 20
        )
        found.append(rounds.find_posterior()[0].latent(X))
    np.testing.assert_allclose(found[0][0], found[1][0], atol=1e-6)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-6)
