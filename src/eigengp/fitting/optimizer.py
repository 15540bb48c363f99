"""A quasi-Newton optimiser that never loses the best point it has seen."""

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
    """What is minimised."""
    gradient: Array
    evidence: float
    """`−ln p(y)` alone, without what guards against over-fitting."""


class Objective(Protocol):
    """A function of a vector, with bounds and a gradient."""

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Lower and upper bound of each entry."""

    def __call__(self, vector: Array) -> Evaluation:
        """Evaluate."""


@dataclass(frozen=True)
class Minimum:
    """Where an optimisation ended."""

    vector: Array
    value: float
    evidence: float
    n_iter: int


@dataclass
class _Best:
    """An objective that keeps the best point it has seen, and rejects what cannot be factorised."""

    objective: Objective
    vector: Array
    value: float = np.inf
    evidence: float = np.inf

    def __call__(self, vector: Array) -> tuple[float, Array]:
        try:
            value, gradient, evidence = self.objective(vector)
            if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
                raise FactorizationError("The evidence is not finite at these hyperparameters.")
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

    A line search that gives up early, as it may where eigenvalues cross, is
    followed by another attempt with a fresh memory while that still pays.

    Parameters
    ----------
    objective : Objective
        What to minimise; of order one, as the negative evidence per row is.
    start : array of shape (p,)
        Where to begin; its own value must exist.
    max_iter : int
        At most so many iterations.
    tol : float
        Relative decrease of the value at which to stop.
    on_iteration : callable or None
        Told the evidence at the best point after each iteration.
    stop : callable or None
        Asked after each iteration whether to end here.

    Raises
    ------
    FactorizationError
        If the starting point itself cannot be evaluated.
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
            before, left = best.value, max_iter - n_iter
            if left < 1:
                break
            found = optimize.minimize(
                best,
                best.vector,
                jac=True,
                method="L-BFGS-B",
                bounds=np.column_stack([low, high]),
                callback=report,
                options={"maxiter": left, "maxcor": _MEMORY, "ftol": tol, "gtol": 1e-7},
            )
            n_iter += int(found.nit)
            if stopped or before - best.value <= _WORTH_GOING_ON * max(1.0, abs(best.value)):
                break
    return Minimum(best.vector, best.value, best.evidence, n_iter)
