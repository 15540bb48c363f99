"""Inspection of a fitted model: its predictions as one input varies, and which inputs matter.

Results are NumPy arrays; `eigengp.plot` draws them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn import config_context
from sklearn.metrics import log_loss, root_mean_squared_error
from sklearn.utils.validation import _check_feature_names_in, check_array, check_is_fitted

from eigengp import metrics
from eigengp._typing import Array
from eigengp.backend.namespace import on_host
from eigengp.conformal import normal_half_width
from eigengp.data.frames import encoded_inputs
from eigengp.estimators.base import GPRegressor
from eigengp.estimators.transformed import map_known
from eigengp.gp.sensitivity import total_indices
from eigengp.gp.variational import LatentPosterior

MAX_LEVELS = 10  # An input with at most so many distinct values is treated as discrete.
_BINS = 15
_MOST_GROUPS = 1_000


@dataclass(frozen=True)
class Effect:
    """How a prediction changes with one input."""

    feature: int
    """The index of the input."""
    name: str
    """Its name."""
    grid: Array
    """The values of the input, shape (G,)."""
    mean: Array
    """The prediction at each, shape (G,)."""
    lower: Array
    """The lower end of the band, shape (G,)."""
    upper: Array
    """The upper end of the band, shape (G,)."""


@dataclass(frozen=True)
class Predictions:
    """Predictions of rows whose targets are known."""

    y_true: Array
    """The targets, shape (n,)."""
    y_pred: Array
    """The predictive means, shape (n,)."""
    y_std: Array
    """Their standard deviations, with the noise included, shape (n,)."""
    level: float
    """The coverage that the prediction intervals should have."""
    lower: Array
    """The lower ends of the intervals, shape (n,)."""
    upper: Array
    """The upper ends of the intervals, shape (n,)."""
    coverage_curve: tuple[Array, Array]
    """Probabilities of central intervals, and the fraction of targets inside those of each."""
    normal: tuple[Array, Array, Array]
    """The same targets, means and standard deviations where the predictions are normal: those of
    transformed targets, if the model has a transform."""

    @property
    def inside(self) -> Any:
        """Whether each target is inside its interval, shape (n,)."""
        return (self.lower <= self.y_true) & (self.y_true <= self.upper)

    @classmethod
    def of_normal(
        cls, y_true: ArrayLike, y_pred: ArrayLike, y_std: ArrayLike, level: float
    ) -> Predictions:
        """Return given predictions with the intervals of a normal distribution."""
        true, mean, std = (np.ravel(np.asarray(y, float)) for y in (y_true, y_pred, y_std))
        half = normal_half_width(level) * std
        curve = metrics.coverage_curve(true, mean, std)
        ends = mean - half, mean + half
        return cls(true, mean, std, level, *ends, curve, (true, mean, std))


def predict_rows(model: Any, X: Any, y: ArrayLike, level: float = 0.9) -> Predictions:
    """Predict rows whose targets are known, with prediction intervals.

    Parameters
    ----------
    model : regressor
        A fitted model whose `predict` takes `return_std=True`. Intervals are those of
        `predict_interval` if it has this method, and otherwise those of a normal distribution.
    X, y : arrays of shapes (n, D) and (n,)
        The rows.
    level : float
        The coverage of the intervals.

    Returns
    -------
    predictions : Predictions
        Targets, predictions, intervals and their coverage.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import EigenGPRegressor
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> found = predict_rows(EigenGPRegressor(8, random_state=0).fit(X, y), X, y)
    >>> bool(np.max(np.abs(found.y_true - found.y_pred)) < 0.1)
    True
    """
    rows = plain_rows(model, X) if isinstance(model, GPRegressor) else X
    with plain_inputs():
        mean, std = (np.asarray(each) for each in model.predict(rows, return_std=True))
        normal = Predictions.of_normal(y, mean, std, level)
        if not hasattr(model, "predict_interval"):
            return normal
        ends: Any = partial(model.predict_interval, rows)
        if isinstance(model, GPRegressor) and not isinstance(model._posterior, LatentPosterior):
            values = mean, std
            if model._target_map is not None:
                values = model._values_and_std(model._inputs(rows))
                normal = replace(normal, normal=(map_known(model, normal.y_true), *values))
            ends = partial(model._find_ends, *values)  # Without predicting again.
        levels, _ = normal.coverage_curve
        if hasattr(model, "conformity_"):  # n rows guarantee at most n/(n + 1).
            levels = levels[levels <= model.conformity_.size / (model.conformity_.size + 1)]
        lower, upper = ends(level)
        found = [replace(normal, lower=low, upper=high) for low, high in map(ends, levels.tolist())]
    held = np.array([each.inside.mean() for each in found])
    return replace(normal, lower=lower, upper=upper, coverage_curve=(levels, held))


def feature_names(model: GPRegressor) -> list[str]:
    """Return the names of the inputs: those seen in `fit`, else x0, x1, ….

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import ExactGPRegressor
    >>> X = np.random.default_rng(0).normal(size=(20, 2))
    >>> feature_names(ExactGPRegressor().fit(X, X[:, 0]))
    ['x0', 'x1']
    """
    check_is_fitted(model)
    return [str(name) for name in _check_feature_names_in(model)]


def feature_index(model: GPRegressor, feature: int | str) -> int:
    """Return the index of an input given by name or index."""
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
    """Return the indices of at most `count` inputs, those with the largest effects first."""
    return np.argsort(-model.input_effects(), kind="stable")[:count].tolist()


def plain_rows(model: GPRegressor, X: Any) -> Array:
    """Return rows as an array with the columns of `fit`, selected by name from a data frame."""
    check_is_fitted(model)
    names = getattr(model, "feature_names_in_", None)
    if names is not None and hasattr(X, "columns"):
        if missing := [str(name) for name in names if name not in list(X.columns)]:
            raise ValueError(f"X lacks the columns {', '.join(missing)} that the model was fit on.")
        X = X[list(names)]
    if hasattr(model, "encoder_") and hasattr(X, "columns"):
        X = model.encoder_.transform(X)
    rows: Array = check_array(X, dtype=np.float64, input_name="X")
    if rows.shape[1] != model._scaling.input_scale.size:
        raise ValueError(
            f"X has {rows.shape[1]} columns but the model has {model.n_features_in_} inputs."
        )
    return rows


def _locate(model: GPRegressor, X: Any, feature: int | str) -> tuple[int, str, int, Array]:
    """Return index and name of an input, the feature that it is, and rows; raise for a category."""
    d, rows = feature_index(model, feature), plain_rows(model, X)
    name, group = feature_names(model)[d], model._input_groups[d]
    if len(group) != 1:
        raise ValueError(
            f"Input {name!r} is not one number (a category, a date, missing values, or ignored); "
            "eigengp.cli.report shows its effect."
        )
    return d, name, group[0], rows


def inducing_points_of(model: GPRegressor) -> Array | None:
    """Return inducing points or relevance vectors, shape (M, D), or None if there are none."""
    check_is_fitted(model)
    points = getattr(model, "inducing_points_", getattr(model, "relevance_vectors_", None))
    return None if points is None else on_host(points)


def ranges(model: GPRegressor, rows: Array | None = None) -> Array:
    """Return the range of each input, shape (D, 2): of rows, or mean ± 2 deviations in `fit`."""
    if rows is not None:
        return np.column_stack([rows.min(axis=0), rows.max(axis=0)])
    check_is_fitted(model)
    scaling = replace(model._scaling, columns=None, input_map=None)
    spread = scaling.input_spread / scaling.input_scale
    wide = 2.0 * np.where(spread > 0.0, spread, 1.0)
    return np.column_stack([scaling.restore_inputs(-wide), scaling.restore_inputs(wide)])


@contextmanager
def plain_inputs() -> Iterator[None]:
    """Predict from (encoded) arrays without warnings, whatever kind of rows a model was fit on."""
    with warnings.catch_warnings(), config_context(array_api_dispatch=False), encoded_inputs():
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
        yield


def grid(values: ArrayLike, n_points: int = 100) -> Array:
    """Return values at which to evaluate an input, shape (n_points,) or less.

    Equal steps from the 1st to the 99th percentile, which outliers do not stretch; the distinct
    values themselves if there are at most ten, as for a category or a count.

    Examples
    --------
    >>> grid([0.0, 1.0, 1.0, 0.0])
    array([0., 1.])
    """
    distinct = np.unique(np.asarray(values, dtype=np.float64))
    if distinct.size <= MAX_LEVELS:
        return distinct
    low, high = np.quantile(np.asarray(values, dtype=np.float64), [0.01, 0.99])
    return np.linspace(low, high, n_points)


def slice_at(
    model: GPRegressor,
    X: ArrayLike,
    feature: int | str,
    *,
    values: ArrayLike | None = None,
    reference: ArrayLike | None = None,
    coverage: float = 0.9,
) -> Effect:
    """Predict as one input varies, with the others held at a reference row.

    Parameters
    ----------
    model : GPRegressor
        A fitted model.
    X : array of shape (n, D)
        Rows that give the values of the inputs.
    feature : int or str
        The input that varies, by index or name.
    values : array of shape (G,) or None
        Its values; None is 100 equal steps over its range in `X` (see `grid`).
    reference : array of shape (D,) or None
        The reference row; None is the median of each input.
    coverage : float
        The coverage of the prediction intervals (`predict_interval`).

    Returns
    -------
    effect : Effect
        Predictive mean and prediction intervals.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import EigenGPRegressor
    >>> X = np.random.default_rng(0).uniform(-2, 2, size=(80, 2))
    >>> y = np.sin(X[:, 0]) + X[:, 1]
    >>> model = EigenGPRegressor(12, random_state=0).fit(X, y)
    >>> slice_at(model, X, "x0", values=[-1.0, 1.0], reference=[0.0, 1.0]).mean.round(1)
    array([0.2, 1.8])
    """
    d, name, position, rows = _locate(model, X, feature)
    points = grid(rows[:, position]) if values is None else np.asarray(values, dtype=np.float64)
    held = np.median(rows, axis=0) if reference is None else np.ravel(np.asarray(reference))
    moved = np.repeat(plain_rows(model, held[None]), points.size, axis=0)
    moved[:, position] = points
    with plain_inputs():
        ends = model.predict_interval(moved, coverage)
        return Effect(d, name, points, model.predict(moved), *ends)


def partial_dependence(
    model: GPRegressor,
    X: ArrayLike,
    feature: int | str,
    *,
    values: ArrayLike | None = None,
    coverage: float = 0.9,
    max_rows: int = 500,
) -> Effect:
    """Average the latent function over rows, with one input set to each of several values.

    The band is a credible interval of the average, from the joint posterior at all rows
    (`predict_average`), without noise. With `residual=None` or "diagonal", and for SSGP and RVM, it
    costs as little as the mean. With "neighbors" it takes a search for each row and value; other
    methods need the joint covariance of all rows at each value.

    Parameters
    ----------
    model : GPRegressor
        A fitted model.
    X : array of shape (n, D)
        Rows to average over.
    feature : int or str
        The input to set, by index or name.
    values : array of shape (G,) or None
        Its values; None is 30 equal steps over its range in `X` (see `grid`).
    coverage : float
        The probability that the band contains the average.
    max_rows : int
        The largest number of rows to average over; of more, so many in equal steps are used.

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
    >>> model = EigenGPRegressor(12, random_state=0).fit(X, y)
    >>> effect = partial_dependence(model, X, 1, values=[-1.0, 1.0])
    >>> round(float(effect.mean[1] - effect.mean[0]), 2)
    2.0
    """
    d, name, position, rows = _locate(model, X, feature)
    points = grid(rows[:, position], 30) if values is None else np.asarray(values, dtype=float)
    rows = _spread(rows, max_rows)
    sets = ((np.where(np.arange(rows.shape[1]) == position, each, rows),) for each in points)
    return Effect(d, name, points, *average_over(model, sets, coverage))


def accumulated_effects(
    model: GPRegressor,
    X: ArrayLike,
    feature: int | str,
    *,
    n_bins: int = 20,
    coverage: float = 0.9,
    max_rows: int = 500,
) -> Effect:
    """Accumulate local effects of one input: a partial dependence that stays among the data.

    The range of the input is divided into bins with equal numbers of rows. The slope in a bin is
    the average difference of the latent function between the ends of the bin, over the rows in it
    alone. Slopes are added up over the bins (Apley and Zhu, 2020). No row is moved further than
    the width of its bin, so correlated inputs do not lead to rows unlike any in the data. The
    average of the effect over the rows is the average of the function. The band is a credible
    interval from the joint posterior (`predict_average`).

    Parameters
    ----------
    model : GPRegressor
        A fitted model.
    X : array of shape (n, D)
        Rows.
    feature : int or str
        The input, by index or name.
    n_bins : int
        The largest number of bins.
    coverage : float
        The probability that the band contains the effect, at each value of the input.
    max_rows : int
        The largest number of rows; of more, so many in equal steps are used.

    Returns
    -------
    effect : Effect
        The effect at the ends of the bins, and its band.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import EigenGPRegressor
    >>> X = np.random.default_rng(0).uniform(-2, 2, size=(80, 2))
    >>> y = np.sin(X[:, 0]) + X[:, 1]
    >>> model = EigenGPRegressor(12, random_state=0).fit(X, y)
    >>> effect = accumulated_effects(model, X, 1)
    >>> slope = (effect.mean[-1] - effect.mean[0]) / (effect.grid[-1] - effect.grid[0])
    >>> round(float(slope), 2)
    1.0
    """
    d, name, position, rows = _locate(model, X, feature)
    rows = _spread(rows, max_rows)
    values = rows[:, position]
    edges = np.unique(np.quantile(values, np.linspace(0, 1, n_bins + 1), method="nearest"))
    if edges.size < 2:
        raise ValueError(f"Input {name!r} has only one value in X.")
    place = np.clip(np.searchsorted(edges, values), 1, edges.size - 1)
    ends = np.concatenate([rows, rows])
    ends[:, position] = np.concatenate([edges[place - 1], edges[place]])
    count = np.bincount(place, minlength=edges.size)
    slopes = (place == np.arange(edges.size)[:, None]) / np.maximum(count, 1)[:, None]
    sums = np.cumsum(slopes, axis=0)  # Entry (k, n): the weight of row n's difference at edge k.
    # Centred: the average of both ends of each row's bin, over the rows, is that of the function.
    middle = 0.5 * (sums[place - 1] + sums[place]).mean(axis=0)
    sums, half = sums - middle, 0.5 / len(rows)
    weights = np.hstack([half - sums, half + sums])
    sets = ((ends, each) for each in weights)
    return Effect(d, name, edges, *average_over(model, sets, coverage))


def _spread(rows: Array, most: int) -> Array:
    """Return at most so many rows, in equal steps."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int))]


