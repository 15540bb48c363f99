"""From the user's kernel to the one model that is worth optimising in full.

A small problem is searched as it is: all rows, the whole basis, many starts,
relocation of basis points, and, where rows are scarce, growing basis sizes.
A large one is screened on a few rows with a small basis, which settles the
kernel; the whole basis is then placed for that kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from sklearn.utils.random import sample_without_replacement

from eigengp.fitting.plan import Plan, is_small
from eigengp.fitting.progress import Monitor
from eigengp.fitting.search import RELOCATIONS, ROUNDS, Found, Search
from eigengp.fitting.starts import BasisInit, make_starts
from eigengp.flow.model import EigenGP
from eigengp.flow.sums import RowBlock, RowSource
from eigengp.sources.arrays import ArraySource
from eigengp.sources.views import Extent

_RELOCATION_WORK = 1e6
"""N·M² up to which basis points are relocated."""
_SCREENING_BASIS = 50
_SCREENING_ROWS = 1_000
_PLACING_ROWS = 10_000
_SMALLEST_BASIS = 12


@dataclass(frozen=True)
class Screening:
    """One screening of starts.

    Parameters
    ----------
    plan : Plan
        What was asked for.
    source : RowSource
        The training rows.
    monitor : Monitor
        Told of every short run.
    rng : RandomState
        Makes the draws.
    """

    plan: Plan
    source: RowSource
    monitor: Monitor
    rng: np.random.RandomState

    def best(self, template: EigenGP) -> EigenGP:
        """Return the best model found; `template` holds kernel and noise to start from."""
        size = self.plan.n_inducing
        if self.plan.max_iter == 0:
            model = self._placed(template, size)
        elif is_small(self.source.n_rows, size):
            model = self._whole(template)
        else:
            model = self._by_kernel(template)
        kept = min(self.plan.n_components, model.inducing_inputs.shape[0])
        return replace(model, n_components=kept)

    def _whole(self, template: EigenGP) -> EigenGP:
        """Search a small problem, growing the basis while that pays.

        A larger basis must earn one nat for each new hyperparameter, the D
        coordinates and the weight of each point, as Akaike's criterion asks.
        """
        search = self._search(self._rows(self.source.n_rows))
        sizes = _sizes(self.plan.n_inducing) if self.plan.grow else [self.plan.n_inducing]
        best = self._at_size(search, template, sizes[0])
        for size in sizes[1:]:
            larger = self._at_size(search, template, size)
            grown = size - best.model.inducing_inputs.shape[0]
            earned = (best.value - larger.value) * search.n_rows
            if earned < grown * (self.source.n_features + 1):
                break
            best = larger
        return best.model

    def _at_size(self, search: Search, template: EigenGP, size: int) -> Found:
        relocate = (
            isinstance(self.plan.init.method, str)
            and self.plan.n_restarts > 1
            and size > 3
            and search.n_rows * size**2 <= _RELOCATION_WORK
        )
        runs = _runs(self.plan.n_restarts) + RELOCATIONS * relocate
        self.monitor.begin(f"M = {size}", runs)
        found = search.best_of(self._starts(template, search.rows, size, self.plan.init))
        if relocate:
            found = search.relocate(found, self.rng)
        self.monitor.end()
        return found

    def _by_kernel(self, template: EigenGP) -> EigenGP:
        """Settle the kernel on a few rows, then place the whole basis for it."""
        asked = self.plan.n_inducing
        size = min(asked, _SCREENING_BASIS)
        search = self._search(self._rows(_SCREENING_ROWS))
        fixed = isinstance(self.plan.init.method, np.ndarray)
        init = BasisInit("kmeans") if fixed and size < asked else self.plan.init
        self.monitor.begin("kernel", _runs(self.plan.n_restarts))
        found = search.best_of(self._starts(template, search.rows, size, init))
        self.monitor.end()
        if size == asked:
            return found.model
        return self._placed(found.model, asked)

    def _placed(self, model: EigenGP, size: int) -> EigenGP:
        """Return the model with a whole basis placed for its kernel."""
        rows = self._rows(max(_PLACING_ROWS, 3 * size))
        points = self.plan.init.place(rows, size, model.kernel, self.rng)
        return replace(model, inducing_inputs=points)

    def _starts(
        self, template: EigenGP, rows: RowBlock, size: int, init: BasisInit
    ) -> list[EigenGP]:
        blank = np.zeros((size, rows.X.shape[1]))
        sized = replace(template, inducing_inputs=blank, n_components=size)
        return make_starts(sized, rows, init, self.plan.n_restarts, self.rng)

    def _search(self, rows: RowBlock) -> Search:
        box = Extent(rows.X.min(axis=0), rows.X.max(axis=0))
        source = ArraySource(rows.X, rows.y, rows.sample_weight)
        return Search(source, rows, box, self.plan.gamma, self.monitor.step)

    def _rows(self, count: int) -> RowBlock:
        """Return all training rows, or about `count` of them drawn at random."""
        n = self.source.n_rows
        if n <= count:
            return self.source.take(np.arange(n))
        chosen = sample_without_replacement(n, count, random_state=self.rng)
        return self.source.take(np.sort(chosen))


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
