"""The local residual, between what a user hands over and the learning of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from eigengp._typing import NeighborSearch
from eigengp.backend.threads import at_work, available_threads, in_threads
from eigengp.data.neighbor_search import check_search
from eigengp.data.neighbors import Nearest, NeighborSource
from eigengp.fitting.clock import Clock
from eigengp.fitting.initialization import BasisInit
from eigengp.fitting.leave_one_out import LeaveOneOut, judged, loss_of, unjudged
from eigengp.fitting.model_selection import Choices
from eigengp.fitting.settings import RELATIVE_JITTER, Plan, is_small
from eigengp.fitting.training import Training
from eigengp.fitting.vecchia import VecchiaLearner
from eigengp.gp.blocks import RowBlock
from eigengp.gp.exact import ExactGP
from eigengp.gp.linalg import FactorizationError
from eigengp.gp.model import EigenGP, Jitter
from eigengp.gp.vecchia import VecchiaOutcome, VecchiaPass
from eigengp.gp.vecchia_posterior import VecchiaPosterior
from eigengp.kernels import (
    Kernel,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
    Stationary,
)

_FIRST_STEPS = 20
_TRIED_POINTS = 50
_TRIED_ROWS = 5_000
_KERNEL_STEPS = 15
_STEPS = 25
_LEARNED_ROWS = 10_000
_LEAST_LEARNED_ROWS = 1_000
_CONDITIONED = 32
"""How many neighbours rows have at most while the coefficients are learned: more change little."""
_LEFT_OUT_ROWS = 6_000
_LEFT_OUT_CHUNK = 256
_FIRST_SIZE, _LAST_SIZE = 200, 400
"""With how many basis points a model begins to grow, and how many it has at most in a minute."""
_WORTH = 0.01
"""By how much twice as many must be better, in nats for each row held out, to be taken."""
_ROWS_PER_POINT = 25
_LEAST_SIZE, _MOST_SIZE = 50, 800
_MOST_FEATURES = 40_000_000
"""So many features of all rows are held in memory without being asked."""
_SIZE_PER_SECOND = 10
_LEARNED_ROWS_PER_SECOND = 500
_UNTIL = (0.4, 0.7, 0.9)
"""Until which share of a limited time stage 1, the local evidence and rows left out may take."""


def largest_size(n_rows: int, seconds: float | None = None) -> int:
    """Return how many basis points a model with neighbours has at most, unless told.

    Little time is better spent on few.
    """
    size = _LAST_SIZE
    if seconds is not None:
        size = min(_MOST_SIZE, max(_LEAST_SIZE, round(_SIZE_PER_SECOND * seconds)))
    return max(1, min(size, n_rows // _ROWS_PER_POINT, _MOST_FEATURES // max(1, n_rows)))


def _is_smooth(kernel: Kernel) -> bool:
    """Say whether functions have derivatives; those of many lengthscales at once look rough."""
    if isinstance(kernel, RationalQuadratic):
        return kernel.alpha >= 1.0
    return isinstance(kernel, SquaredExponential | Matern52)


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
        At most so many iterations in each stage; None is 25.
    search : {"auto", "exact", "approximate"}
        How they are sought.
    """

    training: Training
    n_neighbors: int
    max_iter: int | None
    search: NeighborSearch = "auto"
    selection: dict[str, Any] = field(default_factory=dict)
    """What was chosen, and what it was chosen by."""
    best: EigenGP | None = None
    """The kernel that was chosen, with what was learned of it on a part of the rows."""

    def __post_init__(self) -> None:
        check_search(self.search)
        source, rng = self.training.source, self.training.rng
        rows = source.take(np.arange(source.n_rows))
        self.rows: RowBlock = rows.picked(rng.permutation(rows.n_rows))
        self.n_threads = available_threads()
        self.learner = VecchiaLearner(
            self.rows,
            self.training.box,
            self.training.monitor,
            self.n_threads,
            self.training.journal,
            self.search,
        )

    @property
    def _clock(self) -> Clock:
        return self.training.monitor.clock

    @property
    def _learned_rows(self) -> int:
        """How many rows everything is learned on."""
        limit = self._clock.limit
        few = _LEARNED_ROWS if limit is None else round(_LEARNED_ROWS_PER_SECOND * limit)
        return min(_LEARNED_ROWS, max(few, _LEAST_LEARNED_ROWS))

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
        self._clock.allow(_UNTIL[0])
        first, best = start.kernel, self.best.kernel
        assert isinstance(first, Stationary)
        assert isinstance(best, Stationary)
        kernel = replace(best, lengthscale=first.lengthscale, variance=first.variance)
        return replace(start, kernel=kernel)

    def size(self, kernel: Kernel) -> int:
        """Return how many basis points to have: twice as many while rows held out gain by it.

        Eigenfunctions describe what is smooth, and more of them describe more of
        it; what is rough the neighbours describe, and more eigenfunctions do
        little. That decides where no kernel was chosen.
        """
        most = largest_size(self.rows.n_rows, self._clock.limit)
        size = min(_FIRST_SIZE, most)
        if self.best is None:
            return min(_LAST_SIZE, most) if _is_smooth(kernel) else size
        losses: dict[int, float] = {}
        while most >= 1.5 * size and not self._clock.is_over():
            more = min(2 * size, most)
            for each in sorted({size, more} - losses.keys()):
                losses[each] = self._held_out_loss(self.best, each)
            if not losses[more] < losses[size] - _WORTH:
                break
            size = more
        if losses:
            self.selection["n_components"] = losses
            self._clock.allow(_UNTIL[0])
        return size

    def _held_out_loss(self, model: EigenGP, size: int) -> float:
        """Return `LeaveOneOut.loss` of rows held out, for so many points that are not learned.

        A fifth of a part of the rows is held out.
        """
        few, _ = self.rows.cut(_TRIED_ROWS)
        seen, held_out = few.cut(few.n_rows - few.n_rows // 5)
        rng = check_random_state(0)  # This measures, and is not to move what follows.
        with at_work(size):
            points = BasisInit("kmeans").place(seen, size, model.kernel, rng)
            model = replace(model, inducing_points=points, n_components=points.shape[0])
            try:
                outcome = self._outcome(model, seen, _CONDITIONED)
            except FactorizationError:
                return float("inf")
            posterior, _ = self._posterior(outcome, seen)
            edges = range(0, held_out.n_rows, _LEFT_OUT_CHUNK)
            parts = [
                posterior.mean_and_variance(held_out.X[i : i + _LEFT_OUT_CHUNK]) for i in edges
            ]
        mean, variance = (np.concatenate(each) for each in zip(*parts, strict=True))
        return loss_of(held_out, mean, variance)

    def learned(self, first: EigenGP) -> EigenGP:
        """Return the model after stage 1 learned by the local evidence, from the chosen kernel."""
        model, steps = replace(first, vecchia=True, shrinkage=None, residual=False), self._steps
        self._clock.allow(_UNTIL[1])
        with at_work(model.inducing_points.shape[0]):
            if self.best is not None:
                own, noise = self.best.kernel, self.best.noise_variance
                model = replace(model, kernel=own, noise_variance=noise)
            elif steps:
                model = self.learner.kernel(model, self._learned_rows, min(steps, _KERNEL_STEPS))
            if steps:
                model = self.learner.everything(model, self._learned_rows, steps)
        self.training.n_iter += self.learner.n_iter
        return model

    def conditioned(self, model: EigenGP) -> VecchiaOutcome:
        """Return the outcome of a pass over all rows."""
        with at_work(model.inducing_points.shape[0]):
            return self._outcome(model, self.rows, min(self.n_neighbors, _CONDITIONED))

    def _outcome(self, model: EigenGP, rows: RowBlock, count: int) -> VecchiaOutcome:
        """Return the outcome of a pass over these rows, with so many neighbours each."""
        metric = model.kernel.metric(rows.X.shape[1])
        source: Any = NeighborSource.of(rows, metric, count, self.n_threads, search=self.search)
        outcome = model.forward(source)
        assert isinstance(outcome, VecchiaOutcome)
        return outcome

    def _posterior(
        self, outcome: VecchiaOutcome, rows: RowBlock
    ) -> tuple[VecchiaPosterior, Nearest]:
        """Return the posterior after a pass over these rows, and what finds the nearest of them."""
        assert isinstance(outcome.flow, VecchiaPass)
        metric = outcome.flow.features.kernel.metric(rows.X.shape[1])
        search = Nearest.of(rows.X, metric, self.n_neighbors, self.search)
        return VecchiaPosterior.of(outcome, rows, search, search.count), search

    def judged(self, outcome: VecchiaOutcome, choices: Choices) -> LeaveOneOut:
        """Return the posterior after a pass over the rows, and how it does on rows left out."""
        rows, noise = self.rows, choices.noise
        posterior, search = self._posterior(outcome, rows)
        if noise == "constant" and not choices.or_plain:
            return unjudged(posterior)
        some, _ = rows.cut(min(_LEFT_OUT_ROWS, rows.n_rows))
        self._clock.allow(_UNTIL[2])
        with at_work(posterior.features.size):
            found = self._left_out(posterior, search, some)
        seen, _ = some.cut(found[0].size)
        return judged(posterior, seen, found, posterior.features.size, noise)

    def _left_out(
        self, posterior: VecchiaPosterior, search: Nearest, some: RowBlock
    ) -> tuple[Any, ...]:
        """Return mean, variance and signs of some rows, each left out, as many as time allows."""
        count = some.n_rows
        step = _LEFT_OUT_CHUNK * self.n_threads
        parts: list[Any] = []
        for start in range(0, count, step):
            own = np.arange(start, min(start + step, count))
            index = search.others(some.X[own], own)
            edges = range(0, own.size, _LEFT_OUT_CHUNK)
            chunks = [slice(i, min(i + _LEFT_OUT_CHUNK, own.size)) for i in edges]

            def stripe(part: Sequence[slice], own: Any = own, index: Any = index) -> list[Any]:
                return [posterior.leave_one_out(some.picked(own[at]), index[at]) for at in part]

            done = in_threads(stripe, chunks, self.n_threads)
            parts.extend(each for found in done for each in found)
            if self._clock.is_over():
                break
        return tuple(np.concatenate(each) for each in zip(*parts, strict=True))
