"""The variational bound of rows with a non-Gaussian likelihood, and its objective.

For given kernel and inducing points, rounds of two passes over the rows improve the Gaussian
factors by which rows act on the latent functions (see `eigengp.gp.likelihoods.base`). L-BFGS
maximises the bound at the end of these rounds; they start from the factors of the best point so
far, so that a few are enough.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy import optimize

from eigengp._typing import Array
from eigengp.backend.namespace import on_host
from eigengp.data.array_source import ArraySource
from eigengp.data.open import move_to_device
from eigengp.fitting.initialization import count_varying
from eigengp.fitting.objectives import Evaluation, Parameters
from eigengp.gp.blocks import RowBlock
from eigengp.gp.evidence import FactorEvidence
from eigengp.gp.likelihoods import Bernoulli, Expectation, NonGaussian, Softmax
from eigengp.gp.model import EigenGP
from eigengp.gp.variational import Factors, LatentModel
from eigengp.kernels import Kernel

_FIRST_ROUNDS, _ROUNDS = 30, 12
_ROUND_TOLERANCE = 1e-6
"""The gain of the bound per row at which rounds end."""
_LEAST_STEP = 2.0**-8
_LEAST_PRECISION = 1e-10
_KEPT_FEATURES = 1 << 25
"""Whitened features of so many rows times inducing points are kept between passes."""
_WORTH_MOVING, _WORTH_EXPECTING = 1 << 20, 20_000
"""Features, and latent values, from so many of which a device is faster."""
_CALIBRATION_ROWS = 3_000
_CALIBRATION_DEVIATIONS = (0.5, 1.0)
"""Standard deviations of the weak normal priors of the two logarithms of a calibration."""


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
    expectation : Expectation or None
        That of the log densities of all rows.
    bound : float
        The lower bound of the log marginal likelihood.
    """

    factors: Factors
    offset: Array
    likelihood: NonGaussian
    posteriors: tuple[FactorEvidence, ...] = ()
    mean: Array = field(default_factory=lambda: np.empty(0))
    variance: Array = field(default_factory=lambda: np.empty(0))
    expectation: Expectation | None = None
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
    earlier : tuple of FactorEvidence
        The posterior of earlier rows, if there are any.
    offset : array of shape (C,) or None
        The prior means of the latent functions; None learns them.
    device : str or None
        Where passes over many rows are computed; None is the CPU.
    """

    block: RowBlock
    log_exposure: Array | None = None
    n_threads: int | None = None
    earlier: tuple[FactorEvidence, ...] = ()
    offset: Array | None = None
    device: str | None = None

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return self.block.n_rows

    def find_device(self, size: int) -> str | None:
        """Return where passes with so many inducing points are computed; None is the CPU."""
        return self.device if self.n_rows * size >= _WORTH_MOVING else None

    @cached_property
    def _moved(self) -> RowBlock:
        """The rows on the device."""
        return self.block.map_arrays(lambda each: move_to_device(each, self.device), 0)

    @property
    def weight(self) -> Array:
        """How many times each row counts, shape (N,)."""
        weight: Array = self.block.weight
        return weight

    def make_latent(self, model: EigenGP) -> LatentModel:
        """Return the latent functions of a model at these rows."""
        M = model.inducing_points.shape[0]
        block = self.block if self.find_device(M) is None else self._moved
        source = ArraySource.of(block, M, self.n_threads)
        keep = self.n_rows * M <= _KEPT_FEATURES
        return LatentModel(model, source, keep, self.earlier)

    def pick(self, index: Array) -> Rows:
        """Return some of the rows."""
        block = self.block.picked(index)
        log_exposure = None if self.log_exposure is None else self.log_exposure[index]
        block = replace(block, X=np.asfortranarray(block.X))
        return replace(Rows(block, log_exposure, self.n_threads), device=self.device)

    def begin(self, likelihood: NonGaussian) -> tuple[Approximation, float]:
        """Return factors for the prior, and its variance to start from."""
        exposure = 1.0 if self.log_exposure is None else np.exp(self.log_exposure[:, 0])
        own, offset, variance = likelihood.start(self.block.y / exposure, self.weight * exposure)
        offset = offset if self.offset is None else self.offset
        shape = (self.block.n_rows, likelihood.n_latent)
        mean, at = np.zeros(shape), self._shift(np.zeros(shape), offset)
        found = self._expect(own, at, np.full(shape, variance))
        return Approximation(self.make_factors(mean, found), offset, own), variance

    def _update(self, own: Approximation, step: float) -> Approximation:
        """Return factors for the moments of the latent functions, and better parameters."""
        y, s, at = self.block.y, self.weight, self._shift(own.mean, own.offset)
        likelihood, offset = own.likelihood.refit(y, s, at, own.variance), own.offset
        same = likelihood is own.likelihood and own.expectation is not None
        found = own.expectation if same else self._expect(likelihood, at, own.variance)
        assert found is not None
        target = self.make_factors(own.mean, found)
        if likelihood.learns_offset and self.offset is None:
            # The factors account for the new offset to first order, `∂²ℓ/∂μ² ≈ −ω`.
            moved = step * (s @ found.by_mean) / np.maximum(target.precision.sum(axis=0), 1e-10)
            target = replace(target, shift=target.shift - target.precision * moved)
            offset = offset + moved
        return Approximation(own.factors.towards(target, step), offset, likelihood)

    def make_factors(self, mean: Array, found: Expectation) -> Factors:
        """Return the factors for the mean of the latent functions and an expectation there."""
        weight, precision = self.weight[:, None], -2.0 * found.by_variance
        precision = np.maximum(precision, _LEAST_PRECISION)
        return Factors(weight * precision, weight * (precision * mean + found.by_mean))

    def _expect(self, likelihood: NonGaussian, mean: Array, variance: Array) -> Expectation:
        """Return the expected log density of all rows."""
        if not likelihood.takes_any_library or self.n_rows * mean.shape[1] < _WORTH_EXPECTING:
            return likelihood.expect(self.block.y, mean, variance)
        own = (move_to_device(each, self.device) for each in (self.block.y, mean, variance))
        return Expectation(*map(on_host, likelihood.expect(*own)))

    def _shift(self, mean: Array, offset: Array) -> Array:
        shifted: Array = mean + offset
        return shifted if self.log_exposure is None else shifted + self.log_exposure

    def evaluate(self, latent: LatentModel, own: Approximation) -> Approximation:
        """Return the posterior given the factors, and the bound."""
        posteriors = latent.condition(own.factors)
        mean, variance = latent.predict(posteriors)
        at = self._shift(mean, own.offset)
        found = self._expect(own.likelihood, at, variance)
        bound = float(self.weight @ found.value) - latent.get_divergence(posteriors)
        return Approximation(
            own.factors, own.offset, own.likelihood, posteriors, mean, variance, found, bound
        )

    def calibrate(self, own: Approximation) -> tuple[float, float]:
        """Return factors of mean and standard deviation that suit leave-one-out predictions.

        Without its factor a row has the latent precision `1/v − ω` and mean `v' (μ/v − β)`.
        """
        floor = 1e-3 / own.variance
        variance = 1.0 / np.maximum(1.0 / own.variance - own.factors.precision, floor)
        mean = variance * (own.mean / own.variance - own.factors.shift) + own.offset
        some = np.arange(self.block.n_rows)[:: max(1, self.block.n_rows // _CALIBRATION_ROWS)]
        return fit_calibration(own.likelihood, self.block.picked(some), mean[some], variance[some])

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


def fit_calibration(
    likelihood: NonGaussian, rows: RowBlock, mean: Array, variance: Array
) -> tuple[float, float]:
    """Return factors of mean and standard deviation of the latent functions at rows not used.

    They minimise the log loss plus weak penalties on their logarithms. The kernel was learned from
    the same rows, so that this loss is too small where D inputs, each with its lengthscale, are
    many for the rows: it counts as that of CN/(D + 1) rows, or N.
    """
    assert isinstance(likelihood, Bernoulli | Softmax)
    share = min(1.0, likelihood.n_latent / (1.0 + rows.X.shape[1]))
    at = np.arange(rows.n_rows), rows.y.astype(int)

    def loss(logs: Array) -> float:
        a, b = np.exp(logs)
        p = likelihood.predict_classes(a * mean, b * b * variance)
        surprise = -np.log(np.maximum(p[at], 1e-12))
        penalty = 0.5 * np.sum((logs / _CALIBRATION_DEVIATIONS) ** 2)
        return float(share * (rows.weight @ surprise) + penalty)

    found = optimize.minimize(
        loss, np.zeros(2), method="Nelder-Mead", options={"maxiter": 60, "xatol": 1e-2}
    )
    a, b = np.exp(np.clip(found.x, -2.0, 2.0)).tolist()
    return a, b


def make_log_prior(kernel: Kernel, X: Array, variance: float) -> tuple[Array, Array]:
    """Return means and deviations of the weak normal priors of `kernel.theta`.

    Those of variances are about `variance`, and those of lengthscales grow with the inputs.
    """
    half, log_variance = 0.5 * np.log(count_varying(X, kernel.groups)), np.log(variance)
    means = [
        p.log_prior[0] + half * p.restarts + log_variance * p.variance_power
        for p in kernel.parameters
    ]
    return np.array(means), np.array([p.log_prior[1] for p in kernel.parameters])


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
    least: float = field(default=np.inf, init=False)
    """The smallest value so far, per row."""

    def __post_init__(self) -> None:
        model = self.parameters.template
        self._mean, self._deviation = make_log_prior(model.kernel, self.rows.block.X, self.variance)

    def __call__(self, vector: Array) -> Evaluation:
        """Evaluate, per row."""
        model, weight = self.parameters.unpack(vector), float(self.rows.weight.sum())
        latent, first = self.rows.make_latent(model), not np.isfinite(self.least)
        found = self.rows.improve(latent, self.best, _FIRST_ROUNDS if first else _ROUNDS)
        gradient = self.parameters.pack_gradient(latent.gradient(found.factors, found.posteriors))
        apart = (model.kernel.theta - self._mean) / self._deviation
        value = -found.bound + 0.5 * float(apart @ apart)
        gradient[: apart.size] += apart / self._deviation
        if value / weight < self.least:
            self.best, self.least = found, value / weight
        return Evaluation(value / weight, gradient / weight, -found.bound / weight)
