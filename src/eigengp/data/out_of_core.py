"""Predictions for rows outside memory: in files or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, is_numpy, namespace
from eigengp.data.array_source import check_finite
from eigengp.data.dask_source import is_dask
from eigengp.data.formats import (
    check_column_names,
    explain_errors,
    is_table,
    open_dataset,
    write_table,
)
from eigengp.data.frames import Frame, is_frame, open_frame
from eigengp.data.open import is_out_of_core, open_table
from eigengp.data.stream_source import StreamSource, read_ahead
from eigengp.gp.variational import LatentPosterior


def read_labelled(X: Any, y: Any, sample_weight: Any, categorical: Any) -> Frame:
    """Read frames, files or Dask collections whose targets may be labels into memory.

    `categorical` is the parameter `categorical_features` of the estimator. Arrays are unchanged.
    """
    if is_dask(X):
        from dask.base import compute

        X, y, sample_weight = compute(X, y, sample_weight)
    if is_out_of_core(X) and not is_frame(X):
        check_column_names(y, sample_weight)
        if not is_table(X):
            table = open_table(X, y, sample_weight)
            rows = StreamSource(table).take(np.arange(table.n_rows))
            names = np.array(table.features, dtype=object)
            return Frame(rows.X, rows.y, rows.sample_weight, None, names)
        with explain_errors():
            X = open_dataset(X).to_table()
    return open_frame(X, y, sample_weight, categorical)


def predict_out_of_core(estimator: Any, X: Any, method: str) -> Any:
    """Return predictions of files, chunk by chunk, or of a Dask collection, lazily.

    `_mean_alone` returns one array, and other methods two.
    """
    predict = getattr(type(estimator), method)
    if is_dask(X):
        if method == "_mean_alone":
            return predict_lazily(estimator, X, predict, None)
        both = predict_lazily(estimator, X, partial(_stack_pair, predict), 2)
        return both[:, 0], both[:, 1]
    return predict_files(estimator, X, predict)


def predict_files(estimator: Any, X: Any, predict: Callable[[Any, Array], Any]) -> Any:
    """Apply a prediction to all rows of files, chunk by chunk: an array, or a tuple of them."""
    parts = [predict(estimator, inputs) for inputs in read_chunks(estimator, X)]
    if isinstance(parts[0], tuple):
        return tuple(np.concatenate(each) for each in zip(*parts, strict=True))
    return np.concatenate(parts)


def _stack_pair(predict: Any, estimator: Any, X: AnyArray) -> AnyArray:
    """Return two predictions of each row as columns, shape (n, 2)."""
    pair = predict(estimator, X)
    return namespace(pair[0]).stack(list(pair), axis=1)


def write_predictions(estimator: Any, X: Any, path: str | Path, coverage: float | None) -> int:
    """Write mean and standard deviation of the rows of a file to another file; return their number.

    `coverage` adds the prediction intervals of this coverage.
    """
    several = np.ndim(estimator._scaling.target_scale) > 0
    if several or (coverage is not None and isinstance(estimator._posterior, LatentPosterior)):
        raise ValueError(
            "predict_to_file writes one output, and intervals of Gaussian noise only; use "
            "predict and predict_interval on arrays."
        )
    if not is_out_of_core(X):
        raise TypeError("predict_to_file reads files; use predict for arrays.")

    def columns() -> Iterator[dict[str, Array]]:
        for values in map(estimator._values_and_std, read_chunks(estimator, X)):
            mean, std = estimator._find_moments(*values)
            ends = () if coverage is None else estimator._find_ends(*values, coverage)
            yield {"mean": mean, "std": std, **dict(zip(("lower", "upper"), ends, strict=False))}

    return write_table(path, columns())


def read_chunks(estimator: Any, X: Any) -> Iterator[Array]:
    """Read the inputs of a fitted estimator chunk by chunk."""
    names = getattr(estimator, "feature_names_in_", None)
    encoder = getattr(estimator, "encoder_", None)
    table = open_table(X, None, None, None if names is None else list(names), encoder)
    if table.n_features != estimator._scaling.input_scale.size:
        raise ValueError(
            f"The file has {table.n_features} columns, but {type(estimator).__name__} was fitted "
            f"with {estimator.n_features_in_} features. Leave only those in the file, or fit with "
            "named columns."
        )
    if table.n_rows == 0:
        raise ValueError("There are no rows to predict in the file.")
    with closing(read_ahead(table.chunks)) as chunks:
        yield from (chunk.X for chunk in chunks)


def predict_lazily(
    estimator: Any, X: Any, predict: Callable[[Any, AnyArray], AnyArray], n_columns: int | None
) -> Any:
    """Return predictions, with so many columns or one value per row, as a lazy Dask array.

    They use a copy of the estimator in its current state, without what only learning needs, and
    rows in float64.
    """
    current = copy(estimator)
    for name in ("_online", "history_"):
        current.__dict__.pop(name, None)
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None and hasattr(X, "columns"):
        X = X[list(names)]
    if hasattr(X, "to_dask_array"):
        X = X.to_dask_array()
    if X.ndim != 2 or X.shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"X has shape {X.shape}, but the model was fitted with {estimator.n_features_in_} "
            "features."
        )
    X, shape = X.rechunk({1: -1}), () if n_columns is None else (n_columns,)

    def predict_block(block: AnyArray) -> AnyArray:
        if block.shape[0] == 0:
            return np.empty((0, *shape))
        check_finite("A partition of X", block, 0)
        return predict(current, np.asarray(block, np.float64) if is_numpy(block) else block)

    own = {"chunks": (X.chunks[0], shape)} if shape else {"drop_axis": 1}
    return X.map_blocks(predict_block, dtype=np.float64, meta=np.empty((0, *shape)), **own)
