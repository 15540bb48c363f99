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
from eigengp.backend.namespace import AnyArray, beside, place, put_inputs
from eigengp.backend.threads import count_available_threads, speed_up_passes, use_one_openmp_thread
from eigengp.data.array_source import ArraySource
from eigengp.data.open import Dataset
from eigengp.data.standardize import Scaling
from eigengp.fitting.checkpoint import Checkpoint, open_checkpoint
from eigengp.fitting.heteroscedastic import LeaveOneOut
from eigengp.fitting.model_selection import EXACT_UP_TO, Decision, Selection
from eigengp.fitting.objectives import Minimum, Objective, minimize
from eigengp.fitting.progress import Clock, Monitor
from eigengp.fitting.settings import Settings
from eigengp.gp.blocks import RowBlock, RowSource
from eigengp.gp.linalg import Spectrum
from eigengp.gp.model import EigenGP
from eigengp.gp.posterior import Predictive
from eigengp.gp.sparse_spectrum import SparseSpectrum
from eigengp.gp.vecchia import VecchiaPass

# Rows in a block of the exact GP: with N columns each, small blocks keep memory near N².
EXACT_BLOCK_ROWS = 128
_TWO_VALUES = (
    "y has only two distinct values. If they are classes, EigenGPClassifier predicts their "
    "probabilities."
)


class FitWarning(UserWarning):
    """A fit has left something out; the message names the parameter to change."""


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
    source: RowSource  # Standardised rows, in blocks for the number of features of the model.
    rng: np.random.RandomState
    monitor: Monitor
    checkpoint: Checkpoint | None = None
    n_iter: int = 0
    # How inducing points are initialised, or an array in standardised units.
    inducing_points: str | Array = "kmeans"
    # The number of threads before BLAS is limited to one.
    n_threads: int = field(default_factory=count_available_threads)
    notes: list[str] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    # Where an exact GP is computed: on the given device, or where the inputs are.
    exact_device: str | None = None

    def restrict(self, rows: RowBlock) -> Run:
        """Return a run on some standardised rows, without a checkpoint."""
        source = ArraySource.of(replace(rows, X=np.asfortranarray(rows.X)))
        dataset = replace(
            self.dataset, rows=source, source=source, n_rows=source.n_rows, device=None
        )
        return replace(self, dataset=dataset, source=source, checkpoint=None, n_iter=0)

    def learn(
        self,
        stage: str,
        objective: Objective,
        max_iter: int,
        tol: float,
        key: object = "",
        stored: bool = True,
    ) -> Minimum:
        """Minimise an objective in one stage; the checkpoint has its evaluations if `stored`."""
        checkpoint = self.checkpoint if stored else None
        with self.monitor.stage(stage, max_iter):
            more = (self.monitor.step, checkpoint, f"{stage} {key}")
            found = minimize(objective, max_iter, tol, *more)
        self.n_iter += found.n_iter
        return found

    def note_few_inputs(self, possible: int, asked: int) -> None:
        """Warn that there are fewer distinct inputs than inducing points."""
        self.notes.append(
            f"There are only {possible} distinct rows: {possible} inducing points are used "
            f"instead of {asked}. Lower n_components or inducing_points."
        )

    def make_result(
        self, model: Any, value: float, posterior: Predictive | LeaveOneOut, **own: Any
    ) -> FitResult:
        """Make the result of the run; `own` are further attributes of a method.

        `value` is the negative log marginal likelihood, in standardised units.
        """
        scored = posterior if isinstance(posterior, LeaveOneOut) else LeaveOneOut(posterior)
        decisions = self.decisions + ([scored.decision] if scored.decision else [])
        dataset, clock = self.dataset, self.monitor.clock
        if clock.was_over:
            self.notes.append("Learning ended early; raise max_time for a better fit.")
        offset = get_log_unit(dataset.scaling, dataset.summary.weight) + dataset.log_slope
        encoder, n_features = dataset.encoder, dataset.scaling.input_scale.size
        found = {
            "encoder_": encoder,
            "n_features_in_": n_features if encoder is None else encoder.n_features_in_,
            "feature_names_in_": dataset.feature_names,
            "target_mean_": dataset.scaling.target_centre,
            "log_marginal_likelihood_": offset - value,
            "selection_": Selection((*decisions, *self._describe_device(model))),
            "history_": self.monitor.history,
            "n_iter_": self.n_iter,
            "leave_one_out_errors_": scored.errors,
            "target_map_": dataset.target_map,
            "_scaling": dataset.scaling,
            "_place": place(dataset.like),
            "_posterior": scored.posterior,
            **describe(model, dataset.scaling, dataset.like, self.settings.has_weights),
            **own,
        }
        optional = ("encoder_", "feature_names_in_", "leave_one_out_errors_", "target_map_")
        kept = {name: v for name, v in found.items() if v is not None or name not in optional}
        return FitResult(model, scored.posterior, kept, tuple(dict.fromkeys(self.notes)))

    def map_inputs(self, input_map: Array | None) -> None:
        """Let results be those of linearly mapped inputs; the source keeps those as given."""
        scaling = replace(self.dataset.scaling, input_map=input_map)
        self.dataset = replace(self.dataset, scaling=scaling)

    def _describe_device(self, model: Any) -> list[Decision]:
        """Return where it was computed, if that was for the fit to choose."""
        if self.exact_device is not None and isinstance(model, VecchiaPass):
            reason = f"learning from neighbours; many rows are predicted on {self.exact_device}"
            return [Decision("device", "cpu", reason)]
        if self.settings.parameters.get("device") != "auto":
            return []
        used = getattr(model, "device", None) or self.dataset.device
        if used is not None:
            return [Decision("device", used, "a GPU is available and faster")]
        none = self.settings.device is None
        reason = "no GPU is available" if none else "this model or so few rows are faster there"
        return [Decision("device", "cpu", reason)]


