"""The candidates of `kernel="auto"`, and where learning of each starts."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from eigengp.gp.model import EigenGP
from eigengp.kernels import (
    Kernel,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
    Stationary,
    Sum,
)


class Start(NamedTuple):
    """Where learning of a candidate kernel starts."""

    kind: type[Stationary] | None
    """At the learned parameters of this kernel; None is the start of the fit."""
    stretch: float
    """The factor by which its lengthscales are multiplied."""


CANDIDATES: dict[type[Stationary], Start] = {
    SquaredExponential: Start(None, 1.0),
    RationalQuadratic: Start(SquaredExponential, 1.0),
    Matern52: Start(SquaredExponential, 1.3),
    Matern32: Start(Matern52, 1.3),
    Matern12: Start(Matern32, 2.4),
}
"""The candidate kernels; each starts where a smoother one ended."""
SUMS: tuple[tuple[type[Stationary], type[Stationary]], ...] = (
    (SquaredExponential, Matern52),
    (RationalQuadratic, Matern12),
    (Matern32, Matern12),
)
"""Candidate sums of a smooth and a rougher kernel; each starts where its parts ended."""
_LARGEST_ALPHA = 10.0
"""Where learning of a rational quadratic starts at most: beyond, gradients vanish."""


def name_kernel(kernel: Kernel) -> str:
    """Return the name of a kernel, or those of both parts of a sum."""
    parts = [kernel.left, kernel.right] if isinstance(kernel, Sum) else [kernel]
    return " + ".join(type(part).__name__ for part in parts)


def add_kernels(left: EigenGP, right: EigenGP) -> EigenGP:
    """Return a model with half of each kernel and the smaller noise."""
    halves = []
    for model in (left, right):
        kernel = limit_alpha(model.kernel)
        assert isinstance(kernel, Stationary)
        halves.append(replace(kernel, variance=0.5 * kernel.variance))
    best = min((left, right), key=lambda model: model.noise_variance)
    return replace(best, kernel=Sum(*halves))


def limit_alpha(kernel: Kernel) -> Kernel:
    """Return the kernel with each α of a rational quadratic where its gradient is not lost."""
    if isinstance(kernel, Sum):
        return Sum(limit_alpha(kernel.left), limit_alpha(kernel.right))
    if isinstance(kernel, RationalQuadratic) and kernel.alpha > _LARGEST_ALPHA:
        return replace(kernel, alpha=_LARGEST_ALPHA)
    return kernel
