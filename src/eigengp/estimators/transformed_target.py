"""Regression of transformed targets, with means, error bars and densities in their own units."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, _fit_context, clone
from sklearn.utils._param_validation import HasMethods, StrOptions
from sklearn.utils.validation import _check_y, check_consistent_length, check_is_fitted

from eigengp._typing import Array
from eigengp.backend.namespace import on_host
from eigengp.data.dask_source import is_dask
from eigengp.data.frames import is_frame, read_targets, take_columns
from eigengp.data.open import check_weight, follows_dispatch, is_out_of_core
from eigengp.data.standardize import Summary
from eigengp.estimators.around import Around
from eigengp.estimators.base import GPRegressor
from eigengp.estimators.eigengp import EigenGPRegressor
from eigengp.estimators.target_maps import MAPS, LogMap, TargetMap, YeoJohnsonMap, check_map
from eigengp.fitting.settings import find_likelihood
from eigengp.gp.blocks import RowBlock

_IDENTITY = YeoJohnsonMap(1.0)
_CLEAR_GAIN = 20.0
"""The gain in nats for which "auto" transforms targets."""
_LARGEST = 1e150
_NODES = np.arange(-12.0, 12.125, 0.125)
_WEIGHTS = np.exp(-0.5 * _NODES**2) / np.sum(np.exp(-0.5 * _NODES**2))
"""The trapezoidal rule for means under the standard normal distribution: exact to rounding for
smooth maps, and better than Gauss and Hermite's for those with corners."""


