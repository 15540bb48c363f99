"""What every sparse GP regressor does once it has a posterior."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from eigengp.flow.posterior import Posterior
from eigengp.sources.arrays import by_blocks
from eigengp.sources.views import Scaling
from eigengp.typing import Array


# scikit-learn ships no types, so its classes and decorators are Any to mypy.
class SparseGPRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Predictions from a posterior in standardised units; a method adds `fit`.

    `fit` must set `_posterior`, `_scaling` and `log_marginal_likelihood_`.
    """

    _posterior: Posterior
    _scaling: Scaling
    log_marginal_likelihood_: float

    def __sklearn_is_fitted__(self) -> bool:
        """Say whether a fit has ended well."""
        return hasattr(self, "_posterior")

    def _inputs(self, X: ArrayLike) -> Array:
        check_is_fitted(self)
        checked: Array = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return checked

    @overload
    def predict(
        self, X: ArrayLike, return_std: Literal[False] = ..., return_cov: Literal[False] = ...
    ) -> Array: ...
    @overload
    def predict(
        self, X: ArrayLike, return_std: Literal[True], return_cov: Literal[False] = ...
    ) -> tuple[Array, Array]: ...
    @overload
    def predict(
        self, X: ArrayLike, return_std: Literal[False] = ..., *, return_cov: Literal[True]
    ) -> tuple[Array, Array]: ...
    def predict(
        self, X: ArrayLike, return_std: bool = False, return_cov: bool = False
    ) -> Array | tuple[Array, Array]:
        """Predict targets.

        Parameters
        ----------
        X : array of shape (n, D)
            Where to predict.
        return_std : bool
            Whether to return standard deviations too, noise included.
        return_cov : bool
            Whether to return the joint covariance too, noise included.

        Returns
        -------
        mean : array of shape (n,)
            The predictive mean; alone it costs O(M) for each row.
        std : array of shape (n,)
            Only if `return_std`.
        cov : array of shape (n, n)
            Only if `return_cov`.
        """
        X = self._inputs(X)
        if return_std and return_cov:
            raise ValueError("Ask for return_std or for return_cov, not for both.")
        scaling, posterior = self._scaling, self._posterior
        if return_std:
            both = by_blocks(
                lambda rows: np.column_stack(posterior.mean_and_variance(scaling.inputs(rows))), X
            )
            return self._mean(both[:, 0]), scaling.target_scale * np.sqrt(both[:, 1])
        mean = self._mean(by_blocks(lambda rows: posterior.mean(scaling.inputs(rows)), X))
        if return_cov:
            inputs = scaling.inputs(np.asarray(X, dtype=np.float64))
            return mean, scaling.target_scale**2 * posterior.covariance(inputs)
        return mean

    def _mean(self, standardised: Array) -> Array:
        return self._scaling.target_centre + self._scaling.target_scale * standardised

    def predict_interval(self, X: ArrayLike, coverage: float = 0.9) -> tuple[Array, Array]:
        """Return the central interval that holds a new observation with this probability.

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
        if not 0.0 < coverage < 1.0:
            raise ValueError(f"coverage must lie strictly between 0 and 1, got {coverage!r}.")
        mean, std = self.predict(X, return_std=True)
        half = stats.norm.ppf(0.5 + 0.5 * coverage) * std
        return mean - half, mean + half

    @overload
    def predict_gradient(self, X: ArrayLike, return_variance: Literal[False] = ...) -> Array: ...
    @overload
    def predict_gradient(
        self, X: ArrayLike, return_variance: Literal[True]
    ) -> tuple[Array, Array]: ...
    def predict_gradient(
        self, X: ArrayLike, return_variance: bool = False
    ) -> Array | tuple[Array, Array]:
        """Return the derivative of the predictive mean with respect to the inputs.

        Parameters
        ----------
        X : array of shape (n, D)
            Where to differentiate.
        return_variance : bool
            Whether to return the derivative of the predictive variance too.

        Returns
        -------
        mean_gradient : array of shape (n, D)
            `d mean/d x`.
        variance_gradient : array of shape (n, D)
            `d variance/d x`; only if `return_variance`.
        """
        X = self._inputs(X)
        scaling, posterior = self._scaling, self._posterior
        unit = scaling.target_scale / scaling.input_scale
        mean = unit * by_blocks(lambda rows: posterior.mean_gradient(scaling.inputs(rows)), X)
        if not return_variance:
            return mean
        variance = by_blocks(lambda rows: posterior.variance_gradient(scaling.inputs(rows)), X)
        return mean, scaling.target_scale * unit * variance

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Draw whole latent functions from the posterior and evaluate them.

        The same `random_state` is the same function wherever it is
        evaluated, at O(M) for each point. Observation noise and the residual
        of EigenGP+ are not part of the function.

        Parameters
        ----------
        X : array of shape (n, D)
            Where to evaluate.
        n_samples : int
            How many functions.
        random_state : int, RandomState or None
            Which functions.

        Returns
        -------
        values : array of shape (n, n_samples)
            One column for each function.
        """
        X = self._inputs(X)
        scaling, posterior = self._scaling, self._posterior
        a = posterior.draw_coefficients(n_samples, check_random_state(random_state))
        B, kernel = posterior.inducing_inputs, posterior.kernel
        return self._mean(by_blocks(lambda rows: kernel.matrix(scaling.inputs(rows), B) @ a, X))

    def log_marginal_likelihood(self) -> float:
        """Return the log evidence of the training data under the learned model."""
        check_is_fitted(self)
        return self.log_marginal_likelihood_
