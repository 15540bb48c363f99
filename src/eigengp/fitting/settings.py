"""What the user asked for, resolved against the data."""

from __future__ import annotations

from dataclasses import dataclass, field

from eigengp.gp.precision import Arithmetic

_SMALL_PROBLEM = 1e7
_DEFAULT_COMPONENTS = 100
RELATIVE_JITTER = 1e-6


def is_small(n_rows: int, n_inducing: int) -> bool:
    """Say whether a problem is cheap enough to be searched as it is, by N·M²."""
    return n_rows * n_inducing**2 <= _SMALL_PROBLEM


def default_iterations(n_rows: int, n_inducing: int) -> int:
    """Return how many iterations a stage may take: to convergence where that is cheap."""
    return 1000 if is_small(n_rows, n_inducing) else 200


def default_restarts(n_rows: int, n_inducing: int) -> int:
    """Return how many starts are screened: few where the kernel alone is settled by it."""
    return 32 if is_small(n_rows, n_inducing) else 4


def default_size(n_rows: int) -> int:
    """Return how many components a method has unless told: 100, or a quarter of few rows."""
    return max(1, min(_DEFAULT_COMPONENTS, n_rows // 4))


@dataclass(frozen=True)
class Plan:
    """The settings of one fit.

    Parameters
    ----------
    n_components, n_inducing : int
        R and M; both are the number of features, or of rows, where there are no basis points.
    n_restarts : int
        How many starts are screened.
    max_iter : int
        At most so many iterations in each stage.
    tol : float
        Relative change at which a stage stops.
    optimization : {"prior", "sequential", "joint", "direct"}
        Stage 1 alone; stages 1 and 2; those and then everything free; or
        everything free at once.
    settled : bool
        Whether the kernel to start from is known to be good, so that large
        data need not be screened for one.
    gamma : float
        The share of the trace term while basis points are learned.
    grow : bool
        Whether the basis may end smaller than asked for, where rows are scarce.
    hold_out : bool
        Whether learned weights must prove themselves on held-out rows.
    arithmetic : Arithmetic
        How passes over all rows are computed; those over a part are in float64.
    """

    n_components: int
    n_inducing: int
    n_restarts: int
    max_iter: int
    tol: float
    optimization: str = "prior"
    settled: bool = False
    gamma: float = 0.0
    grow: bool = False
    hold_out: bool = False
    arithmetic: Arithmetic = field(default_factory=Arithmetic)

    @property
    def begins_at_once(self) -> bool:
        """Whether one start with a known kernel leaves nothing to search for."""
        return self.settled and self.n_restarts == 1 and not self.grow
