"""The local residual, between what a user hands over and the learning of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from eigengp.estimators.inducing import RELATIVE_JITTER
from eigengp.estimators.training import Training
from eigengp.fitting.local import LocalLearner
from eigengp.fitting.plan import Plan, is_small
from eigengp.fitting.starts import BasisInit
from eigengp.fitting.varying import Varying, learn_varying
from eigengp.flow.exact import ExactGP
from eigengp.flow.local import LocalOutcome, LocalPass
from eigengp.flow.local_posterior import LocalPosterior
from eigengp.flow.model import EigenGP, Jitter
from eigengp.flow.rows import RowBlock
from eigengp.kernels import Stationary
from eigengp.sources.neighbours import Nearest, NeighbourSource
from eigengp.sources.threads import at_work, available_threads, in_threads

_FIRST_STEPS = 30
_TRIED_POINTS = 50
_TRIED_ROWS = 5_000
_KERNEL_STEPS = 15
_STEPS = 45
_LEARNED_ROWS = 10_000
_LEAST_ROWS = 100
"""So few rows cannot tell how the noise varies."""
_LEFT_OUT_ROWS = 10_000
_LEFT_OUT_CHUNK = 256


def check_settings(estimator: Any) -> None:
    """Say which settings of an estimator do not go together."""
    local = estimator.residual == "local"
    if local and estimator.optimization != "sequential":
        raise ValueError(
            f"residual='local' has an optimization of its own, not {estimator.optimization!r}; "
            "leave optimization at 'sequential'."
        )
    for name, value in (("kernel", "auto"), ("noise", "varying")):
        asked = getattr(estimator, name)
        if not local and isinstance(asked, str) and asked == value:
            raise ValueError(f"{name}={value!r} needs residual='local'.")


def first_plan(plan: Plan, n_rows: int) -> Plan:
    """Return the settings of stage 1 before the local residual: a short one."""
    if plan.n_components < plan.n_inducing:
        raise ValueError(
            f"residual='local' keeps all eigenfunctions: n_components={plan.n_components} of "
            f"{plan.n_inducing} basis points are not to be had."
        )
    return replace(
        plan,
        max_iter=min(plan.max_iter, _FIRST_STEPS),
        n_restarts=plan.n_restarts if is_small(n_rows, plan.n_inducing) else 1,
        settled=True,
    )


@dataclass
class LocalFit:
    """One fit with the residual between neighbours.

    Parameters
    ----------
    training : Training
        The rows, standardised, and what is kept while the fit runs.
    n_neighbors : int
        How many neighbours a row has in the end.
    max_iter : int or None
        At most so many iterations; None is 45.
    """

    training: Training
    n_neighbors: int
    max_iter: int | None
    selection: dict[str, Any] = field(default_factory=dict)
    """What was chosen, and what it was chosen by."""
    best: EigenGP | None = None
    """The kernel that was chosen, with what was learned of it on a part of the rows."""

    def __post_init__(self) -> None:
        source, rng = self.training.source, self.training.rng
        rows = source.take(np.arange(source.n_rows))
        self.rows: RowBlock = rows.picked(rng.permutation(rows.n_rows))
        self.n_threads = available_threads()
        self.learner = LocalLearner(
            self.rows,
            self.training.box,
            self.training.monitor,
            self.n_threads,
            self.training.journal,
        )

    @property
    def _steps(self) -> int:
        return _STEPS if self.max_iter is None else self.max_iter

    def best_kernel(self, start: ExactGP) -> ExactGP:
        """Return where to start with the best of several kernels, and remember what it learned."""
        if self._steps == 0:
            return start
        few, _ = self.rows.cut(_TRIED_ROWS)
        count = min(_TRIED_POINTS, max(1, few.n_rows // 4))
        points = BasisInit("kmeans").place(few, count, start.kernel, self.training.rng)
        jitter = Jitter(relative=RELATIVE_JITTER)
        template = EigenGP(start.kernel, points, start.noise_variance, count, jitter=jitter)
        with at_work(count):
            self.best = self.learner.best_kernel(template, self._steps)
        self.selection["kernel"] = self.learner.losses
        first, kind = start.kernel, type(self.best.kernel)
        assert isinstance(first, Stationary)
        assert issubclass(kind, Stationary)
        return replace(start, kernel=kind(first.lengthscale))

    def learned(self, first: EigenGP) -> EigenGP:
        """Return the model after stage 1 learned by the local evidence, from the chosen kernel."""
        model, steps = replace(first, local=True, shrinkage=None, residual=False), self._steps
        with at_work(model.inducing_inputs.shape[0]):
            if self.best is not None:
                own, noise = self.best.kernel, self.best.noise_variance
                model = replace(model, kernel=own, noise_variance=noise)
            elif steps:
                model = self.learner.kernel(model, _LEARNED_ROWS, min(steps, _KERNEL_STEPS))
            if steps:
                model = self.learner.everything(model, _LEARNED_ROWS, steps)
            source: Any = NeighbourSource.of(
                self.rows, model.kernel.metric, self.n_neighbors, self.n_threads
            )
        self.training.n_iter += self.learner.n_iter
        self.training.source = source
        return model

    def posterior(self, outcome: LocalOutcome, varying: bool) -> LocalPosterior:
        """Return the posterior after a pass over the rows; its noise may be `varying`."""
        rows = self.rows
        assert isinstance(outcome.flow, LocalPass)
        metric = outcome.flow.features.kernel.metric
        search = Nearest.of(rows.X, metric, self.n_neighbors)
        posterior = LocalPosterior.of(outcome, rows, search, search.count)
        if not varying or rows.n_rows < _LEAST_ROWS:
            return posterior
        with at_work(posterior.features.size):
            found = self._varying(posterior, search)
        self.selection["noise"] = found.losses
        return replace(posterior, scale=found.scale)

    def _varying(self, posterior: LocalPosterior, search: Nearest) -> Varying:
        """Learn how the noise varies from some rows, each of which is left out."""
        count = min(_LEFT_OUT_ROWS, self.rows.n_rows)
        some, _ = self.rows.cut(count)
        index = search.others(some.X, np.arange(count))
        edges = range(0, count, _LEFT_OUT_CHUNK)
        chunks = [slice(i, min(i + _LEFT_OUT_CHUNK, count)) for i in edges]

        def stripe(part: list[slice]) -> list[Any]:
            return [
                posterior.left_out(some.picked(np.arange(at.start, at.stop)), index[at])
                for at in part
            ]

        parts = [each for found in in_threads(stripe, chunks, self.n_threads) for each in found]
        mean, variance, signs = (np.concatenate(each) for each in zip(*parts, strict=True))
        n_local = signs.shape[1] - posterior.features.size
        return learn_varying(some.y - mean, variance, signs, n_local, some.sample_weight)
