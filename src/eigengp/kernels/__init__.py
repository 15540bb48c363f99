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

KERNELS: dict[str, type[Stationary]] = {
    "squared_exponential": SquaredExponential,
    "matern12": Matern12,
    "matern32": Matern32,
    "matern52": Matern52,
    "rational_quadratic": RationalQuadratic,
}
"""Kernels by the names that estimators accept."""


def kernel_named(name: str) -> type[Stationary]:
    """Return a kernel's class by its name."""
    if name not in KERNELS:
        raise ValueError(f"There is no kernel {name!r}; there are {', '.join(KERNELS)}.")
    return KERNELS[name]


__all__ = [
    "KERNELS",
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
    "kernel_named",
]
