"""Read tables from files, and split them into inputs, target and weights."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any, Self

import numpy as np

from eigengp import io
from eigengp._format import format_value, quoted, shorten
from eigengp._typing import Array
from eigengp.data.columns import (
    TableError,
    TableWarning,
    as_table,
    check_names,
    check_present,
    count_categories,
    find_decimal,
    find_missing,
    find_no_number,
    find_odd_cell,
    find_target_decimal,
    get_kind,
    join,
    read_numbers,
    to_text,
)
from eigengp.data.encode import Column, TableEncoder
from eigengp.data.formats import (
    FORMATS,
    OTHER_ENCODING,
    find_tables,
    get_ending,
    import_arrow,
    open_dataset,
    sniff_csv,
)
from eigengp.estimators.base import GPRegressor
from eigengp.inspection import feature_names

_MOST_OPTIONS, _LONG_OPTION = 8, 100
MEMORY_SHARE = 0.25  # Tables that take a larger share of the memory are read in chunks.
_EXPANSION = 5  # How much larger compressed files and Parquet are in memory.
_NUMBERS = ("mean", "std", "min", "max")
_HISTOGRAM_BINS, _HISTOGRAM_CATEGORIES, _SHOWN_CATEGORIES = 16, 8, 4


def read_table(
    path: str | Path,
    text: Collection[str] = (),
    encoding: str | None = None,
    decimal: str | None = None,
) -> Any:
    """Read a table from one or several CSV, TSV, Parquet or Arrow files.

    The type of a CSV column follows from all of its values, and empty cells are missing values.
    The separator is the most frequent one in the first line. In a CSV file with decimal commas,
    numbers with a point, such as 1.234, are read as text: they may be thousands. A first column
    without a name is the index of a pandas frame; it is dropped, with a `TableWarning`.

    Parameters
    ----------
    path : path, folder or glob pattern
        The files; compressed ones such as `.csv.gz` are decompressed.
    text : collection of str
        Columns of CSV files to read as text.
    encoding : str or None
        The encoding of CSV files, such as "cp1252"; None recognises UTF-8 and UTF-16.
    decimal : {".", ","} or None
        The decimal separator of CSV files; None recognises it.

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
            parts = [_read_csv(each, text, encoding, decimal) for each in paths]
            table = pa.concat_tables(parts, promote_options="permissive")
        else:
            table = open_dataset(path).to_table()
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise TableError(f"{path} cannot be read: {_explain(error)}") from error
    check_names(table.column_names)
    return table


def is_large(path: str | Path) -> bool:
    """Return whether files would take more than a quarter of the memory as a table."""
    expanded = 0
    for each in find_tables(path):
        ending, size = get_ending(each), each.stat().st_size
        expanded += size * _EXPANSION ** (
            (ending != each.suffix) + (FORMATS.get(ending) == "parquet")
        )
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError):  # Not known on all systems.
        return False
    return expanded > MEMORY_SHARE * memory


def _explain(error: Exception) -> str:
    """Return why a file cannot be read, and what may help."""
    if isinstance(error, UnicodeDecodeError) or "UTF8" in str(error):
        return OTHER_ENCODING
    if "CSV parse error" in str(error):
        return (
            f"{error}. The first line must name the columns, and all lines must have as many cells."
        )
    return str(error)


def _read_csv(path: Path, text: Collection[str], encoding: str | None, decimal: str | None) -> Any:
    pa = import_arrow()
    options, source = sniff_csv(path, encoding, {name: pa.string() for name in text}), str(path)
    if (known := options["read_options"].encoding) != "utf8":
        # Threads of PyArrow that hold a decoder or bytes of Python abort a program that ends.
        copy = pa.BufferOutputStream()
        copy.write(pa.input_stream(source).read().decode(known).encode())
        source, options["read_options"].encoding = pa.BufferReader(copy.getvalue()), "utf8"
    table = _drop_unnamed(pa.csv.read_csv(source, **options))
    check_names(table.column_names)
    if any(map(pa.types.is_binary, table.schema.types)):  # Text that is not UTF-8.
        raise TableError(f"{path} cannot be read: {OTHER_ENCODING}")
    points = _list_points(table)
    if points and (decimal == "," or (decimal is None and _find_signs(table) - {"?"} == {","})):
        return _read_csv(path, [*text, *points], encoding, ".")
    return table


def _drop_unnamed(table: Any) -> Any:
    """Drop the index of a pandas frame and empty columns of a spreadsheet, which have no name."""
    is_null = import_arrow().types.is_null
    unnamed = [i for i, each in enumerate(table.schema) if not each.name.strip()]
    empty = [i for i in unnamed if is_null(table.schema.field(i).type)]
    dropped = {*empty, *(i for i in unnamed if i == 0)}
    if len(dropped) in (0, table.num_columns):
        return table
    message = "Column 1 has no name, as the index of a pandas frame, and is ignored."
    if empty:
        message = f"Columns without names and values are ignored: {join(i + 1 for i in empty)}."
    warnings.warn(message, TableWarning, stacklevel=4)
    return table.select([i for i in range(table.num_columns) if i not in dropped])


