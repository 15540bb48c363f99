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
    place_among_all,
    shorten_lengthscales,
)
from eigengp.fitting.leave_one_out import score_leave_one_out
from eigengp.fitting.model_selection import Decision, choose_residual, get_exact_device
from eigengp.fitting.objectives import RowObjective, kernel_parameters, learn_parameters
from eigengp.fitting.online import Online
from eigengp.fitting.plan import RELATIVE_JITTER, Plan, get_default_size, make_plan, resolve_sizes
from eigengp.fitting.restarts import learn_one_stage
from eigengp.fitting.run import EXACT_BLOCK_ROWS, FitResult, Run
from eigengp.fitting.stages import Stages
from eigengp.fitting.stochastic import FIRST_ITERATIONS, StochasticLearner
from eigengp.fitting.variational import learn_variational
from eigengp.fitting.vecchia import learn_with_neighbors
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


def learn(run: Run) -> FitResult:
    """Fit EigenGP, with the residual of the settings or the best one, or another likelihood."""
    others = run.dataset.unlabelled
    if others is not None:
        reason = "their inputs take part in the scaling, and in placing inducing points, if any"
        run.decisions.append(Decision("unlabelled", f"{others.shape[0]:,} rows", reason))
    if run.settings.likelihood is not None:
        return learn_variational(run)
    residual, decision = choose_residual(run.settings, run.dataset)
    run.decisions.append(decision)
    if run.settings.is_stochastic:
        return _learn_from_batches(run)
    if residual == "exact":
        return learn_exact_of_few(run, make_start(run))
    if residual == "neighbors":
        return learn_with_neighbors(run, make_start(run))
    power = 1.0 if residual == "diagonal" else None
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
        box = run.dataset.extent
        n_varying = count_varying(np.stack([box.low, box.high]))
        kernel = SquaredExponential() if own == "auto" else KERNELS[own]()
        if isinstance(kernel, Stationary):
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
    start = start or make_start(run)
    if run.dataset.unlabelled is not None:
        _place_among_all(run, start.kernel)
    init = InducingPointInit.of(run.settings.inducing_points, run.dataset.scaling)
    plan = plan or make_plan(run)
    template = EigenGP(
        start.kernel,
        np.zeros((plan.n_inducing, run.dataset.n_features)),
        start.likelihood,
        plan.n_components,
        residual=power is not None,
        jitter=Jitter(relative=RELATIVE_JITTER),
        power=power or 0.0,
        shared=run.settings.has_weights,
    )
    family = InducingFamily(init, plan.n_components, relocates=isinstance(init.method, str))
    with speed_up_passes(plan.n_inducing):
        if plan.strategy != "prior":
            return Stages(run, family, plan).learn(template)
        model: EigenGP = learn_one_stage(run, family, plan, template)
        return model


def _place_among_all(run: Run, kernel: Kernel) -> None:
    """Place the inducing points among labelled and unlabelled rows, before learning moves them."""
    settings, others, own = run.settings, run.dataset.unlabelled, run.settings.inducing_points
    if isinstance(own, str) and others is not None:
        size = resolve_sizes(settings, get_default_size(run.dataset.n_rows + others.shape[0]))[1]
        labelled = run.source.take(np.arange(run.source.n_rows)).X
        points = place_among_all(own, labelled, others, size, kernel, run.rng)
        own = run.dataset.scaling.restore_inputs(points)
        run.settings = replace(settings, inducing_points=own)


def _condition(run: Run, model: EigenGP, online: StochasticLearner | None = None) -> FitResult:
    """Return the result of a model without neighbours, conditioned on all rows."""
    outcome = model.forward(group_source(run.source))
    state: dict[str, Any] = {"_online": online or Online.of(model, outcome, run.source)}
    if run.settings.noise != "heteroscedastic":
        return run.make_result(model, outcome.value, model.posterior(outcome), **state)
    scored = score_leave_one_out(model, outcome, run.source, run.rng)
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
