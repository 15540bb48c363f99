"""EigenGP, EigenGP* and EigenGP+ as a scikit-learn regressor."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import Interval, StrOptions

from eigengp._typing import Array, NeighborSearch, Standardize
from eigengp.backend.namespace import AnyArray, Placed
from eigengp.estimators.deciding import DecidingRegressor
from eigengp.fitting.online import Online
from eigengp.fitting.settings import Plan, default_size
from eigengp.fitting.streaming import FIRST_ITERATIONS
from eigengp.fitting.training import Training
from eigengp.fitting.vecchia_fit import first_plan, largest_size
from eigengp.gp.model import EigenGP
from eigengp.gp.prior import Spectrum
from eigengp.kernels import Kernel

GUARD_STRENGTH = 1.5
"""The guard's share of the trace term for one basis point per row (benchmarks/README.md)."""
_SCARCE_ROWS_PER_POINT = 10
_HOLD_OUT_FROM = 2_000


class EigenGPRegressor(DecidingRegressor):
    """Gaussian-process regression with a few learned eigenfunctions.

    The latent function is a Bayesian sum of R eigenfunctions of a GP prior,
    each a combination of kernels at M basis points. Basis points,
    lengthscales, signal, noise and the prior variance of each eigenfunction
    are learned by maximising the evidence, in O(N·M²) time.

    Parameters
    ----------
    n_components : int, "auto" or None
        R, how many eigenfunctions are kept. "auto", or None, takes 100, or a
        quarter of the rows if that is fewer. With the local residual it takes
        200, and twice as many for as long as rows that are held out are
        predicted clearly better, up to 400, or ten for each second of
        `max_time` and 800, and one for 25 rows; where the kernel is not chosen
        too, 400 for smooth ones and 200 for rough ones. With `guard`, and
        unless `n_inducing` is given, fewer are kept on small data (N·M² up to
        10⁷) with fewer than ten rows for each, if more did not earn their
        place.
    n_inducing : int or None
        M ≥ R, how many basis points they are made of; None takes as many.
    kernel : Kernel, "auto", "exact" or None
        The GP prior, in the units of the data; its parameters are where
        learning begins, and a single lengthscale becomes one for each input.
        "auto" is, with the local residual, the best of squared exponential,
        rational quadratic and Matérn 5/2, 3/2 and 1/2 on a part of the rows,
        else the squared exponential, which None is always; "exact" is the one
        that the full GP learns on a tenth of the rows (at least 500, at most
        2,000), with its noise, which on large data takes the place of the
        screening.
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
    residual : {"auto", None, "diagonal", "local"}
        None is the paper's EigenGP. "diagonal" adds the prior variance that
        the eigenfunctions leave out (EigenGP+): wide error bars far from the
        data. "local" lets it act between neighbours too: every prediction
        looks at the nearest rows as well, and everything is learned under
        that, in at most 25 iterations unless `max_iter` says otherwise. All
        rows and their features are then held in memory, in float64, and
        computed with on the CPU. "auto" is "local" for between 1,000 and
        100,000 rows in NumPy's arrays, unless they do better without when each
        is left out, and unless other settings ask for something else (another
        optimization, precision or device, basis points of your own,
        `guard=False`, `max_iter=0`, a first `partial_fit`); else it is None.
    n_neighbors : int
        How many rows a prediction looks at with the local residual.
    neighbor_search : {"auto", "exact", "approximate"}
        How those rows are found. "approximate" looks into the cells around
        a prediction only, which misses a few of the nearest and is much faster
        among very many rows with many inputs; it needs
        `pip install "eigengp[neighbors]"`. Below 16,384 rows the search is
        always exact. "auto" is "approximate" above 100,000 rows that a tree is
        slow to search, as it is with many inputs, if it is installed, else
        "exact".
    noise : {"auto", "constant", "varying"}
        "varying" learns how error bars vary with the input, from rows left
        out one by one; they stay as they are where that does not predict
        such rows clearly better, and for fewer than 100 rows.
        `predict_interval` then has the width that those rows called for.
        "auto" is "varying" where neighbours were considered, else "constant".
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
    max_time : float or None
        About how many seconds the fit may take. Learning ends in time for what
        must follow it; what cannot be shortened may still take longer, on very
        many rows, for example. The result then depends on the machine.
    tol : float
        Relative change of the evidence at which a stage stops.
    standardize : bool or "robust"
        Whether inputs are centred and scaled one by one, and targets
        centred. Without it inputs keep their geometry and the prior mean of
        the targets is zero. "robust" is for columns with heavy tails: inputs
        are centred at their medians and scaled by their interquartile ranges
        divided by 1.349 (by standard deviations where quartiles are equal),
        and what is more than three such units from the median is brought
        nearer by a logarithm. Quantiles are those of 10,000 rows, where there
        are more.
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
        computed again. None is 64 MiB. Memory beyond the data is this, a
        quarter of it for rows where they are that few, and a few blocks of
        rows. Rows of files have half of it, to stay in memory if they fit.
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
    inducing_points_ : array of shape (M, D)
        The learned basis points. This and all that follow are in the units
        of the data.
    kernel_ : Kernel
        The learned kernel. With `standardize="robust"` it holds between
        inputs in the middle of each column; in the tails, functions vary
        ever more slowly than its lengthscales say.
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
        What was chosen, and by what; smaller is better. "kernel": what each
        reached on how many rows, of which the best went on. "n_components":
        of rows held out, the mean of their negative log density and of what
        it would be with one variance for all. "residual" and
        "noise": negative log densities of rows left out, with neighbours and
        without, and with each kind of error bars. Only where there was a
        choice.
    leave_one_out_errors_ : array of shape (n,)
        With a varying noise: the errors of training rows that were left out,
        in units of their error bars, sorted.

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

    _spectrum: Spectrum

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **DecidingRegressor._parameter_constraints,
        "n_inducing": [Interval(Integral, 1, None, closed="left"), None],
        "optimization": [StrOptions({"sequential", "joint", "direct", "stochastic"})],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "forgetting": [Interval(Real, 0, 1, closed="right")],
        "n_components": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"}), None],
        "kernel": [Kernel, StrOptions({"exact", "auto"}), None],
        "residual": [StrOptions({"auto", "diagonal", "local"}), None],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "neighbor_search": [StrOptions({"auto", "exact", "approximate"})],
        "noise": [StrOptions({"auto", "constant", "varying"})],
        "guard": ["boolean"],
        "max_time": [Interval(Real, 0, None, closed="neither"), None],
    }

    def __init__(
        self,
        n_components: int | Literal["auto"] | None = "auto",
        *,
        n_inducing: int | None = None,
        kernel: Kernel | Literal["exact", "auto"] | None = "auto",
        noise_variance: float | None = None,
        optimization: Literal["sequential", "joint", "direct", "stochastic"] = "sequential",
        residual: Literal["auto", "diagonal", "local"] | None = "auto",
        n_neighbors: int = 64,
        neighbor_search: NeighborSearch = "auto",
        noise: Literal["auto", "constant", "varying"] = "auto",
        init: Literal["kmeans", "random", "greedy"] | ArrayLike = "kmeans",
        n_restarts: int | None = None,
        max_iter: int | None = None,
        max_time: float | None = None,
        tol: float = 1e-9,
        standardize: Standardize = True,
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
        self.neighbor_search = neighbor_search
        self.noise = noise
        self.guard = guard
        self.max_time = max_time
        self.batch_size = batch_size
        self.forgetting = forgetting

    @property
    def _power(self) -> float | None:
        return 1.0 if self._choices.residual == "diagonal" else None

    def _plan(self, training: Training, points: Array | None, kernel: Kernel) -> Plan:
        plan = super()._plan(training, points, kernel)
        if self.optimization == "stochastic":
            return replace(plan, max_iter=0 if self.max_iter == 0 else FIRST_ITERATIONS)
        n_rows, M = training.rows.n_rows, plan.n_inducing
        plan = replace(plan, gamma=min(1.0, GUARD_STRENGTH * M / n_rows) if self.guard else 0.0)
        if self._choices.residual == "local":
            return first_plan(plan, n_rows)
        scarce = n_rows < _SCARCE_ROWS_PER_POINT * M
        return replace(
            plan,
            optimization=self.optimization,
            grow=bool(self.guard and scarce and points is None and self.n_inducing is None),
            hold_out=bool(self.guard and n_rows >= _HOLD_OUT_FROM),
        )

    @property
    def _components(self) -> int | None:
        """R, where it was asked for."""
        return None if isinstance(self.n_components, str) else self.n_components

    def _default_size(self, n_rows: int, kernel: Kernel) -> int:
        if self._choices.residual != "local":
            return default_size(n_rows)
        asked = self._components or self.n_inducing or not isinstance(self.init, str)
        return largest_size(n_rows, self.max_time) if asked else self._local.size(kernel)

    def _sizes(self, default: int, given: int | None) -> tuple[int, int]:
        default = given or default
        R = self._components or min(self.n_inducing or default, default)
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
        super()._keep(model, training, outcome, online)
        self._spectrum = model.spectrum
        weights = model.spectrum.weights(model.effective_shrinkage) * training.unit
        eigenvalues = model.spectrum.values[: model.n_components] * training.unit
        self.weights_ = training.like_given(weights)
        self.eigenvalues_ = training.like_given(eigenvalues)

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
