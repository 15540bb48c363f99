"""The Laplace approximation to the posterior of kernel and noise: evidence of a kernel, and draws.

At a maximum of the posterior density `p(θ | y)` its logarithm is nearly quadratic, so the posterior
is nearly normal, and the evidence `p(y)` of a kernel is the height of the density times the volume
under that normal density.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from eigengp._typing import Array
from eigengp.fitting.objectives import PriorObjective
from eigengp.gp.exact import ExactGP

_MOST_DIRECTIONS = 24
_STEP = 1e-3
_WIDEST = 3.0  # The largest standard deviation of a log parameter in the Laplace approximation.


@dataclass(frozen=True)
class Optimum:
    """A maximum of the posterior density of kernel and noise.

    Parameters
    ----------
    objective : PriorObjective
        The negative log posterior density per row.
    vector : array of shape (p,)
        The logarithms of the parameters.
    value : float
        The objective there.
    rivals : tuple of Optimum
        The maxima of other kernels for the same rows.
    """

    objective: PriorObjective
    vector: Array
    value: float
    rivals: tuple[Optimum, ...] = ()

    @cached_property
    def model(self) -> ExactGP:
        """The model with these parameters."""
        return self.objective.parameters.unpack(self.vector)

    @property
    def source(self) -> Any:
        """The rows."""
        return self.objective.likelihood.source

    @cached_property
    def laplace(self) -> tuple[Array, Array]:
        """Directions of shape (p, q), and standard deviations along them, shape (q,).

        The Hessian is the difference of two gradients. Of many lengthscales the shortest have a
        direction each, and all others share one.
        """
        x, weight = self.vector, self.objective.weight
        basis = self._choose_directions()
        centre = self.objective(x).gradient
        steps = [self.objective(x + _STEP * each).gradient - centre for each in basis.T]
        hessian = np.array(steps) @ basis * (weight / _STEP)
        curvature, U = np.linalg.eigh(0.5 * (hessian + hessian.T))
        directions = basis @ U
        # Their signs are arbitrary; these do not depend on the order of the inputs.
        largest = np.argmax(np.abs(directions), axis=0)
        directions *= np.sign(directions[largest, np.arange(directions.shape[1])])
        return directions, 1.0 / np.sqrt(np.maximum(curvature, _WIDEST**-2))

    @property
    def _free(self) -> Any:
        """The numbers of the parameters that are not held."""
        low, high = self.objective.parameters.bounds
        return np.flatnonzero(low < high)

    def _choose_directions(self) -> Array:
        identity, free = np.eye(self.vector.size), self._free
        if free.size <= _MOST_DIRECTIONS:
            return identity[:, free]
        kinds = self.model.kernel.parameters
        lengths = np.array([i for i, kind in enumerate(kinds) if kind.restarts], dtype=int)
        lengths = np.intersect1d(lengths, free)
        others = np.setdiff1d(free, lengths)
        order = lengths[np.argsort(self.vector[lengths])]
        count = max(0, _MOST_DIRECTIONS - others.size - 1)
        rest = identity[:, order[count:]].sum(axis=1, keepdims=True)
        return np.hstack([identity[:, others], identity[:, order[:count]], rest])

    @property
    def log_evidence(self) -> float:
        """The Laplace approximation to `ln p(y)` of the kernel, in nats."""
        _, width = self.laplace
        normaliser = np.sum(np.log(self.objective.prior[1][self._free]))
        return float(-self.objective.weight * self.value - normaliser + np.sum(np.log(width)))

    def draw(self, pairs: int, rng: np.random.RandomState) -> Iterator[tuple[ExactGP, float]]:
        """Draw models from the Laplace approximation, in pairs about the optimum.

        With each is the largest `−ln p(y)` with which it is kept. That is so with probability
        `min(1, p/q)` for the posterior density `p` and the approximation `q`, both relative to
        their values at the optimum.
        """
        directions, width = self.laplace
        half = rng.standard_normal((pairs, width.size))
        low, high = self.objective.parameters.bounds
        mean, deviation = self.objective.prior
        for own in np.vstack([half, -half]):
            vector = np.clip(self.vector + directions @ (own * width), low, high)
            apart = (vector - mean) / deviation
            most = self.objective.weight * self.value + 0.5 * float(own @ own - apart @ apart)
            yield self.objective.parameters.unpack(vector), most - np.log(rng.uniform())

    def draw_kernels(self, pairs: int, rng: np.random.RandomState) -> list[tuple[ExactGP, float]]:
        """Draw models of this kernel and its rivals, as many of each as its evidence says."""
        found = (self, *self.rivals)
        gains = np.array([each.log_evidence for each in found] if self.rivals else [0.0])
        shares = np.cumsum(np.exp(gains - gains.max()))
        counts = np.diff(np.rint(pairs * shares / shares[-1]).astype(int), prepend=0)
        return [
            drawn for each, own in zip(found, counts, strict=True) for drawn in each.draw(own, rng)
        ]
