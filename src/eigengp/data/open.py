"""Validate arrays, tables and Dask collections, and open them as a standardised dataset.

`register` adds a new kind of data: a test for its objects, and a function that opens one as a
`Table`. Files are registered in this way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.utils import check_array, check_X_y
from sklearn.utils.validation import _check_sample_weight, _get_feature_names, validate_data

from eigengp._typing import Array, Standardize
from eigengp.backend.namespace import (
    AnyArray,
    beside,
    dtype_name,
    move_to_device,
    namespace,
    on_host,
    place,
)
from eigengp.data.array_source import ArraySource, choose_block_rows
from eigengp.data.dask_source import DaskSource, align, get_client, is_dask
from eigengp.data.encode import TableEncoder
from eigengp.data.formats import check_column_names, is_table
from eigengp.data.frames import (
    Frame,
    check_frame,
    encode_inputs,
    is_frame,
    learn_from_files,
    split_labelled,
)
from eigengp.data.mean import cross_fit, fit_mean
from eigengp.data.standardize import Extent, Scaling, Summary, reweight, standardize_rows
from eigengp.data.stream_source import FileTable, StreamSource, Table
from eigengp.gp.blocks import RowBlock, RowSource
from eigengp.gp.mean import MEANS
from eigengp.gp.target_maps import TargetMap

_FEWEST_OF_CLASSES = 100  # Fewer targets of two distinct values may have them by chance.
_SKEWED = 0.5  # The skewness from which targets are called moderately skewed.
_TIED = 9  # Decimals to which distances are compared.
MERGE_UP_TO = 5_000  # Up to so many rows are merged, and computed with on the CPU.


_OPENERS: list[tuple[Callable[[Any], bool], Callable[..., Table]]] = [(is_table, FileTable.of)]


def register(accepts: Callable[[Any], bool], opener: Callable[..., Table]) -> None:
    """Register a kind of data for `fit` and `predict`.

    Parameters
    ----------
    accepts : callable
        Returns whether an object passed as `X` is of this kind.
    opener : callable
        `opener(X, target, weight, features)` returns a `Table`: `n_rows`, `n_features`, the names
        `features`, and `chunks()`, which yields all rows in order. Its inputs are the columns
        `features`, or all columns but target and weight if that is None.

    Examples
    --------
    See "Add a data source" in the documentation.
    """
    _OPENERS.insert(0, (accepts, opener))


def is_out_of_core(X: Any) -> bool:
    """Return whether an object is read as a registered table."""
    return any(accepts(X) for accepts, _ in _OPENERS)


def find_opener(X: Any) -> Callable[..., Table]:
    """Return the first opener that accepts an object."""
    return next(opener for accepts, opener in _OPENERS if accepts(X))


def open_table(
    X: Any,
    target: str | None = None,
    weight: str | None = None,
    features: Sequence[str] | None = None,
    encoder: TableEncoder | None = None,
) -> Table:
    """Open an object by the first opener that accepts it; one of files also encodes columns."""
    opener = find_opener(X)
    if encoder is not None:
        return FileTable.of(X, target, weight, features, encoder)
    return opener(X, target, weight, features)


class ReadOptions(NamedTuple):
    """How an estimator reads its rows."""

    name: str  # The name of the estimator, for messages.
    standardize: Standardize
    memory: int  # The memory limit for rows of a table, in bytes.
    device: str | None = None
    in_memory: bool = False  # Whether all rows are needed at once, in NumPy.
    block_rows: int | None = None  # Rows in a block; None adapts to the number of features.
    max_rows: int | None = None
    # "constant", "zero", a name in `MEANS`, or a regressor to be cross-fitted.
    mean: Any = "constant"
    # Whether few rows are learned from with their inputs in an order of their own.
    orders_inputs: bool = False
    # Whether targets are centred and scaled, which classes and counts are not.
    scales_targets: bool = True
    categorical: Any = None  # Which columns of files are categories; None takes numbers only.
    # Whether rows may have no target, because inducing points can be placed among them.
    takes_unlabelled: bool = False
    # By which factors rows of arrays count less while learning, (n,); None is one for each.
    weight: Array | None = None


@dataclass(frozen=True)
class Dataset:
    """Validated rows with their summary statistics.

    Parameters
    ----------
    rows : RowSource
        The rows, in the units of the data; targets are mapped.
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
        The numbers of rows, and of inputs that are learned from.
    n_varying : int
        The number of inputs that are not constant, and at least one.
    opened : float
        When opening started, by the monotonic clock.
    device : str or None
        The device of PyTorch on which passes over the rows are computed; None is the CPU.
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
    n_varying: int = 1
    opened: float = 0.0
    device: str | None = None
    encoder: TableEncoder | None = None
    """The encoder by which the inputs were made from a table."""
    groups: tuple[int, ...] | None = None
    """The group of each input; inputs of a group share one lengthscale."""
    unlabelled: Array | None = None
    """Standardised inputs of rows without a target."""
    has_two_values: bool = False
    """Whether targets have two distinct values, in too many rows for chance."""
    target_map: TargetMap | None = None
    """The map of the targets; None is the identity."""
    log_slope: float = 0.0
    """What it adds to the log marginal likelihood."""

    def may_transform(self, asked: Any) -> bool:
        """Return whether a transform is asked for, or "auto" and the targets are skewed."""
        if asked is None or asked != "auto":
            return asked is not None
        if not (isinstance(self.rows, ArraySource) and isinstance(self.rows.y, np.ndarray)):
            return False
        about, share = self.rows.y - self.summary.mean[-1], self.rows.sample_weight
        size = float(np.abs(about).max()) or 1.0  # Its cube may be no number.
        second, third = (np.average((about / size) ** k, weights=share) for k in (2, 3))
        return bool(abs(third) > _SKEWED * second**1.5)


