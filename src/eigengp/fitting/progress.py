"""Telling the user how a fit is going, and keeping its history."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TextIO

_BAR_WIDTH = 24


@dataclass
class Monitor:
    """Collects the evidence after each iteration and, if asked, draws a progress bar.

    Parameters
    ----------
    verbose : bool
        Whether to draw.
    to_log_evidence : tuple of (scale, offset)
        From the objective per row to the log evidence in the user's units.
    """

    verbose: bool
    scale: float = 1.0
    offset: float = 0.0
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    history: list[dict[str, float | int | str]] = field(default_factory=list)
    _stage: str = ""
    _total: int = 0
    _done: int = 0
    _started: float = field(default_factory=time.monotonic)

    def begin(self, stage: str, total: int) -> None:
        """Start a stage of at most `total` steps."""
        self._stage, self._total, self._done = stage, max(total, 1), 0

    def step(self, value: float) -> None:
        """Record one step; `value` is the best objective per row so far."""
        self._done += 1
        evidence = self.offset - self.scale * value
        self.history.append(
            {
                "stage": self._stage,
                "iteration": self._done,
                "log_marginal_likelihood": evidence,
                "seconds": time.monotonic() - self._started,
            }
        )
        if self.verbose:
            self._draw(evidence)

    def end(self) -> None:
        """Finish the line of the stage."""
        if self.verbose and self._done:
            self.stream.write("\n")
            self.stream.flush()

    def _draw(self, evidence: float) -> None:
        share = min(1.0, self._done / self._total)
        bar = "█" * round(_BAR_WIDTH * share)
        seconds = time.monotonic() - self._started
        self.stream.write(
            f"\r{self._stage:<10} {bar:·<{_BAR_WIDTH}} {self._done:>4}/{self._total:<4} "
            f"ln p(y) = {evidence:12.3f}  {seconds:6.1f} s"
        )
        self.stream.flush()
