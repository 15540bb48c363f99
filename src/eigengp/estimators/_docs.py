"""Parameters and attributes that regressors share are documented once, and shown for each."""

from __future__ import annotations

import inspect
import re
from typing import Any

_ENTRY = re.compile(r"^(\w[\w, ]*) : .*\n(?:(?:    .*)?\n)*", re.MULTILINE)
_HEAD = r"\w+\n-+\n"
_WHOLE = re.DOTALL | re.MULTILINE
_LAST = ("standardize", "precision", "device", "random_state", "verbose")


def complete_docstring(cls: Any, shared: str) -> None:
    """Add the entries of `shared` that the docstring of a class lacks.

    Parameters come in the order of the constructor, those that all regressors have last.
    """
    doc, shared = inspect.cleandoc(cls.__doc__), inspect.cleandoc(shared)
    order = sorted(inspect.signature(cls).parameters, key=_LAST.__contains__)
    entries = {**_entries(shared, "Parameters"), **_entries(doc, "Parameters")}
    parameters = "".join(entries[name] for name in order if name in entries)
    doc = _with_section(doc, "Parameters", parameters)
    attributes = {**_entries(shared, "Attributes"), **_entries(doc, "Attributes")}
    own_first = dict.fromkeys([*_entries(doc, "Attributes"), *attributes])
    text = "".join(attributes[name] for name in own_first)
    cls.__doc__ = _with_section(doc, "Attributes", text)


def _entries(doc: str, section: str) -> dict[str, str]:
    """Return the entries of a section by name."""
    found = re.search(
        rf"^{section}\n-+\n(.*?)(?=^{_HEAD}|\Z)", doc + "\n", re.DOTALL | re.MULTILINE
    )
    if found is None:
        return {}
    return {each[1]: each[0].rstrip() + "\n" for each in _ENTRY.finditer(found[1])}


def _with_section(doc: str, section: str, text: str) -> str:
    """Return a docstring with a section replaced, or added before the next one."""
    whole = f"{section}\n{'-' * len(section)}\n{text}\n"
    own = re.search(rf"^{section}\n-+\n.*?(?=^{_HEAD}|\Z)", doc, _WHOLE)
    if own is not None:
        return doc[: own.start()] + whole + doc[own.end() :]
    others = "Attributes|Notes|Examples" if section == "Parameters" else "Notes|Examples"
    later = re.search(rf"^(?:{others})\n-+\n", doc, re.MULTILINE)
    at = len(doc) if later is None else later.start()
    return f"{doc[:at].rstrip()}\n\n{whole}{doc[at:]}"
