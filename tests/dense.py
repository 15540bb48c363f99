"""The same models written with dense N × N matrices, as plainly as they can be."""

from __future__ import annotations

import numpy as np
from scipy.stats import multivariate_normal

from eigengp._typing import Array
from eigengp.gp.model import EigenGP


def low_rank(model: EigenGP, X: Array, Z: Array) -> Array:
    """Return `k̃(X, Z) = Σ_j w_j φ_j(X) φ_j(Z)ᵀ`."""
    K_BB, B = gram(model), model.inducing_points
    lam, U = np.linalg.eigh(K_BB)
    lam, U = lam[::-1], U[:, ::-1]
    M, R = lam.size, model.n_components
    v = np.ones(R) if model.shrinkage is None else model.shrinkage
    w = v * lam[:R] / M
    to_functions = np.sqrt(M) * U[:, :R] / lam[:R]
    return (model.kernel(X, B) @ to_functions * w) @ (model.kernel(Z, B) @ to_functions).T


def gram(model: EigenGP) -> Array:
    """Return `K_BB` with its jitter."""
    B = model.inducing_points
    return model.kernel(B) + model.gram.jitter * np.eye(B.shape[0])


def residual_variance(model: EigenGP, X: Array) -> Array:
    """Return `max(0, k(x,x) − k̃(x,x))` for each row."""
    return np.maximum(np.diag(model.kernel(X)) - np.diag(low_rank(model, X, X)), 0.0)


def own_variance(model: EigenGP, X: Array) -> Array:
    """Return the variance that each noisy observation has for itself."""
    rest = residual_variance(model, X) if model.residual else 0.0
    return np.full(X.shape[0], model.noise_variance) + rest


def covariance(model: EigenGP, X: Array) -> Array:
    """Return the prior covariance of noisy observations at `X`; equal inputs share a residual."""
    C = low_rank(model, X, X) + model.noise_variance * np.eye(X.shape[0])
    if not model.residual:
        return C
    equal = (X[:, None] == X).all(axis=2)
    return C + equal * residual_variance(model, X)


def negative_log_evidence(model: EigenGP, X: Array, y: Array, gamma: float = 0.0) -> float:
    """Return `−ln N(y | 0, C)`, plus `gamma` times the trace term."""
    C = covariance(model, X)
    value = -multivariate_normal(np.zeros(y.size), C).logpdf(y)
    if model.residual or gamma == 0.0:
        return float(value)
    prior = EigenGP(
        model.kernel,
        model.inducing_points,
        model.noise_variance,
        model.n_components,
        jitter=model.jitter,
    )
    rest = np.trace(model.kernel(X)) - np.trace(low_rank(prior, X, X))
    return float(value + 0.5 * gamma * rest / model.noise_variance)


def conditional(model: EigenGP, X: Array, y: Array, X_new: Array) -> tuple[Array, Array]:
    """Return mean and covariance of new noisy observations, given the rows."""
    cross = low_rank(model, X_new, X)
    solved = np.linalg.solve(covariance(model, X), np.column_stack([y, cross.T]))
    return cross @ solved[:, 0], covariance(model, X_new) - cross @ solved[:, 1:]
