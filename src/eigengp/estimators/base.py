"""What all estimators share, the story of a fit, and what regressors share: predictions."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, dataclass_transform, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin, _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from eigengp._html import with_summary
from eigengp._typing import Array, Standardize
from eigengp.backend.namespace import AnyArray, beside, cast, move_to_device, namespace, on_host
from eigengp.backend.threads import use_one_blas_thread
from eigengp.conformal import conformal_factor, conformity, known_factor, normal_half_width
from eigengp.data.array_source import map_blocks
from eigengp.data.dask_source import is_dask
from eigengp.data.encode import TableEncoder
from eigengp.data.frames import ENCODED_BY, Frame, count_outputs, open_frame, read_targets
from eigengp.data.open import (
    MERGE_UP_TO,
    check_inputs,
    check_same_place,
    is_out_of_core,
    open_dataset,
)
from eigengp.data.out_of_core import predict_out_of_core, write_predictions
from eigengp.data.standardize import Scaling
from eigengp.estimators._docs import inherit_parameters
from eigengp.estimators.effects import correlate, measure_effects
from eigengp.estimators.gaps import add_gaps, has_gaps, learn_with_gaps
from eigengp.estimators.transformed import (
    average,
    compute_log_density,
    differentiate,
    map_covariance,
    map_known,
    predict_values,
)
from eigengp.fitting.run import FitResult, FitWarning, Run, begin_run
from eigengp.fitting.settings import LBFGS, Settings, Stochastic
from eigengp.fitting.transform import begin_transformed_run
from eigengp.gp.likelihoods import Gaussian
from eigengp.gp.mean import MEANS
from eigengp.gp.posterior import Posterior, Predictive
from eigengp.gp.precision import PRECISIONS
from eigengp.gp.sensitivity import sensitivities
from eigengp.gp.target_maps import TargetMap, compute_moments
from eigengp.gp.variational import LatentPosterior, TargetPosterior
from eigengp.gp.vecchia_posterior import VecchiaPosterior
from eigengp.kernels import KERNELS, Kernel

KERNEL_NAMES = StrOptions(set(KERNELS))
POINTS = StrOptions({"auto", "kmeans", "random", "greedy"})


# scikit-learn ships no types, so its classes and decorators are Any to mypy.
@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
@dataclass(eq=False, repr=False, kw_only=True)
class GPEstimator(BaseEstimator, ABC):  # type: ignore[misc]
    """Base class of all estimators; subclasses add `_learn`, predictions and their own parameters.

    Subclasses are dataclasses: their fields are the parameters of the constructor, by keyword. What
    a class does not say of a parameter, its constraints or its description, comes from its bases.

    Parameters
    ----------
    kernel : Kernel or str
        The covariance function of the GP prior. A `Kernel` object is in the units of the data; its
        hyperparameters are initial values, and a single lengthscale becomes one for each input. A
        name such as "matern52" selects that kernel with default initial hyperparameters.
    likelihood : {"gaussian"} or Gaussian
        The noise model. `Gaussian(variance=…)` sets the initial noise variance, in the units of the
        data; that of "gaussian" is a tenth of the variance of the targets.
    mean : {"constant", "zero", "linear"} or regressor
        The mean function of the GP prior. "constant" is the mean of the targets, "zero" is zero,
        and "linear" is a linear function of the inputs, fitted by least squares. A scikit-learn
        regressor is cross-fitted in five folds: the GP learns from its errors on rows to which it
        was not fitted, and predictions add the regressor fitted to all rows. It needs all rows in
        NumPy arrays, and the model cannot be saved or exported.
    inducing_points : {"auto", "kmeans", "random", "greedy"} or array of shape (M, D)
        The initial inducing points. A name is the method that places them; "auto" is "kmeans". An
        array, in the units of the data, holds the points themselves, which all restarts then use.
    optimizer : {"auto"} or LBFGS
        How the log marginal likelihood is maximised: `LBFGS(n_restarts=…, max_iter=…, tol=…)`.
    standardize : bool or "robust"
        How inputs are scaled before learning. True centres each input at its mean and divides it by
        its standard deviation. False divides all inputs by one common scale. "robust" uses medians
        and interquartile ranges, and compresses heavy tails. Targets are always scaled to unit
        variance.
    precision : {"auto", "double", "mixed", "single"}
        "auto" computes in float64 on the CPU; on a GPU, also in float32 where that is faster and
        its rounding does not show. "double" computes in float64. "mixed" computes gradients and
        predictions in float32 where that is accurate enough. "single" also computes the matrix
        products within each block of rows in float32 where that is accurate enough. Sums over
        blocks and factorisations are always in float64. On a GPU float32 is used where it is also
        faster.
    categorical_features : {"from_dtype"}, array-like, TableEncoder or None
        Which columns of X are categories. "from_dtype" encodes frames of pandas, Polars and
        PyArrow that hold more than numbers, as `TableEncoder` does: text and categories get a
        kernel with one correlation between all levels of a column, dates become trend and seasons,
        and missing values are marked and filled. The fit is repeated, up to twice, where rows with
        missing values must count less. Names, indices or a mask add columns, also of arrays. A
        `TableEncoder` object sets how all columns are encoded. None takes numbers only.
    device : str or None
        Where NumPy arrays of more than 5,000 rows are computed: None is the CPU, "cuda" a GPU
        (through PyTorch), and "auto" a GPU if there is one and the model is faster there; see
        `selection_`.
    random_state : int, RandomState or None
        Seed of the restarts and of all other random choices.
    verbose : bool, int or None
        Whether to show a progress bar with the log marginal likelihood. None does on a terminal
        and in a notebook, once the fit has taken two seconds. 2 writes a line every five seconds
        where there is neither.

    Attributes
    ----------
    kernel_ : Kernel
        The learned kernel, in the units of the data.
    noise_variance_ : float
        The learned noise variance, in the units of the data.
    log_marginal_likelihood_ : float
        The log marginal likelihood of the training data.
    selection_ : Selection
        The decisions of the fit, one line each: what was chosen, among which candidates, and by
        which score.
    history_ : list of dict
        Stage, iteration, log marginal likelihood and seconds after each iteration.
    n_iter_ : int
        Iterations of all stages, without those of the restarts.
    target_mean_ : float
        The constant that is subtracted from the targets: their mean with `mean="constant"`, and 0
        with other mean functions.
    target_map_ : object
        The map of the targets, with `values(y)`, its inverse `targets(t)`, and `log_slope(y)`; only
        if they were transformed. `kernel_`, `noise_variance_` and `target_mean_` then refer to
        `values(y)`.
    encoder_ : TableEncoder
        The encoder of the columns; only if `fit` was given a frame that is not of numbers alone.
        `kernel_` and `inducing_points_` then refer to its features.
    n_features_in_ : int
        The number of inputs; of columns, if they were encoded.
    feature_names_in_ : array of shape (D,)
        The names of the inputs, where `fit` was given names.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own_init = "__init__" in vars(cls)
        dataclass(eq=False, repr=False, kw_only=True, init=not own_init)(cls)
        inherit_parameters(cls, [each for each in cls.__mro__ if issubclass(each, GPEstimator)])

    kernel: Kernel | str = "squared_exponential"
    standardize: Standardize = True
    categorical_features: Any = "from_dtype"
    random_state: int | np.random.RandomState | None = None
    verbose: bool | int | None = None

    kernel_: Kernel = field(init=False)
    _posterior: Predictive = field(init=False)
    _scaling: Scaling = field(init=False)
    # The library and device of the inputs that were learned from.
    _place: Hashable = field(init=False)
    # Rows in a block while learning; None adapts to the number of features.
    _block_rows: ClassVar[int | None] = None
    # Whether the method needs all rows at once, in NumPy, to learn.
    _learns_in_memory: ClassVar[bool] = False
    # Whether rows may have no target, because inducing points can be placed among them.
    _takes_unlabelled: ClassVar[bool] = False

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "kernel": [Kernel, KERNEL_NAMES],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "inducing_points": [POINTS, "array-like"],
        "likelihood": [Gaussian, StrOptions({"gaussian"})],
        "mean": [StrOptions({"constant", "zero", *MEANS}), HasMethods(["fit", "get_params"])],
        "optimizer": [LBFGS, StrOptions({"auto"})],
        "standardize": ["boolean", StrOptions({"robust"})],
        "categorical_features": [StrOptions({"from_dtype"}), "array-like", TableEncoder, None],
        "precision": [StrOptions(set(PRECISIONS))],
        "max_time": [Interval(Real, 0, None, closed="neither"), None],
        "device": [str, None],
        "random_state": ["random_state"],
        "verbose": ["verbose", None],
    }

    # How rows carry the residual (see `EigenGP.power`); None if they do not.
    _power: ClassVar[float | None] = None
    # Whether eigenfunctions have weights that are learned (EigenGP).
    _has_weights: ClassVar[bool] = False

    @property
    def _keeps_rows(self) -> bool:
        """Whether predictions use training rows, in NumPy wherever the inputs are."""
        return not isinstance(getattr(self._posterior, "own", self._posterior), Posterior)

    # scikit-learn ships no types.
    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model; a fit that fails leaves an earlier one unchanged.

        Parameters
        ----------
        X : array of shape (N, D), frame, path, glob pattern or PyArrow dataset
            Inputs. Frames of pandas, Polars and PyArrow may hold text, categories, flags, dates
            and missing values; see `categorical_features`. Files (Parquet, Arrow, CSV) are read in
            chunks and may be larger than memory; all columns but `y` and `sample_weight` are
            inputs.
        y : array of shape (N,), or str
            Targets, or the name of their column in the frame or files. `EigenGPRegressor` also
            takes several outputs, of shape (N, P), with NaN where an output is missing.
        sample_weight : array of shape (N,), str or None
            How many times each row counts, or the name of that column.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        frame, chosen = Frame(X, y, sample_weight), self.categorical_features
        plain = isinstance(X, np.ndarray) and getattr(y, "dtype", None) == np.float64
        if not (plain and isinstance(chosen, str | None) and ENCODED_BY.get() is False):
            frame = open_frame(X, y, sample_weight, chosen)
            frame = frame._replace(y=read_targets(frame.X, frame.y))
        find = self._fit_outputs if count_outputs(frame.y) else self._find_fit
        return self._adopt(find(frame))

    def _find_fit(
        self, frame: Frame, adapt: Callable[[Settings], Settings] = lambda settings: settings
    ) -> FitResult:
        """Read the parameters, which `adapt` may change, open the rows, and learn from them."""
        settings = adapt(Settings.from_estimator(self))
        with open_dataset(frame, settings.reading) as dataset:
            if not (settings.has_weights and dataset.encoder and has_gaps(dataset, settings)):
                begin = (
                    begin_transformed_run
                    if dataset.may_transform(settings.transform)
                    else begin_run
                )
                with begin(dataset, settings) as run:
                    return self._learn(run)
        return learn_with_gaps(self, frame, settings)

    def _fit_outputs(self, frame: Frame) -> FitResult:
        """Fit a matrix of targets, which most estimators refuse."""
        return self._find_fit(frame)

    @abstractmethod
    def _learn(self, run: Run) -> FitResult:
        """Return what a fit learns from its rows and settings."""

    def _adopt(self, result: FitResult) -> Self:
        """Store the result of a fit in place of an earlier one."""
        for note in result.notes:  # Before anything is stored: a warning may be an error.
            warnings.warn(note, FitWarning, stacklevel=4)
        for name in [name for name in vars(self) if name.endswith("_") or name == "_spectrum"]:
            del self.__dict__[name]
        self.__dict__.update(result.attributes)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.array_api_support = True
        tags.target_tags.multi_output = self._takes_outputs
        return tags

    @property
    def _takes_outputs(self) -> bool:
        """Whether the parameters allow several outputs."""
        own = vars(self)
        gaussian = isinstance(own.get("likelihood"), str) and own["likelihood"] in (
            "auto",
            "gaussian",
        )
        by_default = own.get("residual") == "auto"
        return by_default and gaussian and not isinstance(own["optimizer"], Stochastic)

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether a fit has ended well."""
        return hasattr(self, "_posterior")

    def _inputs(self, X: ArrayLike, method: str = "predict") -> AnyArray:
        check_is_fitted(self)
        if isinstance(X, np.ndarray) and self._place == "numpy" and not hasattr(self, "encoder_"):
            return validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        checked = check_inputs(self, X)
        check_same_place(self, checked, self._place, method)
        return checked

    def _moved(self, X: AnyArray, predicts: bool = False) -> AnyArray:
        """Return inputs where they are computed with: in NumPy, where they are, or on `device`.

        With neighbours and other likelihoods than Gaussian, mean and variance alone are computed
        outside of NumPy: `predicts`.
        """
        few = X.shape[0] <= MERGE_UP_TO
        moved = X if few else move_to_device(X, getattr(self, "device", None))
        if not self._keeps_rows:
            return moved
        there = isinstance(self._posterior, VecchiaPosterior | TargetPosterior)
        if there and predicts and not few and (moved is not X or getattr(X, "is_cuda", False)):
            return moved
        return X if isinstance(X, np.ndarray) else on_host(X)

    def _by_blocks(
        self, function: Callable[[AnyArray], Any], X: AnyArray, predicts: bool = False
    ) -> Any:
        """Return a function of standardised inputs for all rows: an array, or a tuple of them."""
        moved, transform = self._moved(X, predicts), self._scaling.transform_inputs
        values = map_blocks(
            lambda rows: function(transform(rows)), moved, self._posterior.n_columns
        )
        if isinstance(values, tuple):
            return tuple(beside(each, X) for each in values)
        return beside(values, X)

    def _whole(self, function: Callable[[AnyArray], AnyArray], X: AnyArray) -> AnyArray:
        """Return a function of all standardised inputs at once."""
        moved = cast(self._moved(X), "float64")
        with use_one_blas_thread():
            return beside(function(self._scaling.transform_inputs(moved)), X)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file, which `eigengp.load` reads.

        Parameters
        ----------
        path : path
            The file, which ends in `.eigengp`. It is written atomically, and replaces a file of
            the same name. See `eigengp.io.save` for more.
        """
        from eigengp import io

        io.save(self, path)

    def input_relevance(self) -> Array:
        """Return the fraction of the prior variance that is due to each input, shape (D,).

        `1 − E k(x, x′)/k(x, x)`, where `x′` is `x` with input d alone drawn again from a normal
        distribution with the spread `s_d` of the data. It is the fraction of the variance that
        functions of the learned prior are expected to owe to that input, alone or together with
        others (Sobol's total index). It is 0 for an input that is constant, or whose lengthscale is
        far longer than its spread, and approaches 1 for short lengthscales; for a squared
        exponential it is `1 − 1/√(1 + 2s_d²/ℓ_d²)`. Fractions overlap and do not add up to one.

        It measures how fast the function may vary along an input, not by how much it does: a strong
        but nearly linear effect has a long lengthscale and a low relevance. `input_effects`
        measures by how much. All inputs of an `RVMRegressor` share one lengthscale, so there it is
        not informative.

        Returns
        -------
        relevance : array of shape (D,)
            Each between 0 and 1, also for sums and products of kernels; for SSGP computed from its
            waves.
        """
        check_is_fitted(self)
        spread = self._scaling.input_spread
        return sensitivities(self._prior_correlation, spread, self._input_groups)

    @property
    def _input_groups(self) -> list[list[int]]:
        """The features of each input: several for a column that was encoded, none if ignored."""
        if not hasattr(self, "encoder_"):
            return [[d] for d in range(self.n_features_in_)]
        groups = self.encoder_.feature_groups_
        return [groups.get(str(name), []) for name in self.encoder_.feature_names_in_]

    def _prior_correlation(self, apart: Array) -> Array:
        """Return the correlation of the prior at differences in the units of the data, (n,)."""
        return correlate(self, apart)

    def _repr_html_inner(self) -> str:
        diagram: str = super()._repr_html_inner()
        return with_summary(diagram, self) if self.__sklearn_is_fitted__() else diagram

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle and self.__sklearn_is_fitted__():
            bundle["text/html"] = with_summary(bundle["text/html"], self)
        return bundle

    def log_marginal_likelihood(self) -> float:
        """Return the log marginal likelihood of the training data under the learned model."""
        check_is_fitted(self)
        return self.log_marginal_likelihood_


