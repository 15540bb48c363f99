"""Fixed eigenfunctions and rows that keep coming: the posterior of the weights stays exact.

Rows enter the posterior only through their sums, so those of the rows so far
are all that is kept: O(M²), however many there were. A batch adds its own. The
weights' prior variances and the noise are functions of the sums too, and are
learned again from them at O(M³). Drifting data is followed by letting the sums
of earlier rows fade.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from eigengp.data.array_source import ArraySource
from eigengp.data.standardize import Extent
from eigengp.fitting.leave_one_out import make_posterior
from eigengp.fitting.objectives import WeightObjective, eigengp_parameters
from eigengp.fitting.optimizer import minimize
from eigengp.fitting.settings import LBFGS, Stochastic
from eigengp.fitting.stochastic import StochasticLearner
from eigengp.gp.approximations import Outcome, PriorPass, ResidualPass, SpectralPass
from eigengp.gp.blocks import RowBlock, RowSource
from eigengp.gp.heteroscedastic import HeteroscedasticPosterior
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

    def add_rows(self, rows: RowSource, forgetting: float = 1.0) -> Online:
        """Return the state after more rows; earlier ones count `forgetting` times as much."""
        return replace(self, sums=self.sums * forgetting + self.flow.sums(rows))

    def refresh(self) -> Online:
        """Return the state with noise and weights learned again, which the residual rules out."""
        if not isinstance(self.flow, SpectralPass):
            return self
        nowhere = Extent(np.zeros(0), np.zeros(0))
        free = eigengp_parameters(self.model, nowhere, basis=False, weights=True)
        objective = WeightObjective(free, self.flow, self.sums)
        found = minimize(objective, free.pack(self.model), _ITERATIONS, _TOLERANCE)
        return Online(free.unpack(found.vector), objective.make_pass(found.vector), self.sums)

    @property
    def outcome(self) -> Outcome:
        """The evidence and the posterior of all rows so far."""
        return self.flow.from_sums(self.sums)


class ExtendedFit(NamedTuple):
    """A model after more rows."""

    model: EigenGP
    posterior: Any
    value: float
    """The negative log marginal likelihood, in standardised units."""
    weight: float
    """The weight of the rows that it is of."""
    online: Online | StochasticLearner


def extend_fit(
    online: Online | StochasticLearner,
    before: Any,
    rows: RowBlock,
    optimizer: LBFGS | Stochastic,
    forgetting: float,
) -> ExtendedFit:
    """Return a fit extended by more standardised rows.

    Parameters
    ----------
    online : Online or StochasticLearner
        The state that the fit left.
    before : Posterior or HeteroscedasticPosterior
        Its posterior, whose variance model is kept.
    rows : RowBlock
        More rows.
    optimizer : LBFGS or Stochastic
        How the model is learned.
    forgetting : float
        By what the weight of earlier rows is multiplied.
    """
    learn = optimizer.max_iter != 0
    if isinstance(online, StochasticLearner):
        online = deepcopy(online)
        online.extend(rows, optimizer.batch_size, learn)
        kept, model = online.reservoir.rows, online.model
        outcome = model.forward(ArraySource.of(kept))
        weight = float(np.sum(kept.weight))
    else:
        online = online.add_rows(ArraySource.of(rows, online.sums.b.size), forgetting)
        online = online.refresh() if learn else online
        model, outcome, weight = online.model, online.outcome, online.sums.n
    posterior: Any = model.posterior(outcome)
    if isinstance(before, HeteroscedasticPosterior):
        posterior = make_posterior(model, outcome, before.scale)
    return ExtendedFit(model, posterior, outcome.value, weight, online)
