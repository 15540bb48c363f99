"""Tables that are read in chunks in every pass, for data larger than memory; those in files."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import iadd
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from eigengp.backend.namespace import AnyArray
from eigengp.data.array_source import (
    BLOCK_ROWS,
    ArraySource,
    check_finite,
    choose_block_rows,
    count_chunk_rows,
    pick_rows,
)
from eigengp.data.columns import check_present, find_target_decimal, get_kind, to_numbers, to_text
from eigengp.data.formats import explain_errors, import_arrow, open_dataset
from eigengp.gp.blocks import RowBlock, SumT, in_memory, regrouped

T = TypeVar("T")

_AHEAD = 2  # The number of chunks read ahead.
_SEEN_ROWS = 10_000  # The rows that show the decimal separator of numbers in text.


class Table(Protocol):
    """Rows that can be read from start to end, repeatedly."""

    @property
    def n_rows(self) -> int:
        """The number of rows."""

    @property
    def n_features(self) -> int:
        """The number of inputs."""

    @property
    def features(self) -> Sequence[str]:
        """The names of the inputs."""

    def chunks(self) -> Iterator[RowBlock]:
        """Read all rows in order, as NumPy arrays, in chunks much smaller than memory."""


def read_ahead(items: Callable[[], Iterator[T]]) -> Generator[T]:
    """Yield the items of `items()`, which a thread reads ahead.

    Errors in the thread are raised here. The thread ends when the generator is closed.
    """
    reader, rest = ThreadPoolExecutor(1, "eigengp-reader"), items()
    try:
        ahead = deque(reader.submit(next, rest, None) for _ in range(_AHEAD))
        while (item := ahead.popleft().result()) is not None:
            ahead.append(reader.submit(next, rest, None))
            yield item
    finally:
        reader.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class StreamSource:
    """The row blocks of a table.

    Each chunk is summed like an `ArraySource` while the next one is read. A table that fits into
    the memory limit is read once.

    Parameters
    ----------
    table : Table
        The rows.
    memory_limit : int
        The largest size of rows held in memory, in bytes.
    block_rows : int
        Rows in a block.
    move : callable or None
        Moves an array to the device for computations.
    """

    table: Table
    memory_limit: int = 0
    block_rows: int = BLOCK_ROWS
    move: Callable[[AnyArray], AnyArray] | None = None
    _held: list[RowBlock] = field(default_factory=list, compare=False)

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self.table.n_rows

    @property
    def n_features(self) -> int:
        """The number of inputs."""
        return self.table.n_features

    def sized(self, n_columns: int) -> StreamSource:
        """Return the same rows in blocks for `n_columns` features."""
        some = np.empty((0, self.n_features)) if self.move is None else self.move(np.empty((1, 1)))
        return replace(self, block_rows=choose_block_rows(some, n_columns))

    def total(self, term: Callable[[RowBlock], SumT]) -> SumT:
        """Return the sum of `term(block)` over all blocks, as NumPy arrays."""
        with closing(self._chunks()) as chunks:
            moved = (c.map_arrays(self.move, c.start) if self.move else c for c in chunks)
            sources = (replace(ArraySource.of(c), block_rows=self.block_rows) for c in moved)
            return reduce(iadd, (source.total(term) for source in sources))

    def take(self, rows: NDArray[np.intp]) -> RowBlock:
        """Return a copy of rows, given by ascending numbers; stops reading after the last."""
        with closing(self._chunks()) as chunks:
            return pick_rows(chunks, rows)

    def batches(self, size: int, rng: np.random.RandomState) -> Iterator[RowBlock]:
        """Yield all rows once, in order, in batches of `size`."""
        with closing(self._chunks()) as chunks:
            for batch in regrouped(chunks, size):
                yield in_memory([batch], self.n_features)

    def _chunks(self) -> Generator[RowBlock]:
        """Yield all chunks, from memory if they are held there."""
        if self._held:
            yield from self._held
            return
        size, chunks = 0, []
        for chunk in read_ahead(self.table.chunks):
            size += chunk.nbytes
            if size <= self.memory_limit:
                chunks.append(chunk)
            else:
                chunks.clear()
            yield chunk
        if size <= self.memory_limit:
            self._held.extend(chunks)


@dataclass(frozen=True)
class FileTable:
    """Rows of a dataset: columns for inputs, targets and sample weights.

    Parameters
    ----------
    dataset : pyarrow.dataset.Dataset
        The dataset with these columns.
    features : tuple of str
        The names of the inputs.
    target : str or None
        The name of the targets, if any.
    weight : str or None
        The name of the sample weights, if any.
    encoder : TableEncoder or None
        Encodes the inputs, where they are not numbers.
    """

    dataset: Any
    features: tuple[str, ...]
    target: str | None = None
    weight: str | None = None
    encoder: Any = None

    @classmethod
    def of(
        cls,
        X: Any,
        target: str | None = None,
        weight: str | None = None,
        features: Sequence[str] | None = None,
        encoder: Any = None,
    ) -> FileTable:
        """Open files; without `features`, all other columns are inputs.

        Raises
        ------
        ValueError
            If a column does not exist or does not hold numbers.
        """
        dataset = open_dataset(X)
        names = list(dataset.schema.names)
        others = {target, weight}
        inputs = tuple(name for name in names if name not in others)
        inputs = inputs if features is None else tuple(features)
        table = cls(dataset, inputs, target, weight, encoder)
        check_present(names, table._columns)
        for name in table._columns:
            if name in table._signs or not (encoder is None or name in others):
                continue
            kind = dataset.schema.field(name).type
            if get_kind(kind) not in ("number", "flag"):
                raise ValueError(
                    f"Column {name!r} holds {kind}, not numbers. Encode it as numbers, or leave it "
                    "out of the file."
                )
        if not table.features:
            raise ValueError(f"There is no input column besides the target {target!r}.")
        return table

    @property
    def _columns(self) -> list[str]:
        return [*self.features, *(name for name in (self.target, self.weight) if name is not None)]

    @cached_property
    def _signs(self) -> dict[str, str]:
        """The decimal separators of targets and weights in text, such as 1.234,50."""
        schema = self.dataset.schema
        found: dict[str, str] = {}
        for name in {str(self.target), str(self.weight)} & set(schema.names):
            if get_kind(schema.field(name).type) == "category":
                with explain_errors():
                    few = self.dataset.head(_SEEN_ROWS, columns=[name])[name]
                sign = find_target_decimal(to_text(few).drop_null().unique().to_pylist())
                if sign == "?":
                    sign = str(getattr(self.encoder, "decimal_", ""))
                if sign:
                    found[name] = sign
        return found

    @cached_property
    def n_rows(self) -> int:
        """The number of rows."""
        with explain_errors():
            return int(self.dataset.count_rows())

    @property
    def n_features(self) -> int:
        """The number of inputs, after encoding."""
        encoder = self.encoder
        return len(self.features) if encoder is None else len(encoder.lengthscale_groups_)

    def chunks(self) -> Iterator[RowBlock]:
        """See `Table.chunks`; only the needed columns are read."""
        with explain_errors():
            yield from regrouped(self._read_blocks(), count_chunk_rows(self.n_features))

    def _read_blocks(self) -> Iterator[RowBlock]:
        """Read all rows in the batches of PyArrow."""
        options: dict[str, Any] = {"batch_readahead": 1, "fragment_readahead": 1}
        kinds = import_arrow().dataset
        if isinstance(getattr(self.dataset, "format", None), kinds.ParquetFileFormat):
            options["fragment_scan_options"] = kinds.ParquetFragmentScanOptions(
                use_buffered_stream=True, pre_buffer=False
            )
        size, start = count_chunk_rows(self.n_features), 0
        scanner = self.dataset.scanner(
            columns=self._columns, batch_size=size, use_threads=False, **options
        )
        for batch in scanner.to_batches():
            yield self._make_block(batch, start)
            start += batch.num_rows

    def _make_block(self, batch: Any, start: int) -> RowBlock:
        names = self._columns if self.encoder is None else self._columns[len(self.features) :]
        columns = {name: self._read_column(batch, name, start) for name in names}
        if self.encoder is not None:
            X = self.encoder.transform(import_arrow().Table.from_batches([batch]))
        else:
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

    def _read_column(self, batch: Any, name: str, start: int) -> NDArray[np.floating]:
        """Return a column as finite floating-point numbers."""
        pa = import_arrow()
        column = batch.column(name)
        if name in self._signs:
            column = pa.array(to_numbers(column, self._signs[name]))
        if not pa.types.is_floating(column.type):
            column = column.cast(pa.float64())
        numbers: NDArray[np.floating] = column.to_numpy(zero_copy_only=False)
        check_finite(f"Column {name!r}", numbers, start)
        return numbers