# scikit-learn ships no types.
class GPRegressor(RegressorMixin, GPEstimator):  # type: ignore[misc]
    """Base class of all regressors: an estimator with all predictions of targets."""

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
            Where to predict. Files are read in chunks; `predict_to_file` also writes in chunks.
        return_std : bool
            Whether to return standard deviations too, noise included.
        return_cov : bool
            Whether to return the joint covariance too, noise included. Cannot be combined with
            `return_std`.

        Returns
        -------
        mean : array of shape (n,)
            The predictive mean. Without standard deviations it costs O(M) for each row; O(N) for
            the exact GP, Nyström, and `residual="neighbors"` with up to 30,000 rows. With
            neighbours and more rows, it takes a search and O(m²M) for m neighbours.
        std : array of shape (n,)
            Only if `return_std`.
        cov : array of shape (n, n)
            Only if `return_cov`.
        """
        if return_std and return_cov:
            raise ValueError("Ask for return_std or for return_cov, not for both.")
        if not isinstance(X, np.ndarray) and (is_dask(X) or is_out_of_core(X)):
            check_is_fitted(self)
            if return_cov:
                raise ValueError(
                    "return_cov needs arrays; it is not available for files and Dask collections."
                )
            return predict_out_of_core(self, X, "_mean_and_std" if return_std else "_mean_alone")
        X = self._inputs(X)
        if return_std:
            return self._mean_and_std(X)
        mean = self._mean_alone(X)
        if return_cov:
            joint = add_gaps(self, X, self._whole(self._joint_covariance, X))
            cov = self._scaling.target_scale**2 * joint
            return mean, cov if self._target_map is None else map_covariance(self, X, cov)
        return mean

    @property
    def _target_map(self) -> TargetMap | None:
        """The map of the targets; None is the identity, and values are targets."""
        return getattr(self, "target_map_", None)

    def _predict_values(self, X: AnyArray) -> AnyArray:
        """Return the mean of the values of targets, shape (n,)."""
        return self._scaling.restore_targets(X, self._by_blocks(self._posterior.mean, X, True))

    def _values_and_std(self, X: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Return mean and standard deviation of the values of targets, each of shape (n,)."""
        standardised, variance = self._mean_and_variance(X)
        if hasattr(self, "encoder_"):
            variance = add_gaps(self, X, variance)
        std = self._scaling.target_scale * namespace(variance).sqrt(variance)
        return self._scaling.restore_targets(X, standardised), std

    def _mean_alone(self, X: AnyArray) -> AnyArray:
        return self._predict_values(X) if self._target_map is None else self._mean_and_std(X)[0]

    def _mean_and_std(self, X: AnyArray) -> tuple[AnyArray, AnyArray]:
        if self._target_map is None:
            return self._values_and_std(X)
        return self._find_moments(*self._values_and_std(X))

    def _find_moments(self, values: AnyArray, std: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Return mean and standard deviation of targets with normal values."""
        own = self._target_map
        return (values, std) if own is None else compute_moments(own, values, std)

    def _joint_covariance(self, inputs: AnyArray) -> AnyArray:
        return self._posterior.joint_covariance(inputs)

    def _mean_and_variance(self, X: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Return mean and variance in standardised units, each of shape (n,)."""
        return self._by_blocks(self._posterior.mean_and_variance, X, True)

    def predict_to_file(self, X: Any, path: str | Path, coverage: float | None = None) -> int:
        """Predict the rows of files, and write mean and standard deviation to another.

        Parameters
        ----------
        X : path, glob pattern or PyArrow dataset
            Where to predict; columns are found by their names.
        path : path
            File to write: Parquet, Arrow or CSV, chosen by its suffix. Written atomically.
        coverage : float or None
            If given, the columns `lower` and `upper` hold the ends of `predict_interval` with this
            coverage.

        Returns
        -------
        n_rows : int
            How many rows were written.
        """
        check_is_fitted(self)
        return write_predictions(self, X, path, coverage)

    def predict_interval(self, X: ArrayLike, coverage: float = 0.9) -> tuple[Array, Array]:
        """Return central prediction intervals with the given coverage.

        Without `calibrate`, the interval is `mean ± c·std`. The factor c is a normal quantile or,
        if the fit considered heteroscedastic noise, that quantile of the leave-one-out errors in
        units of their standard deviations (`leave_one_out_errors_`). With transformed targets, it
        is that interval of the transformed target, mapped back. In all cases the coverage is
        correct only if the model is. After `calibrate` the coverage is at least the given one for
        any distribution, on average over new rows that are exchangeable with the calibration rows.

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
        if isinstance(self._posterior, LatentPosterior) and not hasattr(self, "conformity_"):
            self._half_width(coverage)  # Checks it.
            tail = 0.5 * (1.0 - coverage)
            return self.predict_quantile(X, tail), self.predict_quantile(X, 1.0 - tail)
        return self._find_ends(*predict_values(self, X, "predict_interval"), coverage)

    def _find_ends(self, values: AnyArray, std: AnyArray, coverage: float) -> tuple[Any, Any]:
        """Return the ends of the intervals of targets with normal values."""
        half, own = self._half_width(coverage), self._target_map
        ends = values - half * std, values + half * std
        return ends if own is None else (own.targets(ends[0]), own.targets(ends[1]))

    def predict_quantile(self, X: ArrayLike, level: float) -> Array:
        """Return a quantile of the targets, noise included.

        Parameters
        ----------
        X : array of shape (n, D)
            Where to predict.
        level : float
            The probability of a target at or below the quantile, between 0 and 1.

        Returns
        -------
        quantile : array of shape (n,)
            That of the predictive distribution of the likelihood. For Gaussian noise it is an end
            of the interval of `predict_interval`.
        """
        check_is_fitted(self)
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must be between 0 and 1, got {level!r}.")
        posterior = self._posterior
        if isinstance(posterior, LatentPosterior):
            X = self._inputs(X, "predict_quantile")
            values = self._by_blocks(lambda rows: posterior.quantile(rows, level), X)
            return self._scaling.restore_targets(X, values)
        own = self._target_map
        if level == 0.5 and own is not None:
            return own.targets(predict_values(self, X, "predict_quantile")[0])
        if level == 0.5:
            return self.predict(X)
        return self.predict_interval(X, abs(2.0 * level - 1.0))[int(level > 0.5)]

    def calibrate(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Calibrate prediction intervals on held-out rows, by split conformal prediction.

        All intervals are rescaled by one factor, estimated from these rows. If they are
        exchangeable with new rows and were not used by `fit`, the coverage on average over new rows
        is at least the coverage c that `predict_interval` is asked for. It needs at least c/(1 − c)
        calibration rows: 9 for 0.9, 99 for 0.99. `predict` does not change. `fit` and `partial_fit`
        discard the calibration.

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
        mean, std = map(on_host, predict_values(self, X, "calibrate"))
        if mean.ndim == 2:
            raise ValueError("calibrate is for one output; fit and calibrate each output alone.")
        self.conformity_ = conformity(map_known(self, y), mean, std)
        return self

    def log_density(self, X: ArrayLike, y: ArrayLike) -> Array:
        """Return the log predictive density of targets, with Gaussian noise included.

        Parameters
        ----------
        X : array of shape (n, D)
            Inputs.
        y : array of shape (n,)
            Targets.

        Returns
        -------
        values : array of shape (n,)
            One for each row; −∞ where no target can be. Without a transform, their negative mean is
            `metrics.mnlp` of the predictions.
        """
        return compute_log_density(self, X, y)

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
        if self._target_map is not None:
            both = differentiate(self, X)
            return both if return_variance else both[0]
        scaling, posterior = self._scaling, self._posterior
        mean = scaling.restore_gradient(X, self._by_blocks(posterior.mean_gradient, X))
        if scaling.mean is not None:
            mean = mean + scaling.mean.gradient(X)
        if not return_variance:
            return mean
        variance = scaling.restore_gradient(X, self._by_blocks(posterior.variance_gradient, X))
        return mean, scaling.target_scale * variance

    def predict_average(
        self, X: ArrayLike, weights: ArrayLike | None = None
    ) -> tuple[float, float]:
        """Predict the average of the latent function over rows, with its own error bar.

        Errors of neighbouring rows are correlated, so the error bar of an average is neither that
        of a row nor √n times smaller; it follows from the joint posterior of all rows. The noise,
        which averages out, is not included.

        Parameters
        ----------
        X : array of shape (n, D)
            The rows; repeated rows count repeatedly.
        weights : array of shape (n,) or None
            The weights of the rows, of any sign, such as 1 and −1 for the difference of two rows;
            None is 1/n for each.

        Returns
        -------
        mean, std : floats
            The weighted sum and its standard deviation, in O(n·M) time, or O(n²) for the methods
            whose `sample_y` draws the values at all inputs jointly.
        """
        return average(self, X, weights)

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Draw latent functions from the posterior and evaluate them.

        Draws do not include observation noise and ignore heteroscedastic noise: they come from the
        model with one noise variance. How they are drawn depends on the method:

        - `EigenGPRegressor` with `residual=None` or "diagonal", SSGP and RVM draw whole functions.
          One `random_state` gives the same functions in every call, whatever X is, and each value
          costs O(M). With "diagonal" they include the additional function of EigenGP+: equal inputs
          share its value, and distinct inputs have independent values.
        - The exact GP (also `residual="exact"`), FITC, VFE, power EP and Nyström draw the values
          at the n inputs jointly, in O(n³) time. Calls with different inputs give different
          functions. If predictions are averaged over hyperparameters, each function uses one draw
          of them.
        - With a likelihood other than Gaussian noise, draws are observations, such as counts, and
          the latent function is drawn jointly at the n inputs.
        - With `residual="neighbors"` calls with different inputs give different functions too. The
          variance that remains given the neighbours is drawn independently at each input, so that
          draws at inputs close together are too rough.

        Parameters
        ----------
        X : array of shape (n, D)
            Where to evaluate.
        n_samples : int
            How many functions.
        random_state : int, RandomState or None
            Seed of the draws; the default gives the same draws in every call.

        Returns
        -------
        values : array of shape (n, n_samples)
            One column for each function; of shape (n, P, n_samples) for P outputs.
        """
        X = self._inputs(X, "sample_y")
        values = self._posterior.functions(n_samples, check_random_state(random_state))
        residual = getattr(getattr(self._posterior, "own", self._posterior), "kernel", None)
        if self._keeps_rows or residual is not None:  # Values at all inputs depend on each other.
            drawn = self._scaling.restore_targets(X, self._whole(values, X))
            drawn = drawn if drawn.ndim == 2 else np.swapaxes(drawn, 1, 2)
        else:
            drawn = self._scaling.restore_targets(X, self._by_blocks(values, X))
        return drawn if self._target_map is None else self._target_map.targets(drawn)

    def input_effects(self) -> Array:
        """Return the fraction of the variance of predictions due to each input, shape (D,).

        `½ E(μ(x) − μ(x′))² / Var μ(x)` of the predictive mean μ, where `x′` is `x` with input d
        alone replaced by that of another point: Sobol's total index. It is 0 for an input that the
        prediction does not depend on, and near 1 for one that determines it. An interaction counts
        in full for each of its inputs, so the values need not add up to one. No data are needed:
        the points are at most 100 inducing points, relevance vectors, or training rows if the model
        keeps them. If it has fewer than 20 of these, they are random points over the range of the
        data.

        Returns
        -------
        effects : array of shape (D,)
            Each between 0 and 1, in the order of the inputs; the mean over several outputs.

        Examples
        --------
        >>> import numpy as np
        >>> from eigengp import ExactGPRegressor
        >>> X = np.random.default_rng(0).normal(size=(60, 2))
        >>> model = ExactGPRegressor(random_state=0).fit(X, 5 * X[:, 1])
        >>> model.input_effects().round(1)
        array([0., 1.])
        """
        check_is_fitted(self)
        return measure_effects(self)
