"""Stage 1: many starts are screened by short runs, and the best one is learned on all rows.

Successive halving gives each start a few iterations and continues with the best. Relocation moves
an inducing point of little use to where residuals exceed the noise.
A small problem is searched as a whole: all rows, all inducing points, and, where rows are scarce,
growing numbers of inducing points. A large one is screened on a few rows with few inducing points,
which settles the kernel; all inducing points are then placed for that kernel. The best start is
learned on growing subsets of the rows, then on all of them. Methods without weights of
eigenfunctions end here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import is_numpy
from eigengp.data.array_source import ArraySource
from eigengp.data.holdout import beside_source, group_source, sample_rows
from eigengp.data.standardize import Extent
from eigengp.fitting.initialization import Family, shorten_lengthscales
from eigengp.fitting.objectives import Minimum, RowObjective, minimize
from eigengp.fitting.run import Run
from eigengp.fitting.settings import Plan, is_small
from eigengp.gp.blocks import RowBlock, RowSource
from eigengp.gp.linalg import FactorizationError
from eigengp.gp.model import EigenGP
from eigengp.kernels import Kernel

# The fraction of the starts and the number of iterations in each round.
ROUNDS = ((1.0, 20), (0.25, 60), (0.03, 100))
RELOCATIONS = 20
_RELOCATION_ITERATIONS = 40
_RELOCATION_WORK = 1e6  # The largest N·M² for which inducing points are relocated.
_SCREENING_SIZE = 50
_PLACING_ROWS = 10_000
_SMALLEST_SIZE = 12
_DOUBLED = (0.1, 0.01)  # How far doubled inducing points are moved, in lengthscales.
_NOISE_ROWS = 2_000
_NOISES = (0.01, 0.03, 0.1, 0.3)
_WARM_ROWS = 2_000
_WARM_ROWS_PER_POINT = 10
_WARM_GROWTH = 9
_MOST_WARM_ROWS = 1 << 21
# The number of iterations on the smallest subset, and on each larger one.
_FIRST_ITERATIONS, _WARM_ITERATIONS = 40, 60
_SHORT_ITERATIONS = 30  # The number of iterations from a short lengthscale of one input.
# How often inducing points are placed anew for the lengthscales that the first subset shows, and
# the number of iterations from there.
_PLACEMENTS, _PLACED_ITERATIONS = 2, 60
_WARM_BLOCKS = 4  # The number of blocks of a small subset, which threads sum side by side.
_WORTH_PLACING = 1e-3  # The gain per row, in nats, from which another placement is tried.
_WARM_TOLERANCE = 1e-7
# The number of features from which a subset is learned from on the device of all rows.
_WORTH_MOVING = 1 << 20


ResultT = TypeVar("ResultT")


by_value = attrgetter("value")


def try_each(function: Callable[[Any], ResultT], starts: list[Any]) -> list[ResultT]:
    """Return what a function finds from each start that can be evaluated; raise if none can."""
    found: list[ResultT] = []
    failure = FactorizationError("There is nothing to start from.")
    for start in starts:
        try:
            found.append(function(start))
        except FactorizationError as error:
            failure = error
    if not found:
        raise failure
    return found


@dataclass(frozen=True)
class Search:
    """A search over starts on one set of rows.

    Parameters
    ----------
    family : Family
        Defines the free parameters.
    source : RowSource
        The rows to fit.
    rows : RowBlock
        The same rows in memory.
    box : Extent
        The box around the inputs.
    gamma : float
        The weight of the trace term.
    tick : callable
        Called with `−ln p(y)` per row after each short run.
    """

    family: Family
    source: RowSource
    rows: RowBlock
    box: Extent
    gamma: float
    tick: Callable[[float], object]

    def run(self, model: Any, max_iter: int) -> Minimum:
        """Run a few iterations on kernel, points and noise."""
        objective = RowObjective(self.family.free(model, self.box), self.source, self.gamma)
        found = minimize(objective, max_iter, tol=1e-7)
        self.tick(found.evidence)
        return found

    def choose_best(self, starts: list[Any]) -> Minimum:
        """Choose the best start by successive halving.

        Raises
        ------
        FactorizationError
            If none of the starts can be evaluated.
        """
        kept = starts
        for share, iterations in ROUNDS:
            kept = kept[: max(1, round(share * len(starts)))]
            pool = sorted(try_each(partial(self.run, max_iter=iterations), kept), key=by_value)
            kept = [each.model for each in pool]
        return pool[0]

    def relocate(self, found: Minimum, rng: np.random.RandomState) -> Minimum:
        """Try to move the least useful inducing points, and return the best model."""
        for _ in range(RELOCATIONS):
            points = found.model.inducing_points.copy()
            victim = rng.choice(np.argsort(self._score_without_each(found.model))[:3])
            points[victim] = self._draw_misfit(found.model, rng)
            moved = replace(found.model, inducing_points=points)
            try:
                trial = self.run(moved, _RELOCATION_ITERATIONS)
            except FactorizationError:
                continue
            if trial.value < found.value:
                found = trial
        return found

    def _score_without_each(self, model: EigenGP) -> Array:
        """Return the objective without each inducing point in turn, shape (M,)."""
        count = model.inducing_points.shape[0]
        R = min(model.n_components, count - 1)
        kept = (np.delete(model.inducing_points, j, axis=0) for j in range(count))
        fewer = (replace(model, inducing_points=B, n_components=R) for B in kept)
        return np.array([each.value(self.source, self.gamma) for each in fewer])

    def _draw_misfit(self, model: EigenGP, rng: np.random.RandomState) -> Array:
        """Draw an input where squared residuals, smoothed by the kernel, exceed the noise."""
        posterior = model.posterior(model.forward(self.source))
        squared = (self.rows.y - posterior.mean(self.rows.X)) ** 2
        candidates = rng.choice(self.rows.y.size, min(200, self.rows.y.size), replace=False)
        smoother = model.kernel.matrix(self.rows.X[candidates], self.rows.X)
        local = smoother @ squared / smoother.sum(axis=1)
        excess = np.maximum(local - 0.8 * model.noise_variance, 1e-4 * model.noise_variance)
        return self.rows.X[rng.choice(candidates, p=excess / excess.sum())]


@dataclass
class FirstStage:
    """Learns kernel, points and noise from the best of many starts.

    Parameters
    ----------
    run : Run
        Its settings, random numbers, progress and checkpoint.
    family : Family
        The kind of model.
    plan : Plan
        The resolved settings.
    train : RowSource
        The rows to learn from.
    """

    run: Run
    family: Family
    plan: Plan
    train: RowSource

    def choose_start(self, template: Any) -> Any:
        """Choose the model to start from; `template` holds the first kernel and noise."""
        start, plan = self._screen(template), self.plan
        if self.family.warms_up and plan.max_iter > 0 and not plan.begins_at_once:
            start = self._warm_up(start)
        if hasattr(start, "arithmetic"):  # The exact GP has only one.
            start = replace(start, arithmetic=plan.arithmetic)
        return start

    def _screen(self, template: Any) -> Any:
        """Choose the best of many starts by short runs."""
        plan, asked = self.plan, self.plan.n_inducing
        if plan.max_iter == 0:
            return self._place(template)
        if is_small(self.train.n_rows, asked) and not plan.begins_at_once:
            return self._search_whole(template)
        if plan.settled:
            return self._choose_noise(self._place(template))
        # The kernel is chosen on a few rows; then all inducing points are placed for it.
        search, size = self._make_search(self.family.screening_rows), min(asked, _SCREENING_SIZE)
        found = self._search_at_size(search, template, size, "kernel", 0).model
        return self._choose_noise(found if size == asked else self._place(found))

    def _search_whole(self, template: Any) -> Any:
        """Search a small problem, with more inducing points while they pay off.

        As in Akaike's criterion, they must gain one nat for each new hyperparameter: the D
        coordinates and the weight of each point.
        """
        search, plan = self._make_search(self.train.n_rows), self.plan
        if plan.n_components < plan.n_inducing and self.family.relocates:
            return self._search_fewer(search, template).model
        sizes = _list_sizes(plan.n_inducing) if plan.grow else [plan.n_inducing]
        best: Minimum | None = None
        for smaller, size in zip([0, *sizes], sizes, strict=False):
            stage = f"M = {size}" if plan.grow else "search"
            relocations = self._count_relocations(search, size)
            larger = self._search_at_size(search, template, size, stage, relocations)
            if best is not None:
                earned = (best.value - larger.value) * search.rows.y.size
                if earned < (size - smaller) * (self.train.n_features + 1):
                    break
            best = larger
        assert best is not None
        return best.model

    def _search_fewer(self, search: Search, template: Any) -> Minimum:
        """Search with fewer eigenfunctions than inducing points, R < M.

        Points that nearly coincide add no eigenfunction of large eigenvalue, so that R < M includes
        all models with R points, which are easier to find. The best of those, with M − R of its
        points doubled, competes with the best start with M points.
        """
        R, M = self.plan.n_components, self.plan.n_inducing
        relocations = self._count_relocations(search, M)
        own = self._search_at_size(search, template, M, "search", relocations)
        few = self._count_relocations(search, R)
        fewer = self._search_at_size(search, template, R, "search", few).model
        doubled: list[Minimum] = []
        with self.run.monitor.stage("doubled points", len(_DOUBLED) + relocations):
            for distance in _DOUBLED:
                points = _double_points(fewer, M, distance, self.run.rng)
                start = replace(fewer, inducing_points=points)
                with suppress(FactorizationError):
                    doubled.append(search.run(start, ROUNDS[-1][1]))
            best = min(doubled, key=by_value, default=own)
            if relocations and doubled:
                best = search.relocate(best, self.run.rng)
        return min(own, best, key=by_value)

    def _search_at_size(
        self, search: Search, template: Any, size: int, stage: str, relocations: int
    ) -> Minimum:
        """Choose the best of all starts with this number of inducing points."""
        n_restarts = self.plan.n_restarts
        runs = sum(max(1, round(share * n_restarts)) for share, _ in ROUNDS)
        starts = self.family.make_starts(template, search.rows, size, n_restarts, self.run.rng)
        with self.run.monitor.stage(stage, runs + relocations):
            found = search.choose_best(starts)
            return search.relocate(found, self.run.rng) if relocations else found

    def _count_relocations(self, search: Search, size: int) -> int:
        """Return how often inducing points are relocated; 0 if there are few, or very many."""
        several = self.plan.n_restarts > 1 and size > 3
        affordable = search.rows.y.size * size**2 <= _RELOCATION_WORK
        return RELOCATIONS if self.family.relocates and several and affordable else 0

    def _place(self, model: Any) -> Any:
        """Place all inducing points for the kernel of the model."""
        size = self.plan.n_inducing
        rows = self._draw_rows(max(_PLACING_ROWS, 3 * size))
        return self.family.place(model, rows, size, self.run.rng)

    def _choose_noise(self, model: Any) -> Any:
        """Choose the best of a few noise variances.

        The kernel was chosen with other inducing points or none. The residual of the new ones may
        be far larger than its noise variance, and an optimiser that starts there can end where all
        variation is noise.
        """
        source = ArraySource.of(self._draw_rows(_NOISE_ROWS))
        best, least = model, np.inf
        for noise in (model.noise_variance, *_NOISES):
            trial = replace(model, noise_variance=noise)
            try:
                value = trial.forward(source, self.plan.gamma).value
            except FactorizationError:
                continue
            if value < least:
                best, least = trial, value
        return best

    def _make_search(self, count: int) -> Search:
        """Return a search on about `count` rows."""
        rows, gamma, tick = self._draw_rows(count), self.plan.gamma, self.run.monitor.step
        box = Extent(rows.X.min(axis=0), rows.X.max(axis=0))
        source = ArraySource(rows.X, rows.y, rows.sample_weight, scatter=rows.scatter)
        return Search(self.family, source, rows, box, gamma, tick)

    def _draw_rows(self, count: int) -> RowBlock:
        """Draw about `count` training rows at random, or return all if they are fewer."""
        n = self.train.n_rows
        if n <= count:
            return self.train.take(np.arange(n))
        return sample_rows(self.train, count, self.run.rng)

    def _warm_up(self, start: Any) -> Any:
        """Learn on growing subsets of the rows before all of them.

        A subset shows the direction of the large early steps well enough. The weight of the trace
        term is that of a data set of this size.
        """
        model, rng = start, self.run.rng
        count = max(_WARM_ROWS, _WARM_ROWS_PER_POINT * self.plan.n_inducing)
        smallest = count
        while count <= min(self.train.n_rows // 3, _MOST_WARM_ROWS):
            rows, first = sample_rows(self.train, count, rng), count == smallest
            found = self._warm_up_on(rows, model, _FIRST_ITERATIONS if first else _WARM_ITERATIONS)
            if first and self.family.relocates:
                found = self._place_again(rows, self._shorten(rows, found))
            model = found.model
            count *= _WARM_GROWTH
        return model

    def _shorten(self, rows: RowBlock, best: Minimum) -> Minimum:
        """Try a short lengthscale of each input in turn, and return the best model."""
        if isinstance(self.run.settings.kernel, Kernel):
            return best
        found = [best]
        for kernel in shorten_lengthscales(best.model.kernel, rows.X):
            trial = self._place_for(replace(best.model, kernel=kernel), rows)
            found.append(self._warm_up_on(rows, trial, _SHORT_ITERATIONS))
        return min(found, key=by_value)

    def _place_again(self, rows: RowBlock, best: Minimum) -> Minimum:
        """Place inducing points for the lengthscales that were learned, while that is better.

        Those of a first placement are too far apart along inputs with short lengthscales.
        """
        for _ in range(_PLACEMENTS):
            before = best.value
            placed = self._place_for(best.model, rows)
            found = self._warm_up_on(rows, placed, _PLACED_ITERATIONS)
            best = min(best, found, key=by_value)
            if best.value > before - _WORTH_PLACING:
                break
        return best

    def _place_for(self, model: Any, rows: RowBlock) -> Any:
        """Return the model with inducing points for its lengthscales."""
        size = model.inducing_points.shape[0]
        return self.family.place(model, rows, size, self.run.rng, learned=True)

    def _warm_up_on(self, rows: RowBlock, model: Any, max_iter: int) -> Minimum:
        """Learn on a subset of the rows, on the device of all of them if it is not small."""
        plan, run, count = self.plan, self.run, rows.n_rows
        if count * plan.n_inducing >= _WORTH_MOVING:
            rows = beside_source(rows, self.train)
        source = ArraySource.of(rows, plan.n_inducing, run.n_threads)
        if is_numpy(rows.X):
            size = min(source.block_rows, -(-count // _WARM_BLOCKS))
            source = replace(source, X=np.asfortranarray(rows.X), block_rows=size)
        free = self.family.free(model, run.dataset.extent, scaled=True)
        objective = RowObjective(free, source, min(1.0, plan.gamma * self.train.n_rows / count))
        return run.learn(f"{count} rows", objective, max_iter, _WARM_TOLERANCE)

    def learn(self, stage: str, start: Any, weights: bool = False) -> Any:
        """Learn kernel, points and noise, and the weights of the eigenfunctions if `weights`."""
        plan = self.plan
        if plan.max_iter == 0:
            return start
        scaled = not is_small(self.train.n_rows, plan.n_inducing)
        box = self.run.dataset.extent
        free = self.family.free(start, box, weights=weights, scaled=scaled)
        objective = RowObjective(free, self.train, plan.gamma)
        return self.run.learn(stage, objective, plan.max_iter, plan.tol).model


def learn_one_stage(run: Run, family: Family, plan: Plan, template: Any) -> Any:
    """Learn a model of one stage; `template` holds the first kernel and noise."""
    train = group_source(run.source) if plan.groups else run.source
    stage = FirstStage(run, family, plan, train)
    return stage.learn("learning", stage.choose_start(template))


def _double_points(model: EigenGP, size: int, distance: float, rng: np.random.RandomState) -> Array:
    """Return `size` points: those of the model, and some again, moved a little, (size, D)."""
    points = model.inducing_points
    count, D = points.shape
    chosen = points[np.resize(rng.permutation(count), size - count)]
    step = distance / np.maximum(model.kernel.metric(D), 1.0)
    moved = chosen + step * rng.standard_normal(chosen.shape)
    return np.concatenate([points, moved])


def _list_sizes(size: int) -> list[int]:
    """Return growing numbers of inducing points up to `size`, by factors of about √2."""
    smallest = max(_SMALLEST_SIZE, size // 4)
    if size < 2 * _SMALLEST_SIZE:
        return [size]
    steps = round(2 * np.log2(size / smallest))
    return [round(value) for value in np.geomspace(smallest, size, steps + 1).tolist()]
