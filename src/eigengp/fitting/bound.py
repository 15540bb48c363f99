"""The variational bound of rows with a non-Gaussian likelihood, and its objective.

For given kernel and inducing points, rounds of two passes over the rows improve the Gaussian
factors by which rows act on the latent functions (see `eigengp.gp.likelihoods.base`). L-BFGS
maximises the bound at the end of these rounds; they start from the factors of the best point so
far, so that a few are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from operator import iadd
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, beside, move_to_device, on_host
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
from eigengp.gp.variational import Factors, LatentModel, Use
from eigengp.kernels import Kernel

T = TypeVar("T")
Visit = Callable[[Use], Array]  # Returns the sum of a `Use` over blocks of rows.

_FIRST_ROUNDS, _ROUNDS = 30, 12
_ROUND_TOLERANCE = 1e-6  # The gain of the bound per row at which rounds end.
_LEAST_STEP = 2.0**-8
_CHUNK = 1 << 16  # The number of rows whose expected log density is made at once.
_LEAST_PRECISION = 1e-10
# The factors of more latent values are rounded to float32: any factors give a bound, and at its
# maximum small changes of the factors do not change it.
_EXACT_FACTORS = 1 << 19
# Whitened features of so many rows times inducing points are kept between passes.
_KEPT_FEATURES = 1 << 25
_WORTH_MOVING = 1 << 20  # The number of features from which a device is faster.
CALIBRATION_ROWS = 3_000  # The largest number of rows to which a calibration is fitted.
# With `max_time`, it is at most so many for each second, divided by the latent functions.
_CALIBRATED_PER_SECOND = 1_000
# The number of points of an average over several latent functions while calibrating.
_CALIBRATION_POINTS = 128
_LOGS = (-2.0, 2.0)  # Limits of the logarithms of the two factors of a calibration.
# Standard deviations of the weak normal priors of the two logarithms of a calibration.
_CALIBRATION_DEVIATIONS = (0.5, 1.0)


class Calibration(NamedTuple):
    """Factors that suit leave-one-out predictions."""

    # Those of the mean and of the standard deviation of the latent functions.
    factors: tuple[float, float]
    loss: float  # The log loss per row, with the penalties on the factors.


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
    moments : tuple of arrays of shape (N, C), or None
        Mean and variance of the latent functions at all rows, without the offset, if the likelihood
        is fitted to them.
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
    moments: tuple[Array, Array] | None = None
    target: Factors | None = None
    slope: Array = field(default_factory=lambda: np.empty(0))
    bound: float = -np.inf

    def reduced(self) -> Approximation:
        """Return the approximation without what an evaluation makes of all rows again."""
        return replace(self, moments=None, target=None)


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
    number : array of shape (N,) or None
        The index of the input of each row; None if all inputs differ.
    """

    block: RowBlock
    log_exposure: Array | None = None
    n_threads: int | None = None
    earlier: tuple[FactorEvidence, ...] = ()
    offset: Array | None = None
    device: str | None = None
    clock: Clock = field(default_factory=Clock)
    number: NDArray[np.intp] | None = None

    def find_device(self, size: int) -> str | None:
        """Return where passes with so many inducing points are computed; None is the CPU."""
        return self.device if self.block.n_rows * size >= _WORTH_MOVING else None

    @cached_property
    def total_weight(self) -> float:
        """The sum of the weights of all rows."""
        return float(self.block.weight.sum())

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

    def pick(self, index: NDArray[np.intp]) -> Rows:
        """Return some of the rows."""
        block = self.block.picked(index)
        log_exposure = None if self.log_exposure is None else self.log_exposure[index]
        block = replace(block, X=np.asfortranarray(block.X))
        number = None if self.number is None else self.number[index]
        return replace(self, block=block, log_exposure=log_exposure, number=number)

    def weighted(self, weight: Array) -> Rows:
        """Return the rows with other weights."""
        return replace(self, block=replace(self.block, sample_weight=weight))

    def rescaled(self, unit: Any) -> Rows:
        """Return the rows with inputs divided by `unit`."""
        return replace(self, block=replace(self.block, X=self.block.X / unit))

    def carry(self, latent: LatentModel, own: Approximation) -> Approximation:
        """Return factors for the posterior that an approximation of other rows gives these."""
        target = self._aim(own.likelihood, own.offset, partial(latent.visit, own.posteriors))[1]
        return Approximation(target, own.offset, own.likelihood)

    def start(self, likelihood: NonGaussian) -> tuple[NonGaussian, Array, float]:
        """Return first parameters, prior means of the latent functions, and a prior variance."""
        exposure = 1.0 if self.log_exposure is None else np.exp(self.log_exposure[:, 0])
        own, offset, variance = likelihood.start(
            self.block.y / exposure, self.block.weight * exposure
        )
        return own, offset if self.offset is None else self.offset, variance

    def begin(self, likelihood: NonGaussian) -> Approximation:
        """Return factors for the prior."""
        own, offset, variance = self.start(likelihood)
        shape = (self.block.n_rows, likelihood.n_latent)
        mean, spread = (np.broadcast_to(each, shape) for each in (0.0, variance))
        target = self._aim(own, offset, partial(_visit, mean, spread))[1]
        return Approximation(target, offset, own)

    def _update(self, own: Approximation, step: float) -> Approximation:
        """Return factors for the moments of the latent functions, and better parameters."""
        likelihood, offset, target, slope = own.likelihood, own.offset, own.target, own.slope
        assert target is not None
        if own.moments is not None:
            mean, variance = own.moments
            at = self._shift(mean, offset)
            likelihood = likelihood.refit(self.block.y, self.block.weight, at, variance)
            _, target, slope = self._aim(likelihood, offset, partial(_visit, mean, variance))
        if likelihood.learns_offset and self.offset is None:
            # The factors account for the new offset to first order, `∂²ℓ/∂μ² ≈ −ω`.
            total = target.precision.sum(axis=0, dtype=np.float64)
            moved = step * slope / np.maximum(total, 1e-10)
            shift = target.precision * -moved.astype(target.shift.dtype)
            shift += target.shift
            target, offset = target._replace(shift=shift), offset + moved
        return Approximation(own.factors.towards(target, step), offset, likelihood)

    def _aim(
        self, likelihood: NonGaussian, offset: Array, visit: Visit
    ) -> tuple[float, Factors, Array]:
        """Return the expected log density of all rows, the factors, and the slope by the offset.

        `visit` sums over blocks of rows, of which few exist at a time.
        """
        shape, weight = (self.block.n_rows, offset.size), self.block.sample_weight
        kind = np.float64 if shape[0] * shape[1] <= _EXACT_FACTORS else np.float32
        target = Factors(np.empty(shape, kind), np.empty(shape, kind))

        def aim(own: slice, mean: AnyArray, variance: AnyArray) -> Array:
            host, y = not likelihood.takes_any_library, self.block.y[own]
            mean, variance = map(on_host, (mean, variance)) if host else (mean, variance)
            at = self._shift(mean, offset, own)
            s = np.ones(mean.shape[0]) if weight is None else weight[own]
            found = Expectation(*map(on_host, likelihood.expect(beside(y, mean), at, variance)))
            target.precision[own], target.shift[own] = make_factors(s, on_host(mean), found)
            return np.append(s @ found.value, s @ found.by_mean)

        value, *slope = visit(aim)
        return float(value), target, np.array(slope)

    def _shift(self, mean: AnyArray, offset: Array, rows: slice = slice(None)) -> AnyArray:
        shifted = mean + beside(offset, mean)
        if self.log_exposure is None:
            return shifted
        return shifted + beside(self.log_exposure[rows], mean)

    def evaluate(self, latent: LatentModel, own: Approximation) -> Approximation:
        """Return the posterior given the factors, and the bound."""
        posteriors, moments = latent.condition(own.factors), None
        visit: Visit = partial(latent.visit, posteriors)
        if own.likelihood.refits:
            moments = collect_moments(visit, own.factors.shift.shape)
            visit = partial(_visit, *moments)
        value, target, slope = self._aim(own.likelihood, own.offset, visit)
        return replace(
            own,
            posteriors=posteriors,
            moments=moments,
            target=target,
            slope=slope,
            bound=value - latent.get_divergence(posteriors),
        )

    def calibrate(self, own: Approximation, model: EigenGP) -> Calibration:
        """Return factors of mean and standard deviation that suit leave-one-out predictions.

        Without the factors of its input a row has the latent precision `1/v − ω` and mean
        `v' (μ/v − β)`. Learned inducing points are parameters of all inputs, as lengthscales are.
        """
        n, limit, count = self.block.n_rows, self.clock.limit, CALIBRATION_ROWS
        if limit is not None:
            count = min(count, max(1, round(_CALIBRATED_PER_SECOND * limit / own.offset.size)))
        some = np.arange(n)[:: max(1, n // count)]
        rows, factors = self.pick(some), own.factors
        latent = replace(rows.make_latent(model), keep=False)
        visit = partial(latent.visit, own.posteriors)
        mean, variance = collect_moments(visit, (some.size, own.offset.size))
        if self.number is not None:
            factors = merge_factors(factors, self.number)
            some = self.number[some]
        precision, shift = (each[some] for each in factors)
        without = 1.0 / np.maximum(1.0 / variance - precision, 1e-3 / variance)
        mean = without * (mean / variance - shift) + own.offset
        every = model.inducing_points.shape[0] == n
        size = model.kernel.theta.size if every else np.inf
        return fit_calibration(own.likelihood, rows.block, mean, without, size, self.clock)

    def improve(
        self, latent: LatentModel, start: Approximation, rounds: int, tol: float = _ROUND_TOLERANCE
    ) -> Approximation:
        """Improve the factors until the bound rises no more, or time is over; it never falls.

        A step that would lower the bound is halved.
        """
        best, step = self.evaluate(latent, start), 1.0
        slack = 1e-10 * self.total_weight
        for _ in range(rounds):
            if self.clock.is_over():
                break
            trial = self.evaluate(latent, self._update(best, step))
            gained = trial.bound - best.bound
            if gained > -slack:
                best, step = (trial if gained > 0.0 else best), min(1.0, 2.0 * step)
                if gained < tol * self.total_weight:
                    break
            elif (step := 0.5 * step) < _LEAST_STEP:
                break
        return best


def _visit(mean: Array, variance: Array, use: Use) -> Array:
    """Return the sum of `use` over blocks of rows with known moments."""
    blocks = (slice(i, i + _CHUNK) for i in range(0, max(1, mean.shape[0]), _CHUNK))
    return reduce(iadd, (use(own, mean[own], variance[own]) for own in blocks))


def collect_moments(visit: Visit, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Return mean and variance of the latent functions at all rows that `visit` visits, (N, C)."""
    found_mean, found_variance = np.empty(shape), np.empty(shape)

    def keep(own: slice, mean: AnyArray, variance: AnyArray) -> Array:
        found_mean[own], found_variance[own] = on_host(mean), on_host(variance)
        return np.zeros(1)

    visit(keep)
    return found_mean, found_variance


def merge_factors(factors: Factors, number: NDArray[np.intp]) -> Factors:
    """Return the factors of all inputs: sums over rows with equal inputs."""
    sums: Any = [[np.bincount(number, column) for column in each.T] for each in factors]
    return Factors(*(np.stack(each).T for each in sums))


def make_factors(weight: Array, mean: Array, found: Expectation) -> Factors:
    """Return the factors of rows; see `eigengp.gp.likelihoods.base`."""
    s, precision = weight[:, None], np.maximum(-2.0 * found.by_variance, _LEAST_PRECISION)
    return Factors(s * precision, s * (precision * mean + found.by_mean))


def fit_calibration(
    likelihood: NonGaussian,
    rows: RowBlock,
    mean: Array,
    variance: Array,
    size: float = np.inf,
    clock: Clock | None = None,
) -> Calibration:
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
        a, b = np.exp(np.clip(logs, *_LOGS))
        p = likelihood.predict_classes(a * mean, b * b * variance, **coarse)
        surprise = -np.log(np.maximum(p[at], 1e-12))
        penalty = 0.5 * np.sum((logs / _CALIBRATION_DEVIATIONS) ** 2)
        return float(share * (rows.weight @ surprise) + penalty)

    def stop(_: Array) -> None:
        if clock is not None and clock.is_over():
            raise StopIteration

    found = optimize.minimize(loss, np.zeros(2), method="BFGS", tol=0.1, callback=stop)
    a, b = np.exp(np.clip(found.x, *_LOGS)).tolist()
    return Calibration((a, b), found.fun / (share * rows.weight.sum()))


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
        return cls(rows, [each.begin(likelihood) for each in rows], n_threads)

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
    least: float = field(default=np.inf, init=False)  # The smallest value so far, per row.

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
        weight = sum(rows.total_weight for rows in self.groups.rows)
        apart = (vector[: self.prior[0].size] - self.prior[0]) / self.prior[1]
        loss, gradient = -sum(each.bound for each in found), np.sum(slopes, axis=0)
        gradient[: apart.size] += apart / self.prior[1]
        value = (loss + 0.5 * float(apart @ apart)) / weight
        if value < self.least:
            self.groups.best = [each.reduced() for each in found]
            self.least = value
        return Evaluation(value, gradient / weight, loss / weight)
