"""The variational bound of rows with a non-Gaussian likelihood, and its objective.

For given kernel and inducing points, rounds of two passes over the rows improve the Gaussian
factors by which rows act on the latent functions (see `eigengp.gp.likelihoods.base`). L-BFGS
maximises the bound at the end of these rounds; they start from the factors of the best point so
far, so that a few are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from scipy import optimize

from eigengp._typing import Array
from eigengp.backend.namespace import move_to_device, on_host
from eigengp.backend.threads import map_in_threads
from eigengp.data.array_source import ArraySource
from eigengp.fitting.initialization import count_varying
from eigengp.fitting.objectives import Evaluation, OutOfTimeError, Parameters
from eigengp.fitting.progress import Clock
from eigengp.gp.blocks import RowBlock
from eigengp.gp.evidence import FactorEvidence
from eigengp.gp.exact import ExactGP
from eigengp.gp.latent import DenseLatent
from eigengp.gp.likelihoods import Bernoulli, Expectation, NonGaussian, Softmax
from eigengp.gp.model import EigenGP
from eigengp.gp.variational import Factors, LatentModel
from eigengp.kernels import Kernel

T = TypeVar("T")

_FIRST_ROUNDS, _ROUNDS = 30, 12
_ROUND_TOLERANCE = 1e-6
"""The gain of the bound per row at which rounds end."""
_LEAST_STEP = 2.0**-8
_CHUNK = 1 << 16
"""The number of rows whose expected log density is made at once."""
_LEAST_PRECISION = 1e-10
_KEPT_FEATURES = 1 << 25
"""Whitened features of so many rows times inducing points are kept between passes."""
_WORTH_MOVING, _WORTH_EXPECTING = 1 << 20, 20_000
"""Features, and latent values, from so many of which a device is faster."""
CALIBRATION_ROWS = 3_000
"""The largest number of rows to which a calibration is fitted."""
_CALIBRATION_POINTS = 128
"""The number of points of an average over several latent functions while calibrating."""
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
    target : Factors or None
        Those that the moments of the latent functions give.
    slope : array of shape (C,)
        The derivative of the expected log density of all rows by the offset.
    bound : float
        The lower bound of the log marginal likelihood.
    """

    factors: Factors
    offset: Array
    likelihood: NonGaussian
    posteriors: tuple[FactorEvidence, ...] = ()
    mean: Array = field(default_factory=lambda: np.empty(0))
    variance: Array = field(default_factory=lambda: np.empty(0))
    target: Factors | None = None
    slope: Array = field(default_factory=lambda: np.empty(0))
    bound: float = -np.inf

    def reduced(self) -> Approximation:
        """Return the approximation without what an evaluation makes of all rows again."""
        nothing = np.empty(0)
        return replace(self, mean=nothing, variance=nothing, target=None)


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
    clock : Clock
        Ends rounds early.
    """

    block: RowBlock
    log_exposure: Array | None = None
    n_threads: int | None = None
    earlier: tuple[FactorEvidence, ...] = ()
    offset: Array | None = None
    device: str | None = None
    clock: Clock = field(default_factory=Clock)

    def find_device(self, size: int) -> str | None:
        """Return where passes with so many inducing points are computed; None is the CPU."""
        return self.device if self.block.n_rows * size >= _WORTH_MOVING else None

    @cached_property
    def _moved(self) -> RowBlock:
        """The rows on the device."""
        return self.block.map_arrays(lambda each: move_to_device(each, self.device), 0)

    def make_latent(self, model: EigenGP | ExactGP) -> Any:
        """Return the latent functions of a model at these rows: `LatentModel` or `DenseLatent`."""
        if isinstance(model, ExactGP):
            return DenseLatent(model.kernel, self.block.X)
        M = model.inducing_points.shape[0]
        block = self.block if self.find_device(M) is None else self._moved
        source = ArraySource.of(block, M, self.n_threads)
        keep = self.block.n_rows * M <= _KEPT_FEATURES
        return LatentModel(model, source, keep, self.earlier)

    def pick(self, index: Array) -> Rows:
        """Return some of the rows."""
        block = self.block.picked(index)
        log_exposure = None if self.log_exposure is None else self.log_exposure[index]
        block = replace(block, X=np.asfortranarray(block.X))
        return replace(self, block=block, log_exposure=log_exposure)

    def rescaled(self, unit: Any) -> Rows:
        """Return the rows with inputs divided by `unit`."""
        return replace(self, block=replace(self.block, X=self.block.X / unit))

    def carry(self, latent: LatentModel, own: Approximation) -> Approximation:
        """Return factors for the posterior that an approximation of other rows gives these."""
        moments = latent.predict(own.posteriors)
        target = self._aim(own.likelihood, own.offset, *moments)[1]
        return Approximation(target, own.offset, own.likelihood)

    def begin(self, likelihood: NonGaussian) -> tuple[Approximation, float]:
        """Return factors for the prior, and its variance to start from."""
        exposure = 1.0 if self.log_exposure is None else np.exp(self.log_exposure[:, 0])
        own, offset, variance = likelihood.start(
            self.block.y / exposure, self.block.weight * exposure
        )
        offset = offset if self.offset is None else self.offset
        shape = (self.block.n_rows, likelihood.n_latent)
        target = self._aim(own, offset, np.zeros(shape), np.full(shape, variance))[1]
        return Approximation(target, offset, own), variance

    def _update(self, own: Approximation, step: float) -> Approximation:
        """Return factors for the moments of the latent functions, and better parameters."""
        likelihood, offset, target, slope = own.likelihood, own.offset, own.target, own.slope
        assert target is not None
        at = self._shift(own.mean, offset)
        refit = likelihood.refit(self.block.y, self.block.weight, at, own.variance)
        if refit is not likelihood:
            likelihood = refit
            _, target, slope = self._aim(likelihood, offset, own.mean, own.variance)
        if likelihood.learns_offset and self.offset is None:
            # The factors account for the new offset to first order, `∂²ℓ/∂μ² ≈ −ω`.
            moved = step * slope / np.maximum(target.precision.sum(axis=0), 1e-10)
            target = target._replace(shift=target.shift - target.precision * moved)
            offset = offset + moved
        return Approximation(own.factors.towards(target, step), offset, likelihood)

    def _aim(
        self, likelihood: NonGaussian, offset: Array, mean: Array, variance: Array
    ) -> tuple[float, Factors, Array]:
        """Return the expected log density of all rows, the factors, and the slope by the offset.

        What a row needs on the way exists for a part of the rows at a time.
        """
        target, s, value = Factors(np.empty_like(mean), np.empty_like(mean)), self.block.weight, 0.0
        slope = np.zeros(mean.shape[1])
        at = self._shift(mean, offset)
        for start in range(0, mean.shape[0], _CHUNK):
            own = slice(start, start + _CHUNK)
            found = self._expect(likelihood, own, at[own], variance[own])
            made = make_factors(s[own], mean[own], found)
            target.precision[own], target.shift[own] = made
            value += float(s[own] @ found.value)
            slope += s[own] @ found.by_mean
        return value, target, slope

    def _expect(
        self, likelihood: NonGaussian, rows: slice, mean: Array, variance: Array
    ) -> Expectation:
        """Return the expected log density of some rows."""
        y = self.block.y[rows]
        if not likelihood.takes_any_library or mean.size < _WORTH_EXPECTING:
            return likelihood.expect(y, mean, variance)
        own = (move_to_device(each, self.device) for each in (y, mean, variance))
        return Expectation(*map(on_host, likelihood.expect(*own)))

    def _shift(self, mean: Array, offset: Array) -> Array:
        shifted: Array = mean + offset
        return shifted if self.log_exposure is None else shifted + self.log_exposure

    def evaluate(self, latent: LatentModel, own: Approximation) -> Approximation:
        """Return the posterior given the factors, and the bound."""
        posteriors = latent.condition(own.factors)
        mean, variance = latent.predict(posteriors)
        value, target, slope = self._aim(own.likelihood, own.offset, mean, variance)
        return Approximation(
            own.factors,
            own.offset,
            own.likelihood,
            posteriors,
            mean,
            variance,
            target,
            slope,
            bound=value - latent.get_divergence(posteriors),
        )

    def calibrate(self, own: Approximation, model: EigenGP) -> tuple[float, float]:
        """Return factors of mean and standard deviation that suit leave-one-out predictions.

        Without its factor a row has the latent precision `1/v − ω` and mean `v' (μ/v − β)`. Learned
        inducing points are parameters of all inputs, as lengthscales are.
        """
        floor = 1e-3 / own.variance
        variance = 1.0 / np.maximum(1.0 / own.variance - own.factors.precision, floor)
        mean = variance * (own.mean / own.variance - own.factors.shift) + own.offset
        some = np.arange(self.block.n_rows)[:: max(1, self.block.n_rows // CALIBRATION_ROWS)]
        every = model.inducing_points.shape[0] == self.block.n_rows
        size = model.kernel.theta.size if every else np.inf
        rows = self.block.picked(some)
        return fit_calibration(own.likelihood, rows, mean[some], variance[some], size)

    def improve(
        self, latent: LatentModel, start: Approximation, rounds: int, tol: float = _ROUND_TOLERANCE
    ) -> Approximation:
        """Improve the factors until the bound rises no more, or time is over; it never falls.

        A step that would lower the bound is halved.
        """
        best, step = self.evaluate(latent, start), 1.0
        slack = 1e-10 * self.block.weight.sum()
        for _ in range(rounds):
            if self.clock.is_over():
                break
            trial = self.evaluate(latent, self._update(best, step))
            gained = trial.bound - best.bound
            if gained > -slack:
                best, step = (trial if gained > 0.0 else best), min(1.0, 2.0 * step)
                if gained < tol * self.block.weight.sum():
                    break
            elif (step := 0.5 * step) < _LEAST_STEP:
                break
        return best


def make_factors(weight: Array, mean: Array, found: Expectation) -> Factors:
    """Return the factors of rows; see `eigengp.gp.likelihoods.base`."""
    s, precision = weight[:, None], np.maximum(-2.0 * found.by_variance, _LEAST_PRECISION)
    return Factors(s * precision, s * (precision * mean + found.by_mean))


def fit_calibration(
    likelihood: NonGaussian, rows: RowBlock, mean: Array, variance: Array, size: float = np.inf
) -> tuple[float, float]:
    """Return factors of mean and standard deviation of the latent functions at rows not used.

    They minimise the log loss plus weak penalties on their logarithms. The kernel was learned from
    the same rows, so that this loss is too small where its parameters are many for the rows: with P
    of them, of which D + 1 count at most, it counts as that of CN/P rows, or N.
    """
    assert isinstance(likelihood, Bernoulli | Softmax)
    share = min(1.0, likelihood.n_latent / min(size, 1.0 + rows.X.shape[1]))
    at = np.arange(rows.n_rows), rows.y.astype(int)
    coarse = {"n_points": _CALIBRATION_POINTS} if isinstance(likelihood, Softmax) else {}

    def loss(logs: Array) -> float:
        a, b = np.exp(logs)
        p = likelihood.predict_classes(a * mean, b * b * variance, **coarse)
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
class Groups:
    """Groups of rows that are independent of each other, and share a kernel.

    Parameters
    ----------
    rows : list of Rows
        The rows of each group.
    best : list of Approximation
        The factors from which rounds start.
    n_threads : int
        The number of threads for groups.
    """

    rows: list[Rows]
    best: list[Approximation]
    n_threads: int = 1

    @classmethod
    def of(
        cls, blocks: Iterable[RowBlock], likelihood: NonGaussian, offset: Any, n_threads: int
    ) -> Groups:
        """Return groups of rows that start from the prior."""
        rows = [Rows(block, offset=offset) for block in blocks]
        return cls(rows, [each.begin(likelihood)[0] for each in rows], n_threads)

    def improve(
        self,
        model: Any,
        end: Callable[..., T],
        rounds: int = _FIRST_ROUNDS,
        tol: float = _ROUND_TOLERANCE,
    ) -> list[T]:
        """Return `end(latent, approximation)` of each group after so many rounds."""

        def improve(pair: tuple[Rows, Approximation]) -> T:
            latent = pair[0].make_latent(model)
            return end(latent, pair[0].improve(latent, pair[1], rounds, tol))

        pairs = list(zip(self.rows, self.best, strict=True))
        return map_in_threads(improve, pairs, self.n_threads)


@dataclass
class BoundObjective:
    """The negative bound of groups of rows, per row; kernel parameters have weak priors.

    Parameters
    ----------
    parameters : Parameters
        The free parameters, of an `EigenGP` or an `ExactGP`.
    groups : Groups
        The rows, and the factors of the best point so far.
    prior : pair of arrays
        Means and deviations of `kernel.theta`.
    rounds, tol : int, float
        The largest number of rounds of an evaluation, and the gain at which they end.
    """

    parameters: Parameters[Any]
    groups: Groups
    prior: tuple[Array, Array]
    rounds: int = _ROUNDS
    tol: float = _ROUND_TOLERANCE
    least: float = field(default=np.inf, init=False)
    """The smallest value so far, per row."""

    def __call__(self, vector: Array) -> Evaluation:
        """Evaluate, per row; only the first evaluation does not need time."""
        if np.isfinite(self.least) and any(rows.clock.is_over() for rows in self.groups.rows):
            raise OutOfTimeError
        model, pack = self.parameters.unpack(vector), self.parameters.pack_gradient
        rounds = self.rounds if np.isfinite(self.least) else _FIRST_ROUNDS

        def end(latent: Any, own: Approximation) -> tuple[Approximation, Array]:
            return own, pack(latent.gradient(own.factors, own.posteriors))

        parts = self.groups.improve(model, end, rounds, self.tol)
        found, slopes = zip(*parts, strict=True)
        weight = sum(float(rows.block.weight.sum()) for rows in self.groups.rows)
        apart = (vector[: self.prior[0].size] - self.prior[0]) / self.prior[1]
        loss, gradient = -sum(each.bound for each in found), np.sum(slopes, axis=0)
        gradient[: apart.size] += apart / self.prior[1]
        value = (loss + 0.5 * float(apart @ apart)) / weight
        if value < self.least:
            self.groups.best = [each.reduced() for each in found]
            self.least = value
        return Evaluation(value, gradient / weight, loss / weight)
