"""Curves through a typical row: predictions along one input while others are moved.

The page computes nothing. For each input along which one may look, a curve is predicted here for
every combination of a few positions of the others, and the page shows the one that is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigengp._typing import Array
from eigengp.cli.report.effort import Effort
from eigengp.cli.report.rows import Input, Rows


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


def explored(
    model: Any, rows: Rows, ranking: Sequence[Input], coverage: float, effort: Effort
) -> Explorer:
    """Predict along each of the most important inputs, for all positions of the others.

    Parameters
    ----------
    model : GPRegressor
        A fitted model.
    rows : Rows
        Say where data are, and which row is typical.
    ranking : sequence of Input
        Inputs, the most important first.
    coverage : float
        The probability of the intervals.
    effort : Effort
        How many inputs move, to how many positions.
    """
    inputs = tuple(ranking[: effort.moved_inputs])
    positions = tuple(each.spread(rows.X, effort.positions) for each in inputs)
    typical = rows.typical
    starts = tuple(
        _nearest(each, where, typical) for each, where in zip(inputs, positions, strict=True)
    )

    def along(place: int) -> Slice:
        grid = inputs[place].grid(rows.X, effort.points)
        order = [*(each for each in range(len(inputs)) if each != place), place]
        where = [grid if each == place else positions[each] for each in order]
        moved = zip([inputs[each] for each in order], where, strict=True)
        lower, upper = _intervals(model, typical, list(moved), coverage)
        return Slice(place, grid, 0.5 * (lower + upper), 0.5 * (upper - lower))

    return Explorer(inputs, positions, starts, tuple(map(along, range(len(inputs)))))


def _intervals(
    model: Any, typical: Array, moved: Sequence[tuple[Input, Array]], coverage: float
) -> tuple[Array, Array]:
    """Return the ends of intervals at every combination of values of some inputs."""
    values = np.meshgrid(*(own for _, own in moved), indexing="ij")
    points = np.broadcast_to(typical, (*values[0].shape, typical.size))
    for (each, _), own in zip(moved, values, strict=True):
        points = each.put(points, own)
    lower, upper = model.predict_interval(points.reshape(-1, typical.size), coverage)
    shape = values[0].shape
    return np.asarray(lower).reshape(shape), np.asarray(upper).reshape(shape)


def _nearest(moved: Input, positions: Array, typical: Array) -> int:
    return int(np.argmin(np.abs(positions - moved.usual(typical[None]))))
