"""Exact GPs of few rows, and products with large kernel matrices, by compiled loops.

Covariance, factor, solution and gradient of a GP are one call, in the memory of one matrix, of
which half is computed. Products do not store the matrix. Known are stationary kernels with a
`decay` and sums of them: `list_terms` returns nothing for others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import load_loops
from eigengp.backend.threads import find_address, make_buffer
from eigengp.kernels.base import Kernel
from eigengp.kernels.composite import Sum
from eigengp.kernels.stationary import Stationary

_MANY_POINTS, _TRIED_POINTS, _LITTLE = 4_000, 100, 1e-2
"""The least number of points for products in float32, the number at which it is tried, and the
largest root mean square of the change of values, systematic errors included, relative to the
standard deviation of the noise, whose variance then grows by at most a ten-thousandth."""


class Evaluated(NamedTuple):
    """An exact GP with `C = k(X, X) + noise`."""

    log_root: float
    """`Σ ln L_nn`, half of the log determinant; NaN if `C` has no factor."""
    matrix: Array
    """The lower half of `L`, or of `C⁻¹` with a gradient, in memory that may be recycled."""
    solved: Array
    """`a = C⁻¹y`."""
    theta: Array
    """`Σ_ij ½ (C⁻¹ − a aᵀ)_ij dk(x_i, x_j)/dθ`; empty without a gradient."""
    by_inputs: Array
    """The same by `X`, shape (n, D), if it is asked for; else it has no rows."""


def list_terms(kernel: Kernel) -> list[Stationary]:
    """Return the kernels whose sum a kernel is, if compiled loops know them all; else nothing."""
    if isinstance(kernel, Sum):
        left, right = list_terms(kernel.left), list_terms(kernel.right)
        return left + right if left and right else []
    return [kernel] if isinstance(kernel, Stationary) and kernel.decay is not None else []


def evaluate(
    terms: Sequence[Stationary],
    X: Array,
    noise: Array,
    y: Array,
    with_gradient: bool = False,
    with_inputs: bool = False,
) -> Evaluated | None:
    """Evaluate an exact GP whose kernel is a sum of terms; None if there are no compiled loops.

    With `T = C̄ ∘ ρ'(t)` the derivative with respect to `ln ℓ_d` is
    `−2 variance Σ_ij T_ij (x_id − x_jd)²/ℓ_d²`, and by `x_id` it is
    `4 variance Σ_j T_ij (x_id − x_jd)/ℓ_d²`.
    """
    loops = load_loops()
    if not hasattr(loops, "evaluate_gram"):
        return None
    n, D = X.shape
    per_length, known = _describe(terms, D)
    matrix, a = make_buffer((n, n), order="F"), np.empty(n)
    sums = np.zeros((len(terms) if with_gradient else 0, D + 2))
    by_inputs = np.zeros((D if with_inputs else 0, n))
    addresses = find_address("dpotrf"), find_address("dpotri")
    log_root = loops.evaluate_gram(
        *(np.ascontiguousarray(X), per_length, known, noise, np.ascontiguousarray(y)),
        *(*addresses, matrix.T, a, sums, by_inputs),
    )
    found = [_get_gradient(term, own) for term, own in zip(terms, sums, strict=with_gradient)]
    theta = np.concatenate(found) if found else np.empty(0)
    return Evaluated(log_root, matrix, a, theta, by_inputs.T)


def _describe(terms: Sequence[Stationary], n_features: int) -> tuple[Array, Array]:
    """Return inverse lengthscales, (k, D), and profiles with variances, (k, 5), of k terms."""
    size = (n_features,)
    per_length = np.array([np.broadcast_to(each.metric(n_features), size) for each in terms])
    return per_length, np.array([(*(each.decay or ()), each.variance) for each in terms])


def _get_gradient(term: Stationary, sums: Array) -> Array:
    """Return the derivatives by the parameters of a term."""
    lengths = -2.0 * sums[:-2]
    if term.active_dims is not None:
        lengths = lengths[list(term.active_dims)]
    if np.ndim(term.lengthscale) == 0:
        lengths = lengths.sum(keepdims=True)
    elif term.groups is not None:
        lengths = term.sum_groups(lengths)
    n_others = len(term.parameters) - lengths.size
    return term.variance * np.concatenate([lengths, sums[-2:][:n_others]])


class KernelProduct:
    """The function `x ↦ k(x, Z) v` by compiled loops, of a kernel whose terms they know.

    Parameters
    ----------
    terms : sequence of Stationary
        The kernels whose sum is `k`.
    Z : array of shape (N, D)
        The points.
    v : array of shape (N,)
        The coefficients.
    noise : float
        The standard deviation of the noise. If rounding in float32 changes the values at some of
        many points by far less, all are computed in float32.
    """

    def __init__(self, terms: Sequence[Stationary], Z: Array, v: Array, noise: float) -> None:
        self._per_length, self._known = _describe(terms, Z.shape[1])
        self._centre, self._v = Z.mean(axis=0), v
        self._points = np.ascontiguousarray(self._scale(Z).swapaxes(1, 2))
        self._dtype: Any = np.float64
        if v.size >= _MANY_POINTS:
            some = Z[:: v.size // _TRIED_POINTS]
            error = self._multiply(some, np.float32) - self(some)
            change = np.sqrt(np.mean(error**2))
            self._dtype = np.float32 if change < _LITTLE * noise else np.float64
        self._points = self._points.astype(self._dtype)

    def __call__(self, X: Array) -> Array:
        """Return the values at X, shape (n,)."""
        return self._multiply(X, self._dtype)

    def _multiply(self, X: Array, dtype: Any) -> Array:
        arrays = (self._scale(X), self._points, self._known, self._v)
        out = np.zeros(X.shape[0])
        load_loops().multiply(*(np.ascontiguousarray(each, dtype=dtype) for each in arrays), out)
        return out

    def _scale(self, X: Array) -> Array:
        """Return inputs in units of the lengthscales of each term, shape (k, n, D)."""
        return (X - self._centre) * self._per_length[:, None]
