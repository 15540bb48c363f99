"""Compiled kernel matrices and products of many rows, for learning; see `compiled`."""

from __future__ import annotations

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from eigengp.backend.compiled import (
    AT_ONCE,
    READ_1,
    READ_2,
    WRITE_1,
    WRITE_2,
    add_squares,
    compile_for,
    fill_profile,
    fill_profile_single,
    find_log,
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
            shape += own * a * (u / (1.0 + u) - find_log(1.0 + u))
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
def _add_slopes(T, x, points, first, factors, by_inputs):
    # Add the derivatives of T_j |x − z_j|² by both points, times the factor of each input.
    for d in range(x.size):
        x0, z0 = x[d], points[d, first : first + T.size]
        own = by_inputs[d, first : first + T.size]
        factor, total = 2.0 * factors[d], 0.0
        for j in range(T.size):
            slope = factor * T[j] * (x0 - z0[j])
            total += slope
            own[j] -= slope
        by_inputs[d, first - 1] += total


@numba.njit(inline="always")
def _measure_row(points, i, first, x, t):
    # Set the squared distances between point i and those from `first` on; x is that point.
    for d in range(x.size):
        x[d] = points[d, i]
    for j in range(t.size):
        t[j] = 0.0
    add_squares(x, points, first, t)


@intrinsic
def _call_lapack(typing, address, half, size, matrix, info):
    # Call a function at an address with pointers to half, size, matrix, size and info.
    def generate(context, builder, signature, given):
        pointer = ir.IntType(8).as_pointer()
        address, half, size, matrix, info = given
        own = ir.FunctionType(ir.VoidType(), 5 * [pointer]).as_pointer()
        given = (half, size, matrix, size, info)
        pointers = [builder.inttoptr(each, pointer) for each in given]
        builder.call(builder.inttoptr(address, own), pointers)
        return context.get_dummy_value()

    return types.void(*5 * [types.intp]), generate


@numba.njit(inline="always")
def _in_place(address, C):
    # Replace the lower half of C, in the order of Fortran, and return whether that succeeded.
    half, size = np.full(1, 76, np.uint8), np.full(1, C.shape[0], np.int32)  # 76 is the letter L.
    info = np.zeros(1, np.int32)
    _call_lapack(address, half.ctypes.data, size.ctypes.data, C.ctypes.data, info.ctypes.data)
    # An array is freed after its last use, so that this is after the call.
    return info[0] == 0 and half[0] == 76 and size[0] == C.shape[0]


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
        _measure_row(points, i, first, x, own)
        fill_profile(own, term, near)
        total = 0.0
        for j in range(n - first):  # Each entry stands for two.
            bar[j] = row[j] - a[i] * others[j]
            total += bar[j] * near[j]
        sums[D] += total
        sums[D + 1] += _times_slope(own, near, term, bar)
        _sum_squares(bar, x, points, first, sums)
        if by_inputs.shape[0] > 0:
            _add_slopes(bar, x, points, first, factors, by_inputs)


@compile_for(
    *(READ_2, READ_2, READ_2, READ_1, READ_1, types.intp, types.intp, WRITE_2, WRITE_1, WRITE_2),
    WRITE_2,
    result=types.float64,
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
            _measure_row(points[k], i, i, x, own)
            fill_profile(own, terms[k], near)
            for j in range(n - i):
                row[i + j] += terms[k, 4] * near[j]
        row[i] += noise[i]
    if not _in_place(factorize, C):
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
        _in_place(invert, C)
        for k in range(count):
            _pull_back(points[k], per_length[k], terms[k], C, a, sums[k], by_inputs)
    return log_det


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


def _multiply(X, points, terms, v, out):
    near, distances = np.empty(AT_ONCE, X.dtype), np.empty(AT_ONCE, X.dtype)
    for first in range(0, v.size, AT_ONCE):
        count = min(AT_ONCE, v.size - first)
        t, rho = distances[:count], near[:count]
        for i in range(X.shape[1]):
            for k in range(X.shape[0]):
                for j in range(count):
                    t[j] = 0
                add_squares(X[k, i], points[k], first, t)
                if v.itemsize == 4:
                    fill_profile_single(t, terms[k], rho)
                else:
                    fill_profile(t, terms[k], rho)
                total = X.dtype.type(0)
                for j in range(count):
                    total += v[first + j] * rho[j]
                out[i] += terms[k, 4] * total


def _compile_multiply(of):
    read = [types.Array(of, d, "C", readonly=True) for d in (3, 3, 2, 1)]
    return compile_for(*read, WRITE_1)(_multiply)


_multiply_double, _multiply_single = (
    _compile_multiply(of) for of in (types.float64, types.float32)
)


def multiply(X, *others):
    own = _multiply_single if X.dtype == np.float32 else _multiply_double
    own(X, *others)
