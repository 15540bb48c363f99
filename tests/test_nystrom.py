"""The Nyström method: a low-rank covariance of the rows, and predictions with the exact kernel."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import dense
from eigengp import LBFGS, ExactGPRegressor, Gaussian, NegativeVarianceWarning, NystromRegressor
from eigengp._typing import Array
from eigengp.data.array_source import ArraySource
from eigengp.gp.exact_posterior import ConditionalPosterior, nystrom_posterior
from eigengp.gp.model import EigenGP, Jitter
from eigengp.kernels import Kernel, Matern12, Matern32, RationalQuadratic, SquaredExponential
from finite_differences import assert_close, gradient

N, M, NOISE = 40, 12, 0.3
rng = np.random.default_rng(4)
X = rng.uniform(-2.0, 2.0, size=(N, 2))
y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * rng.normal(size=N)
counts = rng.integers(1, 4, size=N)
X_new = rng.uniform(-3.0, 3.0, size=(9, 2))
ROWS = ArraySource(X, y, block_rows=11, n_threads=1)
WEIGHTED = replace(ROWS, sample_weight=counts.astype(float))
REPEATED = (np.repeat(X, counts, axis=0), np.repeat(y, counts))

KERNELS: dict[str, Kernel] = {
    "squared_exponential": SquaredExponential([0.9, 1.3], 1.4),
    "matern32": Matern32([1.2, 1.6], 1.4),
    "rational_quadratic": RationalQuadratic([0.9, 1.3], 1.4, 0.8),
    "sum": SquaredExponential([0.9, 1.3], 1.1) + Matern32(2.0, 0.5),
}
any_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
any_weight = pytest.mark.parametrize("weighted", [False, True], ids=["once", "weighted"])


def model_of(kernel: Kernel, n_components: int = M) -> EigenGP:
    return EigenGP(kernel, X[:M], NOISE, n_components, jitter=Jitter(1e-6))


def posterior_of(model: EigenGP, source: ArraySource) -> ConditionalPosterior:
    low_rank = model.posterior(model.forward(source))
    return nystrom_posterior(low_rank, model.features, source.take(np.arange(source.n_rows)))


def conditional(
    kernel: Kernel, covariance: Array, X: Array, y: Array, X_new: Array
) -> tuple[Array, Array]:
    """Return `k(x,X) C̃⁻¹ y` and `k(x,x') − k(x,X) C̃⁻¹ k(X,x')`."""
    cross = kernel(X_new, X)
    solved = np.linalg.solve(covariance, np.column_stack([y, cross.T]))
    return cross @ solved[:, 0], kernel(X_new) - cross @ solved[:, 1:]


@any_kernel
@any_weight
@pytest.mark.parametrize("n_components", [M, 7], ids=["all", "truncated"])
def test_predictions_are_those_of_the_dense_formulas(
    kernel: Kernel, weighted: bool, n_components: int
) -> None:
    inputs, targets = REPEATED if weighted else (X, y)
    model = model_of(kernel, n_components)
    C = dense.low_rank(model, inputs, inputs) + NOISE * np.eye(targets.size)
    mean, latent = conditional(kernel, C, inputs, targets, X_new)
    posterior = posterior_of(model, WEIGHTED if weighted else ROWS)
    own_mean, raw = posterior.mean_and_raw_variance(X_new)
    np.testing.assert_allclose(own_mean, mean, rtol=0.0, atol=1e-8)
    np.testing.assert_allclose(posterior.mean(X_new), mean, rtol=0.0, atol=1e-8)
    np.testing.assert_allclose(raw, np.diag(latent), rtol=0.0, atol=1e-8)
    np.testing.assert_allclose(posterior.latent_covariance(X_new), latent, rtol=0.0, atol=1e-8)
    held = np.maximum(np.diag(latent), 0.0) + NOISE
    np.testing.assert_allclose(posterior.mean_and_variance(X_new)[1], held, rtol=0.0, atol=1e-8)


def test_gradients_are_derivatives_and_zero_where_the_variance_is_held() -> None:
    posterior = posterior_of(model_of(KERNELS["squared_exponential"], 7), ROWS)
    held = posterior.mean_and_raw_variance(X_new)[1] < 0.0
    assert np.any(held)
    assert not np.all(held)
    means = [gradient(lambda at: posterior.mean(at[None])[0], row, step=4e-3) for row in X_new]
    variances = [
        gradient(lambda at: posterior.mean_and_variance(at[None])[1][0], row, step=1e-3)
        for row in X_new
    ]
    assert_close(posterior.mean_gradient(X_new), np.array(means), 1e-8)
    assert_close(posterior.variance_gradient(X_new), np.array(variances), 1e-7)
    assert np.all(posterior.variance_gradient(X_new)[held] == 0.0)


FIXED: dict[str, Any] = {
    "kernel": KERNELS["sum"],
    "likelihood": Gaussian(variance=NOISE),
    "optimizer": LBFGS(max_iter=0),
    "random_state": 0,
}


@pytest.mark.parametrize("standardize", [True, False])
@any_weight
def test_the_regressor_gives_what_its_attributes_say(standardize: bool, weighted: bool) -> None:
    scale = np.array([1.0, 50.0])
    inputs, targets = REPEATED if weighted else (X, y)
    inputs, targets = inputs * scale, 3.0 * targets + 7.0
    weight = counts if weighted else None
    kernel = SquaredExponential([0.9, 70.0], 9.0) + Matern32([2.0, 90.0], 2.0)
    model = NystromRegressor(M, standardize=standardize, **(FIXED | {"kernel": kernel}))
    model.fit(X * scale, 3.0 * y + 7.0, sample_weight=weight)
    np.testing.assert_allclose(model.kernel_.theta, kernel.theta, rtol=0.0, atol=1e-12)
    centred, noise = targets - model.target_mean_, model.noise_variance_
    K_XB, B = kernel(inputs, model.inducing_points_), model.inducing_points_
    gram = kernel(B) + model.jitter_ * np.eye(M)
    C = K_XB @ np.linalg.solve(gram, K_XB.T) + noise * np.eye(targets.size)
    mean, latent = conditional(kernel, C, inputs, centred, X_new * scale)
    np.testing.assert_allclose(model.predict(X_new * scale), mean + model.target_mean_, rtol=1e-6)
    raw = model.raw_variance(X_new * scale)
    np.testing.assert_allclose(raw, np.diag(latent) + noise, rtol=0.0, atol=1e-5)
    evidence = multivariate_normal(np.zeros(targets.size), C).logpdf(centred)
    assert model.log_marginal_likelihood_ == pytest.approx(evidence, rel=1e-7)


LEFT, RIGHT = np.linspace(0.0, 3.0, 30)[:, None], np.linspace(6.0, 9.0, 30)[:, None]


def one_sided() -> NystromRegressor:
    """Return a fit whose inducing points all lie left, far from the rows at the right."""
    line = np.vstack([LEFT, RIGHT])
    kernel = SquaredExponential(0.7)
    model = NystromRegressor(
        inducing_points=LEFT[::3],
        kernel=kernel,
        likelihood=Gaussian(variance=0.1),
        optimizer=LBFGS(max_iter=0),
    )
    return model.fit(line, np.sin(line[:, 0]))


def test_a_negative_variance_is_warned_of_once_and_the_noise_takes_its_place() -> None:
    model = one_sided()
    middle = RIGHT[10:20]
    raw = model.raw_variance(middle)
    assert np.all(raw < 0.0)
    with pytest.warns(NegativeVarianceWarning, match="10 of 40 variances.*VFERegressor") as seen:
        mean, std = model.predict(np.vstack([LEFT, middle]), return_std=True)
    assert len(seen) == 1
    assert seen[0].filename == __file__
    np.testing.assert_allclose(std[30:], np.sqrt(model.noise_variance_), rtol=1e-12)
    np.testing.assert_allclose(std[:30] ** 2, model.raw_variance(LEFT), rtol=1e-10)
    np.testing.assert_array_equal(mean, model.predict(np.vstack([LEFT, middle])))


def test_where_no_variance_is_negative_nothing_is_said() -> None:
    model = one_sided()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        std = model.predict(LEFT, return_std=True)[1]
        model.predict(RIGHT)
        model.raw_variance(RIGHT)
    np.testing.assert_allclose(std**2, model.raw_variance(LEFT), rtol=1e-10)


def test_blocks_of_rows_make_one_warning() -> None:
    model = one_sided()
    with pytest.warns(NegativeVarianceWarning, match="3000 of 3000") as seen:
        std = model.predict(np.linspace(7.0, 8.0, 3000)[:, None], return_std=True)[1]
    assert len(seen) == 1
    np.testing.assert_allclose(std, np.sqrt(model.noise_variance_), rtol=1e-12)


def test_unless_optimized_it_keeps_what_the_full_gp_learned() -> None:
    model = NystromRegressor(M, random_state=0).fit(X, y)
    full = ExactGPRegressor(random_state=0).fit(X, y)
    np.testing.assert_allclose(model.kernel_.theta, full.kernel_.theta, rtol=0.0, atol=1e-2)
    assert model.noise_variance_ == pytest.approx(full.noise_variance_, rel=1e-2)
    assert model.n_iter_ > 0


def test_a_noise_variance_that_is_given_is_kept() -> None:
    model = NystromRegressor(M, likelihood=Gaussian(variance=0.5), optimizer=LBFGS(max_iter=0)).fit(
        X, y
    )
    assert model.noise_variance_ == pytest.approx(0.5, rel=1e-12)


def test_the_joint_covariance_is_returned_as_it_is_with_a_warning() -> None:
    model = one_sided()
    where = np.linspace(7.0, 8.0, 5)[:, None]
    with pytest.warns(NegativeVarianceWarning, match="returned unchanged"):
        covariance = model.predict(where, return_cov=True)[1]
    np.testing.assert_allclose(np.diag(covariance), model.raw_variance(where), rtol=1e-8)


def test_unless_optimized_it_keeps_the_centres_of_clusters() -> None:
    model = NystromRegressor(M, **FIXED).fit(X, y)
    scale = X.std(axis=0)
    away = (X[:, None, :] - model.inducing_points_[None, :, :]) / scale
    nearest = np.argmin(np.sum(away**2, axis=2), axis=1)
    centres = [X[nearest == centre].mean(axis=0) for centre in range(M)]
    np.testing.assert_allclose(model.inducing_points_, centres, rtol=0.0, atol=1e-12)


def test_another_kernel_is_learned_by_the_full_gp_too() -> None:
    model = NystromRegressor(M, kernel=Matern32(9.0), random_state=0).fit(X, y)
    full = ExactGPRegressor(Matern32(9.0), random_state=0).fit(X, y)
    np.testing.assert_allclose(model.kernel_.theta, full.kernel_.theta, rtol=0.0, atol=2e-2)


def test_without_iterations_it_keeps_what_was_given() -> None:
    model = NystromRegressor(inducing_points=X[:7], **FIXED).fit(X, y)
    np.testing.assert_allclose(model.inducing_points_, X[:7], rtol=1e-12)
    np.testing.assert_allclose(model.kernel_.theta, FIXED["kernel"].with_ard(2).theta, atol=1e-12)
    assert model.noise_variance_ == pytest.approx(NOISE, rel=1e-12)


@pytest.mark.parametrize("n_components", [4, M])
def test_optimized_it_has_more_evidence(n_components: int) -> None:
    kept = NystromRegressor(n_components, random_state=0).fit(X, y)
    learned = NystromRegressor(
        n_components,
        optimizer=LBFGS(n_restarts=2, max_iter=60, exact_start=True),
        random_state=0,
    ).fit(X, y)
    assert learned.log_marginal_likelihood_ > kept.log_marginal_likelihood_
    assert learned.n_iter_ > 0


@pytest.mark.parametrize("init", ["kmeans", "random", "greedy"])
def test_with_every_row_as_an_inducing_point_it_is_the_exact_gp(init: Any) -> None:
    settings = FIXED | {"kernel": Matern12([1.5, 2.0], 1.4)}
    model = NystromRegressor(N, inducing_points=init, **settings).fit(X, y)
    exact = ExactGPRegressor(**settings).fit(X, y)
    assert model.log_marginal_likelihood_ == pytest.approx(exact.log_marginal_likelihood_, rel=1e-4)
    for own, other in zip(
        model.predict(X_new, return_std=True), exact.predict(X_new, return_std=True), strict=True
    ):
        np.testing.assert_allclose(own, other, rtol=0.0, atol=1e-4)
