"""What is measured of the rows before anything is learned, in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, cast, dtype_name, namespace, on_host
from eigengp.gp.blocks import RowBlock, RowSource


class Extent(NamedTuple):
    """The smallest box around inputs."""

    low: Array
    high: Array

    @classmethod
    def around(cls, X: Array) -> Extent:
        """Return the box around these inputs, shape (n, D)."""
        return cls(X.min(axis=0), X.max(axis=0))

    @classmethod
    def of(cls, source: RowSource) -> Extent:
        """Measure a source in one pass."""
        return Summary.of(source).extent


@dataclass(frozen=True)
class Summary:
    """Weights, means, squares about them and ends of `[X, y]`; adding two gives that of both.

    Each block is measured about its own mean, and two blocks are joined by
    the difference of their means (Chan, Golub and LeVeque), so that a large
    common part of the values costs no digits.
    """

    weight: float
    """`Σ s_n`."""
    mean: Array
    """The weighted means, shape (D + 1,)."""
    squares: Array
    """`Σ s_n (v_n − mean)²`, shape (D + 1,)."""
    low: Array
    """The smallest values, shape (D + 1,)."""
    high: Array
    """The largest values, shape (D + 1,)."""

    @classmethod
    def of(cls, source: RowSource) -> Summary:
        """Measure a source in one pass."""
        return source.total(cls.of_block)

    @classmethod
    def of_block(cls, block: RowBlock) -> Summary:
        """Measure a block, wherever its arrays are."""
        xp = namespace(block.X)
        X, y = block.X, block.y
        finest = max(dtype_name(X), dtype_name(y))  # "float64" comes after "float32".
        values = xp.concat([cast(X, finest), cast(y, finest)[:, None]], axis=1)
        weight = block.sample_weight
        count = float(values.shape[0])
        if weight is not None:
            weight = cast(weight, "float64")[:, None]
            count = float(xp.sum(weight))
        total = _weighted(values, weight)
        mean = total / max(count, np.finfo(float).tiny)
        about = values - cast(mean, finest)
        shift = _weighted(about, weight) / max(count, np.finfo(float).tiny)
        squares = _weighted(about * about, weight) - count * shift * shift
        ends = xp.min(values, axis=0), xp.max(values, axis=0)
        mean, squares, low, high = map(on_host, (mean + shift, squares, *ends))
        return cls(count, mean, np.maximum(squares, 0.0), low, high)

    def __add__(self, other: Summary) -> Summary:
        weight = self.weight + other.weight
        share = other.weight / max(weight, np.finfo(float).tiny)
        apart = other.mean - self.mean
        return Summary(
            weight,
            self.mean + share * apart,
            self.squares + other.squares + self.weight * share * apart**2,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )

    @property
    def extent(self) -> Extent:
        """The box around the inputs."""
        return Extent(self.low[:-1], self.high[:-1])


def _weighted(values: AnyArray, weight: AnyArray | None) -> AnyArray:
    """Return `Σ s_n v_n`, in float64, shape (D + 1,)."""
    xp = namespace(values)
    if weight is not None:
        values = cast(values, "float64") * weight
    return xp.sum(values, axis=0, dtype=xp.float64)
