"""Predictions of targets whose transformed values are normal, from a fitted model of the values."""

from __future__ import annotations

from typing import Any

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, namespace, on_host
from eigengp.gp.target_maps import compute_mean_slope, compute_moments

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


def average(model: Any, X: Array, shares: Array) -> tuple[float, float]:
    """Return mean and standard deviation of a weighted sum of targets without their noise.

    The standard deviation is that of values times the slope of the mean of targets, to first order.
    """
    values, std = model._values_and_std(X)
    slopes = compute_mean_slope(model.target_map_, values, std)
    _, variance = model._posterior.average(model._scaling.transform_inputs(X), shares * slopes)
    total = float(shares @ compute_moments(model.target_map_, values, std)[0])
    return total, model._scaling.target_scale * float(np.sqrt(variance))


def compute_log_density(model: Any, X: AnyArray, y: Array) -> Array:
    """Return `ln N(m(y) | μ, s²) + ln m′(y)` at rows, shape (n,)."""
    mean, std = map(on_host, model._values_and_std(X))
    own = model._target_map
    slope = np.zeros(mean.shape) if own is None else own.log_slope(y)
    values = y if own is None else np.where(np.isneginf(slope), mean, own.values(y))
    return slope - 0.5 * ((values - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2.0 * np.pi)
