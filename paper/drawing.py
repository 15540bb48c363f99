"""What the figures share: sizes, bands, inducing points, and one colour for each method."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from eigengp._typing import Array
from eigengp.plot import palette
from eigengp.plot.marks import (
    draw_band,
    draw_curves,
    draw_edge_points,
    draw_mean,
    draw_rows,
)
from paper.methods import METHODS
from paper.problems import Problem
from paper.runs import Record

_MEAN, _BAND = "mean", "± 2 s.d."
_GREYS = {_MEAN: "0.4", _BAND: "0.85"}
_WIDE, _NARROW = 3.5, 4.3
_STYLE = {"svg.hashsalt": "eigengp"}


def style() -> AbstractContextManager[None]:
    """Draw in the style of the page."""
    return palette.style(**_STYLE)


def new_figure(
    rows: int, columns: int, height: float = 2.5, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure, tied to no screen, and its panels row by row."""
    width = _NARROW if columns == 1 else _WIDE * columns
    figure = Figure(figsize=(width, height * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, list(axes.ravel())


def legend_above(figure: Figure, axes: Axes, columns: int) -> None:
    """Put one legend for all panels above them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=columns)


def prediction_legend(figure: Figure, axes: Axes, columns: int) -> None:
    """Put the legend of a prediction above; mean and band are grey, for no method is meant."""
    legend_above(figure, axes, columns)
    legend = figure.legends[0]
    # A band's handle does not know its label, so the text beside it is asked.
    for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
        if handle is not None and text.get_text() in _GREYS:
            handle.set(color=_GREYS[text.get_text()])


def draw_prediction(axes: Axes, x: Array, record: Record) -> None:
    """Draw mean, band of two standard deviations, and inducing points where there are any."""
    color = METHODS[record["method"]].color
    mean, std = (np.array(record["curves"][name]) for name in ("mean", "std"))
    low, high = mean - 2 * std, mean + 2 * std
    draw_band(axes, x, low, high, color, _BAND)
    draw_mean(axes, x, mean, color, _MEAN)
    draw_inducing_points(axes, record)


def draw_panel(
    axes: Axes, task: Problem, record: Record, truth: str, limits: tuple[float, float]
) -> None:
    """Draw rows, prediction and truth in a panel as wide as the test inputs."""
    x = task.X_test[:, 0]
    axes.set(xlim=(x[0], x[-1]), ylim=limits)
    draw_rows(axes, task.X[:, 0], task.y)
    draw_prediction(axes, x, record)
    draw_truth(axes, x, task.y_test, truth)


def draw_inducing_points(axes: Axes, record: Record) -> None:
    """Mark the inducing points along the lower edge, and count those outside the panel."""
    points = np.array(record["hyperparameters"].get("inducing_points", [])).ravel()
    draw_edge_points(axes, points)


def draw_truth(axes: Axes, x: Array, y: Array, label: str) -> None:
    """Draw the curve that predictions are compared with."""
    axes.plot(x, y, color=palette.TRUTH_COLOR, lw=1.1, linestyle=(0, (4, 2)), label=label, zorder=4)


def draw_eigenfunctions(axes: Axes, x: Array, record: Record) -> None:
    """Draw the leading eigenfunctions, each scaled to its peak, which points upwards.

    Sign and size mean nothing by themselves: weights make up for them.
    """
    functions = np.array(record["curves"]["eigenfunctions"])
    draw_curves(axes, x, functions)
