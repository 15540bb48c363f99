"""Which of the data are here, and what takes the place of those that are not."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace

from eigengp.reproduce.problems import SOURCES, problem
from eigengp.reproduce.scale import Scale


@dataclass(frozen=True)
class Missing:
    """A data set that is not here.

    Parameters
    ----------
    name : str
        Which problem.
    stand_in : str or None
        What is used instead; None if the problem is left out.
    remedy : str
        Where it looked and what to do.
    """

    name: str
    stand_in: str | None
    remedy: str

    def __str__(self) -> str:
        title = SOURCES[self.name].title
        if self.stand_in is None:
            return f"{title} is left out: {self.remedy}"
        return f"{SOURCES[self.stand_in].title} takes the place of {title}: {self.remedy}"


class DataError(RuntimeError):
    """Data are damaged, or cannot be read, or were there and are not any more."""


def with_what_is_here(
    scale: Scale, needed: Set[str], stored: Set[str] = frozenset()
) -> tuple[Scale, list[Missing]]:
    """Return the scale with data that can be had, and what is missing.

    Parameters
    ----------
    scale : Scale
        What was asked for.
    needed : set of str
        The problems that the chosen experiments use; others are not looked for.
    stored : set of str
        The problems that results are stored for, which nothing may take the place of.
    """
    missing = [found for name in sorted(needed) if (found := _look(name)) is not None]
    for each in missing:
        if each.name in stored:
            raise DataError(
                f"There are results for {SOURCES[each.name].title}, but its data are not here any "
                f"more: {each.remedy}"
            )
    instead = {each.name: each.stand_in for each in missing}

    def usable(name: str) -> str:
        return instead.get(name) or name

    large = tuple(name for name in scale.large if name not in instead)
    here = replace(scale, first=usable(scale.first), second=usable(scale.second), large=large)
    return here, missing


def _look(name: str) -> Missing | None:
    try:
        problem(name, 0)
    except (FileNotFoundError, ConnectionError) as error:
        return Missing(name, SOURCES[name].stand_in, str(error))
    except (OSError, ValueError, ImportError) as error:
        raise DataError(str(error)) from error
    return None
