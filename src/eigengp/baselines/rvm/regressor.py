"""The relevance vector machine as a scikit-learn regressor."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from eigengp._typing import Standardize
from eigengp.baselines.rvm.learning import Relevance, learn_relevance
from eigengp.baselines.rvm.width import N_WIDTHS, WidthChoice, choose_width, with_width
from eigengp.data.views import sample_rows
from eigengp.estimators.base import GPRegressor
from eigengp.fitting.initialization import lengthscale_range
from eigengp.fitting.training import Training
from eigengp.gp.blocks import RowSource
from eigengp.gp.features import KernelFeatures
from eigengp.gp.posterior import Posterior
from eigengp.kernels import SquaredExponential, Stationary

_ITERATIONS = 5_000
_CV_ROWS = 2_000


@dataclass(frozen=True)
class _Machine:
    """A learned machine as the model that the frame of a fit expects."""

    kernel: Stationary
    relevance: Relevance
    choice: WidthChoice | None

    @property
    def noise_variance(self) -> float:
        return self.relevance.noise_variance

    @property
    def value(self) -> float:
        return self.relevance.evidence.negative_log

    def forward(self, source: RowSource) -> _Machine:
        """Return the machine itself, which was learned on these rows."""
        return self

    def posterior(self, outcome: _Machine) -> Posterior:
        evidence = self.relevance.evidence
        features = KernelFeatures(self.kernel, self.relevance.inputs)
        return Posterior(features, evidence.mean, evidence.V, self.noise_variance)


class RVMRegressor(GPRegressor):
    """Relevance vector machine (Tipping, 2001) by the fast sequential algorithm.

    The function is a sum of kernels centred on training rows, each with a
    prior variance of its own; the evidence sets most of them to zero. Basis
    functions are added, re-estimated and deleted one at a time (Tipping and
    Faul, 2003), several at a time when there are many. All inputs share one
    lengthscale, chosen by cross-validation. Memory grows as N times the number
    of basis functions, not as N². Error bars shrink to the noise far from the
    data.

    Parameters
    ----------
    lengthscale : "cv" or float
        "cv" tries 16 lengthscales by cross-validated squared error, on 2,000
        rows if there are more, and takes the one of largest evidence among
        those within a standard error of the best. A number is taken as it
        is. It is in standard deviations of each input with `standardize`
        (robust ones with "robust"), in the units of the data without.
    kernel : Stationary or None
        The kind of basis function; its lengthscale and variance are
        replaced. None is the squared exponential.
    n_folds : int
        How many folds.
    n_jobs : int or None
        How many processes cross-validate at once; −1 is all cores.
    max_iter : int or None
        At most so many iterations, each of which adds basis functions or
        polishes those there are; None is 5,000.
    tol : float
        The gain in log evidence per row that is worth another step.
    standardize, random_state, verbose
        As in `EigenGPRegressor`.

    Attributes
    ----------
    relevance_vectors_ : array of shape (M, D)
        The rows that basis functions are centred on.
    precisions_ : array of shape (M,)
        The prior precision of each weight.
    lengthscale_ : float
        The lengthscale, in the units of the parameter.
    cv_lengthscales_, cv_errors_ : arrays of shape (16,) or None
        What was tried, and its mean squared error in the units of the data.
    kernel_, noise_variance_, log_marginal_likelihood_, history_, n_iter_, target_mean_
        As in `EigenGPRegressor`; the kernel has variance one.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import RVMRegressor
    >>> X = np.linspace(0, 6, 120)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=120)
    >>> model = RVMRegressor(lengthscale=0.6).fit(X, y)
    >>> model.relevance_vectors_.shape[0] < 15
    True
    >>> bool(abs(model.predict([[2.0]])[0] - np.sin(2.0)) < 0.1)
    True
    """

    _learns_on_host = True
    _predicts_on_host = True

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "lengthscale": [StrOptions({"cv"}), Interval(Real, 0, None, closed="neither")],
        "kernel": [Stationary, None],
        "n_folds": [Interval(Integral, 2, None, closed="left")],
        "n_jobs": [Integral, None],
        **{
            name: GPRegressor._parameter_constraints[name]
            for name in ("max_iter", "tol", "standardize", "random_state", "verbose")
        },
    }

    def __init__(
        self,
        *,
        lengthscale: Literal["cv"] | float = "cv",
        kernel: Stationary | None = None,
        n_folds: int = 10,
        n_jobs: int | None = -1,
        max_iter: int | None = None,
        tol: float = 1e-8,
        standardize: Standardize = True,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | int = False,
    ) -> None:
        self.lengthscale = lengthscale
        self.kernel = kernel
        self.n_folds = n_folds
        self.n_jobs = n_jobs
        self.max_iter = max_iter
        self.tol = tol
        self.standardize = standardize
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, training: Training) -> _Machine:
        n_features, monitor = training.rows.n_features, training.monitor
        kind = SquaredExponential() if self.kernel is None else self.kernel
        choice = self._choose(kind, training)
        if choice:
            length = choice.best
        elif isinstance(self.lengthscale, str):
            length = float(np.sqrt(np.prod(lengthscale_range(n_features))))
        else:
            length = float(self.lengthscale) / self._unit(training)
        kernel = with_width(kind, length, n_features)
        max_iter = _ITERATIONS if self.max_iter is None else self.max_iter
        monitor.begin("RVM", max_iter)
        relevance = learn_relevance(training.source, kernel, max_iter, self.tol, monitor.step)
        monitor.end()
        training.n_iter = relevance.n_iter
        if not relevance.converged:
            training.notes.append(
                f"The relevance vector machine has not converged in {max_iter} iterations; raise "
                "max_iter, or tol if the evidence is good enough."
            )
        return _Machine(kernel, relevance, choice)

    def _choose(self, kind: Stationary, training: Training) -> WidthChoice | None:
        """Return the choice of a width, None where there is none to be made."""
        n_rows, monitor = training.rows.n_rows, training.monitor
        if n_rows < 2 or not isinstance(self.lengthscale, str):
            return None
        rows = sample_rows(training.source, _CV_ROWS, training.rng)
        monitor.begin("width", N_WIDTHS * min(self.n_folds, rows.y.size))
        choice = choose_width(kind, rows, self.n_folds, self.n_jobs, training.rng, monitor.step)
        monitor.end()
        return choice

    def _unit(self, training: Training) -> float:
        """Return what the parameter's unit of length is in standardised ones."""
        return 1.0 if self.standardize else float(training.scaling.input_scale[0])

    def _keep(self, model: _Machine, training: Training, outcome: Any = None) -> None:
        super()._keep(model, training, outcome)
        scaling, unit, choice = training.scaling, self._unit(training), model.choice
        self.kernel_ = model.kernel.rescaled(scaling.input_scale, 1.0)
        vectors = training.rows.take(model.relevance.indices).X
        self.relevance_vectors_ = training.like_given(vectors)
        self.precisions_ = training.like_given(model.relevance.precisions / training.unit)
        self.lengthscale_ = float(np.atleast_1d(model.kernel.lengthscale)[0]) * unit
        tried = (choice.lengthscales * unit, choice.errors * training.unit) if choice else None
        self.cv_lengthscales_ = training.like_given(tried[0]) if tried else None
        self.cv_errors_ = training.like_given(tried[1]) if tried else None
