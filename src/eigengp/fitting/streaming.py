"""Learning from batches, between what a user hands over and the steps on each batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from eigengp.data.views import Scaling, sample_rows
from eigengp.fitting.progress import Monitor
from eigengp.fitting.stochastic import KEPT_ROWS, Reservoir, StochasticLearner
from eigengp.fitting.training import Training
from eigengp.gp.blocks import RowBlock, RowSource, regrouped
from eigengp.gp.model import EigenGP

FIRST_ITERATIONS = 30
"""Iterations on the first rows, before the stream begins."""


@dataclass
class Stream:
    """Learning from batches, from the first rows on.

    Parameters
    ----------
    learner : StochasticLearner
        Does the work.
    scaling : Scaling
        Standardises the rows.
    monitor : Monitor
        Told of every batch.
    """

    learner: StochasticLearner
    scaling: Scaling
    monitor: Monitor

    @classmethod
    def begin(
        cls, training: Training, count: int, learned: Callable[[Training], EigenGP]
    ) -> Stream:
        """Begin with a model that `learned` makes of about so many rows, by the evidence."""
        model = learned(training.on(sample_rows(training.source, count, training.rng)))
        reservoir = Reservoir(KEPT_ROWS, training.rng)
        learner = StochasticLearner(training.box, model, reservoir)
        return cls(learner, training.scaling, training.monitor)

    def over(self, rows: RowSource, batch_size: int, passes: int) -> EigenGP:
        """Return the model after so many passes over rows in the units of the data."""
        rng = self.learner.reservoir.rng
        for number in range(max(1, passes)):
            self.monitor.begin("batches", -(-rows.n_rows // batch_size))
            for batch in rows.batches(batch_size, rng):
                standardised = self.scaling.block(batch)
                shown = self.learner.absorb(standardised, number == 0, passes > 0)
                if np.isfinite(shown):
                    self.monitor.step(shown)
            self.monitor.end()
        return self.learner.model

    def absorb(self, rows: RowBlock, batch_size: int, learn: bool = True) -> EigenGP:
        """Return the model after more rows, standardised."""
        for batch in regrouped([rows], batch_size):
            self.learner.absorb(batch, learn=learn)
        return self.learner.model

    @property
    def kept(self) -> RowBlock:
        """Rows drawn from all that have come by."""
        return self.learner.reservoir.rows
