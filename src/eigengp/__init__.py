"""EigenGP: sparse Gaussian processes with adaptive eigenfunctions."""

from eigengp.estimators.eigengp import EigenGPRegressor
from eigengp.estimators.functional import EvidenceGradient, log_marginal_likelihood
from eigengp.kernels import (
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
)

__version__ = "0.1.0"

__all__ = [
    "EigenGPRegressor",
    "EvidenceGradient",
    "Matern12",
    "Matern32",
    "Matern52",
    "RationalQuadratic",
    "SquaredExponential",
    "log_marginal_likelihood",
]
