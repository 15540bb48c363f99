"""From what a user hands over to standardised rows, a monitor and the draws of one fit."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, beside, namespace
from eigengp.backend.threads import at_work
from eigengp.data.array_source import ArraySource
from eigengp.data.memory import memory_of
from eigengp.data.open import opened
from eigengp.data.stream_source import StreamSource
from eigengp.data.summary import Extent, Summary
from eigengp.data.views import Scaling, StandardizedSource
from eigengp.fitting.checkpoint import Checkpoint
from eigengp.fitting.clock import Clock
from eigengp.fitting.families import Family
from eigengp.fitting.fingerprint import journal_for
from eigengp.fitting.initialization import lengthscale_range
from eigengp.fitting.progress import Monitor
from eigengp.fitting.settings import Plan, default_iterations, default_restarts
from eigengp.fitting.stages import Learner
from eigengp.fitting.subset import exact_on_subset, subset_plan
from eigengp.gp.blocks import RowBlock, RowSource
from eigengp.gp.exact import ExactGP
from eigengp.gp.precision import Arithmetic
from eigengp.kernels import Kernel, SquaredExponential

_FIRST_NOISE = 0.1
"""The noise variance to start from, as a share of the targets' variance."""


@dataclass
class Training:
    """The rows of one fit, and what is kept while it runs."""

    rows: RowSource
    """In the units of the data."""
    source: RowSource
    """Standardised."""
    scaling: Scaling
    """Between the units of the data and standardised ones."""
    monitor: Monitor
    rng: np.random.RandomState
    offset: float
    """What the units of the data add to the log evidence."""
    given: AnyArray
    """An array in whose library, and on whose device, results are to be."""
    box: Extent
    """Around the inputs, standardised."""
    sized: bool
    """Whether blocks are to suit the number of features."""
    journal: Checkpoint | None = None
    """What an earlier fit that was killed has found."""
    stack: ExitStack = field(default_factory=ExitStack)
    """What must stay open while the rows are used."""
    n_iter: int = 0
    notes: list[str] = field(default_factory=list)
    """What the user should be warned of when the fit has ended."""

    @classmethod
    def of(
        cls, estimator: Any, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> Training:
        """Check what was handed to `estimator.fit` and measure it."""
        clock = Clock(getattr(estimator, "max_time", None))
        with ExitStack() as stack:
            rows, given = opened(estimator, X, y, sample_weight, stack)
            summary = Summary.of(rows)
            if summary.weight == 0.0:
                raise ValueError("Sample weights must contain at least one non-zero number.")
            scaling = Scaling.measured(rows, summary, estimator.standardize)
            rng = check_random_state(estimator.random_state)
            offset = -summary.weight * float(np.log(scaling.target_scale))
            return cls(
                rows,
                StandardizedSource(rows, scaling),
                scaling,
                Monitor(bool(estimator.verbose), summary.weight, offset, clock=clock),
                rng,
                offset,
                given,
                scaling.extent(summary.extent),
                sized=estimator._block_rows is None,
                journal=journal_for(estimator, rows.n_rows, summary, scaling, rng),
                stack=stack.pop_all(),
            )

    def __enter__(self) -> Training:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """Close the rows; remove the checkpoint of a fit that has ended well, keep another's."""
        self.stack.close()
        if self.journal is not None:
            self.journal.remove() if error is None else self.journal.close()

    def on(self, rows: RowBlock) -> Training:
        """Return the same for a few standardised rows alone, with nothing to remember."""
        source = ArraySource.of(rows)
        none = namespace(self.given).empty_like(self.given[:0, :])  # A view would keep all rows.
        return replace(self, rows=source, source=source, given=none, journal=None, n_iter=0)

    def counting(self, weight: float) -> Training:
        """Return the same for an evidence of rows with so much weight in all."""
        return replace(self, offset=-weight * float(np.log(self.scaling.target_scale)))

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
            kernel.with_ard(n_features)  # Raises where it does not fit these inputs.
            per_unit = 1.0 / self.scaling.input_scale
            shift = -self.scaling.input_centre * per_unit
            own = kernel.rescaled(per_unit, 1.0 / self.unit, shift)
            return ExactGP(own.with_ard(n_features), noise)
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
            arithmetic=_arithmetic(estimator, streams=isinstance(self.rows, StreamSource)),
        )

    def fit_blocks_to(self, n_columns: int) -> None:
        """Cut the rows into blocks that suit so many features, unless the method has its own."""
        if self.sized:
            self.source = self.source.sized(n_columns)

    def learn_exact(self, template: ExactGP, plan: Plan) -> ExactGP:
        """Return the full GP learned on some of the rows."""
        model, n_iter = exact_on_subset(template, self.source, plan, self.monitor, self.rng)
        self.n_iter += n_iter
        return model

    def learn(self, family: Family, plan: Plan, template: Any) -> Any:
        """Return the learned model; small matrices are faster on one thread."""
        self.fit_blocks_to(plan.n_inducing)
        learner = Learner(family, plan, self.source, self.monitor, self.rng, self.box, self.journal)
        with at_work(plan.n_inducing):
            model = learner.learn(template)
        self.n_iter += learner.n_iter
        return model

    def in_units(self, points: Array) -> Array:
        """Return standardised inputs in the units of the data."""
        return self.scaling.in_units(points)

    def like_given(self, x: Array) -> AnyArray:
        """Return an array in the library and on the device of the inputs handed over."""
        return beside(x, self.given)


def _arithmetic(estimator: Any, streams: bool) -> Arithmetic:
    """Return how the estimator wants its arithmetic done; rows that stream share its memory."""
    memory = memory_of(estimator)
    precision = getattr(estimator, "precision", "double")
    return Arithmetic(precision, memory // 2 if streams else memory)
