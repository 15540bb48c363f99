"""Loops over small sets of rows in NumPy, and in PyTorch for its arrays.

There are `n` sets of `s` rows. Symmetric matrices (n, s, s) are packed: the entries on and above
the diagonal, row by row, shape (n, P) with `P = s (s + 1)/2`. Results are written into the
arguments that are named so. Rows of a table of features are given by their numbers `at`, (n, s).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, beside, empty_beside, is_numpy, namespace

# The number of features that are copied at once.
_GATHERED, _GATHERED_ON_DEVICE = 1_000_000, 200_000_000


@lru_cache(maxsize=8)
def list_pairs(s: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first and the second member of each packed pair of `s` rows, shape (P,)."""
    first, second = np.triu_indices(s)
    return first, second


def count_members(n_pairs: int) -> int:
    """Return `s`, of which there are so many pairs."""
    return int((np.sqrt(8 * n_pairs + 1) - 1) / 2)


def _find_pairs(s: int, like: AnyArray) -> AnyArray:
    """Return the places of packed pairs in matrices of `s` rows, shape (P,)."""
    first, second = list_pairs(s)
    return beside(first * s + second, like, "int64")


def _pack(square: AnyArray) -> AnyArray:
    """Return the entries on and above the diagonals of matrices, shape (n, P)."""
    n, s, _ = square.shape
    return square.reshape(n, s * s)[:, _find_pairs(s, square)]


def _unpack(packed: AnyArray) -> AnyArray:
    """Return upper triangular matrices, shape (n, s, s)."""
    n, s = packed.shape[0], count_members(packed.shape[1])
    square = empty_beside((n, s * s), packed)
    square[...] = 0.0
    square[:, _find_pairs(s, packed)] = packed
    return square.reshape(n, s, s)


def measure_distances(X: AnyArray, per_length: Array, t: AnyArray) -> None:
    """Set `t_ab = Σ_d (x_ad − x_bd)²/ℓ_d²`, packed, for sets of shape (n, s, D)."""
    total = 0.0
    for d, scale in enumerate(per_length.tolist()):
        between = (X[:, :, None, d] - X[:, None, :, d]) * scale
        between *= between
        total = total + between
    t[...] = _pack(total)


def find_nearest(X: AnyArray, points: AnyArray, limit: AnyArray, found: AnyArray) -> None:
    """Set the numbers of the nearest of the first `limit_i` points to each row, the nearest first.

    `points` has one row for each input, shape (D, N). Of points at equal distances the earlier is
    nearer. A number is −1 where there are fewer points.
    """
    xp, last = namespace(X), int(limit.max()) if limit.shape[0] else 0
    count = min(found.shape[1], last)
    found[...] = -1
    if not count:
        return
    points, order = points[:, :last], xp.arange(last, device=X.device)
    centre = xp.mean(points, axis=1)
    away, X = points - centre[:, None], X - centre
    distance = xp.einsum("dn,dn->n", away, away) - 2.0 * X @ away
    distance[order >= limit[:, None]] = np.inf
    if is_numpy(distance):
        near = np.argpartition(distance, count - 1, axis=1)[:, :count]
    else:
        near = distance.topk(count, largest=False, sorted=False).indices
    each, near = xp.arange(X.shape[0], device=X.device)[:, None], xp.sort(near, axis=1)
    between = away.T[near] - X[:, None]
    exact = xp.where(near < limit[:, None], xp.sum(between * between, axis=2), np.inf)
    near = near[each, xp.argsort(exact, axis=1, stable=True)]
    near[order[:count] >= limit[:, None]] = -1
    found[:, :count] = near


def whiten(
    R: AnyArray,
    G: AnyArray,
    at: AnyArray,
    own: AnyArray,
    noise: AnyArray,
    jitter: float,
    w: AnyArray,
    kappa: AnyArray,
) -> int:
    """Factorise what the features leave of covariances, and whiten the last row of each set.

    From the packed covariance `R = k`, the products `g_a·g_b` are subtracted; noise and jitter,
    relative to `k_aa`, are added. `R = L Lᵀ` is replaced by `Lᵀ`, `w` by `L⁻ᵀe`, with the last unit
    vector `e`, and `kappa` by `Σ_a w_a g_a`. Members with a negative number do not exist. Where
    `at` has one column less than `w`, the features of the last member are in `own`, (n, M).
    Returns −1, or another number if a matrix has no factor.
    """
    xp, s = namespace(R), w.shape[1]
    diagonal = xp.arange(s, device=R.device)
    for rows in _parts(w, G.shape[1]):
        there = at[rows] >= 0
        members = G[at[rows]] * there[:, :, None]
        if at.shape[1] < s:
            members = xp.concat([members, own[rows, None]], axis=1)
            there = xp.concat([there, xp.ones_like(w[rows, :1], dtype=xp.bool)], axis=1)
        square = _unpack(R[rows])
        prior = square[:, diagonal, diagonal]
        square -= members @ members.mT
        square[:, diagonal, diagonal] += noise[rows] + jitter * prior
        square *= there[:, :, None] & there[:, None, :]
        square[:, diagonal, diagonal] += ~there
        factor = _factorize(square)
        if factor is None:
            return int(rows.start)
        R[rows] = _pack(factor)
        w[rows] = 0.0
        w[rows, -1] = 1.0
        solve(R[rows], w[rows], True)
        kappa[rows] = (xp.astype(w[rows, None, :], members.dtype) @ members)[:, 0]
    return -1 if bool(xp.all(xp.isfinite(R))) else 0


def _factorize(square: AnyArray) -> AnyArray | None:
    """Return the upper triangular factors of matrices, shape (n, s, s); None if one has none."""
    if is_numpy(square):
        try:
            return np.linalg.cholesky(square, upper=True)
        except np.linalg.LinAlgError:
            return None
    import torch

    factor, failed = torch.linalg.cholesky_ex(square, upper=True)
    return None if bool(failed.any()) else factor


def solve(L: AnyArray, x: AnyArray, transposed: bool) -> None:
    """Replace `x` by `L⁻¹x`, or by `L⁻ᵀx`, for packed `Lᵀ`.

    `x` may have fewer columns than `L`, whose first rows then count alone.
    """
    xp, m, s = namespace(x), x.shape[1], count_members(L.shape[1])
    start = np.concatenate([[0], np.cumsum(np.arange(s, 0, -1))])
    for a in range(m - 1, -1, -1) if transposed else range(m):
        later = L[:, start[a] + 1 : start[a] + m - a]
        if transposed:
            x[:, a] -= xp.einsum("nk,nk->n", later, x[:, a + 1 :])
        x[:, a] /= L[:, start[a]]
        if not transposed:
            x[:, a + 1 :] -= x[:, a, None] * later


def multiply_block(V: Any, left: Any, right: Any, rows: Any, columns: Any) -> None:
    """Set the rows of `rows` to `V x` for those of `right`, and add `Vᵀx` of `left` to `columns`.

    All are float32; `V` has shape (m, n), `left` and `rows` (k, m), `right` and `columns` (k, n).
    """
    np.matmul(right, V.T, out=rows)
    columns += left @ V


def _parts(at: AnyArray, n_columns: int) -> list[slice]:
    gathered = _GATHERED if is_numpy(at) else _GATHERED_ON_DEVICE
    step = max(1, gathered // max(1, at.shape[1] * n_columns))
    return [slice(i, i + step) for i in range(0, at.shape[0], step)]
