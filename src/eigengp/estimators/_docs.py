"""Parameters and attributes that estimators share are described and constrained once."""

from __future__ import annotations

import inspect
import re
from typing import Any

_SECTION = re.compile(r"^(\w+)\n-+\n", re.MULTILINE)
_ENTRY = re.compile(r"^(\w[\w, ]*) : .*\n(?:(?:    .*)?\n)*", re.MULTILINE)
_LAST = ("standardize", "precision", "device", "random_state", "verbose")


def inherit_parameters(cls: Any, bases: list[Any]) -> None:
    """Take constraints and descriptions that a class lacks from its bases; the class is first."""
    constraints: dict[str, Any] = {}
    for each in reversed(bases):
        constraints |= vars(each).get("_parameter_constraints", {})
    names = inspect.signature(cls).parameters
    cls._parameter_constraints = {own: constraints[own] for own in names if own in constraints}
    for each in bases[1:] if cls.__doc__ else ():
        complete_docstring(cls, each.__doc__ or "")


def complete_docstring(cls: Any, shared: str) -> None:
    """Add the entries of `shared` that the docstring of a class lacks.

    Parameters come in the order of the constructor, those that all regressors have last.
    """
    (summary, sections), (_, common) = _split(cls.__doc__), _split(shared)
    own = _split_entries(sections.pop("Attributes", ""))
    attributes = {**own, **_split_entries(common.get("Attributes", "")), **own}
    entries = _split_entries(common.get("Parameters", ""))
    entries |= _split_entries(sections.pop("Parameters", ""))
    order = sorted(inspect.signature(cls).parameters, key=_LAST.__contains__)
    parameters = [entries[name] for name in order if name in entries]
    whole = {"Parameters": "".join(parameters), "Attributes": "".join(attributes.values())}
    parts = [f"{name}\n{'-' * len(name)}\n{text}" for name, text in {**whole, **sections}.items()]
    cls.__doc__ = "\n".join(each.rstrip() + "\n" for each in (summary, *parts))


def _split(doc: str) -> tuple[str, dict[str, str]]:
    """Return what stands before the sections of a docstring, and the sections by name."""
    summary, *rest = _SECTION.split(inspect.cleandoc(doc))
    return summary, dict(zip(rest[::2], rest[1::2], strict=True))


def _split_entries(section: str) -> dict[str, str]:
    """Return the entries of a section by name."""
    return {each[1]: each[0].rstrip() + "\n" for each in _ENTRY.finditer(section + "\n")}
