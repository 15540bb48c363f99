"""EigenGP, EigenGP* and EigenGP+ as a scikit-learn regressor."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import _fit_context
from sklearn.utils import check_array, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import validate_data

from eigengp.estimators.base import SparseGPRegressor
from eigengp.estimators.rows import checked_weight, distinct_rows, merged
from eigengp.fitting.learning import Learner
from eigengp.fitting.plan import Plan, default_iterations
from eigengp.fitting.progress import Monitor
from eigengp.fitting.starts import BasisInit, lengthscale_range
from eigengp.flow.model import EigenGP, Jitter
from eigengp.flow.posterior import Posterior
from eigengp.kernels import Kernel, SquaredExponential
from eigengp.sources.arrays import ArraySource, available_threads, by_blocks, one_blas_thread
from eigengp.sources.views import Scaling, StandardizedSource
from eigengp.typing import Array

_RELATIVE_JITTER = 1e-6
_DEFAULT_COMPONENTS = 100
_SMALL_BASIS = 200
GUARD_STRENGTH = 1.5
"""The guard's share of the trace term for one basis point per row (benchmarks/README.md)."""
_SCARCE_ROWS_PER_POINT = 10
_HOLD_OUT_FROM = 2_000


class EigenGPRegressor(SparseGPRegressor):
    """Gaussian-process regression with a few learned eigenfunctions.

    The latent function is a Bayesian sum of R eigenfunctions of a GP prior,
    each a combination of kernels at M basis points. Basis points,
    lengthscales, signal, noise and the prior variance of each eigenfunction
    are learned by maximising the evidence, in O(N·M²) time.

    Parameters
    ----------
    n_components : int or None
        R, how many eigenfunctions are kept. None takes 100, or a quarter of
        the rows if that is fewer. With `guard`, and unless `n_inducing` is
        given, fewer are kept on small data (N·M² up to 10⁷) with fewer than
        ten rows for each, if more did not earn their place.
    n_inducing : int or None
        M ≥ R, how many basis points they are made of; None takes as many.
    kernel : Kernel or None
        The GP prior, in the units of the data; its parameters are where
        learning begins, and a single lengthscale becomes one for each input.
        None is the squared exponential.
    optimization : {"sequential", "joint", "direct"}
        "sequential" learns basis and kernel first, then the weights
        (EigenGP); "joint" goes on from there with everything at once
        (EigenGP*); "direct" learns everything at once from the start, which
        finds poor optima more often.
    residual : {None, "diagonal"}
        "diagonal" adds the prior variance that the eigenfunctions leave out
        (EigenGP+): wide error bars far from the data.
    init : {"kmeans", "random", "greedy"} or array of shape (M, D)
        Where basis points begin. An array, in the units of the data, is
        where all restarts begin.
    n_restarts : int
        How many starts are screened by short runs before the best goes on.
    max_iter : int or None
        At most so many iterations in each stage; None is 200, or 1000 on
        small data (N·M² up to 10⁷); 0 learns nothing and keeps `kernel` and
        `init` as they are.
    tol : float
        Relative change of the evidence at which a stage stops.
    standardize : bool
        Whether inputs are centred and scaled one by one, and targets
        centred. Without it inputs keep their geometry and the prior mean of
        the targets is zero.
    guard : bool
        Whether to guard against over-fitting as M grows. False is the
        paper's procedure: the evidence alone.
    random_state : int, RandomState or None
        Makes the starts.
    verbose : bool or int
        Whether to show a progress bar with the evidence.

    Attributes
    ----------
    inducing_inputs_ : array of shape (M, D)
        The learned basis points. This and all that follow are in the units
        of the data.
    kernel_ : Kernel
        The learned kernel.
    noise_variance_ : float
        The learned noise variance.
    weights_ : array of shape (R,)
        The prior variance of each eigenfunction.
    eigenvalues_ : array of shape (R,)
        The eigenvalues of the kernel matrix at the basis points, largest first.
    log_marginal_likelihood_ : float
        The log evidence of the training data.
    history_ : list of dict
        Stage, iteration, log evidence and seconds after each iteration; the
        evidence is that of the rows learned from, scaled to all rows.
    n_iter_ : int
        Iterations of all stages, without the screening.
    jitter_ : float
        What was added to the diagonal of the kernel matrix.
    target_mean_ : float
        The prior mean of the targets.

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "n_inducing": [Interval(Integral, 1, None, closed="left"), None],
        "kernel": [Kernel, None],
        "optimization": [StrOptions({"sequential", "joint", "direct"})],
        "residual": [StrOptions({"diagonal"}), None],
        "init": [StrOptions({"kmeans", "random", "greedy"}), "array-like"],
        "n_restarts": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 0, None, closed="left"), None],
        "tol": [Interval(Real, 0, None, closed="left")],
        "standardize": ["boolean"],
        "guard": ["boolean"],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_inducing: int | None = None,
        kernel: Kernel | None = None,
        optimization: Literal["sequential", "joint", "direct"] = "sequential",
        residual: Literal["diagonal"] | None = None,
        init: Literal["kmeans", "random", "greedy"] | ArrayLike = "kmeans",
        n_restarts: int = 32,
        max_iter: int | None = None,
        tol: float = 1e-9,
        standardize: bool = True,
        guard: bool = True,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | int = False,
    ) -> None:
        self.n_components = n_components
        self.n_inducing = n_inducing
        self.kernel = kernel
        self.optimization = optimization
        self.residual = residual
        self.init = init
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.tol = tol
        self.standardize = standardize
        self.guard = guard
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the model.

        Parameters
        ----------
        X : array of shape (N, D)
            Inputs.
        y : array of shape (N,)
            Targets.
        sample_weight : array of shape (N,) or None
            How many times each row counts.

        Returns
        -------
        self : EigenGPRegressor
            The fitted regressor.
        """
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], y_numeric=True)
        weight = checked_weight(sample_weight, np.asarray(X))
        X, y, weight = merged(np.asarray(X), np.asarray(y), weight)
        rows = ArraySource(X, y, weight, n_threads=available_threads())
        scaling = Scaling.of(rows, self.standardize)
        source = StandardizedSource(rows, scaling)
        plan = self._plan(rows, scaling)
        total = float(rows.n_rows if weight is None else weight.sum())
        offset = -total * np.log(scaling.target_scale)
        monitor = Monitor(bool(self.verbose), total, offset)
        learner = Learner(plan, source, monitor, check_random_state(self.random_state))
        with one_blas_thread() if plan.n_inducing <= _SMALL_BASIS else nullcontext():
            model = learner.learn(self._template(plan, scaling))
        self._keep(model, source, offset)
        self.history_ = monitor.history
        self.n_iter_ = learner.n_iter
        return self

    def _plan(self, rows: ArraySource, scaling: Scaling) -> Plan:
        """Resolve the parameters against the data."""
        points = self._initial_points(rows.n_features)
        default = max(1, min(_DEFAULT_COMPONENTS, rows.n_rows // 4))
        possible = distinct_rows(rows, max(self.n_inducing or 0, self.n_components or 0, default))
        if points is not None:
            default, possible = points.shape[0], points.shape[0]
        R = self.n_components or min(self.n_inducing or default, default)
        M = self.n_inducing or (R if points is None else points.shape[0])
        if R > M:
            raise ValueError(
                f"n_components={R} eigenfunctions cannot be made of n_inducing={M} basis points; "
                "use at least as many basis points as eigenfunctions."
            )
        if points is not None and points.shape[0] != M:
            raise ValueError(f"init holds {points.shape[0]} basis points but n_inducing is {M}.")
        if min(M, possible) < M and (self.n_components or self.n_inducing):
            warnings.warn(
                f"X has only {possible} distinct rows: {possible} basis points are used instead "
                f"of {M}.",
                UserWarning,
                stacklevel=4,
            )
        M = min(M, possible)
        scaled = None if points is None else scaling.inputs(points)
        scarce = rows.n_rows < _SCARCE_ROWS_PER_POINT * M
        return Plan(
            n_components=min(R, M),
            n_inducing=M,
            optimization=self.optimization,
            init=BasisInit(str(self.init) if scaled is None else scaled),
            n_restarts=self.n_restarts,
            max_iter=default_iterations(rows.n_rows, M) if self.max_iter is None else self.max_iter,
            tol=self.tol,
            gamma=min(1.0, GUARD_STRENGTH * M / rows.n_rows) if self.guard else 0.0,
            grow=bool(self.guard and scarce and points is None and self.n_inducing is None),
            hold_out=bool(self.guard and rows.n_rows >= _HOLD_OUT_FROM),
        )

    def _initial_points(self, n_features: int) -> Array | None:
        if isinstance(self.init, str):
            return None
        points: Array = check_array(self.init, dtype=np.float64, input_name="init")
        if points.shape[1] != n_features:
            raise ValueError(
                f"init has {points.shape[1]} columns but X has {n_features} features; "
                "each basis point needs one value for each feature."
            )
        return points

    def _template(self, plan: Plan, scaling: Scaling) -> EigenGP:
        """Return the model to start from, in standardised units."""
        n_features = scaling.input_scale.size
        if self.kernel is None:
            low, high = lengthscale_range(n_features)
            kernel: Kernel = SquaredExponential(np.full(n_features, np.sqrt(low * high)))
        else:
            kernel = self.kernel.with_ard(n_features)
            kernel = kernel.rescaled(1.0 / scaling.input_scale, scaling.target_scale**-2)
        blank = np.zeros((plan.n_inducing, n_features))
        return EigenGP(
            kernel,
            blank,
            noise_variance=0.1,
            n_components=plan.n_components,
            residual=self.residual is not None,
            jitter=Jitter(relative=_RELATIVE_JITTER),
        )

    def _keep(self, model: EigenGP, source: StandardizedSource, offset: float) -> None:
        """Condition on all rows, and store what was learned in the units of the data."""
        scaling = source.scaling
        unit = scaling.target_scale**2
        outcome = model.forward(source)
        self._scaling, self._posterior = scaling, Posterior.of(model, outcome)
        self._spectrum = model.spectrum
        R = model.n_components
        points = model.inducing_inputs * scaling.input_scale + scaling.input_centre
        self.inducing_inputs_ = points
        self.kernel_ = model.kernel.rescaled(scaling.input_scale, unit)
        self.noise_variance_ = model.noise_variance * unit
        self.weights_ = model.spectrum.weights(model.effective_shrinkage) * unit
        self.eigenvalues_ = model.spectrum.values[:R] * unit
        self.jitter_ = model.jitter.of(model.kernel) * unit
        self.target_mean_ = scaling.target_centre
        self.log_marginal_likelihood_ = offset - outcome.value

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
        X = self._inputs(X)
        R, B, kernel = self.weights_.size, self._posterior.inducing_inputs, self._posterior.kernel
        lam, U = self._spectrum.values[:R], self._spectrum.vectors[:, :R]
        combination = np.sqrt(B.shape[0]) * U / lam
        inputs = self._scaling.inputs
        return by_blocks(lambda rows: kernel.matrix(inputs(rows), B) @ combination, X)
