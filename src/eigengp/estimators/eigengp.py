"""EigenGP, EigenGP* and EigenGP+ as a scikit-learn regressor."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if

from eigengp.arrays import AnyArray, Placed
from eigengp.estimators.inducing import RELATIVE_JITTER, InducingRegressor
from eigengp.estimators.local import LocalFit
from eigengp.estimators.rows import further_rows
from eigengp.estimators.streaming import FIRST_ITERATIONS, Stream
from eigengp.estimators.training import Training
from eigengp.fitting.online import Online
from eigengp.fitting.plan import Plan, default_size, is_small
from eigengp.flow.exact import ExactGP
from eigengp.flow.local import LocalOutcome
from eigengp.flow.local_posterior import LocalPosterior
from eigengp.flow.model import EigenGP, Jitter
from eigengp.flow.passes import Outcome
from eigengp.flow.posterior import Posterior, Predictive
from eigengp.flow.rows import RowBlock
from eigengp.kernels import Kernel, Stationary
from eigengp.sources.arrays import ArraySource
from eigengp.sources.cluster import is_dask
from eigengp.sources.formats import is_table
from eigengp.sources.threads import at_work
from eigengp.typing import Array

GUARD_STRENGTH = 1.5
"""The guard's share of the trace term for one basis point per row (benchmarks/README.md)."""
_SCARCE_ROWS_PER_POINT = 10
_HOLD_OUT_FROM = 2_000
_FIRST_ROWS_PER_POINT = 10
_FIRST_STEPS = 30
_NONE = np.zeros((0, 0))


def _keeps_no_rows(estimator: EigenGPRegressor) -> bool:
    if estimator.residual == "local":
        raise AttributeError(
            "partial_fit keeps no rows, which residual='local' looks at; call fit with all rows, "
            "or choose another residual."
        )
    return True


