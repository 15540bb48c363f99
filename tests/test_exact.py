"""The exact GP: log marginal likelihood, gradient, predictions; agreement with scikit-learn."""

from __future__ import annotations

import pickle
import threading
import time
import tracemalloc
import warnings
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from eigengp import LBFGS, ExactGPRegressor, Gaussian, load
from eigengp._typing import Array
from eigengp.backend.threads import make_buffer, recycle, reuse_buffers
from eigengp.data.array_source import ArraySource
from eigengp.fitting.objectives import kernel_parameters
from eigengp.gp.blocks import RowBlock
from eigengp.gp.exact import ExactGP
from eigengp.gp.linalg import (
    FactorizationError,
    JitterWarning,
    cholesky,
    guarded,
    inverse_lower,
)
from eigengp.kernels import (
    Additive,
    Kernel,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
    Stationary,
)
from finite_differences import assert_close, gradient

N, NOISE = 25, 0.15
rng = np.random.default_rng(4)
X = rng.uniform(-2.0, 2.0, size=(N, 2))
y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * rng.normal(size=N)
counts = rng.integers(1, 4, size=N)
X_new = np.vstack([rng.uniform(-3.0, 3.0, size=(8, 2)), X[:2], [[40.0, -40.0]]])
ROWS = ArraySource(X, y, block_rows=11, n_threads=1)
WEIGHTED = replace(ROWS, sample_weight=counts.astype(float))
ONCE, TIMES = np.arange(N), np.repeat(np.arange(N), counts)

KERNELS: dict[str, Kernel] = {
    "squared_exponential": SquaredExponential([0.9, 1.3], 1.4),
    "squared_exponential_scalar": SquaredExponential(1.1, 1.4),
    "matern12": Matern12([1.5, 2.0], 1.4),
    "matern32": Matern32([1.2, 1.6], 1.4),
    "matern52": Matern52([1.0, 1.5], 1.4),
    "rational_quadratic": RationalQuadratic([0.9, 1.3], 1.4, 0.8),
    "sum": SquaredExponential([0.9, 1.3], 1.1) + Matern32(2.0, 0.5),
    "product": RationalQuadratic([1.5, 2.0], 1.4) * SquaredExponential(1.8, 0.9),
    "nested": (SquaredExponential(0.9) + Matern52([1.0, 2.0], 0.4)) * RationalQuadratic(2.5),
}
any_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
any_weight = pytest.mark.parametrize("weighted", [False, True], ids=["once", "weighted"])


def packed(model: ExactGP, source: ArraySource) -> Array:
    return kernel_parameters(model).pack_gradient(model.evaluate(source)[1])


def value(model: ExactGP, source: ArraySource) -> float:
    return model.forward(source).value


@any_kernel
@any_weight
def test_value_is_that_of_the_dense_formula(kernel: Kernel, weighted: bool) -> None:
    rows = TIMES if weighted else ONCE
    C = kernel(X)[np.ix_(rows, rows)] + NOISE * np.eye(rows.size)
    expected = -multivariate_normal(np.zeros(rows.size), C).logpdf(y[rows])
    outcome = ExactGP(kernel, NOISE).forward(WEIGHTED if weighted else ROWS)
    assert outcome.value == pytest.approx(expected, rel=1e-11)
    assert outcome.n == rows.size


@any_kernel
@any_weight
def test_gradient_is_the_derivative(kernel: Kernel, weighted: bool) -> None:
    model, source = ExactGP(kernel, NOISE), WEIGHTED if weighted else ROWS
    parameters = kernel_parameters(model)
    at = parameters.start
    numeric = gradient(lambda vector: value(parameters.unpack(vector), source), at)
    outcome, own = model.evaluate(source)
    assert outcome.value == value(model, source)
    assert_close(parameters.pack_gradient(own), numeric, 1e-8)


@any_kernel
def test_sample_weights_are_repetitions(kernel: Kernel) -> None:
    model = ExactGP(kernel, NOISE)
    repeated = ArraySource(X[TIMES], y[TIMES])
    assert value(model, WEIGHTED) == pytest.approx(value(model, repeated), rel=1e-8)
    assert_close(packed(model, WEIGHTED), packed(model, repeated), 1e-7)
    for own, other in zip(
        model.posterior(model.forward(WEIGHTED)).mean_and_variance(X_new),
        model.posterior(model.forward(repeated)).mean_and_variance(X_new),
        strict=True,
    ):
        np.testing.assert_allclose(own, other, rtol=0.0, atol=1e-8)