def get_log_unit(scaling: Scaling, weight: float) -> float:
    """Return what the unit of the targets adds to the log marginal likelihood of rows."""
    return -weight * float(np.log(scaling.target_scale))


@contextmanager
def begin_run(dataset: Dataset, settings: Settings) -> Iterator[Run]:
    """Start a run; its checkpoint is removed on success, and kept on failure."""
    weight = dataset.summary.weight
    rng = check_random_state(settings.random_state)
    clock = Clock(settings.max_time, dataset.opened)
    offset = get_log_unit(dataset.scaling, weight) + dataset.log_slope
    monitor = Monitor(settings.verbose, weight, offset, clock=clock)
    checkpoint = _open_checkpoint(dataset, settings, rng)
    own = dataset.like.device if getattr(dataset.like, "is_cuda", False) else None
    try:
        points = _standardize_points(settings.inducing_points, dataset.scaling)
        size, n_threads = get_largest_size(dataset, settings), count_available_threads()
        run = Run(
            dataset,
            settings,
            dataset.source,
            rng,
            monitor,
            checkpoint,
            inducing_points=points,
            n_threads=n_threads,
            exact_device=str(own) if settings.device is None and own else settings.device,
        )
        if settings.likelihood is None and dataset.has_two_values:
            run.notes.append(_TWO_VALUES)
        with speed_up_passes(size), use_one_openmp_thread():
            yield run
    except BaseException:
        if checkpoint is not None:
            checkpoint.close()
        raise
    if checkpoint is not None:
        checkpoint.remove()


def _standardize_points(given: str | Array, scaling: Scaling) -> str | Array:
    """Check inducing points that are given, and bring them to standardised units."""
    if isinstance(given, str):
        return given
    if given.shape[1] != (D := scaling.input_centre.size):
        raise ValueError(
            f"inducing_points has {given.shape[1]} columns but X has {D} features; each "
            "inducing point needs one value for each feature."
        )
    return scaling.transform_inputs(given)


def get_largest_size(dataset: Dataset, settings: Settings) -> int:
    """Return the size of the largest matrix that is factorised: inducing points, or rows.

    Default numbers of inducing points are small.
    """
    points, residual = settings.inducing_points, settings.residual
    given = 0 if isinstance(points, str) else points.shape[0]
    size = max(given, settings.n_inducing or 0, settings.n_components or 0)
    few = residual == "auto" and dataset.n_rows <= EXACT_UP_TO
    exact = few or residual == "exact" or settings.reading.max_rows is not None
    return size or (dataset.n_rows if exact else 0)


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
    kernel: Any = getattr(model, "kernel", None)
    found: dict[str, Any] = {"noise_variance_": model.noise_variance * unit}
    spectrum, weights = None, np.empty(0)
    if isinstance(model, EigenGP | VecchiaPass):
        points, kernel = model.features.points, model.features.kernel
        found["inducing_points_"] = beside(scaling.restore_inputs(points), like)
    found["kernel_"] = scaling.restore_kernel(kernel, unit)
    if scaling.input_map is not None:
        found["input_map_"] = beside(scaling.unit_map, like)
    if isinstance(model, VecchiaPass):
        found["jitter_"] = unit * model.jitter * model.features.prior_scale
        if has_weights:
            spectrum = Spectrum.of(model.factor.gram)
            weights = spectrum.weights(np.ones(points.shape[0]))
    if isinstance(model, EigenGP):
        found["jitter_"] = unit * model.gram.jitter
        if has_weights:
            spectrum, weights = model.spectrum, model.spectrum.weights(model.effective_shrinkage)
    if spectrum is not None:
        found["_spectrum"], found["weights_"] = spectrum, beside(unit * weights, like)
        found["eigenvalues_"] = beside(unit * spectrum.values[: weights.size], like)
    if isinstance(model, SparseSpectrum):
        columns = scaling.columns or range(scaling.n_columns)
        points = put_inputs(model.spectral_points, columns, scaling.input_scale.size)
        found["spectral_points_"] = beside(points / found["kernel_"].lengthscale, like)
    return found
