"""The loops of `loops`, compiled; `loops_numpy` says what each does.

Nothing is gathered: each set reads its rows of the table where they are. Sums may be taken in any
order within a set, which lets the compiler use wide registers; that order is the same in every run
of the same machine code. Signatures are given, so that all is compiled, or read from the cache,
when this module is imported. Arguments that are only read may be read-only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types
from numba.core import config

if getattr(config, "DISABLE_JIT", False):
    raise ImportError("Numba is switched off by NUMBA_DISABLE_JIT.")

_READ_1, _READ_2, _READ_3 = (types.Array(types.float64, d, "C", readonly=True) for d in (1, 2, 3))
_WRITE_2 = types.Array(types.float64, 2, "C")
_INDEX_1, _INDEX_2 = (types.Array(types.intp, d, "C", readonly=True) for d in (1, 2))


_FAST = {"reassoc", "contract", "nsz"}


def _compile(*arguments: Any, result: Any = types.void) -> Callable[[Any], Any]:
    signature: Any = result(*arguments)
    compiler: Callable[[Any], Any] = numba.njit(signature, nogil=True, cache=True, fastmath=_FAST)
    return compiler


@_compile(_READ_3, _READ_1, _WRITE_2)
def measure_distances(X, per_length, t):
    n, s, D = X.shape
    for i in range(n):
        pair = 0
        for a in range(s):
            for b in range(a, s):
                total = 0.0
                for d in range(D):
                    between = (X[i, a, d] - X[i, b, d]) * per_length[d]
                    total += between * between
                t[i, pair] = total
                pair += 1


@_compile(_READ_2, _READ_3, _READ_1, result=types.Array(types.float64, 1, "C"))
def sum_squares(W, X, per_length):
    n, s, D = X.shape
    total = np.zeros(D)
    for i in range(n):
        pair = 0
        for a in range(s):
            for b in range(a, s):
                weight = W[i, pair]
                for d in range(D):
                    between = (X[i, a, d] - X[i, b, d]) * per_length[d]
                    total[d] += weight * between * between
                pair += 1
    return total


@numba.njit(inline="always")
def _multiply(p0, p1, p2, p3, q0, q1, q2, q3, tile):
    # Four rows times four rows: each number that is read serves four products.
    t00 = t01 = t02 = t03 = t10 = t11 = t12 = t13 = 0.0
    t20 = t21 = t22 = t23 = t30 = t31 = t32 = t33 = 0.0
    for m in range(p0.size):
        x0, x1, x2, x3 = p0[m], p1[m], p2[m], p3[m]
        z0, z1, z2, z3 = q0[m], q1[m], q2[m], q3[m]
        t00 += x0 * z0
        t01 += x0 * z1
        t02 += x0 * z2
        t03 += x0 * z3
        t10 += x1 * z0
        t11 += x1 * z1
        t12 += x1 * z2
        t13 += x1 * z3
        t20 += x2 * z0
        t21 += x2 * z1
        t22 += x2 * z2
        t23 += x2 * z3
        t30 += x3 * z0
        t31 += x3 * z1
        t32 += x3 * z2
        t33 += x3 * z3
    tile[0, 0], tile[0, 1], tile[0, 2], tile[0, 3] = t00, t01, t02, t03
    tile[1, 0], tile[1, 1], tile[1, 2], tile[1, 3] = t10, t11, t12, t13
    tile[2, 0], tile[2, 1], tile[2, 2], tile[2, 3] = t20, t21, t22, t23
    tile[3, 0], tile[3, 1], tile[3, 2], tile[3, 3] = t30, t31, t32, t33


@_compile(_READ_2, _INDEX_2, _WRITE_2)
def subtract_products(G, at, R):
    n, count = at.shape
    s, last = int((np.sqrt(8.0 * R.shape[1] + 1.0) - 1.0) / 2.0), count - 1
    tile = np.empty((4, 4))
    for i in range(n):
        for a in range(0, count, 4):
            p0, p1 = G[at[i, a]], G[at[i, min(a + 1, last)]]
            p2, p3 = G[at[i, min(a + 2, last)]], G[at[i, min(a + 3, last)]]
            for b in range(a, count, 4):
                q0, q1 = G[at[i, b]], G[at[i, min(b + 1, last)]]
                q2, q3 = G[at[i, min(b + 2, last)]], G[at[i, min(b + 3, last)]]
                _multiply(p0, p1, p2, p3, q0, q1, q2, q3, tile)
                for j in range(a, min(a + 4, count)):
                    start = j * s - j * (j + 1) // 2
                    for k in range(max(b, j), min(b + 4, count)):
                        R[i, start + k] -= tile[j - a, k - b]


@_compile(_WRITE_2, result=types.intp)
def factorize(R):
    n, s = R.shape[0], int((np.sqrt(8.0 * R.shape[1] + 1.0) - 1.0) / 2.0)
    columns = np.empty((s, s))  # The rows of Lᵀ; four of them are subtracted from one at a time.
    for i in range(n):
        pair = 0
        for a in range(s):
            for b in range(a, s):
                columns[a, b] = R[i, pair]
                pair += 1
        pair = 0
        for a in range(s):
            own = columns[a]
            whole = a - a % 4
            for c in range(0, whole, 4):
                c0, c1, c2, c3 = columns[c], columns[c + 1], columns[c + 2], columns[c + 3]
                f0, f1, f2, f3 = c0[a], c1[a], c2[a], c3[a]
                for b in range(a, s):
                    own[b] -= f0 * c0[b] + f1 * c1[b] + f2 * c2[b] + f3 * c3[b]
            for c in range(whole, a):
                c0, f0 = columns[c], columns[c, a]
                for b in range(a, s):
                    own[b] -= f0 * c0[b]
            if not own[a] > 0.0:
                return i
            per_root = 1.0 / np.sqrt(own[a])
            for b in range(a, s):
                own[b] *= per_root
                R[i, pair] = own[b]
                pair += 1
    return -1


@_compile(_READ_2, _WRITE_2, types.boolean)
def solve(L, x, transposed):
    n, m = x.shape
    s = int((np.sqrt(8.0 * L.shape[1] + 1.0) - 1.0) / 2.0)
    for i in range(n):
        own = x[i]
        for step in range(m):
            a = m - 1 - step if transposed else step
            column = L[i, a * s - a * (a + 1) // 2 :]
            if transposed:
                total = own[a]
                for b in range(a + 1, m):
                    total -= column[b] * own[b]
                own[a] = total / column[a]
            else:
                value = own[a] / column[a]
                own[a] = value
                for b in range(a + 1, m):
                    own[b] -= value * column[b]


@_compile(_READ_2, _READ_2, _INDEX_2, _WRITE_2)
def combine(weights, K, at, out):
    n, s = weights.shape
    M = K.shape[1]
    whole = s - s % 4
    for i in range(n):
        own = out[i]
        own[:] = 0.0
        for j in range(0, whole, 4):
            k0, k1, k2, k3 = K[at[i, j]], K[at[i, j + 1]], K[at[i, j + 2]], K[at[i, j + 3]]
            w0, w1 = weights[i, j], weights[i, j + 1]
            w2, w3 = weights[i, j + 2], weights[i, j + 3]
            for m in range(M):
                own[m] += w0 * k0[m] + w1 * k1[m] + w2 * k2[m] + w3 * k3[m]
        for j in range(whole, s):
            k0, w0 = K[at[i, j]], weights[i, j]
            for m in range(M):
                own[m] += w0 * k0[m]


@_compile(_READ_2, _INDEX_2, _READ_2, _WRITE_2)
def project(K, at, v, out):
    n, s = at.shape
    for i in range(n):
        for j in range(s):
            row = K[at[i, j]]
            total = 0.0
            for m in range(K.shape[1]):
                total += row[m] * v[i, m]
            out[i, j] = total


@_compile(_INDEX_1, _INDEX_1, _READ_1, _READ_2, _WRITE_2)
def spread(starts, sets, weights, v, out):
    for j in range(out.shape[0]):
        own = out[j]
        for e in range(starts[j], starts[j + 1]):
            row, weight = v[sets[e]], weights[e]
            for m in range(v.shape[1]):
                own[m] += weight * row[m]


@_compile(_READ_2, _READ_2, _WRITE_2)
def pack_outer(p, w, out):
    n, s = p.shape
    for i in range(n):
        pair = 0
        for a in range(s):
            out[i, pair] = p[i, a] * w[i, a]
            for b in range(a + 1, s):
                out[i, pair + b - a] = p[i, a] * w[i, b] + w[i, a] * p[i, b]
            pair += s - a
