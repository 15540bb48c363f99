"""The two passes over the rows as fused kernels for one GPU, in Triton.

A kernel evaluates the features `ρ_nm = ρ(|x_n − z_m|²)` of a block of rows in registers,
multiplies them on the tensor cores and keeps only the sums. The tensor cores take float16
and add in float32, cutting digits off instead of rounding. That error has the same sign in
every row, and where `K_BB` is ill-conditioned nothing of `A` would survive it. So its features
are split into an integer and a rest of at most one half. Sums of products of integers are
exact as long as they stay below 2²⁴; the products with a rest are small, and so is what is cut
off them. The sums of every so many rows are added in float64. Distances are made the same way.

The second pass takes the rows about their fitted values. Far less cancels in its products
then, and floating-point halves of every factor are enough.

Letters: `t = |x − z|²`; `u = −½ S² t` with a power of two `S`; `s_n` is a row's weight; `h`
and `r` are the integer and the rest of a number. `eigengp.gp.gpu.triton_launch` splits what the
kernels read and starts them.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
# `1.5·2²³`: added and subtracted again, it rounds a float32 below 2²² to an integer.
ROUND = tl.constexpr(12582912.0)
FAR = tl.constexpr(8000.0)  # Scaled inputs are cut off here, far from all inducing points.
# The largest float16; inputs that exceed it are so far out that it does not matter.
LARGEST = tl.constexpr(65504.0)
X_UNIT = tl.constexpr(64.0)  # Brings the squares of scaled inputs into the range of float16.
# A pair with `−u` below this is closer than rounding can tell from equal.
TOUCHING = tl.constexpr(0.015625)


@dataclass(frozen=True)
class Plan:
    """What a kernel is compiled for."""

    size: int  # The number of inducing points, a multiple of `basis`.
    inputs: int
    columns: int  # The columns of a factor of `u`: inputs, four more, and zeros.
    rows: int  # Rows in a block.
    basis: int  # Inducing points in a tile.
    bits: float  # Features are in units of 2⁻ᵇⁱᵗˢ.
    profile: str
    weighted: bool
    flush: int = 0  # Blocks whose sum is in float32, in pass 1.
    diagonal: bool = False  # Whether tiles are on the diagonal of `A`, in pass 1.
    # Float16 that make up a feature where it meets `C`, in pass 2, as are those that follow.
    pieces: int = 0
    half: int = 0  # Room for the inputs, a power of two.
    # Inducing points in a step of the product with `C`, where they are more than a tile.
    inner: int = 0
    stages: int = 0  # Steps whose part of `C` is on its way at the same time.
    one_tile: bool = False  # Whether one tile holds all inducing points.
    t_unit: float = 0.0  # Brings `T` into the range of float16.
    value_is_column: bool = False  # Whether `ρ' ∝ ρ`, so that `Σ ρ̄ ∘ ρ` follows from `Σ T`.


@triton.jit
def _load_rows(X, block, k, D: tl.constexpr, ROWS: tl.constexpr):
    """Return the inputs of a block, (ROWS, K), zero beyond the last."""
    first = X + tl.cast(block, tl.int64) * (ROWS * D)
    n = tl.arange(0, ROWS)
    return tl.load(first + n[:, None] * D + k[None, :], mask=(k < D)[None, :], other=0.0)


@triton.jit
def _load_targets(y, block, ROWS: tl.constexpr):
    """Return one number for each row of a block, (ROWS,)."""
    return tl.load(y + tl.cast(block, tl.int64) * ROWS + tl.arange(0, ROWS))


@triton.jit
def _load_points(Z, m, k, SIZE: tl.constexpr, K: tl.constexpr):
    """Return the four factors of the inducing points `m`, (len(m), K)."""
    at = Z + m[:, None] * K + k[None, :]
    stride: tl.constexpr = SIZE * K
    return tl.load(at), tl.load(at + stride), tl.load(at + 2 * stride), tl.load(at + 3 * stride)


@triton.jit
def _scaled(x, scale):
    """Return `S x`, cut off far from all inducing points."""
    return tl.minimum(tl.maximum(x * scale, -FAR), FAR)


@triton.jit
def _augmented(parts, square, k, unit, D: tl.constexpr):
    """Return float16 (ROWS, K): `parts`, two pieces of `square`, and what multiplies theirs."""
    high = (square * (1.0 / unit)).to(tl.float16)
    low = square - high.to(tl.float32) * unit
    low = tl.minimum(tl.maximum(low, -LARGEST), LARGEST).to(tl.float16)
    column = k[None, :]
    rest = tl.where(column == D + 2, -0.5 * unit, tl.where(column == D + 3, -0.5, 0.0))
    rest = tl.where(column == D + 1, low[:, None], rest.to(tl.float16))
    return tl.where(column < D, parts, tl.where(column == D, high[:, None], rest))


@triton.jit
def _split_rows(x, k, scale, D: tl.constexpr):
    """Return the two factors of the rows in `u = x·z − ½ |x|² − ½ |z|²`, (ROWS, K) float16.

    With `x = h + r`, `|x|² = h·h + (2h + r)·r`. The first factor holds `h` and the pieces of
    `h·h`, the second `r` and those of `(2h + r)·r`, as do the factors of the inducing points.
    """
    x = _scaled(x, scale)
    h = ((x + ROUND) - ROUND).to(tl.float16)
    h32 = h.to(tl.float32)
    r = (x - h32).to(tl.float16)
    r32 = r.to(tl.float32)
    first = _augmented(h, tl.sum(h32 * h32, 1), k, 65536.0, D)
    return first, _augmented(r, tl.sum((2.0 * h32 + r32) * r32, 1), k, 64.0, D)


@triton.jit
def _closeness(points, x, x_rest):
    """Return `u` in two parts, (inducing points, ROWS).

    The first is a sum of integers, `−½ |h_x − h_z|²`, and exact: short lengthscales cost no
    digits. They are not added here, which would let the compiler merge the products.
    """
    z, z_square, z_rest, z_missing = points
    rest = tl.dot(z_missing, tl.trans(x))
    rest = tl.dot(z_rest, tl.trans(x), rest)
    rest = tl.dot(z_rest, tl.trans(x_rest), rest)
    rest = tl.dot(z_square, tl.trans(x_rest), rest)
    return tl.dot(z, tl.trans(x)), rest


@triton.jit
def _closeness_by_row(points, x, x_rest):
    """Return the transposes of the parts of `u`, (ROWS, inducing points)."""
    z, z_square, z_rest, z_missing = points
    rest = tl.dot(x, tl.trans(z_missing))
    rest = tl.dot(x, tl.trans(z_rest), rest)
    rest = tl.dot(x_rest, tl.trans(z_rest), rest)
    rest = tl.dot(x_rest, tl.trans(z_square), rest)
    return tl.dot(x, tl.trans(z)), rest


@triton.jit
def _profile(u, u_rest, rate, PLAN: tl.constexpr):
    """Return `2ᵇⁱᵗˢ ρ` and `2ᵇⁱᵗˢ ρ'` but for its number in front, shaped as `u`."""
    BITS: tl.constexpr = PLAN.bits
    PROFILE: tl.constexpr = PLAN.profile
    if PROFILE == "squared_exponential":
        rho = tl.exp2(u_rest * rate + (u * rate + BITS))
        slope = rho
    elif PROFILE == "matern12":
        t = tl.maximum(u_rest * -rate + u * -rate, 1e-20)
        inverse = tl.rsqrt(t)
        rho = tl.exp2(t * inverse * -LOG2_E + BITS)
        slope = tl.where(t > TOUCHING * rate, rho * inverse, 0.0)
    else:
        t = tl.maximum(u_rest * -rate + u * -rate, 0.0)
        s = tl.sqrt(t)
        e = tl.exp2(s * -LOG2_E + BITS)
        rho = s * e + e
        slope = e
        if PROFILE == "matern52":
            slope = rho
            rho = t * (e * (1.0 / 3.0)) + rho
    return rho, slope


@triton.jit
def _split(rho):
    """Return the integer and the rest of a feature, float16."""
    h = (rho + ROUND) - ROUND
    return h.to(tl.float16), (rho - h).to(tl.float16)


@triton.jit
def _add_squares(pieces, exact, small):
    """Add the products of features with themselves; `2 h r'` stands for `h r' + r h'`."""
    h, r = pieces
    exact = tl.dot(h, tl.trans(h), exact)
    small = tl.dot(h + h, tl.trans(r), small)
    return exact, tl.dot(r, tl.trans(r), small)


@triton.jit
def _add_products(pieces, others, exact, small):
    """Add the products of the features of two tiles."""
    h, r = pieces
    h2, r2 = others
    exact = tl.dot(h, tl.trans(h2), exact)
    small = tl.dot(h, tl.trans(r2), small)
    small = tl.dot(r, tl.trans(h2), small)
    return exact, tl.dot(r, tl.trans(r2), small)


@triton.jit
def _features(points, rows, root, rate, PLAN: tl.constexpr):
    """Return the features of a tile, (BASIS, ROWS), times the roots of the weights."""
    x, x_rest = rows
    u, u_rest = _closeness(points, x, x_rest)
    rho, _ = _profile(u, u_rest, rate, PLAN)
    if PLAN.weighted:
        rho = rho * root[None, :]
    return rho


@triton.jit
def _add_block(sums, own, other, rows, y, weight, normal, block, rate, PLAN: tl.constexpr):
    """Add a block to the two parts of a tile of `A`, and to `b` if it is on the diagonal.

    `own` and `other` are the inducing points of the tile's rows and columns.
    """
    exact, small, lot_b = sums
    root = normal
    if PLAN.weighted:
        root = tl.sqrt(_load_targets(weight, block, PLAN.rows) * normal)
    rho = _features(own, rows, root, rate, PLAN)
    pieces = _split(rho)
    if PLAN.diagonal:
        targets = _load_targets(y, block, PLAN.rows)
        if PLAN.weighted:
            targets = targets * root
        lot_b += tl.sum(rho * targets[None, :], 1)
        exact, small = _add_squares(pieces, exact, small)
    else:
        others = _split(_features(other, rows, root, rate, PLAN))
        exact, small = _add_products(pieces, others, exact, small)
    return exact, small, lot_b


@triton.jit(do_not_specialize=["blocks"])
def sums_kernel(X, y, weight, largest, Z, scales, pairs, A, b, blocks, PLAN: tl.constexpr):
    """Sum one tile of `A`, and of `b` if it is on the diagonal, over every `groups`-th lot of rows.

    With features `h + r`, a tile is `Σ h h'` and `Σ (h r' + r h' + r r')`. A tile on the diagonal
    is made symmetric later.
    """
    D: tl.constexpr = PLAN.inputs
    ROWS: tl.constexpr = PLAN.rows
    BASIS: tl.constexpr = PLAN.basis
    FLUSH: tl.constexpr = PLAN.flush
    group, pair = tl.program_id(0), tl.program_id(1)
    groups = tl.num_programs(0)
    k, m = tl.arange(0, PLAN.columns), tl.arange(0, BASIS)
    scale, rate, normal = tl.load(scales), tl.load(scales + 1), 1.0
    own = _load_points(Z, tl.load(pairs + pair) * BASIS + m, k, PLAN.size, PLAN.columns)
    other = own
    if not PLAN.diagonal:
        at = tl.load(pairs + tl.num_programs(1) + pair) * BASIS + m
        other = _load_points(Z, at, k, PLAN.size, PLAN.columns)
    if PLAN.weighted:
        normal = 1.0 / tl.load(largest)
    job = pair * groups + group
    tile = A + job.to(tl.int64) * (BASIS * BASIS) + m[:, None] * BASIS + m[None, :]
    total_b = tl.zeros((BASIS,), tl.float64)
    ahead = _load_rows(X, group * FLUSH, k, D, ROWS)
    for start in range(group * FLUSH, blocks, groups * FLUSH):
        exact = tl.zeros((BASIS, BASIS), tl.float32)
        sums = exact, tl.zeros((BASIS, BASIS), tl.float32), tl.zeros((BASIS,), tl.float32)
        end = tl.minimum(start + FLUSH, blocks)
        for block in range(start, end):
            inputs = ahead
            following = tl.where(block + 1 < end, block + 1, start + groups * FLUSH)
            ahead = _load_rows(X, tl.minimum(following, blocks - 1), k, D, ROWS)
            rows = _split_rows(inputs, k, scale, D)
            sums = _add_block(sums, own, other, rows, y, weight, normal, block, rate, PLAN)
        exact, small, lot_b = sums
        tl.store(tile, tl.load(tile) + exact.to(tl.float64) + small.to(tl.float64))
        tl.debug_barrier()
        total_b += lot_b.to(tl.float64)
    if PLAN.diagonal:
        tl.store(b + job * BASIS + m, total_b)


@triton.jit
def _halves(a):
    """Return a float32 as two float16, 22 bits."""
    first = a.to(tl.float16)
    return first, (a - first.to(tl.float32)).to(tl.float16)


@triton.jit
def _times_C(rho, C, j, m, total, SIZE: tl.constexpr, PIECES: tl.constexpr):
    """Add the product of features, (ROWS, len(j)), with the rows `j` and columns `m` of `C`."""
    at = C + j[:, None] * SIZE + m[None, :]
    large, small = tl.load(at), tl.load(at + SIZE * SIZE)
    first, second = _halves(rho)
    total = tl.dot(first, small, total)
    if PIECES > 1:
        total = tl.dot(second, large, total)
    return tl.dot(first, large, total)


@triton.jit
def _fitted(rho, mean, m, SIZE: tl.constexpr):
    """Return features times the two pieces of the coefficients `m`, shaped as `rho`."""
    high, low = tl.load(mean + m)[None, :], tl.load(mean + SIZE + m)[None, :]
    return rho * high + rho * low


@triton.jit
def _moments(T, x, q, HALF: tl.constexpr):
    """Return `Tᵀ [x, x²]`, (inducing points, 2 HALF), for inputs twice side by side."""
    T1, T2 = _halves(T)
    W1, W2 = _halves(tl.where((q < HALF)[None, :], x, x * x))
    product = tl.dot(tl.trans(T2), W1)
    product = tl.dot(tl.trans(T1), W2, product)
    return tl.dot(tl.trans(T1), W1, product)


@triton.jit
def _meet_points(rows, own, Z, C, mean, k, m, rate, PLAN: tl.constexpr):
    """Return features and slopes of a tile, and two sums over all inducing points.

    These are the fitted values, (ROWS, ·), to be added up along their rows, and the product of all
    features with `C`, (ROWS, BASIS).
    """
    SIZE: tl.constexpr = PLAN.size
    ROWS: tl.constexpr = PLAN.rows
    BASIS: tl.constexpr = PLAN.basis
    INNER: tl.constexpr = PLAN.inner
    x, x_rest = rows
    product = tl.zeros((ROWS, BASIS), tl.float32)
    if PLAN.one_tile:
        u, u_rest = _closeness_by_row(own, x, x_rest)
        rho, slope = _profile(u, u_rest, rate, PLAN)
        fitted = _fitted(rho, mean, m, SIZE)
        product = _times_C(rho, C, m, m, product, SIZE, PLAN.pieces)
    else:
        fitted = tl.zeros((ROWS, INNER), tl.float32)
        for start in tl.range(0, SIZE, INNER, num_stages=PLAN.stages):
            j = start + tl.arange(0, INNER)
            others = _load_points(Z, j, k, SIZE, PLAN.columns)
            u, u_rest = _closeness_by_row(others, x, x_rest)
            other, _ = _profile(u, u_rest, rate, PLAN)
            fitted += _fitted(other, mean, j, SIZE)
            product = _times_C(other, C, j, m, product, SIZE, PLAN.pieces)
        u, u_rest = _closeness_by_row(own, x, x_rest)
        rho, slope = _profile(u, u_rest, rate, PLAN)
    return rho, slope, fitted, product


@triton.jit(do_not_specialize=["blocks"])
def pull_back_kernel(
    X, y, weight, largest, Z, scales, C, g, mean, moments, column, value, blocks, PLAN: tl.constexpr
):
    """Sum `T`, `Tᵀ [X, X²]` and `ρ̄ ∘ ρ` for a tile of inducing points over every `groups`-th block.

    A tile of `ρ̄` needs the features of all inducing points. Where they are more than a tile, they
    are evaluated `INNER` at a time, and those of the tile once more for `T`.
    """
    D: tl.constexpr = PLAN.inputs
    ROWS: tl.constexpr = PLAN.rows
    BASIS: tl.constexpr = PLAN.basis
    HALF: tl.constexpr = PLAN.half
    T_UNIT: tl.constexpr = PLAN.t_unit
    group, groups = tl.program_id(0), tl.num_programs(0)
    k, q = tl.arange(0, PLAN.columns), tl.arange(0, 2 * HALF)
    m = tl.program_id(1) * BASIS + tl.arange(0, BASIS)
    scale, rate, normal = tl.load(scales), tl.load(scales + 1), 1.0
    own, own_g = _load_points(Z, m, k, PLAN.size, PLAN.columns), tl.load(g + m)
    if PLAN.weighted:
        normal = 1.0 / tl.load(largest)
    total_moments = tl.zeros((BASIS, 2 * HALF), tl.float32)
    total_column, total_value = tl.zeros((BASIS,), tl.float32), tl.zeros((BASIS,), tl.float32)
    ahead = _load_rows(X, group, k, D, ROWS)
    for block in range(group, blocks, groups):
        inputs = ahead
        ahead = _load_rows(X, tl.minimum(block + groups, blocks - 1), k, D, ROWS)
        rows = _split_rows(inputs, k, scale, D)
        rho, slope, fitted, product = _meet_points(rows, own, Z, C, mean, k, m, rate, PLAN)
        residual = _load_targets(y, block, ROWS) - tl.sum(fitted, 1)
        rho_bar = residual[:, None] * own_g[None, :] + product
        if PLAN.weighted:
            rho_bar = rho_bar * (_load_targets(weight, block, ROWS) * normal)[:, None]
        T = tl.minimum(tl.maximum(rho_bar * (slope * T_UNIT), -LARGEST), LARGEST)
        total_column += tl.sum(T, 0)
        if not PLAN.value_is_column:
            total_value += tl.sum(rho_bar * rho, 0)
        twice = _scaled(_load_rows(X, block, q % HALF, D, ROWS), scale) * (1.0 / X_UNIT)
        total_moments += _moments(T, twice, q, HALF)
    if PLAN.value_is_column:
        total_value = total_column * (1.0 / T_UNIT)
    at = group * PLAN.size + m
    tl.store(moments + at[:, None] * (2 * HALF) + q[None, :], total_moments)
    tl.store(column + at, total_column)
    tl.store(value + at, total_value)
