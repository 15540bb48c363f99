"""Rows with equal inputs, merged into one row each.

Rows with the same input share the latent function and, where the model has one, its residual with
variance `δ`. A group of `S = Σ s_i` observations `y_i`, each counted `s_i` times, has the
covariance `δ 11ᵀ + σ² diag(1/s)`. It is equivalent to its mean `ȳ = Σ s_i y_i/S`, with variance
`δ + σ²/S`, and the scatter `Σ s_i (y_i − ȳ)²`, which depends on `σ²` alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eigengp._typing import Array
from eigengp.data.array_source import ArraySource
from eigengp.data.holdout import View
from eigengp.gp.blocks import RowBlock, RowSource

_MOST_ROWS = 200_000


class Groups(NamedTuple):
    """Rows with equal inputs as one row each."""

    rows: RowBlock
    """One row for each distinct input, with mean targets, total weights and scatters."""
    number: NDArray[np.intp]
    """The index of the group of each original row, shape (N,)."""


def group_rows(rows: RowBlock) -> Groups:
    """Merge rows with equal inputs; the rows themselves are returned if all inputs differ.

    Examples
    --------
    >>> import numpy as np
    >>> groups = group_rows(RowBlock(np.array([[1.0], [0.0], [1.0]]), np.array([2.0, 5.0, 4.0])))
    >>> groups.rows.y.tolist(), groups.rows.weight.tolist(), groups.number.tolist()
    ([3.0, 5.0], [2.0, 1.0], [0, 1, 0])
    """
    if not has_equal_inputs(rows.X):
        return Groups(rows, np.arange(rows.n_rows))
    _, first, number = np.unique(rows.X, axis=0, return_index=True, return_inverse=True)
    # In the order of the first row of each, which does not depend on the order of the inputs.
    order = np.argsort(first)
    inputs, number = rows.X[first[order]], np.argsort(order)[number.ravel()]
    total = np.bincount(number, weights=rows.weight)
    mean = np.bincount(number, weights=rows.weight * rows.y) / total
    scatter = np.bincount(number, weights=rows.weight * (rows.y - mean[number]) ** 2)
    if rows.scatter is not None:
        scatter += np.bincount(number, weights=rows.scatter)
    return Groups(RowBlock(inputs, mean, total, rows.start, scatter), number)


def group_source(source: RowSource) -> RowSource:
    """Merge rows with equal inputs if all rows are in NumPy arrays in memory.

    More than 200,000 rows, and those of files, Dask collections and GPUs, stay as they are: the
    residual of EigenGP+ is then independent between rows with equal inputs.
    """
    arrays = source
    while isinstance(arrays, View):
        arrays = arrays.source
    if not isinstance(arrays, ArraySource) or not isinstance(arrays.X, np.ndarray):
        return source
    if arrays.n_rows > _MOST_ROWS or not has_equal_inputs(arrays.X):
        return source
    rows = group_rows(source.take(np.arange(source.n_rows))).rows
    return ArraySource(
        rows.X, rows.y, rows.sample_weight, arrays.block_rows, arrays.n_threads, 0, rows.scatter
    )


def has_equal_inputs(X: Array) -> bool:
    """Return whether some rows of `X` are equal; rows are compared only if their hashes agree."""
    factors = np.random.default_rng(0).uniform(1.0, 2.0, X.shape[1])
    hashes = (X * factors).sum(axis=1)
    _, number, count = np.unique(hashes, return_inverse=True, return_counts=True)
    suspects = X[count[number] > 1]
    return bool(np.unique(suspects, axis=0).shape[0] < suspects.shape[0])
