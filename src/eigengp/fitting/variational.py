"""The steps of a fit with a non-Gaussian likelihood: choose a kernel, learn, calibrate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigengp._typing import Array
from eigengp.backend.threads import speed_up_passes
from eigengp.data.array_source import ArraySource, get_rows
from eigengp.data.standardize import Extent
from eigengp.fitting.bound import Approximation, BoundObjective, Groups, Rows, make_log_prior
from eigengp.fitting.class_neighbors import BoundLearner, NeighborRounds
from eigengp.fitting.initialization import (
    place_among_all,
    place_points,
    share_lengthscale,
)
from eigengp.fitting.latent_settings import (
    ALL_UP_TO,
    choose_size,
    find_exposure,
    get_default_size,
    make_kernels,
    refuse_settings,
)
from eigengp.fitting.local_learner import name_kernel
from eigengp.fitting.model_selection import Decision
from eigengp.fitting.objectives import Parameters, eigengp_parameters
from eigengp.fitting.run import FitResult, Run
from eigengp.fitting.settings import RELATIVE_JITTER, count_distinct
from eigengp.fitting.vecchia import get_largest_size
from eigengp.gp.blocks import RowBlock, group_rows, has_equal_inputs
from eigengp.gp.exact import ExactGP
from eigengp.gp.latent import NeighborLatent
from eigengp.gp.likelihoods import Bernoulli, NonGaussian, Softmax
from eigengp.gp.model import EigenGP, Jitter
from eigengp.gp.variational import (
    Exposure,
    LatentPosterior,
    TargetPosterior,
    compute_log_exposure,
    recover_evidence,
    stack_moments,
)
from eigengp.gp.vecchia import VecchiaPass
from eigengp.kernels import Kernel, Warped

_LAST_ROUNDS, _RESUMED_TOLERANCE = 60, 1e-10
# Rows, inducing points and iterations by which kernels are compared.
_COMPARED_ROWS, _COMPARED_POINTS, _COMPARED_ITERATIONS = 1_000, 100, 20
_HARDLY = 0.95  # Weights whose sum falls less than to this fraction are not compared.
# Ranges of standardised inputs that differ by less than this factor are alike.
_RANGES_DIFFER = 2.0
_ITERATIONS, _TOLERANCE = 100, 1e-6
_FIRST_ROWS, _GROWTH, _SUBSET_ITERATIONS = 3_000, 5, 30
# With more rows than these, the last stage takes at most so many iterations.
_STEPS = ((200_000, 5), (10_000, 50))
# The largest number of iterations in a round in which kernels are learned from local GPs.
_NEIGHBOR_STEPS = 15
# The default has neighbours from so many to so many rows of two classes, and at most so many per
# second of `max_time`.
_NEIGHBOR_ROWS, _MOST_NEIGHBOR_ROWS, _NEIGHBOR_ROWS_PER_SECOND = ALL_UP_TO + 1, 100_000, 1_000
# Fractions of `max_time` by which the comparison of kernels, learning from subsets and from all
# rows, and the last rounds must end.
_UNTIL = (0.3, 0.55, 0.75, 0.85)


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

    def choose_weights(self, kernel: Kernel) -> VariationalFit:
        """Return the fit with the weights of rows that suit leave-one-out predictions.

        Rows that repeat others may be copies or observations of their own. Only as the latter do
        they say that the label of an input is certain.
        """
        once, given = _count_once(self.rows), self.rows.block.weight
        if once is None:
            return self
        clock, losses, fits = self.run.monitor.clock, {}, {"as given": given, "inputs once": once}
        index = self._draw_index(_COMPARED_ROWS)
        some = self.rows.pick(index)
        for i, (name, weight) in enumerate(fits.items()):
            clock.spread(_UNTIL[0] / 2.0, len(fits) - i)
            rows = some.weighted(weight[index])
            model, best, _ = self._learn(rows, kernel, _COMPARED_POINTS, name, _COMPARED_ITERATIONS)
            best = rows.improve(rows.make_latent(model), best, _LAST_ROUNDS)
            losses[name] = some.calibrate(best, model).loss
        won = min(losses, key=losses.__getitem__)
        reason = f"lowest leave-one-out log loss of {index.size:,} rows"
        self.run.decisions.append(Decision("weights", won, reason, losses))
        return replace(self, rows=self.rows.weighted(fits[won]))

    def choose_kernel(self, candidates: Sequence[Kernel]) -> tuple[VariationalFit, Kernel]:
        """Return the best kernel on a subset of the rows, briefly learned, and the fit for it.

        Each parameter costs one nat, as in Akaike's criterion: with few rows and many inputs, the
        best candidate may do better with one lengthscale for all inputs. That lengthscale is in
        units of the standard deviations of inputs or of their ranges: an input that is nearly
        always the same, such as a pixel of the margin, has a large range in standard deviations.
        """
        rows, size = self._draw(_COMPARED_ROWS), _COMPARED_POINTS
        found: dict[str, tuple[float, Kernel, Kernel]] = {}
        clock, n_left = self.run.monitor.clock, len(candidates) + 2

        def compare(kernel: Kernel, name: str, rows: Rows = rows) -> None:
            model, _, least = self._learn(rows, kernel, size, name, _COMPARED_ITERATIONS)
            least += kernel.theta.size / rows.block.weight.sum()
            if name not in found or least < found[name][0]:
                found[name] = least, model.kernel, kernel

        for i, kernel in enumerate(candidates):
            clock.spread(_UNTIL[0], n_left - i)
            compare(kernel, type(kernel).__name__)
            clock.allow(_UNTIL[0])
            if clock.is_over():
                break
        name = min(found, key=lambda name: found[name][0])
        simple: Any = share_lengthscale(found[name][2])
        ranges: Any = self._find_ranges()
        for unit in () if simple is None else (1.0, ranges):
            if unit is not None and not clock.is_over():
                own = f"{name} with one lengthscale" + " for ranges" * (unit is ranges)
                compare(simple, own, rows.rescaled(unit))
        scores = {name: each[0] for name, each in found.items()}
        best = min(scores, key=scores.__getitem__)
        reason = f"lowest negative bound per row of {rows.block.n_rows:,} rows"
        self.run.decisions.append(Decision("kernel", best, reason, scores))
        return self._rescaled(ranges) if best.endswith("ranges") else self, found[best][1]

    def _find_ranges(self) -> Array | None:
        """Return the ranges of inputs; None if they are alike or inputs cannot be rescaled."""
        dataset, span = self.run.dataset, np.ptp(self.rows.block.X, axis=0)
        fixed = not isinstance(self.run.settings.inducing_points, str)
        fixed = fixed or dataset.unlabelled is not None or self.likelihood.exposure is not None
        known = span[span > 0.0]
        alike = known.size < 2 or known.max() < _RANGES_DIFFER * known.min()
        if alike or fixed or np.isfinite(dataset.scaling.knee):
            return None
        least = known.min()
        return np.where(span > 0.0, span / least * np.sqrt(np.mean((least / known) ** 2)), 1.0)

    def _rescaled(self, unit: Array) -> VariationalFit:
        """Return the fit with inputs divided by `unit`."""
        scaling = self.run.dataset.scaling
        scale = scaling.input_scale.copy()
        scale[list(scaling.columns or range(scale.size))] *= unit
        self.run.dataset = replace(self.run.dataset, scaling=replace(scaling, input_scale=scale))
        return replace(self, rows=self.rows.rescaled(unit))

    def learn(self, kernel: Kernel, size: int, given: int | None) -> tuple[EigenGP, Approximation]:
        """Learn on growing subsets of the rows, then on all; `given` limits the iterations."""
        max_iter = _ITERATIONS if given is None else given
        n, count, rows = self.rows.block.n_rows, _FIRST_ROWS, self.rows
        points: Array | None = None
        before, clock = None, self.run.monitor.clock
        while count <= n // 3 and max_iter:
            steps, stage = min(max_iter, _SUBSET_ITERATIONS), f"{count} rows"
            some = self._draw(count)
            clock.allow(_UNTIL[1])
            model, found, _ = self._learn(some, kernel, size, stage, steps, points, before)
            before, count = (model, found), count * _GROWTH
            kernel, points = model.kernel, model.inducing_points
        clock.allow(_UNTIL[2])
        fewer = next((few for beyond, few in _STEPS if n > beyond and given is None), max_iter)
        model, best, _ = self._learn(rows, kernel, size, "learning", fewer, points, before)
        clock.allow(_UNTIL[3])
        latent = rows.make_latent(model)
        if not best.posteriors:  # All evaluations were read from a checkpoint.
            best = rows.improve(latent, best, 10 * _LAST_ROUNDS, _RESUMED_TOLERANCE)
        return model, rows.improve(latent, best, _LAST_ROUNDS)

    def learn_with_neighbors(
        self, kernel: Kernel, given: int | None
    ) -> tuple[VecchiaPass, NeighborLatent, float]:
        """Learn a kernel from local GPs, and return the posterior with neighbours and its bound."""
        run, own = self.run, self.run.settings
        block = self.rows.block.picked(run.rng.permutation(self.rows.block.n_rows))
        _, offset, variance = self.likelihood.start(block.y, block.weight)
        steps = _NEIGHBOR_STEPS if given is None else given
        prior: Any = {"likelihood": self.likelihood, "offset": offset, "variance": variance}
        learner = BoundLearner(block, run.monitor, run.n_threads, run.checkpoint, **prior)
        fixed = isinstance(own.kernel, Kernel) or own.kernel != "auto"
        start = ExactGP(kernel, 1.0)
        won = learner.learn_kernels(start, steps, given=fixed)[0].kernel if steps else kernel
        run.n_iter += learner.n_iter
        for n, scores in list(learner.losses.items())[-1:]:
            reason = f"lowest negative bound per row of {min(n, block.n_rows):,} rows"
            run.decisions.append(Decision("kernel", name_kernel(won), reason, scores))
        size = choose_size(run, get_largest_size(block.n_rows))
        points = self._place(block, won, min(size, block.n_rows))
        model = VecchiaPass.of(won, points, 1.0, RELATIVE_JITTER)
        rows = Rows(block, offset=offset)
        rounds = NeighborRounds(model, rows, self.likelihood, own.n_neighbors, run.n_threads)
        with speed_up_passes(points.shape[0]):
            return model, *rounds.find_posterior()

    def _draw(self, count: int) -> Rows:
        """Draw so many rows, or all if there are fewer."""
        n = self.rows.block.n_rows
        return self.rows if count >= n else self.rows.pick(self._draw_index(count))

    def _draw_index(self, count: int) -> NDArray[np.intp]:
        n = self.rows.block.n_rows
        return np.sort(self.run.rng.choice(n, min(count, n), replace=False))

    def _learn(
        self,
        rows: Rows,
        kernel: Kernel,
        size: int,
        stage: str,
        max_iter: int,
        points: Array | None = None,
        before: tuple[EigenGP, Approximation] | None = None,
    ) -> tuple[EigenGP, Approximation, float]:
        """Learn kernel and inducing points from rows; points at all inputs are not moved.

        The factors start from the posterior of other rows, if there was one `before`. Returns the
        model, the factors at its best point and the value there.
        """
        X, run = rows.block.X, self.run
        every = points is None and isinstance(run.settings.inducing_points, str)
        every = every and size >= count_distinct(ArraySource.of(rows.block), size + 1)
        if every:
            points = X[np.sort(np.unique(X, axis=0, return_index=True)[1])]
        elif points is None:
            points = self._place(rows.block, kernel, size)
        model = EigenGP(
            kernel, points, 1.0, points.shape[0], jitter=Jitter(relative=RELATIVE_JITTER)
        )
        if before is not None and before[1].posteriors:
            start = rows.carry(rows.make_latent(before[0]), before[1])
        else:
            start = rows.begin(self.likelihood)
        variance = rows.start(self.likelihood)[2]
        free = eigengp_parameters(model, Extent(X.min(axis=0), X.max(axis=0))).parts
        parameters = Parameters(model, free[:1] if every else free[:2])
        groups, prior = Groups([rows], [start]), make_log_prior(kernel, X, variance)
        objective = BoundObjective(parameters, groups, prior)
        with speed_up_passes(points.shape[0]):
            found = run.learn(stage, objective, max_iter, _TOLERANCE, key=repr(kernel))
        return found.model, groups.best[0], found.value

    def _place(self, block: RowBlock, kernel: Kernel, size: int) -> Array:
        """Return inducing points: those that are given, or placed among all rows."""
        run, own, others = self.run, self.run.settings.inducing_points, self.run.dataset.unlabelled
        if not isinstance(own, str):
            given: Array = run.dataset.scaling.transform_inputs(own)
            return given
        if others is not None:
            return place_among_all(own, block.X, others, size, kernel, run.rng)
        return place_points(own, block, size, kernel, run.rng)


def _count_once(rows: Rows) -> Array | None:
    """Return weights by which each input counts once at most; None if they hardly differ.

    They keep the shares of the classes, which weights and repeated rows may be meant to change.
    """
    if rows.block.sample_weight is None and rows.number is None:
        return None
    weight, y = rows.block.weight, rows.block.y.astype(int)
    number = np.arange(y.size) if rows.number is None else rows.number
    once = weight / np.maximum(np.bincount(number, weight), 1.0)[number]
    if once.sum() > _HARDLY * weight.sum():
        return None
    shares, own = np.bincount(y, weight), np.bincount(y, once)
    ratio = shares / np.where(own > 0.0, own, 1.0)
    return once * (ratio * own.sum() / shares.sum())[y]


def _uses_neighbors(run: Run, likelihood: NonGaussian, kernel: Kernel) -> bool:
    """Return whether a fit has the nearest-neighbour residual; refuse one that is not possible."""
    given, n, limit = run.settings.residual, run.dataset.n_rows, run.settings.max_time
    if not isinstance(likelihood, Bernoulli | Softmax):
        return False
    low, high = _NEIGHBOR_ROWS, _MOST_NEIGHBOR_ROWS
    high = high if limit is None else min(high, round(_NEIGHBOR_ROWS_PER_SECOND * limit))
    obstacles = {
        "a warped kernel has no neighbours": isinstance(kernel, Warped),
        "more than two classes": isinstance(likelihood, Softmax),
        "max_iter=0 learns nothing": run.settings.optimizer.max_iter == 0,
        f"fewer than {low:,} or more than {high:,} rows": not low <= n <= high,
    }
    if given == "neighbors" and isinstance(kernel, Warped):
        raise ValueError(f"residual='neighbors' is not possible: {next(iter(obstacles))}.")
    reason = next((each for each, holds in obstacles.items() if holds), None)
    uses = given == "neighbors" if given != "auto" else reason is None
    reason = "given" if given != "auto" else reason or f"two classes of {low:,} to {high:,} rows"
    run.decisions.append(Decision("residual", "neighbors" if uses else "None", reason))
    return uses


def learn_variational(run: Run) -> FitResult:
    """Fit the latent functions of a non-Gaussian likelihood."""
    settings, scaling = run.settings, run.dataset.scaling
    assert settings.likelihood is not None
    refuse_settings(run)
    likelihood = settings.likelihood.rescaled(1.0 / scaling.target_scale)
    exposure = find_exposure(run, likelihood)
    block = get_rows(run.source)
    likelihood.check_targets(block.y)
    if repeated := has_equal_inputs(block.X):  # Large data may have equal rows too.
        both = group_rows(replace(block, X=np.column_stack([block.X, block.y]))).rows
        block = replace(both, X=both.X[:, :-1], scatter=None)
    log_exposure = None if exposure is None else compute_log_exposure(block.X, exposure)
    block = replace(block, X=np.asfortranarray(block.X))
    device, clock = run.exact_device, run.monitor.clock
    number = group_rows(block).number if repeated else None
    rows = Rows(block, log_exposure, run.n_threads, device=device, clock=clock, number=number)
    fit = VariationalFit(run, rows, likelihood)
    variance = rows.start(likelihood)[2]
    max_iter = settings.optimizer.max_iter
    steps = None if isinstance(max_iter, str) else max_iter
    kernels = make_kernels(run, rows.block, variance, exposure and exposure.column)
    kernel = kernels[0]
    if steps != 0 and isinstance(likelihood, Bernoulli | Softmax):
        fit = fit.choose_weights(kernel)
    model: EigenGP | VecchiaPass
    posterior: TargetPosterior
    if _uses_neighbors(run, likelihood, kernel):
        model, posterior, bound = fit.learn_with_neighbors(kernel, steps)
    else:
        if len(kernels) > 1 and steps != 0:
            fit, kernel = fit.choose_kernel(kernels)
        model, found = fit.learn(kernel, choose_size(run, get_default_size(run, likelihood)), steps)
        used = rows.find_device(model.inducing_points.shape[0])
        run.dataset = replace(run.dataset, device=used)
        posterior, bound = _make_posterior(fit.rows, model, found, exposure), found.bound
    own = posterior.likelihood.rescaled(scaling.target_scale)
    result = run.make_result(model, -bound, posterior, likelihood_=own, _online=None)
    for name in ("noise_variance_", "target_mean_"):
        del result.attributes[name]
    return result


def _make_posterior(
    rows: Rows, model: EigenGP, found: Approximation, exposure: Exposure | None
) -> LatentPosterior:
    """Return the posterior; that of classes is calibrated on leave-one-out moments."""
    posterior = LatentPosterior(
        model.features,
        rows.make_latent(model).whitening,
        *stack_moments(found.posteriors),
        found.offset,
        found.likelihood,
        exposure,
    )
    if not isinstance(found.likelihood, Bernoulli | Softmax):
        return posterior
    rows.clock.allow(1.0)
    return replace(posterior, calibration=rows.calibrate(found, model).factors)


def extend_posterior(posterior: LatentPosterior, block: RowBlock) -> tuple[LatentPosterior, float]:
    """Return the posterior with more rows, and what they add to the bound.

    The posterior so far takes the place of the prior (Bui, Nguyen and Turner, 2017). Kernel,
    inducing points, offsets and calibration stay as they are.
    """
    features = posterior.features
    jitter = Jitter(relative=RELATIVE_JITTER)
    points = features.points
    model = EigenGP(features.kernel, points, 1.0, points.shape[0], jitter=jitter)
    block = replace(block, X=np.asfortranarray(block.X))
    rows = Rows(block, earlier=recover_evidence(posterior), offset=posterior.offset)
    with speed_up_passes(points.shape[0]):
        start = rows.begin(posterior.likelihood)
        found = rows.improve(rows.make_latent(model), start, _LAST_ROUNDS)
    means, roots = stack_moments(found.posteriors)
    return replace(posterior, means=means, roots=roots), found.bound
