"""Covariance functions; a new stationary kernel goes into `stationary.py`."""

from eigengp.kernels.base import Columns, Kernel, KernelAdjoint, Product, PullBack, Sum
from eigengp.kernels.stationary import (
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
    Stationary,
)

__all__ = [
    "Columns",
    "Kernel",
    "KernelAdjoint",
    "Matern12",
    "Matern32",
    "Matern52",
    "Product",
    "PullBack",
    "RationalQuadratic",
    "SquaredExponential",
    "Stationary",
    "Sum",
]
