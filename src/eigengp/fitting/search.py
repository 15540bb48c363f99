"""Finding a good basin: many short runs, then moves that no gradient makes.

Successive halving gives each start a few iterations and goes on with the
best. Relocation takes a basis point that the evidence hardly misses and puts
it where the residuals are larger than the noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eigengp._typing import Array
from eigengp.data.summary import Extent
from eigengp.fitting.families import Family
from eigengp.fitting.objectives import RowObjective
from eigengp.fitting.optimizer import minimize
from eigengp.gp.blocks import RowBlock, RowSource
from eigengp.gp.linalg import FactorizationError
from eigengp.gp.model import EigenGP

ROUNDS = ((1.0, 20), (0.25, 60), (0.03, 100))
"""Which share of the starts goes into each round, and for how many iterations."""
RELOCATIONS = 20
_RELOCATION_ITERATIONS = 40


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
