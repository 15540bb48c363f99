"""Encode tables with numbers, flags, text and dates as arrays of numbers.

`TableEncoder` is a scikit-learn transformer for pandas, Polars and PyArrow tables. It learns one
`Column`, plain values, for each input.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from eigengp._format import quoted
from eigengp._typing import Array
from eigengp.data.columns import (
    ASK_DECIMAL,
    Kind,
    TableError,
    TableWarning,
    as_table,
    check_present,
    count_categories,
    find_date_format,
    find_decimal,
    find_missing,
    find_odd_cell,
    find_repeated,
    get_kind,
    join,
    join_counts,
    to_days,
    to_numbers,
    to_text,
)
from eigengp.data.formats import import_arrow

_IDENTIFIER = 0.8  # Text of which more than this share of the values is distinct identifies rows.
_FEWEST_IDENTIFIERS = 10
_KIND_NAMES = {"number": "numbers", "flag": "true or false", "category": "text", "date": "dates"}
PERIODS = {"year": 365.2425, "week": 7.0, "day": 1.0}  # The seasons of dates, in days.
_CODE_SIZE = 128  # The number of features of a category with very many levels.
_DRAWS = 16  # The number of known values that stand for a missing one.


# scikit-learn ships no types, so its classes are Any to mypy.
@dataclass(eq=False, repr=False, kw_only=True)
class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Encode a table with columns of several types as an array of floats.

    Estimators encode frames by themselves; this class is for other settings, and for pipelines.

    - Numbers are kept, and flags become 0 and 1. A missing value becomes the median, or the more
      frequent flag, and a further feature marks it. What the target owes to the missing value is
      noise to regressors.
    - A category becomes one feature of zeros and ones per level, and so do missing values in it.
      All levels are equally far apart. A level that was not in `fit` becomes a point as far away
      from all levels as they are from each other, with a `TableWarning`, and behaves like a new
      draw from the prior. The features of a category share one lengthscale. More than
      `max_categories` levels share 128 features: a hash of its name places each level on the unit
      sphere, and squared distances of levels are equal within some 10 %. Unseen levels are
      placed in the same way.
    - A date becomes its year with a fraction (trend), and a sine and a cosine for each season that
      the dates cover: of the year, the week and the day. A missing date is equally far from all
      seasons.
    - Text that holds numbers (`1.234,50 €`) or dates (`31.12.2024`) is recognised.
    - Columns that are constant, empty, or text that identifies the rows are ignored.

    Requires PyArrow.

    Parameters
    ----------
    categorical : collection of str
        Columns to treat as categories, such as the number of a shop.
    max_categories : int
        The largest number of levels of a category that have a feature each.
    expand_dates : bool
        Whether dates have seasons beside their trend.
    decimal : {".", ","} or None
        The decimal separator of numbers in text; None recognises it.

    Attributes
    ----------
    columns_ : tuple of Column
        The encoded columns, in the order of the output.
    ignored_ : dict of str to str
        The ignored columns, each with the reason: "constant", "empty" or "an identifier".
    decimal_ : str
        The decimal separator of numbers in text; "" if there are none, or of several.
    feature_groups_ : dict of str to list of int
        The indices of the features that each column becomes.
    lengthscale_groups_ : tuple of int
        The group of each feature; those of a group share one lengthscale.
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

    categorical: Collection[str] = ()
    max_categories: int = _CODE_SIZE
    expand_dates: bool = True
    decimal: Literal[".", ","] | None = None
    columns_: tuple[Column, ...] = field(init=False)
    ignored_: dict[str, str] = field(init=False)

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
        check_present(table.column_names, self.categorical)
        if table.num_rows == 0:
            raise TableError("The table has no rows.")
        found = self._recognize(table)
        ignored = {name: why for name, own in found.items() if (why := own.find_useless(table))}
        kept = {name: own for name, own in found.items() if name not in ignored}
        if problems := list(_find_problems(table, kept, self.categorical)):
            names = dict.fromkeys(name for _, own in problems for name in own)
            raise TableError(" ".join(message for message, _ in problems), names)
        if not kept and table.num_rows == 1:
            raise TableError("The table has only one row, so all of its columns are constant.")
        if not kept:
            raise TableError("No input column is left: all are constant, empty or dropped.")
        self.columns_ = tuple(
            own.learn(table[name], self.max_categories, self.expand_dates)
            for name, own in kept.items()
        )
        self.ignored_ = ignored
        self.feature_names_in_ = np.array(table.column_names, dtype=object)
        self.n_features_in_ = len(table.column_names)
        if repeated := find_repeated(self.get_feature_names_out()):
            raise TableError(f"Several features would be called {join(repeated)}. Rename a column.")
        return self

    def _recognize(self, table: Any) -> dict[str, Column]:
        """Return the kind of each column, and how its text is read."""
        named = set(self.categorical)
        found = {
            name: _recognize_column(name, table[name], name in named, self.decimal)
            for name in table.column_names
        }
        signs = {own.decimal for own in found.values()} - {"", "?"}
        likely = self.decimal or (signs.pop() if len(signs) == 1 else "?")
        return {
            name: replace(own, decimal=likely) if own.decimal == "?" else own
            for name, own in found.items()
        }

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
            If a column is absent or has another type than in `fit`.
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
        new = [each.name for each in self.columns_ if not each.indicator]
        counts = {name: n for name in new if (n := int(find_missing(table[name]).sum()))}
        if counts:
            warnings.warn(
                f"Values are missing in columns that had none in fit: {join_counts(counts)}. The "
                "median, the more frequent flag or an unknown level replaces them.",
                TableWarning,
                stacklevel=2,
            )
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
    def decimal_(self) -> str:
        """The decimal separator of numbers in text; "" if there are none, or of several."""
        signs = {each.decimal for each in self.columns_} - {""}
        return self.decimal or (signs.pop() if len(signs) == 1 else "")

    @property
    def feature_groups_(self) -> dict[str, list[int]]:
        """The indices of the features that each column becomes."""
        ends = np.cumsum([0, *(len(column.feature_names) for column in self.columns_)]).tolist()
        pairs = zip(self.columns_, ends[:-1], ends[1:], strict=True)
        return {column.name: list(range(low, high)) for column, low, high in pairs}

    @property
    def lengthscale_groups_(self) -> tuple[int, ...]:
        """The group of each feature; those of a group share one lengthscale."""
        sizes: list[int] = []
        for column in self.columns_:
            if column.kind == "category":
                sizes.append(len(column.feature_names))
            else:
                sizes += [1, *(2 for _ in column.periods), *[1] * column.indicator]
        return tuple(np.repeat(np.arange(len(sizes)), sizes).tolist())


@dataclass(frozen=True)
class Column:
    """An encoded column.

    Parameters
    ----------
    name : str
        Its name in the table.
    kind : {"number", "flag", "category", "date"}
        Its type.
    categories : tuple of str
        The levels of a category.
    fill : float
        Replaces missing numbers, flags and trends.
    indicator : bool
        Whether a further feature marks missing values; that of a category is one more level.
    hashed : bool
        Whether the levels of a category are points found by a hash.
    decimal, form : str
        The decimal separator of numbers and the format of dates that are stored as text.
    periods : tuple of str
        The seasons of a date: "year", "week" and "day".
    draws : tuple of float
        Equally spaced quantiles of the known numbers, flags or days, if some are missing.

    Examples
    --------
    >>> town = Column("town", "category", ("Hull", "Leeds"), indicator=True)
    >>> town.feature_names
    ('town=Hull', 'town=Leeds', 'town is missing')
    """

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()
    fill: float = 0.0
    indicator: bool = False
    hashed: bool = False
    decimal: str = ""
    form: str = ""
    periods: tuple[str, ...] = ()
    draws: tuple[float, ...] = ()

    def find_useless(self, table: Any) -> str:
        """Return why a column has no information: "empty", "constant", "an identifier", or ""."""
        values = table[self.name]
        missing = find_missing(values)
        if missing.all():
            return "empty"
        if get_kind(values.type) == "other" or self.decimal == "?":
            return ""
        if self.kind == "category":
            count = len(to_text(values).drop_null().unique())
            if count > max(_FEWEST_IDENTIFIERS, _IDENTIFIER * (missing == 0.0).sum()):
                return "an identifier"
            return "constant" if count == 1 and not missing.any() else ""
        numbers = self.read(values)
        return "constant" if np.unique(numbers[~np.isnan(numbers)]).size < 2 else ""

    def learn(self, values: Any, max_categories: int, expand_dates: bool) -> Column:
        """Return the column with what it learns from its values."""
        if self.kind == "category":
            levels, missing = sorted(count_categories(values)), bool(find_missing(values).any())
            hashed = len(levels) + missing > max_categories
            return replace(self, categories=tuple(levels), indicator=missing, hashed=hashed)
        numbers = self.read(values)
        known = numbers[~np.isnan(numbers)]
        fill = float(np.median(known))
        fill = float(fill >= 0.5) if self.kind == "flag" else fill
        periods = _find_periods(known) if self.kind == "date" and expand_dates else ()
        found = replace(self, fill=fill, periods=periods)
        if known.size == numbers.size:
            return found
        draws = np.sort(known)[known.size * (2 * np.arange(_DRAWS) + 1) // (2 * _DRAWS)]
        return replace(found, indicator=True, draws=tuple(draws.tolist()))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of its features."""
        if self.hashed:
            return tuple(f"{self.name}: code {i + 1}" for i in range(_CODE_SIZE))
        if self.kind == "category":
            own = tuple(f"{self.name}={each}" for each in self.categories)
        elif self.kind == "date":
            seasons = [f"{self.name}: {p} {f}" for p in self.periods for f in ("sine", "cosine")]
            own = (f"{self.name}: trend", *seasons)
        else:
            own = (self.name,)
        return (*own, f"{self.name} is missing") if self.indicator else own

    @cached_property
    def points(self) -> Array:
        """The features of each level of a category, and of a missing one, shape (L, features)."""
        if not self.hashed:
            return np.eye(len(self.feature_names))
        names = [*self.categories, None] if self.indicator else self.categories
        return np.array([_hash_level(each) for each in names])

    @property
    def unknown(self) -> Array:
        """The point that is as far from all L levels as these are from each other, shape (L,).

        With the levels at unit vectors it is `c (1, …, 1)` with `L c² − 2c − 1 = 0`.
        """
        count = len(self.feature_names)
        return np.full(count, (1.0 - np.sqrt(1.0 + count)) / count)

    def encode(self, values: Any) -> Array:
        """Return the features of values, shape (n, number of features)."""
        self._check_type(values)
        if self.kind == "category":
            return self._encode_levels(to_text(values))
        return self.encode_numbers(self.read(values))

    def encode_numbers(self, numbers: Array) -> Array:
        """Return the features of numbers, flags or days, NaN where missing, in a last axis."""
        missing = np.isnan(numbers)
        features = [np.where(missing, self.fill, numbers)]
        if self.kind == "date":
            features = [1970.0 + features[0] / PERIODS["year"]]
            for period in self.periods:
                phase = np.where(missing, 0.0, 2.0 * np.pi * numbers / PERIODS[period])
                features += [np.where(missing, 0.0, f(phase)) for f in (np.sin, np.cos)]
        return np.stack([*features, missing] if self.indicator else features, axis=-1)

    def decode_numbers(self, features: Array) -> Array:
        """Return numbers, flags or days, NaN where missing; undoes `encode_numbers`."""
        numbers = features[..., 0]
        if self.kind == "date":
            numbers = (numbers - 1970.0) * PERIODS["year"]
        return np.where(features[..., -1] > 0.0, np.nan, numbers) if self.indicator else numbers

    def _encode_levels(self, text: Any) -> Array:
        pa = import_arrow()
        index = pa.compute.index_in(text, value_set=pa.array(self.categories, pa.string()))
        missing = find_missing(text) > 0.0
        codes = index.fill_null(-1).to_numpy(zero_copy_only=False)
        codes = np.where(missing & self.indicator, len(self.categories), codes)
        unknown = codes < 0
        new = text.filter(pa.array(unknown)).unique().drop_null().to_pylist()
        if new:
            warnings.warn(
                f"Column {quoted(self.name)} has {int(unknown.sum())} rows with levels that were "
                f"not in fit ({join(new)}); they are treated as new levels.",
                TableWarning,
                stacklevel=4,
            )
        features = self.points[codes]
        if self.hashed and unknown.any():
            features[unknown] = [_hash_level(each.as_py()) for each in text.filter(unknown)]
        elif unknown.any():
            features[unknown] = self.unknown
        return features

    def read(self, values: Any) -> Array:
        """Return numbers, flags or days, NaN where missing, shape (n,)."""
        text = get_kind(values.type) == "category"
        if self.kind == "date":
            return to_days(values, self.form if text else "")
        try:
            return to_numbers(values, self.decimal if text else "")
        except TableError as error:
            raise TableError(f"Column {quoted(self.name)}: {error}") from None

    def _check_type(self, values: Any) -> None:
        """Raise if values have another type than in `fit`."""
        found = get_kind(values.type)
        read = found == "category" and (self.decimal or self.form)
        if self.kind != "category" and found not in (self.kind, "empty") and not read:
            first = values.drop_null().slice(0, 1).to_pylist()
            example = f" ({quoted(first[0])})" if first else ""
            raise TableError(
                f"Column {quoted(self.name)} held {_KIND_NAMES[self.kind]} when the model was "
                f"fitted, but here it holds {_KIND_NAMES.get(found, str(values.type))}{example}."
            )


