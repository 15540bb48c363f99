"""Predictions for rows outside memory: in files or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, namespace
from eigengp.data.dask_source import map_partitions
from eigengp.data.formats import write_table
from eigengp.data.open import is_out_of_core, open_table
from eigengp.data.stream_source import read_ahead


def predict_files(estimator: Any, X: Any, return_std: bool) -> Array | tuple[Array, Array]:
    """Predict all rows of files, chunk by chunk."""
    if return_std:
        means, stds = zip(*_predict_chunks(estimator, X), strict=True)
        return np.concatenate(means), np.concatenate(stds)
    return np.concatenate([estimator._mean_alone(inputs) for inputs in _read_chunks(estimator, X)])


def write_predictions(estimator: Any, X: Any, path: str | Path, half: float | None) -> int:
    """Write mean and standard deviation of the rows of a file to another file; return their number.

    `half` adds a prediction interval of this half-width, in standard deviations.
    """
    if not is_out_of_core(X):
        raise TypeError("predict_to_file reads files; use predict for arrays.")

    def columns() -> Iterator[dict[str, Array]]:
        for mean, std in _predict_chunks(estimator, X):
            ends = {} if half is None else {"lower": mean - half * std, "upper": mean + half * std}
            yield {"mean": mean, "std": std, **ends}

    return write_table(path, columns())


def _predict_chunks(estimator: Any, X: Any) -> Iterator[tuple[Array, Array]]:
    """Yield mean and standard deviation chunk by chunk."""
    return (estimator._mean_and_std(inputs) for inputs in _read_chunks(estimator, X))


def _read_chunks(estimator: Any, X: Any) -> Iterator[Array]:
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


def predict_lazily(estimator: Any, X: Any, return_std: bool) -> Any:
    """Return predictions as lazy Dask arrays.

    They use a copy of the estimator in its current state, without what only learning needs.
    """
    current = copy(estimator)
    for name in ("_online", "history_"):
        current.__dict__.pop(name, None)
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None and hasattr(X, "columns"):
        X = X[list(names)]

    def both(inputs: AnyArray) -> AnyArray:
        mean, std = current._mean_and_std(inputs)
        return namespace(mean).stack([mean, std], axis=1)

    if not return_std:
        return map_partitions(current._mean_alone, X, estimator.n_features_in_)
    stacked = map_partitions(both, X, estimator.n_features_in_, n_columns=2)
    return stacked[:, 0], stacked[:, 1]
