"""Open arrays, tables and Dask collections passed to `fit` as a standardised dataset.

`register` adds a new kind of data: a test for its objects, and a function that opens one as a
`Table`. Files are registered in this way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from eigengp._typing import Array, Standardize
from eigengp.backend.namespace import AnyArray, beside, dtype_name, is_numpy, namespace, on_host
from eigengp.backend.threads import count_available_threads
from eigengp.data.array_source import ArraySource, choose_block_rows
from eigengp.data.dask_source import DaskSource, align, get_client, is_dask
from eigengp.data.file_source import FileTable
from eigengp.data.formats import is_table
from eigengp.data.standardize import Extent, Scaling, StandardizedSource, Summary, standardize_rows
from eigengp.data.stream_source import StreamSource, Table
from eigengp.data.validation import (
    MERGE_UP_TO,
    check_rows,
    check_weight,
    merge_rows,
    move_to_device,
)
from eigengp.gp.blocks import RowSource
from eigengp.gp.mean import MEANS, RegressorMean

_EXACT = 1e-10
"""A mean that leaves less, relative to the spread of the targets, explains them exactly."""
_FOLDS = 5
"""The number of folds in which a regressor for the mean is cross-fitted."""


class TableOpener(Protocol):
    """Opens an object as a table of numbers."""

    def __call__(
        self,
        X: Any,
        target: str | None = None,
        weight: str | None = None,
        features: Sequence[str] | None = None,
    ) -> Table:
        """Return the columns `features`, or all columns except target and weight, as inputs."""


_OPENERS: list[tuple[Callable[[Any], bool], TableOpener]] = [(is_table, FileTable.of)]


def register(accepts: Callable[[Any], bool], opener: TableOpener) -> None:
    """Register a kind of data for `fit` and `predict`.

    Parameters
    ----------
    accepts : callable
        Returns whether an object passed as `X` is of this kind.
    opener : callable
        `opener(X, target, weight, features)` returns a `Table`: `n_rows`, `n_features`, the names
        `features`, and `chunks()`, which yields all rows in order.

    Examples
    --------
    See "Add a data source" in the documentation.
    """
    _OPENERS.insert(0, (accepts, opener))


def is_out_of_core(X: Any) -> bool:
    """Return whether an object is read as a registered table."""
    return any(accepts(X) for accepts, _ in _OPENERS)


def open_table(
    X: Any,
    target: str | None = None,
    weight: str | None = None,
    features: Sequence[str] | None = None,
) -> Table:
    """Open an object by the first opener that accepts it."""
    opener = next(opener for accepts, opener in _OPENERS if accepts(X))
    return opener(X, target, weight, features)


class ReadOptions(NamedTuple):
    """How an estimator reads its rows."""

    name: str
    """The name of the estimator, for messages."""
    standardize: Standardize
    memory: int
    """The memory limit for rows of a table, in bytes."""
    device: str | None = None
    in_memory: bool = False
    """Whether all rows are needed at once, in NumPy."""
    block_rows: int | None = None
    """Rows in a block; None adapts to the number of features."""
    max_rows: int | None = None
    mean: Any = "constant"
    """ "constant", "zero", a name in `MEANS`, or a regressor to be cross-fitted."""


@dataclass(frozen=True)
class Dataset:
    """Validated rows with their summary statistics.

    Parameters
    ----------
    rows : RowSource
        The rows, in the units of the data.
    source : RowSource
        The same rows, standardised.
    scaling : Scaling
        The scaling between both.
    extent : Extent
        The box around the standardised inputs.
    summary : Summary
        Total weight, means, sums of squares and ranges of all columns.
    feature_names : array of str or None
        The names of the inputs, if they have names.
    like : array of shape (0, D)
        An array of the library and on the device of the results.
    n_rows, n_features : int
        The numbers of rows and inputs.
    resizable : bool
        Whether the size of blocks adapts to the number of features.
    opened : float
        When opening started, by the monotonic clock.
    """

    rows: RowSource
    source: RowSource
    scaling: Scaling
    extent: Extent
    summary: Summary
    feature_names: NDArray[Any] | None
    like: AnyArray
    n_rows: int
    n_features: int
    resizable: bool = True
    opened: float = 0.0

    def match_library(self, x: Array) -> AnyArray:
        """Return an array in the library and on the device of the inputs passed to `fit`."""
        return beside(x, self.like)


class _Opened(NamedTuple):
    rows: RowSource
    like: AnyArray
    names: Any = None


@contextmanager
def open_dataset(X: Any, y: Any, sample_weight: Any, options: ReadOptions) -> Iterator[Dataset]:
    """Validate, open and standardise the data of `fit`; it stays open inside the context."""
    began = time.monotonic()
    with ExitStack() as stack:
        if isinstance(X, np.ndarray):
            opened = _open_arrays(X, y, sample_weight, options)
        elif is_dask(X):
            client = stack.enter_context(get_client())
            opened = _open_dask(client, X, y, sample_weight, options)
        elif is_out_of_core(X):
            opened = _open_table(X, y, sample_weight, options)
        else:
            opened = _open_arrays(X, y, sample_weight, options)
        rows, mean = opened.rows, None
        if not isinstance(options.mean, str):
            rows, mean = _cross_fit(options.mean, rows)
        summary = rows.total(Summary.of)
        if summary.weight == 0.0:
            raise ValueError("Sample weights must contain at least one non-zero number.")
        scaling = Scaling.measure(rows, summary, options.standardize, options.mean == "constant")
        if mean is None and options.mean in MEANS:
            scaling = _fit_mean(options.mean, rows, scaling)
        yield Dataset(
            rows,
            standardize_rows(rows, scaling, options.memory),
            replace(scaling, mean=mean or scaling.mean),
            scaling.transform_extent(summary.extent),
            summary,
            opened.names,
            opened.like,
            rows.n_rows,
            rows.n_features,
            options.block_rows is None,
            began,
        )


def _fit_mean(name: str, rows: RowSource, scaling: Scaling) -> Scaling:
    """Fit a mean function, and scale targets by the spread of its residuals."""
    mean = MEANS[name].fit(rows, scaling.input_centre, scaling.input_scale)
    residual = StandardizedSource(rows, replace(scaling, mean=mean)).total(Summary.of)
    spread = float(np.sqrt(residual.squares[-1] / residual.weight))
    if spread < _EXACT:  # Only rounding errors are left.
        return replace(scaling, mean=mean)
    return replace(scaling, mean=mean, target_scale=scaling.target_scale * spread)


def _cross_fit(regressor: Any, rows: RowSource) -> tuple[ArraySource, RegressorMean]:
    """Replace targets by the out-of-fold residuals of a regressor.

    Predictions use the regressor fitted to all rows.
    """
    if not (isinstance(rows, ArraySource) and is_numpy(rows.X)):
        raise ValueError(
            f"mean={type(regressor).__name__}() needs all rows in NumPy arrays; use "
            "mean='linear' or mean='constant' for files, Dask collections and GPUs."
        )
    n_inputs = np.unique(rows.X, axis=0).shape[0]
    if n_inputs < _FOLDS:
        raise ValueError(
            f"mean={type(regressor).__name__}() is cross-fitted in {_FOLDS} folds and needs at "
            f"least as many different inputs, got {n_inputs}."
        )
    X, y, weight = np.asarray(rows.X, np.float64), rows.y, rows.sample_weight
    weighs = weight is not None and has_fit_parameter(regressor, "sample_weight")
    if weight is not None and not weighs and np.any(weight != np.round(weight)):
        raise ValueError(
            f"mean={type(regressor).__name__}() takes no sample_weight in its fit, so it cannot "
            "use weights that are not whole numbers; choose another regressor for the mean."
        )

    def fit(part: Any) -> RegressorMean:
        if weight is None:
            return RegressorMean(clone(regressor).fit(X[part], y[part]))
        if weighs:
            return RegressorMean(clone(regressor).fit(X[part], y[part], sample_weight=weight[part]))
        times = weight[part].astype(int)  # Rows that stand several times were merged.
        return RegressorMean(
            clone(regressor).fit(np.repeat(X[part], times, axis=0), np.repeat(y[part], times))
        )

    _, inputs = np.unique(X, axis=0, return_inverse=True)
    folds = np.random.RandomState(0).permutation(int(inputs.max()) + 1)[inputs.ravel()] % _FOLDS
    residual = np.empty_like(y)
    for fold in np.unique(folds):  # Rows with equal inputs are in one fold.
        left = folds == fold
        residual[left] = y[left] - fit(~left)(X[left])
    return replace(rows, y=residual), fit(slice(None))


def _open_dask(client: Any, X: Any, y: Any, sample_weight: Any, options: ReadOptions) -> _Opened:
    """Open Dask arrays or dataframes; small data is computed at once."""
    names = None
    if hasattr(X, "columns"):
        y, sample_weight = (
            X[each] if isinstance(each, str) else each for each in (y, sample_weight)
        )
        others = [each.name for each in (y, sample_weight) if hasattr(each, "name")]
        columns = [name for name in X.columns if name not in others]
        X, names = X[columns], np.array(columns, dtype=object)
    X, y, weight = align(X, y, sample_weight)
    if X.shape[0] <= MERGE_UP_TO or options.in_memory:
        X, y, weight = client.gather(client.compute([X, y, weight]))
        return _open_arrays(X, y, weight, options)._replace(names=names)
    rows = DaskSource.of(client, X, y, weight)
    return _Opened(rows.sized(rows.n_features), np.empty((0, rows.n_features)), names)


def _open_table(X: Any, y: Any, sample_weight: Any, options: ReadOptions) -> _Opened:
    """Open a table; small data, and that of methods that need all rows, is read at once."""
    for what, name in (("y", y), ("sample_weight", sample_weight)):
        if not (isinstance(name, str) or (name is None and what == "sample_weight")):
            raise TypeError(
                f"Where X names files, {what} is the name of one of their columns, as in "
                f"fit('data.parquet', 'price'), got {type(name).__name__}."
            )
    table = open_table(X, y, sample_weight)
    if table.n_rows == 0:
        raise ValueError(f"{X} has no rows.")
    if options.max_rows is not None and table.n_rows > options.max_rows:
        raise ValueError(
            f"{X} has {table.n_rows} rows; {options.name} takes at most {options.max_rows}."
        )
    names = np.array(table.features, dtype=object)
    if table.n_rows <= MERGE_UP_TO or options.in_memory:
        rows = StreamSource(table).take(np.arange(table.n_rows))
        return _open_arrays(rows.X, rows.y, rows.sample_weight, options)._replace(names=names)
    device = options.device
    move_to_device(np.zeros(1), device)
    move = None if device is None else partial(move_to_device, device=device)
    source = StreamSource(
        table, options.memory // 2, n_threads=count_available_threads(), move=move
    )
    return _Opened(source.sized(table.n_features), np.empty((0, table.n_features)), names)


def _open_arrays(X: Any, y: Any, sample_weight: Any, options: ReadOptions) -> _Opened:
    given, targets, names = check_rows(options.name, X, y)
    weight = check_weight(sample_weight, given.shape[0])
    rows, device = given, options.device
    move_to_device(np.zeros(1), device)  # Fail early if it is not available.
    if options.in_memory or given.shape[0] <= MERGE_UP_TO:
        device = None
        if not isinstance(rows, np.ndarray):
            rows, targets = on_host(rows), on_host(targets)
    if isinstance(rows, np.ndarray):
        rows, targets, weight = merge_rows(rows, targets, weight)
    rows = move_to_device(rows, device)
    if not isinstance(rows, np.ndarray):
        targets = beside(targets, rows, dtype_name(targets))
        weight = None if weight is None else beside(weight, rows)
    like = namespace(given).empty_like(given[:0, :])  # A view would keep all rows in memory.
    n_threads = count_available_threads()
    size = options.block_rows or choose_block_rows(rows, 1)
    source = ArraySource(rows, targets, weight, size, n_threads)
    return _Opened(source, like, names)
