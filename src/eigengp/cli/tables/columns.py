"""One column of a table: its kind, and how its values become numbers."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from eigengp._typing import Array
from eigengp.cli.tables.errors import TableError, TableWarning, listed
from eigengp.data.formats import arrow

Kind: TypeAlias = Literal["number", "flag", "category"]
_TEXTS = ("string", "large_string", "string_view")
_SPOKEN = {"number": "numbers", "flag": "true or false", "category": "text"}


@dataclass(frozen=True)
class Column:
    """An input of a model, as it is in a table.

    Parameters
    ----------
    name : str
        What it is called there.
    kind : {"number", "flag", "category"}
        A number is taken as it is, a flag (true or false) is 1 or 0, and a category is one column
        of ones and zeros for each of those known.
    categories : tuple of str
        Those that were there when it was learned.
    fill : float, str or None
        What takes the place of a missing value; None refuses it.
    indicator : bool
        Whether a further column says where values were missing.

    Examples
    --------
    >>> town = Column("town", "category", ("Hull", "Leeds"), fill="Hull", indicator=True)
    >>> town.feature_names
    ('town=Hull', 'town=Leeds', 'town is missing')
    """

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()
    fill: float | str | None = None
    indicator: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """What the columns that are made of it are called."""
        own: tuple[str, ...] = (self.name,)
        if self.kind == "category":
            own = tuple(f"{self.name}={each}" for each in self.categories)
        return (*own, f"{self.name} is missing") if self.indicator else own

    def check(self, values: Any) -> None:
        """Raise if the values are of another kind than those it was learned from."""
        found = kind_of(values.type)
        whole = self.kind == "category" and arrow().types.is_integer(values.type)
        if found not in (self.kind, "nothing") and not whole:
            raise TableError(
                f"Column {self.name!r} held {_SPOKEN[self.kind]} when the model was fitted, but "
                f"here it holds {_SPOKEN.get(found, str(values.type))}{_example(values)}."
            )

    def encoded(self, values: Any) -> Array:
        """Return the columns that are made of the values, shape (n, width).

        Missing values must have been counted before if there is nothing to fill them with.
        """
        columns = self._ones(values) if self.kind == "category" else self._numbers(values)
        if not self.indicator:
            return columns
        return np.column_stack([columns, missing(values)])

    def _numbers(self, values: Any) -> Array:
        numbers = as_numbers(values)[:, None]
        if self.fill is not None:
            numbers = np.where(np.isnan(numbers), float(self.fill), numbers)
        return numbers

    def _ones(self, values: Any) -> Array:
        pa, text = arrow(), as_text(values)
        if self.fill is not None:
            text = text.fill_null(self.fill)
        known = pa.array(self.categories, pa.string())
        index = pa.compute.index_in(text, value_set=known).to_numpy(zero_copy_only=False)
        found = ~np.isnan(index.astype(np.float64))
        if not found.all():
            strange = text.filter(pa.array(~found)).unique().drop_null().to_pylist()
            warnings.warn(
                f"Column {self.name!r} has {int(np.sum(~found))} rows of categories that the "
                f"model has not seen ({listed(strange)}); they count as none of those it knows.",
                TableWarning,
                stacklevel=2,
            )
        ones = np.zeros((len(text), len(self.categories)))
        ones[np.flatnonzero(found), index[found].astype(np.intp)] = 1.0
        return ones


def kind_of(kind: Any) -> Kind | Literal["time", "nothing", "other"]:
    """Return what a type of PyArrow is to us; a dictionary holds categories, whatever they are."""
    types = arrow().types
    if types.is_dictionary(kind):
        return "category"
    if types.is_boolean(kind):
        return "flag"
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    if str(kind) in _TEXTS:
        return "category"
    if types.is_null(kind):
        return "nothing"
    return "time" if types.is_temporal(kind) else "other"


def _plain(kind: Any) -> Any:
    """Return the type of a dictionary's values, other types as they are."""
    return kind.value_type if arrow().types.is_dictionary(kind) else kind


def missing(values: Any) -> Array:
    """Return 1 where a value is missing, NaN included, and 0 elsewhere, shape (n,)."""
    absent = arrow().compute.is_null(decoded(values), nan_is_null=True)
    return np.asarray(absent.to_numpy(zero_copy_only=False), dtype=np.float64)


def decoded(values: Any) -> Any:
    """Return one array without a dictionary."""
    pa = arrow()
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return whole.cast(_plain(whole.type))


def as_numbers(values: Any) -> Array:
    """Return numbers, flags as 1 and 0, missing values as NaN, shape (n,)."""
    pa = arrow()
    floats = decoded(values).cast(pa.float64(), safe=False)
    return np.array(floats.to_numpy(zero_copy_only=False), dtype=np.float64)


def as_text(values: Any) -> Any:
    """Return an array of strings."""
    return decoded(values).cast(arrow().string())


def category_counts(values: Any) -> dict[str, int]:
    """Return how often each category is there, the most frequent first."""
    counts = as_text(values).drop_null().value_counts().to_pylist()
    ordered = sorted(counts, key=lambda each: (-each["counts"], each["values"]))
    return {each["values"]: each["counts"] for each in ordered}


def _example(values: Any) -> str:
    """Return the first value there is, in brackets."""
    first = values.drop_null().slice(0, 1).to_pylist()
    return f" ({first[0]!r})" if first else ""
