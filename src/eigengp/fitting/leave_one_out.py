"""How a model does on its own rows, each left out: for its error bars, and to choose models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eigengp._typing import Array
from eigengp.data.views import sample_rows
from eigengp.fitting.heteroscedastic import learn_varying
from eigengp.fitting.training import Training
from eigengp.gp.approximations import Outcome
from eigengp.gp.blocks import RowBlock
from eigengp.gp.heteroscedastic import HeteroscedasticPosterior, VarianceScale
from eigengp.gp.model import EigenGP
from eigengp.gp.vecchia_posterior import VecchiaPosterior

_SOME_ROWS = 6_000
_CHUNK = 1_024
LEAST_ROWS = 100
"""So few rows cannot tell how the noise varies."""


@dataclass(frozen=True)
class LeaveOneOut:
    """A posterior, and what rows that were left out say of it.

    Parameters
    ----------
    posterior : VecchiaPosterior or HeteroscedasticPosterior
        With the error bars that were learned.
    loss : float
        The mean of their negative log density and of what it would be with one
        variance for all, without constants: means matter as much as variances.
    conformity : array of shape (n,) or None
        Their errors in units of their error bars, sorted; None where error bars
        are as the model has them.
    noise : dict
        What each kind of noise reached.
    """

    posterior: VecchiaPosterior | HeteroscedasticPosterior
    loss: float
    conformity: Array | None
    noise: dict[str, float]


def unjudged(posterior: VecchiaPosterior) -> LeaveOneOut:
    """Return a posterior that is to be as it is."""
    return LeaveOneOut(posterior, float("nan"), None, {})


def loss_of(rows: RowBlock, mean: Array, variance: Array) -> float:
    """Return `LeaveOneOut.loss` of rows that were predicted to be so."""
    errors = rows.y - mean
    own = np.average(np.log(variance) + errors**2 / variance, weights=rows.weight)
    return 0.25 * (float(own) + _with_one_variance(errors, rows.weight))


def _with_one_variance(errors: Array, weight: Array) -> float:
    """Return twice the mean negative log density with one variance for all, without constants."""
    return float(np.log(np.average(errors**2, weights=weight))) + 1.0


def judged(
    posterior: Any, rows: RowBlock, found: tuple[Array, ...], n_eigenfunctions: int, noise: str
) -> LeaveOneOut:
    """Return the posterior with error bars as `noise` says, and how rows left out judge it.

    Parameters
    ----------
    posterior : VecchiaPosterior or HeteroscedasticPosterior
        With a constant noise.
    rows : RowBlock
        Some of the training rows.
    found : mean, variance and covariates
        What they were predicted to be.
    n_eigenfunctions : int
        How many of the covariates are eigenfunctions.
    noise : {"constant", "varying"}
        Whether error bars are learned.
    """
    mean, variance, covariates = found
    if noise == "constant" or rows.n_rows < LEAST_ROWS:
        return LeaveOneOut(posterior, loss_of(rows, mean, variance), None, {})
    errors = rows.y - mean
    n_local = covariates.shape[1] - n_eigenfunctions
    varying = learn_varying(errors, variance, covariates, n_local, rows.sample_weight)
    constant = 0.5 * _with_one_variance(errors, rows.weight)
    loss = 0.5 * (varying.losses[varying.name] + constant)
    scaled = replace(posterior, scale=varying.scale)
    return LeaveOneOut(scaled, loss, np.sort(varying.conformity), varying.losses)


def varied(
    model: EigenGP, outcome: Outcome, scale: VarianceScale | None = None
) -> HeteroscedasticPosterior:
    """Return the posterior of a model that looks at no neighbours, with variances that vary so."""
    factor = outcome.flow.prior_factor
    assert factor is not None
    return HeteroscedasticPosterior(model.posterior(outcome), factor, scale)


def judged_plain(model: EigenGP, outcome: Outcome, training: Training, noise: str) -> LeaveOneOut:
    """Return the same for a model that looks at no neighbours."""
    posterior = varied(model, outcome)
    rows = sample_rows(training.source, min(_SOME_ROWS, training.source.n_rows), training.rng)
    parts = [
        posterior.leave_one_out(rows.picked(np.arange(i, min(i + _CHUNK, rows.n_rows))))
        for i in range(0, rows.n_rows, _CHUNK)
    ]
    found = tuple(np.concatenate(each) for each in zip(*parts, strict=True))
    return judged(posterior, rows, found, posterior.factor.shape[1], noise)
