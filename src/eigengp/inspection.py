"""Looking into a fitted model: what it predicts as one input varies, and which inputs matter.

Numbers alone, in NumPy's arrays; `eigengp.plot` draws them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn import config_context
from sklearn.metrics import root_mean_squared_error
from sklearn.utils.validation import check_array, check_is_fitted

from eigengp import metrics
from eigengp._typing import Array
from eigengp.backend.namespace import on_host
from eigengp.conformal import normal_half_width
from eigengp.estimators.base import GPRegressor

FEW = 10
"""An input of no more different values than this is looked at value by value."""
_UNNAMED = "X does not have valid feature names"


@dataclass(frozen=True)
class Effect:
    """How a prediction changes with one input."""

    feature: int
    """Which input, counted from 0."""
    name: str
    """Its name."""
    grid: Array
    """The values it was given, shape (G,)."""
    mean: Array
    """The prediction at each, shape (G,)."""
    lower: Array
    """Where the band begins, shape (G,)."""
    upper: Array
    """Where it ends, shape (G,)."""


def feature_names(model: GPRegressor) -> list[str]:
    """Return the names of the inputs: those of `fit`, or x0, x1, … where it was given none.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import ExactGPRegressor
    >>> X = np.random.default_rng(0).normal(size=(20, 2))
    >>> feature_names(ExactGPRegressor(max_iter=0).fit(X, X[:, 0]))
    ['x0', 'x1']
    """
    check_is_fitted(model)
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return [f"x{d}" for d in range(model.n_features_in_)]
    return [str(name) for name in names]


def feature_index(model: GPRegressor, feature: int | str) -> int:
    """Return which input is meant by its name or number."""
    names = feature_names(model)
    if isinstance(feature, str):
        if feature not in names:
            raise ValueError(f"There is no input named {feature!r}; there are {', '.join(names)}.")
        return names.index(feature)
    if not -len(names) <= feature < len(names):
        raise ValueError(
            f"There is no input {feature}; the {len(names)} inputs are counted from 0."
        )
    return int(feature) % len(names)


def leading_inputs(model: GPRegressor, count: int) -> list[int]:
    """Return the numbers of at most `count` inputs, those of the largest effect first."""
    order = np.argsort(-model.input_effects(), kind="stable")
    return [int(d) for d in order[:count]]


def plain_rows(model: GPRegressor, X: Any) -> Array:
    """Return rows as an array, columns as in `fit`; those of a frame are found by their names."""
    check_is_fitted(model)
    names = getattr(model, "feature_names_in_", None)
    if names is not None and hasattr(X, "columns"):
        missing = [str(name) for name in names if name not in list(X.columns)]
        if missing:
            raise ValueError(f"X lacks the columns {', '.join(missing)} that the model was fit on.")
        X = X[list(names)]
    rows: Array = check_array(X, dtype=np.float64, input_name="X")
    if rows.shape[1] != model.n_features_in_:
        raise ValueError(
            f"X has {rows.shape[1]} columns but the model has {model.n_features_in_} inputs."
        )
    return rows


def basis_points_of(model: GPRegressor) -> Array | None:
    """Return basis points or relevance vectors, shape (M, D), in NumPy; None if there are none."""
    check_is_fitted(model)
    for name in ("inducing_points_", "relevance_vectors_"):
        if hasattr(model, name):
            return on_host(getattr(model, name))
    return None


def ranges(model: GPRegressor, rows: Array | None = None) -> Array:
    """Return the ends of each input, shape (D, 2): of rows, or else mean ± two spreads in `fit`."""
    if rows is not None:
        return np.column_stack([rows.min(axis=0), rows.max(axis=0)])
    check_is_fitted(model)
    scaling = model._scaling
    spread = scaling.input_spread / scaling.input_scale
    wide = 2.0 * np.where(spread > 0.0, spread, 1.0)
    return np.column_stack([scaling.in_units(-wide), scaling.in_units(wide)])


@contextmanager
def plain_inputs() -> Iterator[None]:
    """Let a model take NumPy's arrays, whatever kind of rows, named or not, it was fit on."""
    with warnings.catch_warnings(), config_context(array_api_dispatch=False):
        warnings.filterwarnings("ignore", _UNNAMED, UserWarning)
        yield


def grid(values: ArrayLike, n_points: int = 100) -> Array:
    """Return values at which to look at an input, shape (n_points,) or less.

    Equal steps from the first to the 99th hundredth of the values, so that stray ones do not
    stretch it; the values themselves where there are no more different ones than ten, as of a
    category or a count.

    Examples
    --------
    >>> grid([0.0, 1.0, 1.0, 0.0])
    array([0., 1.])
    """
    distinct = np.unique(np.asarray(values, dtype=np.float64))
    if distinct.size <= FEW:
        return distinct
    low, high = np.quantile(np.asarray(values, dtype=np.float64), [0.01, 0.99])
    return np.linspace(low, high, n_points)


