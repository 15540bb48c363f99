"""Read tables from files, and split them into inputs, target and weights."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Self

import numpy as np

from eigengp._format import format_number, quoted
from eigengp._typing import Array
from eigengp.data.encode import (
    TableEncoder,
    TableError,
    TableWarning,
    as_table,
    check_names,
    check_present,
    count_categories,
    find_missing,
    get_kind,
    join,
    to_numbers,
    to_text,
)
from eigengp.data.formats import FORMATS, find_tables, get_ending, import_arrow, open_dataset

_MOST_OPTIONS, _LONG_OPTION = 8, 100
_SEPARATORS = (",", ";", "\t", "|")
_NUMBERS = ("mean", "std", "min", "max")
_HISTOGRAM_BINS, _HISTOGRAM_CATEGORIES, _SHOWN_CATEGORIES = 16, 8, 4


def read_table(path: str | Path, text: Collection[str] = ()) -> Any:
    """Read a table from one or several CSV, TSV, Parquet or Arrow files.

    The type of a CSV column follows from all of its values, and empty cells are missing values.
    The separator is the most frequent one in the first line.

    Parameters
    ----------
    path : path, folder or glob pattern
        The files; compressed ones such as `.csv.gz` are decompressed.
    text : collection of str
        Columns of CSV files to read as text.

    Returns
    -------
    table : pyarrow.Table
        Its columns have different names.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    TableError
        If a file cannot be read.
    """
    paths = find_tables(path)
    form = FORMATS.get(get_ending(paths[0]))
    if form is None:
        raise TableError(f"{paths[0]} must end in one of {', '.join(FORMATS)}.")
    pa = import_arrow()
    try:
        if form == "csv":
            parts = [_read_csv(each, text) for each in paths]
            table = pa.concat_tables(parts, promote_options="permissive")
        else:
            table = open_dataset(path).to_table()
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise TableError(f"{path} cannot be read: {error}") from error
    check_names(table.column_names)
    return table


def _read_csv(path: Path, text: Collection[str]) -> Any:
    pa, separator = import_arrow(), "\t"
    if get_ending(path) != ".tsv":
        with pa.input_stream(str(path)) as file:
            first_line = bytes(file.read(1 << 16)).partition(b"\n")[0].decode(errors="replace")
        separator = max(_SEPARATORS, key=first_line.count)
    table = pa.csv.read_csv(
        str(path),
        parse_options=pa.csv.ParseOptions(delimiter=separator),
        convert_options=pa.csv.ConvertOptions(
            strings_can_be_null=True, column_types={name: pa.string() for name in text}
        ),
    )
    check_names(table.column_names)
    return table


def drop_unlabelled(frame: Any, target: str) -> Any:
    """Drop the rows without a target, with a `TableWarning`; return a PyArrow table."""
    table = as_table(frame)
    check_present(table, [target])
    labelled = table.filter(import_arrow().array(find_missing(table[target]) == 0.0))
    dropped = table.num_rows - labelled.num_rows
    if dropped:
        message = f"{dropped} of {table.num_rows} rows have no target and are dropped."
        warnings.warn(message, TableWarning, stacklevel=2)
    return labelled


@dataclass(frozen=True)
class TableSchema:
    """The roles of the columns of a table: inputs and their encoding, target, weights.

    Parameters
    ----------
    encoder : TableEncoder
        Encodes the inputs.
    target : str
        The column to predict; "" if unknown.
    weights : str or None
        The column with the weight of each row.
    dropped : tuple of str
        Columns that the user has dropped.
    labels : bool
        Whether the target is text or flags: classes, which are read as text.

    Examples
    --------
    >>> houses = {"area": [50.0, 80.0, 65.0], "price": [1.0, 3.0, 2.0]}
    >>> schema = TableSchema.learn(houses, "price")
    >>> X, y, weights = schema.split(houses)
    >>> X.shape, y, weights
    ((3, 1), array([1., 3., 2.]), None)
    """

    encoder: TableEncoder
    target: str
    weights: str | None = None
    dropped: tuple[str, ...] = ()
    labels: bool = False

    @classmethod
    def learn(
        cls,
        frame: Any,
        target: str,
        *,
        weights: str | None = None,
        drop: Collection[str] = (),
        only: Sequence[str] | None = None,
        categorical: Collection[str] = (),
        impute: bool = False,
    ) -> Self:
        """Learn the encoding of the inputs: all other columns, or `only` some, less `drop`.

        Raises
        ------
        TableError
            If a column is absent or cannot be used; the message names the options that help.
        """
        table = as_table(frame)
        special = [target] if weights is None else [target, weights]
        check_present(table, [*special, *drop, *(only or ()), *categorical])
        if clash := set(special) & {*drop, *(only or ())}:
            raise TableError(f"{join(clash)} cannot be both an input and the target or weights.")
        others = [name for name in table.column_names if name not in special]
        wanted = set(only or others) - set(drop)
        inputs = [name for name in others if name in wanted]
        named = [name for name in inputs if name in categorical]
        labels = get_kind(table[target].type) in ("category", "flag")
        problem = _find_problem(table, target, "target", labels)
        try:
            encoder = TableEncoder(impute=impute, categorical=named).fit(table.select(inputs))
        except TableError as error:
            hint = f"To drop columns: {format_drop(error.columns)}." if error.columns else ""
            raise TableError(f"{problem} {error} {hint}".strip()) from None
        if problem:
            raise TableError(problem)
        dropped = tuple(name for name in others if name not in wanted)
        return cls(encoder, target, weights, dropped, labels)

    @property
    def ignored(self) -> dict[str, str]:
        """Columns that are not used, each with the reason: "dropped", "constant" or "empty"."""
        return {**dict.fromkeys(self.dropped, "dropped"), **self.encoder.ignored_}

    @property
    def names(self) -> set[str]:
        """All columns that a table may have."""
        special = {self.target} if self.weights is None else {self.target, self.weights}
        return {*self.encoder.feature_names_in_, *special, *self.dropped}

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns that `read_table` should read as text."""
        return tuple(each.name for each in self.encoder.columns_ if each.kind == "category")

    def encode(self, frame: Any) -> Array:
        """Encode the inputs of a table, shape (n, D); raise if it has unknown columns."""
        table, known = as_table(frame), self.names
        unknown = [name for name in table.column_names if name not in known]
        if unknown:
            raise TableError(
                f"The table has columns that the model was not fitted with: {join(unknown)}. "
                f"Drop them: {format_drop(unknown)}."
            )
        array: Array = self.encoder.transform(table)
        return array

    def split(self, frame: Any) -> tuple[Array, Array, Array | None]:
        """Return inputs (n, D), targets (n,), and weights (n,) if the table has them."""
        table = as_table(frame)
        read = _read_labels if self.labels else _read_numbers
        X, y, weights = self.encode(table), read(table, self.target, "target"), None
        if self.weights is not None and self.weights in table.column_names:
            weights = _read_numbers(table, self.weights, "weight")
            if weights.min() < 0.0 or weights.max() == 0.0:
                raise TableError(f"The weights {quoted(self.weights)} are negative or all zero.")
        return X, y, weights

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {**vars(self), "encoder": self.encoder.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Restore a schema from `to_dict`."""
        try:
            encoder = TableEncoder.from_dict(values["encoder"])
            names = values["target"], values["weights"], tuple(values["dropped"])
            return cls(encoder, *names, bool(values.get("labels", False)))
        except (KeyError, TypeError) as error:
            raise TableError(f"This is not a stored table schema ({error!r}).") from error


def summarize_table(frame: Any, schema: TableSchema) -> dict[str, Any]:
    """Summarize the rows, target and inputs of a training table as plain values.

    Examples
    --------
    >>> houses = {"town": ["Hull", "Leeds", "Hull"], "price": [1.0, 3.0, 2.0]}
    >>> found = summarize_table(houses, TableSchema.learn(houses, "price"))
    >>> found["rows"], found["target"]["mean"], found["inputs"]["town"]["counts"]
    (3, 2.0, {'Hull': 2, 'Leeds': 1})
    """
    table = as_table(frame)
    columns = schema.encoder.columns_
    return {
        "rows": int(table.num_rows),
        "target": {
            "name": schema.target,
            **_summarize_column("category" if schema.labels else "number", table[schema.target]),
        },
        "inputs": {each.name: _summarize_column(each.kind, table[each.name]) for each in columns},
    }


def _summarize_column(kind: str, values: Any) -> dict[str, Any]:
    if kind != "category":
        return summarize_numbers(to_numbers(values), kind)
    counts = count_categories(values)
    largest = list(counts.values())[:_HISTOGRAM_CATEGORIES]
    missing = int(find_missing(values).sum())
    own = {"kind": kind, "missing": missing, "distinct": len(counts), "counts": counts}
    return {**own, "bars": [count / largest[0] for count in largest]}


def summarize_numbers(numbers: Array, kind: str = "number") -> dict[str, Any]:
    """Summarize numbers, NaN where missing: their range, and a histogram with maximum 1.

    Examples
    --------
    >>> found = summarize_numbers(np.array([1.0, np.nan, 3.0, 3.0]))
    >>> found["missing"], found["distinct"], found["max"]
    (1, 2, 3.0)
    """
    present = numbers[~np.isnan(numbers)]
    own = {"kind": kind, "missing": int(numbers.size - present.size), "distinct": 0, "bars": []}
    if not present.size:
        return own
    ends = (present.min(), present.max()) if np.ptp(present) > 0.0 else None
    heights, _ = np.histogram(present, _HISTOGRAM_BINS, ends)
    own |= {"distinct": int(np.unique(present).size), "bars": (heights / heights.max()).tolist()}
    return {**own, **{name: float(getattr(present, name)()) for name in _NUMBERS}}


def describe_column(data: dict[str, Any] | None) -> str:
    """Describe a summary of a column in a few words."""
    if data is None:
        return ""
    missing = f"; {data['missing']} missing" if data["missing"] else ""
    if not data["distinct"]:
        return "no values"
    if data["kind"] == "flag":
        return f"true in {data['mean']:.0%}{missing}"
    if data["kind"] == "number":
        low, high, mean = (format_number(data[name]) for name in ("min", "max", "mean"))
        return f"{low} to {high}, mean {mean}{missing}"
    counts = list(data["counts"].items())
    shown = ", ".join(f"{name} ({count:,})" for name, count in counts[:_SHOWN_CATEGORIES])
    return shown + (", …" if len(counts) > _SHOWN_CATEGORIES else "") + missing


def format_drop(names: Iterable[str]) -> str:
    """Return the options that drop columns; some of them, if they are many or their names long.

    Examples
    --------
    >>> format_drop(["id", "full name"])
    "--drop id --drop 'full name'"
    """
    options = [f"--drop {quote(name)}" for name in names]
    shown = [each for each in options if len(each) < _LONG_OPTION][:_MOST_OPTIONS]
    return " ".join(shown) + (" …" if len(shown) < len(options) else "")


def _read_numbers(table: Any, name: str, role: str) -> Array:
    """Return a column of finite numbers, shape (n,)."""
    check_present(table, [name])
    if problem := _find_problem(table, name, role):
        raise TableError(problem)
    return to_numbers(table[name])


def _read_labels(table: Any, name: str, role: str) -> Any:
    """Return a column of labels as text, shape (n,)."""
    check_present(table, [name])
    if problem := _find_problem(table, name, role, labels=True):
        raise TableError(problem)
    return np.array(to_text(table[name]).to_pylist(), dtype=np.str_)


def _find_problem(table: Any, name: str, role: str, labels: bool = False) -> str:
    """Return why a column does not consist of finite numbers or labels, "" if it does."""
    values = table[name]
    if not labels and get_kind(values.type) not in ("number", "empty"):
        return f"The {role} {quoted(name)} must be numeric, but its type is {values.type}."
    missing = int(find_missing(values).sum())
    if missing:
        return (
            f"The {role} {quoted(name)} is missing in {missing} of {len(values)} rows. Remove "
            "these rows; fit --impute drops rows without a target."
        )
    infinite = 0 if labels else int(np.isinf(to_numbers(values)).sum())
    return f"The {role} {quoted(name)} is infinite in {infinite} rows." if infinite else ""
