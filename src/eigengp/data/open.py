"""From what a user hands to `fit` to a source of rows: here a new kind of data is made known."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from eigengp.backend.namespace import AnyArray, beside, dtype_name, is_numpy, on_host
from eigengp.backend.threads import available_threads
from eigengp.data.array_source import ArraySource, block_rows_for
from eigengp.data.dask_source import DaskSource, aligned, is_dask, some_client
from eigengp.data.file_source import FileTable
from eigengp.data.formats import is_table
from eigengp.data.memory import memory_of
from eigengp.data.stream_source import StreamSource
from eigengp.data.validation import MERGE_UP_TO, checked_rows, checked_weight, merged, on_device
from eigengp.gp.blocks import RowSource


class Opened(NamedTuple):
    """Rows, and an array in whose library results are to be."""

    rows: RowSource
    given: AnyArray


def opened(estimator: Any, X: Any, y: Any, sample_weight: Any, stack: ExitStack) -> Opened:
    """Check what was handed to `estimator.fit` and return it as a source, open as `stack` is."""
    if is_table(X):
        return _from_files(estimator, X, y, sample_weight)
    if is_dask(X):
        client = stack.enter_context(some_client())
        return _from_dask(estimator, client, X, y, sample_weight)
    return _from_arrays(estimator, X, y, sample_weight)


def _from_dask(estimator: Any, client: Any, X: Any, y: Any, sample_weight: Any) -> Opened:
    """Take arrays or dataframes of Dask; few rows are computed at once."""
    names = None
    if hasattr(X, "columns"):
        y, sample_weight = (
            X[each] if isinstance(each, str) else each for each in (y, sample_weight)
        )
        others = [each.name for each in (y, sample_weight) if hasattr(each, "name")]
        names = [name for name in X.columns if name not in others]
        X = X[names]
    X, y, weight = aligned(X, y, sample_weight)
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    if X.shape[0] <= MERGE_UP_TO or estimator._learns_on_host:
        X, y, weight = client.gather(client.compute([X, y, weight]))
        found = _from_arrays(estimator, X, y, weight)
    else:
        estimator.n_features_in_ = int(X.shape[1])
        rows = DaskSource.of(client, X, y, weight)
        found = Opened(rows.sized(rows.n_features), np.empty((0, rows.n_features)))
    if names is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    return found


def _from_files(estimator: Any, X: Any, y: Any, sample_weight: Any) -> Opened:
    """Open files; few rows, and those of methods that need them all at once, are read at once."""
    for what, name in (("y", y), ("sample_weight", sample_weight)):
        if not (isinstance(name, str) or (name is None and what == "sample_weight")):
            raise TypeError(
                f"Where X names files, {what} is the name of one of their columns, as in "
                f"fit('data.parquet', 'price'), got {type(name).__name__}."
            )
    table = FileTable.of(X, y, sample_weight)
    if table.n_rows == 0:
        raise ValueError(f"{X} has no rows.")
    most = getattr(estimator, "max_rows", table.n_rows)
    if table.n_rows > most:
        raise ValueError(
            f"{X} has {table.n_rows} rows; {type(estimator).__name__} takes at most {most}."
        )
    if table.n_rows <= MERGE_UP_TO or estimator._learns_on_host:
        rows = StreamSource(table).take(np.arange(table.n_rows))
        found = _from_arrays(estimator, rows.X, rows.y, rows.sample_weight)
    else:
        device = getattr(estimator, "device", None)
        on_device(np.zeros(1), device)
        move = None if device is None else partial(on_device, device=device)
        held = memory_of(estimator) // 2
        source = StreamSource(table, held, n_threads=available_threads(), move=move)
        estimator.n_features_in_ = table.n_features
        found = Opened(source.sized(table.n_features), np.empty((0, table.n_features)))
    estimator.feature_names_in_ = np.array(table.features, dtype=object)
    return found


def _from_arrays(estimator: Any, X: Any, y: Any, sample_weight: Any) -> Opened:
    given, targets = checked_rows(estimator, X, y)
    weight = checked_weight(sample_weight, given.shape[0])
    rows, device = given, getattr(estimator, "device", None)
    on_device(np.zeros(1), device)  # Say at once if there is none.
    if estimator._learns_on_host or given.shape[0] <= MERGE_UP_TO:
        device = None
        if not is_numpy(rows):
            rows, targets = on_host(rows), on_host(targets)
    if is_numpy(rows):
        rows, targets, weight = merged(rows, targets, weight)
    rows = on_device(rows, device)
    targets = beside(targets, rows, "float64" if is_numpy(rows) else dtype_name(targets))
    own = None if weight is None else beside(weight, rows)
    size = estimator._block_rows or block_rows_for(rows, 1)
    return Opened(ArraySource(rows, targets, own, size, available_threads()), given)
