"""Between arrays of PyTorch and the fused kernels: splitting, tiling, starting, adding up."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton

from eigengp.gp.gpu import triton_kernels as kernels

Tensor = Any  # A tensor of PyTorch.

ROWS = 128  # Every tiling's blocks fill this many rows.
# The number in front of `ρ'`, which the kernels leave out.
SLOPES = {"squared_exponential": -0.5, "matern12": -0.5, "matern32": -1.5, "matern52": -5.0 / 6.0}
# The number in front of `t` under the square root.
RATES = {"matern12": 1.0, "matern32": 3.0, "matern52": 5.0}

PULL_BITS = 10  # Features in units of 2⁻¹⁰ leave 14 bits to a column of `C`.
FLUSH, LONG_FLUSH = 1024, 8192
# From so many rows on, sums are longer: the rounding of features averages out. Lots of 1,024 to
# 8,192 left the same error in `A` there, that of `exp2`.
MANY_ROWS = 1 << 20
SMALLEST_RADIUS = 4.0  # Basis points closer together than this are scaled as if they were not.
# Brings `T`, below 2³⁴ but for the steep profile, into the range of float16.
T_UNITS = {profile: 2.0**-30 if profile == "matern12" else 2.0**-19 for profile in SLOPES}


class Tiling(NamedTuple):
    """How a kernel cuts its work; all sizes are powers of two."""

    rows: int = 64  # Rows in a block.
    basis: int = 128  # Basis points in a tile.
    # Basis points in a step of the product with `C`, where they are more than a tile.
    inner: int = 32
    warps: int = 8
    stages: int = 3  # Steps whose part of `C` is on its way at the same time.
    programs: int = 4  # Programs for each multiprocessor.
    # Rows whose part of `A` is summed in float32; fewer leave more bits to the features.
    flush: int = FLUSH
    # Float16 that make up a feature where it meets `C`: 1 keeps eleven bits, 2 keep 22. In `A`
    # features have about 20 bits, and 18 in long sums.
    pieces: int = 2

    @property
    def bits(self) -> float:
        """How far features are scaled for `A`, so that `flush` of their squares add to 2²⁴."""
        return 0.5 * (25 - self.flush.bit_length())


class Pulled(NamedTuple):
    """Sums over `T = ρ̄ ∘ ρ'(t)`, float64."""

    column: Tensor  # `Σ_n T_nm`, shape (M,).
    TX: Tensor  # `TᵀX`, shape (M, D).
    squares: Tensor  # `Σ_n (Σ_m T_nm) x_nd²`, shape (D,).
    value: Tensor  # `Σ_nm ρ̄_nm ρ_nm`, shape ().


def tiling_for(M: int, D: int) -> tuple[Tiling, Tiling]:
    """Return how each pass is cut for M inducing points and D inputs, as shared memory allows."""
    tiling = Tiling(basis=64, warps=4) if M <= 64 or D > 28 else Tiling()
    pull_back = tiling._replace(warps=4, stages=2 if D > 60 else 3)
    if tiling.basis < M and D <= 8:
        pull_back = pull_back._replace(rows=128, inner=64, warps=8, programs=2)
    return tiling, pull_back


def sums(
    X: Tensor,
    y: Tensor,
    weight: Tensor | None,
    Z: Tensor,
    profile: str,
    tiling: Tiling | None = None,
) -> tuple[Tensor, Tensor]:
    """Return `A = Σ s_n ρ_n ρ_nᵀ`, (M, M), and `b = Σ s_n y_n ρ_n`, (M,), in float64.

    X is (N, D), y and weight are (N,), Z is (M, D): float32, contiguous, on one device, N a
    multiple of `ROWS`. No weights mean ones. Nothing here waits for the device.
    """
    if tiling is None:
        flush = LONG_FLUSH if X.shape[0] >= MANY_ROWS else FLUSH
        tiling = tiling_for(*Z.shape)[0]._replace(flush=flush)
    rows, B = _rows(X, y, weight, tiling), tiling.basis
    points = _points(Z, profile, B)
    tiles = torch.arange(points.size // B, device=Z.device)
    A = torch.zeros(len(tiles), len(tiles), B, B, dtype=torch.float64, device=Z.device)
    diagonal, b = _fused_tiles(rows, points, tiles, None, profile, tiling)
    A[tiles, tiles] = 0.5 * (diagonal + diagonal.transpose(1, 2))
    if len(tiles) > 1:
        i, j = torch.triu_indices(len(tiles), len(tiles), 1, device=Z.device)
        above, _ = _fused_tiles(rows, points, i, j, profile, tiling)
        A[i, j], A[j, i] = above, above.transpose(1, 2)
    A, M = A.transpose(1, 2).reshape(points.size, points.size), Z.shape[0]
    unit = rows.largest.double() / 2.0**tiling.bits
    return A[:M, :M] * (unit / 2.0**tiling.bits), b.reshape(-1)[:M] * unit


def pull_back(
    X: Tensor,
    y: Tensor,
    weight: Tensor | None,
    Z: Tensor,
    profile: str,
    C: Tensor,
    g: Tensor,
    mean: Tensor,
    tiling: Tiling | None = None,
    target_scale: float = 0.0,
) -> Pulled:
    """Return the sums over `T = ρ̄ ∘ ρ'(t)` with `ρ̄_nm = s_n (Σ_j ρ_nj C_jm + e_n g_m)`.

    `e_n = y_n − Σ_j ρ_nj mean_j`. X, y, weight and Z are as for `sums`; C, (M, M), and g and
    mean, (M,), are float64. `target_scale` is the size of targets, of which these may be the
    small ones.
    """
    tiling = tiling or tiling_for(*Z.shape)[1]
    rows, (M, D) = _rows(X, y, weight, tiling), Z.shape
    points = _points(Z, profile, tiling.basis)
    bar = _cotangents(C, g, mean, rows, points.size, target_scale)
    moments, column, value = _fused_moments(rows, points, bar, profile, tiling)
    unit = bar.unit * (SLOPES[profile] / T_UNITS[profile])
    x_unit = kernels.X_UNIT.value / points.scales[0].double()
    moments = unit * moments.sum(0, dtype=torch.float64)[:M]
    half = moments.shape[1] // 2
    return Pulled(
        unit[:, 0] * column.sum(0, dtype=torch.float64)[:M],
        moments[:, :D] * x_unit,
        moments[:, half : half + D].sum(0) * x_unit**2,
        (bar.unit[:, 0] * value.sum(0, dtype=torch.float64)[:M]).sum(),
    )


class _Rows(NamedTuple):
    """Rows that fill whole blocks."""

    X: Tensor
    y: Tensor
    weight: Tensor | None
    largest: Tensor  # The largest weight, by which the kernels divide them, (1,).
    blocks: int


def _rows(X: Tensor, y: Tensor, weight: Tensor | None, tiling: Tiling) -> _Rows:
    """Refuse rows that the kernels would read wrongly."""
    arrays = [X, y] if weight is None else [X, y, weight]
    if not all(a.dtype == torch.float32 and a.is_contiguous() for a in arrays):
        raise ValueError("the fused kernels take contiguous float32 arrays only")
    blocks, left = divmod(X.shape[0], tiling.rows)
    if left or not blocks:
        raise ValueError(f"{X.shape[0]} rows do not fill blocks of {tiling.rows}")
    if weight is None:
        largest = torch.ones(1, device=X.device)
    else:
        largest = weight.max().clamp_min(1e-30).reshape(1)
    return _Rows(X, y, weight, largest, blocks)


class _Points(NamedTuple):
    """The inducing points as the kernels read them."""

    # The four factors of the inducing points in `u`, float16, (4, M', K); see `_split_rows`.
    Z: Tensor
    scales: Tensor  # `S`, and the number in front of `u` in the profile, float32, (2,).
    size: int  # `M'`, a multiple of the tile.
    columns: int  # `K`, a power of two with room for the inputs and four more.


def _points(Z: Tensor, profile: str, tile: int) -> _Points:
    """Split the inducing points, and fill the last tile with some that are too far to matter.

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
    rate = 2.0 * RATES[profile] if profile in RATES else kernels.LOG2_E.value
    return _Points(factors, torch.stack([scale, rate / scale**2]).float(), size, K)


