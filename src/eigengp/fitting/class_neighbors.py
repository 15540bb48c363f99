"""Classes with the nearest-neighbour (Vecchia) residual.

Kernels are learned from local GPs, as those of regression are: nearby rows are grouped, each group
has the variational bound of a dense GP, and all share one kernel. The Gaussian factors by which
rows act on the latent functions then enter the nearest-neighbour posterior as observations, each
with its noise, and a few rounds improve them there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from eigengp._typing import Array
from eigengp.backend.threads import map_in_threads
from eigengp.data.neighbors import Nearest, NeighborSource
from eigengp.fitting.bound import (
    CALIBRATION_ROWS,
    BoundObjective,
    Groups,
    Rows,
    fit_calibration,
    make_factors,
    make_log_prior,
    merge_factors,
)
from eigengp.fitting.local_learner import LocalLearner, Round, bisect_rows, limit_alpha
from eigengp.fitting.objectives import Parameters, kernel_parameters
from eigengp.fitting.settings import MOST_NEIGHBORS
from eigengp.gp.blocks import RowBlock, group_rows
from eigengp.gp.evidence import LOG_2PI
from eigengp.gp.exact import ExactGP
from eigengp.gp.latent import NeighborLatent
from eigengp.gp.likelihoods import Expectation, NonGaussian
from eigengp.gp.linalg import FactorizationError
from eigengp.gp.variational import Factors
from eigengp.gp.vecchia import VecchiaPass
from eigengp.gp.vecchia_posterior import VecchiaPosterior

_LOCAL_ROUNDS, _LOCAL_TOLERANCE = 8, 1e-5
_GROUP_SIZE = 100  # The number of rows of a group from which the first factors come.
# Rounds over all rows; steps of the factors in each, for given leave-one-out moments.
_ROUNDS, _INNER_ROUNDS, _STEP = 2, 12, 0.5
_LEAST_VARIANCE = 1e-10
_CHUNK = 256


@dataclass
class BoundLearner(LocalLearner):
    """Maximises the bound of local GPs.

    Parameters
    ----------
    likelihood : NonGaussian
        What targets are, given the latent functions.
    offset : array of shape (C,)
        The prior means of the latent functions.
    variance : float
        The prior variance to start from.
    """

    # A label says less than a number, so that groups are larger than those of regression.
    plan: ClassVar[Sequence[Round]] = (
        Round(1_000, 200, 12, 10, 4, 0.12),
        Round(3_000, 400, 10, 10, 1, 0.3),
        Round(6_000, 600, 12, 12, 1, 0.5),
    )
    shortens = False

    likelihood: NonGaussian = field(kw_only=True)
    offset: Array = field(kw_only=True)
    variance: float = field(kw_only=True)
    _known: tuple[list[RowBlock], Groups] | None = field(default=None, init=False)

    def _start(self, groups: list[RowBlock]) -> Groups:
        """Return groups with the factors that the last kernel for the same groups has found."""
        if self._known is None or self._known[0] is not groups:
            own = Groups.of(groups, self.likelihood, self.offset, self.n_threads)
            self._known = groups, own
        return self._known[1]

    def _make_objective(self, model: ExactGP, groups: list[RowBlock]) -> Any:
        kernel = kernel_parameters(replace(model, kernel=limit_alpha(model.kernel))).parts[:1]
        prior = make_log_prior(model.kernel, self.rows.X, self.variance)
        free = Parameters(model, kernel)
        return BoundObjective(free, self._start(groups), prior, _LOCAL_ROUNDS, _LOCAL_TOLERANCE)

    def score_model(self, model: ExactGP, groups: list[RowBlock]) -> float:
        """Return the negative bound per row."""
        model = replace(model, kernel=limit_alpha(model.kernel))
        try:
            bounds = self._start(groups).improve(
                model, lambda _, found: found.bound, tol=_LOCAL_TOLERANCE
            )
        except FactorizationError:
            return float("inf")
        return -float(sum(bounds)) / sum(float(group.weight.sum()) for group in groups)


@dataclass(frozen=True)
class NeighborRounds:
    """Improves the factors of rows in the nearest-neighbour posterior.

    Parameters
    ----------
    model : VecchiaPass
        Kernel and inducing points, with unit noise.
    rows : Rows
        Rows in random order, with the prior means of the latent functions.
    likelihood : NonGaussian
        What targets are, given the latent functions.
    n_neighbors : int
        The number of neighbours of a prediction.
    n_threads : int
        The number of threads.
    rounds : int
        How often the factors are improved.
    """

    model: VecchiaPass
    rows: Rows
    likelihood: NonGaussian
    n_neighbors: int
    n_threads: int
    rounds: int = _ROUNDS

    def find_posterior(self) -> tuple[NeighborLatent, float]:
        """Return the posterior given all rows, and an estimate of its bound.

        Rows with equal inputs are one row with the product of their factors. In a round, the
        moments of the latent functions without the factors of an input say what these should be.
        """
        groups, count = group_rows(self.rows.block), min(self.n_neighbors, MOST_NEIGHBORS)
        X, number, asked = groups.rows.X, groups.number, self.n_neighbors
        if asked >= X.shape[0] - 1:
            asked = count = X.shape[0]
        metric = self.model.features.kernel.metric(X.shape[1])
        source = NeighborSource.of(groups.rows, metric, count, self.n_threads)
        search = Nearest.of(X, metric, asked)
        others = search.find_others(X, np.arange(X.shape[0]))
        weight = self.rows.block.weight
        factors = self._start()
        parts, log_partition = self._condition(source, search, merge_factors(factors, number))
        for _ in range(self.rounds):
            cavity = self._leave_out(parts, others[:, :count])
            for _ in range(_INNER_ROUNDS):
                mean, _, found = self._expect(factors, cavity, number)
                factors = factors.towards(make_factors(weight, mean, found), _STEP)
            parts, log_partition = self._condition(source, search, merge_factors(factors, number))
        some, offset = number[:CALIBRATION_ROWS], np.asarray(self.rows.offset)
        mean, variance = self._leave_out(parts, others[: some.max() + 1])
        own = self.rows.block.picked(np.arange(some.size)), mean[some] + offset
        calibration = fit_calibration(self.likelihood, *own, variance[some]).factors
        posterior = NeighborLatent(parts, offset, self.likelihood, calibration)
        # For factors that suit the moments, small changes of the moments do not change the bound.
        return posterior, log_partition + self._estimate_bound(factors, cavity, number)

    def _condition(
        self, source: Any, search: Nearest, merged: Factors
    ) -> tuple[tuple[VecchiaPosterior, ...], float]:
        """Return the posterior of each latent function, and the log partition function.

        As observations `y = β/ω` with the weights `ω` and unit noise, the factors have the log
        partition function `ln p(y) + ½ Σ (ω ln 2π + β y)`.
        """
        model, parts, total = self.model, [], 0.0
        if source.is_complete:  # The exact GP, without the jitter of neighbourhoods.
            model = replace(model, jitter=0.0)
        for precision, shift in zip(merged.precision.T, merged.shift.T, strict=True):
            rows = RowBlock(source.rows.X, shift / precision, precision)
            outcome = model.forward(replace(source, rows=rows))
            parts.append(VecchiaPosterior.of(outcome, rows, search, search.count))
            total += 0.5 * float(LOG_2PI * precision.sum() + shift @ rows.y) - outcome.value
        return tuple(parts), total

    def _leave_out(
        self, parts: tuple[VecchiaPosterior, ...], others: NDArray[np.intp]
    ) -> tuple[Array, Array]:
        """Return mean and variance of latent functions at inputs left out, each (n, C)."""

        def predict(task: tuple[VecchiaPosterior, NDArray[np.intp]]) -> tuple[Array, ...]:
            part, at = task
            return part.leave_one_out(part.rows.picked(at), others[at])[:2]

        chunks = np.split(np.arange(others.shape[0]), range(_CHUNK, others.shape[0], _CHUNK))
        tasks = [(part, at) for part in parts for at in chunks]
        found = map_in_threads(predict, tasks, self.n_threads)
        mean, variance = (np.concatenate(each) for each in zip(*found, strict=True))
        shape = len(parts), others.shape[0]
        variance = np.maximum(variance - 1.0, _LEAST_VARIANCE)
        return mean.reshape(shape).T, variance.reshape(shape).T

    def _expect(
        self, factors: Factors, cavity: tuple[Array, Array], number: NDArray[np.intp]
    ) -> tuple[Array, Array, Expectation]:
        """Return the moments at all rows with the factors of their inputs, and expectations."""
        (mean, variance), own = cavity, merge_factors(factors, number)
        both = 1.0 / (1.0 / variance + own.precision)
        mean, variance = (both * (mean / variance + own.shift))[number], both[number]
        at = mean + np.asarray(self.rows.offset)
        return mean, variance, self.likelihood.expect(self.rows.block.y, at, variance)

    def _estimate_bound(
        self, factors: Factors, cavity: tuple[Array, Array], number: NDArray[np.intp]
    ) -> float:
        """Return `Σ s ℓ − Σ E[β f − ½ ω f²]`, the bound less the log partition function."""
        mean, variance, found = self._expect(factors, cavity, number)
        square = mean * mean + variance
        own = np.sum(factors.shift * mean - 0.5 * factors.precision * square)
        return float(self.rows.block.weight @ found.value - own)

    def _start(self) -> Factors:
        """Return the factors of dense GPs of groups of rows."""
        block, kernel = self.rows.block, self.model.features.kernel
        at = block.X * kernel.metric(block.X.shape[1])
        index = list(bisect_rows(at, np.arange(block.n_rows), _GROUP_SIZE))
        blocks = (block.picked(each) for each in index)
        groups = Groups.of(blocks, self.likelihood, self.rows.offset, self.n_threads)
        found = groups.improve(ExactGP(kernel, 1.0), lambda _, own: own.factors)
        order = np.argsort(np.concatenate(index))
        return Factors(*(np.concatenate(each)[order] for each in zip(*found, strict=True)))