class EigenGPRegressor(InducingRegressor):
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
    kernel : Kernel, "exact", "auto" or None
        The GP prior, in the units of the data; its parameters are where
        learning begins, and a single lengthscale becomes one for each input.
        None is the squared exponential; "exact" is the one that the full GP
        learns on a tenth of the rows (at least 500, at most 2,000), with its
        noise, which on large data takes the place of the screening; "auto",
        with the local residual, is the best of squared exponential and
        Matérn 5/2, 3/2 and 1/2 on a part of the rows.
    noise_variance : float or None
        The noise variance where learning begins, in the units of the data;
        None is a tenth of the targets' variance.
    optimization : {"sequential", "joint", "direct", "stochastic"}
        "sequential" learns basis and kernel first, then the weights
        (EigenGP); "joint" goes on from there with everything at once
        (EigenGP*); "direct" learns everything at once from the start, which
        finds poor optima more often; "stochastic" learns from batches by
        online variational Bayes, in one pass over the rows (or `max_iter`
        passes), with the weights of the prior.
    residual : {None, "diagonal", "local"}
        "diagonal" adds the prior variance that the eigenfunctions leave out
        (EigenGP+): wide error bars far from the data. "local" lets it act
        between neighbours too: every prediction looks at the nearest rows as
        well, and everything is learned under that, in at most 45 iterations
        unless `max_iter` says otherwise. All rows and their features are then
        held in memory, in float64, and computed with on the CPU.
    n_neighbors : int
        How many rows a prediction looks at with the local residual.
    noise : {"constant", "varying"}
        "varying" learns, with the local residual, how error bars vary with
        the input, from rows left out one by one. One factor for all error
        bars is taken where that predicts such rows as well, and none for
        fewer than 100 rows.
    init : {"kmeans", "random", "greedy"} or array of shape (M, D)
        Where basis points begin. An array, in the units of the data, is
        where all restarts begin.
    n_restarts : int or None
        How many starts are screened by short runs before the best goes on;
        None is 32 on small data (N·M² up to 10⁷) and 4 on large. 1 with a
        `kernel` of your own begins there at once, with the best of a few
        noise variances, unless `guard` has several basis sizes to try.
    max_iter : int or None
        At most so many iterations in each stage; None is 200, or 1000 on
        small data (N·M² up to 10⁷); 0 learns nothing and keeps `kernel` and
        `init` as they are. Large data is learned on in growing parts first,
        30 iterations for each.
    tol : float
        Relative change of the evidence at which a stage stops.
    standardize : bool
        Whether inputs are centred and scaled one by one, and targets
        centred. Without it inputs keep their geometry and the prior mean of
        the targets is zero.
    guard : bool
        Whether to guard against over-fitting as M grows. False is the
        paper's procedure: the evidence alone.
    precision : {"double", "mixed", "single"}
        "double" is float64 throughout. "mixed" makes the gradient of stage 1
        and predictions in float32 wherever its rounding does not show, for up
        to half the time. "single" makes the sums of stage 1 in float32 too:
        for very many rows, whose roundings cancel, and for GPUs. Sums of
        blocks, factorisations and learned weights are always in float64.
    memory_limit : int, str or None
        How much memory features of the rows may take from one pass over them
        to the next, in bytes or as text such as "1GB"; those beyond it are
        computed again. None is 64 MiB. Memory beyond the data is this and a
        few blocks of rows. Rows of files have half of it, to stay in memory
        if they fit.
    device : str or None
        Where NumPy's rows are computed with: None is the CPU, "cuda" a GPU,
        through PyTorch. Arrays of PyTorch or CuPy are used where they are,
        with scikit-learn's `array_api_dispatch`. Up to 5,000 rows always use
        the CPU, which is faster for so few.
    batch_size : int
        Rows in a batch of stochastic optimisation.
    forgetting : float
        What the rows before a call of `partial_fit` count for after it, beside
        new ones: 1 for ever the same, less for data that drift. Stochastic
        optimisation neither forgets nor has a checkpoint.
    checkpoint : path or None
        A file in which every evaluation is kept while the fit runs. If it is
        killed, the same call goes on where it was and ends at the same
        optimum. The file is removed when the fit has ended.
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
    selection_ : dict
        With the local residual: what each kind of noise (`noise="varying"`)
        reached, and each kernel (`kernel="auto"`) on how many rows, of which
        the best two went on. Smaller is better.

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

    _posterior: Posterior | LocalPosterior
    _local: LocalFit
    _best: EigenGP | None
    _online: Online | None
    _stream: Stream

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **InducingRegressor._parameter_constraints,
        "n_inducing": [Interval(Integral, 1, None, closed="left"), None],
        "optimization": [StrOptions({"sequential", "joint", "direct", "stochastic"})],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "forgetting": [Interval(Real, 0, 1, closed="right")],
        "kernel": [Kernel, StrOptions({"exact", "auto"}), None],
        "residual": [StrOptions({"diagonal", "local"}), None],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "noise": [StrOptions({"constant", "varying"})],
        "guard": ["boolean"],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_inducing: int | None = None,
        kernel: Kernel | Literal["exact", "auto"] | None = None,
        noise_variance: float | None = None,
        optimization: Literal["sequential", "joint", "direct", "stochastic"] = "sequential",
        residual: Literal["diagonal", "local"] | None = None,
        n_neighbors: int = 32,
        noise: Literal["constant", "varying"] = "constant",
        init: Literal["kmeans", "random", "greedy"] | ArrayLike = "kmeans",
        n_restarts: int | None = None,
        max_iter: int | None = None,
        tol: float = 1e-9,
        standardize: bool = True,
        guard: bool = True,
        batch_size: int = 1000,
        forgetting: float = 1.0,
        precision: Literal["double", "mixed", "single"] = "double",
        memory_limit: int | str | None = None,
        device: str | None = None,
        checkpoint: str | Path | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | int = False,
    ) -> None:
        super().__init__(
            n_components,
            kernel=kernel,
            noise_variance=noise_variance,
            init=init,
            n_restarts=n_restarts,
            max_iter=max_iter,
            tol=tol,
            standardize=standardize,
            precision=precision,
            memory_limit=memory_limit,
            device=device,
            checkpoint=checkpoint,
            random_state=random_state,
            verbose=verbose,
        )
        self.n_inducing = n_inducing
        self.optimization = optimization
        self.residual = residual
        self.n_neighbors = n_neighbors
        self.noise = noise
        self.guard = guard
        self.batch_size = batch_size
        self.forgetting = forgetting

    @property
    def _is_local(self) -> bool:
        return self.residual == "local"

    @property
    def _learns_on_host(self) -> bool:
        return self._is_local

    @property
    def _predicts_on_host(self) -> bool:
        return isinstance(self._posterior, LocalPosterior)

    @property
    def _draws_jointly(self) -> bool:
        return isinstance(getattr(self, "_posterior", None), LocalPosterior)

    @property
    def _power(self) -> float | None:
        return 1.0 if self.residual == "diagonal" else None

    def _plan(self, training: Training, points: Array | None) -> Plan:
        plan = super()._plan(training, points)
        if self.optimization == "stochastic":
            return replace(plan, max_iter=0 if self.max_iter == 0 else FIRST_ITERATIONS)
        n_rows, M = training.rows.n_rows, plan.n_inducing
        if self._is_local:
            if plan.n_components < M:
                raise ValueError(
                    f"residual='local' keeps all eigenfunctions: n_components="
                    f"{plan.n_components} of {M} basis points are not to be had."
                )
            return self._first_plan(plan, n_rows)
        scarce = n_rows < _SCARCE_ROWS_PER_POINT * M
        return replace(
            plan,
            optimization=self.optimization,
            gamma=min(1.0, GUARD_STRENGTH * M / n_rows) if self.guard else 0.0,
            grow=bool(self.guard and scarce and points is None and self.n_inducing is None),
            hold_out=bool(self.guard and n_rows >= _HOLD_OUT_FROM),
        )

    def _first_plan(self, plan: Plan, n_rows: int) -> Plan:
        """Return the settings of stage 1 before the local residual: a short one."""
        return replace(
            plan,
            max_iter=min(plan.max_iter, _FIRST_STEPS),
            n_restarts=plan.n_restarts if is_small(n_rows, plan.n_inducing) else 1,
            settled=True,
            gamma=min(1.0, GUARD_STRENGTH * plan.n_inducing / n_rows) if self.guard else 0.0,
        )

    def _sizes(self, default: int, given: int | None) -> tuple[int, int]:
        default = given or default
        R = self.n_components or min(self.n_inducing or default, default)
        M = self.n_inducing or given or R
        if R > M:
            raise ValueError(
                f"n_components={R} eigenfunctions cannot be made of n_inducing={M} basis points; "
                "use at least as many basis points as eigenfunctions."
            )
        if given not in (None, M):
            raise ValueError(f"init holds {given} basis points but n_inducing is {M}.")
        return R, M

    def _keep(
        self,
        model: EigenGP,
        training: Training,
        outcome: Any = None,
        online: Online | None = None,
    ) -> None:
        outcome = outcome or model.forward(training.source)
        self.__dict__.pop("selection_", None)
        super()._keep(model, training, outcome)
        self._training = training.on(RowBlock.empty())
        if self.optimization != "stochastic" and online is None and not self._is_local:
            online = Online.of(model, outcome, training.source)
        self._online = online
        self._spectrum = model.spectrum
        weights = model.spectrum.weights(model.effective_shrinkage) * training.unit
        eigenvalues = model.spectrum.values[: model.n_components] * training.unit
        self.weights_ = training.like_given(weights)
        self.eigenvalues_ = training.like_given(eigenvalues)

    def _learn(self, training: Training) -> EigenGP:
        self._check_local()
        if self._is_local:
            return self._learn_locally(training)
        if self.optimization != "stochastic":
            return super()._learn(training)
        R, M = self._sizes(default_size(training.rows.n_rows), None)
        if R < M or self.residual:
            raise ValueError(
                "optimization='stochastic' keeps all eigenfunctions and knows no residual: leave "
                "n_inducing and residual at None, or choose another optimization."
            )
        count = max(self.batch_size, _FIRST_ROWS_PER_POINT * M)
        self._stream = Stream.begin(training, count, super()._learn)
        passes = 1 if self.max_iter is None else self.max_iter
        with at_work(M):
            return self._stream.over(training.rows, self.batch_size, passes)

    def _check_local(self) -> None:
        """Say which settings do not go together."""
        if self._is_local and self.optimization != "sequential":
            raise ValueError(
                f"residual='local' has an optimization of its own, not {self.optimization!r}; "
                "leave optimization at 'sequential'."
            )
        for name, value in (("kernel", "auto"), ("noise", "varying")):
            asked = getattr(self, name)
            if not self._is_local and isinstance(asked, str) and asked == value:
                raise ValueError(f"{name}={value!r} needs residual='local'.")

    def _start(self, training: Training) -> ExactGP:
        if self.kernel != "auto":
            return super()._start(training)
        start = training.start(None, self.noise_variance)
        if self.max_iter == 0:
            return start
        jitter = Jitter(relative=RELATIVE_JITTER)
        template = EigenGP(start.kernel, _NONE, start.noise_variance, 0, jitter=jitter)
        best = self._local.best_kernel(template)
        self._best = best
        first, kind = start.kernel, type(best.kernel)
        assert isinstance(first, Stationary)
        assert issubclass(kind, Stationary)
        return replace(start, kernel=kind(first.lengthscale))

    def _learn_locally(self, training: Training) -> EigenGP:
        """Learn stage 1, then everything by the local evidence."""
        self._local, self._best = LocalFit(training, self.n_neighbors, self.max_iter), None
        return self._local.learned(super()._learn(training), self._best)

    def _condition(self, model: EigenGP, outcome: Outcome, training: Training) -> Predictive:
        if not self._is_local:
            return super()._condition(model, outcome, training)
        assert isinstance(outcome, LocalOutcome)
        with at_work(model.inducing_inputs.shape[0]):
            posterior = self._local.posterior(outcome, self.noise == "varying")
        self.selection_ = self._local.selection
        del self._local, self._best
        return posterior

    # scikit-learn ships no types.
    @available_if(_keeps_no_rows)  # type: ignore[untyped-decorator]
    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn from more rows; the first call is `fit`.

        Eigenfunctions stay as they are, and the posterior of their weights is
        updated exactly: it is that of all rows so far, which need not be
        kept. The weights' prior variances and the noise are learned again,
        unless `max_iter` is 0 or there is a residual. With
        `optimization="stochastic"` eigenfunctions are learned on too; the
        posterior is then that of a sample of at most 10,000 of all rows.

        Parameters
        ----------
        X : array of shape (n, D)
            Inputs.
        y : array of shape (n,)
            Targets.
        sample_weight : array of shape (n,) or None
            How many times each row counts.

        Returns
        -------
        self : object
            The regressor.
        """
        if is_table(X) or is_dask(X):
            raise TypeError("partial_fit takes arrays; fit reads files and Dask collections.")
        if not self.__sklearn_is_fitted__():
            self.fit(X, y, sample_weight)
            return self
        rows = further_rows(self, X, y, sample_weight)
        with at_work(self.inducing_inputs_.shape[0]):
            if self.optimization == "stochastic":
                self._follow(rows)
            else:
                self._add(rows)
        return self

    def _follow(self, rows: RowBlock) -> None:
        """Learn everything from more rows, and condition on those that are kept."""
        model = self._stream.absorb(rows, self.batch_size, learn=self.max_iter != 0)
        kept = self._stream.kept
        weight = float(np.sum(kept.weight))
        self._keep(model, self._training.on(kept).counting(weight))

    def _add(self, rows: RowBlock) -> None:
        """Add more rows to the sums, and learn noise and weights again."""
        if self._online is None:
            raise ValueError(
                "partial_fit cannot go on from a fit with residual='local'; call fit again."
            )
        more = ArraySource.of(rows, self._online.sums.b.size)
        online = self._online.after(more, self.forgetting)
        if self.max_iter != 0:
            online = online.refreshed()
        training = self._training.counting(online.sums.n)
        self._keep(online.model, training, online.outcome, online)

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
        lam, U = self._spectrum.values, self._spectrum.vectors
        R = self.weights_.shape[0]
        combination = Placed(np.sqrt(lam.size) * U[:, :R] / lam[:R])
        features = self._posterior.features

        def values(inputs: AnyArray) -> AnyArray:
            K = features.matrix(inputs)
            return K @ combination.beside(K)

        return self._by_blocks(values, X)
