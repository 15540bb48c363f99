"""Metrics of predictions and of the calibration of their error bars, and scorers.

The metrics are functions of targets y, predictive means μ and standard deviations s. The scorers
make them available to `GridSearchCV`, `cross_validate` and the like, for any estimator whose
`predict` takes `return_std`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from sklearn import config_context
from sklearn.metrics import make_scorer
from sklearn.metrics._scorer import _BaseScorer
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from eigengp._typing import Array

Weights: TypeAlias = ArrayLike | None
_LEVELS = np.linspace(0.05, 0.95, 19)


def nmse(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    train_mean: float | None = None,
    sample_weight: Weights = None,
) -> float:
    """Return the normalised mean squared error, `Σ(y − μ)²/Σ(y − train_mean)²`.

    It is 0 for perfect means and 1 for means no better than the constant `train_mean`.

    Parameters
    ----------
    y_true, y_pred : arrays of shape (n,)
        Targets and predictive means.
    train_mean : float, optional
        The constant; by default the weighted mean of `y_true`, which makes the error `1 − R²`.
    sample_weight : array of shape (n,), optional
        Non-negative weights of the rows.

    Examples
    --------
    >>> nmse([1.0, 2.0, 3.0], [1.0, 2.0, 4.0])
    0.5
    """
    y, mean, weights = _columns(sample_weight, y_true=y_true, y_pred=y_pred)
    centre = np.average(y, weights=weights) if train_mean is None else float(train_mean)
    if not np.isfinite(centre):
        raise ValueError(f"train_mean must be finite, got {train_mean!r}; leave it out if unknown.")
    deviation = y - centre
    # In units of the largest deviation the denominator can neither overflow nor vanish.
    scale = np.abs(deviation).max()
    if scale <= 16.0 * np.finfo(np.float64).eps * np.abs(y).max():
        raise ValueError(
            f"nmse divides by the spread of y_true about {centre:.6g}, which is zero: all targets "
            "equal it. Score more rows with different targets, pass the mean of the training "
            "targets as train_mean, or use sklearn.metrics.mean_squared_error."
        )
    return float(weights @ ((y - mean) / scale) ** 2 / (weights @ (deviation / scale) ** 2))


def mnlp(
    y_true: ArrayLike, y_pred: ArrayLike, y_std: ArrayLike, *, sample_weight: Weights = None
) -> float:
    """Return the mean negative log predictive density, `½ mean[(y − μ)²/s² + ln s² + ln 2π]`.

    Lower is better. The penalty of confident errors is unbounded; new units of y add a constant.

    Parameters
    ----------
    y_true, y_pred, y_std : arrays of shape (n,)
        Targets, predictive means, and standard deviations with the noise included.
    sample_weight : array of shape (n,), optional
        Non-negative weights of the rows.

    Examples
    --------
    >>> round(mnlp([0.0, 1.0], [0.0, 0.0], [1.0, 1.0]), 6)
    1.168939
    """
    error, std, weights = _errors(y_true, y_pred, y_std, sample_weight)
    loss = 0.5 * (error / std) ** 2 + np.log(std) + 0.5 * np.log(2.0 * np.pi)
    return float(np.average(loss, weights=weights))


def coverage(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    y_std: ArrayLike,
    *,
    level: float = 0.9,
    sample_weight: Weights = None,
) -> float:
    """Return the fraction of targets in the central Gaussian interval of probability `level`.

    Calibrated error bars have a coverage near `level`; a lower one means that they are too narrow.

    Parameters
    ----------
    y_true, y_pred, y_std : arrays of shape (n,)
        Targets, predictive means, and standard deviations with the noise included.
    level : float
        The probability of the interval, strictly between 0 and 1.
    sample_weight : array of shape (n,), optional
        Non-negative weights of the rows.

    Examples
    --------
    >>> coverage([0.0, 1.0, 2.0, 3.0], [0.0] * 4, [1.0] * 4, level=0.9)
    0.5
    """
    _check_level(level)
    error, std, weights = _errors(y_true, y_pred, y_std, sample_weight)
    inside = np.abs(error) <= special.ndtri(0.5 + 0.5 * level) * std
    return float(np.average(inside, weights=weights))


def crps_gaussian(
    y_true: ArrayLike, y_pred: ArrayLike, y_std: ArrayLike, *, sample_weight: Weights = None
) -> float:
    """Return the mean continuous ranked probability score of Gaussian predictions.

    For one target it is `∫ (Φ((t − μ)/s) − [y ≤ t])² dt`, which with `z = |y − μ|/s` equals
    `s (z erf(z/√2) + 2 φ(z) − 1/√π)`. Lower is better. It is in the units of y and becomes the
    absolute error as s goes to 0, so that outliers weigh less than in `mnlp`.

    Parameters
    ----------
    y_true, y_pred, y_std : arrays of shape (n,)
        Targets, predictive means, and standard deviations with the noise included.
    sample_weight : array of shape (n,), optional
        Non-negative weights of the rows.

    Examples
    --------
    >>> round(crps_gaussian([0.0, 1.0], [0.0, 0.0], [1.0, 1.0]), 6)
    0.418068
    """
    error, std, weights = _errors(y_true, y_pred, y_std, sample_weight)
    z = np.abs(error) / std
    density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    spread = std * (2.0 * density - 1.0 / np.sqrt(np.pi))
    score = np.abs(error) * special.erf(z / np.sqrt(2.0)) + spread
    return float(np.average(score, weights=weights))


def standardized_residuals(y_true: ArrayLike, y_pred: ArrayLike, y_std: ArrayLike) -> Array:
    """Return `(y − μ)/s`, shape (n,).

    Examples
    --------
    >>> standardized_residuals([0.0, 3.0], [0.0, 1.0], [1.0, 2.0])
    array([0., 1.])
    """
    error, std, _ = _errors(y_true, y_pred, y_std, None)
    return error / std


def pit(y_true: ArrayLike, y_pred: ArrayLike, y_std: ArrayLike) -> Array:
    """Return the probability integral transform: the predictive CDF at each target, shape (n,).

    It is uniform on [0, 1] if predictions are calibrated. A peak in the middle of its histogram
    means that error bars are too wide, peaks at the ends that they are too narrow.

    Parameters
    ----------
    y_true, y_pred, y_std : arrays of shape (n,)
        Targets, predictive means, and standard deviations with the noise included.

    Examples
    --------
    >>> pit([0.0, 1.0], [0.0, 0.0], [1.0, 1.0]).round(3)
    array([0.5  , 0.841])
    """
    return special.ndtr(standardized_residuals(y_true, y_pred, y_std))


def pit_histogram(
    y_true: ArrayLike, y_pred: ArrayLike, y_std: ArrayLike, bins: int = 10
) -> tuple[Array, Array]:
    """Return the density of `pit` in bins of equal width, and their edges.

    Examples
    --------
    >>> density, edges = pit_histogram([0.0, 1.0], [0.0, 0.0], [1.0, 1.0], bins=2)
    >>> density, edges
    (array([0., 2.]), array([0. , 0.5, 1. ]))
    """
    return np.histogram(pit(y_true, y_pred, y_std), bins=bins, range=(0.0, 1.0), density=True)


def coverage_curve(
    y_true: ArrayLike, y_pred: ArrayLike, y_std: ArrayLike, levels: ArrayLike = _LEVELS
) -> tuple[Array, Array]:
    """Return probabilities of central intervals, and the coverage of each.

    Parameters
    ----------
    y_true, y_pred, y_std : arrays of shape (n,)
        Targets, predictive means, and standard deviations with the noise included.
    levels : array
        The probabilities; the default is 0.05, 0.10, …, 0.95.

    Examples
    --------
    >>> coverage_curve([0.0, 1.0, 2.0, 3.0], [0.0] * 4, [1.0] * 4, levels=[0.5, 0.9])
    (array([0.5, 0.9]), array([0.25, 0.5 ]))
    """
    asked = np.array(levels, dtype=np.float64)
    if not np.all((asked > 0.0) & (asked < 1.0)):
        raise ValueError("levels must be strictly between 0 and 1.")
    central = 2.0 * np.abs(pit(y_true, y_pred, y_std) - 0.5)
    return asked, np.mean(central[:, None] <= asked, axis=0)


def sharpness(y_std: ArrayLike) -> float:
    """Return the root mean square of the standard deviations.

    Of two calibrated models the one with the lower value is better.

    Examples
    --------
    >>> sharpness([3.0, 4.0])
    3.5355339059327378
    """
    return float(np.sqrt(np.mean(np.asarray(y_std, dtype=np.float64) ** 2)))


# scikit-learn ships no types, so its classes are Any to mypy.
class _ProbabilisticScorer(_BaseScorer):  # type: ignore[misc]
    """The score `sign · score_func(y_true, mean, std)`; routing comes with the base class."""

    def _score(
        self, method_caller: Any, estimator: Any, X: Any, y_true: Any, **metadata: Any
    ) -> Any:
        # `method_caller` shares plain predictions among scorers, which lack the deviations.
        self._warn_overlap("Parameters are set in the scorer and passed to it.", metadata)
        if self._score_func is mnlp and (density := _find_log_density(estimator, X, y_true)):
            return self._sign * -float(np.average(*density, weights=metadata.get("sample_weight")))
        mean, std = _predict_with_std(estimator, X)
        return self._sign * self._score_func(y_true, mean, std, **{**self._kwargs, **metadata})

    def __repr__(self) -> str:
        name = getattr(self._score_func, "__name__", repr(self._score_func))
        sign = "" if self._sign > 0 else ", greater_is_better=False"
        kwargs = "".join(f", {key}={value!r}" for key, value in self._kwargs.items())
        return f"make_probabilistic_scorer({name}{sign}{kwargs})"


def make_probabilistic_scorer(
    score_func: Callable[..., float], *, greater_is_better: bool = True, **kwargs: Any
) -> _ProbabilisticScorer:
    """Make a scorer of a function of targets, predictive means and standard deviations.

    Like `sklearn.metrics.make_scorer`, but for `score_func(y_true, mean, std, **kwargs)`. It calls
    `estimator.predict(X, return_std=True)`, which a `Pipeline` passes to its last step.

    Parameters
    ----------
    score_func : callable
        The metric. If it takes `sample_weight`, so does the scorer. `set_score_request` changes a
        scorer in place, so take a `copy.copy` of those of this module first.
    greater_is_better : bool
        Whether large values are good; otherwise the score is the negative metric.
    **kwargs
        Further parameters of `score_func`.

    Examples
    --------
    >>> from sklearn.linear_model import BayesianRidge
    >>> from sklearn.model_selection import cross_val_score
    >>> X = np.linspace(0.0, 1.0, 30)[:, None]
    >>> y = X[:, 0] + 0.1 * np.cos(40.0 * X[:, 0])
    >>> scorer = make_probabilistic_scorer(coverage, level=0.5)
    >>> scorer
    make_probabilistic_scorer(coverage, level=0.5)
    >>> cross_val_score(BayesianRidge(), X, y, scoring=scorer, cv=3).tolist()
    [0.4, 0.4, 0.4]
    """
    return _ProbabilisticScorer(score_func, 1 if greater_is_better else -1, kwargs)


def coverage_scorer(level: float = 0.9) -> _ProbabilisticScorer:
    """Return a scorer of the calibration, `−|coverage − level|`.

    Coverage itself must not be maximised, because infinite error bars cover everything. This score
    is 0 if the coverage equals `level`, and negative otherwise. It ignores the width of the
    intervals: use it together with `mnlp_scorer` or `crps_scorer`.

    Parameters
    ----------
    level : float
        The probability of the interval, strictly between 0 and 1.

    Examples
    --------
    >>> coverage_scorer(0.8)
    make_probabilistic_scorer(_calibration_error, greater_is_better=False, level=0.8)
    """
    _check_level(level)
    return make_probabilistic_scorer(_calibration_error, greater_is_better=False, level=level)


def _calibration_error(
    y_true: Any, y_pred: Any, y_std: Any, *, level: float, sample_weight: Weights = None
) -> float:
    return abs(coverage(y_true, y_pred, y_std, level=level, sample_weight=sample_weight) - level)


# Scorers see no training rows: the constant to beat is the mean of the rows that are scored.
nmse_scorer = make_scorer(nmse, greater_is_better=False)
mnlp_scorer = make_probabilistic_scorer(mnlp, greater_is_better=False)
crps_scorer = make_probabilistic_scorer(crps_gaussian, greater_is_better=False)


def _find_log_density(estimator: Any, X: Any, y: Any) -> tuple[Array] | None:
    """Return log densities by a regressor of transformed targets; None if it is another."""
    own = getattr(estimator, "best_estimator_", estimator)
    if hasattr(own, "steps"):
        X, own = own[:-1].transform(X) if len(own) > 1 else X, own[-1]
    return (own.log_density(X, y),) if hasattr(own, "target_map_") else None


def _predict_with_std(estimator: Any, X: Any) -> tuple[ArrayLike, ArrayLike]:
    # A search such as GridSearchCV predicts by its best estimator, but takes no return_std.
    estimator = getattr(estimator, "best_estimator_", estimator)
    needed = (
        f"{type(estimator).__name__} gives no standard deviations, and this scorer needs them. Use "
        "an estimator whose predict(X, return_std=True) returns means and standard deviations, or "
        "a scorer of the means alone, such as nmse_scorer."
    )
    try:
        # With routing enabled a Pipeline would take return_std for metadata to be requested.
        with config_context(enable_metadata_routing=False):
            predicted = estimator.predict(X, return_std=True)
    except TypeError as error:
        if "return_std" not in str(error):
            raise
        raise TypeError(needed) from error
    if not (isinstance(predicted, tuple) and len(predicted) == 2):
        raise TypeError(needed)
    return predicted


def _check_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be strictly between 0 and 1, got {level!r}; 90 % is 0.9.")


def _errors(
    y_true: ArrayLike, y_pred: ArrayLike, y_std: ArrayLike, sample_weight: Weights
) -> tuple[Array, Array, Array]:
    """Return `y − μ`, s and the weights, each of shape (n,)."""
    y, mean, std, weights = _columns(sample_weight, y_true=y_true, y_pred=y_pred, y_std=y_std)
    if not np.all(std > 0.0):
        raise ValueError(
            f"y_std must be strictly positive, but {np.sum(std <= 0.0)} of {std.size} values are "
            f"not; the smallest is {std.min():.6g}. Pass standard deviations with the noise "
            "included, or give them a floor: np.maximum(y_std, floor)."
        )
    return y - mean, std, weights


def _columns(sample_weight: Weights, **values: ArrayLike) -> list[Array]:
    """Return the values and the weights as finite columns, without the rows of weight zero."""
    if sample_weight is not None:
        values["sample_weight"] = sample_weight
    options: dict[str, Any] = {"ensure_2d": False, "dtype": np.float64}
    finite = (check_array(each, input_name=name, **options) for name, each in values.items())
    columns: list[Array] = list(map(column_or_1d, finite))
    weights = np.ones(len(columns[0])) if sample_weight is None else columns.pop()
    check_consistent_length(*columns, weights)
    if weights.min() < 0.0 or weights.max() == 0.0:
        raise ValueError(
            "sample_weight must be non-negative and not all zero, but lies between "
            f"{weights.min():.6g} and {weights.max():.6g}. Give weight zero to rows to leave out."
        )
    return [column[weights > 0.0] for column in (*columns, weights)]
