"""Files and frames as tables of PyArrow, in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from eigengp.cli.tables.errors import TableError, listed
from eigengp.data.formats import FORMATS, arrow, open_dataset, table_ending, table_paths

_SEPARATORS = (",", ";", "\t", "|")


def read_table(path: str | Path, text: Collection[str] = ()) -> Any:
    """Read a table from a CSV, TSV, Parquet or Arrow file, or from several of one kind.

    Every value of a CSV file has a say in the type of its column, and an empty
    cell is missing in a column of text too. The separator is the one that the
    first line has.

    Parameters
    ----------
    path : path, folder or glob pattern
        What to read; `.csv.gz` and the like are decompressed.
    text : collection of str
        Columns of CSV files that are text, whatever they look like.

    Returns
    -------
    table : pyarrow.Table
        Its columns have names, each of its own.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    TableError
        If it cannot be read as a table.
    """
    paths = table_paths(path)
    form = FORMATS.get(table_ending(paths[0]))
    if form is None:
        raise TableError(f"{paths[0]} ends in none of {', '.join(FORMATS)}. Convert the file.")
    pa = arrow()
    try:
        if form == "csv":
            table = pa.concat_tables(
                [_from_csv(each, text) for each in paths], promote_options="permissive"
            )
        else:
            table = open_dataset(path).to_table()
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise TableError(f"{path} cannot be read: {error}") from error
    check_names(table.column_names)
    return table


def _from_csv(path: Path, text: Collection[str]) -> Any:
    pa = arrow()
    table = pa.csv.read_csv(
        str(path),
        parse_options=pa.csv.ParseOptions(delimiter=_separator(path)),
        convert_options=pa.csv.ConvertOptions(
            strings_can_be_null=True, column_types={name: pa.string() for name in text}
        ),
    )
    check_names(table.column_names)
    return table


def _separator(path: Path) -> str:
    """Return what separates the columns: a tab in TSV, else the commonest in the first line."""
    if table_ending(path) == ".tsv":
        return "\t"
    with arrow().input_stream(str(path)) as file:
        first, _, _ = bytes(file.read(1 << 16)).partition(b"\n")
    line = first.decode(errors="replace")
    return max(_SEPARATORS, key=line.count)


def check_names(names: list[str]) -> None:
    """Raise unless every column has a name of its own."""
    if "" in names:
        raise TableError(
            f"Column {names.index('') + 1} of the table has no name (row numbers that pandas "
            "wrote have none). Give it one, or remove it."
        )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise TableError(f"There are several columns of the same name: {listed(twice)}.")


def as_table(frame: Any) -> Any:
    """Return a PyArrow table, whatever kind of frame it came in.

    Parameters
    ----------
    frame : pyarrow.Table, pandas.DataFrame, mapping or frame of another library
        Columns with names; other libraries, such as Polars, hand theirs over by
        the Arrow interface.

    Examples
    --------
    >>> as_table({"area": [50.0, 80.0], "town": ["Leeds", None]}).column_names
    ['area', 'town']
    """
    pa = arrow()
    if isinstance(frame, pa.Table):
        table = frame
    else:
        try:
            if isinstance(frame, Mapping):
                table = pa.table(dict(frame))
            elif hasattr(frame, "iloc"):
                table = pa.Table.from_pandas(frame, preserve_index=False)
            else:
                table = pa.table(frame)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise TableError(f"This is no table that PyArrow understands: {error}") from error
    check_names(table.column_names)
    return table
