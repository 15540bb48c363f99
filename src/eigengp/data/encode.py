"""Encode tables with numbers, flags and text as arrays of numbers.

`TableEncoder` is a scikit-learn transformer for pandas, Polars and PyArrow tables. It learns one
`Column` for each input and stores everything it needs as plain values (`to_dict`).
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from eigengp._format import quoted, shorten
from eigengp._typing import Array
from eigengp.data.formats import import_arrow

Kind: TypeAlias = Literal["number", "flag", "category"]
MAX_CATEGORIES = 50
_VERSION = 1
_MAX_LISTED = 8
_KIND_NAMES = {"number": "numbers", "flag": "true or false", "category": "text"}
_DATE = re.compile(r"\s*\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(\D.*)?")
_NUMBER = re.compile(r"[\s$€£]*[-+]?[\d.,' ]*\d\s*[%€$£]?\s*")
_PLAIN_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?\s*", re.IGNORECASE)


class TableError(ValueError):
    """A table that cannot be used; dropping `columns` would help."""

    def __init__(self, message: str, columns: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.columns = tuple(columns)


class TableWarning(UserWarning):
    """Values in a table that were replaced or ignored."""


# scikit-learn ships no types, so its classes are Any to mypy.
class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Encode a table with columns of several types as an array of floats.

    Numbers are kept, flags become 0 and 1, and text becomes one column of zeros and ones per
    category. An unknown category becomes zeros, with a `TableWarning`. Constant and empty columns
    are ignored. Requires PyArrow.

    Parameters
    ----------
    impute : bool
        Replace missing values by the median of a number or the most frequent value of a flag or
        category. Each column with missing values in `fit` also gets an indicator column. Without
        `impute`, missing values raise a `TableError`.
    categorical : collection of str
        Integer columns to treat as categories, such as the number of a shop.

    Attributes
    ----------
    columns_ : tuple of Column
        The encoded columns, in the order of the output.
    ignored_ : dict of str to str
        The ignored columns, each with the reason: "constant" or "empty".
    feature_names_in_ : array of str
        All columns seen in `fit`.
    n_features_in_ : int
        Their number.

    Examples
    --------
    >>> from eigengp import TableEncoder
    >>> houses = {"area": [50.0, 80.0, 65.0], "town": ["Hull", "Leeds", "Hull"]}
    >>> encoder = TableEncoder().fit(houses)
    >>> encoder.get_feature_names_out().tolist()
    ['area', 'town=Hull', 'town=Leeds']
    >>> encoder.transform({"town": ["Leeds"], "area": [70]})
    array([[70.,  0.,  1.]])
    """

    def __init__(self, *, impute: bool = False, categorical: Collection[str] = ()) -> None:
        self.impute = impute
        self.categorical = categorical

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the type and the values of each column.

        Parameters
        ----------
        X : pandas, Polars or PyArrow table, or mapping of str to columns
            The training rows.
        y : None
            Ignored.

        Raises
        ------
        TableError
            If a column cannot be encoded; the message lists all problems.
        """
        table = as_table(X)
        check_present(table, self.categorical)
        if table.num_rows == 0:
            raise TableError("The table has no rows.")
        values = {name: table[name] for name in table.column_names}
        values |= {
            name: import_arrow().chunked_array([to_text(values[name])]) for name in self.categorical
        }
        ignored = {name: why for name, own in values.items() if (why := _find_useless(own))}
        kept = {name: own for name, own in values.items() if name not in ignored}
        problems = list(_find_problems(kept, self.impute))
        if problems:
            names = dict.fromkeys(name for _, own in problems for name in own)
            raise TableError(" ".join(message for message, _ in problems), names)
        if not kept:
            raise TableError("No input column is left: all are constant, empty or dropped.")
        self.columns_ = tuple(Column.learn(name, own, self.impute) for name, own in kept.items())
        self.ignored_ = ignored
        self._set_names(table.column_names)
        repeated = _find_repeated(self.get_feature_names_out())
        if repeated:
            raise TableError(f"Several features would be called {join(repeated)}. Rename a column.")
        return self

    def transform(self, X: Any) -> Array:
        """Encode rows.

        Parameters
        ----------
        X : pandas, Polars or PyArrow table, or mapping of str to columns
            Must have the encoded columns, in any order; others are ignored.

        Returns
        -------
        array of shape (n, D)
            Finite floats.

        Raises
        ------
        TableError
            If a column is absent, has another type than in `fit`, or has missing values.
        """
        check_is_fitted(self)
        table = as_table(X)
        present = set(table.column_names)
        absent = [each.name for each in self.columns_ if each.name not in present]
        if absent:
            raise TableError(
                f"The table lacks columns that the model was fitted with: {join(absent)}. It has "
                f"{join(table.column_names)}."
            )
        for column in self.columns_:
            column.check_type(table[column.name])
        self._check_missing(table)
        array: Array = np.hstack([each.encode(table[each.name]) for each in self.columns_])
        infinite = self.get_feature_names_out()[~np.isfinite(array).all(axis=0)]
        if infinite.size:
            raise TableError(f"Values are infinite: {join(infinite)}. Replace them.")
        return array

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Return the names of the encoded columns, as an array of str."""
        check_is_fitted(self)
        names = [name for column in self.columns_ for name in column.feature_names]
        return np.array(names, dtype=object)

    @property
    def feature_groups_(self) -> dict[str, list[int]]:
        """The indices of the features that each column becomes."""
        ends = np.cumsum([0, *(len(column.feature_names) for column in self.columns_)]).tolist()
        pairs = zip(self.columns_, ends[:-1], ends[1:], strict=True)
        return {column.name: list(range(low, high)) for column, low, high in pairs}

    def to_dict(self) -> dict[str, Any]:
        """Return the fitted encoder as plain values, for JSON."""
        check_is_fitted(self)
        return {
            "version": _VERSION,
            "impute": self.impute,
            "categorical": list(self.categorical),
            "columns": [asdict(column) for column in self.columns_],
            "ignored": self.ignored_,
            "names": list(self.feature_names_in_),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Restore an encoder from `to_dict`."""
        try:
            if values["version"] != _VERSION:
                raise TableError("The table encoder was stored by a later version of eigengp.")
            encoder = cls(impute=values["impute"], categorical=tuple(values["categorical"]))
            encoder.columns_ = tuple(
                Column(**{**each, "categories": tuple(each["categories"])})
                for each in values["columns"]
            )
            encoder.ignored_ = dict(values["ignored"])
            encoder._set_names(values["names"])
        except (KeyError, TypeError) as error:
            raise TableError(f"This is not a stored table encoder ({error!r}).") from error
        return encoder

    def _set_names(self, names: list[str]) -> None:
        self.feature_names_in_ = np.array(names, dtype=object)
        self.n_features_in_ = len(names)

    def _check_missing(self, table: Any) -> None:
        """Raise on missing values, or warn about those in columns that had none in `fit`."""
        counts = count_missing(
            {each.name: table[each.name] for each in self.columns_ if not each.indicator}
        )
        if counts and not self.impute:
            raise TableError(_describe_missing(counts), counts)
        if counts:
            warnings.warn(
                f"Values are missing in columns that had none in fit: {join_counts(counts)}. The "
                "median or the most frequent value replaces them.",
                TableWarning,
                stacklevel=3,
            )


@dataclass(frozen=True)
class Column:
    """An encoded column.

    Parameters
    ----------
    name : str
        Its name in the table.
    kind : {"number", "flag", "category"}
        Its type.
    categories : tuple of str
        The categories seen in `fit`.
    fill : float, str or None
        Replaces missing values; None if they are not allowed.
    indicator : bool
        Whether a further feature marks missing values.

    Examples
    --------
    >>> town = Column("town", "category", ("Hull", "Leeds"), fill="Hull", indicator=True)
    >>> town.feature_names
    ('town=Hull', 'town=Leeds', 'town is missing')
    """

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()
    fill: float | str | None = None
    indicator: bool = False

    @classmethod
    def learn(cls, name: str, values: Any, impute: bool) -> Column:
        """Learn a column from its values."""
        kind: Any = get_kind(values.type)
        indicator = impute and bool(find_missing(values).any())
        if kind == "category":
            counts = list(count_categories(values))
            return cls(name, kind, tuple(sorted(counts)), counts[0] if impute else None, indicator)
        fill = float(np.nanmedian(to_numbers(values))) if impute else None
        if fill is not None and kind == "flag":
            fill = float(fill >= 0.5)
        return cls(name, kind, (), fill, indicator)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of its features."""
        own = tuple(f"{self.name}={each}" for each in self.categories) or (self.name,)
        return (*own, f"{self.name} is missing") if self.indicator else own

    def check_type(self, values: Any) -> None:
        """Raise if values have another type than in `fit`."""
        found = get_kind(values.type)
        integer = self.kind == "category" and import_arrow().types.is_integer(values.type)
        if found not in (self.kind, "empty") and not integer:
            first = values.drop_null().slice(0, 1).to_pylist()
            example = f" ({quoted(first[0])})" if first else ""
            raise TableError(
                f"Column {quoted(self.name)} held {_KIND_NAMES[self.kind]} when the model was "
                f"fitted, but here it holds {_KIND_NAMES.get(found, str(values.type))}{example}."
            )

    def encode(self, values: Any) -> Array:
        """Return the features of values, shape (n, number of features)."""
        if self.kind == "category":
            features = self._encode_categories(to_text(values))
        else:
            features = to_numbers(values)[:, None]
            if self.fill is not None:
                features = np.where(np.isnan(features), float(self.fill), features)
        return np.column_stack([features, find_missing(values)]) if self.indicator else features

    def _encode_categories(self, text: Any) -> Array:
        pa = import_arrow()
        text = text if self.fill is None else text.fill_null(self.fill)
        index = pa.compute.index_in(text, value_set=pa.array(self.categories, pa.string()))
        codes = index.fill_null(-1).to_numpy(zero_copy_only=False)
        unknown = codes < 0
        if unknown.any():
            names = text.filter(pa.array(unknown)).unique().drop_null().to_pylist()
            warnings.warn(
                f"Column {quoted(self.name)} has {int(unknown.sum())} rows with unknown "
                f"categories ({join(names)}), which are encoded as zeros.",
                TableWarning,
                stacklevel=4,
            )
        return (codes[:, None] == np.arange(len(self.categories))).astype(np.float64)


def as_table(X: Any) -> Any:
    """Convert a pandas or Polars frame or a mapping of columns to a `pyarrow.Table`.

    Examples
    --------
    >>> as_table({"area": [50.0, 80.0], "town": ["Leeds", None]}).column_names
    ['area', 'town']
    """
    pa = import_arrow()
    try:
        if hasattr(X, "iloc"):
            table = pa.Table.from_pandas(X, preserve_index=False)
        else:
            table = pa.table(dict(X) if isinstance(X, Mapping) else X)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise TableError(f"This is not a table that PyArrow can read: {error}") from error
    check_names(table.column_names)
    return table


def check_names(names: list[str]) -> None:
    """Raise unless all columns have different names."""
    if "" in names:
        raise TableError(
            f"Column {names.index('') + 1} of the table has no name (pandas writes its index like "
            "this). Name it, or remove it."
        )
    repeated = _find_repeated(names)
    if repeated:
        raise TableError(f"Several columns have the same name: {join(repeated)}.")


def check_present(table: Any, names: Iterable[str]) -> None:
    """Raise unless a table has all these columns."""
    present = set(table.column_names)
    absent = [name for name in names if name not in present]
    if absent:
        near = get_close_matches(absent[0], table.column_names, n=1)
        hint = (
            f"did you mean {quoted(near[0])}?" if near else f"there are {join(table.column_names)}."
        )
        raise TableError(f"There is no column {join(map(repr, absent))}; {hint}")


def get_kind(arrow_type: Any) -> Kind | Literal["date", "empty", "other"]:
    """Classify a type of PyArrow; dictionaries are categories."""
    types = import_arrow().types
    if types.is_dictionary(arrow_type) or "string" in str(arrow_type).split("_"):
        return "category"
    if types.is_boolean(arrow_type):
        return "flag"
    if (
        types.is_integer(arrow_type)
        or types.is_floating(arrow_type)
        or types.is_decimal(arrow_type)
    ):
        return "number"
    if types.is_null(arrow_type):
        return "empty"
    return "date" if types.is_temporal(arrow_type) else "other"


def find_missing(values: Any) -> Array:
    """Return 1 where a value is missing or NaN and 0 elsewhere, shape (n,)."""
    missing = import_arrow().compute.is_null(_decode(values), nan_is_null=True)
    return np.asarray(missing.to_numpy(zero_copy_only=False), dtype=np.float64)


def to_numbers(values: Any) -> Array:
    """Convert numbers and flags to floats, missing values to NaN, shape (n,)."""
    floats = _decode(values).cast(import_arrow().float64(), safe=False)
    return np.array(floats.to_numpy(zero_copy_only=False), dtype=np.float64)


def to_text(values: Any) -> Any:
    """Convert values to an array of strings."""
    return _decode(values).cast(import_arrow().string())


def count_missing(values: Mapping[str, Any]) -> dict[str, int]:
    """Count the missing values of each column that has some."""
    counts = {name: int(find_missing(own).sum()) for name, own in values.items()}
    return {name: count for name, count in counts.items() if count}


def count_categories(values: Any) -> dict[str, int]:
    """Count the rows of each category, the most frequent first."""
    counts = to_text(values).drop_null().value_counts().to_pylist()
    ordered = sorted(counts, key=lambda each: (-each["counts"], each["values"]))
    return {each["values"]: each["counts"] for each in ordered}


def join(names: Iterable[object]) -> str:
    """Join names with commas, at most eight of them, long ones shortened.

    Examples
    --------
    >>> join(range(10))
    '0, 1, 2, 3, 4, 5, 6, 7 and 2 more'
    """
    texts = [shorten(name) for name in names]
    more = len(texts) - _MAX_LISTED
    return ", ".join(texts[:_MAX_LISTED]) + (f" and {more} more" if more > 0 else "")


def join_counts(counts: Mapping[str, int]) -> str:
    """Join names, each with its count, with commas.

    Examples
    --------
    >>> join_counts({"area": 3, "town": 1})
    'area (3), town (1)'
    """
    return join(f"{name} ({count})" for name, count in counts.items())


def _decode(values: Any) -> Any:
    """Return one array without a dictionary."""
    pa = import_arrow()
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    dictionary = pa.types.is_dictionary(whole.type)
    return whole.cast(whole.type.value_type) if dictionary else whole


def _find_repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _find_useless(values: Any) -> str:
    """Return "empty" or "constant" for a column without information, else ""."""
    kind = get_kind(values.type)
    if kind in ("date", "other"):
        return ""
    if kind == "category":
        count = len(to_text(values).drop_null().unique())
    else:
        numbers = to_numbers(values)
        count = np.unique(numbers[~np.isnan(numbers)]).size
    return ("empty", "constant")[count] if count < 2 else ""


def _find_problems(
    values: Mapping[str, Any], impute: bool
) -> Iterator[tuple[str, Collection[str]]]:
    """Yield what prevents columns from being encoded, each with the columns concerned."""
    kinds = {name: get_kind(own.type) for name, own in values.items()}
    dates = [name for name, kind in kinds.items() if kind == "date"]
    others = [name for name, kind in kinds.items() if kind == "other"]
    if dates:
        yield (
            f"Date columns are not supported: {join(dates)}. Convert them to numbers, such as the "
            "year, days since a fixed day, or sine and cosine of the hour or season.",
            dates,
        )
    if others:
        types = join(f"{name} ({values[name].type})" for name in others)
        yield f"Columns of these types are not supported: {types}.", others
    texts = {name: own for name, own in values.items() if kinds[name] == "category"}
    crowded = {name: text for name, own in texts.items() if (text := _describe_crowded(name, own))}
    yield from ((message, [name]) for name, message in crowded.items())
    numbers = {name: to_numbers(own) for name, own in values.items() if kinds[name] == "number"}
    infinite = {name: n for name, own in numbers.items() if (n := int(np.isinf(own).sum()))}
    if infinite:
        yield f"Values are infinite: {join_counts(infinite)}. Replace them.", infinite
    usable = [name for name in values if name not in {*dates, *others, *crowded}]
    missing = count_missing({name: values[name] for name in usable})
    if missing and not impute:
        yield _describe_missing(missing), missing


def _describe_missing(counts: Mapping[str, int]) -> str:
    return (
        f"Values are missing: {join_counts(counts)}. Fill them in, drop these columns, or fit "
        "with impute=True (--impute on the command line)."
    )


def _describe_crowded(name: str, values: Any) -> str:
    """Describe a column with too many categories, and guess what it holds; "" for others."""
    texts = to_text(values).drop_null().unique().to_pylist()
    if len(texts) <= MAX_CATEGORIES and len(texts) <= max(10, 0.8 * len(values)):
        return ""
    odd = [text for text in texts if not _PLAIN_NUMBER.fullmatch(text)]
    guess = "these look like names or identifiers; group them"
    if 2 * sum(bool(_DATE.fullmatch(text)) for text in texts) > len(texts):
        guess = "these look like dates; convert them to numbers, such as the year"
    elif odd and 2 * sum(bool(_NUMBER.fullmatch(text)) for text in texts) > len(texts):
        guess = f"these look like numbers; correct or empty cells such as {quoted(odd[0])}"
    return (
        f"Column {quoted(name)} has {len(texts)} different texts in {len(values)} rows, such as "
        f"{quoted(texts[0])}: too many categories (at most {MAX_CATEGORIES}); {guess}."
    )
