"""The learning procedure: starts, stage 1, stage 2, and all at once.

Stage 1 learns kernel, basis points and noise under the weights of the GP
prior. Stage 2 holds kernel and basis points and learns the weights of the
eigenfunctions and the noise. EigenGP* goes on from there with everything free.

The guard against over-fitting acts in three places. A share of the trace
term is added whenever basis points are learned. Where rows are scarce,
smaller bases are tried first and the basis grows while it earns a nat of
evidence for each new hyperparameter, as Akaike's criterion asks. Where rows
are plenty some are held out, and learned weights are kept only if they
predict those rows better.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
from sklearn.utils.random import sample_without_replacement

from eigengp.fitting.objectives import RowObjective, WeightObjective
from eigengp.fitting.optimizer import Objective, minimize
from eigengp.fitting.parameters import Parameters
from eigengp.fitting.progress import Monitor
from eigengp.fitting.search import RELOCATIONS, ROUNDS, Found, Search
from eigengp.fitting.starts import BasisInit, make_starts
from eigengp.flow.linalg import JitterWarning
from eigengp.flow.model import EigenGP
from eigengp.flow.posterior import Posterior
from eigengp.flow.sums import RowBlock, RowSource
from eigengp.sources.arrays import ArraySource
from eigengp.sources.views import Extent, StandardizedSource, TrainingRows
from eigengp.typing import Array

GUARD_STRENGTH = 1.5
"""The share of the trace term for one basis point per row; benchmarks/README.md has the evidence."""
_SCREENING_WORK = 2e7
_SCREENING_BASIS = 100
_SMALLEST_BASIS = 12
_ENOUGH_ROWS_PER_POINT = 10
_HOLD_OUT_FROM = 2_000
_HELD_OUT_ROWS = 5_000


@dataclass(frozen=True)
class Plan:
    """What the user asked for."""

    n_components: int
    n_inducing: int
    joint: bool
    init: BasisInit
    n_restarts: int
    max_iter: int
    tol: float
    guard: bool


@dataclass(frozen=True)
class Learned:
    """The model that was learned, and the number of iterations it took."""

    model: EigenGP
    n_iter: int


@dataclass
class Learner:
    """One fit."""

    plan: Plan
    source: StandardizedSource
    monitor: Monitor
    rng: np.random.RandomState

    def __post_init__(self) -> None:
        self.box = self.source.extent()
        self.n_iter = 0
        self.train: RowSource = self.source
        self.held_out: RowBlock | None = None
        if self.plan.guard and self.source.n_rows >= _HOLD_OUT_FROM:
            split = TrainingRows(self.source, max(10, self.source.n_rows // _HELD_OUT_ROWS))
            self.train, self.held_out = split, split.held_out()

    @property
    def gamma(self) -> float:
        """The share of the trace term: the more basis points for each row, the more."""
        density = self.plan.n_inducing / self.source.n_rows
        return min(1.0, GUARD_STRENGTH * density) if self.plan.guard else 0.0

    def learn(self, template: EigenGP) -> Learned:
        """Return the learned model; `template` holds the kernel and noise to start from."""
        model = self._screen(template)
        model = self._stage("stage 1", model, basis=True, weights=False)
        after = self._stage("stage 2", model, basis=False, weights=True)
        model = self._better(model, after)
        if self.plan.joint:
            together = self._stage("joint", after, basis=True, weights=True)
            refined = self._stage("weights", together, basis=False, weights=True)
            model = self._better(self._better(model, together), refined)
        return Learned(model, self.n_iter)

    def _stage(self, name: str, model: EigenGP, basis: bool, weights: bool) -> EigenGP:
        """Return the model with the free parameters optimised on the training rows."""
        parameters = Parameters(model, self.box, basis, weights)
        objective: Objective
        if basis or model.residual:
            objective = RowObjective(parameters, self.train, self.gamma if basis else 0.0)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", JitterWarning)
                objective = WeightObjective.of(parameters, self.train)
        start = parameters.pack(model)
        self.monitor.begin(name, self.plan.max_iter)
        found = minimize(objective, start, self.plan.max_iter, self.plan.tol, self.monitor.step)
        self.monitor.end()
        self.n_iter += found.n_iter
        return parameters.unpack(found.vector)

    def _better(self, before: EigenGP, after: EigenGP) -> EigenGP:
        """Return `after`, unless rows were held out and `before` predicts them better."""
        if self.held_out is None:
            return after
        scores = [self._held_out_score(model, self.held_out) for model in (before, after)]
        return before if scores[0] < scores[1] else after

    def _held_out_score(self, model: EigenGP, rows: RowBlock) -> float:
        """Return the mean negative log density of the held-out rows."""
        posterior = Posterior.of(model, model.flow.forward(self.train))
        mean, variance = posterior.mean_and_variance(rows.X)
        weight = rows.sample_weight
        loss = (rows.y - mean) ** 2 / variance + np.log(variance)
        return float(np.average(loss, weights=weight))

    def _screen(self, template: EigenGP) -> EigenGP:
        """Return the best of many starts, found on as many rows as are cheap."""
        size = self.plan.n_inducing
        rows = self._screening_rows(min(size, _SCREENING_BASIS))
        if size > _SCREENING_BASIS:
            return self._screen_kernel(template, rows)
        search = self._search(rows)
        scarce = rows.y.size == self.source.n_rows < _ENOUGH_ROWS_PER_POINT * size
        free = isinstance(self.plan.init.method, str)
        sizes = _sizes(size) if self.plan.guard and scarce and free else [size]
        best = self._at_size(search, template, sizes[0])
        for larger in sizes[1:]:
            trial = self._at_size(search, template, larger)
            gain = (best.value - trial.value) * rows.y.size
            grown = trial.model.inducing_inputs.shape[0] - best.model.inducing_inputs.shape[0]
            if gain < grown * (rows.X.shape[1] + 1):
                break
            best = trial
        self.monitor.end()
        return self._sized(best.model)

    def _screen_kernel(self, template: EigenGP, rows: RowBlock) -> EigenGP:
        """Screen with a smaller basis, and place the whole basis for the kernel that won."""
        search = self._search(rows)
        starts = self._starts(template, rows, _SCREENING_BASIS, BasisInit("kmeans"))
        best = search.best_of(starts).model
        self.monitor.end()
        many = self._rows(max(10_000, 3 * self.plan.n_inducing))
        points = self.plan.init.place(many, self.plan.n_inducing, best.kernel, self.rng)
        return self._sized(replace(best, inducing_inputs=points))

    def _at_size(self, search: Search, template: EigenGP, size: int) -> Found:
        found = search.best_of(self._starts(template, search.rows, size, self.plan.init))
        if isinstance(self.plan.init.method, str) and size > 3 and self.plan.n_restarts > 1:
            found = search.relocate(found, self.rng)
        return found

    def _starts(
        self, template: EigenGP, rows: RowBlock, size: int, init: BasisInit
    ) -> list[EigenGP]:
        blank = np.zeros((size, rows.X.shape[1]))
        sized = replace(template, inducing_inputs=blank, n_components=size)
        return make_starts(sized, rows, init, self.plan.n_restarts, self.rng)

    def _sized(self, model: EigenGP) -> EigenGP:
        kept = min(self.plan.n_components, model.inducing_inputs.shape[0])
        return replace(model, n_components=kept)

    def _search(self, rows: RowBlock) -> Search:
        runs = sum(max(1, round(share * self.plan.n_restarts)) for share, _ in ROUNDS)
        self.monitor.begin("starts", runs + RELOCATIONS)
        source = ArraySource(rows.X, rows.y, rows.sample_weight)
        box = Extent(rows.X.min(axis=0), rows.X.max(axis=0))
        return Search(source, rows, box, self.gamma, self.monitor.step)

    def _screening_rows(self, size: int) -> RowBlock:
        cheap = int(_SCREENING_WORK / (size * (size + 50)))
        return self._rows(max(10 * size, cheap))

    def _rows(self, count: int) -> RowBlock:
        """Return all training rows, or about `count` of them drawn at random."""
        n = self.source.n_rows
        if n <= count:
            return self.train.take(np.arange(n))
        chosen = sample_without_replacement(n, count, random_state=self.rng)
        return self.train.take(np.sort(chosen))


def _sizes(size: int) -> list[int]:
    """Return growing basis sizes up to `size`, each about √2 times the one before."""
    smallest = max(_SMALLEST_BASIS, size // 4)
    if size < 2 * _SMALLEST_BASIS:
        return [size]
    steps = round(2 * np.log2(size / smallest))
    return [round(value) for value in np.geomspace(smallest, size, steps + 1).tolist()]


def sorted_spectrum(model: EigenGP) -> tuple[Array, Array]:
    """Return eigenvalues and weights `w` of the eigenfunctions kept, each of shape (R,)."""
    spectrum, R = model.spectrum, model.n_components
    shrinkage = np.ones(R) if model.shrinkage is None else model.shrinkage
    return spectrum.values[:R], spectrum.weights(shrinkage)
