"""A plan for the rows of a fit: its settings, resolved against them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import on_host
from eigengp.data.open import Dataset
from eigengp.data.stream_source import StreamSource
from eigengp.fitting.run import Run
from eigengp.fitting.settings import Settings
from eigengp.gp.blocks import RowSource
from eigengp.gp.precision import Arithmetic
from eigengp.kernels import Kernel

RELATIVE_JITTER = 1e-6
"""The jitter of the kernel matrix at inducing points, relative to the prior variance."""
_SMALL_PROBLEM = 1e7
_DEFAULT_COMPONENTS = 100
_GUARD_STRENGTH = 1.5
"""The guard's share of the trace term for one inducing point per row (benchmarks/README.md)."""
_SCARCE_ROWS_PER_POINT = 10
_HOLD_OUT_FROM = 2_000
_MANY_ROWS = 500_000
_SAMPLE_ROWS = 2_000
"""The least number of rows among which distinct inputs are counted first."""


def is_small(n_rows: int, n_inducing: int) -> bool:
    """Return whether a problem is cheap enough to search as a whole, by N·M²."""
    return n_rows * n_inducing**2 <= _SMALL_PROBLEM


def _count_iterations(n_rows: int) -> int:
    """Return the number of iterations over all rows of a large problem.

    With many rows, iterations over subsets of up to a third of them leave little to learn.
    """
    if n_rows <= _MANY_ROWS:
        return 200
    return max(10, min(50, round(1e9 / n_rows)))


