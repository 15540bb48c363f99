"""From the user's kernel to the one model that is worth optimising in full.

A small problem is searched as it is: all rows, the whole basis, many starts,
relocation of basis points, and, where rows are scarce, growing basis sizes.
A large one is screened on a few rows with a small basis, which settles the
kernel; the whole basis is then placed for that kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from eigengp.data.array_source import ArraySource
from eigengp.data.summary import Extent
from eigengp.data.views import sample_rows
from eigengp.fitting.families import Family
from eigengp.fitting.progress import Monitor
from eigengp.fitting.search import RELOCATIONS, ROUNDS, Found, Search
from eigengp.fitting.settings import Plan, is_small
from eigengp.gp.blocks import RowBlock, RowSource
from eigengp.gp.linalg import FactorizationError

_RELOCATION_WORK = 1e6
"""N·M² up to which basis points are relocated."""
_SCREENING_BASIS = 50
_PLACING_ROWS = 10_000
_SMALLEST_BASIS = 12
_NOISE_ROWS = 2_000
_NOISES = (0.01, 0.03, 0.1, 0.3)


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
            trial = replace(model, noise_variance=noise)
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
