"""The relevance vector machine, learned one basis function at a time.

The model is `y = Σ_i w_i k(x, x_i) + noise` with `w_i ~ N(0, v_i)`. Every row
is a candidate for a centre `x_i`, and the evidence is largest with most prior
variances `v_i = 1/α_i` at zero. Functions are added, re-estimated and deleted,
always where that raises the evidence (Tipping & Faul, "Fast marginal
likelihood maximisation for sparse Bayesian models", 2003).

Letters: `φ_i = k(X, x_i)`, `Ω` the sample weights, `β = 1/σ²`, and `C₋ᵢ` the
covariance of the targets without `φ_i`. `s_i = φ_iᵀC₋ᵢ⁻¹φ_i` says how much of
`φ_i` the other functions leave open, `q_i = φ_iᵀC₋ᵢ⁻¹y` how well it is aligned
with what they leave of the targets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from eigengp.flow.evidence import Evidence
from eigengp.flow.linalg import FactorizationError
from eigengp.flow.sums import RowBlock, RowSource, Sums
from eigengp.kernels import Kernel
from eigengp.sources.arrays import one_blas_thread
from eigengp.typing import Array

Indices = NDArray[np.intp]

_START_NOISE, _LEAST_NOISE = 1e-2, 1e-9  # of the targets' second moment
_HELD = 64  # functions that come in before the noise is estimated: a few alone look noisy
_FEW, _MANY = 3, 1000  # steps to settle in, between additions and at the end
_POLISH = 1e-4  # of the tolerance, for the functions in the model at the end
_FETCHED = 128  # columns in one pass
_WORTH_TAKING = 0.1  # of the best gain: what a fetched candidate must bring
_NEGLIGIBLE = 1e-6  # of q²/s − 1: an excess that rounding could make
_SPANNED = 1e-10  # of φᵀΩφ: what rounding could leave of a function in the span of others
_LARGEST = 1e13  # of β v φᵀΩφ: beyond it rounding drowns the I in G = I + S
_TILE, _CHUNK = 512, 4096


@dataclass(frozen=True)
class Relevance:
    """A learned relevance vector machine with M relevance vectors.

    `evidence.mean` and `evidence.V` are in the coordinates of `k(x, inputs)`.
    """

    indices: Indices
    """The rows that are relevance vectors, shape (M,)."""
    inputs: Array
    """Their inputs, shape (M, D)."""
    evidence: Evidence
    n_iter: int
    converged: bool
    """Whether nothing gained more than the tolerance at the end."""

    @property
    def precisions(self) -> Array:
        """The prior precisions `α` of the weights, shape (M,)."""
        return 1.0 / self.evidence.factor**2

    @property
    def noise_variance(self) -> float:
        """The noise variance `σ²`."""
        return self.evidence.noise_variance


@dataclass(frozen=True)
class _Alignment:
    """`s` and `q` of some functions, and what they say of their prior variances.

    In `v_i` alone the log evidence is a constant plus
    `l(v) = ½ [q²v/(1 + sv) − ln(1 + sv)]`, largest at `v = (q² − s)/s²`, or
    at zero where `q² ≤ s`. To add, to re-estimate and to delete is to go there.
    """

    s: Array
    q: Array

    @cached_property
    def best(self) -> Array:
        """The best variances."""
        excess = self.q**2 / self.s - 1.0
        return np.where(excess > _NEGLIGIBLE, excess / self.s, 0.0)

    def contribution(self, variances: Array) -> Array:
        """Return `l(v)`, which is zero at `v = 0`."""
        sv = self.s * variances
        return np.asarray(0.5 * (self.q**2 * variances / (1.0 + sv) - np.log1p(sv)))


@dataclass(frozen=True)
class _Model:
    """The functions in the model, and the evidence with them."""

    indices: Indices
    evidence: Evidence

    def moved(self, variances: Array, noise_variance: float) -> _Model:
        """Return the model with other variances and noise; functions of variance zero go."""
        keep, sums = variances > 0.0, self.evidence.sums
        if not keep.all():
            sums = replace(sums, A=sums.A[np.ix_(keep, keep)], b=sums.b[keep])
        largest = _LARGEST * noise_variance / np.diagonal(sums.A)
        factor = np.sqrt(np.minimum(variances[keep], largest))
        return _Model(self.indices[keep], Evidence(sums, factor, noise_variance))

    def gain_of(self, other: _Model) -> float:
        """Return by how much the other's log evidence is larger, −∞ where it has none."""
        try:
            gain = self.evidence.negative_log - other.evidence.negative_log
        except FactorizationError:
            return -np.inf
        return gain if np.isfinite(gain) else -np.inf

    @cached_property
    def left_to_prior(self) -> Array:
        """`(G⁻¹)_jj = Σ_jj/v_j = 1 − γ_j`, the share of a weight that the data leave open."""
        return np.asarray(np.einsum("ij,ij->j", self.evidence.root, self.evidence.root))

    @cached_property
    def determined(self) -> Array:
        """MacKay's `γ_j`, the share of a weight that the data determine, shape (M,)."""
        return np.maximum(1.0 - self.left_to_prior, np.finfo(np.float64).eps)

    @cached_property
    def alignment(self) -> _Alignment:
        """The functions' own `s_j = 1/Σ_jj − α_j = γ_j/Σ_jj` and `q_j = m_j/Σ_jj`.

        The usual `αS/(α − S)` is the same, but `α − S` loses its digits for
        weights that the data determine well.
        """
        covariance = self.left_to_prior * self.evidence.factor**2
        return _Alignment(self.determined / covariance, self.evidence.mean / covariance)

    def noises(self, least: float) -> list[float]:
        """Return two better noise variances, a bold one and a safe one.

        `‖y − Φm‖²_Ω = σ² (n − Σγ − 2σ²g)` with the noise adjoint `g`, so that
        MacKay's `‖y − Φm‖²_Ω/(n − Σγ)` is `σ² (1 − 2σ²g/(n − Σγ))`. With `n`
        in place of `n − Σγ` it is the EM step, which never lowers the evidence.
        """
        noise, n = self.evidence.noise_variance, self.evidence.sums.n
        slope = 2.0 * noise * self.evidence.noise_adjoint()
        free = max(n - float(self.determined.sum()), 1e-3 * n)
        ratios = (min(max(1.0 - slope / count, 0.1), 10.0) for count in (free, n))
        return [max(noise * ratio, least) for ratio in ratios]