class _Opened(NamedTuple):
    rows: RowSource
    like: AnyArray
    names: Any = None
    device: str | None = None  # See `Dataset`.
    encoder: TableEncoder | None = None
    # The order of the inputs of few rows; see `_order_inputs`.
    order: NDArray[np.intp] | None = None


@contextmanager
def open_dataset(frame: Frame, options: ReadOptions) -> Iterator[Dataset]:
    """Validate, open and standardise the data of `fit`; it stays open inside the context."""
    began, others = time.monotonic(), None
    if options.takes_unlabelled and not _is_labelled(frame.X, frame.y):
        X, y, weight, others = split_labelled(frame.X, frame.y, frame.sample_weight)
        frame = frame._replace(X=X, y=y, sample_weight=weight)
    two = _has_two_values(frame.y)
    with ExitStack() as stack:
        opened = _open_rows(frame, options, stack)
        rows, mean = opened.rows, None
        encoder = opened.encoder or frame.encoder
        groups = None if encoder is None else encoder.lengthscale_groups_
        if not isinstance(options.mean, str):
            rows, mean = cross_fit(options.mean, rows)
        summary = rows.total(Summary.of)
        if others is not None:
            summary = summary.with_inputs(others)
        if summary.weight == 0.0:
            raise ValueError("Sample weights must contain at least one non-zero number.")
        centred = options.mean == "constant"
        scaling = Scaling.measure(rows, summary, options.standardize, centred, groups)
        if not options.scales_targets:
            scaling = replace(scaling, target_centre=0.0, target_scale=1.0)
        if mean is None and options.mean in MEANS:
            scaling = fit_mean(options.mean, rows, scaling)
        if options.orders_inputs and encoder is None and opened.order is not None:
            varying = opened.order[scaling.input_spread[opened.order] > 0.0].tolist()
            if varying and varying != list(range(opened.order.size)):
                scaling = replace(scaling, columns=tuple(varying))
        learned, summary = reweight(rows, summary, options.weight)
        source = standardize_rows(learned, scaling, options.memory)
        box = Extent(*scaling.transform_inputs(np.stack([summary.low, summary.high])[:, :-1]))
        inputs = np.arange(box.low.size) if groups is None else np.array(groups)
        sizes = (rows.n_rows, box.low.size, max(1, np.unique(inputs[box.high > box.low]).size))
        names = opened.names if frame.names is None else frame.names
        scaling = replace(scaling, mean=mean or scaling.mean)
        own = (rows, source, scaling, box, summary, names, opened.like, *sizes)
        more = None if others is None else scaling.transform_inputs(others)
        yield Dataset(*own, began, opened.device, encoder, groups, more, two)


