"""Products of matrices with many rows and few columns, computed in tiles.

BLAS copies the factors of a large product before it multiplies them, which takes as long as the
product itself if they are thin. It does not copy small factors, so the long side is split into
tiles, and one call multiplies them all.
"""

from __future__ import annotations

import numpy as np

from eigengp.backend.buffers import make_buffer
from eigengp.backend.namespace import AnyArray, is_numpy

_SMALL = 1_000_000
"""The largest number of multiplications that OpenBLAS treats as small."""
_SHORTEST_TILE = 256
"""Shorter tiles cost more in calls than they save in copies."""


def product(x: AnyArray, z: AnyArray) -> AnyArray:
    """Return `x z` in recycled memory if possible, with contiguous columns in NumPy.

    `x` has many rows and few columns, and BLAS is faster by up to a half if the long side is
    contiguous.
    """
    if not is_numpy(x) or x.dtype != z.dtype:
        return x @ z
    n, m = x.shape[0], z.shape[1]
    out = make_buffer((n, m), x.dtype, "F")
    count, tile = _count_tiles(n, x.shape[1] * m)
    whole = count * tile
    np.matmul(_view_tiles(x[:whole], count), z, out=_view_tiles(out[:whole], count))
    if whole < n:
        np.matmul(x[whole:], z, out=out[whole:])
    return out


def contraction(x: AnyArray, z: AnyArray) -> AnyArray:
    """Return `xᵀ z`, where both have many rows and few columns."""
    if not is_numpy(x) or x.dtype != z.dtype:
        return x.T @ z
    n = x.shape[0]
    count, tile = _count_tiles(n, x.shape[1] * z.shape[1])
    if count <= 1:
        return x.T @ z
    whole = count * tile
    parts = np.matmul(_view_tiles(x[:whole], count).swapaxes(1, 2), _view_tiles(z[:whole], count))
    found = parts.sum(axis=0)
    if whole < n:
        found += x[whole:].T @ z[whole:]
    return found


def _count_tiles(n: int, multiplications: int) -> tuple[int, int]:
    """Return the number of tiles for `n` rows, and the number of rows in each.

    `multiplications` is the number per row. Fewer rows than tiles remain, and none if possible.
    """
    longest = _SMALL // max(multiplications, 1)
    if longest < _SHORTEST_TILE or n <= longest:
        return 1, n
    fewest = -(-n // longest)
    most = min(2 * fewest, 2 * n // _SHORTEST_TILE)
    divisors = (count for count in range(fewest, most + 1) if n % count == 0)
    count = next(divisors, fewest)
    return count, n // count


def _view_tiles(x: AnyArray, count: int) -> AnyArray:
    """Return a view of a matrix with contiguous columns as `count` tiles of rows."""
    n, m = x.shape
    return x.T.reshape(m, count, n // count).transpose(1, 2, 0)
