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
from scipy import optimize

from eigengp._typing import Array
from eigengp.backend.threads import speed_up_passes
from eigengp.data.array_source import ArraySource
from eigengp.data.standardize import Extent
from eigengp.fitting.initialization import (
    WARPED_INPUTS,
    InducingPointInit,
    count_varying,
    make_warps,
)
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
from eigengp.gp.likelihoods import (
    Bernoulli,
    Coregionalized,
    Expectation,
    Gaussian,
    NonGaussian,
    Softmax,
)
from eigengp.gp.model import EigenGP, Jitter
from eigengp.gp.variational import Factors, LatentModel, LatentPosterior, compute_divergence
from eigengp.kernels import (
    KERNELS,
    Kernel,
    Matern12,
    Matern32,
    Matern52,
    SquaredExponential,
    Stationary,
)
from eigengp.kernels.base import get_lengthscale_range

_FIRST_ROUNDS, _ROUNDS, _LAST_ROUNDS = 30, 12, 60
_ROUND_TOLERANCE = 1e-6
"""The gain of the bound per row at which rounds end."""
_LEAST_STEP = 2.0**-8
_LEAST_PRECISION = 1e-10
_KEPT_FEATURES = 1 << 25
"""Whitened features of so many rows times inducing points are kept between passes."""
_COMPARED_ROWS, _COMPARED_POINTS, _COMPARED_ITERATIONS = 1_000, 100, 20
"""Rows, inducing points and iterations by which kernels are compared."""
_CANDIDATES = (SquaredExponential, Matern52, Matern32, Matern12)
_ITERATIONS, _TOLERANCE = 100, 1e-6
_FIRST_ROWS, _GROWTH, _SUBSET_ITERATIONS = 3_000, 5, 30
_STEPS = ((200_000, 5), (10_000, 50))
"""With more rows than these, the last stage takes at most so many iterations."""
_ALL_UP_TO, _POINTS = 500, 200
"""All of so many rows are inducing points, or so many points of more rows."""
_MORE_FROM, _MORE_POINTS = 5_000, 400
"""With one latent function and so many rows there are so many inducing points."""
_UNTIL = (0.3, 0.9)
"""Fractions of `max_time` by which the comparison of kernels and learning must end."""
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
        mean, at = np.zeros(shape), self._shift(np.zeros(shape), offset)
        found = own.expect(self.block.y, at, np.full(shape, variance))
        return Approximation(self._make_factors(mean, found), offset, own), variance

    def _update(self, own: Approximation, step: float) -> Approximation:
        """Return factors for the moments of the latent functions, and better parameters."""
        y, s, at = self.block.y, self.weight, self._shift(own.mean, own.offset)
        likelihood, offset = own.likelihood.refit(y, s, at, own.variance), own.offset
        same = likelihood is own.likelihood and own.expectation is not None
        found = own.expectation if same else likelihood.expect(y, at, own.variance)
        assert found is not None
        target = self._make_factors(own.mean, found)
        if likelihood.learns_offset:
            # The factors account for the new offset to first order, `∂²ℓ/∂μ² ≈ −ω`.
            moved = step * (s @ found.by_mean) / np.maximum(target.precision.sum(axis=0), 1e-10)
            target = replace(target, shift=target.shift - target.precision * moved)
            offset = offset + moved
        return Approximation(own.factors.towards(target, step), offset, likelihood)

    def _make_factors(self, mean: Array, found: Expectation) -> Factors:
        """Return the factors for the mean of the latent functions and an expectation there."""
        weight, precision = self.weight[:, None], -2.0 * found.by_variance
        precision = np.maximum(precision, _LEAST_PRECISION)
        return Factors(weight * precision, weight * (precision * mean + found.by_mean))

    def _shift(self, mean: Array, offset: Array) -> Array:
        shifted: Array = mean + offset
        return shifted if self.log_exposure is None else shifted + self.log_exposure

    def evaluate(self, latent: LatentModel, own: Approximation) -> Approximation:
        """Return the posterior given the factors, and the bound."""
        posteriors = latent.condition(own.factors)
        mean, variance = latent.predict(posteriors)
        at = self._shift(mean, own.offset)
        found = own.likelihood.expect(self.block.y, at, variance)
        bound = float(self.weight @ found.value) - compute_divergence(posteriors)
        return Approximation(
            own.factors, own.offset, own.likelihood, posteriors, mean, variance, found, bound
        )

    def calibrate(self, own: Approximation) -> tuple[float, float]:
        """Return factors of mean and standard deviation that suit leave-one-out predictions.

        Without its factor a row has the latent precision `1/v − ω` and mean `v' (μ/v − β)`. The
        factors minimise the leave-one-out log loss plus weak penalties on their logarithms.
        """
        likelihood = own.likelihood
        assert isinstance(likelihood, Bernoulli | Softmax)
        floor = 1e-3 / own.variance
        variance = 1.0 / np.maximum(1.0 / own.variance - own.factors.precision, floor)
        mean = variance * (own.mean / own.variance - own.factors.shift) + own.offset
        y, s = self.block.y.astype(int), self.weight
        some = np.arange(y.size)[:: max(1, y.size // _CALIBRATION_ROWS)]

        def loss(logs: Array) -> float:
            a, b = np.exp(logs)
            p = likelihood.predict_classes(a * mean[some], b * b * variance[some])
            surprise = -np.log(np.maximum(p[np.arange(some.size), y[some]], 1e-12))
            return float(s[some] @ surprise + 0.5 * np.sum((logs / _CALIBRATION_DEVIATIONS) ** 2))

        found = optimize.minimize(
            loss, np.zeros(2), method="Nelder-Mead", options={"maxiter": 60, "xatol": 1e-2}
        )
        a, b = np.exp(np.clip(found.x, -2.0, 2.0)).tolist()
        return a, b

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
    least: float = field(default=np.inf, init=False)
    """The smallest value so far, per row."""

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
        latent, first = self.rows.make_latent(model), not np.isfinite(self.least)
        found = self.rows.improve(latent, self.best, _FIRST_ROUNDS if first else _ROUNDS)
        gradient = self.parameters.pack_gradient(latent.gradient(found.factors, found.posteriors))
        apart = (model.kernel.theta - self._mean) / self._deviation
        value = -found.bound + 0.5 * float(apart @ apart)
        gradient[: apart.size] += apart / self._deviation
        if value / weight < self.least:
            self.best, self.least = found, value / weight
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
        """Return the kernel with the largest bound on a subset of the rows, briefly learned."""
        rows, size = self._draw(_COMPARED_ROWS), _COMPARED_POINTS
        found: dict[str, tuple[float, Kernel]] = {}
        self.run.monitor.clock.allow(_UNTIL[0])
        for kernel in candidates:
            name = type(kernel).__name__
            model, objective = self._learn(rows, kernel, size, name, _COMPARED_ITERATIONS)
            if name not in found or objective.least < found[name][0]:
                found[name] = objective.least, model.kernel
            if self.run.monitor.clock.is_over():
                break
        scores = {name: each[0] for name, each in found.items()}
        best = min(scores, key=scores.__getitem__)
        reason = f"lowest negative bound per row of {rows.block.n_rows:,} rows"
        self.run.decisions.append(Decision("kernel", best, reason, scores))
        return found[best][1]

    def learn(self, kernel: Kernel, size: int, max_iter: int) -> tuple[EigenGP, Approximation]:
        """Learn on growing subsets of the rows, then on all of them."""
        n, count, rows = self.rows.block.n_rows, _FIRST_ROWS, self.rows
        points: Array | None = None
        self.run.monitor.clock.allow(_UNTIL[1])
        while count <= n // 3 and max_iter:
            steps, stage = min(max_iter, _SUBSET_ITERATIONS), f"{count} rows"
            model, _ = self._learn(self._draw(count), kernel, size, stage, steps, points)
            kernel, points = model.kernel, model.inducing_points
            count *= _GROWTH
        most = next((few for beyond, few in _STEPS if n > beyond), max_iter)
        steps = min(max_iter, most)
        model, objective = self._learn(rows, kernel, size, "learning", steps, points)
        return model, rows.improve(rows.make_latent(model), objective.best, _LAST_ROUNDS)

    def _draw(self, count: int) -> Rows:
        """Draw so many rows, or all if there are fewer."""
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
        """Learn kernel and inducing points from rows; points at all inputs are not moved."""
        X, run = rows.block.X, self.run
        every = points is None and size >= count_distinct(ArraySource.of(rows.block), size + 1)
        if every:
            points = np.unique(X, axis=0)
        elif points is None:
            own = run.settings.inducing_points
            given = None if isinstance(own, str) else run.dataset.scaling.transform_inputs(own)
            init = InducingPointInit(own if given is None else given)
            points = init.place(rows.block, size, kernel, run.rng)
        model = EigenGP(
            kernel, points, Gaussian(1.0), points.shape[0], jitter=Jitter(relative=RELATIVE_JITTER)
        )
        start, variance = rows.begin(self.likelihood)
        free = eigengp_parameters(model, Extent(X.min(axis=0), X.max(axis=0))).parts
        parameters = Parameters(model, free[:1] if every else free[:2])
        objective = BoundObjective(parameters, rows, start, variance)
        with speed_up_passes(points.shape[0]):
            found = learn_parameters(objective, max_iter, _TOLERANCE, stage, run.monitor)
        run.n_iter += found.n_iter
        return parameters.unpack(found.vector), objective


def learn_variational(run: Run) -> FitResult:
    """Fit the latent functions of a non-Gaussian likelihood."""
    settings, scaling = run.settings, run.dataset.scaling
    assert settings.likelihood is not None
    _refuse_settings(run)
    likelihood = settings.likelihood.rescaled(1.0 / scaling.target_scale)
    exposure = _find_exposure(run, likelihood)
    block = run.source.take(np.arange(run.source.n_rows))
    likelihood.check_targets(block.y)
    log_exposure = None
    if exposure is not None:
        column, centre, scale = exposure
        amounts = centre + scale * block.X[:, column : column + 1]
        if not np.all(amounts > 0.0):
            raise ValueError("Exposures must be positive, but X contains some that are not.")
        log_exposure = np.log(amounts)
    rows = Rows(replace(block, X=np.asfortranarray(block.X)), log_exposure, run.n_threads)
    fit = VariationalFit(run, rows, likelihood)
    _, variance = rows.begin(likelihood)
    max_iter = settings.optimizer.max_iter
    steps = _ITERATIONS if isinstance(max_iter, str) else max_iter
    kernels = _make_kernels(run, variance, None if exposure is None else exposure[0])
    kernel = fit.choose_kernel(kernels) if len(kernels) > 1 and steps else kernels[0]
    model, found = fit.learn(kernel, _choose_size(run, likelihood.n_latent), steps)
    posterior = _make_posterior(rows, model, found, exposure)
    result = run.make_result(
        model,
        -found.bound,
        posterior,
        likelihood_=found.likelihood.rescaled(scaling.target_scale),
        _online=None,
    )
    for name in ("noise_variance_", "target_mean_"):
        del result.attributes[name]
    return result


def _make_posterior(
    rows: Rows, model: EigenGP, found: Approximation, exposure: tuple[int, float, float] | None
) -> LatentPosterior:
    """Return the posterior; that of classes is calibrated on leave-one-out moments."""
    posterior = LatentPosterior(
        model.features,
        rows.make_latent(model).whitening,
        np.stack([each.h for each in found.posteriors], axis=1),
        np.stack([each.V for each in found.posteriors]),
        found.offset,
        found.likelihood,
        exposure,
    )
    if not isinstance(found.likelihood, Bernoulli | Softmax):
        return posterior
    return replace(posterior, calibration=rows.calibrate(found))


def _refuse_settings(run: Run) -> None:
    """Raise if a setting is for one output with Gaussian noise only."""
    settings, own = run.settings, run.settings.likelihood
    several = isinstance(own, Coregionalized)
    what = "several outputs" if several else f"likelihood={own!r}"
    optimizer, mean = settings.optimizer, settings.reading.mean
    obstacles = {
        f"residual={settings.residual!r}": settings.residual not in (None, "auto")
        or (settings.residual is None and settings.has_weights),
        f"optimizer={optimizer!r}": not isinstance(optimizer, LBFGS)
        or optimizer.strategy not in ("auto", "sequential")
        or optimizer.checkpoint is not None
        or optimizer.exact_start,
        f"device={settings.reading.device!r}": settings.reading.device not in (None, "cpu"),
        f"precision={settings.precision!r}": settings.precision != "double",
        f"mean={mean!r}": mean != "constant" and not settings.reading.scales_targets,
        "partial_fit": not settings.keeps_rows,
    }
    for name, refused in obstacles.items():
        if refused:
            raise ValueError(
                f"{name} is for one output with Gaussian noise, and cannot be combined with "
                f"{what}: that posterior is found by rounds over all rows in memory."
            )


def _find_exposure(run: Run, likelihood: NonGaussian) -> tuple[int, float, float] | None:
    """Return the input that holds exposures, with its centre and scale."""
    own, scaling = likelihood.exposure, run.dataset.scaling
    if own is None:
        return None
    names = run.dataset.feature_names
    known = list(range(run.dataset.n_features)) if isinstance(own, int) else list(names or ())
    if own not in known:
        raise ValueError(f"exposure={own!r} is not one of the inputs; there are {known}.")
    if np.isfinite(scaling.knee):
        raise ValueError("An exposure cannot be combined with standardize='robust'.")
    column = known.index(own)
    return column, float(scaling.input_centre[column]), float(scaling.input_scale[column])


def _make_kernels(run: Run, variance: float, exposure: int | None) -> list[Kernel]:
    """Return the kernels to compare, with the prior variance to start from."""
    own, scaling, D = run.settings.kernel, run.dataset.scaling, run.dataset.n_features
    if isinstance(own, Kernel):
        per_unit = 1.0 / scaling.input_scale
        shift, unit = -scaling.input_centre * per_unit, scaling.target_scale**2
        return [own.with_ard(D).rescaled(per_unit, 1.0 / unit, shift).with_ard(D)]
    dims = None if exposure is None else tuple(d for d in range(D) if d != exposure)
    if dims == ():
        raise ValueError("X has no inputs beside the exposure.")
    box = run.dataset.extent
    low, high = get_lengthscale_range(count_varying(np.stack([box.low, box.high])))
    kinds: Sequence[type[Kernel]] = _CANDIDATES if own == "auto" else (KERNELS[own],)
    made = []
    for kind in kinds:
        first = {"lengthscale": np.sqrt(low * high)} if issubclass(kind, Stationary) else {}
        kernel: Any = kind(**{"active_dims": dims, **first})
        scale = variance / float(kernel.diag(np.ones((1, D)))[0])
        made.append(kernel.rescaled(np.ones(D), scale).with_ard(D))
    if len(made) > 1 and dims is None and D <= WARPED_INPUTS:
        made += make_warps(made[0], box.low, box.high)
    return made


def _choose_size(run: Run, n_latent: int) -> int:
    """Return the number of inducing points: that of the settings, or by the number of rows."""
    settings, points = run.settings, run.settings.inducing_points
    given = settings.n_inducing if isinstance(points, str) else points.shape[0]
    if given and settings.n_components not in (None, given):
        raise ValueError(
            f"A likelihood other than Gaussian noise has as many components as inducing points, "
            f"got n_components={settings.n_components} and {given} inducing points."
        )
    chosen = given or settings.n_components
    if chosen is None:
        n, one = run.dataset.n_rows, n_latent == 1
        chosen = n if n <= (_ALL_UP_TO if one else _POINTS) else _POINTS
        chosen = _MORE_POINTS if one and _MORE_FROM <= n <= _STEPS[0][0] else chosen
    return int(chosen)
