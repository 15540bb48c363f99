"""EigenGP, EigenGP*, EigenGP+, nearest neighbours and the exact GP as a scikit-learn regressor."""

from __future__ import annotations

from dataclasses import field, replace
from numbers import Integral
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import _fit_context
from sklearn.utils import check_consistent_length
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, Placed
from eigengp.backend.threads import speed_up_passes
from eigengp.data.dask_source import is_dask
from eigengp.data.frames import Frame, count_outputs, open_frame
from eigengp.data.open import check_further_rows, is_out_of_core
from eigengp.estimators.base import KERNEL_NAMES
from eigengp.estimators.outputs import Outputs
from eigengp.estimators.sparse import POINTS, InducingPointRegressor
from eigengp.fitting.learn import learn
from eigengp.fitting.online import Online, extend_fit
from eigengp.fitting.run import FitResult, describe, get_log_unit
from eigengp.fitting.settings import LBFGS, Settings, Stochastic, find_likelihood
from eigengp.fitting.stochastic import StochasticLearner
from eigengp.gp.exact_posterior import ConditionalPosterior, MixturePosterior
from eigengp.gp.heteroscedastic import HeteroscedasticPosterior
from eigengp.gp.likelihoods import (
    LIKELIHOODS,
    Gaussian,
    Heteroscedastic,
    NonGaussian,
)
from eigengp.gp.linalg import Spectrum
from eigengp.gp.posterior import Posterior
from eigengp.gp.variational import LatentPosterior
from eigengp.gp.vecchia_posterior import VecchiaPosterior
from eigengp.kernels import Kernel


