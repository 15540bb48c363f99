"""Loops over rows, compiled; `loops_numpy` says what each does.

Nothing is gathered: each set of rows reads them in the table where they are.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import types

from eigengp.backend.loops import compile_for
from eigengp.backend.nearest_numba import find_nearest as find_nearest
from eigengp.backend.pieces_numba import (
    AT_ONCE,
    INDEX_2,
    READ_1,
    READ_2,
    READ_3,
    WRITE_1,
    WRITE_2,
    add_slopes,
    add_squares,
    fill_profile,
    fill_profile_single,
    in_place,
    measure_row,
    sum_squares,
    times_slope,
)

_TABLES = tuple(
    (types.Array(of, 2, "C", readonly=True), types.Array(of, 2, "C"))
    for of in (types.float64, types.float32)
)
_LANES = 16
"""The number of columns in a block: as many numbers of float32 as fit into the widest register."""


@numba.njit(inline="always")
def _measure_set(X, per_length, points, x, t):
    # Set the packed distances of a set; its points become rows of inputs, measured from the last.
    s, D = X.shape
    for d in range(D):
        for a in range(s):
            points[d, a] = (X[a, d] - X[s - 1, d]) * per_length[d]
    for j in range(t.size):
        t[j] = 0
    pair = 0
    for a in range(s):
        for d in range(D):
            x[d] = points[d, a]
        add_squares(x, points, a, t[pair : pair + s - a])
        pair += s - a


@compile_for(types.void(READ_3, READ_1, WRITE_2))
def measure_distances(X, per_length, t):
    n, s, D = X.shape
    points, x = np.empty((D, s)), np.empty(D)
    for i in range(n):
        _measure_set(X[i], per_length, points, x, t[i])


@compile_for(*(types.void(READ_3, READ_2, table, out) for table, out in _TABLES))
def fill_stack(X, per_length, terms, R):
    (n, s, D), size = X.shape, R.shape[1]
    points, x = np.empty((D, s), R.dtype), np.empty(D, R.dtype)
    t, rho = np.empty(size, R.dtype), np.empty(size, R.dtype)
    for i in range(n):
        for j in range(size):
            R[i, j] = 0
        for k in range(terms.shape[0]):
            _measure_set(X[i], per_length[k], points, x, t)
            if R.itemsize == 4:
                fill_profile_single(t, terms[k], rho)
            else:
                fill_profile(t, terms[k], rho)
            for j in range(size):
                R[i, j] += terms[k, 4] * rho[j]


@numba.njit(inline="always")
def _make_zeros(n_rows, n_columns, dtype):
    # Rows of whole blocks, each of which begins where a line of the cache does.
    size = (n_columns + _LANES - 1) // _LANES * _LANES
    whole = np.zeros(n_rows * size + _LANES, dtype)
    skip = (-whole.ctypes.data % 64) // whole.itemsize
    return whole[skip : skip + n_rows * size].reshape(n_rows, size)


@numba.njit(inline="always")
def _multiply(rows, a, b, tile):
    # Four rows times four rows: each number that is read serves four products.
    p0, p1, p2, p3 = rows[a], rows[a + 1], rows[a + 2], rows[a + 3]
    q0, q1, q2, q3 = rows[b], rows[b + 1], rows[b + 2], rows[b + 3]
    zero = rows.dtype.type(0)
    t00 = t01 = t02 = t03 = t10 = t11 = t12 = t13 = zero
    t20 = t21 = t22 = t23 = t30 = t31 = t32 = t33 = zero
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


@numba.njit(inline="always")
def _subtract_products(R, rows, columns, s):
    # Unpack R, with the products of the rows subtracted; the rest of each block is zero.
    for a in range(0, rows.shape[0], 4):
        for b in range(a, rows.shape[0], 4):
            _multiply(rows, a, b, columns[a : a + 4, b : b + 4])
    pair = 0
    for a in range(s):
        for b in range(a - a % _LANES, a):
            columns[a, b] = 0
        for b in range(a, s):
            columns[a, b] = R[pair + b - a] - columns[a, b]
        pair += s - a


@numba.njit(inline="always")
def _factorize(columns, s):
    # Replace the upper half by Lᵀ; four rows at a time are made of those before. Whole blocks of
    # columns fill wide registers; what is before the diagonal there is not used.
    one = columns.dtype.type(1)
    for a in range(s, columns.shape[0]):
        columns[a, a] = one
    for a in range(0, s, 4):
        low, k = a - a % _LANES, a % _LANES
        y0, y1 = columns[a, low:], columns[a + 1, low:]
        y2, y3 = columns[a + 2, low:], columns[a + 3, low:]
        for c in range(0, a, 4):
            c0, c1 = columns[c, low:], columns[c + 1, low:]
            c2, c3 = columns[c + 2, low:], columns[c + 3, low:]
            f00, f01, f02, f03 = c0[k], c1[k], c2[k], c3[k]
            f10, f11, f12, f13 = c0[k + 1], c1[k + 1], c2[k + 1], c3[k + 1]
            f20, f21, f22, f23 = c0[k + 2], c1[k + 2], c2[k + 2], c3[k + 2]
            f30, f31, f32, f33 = c0[k + 3], c1[k + 3], c2[k + 3], c3[k + 3]
            for b in range(y0.size):
                x0, x1, x2, x3 = c0[b], c1[b], c2[b], c3[b]
                y0[b] -= f00 * x0 + f01 * x1 + f02 * x2 + f03 * x3
                y1[b] -= f10 * x0 + f11 * x1 + f12 * x2 + f13 * x3
                y2[b] -= f20 * x0 + f21 * x1 + f22 * x2 + f23 * x3
                y3[b] -= f30 * x0 + f31 * x1 + f32 * x2 + f33 * x3
        d0 = one / np.sqrt(y0[k])
        l01, l02, l03 = y0[k + 1] * d0, y0[k + 2] * d0, y0[k + 3] * d0
        d1 = one / np.sqrt(y1[k + 1] - l01 * l01)
        l12, l13 = (y1[k + 2] - l01 * l02) * d1, (y1[k + 3] - l01 * l03) * d1
        d2 = one / np.sqrt(y2[k + 2] - l02 * l02 - l12 * l12)
        l23 = (y2[k + 3] - l02 * l03 - l12 * l13) * d2
        d3 = one / np.sqrt(y3[k + 3] - l03 * l03 - l13 * l13 - l23 * l23)
        if not (0 < d0 < np.inf and 0 < d1 < np.inf and 0 < d2 < np.inf and 0 < d3 < np.inf):
            return False
        for b in range(y0.size):
            x0 = y0[b] * d0
            x1 = (y1[b] - l01 * x0) * d1
            x2 = (y2[b] - l02 * x0 - l12 * x1) * d2
            y3[b] = (y3[b] - l03 * x0 - l13 * x1 - l23 * x2) * d3
            y0[b], y1[b], y2[b] = x0, x1, x2
    return True


@numba.njit(inline="always")
def _pack(columns, R, s):
    pair = 0
    for a in range(s):
        for b in range(a, s):
            R[pair + b - a] = columns[a, b]
        pair += s - a


@numba.njit(inline="always")
def _combine(weights, rows, out):
    s, convert = weights.size, rows.dtype.type
    whole = s - s % 4
    for m in range(out.size):
        out[m] = convert(0)
    for j in range(0, whole, 4):
        k0, k1, k2, k3 = rows[j], rows[j + 1], rows[j + 2], rows[j + 3]
        w0, w1 = convert(weights[j]), convert(weights[j + 1])
        w2, w3 = convert(weights[j + 2]), convert(weights[j + 3])
        for m in range(out.size):
            out[m] += w0 * k0[m] + w1 * k1[m] + w2 * k2[m] + w3 * k3[m]
    for j in range(whole, s):
        k0, w0 = rows[j], convert(weights[j])
        for m in range(out.size):
            out[m] += w0 * k0[m]


@compile_for(
    *(
        types.intp(out, table, INDEX_2, table, READ_2, types.float64, WRITE_2, out)
        for table, out in _TABLES
    )
)
def whiten(R, G, at, own, noise, jitter, w, kappa):
    (n, s), M, zero = w.shape, G.shape[1], G.dtype.type(0)
    rows = _make_zeros((s + 3) // 4 * 4, M, G.dtype)
    columns = _make_zeros(rows.shape[0], s, G.dtype)
    # Loops instead of assignments of slices, whose checks take seconds to compile.
    for i in range(n):
        for a in range(s):
            given = own[i] if a == at.shape[1] else G[max(0, at[i, a])]
            there = a == at.shape[1] or at[i, a] >= 0
            for m in range(M):
                rows[a, m] = given[m] if there else zero
        _subtract_products(R[i], rows, columns, s)
        for a in range(s):
            columns[a, a] += noise[i, a] + jitter * R[i, a * s - a * (a - 1) // 2]
        for a in range(at.shape[1]):
            if at[i, a] < 0:
                for b in range(s):
                    columns[a, b] = columns[b, a] = 0.0
                columns[a, a] = 1.0
        if not _factorize(columns, s):
            return i
        _pack(columns, R[i], s)
        for a in range(s - 1, -1, -1):
            total = 1.0 if a == s - 1 else 0.0
            for b in range(a + 1, s):
                total -= columns[a, b] * w[i, b]
            w[i, a] = total / columns[a, a]
        _combine(w[i], rows, kappa[i])
    return -1


@compile_for(*(types.void(table, WRITE_2, types.boolean) for table, _ in _TABLES))
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


@numba.njit(inline="always")
def _pull_back(points, per_length, term, C, a, sums, by_inputs):
    D, n = points.shape
    factors = term[4] * per_length
    t, rho, T, x = np.empty(n), np.empty(n), np.empty(n), np.empty(D)
    for i in range(n):
        sums[D] += 0.5 * (C[i, i] - a[i] * a[i])
        first = i + 1
        own, near, bar = t[: n - first], rho[: n - first], T[: n - first]
        row, others = C[i, first:], a[first:]
        measure_row(points, i, first, x, own)
        fill_profile(own, term, near)
        total = 0.0
        for j in range(n - first):  # Each entry stands for two.
            bar[j] = row[j] - a[i] * others[j]
            total += bar[j] * near[j]
        sums[D] += total
        sums[D + 1] += times_slope(own, near, term, bar)
        sum_squares(bar, x, points, first, sums)
        if by_inputs.shape[0] > 0:
            add_slopes(bar, x, points, first, factors, by_inputs)


@compile_for(
    types.float64(
        *(READ_2, READ_2, READ_2, READ_1, READ_1, types.intp, types.intp, WRITE_2, WRITE_1),
        *(WRITE_2, WRITE_2),
    )
)
def evaluate_gram(X, per_length, terms, noise, y, factorize, invert, C, a, sums, by_inputs):
    (n, D), count = X.shape, terms.shape[0]
    points, t, rho, x = np.empty((count, D, n)), np.empty(n), np.empty(n), np.empty(D)
    for k in range(count):
        for i in range(n):
            for d in range(D):
                points[k, d, i] = X[i, d] * per_length[k, d]
    for i in range(n):
        row = C[i]
        for j in range(n):
            row[j] = 0.0
        for k in range(count):
            own, near = t[: n - i], rho[: n - i]
            measure_row(points[k], i, i, x, own)
            fill_profile(own, terms[k], near)
            for j in range(n - i):
                row[i + j] += terms[k, 4] * near[j]
        row[i] += noise[i]
    if not in_place(factorize, C):
        return np.nan
    log_det = 0.0
    for i in range(n):
        log_det += np.log(C[i, i])
        a[i] = y[i]
    for i in range(n):
        value = a[i] / C[i, i]
        a[i] = value
        for j in range(i + 1, n):
            a[j] -= value * C[i, j]
    for i in range(n - 1, -1, -1):
        total = a[i]
        for j in range(i + 1, n):
            total -= C[i, j] * a[j]
        a[i] = total / C[i, i]
    if sums.shape[0] > 0:
        in_place(invert, C)
        for k in range(count):
            _pull_back(points[k], per_length[k], terms[k], C, a, sums[k], by_inputs)
    return log_det


@compile_for(types.void(*3 * [_TABLES[1][0]], *2 * [_TABLES[1][1]]))
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


_SCALED = (
    [types.Array(of, d, "C", readonly=True) for d in (3, 3, 2)]
    for of in (types.float64, types.float32)
)


@compile_for(*(types.void(*arguments, READ_1, WRITE_1) for arguments in _SCALED))
def multiply(X, points, terms, v, out):
    near, distances = np.empty(AT_ONCE, X.dtype), np.empty(AT_ONCE, X.dtype)
    for first in range(0, v.size, AT_ONCE):
        count = min(AT_ONCE, v.size - first)
        t, rho = distances[:count], near[:count]
        for k in range(X.shape[0]):
            for i in range(X.shape[1]):
                for j in range(count):
                    t[j] = 0
                add_squares(X[k, i], points[k], first, t)
                if X.itemsize == 4:
                    fill_profile_single(t, terms[k], rho)
                else:
                    fill_profile(t, terms[k], rho)
                total = 0.0  # Sums of large terms cancel: they are in float64 in any case.
                for j in range(count):
                    total += v[first + j] * np.float64(rho[j])
                out[i] += terms[k, 4] * total
