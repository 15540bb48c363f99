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
from eigengp.data.holdout import group_source, sample_rows
from eigengp.data.open import Dataset
from eigengp.fitting.exact import learn_exact_of_few
from eigengp.fitting.heteroscedastic import score_leave_one_out
from eigengp.fitting.initialization import (
    SCARCE_ROWS_PER_INPUT,
    WARPED_INPUTS,
    Family,
    InducingFamily,
    SpectralFamily,
    count_varying,
    place_among_all,
    shorten_lengthscales,
)
from eigengp.fitting.model_selection import EXACT_UP_TO, Decision
from eigengp.fitting.objectives import RowObjective, kernel_parameters, minimize
from eigengp.fitting.online import Online
from eigengp.fitting.restarts import by_value, learn_one_stage
from eigengp.fitting.run import EXACT_BLOCK_ROWS, FitResult, Run
from eigengp.fitting.settings import (
    LBFGS,
    RELATIVE_JITTER,
    Plan,
    Settings,
    get_default_size,
    resolve_sizes,
)
from eigengp.fitting.stages import Stages
from eigengp.fitting.stochastic import FIRST_ITERATIONS, StochasticLearner
from eigengp.fitting.variational import learn_variational
from eigengp.fitting.vecchia import learn_with_neighbors
from eigengp.gp.exact import ExactGP
from eigengp.gp.model import EigenGP, Jitter
from eigengp.gp.sparse_spectrum import SparseSpectrum
from eigengp.kernels import KERNELS, Kernel, SquaredExponential, Stationary
from eigengp.kernels.base import get_lengthscale_range

_FIRST_NOISE = 0.1  # The noise variance to start from, relative to the variance of the targets.
_FIRST_ROWS_PER_POINT = 10
# The smallest and largest number of rows of the exact GP that a fit starts from.
SUBSET_RANGE = (500, 2_000)

# The largest number of rows for which the default on a GPU is the exact GP.
EXACT_UP_TO_ON_GPU = 30_000
# More rows than this are refused: the exact GP needs 16·N² bytes, and 32·N² on a GPU.
_MOST_EXACT_ROWS = {"cpu": 20_000, "gpu": 60_000}
_NEIGHBORS_FROM = 1_000  # With fewer rows the default has no neighbours.
# With more rows, the default has no neighbours, because they need all rows in memory.
_NEIGHBORS_UP_TO = 10_000_000


def learn(run: Run) -> FitResult:
    """Fit EigenGP, with the residual of the settings or the best one, or another likelihood."""
    others = run.dataset.unlabelled
    if others is not None:
        reason = "their inputs take part in the scaling, and in placing inducing points, if any"
        run.decisions.append(Decision("unlabelled", f"{others.shape[0]:,} rows", reason))
    if run.settings.likelihood is not None:
        return learn_variational(run)
    residual, decision = choose_residual(run)
    run.decisions.append(decision)
    if run.settings.is_stochastic:
        return _learn_from_batches(run)
    if residual == "exact":
        return learn_exact_of_few(run, make_start(run))
    if residual == "neighbors":
        return learn_with_neighbors(run, make_start(run))
    power = 1.0 if residual == "diagonal" else None
    return _condition(run, _learn_inducing(run, power))


def choose_residual(run: Run) -> tuple[str | None, Decision]:
    """Resolve `residual="auto"`, and refuse an explicit one that is not possible."""
    settings, dataset, device = run.settings, run.dataset, run.exact_device
    own, n = settings.residual, dataset.n_rows
    without_points = _find_obstacle(settings) or _find_points(settings)
    obstacle = _find_obstacle(settings) or _find_place(settings, dataset)
    on_gpu = device is not None and device.startswith("cuda")
    most = _MOST_EXACT_ROWS["gpu" if on_gpu else "cpu"]
    if own == "exact" and without_points is None and n > most:
        without_points = f"{n:,} rows need {16e-9 * n**2:.2g} GB of memory; use 'neighbors'"
    if device is None or not (on_gpu or own == "exact"):
        without_points = without_points or obstacle
    for name, reason in (("neighbors", obstacle), ("exact", without_points)):
        if own == name and reason is not None:
            raise ValueError(f"residual={name!r} is not possible: {reason}.")
    if own != "auto":
        return own, Decision("residual", str(own), "given")
    if settings.learns_nothing:
        obstacle = without_points = "max_iter=0 learns nothing"
    up_to = EXACT_UP_TO_ON_GPU if on_gpu else _count_exact(run)
    if without_points is None and n <= up_to:
        reason = f"at most {up_to:,} rows" + f" on {device}" * on_gpu
        return "exact", Decision("residual", "exact", reason)
    low, high = _NEIGHBORS_FROM, _NEIGHBORS_UP_TO
    if obstacle is None and not low <= n <= high:
        obstacle = f"fewer than {low:,} rows" if n < low else f"more than {high:,} rows"
    if obstacle is not None:
        return None, Decision("residual", "None", obstacle)
    return "neighbors", Decision("residual", "neighbors", f"{low:,} to {high:,} rows")