class _Cotangents(NamedTuple):
    """Cotangents as the kernel reads them: column `m` of `C` and `g_m` are multiplied by `κ_m`."""

    C: Tensor  # Two float16 matrices that add up to it, (2, M', M').
    g: Tensor  # `g` in the units of the products, float32, (M',).
    mean: Tensor  # Two float32 pieces of the coefficients, in the units of features, (2, M').
    unit: Tensor  # What `ρ̄ ρ` is to be multiplied by, (M, 1).


def _cotangents(
    C: Tensor, g: Tensor, mean: Tensor, rows: _Rows, size: int, target_scale: float
) -> _Cotangents:
    """Scale and split, so that `|ρ̄|` stays below 2²⁴ in the units of the products.

    Residuals are taken to be no larger than twice the largest target here plus eight times the
    usual one: what is fitted is about as large as the targets, here or elsewhere.
    """
    M = C.shape[0]
    largest = 2.0 * torch.linalg.vector_norm(rows.y, torch.inf).double() + 8.0 * target_scale
    bound = C.abs().sum(0) + largest * g.abs()
    room = 2.0 ** (24 - PULL_BITS) * (1.0 - 2.0**-10)
    kappa = torch.where(bound > 0.0, room / bound.clamp_min(1e-300), 1.0)
    parts = torch.zeros(2, size, size, dtype=torch.float16, device=C.device)
    parts[:, :M, :M] = torch.stack(_pieces(C * kappa, torch.float16))
    own = torch.zeros(3, size, dtype=torch.float32, device=C.device)
    own[0, :M] = 2.0**PULL_BITS * kappa * g
    own[1:, :M] = torch.stack(_pieces(mean / 2.0**PULL_BITS, torch.float32))
    unit = rows.largest.double() / (4.0**PULL_BITS * kappa)[:, None]
    return _Cotangents(parts, own[0], own[1:], unit)


