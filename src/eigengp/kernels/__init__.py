"""Covariance functions: `stationary.py` and `nonstationary.py` are where new ones go."""

from eigengp.kernels.base import (
    LENGTHSCALE,
    SHAPE,
    VARIANCE,
    Kernel,
    KernelAdjoint,
    KernelColumns,
    Parameter,
    PullBack,
    parameter,
)
from eigengp.kernels.composite import Product, Sum
from eigengp.kernels.nonstationary import Additive, Linear, PairwiseKernel, Periodic, Polynomial
from eigengp.kernels.stationary import (
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
    Stationary,
)
from eigengp.kernels.warped import Warped

__all__ = [
    "KERNELS",
    "LENGTHSCALE",
    "SHAPE",
    "VARIANCE",
    "Additive",
    "Kernel",
    "KernelAdjoint",
    "KernelColumns",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "PairwiseKernel",
    "Parameter",
    "Periodic",
    "Polynomial",
    "Product",
    "PullBack",
    "RationalQuadratic",
    "SquaredExponential",
    "Stationary",
    "Sum",
    "Warped",
    "parameter",
]

# The kernels that an estimator takes by name.
KERNELS: dict[str, type[Kernel]] = {
    "squared_exponential": SquaredExponential,
    "matern12": Matern12,
    "matern32": Matern32,
    "matern52": Matern52,
    "rational_quadratic": RationalQuadratic,
    "periodic": Periodic,
    "additive": Additive,
    "linear": Linear,
    "polynomial": Polynomial,
}