def test_a_fractional_weight_is_a_power_of_the_likelihood() -> None:
    model = ExactGP(KERNELS["sum"], NOISE)
    half = replace(ROWS, sample_weight=np.full(N, 0.5))
    twice = replace(
        ROWS, X=np.repeat(X, 2, 0), y=np.repeat(y, 2), sample_weight=np.full(2 * N, 0.5)
    )
    assert value(model, twice) == pytest.approx(value(model, ROWS), rel=1e-10)
    parameters = kernel_parameters(model)
    numeric = gradient(lambda vector: value(parameters.unpack(vector), half), parameters.start)
    assert_close(packed(model, half), numeric, 1e-8)


@any_weight
def test_blocks_and_threads_do_not_matter(weighted: bool) -> None:
    model, source = ExactGP(KERNELS["nested"], NOISE), WEIGHTED if weighted else ROWS
    expected, derivative = value(model, source), packed(model, source)
    for block_rows, n_threads in [(1, 3), (7, 2), (N, 1), (10 * N, 2)]:
        other = replace(source, block_rows=block_rows, n_threads=n_threads)
        assert value(model, other) == pytest.approx(expected, rel=1e-12)
        assert_close(packed(model, other), derivative, 1e-10)


def test_gradient_is_right_beyond_the_block_in_which_the_inverse_is_made_symmetric() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 1))
    source = ArraySource(X, np.sin(3.0 * X[:, 0]) + 0.3 * rng.normal(size=600), None, 128)
    model = ExactGP(Matern32(np.array([0.7]), 1.3), 0.1)
    parameters = kernel_parameters(model)
    numeric = gradient(
        lambda vector: value(parameters.unpack(vector), source), parameters.start, levels=2
    )
    assert_close(packed(model, source), numeric, 1e-6)


@any_kernel
@any_weight
def test_predictions_are_the_dense_gaussian_conditional(kernel: Kernel, weighted: bool) -> None:
    rows = TIMES if weighted else ONCE
    C, cross = kernel(X)[np.ix_(rows, rows)] + NOISE * np.eye(rows.size), kernel(X_new, X[rows])
    solved = np.linalg.solve(C, np.column_stack([y[rows], cross.T]))
    mean, latent = cross @ solved[:, 0], kernel(X_new) - cross @ solved[:, 1:]
    model = ExactGP(kernel, NOISE)
    posterior = model.posterior(model.forward(WEIGHTED if weighted else ROWS))
    own_mean, own_variance = posterior.mean_and_variance(X_new)
    np.testing.assert_allclose(own_mean, mean, rtol=0.0, atol=1e-10)
    np.testing.assert_allclose(posterior.mean(X_new), mean, rtol=0.0, atol=1e-10)
    np.testing.assert_allclose(own_variance, np.diag(latent) + NOISE, rtol=0.0, atol=1e-10)
    np.testing.assert_allclose(posterior.latent_covariance(X_new), latent, rtol=0.0, atol=1e-10)
    joint = latent + NOISE * np.eye(X_new.shape[0])
    np.testing.assert_allclose(posterior.joint_covariance(X_new), joint, rtol=0.0, atol=1e-10)


def test_evaluate_needs_no_array_larger_than_rows_by_rows() -> None:
    n, n_features = 1000, 30
    X = np.random.default_rng(0).normal(size=(n, n_features))
    source = ArraySource(X, np.sin(X[:, 0]), block_rows=128, n_threads=1)
    model = ExactGP(SquaredExponential(np.full(n_features, 5.0)), 0.1)
    tracemalloc.start()
    model.evaluate(source)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    square = 8 * n**2
    assert peak < 3 * square < n_features * square


OURS_AND_THEIRS: dict[str, tuple[type[Stationary], sk.Kernel]] = {
    "squared_exponential": (SquaredExponential, sk.RBF([0.8, 1.7])),
    "matern12": (Matern12, sk.Matern([0.8, 1.7], nu=0.5)),
    "matern32": (Matern32, sk.Matern([0.8, 1.7], nu=1.5)),
    "matern52": (Matern52, sk.Matern([0.8, 1.7], nu=2.5)),
}
any_pair = pytest.mark.parametrize(
    ("kind", "profile"), OURS_AND_THEIRS.values(), ids=OURS_AND_THEIRS.keys()
)


