"""Between a model and the vector that an optimiser moves.

All positive parameters are moved through their logarithms, inside bounds
wide enough for any sensible model of standardised data and narrow enough
that every point within them can be factorised.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from eigengp.flow.model import EigenGP, Gradient
from eigengp.sources.views import Extent
from eigengp.typing import Array

LENGTHSCALE_RANGE = (1e-3, 1e3)
VARIANCE_RANGE = (1e-4, 1e6)
SHAPE_RANGE = (1e-2, 1e3)
NOISE_RANGE = (1e-6, 1e2)
SHRINKAGE_RANGE = (1e-8, 1e4)


@dataclass(frozen=True)
class Parameters:
    """Which parameters of a model are free, and how they lie in the vector.

    The order is kernel, inducing inputs, noise, shrinkage; parts that are
    held are left out.
    """

    template: EigenGP
    box: Extent
    """The box around the inputs; basis points may leave it by its own width."""
    basis: bool = True
    """Whether kernel and inducing inputs are free."""
    weights: bool = False
    """Whether the weights of the eigenfunctions are free."""

    def pack(self, model: EigenGP) -> Array:
        """Return the free parameters of `model` as one vector."""
        parts: list[Array] = []
        if self.basis:
            parts += [model.kernel.theta, model.inducing_inputs.ravel()]
        parts.append(np.log([model.noise_variance]))
        if self.weights:
            free = np.ones(model.n_components) if model.shrinkage is None else model.shrinkage
            parts.append(np.log(free))
        low, high = self.bounds()
        return np.clip(np.concatenate(parts), low, high)

    def unpack(self, vector: Array) -> EigenGP:
        """Return the model with the free parameters of `vector`."""
        model = self.template
        if self.basis:
            n_theta = model.kernel.theta.size
            n_basis = model.inducing_inputs.size
            kernel = model.kernel.with_theta(vector[:n_theta])
            points = vector[n_theta : n_theta + n_basis].reshape(model.inducing_inputs.shape)
            model = replace(model, kernel=kernel, inducing_inputs=points)
            vector = vector[n_theta + n_basis :]
        model = replace(model, noise_variance=float(np.exp(vector[0])))
        return replace(model, shrinkage=np.exp(vector[1:])) if self.weights else model

    def gradient(self, gradient: Gradient) -> Array:
        """Return a model's gradient in the order of the vector."""
        parts: list[Array] = []
        if self.basis:
            parts += [gradient.theta, gradient.inducing_inputs.ravel()]
        parts.append(np.array([gradient.log_noise_variance]))
        if self.weights and gradient.log_shrinkage is not None:
            parts.append(gradient.log_shrinkage)
        return np.concatenate(parts)

    def bounds(self) -> tuple[Array, Array]:
        """Return the lower and the upper bound of each entry.

        With the residual no weight may exceed the prior's, `v ≤ 1`: then
        `k − k̃` is a covariance and never negative, at any input.
        """
        model = self.template
        ranges: list[tuple[float, float]] = []
        if self.basis:
            ranges += [_kernel_range(name) for name in model.kernel.parameter_names]
        low = [np.log([r[0] for r in ranges])]
        high = [np.log([r[1] for r in ranges])]
        if self.basis:
            reach = self.box.high - self.box.low
            count = model.inducing_inputs.shape[0]
            low.append(np.tile(self.box.low - reach, count))
            high.append(np.tile(self.box.high + reach, count))
        low.append(np.log([NOISE_RANGE[0]]))
        high.append(np.log([NOISE_RANGE[1]]))
        if self.weights:
            top = 1.0 if model.residual else SHRINKAGE_RANGE[1]
            low.append(np.full(model.n_components, np.log(SHRINKAGE_RANGE[0])))
            high.append(np.full(model.n_components, np.log(top)))
        return np.concatenate(low), np.concatenate(high)


def _kernel_range(name: str) -> tuple[float, float]:
    own = name.rsplit(".", 1)[-1]
    if own.startswith("lengthscale"):
        return LENGTHSCALE_RANGE
    return VARIANCE_RANGE if own == "variance" else SHAPE_RANGE
