"""The relevance vector machine as a scikit-learn regressor, and the choice of its lengthscale.

The cross-validated error is a noisy and often flat function of the lengthscale. Lengthscales within
one standard error of the best are considered equal (Breiman et al., 1984), and the log marginal
likelihood decides among them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
from joblib import Parallel, delayed
from sklearn.model_selection import KFold
from sklearn.utils._param_validation import Interval, StrOptions

from eigengp._typing import Array
from eigengp.backend.namespace import beside
from eigengp.baselines.rvm.learning import learn_relevance
from eigengp.baselines.rvm.relevance import Indices
from eigengp.data.array_source import ArraySource
from eigengp.data.holdout import sample_rows
from eigengp.estimators.base import KERNEL_NAMES, GPRegressor
from eigengp.fitting.model_selection import Decision
from eigengp.fitting.run import FitResult, Run
from eigengp.gp.blocks import RowBlock
from eigengp.gp.linalg import FactorizationError
from eigengp.kernels import KERNELS, Stationary
from eigengp.kernels.base import get_lengthscale_range

N_WIDTHS = 16  # The number of candidate lengthscales.
_FEW_ROWS = 100
_FOLD_ITERATIONS = 300
_FOLD_TOL = 1e-4
_ITERATIONS = 5_000
_CV_ROWS = 1_000


@dataclass(frozen=True)
class WidthChoice:
    """The candidate lengthscales and their cross-validated errors."""

    lengthscales: Array  # Shape (W,).
    errors: Array  # Mean squared errors, shape (W,); infinite if learning failed.
    standard_errors: Array  # Standard errors of the mean squared errors, shape (W,).
    # Log marginal likelihood of the training rows, summed over the folds, shape (W,).
    evidences: Array

    @property
    def best(self) -> float:
        """The lengthscale of largest log marginal likelihood among those of least error."""
        least = np.argmin(self.errors)
        equal = self.errors <= self.errors[least] + self.standard_errors[least]
        return float(self.lengthscales[np.argmax(np.where(equal, self.evidences, -np.inf))])


def with_width(kernel: Stationary, lengthscale: float, n_features: int) -> Stationary:
    """Return the kernel with variance one and the same lengthscale for all inputs."""
    unit = kernel.with_ard(n_features)
    return replace(unit, lengthscale=np.full(n_features, lengthscale), variance=1.0)


def choose_width(
    kernel: Stationary,
    rows: RowBlock,
    n_folds: int,
    n_jobs: int | None,
    rng: np.random.RandomState,
    tick: Callable[[float], object],
) -> WidthChoice:
    """Cross-validate lengthscales over the plausible range of standardised inputs.

    Parameters
    ----------
    kernel : Stationary
        Its lengthscale is replaced.
    rows : RowBlock
        Standardised rows.
    n_folds : int
        The number of folds.
    n_jobs : int or None
        The number of processes, as in scikit-learn; one is used if there are few rows.
    rng : RandomState
        Shuffles the rows.
    tick : callable
        Called with `−ln p(y)` per row after each of the `N_WIDTHS · n_folds` short fits.
    """
    n_rows, n_features = rows.X.shape
    low, high = get_lengthscale_range(n_features)
    lengthscales = np.geomspace(low, high, N_WIDTHS)
    parts = list(KFold(min(n_folds, n_rows), shuffle=True, random_state=rng).split(rows.X))
    work = (
        delayed(_score_fold)(with_width(kernel, length, n_features), rows, train, test)
        for length in lengthscales
        for train, test in parts
    )
    parallel = Parallel(1 if n_rows <= _FEW_ROWS else n_jobs, return_as="generator")
    squared, evidences = np.empty((N_WIDTHS, n_rows)), np.zeros(N_WIDTHS)
    for k, (errors, evidence) in enumerate(parallel(work)):
        width, part = divmod(k, len(parts))
        squared[width, parts[part][1]] = errors
        evidences[width] += evidence
        tick(-evidence / parts[part][0].size)
    weight = rows.weight
    errors = squared @ weight / weight.sum()
    learned = np.isfinite(errors)
    apart = np.where(learned[:, None], squared, 0.0) - np.where(learned, errors, 0.0)[:, None]
    variance = apart**2 @ weight / weight.sum()
    return WidthChoice(lengthscales, errors, np.sqrt(variance / weight.sum()), evidences)


def _score_fold(
    kernel: Stationary, rows: RowBlock, train: Indices, test: Indices
) -> tuple[Array, float]:
    """Return the squared errors of the test rows, and the log marginal likelihood of the others."""
    source = ArraySource(rows.X[train], rows.y[train], rows.weight[train], n_threads=1)
    try:
        learned = learn_relevance(source, kernel, _FOLD_ITERATIONS, _FOLD_TOL)
    except FactorizationError:
        return np.full(test.size, np.inf), -np.inf
    mean = kernel.matrix(rows.X[test], learned.inputs) @ learned.evidence.mean
    return (rows.y[test] - mean) ** 2, -learned.evidence.negative_log


class RVMRegressor(GPRegressor):
    """Relevance vector machine (Tipping, 2001) by the fast sequential algorithm.

    The function is a sum of kernels centred on training rows, each with its own prior variance;
    maximising the log marginal likelihood sets most of them to zero. Basis functions are added,
    re-estimated and deleted one at a time (Tipping and Faul, 2003), or several at a time if there
    are many. All inputs share one lengthscale, chosen by cross-validation. Memory grows as N times
    the number of basis functions, not as N². Error bars shrink to the noise far from the data.

    Parameters
    ----------
    lengthscale : "cv" or float
        "cv" compares 16 lengthscales by cross-validated squared error, on at most 1,000 rows, and
        chooses the one of largest log marginal likelihood among those within a standard error of
        the best. A number is in standard deviations of each input with `standardize` (robust ones
        with "robust"), in the units of the data without.
    kernel : Stationary or str
        The kind of basis function; its lengthscale and variance are replaced.
    n_folds : int
        The number of folds.
    n_jobs : int or None
        The number of parallel processes of the cross-validation; −1 uses all cores.
    max_iter : int or "auto"
        The largest number of iterations; each adds or improves basis functions. "auto" is 5,000.
    tol : float
        The gain in log marginal likelihood per row below which learning stops.
    standardize, random_state, verbose
        As in `EigenGPRegressor`.

    Attributes
    ----------
    relevance_vectors_ : array of shape (M, D)
        The centres of the basis functions.
    precisions_ : array of shape (M,)
        The prior precision of each weight.
    lengthscale_ : float
        The lengthscale, in the units of the parameter.
    cv_lengthscales_, cv_errors_ : arrays of shape (16,) or None
        The candidate lengthscales, and their mean squared errors in the units of the data.
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

    _learns_in_memory = True

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "lengthscale": [StrOptions({"cv"}), Interval(Real, 0, None, closed="neither")],
        "kernel": [Stationary, KERNEL_NAMES],
        "n_folds": [Interval(Integral, 2, None, closed="left")],
        "n_jobs": [Integral, None],
        "max_iter": [Interval(Integral, 0, None, closed="left"), StrOptions({"auto"})],
        "tol": [Interval(Real, 0, None, closed="left")],
    }

    lengthscale: Literal["cv"] | float = "cv"
    n_folds: int = 10
    n_jobs: int | None = -1
    max_iter: int | Literal["auto"] = "auto"
    tol: float = 1e-8

    def _learn(self, run: Run) -> FitResult:
        own, dataset = self.kernel, run.dataset
        kind = KERNELS[own]() if isinstance(own, str) else own
        if not isinstance(kind, Stationary):
            raise ValueError(f"RVMRegressor needs a stationary kernel, got {own!r}.")
        unit = 1.0 if self.standardize else float(dataset.scaling.input_scale[0])
        choice = self._choose(kind, run, unit)
        if choice:
            length = choice.best
        elif isinstance(self.lengthscale, str):
            length = float(np.sqrt(np.prod(get_lengthscale_range(dataset.n_features))))
        else:
            length = float(self.lengthscale) / unit
        kernel = with_width(kind, length, dataset.n_features)
        max_iter = _ITERATIONS if isinstance(self.max_iter, str) else self.max_iter
        with run.monitor.stage("RVM", max_iter):
            machine = learn_relevance(run.source, kernel, max_iter, self.tol, run.monitor.step)
        run.n_iter = machine.n_iter
        if not machine.converged:
            run.notes.append(
                f"The relevance vector machine has not converged in {max_iter} iterations; raise "
                "max_iter, or tol if the log marginal likelihood is good enough."
            )
        scaling, like = dataset.scaling, partial(beside, other=dataset.like)
        squared = scaling.target_scale**2
        return run.make_result(
            machine,
            machine.evidence.negative_log,
            machine.posterior(),
            kernel_=scaling.restore_kernel(kernel, 1.0),
            relevance_vectors_=like(dataset.rows.take(machine.indices).X),
            precisions_=like(machine.precisions / squared),
            lengthscale_=length * unit,
            cv_lengthscales_=like(choice.lengthscales * unit) if choice else None,
            cv_errors_=like(choice.errors * squared) if choice else None,
        )

    def _choose(self, kind: Stationary, run: Run, unit: float) -> WidthChoice | None:
        """Choose the lengthscale by cross-validation; None if it is given."""
        if run.dataset.n_rows < 2 or not isinstance(self.lengthscale, str):
            return None
        rows = sample_rows(run.source, _CV_ROWS, run.rng)
        with run.monitor.stage("width", N_WIDTHS * min(self.n_folds, rows.y.size)):
            choice = choose_width(kind, rows, self.n_folds, self.n_jobs, run.rng, run.monitor.step)
        pairs = zip(choice.lengthscales.tolist(), choice.errors.tolist(), strict=True)
        scores = {f"{length * unit:.3g}": error for length, error in pairs}
        reason = "largest log marginal likelihood within a standard error of the best"
        run.decisions.append(Decision("lengthscale", f"{choice.best * unit:.3g}", reason, scores))
        return choice
