"""Learning what a column is from its values, and refusing those that are no inputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from eigengp.cli.tables.columns import (
    Column,
    as_numbers,
    as_text,
    category_counts,
    kind_of,
    missing,
)
from eigengp.cli.tables.errors import TableError, counted, dropping, listed

MOST_CATEGORIES = 50
_FEW = 10
_NEARLY_ALL = 0.8
_MOSTLY = 0.5
_DATE = re.compile(r"\s*\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(\D.*)?")
_NUMBER = re.compile(r"[\s$€£]*[-+]?[\d.,' ]*\d\s*[%€$£]?\s*")


def learned_columns(
    inputs: Mapping[str, Any], impute: bool
) -> tuple[tuple[Column, ...], dict[str, str]]:
    """Return what each input is, and why some are left out.

    Parameters
    ----------
    inputs : mapping of str to pyarrow.ChunkedArray
        The values of each column.
    impute : bool
        Whether missing values are filled in rather than refused.

    Raises
    ------
    TableError
        If a column is no input; all that is wrong is said at once.
    """
    wrong = _wrong_kinds({name: values.type for name, values in inputs.items()})
    fit_for_use = {name: values for name, values in inputs.items() if name not in wrong}
    ignored = {name: why for name, values in fit_for_use.items() if (why := _without_use(values))}
    kept = {name: values for name, values in fit_for_use.items() if name not in ignored}
    many = _many_categories(kept)
    problems = [*dict.fromkeys(wrong.values()), *many.values(), *_infinite(kept)]
    absent = count_missing({name: kept[name] for name in kept if name not in many})
    if absent and not impute:
        problems.append(missing_said(absent))
    if problems:
        raise TableError(" ".join(problems))
    columns = tuple(_learned(name, values, impute) for name, values in kept.items())
    if not columns:
        raise TableError("No column is left to learn from: each is constant, empty or left out.")
    return columns, ignored


def count_missing(inputs: Mapping[str, Any]) -> dict[str, int]:
    """Return how many values are missing in each column that lacks some."""
    counts = {name: int(missing(values).sum()) for name, values in inputs.items()}
    return {name: count for name, count in counts.items() if count}


def missing_said(counts: Mapping[str, int]) -> str:
    """Return where values are missing, and what to do."""
    return (
        f"Values are missing: {counted(counts)}. Fill them in, leave those columns out "
        f"({dropping(counts)}), or have them filled in when the model is fitted (--impute)."
    )


def _learned(name: str, values: Any, impute: bool) -> Column:
    kind: Any = kind_of(values.type)
    gaps = impute and bool(missing(values).any())
    if kind != "category":
        fill: float | str | None = None
        if impute:
            middle = float(np.nanmedian(as_numbers(values)))
            fill = middle if kind == "number" else float(middle >= _MOSTLY)
        return Column(name, kind, (), fill, gaps)
    ordered = list(category_counts(values))
    return Column(name, kind, tuple(sorted(ordered)), ordered[0] if impute else None, gaps)


def _without_use(values: Any) -> str:
    """Return why a column tells nothing, "" if it may."""
    count = _n_distinct(values)
    return ("empty", "constant")[count] if count < 2 else ""


def _n_distinct(values: Any) -> int:
    if kind_of(values.type) == "nothing":
        return 0
    if kind_of(values.type) == "category":
        return len(as_text(values).drop_null().unique())
    numbers = as_numbers(values)
    return int(np.unique(numbers[~np.isnan(numbers)]).size)


def _wrong_kinds(types: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns of types that are no inputs, each with what to say of all its like."""
    times = [name for name, kind in types.items() if kind_of(kind) == "time"]
    others = [name for name, kind in types.items() if kind_of(kind) == "other"]
    of_times = (
        f"Dates and times are no inputs: {listed(times)}. Add columns of numbers that say what "
        "matters of them, such as the year, days since a certain day, or sine and cosine of the "
        f"hour or season, and leave these out: {dropping(times)}."
    )
    of_others = (
        f"These are no inputs: {listed(f'{name} ({types[name]})' for name in others)}. Make "
        f"numbers or text of them, or leave them out: {dropping(others)}."
    )
    return {**dict.fromkeys(times, of_times), **dict.fromkeys(others, of_others)}


def _many_categories(inputs: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns with too many categories, each with what to say of it."""
    found = {}
    for name, values in inputs.items():
        if kind_of(values.type) != "category":
            continue
        distinct = as_text(values).drop_null().unique().to_pylist()
        nearly_all = len(distinct) > max(_FEW, _NEARLY_ALL * len(values))
        if len(distinct) > MOST_CATEGORIES or nearly_all:
            found[name] = (
                f"Column {name!r} has {len(distinct)} different texts in {len(values)} rows, such "
                f"as {distinct[0]!r}: {_guess(distinct)}, or leave it out: {dropping([name])}."
            )
    return found


def _guess(texts: list[str]) -> str:
    """Say what many different texts may be, and what to do then."""
    if _share(texts, _DATE.fullmatch) > _MOSTLY:
        return "these are dates; add numbers that say what matters of them, such as the year"
    odd = [each for each in texts if not _plain_number(each)]
    if odd and _share(texts, _NUMBER.fullmatch) > _MOSTLY:
        return f"these seem to be numbers; mend what is none, such as {odd[0]!r}, or empty the cell"
    return (
        f"too many to be categories (at most {MOST_CATEGORIES}), more like names or "
        "identifiers; put them into fewer groups"
    )


def _share(texts: list[str], holds: Callable[[str], object]) -> float:
    return sum(bool(holds(each)) for each in texts) / len(texts)


def _plain_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _infinite(inputs: Mapping[str, Any]) -> list[str]:
    """Return what to say of infinite values, if there are any."""
    counts = {
        name: int(np.isinf(as_numbers(values)).sum())
        for name, values in inputs.items()
        if kind_of(values.type) == "number"
    }
    endless = {name: count for name, count in counts.items() if count}
    said = f"Values are infinite: {counted(endless)}. Replace them, or {dropping(endless)}."
    return [said] if endless else []