def _count_exact(run: Run) -> int:
    """Return the largest number of rows for which the default is the exact GP.

    Neighbours learn sums of kernels, which pay where rows are not scarce. The exact GP alone has
    warped and linear kernels of few inputs, and error bars that hold with few rows for each input.
    """
    n, rows = run.dataset.n_rows, run.dataset.rows
    if run.settings.kernel != "auto" or not isinstance(rows, ArraySource) or n > EXACT_UP_TO:
        return EXACT_UP_TO
    D = count_varying(rows.X, run.dataset.groups)
    special = D <= WARPED_INPUTS or n < SCARCE_ROWS_PER_INPUT * D
    return EXACT_UP_TO if special else _NEIGHBORS_FROM


def _find_points(settings: Settings) -> str | None:
    """Return which setting asks for eigenfunctions; None if none does."""
    own = settings.parameters
    for name in ("n_components", "inducing_points"):
        if not (isinstance(own.get(name), str) and own[name] == "auto"):
            return f"{name} is given, and the exact GP has no inducing points"
    return None


def _find_obstacle(settings: Settings) -> str | None:
    """Return why a fit cannot keep all rows, as neighbours and the exact GP do; None if it can."""
    optimizer = settings.optimizer
    if not isinstance(optimizer, LBFGS):
        return "optimizer=Stochastic() keeps no rows"
    if optimizer.strategy not in ("auto", "sequential"):
        return f"strategy={optimizer.strategy!r} learns prior variances of eigenfunctions"
    if not settings.keeps_rows:
        return "partial_fit keeps no rows"
    if settings.precision not in ("auto", "double"):
        return f"it is computed in double precision, not precision={settings.precision!r}"
    return None


def _find_place(settings: Settings, dataset: Dataset) -> str | None:
    """Return why neighbours cannot be found among the rows; None if they can."""
    if not isinstance(dataset.rows, ArraySource):
        return "it needs all rows in arrays in memory"
    points = settings.inducing_points
    M = settings.n_inducing if isinstance(points, str) else points.shape[0]
    if M is not None and settings.n_components not in (None, M):
        return f"neighbours need n_components equal to the {M} inducing points"
    return None


def learn_sparse(run: Run) -> FitResult:
    """Fit another model with inducing points: FITC, VFE, power EP."""
    model = _learn_inducing(run, run.settings.power)
    outcome = model.forward(run.source)
    posterior = replace(model.posterior(outcome), kernel=model.kernel)
    return run.make_result(model, outcome.value, posterior)


def learn_exact(run: Run) -> FitResult:
    """Fit the exact GP; with many rows the kernel is learned on a subset first."""
    n = run.dataset.n_rows
    large = n > 2 * SUBSET_RANGE[1]
    template = replace(make_start(run), device=run.exact_device)
    plan = Plan.of(run.settings, run.dataset, n, n_restarts=8, max_iter=200, tol=1e-7)
    plan = replace(plan, settled=large)
    if large and plan.max_iter > 0:
        count = SUBSET_RANGE[1]
        own = replace(plan, n_components=count, n_inducing=count, settled=False)
        template = _learn_exact_on_subset(run, template, own)
    model = learn_one_stage(run, Family(), plan, template)
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
    template = SparseSpectrum(start.kernel, no_points, start.noise_variance)
    run.source = run.source.sized(size)
    model = learn_one_stage(run, SpectralFamily(), plan, template)
    outcome = model.forward(run.source)
    return run.make_result(model, outcome.value, model.posterior(outcome))


