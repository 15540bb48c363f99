"""What a part of the page is made of, whatever the experiment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np
from matplotlib.figure import Figure

from paper.published import Reported
from paper.runs import Record, Run
from paper.scale import Scale
from paper.store import Store

Mark: TypeAlias = Literal["better", "same", "worse", "holds", "partly", "fails", "none"]

_ERRORS_APART = 2.0
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Cell:
    """One entry of a table: ours, the paper's, and how they compare."""

    ours: str
    paper: str = ""
    mark: Mark = "none"

    @property
    def unjudged(self) -> Cell:
        """The same without a verdict."""
        return replace(self, mark="none")


@dataclass(frozen=True)
class Table:
    """A table; the first entry of each row names it, and the last may reach to the end."""

    title: str
    caption: str
    head: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell]]]


@dataclass(frozen=True)
class Picture:
    """A figure that can be drawn in any number of columns.

    Parameters
    ----------
    name : str
        The file is called this.
    alt : str
        What it shows, for those who cannot see it.
    caption : str
        What to look at.
    columns : int
        On a wide page; a narrow one has a single column.
    draw : callable
        Returns the figure for a number of columns.
    """

    name: str
    alt: str
    caption: str
    columns: int
    draw: Callable[[int], Figure]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, whether it holds here, and what shows it."""

    text: str
    mark: Mark
    evidence: str


@dataclass(frozen=True)
class Section:
    """What an experiment shows."""

    lead: str
    pictures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()
    differences: Sequence[str] = ()
    """Where and why our numbers differ from the paper's."""
    claims: Sequence[Claim] = ()
    remarks: Sequence[str] = ()


@dataclass(frozen=True)
class Results:
    """The stored records, at one scale."""

    store: Store
    scale: Scale

    def __getitem__(self, run: Run) -> Record:
        record = self.store.find(run)
        if record is None:
            raise KeyError(f"{run.label} has not been run")
        return record

    def values(self, runs: Sequence[Run], metric: str) -> Sample:
        """Return one number of several runs."""
        return Sample.of(self[run][metric] for run in runs)


@dataclass(frozen=True, eq=False)
class Sample:
    """The same number from several runs."""

    values: np.ndarray[tuple[int], np.dtype[np.float64]] = field(repr=False)

    @classmethod
    def of(cls, values: Iterable[float]) -> Sample:
        """Return the sample of these numbers."""
        return cls(np.array(list(values), dtype=np.float64))

    @property
    def mean(self) -> float:
        """The mean over the runs."""
        return float(self.values.mean())

    @property
    def error(self) -> float | None:
        """The standard error of the mean, None for a single run."""
        count = self.values.size
        return None if count < 2 else float(self.values.std(ddof=1) / np.sqrt(count))

    @property
    def median(self) -> float:
        """The median over the runs."""
        return float(np.median(self.values))

    def __str__(self) -> str:
        return spoken(self.mean, self.error)

    def against(self, paper: Reported | None) -> Cell:
        """Return the table entry beside the paper's number, where lower is better."""
        if paper is None:
            return Cell(str(self))
        return Cell(str(self), paper.text, self.compared(paper))

    def compared(self, paper: Reported) -> Mark:
        """Say how this compares: the same within two standard errors of both together."""
        together = _ERRORS_APART * float(np.hypot(self.error or 0.0, paper.error))
        margin = max(together, paper.rounding)
        if abs(self.mean - paper.mean) <= margin:
            return "same"
        return "better" if self.mean < paper.mean else "worse"


def verdict(holds: bool, in_part: bool) -> Mark:
    """Return the mark of a claim that holds, holds in part, or does not."""
    return "holds" if holds else "partly" if in_part else "fails"


def spoken(value: float, error: float | None = None) -> str:
    """Return a number as a person would write it, with its standard error if there is one.

    Examples
    --------
    >>> spoken(0.004281, 0.000061)
    '0.0043 ± 0.0001'
    >>> spoken(-0.3424, 0.0012), spoken(1241.3, 103.2), spoken(0.0)
    ('−0.342 ± 0.001', '1241 ± 103', '0')
    """
    if value == 0.0 and not error:
        return "0"
    size = abs(value)
    if np.isinf(value):
        return "∞" if value > 0 else "−∞"
    if size >= 1e5:
        digits, _, exponent = f"{value:.1e}".partition("e+")
        return f"{digits}·10{exponent.lstrip('0').translate(_RAISED)}".replace("-", "−")
    places = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3 if size >= 0.02 else 4
    if size < 1e-4 and error is None:
        return f"{value:.1e}".replace("-", "−")
    text = f"{value:.{places}f}" if error is None else f"{value:.{places}f} ± {error:.{places}f}"
    return text.replace("-", "−")
