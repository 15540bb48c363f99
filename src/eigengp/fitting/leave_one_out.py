"""Leave-one-out scores of a fitted model, which choose its noise and the weights of its rows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigengp._typing import Array
from eigengp.data.holdout import sample_rows
from eigengp.fitting.heteroscedastic import fit_heteroscedastic
from eigengp.fitting.model_selection import Decision
from eigengp.gp.blocks import RowBlock, RowSource, group_rows
from eigengp.gp.evidence import Outcome
from eigengp.gp.heteroscedastic import HeteroscedasticPosterior, VarianceScale
from eigengp.gp.model import EigenGP

_SOME_ROWS = 6_000
_CHUNK = 1_024
LEAST_ROWS = 100
"""Fewer rows cannot show how the noise depends on the input."""
_MOST_REPEATED = 50_000


@dataclass(frozen=True)
class LeaveOneOut:
    """A posterior and its leave-one-out score.

    Parameters
    ----------
    posterior : VecchiaPosterior or HeteroscedasticPosterior
        With the fitted variance model.
    errors : array of shape (n,) or None
        Sorted errors in units of their standard deviations; None if the noise was not fitted.
    scores : dict
        The loss of each variance model.
    chosen : str
        The chosen variance model.
    smooth : VarianceScale or None
        What `reweight_rows` needs, if the noise is heteroscedastic.
    others : tuple of Decision
        Decisions about the posterior, beside that about the noise.
    """

    posterior: Any
    errors: Array | None = None
    scores: dict[str, float] = field(default_factory=dict)
    chosen: str = ""
    smooth: VarianceScale | None = None
    others: tuple[Decision, ...] = ()

    @property
    def decisions(self) -> list[Decision]:
        """The decisions about the posterior and the noise."""
        if not self.scores:
            return list(self.others)
        reason = "mean negative log density of rows not used"
        return [*self.others, Decision("likelihood", self.chosen, reason, self.scores)]

    def choose_weights(self, reweighted: LeaveOneOut) -> LeaveOneOut:
        """Return this, or that of reweighted rows if its log density is larger."""
        losses = {"equal": self.scores[self.chosen]}
        losses["by noise"] = reweighted.scores[reweighted.chosen]
        chosen = min(losses, key=lambda name: losses[name])
        best = self if chosen == "equal" else reweighted
        decision = Decision("weights", chosen, "mean negative log density of rows not used", losses)
        return replace(best, others=(*best.others, decision))

    @property
    def kept_posterior(self) -> Any:
        """The posterior for predictions, without a wrapper that changes nothing."""
        own = self.posterior
        wrapped = isinstance(own, HeteroscedasticPosterior) and own.scale is None
        return own.own if wrapped else own


def score(
    posterior: Any,
    rows: RowBlock,
    predicted: tuple[Array, ...],
    number: NDArray[np.intp],
    n_eigenfunctions: int,
    factor: Array | None = None,
) -> LeaveOneOut:
    """Fit the noise to leave-one-out predictions, and score them.

    A row is predicted from all other rows, those with the same input included. A row with a whole
    weight counts as so many rows.

    Parameters
    ----------
    posterior : VecchiaPosterior or HeteroscedasticPosterior
        With constant noise.
    rows : RowBlock
        Some of the training rows.
    predicted : mean, variance and covariates
        Predictions for each distinct input, from the rows with other inputs.
    number : array of shape (n,)
        The number of the input of each row.
    n_eigenfunctions : int
        The number of covariates that are eigenfunctions.
    factor : array or None
        By how much the posterior weights the rows of each distinct input more; None is one.
    """
    rows, number = _repeat_rows(rows, number)
    mean, variance, covariates = (each[number] for each in predicted)
    if number.size > predicted[0].size:
        noise = posterior.noise_variance
        own_noise = np.full(number.size, noise) if factor is None else noise / factor[number]
        mean, variance = _condition_on_repeats(rows, number, mean, variance, noise, own_noise)
        covariates[:, 0] = np.log(variance)  # See `gp.heteroscedastic.covariates`.
    if float(rows.weight.sum()) < LEAST_ROWS:
        return LeaveOneOut(posterior)
    errors = rows.y - mean
    n_local = covariates.shape[1] - n_eigenfunctions
    found = fit_heteroscedastic(errors, variance, covariates, n_local, rows.sample_weight, number)
    scaled = replace(posterior, scale=found.scale)
    return LeaveOneOut(scaled, np.sort(found.errors), found.losses, found.name, found.smooth)


def _repeat_rows(rows: RowBlock, number: NDArray[np.intp]) -> tuple[RowBlock, NDArray[np.intp]]:
    """Return rows with whole weights as often as they count, without weights."""
    weight = rows.sample_weight
    whole = weight is not None and np.all(weight == np.round(weight))
    if weight is None or not whole or weight.sum() > _MOST_REPEATED:
        return rows, number
    at = np.repeat(np.arange(rows.n_rows), weight.astype(int))
    return RowBlock(rows.X[at], rows.y[at]), number[at]


def _condition_on_repeats(
    rows: RowBlock,
    number: NDArray[np.intp],
    mean: Array,
    variance: Array,
    noise_variance: float,
    own_noise: Array,
) -> tuple[Array, Array]:
    """Condition predictions from rows with other inputs on the other rows with the same input.

    With `S` the weight of the others, `ȳ` their mean and `f ~ N(μ, v)` given the rows with other
    inputs, the gain is `g = S v/(S v + τ²)` with the noise `τ²` of these rows: the mean becomes
    `μ + g (ȳ − μ)` and the variance of a new observation `(1 − g) v + σ²`. A row with a whole
    weight is one of so many rows; others are left out whole. New rows repeat a training input as
    often as training rows repeat each other, so this is what shows whether the noise is large
    enough for them.
    """
    whole = bool(np.all(rows.weight == np.round(rows.weight)))
    unit = np.minimum(rows.weight, 1.0) if whole else rows.weight
    others = np.maximum(np.bincount(number, rows.weight)[number] - unit, 0.0)
    total = np.bincount(number, rows.weight * rows.y)[number] - unit * rows.y
    latent = np.maximum(variance - noise_variance, 0.0)
    gain = others * latent / (others * latent + own_noise)
    centre = np.divide(total, others, out=mean.copy(), where=others > 0.0)
    return mean + gain * (centre - mean), (1.0 - gain) * latent + noise_variance


def make_posterior(
    model: EigenGP, outcome: Outcome, scale: VarianceScale | None = None
) -> HeteroscedasticPosterior:
    """Make the posterior of a model without neighbours, with a variance model."""
    factor = outcome.flow.prior_factor
    assert factor is not None
    return HeteroscedasticPosterior(model.posterior(outcome), factor, scale)


def score_leave_one_out(
    model: EigenGP,
    outcome: Outcome,
    source: RowSource,
    rng: np.random.RandomState,
) -> LeaveOneOut:
    """Fit the noise of a model without neighbours by leave-one-out on a sample of its rows."""
    posterior = make_posterior(model, outcome)
    rows = sample_rows(source, min(_SOME_ROWS, source.n_rows), rng)
    groups = group_rows(rows)
    inputs = groups.rows
    parts = [
        posterior.leave_one_out(inputs.picked(np.arange(i, min(i + _CHUNK, inputs.n_rows))))
        for i in range(0, inputs.n_rows, _CHUNK)
    ]
    predicted = tuple(np.concatenate(each) for each in zip(*parts, strict=True))
    size = posterior.factor.shape[1]
    return score(posterior, rows, predicted, groups.number, size)
