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
from eigengp.fitting.bound import Approximation, Rows, fit_calibration, make_log_prior
from eigengp.fitting.local_learner import LocalLearner, Round, bisect_rows, limit_alpha
from eigengp.fitting.objectives import Evaluation, Parameters, kernel_parameters
from eigengp.fitting.settings import MOST_NEIGHBORS
from eigengp.gp.blocks import RowBlock, group_rows
from eigengp.gp.evidence import LOG_2PI
from eigengp.gp.exact import ExactGP
from eigengp.gp.latent import DenseLatent, NeighborLatent
from eigengp.gp.likelihoods import Expectation, NonGaussian
from eigengp.gp.linalg import FactorizationError, leave_one_out_moments
from eigengp.gp.variational import Factors
from eigengp.gp.vecchia import VecchiaPass
from eigengp.gp.vecchia_posterior import VecchiaPosterior

_LOCAL_ROUNDS, _FIRST_ROUNDS, _LOCAL_TOLERANCE = 8, 30, 1e-5
_GROUP_SIZE = 100
"""The number of rows of a group from which the first factors come."""
_ROUNDS, _INNER_ROUNDS, _STEP = 2, 12, 0.5
"""Rounds over all rows; steps of the factors in each, for given leave-one-out moments."""
_LEAST_VARIANCE = 1e-10
_CALIBRATION_ROWS = 3_000
"""The largest number of rows to which the calibration is fitted."""
_CHUNK = 256


