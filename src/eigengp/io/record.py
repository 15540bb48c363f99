"""How objects of one class are taken apart, and made again from fields that are checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from eigengp.io.errors import SavedModelError

Fields = dict[str, Any]


@dataclass(frozen=True)
class Record:
    """How objects of one class are stored.

    Parameters
    ----------
    kind : type
        The class.
    hints : mapping
        The fields, and what each may be.
    optional : frozenset
        Fields that a file need not have.
    make : callable or None
        Takes the fields, as keywords, to an object; None calls the class.
    take : callable or None
        Returns the fields of an object; None reads the attributes of their names.
    """

    kind: type
    hints: Mapping[str, Any]
    optional: frozenset[str] = frozenset()
    make: Callable[..., Any] | None = None
    take: Callable[[Any], Fields] | None = None

    @classmethod
    def of_dataclass(cls, kind: Any) -> Record:
        """Return the record of a dataclass: all that its constructor takes."""
        own = [each for each in fields(kind) if each.init]
        optional = frozenset(each.name for each in own if not _is_required(each))
        return cls(kind, hints_of(kind, *(each.name for each in own)), optional)

    def fields_of(self, value: Any) -> Fields:
        """Return what is stored of an object."""
        if self.take is not None:
            return self.take(value)
        return {name: getattr(value, name) for name in self.hints}

    def made(self, found: Fields) -> Any:
        """Return an object with these fields."""
        name = self.kind.__name__
        check_fields(name, found, self.hints)
        missing = self.hints.keys() - found.keys() - self.optional
        if missing:
            raise SavedModelError(f"a saved {name} has no {', '.join(sorted(missing))}.")
        return (self.make or self.kind)(**found)


def hints_of(kind: type, *names: str) -> dict[str, Any]:
    """Return what the attributes of these names may be."""
    hints = resolved_hints(kind)
    return {name: hints.get(name, Any) for name in names}


def resolved_hints(kind: type) -> dict[str, Any]:
    """Return the type hints of a class, or those of its bases where its own cannot be resolved."""
    try:
        return get_type_hints(kind)
    except NameError:
        return resolved_hints(kind.__mro__[1])


def check_fields(owner: str, found: Fields, hints: Mapping[str, Any]) -> None:
    """Raise unless all fields are known, and are what their hints allow."""
    for name, value in found.items():
        if name not in hints:
            raise SavedModelError(f"a saved {owner} has the unknown field {name!r}.")
        if not _fits(value, hints[name]):
            raise SavedModelError(f"{name} of a saved {owner} is a {type(value).__name__}.")


def _is_required(field: Any) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _fits(value: Any, hint: Any) -> bool:
    """Say whether a value is what a hint allows; `Any` and protocols allow everything."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in get_args(hint))
    kind = origin or hint
    if kind is Any or not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return True
    if kind in (int, float):
        return isinstance(value, int | kind) and not isinstance(value, bool)
    return isinstance(value, kind)