def _has_two_values(y: Any) -> bool:
    """Return whether targets in memory have two distinct values, in too many rows for chance."""
    if isinstance(y, list) or (hasattr(y, "to_numpy") and not is_dask(y)):
        y = np.asarray(y)
    if not isinstance(y, np.ndarray) or y.ndim != 1 or y.size < _FEWEST_OF_CLASSES:
        return False
    others = y[y != y[0]]
    return bool(others.size and np.all(others == others[0]))


def _is_labelled(X: Any, y: Any) -> bool:
    """Return whether each row has a target; those of files, Dask and other libraries must."""
    if isinstance(X, np.ndarray) and isinstance(y, np.ndarray) and y.dtype == np.float64:
        return not np.isnan(y).any()
    return isinstance(y, str) or is_dask(X) or follows_dispatch(X) or follows_dispatch(y)


def _open_rows(frame: Frame, options: ReadOptions, stack: ExitStack) -> _Opened:
    """Open data of any kind, which stay open as long as the stack."""
    own = frame[:3]
    if not isinstance(frame.X, np.ndarray):
        if is_dask(frame.X):
            return _open_dask(stack.enter_context(get_client()), *own, options)
        if is_out_of_core(frame.X):
            return _open_table(*own, frame.encoder, options)
    return _open_arrays(*own, options)


def _open_dask(client: Any, X: Any, y: Any, sample_weight: Any, options: ReadOptions) -> _Opened:
    """Open Dask arrays or dataframes; small data is computed at once."""
    names = np.array(X.columns, dtype=object) if hasattr(X, "columns") else None
    X, y, weight = align(X, y, sample_weight)
    if X.shape[0] <= MERGE_UP_TO or options.in_memory:
        X, y, weight = client.gather(client.compute([X, y, weight]))
        return _open_arrays(X, y, weight, options)._replace(names=names)
    rows = DaskSource.of(client, X, y, weight)
    like = np.empty((0, rows.n_features))
    return _Opened(rows.sized(rows.n_features), like, names, options.device)


