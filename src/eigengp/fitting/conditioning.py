"""The posterior with the nearest-neighbour (Vecchia) residual, and its leave-one-out score.

Coefficients of the eigenfunctions are conditioned on all rows, or on a sample of many; the mean is
that of the neighbours or of all rows; the noise is fitted to leave-one-out residuals.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigengp._typing import Array
from eigengp.backend.threads import run_in_threads, speed_up_passes
from eigengp.data.neighbors import Nearest, NeighborSource
from eigengp.fitting.heteroscedastic import LeaveOneOut, reweight_rows, score
from eigengp.fitting.model_selection import Decision
from eigengp.fitting.objectives import Clock
from eigengp.fitting.posterior_mean import find_posterior_mean, is_affordable
from eigengp.gp.blocks import RowBlock
from eigengp.gp.heteroscedastic import VarianceScale
from eigengp.gp.linalg import FactorizationError
from eigengp.gp.model import EigenGP, Jitter
from eigengp.gp.vecchia import VecchiaOutcome, VecchiaPass
from eigengp.gp.vecchia_posterior import VecchiaPosterior

MOST_NEIGHBORS = 32
"""The largest number of neighbours while the coefficients are learned; more change little."""
CHUNK = 256
"""The number of rows predicted at once."""
_AT_ONCE = 8 * CHUNK
"""The number of rows between looks at the clock, which does not depend on the threads."""
_LEFT_OUT_ROWS, _MOST_SINGLE_ROWS = 6_000, 20_000
"""The largest number of distinct inputs, and of their rows, that are left out."""
_FIRST_PER_REPEAT = 20
"""For so many inputs that are left out, one more that several rows share is left out."""
_NOT_WORSE = 1.02
"""The largest ratio of mean squared errors, of the mean from all rows to that from neighbours, at
which the former is used: it is smoother, and its predictions are faster."""
_UNTIL = (0.85, 0.95)
"""Fractions of `max_time` by which leave-one-out and the solution for all rows must end."""


@dataclass(frozen=True)
class Conditioning:
    """The rows on which models are conditioned.

    Parameters
    ----------
    rows : RowBlock
        All standardised rows, those with equal inputs merged, in random order.
    single : RowBlock
        All standardised rows, in the same order.
    number : array of shape (N,)
        The indices in `rows` of those in `single`.
    sample : RowBlock
        The first of `rows`, from which models and coefficients are learned.
    n_neighbors : int
        The number of neighbours of a prediction; all rows if a row has all others.
    n_threads : int
        The number of threads.
    clock : Clock
        The time that is left.
    """

    rows: RowBlock
    single: RowBlock
    number: NDArray[np.intp]
    sample: RowBlock
    n_neighbors: int
    n_threads: int
    clock: Clock

    def condition(self, model: EigenGP) -> VecchiaOutcome:
        """Condition the coefficients of the model on all rows, or on a sample of many.

        With all rows as neighbours it is the exact GP, without the jitter of neighbourhoods.
        """
        count = min(self.n_neighbors, MOST_NEIGHBORS)
        if self.n_neighbors == self.rows.n_rows:
            count = self.rows.n_rows
            model = replace(model, jitter=Jitter(absolute=model.gram.jitter))
        with speed_up_passes(model.inducing_points.shape[0]):
            return self.run_pass(model, self.sample, count)

    def run_pass(
        self, model: EigenGP, rows: RowBlock, count: int = MOST_NEIGHBORS
    ) -> VecchiaOutcome:
        """Condition the coefficients of a model on rows with so many neighbours."""
        metric, n_threads = model.kernel.metric(rows.X.shape[1]), self.n_threads
        source: Any = NeighborSource.of(rows, metric, count, n_threads)
        outcome = model.forward(source)
        assert isinstance(outcome, VecchiaOutcome)
        return outcome

    def make_posterior(
        self, outcome: VecchiaOutcome, rows: RowBlock
    ) -> tuple[VecchiaPosterior, Nearest]:
        """Return the posterior given these rows, and the neighbour search among them."""
        assert isinstance(outcome.flow, VecchiaPass)
        metric = outcome.flow.features.kernel.metric(rows.X.shape[1])
        search = Nearest.of(rows.X, metric, self.n_neighbors, "auto")
        return VecchiaPosterior.of(outcome, rows, search, search.count), search

    def score(self, model: EigenGP, outcome: VecchiaOutcome, heteroscedastic: bool) -> LeaveOneOut:
        """Return the posterior of a model given all rows, with its leave-one-out score.

        Where the noise is heteroscedastic, rows that count by their noise compete with equal ones.
        The mean of all rows then competes with that of the neighbours.
        """
        if not heteroscedastic:
            posterior, _ = self.make_posterior(outcome, self.rows)
            none = np.empty(0)
            posterior, _, decision = self.use_all_rows(model, outcome, posterior, none, 3 * (none,))
            return LeaveOneOut(posterior, others=(decision,))
        self.clock.allow(_UNTIL[0])
        own = self._predict(outcome)
        scored = own.score()
        many = self.rows.n_rows > self.sample.n_rows
        if scored.smooth is not None and not many and self.clock.limit is None:
            with suppress(FactorizationError):
                weighted = self._reweight(model, outcome, scored.smooth)
                best = scored.choose_weights(weighted.score())
                own = own if best.posterior is scored.posterior else weighted
                scored = best
        own, decision = own.use_all_rows(model)
        best = own.score() if decision.chosen == "all rows" else scored
        return replace(best, others=(decision, *scored.others))

    def _predict(self, outcome: VecchiaOutcome, factor: Array | None = None) -> _Predicted:
        """Predict rows from all others, with the mean of the neighbours."""
        posterior, search = self.make_posterior(outcome, self.rows)
        count = self._count_scored()
        at = np.concatenate([np.arange(count), self._list_more_repeats(count)])
        with speed_up_passes(posterior.mean_coefficients.size):
            found = self.predict_leave_one_out(posterior, search, at)
        return _Predicted(self, outcome, posterior, at[: found[0].size], found, count, factor)

    def _reweight(
        self, model: EigenGP, outcome: VecchiaOutcome, smooth: VarianceScale
    ) -> _Predicted:
        """Predict rows again, where those with much noise count less."""
        flow = outcome.flow
        assert isinstance(flow, VecchiaPass)
        explained = flow.features.matrix(self.rows.X) @ flow.prior_factor
        explained /= np.sqrt(flow.features.prior_scale)
        rows = reweight_rows(self.rows, smooth, explained)
        again = replace(self, rows=rows, sample=rows)
        return again._predict(again.condition(model), rows.weight / self.rows.weight)

    def _count_scored(self) -> int:
        """Return the number of distinct inputs that are scored, with a limited number of rows."""
        count = min(_LEFT_OUT_ROWS, self.rows.n_rows)
        if self.number.size > _MOST_SINGLE_ROWS:
            count = min(count, int(self.number[_MOST_SINGLE_ROWS]))
        return max(1, count)

    def _list_more_repeats(self, count: int) -> NDArray[np.intp]:
        """Return inputs after the first `count` that several rows share.

        Few rows repeat an input, and they alone show how far targets at one input differ.
        """
        n_rows = np.bincount(self.number, self.single.sample_weight)
        repeats = count + np.flatnonzero(n_rows[count:] > 1.0)
        return repeats[: count // _FIRST_PER_REPEAT]

    def use_all_rows(
        self,
        model: EigenGP,
        outcome: VecchiaOutcome,
        posterior: VecchiaPosterior,
        targets: Any,
        predicted: tuple[Any, ...],
    ) -> tuple[VecchiaPosterior, tuple[Any, ...], Decision]:
        """Replace the mean by that of the full GP, if memory and time allow and it is not worse."""
        clock, whitened = self.clock, outcome.whitened

        decide = partial(Decision, "posterior_mean")
        if whitened is None:
            return posterior, predicted, decide("neighbors", "all rows are neighbours")
        if whitened.w.shape[0] < self.rows.n_rows or not is_affordable(
            self.rows.n_rows, clock.limit
        ):
            reason = "the kernel matrix of all rows takes too much memory or time"
            return posterior, predicted, decide("neighbors", reason)
        clock.allow(_UNTIL[1])
        if clock.is_over():
            return posterior, predicted, decide("neighbors", "no time is left for all rows")
        source = NeighborSource(self.rows, whitened.index, self.n_threads)
        found = find_posterior_mean(model, source, predicted[1], clock.is_over)
        if found is None:
            reason = "conjugate gradients did not converge"
            return posterior, predicted, decide("neighbors", reason)
        full = replace(posterior, coefficients=found.coefficients)
        if not targets.size:
            return full, predicted, decide("all rows", "memory and time allow")
        own, variance, covariates = predicted
        errors, other, how = found.errors, targets - own, "leave-one-out mean squared error"
        if found.held_out is not None:
            errors, how = found.held_out, "mean squared error of a held-out set"
            other = self._predict_held_out(posterior, errors.size)
        scores = {"all rows": float(np.mean(errors**2)), "neighbors": float(np.mean(other**2))}
        if scores["all rows"] > _NOT_WORSE * scores["neighbors"]:
            return posterior, predicted, decide("neighbors", how, scores)
        predicted = (targets - found.errors, variance, covariates)
        return full, predicted, decide("all rows", how, scores)

    def _predict_held_out(self, posterior: VecchiaPosterior, count: int) -> Array:
        """Return the errors of the last rows, with neighbours among the others alone."""
        seen, held_out = self.rows.cut(self.rows.n_rows - count)
        metric = posterior.features.kernel.metric(seen.X.shape[1])
        index = Nearest.of(seen.X, metric, self.n_neighbors, "auto")(held_out.X)
        parts = [
            posterior.leave_one_out(held_out.picked(np.arange(i, j)), index[i:j])[0]
            for i, j in pairwise([*range(0, count, CHUNK), count])
        ]
        return np.asarray(held_out.y - np.concatenate(parts))

    def predict_leave_one_out(
        self, posterior: VecchiaPosterior, search: Nearest, at: NDArray[np.intp]
    ) -> tuple[Any, ...]:
        """Return leave-one-out mean, variance and covariates of the rows that time allows.

        `at` are the numbers of the rows, of which the first are predicted.
        """
        parts: list[Any] = []
        for start in range(0, at.size, _AT_ONCE):
            own = at[start : start + _AT_ONCE]
            index = search.find_others(self.rows.X[own], own)
            edges = range(0, own.size, CHUNK)
            chunks = [slice(i, min(i + CHUNK, own.size)) for i in edges]

            def stripe(part: Sequence[slice], own: Any = own, index: Any = index) -> list[Any]:
                return [posterior.leave_one_out(self.rows.picked(own[i]), index[i]) for i in part]

            done = run_in_threads(stripe, chunks, self.n_threads)
            parts.extend(each for found in done for each in found)
            if self.clock.is_over():
                break
        return tuple(np.concatenate(each) for each in zip(*parts, strict=True))


@dataclass(frozen=True)
class _Predicted:
    """Leave-one-out predictions of some rows.

    Parameters
    ----------
    conditioning : Conditioning
        The rows on which the posterior is conditioned.
    outcome : VecchiaOutcome
        What a pass over them found.
    posterior : VecchiaPosterior
        With constant noise.
    at : array of shape (n,)
        The numbers of the predicted inputs: the first `count`, and some that several rows share.
    found : mean, variance and covariates
        The predictions.
    count : int
        The number of inputs among which the mean of all rows is compared.
    factor : array of shape (N,) or None
        How much more rows count than without weights by noise.
    """

    conditioning: Conditioning
    outcome: VecchiaOutcome
    posterior: VecchiaPosterior
    at: NDArray[np.intp]
    found: tuple[Any, ...]
    count: int
    factor: Array | None

    def score(self) -> LeaveOneOut:
        """Fit the noise to the predictions, and score them."""
        own, size = self.conditioning, self.posterior.mean_coefficients.size
        seen = np.flatnonzero(np.isin(own.number, self.at))
        number = np.searchsorted(self.at, own.number[seen])
        factor = None if self.factor is None else self.factor[self.at]
        rows = own.single.picked(seen)
        return score(self.posterior, rows, self.found, number, size, factor)

    def use_all_rows(self, model: EigenGP) -> tuple[_Predicted, Decision]:
        """Replace the mean by that of the full GP, if possible and not worse."""
        first, also = zip(
            *((each[: self.count], each[self.count :]) for each in self.found), strict=True
        )
        own = self.conditioning
        posterior, first, decision = own.use_all_rows(
            model, self.outcome, self.posterior, own.rows.y[: first[0].size], first
        )
        found = tuple(np.concatenate(each) for each in zip(first, also, strict=True))
        return replace(self, posterior=posterior, found=found), decision
