"""A quasi-Newton optimiser that returns the best point of all evaluations."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy import optimize

from eigengp._typing import Array
from eigengp.gp.linalg import FactorizationError, JitterWarning

_MEMORY = 20
_REJECTED = 1e3
_ATTEMPTS = 4
_WORTH_GOING_ON = 1e-6


class Evaluation(NamedTuple):
    """One evaluation of an objective; all per row."""

    value: float
    """The minimised value."""
    gradient: Array
    evidence: float
    """`−ln p(y)`, without the guard against over-fitting."""


class Objective(Protocol):
    """A function of a vector, with bounds and a gradient."""

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Lower and upper bound of each entry."""

    def __call__(self, vector: Array) -> Evaluation:
        """Evaluate."""


@dataclass(frozen=True)
class Minimum:
    """The result of an optimisation."""

    vector: Array
    value: float
    evidence: float
    n_iter: int


@dataclass
class _Best:
    """An objective that keeps its best point and rejects points that cannot be factorised."""

    objective: Objective
    vector: Array
    value: float = np.inf
    evidence: float = np.inf

    def __call__(self, vector: Array) -> tuple[float, Array]:
        try:
            value, gradient, evidence = self.objective(vector)
            if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
                raise FactorizationError("The log marginal likelihood is not finite.")
        except FactorizationError:
            if not np.isfinite(self.value):
                raise
            return self.value + _REJECTED, np.zeros_like(vector)
        if value < self.value:
            self.vector, self.value, self.evidence = vector.copy(), value, evidence
        return value, gradient


def minimize(
    objective: Objective,
    start: Array,
    max_iter: int,
    tol: float = 1e-9,
    on_iteration: Callable[[float], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Minimum:
    """Minimise by L-BFGS-B, stepping back from points that cannot be factorised.

    A line search can fail early where eigenvalues cross. L-BFGS-B is then restarted with an empty
    memory while that still improves the value.

    Parameters
    ----------
    objective : Objective
        The function to minimise; of order one, like `−ln p(y)` per row.
    start : array of shape (p,)
        The starting point.
    max_iter : int
        The largest number of iterations.
    tol : float
        Relative decrease of the value at which to stop.
    on_iteration : callable or None
        Called with `−ln p(y)` per row at the best point after each iteration.
    stop : callable or None
        Returns after each iteration whether to stop.

    Raises
    ------
    FactorizationError
        If the starting point cannot be evaluated.
    """
    low, high = objective.bounds
    best = _Best(objective, np.clip(start, low, high))
    stopped = False

    def report(_: Array) -> None:
        nonlocal stopped
        if on_iteration:
            on_iteration(best.evidence)
        stopped = stop is not None and stop()
        if stopped:
            raise StopIteration

    n_iter = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JitterWarning)
        best(best.vector)
        for _ in range(_ATTEMPTS):
            before, remaining = best.value, max_iter - n_iter
            if remaining < 1:
                break
            found = optimize.minimize(
                best,
                best.vector,
                jac=True,
                method="L-BFGS-B",
                bounds=np.column_stack([low, high]),
                callback=report,
                options={"maxiter": remaining, "maxcor": _MEMORY, "ftol": tol, "gtol": 1e-7},
            )
            n_iter += int(found.nit)
            if stopped or before - best.value <= _WORTH_GOING_ON * max(1.0, abs(best.value)):
                break
    return Minimum(best.vector, best.value, best.evidence, n_iter)
