"""Learned eigenfunctions as features for any other model of scikit-learn."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    _fit_context,
    clone,
)
from sklearn.utils.validation import check_is_fitted

from eigengp._typing import Array
from eigengp.estimators.around import Around
from eigengp.estimators.eigengp import EigenGPRegressor


# scikit-learn ships no types, so its classes and decorators are Any to mypy.
@dataclass(eq=False, repr=False)
class EigenFeatures(Around, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Eigenfunctions that are learned from inputs and targets, as features for another model.

    Fits an `EigenGPRegressor`; `transform` returns the values of its eigenfunctions
    `φ_1(x), …, φ_R(x)`. With `residual=None` and a constant mean, ridge regression of
    `y − target_mean_` on these features, with the penalties `noise_variance_ / weights_`, has the
    same predictive mean as the regressor.

    Parameters
    ----------
    estimator : EigenGPRegressor or None
        The regressor that learns the eigenfunctions; it is cloned. None is `EigenGPRegressor()`.
        `residual="auto"` is replaced by None, so that there are eigenfunctions for any number of
        rows; "exact" is an error, because the exact GP has none.
    random_state : int, RandomState or None
        If given, replaces the `random_state` of the regressor.

    Attributes
    ----------
    estimator_ : EigenGPRegressor
        The fitted regressor.
    n_features_in_ : int
        The number of inputs.
    feature_names_in_ : array of shape (D,)
        The names of the inputs, where `fit` was given names.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import BayesianRidge
    >>> from sklearn.pipeline import make_pipeline
    >>> from eigengp import LBFGS, EigenFeatures, EigenGPRegressor
    >>> X = np.linspace(0, 6, 120)[:, None]
    >>> y = np.sin(X[:, 0] ** 1.5)
    >>> optimizer = LBFGS(n_restarts=4)
    >>> features = EigenFeatures(EigenGPRegressor(14, optimizer=optimizer, random_state=0))
    >>> bool(make_pipeline(features, BayesianRidge()).fit(X, y).score(X, y) > 0.99)
    True
    """

    estimator: EigenGPRegressor | None = None
    random_state: int | np.random.RandomState | None = field(default=None, kw_only=True)
    estimator_: EigenGPRegressor = field(init=False)
    _inner = "estimator_"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [EigenGPRegressor, None],
        "random_state": ["random_state"],
    }

    # scikit-learn ships no types.
    @_fit_context(prefer_skip_nested_validation=False)  # type: ignore[untyped-decorator]
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn eigenfunctions.

        Parameters
        ----------
        X : array of shape (N, D)
            Inputs; files and Dask collections too, as in `EigenGPRegressor.fit`.
        y : array of shape (N,)
            Targets.
        sample_weight : array of shape (N,) or None
            How many times each row counts.

        Returns
        -------
        self : object
            The fitted transformer.
        """
        estimator = EigenGPRegressor() if self.estimator is None else clone(self.estimator)
        if estimator.residual == "exact":
            raise ValueError("residual='exact' has no eigenfunctions; use another residual.")
        if estimator.residual == "auto":
            estimator.set_params(residual=None)
        if self.random_state is not None:
            estimator.set_params(random_state=self.random_state)
        with warnings.catch_warnings():
            # Targets of features may well be classes.
            warnings.filterwarnings("ignore", "y has only two distinct values")
            self.estimator_ = estimator.fit(X, y, sample_weight=sample_weight)
        return self

    def transform(self, X: ArrayLike) -> Array:
        """Return the values of the eigenfunctions.

        Parameters
        ----------
        X : array of shape (n, D)
            Where to evaluate them.

        Returns
        -------
        values : array of shape (n, R)
            One column for each eigenfunction, largest eigenvalue first.
        """
        check_is_fitted(self)
        return self.estimator_.eigenfunctions(X)

    @property
    def _n_features_out(self) -> int:
        return int(self.estimator_.weights_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.one_d_labels = True
        return tags
