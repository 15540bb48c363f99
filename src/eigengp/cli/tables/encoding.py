"""From a table to the array that a model takes, and what has to be remembered for the next one."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from typing import Any, Self

import numpy as np

from eigengp._typing import Array
from eigengp.cli.tables.columns import Column, as_numbers, as_text, kind_of, missing
from eigengp.cli.tables.errors import TableError, TableWarning, counted, dropping, listed
from eigengp.cli.tables.learning import count_missing, learned_columns, missing_said
from eigengp.cli.tables.reading import as_table
from eigengp.data.formats import arrow

_VERSION = 1


@dataclass(frozen=True)
class TableEncoding:
    """What was learned of the columns of a table, so that another becomes the same inputs.

    Numbers stay as they are, flags become 1 and 0, and each category a column of ones and zeros; a
    category that was not there gives zeros and a `TableWarning`. Missing values are refused, or,
    with `impute`, replaced by the median of a number and the most frequent value of anything else,
    and each column that lacked some when this was learned has a further one that says where.

    Parameters
    ----------
    columns : tuple of Column
        The inputs, in the order of the array.
    target : str
        The column that is predicted.
    weights : str or None
        The column that says how often a row counts.
    ignored : mapping of str to str
        Columns that are no inputs, and why: "constant", "empty" or "left out".
    impute : bool
        Whether missing values are filled in.

    Examples
    --------
    >>> houses = {"area": [50.0, 80.0, 65.0], "town": ["Hull", "Leeds", "Hull"], "price": [1, 3, 2]}
    >>> encoding = TableEncoding.learned(houses, "price")
    >>> encoding.feature_names
    ('area', 'town=Hull', 'town=Leeds')
    >>> encoding.inputs({"town": ["Leeds"], "area": [70]})
    array([[70.,  0.,  1.]])
    >>> TableEncoding.from_dict(encoding.as_dict()) == encoding
    True
    """

    columns: tuple[Column, ...]
    target: str
    weights: str | None = None
    ignored: Mapping[str, str] = field(default_factory=dict)
    impute: bool = False

    @classmethod
    def learned(
        cls,
        frame: Any,
        target: str,
        *,
        impute: bool = False,
        drop: Collection[str] = (),
        only: Sequence[str] | None = None,
        weights: str | None = None,
        categorical: Collection[str] = (),
    ) -> Self:
        """Learn from a table which columns there are and what is in them.

        Parameters
        ----------
        frame : pyarrow.Table, pandas.DataFrame or mapping
            The rows; those without a target are left out by `labelled`.
        target : str
            The column to predict: numbers, none of them missing.
        impute : bool
            Whether missing values are filled in rather than refused.
        drop : collection of str
            Columns to leave out.
        only : sequence of str or None
            The inputs; None is all other columns.
        weights : str or None
            The column that says how often a row counts.
        categorical : collection of str
            Columns of whole numbers that are names, such as the number of a shop.

        Raises
        ------
        TableError
            If a column is not there, is no input, or lacks values.
        """
        table = as_table(frame)
        special = [target] if weights is None else [target, weights]
        named = [*special, *drop, *(only or ()), *categorical]
        _check_present(table.column_names, named)
        if clash := set(special) & {*drop, *(only or ())}:
            raise TableError(f"{listed(clash)} cannot be target or weights and an input as well.")
        if table.num_rows == 0:
            raise TableError("The table has no rows.")
        problem = _numbers_problem(table, target, "target")
        chosen = [
            name
            for name in table.column_names
            if name not in {*special, *drop} and (only is None or name in only)
        ]
        found = {name: _taken(table[name], name in categorical) for name in chosen}
        try:
            columns, ignored = learned_columns(found, impute)
        except TableError as error:
            raise TableError(f"{problem} {error}".strip()) from None
        if problem:
            raise TableError(problem)
        apart = {*chosen, *special}
        left = {name: "left out" for name in table.column_names if name not in apart}
        encoding = cls(columns, target, weights, {**left, **ignored}, impute)
        encoding._check_feature_names()
        return encoding

    @property
    def feature_names(self) -> tuple[str, ...]:
        """What the columns of the array are called."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def groups(self) -> dict[str, list[int]]:
        """Which columns of the array each column of the table has become."""
        groups, start = {}, 0
        for column in self.columns:
            stop = start + len(column.feature_names)
            groups[column.name] = list(range(start, stop))
            start = stop
        return groups

    @property
    def known_columns(self) -> set[str]:
        """All columns that a table may have: inputs, target, weights, and those not used."""
        special = {self.target} if self.weights is None else {self.target, self.weights}
        return {column.name for column in self.columns} | special | set(self.ignored)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns that `read_table` should take for text."""
        return tuple(column.name for column in self.columns if column.kind == "category")

    def inputs(self, frame: Any) -> Array:
        """Return the inputs of a table with the same columns, in any order, shape (n, D).

        Raises
        ------
        TableError
            If a column is missing, unknown or of another kind, or lacks values.
        """
        table = as_table(frame)
        self._check_columns(table.column_names)
        found = {column.name: table[column.name] for column in self.columns}
        for column in self.columns:
            column.check(found[column.name])
        self._check_missing(found)
        parts = [column.encoded(found[column.name]) for column in self.columns]
        array: Array = np.concatenate(parts, axis=1)
        finite = np.isfinite(array)
        if not finite.all():
            names = [self.feature_names[at] for at in np.flatnonzero(~finite.all(axis=0))]
            raise TableError(f"Values are infinite: {listed(names)}. Replace them.")
        return array

    def targets(self, frame: Any) -> Array:
        """Return the targets of a table, shape (n,)."""
        table = as_table(frame)
        _check_present(table.column_names, [self.target])
        return _complete_numbers(table, self.target, "target")

    def sample_weight(self, frame: Any) -> Array | None:
        """Return how often each row counts, shape (n,); None where all count the same."""
        table = as_table(frame)
        if self.weights is None:
            return None
        _check_present(table.column_names, [self.weights])
        weights = _complete_numbers(table, self.weights, "weight")
        if weights.min() < 0.0 or weights.max() == 0.0:
            raise TableError(f"The weights {self.weights!r} must not be negative, nor all zero.")
        return weights

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, which JSON can hold."""
        return {**asdict(self), "ignored": dict(self.ignored), "version": _VERSION}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return what `as_dict` has described."""
        try:
            if values["version"] != _VERSION:
                raise TableError("The encoding of the columns is of a later version of eigengp.")
            columns = tuple(
                Column(**{**each, "categories": tuple(each["categories"])})
                for each in values["columns"]
            )
            rest = {name: values[name] for name in ("target", "weights", "ignored", "impute")}
        except (KeyError, TypeError) as error:
            raise TableError(f"This describes no encoding of a table ({error!r}).") from error
        return cls(columns, **rest)

    def _check_columns(self, names: list[str]) -> None:
        wanted = [column.name for column in self.columns]
        lacking = [name for name in wanted if name not in names]
        if lacking:
            raise TableError(
                f"The table lacks columns that the model was fitted with: {listed(lacking)}; it "
                f"has {listed(names)}."
            )
        strange = [name for name in names if name not in self.known_columns]
        if strange:
            raise TableError(
                f"The table has columns that the model was not fitted with: {listed(strange)}. "
                f"Leave them out: {dropping(strange)}."
            )

    def _check_missing(self, found: Mapping[str, Any]) -> None:
        """Refuse missing values, or say where there are some for the first time."""
        marked = {column.name for column in self.columns if column.indicator}
        absent = count_missing({name: found[name] for name in found if name not in marked})
        if absent and not self.impute:
            raise TableError(missing_said(absent))
        if absent:
            warnings.warn(
                f"Values are missing where none were in the training data: {counted(absent)}; "
                "the median or the most frequent value takes their place.",
                TableWarning,
                stacklevel=3,
            )

    def _check_feature_names(self) -> None:
        names = self.feature_names
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise TableError(f"Several inputs would be called {listed(twice)}. Rename a column.")


def labelled(frame: Any, target: str) -> Any:
    """Return the rows whose target is there, as a PyArrow table.

    Examples
    --------
    >>> labelled({"x": [1, 2, 3], "y": [0.5, None, 0.7]}, "y").num_rows
    2
    """
    table = as_table(frame)
    _check_present(table.column_names, [target])
    return table.filter(arrow().array(missing(table[target]) == 0.0))


def _taken(values: Any, categorical: bool) -> Any:
    """Return a column, as text if it is to be one."""
    return arrow().chunked_array([as_text(values)]) if categorical else values


def _check_present(names: list[str], wanted: Collection[str]) -> None:
    lacking = [name for name in wanted if name not in names]
    if lacking:
        near = get_close_matches(lacking[0], names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {listed(names)}."
        raise TableError(f"There is no column {listed(map(repr, lacking))}; {hint}")


def _complete_numbers(table: Any, name: str, role: str) -> Array:
    """Return a column that must be made of finite numbers."""
    problem = _numbers_problem(table, name, role)
    if problem:
        raise TableError(problem)
    return as_numbers(table[name])


def _numbers_problem(table: Any, name: str, role: str) -> str:
    """Return why a column is not made of finite numbers, "" if it is."""
    values = table[name]
    if kind_of(values.type) not in ("number", "nothing"):
        return f"The {role} {name!r} must be made of numbers, but is of type {values.type}."
    absent = int(missing(values).sum())
    if absent:
        return (
            f"The {role} {name!r} is missing in {absent} of {len(values)} rows. Remove those "
            "rows; with --impute, fit leaves rows without a target out."
        )
    endless = int(np.isinf(as_numbers(values)).sum())
    return f"The {role} {name!r} is infinite in {endless} rows." if endless else ""
