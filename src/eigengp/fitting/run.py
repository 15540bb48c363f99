"""The state of one fit while it runs, and its result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, beside, place
from eigengp.backend.threads import limit_threads, speed_up_passes
from eigengp.data.array_source import ArraySource
from eigengp.data.holdout import sample_rows
from eigengp.data.open import Dataset
from eigengp.data.standardize import Extent, Scaling
from eigengp.fitting.checkpoint import Checkpoint, open_checkpoint
from eigengp.fitting.initialization import ExactFamily, Family, make_start_kernel
from eigengp.fitting.model_selection import Decision, Selection
from eigengp.fitting.progress import Clock, Monitor
from eigengp.fitting.settings import Plan, Settings
from eigengp.fitting.stages import Stages
from eigengp.gp.blocks import RowBlock, RowSource
from eigengp.gp.exact import ExactGP
from eigengp.gp.likelihoods import Gaussian
from eigengp.gp.model import EigenGP
from eigengp.gp.posterior import Predictive
from eigengp.gp.sparse_spectrum import SparseSpectrum
from eigengp.kernels import Kernel

EXACT_BLOCK_ROWS = 128
"""Rows in a block of the exact GP: with N columns each, small blocks keep memory near N²."""
SUBSET_RANGE = (500, 2_000)
"""The smallest and largest number of rows of the exact GP that a fit starts from."""
_FIRST_NOISE = 0.1
"""The noise variance to start from, relative to the variance of the targets."""


@dataclass(frozen=True)
class FitResult:
    """The result of a fit.

    Parameters
    ----------
    model : object
        The learned model, in standardised units.
    posterior : Predictive
        The model conditioned on all rows.
    attributes : dict
        The attributes of the estimator, in the units of the data.
    notes : tuple of str
        Warnings for the user.
    """

    model: Any
    posterior: Predictive
    attributes: dict[str, Any]
    notes: tuple[str, ...] = ()


@dataclass
class Run:
    """One fit while it runs: its rows, settings, random numbers, progress and checkpoint."""

    dataset: Dataset
    settings: Settings
    source: RowSource
    """Standardised rows, in blocks for the number of features of the model."""
    rng: np.random.RandomState
    monitor: Monitor
    checkpoint: Checkpoint | None = None
    n_iter: int = 0
    notes: list[str] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    def restrict(self, rows: RowBlock) -> Run:
        """Return a run on some standardised rows, without a checkpoint."""
        dataset = self.dataset.restrict(rows)
        return replace(self, dataset=dataset, source=dataset.source, checkpoint=None, n_iter=0)

    def make_start(self) -> ExactGP:
        """Make the kernel and noise to start from, in standardised units."""
        settings, scaling, D = self.settings, self.dataset.scaling, self.dataset.n_features
        unit, own = scaling.target_scale**2, settings.noise_variance
        noise = _FIRST_NOISE if own is None else own / unit
        if isinstance(settings.kernel, Kernel):
            settings.kernel.with_ard(D)  # Raises if it does not match these inputs.
            per_unit = 1.0 / scaling.input_scale
            shift = -scaling.input_centre * per_unit
            kernel = settings.kernel.rescaled(per_unit, 1.0 / unit, shift).with_ard(D)
        else:
            kernel = make_start_kernel(settings.kernel, D)
        first = ExactGP(kernel, Gaussian(noise))
        exact_start = getattr(settings.optimizer, "exact_start", False)
        return self.learn_exact_on_subset(first) if exact_start else first

    def learn_exact_on_subset(self, template: ExactGP, plan: Plan | None = None) -> ExactGP:
        """Learn the exact GP on a subset of the rows; by default a tenth, within limits."""
        low, high = SUBSET_RANGE
        n = self.dataset.n_rows
        count = min(n, max(low, min(high, n // 10))) if plan is None else plan.n_inducing
        plan = plan or Plan(count, count, n_restarts=8, max_iter=100, tol=1e-8)
        rows = sample_rows(self.source, count, self.rng)
        part = ArraySource(rows.X, rows.y, rows.sample_weight, EXACT_BLOCK_ROWS)
        box = Extent.around(rows.X)
        stages = Stages(ExactFamily(), plan, part, self.monitor, self.rng, box)
        with limit_threads(count):
            model: ExactGP = stages.learn(template)
        self.n_iter += stages.n_iter
        return model

    def learn(self, family: Family, plan: Plan, template: Any) -> Any:
        """Learn a model, with the rows in blocks for its number of features."""
        if self.dataset.resizable:
            self.source = self.source.sized(plan.n_inducing)
        monitor, rng, box = self.monitor, self.rng, self.dataset.extent
        stages = Stages(family, plan, self.source, monitor, rng, box, self.checkpoint)
        with speed_up_passes(plan.n_inducing):
            model = stages.learn(template)
        self.n_iter += stages.n_iter
        return model

    def make_result(
        self,
        model: Any,
        outcome: Any,
        posterior: Predictive,
        errors: Array | None = None,
        **own: Any,
    ) -> FitResult:
        """Make the result of the run; `own` are further attributes of a method."""
        dataset = self.dataset
        found = {
            "n_features_in_": dataset.n_features,
            "feature_names_in_": dataset.feature_names,
            "target_mean_": dataset.scaling.target_centre,
            "log_marginal_likelihood_": self.offset - outcome.value,
            "selection_": Selection(tuple(self.decisions)),
            "history_": self.monitor.history,
            "n_iter_": self.n_iter,
            "leave_one_out_errors_": errors,
            "_scaling": dataset.scaling,
            "_place": place(dataset.like),
            "_posterior": posterior,
            **describe(model, dataset.scaling, dataset.like, self.settings.has_weights),
            **own,
        }
        optional = ("feature_names_in_", "leave_one_out_errors_")
        kept = {name: v for name, v in found.items() if v is not None or name not in optional}
        return FitResult(model, posterior, kept, tuple(dict.fromkeys(self.notes)))

    @property
    def offset(self) -> float:
        """What the units of the data add to the log marginal likelihood."""
        return get_log_unit(self.dataset.scaling, self.dataset.summary.weight)


def get_log_unit(scaling: Scaling, weight: float) -> float:
    """Return what the unit of the targets adds to the log marginal likelihood of rows."""
    return -weight * float(np.log(scaling.target_scale))


@contextmanager
def begin_run(dataset: Dataset, settings: Settings) -> Iterator[Run]:
    """Start a run; its checkpoint is removed on success, and kept on failure."""
    weight = dataset.summary.weight
    rng = check_random_state(settings.random_state)
    clock = Clock(settings.max_time, dataset.opened)
    monitor = Monitor(settings.verbose, weight, get_log_unit(dataset.scaling, weight), clock=clock)
    checkpoint = _open_checkpoint(dataset, settings, rng)
    try:
        yield Run(dataset, settings, dataset.source, rng, monitor, checkpoint)
    except BaseException:
        if checkpoint is not None:
            checkpoint.close()
        raise
    if checkpoint is not None:
        checkpoint.remove()


def _open_checkpoint(
    dataset: Dataset, settings: Settings, rng: np.random.RandomState
) -> Checkpoint | None:
    """Open the checkpoint of a fit, if it has one."""
    path = getattr(settings.optimizer, "checkpoint", None)
    if path is None:
        return None
    ignored = {"verbose", "optimizer", "optimizer__checkpoint"}
    if not isinstance(settings.random_state, Integral):
        ignored.add("random_state")
    own = {name: v for name, v in settings.parameters.items() if name not in ignored}
    scaling, ends = dataset.scaling, (dataset.summary.low, dataset.summary.high)
    targets = (dataset.n_rows, scaling.target_centre, scaling.target_scale)
    numbers = (*targets, scaling.input_centre, scaling.input_scale, *ends)
    return open_checkpoint(path, {**own, "method": settings.reading.name}, numbers, rng)


def describe(model: Any, scaling: Scaling, like: AnyArray, has_weights: bool) -> dict[str, Any]:
    """Return the attributes of a model in the units of the data, in the library of `like`."""
    unit = scaling.target_scale**2
    found = {
        "kernel_": model.kernel.rescaled(scaling.input_scale, unit, scaling.input_centre),
        "noise_variance_": model.noise_variance * unit,
    }
    if isinstance(model, EigenGP):
        found["inducing_points_"] = beside(scaling.restore_inputs(model.inducing_points), like)
        found["jitter_"] = model.jitter.of(model.features) * unit
        if has_weights:
            spectrum = model.spectrum
            eigenvalues = spectrum.values[: model.n_components]
            found["_spectrum"] = spectrum
            found["weights_"] = beside(spectrum.weights(model.effective_shrinkage) * unit, like)
            found["eigenvalues_"] = beside(eigenvalues * unit, like)
    if isinstance(model, SparseSpectrum):
        lengthscale = model.kernel.lengthscale * scaling.input_scale
        found["spectral_points_"] = beside(model.spectral_points / lengthscale, like)
    return found
