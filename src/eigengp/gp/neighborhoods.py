"""Rows beside their neighbours: what is left of a row when its neighbours are known.

The residual process `r` has the covariance `k_r = k − k̃` that the features leave out, and
`k̃(x, z) = k(x)ᵀ W k(z)` with `W = K_BB⁻¹`. Beside its neighbours, which come first in a set of
`s` rows, the last row has the covariance `R = k_r + σ²I` with them, and what is new in it is
`Σ_j w_j (y_j − f_j)`, with variance one:

    w = R⁻¹e / √(eᵀR⁻¹e) = L⁻ᵀe,    R = L Lᵀ,    e the last unit vector,

so that `w = (−b, 1)/√d` with the weights `b` and the variance `d` of the best prediction from
the neighbours, and `ln d = −2 ln w_s`. The pull-back needs one more solution alone,

    R̄ = −½ (p wᵀ + w pᵀ),    p = R⁻¹w̄ − ½ (w̄ᵀw) w,

since with `u = R⁻¹e` and `w = u/√(eᵀu)` a change of `R` gives `du = −R⁻¹ dR u`, hence
`w̄ᵀdw = −(R⁻¹w̄ − ½ (w̄ᵀw) w)ᵀ dR w`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from eigengp._typing import Array
from eigengp.backend.buffers import buffer
from eigengp.gp.blocks import Additive, RowBlock, RowSource
from eigengp.gp.features import Features
from eigengp.gp.linalg import cholesky_stack, solve_stack
from eigengp.kernels import Kernel, PullBack


@dataclass(frozen=True)
class Neighborhoods:
    """Some rows, each with its neighbours."""

    rows: RowBlock
    """All rows."""
    index: NDArray[np.intp]
    """The numbers of the neighbours, nearest first, then of the row itself, (n, s); −1 for none."""
    start: int = 0
    """Where these are among all neighbourhoods."""

    @property
    def stop(self) -> int:
        """Where the next ones begin."""
        return self.start + self.index.shape[0]

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which neighbours there are, shape (n, s)."""
        return self.index >= 0

    @property
    def at(self) -> NDArray[np.intp]:
        """The numbers of all members; the row itself stands in for those that are not there."""
        return np.where(self.present, self.index, self.index[:, -1:])


def gathered(K: Array, at: NDArray[np.intp]) -> Array:
    """Return the rows of `K` with these numbers, shape (n, s, M), in recycled memory."""
    room: Array = buffer((*at.shape, K.shape[1]))
    np.take(K, at, axis=0, out=room, mode="clip")
    return room


@dataclass
class Table:
    """The features of all members of neighbourhoods, each computed once."""

    K: Array
    """`k(x, B)`, shape (N, M)."""
    G: Array
    """`K F`, shape (N, M), whose products are `k̃`."""
    back: dict[int, PullBack] = field(default_factory=dict)
    """The pull-back of the block that begins at each number."""

    @classmethod
    def of(cls, features: Features, factor: Array, rows: RowSource, keep: bool = False) -> Table:
        """Compute features block by block; `keep` what a pull-back needs."""
        shape = (rows.n_rows, features.size)
        table = cls(np.empty(shape), np.empty(shape))

        def fill(block: RowBlock) -> float:
            at = slice(block.start, block.start + block.n_rows)
            if keep:
                table.K[at], table.back[block.start] = features.forward(block.X)
            else:
                table.K[at] = features.matrix(block.X)
            np.matmul(table.K[at], factor, out=table.G[at])
            return 0.0

        rows.total(fill)
        return table

    def pull_back(self, rows: RowSource, K_bar: Array) -> PulledFeatures:
        """Return what a cotangent of `K` gives to kernel and basis points."""

        def term(block: RowBlock) -> PulledFeatures:
            bar = K_bar[block.start : block.start + block.n_rows]
            return PulledFeatures(*self.back.pop(block.start)(bar, overwrite=True))

        return rows.total(term)


@dataclass(frozen=True)
class PulledFeatures(Additive):
    """Derivatives by kernel and basis points."""

    theta: Array
    points: Array


@dataclass(frozen=True)
class Residual:
    """The covariance of the residual and the noise.

    Parameters
    ----------
    kernel : Kernel
        `k`.
    noise_variance : float
        `σ²`.
    jitter : float
        Added to the diagonal, relative to `k(x, x)`.
    """

    kernel: Kernel
    noise_variance: float
    jitter: float

    def stack(
        self, hoods: Neighborhoods, explained: Array
    ) -> tuple[Array, Callable[[Array], Array]]:
        """Return `R` of each neighbourhood, (n, s, s), and its pull-back to the kernel.

        Parameters
        ----------
        hoods : Neighborhoods
            Who belongs together.
        explained : array of shape (n, s, M)
            `K F` of the members, whose products are `k̃`.
        """
        at, present = hoods.at, hoods.present
        R, back = self.kernel.stack(hoods.rows.X[at])
        R -= explained @ explained.transpose(0, 2, 1)
        diagonal = np.arange(at.shape[1])
        R[:, diagonal, diagonal] += self.noise(hoods) + self.jitter * self.kernel.total_variance
        if not present.all():
            R *= present[:, :, None] & present[:, None, :]
            R[:, diagonal, diagonal] += ~present
        return R, back

    def noise(self, hoods: Neighborhoods) -> Array:
        """Return the noise variance of all members, less where a row counts more, (n, s)."""
        weight = hoods.rows.sample_weight
        noise: Array = np.full(hoods.index.shape, self.noise_variance)
        return noise if weight is None else noise / weight[hoods.at]


def innovation_weights(R: Array) -> tuple[Array, Array]:
    """Return the factors `L` of each `R`, (n, s, s), and `w = L⁻ᵀe`, (n, s)."""
    L = cholesky_stack(R)
    last = np.zeros(R.shape[:2])
    last[:, -1] = 1.0
    return L, solve_stack(L, last, transposed=True)


def innovation_pull_back(L: Array, w: Array, w_bar: Array) -> Array:
    """Return `p`, of which `R̄ = −½ (p wᵀ + w pᵀ)` is made, shape (n, s)."""
    p = solve_stack(L, solve_stack(L, w_bar), transposed=True)
    p -= 0.5 * np.einsum("ns,ns->n", w_bar, w)[:, None] * w
    return p
