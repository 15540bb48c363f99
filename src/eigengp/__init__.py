"""Gaussian-process regression, exact for few rows and with learned eigenfunctions for many.

What is named here is imported when it is first used, so that `import eigengp` and the command line
begin at once.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from eigengp.estimators.sparse import FITCRegressor, PowerEPRegressor, VFERegressor
    from eigengp.estimators.ssgp import SSGPRegressor
    from eigengp.estimators.transformed_target import TargetTransformed
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

__version__ = "0.1.0"

__all__ = [
    "LBFGS",
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
    "TargetTransformed",
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

_NAMES = {
    "baselines.nystrom": "NegativeVarianceWarning NystromRegressor",
    "baselines.rvm.regressor": "RVMRegressor",
    "data.columns": "TableError TableWarning",
    "data.encode": "TableEncoder",
    "estimators.classifier": "EigenGPClassifier",
    "estimators.eigen_features": "EigenFeatures",
    "estimators.eigengp": "EigenGPRegressor",
    "estimators.evidence": "EvidenceGradient log_marginal_likelihood",
    "estimators.exact": "ExactGPRegressor",
    "estimators.sparse": "FITCRegressor PowerEPRegressor VFERegressor",
    "estimators.ssgp": "SSGPRegressor",
    "estimators.transformed_target": "TargetTransformed",
    "fitting.run": "FitWarning",
    "fitting.settings": "LBFGS Stochastic",
    "gp.likelihoods": "Gaussian Heteroscedastic NegativeBinomial Poisson Quantile StudentT",
    "io": "load",
    "kernels": "Linear Matern12 Matern32 Matern52 Periodic Polynomial RationalQuadratic "
    "SquaredExponential Warped",
}
"""The names that come from each module; names that are modules themselves need none."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import what is asked for: a name from its home, or a module of the package."""
    if name in _HOMES:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    if name.startswith("_") or find_spec(f"{__name__}.{name}") is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    """Return all names, imported or not."""
    return sorted({*globals(), *__all__})
