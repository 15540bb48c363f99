"""Online learning with fixed eigenfunctions: the posterior of the weights stays exact.

Rows enter the posterior only through their sums, so only the sums are stored: O(M²) for any number
of rows. A batch adds its own sums. Prior variances of the weights and noise are learned again from
the sums, in O(M³). A forgetting factor discounts earlier rows if the data drifts.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from eigengp.data.array_source import ArraySource
from eigengp.data.standardize import Extent
from eigengp.fitting.heteroscedastic import make_posterior
from eigengp.fitting.objectives import eigengp_parameters, minimize
from eigengp.fitting.settings import LBFGS, Stochastic
from eigengp.fitting.stages import WeightObjective
from eigengp.fitting.stochastic import StochasticLearner
from eigengp.gp.approximations import PriorPass, SpectralPass
from eigengp.gp.blocks import RowBlock, RowSource, group_rows
from eigengp.gp.evidence import Outcome
from eigengp.gp.heteroscedastic import HeteroscedasticPosterior
from eigengp.gp.model import EigenGP
from eigengp.gp.residual import ResidualPass
from eigengp.gp.sums import Sums

_ITERATIONS = 25
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Online:
    """A model with fixed eigenfunctions, and the sums of all rows so far.

    Parameters
    ----------
    model : EigenGP
        The learned model.
    flow : SpectralPass or ResidualPass
        Its pass over rows. It holds the eigenvectors of the sums; those of another decomposition
        of the same matrix may have other signs.
    sums : Sums
        The sums of all rows so far.
    """

    model: EigenGP
    flow: SpectralPass | ResidualPass
    sums: Sums

    @classmethod
    def of(cls, model: EigenGP, outcome: Outcome, rows: RowSource) -> Online:
        """Start from the outcome of a fit; sums of plain features are computed again."""
        if isinstance(outcome.flow, PriorPass):
            outcome = replace(model, shrinkage=np.ones(model.n_components)).forward(rows)
        flow = outcome.flow
        assert isinstance(flow, SpectralPass | ResidualPass)
        return cls(model, flow, outcome.evidence.sums)

    def refresh(self) -> Online:
        """Learn noise and weights again; not possible with a residual."""
        if not isinstance(self.flow, SpectralPass):
            return self
        no_box = Extent(np.zeros(0), np.zeros(0))
        free = eigengp_parameters(self.model, no_box, basis=False, weights=True)
        objective = WeightObjective(free, self.flow, self.sums)
        found = minimize(objective, _ITERATIONS, _TOLERANCE)
        return Online(found.model, objective.make_pass(found.vector), self.sums)

    @property
    def outcome(self) -> Outcome:
        """The log marginal likelihood and the posterior given all rows so far."""
        return self.flow.from_sums(self.sums)


class ExtendedFit(NamedTuple):
    """A fit after more rows."""

    model: EigenGP
    posterior: Any
    value: float  # The negative log marginal likelihood, in standardised units.
    weight: float  # The total weight of the rows in `value`.
    online: Online | StochasticLearner


def extend_fit(
    online: Online | StochasticLearner,
    before: Any,
    rows: RowBlock,
    optimizer: LBFGS | Stochastic,
    forgetting: float,
) -> ExtendedFit:
    """Extend a fit by more standardised rows.

    Parameters
    ----------
    online : Online or StochasticLearner
        The state of the fit.
    before : Posterior or HeteroscedasticPosterior
        Its posterior, whose variance model is kept.
    rows : RowBlock
        More rows.
    optimizer : LBFGS or Stochastic
        The optimizer of the fit.
    forgetting : float
        The factor on the weight of earlier rows.
    """
    learn = optimizer.max_iter != 0
    if isinstance(online, StochasticLearner):
        online = deepcopy(online)
        online.extend(rows, optimizer.batch_size, learn)
        kept, model = online.reservoir.rows, online.model
        outcome = model.forward(ArraySource.of(kept))
        weight = float(np.sum(kept.weight))
    else:
        more = ArraySource.of(group_rows(rows).rows, online.sums.b.size)
        # The weight of earlier rows is multiplied by `forgetting`.
        online = replace(online, sums=online.sums * forgetting + online.flow.sums(more))
        online = online.refresh() if learn else online
        model, outcome, weight = online.model, online.outcome, online.sums.n
    posterior: Any = model.posterior(outcome)
    if isinstance(before, HeteroscedasticPosterior):
        posterior = make_posterior(model, outcome, before.scale)
    return ExtendedFit(model, posterior, outcome.value, weight, online)
