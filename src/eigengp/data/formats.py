"""Formats of table files: how to find, open and write them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from glob import glob, has_magic
from itertools import chain
from pathlib import Path
from typing import Any

from eigengp._atomic import check_target, replace_atomically
from eigengp._typing import Array

# The format of a file, by its ending.
FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "ipc",
    ".ipc": "ipc",
    ".feather": "ipc",
    ".csv": "csv",
    ".tsv": "csv",
}
# The endings of files that `write_table` writes.
WRITTEN = tuple(each for each in FORMATS if each != ".tsv")
OTHER_ENCODING = (
    "its text is not in the expected encoding. Convert it to UTF-8, or pass its encoding on the "
    "command line, such as --encoding cp1252 (Windows, Western Europe) or cp1251 (Cyrillic)."
)
_SEPARATORS = (",", ";", "\t", "|")


def is_table(X: Any) -> bool:
    """Return whether `X` names files or is a PyArrow dataset."""
    if isinstance(X, str | Path):
        return True
    return type(X).__module__.startswith("pyarrow.") and hasattr(X, "to_batches")


def open_dataset(X: Any, encoding: str | None = None) -> Any:
    """Open a path, a folder or a glob pattern as a PyArrow dataset.

    `encoding` is that of CSV files; None recognises it.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the ending is unknown.
    """
    dataset = import_arrow().dataset
    if not isinstance(X, str | Path):
        return X if isinstance(X, dataset.Dataset) else dataset.dataset(X)
    paths = find_tables(X)
    ending = get_ending(paths[0])
    if ending not in FORMATS:
        raise ValueError(
            f"{paths[0]} ends in none of {', '.join(FORMATS)}. Convert the file, or open it "
            "yourself and pass a pyarrow.dataset.Dataset."
        )
    form: Any = FORMATS[ending]
    files = [str(path) for path in paths]
    if form != "csv":
        return dataset.dataset(files, format=form)
    pa, style = import_arrow(), dataset.CsvFileFormat(**sniff_csv(paths[0], encoding))
    try:
        given = dataset.dataset(files, format=style).schema
        # Later rows of a column of integers may have fractions.
        types = {own.name: pa.float64() for own in given if pa.types.is_integer(own.type)}
    except UnicodeDecodeError as error:
        raise ValueError(f"{paths[0]} cannot be read: {OTHER_ENCODING}") from error
    style = dataset.CsvFileFormat(**sniff_csv(paths[0], encoding, types))
    found = dataset.dataset(files, format=style)
    names = found.schema.names
    # A first column without a name is the index of a pandas frame.
    no_index = names[0] != "" or len(names) == 1
    return found if no_index else found.replace_schema(found.schema.remove(0))


def check_column_names(y: Any, sample_weight: Any) -> None:
    """Raise unless targets, and weights if there are any, are names of columns of files."""
    for what, name in (("y", y), ("sample_weight", sample_weight)):
        if not (isinstance(name, str) or (name is None and what == "sample_weight")):
            raise TypeError(
                f"Where X names files, {what} is the name of one of their columns, as in "
                f"fit('data.parquet', 'price'), got {type(name).__name__}."
            )


def find_tables(X: str | Path) -> list[Path]:
    """Return the files of a path, a folder or a glob pattern, all of one format."""
    text = str(X)
    if Path(X).is_dir():
        found = sorted(path for path in Path(X).rglob("*") if get_ending(path) in FORMATS)
    elif Path(X).exists():
        found = [Path(X)]
    else:
        found = sorted(Path(each) for each in glob(text, recursive=True)) if has_magic(text) else []
    if not found:
        raise FileNotFoundError(f"There is no file {text!r}. Check the path, or quote the pattern.")
    formats = {FORMATS.get(get_ending(path)) for path in found}
    if len(formats) > 1:
        raise ValueError(
            f"{text!r} has files of several formats. Select one format, as in '*.csv'."
        )
    return found


def get_ending(path: Path) -> str:
    """Return the ending of the format in lower case, without that of a compression."""
    endings = [each.lower() for each in path.suffixes]
    compressed = endings and endings[-1] in (".gz", ".bz2", ".zst")
    return "".join(endings[-2:-1] if compressed else endings[-1:])


def import_arrow() -> Any:
    """Import PyArrow and its submodules."""
    try:
        import pyarrow
        import pyarrow.csv
        import pyarrow.dataset
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise ImportError(
            "Files, and frames with text, dates or missing values, are read with PyArrow; install "
            'it with pip install "eigengp[data]", or pass numbers.'
        ) from None
    return pyarrow


def sniff_csv(
    path: Path, encoding: str | None = None, types: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return PyArrow's options for a CSV file, with its encoding and separator.

    Both are recognised from the first line. The encoding is UTF-16 if the file begins with its
    mark, and UTF-8 otherwise. The separator is the most frequent of comma, semicolon, tabulator and
    bar outside of quotes. `types` are those of columns whose type is not to be recognised.
    """
    with import_arrow().input_stream(str(path)) as file:
        start = bytes(file.read(1 << 16))
    if encoding is None:
        encoding = "utf16" if start[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf8"
    try:
        line = start.decode(encoding, errors="replace").partition("\n")[0]
    except LookupError:
        raise ValueError(
            f"There is no encoding {encoding!r}; utf-8, cp1252 and latin-1 are common."
        ) from None
    csv, separator = import_arrow().csv, max(_SEPARATORS, key=re.sub(r'"[^"]*"', "", line).count)
    convert = csv.ConvertOptions(strings_can_be_null=True, column_types=dict(types or {}))
    return {
        "read_options": csv.ReadOptions(encoding=encoding),
        "parse_options": csv.ParseOptions(delimiter=separator),
        "convert_options": convert,
    }


@contextmanager
def explain_errors() -> Iterator[None]:
    """Raise errors of PyArrow about unreadable files as `ValueError`."""
    try:
        yield
    except import_arrow().ArrowException as error:
        raise ValueError(f"The file cannot be read: {error}") from error


def write_table(path: str | Path, parts: Iterable[Mapping[str, Array]]) -> int:
    """Write columns part by part to a Parquet, Arrow or CSV file; return the number of rows.

    The file is replaced when it is complete; an error leaves the old file.
    """
    pa, path = import_arrow(), Path(path)
    check_target(path, WRITTEN)
    writers = {"parquet": pa.parquet.ParquetWriter, "ipc": pa.ipc.new_file, "csv": pa.csv.CSVWriter}
    write: Any = writers[FORMATS[path.suffix.lower()]]
    batches = (pa.record_batch(dict(part)) for part in parts)
    first = next(batches, None)
    if first is None:
        raise ValueError(f"There are no rows to write to {path}.")
    count = 0
    with replace_atomically(path) as scratch, write(str(scratch), first.schema) as writer:
        for batch in chain([first], batches):
            writer.write_batch(batch)
            count += batch.num_rows
    return count
