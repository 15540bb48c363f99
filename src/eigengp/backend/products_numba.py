"""Compiled products of many rows, for gradients and conjugate gradients; see `loops_numba`."""

from __future__ import annotations

import numpy as np
from numba import types

from eigengp.backend.loops_numba import INDEX_2, READ_2, WRITE_2, compile_for


@compile_for(READ_2, READ_2, INDEX_2, WRITE_2)
def combine(weights, K, at, out):
    n, s = weights.shape
    M = K.shape[1]
    whole = s - s % 4
    for i in range(n):
        own = out[i]
        for m in range(M):
            own[m] = 0.0
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


@compile_for(READ_2, INDEX_2, READ_2, WRITE_2)
def project(K, at, v, out):
    n, s = at.shape
    for i in range(n):
        for j in range(s):
            row = K[at[i, j]]
            total = 0.0
            for m in range(K.shape[1]):
                total += row[m] * v[i, m]
            out[i, j] = total


_SINGLE = types.Array(types.float32, 2, "C")


@compile_for(*3 * [types.Array(types.float32, 2, "C", readonly=True)], _SINGLE, _SINGLE)
def multiply_block(V, left, right, rows, columns):
    # Four rows at a time: each number of V that is read serves all products.
    m, n = V.shape
    zero = np.float32(0)
    for first in range(0, m, 4):
        count = min(4, m - first)
        v0, v1 = V[first], V[min(first + 1, m - 1)]
        v2, v3 = V[min(first + 2, m - 1)], V[min(first + 3, m - 1)]
        for j in range(left.shape[0]):
            x, out = right[j], columns[j]
            a0 = left[j, first]
            a1 = left[j, first + 1] if count > 1 else zero
            a2 = left[j, first + 2] if count > 2 else zero
            a3 = left[j, first + 3] if count > 3 else zero
            s0 = s1 = s2 = s3 = zero
            for c in range(n):
                s0 += v0[c] * x[c]
                s1 += v1[c] * x[c]
                s2 += v2[c] * x[c]
                s3 += v3[c] * x[c]
                out[c] += a0 * v0[c] + a1 * v1[c] + a2 * v2[c] + a3 * v3[c]
            rows[j, first] = s0
            if count > 1:
                rows[j, first + 1] = s1
            if count > 2:
                rows[j, first + 2] = s2
            if count > 3:
                rows[j, first + 3] = s3
