"""Cross-validation of the lengthscale (width) of a relevance vector machine.

The cross-validated error is a noisy and often flat function of the width. Widths within one
standard error of the best are considered equal (Breiman et al., 1984), and the log marginal
likelihood decides among them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from joblib import Parallel, delayed
from sklearn.model_selection import KFold

from eigengp._typing import Array
from eigengp.baselines.rvm.learning import learn_relevance
from eigengp.baselines.rvm.relevance import Indices
from eigengp.data.array_source import ArraySource
from eigengp.gp.blocks import RowBlock
from eigengp.gp.linalg import FactorizationError
from eigengp.kernels import Stationary
from eigengp.kernels.base import get_lengthscale_range

N_WIDTHS = 16
"""The number of candidate lengthscales."""
_FEW_ROWS = 100
_FOLD_ITERATIONS = 300
_FOLD_TOL = 1e-4


@dataclass(frozen=True)
class WidthChoice:
    """The candidate lengthscales and their cross-validated errors."""

    lengthscales: Array
    """Shape (W,)."""
    errors: Array
    """Mean squared errors, shape (W,); infinite if learning failed."""
    standard_errors: Array
    """Standard errors of the mean squared errors, shape (W,)."""
    evidences: Array
    """Log marginal likelihood of the training rows, summed over the folds, shape (W,)."""

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