class _OfEigenfunctions:
    """An attribute that the exact GP lacks; `fit` stores it in other models, which hides this."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, model: Any, owner: type) -> Any:
        """Explain why there is no such attribute."""
        if model is None or "_posterior" not in vars(model):
            raise AttributeError(f"{owner.__name__!r} object has no attribute {self._name!r}")
        raise AttributeError(
            f"This model has no {self._name}: it is the exact GP, which has no eigenfunctions. Fit "
            "with n_components=… or with residual=None, 'diagonal' or 'neighbors' for them."
        )


def _absent() -> Any:
    return _OfEigenfunctions()


def _keeps_no_rows(estimator: EigenGPRegressor) -> bool:
    own = estimator.likelihood
    if find_likelihood(own) is not None:
        raise AttributeError(
            f"partial_fit is for Gaussian noise, and not for likelihood={own!r}, whose posterior "
            "is found by rounds over all rows; call fit with all rows."
        )
    if getattr(own, "transform", None) is not None or hasattr(estimator, "target_map_"):
        raise AttributeError("partial_fit takes targets without a transform; call fit.")
    if estimator.residual in ("neighbors", "exact"):
        raise AttributeError(
            f"partial_fit keeps no rows, which residual={estimator.residual!r} needs; call fit "
            "with all rows, or choose another residual."
        )
    if estimator.__sklearn_is_fitted__() and estimator._online is None:
        raise AttributeError(
            "partial_fit cannot continue a fit that keeps its rows: selection_ says that "
            f"{estimator.selection_['residual']}. Fit with residual=None, or start with "
            "partial_fit."
        )
    return True


def _keep_no_rows(settings: Settings) -> Settings:
    """Return the settings of the first `partial_fit`."""
    reading = settings.reading._replace(orders_inputs=False)  # Other inputs may vary later.
    return replace(settings, reading=reading, keeps_rows=False, transform=None)


class EigenGPRegressor(InducingPointRegressor):
    """Gaussian-process regression, exact for few rows and with learned eigenfunctions for many.

    For few rows the default is the exact GP. For more rows, or if `n_components` or
    `inducing_points` is given, the latent function is a linear combination of R eigenfunctions of a
    GP prior, with Gaussian weights; each eigenfunction is a linear combination of kernel functions
    centred at M inducing points. By default, a model with eigenfunctions and 1,000 to ten million
    rows also approximates the residual covariance, the part of the prior covariance that the
    eigenfunctions leave out, with nearest neighbours (Vecchia approximation). Kernel
    hyperparameters and noise variance are learned by maximising the log marginal likelihood.
    Without neighbours, inducing points and the prior variances of the weights are learned too, and
    each evaluation takes O(N·M²) time.

    Parameters
    ----------
    n_components : int or "auto"
        R, the number of eigenfunctions; the exact GP has none. On small data `guard` may use fewer.
        "auto" depends on `residual`:

        - None and "diagonal": 100, or N/4 if that is smaller.
        - "neighbors": 200, or 400 if that lowers the loss of a held-out set by more than 0.01 nats
          per row, but at most N/25. With `max_time` the limit is not 400 but 12 for each second of
          it, at least 50 and at most 800; the number is doubled up to this limit while each
          doubling lowers the loss by that much.
    kernel : Kernel, str or "auto"
        The covariance function of the GP prior. A `Kernel` object is in the units of the data; its
        hyperparameters are initial values, and a single lengthscale becomes one for each input. A
        name such as "matern52" selects that kernel with default initial hyperparameters. "auto"
        depends on `residual`:

        - None and "diagonal": the squared exponential.
        - "exact": the kernel with the highest evidence on at most 300 rows (see Notes), among
          squared exponential, rational quadratic, Matérn 5/2, 3/2 and 1/2; for one input also a
          linear kernel plus a squared exponential, and for up to three inputs a `Warped` squared
          exponential.
        - "neighbors": the same five kernels and, without `max_time` or with at least four seconds,
          three sums: of two rational quadratics, of one and Matérn 1/2, and of two and Matérn 1/2.
          They are learned from local GPs. The best three are conditioned on all rows, and that with
          the lowest leave-one-out loss is kept. The loss per row is the mean of the negative log
          density and of its value with one common variance.
    residual : {"auto", None, "diagonal", "neighbors", "exact"}
        Which model to fit. None, "diagonal" and "neighbors" have eigenfunctions, and differ in how
        they treat the residual covariance.

        - None ignores it (the paper's EigenGP).
        - "diagonal" adds its diagonal to the prior covariance (EigenGP+), so that standard
          deviations are large far from the data. It acts as an additional function with
          independent values at different inputs. Rows with equal inputs share a value, except in
          files, Dask collections, on GPUs and beyond 200,000 rows.
        - "neighbors" uses a Vecchia approximation of it: each prediction is also conditioned on the
          nearest training rows. The prior variances of the weights are those of the GP prior.
          Hyperparameters are learned from at most 20,000 rows, and the posterior of the weights
          from at most 100,000; neighbours are found among all rows, which are kept in memory,
          in NumPy arrays on the CPU. Up to 30,000 rows, if `max_time` allows it, the predictive
          mean is that of the exact GP of all rows with the learned hyperparameters (up to 2 GB of
          memory), unless its mean squared error on held-out rows is more than 2 % larger than that
          of the neighbours. The predictive variance is always that of the neighbours.
        - "exact" is the exact GP of all rows, without eigenfunctions, for up to 20,000 rows, or
          60,000 on a GPU (see Notes).
        - "auto" is "exact" for up to 1,000 rows, or 30,000 on a GPU, if neither `n_components` nor
          `inducing_points` is given, and for up to 2,000 rows if there are at most three inputs or
          fewer than ten rows per input, or if `kernel` is given; otherwise "neighbors" from 1,000
          to 10 million rows, and None below and beyond. It is also None if all rows cannot be kept
          in arrays in memory in double precision (large files, Dask, `precision`, `Stochastic`,
          `partial_fit`), if `LBFGS` uses "joint", "direct" or `max_iter=0`, or if `n_components`
          differs from the number of inducing points.

        `selection_` says what was chosen and why.
    n_neighbors : int
        Number of nearest training rows on which a prediction is conditioned with
        `residual="neighbors"`. Where the mean is that of all rows (see `residual`), it affects only
        the variance. It does not affect learning: hyperparameters are learned from local GPs, in
        groups of at most 400 nearby rows. The posterior of the weights uses at most 32, unless
        `n_neighbors` is at least the number of rows: then all rows are used, and the posterior is
        that of the exact GP.
    likelihood : str or likelihood object
        The distribution of the targets given the latent function. "gaussian" has one noise
        variance. "heteroscedastic" multiplies the predictive variance by an input-dependent factor,
        which is fitted to leave-one-out errors and kept only if it clearly improves the
        leave-one-out density; it needs at least 100 rows. "auto" is "heteroscedastic" if the
        residual is "exact" or "neighbors", and "gaussian" otherwise. It also transforms skewed
        targets where leave-one-out predictions are clearly better then. `Gaussian(…)` and
        `Heteroscedastic(…)` set an initial noise variance, or a transform.

        "student_t", "poisson", "negative_binomial" and "quantile", or `StudentT`, `Poisson`,
        `NegativeBinomial` and `Quantile` with parameters, are fitted by a lower bound of the log
        marginal likelihood, with 200 inducing points by default (all of up to 500 rows, and 400
        points from 5,000 to 200,000 rows). All rows are held in memory, in NumPy arrays on the
        CPU. Predictions are in the units of the targets. `guard` and `n_neighbors` do not apply,
        and a value of `residual` other than "auto" raises an error.
    inducing_points : {"auto", "kmeans", "random", "greedy"}, int or array of shape (M, D)
        The initial inducing points; with neighbours the final ones, which are placed for the
        learned kernel and not moved. A name is the method that places them; "auto" is "kmeans". An
        int is their number M ≥ R. An array, in the units of the data, holds the points themselves,
        which all restarts then use.
    optimizer : {"auto"}, LBFGS or Stochastic
        How the model is learned; "auto" is `LBFGS()`.
    guard : bool
        Whether to use three safeguards against over-fitting with many inducing points. False is the
        paper's procedure: the log marginal likelihood alone. The exact GP and models with
        neighbours have none of them.

        - A penalty on the prior variance that the inducing points leave out: the fraction
          min(1, 1.5·M/N) of the trace term of VFE, for None.
        - A search over smaller numbers of inducing points, for None and "diagonal", if N·M² is at
          most 10⁷, N < 10·M, M ≥ 24, and `inducing_points` is a name. A larger number must increase
          the log marginal likelihood by one nat for each additional hyperparameter.
        - A held-out set, for None and "diagonal", from 2,000 rows on: the learned prior variances
          of the weights are kept only if they improve its predictions.
    standardize : bool or "robust"
        How inputs are scaled before learning. True centres each input at its mean and divides it by
        its standard deviation. False divides all inputs by one common scale, which keeps the ratios
        of distances. "robust" is for columns with heavy tails: it centres each input at its median,
        divides it by its interquartile range over 1.349 (by its standard deviation if the quartiles
        are equal), and compresses values beyond three such units by a logarithm. Quantiles are
        estimated from 10,000 rows if there are more. Targets are always scaled to unit variance.
    max_time : float or None
        Approximate time limit of the fit in seconds; None is no limit. With a limit, the result
        depends on the machine: the exact GP may compare fewer kernels and learn from fewer rows,
        neighbours may use fewer inducing points, and all models may take fewer iterations.
    precision : {"auto", "double", "mixed", "single"}
        "auto" is "double" on the CPU; on a GPU it also uses float32 where that is faster and its
        rounding does not show. "double" computes in float64, except for the kernel matrix of all
        rows with `residual="neighbors"` and more than 3,000 rows, which is in float32. "mixed"
        computes the gradient of stage 1 and predictions in float32 where that is accurate enough.
        "single" also computes the matrix products within each block of rows in float32 where that
        is accurate enough, for very many rows or GPUs. On a GPU float32 is used where it is also
        faster. Sums over blocks, factorisations and stage 2 are always in float64.
    device : str or None
        Where NumPy arrays of more than 5,000 rows are computed: None is the CPU, "cuda" a GPU
        (through PyTorch), and "auto" a GPU if there is one and the model is faster there, as
        `selection_` says. Smaller NumPy arrays stay on the CPU, which is faster for them. Arrays of
        PyTorch or CuPy (with scikit-learn's `array_api_dispatch`) are computed where they are,
        whatever `device` is, but `fit` copies arrays of at most 5,000 rows to the CPU. The exact GP
        uses a GPU from 1,000 rows on. Models with neighbours are learned on the CPU, and predict
        more than 5,000 rows at once on the GPU.

    Attributes
    ----------
    inducing_points_ : array of shape (M, D)
        The inducing points: learned, or with neighbours placed.
    kernel_ : Kernel
        The learned kernel. With `standardize="robust"`, its lengthscales apply to the central part
        of each column; in the compressed tails, the function varies more slowly. With `input_map_`,
        it is a function of mapped inputs.
    input_map_ : array of shape (D, K)
        The linear map of the inputs, of which K vary: the covariance of the function at `x` and
        `x'` is that of `kernel_` at `x @ input_map_` and `x' @ input_map_`. Only if a map was
        chosen, which the default tries from 500 rows on. With `standardize="robust"`, this holds
        for the central part of each column.
    noise_variance_ : float
        The learned noise variance. With heteroscedastic noise, it does not include the
        input-dependent factor.
    likelihood_ : likelihood object
        The learned likelihood, in the units of the targets; only if it is not Gaussian noise. There
        is no `noise_variance_` then.
    output_covariance_ : array of shape (P, P)
        The prior covariance of several outputs at one input; only for `y` of shape (N, P). Then
        `noise_variance_` and `target_mean_` have a value for each output.
    weights_ : array of shape (R,)
        The prior variances `w_j` of the weights of the eigenfunctions.
    eigenvalues_ : array of shape (R,)
        The largest R eigenvalues of the kernel matrix at the inducing points, in decreasing order.
    log_marginal_likelihood_ : float
        The log marginal likelihood (evidence) of the training data.
    history_ : list of dict
        Stage, iteration, log marginal likelihood and seconds after each iteration. In a stage that
        learns from some of the rows, the log marginal likelihood is scaled to all rows.
    leave_one_out_errors_ : array of shape (n,)
        Absolute leave-one-out errors divided by their standard deviations, sorted. They are those
        of the n training rows to which heteroscedastic noise was fitted: all rows for the exact GP,
        and a sample otherwise. The attribute exists only if heteroscedastic noise was considered,
        even if it was not chosen. `predict_interval` uses their quantiles.

    Notes
    -----
    Attributes are in the units of the data; with a `target_map_`, those that depend on the units of
    the targets refer to transformed targets. The exact GP has no `inducing_points_`, `weights_`,
    `eigenvalues_` and `jitter_`.

    The exact GP (`residual="exact"`) has weak log-normal priors on kernel hyperparameters and noise
    variance. Candidate kernels are compared on at most 300 rows, by the Laplace approximation to
    their evidence. Predictions are averaged over draws from the Laplace approximation to the
    posterior of the hyperparameters: up to 64 for 250 rows, 16 for 500, fewer for up to 1,400, and
    the mode alone beyond. Up to 300 rows they come from all candidates, in proportion to their
    evidence. `kernel_`, `noise_variance_` and `log_marginal_likelihood_` are those of the most
    probable hyperparameters. Beyond 2,000 rows (12,000 on a GPU), kernel hyperparameters and noise
    variance are learned from so many random rows, and predictions use all rows. Conditioning on all
    rows takes O(N³) time and 16·N² bytes of memory; each predicted standard deviation takes O(N²)
    time.

    With ten or more inputs and fewer than ten rows per input, the lengthscales of the exact GP tend
    to over-fit, which leave-one-out errors do not show. Unless the likelihood is "gaussian", all
    predictive variances are then multiplied by one factor, estimated by cross-validation, instead
    of an input-dependent one.

    `ExactGPRegressor` maximises the log marginal likelihood of all rows, without priors or
    averaging over hyperparameters.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import EigenGPRegressor
    >>> X = np.linspace(0, 6, 120)[:, None]
    >>> y = np.sin(X[:, 0] ** 1.5) + 0.1 * np.random.default_rng(0).normal(size=120)
    >>> model = EigenGPRegressor(n_components=14, random_state=0).fit(X, y)
    >>> mean, std = model.predict([[1.0], [5.0]], return_std=True)
    >>> bool(np.all(np.abs(mean - np.sin([1.0, 5.0**1.5])) < 3 * std))
    True
    """

    _posterior: (
        Posterior
        | VecchiaPosterior
        | HeteroscedasticPosterior
        | ConditionalPosterior
        | MixturePosterior
        | LatentPosterior
    ) = field(init=False)
    _learn = staticmethod(learn)
    _has_weights = True
    inducing_points_: Array = field(default=_absent(), init=False)
    weights_: Array = field(default=_absent(), init=False)
    eigenvalues_: Array = field(default=_absent(), init=False)
    jitter_: float = field(default=_absent(), init=False)
    _spectrum: Spectrum = field(default=_absent(), init=False)
    _online: Online | StochasticLearner | None = field(init=False)
    """From which `partial_fit` continues; None where it cannot."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kernel": [Kernel, KERNEL_NAMES, StrOptions({"auto"})],
        "residual": [StrOptions({"auto", "diagonal", "neighbors", "exact"}), None],
        "likelihood": [
            StrOptions({"auto", "gaussian", "heteroscedastic", *LIKELIHOODS}),
            Gaussian,
            Heteroscedastic,
            NonGaussian,
        ],
        "inducing_points": [POINTS, Interval(Integral, 1, None, closed="left"), "array-like"],
        "optimizer": [StrOptions({"auto"}), LBFGS, Stochastic],
        "guard": ["boolean"],
    }

    kernel: Kernel | str = "auto"
    residual: Literal["auto", "diagonal", "neighbors", "exact"] | None = "auto"
    n_neighbors: int = 64
    likelihood: Any = "auto"
    guard: bool = True
    max_time: float | None = None

    def _fit_outputs(self, frame: Frame) -> FitResult:
        """Fit one output, or several with a learned covariance between them."""
        outputs = Outputs.of(frame.y)
        if outputs.values.shape[1] == 1:
            one = outputs.values[:, 0] if self._takes_outputs else frame.y
            return self._find_fit(frame._replace(y=one))
        check_consistent_length(frame.X, outputs.values)
        numbered = frame._replace(y=np.arange(len(outputs.values), dtype=np.float64))
        return outputs.restore(self._find_fit(numbered, outputs.adapt))

    # scikit-learn ships no types.
    @available_if(_keeps_no_rows)  # type: ignore[untyped-decorator]
    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        forgetting: float = 1.0,
    ) -> Self:
        """Learn from more rows; the first call fits a model with eigenfunctions.

        Later calls do not change the eigenfunctions, and update the posterior of their weights
        exactly: it is that of all rows so far, which are not kept. The prior variances of the
        weights and the noise variance are learned again, unless `max_iter` is 0 or `residual` is
        "diagonal". With `optimizer=Stochastic()` later calls also continue to learn the
        eigenfunctions; the posterior is then that of a sample of at most 10,000 of all rows.

        Parameters
        ----------
        X : array of shape (n, D)
            Inputs.
        y : array of shape (n,)
            Targets.
        sample_weight : array of shape (n,) or None
            How many times each row counts.
        forgetting : float
            The factor by which the weight of all earlier rows is multiplied: 1 keeps it, and
            smaller values are for data that drift. `Stochastic` ignores it.

        Returns
        -------
        self : object
            The regressor.
        """
        if is_out_of_core(X) or is_dask(X):
            raise TypeError("partial_fit takes arrays; fit reads files and Dask collections.")
        if count_outputs(y) > 1:
            raise ValueError("partial_fit takes one output; fit takes several.")
        if not 0.0 < forgetting <= 1.0:
            raise ValueError(f"forgetting must be above 0 and at most 1, got {forgetting!r}.")
        if not self.__sklearn_is_fitted__():
            frame = open_frame(X, y, sample_weight, self.categorical_features)
            return self._adopt(self._find_fit(frame, _keep_no_rows))
        assert self._online is not None
        settings = Settings.from_estimator(self)
        if isinstance(self._online, StochasticLearner) != settings.is_stochastic:
            raise ValueError(
                "partial_fit continues with the kind of optimizer that the fit began with; set "
                "optimizer back, or call fit again."
            )
        scaling, like = self._scaling, self.inducing_points_
        rows = scaling.transform_block(check_further_rows(self, X, y, sample_weight))
        with speed_up_passes(like.shape[0]):
            found = extend_fit(self._online, self._posterior, rows, settings.optimizer, forgetting)
        attributes = describe(found.model, scaling, like, has_weights=True)
        self.__dict__.pop("conformity_", None)
        self._online, self._posterior = found.online, found.posterior
        self.__dict__.update(attributes)
        self.log_marginal_likelihood_ = get_log_unit(scaling, found.weight) - found.value
        return self

    def eigenfunctions(self, X: ArrayLike) -> Array:
        """Evaluate the learned eigenfunctions `φ_j(x) = (√M/λ_j) k(x,B) u_j`.

        Parameters
        ----------
        X : array of shape (n, D)
            Where to evaluate.

        Returns
        -------
        values : array of shape (n, R)
            One column for each eigenfunction, largest eigenvalue first.
        """
        X = self._inputs(X, "eigenfunctions")
        R = self.weights_.shape[0]
        lam, U = self._spectrum.values, self._spectrum.vectors
        combination = Placed(np.sqrt(lam.size) * U[:, :R] / lam[:R])
        features = self._posterior.features

        def values(inputs: AnyArray) -> AnyArray:
            K = features.matrix(inputs)
            return K @ combination.beside(K)

        return self._by_blocks(values, X)
