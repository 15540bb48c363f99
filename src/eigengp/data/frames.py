"""Frames of pandas, Polars and PyArrow as data of `fit` and `predict`; rows without a target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import date
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.utils import _safe_indexing, check_array, check_consistent_length
from sklearn.utils._missing import is_pandas_na, is_scalar_nan
from sklearn.utils.validation import _check_feature_names, _check_n_features, _get_feature_names

from eigengp._format import quoted
from eigengp._typing import Array
from eigengp.data.columns import (
    TableError,
    check_names,
    check_present,
    find_decimal,
    get_kind,
    join,
    parse_number,
)
from eigengp.data.dask_source import is_dask
from eigengp.data.encode import TableEncoder
from eigengp.data.formats import explain_errors, is_table, open_dataset

_FIRST_ROWS = 100_000  # The number of rows of files from which their encoding is learned.
# The encoder that has made the arrays which models take; False if they take what it encodes.
ENCODED_BY: ContextVar[TableEncoder | bool] = ContextVar("encoded_by", default=False)


@contextmanager
def encoded_inputs(encoder: TableEncoder | bool = True) -> Iterator[None]:
    """Let models take arrays that their encoder has made, instead of frames; `fit` needs it."""
    token = ENCODED_BY.set(encoder)
    try:
        yield
    finally:
        ENCODED_BY.reset(token)


class Frame(NamedTuple):
    """The data of `fit`, with the encoder by which `X` was made, and the names of its columns."""

    X: Any
    y: Any
    sample_weight: Any
    encoder: TableEncoder | None = None
    names: Any = None


def is_frame(X: Any) -> bool:
    """Return whether `X` is a frame of pandas or Polars, or a table of PyArrow."""
    return not isinstance(X, np.ndarray) and _get_columns(X) is not None and not is_dask(X)


def _get_columns(X: Any) -> list[Any] | None:
    """Return the names of the columns of a frame; those of a dataset are not in memory."""
    names = getattr(X, "column_names", None)
    if names is None and hasattr(X, "__array__"):
        names = getattr(X, "columns", None)
    return None if names is None else list(names)


def count_outputs(y: Any) -> int:
    """Return the number of columns of targets with two dimensions, and 0 for other targets."""
    shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
    return int(shape[1]) if len(shape) == 2 else 0


def open_frame(X: Any, y: Any, sample_weight: Any, categorical: Any) -> Frame:
    """Take targets and weights by their names from a frame, and encode the other columns.

    Parameters
    ----------
    X : frame or other data
        Data that are no frame are returned as they are, unless some of its columns are categories.
    y, sample_weight : str or others
        The names of columns, or values.
    categorical : "from_dtype", None, TableEncoder, or array-like
        See `GPEstimator.categorical_features`.
    """
    encoder = ENCODED_BY.get()
    if isinstance(encoder, TableEncoder):
        return Frame(X, y, sample_weight, encoder, encoder.feature_names_in_)
    if type(X).__name__ == "LazyFrame":
        raise TypeError("X is a lazy frame without rows; pass X.collect().")
    if isinstance(X, Mapping) and not issparse(X):
        raise TypeError("X is a mapping; pass a frame, such as pandas.DataFrame(X).")
    named = categorical is not None and not isinstance(categorical, str | TableEncoder)
    if is_dask(X) and hasattr(X, "columns"):
        return Frame(*take_columns(X, y, sample_weight))
    if not is_frame(X):
        if named and not (is_table(X) or is_dask(X)):
            table, encoder = _name_columns(X), TableEncoder(categorical=_list_names(X, categorical))
            return Frame(encoder.fit(table).transform(table), y, sample_weight, encoder)
        return Frame(X, y, sample_weight)
    check_names(_get_columns(X) or [])
    X, y, sample_weight = take_columns(X, y, sample_weight)
    if categorical is None or not (named or _needs_encoder(X, categorical)):
        check_frame(X)
        if not is_table(X):
            return Frame(X, y, sample_weight)
        names = np.array(_get_columns(X), dtype=object)  # A table of PyArrow.
        return Frame(np.column_stack([X[name] for name in names]), y, sample_weight, names=names)
    encoder = _make_encoder(X, categorical)
    return Frame(encoder.fit(X).transform(X), y, sample_weight, encoder, _get_feature_names(X))


def read_targets(X: Any, y: Any) -> Any:
    """Return the targets of a regressor; raise for those of a classifier.

    Numbers in text, such as 1.234,50, become numbers.
    """
    if isinstance(y, str) and isinstance(X, np.ndarray | list):
        raise ValueError(f"y={y!r} names a column, but X has no named columns; pass a frame.")
    numeric = getattr(getattr(y, "dtype", None), "kind", "?") in "fiu"
    if y is None or isinstance(y, str) or is_dask(y) or numeric:
        return y
    values = y if hasattr(y, "__dlpack_device__") else np.asarray(y)
    kind = getattr(getattr(values, "dtype", None), "kind", "?")
    if kind in "mM" or (kind == "O" and any(isinstance(each, date) for each in values.ravel())):
        raise ValueError("y holds dates or times, but a regressor predicts numbers; convert them.")
    texts = [value for value in values.ravel() if isinstance(value, str)] if kind in "OUT" else []
    if not (texts or kind == "b"):
        return y
    cells = [str(each) for each in values.ravel()]  # "nan" and the like are missing.
    sign = find_decimal(set(cells)) if texts else ""
    if sign in (".", ","):
        return np.array([parse_number(cell, sign) for cell in cells])
    what = f"text such as {quoted(str(texts[0]))}" if texts else "true and false"
    hint = " If these are numbers, convert them first." if sign else ""
    raise ValueError(
        f"y holds {what}, but a regressor predicts numbers. Use EigenGPClassifier for classes."
        + hint
    )


def learn_from_files(X: Any, y: Any, sample_weight: Any, categorical: Any) -> TableEncoder | None:
    """Return an encoder learned from the first rows of files, if they hold more than numbers.

    `y` and `sample_weight` are names of columns.
    """
    if categorical is None:
        return None
    with explain_errors():
        few = open_dataset(X).head(_FIRST_ROWS)
    few = few.select([name for name in few.column_names if name not in (y, sample_weight)])
    if isinstance(categorical, str):
        plain = all(get_kind(column.type) in ("number", "flag") for column in few.columns)
        if plain and not any(column.null_count for column in few.columns):
            return None
    return _make_encoder(few, categorical).fit(few)


def _make_encoder(X: Any, categorical: Any) -> TableEncoder:
    """Return the encoder that `categorical_features` asks for."""
    if isinstance(categorical, TableEncoder):
        return clone(categorical)
    named = () if isinstance(categorical, str) else _list_names(X, categorical)
    return TableEncoder(categorical=named)


def encode_inputs(estimator: Any, X: Any) -> Any:
    """Return inputs as the encoder of a fitted estimator makes them, if it has one."""
    encoder: TableEncoder | None = getattr(estimator, "encoder_", None)
    if encoder is None or ENCODED_BY.get() is not False:
        return X
    _check_feature_names(estimator, X, reset=False)
    if is_frame(X):
        return encoder.transform(X)
    if np.ndim(X) == 2:
        _check_n_features(estimator, X, reset=False)
    return encoder.transform(_name_columns(X, encoder.feature_names_in_))


def _name_columns(X: Any, names: Any = None) -> dict[str, Any]:
    """Return the columns of an array as a table; without names they are x0, x1, …."""
    array = np.asarray(X)
    if array.ndim != 2:
        raise ValueError(f"Expected 2D array, got an array of shape {array.shape} instead.")
    found = [f"x{d}" for d in range(array.shape[1])] if names is None else names
    columns = (column.tolist() if array.dtype == object else column for column in array.T)
    return dict(zip(map(str, found), columns, strict=True))


def _list_names(X: Any, categorical: Any) -> list[str]:
    """Return the names of categories that are given by name, index or mask."""
    columns = _get_columns(X) if is_frame(X) else None
    known = np.array([f"x{d}" for d in range(np.shape(X)[1])] if columns is None else columns, str)
    given = np.asarray(categorical)
    if given.dtype.kind not in "biu":
        check_present(known.tolist(), given.tolist())
        return given.tolist()
    try:
        return known[given].tolist()
    except IndexError as error:
        raise ValueError(f"categorical_features does not fit X: {error}.") from error


def take_columns(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Return the inputs of a frame, targets and weights; these two may be names of columns."""
    names = [name for name in (y, sample_weight) if isinstance(name, str)]
    check_present(list(map(str, _get_columns(X) or X.columns)), names)
    taken = [X[each] if isinstance(each, str) else each for each in (y, sample_weight)]
    if not is_dask(X):
        taken = [None if each is None else np.asarray(each) for each in taken]
    if names:
        drop = getattr(X, "drop_columns", X.drop)
        X = drop(columns=names) if hasattr(X, "iloc") else drop(names)
        if not len(_get_columns(X) or X.columns):
            raise TableError(f"X has no columns beside {join(map(repr, names))}.")
    return X, *taken


