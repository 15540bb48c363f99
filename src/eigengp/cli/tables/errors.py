"""What can be wrong with a table, said to the person who has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_MOST_NAMED = 8


class TableError(ValueError):
    """A table that cannot be used as it is; the message says what to do."""


class TableWarning(UserWarning):
    """Something in a table that was got over, and that its owner should know."""


def listed(names: Iterable[object]) -> str:
    """Return names in one line, the first few of them where there are many.

    Examples
    --------
    >>> listed(["area", "town"])
    'area, town'
    >>> listed(range(10))
    '0, 1, 2, 3, 4, 5, 6, 7 and 2 more'
    """
    every = [str(name) for name in names]
    more = len(every) - _MOST_NAMED
    return ", ".join(every[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def counted(counts: Mapping[str, int]) -> str:
    """Return names with their numbers in one line.

    Examples
    --------
    >>> counted({"area": 3, "town": 1})
    'area (3), town (1)'
    """
    return listed(f"{name} ({count})" for name, count in counts.items())


def dropping(names: Iterable[str]) -> str:
    """Return the options that leave columns out.

    Examples
    --------
    >>> dropping(["id", "full name"])
    "--drop id --drop 'full name'"
    """
    from shlex import quote

    return " ".join(f"--drop {quote(name)}" for name in names)