def slice_at(
    model: GPRegressor,
    reference: ArrayLike,
    feature: int | str,
    values: ArrayLike,
    coverage: float = 0.9,
) -> Effect:
    """Predict with one input varied and the others held at a reference row.

    Parameters
    ----------
    model : GPRegressor
        A fitted model.
    reference : array of shape (D,)
        The row.
    feature : int or str
        The input that varies, by number or name.
    values : array of shape (G,)
        The values it takes.
    coverage : float
        The probability with which the band holds a new observation (`predict_interval`).

    Returns
    -------
    effect : Effect
        Predictive mean and band.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import EigenGPRegressor
    >>> X = np.random.default_rng(0).uniform(-2, 2, size=(80, 2))
    >>> y = np.sin(X[:, 0]) + X[:, 1]
    >>> model = EigenGPRegressor(12, n_restarts=4, random_state=0).fit(X, y)
    >>> slice_at(model, [0.0, 1.0], "x0", [-1.0, 1.0]).mean.round(1)
    array([0.2, 1.8])
    """
    d, row = feature_index(model, feature), plain_rows(model, np.atleast_2d(reference))
    points = np.asarray(values, dtype=np.float64)
    rows = np.repeat(row, points.size, axis=0)
    rows[:, d] = points
    with plain_inputs():
        mean = model.predict(rows)
        lower, upper = model.predict_interval(rows, coverage)
    return Effect(d, feature_names(model)[d], points, mean, lower, upper)


def slices(
    model: GPRegressor,
    X: ArrayLike,
    *,
    features: Sequence[int | str] | None = None,
    reference: ArrayLike | None = None,
    n_points: int = 100,
    coverage: float = 0.9,
) -> list[Effect]:
    """Predict with one input after the other varied over its range in `X`.

    Parameters
    ----------
    model : GPRegressor
        A fitted model.
    X : array of shape (n, D)
        Rows that say which values inputs take.
    features : list of int or str, or None
        The inputs to vary; None is all of them, those of the largest effect first.
    reference : array of shape (D,) or None
        Where the others are held; None is the median of each.
    n_points, coverage
        See `grid` and `slice_at`.

    Returns
    -------
    effects : list of Effect
        One for each input.
    """
    rows = plain_rows(model, X)
    held = np.median(rows, axis=0) if reference is None else reference
    return [
        slice_at(model, held, d, grid(rows[:, d], n_points), coverage)
        for d in _chosen(model, features)
    ]


def partial_dependence(
    model: GPRegressor,
    X: ArrayLike,
    feature: int | str,
    *,
    values: ArrayLike | None = None,
    coverage: float = 0.9,
    max_rows: int = 500,
) -> Effect:
    """Average the latent function over rows in which one input is set to each of some values.

    The band is that of the average itself, from the joint posterior at all rows
    (`predict_average`): exact for the rows used, and the noise is not part of it. For EigenGP,
    SSGP and RVM it costs as little as the mean; other methods need the covariance of all rows
    with each other at each value.

    Parameters
    ----------
    model : GPRegressor
        A fitted model.
    X : array of shape (n, D)
        Rows to average over.
    feature : int or str
        The input that is set, by number or name.
    values : array of shape (G,) or None
        What it is set to; None is 30 equal steps over its range in `X` (see `grid`).
    coverage : float
        The probability with which the band holds the average.
    max_rows : int
        Of more rows than this, so many in equal steps are averaged over.

    Returns
    -------
    effect : Effect
        The average and its band.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import EigenGPRegressor
    >>> X = np.random.default_rng(0).uniform(-2, 2, size=(80, 2))
    >>> y = np.sin(X[:, 0]) + X[:, 1]
    >>> model = EigenGPRegressor(12, n_restarts=4, random_state=0).fit(X, y)
    >>> effect = partial_dependence(model, X, 1, values=[-1.0, 1.0])
    >>> round(float(effect.mean[1] - effect.mean[0]), 2)
    2.0
    """
    d, rows = feature_index(model, feature), plain_rows(model, X)
    points = grid(rows[:, d], 30) if values is None else np.asarray(values, dtype=np.float64)
    rows = _spread_out(rows, max_rows)
    mean, std = np.empty(points.size), np.empty(points.size)
    with plain_inputs():
        for g, value in enumerate(points):
            rows[:, d] = value
            mean[g], std[g] = model.predict_average(rows)
    half = normal_half_width(coverage)
    return Effect(d, feature_names(model)[d], points, mean, mean - half * std, mean + half * std)


def _spread_out(rows: Array, count: int) -> Array:
    """Return a copy of at most `count` rows, in equal steps through all of them."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(int))].copy()


def _chosen(model: GPRegressor, features: Sequence[int | str] | None) -> list[int]:
    """Return the numbers of the inputs asked for; None is all, the largest effect first."""
    if features is None:
        return leading_inputs(model, model.n_features_in_)
    return [feature_index(model, feature) for feature in features]


def scores(
    y: Array,
    prediction: tuple[Array, Array],
    interval: tuple[Array, Array],
    sample_weight: Array | None = None,
) -> dict[str, float | None]:
    """Return NMSE, RMSE, MNLP, CRPS, and how many targets the intervals hold.

    Parameters
    ----------
    y : array of shape (n,)
        Targets.
    prediction : mean and standard deviation, of shape (n,)
        From `predict`.
    interval : lower and upper end, of shape (n,)
        From `predict_interval`.
    sample_weight : array of shape (n,) or None
        How often each row counts.

    Returns
    -------
    scores : dict
        NMSE is None where all targets are the same.
    """
    (mean, _), (lower, upper) = prediction, interval
    weight: dict[str, Any] = {"sample_weight": sample_weight}
    inside = (lower <= y) & (y <= upper)
    return {
        "nmse": metrics.nmse(y, mean, **weight) if np.ptp(y) > 0.0 else None,
        "rmse": float(root_mean_squared_error(y, mean, **weight)),
        "mnlp": metrics.mnlp(y, *prediction, **weight),
        "crps": metrics.crps_gaussian(y, *prediction, **weight),
        "coverage": float(np.average(inside, weights=sample_weight)),
    }
