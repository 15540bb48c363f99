"""Rows that are read in chunks in every pass, for data larger than memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import iadd
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from eigengp.backend.namespace import AnyArray
from eigengp.data.array_source import BLOCK_ROWS, ArraySource, choose_block_rows, pick_rows
from eigengp.gp.blocks import RowBlock, SumT, in_memory, regrouped

T = TypeVar("T")

_AHEAD = 2
"""The number of chunks read ahead."""


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
