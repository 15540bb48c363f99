"""Rows with missing values: how far what is missing changes a prediction.

A model predicts a row with a missing value from the mark of the gap and the other values. What
the target owes to the missing value is noise to it, and more noise than that of complete rows if
the input matters. As for inputs with errors (McHutchon & Rasmussen, 2011), the variance of this
noise is found from a first fit: that of its mean over values which the column may have. Rows count
accordingly in a second fit, and its predictive variances include it.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, on_host
from eigengp.data.array_source import ArraySource
from eigengp.data.encode import TableEncoder
from eigengp.data.frames import Frame
from eigengp.data.open import Dataset, open_dataset
from eigengp.fitting.run import FitResult, begin_run
from eigengp.fitting.settings import LBFGS, Settings
from eigengp.fitting.transform import begin_transformed_run

_ROWS_AT_ONCE = 1_000
_MOST_FITS = 3
_CHANGE = 2.0  # Another fit follows if weights of rows with gaps change by more than this factor.


def find_gaps(encoder: TableEncoder, X: Array) -> NDArray[np.bool_]:
    """Return which encoded rows have a missing number, flag or date."""
    groups = encoder.feature_groups_
    marks = [groups[each.name][-1] for each in encoder.columns_ if each.draws]
    return np.asarray((X[:, marks] > 0.0).any(axis=1))


def draw_gaps(encoder: TableEncoder, X: Array) -> Array:
    """Return encoded rows with values that their columns may have in the gaps, (draws, n, D).

    These are quantiles of the known values, in an order that differs between columns.
    """
    gaps = [each for each in encoder.columns_ if each.draws]
    found = np.repeat(X[None], len(gaps[0].draws), axis=0)
    rng = np.random.RandomState(0)
    for each in gaps:
        features = encoder.feature_groups_[each.name]
        own = each.encode_numbers(rng.permutation(each.draws))
        rows = np.flatnonzero(X[:, features[-1]] > 0.0)
        found[:, rows[:, None], features] = own[:, None]
    return found


def has_gaps(dataset: Dataset, settings: Settings) -> bool:
    """Return whether missing numbers, flags or dates of rows in memory are noise."""
    encoder, gaussian = dataset.encoder, settings.likelihood is None
    known = encoder is not None and any(each.draws for each in encoder.columns_)
    return known and gaussian and isinstance(dataset.rows, ArraySource)


def add_gaps(model: Any, X: Any, variance: AnyArray) -> AnyArray:
    """Return variances, (n,), or covariances, (n, n), with the variance of what is missing."""
    missing = measure_gaps(model, X)
    if missing is None:
        return variance
    return variance + (missing if variance.ndim == 1 else np.diag(missing))


def measure_gaps(model: Any, X: Any) -> Array | None:
    """Return the variance of the mean over what is missing, in standardised units, (n,).

    It is at most that of the targets, whatever the mean is far from the data. None is zero: no
    column of the training rows has gaps, or the model has no such noise, which is one of
    `EigenGPRegressor` with one output and Gaussian noise.
    """
    encoder = getattr(model, "encoder_", None)
    if encoder is None or not any(each.draws for each in encoder.columns_):
        return None
    several = np.ndim(model._scaling.target_scale) > 0
    if several or hasattr(model, "likelihood_") or not model._has_weights:
        return None
    variance = np.zeros(X.shape[0])
    rows = np.flatnonzero(find_gaps(encoder, X))
    for start in range(0, rows.size, _ROWS_AT_ONCE):
        some = rows[start : start + _ROWS_AT_ONCE]
        drawn = draw_gaps(encoder, X[some])
        mean = model._predict_values(drawn.reshape(-1, X.shape[1])) / model._scaling.target_scale
        variance[some] = np.minimum(mean.reshape(drawn.shape[:2]).var(axis=0), 1.0)
    return variance


def learn_with_gaps(model: Any, frame: Frame, settings: Settings) -> FitResult:
    """Fit until the rows with gaps count as much as the fit says that they should.

    Each fit has its share of `max_time`; the checkpoint is that of the later ones.
    """
    if settings.max_time is not None:
        settings = replace(settings, max_time=settings.max_time / _MOST_FITS)
    own, weight = settings, None
    if isinstance(settings.optimizer, LBFGS):
        own = replace(settings, optimizer=clone(settings.optimizer).set_params(checkpoint=None))
    for _ in range(_MOST_FITS):
        with open_dataset(frame, own.reading) as dataset:
            maps = dataset.may_transform(own.transform)
            with (begin_transformed_run if maps else begin_run)(dataset, own) as run:
                result: FitResult = model._learn(run)
            fitted = copy(model)
            fitted.__dict__.update(result.attributes)
            assert isinstance(dataset.rows, ArraySource)
            found = weigh_gaps(fitted, on_host(dataset.rows.X))
        if found is None or not is_changed(found, weight):
            break
        weight = found
        own = replace(settings, reading=settings.reading._replace(weight=weight))
    return result


def weigh_gaps(model: Any, X: Array) -> Array | None:
    """Return by which factors rows with gaps count less, (n,); None if there are no such rows.

    With the variance `v` of predictions of complete rows, and that of what is missing, `m`, a row
    counts `v/(v + m)`.
    """
    missing = measure_gaps(model, X)
    if missing is None or not missing.any():
        return None
    complete = X[~find_gaps(model.encoder_, X)]
    _, variance = model._mean_and_variance(complete if len(complete) else X)
    noise = np.median(variance) if len(complete) else np.min(variance)
    weight: Array = noise / (noise + missing)
    return weight


def is_changed(weight: Array, before: Array | None) -> bool:
    """Return whether weights differ clearly from those of a fit; None are ones."""
    ratio = weight if before is None else weight / before
    return bool(np.any(np.abs(np.log(ratio)) > np.log(_CHANGE)))
