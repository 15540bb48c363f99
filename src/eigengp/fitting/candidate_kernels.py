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
    halves = [_halve(limit_alpha(model.kernel)) for model in (left, right)]
    best = min((left, right), key=lambda model: model.noise_variance)
    return replace(best, kernel=Sum(*halves))


def split_kernel(kernel: Stationary, like: Sum) -> Sum:
    """Return a sum of the kinds of `like`, each with half of the variance of a learned kernel.

    Parts of a sum that are learned from scratch soon divide the inputs among themselves, and do not
    find back; with the lengthscales of one kernel of all rows they start closer to the optimum.
    """
    halves = []
    for part in (like.left, like.right):
        kind = type(part)
        assert issubclass(kind, Stationary)
        stretch = _get_stretch(kind) / _get_stretch(type(kernel))
        halves.append(_halve(kind(kernel.lengthscale * stretch, kernel.variance)))
    return Sum(*halves)


def _halve(kernel: Kernel) -> Kernel:
    assert isinstance(kernel, Stationary)
    return replace(kernel, variance=0.5 * kernel.variance)


def _get_stretch(kind: type[Stationary]) -> float:
    """Return the ratio of lengthscales to those of the squared exponential."""
    origin = CANDIDATES[kind]
    return origin.stretch * (1.0 if origin.kind is None else _get_stretch(origin.kind))


def limit_alpha(kernel: Kernel) -> Kernel:
    """Return the kernel with each α of a rational quadratic where its gradient is not lost."""
    if isinstance(kernel, Sum):
        return Sum(limit_alpha(kernel.left), limit_alpha(kernel.right))
    if isinstance(kernel, RationalQuadratic) and kernel.alpha > _LARGEST_ALPHA:
        return replace(kernel, alpha=_LARGEST_ALPHA)
    return kernel
