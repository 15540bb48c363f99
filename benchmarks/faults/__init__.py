"""Faults that the campaign provokes; each module has a function `check(seed, folder)`.

It returns what happened, one of the words of `ENDS`, if a promise was kept, and raises
`BrokenPromiseError`, or whatever the library raised, if not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

ENDS = ("predicted", "refused", "kept")
Check = Callable[[int, Path], str]


class BrokenPromiseError(AssertionError):
    """The library did not do what `docs/reliability.md` promises."""


def promise(holds: bool, what: str) -> None:
    """Raise unless a promise holds."""
    if not holds:
        raise BrokenPromiseError(what)