def unlearned(kernel: Kernel, variance: float, **settings: Any) -> ExactGPRegressor:
    """Return a regressor whose optimizer takes no step."""
    likelihood, optimizer = Gaussian(variance=variance), LBFGS(max_iter=0)
    return ExactGPRegressor(kernel, likelihood=likelihood, optimizer=optimizer, **settings)


@any_pair
def test_the_regressor_is_that_of_scikit_learn_at_the_same_hyperparameters(
    kind: type[Stationary], profile: sk.Kernel
) -> None:
    targets = 3.0 * y + 1.0
    kernel = kind([0.8, 1.7], 2.3)
    ours = unlearned(kernel, 0.2, mean="zero", standardize=False)
    ours.fit(X, targets)
    product = sk.ConstantKernel(2.3) * profile + sk.WhiteKernel(0.2)
    theirs = GaussianProcessRegressor(product, alpha=0.0, optimizer=None).fit(X, targets)
    expected, derivative = theirs.log_marginal_likelihood(theirs.kernel_.theta, eval_gradient=True)
    assert ours.log_marginal_likelihood_ == pytest.approx(expected, rel=1e-6)

    own = ExactGP(kernel, 0.2).evaluate(ArraySource(X, targets))[1]
    constant, *lengths, white = derivative
    np.testing.assert_allclose(-own.theta, [*lengths, constant], rtol=1e-6, atol=1e-9)
    assert -own.log_noise_variance == pytest.approx(white, rel=1e-6)

    for own_values, their_values in zip(
        ours.predict(X_new, return_std=True), theirs.predict(X_new, return_std=True), strict=True
    ):
        np.testing.assert_allclose(own_values, their_values, rtol=1e-6, atol=1e-9)
    covariance = ours.predict(X_new, return_cov=True)[1]
    np.testing.assert_allclose(covariance, theirs.predict(X_new, return_cov=True)[1], atol=1e-6)


