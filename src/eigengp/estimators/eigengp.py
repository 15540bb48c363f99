"""EigenGP, EigenGP*, EigenGP+, nearest neighbours and the exact GP as a scikit-learn regressor."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if

from eigengp._typing import Array, Standardize
from eigengp.backend.namespace import AnyArray, Placed
from eigengp.backend.threads import speed_up_passes
from eigengp.data.dask_source import is_dask
from eigengp.data.open import check_further_rows, is_out_of_core, open_dataset
from eigengp.estimators.base import KERNEL_NAMES
from eigengp.estimators.sparse import POINTS, InducingPointRegressor
from eigengp.fitting.learn import learn
from eigengp.fitting.online import Online, extend_fit
from eigengp.fitting.run import begin_run, describe, get_log_unit
from eigengp.fitting.settings import LBFGS, Settings, Stochastic
from eigengp.fitting.stochastic import StochasticLearner
from eigengp.gp.exact_posterior import ConditionalPosterior
from eigengp.gp.heteroscedastic import HeteroscedasticPosterior
from eigengp.gp.likelihoods import Gaussian, Heteroscedastic
from eigengp.gp.linalg import Spectrum
from eigengp.gp.mixture import MixturePosterior
from eigengp.gp.posterior import Posterior
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


def _keeps_no_rows(estimator: EigenGPRegressor) -> bool:
    if estimator.residual in ("neighbors", "exact"):
        raise AttributeError(
            f"partial_fit keeps no rows, which residual={estimator.residual!r} needs; call fit "
            "with all rows, or choose another residual."
        )
    return True


class EigenGPRegressor(InducingPointRegressor):
    """Gaussian-process regression, exact for few rows and with learned eigenfunctions for many.

    Up to 2,000 rows the default is the exact GP. For more rows, or with `n_components`, the latent
    function is a linear combination of R eigenfunctions of a GP prior with Gaussian weights; each
    eigenfunction combines kernels at M inducing points. Inducing points, lengthscales, signal and
    noise variance and the prior variances of the weights are learned by maximising the log marginal
    likelihood, in O(N·M²) time. Up to ten million rows the default adds a nearest-neighbour
    (Vecchia) residual.

    Parameters
    ----------
    n_components : int or "auto"
        R, the number of eigenfunctions; the exact GP has none. "auto" is 100, or a quarter of the
        rows if that is fewer. With `residual="neighbors"`, "auto" tries 200 and doubles this number
        as long as the loss of a held-out set clearly falls; if `kernel` is given, it uses 400 for a
        smooth kernel and 200 for a rough one. With neighbours the number is limited to N/25 and to
        400 (with `max_time`, to 12 per second, but at least 50 and at most 800). On small data
        (N·M² up to 10⁷ and N < 10·M), `guard` uses fewer if more do not improve the log marginal
        likelihood enough, unless `inducing_points` is given.
    kernel : Kernel, str or "auto"
        The GP prior. A `Kernel` object is in the units of the data; its parameters are starting
        values, and a single lengthscale becomes one for each input. A name such as "matern52" is
        that kernel with a default start. "auto" is the squared exponential for `residual=None` and
        "diagonal". Otherwise it is chosen on a subset of the rows, by the evidence for "exact" and
        by the Vecchia log marginal likelihood for "neighbors", among squared exponential, rational
        quadratic, Matérn 5/2, 3/2 and 1/2. "exact" also tries a linear kernel plus a squared
        exponential for one input, and a `Warped` squared exponential for up to three. "neighbors"
        also tries three sums: squared exponential + Matérn 5/2, rational quadratic + Matérn 1/2,
        and Matérn 3/2 + Matérn 1/2.
    residual : {"auto", None, "diagonal", "neighbors", "exact"}
        How to treat the prior variance that the eigenfunctions leave out (the residual).

        - None ignores it (the paper's EigenGP).
        - "diagonal" adds it to the variance of each input (EigenGP+), which gives wide error bars
          far from the data. Rows with equal inputs share it, except in files, Dask collections, on
          GPUs and beyond 200,000 rows.
        - "neighbors" models it by a Vecchia approximation: each prediction also conditions on its
          nearest training rows, and all hyperparameters are learned under this model, beyond
          100,000 rows from a random sample of 100,000. It keeps all rows in memory, in float64, on
          the CPU. Up to 30,000 rows, if `max_time` allows it, the predictive mean is computed from
          all rows (the exact GP with the learned kernel, up to 2 GB of memory), unless the
          neighbours predict held-out rows better. The predictive variance always comes from the
          neighbours.
        - "exact" is the exact GP of all rows, without eigenfunctions, for up to 20,000 rows (see
          Notes).
        - "auto" is "exact" for up to 2,000 rows, if neither `n_components` nor `inducing_points` is
          given; otherwise "neighbors" from 1,000 to 10 million rows, and None below and beyond. It
          is also None if all rows cannot be kept in NumPy arrays on the CPU in double precision
          (large files, Dask, `device`, `precision`, `Stochastic`, `partial_fit`), if `LBFGS` uses
          "joint" or "direct", or if `n_components` differs from the number of inducing points. Up
          to 100,000 rows and without `max_time`, the models with and without neighbours are
          compared, and the better one is kept.

        `selection_` says what was chosen and why.
    n_neighbors : int
        Number of nearest training rows that a prediction conditions on with
        `residual="neighbors"`. Where the mean is computed from all rows (see `residual`), it
        affects only the variance. Hyperparameters are learned
        with 15 neighbours of each row, and the posterior of the weights with at most 32. If
        `n_neighbors` is at least the number of rows, all of them are used, and the posterior is
        that of the exact GP.
    likelihood : {"auto", "gaussian", "heteroscedastic"}, Gaussian or Heteroscedastic
        The noise. "heteroscedastic" fits input-dependent noise to leave-one-out residuals; it is
        kept only if it improves the leave-one-out density, and needs at least 100 rows. "auto"
        tries heteroscedastic noise if the residual is "exact" or "neighbors", also when
        `residual="auto"` compares "neighbors" with None; otherwise it is "gaussian".
        `Gaussian(variance=…)` also sets where the noise variance starts.
    inducing_points : {"auto", "kmeans", "random", "greedy"}, int or array of shape (M, D)
        How inducing points are placed at first; "auto" is "kmeans". An int is M ≥ R, their number.
        An array, in the units of the data, gives their initial positions for all restarts.
    optimizer : {"auto"}, LBFGS or Stochastic
        How the model is learned; "auto" is `LBFGS()`.
    guard : bool
        Whether to use three safeguards against over-fitting with many inducing points: a penalty, a
        search over smaller numbers, and a held-out check of the learned weights. False is the
        paper's procedure: the log marginal likelihood alone.
    standardize : bool or "robust"
        Whether inputs are centred and scaled one by one. Without it inputs keep their geometry.
        "robust" is for columns with heavy tails: inputs are centred at their medians and scaled
        by their interquartile ranges divided by 1.349 (by standard deviations where quartiles are
        equal), and what is more than three such units from the median is compressed by a
        logarithm. Quantiles are those of 10,000 rows, where there are more.
    max_time : float or None
        About how many seconds the fit may take. The result then depends on the machine: the exact
        GP compares fewer kernels and learns from fewer rows, neighbours use fewer inducing points,
        and all models take fewer iterations.
    precision : {"double", "mixed", "single"}
        "double" is float64 throughout. "mixed" computes the gradient of stage 1 (learning kernel
        and inducing points) and predictions in float32 where that is accurate enough. "single" also
        computes the matrix products within each block of rows in float32, for very many rows or
        GPUs. Sums over blocks, factorisations and learned weights are always in float64.
    device : str or None
        Device for NumPy rows: None is the CPU, "cuda" a GPU (through PyTorch). Arrays of PyTorch
        or CuPy are used where they are, with scikit-learn's `array_api_dispatch`. Up to 5,000 rows
        always use the CPU, which is faster for so few.

    Attributes
    ----------
    inducing_points_ : array of shape (M, D)
        The learned inducing points. Attributes are in the units of the data unless they say
        otherwise. The exact GP has no `inducing_points_`, `weights_`, `eigenvalues_` and `jitter_`.
    kernel_ : Kernel
        The learned kernel. With `standardize="robust"`, its lengthscales apply to the central part
        of each column; in the compressed tails, the function varies more slowly.
    noise_variance_ : float
        The learned noise variance. With heteroscedastic noise, it is the variance without the
        input-dependent factor.
    weights_ : array of shape (R,)
        The prior variance of the weight of each eigenfunction.
    eigenvalues_ : array of shape (R,)
        The eigenvalues of the kernel matrix at the inducing points, largest first.
    log_marginal_likelihood_ : float
        The log marginal likelihood (evidence) of the training data.
    history_ : list of dict
        Stage, iteration, log marginal likelihood and seconds after each iteration; the likelihood
        is that of the rows learned from, scaled to all rows.
    jitter_ : float
        What was added to the diagonal of the kernel matrix.
    target_mean_ : float
        The prior mean of the targets.
    leave_one_out_errors_ : array of shape (n,)
        If heteroscedastic noise was considered, even if it was not chosen: absolute leave-one-out
        errors of training rows in units of their standard deviations, sorted. `predict_interval`
        uses them.

    Notes
    -----
    The exact GP (`residual="exact"`) has weak log-normal priors on kernel parameters and noise.
    Candidate kernels are compared on at most 300 rows, by the Laplace approximation to their
    evidence. Predictions are averaged over draws from the Laplace approximation to the posterior of
    the hyperparameters: 16 for up to 500 rows, fewer for up to 1,400, and the mode alone beyond.
    `kernel_`, `noise_variance_` and `log_marginal_likelihood_` are those of the most probable
    hyperparameters. Heteroscedastic noise is fitted to exact leave-one-out residuals. With ten or
    more inputs and fewer than ten rows per input, lengthscales tend to over-fit; unless the
    likelihood is "gaussian", the fit then multiplies all predictive variances by one factor, found
    by cross-validation, and keeps the noise constant. Beyond 2,000 rows, kernel and noise are
    learned from 2,000 of them, and predictions use all. Conditioning on all rows takes O(N³) time
    and 16·N² bytes of memory; each predicted standard deviation takes O(N²) time.
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
    )
    _learn = staticmethod(learn)
    _has_weights = True
    inducing_points_: Array = _OfEigenfunctions()  # type: ignore[assignment]
    weights_: Array = _OfEigenfunctions()  # type: ignore[assignment]
    eigenvalues_: Array = _OfEigenfunctions()  # type: ignore[assignment]
    jitter_: float = _OfEigenfunctions()  # type: ignore[assignment]
    _spectrum: Spectrum = _OfEigenfunctions()  # type: ignore[assignment]
    _online: Online | StochasticLearner | None
    """From which `partial_fit` continues; None where it cannot."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **InducingPointRegressor._parameter_constraints,
        "kernel": [Kernel, KERNEL_NAMES, StrOptions({"auto"})],
        "residual": [StrOptions({"auto", "diagonal", "neighbors", "exact"}), None],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "likelihood": [
            StrOptions({"auto", "gaussian", "heteroscedastic"}),
            Gaussian,
            Heteroscedastic,
        ],
        "inducing_points": [POINTS, Interval(Integral, 1, None, closed="left"), "array-like"],
        "optimizer": [StrOptions({"auto"}), LBFGS, Stochastic],
        "guard": ["boolean"],
        "max_time": [Interval(Real, 0, None, closed="neither"), None],
    }

    def __init__(
        self,
        n_components: int | Literal["auto"] = "auto",
        *,
        kernel: Kernel | str = "auto",
        residual: Literal["auto", "diagonal", "neighbors", "exact"] | None = "auto",
        n_neighbors: int = 64,
        likelihood: Literal["auto", "gaussian", "heteroscedastic"] | Gaussian | Heteroscedastic = (
            "auto"
        ),
        mean: Any = "constant",
        inducing_points: Literal["auto", "kmeans", "random", "greedy"] | int | ArrayLike = "auto",
        optimizer: Literal["auto"] | LBFGS | Stochastic = "auto",
        guard: bool = True,
        standardize: Standardize = True,
        max_time: float | None = None,
        precision: Literal["double", "mixed", "single"] = "double",
        device: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | int = False,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.residual = residual
        self.n_neighbors = n_neighbors
        self.likelihood = likelihood
        self.mean = mean
        self.inducing_points = inducing_points
        self.optimizer = optimizer
        self.guard = guard
        self.standardize = standardize
        self.max_time = max_time
        self.precision = precision
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @property
    def _draws_jointly(self) -> bool:  # type: ignore[override]  # Decided by what was learned.
        return self._keeps_rows

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
        weights and the noise are learned again, unless `max_iter` is 0 or there is a residual. With
        `optimizer=Stochastic()` later calls also continue to learn the eigenfunctions; the
        posterior is then that of a sample of at most 10,000 of all rows.

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
        if not 0.0 < forgetting <= 1.0:
            raise ValueError(f"forgetting must be above 0 and at most 1, got {forgetting!r}.")
        if not self.__sklearn_is_fitted__():
            settings = replace(Settings.from_estimator(self), keeps_rows=False)
            with (
                open_dataset(X, y, sample_weight, settings.reading) as dataset,
                begin_run(dataset, settings) as run,
            ):
                result = learn(run)
            return self._adopt(result)
        if self._online is None:
            raise ValueError(
                "partial_fit cannot continue a fit that keeps its rows: selection_ says that "
                f"{self.selection_['residual']}. Fit with residual=None, or start with partial_fit."
            )
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
