"""What every Gaussian-process regressor shares: fitting as a frame, and all predictions."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin, _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from eigengp._typing import Array
from eigengp.backend.buffers import reused_buffers
from eigengp.backend.namespace import AnyArray, beside, cast, is_numpy, namespace, on_host, place
from eigengp.conformal import conformal_factor, conformity, known_factor, normal_half_width
from eigengp.data.array_source import by_blocks
from eigengp.data.dask_source import is_dask
from eigengp.data.formats import is_table
from eigengp.data.out_of_core import from_files, lazily, predictions_to_file
from eigengp.data.validation import (
    MERGE_UP_TO,
    check_same_place,
    checked_inputs,
    follows_dispatch,
    on_device,
)
from eigengp.data.views import Scaling
from eigengp.estimators.describing import SelfDescribing
from eigengp.fitting.training import Training
from eigengp.gp.posterior import Predictive
from eigengp.gp.precision import PRECISIONS
from eigengp.kernels import Kernel

LARGE_DATA_CONSTRAINTS: dict[str, list[Any]] = {
    "precision": [StrOptions(set(PRECISIONS))],
    "memory_limit": [Interval(Integral, 0, None, closed="left"), str, None],
    "device": [str, None],
    "checkpoint": [str, Path, None],
}
"""What methods for large data add to the parameters that all share."""


# scikit-learn ships no types, so its classes and decorators are Any to mypy.
class GPRegressor(SelfDescribing, RegressorMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """The frame of a method, which adds `_learn`, and `_keep` if it learns more than most.

    Parameters that all methods share are documented in `EigenGPRegressor`.
    """

    _posterior: Predictive
    _scaling: Scaling
    _place: Hashable
    """The library and device of the inputs that were learned from."""
    _block_rows: ClassVar[int | None] = None
    """Rows in a block while learning; None takes what suits the number of features."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kernel": [Kernel, StrOptions({"exact"}), None],
        "noise_variance": [Interval(Real, 0, None, closed="neither"), None],
        "n_restarts": [Interval(Integral, 1, None, closed="left"), None],
        "max_iter": [Interval(Integral, 0, None, closed="left"), None],
        "tol": [Interval(Real, 0, None, closed="left")],
        "standardize": ["boolean", StrOptions({"robust"})],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    @property
    def _draws_jointly(self) -> bool:
        """Whether a drawn function must be evaluated at all inputs at once."""
        return False

    @property
    def _learns_on_host(self) -> bool:
        """Whether the method learns in NumPy alone, wherever the data come from."""
        return False

    @property
    def _predicts_on_host(self) -> bool:
        """Whether it predicts so."""
        return False

    # scikit-learn ships no types.
    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the model; a fit that fails leaves an earlier one as it was.

        Parameters
        ----------
        X : array of shape (N, D), path, glob pattern or PyArrow dataset
            Inputs. Files (Parquet, Arrow, CSV) are read chunk by chunk and may
            be larger than memory; all columns but `y` and `sample_weight` are
            inputs.
        y : array of shape (N,), or str
            Targets, or the name of their column in the files.
        sample_weight : array of shape (N,), str or None
            How many times each row counts, or the name of that column.

        Returns
        -------
        self : object
            The fitted regressor.
        """
        before = dict(vars(self))
        try:
            with Training.of(self, X, y, sample_weight) as training:
                self._keep(self._learn(training), training)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        self.history_ = training.monitor.history
        self.n_iter_ = training.n_iter
        for note in training.notes:
            warnings.warn(note, UserWarning, stacklevel=3)
        return self

    @abstractmethod
    def _learn(self, training: Training) -> Any:
        """Return the learned model, in standardised units."""

    def _keep(self, model: Any, training: Training, outcome: Any = None) -> None:
        """Store what was learned in the units of the data, conditioned on all rows.

        `outcome` is that of a pass over them; None makes one.
        """
        outcome = outcome or model.forward(training.source)
        self.__dict__.pop("conformity_", None)
        scaling, unit = training.scaling, training.unit
        self._scaling, self._posterior = scaling, self._condition(model, outcome, training)
        self._place = place(training.given)
        self.kernel_ = model.kernel.rescaled(scaling.input_scale, unit, scaling.input_centre)
        self.noise_variance_ = model.noise_variance * unit
        self.target_mean_ = scaling.target_centre
        self.log_marginal_likelihood_: float = training.offset - outcome.value

    def _condition(self, model: Any, outcome: Any, training: Training) -> Predictive:
        """Return the posterior after a pass over all rows."""
        posterior: Predictive = model.posterior(outcome)
        return posterior

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.array_api_support = True
        return tags

    def _inputs(self, X: ArrayLike, method: str = "predict") -> AnyArray:
        check_is_fitted(self)
        checked = checked_inputs(self, X)
        check_same_place(self, checked, self._place, method)
        return checked

    def _moved(self, X: AnyArray) -> AnyArray:
        """Return inputs where they are computed with: in NumPy, as they are, or on `device`."""
        if self._predicts_on_host:
            return X if is_numpy(X) else on_host(X)
        few = X.shape[0] <= MERGE_UP_TO
        return X if few else on_device(X, getattr(self, "device", None))

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
        X : array of shape (n, D), path, glob pattern or PyArrow dataset
            Where to predict. Files are read chunk by chunk; `predict_to_file` writes so too.
        return_std : bool
            Whether to return standard deviations too, noise included.
        return_cov : bool
            Whether to return the joint covariance too, noise included.

        Returns
        -------
        mean : array of shape (n,)
            The predictive mean; alone it costs O(M) for each row (O(N) for the full GP and
            Nyström; the search for neighbours, and O(m²M) for m of them, with the local residual).
        std : array of shape (n,)
            Only if `return_std`.
        cov : array of shape (n, n)
            Only if `return_cov`.
        """
        if return_std and return_cov:
            raise ValueError("Ask for return_std or for return_cov, not for both.")
        if is_table(X) or is_dask(X):
            check_is_fitted(self)
            if return_cov:
                raise ValueError("The joint covariance is to be had for arrays alone.")
            elsewhere = from_files if is_table(X) else lazily
            return elsewhere(self, X, return_std)
        X = self._inputs(X)
        if return_std:
            return self._mean_and_std(X)
        mean = self._mean_alone(X)
        if return_cov:
            unit = self._scaling.target_scale**2
            return mean, unit * self._whole(self._joint_covariance, X)
        return mean

    def _mean_alone(self, X: AnyArray) -> AnyArray:
        return self._mean(self._by_blocks(self._posterior.mean, X))

    def _mean_and_std(self, X: AnyArray) -> tuple[AnyArray, AnyArray]:
        standardised, variance = self._mean_and_variance(X)
        std = self._scaling.target_scale * namespace(variance).sqrt(variance)
        return self._mean(standardised), std

    def _joint_covariance(self, inputs: AnyArray) -> AnyArray:
        return self._posterior.joint_covariance(inputs)

    def _mean_and_variance(self, X: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Return mean and variance in standardised units, each of shape (n,)."""
        return self._pairs(self._posterior.mean_and_variance, X)

    def _pairs(
        self, function: Callable[[AnyArray], tuple[AnyArray, AnyArray]], X: AnyArray
    ) -> tuple[AnyArray, AnyArray]:
        """Return two values for each row, computed block by block from standardised inputs."""

        def stacked(inputs: AnyArray) -> AnyArray:
            return namespace(inputs).stack(function(inputs), axis=1)

        both = self._by_blocks(stacked, X)
        return both[:, 0], both[:, 1]

    def _by_blocks(self, function: Callable[[AnyArray], AnyArray], X: AnyArray) -> AnyArray:
        """Return a function of standardised inputs for all rows."""
        inputs, n_columns = self._scaling.inputs, self._posterior.n_columns
        with reused_buffers():
            values = by_blocks(lambda rows: function(inputs(rows)), self._moved(X), n_columns)
        return beside(values, X)

    def _whole(self, function: Callable[[AnyArray], AnyArray], X: AnyArray) -> AnyArray:
        """Return a function of all standardised inputs at once."""
        moved = cast(self._moved(X), "float64")
        return beside(function(self._scaling.inputs(moved)), X)

    def _mean(self, standardised: AnyArray) -> AnyArray:
        return self._scaling.target_centre + self._scaling.target_scale * standardised

    def predict_to_file(self, X: Any, path: str | Path, coverage: float | None = None) -> int:
        """Predict the rows of files, and write mean and standard deviation to another.

        Parameters
        ----------
        X : path, glob pattern or PyArrow dataset
            Where to predict; columns are found by their names.
        path : path
            What to write: a Parquet, Arrow or CSV file, by its ending. It appears
            when it is whole.
        coverage : float or None
            Where given, the columns `lower` and `upper` hold the ends of the central
            interval with this probability.

        Returns
        -------
        n_rows : int
            How many rows were written.
        """
        check_is_fitted(self)
        half = None if coverage is None else self._half_width(coverage)
        return predictions_to_file(self, X, path, half)

    def predict_interval(self, X: ArrayLike, coverage: float = 0.9) -> tuple[Array, Array]:
        """Return the central interval that holds a new observation with this probability.

        After `calibrate` it does so whatever the distribution of the data; before, as far as the
        model is right.

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
        half = self._half_width(coverage)
        mean, std = self.predict(X, return_std=True)
        return mean - half * std, mean + half * std

    def calibrate(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Make intervals hold their coverage, by rows that `fit` has not seen.

        Split conformal prediction: intervals keep their shape and get the
        width that those rows called for, with a guarantee for finite samples.
        Means and standard deviations stay as they are; `fit` and
        `partial_fit` forget it.

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
        mean, std = self.predict(X, return_std=True)
        targets = on_host(y) if follows_dispatch(y) else y
        self.conformity_ = conformity(targets, on_host(mean), on_host(std))
        return self

    def _half_width(self, coverage: float) -> float:
        """Return half the width of an interval, in standard deviations."""
        half = normal_half_width(coverage)
        scores = getattr(self, "conformity_", None)
        if scores is not None:
            return conformal_factor(scores, coverage)
        left_out = getattr(self, "leave_one_out_errors_", None)
        return half if left_out is None else known_factor(left_out, coverage, half)

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
        X = self._inputs(X, "predict_gradient")
        scaling, posterior = self._scaling, self._posterior
        unit = scaling.gradient_unit(X)
        mean = unit * self._by_blocks(posterior.mean_gradient, X)
        if not return_variance:
            return mean
        variance = self._by_blocks(posterior.variance_gradient, X)
        return mean, scaling.target_scale * unit * variance

    def predict_average(self, X: ArrayLike) -> tuple[float, float]:
        """Predict the average of the latent function over rows, with its own error bar.

        Errors of neighbouring rows go together, so the error bar of an average is neither that
        of a row nor √n times smaller; it follows from the joint posterior of all of them. The
        noise, which averages out, is not part of it.

        Parameters
        ----------
        X : array of shape (n, D)
            The rows; each counts as often as it stands there.

        Returns
        -------
        mean, std : floats
            The average and its standard deviation, at O(n·M), or O(n²) for the methods whose
            `sample_y` draws all inputs together.
        """
        rows = cast(on_host(self._inputs(X, "predict_average")), "float64")
        distinct, counts = np.unique(rows, axis=0, return_counts=True)
        mean, variance = self._posterior.average(
            self._scaling.inputs(distinct), counts / rows.shape[0]
        )
        return self._mean(mean), self._scaling.target_scale * float(np.sqrt(variance))

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Draw whole latent functions from the posterior and evaluate them.

        For EigenGP, SSGP and RVM the same `random_state` is the same function
        wherever it is evaluated, at O(M) for each point. The other methods
        draw the values at all n inputs together, at O(n³). Observation noise
        and the residual of EigenGP+ are not part of the function. With
        `residual="local"` what neighbours leave open is drawn for each input
        on its own, so draws at inputs close together are rougher than they
        should be.

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
        X = self._inputs(X, "sample_y")
        values = self._posterior.functions(n_samples, check_random_state(random_state))
        if self._draws_jointly:
            return self._mean(self._whole(values, X))
        return self._mean(self._by_blocks(values, X))

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file, which `eigengp.load` reads.

        Parameters
        ----------
        path : path
            The file, which ends in `.eigengp`. It appears when it is whole; one
            of the same name is replaced. See `eigengp.io` for more.
        """
        from eigengp import io

        io.save(self, path)

    def log_marginal_likelihood(self) -> float:
        """Return the log evidence of the training data under the learned model."""
        check_is_fitted(self)
        return self.log_marginal_likelihood_