def _hash_level(name: str | None) -> Array:
    """Return a point on the unit sphere, the signs of the bits of a hash of a level's name.

    Two such points are as good as orthogonal: their cosine has mean 0 and standard deviation
    `1/√K` for K features. Missing values are one more level.
    """
    text = b"" if name is None else b"=" + name.encode()
    bits = np.frombuffer(hashlib.shake_128(text).digest(_CODE_SIZE // 8), dtype=np.uint8)
    return (2.0 * np.unpackbits(bits) - 1.0) / np.sqrt(_CODE_SIZE)


def _recognize_column(name: str, values: Any, categorical: bool, decimal: str | None) -> Column:
    """Return what a column is, before anything is learned from its values."""
    kind: Any = get_kind(values.type)
    if categorical or kind in ("empty", "other"):
        return Column(name, "category")
    if kind != "category" or _is_declared(values):
        return Column(name, kind)
    texts = to_text(values).drop_null().unique().to_pylist()
    if form := find_date_format(texts):
        return Column(name, "date", form=form)
    sign = find_decimal(texts)
    sign = decimal if sign and decimal else sign
    return Column(name, "number", decimal=sign) if sign else Column(name, kind)


def _is_declared(values: Any) -> bool:
    """Return whether a column has the type of a category, as in pandas, Polars and PyArrow."""
    return bool(import_arrow().types.is_dictionary(values.type))


def _find_periods(days: Array) -> tuple[str, ...]:
    """Return the seasons that dates cover: at least a year, two weeks or two days.

    Dates of which most are at the start of a month have no season of the week.
    """
    span, weekdays = float(np.ptp(days)), np.unique(np.floor(days) % 7.0).size
    day_of_month = (days % 30.436875).astype(int)
    covered = {
        "year": span >= PERIODS["year"] and np.unique((days % 365.2425) // 30.5).size > 2,
        "week": span >= 14.0 and np.unique(day_of_month).size > 7 and weekdays > 2,
        "day": span >= 2.0 and np.unique((days % 1.0 * 24.0).astype(int)).size > 2,
    }
    return tuple(period for period, is_covered in covered.items() if is_covered)


def _find_problems(
    table: Any, columns: Mapping[str, Column], named: Collection[str]
) -> Iterator[tuple[str, Collection[str]]]:
    """Yield what prevents columns from being encoded, each with the columns concerned."""
    others = [name for name in columns if get_kind(table[name].type) == "other"]
    declared = [name for name in columns if _is_declared(table[name])]
    if others:
        types = join(f"{name} ({table[name].type})" for name in others)
        yield f"Columns of these types are not supported: {types}. Convert or drop them.", others
    for name, own in columns.items():
        values = table[name]
        if own.decimal == "?":
            example = quoted(to_text(values).drop_null()[0].as_py())
            yield (
                f"Column {quoted(name)} holds numbers such as {example}, which may be with "
                f"thousands or with decimals: {ASK_DECIMAL}.",
                [name],
            )
        elif own.kind == "category" and name not in {*others, *named, *declared}:
            texts = to_text(values).drop_null().unique().to_pylist()
            if (odd := find_odd_cell(texts)) is not None:
                yield (
                    f"Column {quoted(name)} holds numbers, but also text: correct or empty cells "
                    f"such as {quoted(odd)}, or name it as a category.",
                    [name],
                )
    numbers = (own for own in columns.values() if own.kind == "number" and own.decimal != "?")
    counts = {own.name: int(np.isinf(own.read(table[own.name])).sum()) for own in numbers}
    infinite = {name: count for name, count in counts.items() if count}
    if infinite:
        yield f"Values are infinite: {join_counts(infinite)}. Replace them.", infinite