def make_start(run: Run) -> ExactGP:
    """Return a GP with kernel and noise of the settings, or their defaults.

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
            middle = np.sqrt(np.prod(get_lengthscale_range(run.dataset.n_varying)))
            kernel = kernel.rescaled(middle, 1.0)
        kernel = kernel.with_ard(D)
    start = ExactGP(kernel.with_groups(run.dataset.groups), noise)
    if not getattr(settings.optimizer, "exact_start", False):
        return start
    return _learn_exact_on_subset(run, start)


def _learn_exact_on_subset(run: Run, start: ExactGP, plan: Plan | None = None) -> ExactGP:
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
        model: ExactGP = learn_one_stage(part, Family(), plan, start)
        if start.device is not None and not isinstance(run.settings.kernel, Kernel):
            short = shorten_lengthscales(model.kernel, rows.X)
            trials = [model, *(replace(model, kernel=each) for each in short)]
            source, limits = group_source(part.source), (plan.max_iter, plan.tol)
            objectives = [RowObjective(kernel_parameters(each), source) for each in trials]
            model = min((minimize(each, *limits) for each in objectives), key=by_value).model
    run.n_iter += part.n_iter
    return model


def _learn_inducing(
    run: Run, power: float | None, start: ExactGP | None = None, plan: Plan | None = None
) -> EigenGP:
    """Learn a model with inducing points; start and plan are by default those of the settings."""
    start = start or make_start(run)
    if run.dataset.unlabelled is not None:
        _place_among_all(run, start.kernel)
    plan = plan or Plan.with_points(run.settings, run.dataset)
    asked = run.settings.n_inducing or run.settings.n_components or 0
    if plan.n_inducing < asked:
        run.note_few_inputs(plan.n_inducing, asked)
    run.source = run.source.sized(plan.n_inducing)
    template = EigenGP(
        start.kernel,
        np.zeros((plan.n_inducing, run.dataset.n_features)),
        start.noise_variance,
        plan.n_components,
        residual=power is not None,
        jitter=Jitter(relative=RELATIVE_JITTER),
        power=power or 0.0,
        shared=run.settings.has_weights,
    )
    relocates = isinstance(run.inducing_points, str)
    family = InducingFamily(run.inducing_points, plan.n_components, relocates)
    if plan.strategy != "prior":
        return Stages.begin(run, family, plan).learn_all(template)
    model: EigenGP = learn_one_stage(run, family, plan, template)
    return model


def _place_among_all(run: Run, kernel: Kernel) -> None:
    """Place the inducing points among labelled and unlabelled rows, before learning moves them."""
    settings, others, own = run.settings, run.dataset.unlabelled, run.settings.inducing_points
    if isinstance(own, str) and others is not None:
        size = resolve_sizes(settings, get_default_size(run.dataset.n_rows + others.shape[0]))[1]
        labelled = run.source.take(np.arange(run.source.n_rows)).X
        points = place_among_all(own, labelled, others, size, kernel, run.rng)
        given = run.dataset.scaling.restore_inputs(points)
        run.settings, run.inducing_points = replace(settings, inducing_points=given), points


def _condition(run: Run, model: EigenGP, online: StochasticLearner | None = None) -> FitResult:
    """Return the result of a model without neighbours, conditioned on all rows."""
    outcome = model.forward(group_source(run.source))
    state: dict[str, Any] = {"_online": online or Online.of(model, outcome, run.source)}
    if run.settings.noise != "heteroscedastic":
        return run.make_result(model, outcome.value, model.posterior(outcome), **state)
    scored = score_leave_one_out(model, outcome, run.source, run.rng)
    return run.make_result(model, outcome.value, scored, **state)


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
    default = get_default_size(first.dataset.n_rows)
    start, plan = make_start(first), Plan.with_points(first.settings, first.dataset, default)
    plan = replace(plan, max_iter=0 if settings.learns_nothing else FIRST_ITERATIONS)
    model = _learn_inducing(first, None, start, plan)
    run.n_iter += first.n_iter
    learner = StochasticLearner.begin(dataset.extent, model, run.rng)
    learner.learn(dataset, optimizer.batch_size, optimizer.max_iter, run.monitor)
    return _condition(run, learner.model, learner)
