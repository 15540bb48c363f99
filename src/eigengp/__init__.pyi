"""The names of the package, for type checkers and for `__init__.py`, which imports them lazily."""

from eigengp import conformal, datasets, inspection, metrics, plot
from eigengp.baselines.nystrom import NegativeVarianceWarning, NystromRegressor
from eigengp.baselines.rvm.regressor import RVMRegressor
from eigengp.data.columns import TableError, TableWarning
from eigengp.data.encode import TableEncoder
from eigengp.estimators.classifier import EigenGPClassifier
from eigengp.estimators.eigen_features import EigenFeatures
from eigengp.estimators.eigengp import EigenGPRegressor
from eigengp.estimators.evidence import EvidenceGradient, log_marginal_likelihood
from eigengp.estimators.exact import ExactGPRegressor
from eigengp.estimators.sparse import FITCRegressor, PowerEPRegressor, SSGPRegressor, VFERegressor
from eigengp.fitting.run import FitWarning
from eigengp.fitting.settings import LBFGS, Stochastic
from eigengp.gp.likelihoods import (
    Gaussian,
    Heteroscedastic,
    NegativeBinomial,
    Poisson,
    Quantile,
    StudentT,
)
from eigengp.io import load
from eigengp.kernels import (
    Additive,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Polynomial,
    RationalQuadratic,
    SquaredExponential,
    Warped,
)

__version__: str

__all__ = [
    "LBFGS",
    "Additive",
    "EigenFeatures",
    "EigenGPClassifier",
    "EigenGPRegressor",
    "EvidenceGradient",
    "ExactGPRegressor",
    "FITCRegressor",
    "FitWarning",
    "Gaussian",
    "Heteroscedastic",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "NegativeBinomial",
    "NegativeVarianceWarning",
    "NystromRegressor",
    "Periodic",
    "Poisson",
    "Polynomial",
    "PowerEPRegressor",
    "Quantile",
    "RVMRegressor",
    "RationalQuadratic",
    "SSGPRegressor",
    "SquaredExponential",
    "Stochastic",
    "StudentT",
    "TableEncoder",
    "TableError",
    "TableWarning",
    "VFERegressor",
    "Warped",
    "conformal",
    "datasets",
    "inspection",
    "load",
    "log_marginal_likelihood",
    "metrics",
    "plot",
]