def _list_points(table: Any) -> list[str]:
    """Return the columns of a CSV table whose numbers have a decimal point."""
    floating = import_arrow().types.is_floating
    return [each.name for each in table.schema if floating(each.type)]


def _find_signs(table: Any) -> set[str]:
    """Return the decimal separators of numbers in text; "?" stands for one that is not clear."""
    columns = [each for each in table.columns if get_kind(each.type) == "category"]
    signs = {find_decimal(to_text(each).drop_null().unique().to_pylist()) for each in columns}
    return signs - {""}


def find_point(path: Path, table: Any, encoding: str | None = None) -> dict[str, str]:
    """Return the decimal separator of a CSV file as a parameter, if it can only be a point.

    Then 1,234 is a thousand. A comma that separates columns is unlikely to separate decimals too.
    """
    first, signs = find_tables(path)[0], _find_signs(table)
    if FORMATS.get(get_ending(first)) != "csv" or "," in signs:
        return {}
    if _list_points(table):
        return {"decimal": "."}
    if sniff_csv(first, encoding)["parse_options"].delimiter != "," or "?" not in signs:
        return {}
    warnings.warn(
        "Numbers such as 1,234 are read as thousands, since commas separate the columns; pass "
        "--decimal , if they have decimals.",
        TableWarning,
        stacklevel=2,
    )
    return {"decimal": "."}


def holds_labels(values: Any) -> bool:
    """Return whether a column is of flags, or of text that does not hold numbers."""
    kind = get_kind(values.type)
    if kind != "category":
        return kind == "flag"
    texts = to_text(values).drop_null().unique().to_pylist()
    return not (find_target_decimal(texts) or find_odd_cell(texts))


def drop_unlabelled(frame: Any, target: str) -> Any:
    """Drop the rows without a target, with a `TableWarning`; return a PyArrow table."""
    table = as_table(frame)
    if not target:
        raise TableError("The model file does not name a target; pass --target.")
    check_present(table.column_names, [target])
    own, labels = table[target], holds_labels(table[target])
    missing = find_missing(own) > 0.0 if labels else find_no_number(own)
    if missing.any():
        if missing.all():
            raise TableError(f"Column {quoted(target)} has no values in any row.")
        message = f"{missing.sum()} of {table.num_rows} rows have no target and are dropped."
        warnings.warn(message, TableWarning, stacklevel=2)
        table = table.filter(import_arrow().array(~missing))
    if labels or not _ends_with_total(table, target):
        return table
    warnings.warn(
        "The last row is dropped: its target is the sum of the others, and at least half of its "
        "inputs are missing.",
        TableWarning,
        stacklevel=2,
    )
    return table[:-1]


