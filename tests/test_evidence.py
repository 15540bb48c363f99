"""The log marginal likelihood from sums, and its adjoints."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from eigengp._typing import Array
from eigengp.gp.evidence import FactorEvidence, PriorEvidence, TraceTerm
from eigengp.gp.linalg import CholeskyFactor
from eigengp.gp.sums import Sums
from finite_differences import assert_close, gradient, symmetric_gradient

N, M = 12, 4
rng = np.random.default_rng(0)
K, y = rng.normal(size=(N, M)), rng.normal(size=N)
row_noise = rng.uniform(0.5, 2.0, size=N)
counts = rng.integers(1, 4, size=N).astype(float)
SHAPES = pytest.mark.parametrize("R", [1, 2, M])


def factor_of(R: int) -> Array:
    return np.random.default_rng(R).normal(size=(M, R))


def evidence_of(sums: Sums, F: Array, noise: float) -> FactorEvidence:
    """Return the evidence of features `K F`, whose coefficients have a white prior."""
    return FactorEvidence(
        replace(sums, A=F.T @ sums.A @ F, b=F.T @ sums.b), np.ones(F.shape[1]), noise
    )


def sums_of(omega: Array, s: Array) -> Sums:
    A, wy = K.T @ (omega[:, None] * K), omega * y
    log_precision = float(s @ np.log(omega / s))
    return Sums(A, K.T @ wy, float(wy @ y), log_precision, float(omega.sum()), float(s.sum()))


EQUAL = sums_of(np.ones(N), np.ones(N))
OWN_NOISE = sums_of(1.0 / row_noise, np.ones(N))
COUNTED = sums_of(counts / row_noise, counts)


@SHAPES
@pytest.mark.parametrize("noise", [1e-2, 0.4, 30.0])
def test_negative_log_is_the_dense_gaussian_density(R: int, noise: float) -> None:
    F = factor_of(R)
    C = K @ F @ F.T @ K.T + noise * np.eye(N)
    expected = -multivariate_normal(np.zeros(N), C).logpdf(y)
    assert evidence_of(EQUAL, F, noise).negative_log == pytest.approx(expected, rel=1e-11)


@SHAPES
def test_rows_with_noise_of_their_own_give_the_dense_density(R: int) -> None:
    F = factor_of(R)
    C = K @ F @ F.T @ K.T + np.diag(row_noise)
    expected = -multivariate_normal(np.zeros(N), C).logpdf(y)
    assert evidence_of(OWN_NOISE, F, 1.0).negative_log == pytest.approx(expected, rel=1e-12)


@SHAPES
def test_a_row_that_counts_twice_is_two_rows(R: int) -> None:
    F, times = factor_of(R), counts.astype(int)
    many, targets = np.repeat(K, times, axis=0), np.repeat(y, times)
    C = many @ F @ F.T @ many.T + np.diag(np.repeat(row_noise, times))
    expected = -multivariate_normal(np.zeros(targets.size), C).logpdf(targets)
    assert evidence_of(COUNTED, F, 1.0).negative_log == pytest.approx(expected, rel=1e-12)


@SHAPES
def test_posterior_of_the_coefficients_is_the_gaussian_conditional(R: int) -> None:
    F, noise = factor_of(R), 0.4
    evidence = evidence_of(EQUAL, F, noise)
    prior = F @ F.T
    gain = prior @ K.T @ np.linalg.inv(K @ prior @ K.T + noise * np.eye(N))
    np.testing.assert_allclose(F @ evidence.mean, gain @ y, rtol=1e-10, atol=1e-12)
    P = prior - gain @ K @ prior
    V = F @ evidence.V
    np.testing.assert_allclose(V @ V.T, P, rtol=0.0, atol=1e-12 * prior.max())


@SHAPES
@pytest.mark.parametrize("sums", [EQUAL, COUNTED], ids=["equal", "counted"])
@pytest.mark.parametrize("noise", [0.4, 1.0])
def test_adjoint_is_the_derivative(R: int, sums: Sums, noise: float) -> None:
    F = factor_of(R)
    evidence = evidence_of(sums, F, noise)
    adjoint = evidence.sums_adjoint()

    def value(sums: Sums, F: Array = F, noise: float = noise) -> float:
        return evidence_of(sums, F, noise).negative_log

    step = 1e-2
    A = symmetric_gradient(lambda at: value(replace(sums, A=at)), sums.A, step)
    b = gradient(lambda at: value(replace(sums, b=at)), sums.b, step)
    c = gradient(lambda at: value(replace(sums, c=float(at))), sums.c, step)
    logs = gradient(
        lambda at: value(replace(sums, log_precision=float(at))), sums.log_precision, step
    )
    assert_close(F @ adjoint.A @ F.T, A)
    assert_close(F @ adjoint.b, b)
    assert_close(adjoint.c, c)
    assert_close(adjoint.log_precision, logs)
    noise_bar = gradient(lambda at: value(sums, noise=float(at)), noise, step)
    assert_close(evidence.noise_adjoint(), noise_bar)


@pytest.mark.parametrize("sums", [EQUAL, COUNTED], ids=["equal", "counted"])
@pytest.mark.parametrize("noise", [0.4, 1.0])
def test_gram_adjoint_is_the_derivative(sums: Sums, noise: float) -> None:
    root = np.random.default_rng(9).normal(size=(M, M))
    gram = root @ root.T + np.eye(M)

    def evidence(at: Array) -> PriorEvidence:
        return PriorEvidence(sums, 1.0, noise, CholeskyFactor.of(at))

    own = evidence(gram)
    expected = symmetric_gradient(lambda at: evidence(at).negative_log, gram, 1e-2)
    assert_close(own.gram_adjoint(own.sums_adjoint()), expected)


@pytest.mark.parametrize("sums", [EQUAL, COUNTED], ids=["equal", "counted"])
def test_both_ways_to_the_evidence_of_the_prior_agree(sums: Sums) -> None:
    root = np.random.default_rng(9).normal(size=(M, M))
    prior = CholeskyFactor.of(root @ root.T + np.eye(M))
    own, other = PriorEvidence(sums, 1.0, 0.4, prior), evidence_of(sums, prior.matrix, 0.4)
    assert own.negative_log == pytest.approx(other.negative_log, rel=1e-12)
    assert own.noise_adjoint() == pytest.approx(other.noise_adjoint(), rel=1e-9)
    assert own.mean_norm == pytest.approx(other.mean_norm, rel=1e-9)
    assert own.determined == pytest.approx(other.determined, rel=1e-9)
    np.testing.assert_allclose(own.mean, prior.matrix @ other.mean, rtol=1e-9)
    covariance = prior.matrix @ other.covariance @ prior.matrix.T
    np.testing.assert_allclose(own.covariance, covariance, rtol=1e-8, atol=1e-13)
    np.testing.assert_allclose(own.V @ own.V.T, own.covariance, rtol=1e-8, atol=1e-13)


def test_a_vanishing_prior_leaves_the_noise() -> None:
    evidence = FactorEvidence(EQUAL, np.zeros(M), 0.4)
    expected = -multivariate_normal(np.zeros(N), 0.4 * np.eye(N)).logpdf(y)
    assert evidence.negative_log == pytest.approx(expected, rel=1e-13)
    np.testing.assert_array_equal(evidence.mean, np.zeros(M))


def trace_of(sums: Sums, W: Array, noise: float, prior: float) -> TraceTerm:
    return TraceTerm.of(sums, W, noise, prior, gamma=0.7)


@SHAPES
@pytest.mark.parametrize("sums", [EQUAL, COUNTED], ids=["equal", "counted"])
def test_trace_term_is_what_the_dense_prior_leaves_out(R: int, sums: Sums) -> None:
    F, prior, noise = factor_of(R), 2.3, 0.4
    omega = np.ones(N) if sums is EQUAL else counts / row_noise
    rest = omega @ (prior - np.diag(K @ F @ F.T @ K.T))
    expected = 0.7 * rest / (2.0 * noise)
    assert trace_of(sums, F @ F.T, noise, prior).value == pytest.approx(expected, rel=1e-12)


@SHAPES
@pytest.mark.parametrize("sums", [EQUAL, COUNTED], ids=["equal", "counted"])
def test_trace_adjoint_is_the_derivative(R: int, sums: Sums) -> None:
    F, prior, noise = factor_of(R), 2.3, 0.4
    W = F @ F.T
    adjoint = trace_of(sums, W, noise, prior)

    def value(A: Array = sums.A, W: Array = W, noise: float = noise, prior: float = prior) -> float:
        return trace_of(replace(sums, A=A), W, noise, prior).value

    assert_close(adjoint.A, symmetric_gradient(lambda at: value(A=at), sums.A))
    assert_close(adjoint.weights, symmetric_gradient(lambda at: value(W=at), W))
    assert_close(
        adjoint.noise_variance, gradient(lambda at: value(noise=float(at)), noise, step=5e-3)
    )
    by_prior = gradient(lambda at: value(prior=float(at)), prior)
    assert_close(adjoint.diagonal * sums.precision, by_prior)
    varying = trace_of(replace(sums, diagonal=sums.precision * prior), W, noise, None)
    assert varying.value == pytest.approx(value(), rel=1e-14)
