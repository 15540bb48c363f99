"""Decisions of a fit: the choice, the candidates and their scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from eigengp.data.open import Dataset
from eigengp.fitting.settings import LBFGS, Settings

_NEIGHBORS_FROM = 1_000
"""With fewer rows, the default has no residual."""
_NEIGHBORS_UP_TO = 100_000
"""With more rows, all rows and features are held in memory only on request."""


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


class ResidualChoice(NamedTuple):
    """The residual of a fit."""

    residual: str | None
    compare: bool
    """Whether the model is compared with one without neighbours."""
    decision: Decision


def choose_residual(settings: Settings, dataset: Dataset) -> ResidualChoice:
    """Resolve `residual="auto"`, and refuse an explicit "neighbors" that is not possible."""
    own = settings.residual
    obstacle = _find_obstacle(settings, dataset)
    if own == "neighbors" and obstacle is not None:
        raise ValueError(f"residual='neighbors' is not possible: {obstacle}.")
    if own != "auto":
        return ResidualChoice(own, False, Decision("residual", str(own), "given"))
    n, low, high = dataset.n_rows, _NEIGHBORS_FROM, _NEIGHBORS_UP_TO
    if obstacle is None and not low <= n <= high:
        obstacle = f"fewer than {low:,} rows" if n < low else f"more than {high:,} rows"
    if obstacle is None and settings.learns_nothing:
        obstacle = "max_iter=0 learns nothing"
    if obstacle is not None:
        return ResidualChoice(None, False, Decision("residual", "None", obstacle))
    return ResidualChoice("neighbors", True, Decision("residual", "neighbors", "default"))


def _find_obstacle(settings: Settings, dataset: Dataset) -> str | None:
    """Return why a fit cannot have a nearest-neighbour residual; None if it can."""
    optimizer = settings.optimizer
    if not isinstance(optimizer, LBFGS):
        return "optimizer=Stochastic() keeps no rows"
    if optimizer.strategy not in ("auto", "sequential"):
        return f"strategy={optimizer.strategy!r} learns weights, which neighbours do not use"
    if not settings.keeps_rows:
        return "partial_fit keeps no rows"
    if settings.reading.device not in (None, "cpu"):
        return f"neighbours are computed on the CPU, not on device={settings.reading.device!r}"
    if settings.precision != "double":
        return f"neighbours are computed in double precision, not precision={settings.precision!r}"
    if not dataset.in_numpy:
        return "neighbours need all rows in NumPy arrays"
    points = settings.inducing_points
    M = settings.n_inducing if isinstance(points, str) else points.shape[0]
    if M is not None and settings.n_components not in (None, M):
        return f"neighbours need n_components equal to the {M} inducing points"
    return None
