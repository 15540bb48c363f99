"""Predictions that differ where targets are transformed, from a model of normal values."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import _check_y, check_consistent_length, check_is_fitted

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, beside, cast, namespace, on_host
from eigengp.backend.threads import use_one_blas_thread
from eigengp.data.dask_source import is_dask
from eigengp.data.open import follows_dispatch, is_out_of_core
from eigengp.data.out_of_core import predict_out_of_core
from eigengp.gp.target_maps import compute_moments
from eigengp.gp.variational import TargetPosterior

_STEP = 1e-4  # The step of differences, in standard deviations.


def map_covariance(model: Any, X: AnyArray, cov: AnyArray) -> AnyArray:
    """Return the covariance of targets: their variances, and the correlations of values."""
    root = model._mean_and_std(X)[1] / namespace(cov).sqrt(namespace(cov).linalg.diagonal(cov))
    return cov * root[:, None] * root


def differentiate(model: Any, X: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Return the derivatives of mean and variance of targets by the inputs, each (n, D).

    By the chain rule, from those of mean and standard deviation of values.
    """
    values, std = map(on_host, model._values_and_std(X))
    rows = cast(on_host(X), "float64")
    by_mean, by_std = _differentiate_moments(model, values, std)
    slopes = model._by_blocks(model._posterior.mean_gradient, rows)
    slopes, bends = model._scaling.restore_gradient(rows, slopes), _find_std_gradient(model, rows)
    found = by_mean[:, :, None] * slopes + by_std[:, :, None] * bends
    return beside(found[0], X), beside(found[1], X)


def _differentiate_moments(model: Any, values: Array, std: Array) -> tuple[Array, Array]:
    """Return derivatives of mean and variance of targets by those of values, each (2, n)."""

    def moments(a: float, b: float) -> Array:
        mean, deviation = compute_moments(model.target_map_, values + a * std, std + b * std)
        return np.stack([mean, deviation**2])

    step, unit = _STEP, 2.0 * _STEP * std
    by_mean = (moments(step, 0.0) - moments(-step, 0.0)) / unit
    return by_mean, (moments(0.0, step) - moments(0.0, -step)) / unit


def _find_std_gradient(model: Any, X: Array) -> Array:
    """Return the derivative of the standard deviation of values, without what is missing, (n, D).

    It is that of the posterior, or of differences if heteroscedastic noise has none.
    """
    scaling = model._scaling
    variance = on_host(model._mean_and_variance(X)[1])
    try:
        own = model._by_blocks(model._posterior.variance_gradient, X)
        return scaling.restore_gradient(X, own) / (2.0 * np.sqrt(variance))[:, None]
    except ValueError:
        spread, found = scaling.input_spread, np.empty(X.shape)
        for d, step in enumerate(np.diag(_STEP * np.where(spread > 0.0, spread, 1.0))):
            high, low = (np.sqrt(model._mean_and_variance(X + s)[1]) for s in (step, -step))
            found[:, d] = scaling.target_scale * (high - low) / (2.0 * step[d])
        return found


def predict_values(model: Any, X: Any, method: str) -> tuple[AnyArray, AnyArray]:
    """Return mean and standard deviation of the values of targets, of arrays, files or Dask."""
    if not isinstance(X, np.ndarray) and (is_dask(X) or is_out_of_core(X)):
        check_is_fitted(model)
        found: tuple[AnyArray, AnyArray] = predict_out_of_core(model, X, "_values_and_std")
        return found
    own: tuple[AnyArray, AnyArray] = model._values_and_std(model._inputs(X, method))
    return own


def map_known(model: Any, y: Any) -> Any:
    """Return the values of known targets, which must have some."""
    targets, own = on_host(y) if follows_dispatch(y) else y, model._target_map
    if own is None:
        return targets
    values = own.values(np.asarray(targets, dtype=np.float64))
    if not np.all(np.isfinite(values)):
        raise ValueError(f"y has targets that are not finite under the transform {own!r}.")
    return values


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
            slopes = _differentiate_moments(model, values, std)[0][0]
            total = float(shares @ compute_moments(own, values, std)[0])
        inputs = scaling.transform_inputs(distinct)
        mean, variance = model._posterior.average(inputs, shares * slopes)
    if own is None:
        prior = float(shares @ scaling.restore_targets(distinct, np.zeros(shares.shape)))
        total = prior + scaling.target_scale * mean
    return total, scaling.target_scale * float(np.sqrt(variance))


def compute_log_density(model: Any, X: Any, y: Any) -> Array:
    """Return `ln N(m(y) | μ, s²) + ln m′(y)` at rows, shape (n,)."""
    check_is_fitted(model)
    if isinstance(model._posterior, TargetPosterior) or np.ndim(model._scaling.target_scale):
        raise ValueError("log_density is for one output with Gaussian noise.")
    y = on_host(y) if follows_dispatch(y) else y
    targets = np.asarray(_check_y(y, y_numeric=True, estimator=model), dtype=np.float64)
    mean, std = map(on_host, predict_values(model, X, "log_density"))
    check_consistent_length(mean, targets)
    own = model._target_map
    slope = np.zeros(mean.shape) if own is None else own.log_slope(targets)
    values = targets if own is None else np.where(np.isneginf(slope), mean, own.values(targets))
    return slope - 0.5 * ((values - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2.0 * np.pi)
