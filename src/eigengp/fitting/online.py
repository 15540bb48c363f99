"""Fixed eigenfunctions and rows that keep coming: the posterior of the weights stays exact.

Rows enter the posterior only through their sums, so those of the rows so far
are all that is kept: O(M²), however many there were. A batch adds its own. The
weights' prior variances and the noise are functions of the sums too, and are
learned again from them at O(M³). Drifting data is followed by letting the sums
of earlier rows fade.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from eigengp.data.summary import Extent
from eigengp.fitting.objectives import WeightObjective
from eigengp.fitting.optimizer import minimize
from eigengp.fitting.parameters import eigengp_parameters
from eigengp.gp.approximations import Outcome, PriorPass, ResidualPass, SpectralPass
from eigengp.gp.blocks import RowSource
from eigengp.gp.model import EigenGP
from eigengp.gp.sums import Sums

_ITERATIONS = 25
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Online:
    """A model whose eigenfunctions are settled, and the sums of all rows it has seen.

    Parameters
    ----------
    model : EigenGP
        What was learned.
    flow : SpectralPass or ResidualPass
        Its pass over rows. The sums are in the eigenvectors it holds: those of
        another decomposition of the same matrix may have other signs.
    sums : Sums
        Of all rows so far.
    """

    model: EigenGP
    flow: SpectralPass | ResidualPass
    sums: Sums

    @classmethod
    def of(cls, model: EigenGP, outcome: Outcome, rows: RowSource) -> Online:
        """Begin with rows that a pass has gone over; sums of plain features are made again."""
        if isinstance(outcome.flow, PriorPass):
            outcome = replace(model, shrinkage=np.ones(model.n_components)).forward(rows)
        flow = outcome.flow
        assert isinstance(flow, SpectralPass | ResidualPass)
        return cls(model, flow, outcome.evidence.sums)

    def after(self, rows: RowSource, forgetting: float = 1.0) -> Online:
        """Return the state after more rows; earlier ones count `forgetting` times as much."""
        return replace(self, sums=self.sums * forgetting + self.flow.sums(rows))

    def refreshed(self) -> Online:
        """Return the state with noise and weights learned again, which the residual rules out."""
        if not isinstance(self.flow, SpectralPass):
            return self
        nowhere = Extent(np.zeros(0), np.zeros(0))
        free = eigengp_parameters(self.model, nowhere, basis=False, weights=True)
        objective = WeightObjective(free, self.flow, self.sums)
        found = minimize(objective, free.pack(self.model), _ITERATIONS, _TOLERANCE)
        return Online(free.unpack(found.vector), objective.flow_at(found.vector), self.sums)

    @property
    def outcome(self) -> Outcome:
        """The evidence and the posterior of all rows so far."""
        return self.flow.from_sums(self.sums)
