"""A method that decides by rows left out: neighbours or none, and how error bars vary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sklearn.utils import check_random_state

from eigengp._typing import NeighborSearch
from eigengp.estimators.online import OnlineRegressor
from eigengp.fitting.leave_one_out import LeaveOneOut, judged_plain, varied
from eigengp.fitting.model_selection import Choices, chosen
from eigengp.fitting.training import Training
from eigengp.fitting.vecchia_fit import LocalFit
from eigengp.gp.approximations import Outcome
from eigengp.gp.exact import ExactGP
from eigengp.gp.heteroscedastic import HeteroscedasticPosterior
from eigengp.gp.model import EigenGP
from eigengp.gp.posterior import Posterior, Predictive
from eigengp.gp.vecchia_posterior import VecchiaPosterior

_CLEARLY = 0.02
"""By how much neighbours must be better, for rows left out, to be trusted at once."""


class DecidingRegressor(OnlineRegressor):
    """A method with basis points that may look at neighbours, and whose error bars may vary."""

    n_neighbors: int
    neighbor_search: NeighborSearch
    max_time: float | None
    _posterior: Posterior | VecchiaPosterior | HeteroscedasticPosterior
    _choices: Choices
    _local: LocalFit
    """While a fit runs that looks at neighbours."""
    _found: tuple[Any, LeaveOneOut]
    """What it found: the outcome of a pass, and how rows left out judge it."""

    @property
    def _learns_on_host(self) -> bool:
        return self.residual == "local"

    @property
    def _predicts_on_host(self) -> bool:
        return isinstance(self._posterior, VecchiaPosterior)

    @property
    def _draws_jointly(self) -> bool:
        return isinstance(self._posterior, VecchiaPosterior)

    def _outcome(self, model: EigenGP, training: Training) -> Outcome:
        return self._found[0] if hasattr(self, "_found") else super()._outcome(model, training)

    def _learn(self, training: Training) -> EigenGP:
        self.__dict__.pop("selection_", None)
        self._choices = chosen(self, training)
        if self.optimization == "stochastic":
            return self._learn_from_batches(training)
        if self._choices.residual != "local":
            return super()._learn(training)
        self._local = LocalFit(training, self.n_neighbors, self.max_iter, self.neighbor_search)
        first = super()._learn(training)
        local = self._local.learned(first)
        outcome = self._local.conditioned(local)
        self._found = (outcome, self._local.judged(outcome, self._choices))
        self.selection_ = self._local.selection
        model = self._or_plain(training, first) if self._choices.or_plain else None
        del self._local
        return local if model is None else model

    def _or_plain(self, training: Training, first: EigenGP) -> EigenGP | None:
        """Return a model without neighbours if rows that were left out prefer it.

        One that has learned little shows whether that may be; if so, one is
        learned in full.
        """
        noise, loss = self._choices.noise, self._found[1].loss
        before, self._choices = self._choices, replace(self._choices, residual=None)
        plain, found = first, self._judged_plain(training, first, noise)
        if self.max_time is None and loss >= found[1].loss - _CLEARLY:
            training.rng = check_random_state(self.random_state)  # As if this were the first try.
            plain = super()._learn(training)
            found = self._judged_plain(training, plain, noise)
        self.selection_["residual"] = {"local": loss, "none": found[1].loss}
        if loss <= found[1].loss:
            self._choices = before
            return None
        self._found = found
        return plain

    def _judged_plain(
        self, training: Training, model: EigenGP, noise: str
    ) -> tuple[Outcome, LeaveOneOut]:
        outcome = model.forward(training.source)
        return outcome, judged_plain(model, outcome, training, noise)

    def _start(self, training: Training) -> ExactGP:
        kernel = self.kernel
        if not (isinstance(kernel, str) and kernel == "auto"):
            return super()._start(training)
        start = training.start(None, self.noise_variance)
        local = self._choices.residual == "local"
        return self._local.best_kernel(start) if local else start

    def _condition(self, model: EigenGP, outcome: Outcome, training: Training) -> Predictive:
        if self._choices.noise == "constant" and not hasattr(self, "_found"):
            self.__dict__.pop("leave_one_out_errors_", None)
            return model.posterior(outcome)
        if training.source.n_rows == 0:  # More rows came; error bars vary as they did.
            before = self._posterior
            if isinstance(before, HeteroscedasticPosterior):
                return varied(model, outcome, before.scale)
            return model.posterior(outcome)
        found = self.__dict__.pop("_found", (None, None))[1]
        return self._judged_by(found or judged_plain(model, outcome, training, "varying"))

    def _judged_by(self, found: LeaveOneOut) -> Predictive:
        """Return the posterior as rows left out would have it, and keep what they said."""
        self.__dict__.pop("leave_one_out_errors_", None)
        if found.conformity is not None:
            self.leave_one_out_errors_ = found.conformity
            self.selection_ = {**getattr(self, "selection_", {}), "noise": found.noise}
        posterior = found.posterior
        if isinstance(posterior, HeteroscedasticPosterior) and posterior.scale is None:
            return posterior.own
        return posterior
