"""How far a fit is: its history, a progress bar, and the time that it may take."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TextIO

_BAR_WIDTH = 24
_SOON = 2.0
"""Seconds within which nobody asks how long it will take."""
_MARGIN = 0.5
"""A stage ends this share of a step before its time: half of the steps would have ended later."""


@dataclass
class Clock:
    """Runs from when it is made.

    Parameters
    ----------
    limit : float or None
        The seconds that there are; None for no limit.

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
        """Let what follows take until this share of the whole time."""
        self._share, self._asked = share, time.monotonic()

    def is_over(self) -> bool:
        """Say whether there is no time for another step like the one since the last question."""
        if self.limit is None:
            return False
        now = time.monotonic()
        step, self._asked = now - self._asked, now
        return now - self._started + _MARGIN * step > self._share * self.limit

    def spread(self, until: float, number: int, count: int) -> None:
        """Let the `number`-th of `count` parts take its share of what is left until then."""
        if self.limit is not None:
            used = (time.monotonic() - self._started) / self.limit
            self.allow(used + (until - used) / (count - number))


@dataclass
class Monitor:
    """Collects the evidence after each iteration and, if asked, draws a progress bar.

    On a terminal the bar moves; elsewhere each stage is one line at its end.

    Parameters
    ----------
    verbose : bool
        Whether to draw.
    n_rows : float
        The number of rows: steps report `−ln p(y)` per row.
    offset : float
        What the units of the data add to the log evidence.
    stream : file or None
        Where to draw; None is standard error.
    clock : Clock
        Says when a stage must end.
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

    def step(self, value: float) -> None:
        """Record one step; `value` is `−ln p(y)` per row."""
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
        """Return rows per second and the time left, if the stage takes all its steps."""
        elapsed = time.monotonic() - self._begun
        if elapsed < _SOON:
            return ""
        per_step = elapsed / self._done
        left = per_step * max(0, self._total - self._done)
        return f"  {_format_number(self.n_rows / per_step)} rows/s  {left:5.0f} s left"


def _format_number(number: float) -> str:
    """Return a number in three digits."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g} "
