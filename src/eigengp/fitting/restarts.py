"""Restarts: many starts are screened by short runs, and the best one continues.

Successive halving gives each start a few iterations and continues with the best. Relocation moves
an inducing point of little use to where residuals exceed the noise.
A small problem is searched as a whole: all rows, all inducing points, and, where rows are scarce,
growing numbers of inducing points. A large one is screened on a few rows with few inducing points,
which settles the kernel; all inducing points are then placed for that kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from eigengp._typing import Array
from eigengp.data.array_source import ArraySource
from eigengp.data.holdout import sample_rows
from eigengp.data.standardize import Extent
from eigengp.fitting.initialization import Family
from eigengp.fitting.objectives import RowObjective
from eigengp.fitting.optimizer import minimize
from eigengp.fitting.progress import Monitor
from eigengp.fitting.settings import Plan, is_small
from eigengp.gp.blocks import RowBlock, RowSource
from eigengp.gp.linalg import FactorizationError
from eigengp.gp.model import EigenGP

ROUNDS = ((1.0, 20), (0.25, 60), (0.03, 100))
"""Which share of the starts goes into each round, and for how many iterations."""
RELOCATIONS = 20
_RELOCATION_ITERATIONS = 40
_RELOCATION_WORK = 1e6
"""N·M² up to which basis points are relocated."""
_SCREENING_BASIS = 50
_PLACING_ROWS = 10_000
_SMALLEST_BASIS = 12
_NOISE_ROWS = 2_000
_NOISES = (0.01, 0.03, 0.1, 0.3)


@dataclass(frozen=True)
class Found:
    """A model and its objective per row."""

    model: Any
    value: float


@dataclass(frozen=True)
class Search:
    """A search over starts on one set of rows.

    Parameters
    ----------
    family : Family
        Says what is free in a model.
    source : RowSource
        The rows to fit.
    rows : RowBlock
        The same rows in memory.
    box : Extent
        The box around the inputs.
    gamma : float
        How much of the trace term is added.
    tick : callable
        Told the evidence per row after each short run.
    """

    family: Family
    source: RowSource
    rows: RowBlock
    box: Extent
    gamma: float
    tick: Callable[[float], None]

    @property
    def n_rows(self) -> int:
        """How many rows are fitted."""
        return self.rows.y.size

    def run(self, model: Any, max_iter: int) -> Found:
        """Return the model after a few iterations on kernel, points and noise."""
        parameters = self.family.parameters(model, self.box)
        objective = RowObjective(parameters, self.source, self.gamma)
        minimum = minimize(objective, parameters.pack(model), max_iter, tol=1e-7)
        self.tick(minimum.evidence)
        return Found(parameters.unpack(minimum.vector), minimum.value)

    def best_of(self, starts: list[Any]) -> Found:
        """Return the best start by successive halving.

        Raises
        ------
        FactorizationError
            If not one of the starts can be evaluated.
        """
        pool, failure = starts, None
        found: list[Found] = []
        for share, iterations in ROUNDS:
            found = []
            for model in pool[: max(1, round(share * len(starts)))]:
                try:
                    found.append(self.run(model, iterations))
                except FactorizationError as error:
                    failure = error
            if not found:
                assert failure is not None
                raise failure
            found.sort(key=lambda each: each.value)
            pool = [each.model for each in found]
        return found[0]

    def relocate(self, found: Found, rng: np.random.RandomState) -> Found:
        """Return the model after trying to move its least useful basis points."""
        for _ in range(RELOCATIONS):
            points = found.model.inducing_points.copy()
            victim = rng.choice(np.argsort(self._losses(found.model))[:3])
            points[victim] = self._where_it_misses(found.model, rng)
            moved = replace(found.model, inducing_points=points)
            try:
                trial = self.run(moved, _RELOCATION_ITERATIONS)
            except FactorizationError:
                continue
            if trial.value < found.value:
                found = trial
        return found

    def _losses(self, model: EigenGP) -> Array:
        """Return the objective with each basis point left out in turn, shape (M,)."""
        count = model.inducing_points.shape[0]
        kept = (np.delete(model.inducing_points, j, axis=0) for j in range(count))
        fewer = (replace(model, inducing_points=B, n_components=count - 1) for B in kept)
        return np.array([each.value(self.source, self.gamma) for each in fewer])

    def _where_it_misses(self, model: EigenGP, rng: np.random.RandomState) -> Array:
        """Draw an input where squared residuals, smoothed by the kernel, exceed the noise."""
        posterior = model.posterior(model.forward(self.source))
        squared = (self.rows.y - posterior.mean(self.rows.X)) ** 2
        candidates = rng.choice(self.rows.y.size, min(200, self.rows.y.size), replace=False)
        smoother = model.kernel.matrix(self.rows.X[candidates], self.rows.X)
        local = smoother @ squared / smoother.sum(axis=1)
        excess = np.maximum(local - 0.8 * model.noise_variance, 1e-4 * model.noise_variance)
        chosen: Array = self.rows.X[rng.choice(candidates, p=excess / excess.sum())]
        return chosen


@dataclass(frozen=True)
class Screening:
    """One screening of starts.

    Parameters
    ----------
    family : Family
        Makes the starts.
    plan : Plan
        What was asked for.
    source : RowSource
        The training rows.
    monitor : Monitor
        Told of every short run.
    rng : RandomState
        Makes the draws.
    """

    family: Family
    plan: Plan
    source: RowSource
    monitor: Monitor
    rng: np.random.RandomState

    def best(self, template: Any) -> Any:
        """Return the best model found; `template` holds kernel and noise to start from."""
        size = self.plan.n_inducing
        small = is_small(self.source.n_rows, size)
        if self.plan.max_iter == 0:
            return self._placed(template, size)
        if small and not self.plan.begins_at_once:
            return self._whole(template)
        return self._with_noise(
            self._placed(template, size) if self.plan.settled else self._by_kernel(template)
        )

    def _whole(self, template: Any) -> Any:
        """Search a small problem, growing the basis while that pays.

        A larger basis must earn one nat for each new hyperparameter, the D
        coordinates and the weight of each point, as Akaike's criterion asks.
        """
        search = self._search(self._rows(self.source.n_rows))
        sizes = _sizes(self.plan.n_inducing) if self.plan.grow else [self.plan.n_inducing]
        best = self._at_size(search, template, sizes[0])
        for smaller, size in pairwise(sizes):
            larger = self._at_size(search, template, size)
            earned = (best.value - larger.value) * search.n_rows
            if earned < (size - smaller) * (self.source.n_features + 1):
                break
            best = larger
        return best.model

    def _at_size(self, search: Search, template: Any, size: int) -> Found:
        relocate = (
            self.family.relocates
            and self.plan.n_restarts > 1
            and size > 3
            and search.n_rows * size**2 <= _RELOCATION_WORK
        )
        runs = _runs(self.plan.n_restarts) + RELOCATIONS * relocate
        self.monitor.begin(f"M = {size}" if self.plan.grow else "search", runs)
        found = search.best_of(self._starts(template, search.rows, size))
        if relocate:
            found = search.relocate(found, self.rng)
        self.monitor.end()
        return found

    def _by_kernel(self, template: Any) -> Any:
        """Settle the kernel on a few rows, then place the whole basis for it."""
        asked = self.plan.n_inducing
        size = min(asked, _SCREENING_BASIS)
        search = self._search(self._rows(self.family.screening_rows))
        self.monitor.begin("kernel", _runs(self.plan.n_restarts))
        found = search.best_of(self._starts(template, search.rows, size))
        self.monitor.end()
        return found.model if size == asked else self._placed(found.model, asked)

    def _placed(self, model: Any, size: int) -> Any:
        """Return the model with a whole basis placed for its kernel."""
        rows = self._rows(max(_PLACING_ROWS, 3 * size))
        return self.family.placed(model, rows, size, self.rng)

    def _with_noise(self, model: Any) -> Any:
        """Return the model with the best of a few noise variances.

        The kernel was settled with other basis points or none; what the new
        ones leave out may be far more than the noise that came with it, and
        an optimiser that begins there can end where all is noise.
        """
        source = ArraySource.of(self._rows(_NOISE_ROWS))
        best, least = model, np.inf
        for noise in (model.noise_variance, *_NOISES):
            trial = replace(model, likelihood=model.likelihood.with_scale(noise))
            try:
                value = trial.forward(source, self.plan.gamma).value
            except FactorizationError:
                continue
            if value < least:
                best, least = trial, value
        return best

    def _starts(self, template: Any, rows: RowBlock, size: int) -> list[Any]:
        return self.family.starts(template, rows, size, self.plan.n_restarts, self.rng)

    def _search(self, rows: RowBlock) -> Search:
        box = Extent.around(rows.X)
        return Search(
            self.family, ArraySource.of(rows), rows, box, self.plan.gamma, self.monitor.step
        )

    def _rows(self, count: int) -> RowBlock:
        """Return all training rows, or about `count` of them drawn at random."""
        n = self.source.n_rows
        if n <= count:
            return self.source.take(np.arange(n))
        return sample_rows(self.source, count, self.rng)


def _runs(n_restarts: int) -> int:
    """Return how many short runs successive halving makes."""
    return sum(max(1, round(share * n_restarts)) for share, _ in ROUNDS)


def _sizes(size: int) -> list[int]:
    """Return growing basis sizes up to `size`, each about √2 times the one before."""
    smallest = max(_SMALLEST_BASIS, size // 4)
    if size < 2 * _SMALLEST_BASIS:
        return [size]
    steps = round(2 * np.log2(size / smallest))
    return [round(value) for value in np.geomspace(smallest, size, steps + 1).tolist()]
