"""Which inputs matter, and how the prediction changes with them on average."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.inspection import permutation_importance

from eigengp._typing import Array
from eigengp.cli.report.effort import Effort
from eigengp.cli.report.quality import sampled
from eigengp.cli.report.rows import Input, Rows
from eigengp.conformal import normal_half_width
from eigengp.inspection import partial_dependence

_REPEATS = 3
_SHUFFLED_VALUES = 20_000
"""Rows times inputs: of many inputs the importance is measured on fewer rows."""
SHOWN_EFFECTS = 6


@dataclass(frozen=True)
class Influence:
    """What one input means to a model.

    Parameters
    ----------
    input : Input
        The input.
    importance : float
        How much the root mean squared error grows when its values are shuffled among the rows.
    relevance : float
        The largest `input_relevance` of its features.
    """

    input: Input
    importance: float
    relevance: float


@dataclass(frozen=True)
class AverageEffect:
    """The prediction as one input is set to each of some values in all rows, averaged."""

    input: Input
    grid: Array
    mean: Array
    lower: Array
    upper: Array


# scikit-learn ships no types, so its classes are Any to mypy.
class _ByInput(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A fitted model that is given the values of its inputs instead of its features."""

    def __init__(self, model: Any, inputs: Sequence[Input]) -> None:
        self.model = model
        self.inputs = inputs

    def fit(self, X: Array, y: Array) -> _ByInput:
        """Leave the model as it is."""
        return self

    def predict(self, values: Array) -> Array:
        """Predict from the value of each input, shape (n, number of inputs)."""
        points = np.zeros((values.shape[0], self.model.n_features_in_))
        for each, own in zip(self.inputs, values.T, strict=True):
            points = each.put(points, own)
        return np.asarray(self.model.predict(points))


def influences(model: Any, rows: Rows, effort: Effort) -> tuple[Influence, ...]:
    """Return what each input means to a model, the most important first.

    Permutation importance (scikit-learn's) is measured on some of the rows; inputs of the same
    importance, such as those that have none, are in the order of their relevance.
    """
    count = min(effort.shuffled_rows, max(50, _SHUFFLED_VALUES // len(rows.inputs)))
    few = rows.few(sampled(rows.y.size, count))
    values = np.column_stack([each.values(few.X) for each in rows.inputs])
    found = permutation_importance(
        _ByInput(model, rows.inputs),
        values,
        few.y,
        scoring="neg_root_mean_squared_error",
        n_repeats=_REPEATS,
        random_state=0,
    ).importances_mean
    relevance = np.asarray(model.input_relevance())
    all_ = [
        Influence(each, float(own), float(relevance[list(each.features)].max()))
        for each, own in zip(rows.inputs, found, strict=True)
    ]
    return tuple(sorted(all_, key=lambda each: (-each.importance, -each.relevance)))


def average_effects(
    model: Any, rows: Rows, ranking: Sequence[Input], coverage: float, effort: Effort
) -> tuple[AverageEffect, ...]:
    """Return the partial dependence on the most important inputs, with bands of this coverage."""
    few = rows.few(sampled(rows.y.size, effort.averaged_rows))
    return tuple(
        _average_effect(model, few, each, each.grid(rows.X, effort.steps), coverage)
        for each in ranking[:SHOWN_EFFECTS]
    )


def _average_effect(
    model: Any, few: Rows, along: Input, grid: Array, coverage: float
) -> AverageEffect:
    if len(along.features) == 1 and along.codes is None:
        effect = partial_dependence(model, few.X, along.features[0], values=grid, coverage=coverage)
        return AverageEffect(along, grid, effect.mean, effect.lower, effect.upper)
    everywhere = [along.put(few.X, np.full(len(few.X), value)) for value in grid]
    averages = np.array([model.predict_average(rows) for rows in everywhere])
    mean, half = averages[:, 0], normal_half_width(coverage) * averages[:, 1]
    return AverageEffect(along, grid, mean, mean - half, mean + half)
