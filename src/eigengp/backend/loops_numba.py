"""Loops over small sets of rows, compiled; `loops_numpy` says what each does.

Nothing is gathered: each set reads its rows of the table where they are.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import types

from eigengp.backend.compiled import (
    AT_ONCE,
    INDEX_1,
    INDEX_2,
    READ_1,
    READ_2,
    READ_3,
    WRITE_2,
    add_squares,
    compile_for,
    fill_profile,
)
from eigengp.backend.products_numba import evaluate_gram, multiply, multiply_block

__all__ = [
    "evaluate_gram",
    "find_nearest",
    "measure_distances",
    "multiply",
    "multiply_block",
    "profile",
    "solve",
    "whiten",
]


@compile_for(READ_2, READ_1, WRITE_2)
def profile(t, decay, rho):
    for i in range(t.shape[0]):
        fill_profile(t[i], decay, rho[i])


@numba.njit
def _replace(heap, at, size, distance, number):
    # Put an entry in the place of the top; of equal distances the later number is farther.
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (
            heap[other] > heap[child] or (heap[other] == heap[child] and at[other] > at[child])
        ):
            child = other
        if heap[child] < distance or (heap[child] == distance and at[child] < number):
            break
        heap[place], at[place] = heap[child], at[child]
        place = child
    heap[place], at[place] = distance, number


@compile_for(READ_2, READ_2, INDEX_1, types.Array(types.intp, 2, "C"))
def find_nearest(X, points, limit, found):
    n, k = found.shape
    t = np.empty(AT_ONCE)
    least = np.full((n, k), np.inf)  # Of each row a heap, the farthest on top.
    found[:] = -1
    last = 0
    for i in range(n):
        last = max(last, limit[i])
    for first in range(0, last, AT_ONCE):
        for i in range(n):
            count = min(AT_ONCE, limit[i] - first)
            if count <= 0:
                continue
            own, heap, at = t[:count], least[i], found[i]
            own[:] = 0.0
            add_squares(X[i], points, first, own)
            for j in range(count):
                if own[j] < heap[0]:
                    _replace(heap, at, k, own[j], first + j)
    for i in range(n):
        heap, at = least[i], found[i]
        for size in range(k - 1, 0, -1):  # The farthest goes to the end.
            distance, number = heap[size], at[size]
            heap[size], at[size] = heap[0], at[0]
            _replace(heap, at, size, distance, number)


@numba.njit(inline="always")
def _measure_set(X, per_length, points, x, t):
    # Set the packed distances of a set; its points become rows of inputs.
    s, D = X.shape
    for a in range(s):
        for d in range(D):
            points[d, a] = X[a, d] * per_length[d]
    t[:] = 0.0
    pair = 0
    for a in range(s):
        for d in range(D):
            x[d] = points[d, a]
        add_squares(x, points, a, t[pair : pair + s - a])
        pair += s - a


@compile_for(READ_3, READ_1, WRITE_2)
def measure_distances(X, per_length, t):
    n, s, D = X.shape
    points, x = np.empty((D, s)), np.empty(D)
    for i in range(n):
        _measure_set(X[i], per_length, points, x, t[i])


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
def _subtract_products(R, rows, tile, columns):
    # Unpack R, with the products of the rows subtracted.
    s = columns.shape[0]
    for a in range(0, s, 4):
        for b in range(a, s, 4):
            _multiply(rows, a, b, tile)
            for j in range(a, min(a + 4, s)):
                start = j * s - j * (j + 1) // 2
                for k in range(max(b, j), min(b + 4, s)):
                    columns[j, k] = R[start + k] - tile[j - a, k - b]


@numba.njit(inline="always")
def _factorize(columns, R):
    # Replace the upper half of R by Lᵀ, row by row, and pack it; four rows are subtracted at once.
    s, pair = columns.shape[0], 0
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
            return False
        per_root = 1.0 / np.sqrt(own[a])
        for b in range(a, s):
            own[b] *= per_root
            R[pair] = own[b]
            pair += 1
    return True


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


def _whiten(R, G, at, own, noise, jitter, w, kappa):
    n, s = w.shape
    rows = np.zeros(((s + 3) // 4 * 4, G.shape[1]), G.dtype)
    columns, tile = np.zeros((s, s)), np.empty((4, 4), G.dtype)
    # Loops instead of assignments of slices, whose checks take seconds to compile.
    M, zero = G.shape[1], G.dtype.type(0)
    for i in range(n):
        for a in range(s):
            given = own[i] if a == at.shape[1] else G[max(0, at[i, a])]
            there = a == at.shape[1] or at[i, a] >= 0
            for m in range(M):
                rows[a, m] = given[m] if there else zero
        _subtract_products(R[i], rows, tile, columns)
        for a in range(s):
            columns[a, a] += noise[i, a] + jitter * R[i, a * s - a * (a - 1) // 2]
        for a in range(at.shape[1]):
            if at[i, a] < 0:
                for b in range(s):
                    columns[a, b] = columns[b, a] = 0.0
                columns[a, a] = 1.0
        if not _factorize(columns, R[i]):
            return i
        for a in range(s - 1, -1, -1):
            total = 1.0 if a == s - 1 else 0.0
            for b in range(a + 1, s):
                total -= columns[a, b] * w[i, b]
            w[i, a] = total / columns[a, a]
        _combine(w[i], rows, kappa[i])
    return -1


def _compile_whiten(of):
    read = types.Array(of, 2, "C", readonly=True)
    arguments = (WRITE_2, read, INDEX_2, read, READ_2, types.float64, WRITE_2)
    return compile_for(*arguments, types.Array(of, 2, "C"), result=types.intp)(_whiten)


_whiten_double, _whiten_single = (_compile_whiten(of) for of in (types.float64, types.float32))


def whiten(R, G, *others):
    own = _whiten_single if G.dtype == np.float32 else _whiten_double
    return own(R, G, *others)


@compile_for(READ_2, WRITE_2, types.boolean)
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
