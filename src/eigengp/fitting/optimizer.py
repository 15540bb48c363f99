"""A quasi-Newton optimiser that returns the best point of all evaluations."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

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


Objective: TypeAlias = Callable[[Array], Evaluation]
"""A function of a vector, with its gradient."""


@dataclass(frozen=True)
class Minimum:
    """The result of an optimisation."""

    vector: Array
    value: float
    evidence: float
    n_iter: int


def minimize(
    objective: Objective,
    start: Array,
    bounds: tuple[Array, Array],
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
    bounds : pair of arrays of shape (p,)
        The lower and the upper bound of each entry.
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
    search = _Search(objective, Minimum(np.clip(start, *bounds), np.inf, np.inf, 0))

    def report(_: Array) -> None:
        if on_iteration:
            on_iteration(search.best.evidence)
        search.stopped = stop is not None and stop()
        if search.stopped:
            raise StopIteration

    n_iter = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JitterWarning)
        search.evaluate(search.best.vector)
        for _ in range(_ATTEMPTS):
            before, remaining = search.best.value, max_iter - n_iter
            if remaining < 1:
                break
            found = optimize.minimize(
                search.evaluate,
                search.best.vector,
                jac=True,
                method="L-BFGS-B",
                bounds=np.column_stack(bounds),
                callback=report,
                options={"maxiter": remaining, "maxcor": _MEMORY, "ftol": tol, "gtol": 1e-7},
            )
            n_iter += int(found.nit)
            gained = before - search.best.value
            if search.stopped or gained <= _WORTH_GOING_ON * max(1.0, abs(search.best.value)):
                break
    return replace(search.best, n_iter=n_iter)


@dataclass
class _Search:
    """An objective with its best point so far; points that cannot be factorised are rejected."""

    objective: Objective
    best: Minimum
    stopped: bool = False

    def evaluate(self, vector: Array) -> tuple[float, Array]:
        """Return value and gradient."""
        try:
            value, gradient, evidence = self.objective(vector)
            if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
                raise FactorizationError("The log marginal likelihood is not finite.")
        except FactorizationError:
            if not np.isfinite(self.best.value):
                raise
            return self.best.value + _REJECTED, np.zeros_like(vector)
        if value < self.best.value:
            self.best = Minimum(vector.copy(), value, evidence, 0)
        return value, gradient
