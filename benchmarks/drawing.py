"""What tables and pictures share: a style for each library, and how figures are made and kept."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from peers.asking import LIBRARIES
from record import write_atomically
from rich.console import Console
from rich.table import Table

from eigengp.plot.palette import STYLE

_WIDE = 150
console = Console(highlight=False)
if not console.is_terminal:  # A file has no edge at which a table must be folded.
    console = Console(highlight=False, width=_WIDE)

# Okabe and Ito's colours, which most eyes tell apart; marks and dashes tell them apart in grey.
_LINES: dict[str, tuple[str, str, Any]] = {
    "eigengp": ("#000000", "o", "-"),
    "gpflow": ("#0072B2", "s", "--"),
    "gpytorch": ("#D55E00", "^", "-."),
    "gpjax": ("#009E73", "D", ":"),
    "gpboost": ("#CC79A7", "P", (0, (5, 1, 1, 1, 1, 1))),
    "lightgbm": ("#E69F00", "X", (0, (1, 1))),
    "sklearn": ("#56B4E9", "v", (0, (6, 2))),
    "floor": ("#8C8C8C", "None", (0, (4, 2))),
    "torch": ("#D55E00", "^", "-."),
}
# Variants of one library differ in how their marks are filled.
_FILLS = ("full", "none", "left", "bottom")
_GRID: dict[Any, Any] = {
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.grid.which": "major",
    "grid.color": "0.9",
}
matplotlib.rcParams.update(STYLE | _GRID)


def title(library: str, variant: str = "") -> str:
    """Return what a library, or a variant of it, is called."""
    name = LIBRARIES[library].title if library in LIBRARIES else library
    return f"{name}, {variant}" if variant else name


def color(library: str) -> str:
    """Return the colour of a library."""
    return _LINES[library][0]


def line(library: str, variant: int = 0) -> dict[str, Any]:
    """Return how the line of a library's variant is drawn."""
    shade, marker, dashes = _LINES[library]
    return {
        "color": shade,
        "marker": marker,
        "linestyle": dashes,
        "fillstyle": _FILLS[variant % len(_FILLS)],
        "markersize": 5.5,
        "linewidth": 1.5,
    }


def new_figure(rows: int, columns: int, width: float, height: float) -> tuple[Figure, Any]:
    """Return a figure, tied to no screen, and its panels, shape (rows, columns)."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def legend_above(figure: Figure, axes: list[Axes], columns: int) -> None:
    """Put one legend for all panels above them."""
    found = {}
    for each in axes:
        found |= dict(zip(*reversed(each.get_legend_handles_labels()), strict=True))
    figure.legend(list(found.values()), list(found), loc="outside upper left", ncols=columns)


def save(figure: Figure, path: Path) -> None:
    """Write a picture, whole or not at all."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=150)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())


def new_table(heading: str, *columns: str, words: int = 1) -> Table:
    """Return a table whose first columns are words and whose others are numbers."""
    table = Table(title=heading, title_justify="left", title_style="bold")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i < words else "right")
    return table
