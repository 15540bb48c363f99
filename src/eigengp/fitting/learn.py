"""The steps of one fit: initialise, restart, learn, select, condition, calibrate.

`learn` takes a `Run`, which holds rows and settings, and returns a frozen `FitResult`. It knows no
estimator.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from eigengp.backend.threads import speed_up_passes
from eigengp.data.array_source import ArraySource
from eigengp.data.grouping import group_source
from eigengp.data.holdout import sample_rows
from eigengp.fitting.exact import learn_exact_of_few
from eigengp.fitting.initialization import (
    ExactFamily,
    InducingFamily,
    InducingPointInit,
    SpectralFamily,
    Start,
    count_varying,
    shorten_lengthscales,
)
from eigengp.fitting.leave_one_out import (
    LeaveOneOut,
    make_posterior,
    score_leave_one_out,
    score_predictions,
)
from eigengp.fitting.model_selection import Decision, choose_residual, get_exact_device
from eigengp.fitting.objectives import RowObjective, kernel_parameters, learn_parameters
from eigengp.fitting.online import Online
from eigengp.fitting.plan import RELATIVE_JITTER, Plan, get_default_size, make_plan, resolve_sizes
from eigengp.fitting.restarts import learn_one_stage
from eigengp.fitting.run import EXACT_BLOCK_ROWS, FitResult, Run
from eigengp.fitting.stages import Stages
from eigengp.fitting.stochastic import FIRST_ITERATIONS, StochasticLearner
from eigengp.fitting.vecchia import NeighborFit
from eigengp.gp.exact import ExactGP
from eigengp.gp.likelihoods import Gaussian
from eigengp.gp.model import EigenGP, Jitter
from eigengp.gp.sparse_spectrum import SparseSpectrum
from eigengp.kernels import KERNELS, Kernel, SquaredExponential, Stationary
from eigengp.kernels.base import get_lengthscale_range

_FIRST_NOISE = 0.1
"""The noise variance to start from, relative to the variance of the targets."""
_FIRST_ROWS_PER_POINT = 10
SUBSET_RANGE = (500, 2_000)
"""The smallest and largest number of rows of the exact GP that a fit starts from."""
_CLEARLY = 0.02
"""By how much neighbours must improve the leave-one-out loss to be accepted without a full fit of
the model without them."""
_HELD_OUT, _LEAST_HELD_OUT = 10, 500
"""One row in so many is held out to compare the two, and at least so many of enough rows."""


def learn(run: Run) -> FitResult:
    """Fit EigenGP, with the residual of the settings or the best one."""
    choice = choose_residual(run.settings, run.dataset)
    run.decisions.append(choice.decision)
    if run.settings.is_stochastic:
        return _learn_from_batches(run)
    if choice.residual == "exact":
        return learn_exact_of_few(run, make_start(run))
    if choice.residual == "neighbors":
        return _learn_with_neighbors(run, choice.compare)
    power = 1.0 if choice.residual == "diagonal" else None
    return _condition(run, _learn_inducing(run, power))


def learn_sparse(run: Run) -> FitResult:
    """Fit another model with inducing points: FITC, VFE, power EP."""
    model = _learn_inducing(run, run.settings.power)
    outcome = model.forward(run.source)
    posterior = replace(model.posterior(outcome), kernel=model.kernel)
    return run.make_result(model, outcome.value, posterior)


def learn_exact(run: Run) -> FitResult:
    """Fit the exact GP; with many rows the kernel is learned on a subset first."""
    n = run.dataset.n_rows
    start, large = make_start(run), n > 2 * SUBSET_RANGE[1]
    device = get_exact_device(run.settings, run.dataset)
    template = ExactGP(start.kernel, start.likelihood, device)
    plan = Plan.of(run.settings, run.dataset, n, n_restarts=8, max_iter=200, tol=1e-7)
    plan = replace(plan, settled=large)
    if large and plan.max_iter > 0:
        count = SUBSET_RANGE[1]
        own = replace(plan, n_components=count, n_inducing=count, settled=False)
        template = _learn_exact_on_subset(run, start, own, device)
    with speed_up_passes(n):
        model = learn_one_stage(run, ExactFamily(), plan, replace(template, device=device))
    outcome = model.forward(group_source(run.source))
    return run.make_result(model, outcome.value, model.posterior(outcome))


def learn_sparse_spectrum(run: Run) -> FitResult:
    """Fit the sparse spectrum GP."""
    settings, dataset, start = run.settings, run.dataset, make_start(run)
    if not isinstance(start.kernel, Stationary):
        raise TypeError(
            "A sparse spectrum GP needs one stationary kernel, which has a spectral density, "
            f"got {settings.kernel!r}."
        )
    count = max(dataset.n_rows, int(dataset.summary.weight))
    size = settings.n_components or get_default_size(count)
    plan = Plan.of(settings, dataset, size, n_restarts=64)
    no_points = np.zeros((0, dataset.n_features))
    template = SparseSpectrum(start.kernel, no_points, start.likelihood)
    run.source = run.source.sized(size)
    with speed_up_passes(size):
        model = learn_one_stage(run, SpectralFamily(), plan, template)
    outcome = model.forward(run.source)
    return run.make_result(model, outcome.value, model.posterior(outcome))


def make_start(run: Run) -> Start:
    """Return the kernel and noise of the settings, or their defaults.

    The default lengthscale is in the middle of those that are plausible for as many varying inputs.
    """
    settings, scaling, D = run.settings, run.dataset.scaling, run.dataset.n_features
    own, unit = settings.kernel, scaling.target_scale**2
    noise = _FIRST_NOISE if settings.noise_variance is None else settings.noise_variance / unit
    if isinstance(own, Kernel):
        own.with_ard(D)  # Raises if it does not match these inputs.
        per_unit = 1.0 / scaling.input_scale
        shift = -scaling.input_centre * per_unit
        kernel = own.rescaled(per_unit, 1.0 / unit, shift).with_ard(D)
    else:
        kernel = SquaredExponential() if own == "auto" else KERNELS[own]()
        if isinstance(kernel, Stationary):
            box = run.dataset.extent
            n_varying = count_varying(np.stack([box.low, box.high]))
            middle = np.sqrt(np.prod(get_lengthscale_range(n_varying)))
            kernel = replace(kernel, lengthscale=np.full(D, middle))
        kernel = kernel.with_ard(D)
    start = Start(kernel, Gaussian(noise))
    if not getattr(settings.optimizer, "exact_start", False):
        return start
    exact = _learn_exact_on_subset(run, start)
    return Start(exact.kernel, exact.likelihood)


def _learn_exact_on_subset(
    run: Run, start: Start, plan: Plan | None = None, device: str | None = None
) -> ExactGP:
    """Learn the exact GP on a subset of the rows; by default a tenth, within limits.

    On a device, there is time to try short lengthscales of each input too.
    """
    low, high = SUBSET_RANGE
    n = run.dataset.n_rows
    count = min(n, max(low, min(high, n // 10))) if plan is None else plan.n_inducing
    plan = plan or Plan(count, count, n_restarts=8, max_iter=100, tol=1e-8)
    rows = sample_rows(run.source, count, run.rng)
    part = run.restrict(rows)
    part.source = ArraySource(rows.X, rows.y, rows.sample_weight, EXACT_BLOCK_ROWS)
    with speed_up_passes(count):
        template = ExactGP(start.kernel, start.likelihood, device)
        model: ExactGP = learn_one_stage(part, ExactFamily(), plan, template)
        if device is not None and not isinstance(run.settings.kernel, Kernel):
            short = shorten_lengthscales(model.kernel, rows.X)
            trials = [model, *(replace(model, kernel=each) for each in short)]
            free = [kernel_parameters(each) for each in trials]
            source, limits = group_source(part.source), (plan.max_iter, plan.tol)
            found = [learn_parameters(RowObjective(each, source), *limits) for each in free]
            best = int(np.argmin([each.value for each in found]))
            model = free[best].unpack(found[best].vector)
    run.n_iter += part.n_iter
    return model


def _learn_inducing(
    run: Run, power: float | None, start: Start | None = None, plan: Plan | None = None
) -> EigenGP:
    """Learn a model with inducing points; start and plan are by default those of the settings."""
    start, plan = start or make_start(run), plan or make_plan(run)
    own, scaling, D = run.settings.inducing_points, run.dataset.scaling, run.dataset.n_features
    if not isinstance(own, str) and own.shape[1] != D:
        raise ValueError(
            f"inducing_points has {own.shape[1]} columns but X has {D} features; each inducing "
            "point needs one value for each feature."
        )
    init = InducingPointInit(own if isinstance(own, str) else scaling.transform_inputs(own))
    template = EigenGP(
        start.kernel,
        np.zeros((plan.n_inducing, D)),
        start.likelihood,
        plan.n_components,
        residual=power is not None,
        jitter=Jitter(relative=RELATIVE_JITTER),
        power=power or 0.0,
        shared=run.settings.has_weights,
    )
    family = InducingFamily(init, plan.n_components, relocates=isinstance(own, str))
    with speed_up_passes(plan.n_inducing):
        if plan.strategy != "prior":
            return Stages(run, family, plan).learn(template)
        model: EigenGP = learn_one_stage(run, family, plan, template)
        return model


def _learn_with_neighbors(run: Run, compare: bool) -> FitResult:
    """Fit the nearest-neighbour residual; `compare` it, if time is not limited, with none."""
    settings = run.settings
    heteroscedastic = settings.noise != "gaussian"
    compare = compare and settings.max_time is None
    fit = NeighborFit.begin(run)
    start = make_start(run)
    if isinstance(settings.kernel, str) and settings.kernel == "auto":
        start = fit.choose_kernel(start)
    elif isinstance(settings.kernel, Kernel):
        start = fit.choose_lengthscales(start)
    given = settings.n_components or settings.n_inducing
    given = given or not isinstance(settings.inducing_points, str)
    default = fit.largest_size if given else fit.choose_size(start.kernel)
    many = fit.learner.rows.n_rows < fit.rows.n_rows
    part = run.restrict(fit.learner.rows) if many else run
    plan = fit.plan_first_stage(make_plan(part, default, neighbors=True))
    first = _learn_inducing(part, None, start, plan)
    model = fit.learn(first)
    outcome = fit.conditioning.condition(model)
    scored = fit.conditioning.score(model, outcome, heteroscedastic, compare)
    if compare:
        other = _compare_without_neighbors(run, fit, first, scored, heteroscedastic)
        if other is not None:
            return other
    run.decisions.extend(scored.decisions)
    # That of a sample of the rows is scaled to all of them.
    total = outcome.value * (run.dataset.summary.weight / outcome.n)
    return run.make_result(model, total, scored.kept_posterior, scored.errors, _online=None)


def _compare_without_neighbors(
    run: Run, fit: NeighborFit, first: EigenGP, scored: LeaveOneOut, heteroscedastic: bool
) -> FitResult | None:
    """Return the model without neighbours if it predicts held-out rows better.

    Both losses are leave-one-out losses of the held-out rows. The model without neighbours is
    learned without these rows: inducing points that were fitted to a row make its loss too low.
    That loss of the model of stage 1 shows whether it can be better.
    """
    outcome = first.forward(run.source)
    possible = score_leave_one_out(first, outcome, run.source, run.rng, heteroscedastic)
    losses = {"neighbors": scored.loss, "None": possible.loss}
    plain: EigenGP | None = None
    if possible.loss < scored.loss + _CLEARLY:
        assert scored.predicted is not None
        n = fit.rows.n_rows
        count = max(n // _HELD_OUT, min(n // 4, _LEAST_HELD_OUT))
        held_out, seen = fit.rows.cut(min(scored.predicted[0].size, count))
        plain = _learn_inducing(run.restrict(seen), None)
        posterior = make_posterior(plain, plain.forward(run.source))
        own = (each[: held_out.n_rows] for each in scored.predicted)
        losses = {
            "neighbors": score_predictions(held_out, *own),
            "None": score_predictions(held_out, *posterior.leave_one_out(held_out)[:2]),
        }
    best = "None" if plain is not None and losses["None"] < losses["neighbors"] else "neighbors"
    reason = "leave-one-out loss" if plain is None else "loss of a held-out set"
    run.decisions[0] = Decision("residual", best, reason, losses)
    if plain is None or best == "neighbors":
        return None
    run.decisions[:] = run.decisions[:1]
    return _condition(run, plain, heteroscedastic=heteroscedastic)


def _condition(
    run: Run,
    model: EigenGP,
    online: StochasticLearner | None = None,
    heteroscedastic: bool = False,
) -> FitResult:
    """Return the result of a model without neighbours, conditioned on all rows."""
    outcome = model.forward(group_source(run.source))
    state: dict[str, Any] = {"_online": online or Online.of(model, outcome, run.source)}
    if not (heteroscedastic or run.settings.noise == "heteroscedastic"):
        return run.make_result(model, outcome.value, model.posterior(outcome), **state)
    scored = score_leave_one_out(model, outcome, run.source, run.rng, True)
    run.decisions.extend(scored.decisions)
    return run.make_result(model, outcome.value, scored.kept_posterior, scored.errors, **state)


def _learn_from_batches(run: Run) -> FitResult:
    """Learn from a sample of the rows by L-BFGS, then from batches."""
    settings, dataset = run.settings, run.dataset
    R, M = resolve_sizes(settings, get_default_size(dataset.n_rows))
    if R < M or settings.residual not in (None, "auto"):
        raise ValueError(
            "optimizer=Stochastic() keeps all eigenfunctions and has no residual: use as many "
            "components as inducing points and residual=None, or optimizer=LBFGS()."
        )
    optimizer: Any = settings.optimizer
    count = max(optimizer.batch_size, _FIRST_ROWS_PER_POINT * M)
    first = run.restrict(sample_rows(run.source, count, run.rng))
    start, plan = make_start(first), make_plan(first, get_default_size(first.dataset.n_rows))
    plan = replace(plan, max_iter=0 if settings.learns_nothing else FIRST_ITERATIONS)
    model = _learn_inducing(first, None, start, plan)
    run.n_iter += first.n_iter
    learner = StochasticLearner.begin(dataset.extent, model, run.rng)
    with speed_up_passes(M):
        learner.learn(dataset, optimizer.batch_size, optimizer.max_iter, run.monitor)
    return _condition(run, learner.model, learner)
