"""What is in a table: each column's kind, gaps, ends and shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigengp._format import number
from eigengp._typing import Array
from eigengp.cli.report.rows import TableColumn

_BARS = 16
_CATEGORIES = 8


@dataclass(frozen=True)
class ColumnSummary:
    """One column of a table in a few words.

    Parameters
    ----------
    name : str
        What it is called.
    kind : {"number", "flag", "category"}
        What its values are.
    missing : int
        How many rows lack it.
    distinct : int
        How many different values it takes.
    facts : tuple of str
        The least value, the median and the largest; for categories the commonest ones.
    bars : tuple of float
        A histogram, its highest bar 1: of equal parts of the range, or of the commonest
        categories.
    """

    name: str
    kind: str
    missing: int
    distinct: int
    facts: tuple[str, ...]
    bars: tuple[float, ...]

    @property
    def description(self) -> str:
        """The histogram in words."""
        if self.kind != "number":
            return "Commonest: " + ", ".join(self.facts)
        if not self.facts:
            return "No values"
        low, median, high = self.facts
        return f"Between {low} and {high}, median {median}"


def summarised(columns: Iterable[TableColumn]) -> tuple[ColumnSummary, ...]:
    """Return a summary of each column.

    Parameters
    ----------
    columns : iterable of TableColumn
        Floats with NaN where a value is missing, or texts with None there.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp.cli.report.rows import TableColumn
    >>> sizes = np.array([1.0, np.nan, 3.0, 3.0])
    >>> (size,) = summarised([TableColumn("size", "number", sizes)])
    >>> size.missing, size.distinct, size.facts
    (1, 2, ('1', '3', '3'))
    >>> towns = np.array(["Ulm", "Ulm", None, "Bonn"], dtype=object)
    >>> (town,) = summarised([TableColumn("town", "category", towns)])
    >>> town.missing, town.facts
    (1, ('Ulm (2)', 'Bonn (1)'))
    """
    return tuple(
        _of_numbers(each.name, each.values)
        if each.kind == "number"
        else _of_texts(each.name, each.kind, each.values)
        for each in columns
    )


def _of_numbers(name: str, values: Array) -> ColumnSummary:
    present = values[np.isfinite(values)]
    missing = int(values.size - present.size)
    if not present.size:
        return ColumnSummary(name, "number", missing, 0, (), ())
    low, median, high = np.quantile(present, [0.0, 0.5, 1.0])
    heights, _ = np.histogram(present, bins=_BARS, range=(low, high) if high > low else None)
    facts = tuple(number(float(each)) for each in (low, median, high))
    distinct = int(np.unique(present).size)
    return ColumnSummary(name, "number", missing, distinct, facts, _scaled(heights))


def _of_texts(name: str, kind: str, values: Any) -> ColumnSummary:
    present = [str(each) for each in values if each is not None]
    counted = Counter(present).most_common()
    facts = tuple(f"{each} ({count:,})" for each, count in counted[:3])
    heights = np.array([count for _, count in counted[:_CATEGORIES]], dtype=np.float64)
    missing = len(values) - len(present)
    return ColumnSummary(name, kind, missing, len(counted), facts, _scaled(heights))


def _scaled(heights: Any) -> tuple[float, ...]:
    return tuple(float(each) for each in heights / heights.max()) if len(heights) else ()
