"""EigenGP: sparse Gaussian processes with adaptive eigenfunctions.

What is named here is imported when it is first used, so that `import eigengp` and the command line
begin at once.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eigengp import calibration, datasets, inspection, metrics, plot
    from eigengp.estimators.eigen_features import EigenFeatures
    from eigengp.estimators.eigengp import EigenGPRegressor
    from eigengp.estimators.exact import ExactGPRegressor
    from eigengp.estimators.fitc import FITCRegressor
    from eigengp.estimators.functional import EvidenceGradient, log_marginal_likelihood
    from eigengp.estimators.nystrom import NegativeVarianceWarning, NystromRegressor
    from eigengp.estimators.power_ep import PowerEPRegressor
    from eigengp.estimators.rvm import RVMRegressor
    from eigengp.estimators.ssgp import SSGPRegressor
    from eigengp.estimators.transformed import TargetTransformed
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
    "EigenFeatures",
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
    "TargetTransformed",
    "VFERegressor",
    "calibration",
    "datasets",
    "inspection",
    "load",
    "log_marginal_likelihood",
    "metrics",
    "plot",
]

_HOMES = {
    "EigenFeatures": "estimators.eigen_features",
    "EigenGPRegressor": "estimators.eigengp",
    "EvidenceGradient": "estimators.functional",
    "ExactGPRegressor": "estimators.exact",
    "FITCRegressor": "estimators.fitc",
    "Matern12": "kernels",
    "Matern32": "kernels",
    "Matern52": "kernels",
    "NegativeVarianceWarning": "estimators.nystrom",
    "NystromRegressor": "estimators.nystrom",
    "PowerEPRegressor": "estimators.power_ep",
    "RVMRegressor": "estimators.rvm",
    "RationalQuadratic": "kernels",
    "SSGPRegressor": "estimators.ssgp",
    "SquaredExponential": "kernels",
    "TargetTransformed": "estimators.transformed",
    "VFERegressor": "estimators.vfe",
    "load": "saving",
    "log_marginal_likelihood": "estimators.functional",
}
"""The module that each name comes from; names that are modules themselves need none."""


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
