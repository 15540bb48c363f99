"""The two passes over the rows as fused kernels for one GPU, in Triton.

A kernel evaluates the features `ρ_nm = ρ(|x_n − z_m|²)` of a block of rows in registers,
multiplies them on the tensor cores and keeps only the sums. The tensor cores take float16
and add in float32, cutting digits off instead of rounding. That error has the same sign in
every row, and where `K_BB` is ill-conditioned nothing of a gradient would survive it. So
every factor is split into an integer and a rest of at most one half. Sums of products of
integers are exact as long as they stay below 2²⁴; the products with a rest are small, and so
is what is cut off them. The sums of every so many rows are added in float64.

Letters: `t = |x − z|²`; `u = −½ S² t` with a power of two `S`; `s_n` is a row's weight; `h`
and `r` are the integer and the rest of a number. Rows that do not fill a block are left to
plain PyTorch in float64.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

Tensor = Any
"""A tensor of PyTorch."""

MAX_BASIS, MAX_INPUTS = 1024, 64
"""The most basis points and inputs that the kernels take."""

SLOPES = {"squared_exponential": -0.5, "matern12": -0.5, "matern32": -1.5, "matern52": -5.0 / 6.0}
"""The number in front of `ρ'`, which the kernels leave out."""
RATES = {"matern12": 1.0, "matern32": 3.0, "matern52": 5.0}
"""The number in front of `t` under the square root."""

PULL_BITS = 10
"""Features in units of 2⁻¹⁰ leave 14 bits to a row of `C`."""
SMALLEST_RADIUS = 4.0
"""Basis points closer together than this are scaled as if they were not."""
T_UNITS = {profile: 2.0**-30 if profile == "matern12" else 2.0**-19 for profile in SLOPES}
"""Brings `T`, below 2³⁴ but for the steep profile, into the range of float16."""

LOG2_E = tl.constexpr(1.4426950408889634)
ROUND = tl.constexpr(12582912.0)
"""`1.5·2²³`: added and subtracted again, it rounds a float32 below 2²² to an integer."""
FAR = tl.constexpr(8000.0)
"""Scaled inputs are cut off here, far from all basis points."""
LARGEST = tl.constexpr(65504.0)
"""The largest float16; what exceeds it belongs to rows so far out that it does not matter."""
X_UNIT = tl.constexpr(64.0)
"""Brings the squares of scaled inputs into the range of float16."""
TOUCHING = tl.constexpr(0.015625)
"""A pair with `−u` below this is closer than rounding can tell from equal."""


class Tiling(NamedTuple):
    """How a kernel cuts its work; all sizes are powers of two."""

    rows: int = 64
    """Rows in a block."""
    basis: int = 128
    """Basis points in a tile."""
    inner: int = 32
    """Basis points in a step of the product with `C`, where they are more than a tile."""
    warps: int = 8
    stages: int = 3
    """Steps whose part of `C` is on its way at the same time."""
    programs: int = 4
    """Programs for each multiprocessor."""
    flush: int = 1024
    """Rows whose part of `A` is summed in float32; fewer leave more bits to the features."""
    registers: int | None = None
    """The most registers that a thread may have; None leaves it to the compiler."""
    pieces: int = 2
    """Float16 that make up a feature: 1 keeps eleven bits; 2 about 20 in `A` and 22 elsewhere;
    3 all of float32 in `A`, for one more product on its diagonal and two off it."""

    @property
    def bits(self) -> float:
        """How far features are scaled for `A`, so that `flush` of their squares add to 2²⁴."""
        return 0.5 * (25 - self.flush.bit_length())


class Tilings(NamedTuple):
    """How each pass cuts its work."""

    sums: Tiling
    pull_back: Tiling


class Pulled(NamedTuple):
    """Sums over `T = ρ̄ ∘ ρ'(t)`, float64."""

    column: Tensor
    """`Σ_n T_nm`, shape (M,)."""
    TX: Tensor
    """`TᵀX`, shape (M, D)."""
    squares: Tensor
    """`Σ_n (Σ_m T_nm) x_nd²`, shape (D,)."""
    value: Tensor
    """`Σ_nm ρ̄_nm ρ_nm`, shape ()."""


def tiling_for(M: int, D: int) -> Tilings:
    """Return the tilings for M basis points and D inputs, as far as shared memory allows."""
    tiling = Tiling(basis=64, warps=4) if M <= 64 or D > 28 else Tiling()
    one_tile = tiling.basis >= M
    rows = 32 if one_tile else 128 if D <= 8 else tiling.rows
    stages = 2 if D > 60 else tiling.stages
    return Tilings(tiling, tiling._replace(rows=rows, stages=stages))


def sums(
    X: Tensor,
    y: Tensor,
    weight: Tensor | None,
    Z: Tensor,
    profile: str,
    tiling: Tiling | None = None,
) -> tuple[Tensor, Tensor]:
    """Return `A = Σ s_n ρ_n ρ_nᵀ`, (M, M), and `b = Σ s_n y_n ρ_n`, (M,), in float64.

    X is (N, D), y and weight are (N,), Z is (M, D): float32, contiguous, on one device. No
    weights mean ones. Nothing here waits for the device.
    """
    tiling = tiling or tiling_for(*Z.shape).sums
    whole, tail = _blocks(X, y, weight, Z, profile, tiling)
    A, b = _plain_sums(tail, Z, profile)
    if whole.blocks:
        fused_A, fused_b = _fused_sums(whole, Z, profile, tiling)
        A, b = A + fused_A, b + fused_b
    return A, b


def pull_back(
    X: Tensor,
    y: Tensor,
    weight: Tensor | None,
    Z: Tensor,
    profile: str,
    C: Tensor,
    g: Tensor,
    tiling: Tiling | None = None,
) -> Pulled:
    """Return the sums over `T = ρ̄ ∘ ρ'(t)` with `ρ̄_nm = s_n (Σ_j ρ_nj C_jm + y_n g_m)`.

    X, y, weight and Z are as for `sums`; C, (M, M) and symmetric, and g, (M,), are float64.
    """
    tiling = tiling or tiling_for(*Z.shape).pull_back
    whole, tail = _blocks(X, y, weight, Z, profile, tiling)
    pulled = _plain_pull_back(tail, Z, profile, C, g)
    if whole.blocks:
        fused = _fused_pull_back(whole, Z, profile, C, g, tiling)
        pulled = Pulled(*(a + b for a, b in zip(pulled, fused, strict=True)))
    return pulled


class _Rows(NamedTuple):
    """Rows, of which the first so many blocks are meant."""

    X: Tensor
    y: Tensor
    weight: Tensor | None
    largest: Tensor
    """The largest weight, by which the kernels divide them, (1,)."""
    blocks: int


def _blocks(
    X: Tensor, y: Tensor, weight: Tensor | None, Z: Tensor, profile: str, tiling: Tiling
) -> tuple[_Rows, _Rows]:
    """Refuse what the kernels cannot do, and set apart the rows that do not fill a block."""
    N, (M, D) = X.shape[0], Z.shape
    if profile not in SLOPES:
        raise ValueError(f"no fused kernel has the profile {profile!r}; there are {list(SLOPES)}")
    if M > MAX_BASIS or D > MAX_INPUTS:
        raise ValueError(
            f"{M} basis points with {D} inputs are too many for the fused kernels, which take"
            f" {MAX_BASIS} with {MAX_INPUTS}"
        )
    arrays = [X, y, Z] if weight is None else [X, y, Z, weight]
    if not all(a.dtype == torch.float32 and a.is_contiguous() for a in arrays):
        raise ValueError("the fused kernels take contiguous float32 arrays only")
    blocks = N // tiling.rows
    first = blocks * tiling.rows
    if weight is None or not blocks:
        largest = torch.ones(1, device=X.device)
    else:
        largest = weight[:first].max().clamp_min(1e-30).reshape(1)
    tail = _Rows(X[first:], y[first:], None if weight is None else weight[first:], largest, 0)
    return _Rows(X, y, weight, largest, blocks), tail


# The rows that do not fill a block


def _plain_profile(X: Tensor, Z: Tensor, profile: str) -> tuple[Tensor, Tensor]:
    """Return `ρ(t)` and `ρ'(t)`, both (N, M)."""
    t = ((X[:, None, :] - Z[None, :, :]) ** 2).sum(2)
    if profile == "squared_exponential":
        rho = torch.exp(-0.5 * t)
        return rho, -0.5 * rho
    s = torch.sqrt(RATES[profile] * t)
    e = torch.exp(-s)
    if profile == "matern12":
        return e, torch.where(s > 1e-6, -0.5 * e / s.clamp_min(1e-6), 0.0)
    if profile == "matern32":
        return (1.0 + s) * e, -1.5 * e
    return (1.0 + s + s * s / 3.0) * e, -5.0 / 6.0 * (1.0 + s) * e


def _plain_sums(rows: _Rows, Z: Tensor, profile: str) -> tuple[Tensor, Tensor]:
    """Return `A` and `b` in float64."""
    rho, _ = _plain_profile(rows.X.double(), Z.double(), profile)
    y = rows.y.double()
    if rows.weight is not None:
        root = rows.weight.double().sqrt()
        rho, y = root[:, None] * rho, root * y
    return rho.T @ rho, rho.T @ y


def _plain_pull_back(rows: _Rows, Z: Tensor, profile: str, C: Tensor, g: Tensor) -> Pulled:
    """Return the sums over `T` in float64."""
    X = rows.X.double()
    rho, slope = _plain_profile(X, Z.double(), profile)
    rho_bar = rho @ C + rows.y.double()[:, None] * g
    if rows.weight is not None:
        rho_bar = rho_bar * rows.weight.double()[:, None]
    T = rho_bar * slope
    return Pulled(T.sum(0), T.T @ X, T.sum(1) @ X**2, (rho_bar * rho).sum())


# From arrays to the kernels and back


class _Points(NamedTuple):
    """The basis points as the kernels read them."""

    Z: Tensor
    """The four factors of the basis points in `u`, float16, (4, M', K); see `_split_rows`."""
    constants: Tensor
    """`S`, and the number in front of `u` in the profile, float32, (2,)."""
    size: int
    """`M'`, a multiple of the tile."""
    columns: int
    """`K`, a power of two with room for the inputs and four more."""


def _points(Z: Tensor, profile: str, tile: int) -> _Points:
    """Split the basis points, and fill the last tile with some that are too far to matter.

    `S |z| < 2¹⁰·⁵`, which keeps the integers in `u` below 2²⁴ for all rows within `√2` of the
    outermost basis point; further out there is nothing to cancel.
    """
    M, D = Z.shape
    size, K = triton.cdiv(M, tile) * tile, max(16, triton.next_power_of_2(D + 4))
    Z = Z.double()
    radius = torch.linalg.vector_norm(Z, dim=1).amax().clamp_min(SMALLEST_RADIUS)
    scale = torch.exp2(torch.floor(10.5 - torch.log2(radius)))
    h = torch.round(Z * scale)
    r = Z * scale - h
    first_r = r.half().double()
    factors = torch.zeros(4, size, K, dtype=torch.float16, device=Z.device)
    factors[:, :M, :D] = torch.stack([h, h, first_r, r - first_r])
    for k, unit, squares in ((0, 65536.0, h * h), (1, 64.0, (2.0 * h + r) * r)):
        square = squares.sum(1)
        high = (square / unit).half()
        low = (square - unit * high.double()).half()
        factors[k, :, D], factors[k, :, D + 1] = -0.5 * unit, -0.5
        factors[k, :M, D + 2], factors[k, :M, D + 3] = high, low
    factors[3, :M, D + 3] = square - unit * high.double() - low.double()
    factors[0, M:, D + 2] = 60000.0
    rate = 2.0 * RATES[profile] if profile in RATES else LOG2_E.value
    return _Points(factors, torch.stack([scale, rate / scale**2]).float(), size, K)


class _Cotangents(NamedTuple):
    """`C` and `g` as the kernel reads them, row `m` of both multiplied by `κ_m`."""

    C: Tensor
    """Four float16 matrices, (4, M', M'): twice the integers, the rest, what is still missing,
    and all of it in eleven bits."""
    g: Tensor
    """`g` in the units of the products, float32, (M',)."""
    unit: Tensor
    """What `ρ̄ ρ` is to be multiplied by, (M, 1)."""


def _cotangents(C: Tensor, g: Tensor, rows: _Rows, size: int) -> _Cotangents:
    """Scale and split `C` and `g`, so that `|ρ̄|` stays below 2²⁴ in the units of the products."""
    M = C.shape[0]
    largest_y = torch.linalg.vector_norm(rows.y, torch.inf).double().clamp_min(1e-30)
    bound = C.abs().sum(1) + largest_y * g.abs()
    room = (2.0 ** (24 - PULL_BITS) - 0.5 * M) * (1.0 - 2.0**-10)
    kappa = torch.where(bound > 0.0, room / bound.clamp_min(1e-300), 1.0)
    scaled = kappa[:, None] * C
    integers = torch.round(scaled).half()
    rest = (scaled - integers.double()).half()
    missing = (scaled - integers.double() - rest.double()).half()
    parts = torch.zeros(4, size, size, dtype=torch.float16, device=C.device)
    parts[:, :M, :M] = torch.stack([2.0 * integers, rest, missing, scaled.half()])
    own_g = torch.zeros(size, dtype=torch.float32, device=C.device)
    own_g[:M] = 2.0**PULL_BITS * kappa * g
    return _Cotangents(parts, own_g, rows.largest.double() / (4.0**PULL_BITS * kappa)[:, None])


def _groups(tiling: Tiling, jobs: int, most: int, device: Any) -> int:
    """Return to how many groups of programs the rows are dealt out, each with so many jobs."""
    on_gpu = device.type == "cuda"
    processors = torch.cuda.get_device_properties(device).multi_processor_count if on_gpu else 1
    return max(1, min(most, tiling.programs * processors // jobs))


def _options(tiling: Tiling) -> dict[str, int]:
    """Return what the compiler is told."""
    options = {"num_warps": tiling.warps, "num_stages": 1}
    return options if tiling.registers is None else {**options, "maxnreg": tiling.registers}


def _fused_sums(rows: _Rows, Z: Tensor, profile: str, tiling: Tiling) -> tuple[Tensor, Tensor]:
    """Sum the tiles of `A` on the diagonal, with `b`, and then those above it."""
    M, B = Z.shape[0], tiling.basis
    points = _points(Z, profile, B)
    tiles = torch.arange(points.size // B, device=Z.device)
    A = torch.zeros(len(tiles), len(tiles), B, B, dtype=torch.float64, device=Z.device)
    diagonal, b = _fused_tiles(rows, points, tiles, None, profile, tiling)
    A[tiles, tiles] = 0.5 * (diagonal + diagonal.transpose(1, 2))
    if len(tiles) > 1:
        i, j = torch.triu_indices(len(tiles), len(tiles), 1, device=Z.device)
        above, _ = _fused_tiles(rows, points, i, j, profile, tiling)
        A[i, j], A[j, i] = above, above.transpose(1, 2)
    A = A.transpose(1, 2).reshape(points.size, points.size)
    unit = rows.largest.double() / 2.0**tiling.bits
    return A[:M, :M] * (unit / 2.0**tiling.bits), b.reshape(-1)[:M] * unit


def _fused_tiles(
    rows: _Rows, points: _Points, i: Tensor, j: Tensor | None, profile: str, tiling: Tiling
) -> tuple[Tensor, Tensor]:
    """Run the kernel on the tiles (i, j) of `A`; without `j`, on those on the diagonal and `b`."""
    pairs = torch.stack([i, i if j is None else j]).int()
    B, jobs, device = tiling.basis, len(i), i.device
    flush = tiling.flush // tiling.rows
    groups = _groups(tiling, jobs, triton.cdiv(rows.blocks, flush), device)
    A = torch.zeros(jobs, groups, B, B, dtype=torch.float64, device=device)
    b = torch.zeros(jobs, groups, B, dtype=torch.float64, device=device)
    sizes = {"SIZE": points.size, "ROWS": tiling.rows, "BASIS": B, "FLUSH": flush}
    _sums_kernel[(groups, jobs)](
        *(rows.X, rows.y, rows.y if rows.weight is None else rows.weight, rows.largest),
        *(points.Z, points.constants, pairs, A, b, rows.blocks),
        **sizes,
        **{"D": rows.X.shape[1], "K": points.columns, "BITS": tiling.bits, "PROFILE": profile},
        **{"WEIGHTED": rows.weight is not None, "DIAGONAL": j is None, "PIECES": tiling.pieces},
        **_options(tiling),
    )
    return A.sum(1), b.sum(1)


def _fused_pull_back(
    rows: _Rows, Z: Tensor, profile: str, C: Tensor, g: Tensor, tiling: Tiling
) -> Pulled:
    """Run the kernel on all tiles of basis points and return its sums in common units."""
    (M, D), device = Z.shape, Z.device
    points = _points(Z, profile, tiling.basis)
    bar = _cotangents(C, g, rows, points.size)
    tiles, half = points.size // tiling.basis, max(8, triton.next_power_of_2(D))
    groups = _groups(tiling, tiles, rows.blocks, device)
    moments = torch.empty(groups, points.size, 2 * half, dtype=torch.float32, device=device)
    column = torch.empty(groups, points.size, dtype=torch.float32, device=device)
    value = torch.empty_like(column)
    sizes = {"SIZE": points.size, "ROWS": tiling.rows, "BASIS": tiling.basis}
    _pull_back_kernel[(groups, tiles)](
        *(rows.X, rows.y, rows.y if rows.weight is None else rows.weight, rows.largest),
        *(points.Z, points.constants, bar.C, bar.g, moments, column, value, rows.blocks),
        **sizes,
        **{"INNER": tiling.inner, "STAGES": tiling.stages, "ONE_TILE": tiles == 1},
        **{"D": D, "K": points.columns, "HALF": half, "BITS": PULL_BITS, "PROFILE": profile},
        **{"WEIGHTED": rows.weight is not None, "PIECES": tiling.pieces},
        **{"T_UNIT": T_UNITS[profile]},
        **_options(tiling),
    )
    unit = bar.unit * (SLOPES[profile] / T_UNITS[profile])
    x_unit = X_UNIT.value / points.constants[0].double()
    moments = unit * moments.sum(0, dtype=torch.float64)[:M]
    return Pulled(
        unit[:, 0] * column.sum(0, dtype=torch.float64)[:M],
        moments[:, :D] * x_unit,
        moments[:, half : half + D].sum(0) * x_unit**2,
        (bar.unit[:, 0] * value.sum(0, dtype=torch.float64)[:M]).sum(),
    )


# What the kernels are made of


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
    """Return the four factors of the basis points `m`, (len(m), K)."""
    at = Z + m[:, None] * K + k[None, :]
    stride: tl.constexpr = SIZE * K
    return tl.load(at), tl.load(at + stride), tl.load(at + 2 * stride), tl.load(at + 3 * stride)


@triton.jit
def _scaled(x, scale):
    """Return `S x`, cut off far from all basis points."""
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
    `h·h`, the second `r` and those of `(2h + r)·r`, as do the factors of the basis points.
    """
    x = _scaled(x, scale)
    h = ((x + ROUND) - ROUND).to(tl.float16)
    h32 = h.to(tl.float32)
    r = (x - h32).to(tl.float16)
    r32 = r.to(tl.float32)
    first = _augmented(h, tl.sum(h32 * h32, 1), k, 65536.0, D)
    return first, _augmented(r, tl.sum((2.0 * h32 + r32) * r32, 1), k, 64.0, D)


@triton.jit
def _closeness(z, z_square, z_rest, z_missing, x, x_rest):
    """Return `u` in two parts, (basis points, ROWS).

    The first is a sum of integers, `−½ |h_x − h_z|²`, and exact: short lengthscales cost no
    digits. They are not added here, which would let the compiler merge the products.
    """
    rest = tl.dot(z_missing, tl.trans(x))
    rest = tl.dot(z_rest, tl.trans(x), rest)
    rest = tl.dot(z_rest, tl.trans(x_rest), rest)
    rest = tl.dot(z_square, tl.trans(x_rest), rest)
    return tl.dot(z, tl.trans(x)), rest


@triton.jit
def _closeness_by_row(z, z_square, z_rest, z_missing, x, x_rest):
    """Return the transposes of the parts of `u`, (ROWS, basis points)."""
    rest = tl.dot(x, tl.trans(z_missing))
    rest = tl.dot(x, tl.trans(z_rest), rest)
    rest = tl.dot(x_rest, tl.trans(z_rest), rest)
    rest = tl.dot(x_rest, tl.trans(z_square), rest)
    return tl.dot(x, tl.trans(z)), rest


@triton.jit
def _profile(u, u_rest, rate, BITS: tl.constexpr, PROFILE: tl.constexpr):
    """Return `2ᵇⁱᵗˢ ρ` and `2ᵇⁱᵗˢ ρ'` but for its number in front, shaped as `u`."""
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
def _split(rho, PIECES: tl.constexpr):
    """Return the integer, the rest and what is still missing of a feature, float16."""
    h = rho if PIECES == 1 else (rho + ROUND) - ROUND
    r = (rho - h).to(tl.float16)
    return h.to(tl.float16), r, (rho - h - r.to(tl.float32)).to(tl.float16)


@triton.jit(do_not_specialize=["blocks"])
def _sums_kernel(
    X,
    y,
    weight,
    largest_weight,
    Z,
    constants,
    pairs,
    A,
    b,
    blocks,
    SIZE: tl.constexpr,
    D: tl.constexpr,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    BASIS: tl.constexpr,
    FLUSH: tl.constexpr,
    BITS: tl.constexpr,
    PROFILE: tl.constexpr,
    WEIGHTED: tl.constexpr,
    DIAGONAL: tl.constexpr,
    PIECES: tl.constexpr,
):
    """Sum one tile of `A`, and of `b` if it is on the diagonal, over every `groups`-th lot of rows.

    With features `h + r`, a tile is `Σ h h'` and `Σ (h r' + r h' + r r')`, where a third piece
    goes with `h` only. On the diagonal `2 h r'` stands for the first two terms, and the tile is
    made symmetric later.
    """
    group, pair = tl.program_id(0), tl.program_id(1)
    groups = tl.num_programs(0)
    k, m = tl.arange(0, K), tl.arange(0, BASIS)
    scale, rate = tl.load(constants), tl.load(constants + 1)
    z, z_square, z_rest, z_missing = _load_points(Z, tl.load(pairs + pair) * BASIS + m, k, SIZE, K)
    if not DIAGONAL:
        other = tl.load(pairs + tl.num_programs(1) + pair) * BASIS + m
        w, w_square, w_rest, w_missing = _load_points(Z, other, k, SIZE, K)
    if WEIGHTED:
        normal = 1.0 / tl.load(largest_weight)
    job = pair * groups + group
    at = A + job.to(tl.int64) * (BASIS * BASIS) + m[:, None] * BASIS + m[None, :]
    total_b = tl.zeros((BASIS,), tl.float64)
    ahead = _load_rows(X, group * FLUSH, k, D, ROWS)
    for start in range(group * FLUSH, blocks, groups * FLUSH):
        exact = tl.zeros((BASIS, BASIS), tl.float32)
        small = tl.zeros((BASIS, BASIS), tl.float32)
        lot_b = tl.zeros((BASIS,), tl.float32)
        end = tl.minimum(start + FLUSH, blocks)
        for block in range(start, end):
            inputs = ahead
            following = tl.where(block + 1 < end, block + 1, start + groups * FLUSH)
            ahead = _load_rows(X, tl.minimum(following, blocks - 1), k, D, ROWS)
            x, x_rest = _split_rows(inputs, k, scale, D)
            u, u_rest = _closeness(z, z_square, z_rest, z_missing, x, x_rest)
            rho, _ = _profile(u, u_rest, rate, BITS, PROFILE)
            if WEIGHTED:
                root = tl.sqrt(_load_targets(weight, block, ROWS) * normal)
                rho = rho * root[None, :]
            h, r, missing = _split(rho, PIECES)
            if DIAGONAL:
                targets = _load_targets(y, block, ROWS)
                if WEIGHTED:
                    targets = targets * root
                lot_b += tl.sum(rho * targets[None, :], 1)
                exact = tl.dot(h, tl.trans(h), exact)
                if PIECES > 1:
                    small = tl.dot(h + h, tl.trans(r), small)
                    small = tl.dot(r, tl.trans(r), small)
                if PIECES > 2:
                    small = tl.dot(h + h, tl.trans(missing), small)
            else:
                u, u_rest = _closeness(w, w_square, w_rest, w_missing, x, x_rest)
                rho, _ = _profile(u, u_rest, rate, BITS, PROFILE)
                if WEIGHTED:
                    rho = rho * root[None, :]
                other_h, other_r, other_missing = _split(rho, PIECES)
                exact = tl.dot(h, tl.trans(other_h), exact)
                if PIECES > 1:
                    small = tl.dot(h, tl.trans(other_r), small)
                    small = tl.dot(r, tl.trans(other_h), small)
                    small = tl.dot(r, tl.trans(other_r), small)
                if PIECES > 2:
                    small = tl.dot(h, tl.trans(other_missing), small)
                    small = tl.dot(missing, tl.trans(other_h), small)
        tl.store(at, tl.load(at) + exact.to(tl.float64) + small.to(tl.float64))
        tl.debug_barrier()
        total_b += lot_b.to(tl.float64)
    if DIAGONAL:
        tl.store(b + job * BASIS + m, total_b)


@triton.jit
def _load_C(C, m, j, SIZE: tl.constexpr):
    """Return the four matrices of `_Cotangents` at the rows `m` and columns `j`."""
    at = C + m[:, None] * SIZE + j[None, :]
    square: tl.constexpr = SIZE * SIZE
    return tl.load(at), tl.load(at + square), tl.load(at + 2 * square), tl.load(at + 3 * square)


@triton.jit
def _times_C(C, C_rest, C_missing, C_all, h, r, exact, small, PIECES: tl.constexpr):
    """Add the products of a tile of `C` with the features `h + r`; the exact one is doubled."""
    exact = tl.dot(C, h, exact)
    if PIECES > 1:
        small = tl.dot(C_all, r, small)
        small = tl.dot(C_missing, h, small)
        small = tl.dot(C_rest, h, small)
    return exact, small


@triton.jit
def _halves(a):
    """Return a float32 as two float16, 22 bits."""
    first = a.to(tl.float16)
    return first, (a - first.to(tl.float32)).to(tl.float16)


@triton.jit
def _moments(T, x, q, HALF: tl.constexpr):
    """Return `T [x, x²]`, (basis points, 2 HALF), for inputs twice side by side, (ROWS, 2 HALF)."""
    T1, T2 = _halves(T)
    W1, W2 = _halves(tl.where((q < HALF)[None, :], x, x * x))
    product = tl.dot(T2, W1)
    product = tl.dot(T1, W2, product)
    return tl.dot(T1, W1, product)


@triton.jit(do_not_specialize=["blocks"])
def _pull_back_kernel(
    X,
    y,
    weight,
    largest_weight,
    Z,
    constants,
    C,
    g,
    moments,
    column,
    value,
    blocks,
    SIZE: tl.constexpr,
    D: tl.constexpr,
    K: tl.constexpr,
    HALF: tl.constexpr,
    ROWS: tl.constexpr,
    BASIS: tl.constexpr,
    INNER: tl.constexpr,
    STAGES: tl.constexpr,
    BITS: tl.constexpr,
    PROFILE: tl.constexpr,
    WEIGHTED: tl.constexpr,
    ONE_TILE: tl.constexpr,
    T_UNIT: tl.constexpr,
    PIECES: tl.constexpr,
):
    """Sum `T`, `T [X, X²]` and `ρ̄ ∘ ρ` for one tile of basis points over every `groups`-th block.

    A tile of `ρ̄` needs the features of all basis points. Where they are more than a tile, they
    are evaluated `INNER` at a time, and those of the tile once more for `T`.
    """
    group, tile = tl.program_id(0), tl.program_id(1)
    groups = tl.num_programs(0)
    k, q = tl.arange(0, K), tl.arange(0, 2 * HALF)
    m = tile * BASIS + tl.arange(0, BASIS)
    scale, rate = tl.load(constants), tl.load(constants + 1)
    z, z_square, z_rest, z_missing = _load_points(Z, m, k, SIZE, K)
    own_g = tl.load(g + m)
    if WEIGHTED:
        normal = 1.0 / tl.load(largest_weight)
    if ONE_TILE:
        C1, C2, C3, C4 = _load_C(C, m, m, SIZE)
    total_moments = tl.zeros((BASIS, 2 * HALF), tl.float32)
    total_column = tl.zeros((BASIS,), tl.float32)
    total_value = tl.zeros((BASIS,), tl.float32)
    ahead = _load_rows(X, group, k, D, ROWS)
    for block in range(group, blocks, groups):
        inputs = ahead
        ahead = _load_rows(X, tl.minimum(block + groups, blocks - 1), k, D, ROWS)
        x, x_rest = _split_rows(inputs, k, scale, D)
        exact = tl.zeros((BASIS, ROWS), tl.float32)
        small = tl.zeros((BASIS, ROWS), tl.float32)
        if ONE_TILE:
            u, u_rest = _closeness(z, z_square, z_rest, z_missing, x, x_rest)
            rho, slope = _profile(u, u_rest, rate, BITS, PROFILE)
            h, r, _ = _split(rho, PIECES)
            exact, small = _times_C(C1, C2, C3, C4, h, r, exact, small, PIECES)
        else:
            for start in tl.range(0, SIZE, INNER, num_stages=STAGES):
                j = start + tl.arange(0, INNER)
                C1, C2, C3, C4 = _load_C(C, m, j, SIZE)
                w, w_square, w_rest, w_missing = _load_points(Z, j, k, SIZE, K)
                u, u_rest = _closeness_by_row(w, w_square, w_rest, w_missing, x, x_rest)
                other, _ = _profile(u, u_rest, rate, BITS, PROFILE)
                h, r, _ = _split(tl.trans(other), PIECES)
                exact, small = _times_C(C1, C2, C3, C4, h, r, exact, small, PIECES)
            u, u_rest = _closeness(z, z_square, z_rest, z_missing, x, x_rest)
            rho, slope = _profile(u, u_rest, rate, BITS, PROFILE)
        targets = _load_targets(y, block, ROWS)
        rho_bar = exact * 0.5 + (targets[None, :] * own_g[:, None] + small)
        if WEIGHTED:
            rho_bar = rho_bar * (_load_targets(weight, block, ROWS) * normal)[None, :]
        T = rho_bar * (slope * T_UNIT)
        total_column += tl.sum(T, 1)
        if PROFILE != "squared_exponential":
            total_value += tl.sum(rho_bar * rho, 1)
        twice = _scaled(_load_rows(X, block, q % HALF, D, ROWS), scale) * (1.0 / X_UNIT)
        total_moments += _moments(T, twice, q, HALF)
    at = group * SIZE + m
    tl.store(moments + at[:, None] * (2 * HALF) + q[None, :], total_moments)
    tl.store(column + at, total_column)
    if PROFILE == "squared_exponential":
        total_value = total_column * (1.0 / T_UNIT)
    tl.store(value + at, total_value)
