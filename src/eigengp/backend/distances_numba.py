"""Compiled loops over distances: kernels of many pairs, and the nearest points.

`loops_numba` has the rest, and says how all are compiled; `loops_numpy` says what each does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from threading import Lock
from typing import Any

import numba
import numpy as np
from numba import types
from numba.core import config

if getattr(config, "DISABLE_JIT", False):
    raise ImportError("Numba is switched off by NUMBA_DISABLE_JIT.")

READ_1, READ_2, READ_3 = (types.Array(types.float64, d, "C", readonly=True) for d in (1, 2, 3))
WRITE_1, WRITE_2 = (types.Array(types.float64, d, "C") for d in (1, 2))
INDEX_1, INDEX_2 = (types.Array(types.intp, d, "C", readonly=True) for d in (1, 2))


_FAST = {"reassoc", "contract", "nsz"}


def compile_for(*arguments: Any, result: Any = types.void) -> Callable[[Any], Any]:
    """Compile a function for arguments of these types when it is first called, or read the cache.

    Compiling takes a second, and most programs need few of the functions.
    """
    options: dict[str, Any] = {"nogil": True, "cache": True, "fastmath": _FAST}
    lock = Lock()

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @cache
        def compiled() -> Any:
            return numba.njit(result(*arguments), error_model="numpy", **options)(function)

        @wraps(function)
        def call(*given: Any) -> Any:
            with lock:  # Threads would compile it once each.
                own = compiled()
            return own(*given)

        return call

    return decorate


@numba.njit(inline="always")
def _exp(x):
    # exp of numbers between −700 and 700: 2ⁿ times a polynomial, which fills wide registers.
    n = np.floor(x * 1.4426950408889634 + 0.5)
    r = (x - n * 0.6931471803691238) - n * 1.9082149292705877e-10
    p = 2.505210838544172e-08
    p = p * r + 2.755731922398589e-07
    p = p * r + 2.7557319223985893e-06
    p = p * r + 2.48015873015873e-05
    p = p * r + 0.0001984126984126984
    p = p * r + 0.001388888888888889
    p = p * r + 0.008333333333333333
    p = p * r + 0.041666666666666664
    p = p * r + 0.16666666666666666
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return p * np.int64((np.int64(n) + 1023) << 52).view(np.float64)


@numba.njit(inline="always")
def _log(x):
    # ln of numbers from one on: x = 2ᵉm, ln m = 2 artanh((m − 1)/(m + 1)).
    bits = np.float64(x).view(np.int64)
    e = np.float64((bits >> 52) - 1023)
    m = np.int64((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000).view(np.float64)
    more = 1.0 if m > 1.4142135623730951 else 0.0
    m *= 1.0 - 0.5 * more
    e += more
    z = (m - 1.0) / (m + 1.0)
    q = z * z
    p = 1.0 / 21.0
    p = p * q + 1.0 / 19.0
    p = p * q + 1.0 / 17.0
    p = p * q + 1.0 / 15.0
    p = p * q + 1.0 / 13.0
    p = p * q + 1.0 / 11.0
    p = p * q + 1.0 / 9.0
    p = p * q + 1.0 / 7.0
    p = p * q + 1.0 / 5.0
    p = p * q + 1.0 / 3.0
    p = p * q + 1.0
    return e * 0.6931471805599453 + 2.0 * z * p


@numba.njit(inline="always")
def _add_squares(x, points, first, t):
    # Add the squared distances between x and a block of points, whose inputs are rows.
    whole, last = x.size - x.size % 4, first + t.size
    for d in range(0, whole, 4):
        x0, x1, x2, x3 = x[d], x[d + 1], x[d + 2], x[d + 3]
        z0, z1 = points[d, first:last], points[d + 1, first:last]
        z2, z3 = points[d + 2, first:last], points[d + 3, first:last]
        for j in range(t.size):
            b0, b1, b2, b3 = x0 - z0[j], x1 - z1[j], x2 - z2[j], x3 - z3[j]
            t[j] += b0 * b0 + b1 * b1 + b2 * b2 + b3 * b3
    for d in range(whole, x.size):
        x0, z0 = x[d], points[d, first:last]
        for j in range(t.size):
            b0 = x0 - z0[j]
            t[j] += b0 * b0


@numba.njit(inline="always")
def _profile(t, decay, rho):
    kind, a, b, c = decay[0], decay[1], decay[2], decay[3]
    if kind == 0.0:
        for j in range(t.size):
            rho[j] = _exp(-0.5 * min(t[j], 1400.0))
    elif kind == 1.0:
        for j in range(t.size):
            root = min(np.sqrt(a * t[j]), 700.0)
            rho[j] = (1.0 + root * (b + root * c)) * _exp(-root)
    else:
        for j in range(t.size):
            rho[j] = _exp(-min(a * _log(1.0 + b * t[j]), 700.0))


@compile_for(READ_2, READ_1, WRITE_2)
def profile(t, decay, rho):
    for i in range(t.shape[0]):
        _profile(t[i], decay, rho[i])


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


@compile_for(READ_2, READ_1, types.float64, types.boolean, WRITE_2)
def add_gram(points, decay, variance, is_first, out):
    D, n = points.shape
    t, rho, x = np.empty(n), np.empty(n), np.empty(D)
    for i in range(n):
        own, near, row = t[: n - i], rho[: n - i], out[i, i:]
        for d in range(D):
            x[d] = points[d, i]
        for j in range(n - i):
            own[j] = 0.0
        _add_squares(x, points, i, own)
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
        for d in range(D):
            x[d] = points[d, i]
        for j in range(n - first):
            own[j] = 0.0
        _add_squares(x, points, first, own)
        _profile(own, decay, near)
        total = 0.0
        for j in range(n - first):  # Each entry stands for two.
            bar[j] = row[j] - a[i] * others[j]
            total += bar[j] * near[j]
        sums[D] += total
        sums[D + 1] += _times_slope(own, near, decay, bar)
        _sum_squares(bar, x, points, first, sums)


_AT_ONCE = 512


@compile_for(READ_2, READ_2, READ_1, READ_1, WRITE_1)
def multiply(X, points, decay, v, out):
    t, rho = np.empty(_AT_ONCE), np.empty(_AT_ONCE)
    for first in range(0, v.size, _AT_ONCE):
        count = min(_AT_ONCE, v.size - first)
        own, near, some = t[:count], rho[:count], v[first : first + count]
        for i in range(X.shape[0]):
            own[:] = 0.0
            _add_squares(X[i], points, first, own)
            _profile(own, decay, near)
            total = 0.0
            for j in range(count):
                total += some[j] * near[j]
            out[i] += total


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
    t = np.empty(_AT_ONCE)
    least = np.full((n, k), np.inf)  # Of each row a heap, the farthest on top.
    found[:] = -1
    last = 0
    for i in range(n):
        last = max(last, limit[i])
    for first in range(0, last, _AT_ONCE):
        for i in range(n):
            count = min(_AT_ONCE, limit[i] - first)
            if count <= 0:
                continue
            own, heap, at = t[:count], least[i], found[i]
            own[:] = 0.0
            _add_squares(X[i], points, first, own)
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
        _add_squares(x, points, a, t[pair : pair + s - a])
        pair += s - a


@compile_for(READ_3, READ_1, WRITE_2)
def measure_distances(X, per_length, t):
    n, s, D = X.shape
    points, x = np.empty((D, s)), np.empty(D)
    for i in range(n):
        _measure_set(X[i], per_length, points, x, t[i])
