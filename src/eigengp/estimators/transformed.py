"""Predictions that differ where targets are transformed, from a model of normal values."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import _check_y, check_consistent_length

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, cast, namespace, on_host
from eigengp.backend.threads import use_one_blas_thread
from eigengp.data.open import follows_dispatch
from eigengp.gp.target_maps import compute_mean_slope, compute_moments
from eigengp.gp.variational import TargetPosterior

_STEP = 1e-5  # The step of differences, in standard deviations of an input.


def map_covariance(model: Any, X: AnyArray, cov: AnyArray) -> AnyArray:
    """Return the covariance of targets: their variances, and the correlations of values."""
    root = model._mean_and_std(X)[1] / namespace(cov).sqrt(namespace(cov).linalg.diagonal(cov))
    return cov * root[:, None] * root


def differentiate(model: Any, X: Array) -> tuple[Array, Array]:
    """Return central differences of mean and variance of targets, each of shape (n, D)."""
    spread = model._scaling.input_spread
    steps = np.diag(_STEP * np.where(spread > 0.0, spread, model._scaling.input_scale))
    found = np.empty((2, *X.shape))
    for d, step in enumerate(steps):
        (above, high), (below, low) = (model._mean_and_std(X + s) for s in (step, -step))
        found[:, :, d] = np.stack([above - below, high**2 - low**2]) / (2.0 * step[d])
    return found[0], found[1]


def average(model: Any, X: Any, weights: Any) -> tuple[float, float]:
    """Return mean and standard deviation of a weighted sum of targets without their noise.

    With transformed targets, the latter is that of values times the slope of the mean of targets,
    to first order.
    """
    rows = cast(on_host(model._inputs(X, "predict_average")), "float64")
    n = rows.shape[0]
    given = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    if given.shape != (n,):
        raise ValueError(f"weights must have the shape ({n},), got {given.shape}.")
    distinct, place = np.unique(rows, axis=0, return_inverse=True)
    shares: Array = np.bincount(place.ravel(), given) / (n if weights is None else 1.0)
    scaling, own = model._scaling, model._target_map
    slopes: Any = 1.0
    with use_one_blas_thread():
        if own is not None:
            values, std = model._values_and_std(distinct)
            slopes = compute_mean_slope(own, values, std)
            total = float(shares @ compute_moments(own, values, std)[0])
        inputs = scaling.transform_inputs(distinct)
        mean, variance = model._posterior.average(inputs, shares * slopes)
    if own is None:
        prior = float(shares @ scaling.restore_targets(distinct, np.zeros(shares.shape)))
        total = prior + scaling.target_scale * mean
    return total, scaling.target_scale * float(np.sqrt(variance))


def compute_log_density(model: Any, X: Any, y: Any) -> Array:
    """Return `ln N(m(y) | μ, s²) + ln m′(y)` at rows, shape (n,)."""
    if isinstance(model._posterior, TargetPosterior) or np.ndim(model._scaling.target_scale):
        raise ValueError("log_density is for one output with Gaussian noise.")
    y = on_host(y) if follows_dispatch(y) else y
    targets = np.asarray(_check_y(y, y_numeric=True, estimator=model), dtype=np.float64)
    mean, std = map(on_host, model._values_and_std(model._inputs(X, "log_density")))
    check_consistent_length(mean, targets)
    own = model._target_map
    slope = np.zeros(mean.shape) if own is None else own.log_slope(targets)
    values = targets if own is None else np.where(np.isneginf(slope), mean, own.values(targets))
    return slope - 0.5 * ((values - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2.0 * np.pi)
