"""The progress of a fit: a `Monitor` records and shows it, and a `Clock` limits its time."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import current_process
from typing import TextIO

_BAR_WIDTH = 24
# After how many seconds progress is shown, and how often where lines cannot change.
_PATIENCE, _EVERY = 2.0, 5.0
_SOON = 2.0  # Shorter stages do not show the remaining time.
_MARGIN = 0.5  # A stage ends this fraction of a step early, so that it is on time on average.


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
    _asked: float = field(default_factory=time.monotonic)
    was_over: bool = False  # Whether a stage has ended early.

    def allow(self, share: float) -> None:
        """Let the next stage run until this fraction of the time limit."""
        self._share, self._asked = share, time.monotonic()

    def is_over(self) -> bool:
        """Return whether there is no time for another step as long as the last one."""
        if self.limit is None:
            return False
        now = time.monotonic()
        step, self._asked = now - self._asked, now
        over = now - self._started + _MARGIN * step > self._share * self.limit
        self.was_over |= over
        return over

    def get_rest(self) -> float | None:
        """Return the seconds that are left; None if there is no limit."""
        return None if self.limit is None else self.limit - (time.monotonic() - self._started)

    def spread(self, until: float, n_stages: int) -> None:
        """Let the next of so many stages take an equal share of the time until this fraction."""
        used = 0.0 if self.limit is None else (time.monotonic() - self._started) / self.limit
        self.allow(used + (until - used) / n_stages)


@dataclass
class Monitor:
    """Records the log marginal likelihood after each iteration, and draws a progress bar.

    On a terminal and in a notebook the bar moves; elsewhere there is a line every five seconds.

    Parameters
    ----------
    verbose : bool, int or None
        Whether to draw the progress bar; None does on a terminal and in a notebook, once the fit
        has taken two seconds. True also draws each stage at its end, 2 does not.
    n_rows : float
        The number of rows: steps report `−ln p(y)` per row.
    offset : float
        What the units of the data add to the log marginal likelihood.
    stream : file or None
        Where to draw; None is standard error.
    clock : Clock
        Defines when a stage must end.
    """

    verbose: bool | int | None = False
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
    _drawn: float = field(default_factory=time.monotonic)

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[None]:
        """Record a stage of at most `total` steps, and finish its line at its end."""
        self._stage, self._total, self._done = name, max(total, 1), 0
        self._begun = time.monotonic()
        yield
        if self._is_visible and self._done and (self.verbose == 1 or _is_live(self._out)):
            self._draw(1.0, "\n")

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
        if self._is_visible:
            moves = _is_live(self._out)
            if moves or time.monotonic() - self._drawn > _EVERY:
                self._draw(self._done / self._total, "" if moves else "\n")
        return self.clock.is_over()

    @property
    def _is_visible(self) -> bool:
        """Whether to draw now."""
        if self.verbose is not None:
            return bool(self.verbose)
        late = time.monotonic() - self._started > _PATIENCE
        return _is_live(self._out) and late and current_process().name == "MainProcess"

    def _draw(self, share: float, end: str) -> None:
        self._drawn = time.monotonic()
        last = self.history[-1]
        start = "\r" if _is_live(self._out) else ""
        bar = "█" * round(_BAR_WIDTH * min(1.0, share))
        steps = "step " if self._done == 1 else "steps"
        self._out.write(
            f"{start}{self._stage:<10} {bar:·<{_BAR_WIDTH}} {self._done:>4} {steps}  "
            f"ln p(y) = {last['log_marginal_likelihood']:12.3f}  {last['seconds']:7.1f} s"
            f"{self._format_pace()}{end}"
        )
        self._out.flush()

    @property
    def _out(self) -> TextIO:
        return self.stream or sys.stderr

    def _format_pace(self) -> str:
        """Return rows per second, and the time left: of `max_time`, or for all steps."""
        elapsed = time.monotonic() - self._begun
        if elapsed < _SOON:
            return ""
        per_step = elapsed / self._done
        rest = self.clock.get_rest()
        left = per_step * max(0, self._total - self._done) if rest is None else max(0.0, rest)
        return f"  {_format_number(self.n_rows / per_step)} rows/s  {left:5.0f} s left"


def _is_live(stream: TextIO) -> bool:
    """Return whether a stream shows a line that changes: on a terminal and in a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return stream.isatty() or type(shell).__name__ == "ZMQInteractiveShell"


def _format_number(number: float) -> str:
    """Return a number with three digits and a unit prefix."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g} "