class _Candidates:
    """One basis function for each row, and the columns of `ΦᵀΩΦ` that were fetched.

    A pass over all N² kernel values costs much the same for one column and
    for many; what it brings is kept while it may be of use. Rows of weight
    zero are as good as absent: their functions count as zero.
    """

    def __init__(self, source: RowSource, kernel: Kernel) -> None:
        rows = source.take(np.arange(source.n_rows))
        s = np.ones_like(rows.y) if rows.sample_weight is None else rows.sample_weight
        self.source, self.kernel, self.inputs = source, kernel, rows.X
        self.n, self.c = float(s.sum()), float(s @ rows.y**2)
        self.norms, self.b = (s > 0.0) * source.total(self._norms_and_b)
        self.columns: dict[int, Array] = {}

    def _tiles(self, X: Array) -> Iterator[tuple[slice, Array]]:
        """Yield `k(X, candidates)` tile by tile, so that no matrix is N wide."""
        for start in range(0, self.inputs.shape[0], _TILE):
            tile = slice(start, start + _TILE)
            yield tile, self.kernel.matrix(X, self.inputs[tile])

    def _norms_and_b(self, block: RowBlock) -> Array:
        """Return a block's share of `φᵀΩφ` and `φᵀΩy`, shape (2, N)."""
        s = np.ones_like(block.y) if block.sample_weight is None else block.sample_weight
        share = np.empty((2, self.inputs.shape[0]))
        for tile, K in self._tiles(block.X):
            share[1, tile] = (s * block.y) @ K
            share[0, tile] = s @ np.square(K, out=K)
        return share

    def fetch(self, wanted: Indices, keep: Indices) -> None:
        """Get the columns `wanted`, and forget all others but those to `keep`."""

        def share(block: RowBlock) -> Array:
            Phi = self.kernel.matrix(block.X, self.inputs[wanted])
            if block.sample_weight is not None:
                Phi *= block.sample_weight[:, None]
            return np.hstack([Phi.T @ K for _, K in self._tiles(block.X)])

        self.columns = {j: self.columns[j] for j in keep.tolist()}
        for j, column in zip(wanted.tolist(), self.source.total(share), strict=True):
            self.columns[j] = column.copy()

    def sums(self, indices: Indices) -> Sums:
        """Return the sums of fetched functions."""
        A = np.array([self.columns[j][indices] for j in indices.tolist()])
        return Sums(0.5 * (A + A.T), self.b[indices], self.c, 0.0, self.n, self.n)

    def alignment(self, model: _Model, rows: Indices) -> _Alignment:
        """Return `s = β φᵀΩφ − β² ‖VᵀΦᵀΩφ‖²` and `q = β (φᵀΩy − mᵀΦᵀΩφ)` of candidates.

        A candidate that is parallel to one of the model's functions, or in
        the span of all, up to rounding, counts as not aligned.
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
        return _Alignment(np.where(spanned, 1.0, s), np.where(spanned, 0.0, q))

    def promising(self, gain: Array) -> Indices:
        """Return candidates of large gain that are unlike each other, at most `_FETCHED`.

        One that is taken lowers the gain of the others by the square of
        their correlation under the kernel.
        """
        left, taken = gain.copy(), list[int]()
        while len(taken) < _FETCHED and left.max() > 0.0:
            taken.append(int(np.argmax(left)))
            near = self.kernel.matrix(self.inputs, self.inputs[taken[-1:]])[:, 0]
            left *= np.maximum(1.0 - (near / self.kernel.total_variance) ** 2, 0.0)
            left[taken] = 0.0
        return np.array(taken, dtype=np.intp)


@dataclass
class _Search:
    """The search: a model gives way only to one of larger evidence."""

    candidates: _Candidates
    model: _Model
    tol: float
    least_noise: float
    noise_held: bool = True
    barred: list[int] = field(default_factory=list)
    best_gain: float = np.inf
    """Of adding a candidate, when all of them were last looked at."""

    @classmethod
    def start(cls, source: RowSource, kernel: Kernel, tol: float) -> _Search:
        """Begin with the single candidate that is best aligned with the targets."""
        all_ = _Candidates(source, kernel)
        scale = all_.c / all_.n or 1.0
        noise, usable = _START_NOISE * scale, np.maximum(all_.norms, np.finfo(np.float64).tiny)
        first = np.argmax(all_.b**2 / usable, keepdims=True)
        s, q = usable[first] / noise, all_.b[first] / noise
        all_.fetch(first, keep=first[:0])
        variance = _Alignment(s, q).best
        factor = np.sqrt(np.where(variance > 0.0, variance, 1.0 / s))
        model = _Model(first, Evidence(all_.sums(first), factor, noise))
        if not np.isfinite(model.evidence.negative_log):
            raise FactorizationError(
                "The evidence is not finite: inputs, targets or sample weights hold NaN or "
                "infinity. Check the data."
            )
        return cls(all_, model, tol * all_.n, _LEAST_NOISE * scale)

    def settle(self, steps: int, tol: float) -> bool:
        """Improve the functions in the model, M × M work; True when nothing gains `tol`."""
        with one_blas_thread():
            for _ in range(steps):
                better = self._better(tol)
                if better is None:
                    return True
                self.model = better
        return False

    def _better(self, tol: float) -> _Model | None:
        """Return a model that gains more than `tol`: all functions moved, or one, or the noise.

        MacKay's `v = m²/γ` moves all together, with the noise. Where that
        gains less than the best step of a single function, it is that one's turn.
        """
        model, alignment, best = self.model, self.model.alignment, self.model.alignment.best
        variances, noise = model.evidence.factor**2, model.evidence.noise_variance
        noises = [] if self.noise_held else model.noises(self.least_noise)
        gain = alignment.contribution(best) - alignment.contribution(variances)
        j = int(np.argmax(gain))
        ratio = np.clip(model.evidence.h**2 / model.determined, 0.1, 10.0)
        together = np.where(best > 0.0, variances * ratio, 0.0)
        alone = np.where(np.arange(best.size) == j, best, variances)

        proposals = [(together, [*noises, noise][0], max(tol, gain[j]))]
        proposals += [(alone, noise, max(tol, 0.5 * gain[j]))]
        proposals += [(variances, other, tol) for other in noises]
        for proposed, other, least in proposals:
            if np.any(proposed > 0.0):
                moved = model.moved(proposed, other)
                if model.gain_of(moved) > least:
                    return moved
        return None

    def grow(self) -> bool:
        """Add the candidate that gains most; False where none gains enough.

        The fetched ones go first, while one of them is worth taking.
        """
        rows = np.array(list(self.candidates.columns), dtype=np.intp)
        alignment, gain = self._gains(rows)
        if gain.max() <= max(self.tol, _WORTH_TAKING * self.best_gain):
            gains = self._gains(np.arange(self.candidates.inputs.shape[0]))[1]
            self.best_gain = float(gains.max())
            if self.best_gain <= self.tol:
                return False
            if gain.max() <= max(self.tol, _WORTH_TAKING * self.best_gain):
                rows = self.candidates.promising(gains)
                self.candidates.fetch(rows, keep=self.model.indices)
                alignment, gain = self._gains(rows)
        i = int(np.argmax(gain))
        self._add(int(rows[i]), float(alignment.best[i]), float(gain[i]))
        return True

    def _gains(self, rows: Indices) -> tuple[_Alignment, Array]:
        """Return the alignment of candidates, and what adding each would gain."""
        with one_blas_thread():
            alignment = self.candidates.alignment(self.model, rows)
        unfit = np.isin(rows, [*self.model.indices.tolist(), *self.barred])
        return alignment, np.where(unfit, 0.0, alignment.contribution(alignment.best))

    def _add(self, row: int, variance: float, foretold: float) -> None:
        """Take a candidate into the model; bar it if rounding keeps it from what was foretold."""
        model, indices = self.model, np.append(self.model.indices, row)
        evidence = replace(model.evidence, sums=self.candidates.sums(indices))
        variances = np.append(model.evidence.factor**2, variance)
        grown = _Model(indices, evidence).moved(variances, evidence.noise_variance)
        if model.gain_of(grown) > 0.5 * foretold:
            self.model = grown
        else:
            self.barred.append(row)


def learn_relevance(
    source: RowSource,
    kernel: Kernel,
    max_iter: int = 5000,
    tol: float = 1e-8,
    step: Callable[[float], None] | None = None,
) -> Relevance:
    """Learn a relevance vector machine by maximising its evidence.

    At the end `α_i = s_i²/(q_i² − s_i)` for the functions in the model,
    `q_i² ≤ s_i` for the other candidates and `σ² = ‖y − Φm‖²_Ω/(n − Σγ)`, as
    far as `tol` and rounding allow. Memory beyond the data is N times the
    number of functions, never N × N.

    Parameters
    ----------
    source : RowSource
        The rows; each is a candidate.
    kernel : Kernel
        Its parameters stay as they are.
    max_iter : int
        At most so many iterations; each adds one function and improves the others.
    tol : float
        The gain in log evidence per row below which a function is not added.
    step : callable or None
        Told `−ln p(y)` per row after each iteration; it never grows.

    Raises
    ------
    FactorizationError
        If there is no finite evidence to begin with, as with NaN in the data.
    """
    search = _Search.start(source, kernel, tol)
    converged = last = False
    n_iter = 0
    while n_iter < max_iter and not converged:
        n_iter += 1
        steps, gain = (_MANY, _POLISH * search.tol) if last else (_FEW, search.tol)
        settled = search.settle(steps, gain)
        if step:
            step(search.model.evidence.negative_log / search.candidates.n)
        if search.grow():
            last = False
            search.noise_held &= search.model.indices.size < _HELD
        elif search.noise_held:
            search.noise_held = False
        else:
            converged, last = last and settled, True
    model = search.model
    inputs = search.candidates.inputs[model.indices]
    return Relevance(model.indices, inputs, model.evidence, n_iter, converged)
