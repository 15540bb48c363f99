"""Learning a relevance vector machine, basis function by basis function.

Basis functions are added, re-estimated and deleted whenever that increases the log marginal
likelihood (Tipping and Faul, "Fast marginal likelihood maximisation for sparse Bayesian models",
2003). A large model adds several dissimilar ones at once. `relevance.py` defines the symbols.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from eigengp._typing import Array
from eigengp.backend.threads import use_one_blas_thread
from eigengp.baselines.rvm.relevance import Alignment, Candidates, Indices, RelevanceModel
from eigengp.gp.blocks import RowSource
from eigengp.gp.evidence import FactorEvidence
from eigengp.gp.linalg import FactorizationError
from eigengp.gp.posterior import Posterior
from eigengp.kernels import Kernel

_START_NOISE, _LEAST_NOISE = 1e-2, 1e-9  # of the targets' second moment
_HELD = 64  # functions that come in before the noise is estimated: a few alone look noisy
_FEW, _MANY = 3, 1000  # steps to settle in, between additions and at the end
_POLISH = 1e-4  # of the tolerance, for the functions in the model at the end
_ALONE, _SHARE = 100, 20  # up to 100 functions come in one by one, then one in 20 beyond at once
_WORTH_TAKING = 0.1  # of the best gain: what a fetched candidate must bring


@dataclass(frozen=True)
class Relevance:
    """A learned relevance vector machine with M relevance vectors.

    `evidence.mean` and `evidence.V` are in the coordinates of `k(x, inputs)`.
    """

    kernel: Kernel
    indices: Indices  # The rows that are relevance vectors, shape (M,).
    inputs: Array  # Their inputs, shape (M, D).
    evidence: FactorEvidence
    n_iter: int
    converged: bool  # Whether no step gained more than the tolerance at the end.

    @property
    def precisions(self) -> Array:
        """The prior precisions `α` of the weights, shape (M,)."""
        return 1.0 / self.evidence.factor**2

    @property
    def noise_variance(self) -> float:
        """The noise variance `σ²`."""
        return self.evidence.noise_variance

    def posterior(self) -> Posterior:
        """Return the posterior of the weights of `k(x, inputs)`."""
        own = self.evidence
        return Posterior(self.kernel.at(self.inputs), own.mean, own.V, self.noise_variance)


@dataclass
class _Growth:
    """The search; each step increases the log marginal likelihood."""

    candidates: Candidates
    model: RelevanceModel
    tol: float
    least_noise: float
    noise_held: bool = True
    # Candidates that rounding keeps from gaining anything.
    excluded: list[int] = field(default_factory=list)
    best_gain: float = np.inf  # The largest gain of adding a candidate when all were last compared.

    @classmethod
    def start(cls, source: RowSource, kernel: Kernel, tol: float) -> _Growth:
        """Start with the single candidate that is best aligned with the targets."""
        candidates = Candidates(source, kernel)
        scale = candidates.c / candidates.n or 1.0
        noise = _START_NOISE * scale
        usable = np.maximum(candidates.norms, np.finfo(np.float64).tiny)
        first = np.argmax(candidates.b**2 / usable, keepdims=True)
        s, q = usable[first] / noise, candidates.b[first] / noise
        candidates.fetch(first, keep=first[:0])
        variance = Alignment(s, q).best
        factor = np.sqrt(np.where(variance > 0.0, variance, 1.0 / s))
        model = RelevanceModel(first, FactorEvidence(candidates.make_sums(first), factor, noise))
        if not np.isfinite(model.evidence.negative_log):
            raise FactorizationError(
                "The log marginal likelihood is not finite: inputs, targets or weights hold NaN or "
                "infinity. Check the data."
            )
        return cls(candidates, model, tol * candidates.n, _LEAST_NOISE * scale)

    def settle(self, steps: int, tol: float) -> bool:
        """Improve the functions in the model; return whether no step gains `tol`."""
        with use_one_blas_thread():
            for _ in range(steps):
                better = self._improve(tol)
                if better is None:
                    return True
                self.model = better
        return False

    def _improve(self, tol: float) -> RelevanceModel | None:
        """Return a model that gains more than `tol`, or None.

        MacKay's `v = m²/γ` updates all functions and the noise. If that gains less than the best
        update of a single function, only that function is updated.
        """
        model, alignment, best = self.model, self.model.alignment, self.model.alignment.best
        variances, noise = model.evidence.factor**2, model.evidence.noise_variance
        noises = [] if self.noise_held else model.propose_noises(self.least_noise)
        gain = alignment.compute_contribution(best) - alignment.compute_contribution(variances)
        j = int(np.argmax(gain))
        ratio = np.clip(model.evidence.h**2 / model.determined, 0.1, 10.0)
        together = np.where(best > 0.0, variances * ratio, 0.0)
        alone = np.where(np.arange(best.size) == j, best, variances)

        proposals = [(together, [*noises, noise][0], max(tol, gain[j]))]
        proposals += [(alone, noise, max(tol, 0.5 * gain[j]))]
        proposals += [(variances, other, tol) for other in noises]
        for proposed, other, least in proposals:
            if np.any(proposed > 0.0):
                moved = model.move(proposed, other)
                if model.compute_gain(moved) > least:
                    return moved
        return None

    def grow(self) -> bool:
        """Add the candidates of largest gain; return False if none gains enough.

        Candidates with fetched columns are preferred while one of them gains enough.
        """
        rows = np.array(list(self.candidates.columns), dtype=np.intp)
        alignment, gain = self._compute_gains(rows)
        if gain.max() <= self._least_gain:
            everyone = np.arange(self.candidates.inputs.shape[0])
            gains = self._compute_gains(everyone)[1]
            self.best_gain = float(gains.max())
            if self.best_gain <= self.tol:
                return False
            if gain.max() <= self._least_gain:
                rows = self.candidates.pick_unlike(everyone, gains)
                self.candidates.fetch(rows, keep=self.model.indices)
                alignment, gain = self._compute_gains(rows)
        count = 1 + max(0, self.model.indices.size - _ALONE) // _SHARE
        chosen = self.candidates.pick_unlike(
            rows, np.where(gain > self._least_gain, gain, 0.0), count
        )
        if chosen.size == 0:
            chosen = np.argmax(gain, keepdims=True)
        self._add(rows[chosen], alignment.best[chosen], float(gain[chosen[0]]))
        return True

    @property
    def _least_gain(self) -> float:
        """The gain that a candidate must have."""
        return max(self.tol, _WORTH_TAKING * self.best_gain)

    def _compute_gains(self, rows: Indices) -> tuple[Alignment, Array]:
        """Return the alignment of candidates, and the gain of adding each."""
        with use_one_blas_thread():
            alignment = self.candidates.align(self.model, rows)
        unfit = np.isin(rows, [*self.model.indices.tolist(), *self.excluded])
        return alignment, np.where(unfit, 0.0, alignment.compute_contribution(alignment.best))

    def _add(self, rows: Indices, variances: Array, expected: float) -> None:
        """Add candidates to the model; the first alone should gain `expected`.

        If several together gain less than half of that, only the first is added. If the first
        itself gains less, because of rounding, it is excluded.
        """
        model, indices = self.model, np.append(self.model.indices, rows)
        evidence = replace(model.evidence, sums=self.candidates.make_sums(indices))
        proposed = np.append(model.evidence.factor**2, variances)
        grown = RelevanceModel(indices, evidence).move(proposed, evidence.noise_variance)
        with use_one_blas_thread():
            gain = model.compute_gain(grown)
        if gain > 0.5 * expected:
            self.model = grown
        elif rows.size > 1:
            self._add(rows[:1], variances[:1], expected)
        else:
            self.excluded.append(int(rows[0]))


def learn_relevance(
    source: RowSource,
    kernel: Kernel,
    max_iter: int = 5000,
    tol: float = 1e-8,
    step: Callable[[float], object] | None = None,
) -> Relevance:
    """Learn a relevance vector machine by maximising its log marginal likelihood.

    At the end `α_i = s_i²/(q_i² − s_i)` for the functions in the model,
    `q_i² ≤ s_i` for the other candidates and `σ² = ‖y − Φm‖²_Ω/(n − Σγ)`, as
    far as `tol` and rounding allow. Memory beyond the data is N times the
    number of functions, never N × N.

    Parameters
    ----------
    source : RowSource
        The rows; each is a candidate.
    kernel : Kernel
        The kernel; its parameters are fixed.
    max_iter : int
        The largest number of iterations; each adds one or more functions and improves the others.
    tol : float
        The gain in log marginal likelihood per row below which a function is not added.
    step : callable or None
        Called with `−ln p(y)` per row after each iteration; it never increases.

    Raises
    ------
    FactorizationError
        If the log marginal likelihood is not finite at the start, for example with NaN in the data.
    """
    search = _Growth.start(source, kernel, tol)
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
    if not converged:
        search.settle(_FEW, search.tol)
    model = search.model
    inputs = search.candidates.inputs[model.indices]
    return Relevance(kernel, model.indices, inputs, model.evidence, n_iter, converged)