@pytest.mark.parametrize("seed", [0, 1])
def test_its_optimum_is_not_worse_than_that_of_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, size=(50, 2))
    y = np.sin(3.0 * X[:, 0]) + 0.2 * X[:, 1] + 0.2 * rng.normal(size=50)
    ours = ExactGPRegressor(
        mean="zero", optimizer=LBFGS(n_restarts=4), standardize=False, random_state=seed
    ).fit(X, y)
    product = sk.ConstantKernel() * sk.RBF([1.0, 1.0], (1e-2, 1e3)) + sk.WhiteKernel()
    theirs = GaussianProcessRegressor(product, alpha=0.0, n_restarts_optimizer=3, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs.fit(X, y)
    best = theirs.log_marginal_likelihood(theirs.kernel_.theta)
    assert ours.log_marginal_likelihood_ >= best - 1e-4


@pytest.mark.parametrize("standardize", [True, False])
@any_kernel
def test_no_iterations_keep_the_hyperparameters(kernel: Kernel, standardize: bool) -> None:
    ard = kernel.with_ard(2)
    model = unlearned(kernel, 0.3, standardize=standardize, random_state=0)
    model.fit(X * [1.0, 50.0], 7.0 * y + 3.0)
    np.testing.assert_allclose(model.kernel_.theta, ard.theta, rtol=0.0, atol=1e-12)
    assert model.noise_variance_ == pytest.approx(0.3, rel=1e-12)
    assert model.n_iter_ == 0
    assert model.history_ == []


def test_attributes_reproduce_the_log_marginal_likelihood_in_the_units_of_the_data() -> None:
    inputs, targets = X * [1e-3, 50.0] + [7.0, -1e3], 1e4 * y + 3e5
    model = ExactGPRegressor(optimizer=LBFGS(n_restarts=2), random_state=0).fit(inputs, targets)
    C = model.kernel_(inputs) + model.noise_variance_ * np.eye(N)
    expected = multivariate_normal(np.full(N, model.target_mean_), C).logpdf(targets)
    assert model.log_marginal_likelihood_ == pytest.approx(expected, rel=1e-8)
    assert model.target_mean_ == pytest.approx(targets.mean())


def test_too_many_rows_are_refused_with_their_price() -> None:
    settings: dict[str, Any] = {"optimizer": LBFGS(n_restarts=1, max_iter=0)}
    with pytest.raises(ValueError, match=r"25 rows.*EigenGPRegressor.*max_rows \(now 24\)"):
        ExactGPRegressor(max_rows=24, **settings).fit(X, y)
    assert ExactGPRegressor(max_rows=25, **settings).fit(X, y).score(X, y) > 0.0
    repeated = ExactGPRegressor(max_rows=25, **settings).fit(np.tile(X, (2, 1)), np.tile(y, 2))
    assert repeated.score(X, y) > 0.0


def test_without_iterations_extreme_values_do_not_change() -> None:
    kernel = SquaredExponential(1e5, 1e-6)
    model = unlearned(kernel, 1e-9, standardize=False)
    model.fit(np.linspace(0.0, 6.0, 8)[:, None], np.sin(np.arange(8.0)))
    np.testing.assert_allclose(np.exp(model.kernel_.theta), [1e5, 1e-6], rtol=1e-12)
    assert model.noise_variance_ == pytest.approx(1e-9, rel=1e-12)


def test_an_outcome_whose_memory_the_gradient_took_gives_no_posterior() -> None:
    model = ExactGP(SquaredExponential(1.0), 0.1)
    outcome, _ = model.evaluate(ArraySource(np.arange(4.0)[:, None], np.arange(4.0)))
    with pytest.raises(ValueError, match="call `forward` again"):
        model.posterior(outcome)


def test_with_many_rows_the_kernel_is_settled_on_some_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eigengp.fitting.learn.SUBSET_RANGE", (20, 60))
    inputs = np.linspace(0.0, 9.0, 150)[:, None]
    targets = np.sin(inputs[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=150)
    settled = ExactGPRegressor(optimizer=LBFGS(n_restarts=2), random_state=0).fit(inputs, targets)
    plain = ExactGPRegressor(optimizer=LBFGS(n_restarts=2, max_iter=0)).fit(inputs, targets)
    assert settled.log_marginal_likelihood_ > plain.log_marginal_likelihood_ + 50.0
    stages = [step["stage"] for step in settled.history_]
    assert stages.count("learning") == settled.n_iter_


@any_kernel
@any_weight
def test_a_device_computes_the_same(
    kernel: Kernel, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr("eigengp.gp.exact._DEVICE_FROM", 0)
    monkeypatch.setattr("eigengp.gp.exact._DEVICE_ENTRIES", 200)  # Several blocks.
    source = WEIGHTED if weighted else ROWS
    here, there = (ExactGP(kernel, NOISE, device) for device in (None, "cpu:0"))
    expected, found = here.forward(source), there.forward(source)
    assert found.value == pytest.approx(expected.value, rel=1e-12)
    assert_close(packed(there, source), packed(here, source), 1e-10)
    a, b = here.posterior(expected), there.posterior(found)
    for method in ("mean", "joint_covariance", "mean_gradient", "variance_gradient"):
        np.testing.assert_allclose(getattr(b, method)(X_new), getattr(a, method)(X_new), atol=1e-10)
    np.testing.assert_allclose(b.mean_and_variance(X_new), a.mean_and_variance(X_new), atol=1e-10)
    np.testing.assert_allclose(
        b.leave_one_out(found.rows), a.leave_one_out(expected.rows), atol=1e-10
    )
    for own in b.mean_and_variance(torch.as_tensor(X_new)):
        assert isinstance(own, torch.Tensor)
    again = pickle.loads(pickle.dumps(b))
    np.testing.assert_allclose(again.mean(X_new), a.mean(X_new), atol=1e-10)


def test_a_regressor_on_a_device_predicts_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("eigengp.gp.exact._DEVICE_FROM", 0)
    own = {"optimizer": LBFGS(max_iter=5, n_restarts=2), "random_state": 0}
    here, there = (ExactGPRegressor(device=each, **own).fit(X, y) for each in (None, "cpu:0"))
    expected = here.predict(X_new, return_std=True)
    np.testing.assert_allclose(there.predict(X_new, return_std=True), expected, rtol=1e-7)
    there.save(tmp_path / "model.eigengp")
    again = load(tmp_path / "model.eigengp")
    np.testing.assert_allclose(again.predict(X_new, return_std=True), expected, rtol=1e-7)


def test_a_singular_matrix_on_a_device_gets_jitter_or_a_clear_error() -> None:
    torch = pytest.importorskip("torch")
    ones = torch.ones((4, 4), dtype=torch.float64)
    with pytest.warns(JitterWarning):
        L = guarded(cholesky, ones)
    assert float((L @ L.T - ones).abs().max()) < 1e-3
    with pytest.raises(FactorizationError, match="not positive definite"):
        guarded(cholesky, ones - 2.0 * torch.eye(4, dtype=torch.float64))


@pytest.mark.parametrize(
    "kernel",
    [
        *KERNELS.values(),
        SquaredExponential([1.0], active_dims=[1]),
        RationalQuadratic([1.3, 1.3], groups=[0, 0]) + Matern12([0.9, 2.0]),
        Additive([0.8, 1.3], 2.0) + Matern32([0.9, 2.0]),
        Additive([1.3, 1.3], groups=[0, 0]) + Additive(0.7),
    ],
    ids=[*KERNELS, "active_dims", "groups", "additive", "additive groups"],
)
@any_weight
def test_a_block_of_rows_is_evaluated_as_a_source_of_blocks(kernel: Kernel, weighted: bool) -> None:
    twice = np.concatenate([X, X[:3]])  # Equal inputs have no distance.
    weight = np.concatenate([counts, [1, 1, 2]]).astype(float) if weighted else None
    source = ArraySource(twice, np.concatenate([y, y[:3] + 0.1]), weight, 11, n_threads=1)
    block = source.take(np.arange(twice.shape[0]))
    model = ExactGP(kernel, NOISE, compiled=True)
    found, slope = model.evaluate(block)
    expected, other = model.evaluate(source)
    np.testing.assert_allclose(found.value, expected.value, rtol=1e-11)
    np.testing.assert_allclose(slope.theta, other.theta, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(slope.log_noise_variance, other.log_noise_variance, rtol=1e-9)
    kept = model.forward(block).L
    assert kept is not None
    np.testing.assert_array_equal(np.triu(kept, 1), 0.0)


@pytest.mark.parametrize("noise", [0.1, 1e-30], ids=["regular", "singular"])
def test_the_memory_of_the_matrix_is_recycled(
    noise: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")

    def stop(*_: Any) -> None:
        raise FactorizationError

    monkeypatch.setattr(ExactGP, "_covariance", stop)  # It would use the memory again.
    rows = RowBlock(np.zeros((100, 1)), np.ones(100))
    with reuse_buffers():
        first = make_buffer((100, 100))
        memory = first.base
        recycle(first)
        with nullcontext() if noise > 0.01 else pytest.raises(FactorizationError):
            ExactGP(SquaredExponential(), noise, compiled=True).evaluate(rows)
        assert make_buffer((100, 100)).base is memory


@pytest.mark.parametrize("what", ["evaluate", "invert"])
def test_threads_factorise_side_by_side(what: str) -> None:
    rows = RowBlock(np.arange(1_500.0)[:, None], np.ones(1_500))
    ticks, over, found = 0, threading.Event(), {}
    model = ExactGP(SquaredExponential(), 0.1, compiled=True)
    model.evaluate(rows.cut(2)[0])  # Compiles.

    def factorize() -> None:
        if what == "evaluate":
            found[what] = model.evaluate(rows)[0].value
        else:
            found[what] = inverse_lower(np.tril(np.eye(1_500) + 0.1))[0, 0]
        over.set()

    thread = threading.Thread(target=factorize)
    thread.start()
    while not over.is_set():
        ticks += 1
        time.sleep(0.0)
    thread.join()
    assert ticks > 100  # With the lock held, this thread would wait.
    expected = model.forward(rows).value if what == "evaluate" else 1.0 / 1.1
    np.testing.assert_allclose(found[what], expected)


def test_a_singular_block_gets_jitter_or_an_error() -> None:
    same = RowBlock(np.zeros((4, 1)), np.arange(4.0))
    with pytest.warns(JitterWarning, match="training rows"):
        ExactGP(SquaredExponential(), 1e-30, compiled=True).evaluate(same)
