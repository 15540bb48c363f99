"""The algebra of the relevance vector machine: the gain of each basis function.

The model is `y = Σ_i w_i k(x, x_i) + noise` with `w_i ~ N(0, v_i)`. Every row is a candidate for
the centre of a basis function, and the log marginal likelihood is largest with most prior variances
`v_i = 1/α_i` at zero.

Symbols: `φ_i = k(X, x_i)`, `Ω` the sample weights, `β = 1/σ²`, and `C₋ᵢ` the
covariance of the targets without `φ_i`. `s_i = φ_iᵀC₋ᵢ⁻¹φ_i` says how much of
`φ_i` the other functions leave open, `q_i = φ_iᵀC₋ᵢ⁻¹y` how well `φ_i` is
aligned with what they leave of the targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from eigengp._typing import Array
from eigengp.gp.blocks import RowBlock, RowSource
from eigengp.gp.evidence import FactorEvidence
from eigengp.gp.linalg import FactorizationError
from eigengp.gp.sums import Sums
from eigengp.kernels import Kernel

Indices = NDArray[np.intp]

_FETCHED = 128  # columns in one pass
_NEGLIGIBLE = 1e-6  # of q²/s − 1: an excess that rounding could make
_SPANNED = 1e-10  # of φᵀΩφ: what rounding could leave of a function in the span of others
_LARGEST = 1e13  # of β v φᵀΩφ: beyond it rounding drowns the I in G = I + S
_TILE, _CHUNK = 512, 4096


@dataclass(frozen=True)
class Alignment:
    """`s` and `q` of some functions, which determine their best prior variances.

    As a function of `v_i` the log marginal likelihood is a constant plus
    `l(v) = ½ [q²v/(1 + sv) − ln(1 + sv)]`, largest at `v = (q² − s)/s²`, or
    at zero if `q² ≤ s`. Adding, re-estimating and deleting all move `v_i` to this maximum.
    """

    s: Array
    q: Array

    @cached_property
    def best(self) -> Array:
        """The best variances."""
        excess = self.q**2 / self.s - 1.0
        return np.where(excess > _NEGLIGIBLE, excess / self.s, 0.0)

    def compute_contribution(self, variances: Array) -> Array:
        """Return `l(v)`, which is zero at `v = 0`."""
        sv = self.s * variances
        return np.asarray(0.5 * (self.q**2 * variances / (1.0 + sv) - np.log1p(sv)))


@dataclass(frozen=True)
class RelevanceModel:
    """The functions in the model, and its log marginal likelihood."""

    indices: Indices
    evidence: FactorEvidence

    def move(self, variances: Array, noise_variance: float) -> RelevanceModel:
        """Change variances and noise; functions of variance zero are deleted."""
        keep, sums = variances > 0.0, self.evidence.sums
        if not keep.all():
            sums = replace(sums, A=sums.A[np.ix_(keep, keep)], b=sums.b[keep])
        largest = _LARGEST * noise_variance / np.diagonal(sums.A)
        factor = np.sqrt(np.minimum(variances[keep], largest))
        return RelevanceModel(self.indices[keep], FactorEvidence(sums, factor, noise_variance))

    def compute_gain(self, other: RelevanceModel) -> float:
        """Return the gain in log marginal likelihood of another model, −∞ if it has none."""
        try:
            gain = self.evidence.negative_log - other.evidence.negative_log
        except FactorizationError:
            return -np.inf
        return gain if np.isfinite(gain) else -np.inf

    @cached_property
    def determined(self) -> Array:
        """MacKay's `γ_j`, the share of a weight that the data determine, shape (M,).

        The prior determines the rest, `(G⁻¹)_jj = Σ_jj/v_j = 1 − γ_j`.
        """
        return np.maximum(1.0 - self.evidence.variances, np.finfo(np.float64).eps)

    @cached_property
    def alignment(self) -> Alignment:
        """The functions' own `s_j = 1/Σ_jj − α_j = γ_j/Σ_jj` and `q_j = m_j/Σ_jj`.

        The usual `αS/(α − S)` is equal, but `α − S` loses precision for weights that the data
        determine well.
        """
        covariance = self.evidence.variances * self.evidence.factor**2
        return Alignment(self.determined / covariance, self.evidence.mean / covariance)

    def propose_noises(self, least: float) -> list[float]:
        """Return two better noise variances, by a long step and a safe one.

        `‖y − Φm‖²_Ω = σ² (n − Σγ − 2σ²g)` with the noise adjoint `g`, so that
        MacKay's `‖y − Φm‖²_Ω/(n − Σγ)` is `σ² (1 − 2σ²g/(n − Σγ))`. With `n`
        in place of `n − Σγ` it is the EM step, which never decreases it.
        """
        noise, n = self.evidence.noise_variance, self.evidence.sums.n
        slope = 2.0 * noise * self.evidence.noise_adjoint()
        free = max(n - float(self.determined.sum()), 1e-3 * n)
        ratios = (min(max(1.0 - slope / count, 0.1), 10.0) for count in (free, n))
        return [max(noise * ratio, least) for ratio in ratios]


class Candidates:
    """One basis function for each row, and the fetched columns of `ΦᵀΩΦ`.

    A pass over all N² kernel values costs about the same for one column and for many, so columns
    are kept while they may be useful. Functions of rows with weight zero count as zero.
    """

    def __init__(self, source: RowSource, kernel: Kernel) -> None:
        rows = source.take(np.arange(source.n_rows))
        s = rows.weight
        self.source, self.kernel, self.inputs = source, kernel, rows.X
        self.n, self.c = float(s.sum()), float(s @ rows.y**2)
        self.norms, self.b = (s > 0.0) * source.total(self._sum_norms_and_b)
        self.columns: dict[int, Array] = {}

    def _iterate_tiles(self, X: Array) -> Iterator[tuple[slice, Array]]:
        """Yield `k(X, candidates)` tile by tile, so that no matrix is N wide."""
        for start in range(0, self.inputs.shape[0], _TILE):
            tile = slice(start, start + _TILE)
            yield tile, self.kernel.matrix(X, self.inputs[tile])

    def _sum_norms_and_b(self, block: RowBlock) -> Array:
        """Return a block's share of `φᵀΩφ` and `φᵀΩy`, shape (2, N)."""
        s = block.weight
        share = np.empty((2, self.inputs.shape[0]))
        for tile, K in self._iterate_tiles(block.X):
            share[1, tile] = (s * block.y) @ K
            share[0, tile] = s @ np.square(K, out=K)
        return share

    def fetch(self, wanted: Indices, keep: Indices) -> None:
        """Compute the columns `wanted`, and drop all others except those to `keep`."""

        def share(block: RowBlock) -> Array:
            Phi = self.kernel.matrix(block.X, self.inputs[wanted])
            if block.sample_weight is not None:
                Phi *= block.sample_weight[:, None]
            return np.hstack([Phi.T @ K for _, K in self._iterate_tiles(block.X)])

        self.columns = {j: self.columns[j] for j in keep.tolist()}
        for j, column in zip(wanted.tolist(), self.source.total(share), strict=True):
            self.columns[j] = column.copy()

    def make_sums(self, indices: Indices) -> Sums:
        """Make the sums of fetched functions."""
        A = np.array([self.columns[j][indices] for j in indices.tolist()])
        return Sums(0.5 * (A + A.T), self.b[indices], self.c, 0.0, self.n, self.n)

    def align(self, model: RelevanceModel, rows: Indices) -> Alignment:
        """Return `s = β φᵀΩφ − β² ‖VᵀΦᵀΩφ‖²` and `q = β (φᵀΩy − mᵀΦᵀΩφ)` of candidates.

        A candidate in the span of the functions in the model, up to rounding, counts as not
        aligned.
        """
        evidence, beta = model.evidence, 1.0 / model.evidence.noise_variance
        norms, own = self.norms[rows], self.norms[model.indices, None]
        s, q, alike = beta * norms, beta * self.b[rows], np.empty(rows.size)
        for start in range(0, rows.size, _CHUNK):
            chunk = slice(start, start + _CHUNK)
            cross = np.array([self.columns[j][rows[chunk]] for j in model.indices.tolist()])
            s[chunk] -= beta**2 * np.square(evidence.V.T @ cross).sum(axis=0)
            q[chunk] -= beta * (evidence.mean @ cross)
            alike[chunk] = np.max(cross**2 / own, axis=0)
        spanned = (s <= _SPANNED * beta * norms) | (alike >= (1.0 - _SPANNED) * norms)
        return Alignment(np.where(spanned, 1.0, s), np.where(spanned, 0.0, q))

    def pick_unlike(self, rows: Indices, gain: Array, count: int = _FETCHED) -> Indices:
        """Pick up to `count` dissimilar candidates of large gain, the best first.

        Returns positions in `rows`. Each pick reduces the gain of the others by the square of their
        correlation under the kernel.
        """
        inputs, left, taken = self.inputs[rows], gain.copy(), list[int]()
        own = self.kernel.diag(inputs)
        while len(taken) < count and left.max() > 0.0:
            taken.append(int(np.argmax(left)))
            near = self.kernel.matrix(inputs, inputs[taken[-1:]])[:, 0]
            left *= np.maximum(1.0 - (near / np.sqrt(own * own[taken[-1]])) ** 2, 0.0)
            left[taken] = 0.0
        return np.array(taken, dtype=np.intp)
