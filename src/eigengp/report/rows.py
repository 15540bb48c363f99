"""The rows that a report is about, and the inputs of the model as its user knows them.

A model sees features; a user sees columns, and a column of categories is several features. An
`Input` is such a column: it knows which features it fills, and with what.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from eigengp.inspection import feature_names, grid, plain_rows
from eigengp.tables.columns import Column, as_numbers, as_text
from eigengp.tables.encoding import TableEncoding, labelled
from eigengp.typing import Array
from eigengp.wording import number

_MOST = (0.01, 0.99)
_STRANGE = "none that the model knows"


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
    """

    name: str
    features: tuple[int, ...]
    categories: tuple[str, ...] = ()
    codes: Array | None = None

    def put(self, points: Array, values: Array) -> Array:
        """Return points with this input at other values.

        Parameters
        ----------
        points : array of shape (..., D)
            Inputs of the model.
        values : array of shape (...)
            Numbers, or indices of categories.
        """
        changed = points.copy()
        if self.codes is None:
            changed[..., self.features[0]] = values
        else:
            changed[..., list(self.features)] = self.codes[values.astype(int)]
        return changed

    def values(self, X: Array) -> Array:
        """Return the value of this input in each row: numbers, or indices of categories."""
        own = X[:, list(self.features)]
        if self.codes is None:
            return own[:, 0]
        distance = np.sum(self.codes**2, axis=1) - 2.0 * own @ self.codes.T
        nearest: Array = np.argmin(distance, axis=1).astype(np.float64)
        return nearest

    def spread(self, X: Array, count: int) -> Array:
        """Return at most `count` values that cover the rows: quantiles, or categories by size."""
        own = self.values(X)
        if self.codes is not None:
            found, sizes = np.unique(own, return_counts=True)
            commonest: Array = found[np.argsort(-sizes, kind="stable")[:count]]
            return np.sort(commonest)
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
        own = self.values(X)
        return grid(np.clip(own, *np.quantile(own, _MOST)), count)

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
        inputs: list[Input] = []
        for column, features in zip(encoding.columns, encoding.groups.values(), strict=True):
            inputs += _inputs_of(column, features, X)
        columns = [
            TableColumn(each.name, each.kind, _given(complete[each.name], each.kind))
            for each in encoding.columns
        ]
        columns.append(TableColumn(encoding.target, "number", y))
        weighted = encoding.weights in complete.column_names
        weight = encoding.sample_weight(complete) if weighted else None
        return cls(X, y, tuple(inputs), encoding.target, tuple(columns), weight)

    @property
    def typical(self) -> Array:
        """The row that others are compared with: medians, and the commonest categories; (D,)."""
        point = np.median(self.X, axis=0)
        for each in self.inputs:
            if each.codes is not None:
                found, sizes = np.unique(each.values(self.X), return_counts=True)
                point = each.put(point, found[np.argmax(sizes)])
        return point

    def few(self, which: Any) -> Rows:
        """Return some of the rows, without their columns."""
        return replace(self, X=self.X[which], y=self.y[which], columns=())


def _inputs_of(column: Column, features: Sequence[int], X: Array) -> Iterator[Input]:
    """Yield the input that a column is, and the one that says where it was missing."""
    own = features[:-1] if column.indicator else features
    if column.kind == "number":
        yield Input(column.name, tuple(own))
    elif column.kind == "flag":
        yield _two(column.name, own[0], ("false", "true"))
    else:
        codes, names = np.eye(len(own)), column.categories
        if not X[:, own].any(axis=1).all():
            codes, names = np.vstack([codes, np.zeros(len(own))]), (*names, _STRANGE)
        yield Input(column.name, tuple(own), names, codes)
    if column.indicator:
        yield _two(column.feature_names[-1], features[-1], ("no", "yes"))


def _two(name: str, feature: int, names: tuple[str, str]) -> Input:
    """Return an input whose only feature is 0 or 1."""
    return Input(name, (feature,), names, np.array([[0.0], [1.0]]))


def _given(values: Any, kind: str) -> Any:
    """Return a column as it is in the table: floats, or texts with None where they are missing."""
    if kind == "number":
        return as_numbers(values)
    return np.array(as_text(values).to_pylist(), dtype=object)
