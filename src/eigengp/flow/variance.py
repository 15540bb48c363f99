"""How a predictive variance varies with the input, beyond what a constant noise says.

The variance of a prediction is multiplied by `exp(η(x))`, where `η` is linear
in a few signs of how well predictions do around `x`: the variance itself, how
well the nearest rows predict one another, and the eigenfunctions. A little is
added to all variances, for surprises of which no row told.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eigengp.typing import Array

_NEAR = (8, 16, 32, 64)
"""Among how many of the nearest rows surprise is measured, as far as there are so many."""
_PSEUDO = 2.0
"""How many neighbours without surprise, or with, it takes to be believed."""


def signs(variance: Array, surprise: Array, explained: Array) -> Array:
    """Return what `η` depends on, shape (n, p).

    Parameters
    ----------
    variance : array of shape (n,)
        Of the predictions, with a constant noise.
    surprise : array of shape (n, m)
        Squares, with mean one if the model is right, of what each neighbour
        adds to those nearer.
    explained : array of shape (n, M)
        `Fᵀk(x)`, the eigenfunctions in coordinates with a white prior, in units
        of the prior's standard deviation.
    """
    total = np.cumsum(surprise, axis=1)
    counts = [k for k in _NEAR if k < total.shape[1]] + [total.shape[1]]
    local = [np.log((_PSEUDO + total[:, k - 1]) / (_PSEUDO + k)) for k in counts if k]
    return np.column_stack([np.log(variance), *local, explained])


@dataclass(frozen=True)
class VarianceScale:
    """`v ↦ v exp(η) + floor`, with `η = β₀ + Σ_j β_j (sign_j − centre_j)/spread_j`.

    Signs beyond what the rows had are taken as the nearest that they had: far
    from the data error bars grow with the variance of the GP, and no faster.
    """

    intercept: float
    slopes: Array
    centre: Array
    spread: Array
    low: Array
    high: Array
    floor: float = 0.0

    def __call__(self, variance: Array, found: Array) -> Array:
        """Return variances as they vary, shape (n,), from signs of shape (n, p)."""
        known = np.clip(found, self.low, self.high)
        eta = self.intercept + ((known - self.centre) / self.spread) @ self.slopes
        scaled: Array = variance * np.exp(eta) + self.floor
        return scaled