def _open_table(
    X: Any, y: Any, sample_weight: Any, encoder: TableEncoder | None, options: ReadOptions
) -> _Opened:
    """Open a table; small data, and that of methods that need all rows, is read at once."""
    check_column_names(y, sample_weight)
    if encoder is None and find_opener(X) == FileTable.of:
        encoder = learn_from_files(X, y, sample_weight, options.categorical)
    table = open_table(X, y, sample_weight, encoder=encoder)
    if table.n_rows == 0:
        raise ValueError(f"{X} has no rows.")
    _check_size(table.n_rows, options)
    names = np.array(table.features, dtype=object)
    if table.n_rows <= MERGE_UP_TO or options.in_memory:
        rows = StreamSource(table).take(np.arange(table.n_rows))
        opened = _open_arrays(rows.X, rows.y, rows.sample_weight, options)
        return opened._replace(names=names, encoder=encoder)
    device = options.device
    move_to_device(np.zeros(1), device)
    move = None if device is None else partial(move_to_device, device=device)
    source = StreamSource(table, options.memory // 2, move=move)
    like = np.empty((0, table.n_features))
    return _Opened(source.sized(table.n_features), like, names, device, encoder)


def _open_arrays(X: Any, y: Any, sample_weight: Any, options: ReadOptions) -> _Opened:
    given, targets, names = check_rows(options.name, X, y)
    weight = check_weight(sample_weight, given.shape[0])
    rows, device, order = given, options.device, None
    if device is not None:
        move_to_device(np.zeros(1), device)  # Fail early if it is not available.
    if options.in_memory or given.shape[0] <= MERGE_UP_TO:
        device = None
        if not isinstance(rows, np.ndarray):
            rows, targets = on_host(rows), on_host(targets)
    if isinstance(rows, np.ndarray):
        rows, targets, weight, order = merge_rows(rows, targets, weight)
    _check_size(rows.shape[0], options)
    rows = move_to_device(rows, device)
    if not isinstance(rows, np.ndarray):
        targets = beside(targets, rows, dtype_name(targets))
        weight = None if weight is None else beside(weight, rows)
    like = namespace(given).empty_like(given[:0, :])  # A view would keep all rows in memory.
    size = options.block_rows or choose_block_rows(rows, 1)
    used = None if isinstance(rows, np.ndarray) else str(rows.device)
    return _Opened(ArraySource(rows, targets, weight, size), like, names, used, order=order)


def _check_size(n_rows: int, options: ReadOptions) -> None:
    """Raise if a method that needs N × N matrices is given too many rows."""
    if options.max_rows is not None and n_rows > options.max_rows:
        raise ValueError(
            f"The exact GP of {n_rows} rows needs {16e-9 * n_rows**2:.2g} GB of memory. Fit a "
            "sample of the rows, use a sparse method such as EigenGPRegressor, or raise max_rows "
            f"(now {options.max_rows}) if the machine has the memory."
        )


def follows_dispatch(X: Any) -> bool:
    """Return whether `X` is an array of another library, with `array_api_dispatch` enabled."""
    if not get_config()["array_api_dispatch"] or isinstance(X, np.ndarray | list | tuple):
        return False
    try:
        return namespace(X) is not np
    except (TypeError, ImportError):
        return False


def check_inputs(estimator: Any, X: Any) -> AnyArray:
    """Return the validated inputs of a fitted estimator, in their array library."""
    if hasattr(estimator, "encoder_"):
        encoded = encode_inputs(estimator, X)
        array = check_array(encoded, dtype=np.float64, input_name="X")
        width = estimator._scaling.input_scale.size
        if array.shape[1] != width:
            raise ValueError(f"X has {array.shape[1]} encoded features, but the model has {width}.")
        return array
    if not isinstance(X, np.ndarray) and is_frame(X):
        check_frame(X)
    return validate_data(estimator, X, reset=False, dtype=_get_float_types(X))


def check_rows(name: str, X: Any, y: Any) -> tuple[AnyArray, AnyArray, NDArray[Any] | None]:
    """Return validated inputs and targets, and the names of the inputs.

    Targets are moved to the library and device of the inputs. `name` is that of the estimator.
    """
    names, dtypes = _get_feature_names(X), _get_float_types(X)
    if y is None:
        raise ValueError(
            f"This {name} estimator requires y to be passed, but the target y is None."
        )
    if follows_dispatch(X):
        y = np.asarray(y) if isinstance(y, list) else y
        y = beside(y, X, "float32" if dtype_name(y) == "float32" else "float64")
    elif follows_dispatch(y):
        y = on_host(y)
    try:
        X, y = check_X_y(X, y, dtype=dtypes, y_numeric=True, estimator=name)
    except ValueError as error:
        if str(error).startswith("Input X contains NaN"):
            raise ValueError(
                "Input X contains NaN. Pass a frame, such as pandas.DataFrame(X), with "
                "categorical_features='from_dtype': missing values in frames are filled and marked."
            ) from None
        if str(error).startswith("could not convert string"):
            raise ValueError(
                f"{error}. Pass a frame, in which columns of text are encoded."
            ) from None
        raise
    return X, y, names


def _get_float_types(X: Any) -> list[Any]:
    xp = namespace(X) if follows_dispatch(X) else np
    return [xp.float64, xp.float32]


def check_further_rows(estimator: Any, X: Any, y: Any, sample_weight: Any) -> RowBlock:
    """Return more validated rows for a fitted estimator, as NumPy arrays."""
    X, y = (on_host(each) if follows_dispatch(each) else each for each in (X, y))
    if hasattr(estimator, "encoder_"):
        X, y = check_X_y(encode_inputs(estimator, X), y, dtype=np.float64, y_numeric=True)
    else:
        X, y = validate_data(estimator, X, y, reset=False, dtype=np.float64, y_numeric=True)
    return RowBlock(X, np.asarray(y, np.float64), check_weight(sample_weight, X.shape[0]))


def check_same_place(estimator: Any, X: AnyArray, fitted: Any, method: str) -> None:
    """Raise if an array is of another library or on another device than in `fit`."""
    if get_config()["array_api_dispatch"] and place(X) != fitted:
        raise ValueError(
            f"Inputs passed to {type(estimator).__name__}.{method}() must use the same namespace "
            f"and the same device as those passed to fit(): {fitted} then, {place(X)} now. "
            "Convert them, or fit again."
        )


def check_weight(sample_weight: Any, n_rows: int) -> Array | None:
    """Return validated sample weights as float64, shape (N,), or None."""
    if sample_weight is None:
        return None
    if follows_dispatch(sample_weight):
        sample_weight = on_host(sample_weight)
    weight: Array = _check_sample_weight(
        sample_weight, np.empty((n_rows, 1)), dtype=np.float64, ensure_non_negative=True
    )
    if not weight.any():
        raise ValueError("Sample weights must contain at least one non-zero number.")
    return weight


def merge_rows(
    X: NDArray[np.floating], y: NDArray[np.floating], weight: Array | None
) -> tuple[NDArray[np.floating], Array, Array | None, NDArray[np.intp] | None]:
    """Merge rows with equal inputs and targets, and drop those of weight zero.

    A repeated row and a row of weight two then give identical results, and the order of the rows
    does not matter: they are ordered by their targets, and then by their inputs, in the order and
    with the signs of `_order_inputs`. Starts, subsets and folds, which are drawn by the numbers of
    rows, are then the same rows. The order of the inputs is returned too. Large data is not merged.
    """
    targets: Array = np.asarray(y, dtype=np.float64)
    if weight is not None and not np.all(weight > 0.0):
        keep = weight > 0.0
        X, targets, weight = X[keep], targets[keep], weight[keep]
    if X.shape[0] > MERGE_UP_TO:
        return X, targets, weight, None
    table = np.column_stack([X.astype(np.float64), targets])
    unique, inverse = np.unique(table, axis=0, return_inverse=True)
    total = np.bincount(inverse.ravel(), weights=weight).astype(np.float64)
    single: Array | None = None if np.all(total == 1.0) else total
    columns, inputs = _order_inputs(unique[:, :-1], unique[:, -1], total)
    order = np.lexsort((*inputs[:, columns[::-1]].T, unique[:, -1]))
    if single is not None:
        single = single[order]
    X, targets = (np.ascontiguousarray(unique[order, part]) for part in (slice(-1), -1))
    return X, targets, single, columns


def _order_inputs(X: Array, y: Array, weight: Array) -> tuple[NDArray[np.intp], Array]:
    """Return an order of the inputs, and inputs between −1 and 1, rounded, shape (N, D).

    Inputs are ordered by moments with the targets and of their own. These and the returned signs
    depend neither on the order of the inputs nor on their signs, shifts and scales.
    """
    share = (weight / weight.sum())[:, None]
    (z, t) = (_scale_to_one(each, share) for each in (X, y[:, None]))
    moments = np.stack(
        [np.sum(share * each, axis=0) for each in (z * t, z**2 * t, z**3, z * t * t)]
    )
    odd = moments[[0, 2, 3]].round(_TIED)
    first = np.argmax(odd != 0.0, axis=0)
    sign = np.where(odd[first, np.arange(z.shape[1])] < 0.0, -1.0, 1.0)
    even = np.stack([np.sum(share * each, axis=0) for each in (z**2, z**4)])
    keys = np.concatenate([np.abs(moments), even]).round(_TIED)
    return np.lexsort(keys[::-1]), (sign * z).round(_TIED)


def _scale_to_one(values: Array, share: Array) -> Array:
    """Return columns about their means, divided by the largest deviation, if there is one."""
    centred = values - np.sum(share * values, axis=0)
    largest = np.abs(centred).max(axis=0)
    return centred / np.where(largest > 0.0, largest, 1.0)