def _needs_encoder(X: Any, categorical: Any) -> bool:
    """Return whether a frame holds anything but numbers, or misses some."""
    if isinstance(categorical, TableEncoder) or not hasattr(X, "columns"):
        return True
    for name in _get_columns(X) or ():
        values = np.asarray(X[name])
        if values.dtype.kind not in "biufc" or (
            values.dtype.kind == "f" and np.isnan(values).any()
        ):
            return True
    return False


def check_frame(X: Any) -> None:
    """Raise if a column of a frame of numbers holds text or dates, and name the column."""
    for name in _get_columns(X) or ():
        values = np.asarray(X[name])
        text = next((value for value in values if isinstance(value, str)), None)
        if text is None and values.dtype.kind not in "mM":
            continue
        what = "dates or times" if text is None else f"text such as {quoted(str(text))}"
        raise ValueError(
            f"Column {name!r} of X holds {what}, but is an input of numbers. Convert it, or fit "
            "frames that hold it with categorical_features='from_dtype'."
        )


def find_unlabelled(y: Any) -> NDArray[np.bool_] | None:
    """Return which targets are NaN, None or NA, shape (N,); None if there are none."""
    values = np.asarray(y)
    if values.ndim != 1 or values.dtype.kind not in "fO":
        return None
    if values.dtype.kind == "f":
        missing = np.isnan(values)
    else:
        missing = np.array([v is None or is_scalar_nan(v) or is_pandas_na(v) for v in values], bool)
    return missing if missing.any() else None


def split_labelled(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any, Array | None]:
    """Return the labelled rows (X, y, weights), and the inputs of the others if there are any.

    Examples
    --------
    >>> X, y, weight, others = split_labelled([[0.0], [1.0], [2.0]], [1.0, np.nan, 3.0], None)
    >>> y, others
    (array([1., 3.]), array([[1.]]))
    """
    missing = None if y is None else find_unlabelled(y)
    if missing is None:
        return X, y, sample_weight, None
    check_consistent_length(X, y)
    if missing.all():
        raise ValueError("All targets in y are missing (NaN or None); some rows need a target.")
    known = np.flatnonzero(~missing)
    others = _safe_indexing(X, np.flatnonzero(missing))
    weight = None if sample_weight is None else np.asarray(sample_weight)[known]
    labelled = _safe_indexing(X, known)
    return labelled, np.asarray(y)[known], weight, check_array(others, dtype=np.float64)
