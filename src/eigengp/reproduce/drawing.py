"""What the figures share: sizes, bands, basis points, and one colour for each method."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from eigengp.reproduce.methods import METHODS
from eigengp.reproduce.problems import Problem
from eigengp.reproduce.runs import Record
from eigengp.typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DATA_COLOR = "#9A9A9A"
TRUTH_COLOR = "#000000"
EIGENFUNCTION_LINES = (
    ("#0072B2", "-"),
    ("#E69F00", "--"),
    ("#009E73", "-."),
    ("#CC79A7", ":"),
    ("#D55E00", (0, (5, 1, 1, 1, 1, 1))),
)
_MEAN, _BAND = "mean", "± 2 s.d."
_GREYS = {_MEAN: "0.4", _BAND: "0.85"}
_WIDE, _NARROW = 3.5, 4.3
STYLE: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.labelsize": 9.5,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "font.size": 9.5,
    "svg.hashsalt": "eigengp",
}
"""How Matplotlib draws here."""


@contextmanager
def style() -> Iterator[None]:
    """Draw in the style of the page."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        yield


def new_figure(
    rows: int, columns: int, height: float = 2.5, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure, tied to no screen, and its panels row by row."""
    from matplotlib.figure import Figure

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


def draw_rows(axes: Axes, X: Array, y: Array) -> None:
    """Draw the training rows."""
    axes.scatter(X[:, 0], y, s=9, color=DATA_COLOR, linewidths=0, label="data", zorder=1)


def draw_prediction(axes: Axes, x: Array, record: Record) -> None:
    """Draw mean, band of two standard deviations, and basis points where there are any."""
    color = METHODS[record["method"]].color
    mean, std = (np.array(record["curves"][name]) for name in ("mean", "std"))
    low, high = mean - 2 * std, mean + 2 * std
    axes.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0, label=_BAND, zorder=2)
    axes.plot(x, mean, color=color, lw=1.8, label=_MEAN, zorder=3)
    draw_basis_points(axes, record)


def draw_panel(
    axes: Axes, task: Problem, record: Record, truth: str, limits: tuple[float, float]
) -> None:
    """Draw rows, prediction and truth in a panel as wide as the test inputs."""
    x = task.X_test[:, 0]
    axes.set(xlim=(x[0], x[-1]), ylim=limits)
    draw_rows(axes, task.X, task.y)
    draw_prediction(axes, x, record)
    draw_truth(axes, x, task.y_test, truth)


def draw_basis_points(axes: Axes, record: Record) -> None:
    """Mark the basis points along the lower edge, and say how many lie beyond the panel."""
    points = np.array(record["hyperparameters"].get("inducing_inputs", [])).ravel()
    low, high = axes.get_xlim()
    for beyond, x, side in ((points < low, 0.01, "left"), (points > high, 0.99, "right")):
        if beyond.any():
            arrow = f"◂ {beyond.sum()}" if side == "left" else f"{beyond.sum()} ▸"
            axes.text(x, 0.12, arrow, ha=side, va="center", transform=axes.transAxes, fontsize=8.5)
    shown = points[(points >= low) & (points <= high)]
    if shown.size:
        axes.plot(
            shown,
            np.full(shown.size, 0.05),
            linestyle="none",
            marker="x",
            markersize=6,
            markeredgewidth=1.5,
            color="black",
            transform=axes.get_xaxis_transform(),
            clip_on=False,
            label="basis points",
            zorder=5,
        )


def draw_truth(axes: Axes, x: Array, y: Array, label: str) -> None:
    """Draw the curve that predictions are compared with."""
    axes.plot(x, y, color=TRUTH_COLOR, lw=1.1, linestyle=(0, (4, 2)), label=label, zorder=4)


def draw_eigenfunctions(axes: Axes, x: Array, record: Record) -> None:
    """Draw the leading eigenfunctions, each scaled to its peak, which points upwards.

    Sign and size mean nothing by themselves: weights make up for them.
    """
    functions = np.array(record["curves"]["eigenfunctions"])
    lines = zip(functions, EIGENFUNCTION_LINES, strict=False)
    for j, (phi, (color, dashes)) in enumerate(lines, start=1):
        peak = phi[np.argmax(np.abs(phi))]
        axes.plot(x, phi / peak, color=color, linestyle=dashes, lw=1.6, label=rf"$\varphi_{j}$")
    axes.axhline(0.0, color="0.85", lw=0.8, zorder=0)
