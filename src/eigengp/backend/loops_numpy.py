"""The loops of `loops` in NumPy.

There are `n` sets of `s` rows. Symmetric matrices (n, s, s) are packed: the entries on and above
the diagonal, row by row, shape (n, P) with `P = s (s + 1)/2`. Results are written into the
arguments that are named so. Rows of a table of features are given by their numbers `at`, (n, s).
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

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


def find_nearest(X: Array, points: Array, limit: NDArray[np.intp], found: NDArray[np.intp]) -> None:
    """Set the numbers of the nearest of the first `limit_i` points to each row, the nearest first.

    `points` has one row for each input, shape (D, N). Of points at equal distances the earlier is
    nearer. A number is −1 where there are fewer points.
    """
    last, order = int(limit.max(initial=0)), np.arange(points.shape[1])
    points = points[:, :last]
    found[...] = -1
    centre = points.mean(axis=1) if last else 0.0
    away, X = points - np.reshape(centre, (-1, 1)), X - centre
    distance = np.einsum("dn,dn->n", away, away) - 2.0 * X @ away
    distance[order[:last] >= limit[:, None]] = np.inf
    count = min(found.shape[1], last)
    if not count:
        return
    near = np.argpartition(distance, count - 1, axis=1)[:, :count]
    near.sort(axis=1)
    near = np.take_along_axis(
        near, np.argsort(np.take_along_axis(distance, near, 1), axis=1, kind="stable"), axis=1
    )
    found[:, :count] = np.where(np.arange(count) < limit[:, None], near, -1)


def whiten(
    R: Array,
    G: Array,
    at: NDArray[np.intp],
    own: Array,
    noise: Array,
    jitter: float,
    w: Array,
    kappa: Array,
) -> int:
    """Factorise what the features leave of covariances, and whiten the last row of each set.

    From the packed covariance `R = k`, the products `g_a·g_b` are subtracted; noise and jitter,
    relative to `k_aa`, are added. `R = L Lᵀ` is replaced by `Lᵀ`, `w` by `L⁻ᵀe`, with the last unit
    vector `e`, and `kappa` by `Σ_a w_a g_a`. Members with a negative number do not exist. Where
    `at` has one column less than `w`, the features of the last member are in `own`, (n, M).
    Returns −1, or another number if a matrix has no factor.
    """
    s, diagonal = w.shape[1], np.arange(w.shape[1])
    for rows in _parts(w, G.shape[1]):
        members = G[at[rows]] * (at[rows] >= 0)[:, :, None]
        if at.shape[1] < s:
            members = np.concatenate([members, own[rows, None]], axis=1)
        square = _unpack(R[rows])
        prior = square[:, diagonal, diagonal]
        square -= members @ members.transpose(0, 2, 1)
        square[:, diagonal, diagonal] += noise[rows] + jitter * prior
        there = np.ones(square.shape[:2], dtype=bool)
        there[:, : at.shape[1]] = at[rows] >= 0
        square *= there[:, :, None] & there[:, None, :]
        square[:, diagonal, diagonal] += ~there
        try:
            R[rows] = _pack(cast(Array, np.linalg.cholesky(square, upper=True)))
        except np.linalg.LinAlgError:
            return int(rows.start)
        w[rows] = 0.0
        w[rows, -1] = 1.0
        solve(R[rows], w[rows], True)
        np.matmul(w[rows, None, :], members, out=kappa[rows, None, :])
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


def multiply_block(V: Any, left: Any, right: Any, rows: Any, columns: Any) -> None:
    """Set the rows of `rows` to `V x` for those of `right`, and add `Vᵀx` of `left` to `columns`.

    All are float32; `V` has shape (m, n), `left` and `rows` (k, m), `right` and `columns` (k, n).
    """
    np.matmul(right, V.T, out=rows)
    columns += left @ V


def _parts(at: NDArray[Any], n_columns: int) -> list[slice]:
    step = max(1, _GATHERED // max(1, at.shape[1] * n_columns))
    return [slice(i, i + step) for i in range(0, at.shape[0], step)]
