"""The rows that a report is about, and the inputs of the model as its user knows them.

A model sees features; a user sees columns, and a column of categories is several features. An
`Input` is such a column: it knows which features it fills, and with what.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from eigengp._format import number
from eigengp._typing import Array
from eigengp.cli.tables.columns import Column, as_numbers, as_text
from eigengp.cli.tables.encoding import TableEncoding, labelled
from eigengp.inspection import feature_names, grid, plain_rows

_MOST = (0.01, 0.99)
_STRANGE = "none that the model knows"
_MISSING = "missing"


@dataclass(frozen=True)
class Input:
    """A column that the model learns from.

    Parameters
    ----------
    name : str
        What the user calls it.
    features : tuple of int
        Which features of the model it fills.
    categories : tuple of str
        The values it can take, if it has no order; empty for numbers.
    codes : array of shape (number of categories, number of features) or None
        What its features are for each category; None for numbers.
    fill : float or None
        What stands for a number that is missing, while the second feature is 1; None if none is.
    """

    name: str
    features: tuple[int, ...]
    categories: tuple[str, ...] = ()
    codes: Array | None = None
    fill: float | None = None

    def put(self, points: Array, values: Array) -> Array:
        """Return points with this input at other values.

        Parameters
        ----------
        points : array of shape (..., D)
            Inputs of the model.
        values : array of shape (...)
            Numbers, NaN where they are missing, or indices of categories.
        """
        changed = points.copy()
        if self.codes is not None:
            changed[..., list(self.features)] = self.codes[values.astype(int)]
        elif self.fill is None:
            changed[..., self.features[0]] = values
        else:
            gone = np.isnan(values)
            changed[..., self.features[0]] = np.where(gone, self.fill, values)
            changed[..., self.features[1]] = gone
        return changed

    def values(self, X: Array) -> Array:
        """Return the value of this input in each row, as `put` takes them, shape (n,)."""
        own = X[:, list(self.features)]
        if self.codes is not None:
            distance = np.sum(self.codes**2, axis=1) - 2.0 * own @ self.codes.T
            nearest: Array = np.argmin(distance, axis=1).astype(np.float64)
            return nearest
        return own[:, 0] if self.fill is None else np.where(own[:, 1] > 0.0, np.nan, own[:, 0])

    def usual(self, X: Array) -> float:
        """Return the median, or the commonest category."""
        if self.codes is None:
            return float(np.median(self._known(X)))
        found, sizes = np.unique(self.values(X), return_counts=True)
        return float(found[np.argmax(sizes)])

    def spread(self, X: Array, count: int) -> Array:
        """Return at most `count` values that cover the rows: quantiles, or categories by size."""
        if self.codes is not None:
            found, sizes = np.unique(self.values(X), return_counts=True)
            commonest: Array = found[np.argsort(-sizes, kind="stable")[:count]]
            return np.sort(commonest)
        own = self._known(X)
        distinct = np.unique(own)
        if distinct.size <= count:
            return distinct
        return np.unique(np.quantile(own, np.linspace(0.05, 0.95, count)))

    def grid(self, X: Array, count: int) -> Array:
        """Return values along the input for a curve: categories, or steps over most of its range.

        Few rows far out would leave little of the curve where the others are.
        """
        if self.codes is not None:
            return np.arange(len(self.categories), dtype=np.float64)
        own = self._known(X)
        return grid(np.clip(own, *np.quantile(own, _MOST)), count)

    def _known(self, X: Array) -> Array:
        """Return the numbers that are not missing; the one that stands for them if all are."""
        own = self.values(X)
        known = own[~np.isnan(own)]
        return known if known.size else X[:1, self.features[0]]

    def label(self, value: float) -> str:
        """Return a value as a user reads it."""
        return self.categories[int(value)] if self.codes is not None else number(value)


@dataclass(frozen=True)
class TableColumn:
    """A column as it was given: floats with NaN, or texts with None, where a value is missing."""

    name: str
    kind: str
    values: Any


@dataclass(frozen=True)
class Rows:
    """The rows that a report is about.

    Parameters
    ----------
    X : array of shape (n, D)
        Inputs of the model.
    y : array of shape (n,)
        Targets.
    inputs : tuple of Input
        The columns behind `X`.
    target : str
        What the target is called.
    columns : tuple of TableColumn
        The columns of the table as they were given, the target last.
    weight : array of shape (n,) or None
        How often each row counted when the model was learned, if these rows were there.
    """

    X: Array
    y: Array
    inputs: tuple[Input, ...]
    target: str
    columns: tuple[TableColumn, ...]
    weight: Array | None = None

    @classmethod
    def of(cls, model: Any, X: ArrayLike, y: ArrayLike, target: str | None) -> Rows:
        """Return rows from arrays or frames that hold numbers alone.

        Parameters
        ----------
        model : GPRegressor
            Knows the names of its features if it was fitted to a frame.
        X : array or frame of shape (n, D)
            Inputs.
        y : array or series of shape (n,)
            Targets.
        target : str or None
            What the target is called; None takes the name of the series, or "target".
        """
        name = target or getattr(y, "name", None) or "target"
        named = not hasattr(model, "feature_names_in_") and hasattr(X, "columns")
        names = [str(each) for each in X.columns] if named else feature_names(model)  # type: ignore[union-attr]
        values = plain_rows(model, X)
        targets = column_or_1d(check_array(y, ensure_2d=False, dtype=np.float64, input_name="y"))
        check_consistent_length(values, targets)
        inputs = tuple(Input(each, (index,)) for index, each in enumerate(names))
        pairs = (*zip(names, values.T, strict=True), (str(name), targets))
        columns = tuple(TableColumn(each, "number", own) for each, own in pairs)
        return cls(values, targets, inputs, str(name), columns)

    @classmethod
    def of_table(cls, table: Any, encoding: TableEncoding) -> Rows:
        """Return the rows of a table of mixed columns.

        Parameters
        ----------
        table : pyarrow.Table, pandas.DataFrame or mapping
            The rows; those without a target are left out.
        encoding : TableEncoding
            How the model's features were made of the columns.
        """
        complete = labelled(table, encoding.target)
        X, y = encoding.inputs(complete), encoding.targets(complete)
        inputs = tuple(
            _input_of(column, tuple(features), X)
            for column, features in zip(encoding.columns, encoding.groups.values(), strict=True)
        )
        columns = [
            TableColumn(each.name, each.kind, _given(complete[each.name], each.kind))
            for each in encoding.columns
        ]
        columns.append(TableColumn(encoding.target, "number", y))
        weighted = encoding.weights in complete.column_names
        weight = encoding.sample_weight(complete) if weighted else None
        return cls(X, y, inputs, encoding.target, tuple(columns), weight)

    @property
    def typical(self) -> Array:
        """The row that others are compared with: medians, and the commonest categories; (D,)."""
        point = np.zeros(self.X.shape[1])
        for each in self.inputs:
            point = each.put(point, np.asarray(each.usual(self.X)))
        return point

    def few(self, which: Any) -> Rows:
        """Return some of the rows, without their columns."""
        return replace(self, X=self.X[which], y=self.y[which], columns=())


def _input_of(column: Column, features: tuple[int, ...], X: Array) -> Input:
    """Return the input that a column is; a missing value is one of its categories."""
    if column.kind == "number":
        fill = float(column.fill) if column.indicator and column.fill is not None else None
        return Input(column.name, features, fill=fill)
    if column.kind == "flag":
        names: tuple[str, ...] = ("false", "true")
        codes, filled = np.array([[0.0], [1.0]]), int(column.fill or 0.0)
    else:
        names, codes = column.categories, np.eye(len(column.categories))
        filled = names.index(str(column.fill)) if column.indicator else 0
        if not X[:, list(features)].any(axis=1).all():
            names, codes = (*names, _STRANGE), np.vstack([codes, np.zeros(codes.shape[1])])
    if column.indicator:
        missing = np.append(codes[filled], 1.0)
        names, codes = (*names, _MISSING), np.vstack([np.pad(codes, [(0, 0), (0, 1)]), missing])
    return Input(column.name, features, names, codes)


def _given(values: Any, kind: str) -> Any:
    """Return a column as it is in the table: floats, or texts with None where they are missing."""
    if kind == "number":
        return as_numbers(values)
    return np.array(as_text(values).to_pylist(), dtype=object)
