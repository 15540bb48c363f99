"""From what a user hands over to standardised rows, a monitor and the draws of one fit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from eigengp.arrays import AnyArray, beside, dtype_name, is_numpy, on_host
from eigengp.buffers import reused_buffers
from eigengp.estimators.memory import bytes_of
from eigengp.estimators.rows import (
    MERGE_UP_TO,
    checked_rows,
    checked_weight,
    merged,
    on_device,
)
from eigengp.fitting.families import Family
from eigengp.fitting.learning import Learner
from eigengp.fitting.plan import Plan, default_iterations, default_restarts
from eigengp.fitting.progress import Monitor
from eigengp.fitting.starts import lengthscale_range
from eigengp.fitting.subset import exact_on_subset, subset_plan
from eigengp.flow.arithmetic import KEPT_BYTES, Arithmetic
from eigengp.flow.exact import ExactGP
from eigengp.kernels import Kernel, SquaredExponential
from eigengp.sources.arrays import ArraySource, available_threads, block_rows_for, few_threads
from eigengp.sources.views import Scaling, StandardizedSource
from eigengp.typing import Array

SMALL_BASIS = 1000
"""Basis points up to which one BLAS thread is best: more of them stay awake and in the way."""
_FIRST_NOISE = 0.1
"""The noise variance to start from, as a share of the targets' variance."""


@dataclass
class Training:
    """The rows of one fit, and what is kept while it runs."""

    rows: ArraySource
    """In the units of the data."""
    source: StandardizedSource
    monitor: Monitor
    rng: np.random.RandomState
    offset: float
    """What the units of the data add to the log evidence."""
    given: AnyArray
    """The inputs as they were handed over, whose library results are to be in."""
    sized: bool
    """Whether blocks are to suit the number of features."""
    n_iter: int = 0
    notes: list[str] = field(default_factory=list)
    """What the user should be warned of when the fit has ended."""

    @classmethod
    def of(
        cls, estimator: Any, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> Training:
        """Check what was handed to `estimator.fit` and measure it."""
        given, targets = checked_rows(estimator, X, y)
        weight = checked_weight(sample_weight, given.shape[0])
        rows, device = given, getattr(estimator, "device", None)
        on_device(np.zeros(1), device)  # Say at once if there is none.
        if estimator._learns_on_host or given.shape[0] <= MERGE_UP_TO:
            device = None
            if not is_numpy(rows):
                rows, targets = on_host(rows), on_host(targets)
        if is_numpy(rows):
            rows, targets, weight = merged(rows, targets, weight)
        rows = on_device(rows, device)
        targets = beside(targets, rows, "float64" if is_numpy(rows) else dtype_name(targets))
        source = _source(rows, targets, weight, estimator._block_rows)
        scaling = Scaling.of(source, estimator.standardize)
        total = float(source.n_rows if weight is None else weight.sum())
        offset = -total * float(np.log(scaling.target_scale))
        monitor = Monitor(bool(estimator.verbose), total, offset)
        rng = check_random_state(estimator.random_state)
        return cls(
            source,
            StandardizedSource(source, scaling),
            monitor,
            rng,
            offset,
            given,
            sized=estimator._block_rows is None,
        )

    @property
    def scaling(self) -> Scaling:
        """Between the units of the data and standardised ones."""
        return self.source.scaling

    @property
    def unit(self) -> float:
        """The square of the targets' scale: what variances are multiplied by."""
        return self.scaling.target_scale**2

    def start(self, kernel: Kernel | str | None, noise_variance: float | None) -> ExactGP:
        """Return kernel and noise to start from, in standardised units.

        Parameters
        ----------
        kernel : Kernel, "exact" or None
            In the units of the data; "exact" learns both from the full GP on
            a part of the rows.
        noise_variance : float or None
            In the units of the data; None is a tenth of the targets' variance.
        """
        n_features = self.rows.n_features
        noise = _FIRST_NOISE if noise_variance is None else noise_variance / self.unit
        if isinstance(kernel, Kernel):
            own = kernel.with_ard(n_features)
            return ExactGP(own.rescaled(1.0 / self.scaling.input_scale, 1.0 / self.unit), noise)
        low, high = lengthscale_range(n_features)
        first = ExactGP(SquaredExponential(np.full(n_features, np.sqrt(low * high))), noise)
        if kernel is None:
            return first
        return self.learn_exact(first, subset_plan(self.rows.n_rows))

    def plan(self, estimator: Any, n_components: int, n_inducing: int) -> Plan:
        """Return the settings of a sparse method's estimator, resolved against the data."""
        max_iter = estimator.max_iter
        if max_iter is None:
            max_iter = default_iterations(self.rows.n_rows, n_inducing)
        kernel, n_restarts, tol = estimator.kernel, estimator.n_restarts, estimator.tol
        if n_restarts is None:
            n_restarts = default_restarts(self.rows.n_rows, n_inducing)
        settled = isinstance(kernel, str) or (kernel is not None and n_restarts == 1)
        return Plan(
            n_components,
            n_inducing,
            n_restarts,
            max_iter,
            tol,
            settled=settled,
            arithmetic=_arithmetic(estimator),
        )

    def fit_blocks_to(self, n_columns: int) -> None:
        """Cut the rows into blocks that suit so many features, unless the method has its own."""
        if self.sized:
            size = block_rows_for(self.rows.X, n_columns)
            self.rows = replace(self.rows, block_rows=size)
            self.source = StandardizedSource(self.rows, self.scaling)

    def learn_exact(self, template: ExactGP, plan: Plan) -> ExactGP:
        """Return the full GP learned on some of the rows."""
        model, n_iter = exact_on_subset(template, self.source, plan, self.monitor, self.rng)
        self.n_iter += n_iter
        return model

    def learn(self, family: Family, plan: Plan, template: Any) -> Any:
        """Return the learned model; small matrices are faster on one thread."""
        self.fit_blocks_to(plan.n_inducing)
        learner = Learner(family, plan, self.source, self.monitor, self.rng)
        with few_threads(plan.n_inducing, SMALL_BASIS), reused_buffers():
            model = learner.learn(template)
        self.n_iter += learner.n_iter
        return model

    def in_units(self, points: Array) -> Array:
        """Return standardised inputs in the units of the data."""
        return points * self.scaling.input_scale + self.scaling.input_centre

    def like_given(self, x: Array) -> AnyArray:
        """Return an array in the library and on the device of the inputs handed over."""
        return beside(x, self.given)


def _source(X: AnyArray, y: AnyArray, weight: Array | None, block_rows: int | None) -> ArraySource:
    """Return the source of rows that were checked; without their own size, in large blocks."""
    own = None if weight is None else beside(weight, X)
    return ArraySource(X, y, own, block_rows or block_rows_for(X, 1), available_threads())


def _arithmetic(estimator: Any) -> Arithmetic:
    """Return how the estimator wants its arithmetic done."""
    limit = getattr(estimator, "memory_limit", None)
    return Arithmetic(
        getattr(estimator, "precision", "double"),
        KEPT_BYTES if limit is None else bytes_of(limit),
    )