def average_over(
    model: GPRegressor, sets: Iterable[tuple[Array, ...]], coverage: float
) -> tuple[Array, Array, Array]:
    """Return the average of the latent function over each set of rows, and the ends of its band.

    Parameters
    ----------
    model : GPRegressor
        A fitted model.
    sets : iterable of tuples
        Arguments of `predict_average`: rows of shape (n, D), and weights of shape (n,) if wanted.
    coverage : float
        The probability that the band contains the average.

    Returns
    -------
    mean, lower, upper : arrays
        One entry for each set.
    """
    with plain_inputs():
        mean, std = np.array([model.predict_average(*each) for each in sets]).T
    half = normal_half_width(coverage) * std
    return mean, mean - half, mean + half


def group_effects(
    model: GPRegressor,
    X: Array,
    groups: Mapping[str, Sequence[int]],
    *,
    max_rows: int = 1_000,
    random_state: int = 0,
) -> dict[str, float]:
    """Return the share of the variance of the predictions that is due to each group of inputs.

    The total Sobol index of the predictive mean, as in `input_effects`, but of several inputs at
    once, such as those that one column of a table has become. Shares of groups that interact add
    up to more than one.

    Parameters
    ----------
    model : GPRegressor
        A fitted model.
    X : array of shape (n, D)
        Rows.
    groups : mapping of str to sequence of int
        The indices of the inputs in each group.
    max_rows : int
        The largest number of rows, drawn at random.
    random_state : int
        Seed of that draw.

    Returns
    -------
    effects : dict
        One for each group; empty for more than 1,000 groups, each of which takes a prediction.
    """
    if len(groups) > _MOST_GROUPS:
        return {}
    rows = X[np.random.RandomState(random_state).permutation(len(X))[:max_rows]]
    predict: list[Any] = [model.predict]
    if hasattr(model, "classes_"):
        count = model.classes_.size
        picked = range(1 if count == 2 else count)
        predict = [lambda X, c=c: model.predict_proba(X)[:, c] for c in picked]
    with encoded_inputs():
        shares = np.mean([total_indices(each, rows, groups.values()) for each in predict], axis=0)
    return dict(zip(groups, shares.tolist(), strict=True))


