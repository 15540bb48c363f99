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
EXACT_UP_TO_ON_GPU = 30_000
"""The same on a GPU."""
_MOST_EXACT_ROWS = {"cpu": 20_000, "gpu": 60_000}
"""More rows than this are refused: the exact GP needs 16·N² bytes, and 32·N² on a GPU."""
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
    device = get_exact_device(settings, dataset)
    without_points = _find_obstacle(settings) or _find_points(settings)
    obstacle = _find_obstacle(settings) or _find_place(settings, dataset)
    on_gpu = device is not None and device.startswith("cuda")
    most = _MOST_EXACT_ROWS["gpu" if on_gpu else "cpu"]
    if own == "exact" and without_points is None and n > most:
        without_points = f"{n:,} rows need {16e-9 * n**2:.2g} GB of memory; use 'neighbors'"
    if device is None or not (on_gpu or own == "exact"):
        without_points = without_points or obstacle
    for name, reason in (("neighbors", obstacle), ("exact", without_points)):
        if own == name and reason is not None:
            raise ValueError(f"residual={name!r} is not possible: {reason}.")
    if own != "auto":
        return own, Decision("residual", str(own), "given")
    if settings.learns_nothing:
        obstacle = without_points = "max_iter=0 learns nothing"
    up_to = EXACT_UP_TO_ON_GPU if on_gpu else EXACT_UP_TO
    if without_points is None and n <= up_to:
        reason = f"at most {up_to:,} rows" + f" on {device}" * on_gpu
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


def get_exact_device(settings: Settings, dataset: Dataset) -> str | None:
    """Return the device on which the exact GP is computed: the given one, or that of the inputs."""
    if settings.device is None and getattr(dataset.like, "is_cuda", False):
        return str(dataset.like.device)
    return settings.device


def _find_obstacle(settings: Settings) -> str | None:
    """Return why a fit cannot keep all rows, as neighbours and the exact GP do; None if it can."""
    optimizer = settings.optimizer
    if not isinstance(optimizer, LBFGS):
        return "optimizer=Stochastic() keeps no rows"
    if optimizer.strategy not in ("auto", "sequential"):
        return f"strategy={optimizer.strategy!r} learns prior variances of eigenfunctions"
    if not settings.keeps_rows:
        return "partial_fit keeps no rows"
    if settings.precision not in ("auto", "double"):
        return f"it is computed in double precision, not precision={settings.precision!r}"
    return None


def _find_place(settings: Settings, dataset: Dataset) -> str | None:
    """Return why neighbours cannot be found where the rows are; None if they can."""
    if settings.reading.device is not None:
        return f"it is computed on the CPU, not on device={settings.reading.device!r}"
    if not (isinstance(dataset.rows, ArraySource) and isinstance(dataset.rows.X, np.ndarray)):
        return "it needs all rows in NumPy arrays"
    points = settings.inducing_points
    M = settings.n_inducing if isinstance(points, str) else points.shape[0]
    if M is not None and settings.n_components not in (None, M):
        return f"neighbours need n_components equal to the {M} inducing points"
    return None
