"""Tables in files: Parquet, Arrow and CSV, read chunk by chunk through PyArrow."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from glob import glob, has_magic
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigengp.flow.sums import RowBlock, joined
from eigengp.sources.arrays import chunk_rows
from eigengp.typing import Array

_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "ipc",
    ".ipc": "ipc",
    ".feather": "ipc",
    ".csv": "csv",
    ".tsv": "csv",
}
ENDINGS = tuple(_FORMATS)


def is_table(X: Any) -> bool:
    """Say whether `X` names files or is a PyArrow dataset."""
    if isinstance(X, str | Path):
        return True
    return type(X).__module__.startswith("pyarrow.") and hasattr(X, "to_batches")


def open_dataset(X: Any) -> Any:
    """Return the PyArrow dataset behind a path, a folder, a glob pattern or a dataset.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the ending is none that is known.
    """
    dataset = _pyarrow().dataset
    if not isinstance(X, str | Path):
        return X if isinstance(X, dataset.Dataset) else dataset.dataset(X)
    paths = _paths(X)
    ending = _ending(paths[0])
    if ending not in _FORMATS:
        raise ValueError(
            f"{paths[0]} ends in none of {', '.join(ENDINGS)}. Convert the file, or open it "
            "yourself and pass a pyarrow.dataset.Dataset."
        )
    form: Any = _FORMATS[ending]
    if form == "csv":
        form = _csv_format("\t" if ending == ".tsv" else ",")
    opened = dataset.dataset([str(path) for path in paths], format=form)
    return opened if _FORMATS[ending] != "csv" else _with_floats(opened, form)


def _paths(X: str | Path) -> list[Path]:
    text = str(X)
    if Path(X).is_dir():
        found = sorted(path for path in Path(X).rglob("*") if _ending(path) in _FORMATS)
    elif Path(X).exists():
        found = [Path(X)]
    else:
        found = sorted(Path(each) for each in glob(text, recursive=True)) if has_magic(text) else []
    if not found:
        raise FileNotFoundError(f"There is no file {text!r}. Check the path, or quote the pattern.")
    formats = {_FORMATS.get(_ending(path)) for path in found}
    if len(formats) > 1:
        raise ValueError(
            f"{text!r} has files of several formats. Name those of one, as in '*.csv'."
        )
    return found


def _ending(path: Path) -> str:
    endings = [each.lower() for each in path.suffixes]
    compressed = endings and endings[-1] in (".gz", ".bz2", ".zst")
    return "".join(endings[-2:-1] if compressed else endings[-1:])


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.dataset
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise ImportError(
            'Files are read with PyArrow; install it with pip install "eigengp[data]", or read '
            "the file yourself and pass arrays."
        ) from None
    return pyarrow


def _csv_format(delimiter: str, types: dict[str, Any] | None = None) -> Any:
    arrow = _pyarrow()
    return arrow.dataset.CsvFileFormat(
        parse_options=arrow.csv.ParseOptions(delimiter=delimiter),
        convert_options=arrow.csv.ConvertOptions(column_types=types or {}),
    )


def _with_floats(dataset: Any, form: Any) -> Any:
    """Return a CSV dataset whose integers are read as float64: later rows may have fractions."""
    arrow = _pyarrow()
    whole = arrow.types.is_integer
    integers = {each.name: arrow.float64() for each in dataset.schema if whole(each.type)}
    if not integers:
        return dataset
    form = _csv_format(form.parse_options.delimiter, integers)
    return arrow.dataset.dataset(dataset.files, format=form)


def _is_number(kind: Any) -> bool:
    types = _pyarrow().types
    kinds = (types.is_integer, types.is_boolean, types.is_floating, types.is_decimal)
    return any(each(kind) for each in kinds)


@dataclass(frozen=True)
class FileTable:
    """Rows of a dataset: some of its columns as inputs, one as targets, one perhaps as weights.

    Parameters
    ----------
    dataset : pyarrow.dataset.Dataset
        Where the columns are.
    features : tuple of str
        The inputs.
    target : str or None
        The targets; None where there are none.
    weight : str or None
        The sample weights.
    """

    dataset: Any
    features: tuple[str, ...]
    target: str | None = None
    weight: str | None = None

    @classmethod
    def of(
        cls,
        X: Any,
        target: str | None = None,
        weight: str | None = None,
        features: Sequence[str] | None = None,
    ) -> FileTable:
        """Open files; without `features`, all other columns are inputs.

        Raises
        ------
        ValueError
            If a column is not there, or is not made of numbers.
        """
        dataset = open_dataset(X)
        names = list(dataset.schema.names)
        others = {target, weight}
        inputs = tuple(name for name in names if name not in others)
        table = cls(dataset, inputs if features is None else tuple(features), target, weight)
        for name in table._columns:
            _check_column(dataset.schema, name)
        if not table.features:
            raise ValueError(f"Beside the target {target!r} there is no column to learn from.")
        return table

    @property
    def _columns(self) -> list[str]:
        return [*self.features, *(name for name in (self.target, self.weight) if name is not None)]

    @cached_property
    def n_rows(self) -> int:
        """How many rows there are."""
        with _explained():
            return int(self.dataset.count_rows())

    @property
    def n_features(self) -> int:
        """How many inputs each row has."""
        return len(self.features)

    def chunks(self) -> Iterator[RowBlock]:
        """See `Table.chunks`; only the columns that are needed are read."""
        size, start = chunk_rows(self.n_features), 0
        left: list[RowBlock] = []
        with _explained():
            for batch in self._batches():
                left.append(self._block(batch, start))
                start += batch.num_rows
                while sum(each.y.shape[0] for each in left) >= size:
                    chunk, rest = joined(left).cut(size)
                    left = [rest]
                    yield chunk
        last = joined(left)
        if last.y.shape[0]:
            yield last

    def _batches(self) -> Iterator[Any]:
        arrow = _pyarrow()
        options: dict[str, Any] = {"batch_readahead": 1, "fragment_readahead": 1}
        if isinstance(self.dataset, arrow.dataset.FileSystemDataset) and isinstance(
            self.dataset.format, arrow.dataset.ParquetFileFormat
        ):
            options["fragment_scan_options"] = arrow.dataset.ParquetFragmentScanOptions(
                use_buffered_stream=True, pre_buffer=False
            )
        batches: Iterator[Any] = self.dataset.scanner(
            columns=self._columns,
            batch_size=chunk_rows(self.n_features),
            use_threads=False,
            **options,
        ).to_batches()
        return batches

    def _block(self, batch: Any, start: int) -> RowBlock:
        columns = {name: self._numbers(batch, name, start) for name in self._columns}
        single = all(columns[name].dtype == np.float32 for name in self.features)
        X = np.empty((batch.num_rows, self.n_features), np.float32 if single else np.float64)
        for j, name in enumerate(self.features):
            X[:, j] = columns[name]
        y = np.zeros(batch.num_rows) if self.target is None else columns[self.target]
        weight = None if self.weight is None else columns[self.weight].astype(np.float64)
        if weight is not None and np.any(weight < 0.0):
            row = start + int(np.argmax(weight < 0.0))
            raise ValueError(f"Column {self.weight!r} has a negative weight in row {row}.")
        return RowBlock(X, np.asarray(y, dtype=np.float64), weight, start)

    def _numbers(self, batch: Any, name: str, start: int) -> NDArray[np.floating]:
        """Return a column as floating-point numbers, all of them finite."""
        arrow = _pyarrow()
        column = batch.column(name)
        if not arrow.types.is_floating(column.type):
            column = column.cast(arrow.float64())
        if column.null_count:
            row = start + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise ValueError(_unusable(name, row, "no value"))
        numbers: NDArray[np.floating] = column.to_numpy(zero_copy_only=False)
        wrong = ~np.isfinite(numbers)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(_unusable(name, start + row, f"{numbers[row]}"))
        return numbers


def _unusable(name: str, row: int, what: str) -> str:
    return (
        f"Column {name!r} has {what} in row {row} (counted from 0). Drop such rows, fill them in, "
        "or leave the column out of the file."
    )


def _check_column(schema: Any, name: str) -> None:
    """Raise where a column is not there, or is not made of numbers."""
    if name not in schema.names:
        raise ValueError(
            f"There is no column {name!r}; the file has {', '.join(map(repr, schema.names))}."
        )
    kind = schema.field(name).type
    if not _is_number(kind):
        raise ValueError(
            f"Column {name!r} holds {kind}, not numbers. Encode it as numbers, or leave it out of "
            "the file."
        )


@contextmanager
def _explained() -> Iterator[None]:
    """Turn what PyArrow says of unreadable files into an error of ours."""
    try:
        yield
    except _pyarrow().ArrowException as error:
        raise ValueError(f"The file cannot be read: {error}") from error


def write_table(path: str | Path, parts: Iterable[Mapping[str, Array]]) -> int:
    """Write columns part by part to a Parquet, Arrow or CSV file, and return how many rows.

    The file appears when it is whole; an error leaves what was there before.
    """
    arrow, path = _pyarrow(), Path(path)
    writer_of = {
        ".parquet": arrow.parquet.ParquetWriter,
        ".pq": arrow.parquet.ParquetWriter,
        ".arrow": arrow.ipc.new_file,
        ".ipc": arrow.ipc.new_file,
        ".feather": arrow.ipc.new_file,
        ".csv": arrow.csv.CSVWriter,
    }
    if path.suffix.lower() not in writer_of:
        raise ValueError(f"{path} must end in one of {', '.join(writer_of)}.")
    scratch = path.with_name(f".{path.name}.{os.getpid()}.part")
    count, writer = 0, None
    try:
        for part in parts:
            batch = arrow.record_batch(dict(part))
            if writer is None:
                writer = writer_of[path.suffix.lower()](str(scratch), batch.schema)
            writer.write_batch(batch)
            count += batch.num_rows
        if writer is None:
            raise ValueError(f"There are no rows to write to {path}.")
        writer.close()
        os.replace(scratch, path)
    except BaseException:
        if writer is not None:
            writer.close()
        raise
    finally:
        scratch.unlink(missing_ok=True)
    return count
