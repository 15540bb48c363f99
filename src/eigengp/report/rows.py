"""The rows that a report is about, and the inputs of the model as its user knows them.

A model sees features; a user sees columns, and a column of categories is several features. An
`Input` is such a column: it knows which features it fills, and with what.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from eigengp.arrays import on_host
from eigengp.typing import Array


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
        nearest: Array = np.argmin(
            np.sum((own[:, None, :] - self.codes[None]) ** 2, axis=2), axis=1
        ).astype(np.float64)
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
        """Return values along the input for a curve: evenly spaced between the ends of the rows."""
        if self.codes is not None:
            return np.arange(len(self.categories), dtype=np.float64)
        own = self.values(X)
        low, high = own.min(), own.max()
        return np.linspace(low, high, count) if high > low else np.array([low])

    def label(self, value: float) -> str:
        """Return a value as a user reads it."""
        return self.categories[int(value)] if self.codes is not None else f"{value:.4g}"


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
    columns : tuple of (str, array)
        Names and values of the columns of the table, the target last, as they were given.
    """

    X: Array
    y: Array
    inputs: tuple[Input, ...]
    target: str
    columns: tuple[tuple[str, Any], ...]

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
        given = getattr(X, "columns", getattr(model, "feature_names_in_", None))
        values = np.asarray(on_host(X), dtype=np.float64)
        targets = np.asarray(on_host(y), dtype=np.float64).ravel()
        if values.ndim != 2 or values.shape[0] != targets.size or not targets.size:
            raise ValueError(
                "X must have two dimensions and as many rows as y, at least one, got shapes "
                f"{values.shape} and {targets.shape}."
            )
        names = _names(given, values.shape[1])
        inputs = tuple(Input(each, (index,)) for index, each in enumerate(names))
        columns = (*zip(names, values.T, strict=True), (str(name), targets))
        return cls(values, targets, inputs, str(name), columns)

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


def _names(given: Sequence[Any] | None, n_features: int) -> list[str]:
    names = [f"x{index + 1}" for index in range(n_features)] if given is None else given
    return [str(each) for each in names]
