"""What an experiment is, and the runs that several of them share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paper.methods import METHODS
from paper.problems import Problem
from paper.runs import Record, Run
from paper.scale import Scale
from paper.section import Results, Section


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


def rms_gap(record: Record, task: Problem, part: tuple[float, float]) -> float:
    """Return the root mean square gap between a mean and the truth on a part of the range."""
    inside = within(task, part)
    gap = np.array(record["curves"]["mean"])[inside] - task.y_test[inside]
    return float(np.sqrt(np.mean(gap**2)))


def within(task: Problem, part: tuple[float, float]) -> NDArray[np.bool_]:
    """Say which test inputs lie in a part of the range, shape (n,)."""
    x = task.X_test[:, 0]
    return np.asarray((x >= part[0]) & (x <= part[1]))
