"""The exact GP of few rows: kernels compared by evidence, averaged over the hyperparameters.

Kernel and noise maximise the log marginal likelihood plus weak log priors. Candidate kernels
compete by the Laplace approximation to their evidence. With few rows many hyperparameters are
plausible, so predictions are averaged over draws from the Laplace approximation to their posterior;
where all rows compared the kernels, the draws come from all of them, in proportion to the evidence.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eigengp._typing import Array
from eigengp.data.array_source import ArraySource
from eigengp.fitting.heteroscedastic import LEAST_ROWS, LeaveOneOut, LeftOut, reweight_rows, score
from eigengp.fitting.initialization import (
    CLEARLY,
    SCARCE_ROWS_PER_INPUT,
    WARPED_INPUTS,
    count_varying,
    make_warps,
    place_points,
    shorten_lengthscales,
)
from eigengp.fitting.laplace import Optimum
from eigengp.fitting.local_learner import LEAST_MAPPED_ROWS, choose_map
from eigengp.fitting.model_selection import EXACT_UP_TO, Decision
from eigengp.fitting.noise_level import choose_noise
from eigengp.fitting.objectives import (
    PriorObjective,
    RowObjective,
    kernel_parameters,
)
from eigengp.fitting.restarts import by_value, try_each
from eigengp.fitting.run import EXACT_BLOCK_ROWS, FitResult, Run
from eigengp.gp.blocks import RowBlock
from eigengp.gp.exact import ExactGP
from eigengp.gp.exact_posterior import MixturePosterior
from eigengp.gp.heteroscedastic import HeteroscedasticPosterior, VarianceScale
from eigengp.gp.linalg import CholeskyFactor, FactorizationError
from eigengp.kernels import (
    Additive,
    Kernel,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    Stationary,
)
from eigengp.kernels.base import get_lengthscale_range, with_lengthscale

# The least number of rows for which it pays to load compiled loops, and the largest number that
# they treat at once.
_COMPILED_FROM, _MOST_AT_ONCE = 200, 500
_SCREENED_ROWS = 300  # Rows on which candidate kernels are compared.
_SCREENED_ON_DEVICE = 2_000
_STEPS = 60
_LAST_STEPS = 40
_REWEIGHTED_STEPS = 15
_TOLERANCE = 1e-7
# Rougher kernels start at the lengthscales of the squared exponential, times this.
_STRETCH = {RationalQuadratic: 1.0, Matern52: 1.3, Matern32: 1.7, Matern12: 4.0}
_MOST_DRAWS = 64  # The largest number of draws of kernel and noise, of which some are rejected.
_DRAW_WORK = 4_000_000  # The largest number of draws times N².
# The noise variance of a further start: few rows of a function without noise have two optima.
_LITTLE_NOISE = 1e-4
_NEGLIGIBLE = 20.0  # Optima with less evidence than the best by so many nats get no draws.
_APART = 0.5  # Optima at which no log parameter differs by more are one.
_ADDITIVE_WORK = 3_000_000  # The largest N²·D of kernels with functions of one input each.
_COVARIATE_POINTS = 50
_WIDE_FROM = 10
_FACTORS = (0.5, 10.0)  # The range of the factor that cross-validation may give.
# The largest number of rows from which kernel and noise are learned on a device.
_MOST_ROWS_ON_DEVICE = 12_000
# The `max_time` from which 2,000 rows are learned from; an evaluation takes O(N³) time.
_SECONDS_FOR_ALL = 25.0
# Fractions of `max_time` by which the comparison of kernels, that of mapped inputs, and learning
# must end.
_UNTIL = (0.4, 0.5, 0.8)


def learn_exact_of_few(run: Run, start: ExactGP) -> FitResult:
    """Fit the exact GP, averaged over its hyperparameters."""
    rows = run.source.take(np.arange(run.source.n_rows))
    fit = ExactFit(run, rows)
    compiled = rows.n_rows >= _COMPILED_FROM
    first = fit.choose_kernel(replace(start, device=run.exact_device, compiled=compiled))
    fit, model = fit.choose_map(first.model)
    found = fit.choose_noise(replace(fit.learn(model), rivals=first.rivals))
    found, scored = fit.calibrate(found)
    outcome = found.model.forward(_make_source(fit.rows))
    return run.make_result(found.model, outcome.value, scored, _online=None)


def predict_left_out(
    run: Run, start: ExactGP, few: RowBlock, rows: RowBlock
) -> tuple[Array, Array]:
    """Return leave-one-out means and variances of rows, by the exact GP that others learn."""
    fit = ExactFit(run, few)
    model = fit._learn_best(fit._list_starts(start), few).model
    return model.posterior(model.forward(_make_source(rows))).leave_one_out(rows)


@dataclass
class ExactFit:
    """One fit of the exact GP.

    Parameters
    ----------
    run : Run
        The fit to which it belongs.
    rows : RowBlock
        All standardised rows.
    """

    run: Run
    rows: RowBlock

    def _steps(self, default: int) -> int:
        most = self.run.settings.max_iter
        return default if most is None else min(default, most)

    def choose_kernel(self, start: ExactGP) -> Optimum:
        """Choose the kernel of largest evidence on some rows, and learn it there."""
        own = self.run.settings.kernel
        few, count = self.rows, _SCREENED_ROWS if start.device is None else _SCREENED_ON_DEVICE
        if few.n_rows > count:
            few = few.picked(self.run.rng.permutation(few.n_rows)[:count])
        self.run.monitor.clock.allow(_UNTIL[0])
        best, *others = self._learn_modes(self._list_starts(start), few)
        if isinstance(own, Kernel) or self.run.settings.learns_nothing:
            return best
        best = self._shorten(best, few)
        if own != "auto":
            return best
        found = {type(best.model.kernel).__name__: best}
        for name, starts in self._list_candidates(best.model, few):
            if self.run.monitor.clock.is_over():
                break
            found[name] = self._learn_best(starts, few)
        top = max(found.values(), key=lambda each: each.log_evidence)
        total = self._add_functions(top.model, few)
        if total is not None and not self.run.monitor.clock.is_over():
            name = f"Additive + {type(top.model.kernel).__name__}"
            found[name] = self._learn_best([total], few)
        scores = {name: -each.log_evidence for name, each in found.items()}
        chosen = min(scores, key=lambda name: scores[name])
        reason = f"negative log evidence of {few.n_rows:,} rows"
        averaged = few is self.rows and few.n_rows <= _SCREENED_ROWS
        reason += ", by which predictions average them" if averaged else ""
        self.run.decisions.append(Decision("kernel", chosen, reason, scores))
        best = found.pop(chosen)
        if not averaged:
            return best
        least = best.log_evidence - _NEGLIGIBLE
        rivals = (each for each in (*found.values(), *others) if each.log_evidence > least)
        return replace(best, rivals=tuple(rivals))

    def choose_map(self, model: ExactGP) -> tuple[ExactFit, ExactGP]:
        """Map the inputs linearly if local GPs prefer that, and return the fit.

        They learn a map in a fraction of the time of one step of the exact GP.
        """
        run = self.run
        if run.settings.kernel != "auto" or not isinstance(model.kernel, Stationary):
            return self, model
        if run.settings.learns_nothing:
            return self, model
        found = choose_map(run, self.rows, model, _UNTIL[1])
        if found is None or found.input_map is None:
            return self, model
        run.map_inputs(found.input_map)
        rows = self.rows.map_inputs(found.input_map)
        return replace(self, rows=rows), replace(model, kernel=found.kernel)

    @property
    def _n_varying(self) -> int:
        """The number of inputs that are not constant; a group of inputs is one."""
        return count_varying(self.rows.X, self.run.dataset.groups)

    @property
    def _is_wide(self) -> bool:
        """Whether there are many inputs, and few rows for each."""
        D = self._n_varying
        return D >= _WIDE_FROM and 1 < self.rows.n_rows < SCARCE_ROWS_PER_INPUT * D

    def _list_starts(self, start: ExactGP) -> list[ExactGP]:
        """Return the start if the user gave it, else starts of short and of long lengthscales."""
        if isinstance(self.run.settings.kernel, Kernel) or self.run.settings.learns_nothing:
            return [start]
        low, high = get_lengthscale_range(self._n_varying)
        rng = np.random.RandomState(0)
        short, long = (with_lengthscale(start.kernel, x, rng) for x in (1.5 * low, high))
        starts = [replace(start, kernel=each) for each in (short, long)]
        if self.run.settings.noise_variance is None and self.rows.n_rows < LEAST_ROWS:
            starts.insert(0, replace(starts[0], noise_variance=_LITTLE_NOISE))
        return starts

    def _shorten(self, best: Optimum, few: RowBlock) -> Optimum:
        """Return the optimum, or that from a short lengthscale of one input, if clearly better.

        An input that numbers subjects, or along which the function oscillates, is not found from
        lengthscales that are alike for all inputs.
        """
        short = shorten_lengthscales(best.model.kernel, few.X, dense=True)
        trials = [replace(best.model, kernel=each) for each in short]
        if not trials:
            return best
        found = self._learn_best(trials, few)
        gain = found.objective.weight * (best.value - found.value)
        return found if gain > CLEARLY else best

    def _list_candidates(self, best: ExactGP, few: RowBlock) -> Iterator[tuple[str, list[ExactGP]]]:
        """Yield the name and the starts of each further candidate kernel."""
        kernel, D = best.kernel, few.X.shape[1]
        n_varying = self._n_varying
        assert isinstance(kernel, Stationary)
        for kind, stretch in _STRETCH.items():
            lengths = kernel.lengthscale * stretch
            other = kind(lengths, kernel.variance, groups=kernel.groups)
            yield kind.__name__, [replace(best, kernel=other)]
        if n_varying == 1:
            line = Linear().with_ard(D).with_groups(kernel.groups) + kernel
            yield "Linear + SquaredExponential", [replace(best, kernel=line)]
        if n_varying <= WARPED_INPUTS and kernel.groups is None:
            warps = make_warps(kernel, few)
            yield "Warped(SquaredExponential)", [replace(best, kernel=each) for each in warps]

    def _add_functions(self, best: ExactGP, few: RowBlock) -> ExactGP | None:
        """Return the GP with functions of one input each beside its kernel; None if not tried.

        Interactions are most of what many inputs could do, and need many rows to be told. With
        as many rows as a map of the inputs needs, the map is tried instead.
        """
        kernel, n_inputs = best.kernel, self._n_varying
        many = self.rows.n_rows >= LEAST_MAPPED_ROWS or few.n_rows**2 * n_inputs > _ADDITIVE_WORK
        if n_inputs <= WARPED_INPUTS or many or not isinstance(kernel, Stationary):
            return None
        length, half = kernel.lengthscale, 0.5 * kernel.variance
        alone = Additive(0.5 * length, half, groups=kernel.groups)
        joint = replace(kernel, lengthscale=1.5 * length, variance=half)
        return replace(best, kernel=alone + joint)

    def _learn_best(self, starts: list[ExactGP], rows: RowBlock) -> Optimum:
        """Learn from each start, and return the best optimum."""
        return self._learn_modes(starts, rows)[0]

    def _learn_modes(self, starts: list[ExactGP], rows: RowBlock) -> list[Optimum]:
        """Learn from each start, and return the optima that differ, the best first."""
        steps, modes = self._steps(_STEPS), list[Optimum]()
        found = try_each(lambda start: self._learn(start, rows, steps, "kernel"), starts)
        for each in sorted(found, key=by_value):
            if all(np.max(np.abs(each.vector - one.vector)) > _APART for one in modes):
                modes.append(each)
        return modes

    def _learn(self, start: ExactGP, rows: RowBlock, steps: int, stage: str) -> Optimum:
        likelihood = RowObjective(kernel_parameters(start), _make_source(rows))
        objective = PriorObjective(likelihood, float(rows.weight.sum()), self._n_varying)
        objective = objective.hold(self._find_idle(start.kernel))
        tol = _TOLERANCE if self.run.settings.tol is None else self.run.settings.tol
        found = self.run.learn(stage, objective, steps, tol, key=(start.kernel, rows.n_rows))
        return Optimum(objective, found.vector, found.value)

    def _find_idle(self, kernel: Kernel) -> Array:
        """Return which parameters are those of constant inputs, on which no row depends, (p,).

        They stay out of learning and of the draws, which a constant column must not change.
        Kernels that the user gave may number their inputs otherwise.
        """
        if isinstance(self.run.settings.kernel, Kernel):
            return np.zeros(len(kernel.parameters), dtype=bool)
        constant = {f"[{d}]" for d in np.flatnonzero(np.ptp(self.rows.X, axis=0) == 0.0)}
        endings = (name[name.rfind("[") :] for name in kernel.parameter_names)
        return np.array([each in constant for each in endings])

    @property
    def _most_rows(self) -> int:
        """The largest number of rows from which kernel and noise are learned."""
        if self.run.exact_device is not None:
            return _MOST_ROWS_ON_DEVICE
        limit = self.run.monitor.clock.limit
        share = 1.0 if limit is None else min(1.0, (limit / _SECONDS_FOR_ALL) ** (1 / 3))
        return round(EXACT_UP_TO * share)

    def learn(self, start: ExactGP) -> Optimum:
        """Learn kernel and noise, from a sample of the rows where there are many."""
        self.run.monitor.clock.allow(_UNTIL[2])
        n, steps = self.rows.n_rows, self._steps(_LAST_STEPS)
        if n <= self._most_rows:
            return self._learn(start, self.rows, steps, "learning")
        some = self.rows.picked(self.run.rng.permutation(n)[: self._most_rows])
        found = self._learn(start, some, steps, "learning")
        return self._learn(found.model, self.rows, 0, "learning")

    def choose_noise(self, found: Optimum) -> Optimum:
        """Choose the noise level by leave-one-out, where variances are then fitted to residuals."""
        held = (
            self.run.settings.noise == "gaussian"
            or self.run.settings.learns_nothing
            or self._is_wide
        )
        few, many = self.rows.weight.sum() < LEAST_ROWS, self.rows.n_rows > EXACT_UP_TO
        if held or few or many or self.run.monitor.clock.is_over():
            return found
        model, decisions = choose_noise(found.model, [self.rows])
        self.run.decisions.extend(decisions)
        if not decisions:
            return found
        factor = model.noise_variance / found.model.noise_variance
        return self._learn_again(found, self.rows, 0, "noise", factor)

    def _learn_again(
        self, found: Optimum, rows: RowBlock, steps: int, stage: str, noise: float = 1.0
    ) -> Optimum:
        """Learn a model and its rivals again from rows, with `noise` times their noise."""
        first, *rivals = (
            self._learn(
                replace(each.model, noise_variance=noise * each.model.noise_variance),
                rows,
                steps,
                stage,
            )
            for each in (found, *found.rivals)
        )
        return replace(first, rivals=tuple(rivals))

    def condition(self, found: Optimum) -> Any:
        """Return the posterior given the rows, averaged over draws of kernel and noise.

        Where the Laplace approximation has more density than the posterior, draws are rejected:
        parameters that the data rule out do not count, such as a variance that is far too large.
        """
        n = found.source.n_rows
        pairs = min(_MOST_DRAWS, _DRAW_WORK // n**2) // 2
        drawn = []
        if pairs > 0 and not self.run.settings.learns_nothing:
            drawn = found.draw_kernels(pairs, self.run.rng)
        parts = []
        for model, most in drawn:
            with suppress(FactorizationError):
                outcome = model.forward(found.source)
                if outcome.value <= most:
                    parts.append(model.posterior(outcome))
        if not parts:
            parts = [found.model.posterior(found.model.forward(found.source))]
        return parts[0] if len(parts) == 1 else MixturePosterior(tuple(parts))

    def calibrate(self, found: Optimum) -> tuple[Optimum, LeaveOneOut]:
        """Fit the noise to leave-one-out residuals, or all variances to cross-validated ones.

        Where the noise is heteroscedastic, kernel and noise are learned again from reweighted rows.
        """
        n, posterior = self.rows.n_rows, self.condition(found)
        if self.run.settings.noise == "gaussian" or self.run.settings.learns_nothing:
            return found, LeaveOneOut(posterior)
        own = self._with_covariates(found.model, posterior)
        if self._is_wide:
            return found, self._scale_by_cross_validation(found.model, own)
        scored = self._score(own, self.rows)
        if scored.smooth is None or self.run.monitor.clock.is_over():
            return found, scored
        explained = own.covariates(self.rows.X, np.ones(n))[:, 1:]
        rows = reweight_rows(self.rows, scored.smooth, explained)
        steps = self._steps(_REWEIGHTED_STEPS) if n <= self._most_rows else 0
        try:
            again = self._learn_again(found, rows, steps, "reweighted")
            other = self._score(self._with_covariates(again.model, self.condition(again)), rows)
        except FactorizationError:
            return found, scored
        best, decision = scored.choose_weights(other)
        self.run.decisions.append(decision)
        return (found if best is scored else again), best

    def _score(self, own: HeteroscedasticPosterior, rows: RowBlock) -> LeaveOneOut:
        """Score a posterior of these rows, which may be reweighted."""
        predicted, number = own.leave_one_out(rows), np.arange(rows.n_rows)
        factor = rows.weight / self.rows.weight
        size = own.factor.shape[1]
        return score(own, LeftOut(self.rows, number, predicted, size, factor))

    def _with_covariates(self, model: ExactGP, posterior: Any) -> HeteroscedasticPosterior:
        """Return the posterior with eigenfunctions on which its variances may depend."""
        count = max(1, min(_COVARIATE_POINTS, self.rows.n_rows // 10))
        rng = np.random.RandomState(0)
        points = place_points("kmeans", self.rows, count, model.kernel, rng)
        basis = model.kernel.at(points)
        prior = CholeskyFactor.of(basis.matrix(points) + 1e-6 * basis.prior_scale * np.eye(count))
        return HeteroscedasticPosterior(posterior, prior.matrix, basis=basis)

    def _scale_by_cross_validation(
        self, model: ExactGP, own: HeteroscedasticPosterior
    ) -> LeaveOneOut:
        """Multiply all variances by what rows outside all learning call for.

        With many inputs the lengthscales over-fit, which leave-one-out with the learned ones does
        not show.
        """
        folds = 4 if self.rows.n_rows <= 2 * _SCREENED_ROWS else 2
        fold = self.run.rng.permutation(self.rows.n_rows) % folds
        start = self._list_starts(replace(model, kernel=_restart(model.kernel)))[-1]
        ratios, weights = [], []
        for k in range(folds):
            seen, new = (self.rows.picked(np.flatnonzero(each)) for each in (fold != k, fold == k))
            found = self._learn(start, seen, self._steps(_STEPS), f"fold {k + 1}")
            mean, variance = self.condition(found).mean_and_variance(new.X)
            ratios.append((new.y - mean) ** 2 / variance)
            weights.append(new.weight)
        mean_ratio = np.average(np.concatenate(ratios), weights=np.concatenate(weights))
        factor = float(np.clip(mean_ratio, *_FACTORS))
        none = np.zeros(1 + own.factor.shape[1])
        scale = VarianceScale(np.log([factor]), np.zeros((none.size, 1)), none, none, none)
        reason = "variances scaled to cross-validated errors, since there are many inputs"
        decision = Decision("likelihood", f"variances × {factor:.3g}", reason)
        self.run.decisions.append(decision)
        return LeaveOneOut(replace(own, scale=scale))


def _make_source(rows: RowBlock) -> Any:
    """Return the rows, in blocks unless compiled loops are to treat all at once."""
    if _COMPILED_FROM <= rows.n_rows <= _MOST_AT_ONCE:
        return rows
    return ArraySource(rows.X, rows.y, rows.sample_weight, EXACT_BLOCK_ROWS)


def _restart(kernel: Kernel) -> Kernel:
    """Return the kernel with unit variance, so that cross-validation does not start at the end."""
    if isinstance(kernel, Stationary):
        return replace(kernel, variance=1.0)
    return kernel
