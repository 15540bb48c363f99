"""The rows of a report, and the inputs of the model as columns of a table.

A column with categories becomes several features of the model. An `Input` is such a column: it
knows its features, and how to set them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from eigengp._format import format_value
from eigengp._typing import Array
from eigengp.cli.tables import TableSchema, drop_unlabelled, format_day, summarize_table
from eigengp.data.columns import as_table
from eigengp.data.encode import PERIODS, Column
from eigengp.inspection import grid

_MOST_CATEGORIES = 100  # The largest number of categories of a column that are shown.
_DATES = 100  # About how many dates a curve has, if dates have seasons.


@dataclass(frozen=True)
class Input:
    """An input column of the model.

    Parameters
    ----------
    name : str
        Its name in the table.
    features : tuple of int
        The indices of its features.
    categories : tuple of str
        Its possible values if it has no order; empty for numbers.
    codes : array of shape (number of categories, number of features) or None
        The features of each category; None for numbers.
    column : Column
        How the column becomes features.
    """

    name: str
    features: tuple[int, ...]
    column: Column
    categories: tuple[str, ...] = ()
    codes: Array | None = None

    @classmethod
    def from_column(cls, column: Column, features: tuple[int, ...], X: Array) -> Input:
        """Describe an encoded column; a missing value is one of its categories."""
        if column.kind in ("number", "date"):
            return cls(column.name, features, column)
        flag = column.kind == "flag"
        names = [*(("false", "true") if flag else column.categories)]
        names += ["missing"] * column.indicator
        if flag:
            codes = column.encode_numbers(np.array([0.0, 1.0, np.nan])[: len(names)])
        else:
            codes = column.points
            if not column.hashed and np.any(X[:, list(features)] < 0.0):
                codes, names = np.vstack([codes, column.unknown]), [*names, "unknown"]
        own = cls(column.name, features, column, tuple(names), codes)
        return own if len(names) <= _MOST_CATEGORIES else own._keep_frequent(X)

    def _keep_frequent(self, X: Array) -> Input:
        """Return the input with its most frequent categories, by name; the others are one."""
        assert self.codes is not None
        kept = np.sort(self._rank_categories(X)[:_MOST_CATEGORIES]).astype(int)
        names = (*(self.categories[i] for i in kept), "others")
        codes = np.vstack([self.codes[kept], np.zeros(len(self.features))])
        return replace(self, categories=names, codes=codes)

    def set_values(self, points: Array, values: Array) -> Array:
        """Return points with other values of this input.

        Parameters
        ----------
        points : array of shape (..., D)
            Inputs of the model.
        values : array of shape (...)
            Numbers, NaN where missing, milliseconds since 1970 for dates, as Plotly takes them, or
            indices of categories.
        """
        changed = points.copy()
        if self.codes is not None:
            own = self.codes[values.astype(int)]
        else:
            own = self.column.encode_numbers(values / self._unit)
        changed[..., list(self.features)] = own
        return changed

    def get_values(self, X: Array) -> Array:
        """Return the value of this input in each row, as in `set_values`, shape (n,)."""
        own = X[:, list(self.features)]
        if self.codes is not None:
            distance = np.sum(self.codes**2, axis=1) - 2.0 * own @ self.codes.T
            return np.argmin(distance, axis=1).astype(np.float64)
        return self._unit * self.column.decode_numbers(own)

    def get_typical(self, X: Array) -> float:
        """Return the median, or the most frequent category."""
        if self.codes is None:
            return float(np.median(self._get_known(X)))
        return float(self._rank_categories(X)[0])

    def choose_positions(self, X: Array, count: int) -> Array:
        """Return at most `count` values that cover the rows: quantiles, or frequent categories."""
        if self.codes is not None:
            return np.sort(self._rank_categories(X)[:count])
        own = self._get_known(X)
        many = np.unique(own).size > count
        return np.unique(np.quantile(own, np.linspace(0.05, 0.95, count)) if many else own)

    def make_grid(self, X: Array, count: int) -> Array:
        """Return values for a curve: all categories, or the range between the 1 % quantiles."""
        if self.codes is not None:
            return np.arange(len(self.categories), dtype=np.float64)
        own = self._get_known(X)
        low, high = np.quantile(own, (0.01, 0.99))
        if self.is_date and self.column.periods and high > low:
            return self._make_dates(float(low), float(high))
        return grid(np.clip(own, low, high), count)

    def _make_dates(self, low: float, high: float) -> Array:
        """Return dates that are close enough to show seasons.

        Their distance is a whole number of periods of a season that is too short to be shown.
        """
        step = (high - low) / _DATES
        periods = [self._unit * PERIODS[each] for each in self.column.periods]
        if short := max((each for each in periods if each < 4.0 * step), default=0.0):
            step = short * max(1, round(step / short))
        return np.arange(low, high + 0.5 * step, step)

    def format_value(self, value: float) -> str:
        """Return a value as text."""
        if self.codes is not None:
            return self.categories[int(value)]
        if self.is_date:
            return format_day(value / self._unit)
        return format_value(value)

    @property
    def is_date(self) -> bool:
        """Whether its values are dates."""
        return self.column.kind == "date"

    @property
    def _unit(self) -> float:
        """The unit of its values in that of the column: milliseconds in a day for dates."""
        return 86_400_000.0 if self.is_date else 1.0

    def _get_known(self, X: Array) -> Array:
        """Return the numbers that are not missing; the fill value if all are."""
        own = self.get_values(X)
        known = own[~np.isnan(own)]
        return known if known.size else np.array([self._unit * self.column.fill])

    def _rank_categories(self, X: Array) -> Array:
        """Return the categories in the rows, the most frequent first."""
        found, sizes = np.unique(self.get_values(X), return_counts=True)
        return found[np.argsort(-sizes, kind="stable")]


@dataclass(frozen=True)
class Rows:
    """The rows of a report.

    Parameters
    ----------
    X : array of shape (n, D)
        Inputs of the model.
    y : array of shape (n,)
        Targets.
    inputs : tuple of Input
        The columns behind `X`.
    target : str
        The name of the target.
    columns : list of dict
        Names and summaries of the columns of the table, the target last.
    weight : array of shape (n,) or None
        The weight of each row.
    """

    X: Array
    y: Array
    inputs: tuple[Input, ...]
    target: str
    columns: list[dict[str, Any]]
    weight: Array | None = None

    @classmethod
    def from_arrays(cls, model: Any, X: ArrayLike, y: ArrayLike, target: str | None = None) -> Rows:
        """Take rows from arrays or frames; rows without a target are dropped.

        Parameters
        ----------
        model : GPRegressor or EigenGPClassifier
            Knows its inputs.
        X : array or frame of shape (n, D)
            Inputs.
        y : array or series of shape (n,)
            Targets.
        target : str or None
            The name of the target; None takes the name of the series, or "target".
        """
        name = str(target or getattr(y, "name", None) or "target")
        schema = TableSchema.of_model(model, target=name, labels=hasattr(model, "classes_"))
        frame: Any = X
        if not (hasattr(X, "columns") and hasattr(model, "feature_names_in_")):
            columns = np.asarray(X).T
            frame = dict(zip(schema.encoder.feature_names_in_, columns, strict=True))
        table = as_table(frame)
        inputs = {each: table[each] for each in table.column_names}
        if name in inputs:
            raise ValueError(f"{name!r} is an input; pass another name of the target.")
        return cls.from_table({**inputs, name: np.asarray(y)}, schema)

    @classmethod
    def from_table(cls, table: Any, schema: TableSchema) -> Rows:
        """Take rows from a table of mixed columns; rows without a target are dropped.

        Parameters
        ----------
        table : pyarrow.Table, pandas.DataFrame or mapping
            The rows.
        schema : TableSchema
            How the columns become inputs of the model.
        """
        complete = drop_unlabelled(table, schema.target)
        X, y, weight = schema.split(complete)
        summary, groups = summarize_table(complete, schema), schema.encoder.feature_groups_
        pairs = ((each, tuple(groups[each.name])) for each in schema.encoder.columns_)
        inputs = tuple(Input.from_column(*pair, X) for pair in pairs)
        columns = [{"name": name, **own} for name, own in summary["inputs"].items()]
        return cls(X, y, inputs, schema.target, [*columns, summary["target"]], weight)

    @property
    def typical(self) -> Array:
        """A row of medians and most frequent categories, shape (D,)."""
        point = np.zeros(self.X.shape[1])
        for each in self.inputs:
            point = each.set_values(point, np.asarray(each.get_typical(self.X)))
        return point


def sample_rows(n: int, count: int) -> Any:
    """Return the sorted indices of at most `count` of `n` rows, with a fixed seed."""
    if n <= count:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, count, replace=False))
