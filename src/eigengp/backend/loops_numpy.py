"""The loops of `loops` in NumPy.

There are `n` sets of `s` rows. Symmetric matrices (n, s, s) are packed: the entries on and above
the diagonal, row by row, shape (n, P) with `P = s (s + 1)/2`. Results are written into the
arguments that are named so. Rows of a table of features are given by their numbers `at`, (n, s).
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from eigengp._typing import Array
from eigengp.backend.loops import list_pairs

_GATHERED = 1_000_000
"""The number of features that are copied at once."""


def count_members(n_pairs: int) -> int:
    """Return `s`, of which there are so many pairs."""
    return int((np.sqrt(8 * n_pairs + 1) - 1) / 2)


def _pack(square: Array) -> Array:
    """Return the entries on and above the diagonals of matrices, shape (n, P)."""
    n, s, _ = square.shape
    first, second = list_pairs(s)
    return square.reshape(n, s * s).take(first * s + second, axis=1, mode="clip")


def _unpack(packed: Array) -> Array:
    """Return upper triangular matrices, shape (n, s, s)."""
    s = count_members(packed.shape[1])
    square = np.zeros((packed.shape[0], s, s))
    square[:, *list_pairs(s)] = packed
    return square


def _square_differences(X: Array, per_length: Array, d: int) -> Array:
    own = X[:, :, d]
    between = (own[:, :, None] - own[:, None, :]) * per_length[d]
    between *= between
    return between


def measure_distances(X: Array, per_length: Array, t: Array) -> None:
    """Set `t_ab = Σ_d (x_ad − x_bd)²/ℓ_d²`, packed, for sets of shape (n, s, D)."""
    total = np.zeros((*X.shape[:2], X.shape[1]))
    for d in range(X.shape[2]):
        total += _square_differences(X, per_length, d)
    t[...] = _pack(total)


def sum_squares(W: Array, X: Array, per_length: Array) -> Array:
    """Return `Σ W_ab (x_ad − x_bd)²/ℓ_d²` over all pairs of all sets, shape (D,)."""
    square, inputs = _unpack(W), range(X.shape[2])
    return np.array([np.vdot(square, _square_differences(X, per_length, d)) for d in inputs])


def subtract_products(G: Array, at: NDArray[np.intp], R: Array) -> None:
    """Subtract `g_a·g_b` from the packed `R_ab`; `at` may name the first rows of `R` alone."""
    s, count = count_members(R.shape[1]), at.shape[1]
    for rows in _parts(at, G.shape[1]):
        members = G[at[rows]]
        products = np.zeros((members.shape[0], s, s))
        np.matmul(members, members.transpose(0, 2, 1), out=products[:, :count, :count])
        R[rows] -= _pack(products)


def factorize(R: Array) -> int:
    """Replace packed `R = L Lᵀ` by `Lᵀ`; return −1, or another number if one has no `L`."""
    try:
        R[...] = _pack(cast(Array, np.linalg.cholesky(_unpack(R), upper=True)))
    except np.linalg.LinAlgError:
        return 0
    return -1 if np.isfinite(R).all() else 0


def solve(L: Array, x: Array, transposed: bool) -> None:
    """Replace `x` by `L⁻¹x`, or by `L⁻ᵀx`, for packed `Lᵀ`.

    `x` may have fewer columns than `L`, whose first rows then count alone.
    """
    m, s = x.shape[1], count_members(L.shape[1])
    start = np.concatenate([[0], np.cumsum(np.arange(s, 0, -1))])
    for a in range(m - 1, -1, -1) if transposed else range(m):
        later = L[:, start[a] + 1 : start[a] + m - a]
        if transposed:
            x[:, a] -= np.einsum("nk,nk->n", later, x[:, a + 1 :])
        x[:, a] /= L[:, start[a]]
        if not transposed:
            x[:, a + 1 :] -= x[:, a, None] * later


def combine(weights: Array, K: Array, at: NDArray[np.intp], out: Array) -> None:
    """Set `out_i = Σ_j weights_ij K[at_ij]`, shape (n, M); `weights` may have fewer columns."""
    at = at[:, : weights.shape[1]]
    for rows in _parts(at, K.shape[1]):
        np.matmul(weights[rows, None, :], K[at[rows]], out=out[rows, None, :])


def project(K: Array, at: NDArray[np.intp], v: Array, out: Array) -> None:
    """Set `out_ij = K[at_ij]·v_i`, shape (n, s)."""
    for rows in _parts(at, K.shape[1]):
        np.matmul(K[at[rows]], v[rows, :, None], out=out[rows, :, None])


def spread(
    starts: NDArray[np.intp], sets: NDArray[np.intp], weights: Array, v: Array, out: Array
) -> None:
    """Add `Σ_e weights_e v[sets_e]` over the entries `e` of each row of `out`, the way back.

    The entries of row j are those from `starts_j` to `starts_{j+1}`.
    """
    own = slice(starts[0], starts[-1])
    matrix: Any = sparse.csr_array(
        (weights[own], sets[own], starts - starts[0]), (out.shape[0], v.shape[0])
    )
    out += matrix @ v


def pack_outer(p: Array, w: Array, out: Array) -> None:
    """Set `out_ab = p_a w_b + w_a p_b`, packed, and half of it for `a = b`."""
    outer = p[:, :, None] * w[:, None, :]
    np.einsum("naa->na", outer)[...] *= 0.5
    out[...] = _pack(outer + outer.transpose(0, 2, 1))


def _parts(at: NDArray[np.intp], n_columns: int) -> list[slice]:
    step = max(1, _GATHERED // max(1, at.shape[1] * n_columns))
    return [slice(i, i + step) for i in range(0, at.shape[0], step)]
