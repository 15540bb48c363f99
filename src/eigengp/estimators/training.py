"""From what a user hands over to standardised rows, a monitor and the draws of one fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from eigengp.estimators.rows import checked_weight, merged
from eigengp.fitting.families import Family
from eigengp.fitting.learning import Learner
from eigengp.fitting.plan import Plan, default_iterations
from eigengp.fitting.progress import Monitor
from eigengp.fitting.starts import lengthscale_range
from eigengp.fitting.subset import exact_on_subset, subset_plan
from eigengp.flow.exact import ExactGP
from eigengp.kernels import Kernel, SquaredExponential
from eigengp.sources.arrays import ArraySource, available_threads, few_threads
from eigengp.sources.views import Scaling, StandardizedSource
from eigengp.typing import Array

_SMALL_BASIS = 200
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
    n_iter: int = 0
    notes: list[str] = field(default_factory=list)
    """What the user should be warned of when the fit has ended."""

    @classmethod
    def of(
        cls, estimator: Any, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> Training:
        """Check what was handed to `estimator.fit` and measure it."""
        X, y = validate_data(estimator, X, y, dtype=[np.float64, np.float32], y_numeric=True)
        weight = checked_weight(sample_weight, np.asarray(X))
        X, y, weight = merged(np.asarray(X), np.asarray(y), weight)
        rows = ArraySource(X, y, weight, estimator._block_rows, available_threads())
        scaling = Scaling.of(rows, estimator.standardize)
        total = float(rows.n_rows if weight is None else weight.sum())
        offset = -total * float(np.log(scaling.target_scale))
        monitor = Monitor(bool(estimator.verbose), total, offset)
        rng = check_random_state(estimator.random_state)
        return cls(rows, StandardizedSource(rows, scaling), monitor, rng, offset)

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
        settled = isinstance(kernel, str) or (kernel is not None and n_restarts == 1)
        return Plan(n_components, n_inducing, n_restarts, max_iter, tol, settled=settled)

    def learn_exact(self, template: ExactGP, plan: Plan) -> ExactGP:
        """Return the full GP learned on some of the rows."""
        model, n_iter = exact_on_subset(template, self.source, plan, self.monitor, self.rng)
        self.n_iter += n_iter
        return model

    def learn(self, family: Family, plan: Plan, template: Any) -> Any:
        """Return the learned model; small matrices are faster on one thread."""
        learner = Learner(family, plan, self.source, self.monitor, self.rng)
        with few_threads(plan.n_inducing, _SMALL_BASIS):
            model = learner.learn(template)
        self.n_iter += learner.n_iter
        return model

    def in_units(self, points: Array) -> Array:
        """Return standardised inputs in the units of the data."""
        return points * self.scaling.input_scale + self.scaling.input_centre
