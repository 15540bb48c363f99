"""Covariance matrices of rows with themselves, and their pull-back, by compiled loops.

They are symmetric, so that half of the entries do, and nothing is stored beside the matrix. Known
are stationary kernels with a `decay` and sums of them: `list_terms` returns nothing for others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eigengp._typing import Array
from eigengp.backend.loops import load_loops
from eigengp.backend.threads import make_buffer
from eigengp.kernels.base import Kernel
from eigengp.kernels.composite import Sum
from eigengp.kernels.stationary import Stationary


def list_terms(kernel: Kernel) -> list[Stationary]:
    """Return the kernels whose sum a kernel is, if compiled loops know them all; else nothing."""
    if isinstance(kernel, Sum):
        left, right = list_terms(kernel.left), list_terms(kernel.right)
        return left + right if left and right else []
    if not isinstance(kernel, Stationary) or kernel.decay is None:
        return []
    return [kernel] if hasattr(load_loops(), "add_gram") else []


def gram(terms: Sequence[Stationary], X: Array) -> Array:
    """Return the lower half of `k(X, X)`, zero above the diagonal, in the order of Fortran."""
    points = [_scale(each, X) for each in terms]
    upper = make_buffer((X.shape[0], X.shape[0]))
    for number, (each, own) in enumerate(zip(terms, points, strict=True)):
        load_loops().add_gram(own, np.array(each.decay), each.variance, number == 0, upper)
    return upper.T


def pull_back_gram(terms: Sequence[Stationary], X: Array, inverse: Array, a: Array) -> Array:
    """Return `Σ_ij ½ (C⁻¹ − a aᵀ)_ij dk(x_i, x_j)/dθ`.

    `inverse` is `C⁻¹`, of which entries on and below the diagonal are read. With `T = C̄ ∘ ρ'(t)`
    the derivative with respect to `ln ℓ_d` is `−2 variance Σ_ij T_ij (x_id − x_jd)²/ℓ_d²`.
    """
    found = []
    for each in terms:
        points = _scale(each, X)
        sums = np.zeros(points.shape[0] + 2)
        load_loops().pull_back_gram(points, np.array(each.decay), inverse.T, a, sums)
        lengths = -2.0 * sums[:-2]
        if np.ndim(each.lengthscale) == 0:
            lengths = lengths.sum(keepdims=True)
        elif each.groups is not None:
            lengths = each.sum_groups(lengths)
        n_others = len(each.parameters) - lengths.size
        found.append(each.variance * np.concatenate([lengths, sums[-2:][:n_others]]))
    return np.concatenate(found)


def _scale(kernel: Stationary, X: Array) -> Array:
    """Return the inputs in units of the lengthscales, shape (D, n)."""
    if kernel.active_dims is not None:
        X = X[:, list(kernel.active_dims)]
    return np.ascontiguousarray((X / np.asarray(kernel.lengthscale)).T)
