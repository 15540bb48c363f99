"""The time that a fit may take, and how its stages share it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

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