def _ends_with_total(table: Any, target: str) -> bool:
    """Return whether the last row has the sum of the targets, and at most half of the inputs."""
    others = [name for name in table.column_names if name != target]
    gaps = sum(not table[name][-1].is_valid for name in others)
    if 2 * gaps < len(others) or table.num_rows < 4:
        return False
    try:
        numbers = read_numbers(table[target], ".")
    except TableError:  # Raised later, with the options to use.
        return False
    return bool(np.isclose(numbers[:-1].sum(), numbers[-1], rtol=1e-3))


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
        Whether the target is text, flags, or named as a category: classes, read as text.

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
        **encoding: Any,
    ) -> Self:
        """Learn the encoding of the inputs: all other columns, or `only` some, less `drop`.

        `encoding` are further parameters of `TableEncoder`.

        Raises
        ------
        TableError
            If a column is absent or cannot be used; the message names the options that help.
        """
        table = as_table(frame)
        special = [target] if weights is None else [target, weights]
        check_present(table.column_names, [*special, *drop, *(only or ()), *categorical])
        if clash := set(special) & {*drop, *(only or ())}:
            raise TableError(f"{join(clash)} cannot be both an input and the target or weights.")
        others = [name for name in table.column_names if name not in special]
        wanted = set(only or others) - set(drop)
        inputs = [name for name in others if name in wanted]
        named = [name for name in inputs if name in categorical]
        try:
            encoder = TableEncoder(categorical=named, **encoding).fit(table.select(inputs))
        except TableError as error:
            hint = f" To drop columns: {format_drop(error.columns)}." if error.columns else ""
            raise TableError(f"{error}{hint}") from None
        dropped = tuple(name for name in others if name not in wanted)
        labels = target in categorical or holds_labels(table[target])
        if labels and Column(target, "category").find_useless(table) == "an identifier":
            raise TableError(
                f"Column {quoted(target)} has other text in nearly every row, but classes need "
                "several rows each. Choose another target."
            )
        return cls(encoder, target, weights, dropped, labels)

    @classmethod
    def of_model(cls, model: Any, **roles: Any) -> Self:
        """Return the schema of a fitted model; inputs of one without an encoder are numbers."""
        encoder = getattr(model, "encoder_", None)
        if encoder is None:
            encoder = TableEncoder().fit({name: [0.0, 1.0] for name in feature_names(model)})
        return cls(encoder, **roles)

    @property
    def ignored(self) -> dict[str, str]:
        """Columns that are not used, each with the reason: "dropped", "constant" or "empty"."""
        return {**dict.fromkeys(self.dropped, "dropped"), **self.encoder.ignored_}

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns that `read_table` should read as text."""
        own = (each for each in self.encoder.columns_ if each.kind == "category" or each.decimal)
        return tuple(each.name for each in own)

    def split(self, frame: Any) -> tuple[Array, Array, Array | None]:
        """Return inputs (n, D), targets (n,), and weights (n,) if the table has them."""
        table = as_table(frame)
        weighted = self.weights is not None and self.weights in table.column_names
        weights = self._read(table, self.weights) if weighted else None
        return self.encoder.transform(table), self.read_target(table), weights

    def read_target(self, table: Any) -> Any:
        """Return the targets of a table: numbers, or labels as text, shape (n,)."""
        return self._read(table, self.target, self.labels)

    def _read(self, table: Any, name: Any, labels: bool = False) -> Any:
        """Return a column of finite numbers, or of labels as text, shape (n,)."""
        check_present(table.column_names, [name])
        values, decimal = table[name], self.encoder.decimal_ or None
        try:
            found = (
                np.array(to_text(values).to_pylist()) if labels else read_numbers(values, decimal)
            )
        except (TableError, import_arrow().ArrowException) as error:
            raise TableError(f"Column {quoted(name)} must be numeric: {error}") from None
        unusable = find_missing(values) > 0.0 if labels else ~np.isfinite(found)
        if unusable.any():
            share = f"{unusable.sum()} of {len(found)} rows"
            raise TableError(f"Column {quoted(name)} is missing or infinite in {share}.")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON, without the encoder, which the model stores."""
        return {name: value for name, value in vars(self).items() if name != "encoder"}


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
    if schema.labels:
        own = _summarize_categories(table[schema.target])
    else:
        own = summarize_numbers(schema.read_target(table))
    inputs = {
        each.name: _summarize_categories(table[each.name])
        if each.kind == "category"
        else summarize_numbers(each.read(table[each.name]), each.kind)
        for each in schema.encoder.columns_
    }
    rows = int(table.num_rows)
    return {"rows": rows, "target": {"name": schema.target, **own}, "inputs": inputs}


def _summarize_categories(values: Any) -> dict[str, Any]:
    counts = count_categories(values)
    largest = list(counts.values())[:_HISTOGRAM_CATEGORIES]
    missing = int(find_missing(values).sum())
    own = {"kind": "category", "missing": missing, "distinct": len(counts), "counts": counts}
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
    if data["kind"] == "date":
        first, last = (format_day(data[name]) for name in ("min", "max"))
        return f"{first} to {last}{missing}"
    if data["kind"] == "number":
        low, high, mean = (format_value(data[name]) for name in ("min", "max", "mean"))
        return f"{low} to {high}, mean {mean}{missing}"
    counts = list(data["counts"].items())
    shown = ", ".join(f"{shorten(name)} ({count:,})" for name, count in counts[:_SHOWN_CATEGORIES])
    return shown + (", …" if len(counts) > _SHOWN_CATEGORIES else "") + missing


def format_day(days: float) -> str:
    """Return days since 1970 as a date."""
    return str(np.datetime64(0, "D") + np.timedelta64(int(days // 1), "D"))


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


def open_model(path: Path, target: str | None = None) -> tuple[io.Saved, TableSchema]:
    """Read a model that was written by `fit` or saved from Python, and the schema of its table.

    The inputs of a model saved from Python are numbers, and its target is the one given.
    """
    saved = io.read(path)
    model, classifies = saved.model, hasattr(saved.model, "classes_")
    usable = isinstance(model, GPRegressor) or classifies
    if not usable or hasattr(model, "output_covariance_"):
        raise io.SavedModelError(
            f"{path} holds a {type(model).__name__}, which the command line does not support; "
            "load it in Python with eigengp.load."
        )
    roles = {"target": "", "labels": classifies} | saved.about.get("schema", {})
    schema = TableSchema.of_model(model, **roles)
    return saved, replace(schema, target=target or schema.target)
