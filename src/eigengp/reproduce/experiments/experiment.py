"""What an experiment is, and the runs that several of them share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eigengp.reproduce.methods import METHODS
from eigengp.reproduce.runs import Run
from eigengp.reproduce.scale import Scale
from eigengp.reproduce.section import Results, Section


@dataclass(frozen=True)
class Experiment:
    """One part of the paper's experimental section.

    Parameters
    ----------
    name : str
        What the command calls it.
    title : str
        What the page calls it.
    runs : callable
        Returns the runs it needs at a scale.
    section : callable
        Returns what it shows, once all its runs are stored.
    """

    name: str
    title: str
    runs: Callable[[Scale], list[Run]]
    section: Callable[[Results], Section]


def searched(scale: Scale, data: str, method: str, size: int | None, seed: int = 0) -> Run:
    """Return a run that finds its own start, as all on small data do."""
    size = size if METHODS[method].sized else None
    return Run(data, method, size, seed, scale.options(method))


def repeated(scale: Scale, data: str, method: str, size: int | None) -> list[Run]:
    """Return the runs over all draws or seeds of a small data set."""
    return [searched(scale, data, method, size, seed) for seed in range(scale.n_runs)]
