"""The progress of a fit: its history, a progress bar, and its time limit."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TextIO

_BAR_WIDTH = 24
_SOON = 2.0
"""Shorter stages do not show the remaining time."""
_MARGIN = 0.5
"""A stage ends this fraction of a step early, so that it is on time on average."""


@dataclass
class Clock:
    """A clock that starts when it is created.

    Parameters
    ----------
    limit : float or None
        The time limit in seconds; None for no limit.

    Examples
    --------
    >>> clock = Clock(100.0)
    >>> clock.allow(0.5)
    >>> clock.is_over()
    False
    >>> Clock(None).is_over()
    False
    """

    limit: float | None = None
    _started: float = field(default_factory=time.monotonic)
    _share: float = 0.9
    _asked: float = 0.0

    def allow(self, share: float) -> None:
        """Let the next stage run until this fraction of the time limit."""
        self._share, self._asked = share, time.monotonic()

    def is_over(self) -> bool:
        """Return whether there is no time for another step as long as the last one."""
        if self.limit is None:
            return False
        now = time.monotonic()
        step, self._asked = now - self._asked, now
        return now - self._started + _MARGIN * step > self._share * self.limit

    def spread(self, until: float, number: int, count: int) -> None:
        """Let part `number` of `count` take an equal share of the time that remains until then."""
        if self.limit is not None:
            used = (time.monotonic() - self._started) / self.limit
            self.allow(used + (until - used) / (count - number))


@dataclass
class Monitor:
    """Records the log marginal likelihood after each iteration, and draws a progress bar.

    On a terminal the bar moves; elsewhere each stage is one line at its end.

    Parameters
    ----------
    verbose : bool
        Whether to draw the progress bar.
    n_rows : float
        The number of rows: steps report `−ln p(y)` per row.
    offset : float
        What the units of the data add to the log marginal likelihood.
    stream : file or None
        Where to draw; None is standard error.
    clock : Clock
        Defines when a stage must end.
    """

    verbose: bool
    n_rows: float = 1.0
    offset: float = 0.0
    stream: TextIO | None = None
    clock: Clock = field(default_factory=Clock)
    history: list[dict[str, float | int | str]] = field(default_factory=list)
    _stage: str = ""
    _total: int = 0
    _done: int = 0
    _started: float = field(default_factory=time.monotonic)
    _begun: float = field(default_factory=time.monotonic)

    def begin(self, stage: str, total: int) -> None:
        """Start a stage of at most `total` steps."""
        self._stage, self._total, self._done = stage, max(total, 1), 0
        self._begun = time.monotonic()

    def step(self, value: float) -> bool:
        """Record one step, and return whether time is over; `value` is `−ln p(y)` per row."""
        self._done += 1
        self.history.append(
            {
                "stage": self._stage,
                "iteration": self._done,
                "log_marginal_likelihood": self.offset - self.n_rows * value,
                "seconds": time.monotonic() - self._started,
            }
        )
        if self.verbose and self._out.isatty():
            self._draw(self._done / self._total)
        return self.clock.is_over()

    def end(self) -> None:
        """Finish the line of the stage."""
        if self.verbose and self._done:
            self._draw(1.0)
            self._out.write("\n")
            self._out.flush()

    def _draw(self, share: float) -> None:
        last = self.history[-1]
        bar = "█" * round(_BAR_WIDTH * min(1.0, share))
        self._out.write(
            f"\r{self._stage:<8} {bar:·<{_BAR_WIDTH}} {self._done:>4} steps  "
            f"ln p(y) = {last['log_marginal_likelihood']:12.3f}  {last['seconds']:7.1f} s"
            f"{self._format_pace()}"
        )
        self._out.flush()

    @property
    def _out(self) -> TextIO:
        return self.stream or sys.stderr

    def _format_pace(self) -> str:
        """Return rows per second, and the remaining time if the stage takes all its steps."""
        elapsed = time.monotonic() - self._begun
        if elapsed < _SOON:
            return ""
        per_step = elapsed / self._done
        left = per_step * max(0, self._total - self._done)
        return f"  {_format_number(self.n_rows / per_step)} rows/s  {left:5.0f} s left"


def _format_number(number: float) -> str:
    """Return a number with three digits and a unit prefix."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g} "
