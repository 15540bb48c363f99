"""Compiled kernel matrices and products of many rows, for learning; see `loops_numba`."""

from __future__ import annotations

import numba
import numpy as np
from numba import types

from eigengp.backend.loops_numba import (
    INDEX_2,
    READ_1,
    READ_2,
    WRITE_1,
    WRITE_2,
    _add_squares,
    _log,
    _profile,
    compile_for,
)


@numba.njit(inline="always")
def _times_slope(t, rho, decay, T):
    # Multiply T by dρ/dt, and return Σ T dρ/d ln a, a being the exponent of (1 + bt)^(−a).
    kind, a, b, c = decay[0], decay[1], decay[2], decay[3]
    shape = 0.0
    if kind == 0.0:
        for j in range(t.size):
            T[j] *= -0.5 * rho[j]
    elif kind == 1.0:
        for j in range(t.size):
            root = min(max(np.sqrt(a * t[j]), 1e-7), 700.0)
            inner = (b - 1.0) / root + (2.0 * c - b) - c * root
            T[j] *= 0.5 * a * inner * rho[j] / (1.0 + root * (b + root * c))
    else:
        for j in range(t.size):
            u = b * t[j]
            own = T[j] * rho[j]
            shape += own * a * (u / (1.0 + u) - _log(1.0 + u))
            T[j] = -a * b * own / (1.0 + u)
    return shape


@numba.njit(inline="always")
def _sum_squares(T, x, points, first, sums):
    # Add Σ_j T_j (x_d − z_jd)² to the sum of each input d.
    for d in range(x.size):
        x0, z0 = x[d], points[d, first : first + T.size]
        total = 0.0
        for j in range(T.size):
            b0 = x0 - z0[j]
            total += T[j] * b0 * b0
        sums[d] += total


@numba.njit(inline="always")
def _measure_row(points, i, first, x, t):
    # Set the squared distances between point i and those from `first` on; x is that point.
    for d in range(x.size):
        x[d] = points[d, i]
    for j in range(t.size):
        t[j] = 0.0
    _add_squares(x, points, first, t)


@compile_for(READ_2, READ_1, types.float64, types.boolean, WRITE_2)
def add_gram(points, decay, variance, is_first, out):
    D, n = points.shape
    t, rho, x = np.empty(n), np.empty(n), np.empty(D)
    for i in range(n):
        own, near, row = t[: n - i], rho[: n - i], out[i, i:]
        _measure_row(points, i, i, x, own)
        _profile(own, decay, near)
        for j in range(n - i):
            before = 0.0 if is_first else row[j]
            row[j] = before + variance * near[j]
        for j in range(i):
            out[i, j] = 0.0


@compile_for(READ_2, READ_1, READ_2, READ_1, WRITE_1)
def pull_back_gram(points, decay, inverse, a, sums):
    D, n = points.shape
    t, rho, T, x = np.empty(n), np.empty(n), np.empty(n), np.empty(D)
    for i in range(n):
        sums[D] += 0.5 * (inverse[i, i] - a[i] * a[i])
        first = i + 1
        own, near, bar = t[: n - first], rho[: n - first], T[: n - first]
        row, others = inverse[i, first:], a[first:]
        _measure_row(points, i, first, x, own)
        _profile(own, decay, near)
        total = 0.0
        for j in range(n - first):  # Each entry stands for two.
            bar[j] = row[j] - a[i] * others[j]
            total += bar[j] * near[j]
        sums[D] += total
        sums[D + 1] += _times_slope(own, near, decay, bar)
        _sum_squares(bar, x, points, first, sums)


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
