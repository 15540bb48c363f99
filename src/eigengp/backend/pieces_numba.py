"""What compiled loops are made of: types of arguments, profiles of kernels and slopes, factors.

All is inlined, and written for wide registers. Arguments that are only read may be read-only.
"""

from __future__ import annotations

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import config
from numba.extending import intrinsic

if getattr(config, "DISABLE_JIT", False):
    raise ImportError("Numba is switched off by NUMBA_DISABLE_JIT.")

READ_1, READ_2, READ_3 = (types.Array(types.float64, d, "C", readonly=True) for d in (1, 2, 3))
WRITE_1, WRITE_2 = (types.Array(types.float64, d, "C") for d in (1, 2))
INDEX_1, INDEX_2 = (types.Array(types.intp, d, "C", readonly=True) for d in (1, 2))
# The number of points that are treated at once, and stay in the cache of the processor.
AT_ONCE = 512
# The number of columns in a block: as many numbers of float32 as fit into the widest register.
_LANES = 16


@numba.njit(inline="always")
def _exp(x):
    # exp of numbers between −700 and 700: 2ⁿ times a polynomial, which fills wide registers.
    n = np.floor(x * 1.4426950408889634 + 0.5)
    r = (x - n * 0.6931471803691238) - n * 1.9082149292705877e-10
    p = (2.505210838544172e-08 * r + 2.755731922398589e-07) * r + 2.7557319223985893e-06
    p = ((p * r + 2.48015873015873e-05) * r + 0.0001984126984126984) * r + 0.001388888888888889
    p = ((p * r + 0.008333333333333333) * r + 0.041666666666666664) * r + 0.16666666666666666
    p = ((p * r + 0.5) * r + 1.0) * r + 1.0
    return p * np.int64((np.int64(n) + 1023) << 52).view(np.float64)