# scikit-learn ships no types, so its classes and decorators are Any to mypy.
@dataclass(eq=False, repr=False)
class TargetTransformed(Around, MetaEstimatorMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A regressor of transformed targets that predicts in the units of the data.

    For targets `y` that are skewed or have heavy tails. A regressor is fitted to `t = m(y)`, where
    m is a strictly increasing map under which the targets are closer to normal. If the regressor
    predicts `t ~ N(μ, s²)`, the target has the density `N(m(y) | μ, s²) m′(y)`; means, standard
    deviations and densities follow from it. Intervals and quantiles are those of the regressor,
    mapped back, so they are asymmetric. With "log" they are positive.

    Parameters
    ----------
    regressor : GPRegressor or None
        The regressor of the transformed targets; it is cloned. None is `EigenGPRegressor()`.
    transformer : {"auto", "yeo-johnson", "log"} or object
        "auto" fits the regressor to the targets as they are, to those of "yeo-johnson" and, if they
        are positive, of "log": two or three fits, each with the regressor's `max_time`. It keeps
        the fit with the largest log marginal likelihood of the targets in their own units; a
        transform must gain 20 nats.

        "yeo-johnson" is the power transform of Yeo and Johnson, with the power between 0 and 2
        that maximises the likelihood of the targets under a normal distribution. Targets are not
        rescaled first, so it has little effect on targets much smaller than one. "log" is the
        logarithm, for positive targets. An object with the methods `values(y)`, `targets(t)` and
        `log_slope(y)` is a map of your own: strictly increasing, onto all real numbers, its
        inverse, and the logarithm of its slope. `fit` checks the first two at the targets.

    Attributes
    ----------
    regressor_ : GPRegressor
        The fitted regressor of the transformed targets.
    target_map_ : object
        The map that was chosen, with `values(y)`, its inverse `targets(t)`, and `log_slope(y)`.
    n_features_in_ : int
        The number of inputs.
    feature_names_in_ : array of shape (D,)
        The names of the inputs, where `fit` was given names.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import LBFGS, EigenGPRegressor, TargetTransformed
    >>> rng = np.random.default_rng(0)
    >>> X = np.linspace(0, 6, 150)[:, None]
    >>> y = np.exp(np.sin(X[:, 0]) + 0.4 * rng.normal(size=150))
    >>> optimizer = LBFGS(n_restarts=1)
    >>> regressor = EigenGPRegressor(8, residual=None, optimizer=optimizer, random_state=0)
    >>> model = TargetTransformed(regressor, "log").fit(X, y)
    >>> lower, upper = model.predict_interval([[1.5], [4.5]], coverage=0.9)
    >>> bool(np.all(lower > 0)), bool(upper[0] > 2 * upper[1])
    (True, True)
    >>> bool(np.mean(model.log_density(X, y)) > -1.2)
    True
    """

    regressor: GPRegressor | None = None
    transformer: Literal["auto", "yeo-johnson", "log"] | Any = "auto"
    regressor_: GPRegressor = field(init=False)
    target_map_: TargetMap = field(init=False)
    _inner = "regressor_"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "regressor": [GPRegressor, None],
        "transformer": [
            StrOptions({"auto", *MAPS}),
            HasMethods(["values", "targets", "log_slope"]),
        ],
    }

    # scikit-learn ships no types.
    @_fit_context(prefer_skip_nested_validation=False)  # type: ignore[untyped-decorator]
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the map, and fit the regressor to the transformed targets.

        Parameters
        ----------
        X : array of shape (N, D) or frame
            Inputs, in a frame also text, categories, dates and missing values.
        y : array of shape (N,) or str
            Targets, or the name of their column in a frame.
        sample_weight : array of shape (N,), str or None
            How many times each row counts, or the name of that column.

        Returns
        -------
        self : object
            The fitted regressor.
        """
        if is_out_of_core(X) or is_dask(X) or is_dask(y):
            raise TypeError(
                "TargetTransformed.fit needs arrays, because the map is learned from all targets. "
                "Transform the column of the target yourself, or read it into memory."
            )
        if is_frame(X):
            X, y, sample_weight = take_columns(X, y, sample_weight)
        targets = self._checked_targets(y)
        if not targets.size:
            raise ValueError("There are no rows to learn from: y is empty.")
        weight = check_weight(sample_weight, targets.size)
        counts = np.ones(targets.size) if weight is None else weight
        counted = counts > 0.0
        used, counts = targets[counted], counts[counted]
        regressor = EigenGPRegressor() if self.regressor is None else self.regressor
        likelihood = getattr(regressor, "likelihood", None)
        if find_likelihood(likelihood) is not None:
            raise ValueError(
                "TargetTransformed needs a regressor with Gaussian noise, got likelihood="
                f"{likelihood!r}."
            )
        Summary.of(RowBlock(np.empty((used.size, 0)), used)).check_range()
        best, chosen = -np.inf, None
        for own in self._list_maps(used, counts):
            values = np.where(counted, own.values(targets), 0.0)  # Others may have no value.
            fitted = clone(regressor).fit(X, values, sample_weight=sample_weight)
            score = fitted.log_marginal_likelihood_ + float(np.sum(counts * own.log_slope(used)))
            if np.isfinite(score) and score > best:
                best = score + (_CLEAR_GAIN if own == _IDENTITY else 0.0)
                chosen = own, fitted
        if chosen is None:
            raise ValueError(
                f"transformer={self.transformer!r} has no finite log marginal likelihood. Check "
                "that log_slope(y) is finite at all targets, or use another transformer."
            )
        self.target_map_, self.regressor_ = chosen
        return self

    def _list_maps(self, y: Array, weight: Array) -> list[Any]:
        """Return the maps to compare, first that which changes nothing."""
        if self.transformer == "auto":
            logarithm = [LogMap()] if np.all(y > 0.0) else []
            return [_IDENTITY, YeoJohnsonMap.of(y, weight), *logarithm]
        if isinstance(self.transformer, str):
            return [MAPS[self.transformer].of(y, weight)]
        check_map(self.transformer, y)
        return [self.transformer]

    def _checked_targets(self, y: ArrayLike) -> Array:
        if y is None:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y "
                "is None."
            )
        host = on_host(y) if follows_dispatch(y) else read_targets(None, y)
        return np.asarray(_check_y(host, y_numeric=True, estimator=self), dtype=np.float64)

    def _moments(self, X: ArrayLike) -> tuple[Array, Array]:
        """Return mean and standard deviation of the transformed target, in NumPy."""
        check_is_fitted(self)
        mean, std = map(on_host, self.regressor_.predict(X, return_std=True))
        return mean, std

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[False] = ...) -> Array: ...
    @overload
    def predict(self, X: ArrayLike, return_std: Literal[True]) -> tuple[Array, Array]: ...
    def predict(self, X: ArrayLike, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Predict targets: means, not medians, which `predict_quantile(X, 0.5)` gives.

        Both moments are integrals over the normal distribution of the transformed target, by
        the trapezoidal rule in steps of an eighth of a standard deviation.

        Parameters
        ----------
        X : array of shape (n, D)
            Where to predict.
        return_std : bool
            Whether to return standard deviations too, noise included.

        Returns
        -------
        mean : array of shape (n,)
            The predictive mean.
        std : array of shape (n,)
            Only if `return_std`.
        """
        middle, deviation = self._moments(X)
        median = self._bounded_targets(middle)
        first, second = np.zeros_like(median), np.zeros_like(median)
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            about = self._bounded_targets(middle + node * deviation) - median
            first += weight * about
            second += weight * about**2
        mean = median + first
        return (mean, np.sqrt(np.maximum(second - first**2, 0.0))) if return_std else mean

    def _bounded_targets(self, t: Array) -> Array:
        """Return targets of which the squares are numbers, however far a map stretches."""
        return np.clip(self.target_map_.targets(t), -_LARGEST, _LARGEST)

    def predict_interval(self, X: ArrayLike, coverage: float = 0.9) -> tuple[Array, Array]:
        """Return central prediction intervals with the given coverage.

        Their ends are those of the regressor's intervals of the transformed target, mapped back, so
        the coverage is the same: see `EigenGPRegressor.predict_interval`.

        Parameters
        ----------
        X : array of shape (n, D)
            Where to predict.
        coverage : float
            The probability, between 0 and 1.

        Returns
        -------
        lower, upper : arrays of shape (n,)
            The ends of the interval.
        """
        check_is_fitted(self)
        lower, upper = map(on_host, self.regressor_.predict_interval(X, coverage))
        return self.target_map_.targets(lower), self.target_map_.targets(upper)

    def predict_quantile(self, X: ArrayLike, level: float) -> Array:
        """Return a quantile of the targets, noise included.

        Parameters
        ----------
        X : array of shape (n, D)
            Where to predict.
        level : float
            The probability of a target at or below the quantile, between 0 and 1. 0.5 is the
            median.

        Returns
        -------
        quantile : array of shape (n,)
            That of the regressor, mapped back.
        """
        check_is_fitted(self)
        return self.target_map_.targets(on_host(self.regressor_.predict_quantile(X, level)))

    def log_density(self, X: ArrayLike, y: ArrayLike) -> Array:
        """Return the log predictive density of targets, in their own units.

        `ln N(m(y) | μ, s²) + ln m′(y)`, noise included. Its negative mean over rows can be compared
        with `metrics.mnlp` of other models.

        Parameters
        ----------
        X : array of shape (n, D)
            Inputs.
        y : array of shape (n,)
            Targets.

        Returns
        -------
        values : array of shape (n,)
            One for each row; −∞ where no target can be.
        """
        mean, std = self._moments(X)
        targets = self._checked_targets(y)
        check_consistent_length(mean, targets)
        slope = self.target_map_.log_slope(targets)
        error = np.where(np.isneginf(slope), 0.0, self.target_map_.values(targets) - mean) / std
        return slope - 0.5 * error**2 - np.log(std) - 0.5 * np.log(2.0 * np.pi)

    def calibrate(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Calibrate prediction intervals on held-out rows, by split conformal prediction.

        Means, standard deviations and densities do not change; see `EigenGPRegressor.calibrate`.

        Parameters
        ----------
        X : array of shape (n, D)
            Inputs.
        y : array of shape (n,)
            Targets.

        Returns
        -------
        self : object
            The regressor.
        """
        check_is_fitted(self)
        self.regressor_.calibrate(X, self.target_map_.values(self._checked_targets(y)))
        return self

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Draw latent functions from the posterior, mapped back; noise is not included.

        A value is the median of an observation, given the function.

        Parameters
        ----------
        X : array of shape (n, D)
            Where to evaluate.
        n_samples : int
            How many functions.
        random_state : int, RandomState or None
            Which functions; see `EigenGPRegressor.sample_y`.

        Returns
        -------
        values : array of shape (n, n_samples)
            One column for each function.
        """
        check_is_fitted(self)
        drawn = self.regressor_.sample_y(X, n_samples, random_state)
        return self.target_map_.targets(on_host(drawn))

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file, which `eigengp.load` reads.

        A model with a map of your own needs `eigengp.io.register` for its class, which must be a
        dataclass.

        Parameters
        ----------
        path : path
            The file, which ends in `.eigengp`.
        """
        from eigengp import io

        io.save(self, path)
