"""Rows with missing values: how far what is missing changes a prediction.

A model predicts a row with a missing value from the mark of the gap and the other values. What
the target owes to the missing value is noise to it, and more noise than that of complete rows if
the input matters. As for inputs with errors (McHutchon & Rasmussen, 2011), the variance of this
noise is found from a first fit: that of its mean over values which the column may have. Rows count
accordingly in a second fit, and its predictive variances include it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigengp._typing import Array
from eigengp.data.encode import TableEncoder

_ROWS_AT_ONCE = 1_000
MOST_REFITS = 2
_CHANGE = 2.0
"""Another fit follows if weights of rows with gaps change by more than this factor."""


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


def measure_gaps(model: Any, X: Array) -> Array:
    """Return the variance of the mean over what is missing, in standardised units, (n,).

    It is at most that of the targets, whatever the mean is far from the data.
    """
    variance = np.zeros(X.shape[0])
    encoder = getattr(model, "encoder_", None)
    if encoder is None or not any(each.draws for each in encoder.columns_):
        return variance
    rows = np.flatnonzero(find_gaps(encoder, X))
    for start in range(0, rows.size, _ROWS_AT_ONCE):
        some = rows[start : start + _ROWS_AT_ONCE]
        drawn = draw_gaps(encoder, X[some])
        mean = model._mean_alone(drawn.reshape(-1, X.shape[1])) / model._scaling.target_scale
        variance[some] = np.minimum(mean.reshape(drawn.shape[:2]).var(axis=0), 1.0)
    return variance


def weigh_gaps(model: Any, X: Array) -> Array | None:
    """Return by which factors rows with gaps count less, (n,); None if there are no such rows.

    With the variance `v` of predictions of complete rows, and that of what is missing, `m`, a row
    counts `v/(v + m)`.
    """
    missing = measure_gaps(model, X)
    if not missing.any():
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