@dataclass
class LocalBound:
    """The negative bound of groups of rows, each a dense GP, per row.

    Parameters
    ----------
    parameters : Parameters
        The free parameters of the kernel.
    groups : list of Rows
        The rows.
    best : list of Approximation
        The factors of each group at the best point so far.
    prior : pair of arrays
        Means and deviations of `kernel.theta`.
    n_threads : int
        The number of threads.
    """

    parameters: Parameters[ExactGP]
    groups: list[Rows]
    best: list[Approximation]
    prior: tuple[Array, Array]
    n_threads: int
    least: float = field(default=np.inf, init=False)

    def __call__(self, vector: Array) -> Evaluation:
        """Evaluate, per row."""
        kernel = self.parameters.unpack(vector).kernel
        rounds = _LOCAL_ROUNDS if np.isfinite(self.least) else _FIRST_ROUNDS

        def evaluate(pair: tuple[Rows, Approximation]) -> tuple[Any, Array]:
            rows, start = pair
            latent: Any = DenseLatent(kernel, rows.block.X)
            own = rows.improve(latent, start, rounds, _LOCAL_TOLERANCE)
            return own, latent.gradient(own.factors, own.posteriors)

        pairs = list(zip(self.groups, self.best, strict=True))
        found, slopes = zip(*map_in_threads(evaluate, pairs, self.n_threads), strict=True)
        weight = sum(float(rows.weight.sum()) for rows in self.groups)
        apart = (vector - self.prior[0]) / self.prior[1]
        loss = -sum(each.bound for each in found)
        value = (loss + 0.5 * float(apart @ apart)) / weight
        if value < self.least:
            # Only the factors are needed again.
            self.best = [Approximation(own.factors, own.offset, own.likelihood) for own in found]
            self.least = value
        gradient = np.sum(slopes, axis=0) + apart / self.prior[1]
        return Evaluation(value, gradient / weight, loss / weight)


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

    plan: ClassVar[Sequence[Round]] = (
        Round(1_000, 200, 12, 10, 4, 0.12),
        Round(3_000, 400, 10, 10, 2, 0.3),
        Round(6_000, 600, 12, 12, 1, 0.5),
    )
    """A label says less than a number, so that groups are larger than those of regression."""

    likelihood: NonGaussian = field(kw_only=True)
    offset: Array = field(kw_only=True)
    variance: float = field(kw_only=True)

    def _make_objective(self, model: ExactGP, groups: list[RowBlock]) -> Any:
        kernel = kernel_parameters(replace(model, kernel=limit_alpha(model.kernel))).parts[:1]
        own = [Rows(group, offset=self.offset) for group in groups]
        starts = [rows.begin(self.likelihood)[0] for rows in own]
        prior = make_log_prior(model.kernel, self.rows.X, self.variance)
        return LocalBound(Parameters(model, kernel), own, starts, prior, self.n_threads)

    def score_model(self, model: ExactGP, groups: list[RowBlock]) -> float:
        """Return the negative bound per row."""
        kernel = limit_alpha(model.kernel)

        def find_bound(group: RowBlock) -> float:
            latent: Any = DenseLatent(kernel, group.X)
            rows = Rows(group, offset=self.offset)
            start, _ = rows.begin(self.likelihood)
            return rows.improve(latent, start, _FIRST_ROUNDS, _LOCAL_TOLERANCE).bound

        try:
            bound = sum(map_in_threads(find_bound, groups, self.n_threads))
        except FactorizationError:
            return float("inf")
        return -float(bound) / sum(float(group.weight.sum()) for group in groups)


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

    @property
    def _offset(self) -> Array:
        assert self.rows.offset is not None
        return self.rows.offset

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
        factors = self._start()
        parts, log_partition = self._condition(source, search, _merge(factors, number))
        for _ in range(self.rounds):
            factors = self._improve(factors, self._leave_out(parts, others), number)
            parts, log_partition = self._condition(source, search, _merge(factors, number))
        cavity = self._leave_out(parts, others)
        calibration = self._calibrate(cavity, number)
        posterior = NeighborLatent(parts, self._offset, self.likelihood, calibration)
        return posterior, log_partition + self._estimate_bound(factors, cavity, number)

    def _condition(
        self, source: Any, search: Nearest, merged: tuple[list[Array], list[Array]]
    ) -> tuple[tuple[VecchiaPosterior, ...], float]:
        """Return the posterior of each latent function, and the log partition function.

        As observations `y = β/ω` with the weights `ω` and unit noise, the factors have the log
        partition function `ln p(y) + ½ Σ (ω ln 2π + β y)`.
        """
        model, parts, total = self.model, [], 0.0
        if source.is_complete:  # The exact GP, without the jitter of neighbourhoods.
            model = replace(model, jitter=0.0)
        for precision, shift in zip(*merged, strict=True):
            rows = RowBlock(source.rows.X, shift / precision, precision)
            outcome = model.forward(replace(source, rows=rows))
            parts.append(VecchiaPosterior.of(outcome, rows, search, search.count))
            total += 0.5 * float(LOG_2PI * precision.sum() + shift @ rows.y) - outcome.value
        return tuple(parts), total

    def _leave_out(
        self, parts: tuple[VecchiaPosterior, ...], others: NDArray[np.intp]
    ) -> tuple[Array, Array]:
        """Return mean and variance of latent functions at inputs left out, each (n, C)."""

        def predict(task: tuple[VecchiaPosterior, NDArray[np.intp]]) -> tuple[Array, Array]:
            part, at = task
            rows = part.rows.picked(at)
            near = part.near(rows.X, others[at])
            return leave_one_out_moments(rows, near.mean, near.linear, near.own, 1.0)

        chunks = np.split(np.arange(others.shape[0]), range(_CHUNK, others.shape[0], _CHUNK))
        tasks = [(part, at) for part in parts for at in chunks]
        mean, variance = _join(map_in_threads(predict, tasks, self.n_threads))
        shape = len(parts), others.shape[0]
        variance = np.maximum(variance - 1.0, _LEAST_VARIANCE)
        return mean.reshape(shape).T, variance.reshape(shape).T

    def _improve(
        self, factors: Factors, cavity: tuple[Array, Array], number: NDArray[np.intp]
    ) -> Factors:
        """Return the factors that suit the moments without those of the own input."""
        for _ in range(_INNER_ROUNDS):
            mean, variance = _include(factors, cavity, number)
            found = self._expect(mean, variance)
            factors = factors.towards(self.rows.make_factors(mean, found), _STEP)
        return factors

    def _calibrate(
        self, cavity: tuple[Array, Array], number: NDArray[np.intp]
    ) -> tuple[float, float]:
        """Fit the calibration to leave-one-out moments of some rows."""
        some = slice(_CALIBRATION_ROWS)
        mean, variance = (each[number[some]] for each in cavity)
        rows = self.rows.block.picked(np.arange(mean.shape[0]))
        return fit_calibration(self.likelihood, rows, mean + self._offset, variance)

    def _estimate_bound(
        self, factors: Factors, cavity: tuple[Array, Array], number: NDArray[np.intp]
    ) -> float:
        """Return `Σ s ℓ − Σ E[β f − ½ ω f²]`, the bound less the log partition function."""
        mean, variance = _include(factors, cavity, number)
        found, square = self._expect(mean, variance), mean * mean + variance
        own = np.sum(factors.shift * mean - 0.5 * factors.precision * square)
        return float(self.rows.weight @ found.value - own)

    def _expect(self, mean: Array, variance: Array) -> Expectation:
        return self.likelihood.expect(self.rows.block.y, mean + self._offset, variance)

    def _start(self) -> Factors:
        """Return the factors of dense GPs of groups of rows."""
        block, kernel = self.rows.block, self.model.features.kernel
        at = block.X * kernel.metric(block.X.shape[1])
        groups = list(bisect_rows(at, np.arange(block.n_rows), _GROUP_SIZE))

        def improve(index: NDArray[np.intp]) -> Factors:
            rows = replace(self.rows, block=block.picked(index))
            latent: Any = DenseLatent(kernel, rows.block.X)
            start = rows.begin(self.likelihood)[0]
            return rows.improve(latent, start, _FIRST_ROUNDS).factors

        found = map_in_threads(improve, groups, self.n_threads)
        order = np.argsort(np.concatenate(groups))
        return Factors(
            np.concatenate([each.precision for each in found])[order],
            np.concatenate([each.shift for each in found])[order],
        )


def _merge(factors: Factors, number: NDArray[np.intp]) -> tuple[list[Array], list[Array]]:
    """Return precisions and shifts of each latent function, summed over rows with equal inputs."""
    sums: Any = [
        [np.bincount(number, column) for column in values.T]
        for values in (factors.precision, factors.shift)
    ]
    return sums[0], sums[1]


def _include(
    factors: Factors, cavity: tuple[Array, Array], number: NDArray[np.intp]
) -> tuple[Array, Array]:
    """Return the moments at each row with the factors of its input, each of shape (N, C)."""
    mean, variance = cavity
    precision, shift = (np.stack(each, axis=1) for each in _merge(factors, number))
    both = 1.0 / (1.0 / variance + precision)
    return (both * (mean / variance + shift))[number], both[number]


def _join(chunks: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Return the moments of all chunks."""
    means, variances = zip(*chunks, strict=True)
    return np.concatenate(means), np.concatenate(variances)
