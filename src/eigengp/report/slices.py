"""Curves through a typical row: predictions along one input while others are moved.

The page computes nothing. For each input along which one may look, a curve is predicted here for
every combination of a few positions of the others, and the page shows the one that is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigengp.report.rows import Input, Rows
from eigengp.typing import Array

MOVED_INPUTS = 4
_POINTS = 41
_POSITIONS = 7
_FEWER_POSITIONS = 5
_COSTLY_COLUMNS = 300
"""Beyond so many numbers for each row, predictions are costly enough to want fewer."""


@dataclass(frozen=True)
class Slice:
    """Predictions along one input, for every combination of positions of the other moved ones.

    Parameters
    ----------
    along : int
        Which of the moved inputs.
    grid : array of shape (G,)
        Its values.
    mean, half : arrays of shape (P₁, …, P_k, G)
        Predictions, and half the width of their intervals, for the positions of the other moved
        inputs in their order.
    """

    along: int
    grid: Array
    mean: Array
    half: Array


@dataclass(frozen=True)
class Explorer:
    """Everything that sliders need: which inputs move, where to, and what is predicted there."""

    inputs: tuple[Input, ...]
    positions: tuple[Array, ...]
    starts: tuple[int, ...]
    """The position of each input that is nearest to the typical row."""
    slices: tuple[Slice, ...]


def explored(model: Any, rows: Rows, ranking: Sequence[Input], coverage: float) -> Explorer:
    """Predict along each of the most relevant inputs, for all positions of the others.

    Parameters
    ----------
    model : GPRegressor
        A fitted model.
    rows : Rows
        Say where data are, and which row is typical.
    ranking : sequence of Input
        Inputs, the most relevant first; at most four of them move.
    coverage : float
        The probability of the intervals.
    """
    inputs = tuple(ranking[:MOVED_INPUTS])
    costly = model._posterior.n_columns > _COSTLY_COLUMNS
    count = _FEWER_POSITIONS if costly else _POSITIONS
    positions = tuple(each.spread(rows.X, count) for each in inputs)
    typical = rows.typical
    starts = tuple(
        _nearest(each, where, typical) for each, where in zip(inputs, positions, strict=True)
    )
    slices = tuple(
        _slice(model, rows, typical, inputs, positions, along, coverage)
        for along in range(len(inputs))
    )
    return Explorer(inputs, positions, starts, slices)


def _nearest(moved: Input, positions: Array, typical: Array) -> int:
    own = moved.values(typical[None])[0]
    return int(np.argmin(np.abs(positions - own)))


def _slice(
    model: Any,
    rows: Rows,
    typical: Array,
    inputs: tuple[Input, ...],
    positions: tuple[Array, ...],
    along: int,
    coverage: float,
) -> Slice:
    grid = inputs[along].grid(rows.X, _POINTS)
    others = [index for index in range(len(inputs)) if index != along]
    values = np.meshgrid(*(positions[index] for index in others), grid, indexing="ij")
    points = np.broadcast_to(typical, (*values[-1].shape, typical.size))
    for index, moved in zip((*others, along), values, strict=True):
        points = inputs[index].put(points, moved)
    lower, upper = model.predict_interval(points.reshape(-1, typical.size), coverage)
    shape = values[-1].shape
    mean, half = (np.asarray(each).reshape(shape) for each in (upper + lower, upper - lower))
    return Slice(along, grid, 0.5 * mean, 0.5 * half)
