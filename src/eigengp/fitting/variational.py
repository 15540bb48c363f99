"""Learning with non-Gaussian likelihoods: a variational bound in place of the evidence.

For given kernel and inducing points, rounds of two passes over the rows improve the Gaussian
factors by which rows act on the latent functions (see `eigengp.gp.likelihoods.base`). L-BFGS
maximises the bound at the end of these rounds; they start from the factors of the best point so
far, so that a few are enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from eigengp._typing import Array
from eigengp.backend.threads import speed_up_passes
from eigengp.data.array_source import ArraySource
from eigengp.data.holdout import sample_rows
from eigengp.data.standardize import Extent
from eigengp.fitting.initialization import InducingPointInit, count_varying
from eigengp.fitting.model_selection import Decision
from eigengp.fitting.objectives import (
    Evaluation,
    Parameters,
    eigengp_parameters,
    learn_parameters,
)
from eigengp.fitting.plan import RELATIVE_JITTER, count_distinct
from eigengp.fitting.run import FitResult, Run
from eigengp.fitting.settings import LBFGS
from eigengp.gp.blocks import RowBlock
from eigengp.gp.evidence import FactorEvidence
from eigengp.gp.likelihoods import NonGaussian
from eigengp.gp.linalg import FactorizationError
from eigengp.gp.model import EigenGP, Jitter
from eigengp.gp.variational import Factors, LatentModel, LatentPosterior, compute_divergence
from eigengp.kernels import KERNELS, Kernel, Matern32, SquaredExponential, Stationary
from eigengp.kernels.base import get_lengthscale_range

_FIRST_ROUNDS, _ROUNDS, _LAST_ROUNDS = 30, 12, 60
_ROUND_TOLERANCE = 1e-7
"""The gain of the bound per row at which rounds end."""
_LEAST_STEP = 2.0**-8
_LEAST_PRECISION = 1e-10
_KEPT_FEATURES = 1 << 25
"""Whitened features of so many rows times inducing points are kept between passes."""
_COMPARED_ROWS, _COMPARED_POINTS, _COMPARED_ITERATIONS = 1_000, 100, 20
"""Rows, inducing points and iterations by which kernels are compared."""
_FIRST_ROWS, _GROWTH, _SUBSET_ITERATIONS = 3_000, 5, 30
_MOST_ROWS = 200_000
"""With more rows, the last stage takes few iterations."""


@dataclass(frozen=True)
class Approximation:
    """The Gaussian factors of all rows, and the posterior that they give.

    Parameters
    ----------
    factors : Factors
        Those of all rows.
    offset : array of shape (C,)
        The prior means of the latent functions.
    likelihood : NonGaussian
        With its current parameters.
    posteriors : tuple of FactorEvidence
        One for each latent function.
    mean, variance : arrays of shape (N, C)
        Of the latent functions at all rows, without the offset.
    bound : float
        The lower bound of the log marginal likelihood.
    """

    factors: Factors
    offset: Array
    likelihood: NonGaussian
    posteriors: tuple[FactorEvidence, ...] = ()
    mean: Array = field(default_factory=lambda: np.empty(0))
    variance: Array = field(default_factory=lambda: np.empty(0))
    bound: float = -np.inf


@dataclass(frozen=True)
class Rows:
    """The rows of a fit, in memory.

    Parameters
    ----------
    block : RowBlock
        Standardised inputs, targets and weights.
    log_exposure : array of shape (N, 1) or None
        The logarithms of the exposures, where there are any.
    n_threads : int or None
        See `ArraySource`.
    """

    block: RowBlock
    log_exposure: Array | None = None
    n_threads: int | None = None

    @property
    def weight(self) -> Array:
        """How many times each row counts, shape (N,)."""
        weight: Array = self.block.weight
        return weight

    def make_latent(self, model: EigenGP) -> LatentModel:
        """Return the latent functions of a model at these rows."""
        M = model.inducing_points.shape[0]
        source = ArraySource.of(self.block, M, self.n_threads)
        return LatentModel(model, source, keep=self.block.n_rows * M <= _KEPT_FEATURES)

    def pick(self, index: Array) -> Rows:
        """Return some of the rows."""
        block = self.block.picked(index)
        log_exposure = None if self.log_exposure is None else self.log_exposure[index]
        return Rows(replace(block, X=np.asfortranarray(block.X)), log_exposure, self.n_threads)

    def begin(self, likelihood: NonGaussian) -> tuple[Approximation, float]:
        """Return factors for the prior, and its variance to start from."""
        exposure = 1.0 if self.log_exposure is None else np.exp(self.log_exposure[:, 0])
        own, offset, variance = likelihood.start(self.block.y / exposure, self.weight * exposure)
        shape = (self.block.n_rows, likelihood.n_latent)
        first = Approximation(
            Factors(np.zeros(shape), np.zeros(shape)),
            offset,
            own,
            mean=np.zeros(shape),
            variance=np.full(shape, variance),
        )
        return replace(first, factors=self._make_factors(first, own, offset)), variance

    def _update(self, own: Approximation, step: float) -> Approximation:
        """Return factors for the moments of the latent functions, and better parameters."""
        y, s, at = self.block.y, self.weight, self._shift(own.mean, own.offset)
        likelihood, offset = own.likelihood.refit(y, s, at, own.variance), own.offset
        if likelihood.learns_offset:
            found = likelihood.expect(y, at, own.variance)
            curvature = -2.0 * (s @ found.by_variance)
            offset = offset + step * (s @ found.by_mean) / np.maximum(curvature, 1e-10)
        target = self._make_factors(own, likelihood, offset)
        return Approximation(own.factors.towards(target, step), offset, likelihood)

    def _make_factors(
        self, own: Approximation, likelihood: NonGaussian, offset: Array
    ) -> Factors:
        """Return the factors for the moments of the latent functions."""
        at, weight = self._shift(own.mean, offset), self.weight[:, None]
        found = likelihood.expect(self.block.y, at, own.variance)
        precision = np.maximum(-2.0 * found.by_variance, _LEAST_PRECISION)
        return Factors(weight * precision, weight * (precision * own.mean + found.by_mean))

    def _shift(self, mean: Array, offset: Array) -> Array:
        shifted: Array = mean + offset
        return shifted if self.log_exposure is None else shifted + self.log_exposure

    def evaluate(self, latent: LatentModel, own: Approximation) -> Approximation:
        """Return the posterior given the factors, and the bound."""
        posteriors = latent.condition(own.factors)
        mean, variance = latent.predict(posteriors)
        at = self._shift(mean, own.offset)
        value = own.likelihood.expect(self.block.y, at, variance).value
        bound = float(self.weight @ value) - compute_divergence(posteriors)
        return replace(own, posteriors=posteriors, mean=mean, variance=variance, bound=bound)

    def improve(
        self, latent: LatentModel, start: Approximation, rounds: int, tol: float = _ROUND_TOLERANCE
    ) -> Approximation:
        """Improve the factors until the bound rises no more; it never falls.

        A step that would lower the bound is halved.
        """
        best, step = self.evaluate(latent, start), 1.0
        slack = 1e-10 * self.weight.sum()
        for _ in range(rounds):
            trial = self.evaluate(latent, self._update(best, step))
            gained = trial.bound - best.bound
            if gained > -slack:
                best, step = (trial if gained > 0.0 else best), min(1.0, 2.0 * step)
                if gained < tol * self.weight.sum():
                    break
            elif (step := 0.5 * step) < _LEAST_STEP:
                break
        return best


@dataclass
class BoundObjective:
    """The negative bound per row, as a function of kernel and inducing points.

    Kernel parameters have the weak priors that they declare; that of a variance is about the
    variance to start from.

    Parameters
    ----------
    parameters : Parameters
        The free parameters.
    rows : Rows
        The rows.
    best : Approximation
        The factors of the best point so far.
    variance : float
        The prior variance to start from.
    """

    parameters: Parameters[EigenGP]
    rows: Rows
    best: Approximation
    variance: float
    _least: float = np.inf

    def __post_init__(self) -> None:
        model = self.parameters.template
        D = count_varying(self.rows.block.X)
        prior = [
            (
                p.log_prior[0]
                + 0.5 * np.log(D) * p.restarts
                + np.log(self.variance) * p.variance_power,
                p.log_prior[1],
            )
            for p in model.kernel.parameters
        ]
        self._mean, self._deviation = np.array(prior).T

    def __call__(self, vector: Array) -> Evaluation:
        """Evaluate, per row."""
        model, weight = self.parameters.unpack(vector), float(self.rows.weight.sum())
        latent, first = self.rows.make_latent(model), not np.isfinite(self._least)
        found = self.rows.improve(latent, self.best, _FIRST_ROUNDS if first else _ROUNDS)
        gradient = self.parameters.pack_gradient(latent.gradient(found.factors, found.posteriors))
        apart = (model.kernel.theta - self._mean) / self._deviation
        value = -found.bound + 0.5 * float(apart @ apart)
        gradient[: apart.size] += apart / self._deviation
        if value < self._least:
            self.best, self._least = found, value
        return Evaluation(value / weight, gradient / weight, -found.bound / weight)


@dataclass(frozen=True)
class VariationalFit:
    """The steps of a fit with a non-Gaussian likelihood.

    Parameters
    ----------
    run : Run
        Its settings, random numbers and progress.
    rows : Rows
        All rows.
    likelihood : NonGaussian
        Where its parameters start.
    """

    run: Run
    rows: Rows
    likelihood: NonGaussian

    def choose_kernel(self, candidates: Sequence[Kernel]) -> Kernel:
        """Return the kernel with the largest bound on a subset of the rows."""
        count = min(self.rows.block.n_rows, _COMPARED_ROWS)
        rows = self._draw(count)
        found: dict[str, Any] = {}
        for kernel in candidates:
            name = type(kernel).__name__ if isinstance(kernel, Stationary) else repr(kernel)
            try:
                model, objective = self._learn(
                    rows, kernel, min(count, _COMPARED_POINTS), name, _COMPARED_ITERATIONS
                )
            except FactorizationError:
                continue
            found[name] = objective._least / float(rows.weight.sum()), model.kernel
        if not found:
            raise FactorizationError("No kernel could be evaluated; check the data.")
        scores = {name: each[0] for name, each in found.items()}
        best = min(scores, key=lambda name: scores[name])
        if len(scores) > 1:
            reason = f"lowest negative bound per row of {count} rows"
            self.run.decisions.append(Decision("kernel", best, reason, scores))
        return found[best][1]

    def learn(self, kernel: Kernel, size: int, max_iter: int) -> tuple[EigenGP, Approximation]:
        """Learn on growing subsets of the rows, then on all of them."""
        n, count, model = self.rows.block.n_rows, _FIRST_ROWS, None
        points: Array | None = None
        while count <= n // 3 and max_iter:
            small = min(size, max(_COMPARED_POINTS, count // 10))
            model, _ = self._learn(
                self._draw(count), kernel, small, f"{count} rows", min(max_iter, _SUBSET_ITERATIONS)
            )
            kernel, points = model.kernel, model.inducing_points if small == size else None
            count *= _GROWTH
        many = n > _MOST_ROWS
        model, objective = self._learn(
            self.rows, kernel, size, "learning", min(max_iter, 5) if many else max_iter, points
        )
        latent = self.rows.make_latent(model)
        return model, self.rows.improve(latent, objective.best, _LAST_ROUNDS)

    def _draw(self, count: int) -> Rows:
        n = self.rows.block.n_rows
        if count >= n:
            return self.rows
        return self.rows.pick(np.sort(self.run.rng.choice(n, count, replace=False)))

    def _learn(
        self,
        rows: Rows,
        kernel: Kernel,
        size: int,
        stage: str,
        max_iter: int,
        points: Array | None = None,
    ) -> tuple[EigenGP, BoundObjective]:
        """Learn kernel and inducing points from some rows."""
        X, run = rows.block.X, self.run
        distinct = np.unique(X, axis=0)
        every = size >= distinct.shape[0]
        if points is None:
            own = run.settings.inducing_points
            if not isinstance(own, str):
                own = run.dataset.scaling.transform_inputs(own)
            init = InducingPointInit(own)
            points = distinct if every else init.place(rows.block, size, kernel, run.rng)
        M = points.shape[0]
        model = EigenGP(kernel, points, 1.0, M, jitter=Jitter(RELATIVE_JITTER))
        start, variance = rows.begin(self.likelihood)
        parameters = eigengp_parameters(model, Extent(X.min(axis=0), X.max(axis=0)))
        parts = parameters.parts[:1] if every else parameters.parts[:2]
        objective = BoundObjective(Parameters(model, parts), rows, start, variance)
        if max_iter == 0:
            objective(objective.parameters.start)
            return model, objective
        found = learn_parameters(objective, max_iter, 1e-6, stage, run.monitor)
        run.n_iter += found.n_iter
        return objective.parameters.unpack(found.vector), objective
