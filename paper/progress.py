"""Telling the user how the runs are going: bars on a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from paper.runs import Record, Run
from paper.section import spoken


class Bars:
    """One bar for each experiment, and what is being run.

    Parameters
    ----------
    console : Console
        Where to draw.
    runs : mapping of str to sequence of Run
        The runs of each experiment; one that several need counts for the first.
    done : set of Run
        Those that have ended earlier.
    """

    def __init__(self, console: Console, runs: Mapping[str, Sequence[Run]], done: set[Run]) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[now]}", style="dim"),
            console=console,
            disable=not console.is_terminal,
        )
        self._of: dict[Run, str] = {}
        self._bars = {}
        for name, own in runs.items():
            mine = [run for run in own if run not in self._of]
            self._of.update(dict.fromkeys(mine, name))
            stored = sum(run in done for run in mine)
            self._bars[name] = self._progress.add_task(
                name, total=len(mine), completed=stored, now="", start=False
            )
        self._total, self._ended = len(self._of), len(done & set(self._of))

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def began(self, run: Run) -> None:
        """Show what is being run."""
        bar = self._bars[self._of[run]]
        self._progress.start_task(bar)
        self._progress.update(bar, now=run.label)

    def ended(self, run: Run, record: Record) -> None:
        """Move the bar, or write a line."""
        self._advance(run)
        if not self._console.is_terminal:
            numbers = f"NMSE {spoken(record['nmse'])}, MNLP {spoken(record['mnlp'])}"
            self._say(f"{run.label}: {numbers}, {record['seconds']:.1f} s")

    def failed(self, run: Run, error: BaseException) -> None:
        """Move the bar and say what went wrong."""
        self._advance(run)
        self._say(f"{run.label} failed: {error}")

    def _advance(self, run: Run) -> None:
        self._ended += 1
        self._progress.update(self._bars[self._of[run]], advance=1)

    def _say(self, text: str) -> None:
        line = f"[{self._ended}/{self._total}] {text}"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