def get_default_size(n_rows: int) -> int:
    """Return the default number of components: 100, or a quarter of few rows."""
    return max(1, min(_DEFAULT_COMPONENTS, n_rows // 4))


@dataclass(frozen=True)
class Plan:
    """How one model is learned from rows of a known size.

    Parameters
    ----------
    n_components, n_inducing : int
        R and M; both are the number of features, or of rows, without inducing points.
    n_restarts : int
        The number of starts that are screened.
    max_iter : int
        The largest number of iterations in each stage.
    tol : float
        Relative change at which a stage stops.
    strategy : {"prior", "sequential", "joint", "direct"}
        Stage 1; stages 1 and 2; both and then all parameters jointly; all jointly from the start.
    settled : bool
        Whether the initial kernel needs no screening on large data.
    gamma : float
        The weight of the trace term while inducing points are learned.
    grow : bool
        Whether fewer inducing points may be used if there are few rows.
    hold_out : bool
        Whether learned weights must improve the predictions of a held-out set.
    groups : bool
        Whether rows with equal inputs are merged.
    arithmetic : Arithmetic
        The arithmetic of passes over all rows; those over a subset are in float64.
    """

    n_components: int
    n_inducing: int
    n_restarts: int
    max_iter: int
    tol: float
    strategy: str = "prior"
    settled: bool = False
    gamma: float = 0.0
    grow: bool = False
    hold_out: bool = False
    groups: bool = True
    arithmetic: Arithmetic = field(default_factory=Arithmetic)
    begins_at_once: bool = field(init=False)
    """Whether there is nothing to search for: one start with a settled kernel."""

    def __post_init__(self) -> None:
        at_once = self.settled and self.n_restarts == 1 and not self.grow
        object.__setattr__(self, "begins_at_once", at_once)

    @classmethod
    def of(
        cls,
        settings: Settings,
        dataset: Dataset,
        n_components: int,
        n_inducing: int | None = None,
        *,
        max_iter: int | None = None,
        n_restarts: int | None = None,
        tol: float = 1e-9,
    ) -> Plan:
        """Resolve the settings of a method; keywords override the general defaults."""
        own, M = settings.optimizer, n_inducing or n_components
        small = is_small(dataset.n_rows, M)
        defaults = {
            "n_restarts": n_restarts or (32 if small else 4),
            "max_iter": max_iter or (1000 if small else _count_iterations(dataset.n_rows)),
            "tol": tol,
        }
        given = {name: getattr(own, name, "auto") for name in defaults}
        resolved: dict[str, Any] = {
            name: defaults[name] if isinstance(value, str) else value
            for name, value in given.items()
        }
        if isinstance(settings.kernel, Kernel):
            settled = own.n_restarts == 1
        else:
            settled = settings.kernel == "auto" and own.n_restarts in ("auto", 1)
        settled = bool(settled or getattr(own, "exact_start", False))
        memory = settings.reading.memory // (2 if isinstance(dataset.rows, StreamSource) else 1)
        precision = settings.precision
        if precision == "auto" and not dataset.is_on_gpu:
            precision = "double"
        arithmetic = Arithmetic(precision, memory)  # Streamed rows share the memory.
        return cls(n_components, M, settled=settled, arithmetic=arithmetic, **resolved)


def make_plan(run: Run, default: int | None = None) -> Plan:
    """Resolve the settings of a model with inducing points, and cut rows into blocks for it.

    `default` is the default number of components; None is 100, or a quarter of few rows.
    """
    settings, dataset = run.settings, run.dataset
    usual = get_default_size(max(dataset.n_rows, int(dataset.summary.weight)))
    default = default or usual
    R, M = resolve_sizes(settings, default)
    given = not isinstance(settings.inducing_points, str)
    plan = Plan.of(settings, dataset, R, M)
    possible = M if given else count_distinct(dataset.rows, M)
    if possible < M:
        if default != M:
            run.note_few_inputs(possible, M)
        M = possible
        plan = Plan.of(settings, dataset, min(R, M), M)
    run.source = run.source.sized(M)
    if not settings.has_weights:
        return replace(plan, groups=False)
    if settings.is_stochastic:
        return plan
    weight = dataset.summary.weight
    gamma = min(1.0, _GUARD_STRENGTH * M / weight) if settings.guard else 0.0
    scarce = weight < _SCARCE_ROWS_PER_POINT * M
    free = not given and settings.n_inducing is None
    return replace(
        plan,
        gamma=gamma,
        strategy=settings.strategy,
        grow=bool(settings.guard and scarce and free),
        hold_out=bool(settings.guard and dataset.n_rows >= _HOLD_OUT_FROM),
    )


def resolve_sizes(settings: Settings, default: int) -> tuple[int, int]:
    """Return R and M as set by the user, or their defaults."""
    own = settings.inducing_points
    given = None if isinstance(own, str) else own.shape[0]
    default = given or default
    M = given or settings.n_inducing
    R = settings.n_components or min(M or default, default)
    M = M or R
    if R > M:
        raise ValueError(
            f"n_components={R} eigenfunctions need at least as many inducing points, but "
            f"inducing_points gives {M}."
        )
    if not settings.has_weights and R != M:
        raise ValueError(
            f"inducing_points gives {M} points but n_components is {R}; "
            f"{settings.reading.name} needs equal numbers."
        )
    return R, M


def count_distinct(rows: RowSource, wanted: int) -> int:
    """Count the distinct inputs, up to `wanted`.

    A sample of the rows is nearly always enough; all rows are compared only if it has many
    duplicates.
    """
    stride = max(1, rows.n_rows // max(2 * wanted, _SAMPLE_ROWS))
    sample = np.unique(rows.take(np.arange(0, rows.n_rows, stride)).X, axis=0)
    if sample.shape[0] >= wanted:
        return wanted
    whole = rows.total(
        lambda block: _Distinct(np.unique(on_host(block.X), axis=0)[:wanted], wanted)
    )
    return int(whole.inputs.shape[0])


@dataclass(frozen=True)
class _Distinct:
    """Distinct inputs, at most `wanted`; the sum of two holds those of both."""

    inputs: Array
    wanted: int

    def __add__(self, other: _Distinct) -> _Distinct:
        if self.inputs.shape[0] >= self.wanted:
            return self
        both = np.concatenate([self.inputs, other.inputs])
        return _Distinct(np.unique(both, axis=0)[: self.wanted], self.wanted)