def split_history(model: Any) -> list[dict[str, Any]]:
    """Split the history of a fit into stages: name, iterations, seconds and values.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> step = {"stage": "learning", "log_marginal_likelihood": -3.0, "seconds": 0.1}
    >>> (stage,) = split_history(SimpleNamespace(history_=[step, step]))
    >>> stage["name"], stage["iterations"]
    ('learning', array([1., 2.]))
    """
    steps = enumerate(getattr(model, "history_", []), start=1)
    stages = []
    for name, group in groupby(steps, key=lambda pair: str(pair[1]["stage"])):
        rows = [(at, each["seconds"], each["log_marginal_likelihood"]) for at, each in group]
        columns = zip(("iterations", "seconds", "values"), np.array(rows, float).T, strict=True)
        stages.append({"name": name, **dict(columns)})
    return stages


def class_scores(
    y: Any, p: Array, classes: Any, sample_weight: Array | None = None
) -> dict[str, float | None]:
    """Return accuracy, log loss, and the calibration error of the most probable class.

    Parameters
    ----------
    y : array of shape (n,)
        Labels.
    p : array of shape (n, C)
        From `predict_proba`.
    classes : array of shape (C,)
        The labels of the columns of `p`.
    sample_weight : array of shape (n,) or None
        Weights of the rows.

    Returns
    -------
    scores : dict
        The calibration error is the weighted mean gap between probability and frequency, of 15
        bins of the probability.
    """
    labels, known = np.asarray(y).astype(str), np.asarray(classes).astype(str).tolist()
    new = np.setdiff1d(labels, known)
    if new.size:
        raise ValueError(f"The label {new[0]!r} is none of the classes {known}.")
    number = np.array(list(map(known.index, labels)))
    sure, right = p.max(axis=1), p.argmax(axis=1) == number
    weight = np.ones(number.size) if sample_weight is None else sample_weight
    bins = np.minimum((_BINS * sure).astype(int), _BINS - 1)
    gaps = np.abs(np.bincount(bins, weight * (sure - right), _BINS))
    return {
        "accuracy": float(np.average(right, weights=weight)),
        "log_loss": float(log_loss(number, p, sample_weight=weight, labels=range(len(known)))),
        "calibration_error": float(gaps.sum() / weight.sum()),
    }