def _pieces(a: Tensor, dtype: Any) -> tuple[Tensor, Tensor]:
    """Return two numbers of a smaller data type that add up to each of float64."""
    first = a.to(dtype)
    return first, (a - first.double()).to(dtype)


def _groups(tiling: Tiling, jobs: int, most: int, device: Any) -> int:
    """Return to how many groups of programs the rows are dealt out, each with so many jobs."""
    on_gpu = device.type == "cuda"
    processors = torch.cuda.get_device_properties(device).multi_processor_count if on_gpu else 1
    return max(1, min(most, tiling.programs * processors // jobs))


def _launch(
    kernel: Any,
    grid: tuple[int, int],
    rows: _Rows,
    points: _Points,
    tiling: Tiling,
    *rest: Any,
    **plan: Any,
) -> None:
    """Start a kernel on rows and points; the plan has what differs between the passes."""
    shape = {"size": points.size, "inputs": rows.X.shape[1], "columns": points.columns}
    weight, weighted = (rows.y, False) if rows.weight is None else (rows.weight, True)
    own = kernels.Plan(**shape, rows=tiling.rows, basis=tiling.basis, weighted=weighted, **plan)
    arrays = (rows.X, rows.y, weight, rows.largest, points.Z, points.scales)
    kernel[grid](*arrays, *rest, rows.blocks, own, num_warps=tiling.warps, num_stages=1)


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
    own = {"profile": profile, "bits": tiling.bits, "flush": flush, "diagonal": j is None}
    grid = (groups, jobs)
    _launch(kernels.sums_kernel, grid, rows, points, tiling, pairs, A, b, **own)
    return A.sum(1), b.sum(1)


def _fused_moments(
    rows: _Rows, points: _Points, bar: _Cotangents, profile: str, tiling: Tiling
) -> tuple[Tensor, Tensor, Tensor]:
    """Run the kernel on all tiles of inducing points; the sums are in its own units."""
    tiles, device = points.size // tiling.basis, rows.X.device
    half = max(8, triton.next_power_of_2(rows.X.shape[1]))
    groups = _groups(tiling, tiles, rows.blocks, device)
    moments = torch.empty(groups, points.size, 2 * half, dtype=torch.float32, device=device)
    column = torch.empty(groups, points.size, dtype=torch.float32, device=device)
    value = torch.empty_like(column)
    own = {"half": half, "inner": tiling.inner, "stages": tiling.stages, "pieces": tiling.pieces}
    own |= {"profile": profile, "bits": PULL_BITS, "t_unit": T_UNITS[profile]}
    own |= {"one_tile": tiles == 1, "value_is_column": profile == "squared_exponential"}
    arrays = (bar.C, bar.g, bar.mean, moments, column, value)
    _launch(kernels.pull_back_kernel, (groups, tiles), rows, points, tiling, *arrays, **own)
    return moments, column, value
