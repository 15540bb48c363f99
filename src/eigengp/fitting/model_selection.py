"""Decisions of a fit: the choice, the candidates and their scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from eigengp.data.array_source import ArraySource
from eigengp.data.open import Dataset
from eigengp.fitting.settings import LBFGS, Settings

EXACT_UP_TO = 2_000
"""Up to so many rows the default is the exact GP."""
_MOST_EXACT_ROWS = 20_000
"""More rows than this are refused: the exact GP needs 16·N² bytes."""
_NEIGHBORS_FROM = 1_000
"""With fewer rows and a given number of components, the default has no residual."""
_NEIGHBORS_UP_TO = 10_000_000
"""With more rows, these are held in memory only on request."""


@dataclass(frozen=True)
class Decision:
    """One decision of a fit.

    Parameters
    ----------
    name : str
        The parameter.
    chosen : str
        The choice.
    reason : str
        The reason, or the name of the score.
    scores : dict
        The score of each candidate, lower is better; empty if there was no comparison.

    Examples
    --------
    >>> print(Decision("kernel", "Matern32", "lowest loss", {"Matern32": 0.51, "Matern52": 0.55}))
    kernel: Matern32 (lowest loss: Matern32 0.51, Matern52 0.55)
    """

    name: str
    chosen: str
    reason: str
    scores: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        ranked = sorted(self.scores.items(), key=lambda each: each[1])
        scores = ", ".join(f"{name} {score:.4g}" for name, score in ranked)
        return f"{self.name}: {self.chosen} ({self.reason}{': ' * bool(scores)}{scores})"


@dataclass(frozen=True)
class Selection:
    """All decisions of a fit, one line each; `selection["kernel"]` returns one of them."""

    decisions: tuple[Decision, ...] = ()

    def __iter__(self) -> Iterator[Decision]:
        return iter(self.decisions)

    def __contains__(self, name: object) -> bool:
        return any(each.name == name for each in self.decisions)

    def __getitem__(self, name: str) -> Decision:
        for each in self.decisions:
            if each.name == name:
                return each
        known = ", ".join(each.name for each in self.decisions) or "none"
        raise KeyError(f"There was no decision about {name!r}; there were: {known}.")

    def __repr__(self) -> str:
        return "\n".join(map(str, self.decisions)) or "nothing to choose"


def choose_residual(settings: Settings, dataset: Dataset) -> tuple[str | None, Decision]:
    """Resolve `residual="auto"`, and refuse an explicit one that is not possible."""
    own, n = settings.residual, dataset.n_rows
    obstacle = _find_obstacle(settings, dataset)
    without_points = obstacle or _find_points(settings)
    if own == "exact" and without_points is None and n > _MOST_EXACT_ROWS:
        without_points = f"{n:,} rows need {16e-9 * n**2:.2g} GB of memory; use 'neighbors'"
    for name, reason in (("neighbors", obstacle), ("exact", without_points)):
        if own == name and reason is not None:
            raise ValueError(f"residual={name!r} is not possible: {reason}.")
    if own != "auto":
        return own, Decision("residual", str(own), "given")
    if settings.learns_nothing:
        obstacle = without_points = "max_iter=0 learns nothing"
    if without_points is None and n <= EXACT_UP_TO:
        reason = f"at most {EXACT_UP_TO:,} rows"
        return "exact", Decision("residual", "exact", reason)
    low, high = _NEIGHBORS_FROM, _NEIGHBORS_UP_TO
    if obstacle is None and not low <= n <= high:
        obstacle = f"fewer than {low:,} rows" if n < low else f"more than {high:,} rows"
    if obstacle is not None:
        return None, Decision("residual", "None", obstacle)
    return "neighbors", Decision("residual", "neighbors", f"{low:,} to {high:,} rows")


def _find_points(settings: Settings) -> str | None:
    """Return which setting asks for eigenfunctions; None if none does."""
    own = settings.parameters
    for name in ("n_components", "inducing_points"):
        if not (isinstance(own.get(name), str) and own[name] == "auto"):
            return f"{name} is given, and the exact GP has no inducing points"
    return None


def _find_obstacle(settings: Settings, dataset: Dataset) -> str | None:
    """Return why a fit cannot keep all rows, as neighbours and the exact GP do; None if it can."""
    optimizer = settings.optimizer
    if not isinstance(optimizer, LBFGS):
        return "optimizer=Stochastic() keeps no rows"
    if optimizer.strategy not in ("auto", "sequential"):
        return f"strategy={optimizer.strategy!r} learns prior variances of eigenfunctions"
    if not settings.keeps_rows:
        return "partial_fit keeps no rows"
    if settings.reading.device not in (None, "cpu"):
        return f"it is computed on the CPU, not on device={settings.reading.device!r}"
    if settings.precision != "double":
        return f"it is computed in double precision, not precision={settings.precision!r}"
    if not (isinstance(dataset.rows, ArraySource) and isinstance(dataset.rows.X, np.ndarray)):
        return "it needs all rows in NumPy arrays"
    points = settings.inducing_points
    M = settings.n_inducing if isinstance(points, str) else points.shape[0]
    if M is not None and settings.n_components not in (None, M):
        return f"neighbours need n_components equal to the {M} inducing points"
    return None
