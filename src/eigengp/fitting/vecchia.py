"""Learning under the local residual: kernel, basis points and noise by the local evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from eigengp._typing import NeighborSearch
from eigengp.data.neighbors import NeighborSource
from eigengp.data.summary import Extent
from eigengp.fitting.checkpoint import Checkpoint, CheckpointedObjective
from eigengp.fitting.objectives import RowObjective
from eigengp.fitting.optimizer import Objective, minimize
from eigengp.fitting.parameters import Parameters, eigengp_parameters, kernel_parameters
from eigengp.fitting.progress import Monitor
from eigengp.gp.blocks import RowBlock
from eigengp.gp.linalg import FactorizationError
from eigengp.gp.model import EigenGP
from eigengp.gp.vecchia import VecchiaOutcome
from eigengp.kernels import (
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
    Stationary,
)


class _From(NamedTuple):
    """Where a kernel begins."""

    kind: type[Stationary] | None
    """After which other kernel; None is the start itself."""
    stretch: float
    """How much longer its lengthscales are than that one's."""


CANDIDATES: dict[type[Stationary], _From] = {
    SquaredExponential: _From(None, 1.0),
    RationalQuadratic: _From(SquaredExponential, 1.0),
    Matern52: _From(SquaredExponential, 1.3),
    Matern32: _From(Matern52, 1.3),
    Matern12: _From(Matern32, 2.4),
}
"""The kernels that are tried: each begins where a smoother one ended."""


class _Heat(NamedTuple):
    """One round of the competition of kernels."""

    n_rows: int
    """On how many."""
    steps: int
    """For how many iterations."""
    keep: int
    """How many go on."""
    until: float
    """Until which share of a limited time it may take."""


_HEATS = (_Heat(1_000, 15, 3, 0.12), _Heat(3_000, 25, 1, 0.3))
_ENOUGH_SECONDS = 20.0
_ROWS_PER_SECOND, _FEWEST_ROWS, _FEW_STEPS = 80, 200, 8
"""A heat where time is short: what more would take is better spent on all that comes after it."""
_NEIGHBOURS = 15
_TOLERANCE = 1e-6


@dataclass
class VecchiaLearner:
    """Learns by the local evidence.

    Parameters
    ----------
    rows : RowBlock
        All rows, in random order.
    box : Extent
        Around their inputs.
    monitor : Monitor
        Told of every iteration.
    n_threads : int
        How many threads sum.
    journal : Checkpoint or None
        Remembers every evaluation.
    search : {"auto", "exact", "approximate"}
        How neighbours are sought.
    """

    rows: RowBlock
    box: Extent
    monitor: Monitor
    n_threads: int
    journal: Checkpoint | None = None
    search: NeighborSearch = "auto"
    n_iter: int = 0
    losses: dict[int, dict[str, float]] = field(default_factory=dict)
    """What each kernel reached on how many rows, smaller is better."""

    def best_kernel(self, start: EigenGP, most: int) -> EigenGP:
        """Return the best of several kernels, learned on a part of the rows with basis points held.

        Some go on after each heat, of at most `most` iterations; see `_loss` for what decides.
        """
        left: list[EigenGP] = []
        for count, steps, keep, until in self._heats():
            heat = (count, min(steps, most), until)
            found = self._again(left, *heat) if left else self._rougher(start, *heat)
            losses = {_name(model): self._loss(model, count) for model in found}
            self.losses[count] = losses
            found.sort(key=lambda model: losses[_name(model)])
            left = found[:keep]
        return left[0]

    def _heats(self) -> Sequence[_Heat]:
        """Return one small heat where time is short."""
        limit = self.monitor.clock.limit
        if limit is None or limit >= _ENOUGH_SECONDS:
            return _HEATS
        count = min(_HEATS[0].n_rows, max(_FEWEST_ROWS, round(_ROWS_PER_SECOND * limit)))
        return (_Heat(count, _FEW_STEPS, 1, _HEATS[-1].until),)

    def _rougher(self, start: EigenGP, count: int, steps: int, until: float) -> list[EigenGP]:
        """Return all kernels, each learned from where a smoother one ended.

        Rough ones learn slowly, and from a poor start not at all.
        """
        found: dict[type[Stationary] | None, EigenGP] = {None: start}
        for i, (kind, begins) in enumerate(CANDIDATES.items()):
            model = found[begins.kind]
            before = model.kernel
            assert isinstance(before, Stationary)
            self.monitor.clock.spread(until, i, len(CANDIDATES))
            kernel = kind(before.lengthscale * begins.stretch, before.variance)
            found[kind] = self._tried(replace(model, kernel=kernel, vecchia=True), count, steps)
        return list(found.values())[1:]

    def _again(self, models: list[EigenGP], count: int, steps: int, until: float) -> list[EigenGP]:
        """Return models learned on."""
        found = []
        for i, model in enumerate(models):
            self.monitor.clock.spread(until, i, len(models))
            found.append(self._tried(model, count, steps))
        return found

    def _tried(self, model: EigenGP, count: int, steps: int) -> EigenGP:
        return self._learned(_name(model), kernel_parameters(model), count, steps)

    def _loss(self, model: EigenGP, count: int) -> float:
        """Return the mean of `−ln p(y)` per row and of what it would be with one variance for all.

        Variances are learned anew in the end, so a kernel is to be good at means too.
        """
        source = self._source(model, count)
        try:
            outcome = model.forward(source, kept=model.arithmetic.kept())
        except FactorizationError:
            return float("inf")
        assert isinstance(outcome, VecchiaOutcome)
        assert outcome.whitened is not None
        seen = outcome.whitened
        errors = (seen.eta - seen.kappa @ outcome.evidence.mean) / seen.w[:, -1]
        weight = source.rows.weight[source.index[:, -1]]
        alike = 0.5 * float(np.log(2.0 * np.pi * np.average(errors**2, weights=weight)) + 1.0)
        return 0.5 * (outcome.value / outcome.n + alike)

    def kernel(self, model: EigenGP, count: int, steps: int) -> EigenGP:
        """Return the model with kernel and noise learned on so many rows."""
        return self._learned("kernel", kernel_parameters(model), count, steps)

    def everything(self, model: EigenGP, count: int, steps: int) -> EigenGP:
        """Return the model with basis points learned too."""
        return self._learned("local", eigengp_parameters(model, self.box), count, steps)

    def _learned(
        self, name: str, parameters: Parameters[EigenGP], count: int, steps: int
    ) -> EigenGP:
        """Minimise over the last so many rows, whose neighbours are as near as those of all."""
        model = parameters.template
        objective: Objective = RowObjective(parameters, self._source(model, count))
        if self.journal is not None:
            objective = CheckpointedObjective(objective, self.journal, f"{name} {count}")
        self.monitor.begin(name, steps)
        start, clock = parameters.pack(model), self.monitor.clock
        found = minimize(objective, start, steps, _TOLERANCE, self.monitor.step, clock.is_over)
        self.monitor.end()
        self.n_iter += found.n_iter
        return parameters.unpack(found.vector)

    def _source(self, model: EigenGP, count: int) -> Any:
        metric = model.kernel.metric(self.rows.X.shape[1])
        return NeighborSource.of(self.rows, metric, _NEIGHBOURS, self.n_threads, count, self.search)


def _name(model: EigenGP) -> str:
    return type(model.kernel).__name__
