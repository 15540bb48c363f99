"""Loops over rows, compiled; `loops_numpy` says what each does.

Nothing is gathered: each set of rows reads them in the table where they are.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import types

from eigengp.backend.loops import compile_for
from eigengp.backend.pieces_numba import (
    AT_ONCE,
    INDEX_1,
    INDEX_2,
    READ_1,
    READ_2,
    READ_3,
    WRITE_1,
    WRITE_2,
    add_profile,
    add_slopes,
    add_squares,
    combine,
    factorize,
    fill_profile,
    in_place,
    make_zeros,
    measure_row,
    pack,
    subtract_products,
    sum_squares,
    times_slope,
)

_TABLES = tuple(
    (types.Array(of, 2, "C", readonly=True), types.Array(of, 2, "C"))
    for of in (types.float64, types.float32)
)
# The number of points whose distances are measured at once, and of groups of them. The nearest of
# each group tell which groups are searched.
_SCANNED, _GROUPS = 8_192, 512


@numba.njit(inline="always")
def _measure_set(points, x, t):
    # Set the packed distances of a set, whose inputs are rows.
    D, s = points.shape
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
        for d in range(D):
            for a in range(s):
                points[d, a] = (X[i, a, d] - X[i, 0, d]) * per_length[d]
        _measure_set(points, x, t[i])


@compile_for(*(types.void(READ_2, INDEX_2, READ_2, READ_2, table, out) for table, out in _TABLES))
def fill_stack(X, at, own, per_length, terms, R):
    (n, m), D, size = at.shape, X.shape[1], R.shape[1]
    s = m + 1 if own.shape[0] > 0 else m
    apart, points = np.empty((D, s)), np.empty((D, s), R.dtype)
    x = np.empty(D, R.dtype)
    t, rho = np.empty(size, R.dtype), np.empty(size, R.dtype)
    for i in range(n):
        for j in range(size):
            R[i, j] = 0
        first = X[max(0, at[i, 0])] if m > 0 else own[i]
        for a in range(s):  # Differences from the nearest keep their digits in float32.
            given = own[i] if a == m else X[max(0, at[i, a])]
            for d in range(D):
                apart[d, a] = given[d] - first[d]
        for k in range(terms.shape[0]):
            for d in range(D):
                for a in range(s):
                    points[d, a] = apart[d, a] * per_length[k, d]
            _measure_set(points, x, t)
            add_profile(t, terms[k], rho, R[i])


@numba.njit
def _replace(heap, at, place, size, distance, number):
    # Put an entry in a place above a heap; of equal distances the later number is farther.
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


@numba.njit(inline="always")
def _fill_minima(t, minima):
    # Set the least of t[b], t[b + w], t[b + 2w], … for w groups.
    width = minima.size
    for b in range(width):
        minima[b] = t[b]
    for start in range(width, t.size, width):
        row = t[start : start + width]
        for b in range(row.size):
            minima[b] = min(minima[b], row[b])


@numba.njit(inline="always")
def _bound_nearest(minima, k):
    # A distance that at least k groups, and so k points, do not exceed, and not many more.
    if minima.size < k:
        return np.inf
    low, high = 0.0, 0.0
    for b in range(minima.size):
        high = max(high, minima[b])
    for _ in range(8):
        middle, count = 0.5 * (low + high), 0
        for b in range(minima.size):
            count += 1 if minima[b] <= middle else 0
        if count >= k:
            high = middle
        else:
            low = middle
    return high


@compile_for(types.void(READ_2, READ_2, INDEX_1, types.Array(types.intp, 2, "C")))
def find_nearest(X, points, limit, found):
    n, k = found.shape
    t, least_of_groups = np.empty(_SCANNED), np.empty(_GROUPS)
    least = np.full((n, k), np.inf)  # Of each row a heap, the farthest on top.
    found[:] = -1
    n_free, last = np.full(n, k), 0  # The first places of a heap are filled last.
    for i in range(n):
        last = max(last, limit[i])
    for first in range(0, last, _SCANNED):
        for i in range(n):
            count = min(_SCANNED, limit[i] - first)
            if count <= 0:
                continue
            own, heap, at = t[:count], least[i], found[i]
            own[:] = 0.0
            add_squares(X[i], points, first, own)
            minima = least_of_groups[: min(_GROUPS, count)]
            _fill_minima(own, minima)
            bound = heap[0] if at[0] >= 0 else _bound_nearest(minima, k)
            for b in range(minima.size):
                if not minima[b] <= bound:
                    continue
                for j in range(b, count, minima.size):
                    if own[j] > bound or own[j] > heap[0]:
                        continue
                    if n_free[i] > 0:
                        n_free[i] -= 1
                        _replace(heap, at, n_free[i], k, own[j], first + j)
                    elif own[j] < heap[0] or first + j < at[0]:
                        _replace(heap, at, 0, k, own[j], first + j)
    for i in range(n):
        heap, at = least[i], found[i]
        for size in range(k - 1, 0, -1):  # The farthest goes to the end.
            distance, number = heap[size], at[size]
            heap[size], at[size] = heap[0], at[0]
            _replace(heap, at, 0, size, distance, number)


@compile_for(
    *(
        types.intp(out, table, INDEX_2, table, READ_2, types.float64, WRITE_2, out)
        for table, out in _TABLES
    )
)
def whiten(R, G, at, own, noise, jitter, w, kappa):
    (n, s), M, zero = w.shape, G.shape[1], G.dtype.type(0)
    rows = make_zeros((s + 3) // 4 * 4, M, G.dtype)
    columns = make_zeros(rows.shape[0], s, G.dtype)
    # Loops instead of assignments of slices, whose checks take seconds to compile.
    for i in range(n):
        for a in range(s):
            given = own[i] if a == at.shape[1] else G[max(0, at[i, a])]
            there = a == at.shape[1] or at[i, a] >= 0
            for m in range(M):
                rows[a, m] = given[m] if there else zero
        subtract_products(R[i], rows, columns, s)
        for a in range(s):
            columns[a, a] += noise[i, a] + jitter * R[i, a * s - a * (a - 1) // 2]
        for a in range(at.shape[1]):
            if at[i, a] < 0:
                for b in range(s):
                    columns[a, b] = columns[b, a] = 0.0
                columns[a, a] = 1.0
        if not factorize(columns, s):
            return i
        pack(columns, R[i], s)
        for a in range(s - 1, -1, -1):
            total = 1.0 if a == s - 1 else 0.0
            for b in range(a + 1, s):
                total -= columns[a, b] * w[i, b]
            w[i, a] = total / columns[a, a]
        combine(w[i], rows, kappa[i])
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
def _pull_back(points, factors, term, C, a, sums, more, by_inputs):
    D, n = points.shape
    t, rho, T, x = np.empty(n), np.empty(n), np.empty(n), np.empty(D)
    for i in range(n):
        more[0] += 0.5 * (C[i, i] - a[i] * a[i])
        first = i + 1
        own, near, bar = t[: n - first], rho[: n - first], T[: n - first]
        row, others = C[i, first:], a[first:]
        measure_row(points, i, first, x, own)
        fill_profile(own, term, near)
        total = 0.0
        for j in range(n - first):  # Each entry stands for two.
            bar[j] = row[j] - a[i] * others[j]
            total += bar[j] * near[j]
        more[0] += total
        more[1] += times_slope(own, near, term, bar)
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
    low, high = np.full(count, D), np.zeros(count, np.intp)  # The range of inputs of each term.
    for k in range(count):
        for d in range(D):
            if per_length[k, d] > 0.0:
                low[k], high[k] = min(low[k], d), d + 1
            for i in range(n):
                points[k, d, i] = X[i, d] * per_length[k, d]
    for i in range(n):
        row = C[i]
        for j in range(n):
            row[j] = 0.0
        for k in range(count):
            own, near = t[: n - i], rho[: n - i]
            measure_row(points[k, low[k] : high[k]], i, i, x[low[k] : high[k]], own)
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
            first, last = low[k], high[k]
            some, factors = points[k, first:last], terms[k, 4] * per_length[k, first:last]
            slopes = by_inputs[first:last]
            _pull_back(some, factors, terms[k], C, a, sums[k, first:last], sums[k, D:], slopes)
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


_SCALED = [
    [types.Array(of, d, "C", readonly=True) for d in (3, 3, 2)]
    for of in (types.float64, types.float32)
]


@numba.njit(inline="always")
def _fill_row(X, i, points, first, terms, t, rho, row):
    # Set the row to k(x_i, z) for a block of points from `first` on.
    for j in range(row.size):
        row[j] = 0
    for k in range(terms.shape[0]):
        for j in range(row.size):
            t[j] = 0
        add_squares(X[k, i], points[k], first, t)
        add_profile(t, terms[k], rho, row)


@compile_for(types.void(*_SCALED[0], WRITE_2))
def fill_matrix(X, points, terms, K):
    m = K.shape[1]
    t, rho = np.empty(m), np.empty(m)
    for i in range(K.shape[0]):
        _fill_row(X, i, points, 0, terms, t, rho, K[i])


@compile_for(*(types.void(*arguments, READ_1, WRITE_1) for arguments in _SCALED))
def multiply(X, points, terms, v, out):
    t, rho = np.empty(AT_ONCE, X.dtype), np.empty(AT_ONCE, X.dtype)
    row = np.empty(AT_ONCE, X.dtype)
    for first in range(0, v.size, AT_ONCE):
        count = min(AT_ONCE, v.size - first)
        own, near, some = row[:count], rho[:count], v[first : first + count]
        for i in range(X.shape[1]):
            _fill_row(X, i, points, first, terms, t[:count], near, own)
            total = 0.0  # Sums of large terms cancel: they are in float64 in any case.
            for j in range(count):
                total += some[j] * np.float64(own[j])
            out[i] += total
