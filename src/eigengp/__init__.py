"""EigenGP: sparse Gaussian processes with adaptive eigenfunctions."""

from eigengp import calibration, datasets, metrics
from eigengp.estimators.eigengp import EigenGPRegressor
from eigengp.estimators.exact import ExactGPRegressor
from eigengp.estimators.fitc import FITCRegressor
from eigengp.estimators.functional import EvidenceGradient, log_marginal_likelihood
from eigengp.estimators.nystrom import NegativeVarianceWarning, NystromRegressor
from eigengp.estimators.power_ep import PowerEPRegressor
from eigengp.estimators.rvm import RVMRegressor
from eigengp.estimators.ssgp import SSGPRegressor
from eigengp.estimators.vfe import VFERegressor
from eigengp.kernels import (
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
)
from eigengp.saving import load

__version__ = "0.1.0"

__all__ = [
    "EigenGPRegressor",
    "EvidenceGradient",
    "ExactGPRegressor",
    "FITCRegressor",
    "Matern12",
    "Matern32",
    "Matern52",
    "NegativeVarianceWarning",
    "NystromRegressor",
    "PowerEPRegressor",
    "RVMRegressor",
    "RationalQuadratic",
    "SSGPRegressor",
    "SquaredExponential",
    "VFERegressor",
    "calibration",
    "datasets",
    "load",
    "log_marginal_likelihood",
    "metrics",
]
