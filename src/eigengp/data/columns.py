"""Columns of PyArrow tables: their kinds, and their conversion to numbers, days and text.

Text that holds numbers or dates is recognised: `1.234,50 €`, `1,234.5`, `31.12.2024`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias

import numpy as np

from eigengp._format import quoted, shorten
from eigengp._typing import Array
from eigengp.data.formats import import_arrow

Kind: TypeAlias = Literal["number", "flag", "category", "date"]
_MAX_LISTED = 8
_MOSTLY = 0.9  # From this share of its values on, a column of text is one of numbers with errors.
# What stands for a missing value in a column of numbers, in lower case.
_NO_VALUE = ("", "-", "–", "—", "?", ".", "na", "n/a", "<na>", "nan", "null", "none")
_UNIT = re.compile(r"[\s\u00a0\u202f'’$€£¥%]")
# Whole numbers, and digits that begin with a zero, as post codes do.
_DIGITS, _CODE = re.compile(r"[1-9]\d*|0"), re.compile(r"0\d+")
# Numbers by their decimal separator; those with thousands separators do not begin with a zero.
_NUMBERS = {
    sign: re.compile(
        rf"(?=.*\d)[-+]?([1-9]\d{{0,2}}({re.escape(other)}\d{{3}})+|\d+)?"
        rf"({re.escape(sign)}\d*)?(e[-+]?\d+)?",
        re.IGNORECASE,
    )
    for sign, other in (".,", ",.")
}
_DATE = re.compile(r"\s*\d{1,4}[-/. ]\d{1,2}[-/. ]\d{1,4}(\D.*)?")
_DAYS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d-%m-%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y.%m.%d")
_TIMES = ("", " %H:%M:%S", " %H:%M", "T%H:%M:%S", "T%H:%M")
ASK_DECIMAL = (
    "pass decimal='.' or decimal=',' to TableEncoder (on the command line, --decimal . or "
    "--decimal ,)"
)
_DAY = 86_400e6  # Microseconds in a day.


class TableError(ValueError):
    """A table that cannot be used; dropping `columns` would help."""

    def __init__(self, message: str, columns: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.columns = tuple(columns)


class TableWarning(UserWarning):
    """Values or columns of a table that were replaced or ignored."""


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
            columns = [_read_values(X.iloc[:, i], X.columns[i]) for i in range(X.shape[1])]
            table = pa.Table.from_arrays(columns, names=[str(name) for name in X.columns])
        elif isinstance(X, Mapping):
            table = pa.table({name: _read_values(values, name) for name, values in X.items()})
        else:
            table = pa.table(X)
    except TableError:
        raise
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise TableError(f"This is not a table that PyArrow can read: {error}") from error
    check_names(table.column_names)
    return table


def _read_values(values: Any, name: Any) -> Any:
    """Convert a column; objects of several types become text, and periods their first day."""
    pa = import_arrow()
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if str(getattr(values, "dtype", "")).startswith("period["):
        values = values.dt.to_timestamp()
    try:
        return pa.array(values, from_pandas=True)
    except pa.ArrowNotImplementedError as error:
        raise TableError(f"Column {quoted(name)} cannot be read: {error}.", [str(name)]) from error
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        texts = (None if each is None or each != each else str(each) for each in values)
        return pa.array(list(texts), pa.string())


def check_names(names: list[Any]) -> None:
    """Raise unless all columns have different names."""
    if "" in names:
        raise TableError(
            f"Column {names.index('') + 1} of the table has no name (pandas writes its index like "
            "this). Name it, or remove it."
        )
    if repeated := find_repeated(names):
        raise TableError(f"Several columns have the same name: {join(repeated)}. Rename them.")


def check_present(present: Collection[str], names: Iterable[str]) -> None:
    """Raise unless all these names are those of columns that are present."""
    absent = [name for name in names if name not in set(present)]
    if absent:
        near = get_close_matches(absent[0], present, n=1)
        hint = f"did you mean {quoted(near[0])}?" if near else f"there are {join(present)}."
        raise TableError(f"There is no column {join(map(repr, absent))}; {hint}")


def get_kind(arrow_type: Any) -> Kind | Literal["empty", "other"]:
    """Classify a type of PyArrow; dictionaries are categories."""
    types = import_arrow().types
    if types.is_dictionary(arrow_type) or "string" in str(arrow_type).split("_"):
        return "category"
    if types.is_boolean(arrow_type):
        return "flag"
    numeric = (types.is_integer, types.is_floating, types.is_decimal, types.is_duration)
    if any(accepts(arrow_type) for accepts in numeric):
        return "number"
    if types.is_null(arrow_type):
        return "empty"
    return "date" if types.is_date(arrow_type) or types.is_timestamp(arrow_type) else "other"


def find_missing(values: Any) -> Array:
    """Return 1 where a value is missing or NaN and 0 elsewhere, shape (n,)."""
    missing = import_arrow().compute.is_null(decode(values), nan_is_null=True)
    return np.asarray(missing.to_numpy(zero_copy_only=False), dtype=np.float64)


def to_numbers(values: Any, decimal: str = "") -> Array:
    """Convert numbers, flags, durations (to days) and text to floats, shape (n,).

    Missing values become NaN. `decimal` is the decimal separator of numbers in text.

    Examples
    --------
    >>> import pyarrow as pa
    >>> to_numbers(pa.array(["1.234,5 €", "-", None, "7"]), decimal=",")
    array([1234.5,    nan,    nan,    7. ])
    """
    pa, plain = import_arrow(), decode(values)
    if decimal:
        return np.array([parse_number(text, decimal) for text in to_text(plain).to_pylist()])
    if pa.types.is_duration(plain.type):
        ticks = plain.cast(pa.duration("us")).cast(pa.int64())
        return to_numbers(ticks) / _DAY
    floats = plain.cast(pa.float64(), safe=False)
    return np.array(floats.to_numpy(zero_copy_only=False), dtype=np.float64)


def read_numbers(values: Any, decimal: str | None = None) -> Array:
    """Convert a column of numbers, also of those in text, to floats, shape (n,).

    Raises
    ------
    TableError
        If text does not hold numbers, or its decimal separator is not clear and not given.
    """
    if get_kind(values.type) == "date":
        raise TableError("it holds dates.")
    if get_kind(values.type) != "category":
        return to_numbers(values)
    texts = to_text(values).drop_null().unique().to_pylist()
    sign = find_target_decimal(texts)
    if not sign:
        odd = find_odd_cell(texts)
        raise TableError(
            f"it holds text such as {quoted(odd or texts[0])}."
            + (" Correct or empty these cells." if odd else "")
        )
    if sign == "?" and decimal is None:
        raise TableError(
            f"{quoted(texts[0])} may be with thousands or with decimals; {ASK_DECIMAL}."
        )
    return to_numbers(values, decimal or sign)


def find_no_number(values: Any) -> Any:
    """Return which values of a column of numbers are missing, also in text, shape (n,)."""
    missing = find_missing(values) > 0.0
    if get_kind(values.type) == "category":
        texts = to_text(values).to_pylist()
        missing |= np.array([_clean(text).lower() in _NO_VALUE for text in texts], dtype=bool)
    return missing


def to_days(values: Any, form: str = "") -> Array:
    """Convert dates and times to days since 1970, missing ones to NaN, shape (n,).

    `form` is the format of dates in text.

    Examples
    --------
    >>> import pyarrow as pa
    >>> to_days(pa.array(["02.01.1970", None]), "%d.%m.%Y")
    array([ 1., nan])
    """
    pa, plain = import_arrow(), decode(values)
    if form:
        plain = pa.compute.strptime(to_text(plain), form, "us", error_is_null=True)
    ticks = plain.cast(pa.timestamp("us", getattr(plain.type, "tz", None)), safe=False)
    return to_numbers(ticks.cast(pa.int64())) / _DAY


def to_text(values: Any) -> Any:
    """Convert values to an array of strings."""
    return decode(values).cast(import_arrow().string())


def find_decimal(texts: Collection[str]) -> str:
    """Return the decimal separator of numbers in text: "", where they are none, ".", "," or "?".

    "?" is for numbers such as 1,234, which may be a thousand or one. Plain digits are no numbers:
    whoever stores them as text means names.

    Examples
    --------
    >>> find_decimal(["1.234,5", "-"]), find_decimal(["1,234"]), find_decimal(["Hull", "7"])
    (',', '?', '')
    """
    cleaned = [_clean(text) for text in texts]
    numbers = [text for text in cleaned if text.lower() not in _NO_VALUE]
    if not numbers or all(map(_DIGITS.fullmatch, texts)) or any(map(_CODE.fullmatch, numbers)):
        return ""
    fits = [sign for sign, form in _NUMBERS.items() if all(map(form.fullmatch, numbers))]
    if len(fits) == 2:
        return "?" if any("." in text or "," in text for text in numbers) else "."
    return fits[0] if fits else ""


def find_target_decimal(texts: Collection[str]) -> str:
    """Return the decimal separator as `find_decimal` does; plain digits are numbers too."""
    return "." if all(map(_DIGITS.fullmatch, texts)) else find_decimal(texts)


def find_odd_cell(texts: Collection[str]) -> str | None:
    """Return a cell that is no number in a column of text that is otherwise one of numbers."""
    words = [text for text in texts if _clean(text).lower() not in _NO_VALUE]
    odd = [each for each in words if not any(f.fullmatch(_clean(each)) for f in _NUMBERS.values())]
    return odd[0] if 0 < len(odd) <= (1.0 - _MOSTLY) * len(texts) else None


def find_date_format(texts: Collection[str]) -> str:
    """Return the format of dates in text; "" where they are none.

    Examples
    --------
    >>> find_date_format(["31.12.2024", "1.2.2025"]), find_date_format(["Hull"])
    ('%d.%m.%Y', '')
    """
    if not texts or not all(map(_DATE.fullmatch, texts)):
        return ""
    pa = import_arrow()
    given = pa.array(list(texts), pa.string())
    for form in (day + time for time in _TIMES for day in _DAYS):
        if not pa.compute.strptime(given, form, "us", error_is_null=True).null_count:
            return form
    return ""


def _clean(text: str | None) -> str:
    """Return a number in text without units, spaces and apostrophes."""
    return "" if text is None else _UNIT.sub("", text)


def parse_number(text: str | None, decimal: str) -> float:
    """Return the number in a text with this decimal separator; NaN for what stands for no value."""
    plain = _clean(text)
    if plain.lower() in _NO_VALUE:
        return np.nan
    try:
        return float(plain.replace("." if decimal == "," else ",", "").replace(decimal, "."))
    except ValueError:
        raise TableError(f"{quoted(text)} is not a number; correct or empty this cell.") from None


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


def decode(values: Any) -> Any:
    """Return one array without a dictionary."""
    pa = import_arrow()
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if not pa.types.is_dictionary(whole.type):
        return whole
    levels = whole.dictionary  # Those of Polars are views, which PyArrow cannot cast in place.
    levels = levels.cast(pa.string()) if "view" in str(levels.type) else levels
    return levels.take(whole.indices)


def find_repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once."""
    return [name for name, count in Counter(names).items() if count > 1]