@numba.njit(inline="always")
def find_log(x):
    # ln of numbers from one on: x = 2ᵉm, ln m = 2 artanh((m − 1)/(m + 1)).
    bits = np.float64(x).view(np.int64)
    e = np.float64((bits >> 52) - 1023)
    m = np.int64((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000).view(np.float64)
    more = 1.0 if m > 1.4142135623730951 else 0.0
    m *= 1.0 - 0.5 * more
    e += more
    z = (m - 1.0) / (m + 1.0)
    q = z * z
    p = ((1.0 / 21.0 * q + 1.0 / 19.0) * q + 1.0 / 17.0) * q + 1.0 / 15.0
    p = ((p * q + 1.0 / 13.0) * q + 1.0 / 11.0) * q + 1.0 / 9.0
    p = (((p * q + 1.0 / 7.0) * q + 1.0 / 5.0) * q + 1.0 / 3.0) * q + 1.0
    return e * 0.6931471805599453 + 2.0 * z * p


@numba.njit(inline="always")
def add_squares(x, points, first, t):
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
def fill_profile(t, decay, rho):
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
            rho[j] = _exp(-min(a * find_log(1.0 + b * t[j]), 700.0))


_LOG2_E, _LN2_HIGH, _LN2_LOW = (np.float32(x) for x in (1.442695041, 0.693359375, -2.12194440e-4))
_LN2, _HALF, _ONE, _HUGE = (np.float32(x) for x in (0.6931471806, 0.5, 1.0, 1e30))
_MOST, _ROOT_HALF = np.float32(80.0), 0x3F3504F3
_E0, _E1, _E2, _E3, _E4, _E5 = (
    np.float32(x)
    for x in (1.9875691e-4, 1.3981999e-3, 8.3334519e-3, 4.1665796e-2, 1.6666665e-1, 5.0000001e-1)
)
_L0, _L1, _L2, _L3, _L4, _L5, _L6, _L7, _L8 = (
    np.float32(x)
    for x in (
        *(7.0376836e-2, -1.1514610e-1, 1.1676999e-1, -1.2420141e-1, 1.4249323e-1),
        *(-1.6668058e-1, 2.0000715e-1, -2.4999994e-1, 3.3333331e-1),
    )
)


@numba.njit(inline="always")
def _exp_single(x):
    # exp of numbers between −80 and 80: 2ⁿ times a polynomial.
    n = np.floor(x * _LOG2_E + _HALF)
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    p = ((((_E0 * r + _E1) * r + _E2) * r + _E3) * r + _E4) * r + _E5
    return (p * r * r + r + _ONE) * np.int32((np.int32(n) + 127) << 23).view(np.float32)


@numba.njit(inline="always")
def _log1p_single(u):
    # ln(1 + u) of numbers from zero on: 1 + u = 2ᵉ(1 + z), and a polynomial of z, which keeps the
    # digits of u; z + 1 is between √½ and √2.
    e = np.int32((np.float32(_ONE + u).view(np.int32) - _ROOT_HALF) >> 23)
    scale = np.int32((127 - e) << 23).view(np.float32)
    z = u * scale + (scale - _ONE)
    p = (((_L0 * z + _L1) * z + _L2) * z + _L3) * z + _L4
    p = (((p * z + _L5) * z + _L6) * z + _L7) * z + _L8
    return np.float32(e) * _LN2 + (p * z * z * z - _HALF * z * z + z)


@numba.njit(inline="always")
def _add_profile_single(t, term, K):
    # Add variance times profile, in float32.
    kind, a, b, c, variance = term[0], term[1], term[2], term[3], term[4]
    if kind == 0.0:
        for j in range(t.size):
            K[j] += variance * _exp_single(-min(_HALF * t[j], _MOST))
    elif kind == 1.0:
        for j in range(t.size):
            root = min(np.sqrt(a * t[j]), _MOST)
            K[j] += variance * (_ONE + root * (b + root * c)) * _exp_single(-root)
    else:
        for j in range(t.size):
            depth = min(a * _log1p_single(min(b * t[j], _HUGE)), _MOST)
            K[j] += variance * _exp_single(-depth)


@numba.njit(inline="always")
def add_profile(t, term, rho, K):
    # Add variance times profile; rho is memory for float64.
    if K.itemsize == 4:
        _add_profile_single(t, term, K)
    else:
        fill_profile(t, term, rho)
        for j in range(K.size):
            K[j] += term[4] * rho[j]


@numba.njit(inline="always")
def times_slope(t, rho, decay, T):
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
def sum_squares(T, x, points, first, sums):
    # Add Σ_j T_j (x_d − z_jd)² to the sum of each input d.
    for d in range(x.size):
        x0, z0 = x[d], points[d, first : first + T.size]
        total = 0.0
        for j in range(T.size):
            b0 = x0 - z0[j]
            total += T[j] * b0 * b0
        sums[d] += total


@numba.njit(inline="always")
def add_slopes(T, x, points, first, factors, by_inputs):
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
def measure_row(points, i, first, x, t):
    # Set the squared distances between point i and those from `first` on; x is that point.
    for d in range(x.size):
        x[d] = points[d, i]
    for j in range(t.size):
        t[j] = 0.0
    add_squares(x, points, first, t)


@numba.njit(inline="always")
def make_zeros(n_rows, n_columns, dtype):
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
def subtract_products(R, rows, columns, s):
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
def factorize(columns, s):
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
def pack(columns, R, s):
    # Whole blocks first: the compiler would copy short rows number by number.
    pair = 0
    for a in range(s):
        own, row, whole = columns[a, a:], R[pair : pair + s - a], (s - a) // _LANES * _LANES
        for start in range(0, whole, _LANES):
            for b in range(start, start + _LANES):
                row[b] = own[b]
        for b in range(whole, s - a):
            row[b] = own[b]
        pair += s - a


@numba.njit(inline="always")
def combine(weights, rows, out):
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
def in_place(address, C):
    # Replace the lower half of C, in the order of Fortran, and return whether that succeeded.
    half, size = np.full(1, 76, np.uint8), np.full(1, C.shape[0], np.int32)  # 76 is the letter L.
    info = np.zeros(1, np.int32)
    _call_lapack(address, half.ctypes.data, size.ctypes.data, C.ctypes.data, info.ctypes.data)
    # An array is freed after its last use, so that this is after the call.
    return info[0] == 0 and half[0] == 76 and size[0] == C.shape[0]