def measure_log_density(model: Any, X: Any, y: Array) -> Array | None:
    """Return log densities of targets if a model transforms them; None if they are normal."""
    if not hasattr(model, "target_map_"):
        return None
    with plain_inputs():
        density: Array = model.log_density(plain_rows(model, X), y)
    return density


def scores(
    y: Array,
    prediction: tuple[Array, Array],
    interval: tuple[Array, Array],
    sample_weight: Array | None = None,
    log_density: Array | None = None,
) -> dict[str, float | None]:
    """Return NMSE, RMSE, MNLP, CRPS, and the coverage of the intervals.

    Parameters
    ----------
    y : array of shape (n,)
        Targets.
    prediction : mean and standard deviation, of shape (n,)
        From `predict`.
    interval : lower and upper end, of shape (n,)
        From `predict_interval`.
    sample_weight : array of shape (n,) or None
        Weights of the rows.
    log_density : array of shape (n,) or None
        The log predictive densities of the targets; None if predictions are normal.

    Returns
    -------
    scores : dict
        NMSE is None if all targets are equal.
    """
    mnlp = metrics.mnlp(y, *prediction, sample_weight=sample_weight)
    if log_density is not None:
        mnlp = -float(np.average(log_density, weights=sample_weight))
    (mean, _), (lower, upper) = prediction, interval
    weight: dict[str, Any] = {"sample_weight": sample_weight}
    inside = (lower <= y) & (y <= upper)
    return {
        "nmse": metrics.nmse(y, mean, **weight) if np.ptp(y) > 0.0 else None,
        "rmse": float(root_mean_squared_error(y, mean, **weight)),
        "mnlp": mnlp,
        "crps": metrics.crps_gaussian(y, *prediction, **weight),
        "coverage": float(np.average(inside, weights=sample_weight)),
    }
