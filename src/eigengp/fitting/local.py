"""Learning under the local residual: kernel, basis points and noise by the local evidence."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from eigengp.fitting.journal import Journal, Journaled
from eigengp.fitting.objectives import RowObjective
from eigengp.fitting.optimizer import Objective, minimize
from eigengp.fitting.parameters import Parameters, eigengp_parameters, kernel_parameters
from eigengp.fitting.progress import Monitor
from eigengp.flow.linalg import FactorizationError
from eigengp.flow.local import LocalOutcome
from eigengp.flow.model import EigenGP
from eigengp.flow.rows import RowBlock
from eigengp.kernels import Matern12, Matern32, Matern52, SquaredExponential, Stationary
from eigengp.sources.neighbours import NeighbourSource
from eigengp.sources.summary import Extent

CANDIDATES: dict[type[Stationary], float] = {
    SquaredExponential: 1.0,
    Matern52: 1.3,
    Matern32: 1.7,
    Matern12: 4.0,
}
"""The kernels that are tried, and how much longer their lengthscales begin: rough ones are long."""
_HEATS = ((1_000, 12, 2), (3_000, 35, 1))
"""On how many rows, and for how many iterations, kernels compete, and how many go on."""
_NEIGHBOURS = 15
_TOLERANCE = 1e-6


@dataclass
class LocalLearner:
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
    journal : Journal or None
        Remembers every evaluation.
    """

    rows: RowBlock
    box: Extent
    monitor: Monitor
    n_threads: int
    journal: Journal | None = None
    n_iter: int = 0
    losses: dict[int, dict[str, float]] = field(default_factory=dict)
    """What each kernel reached on how many rows, smaller is better."""

    def best_kernel(self, start: EigenGP, most: int) -> EigenGP:
        """Return the best of several kernels, learned on a part of the rows with basis points held.

        Some go on after each heat, of at most `most` iterations; see `_loss` for what decides.
        """
        first = start.kernel
        assert isinstance(first, Stationary)
        left: list[EigenGP] = []
        for kind, factor in CANDIDATES.items():
            kernel = kind(first.lengthscale * factor, first.variance)
            left.append(replace(start, kernel=kernel, local=True))
        for count, steps, keep in _HEATS:
            found = [
                self._learned(_name(model), kernel_parameters(model), count, min(steps, most))
                for model in left
            ]
            losses = {_name(model): self._loss(model, count) for model in found}
            self.losses[count] = losses
            found.sort(key=lambda model: losses[_name(model)])
            left = found[:keep]
        return left[0]

    def _loss(self, model: EigenGP, count: int) -> float:
        """Return the mean of `−ln p(y)` per row and of what it would be with one variance for all.

        Variances are learned anew in the end, so a kernel is to be good at means too.
        """
        source = self._source(model, count)
        try:
            outcome = model.forward(source, kept=model.arithmetic.kept())
        except FactorizationError:
            return float("inf")
        assert isinstance(outcome, LocalOutcome)
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
            objective = Journaled(objective, self.journal, f"{name} {count}")
        self.monitor.begin(name, steps)
        found = minimize(objective, parameters.pack(model), steps, _TOLERANCE, self.monitor.step)
        self.monitor.end()
        self.n_iter += found.n_iter
        return parameters.unpack(found.vector)

    def _source(self, model: EigenGP, count: int) -> Any:
        metric = model.kernel.metric
        return NeighbourSource.of(self.rows, metric, _NEIGHBOURS, self.n_threads, count)


def _name(model: EigenGP) -> str:
    return type(model.kernel).__name__
