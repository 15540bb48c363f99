"""What a table held, in a few numbers that are stored with a model."""

from __future__ import annotations

from typing import Any

import numpy as np

from eigengp._typing import Array
from eigengp.cli.tables.columns import Column, as_numbers, category_counts, missing
from eigengp.cli.tables.encoding import TableEncoding
from eigengp.cli.tables.reading import as_table


def summary(frame: Any, encoding: TableEncoding) -> dict[str, Any]:
    """Return how many rows there are, and the range of the target and of each input.

    Parameters
    ----------
    frame : pyarrow.Table, pandas.DataFrame or mapping
        The rows that a model learns from.
    encoding : TableEncoding
        What was learned of them.

    Returns
    -------
    values : dict
        What JSON can hold.

    Examples
    --------
    >>> houses = {"town": ["Hull", "Leeds", "Hull"], "price": [1.0, 3.0, 2.0]}
    >>> found = summary(houses, TableEncoding.learned(houses, "price"))
    >>> found["rows"], found["target"]["mean"], found["inputs"]["town"]["counts"]
    (3, 2.0, {'Hull': 2, 'Leeds': 1})
    """
    table = as_table(frame)
    return {
        "rows": int(table.num_rows),
        "target": {"name": encoding.target, **_ranges(encoding.targets(table))},
        "inputs": {each.name: _described(each, table[each.name]) for each in encoding.columns},
    }


def _described(column: Column, values: Any) -> dict[str, Any]:
    common = {"kind": column.kind, "missing": int(missing(values).sum())}
    if column.kind == "category":
        return {**common, "counts": category_counts(values)}
    numbers = as_numbers(values)
    return {**common, **_ranges(numbers[~np.isnan(numbers)])}


def _ranges(values: Array) -> dict[str, float]:
    return {
        "mean": float(values.mean()),
        "std": float(values.std()),
        "min": float(values.min()),
        "max": float(values.max()),
    }
