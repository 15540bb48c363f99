"""What pictures are made of: data, bands, curves, basis points along an edge, and panels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from eigengp._typing import Array
from eigengp.plot.palette import DATA_COLOR, LINES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDE, _NARROW, _HEIGHT = 3.3, 5.0, 2.8


def panels(
    ax: Any, count: int, columns: int = 3, height: float = _HEIGHT, **options: Any
) -> list[Axes]:
    """Return `count` axes: those given, or those of a new figure, row by row."""
    if ax is None:
        from matplotlib import pyplot

        columns = min(columns, count)
        rows = -(-count // columns)
        width = _NARROW if columns == 1 else _WIDE * columns
        figure, made = pyplot.subplots(
            rows,
            columns,
            figsize=(width, height * rows + 0.4),
            layout="constrained",
            squeeze=False,
            **options,
        )
        figure.get_layout_engine().set(w_pad=0.08, h_pad=0.06)
        for spare in made.ravel()[count:]:
            figure.delaxes(spare)
        return list(made.ravel()[:count])
    given = list(np.ravel(np.asarray(ax, dtype=object)))
    if len(given) != count:
        raise ValueError(
            f"This picture has {count} panels, but ax holds {len(given)}; pass that many axes, or "
            "ax=None for a figure of its own."
        )
    return given


def together(axes: list[Axes]) -> Any:
    """Return axes as an array."""
    found = np.empty(len(axes), dtype=object)
    found[:] = axes
    return found


def legend(several: list[Axes], ax: Any) -> None:
    """Put one legend above the panels of a figure of our own, or into the first panel given.

    Parameters
    ----------
    several : list of Axes
        The panels.
    ax : Axes, array of Axes or None
        Where the user wanted them; None is a figure of our own.
    """
    found: dict[str, Any] = {}
    for axes in several:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if not found:
        return
    if ax is None:
        figure: Any = several[0].figure
        columns = 3 if figure.get_figwidth() <= _NARROW else 5
        figure.legend(found.values(), found, loc="outside upper left", ncols=columns)
    else:
        several[0].legend(found.values(), found, frameon=True, framealpha=0.8)


def draw_rows(axes: Axes, x: ArrayLike, y: ArrayLike) -> None:
    """Draw the training rows."""
    axes.scatter(x, y, s=9, color=DATA_COLOR, linewidths=0, label="data", zorder=1)


def draw_band(
    axes: Axes, x: Array, low: Array, high: Array, color: str, label: str, alpha: float = 0.2
) -> None:
    """Draw where a curve may lie."""
    axes.fill_between(x, low, high, color=color, alpha=alpha, linewidth=0, label=label, zorder=2)


def draw_mean(axes: Axes, x: Array, mean: Array, color: str, label: str = "mean") -> None:
    """Draw a curve that is predicted."""
    axes.plot(x, mean, color=color, lw=1.8, label=label, zorder=3)


def draw_edge_points(axes: Axes, points: Array, label: str = "basis points") -> None:
    """Mark points along the lower edge, and say how many lie beyond the panel."""
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
            label=label,
            zorder=5,
        )


def draw_crosses(axes: Axes, points: Array) -> None:
    """Draw basis points, shape (M, 2), legible on any ground."""
    from matplotlib import patheffects

    halo = [patheffects.withStroke(linewidth=3.0, foreground="white")]
    axes.plot(
        *points.T,
        linestyle="none",
        marker="x",
        markersize=6,
        markeredgewidth=1.5,
        color="black",
        path_effects=halo,
        label="basis points",
    )


def draw_rug(axes: Axes, values: Array) -> None:
    """Mark where an input has data, by ticks along the lower edge."""
    axes.plot(
        values,
        np.zeros(values.size),
        linestyle="none",
        marker="|",
        markersize=9,
        markeredgewidth=0.6,
        color=DATA_COLOR,
        transform=axes.get_xaxis_transform(),
        label="data",
        zorder=1,
    )


def to_peak(function: Array) -> Array:
    """Return a function's values scaled to their peak, which points upwards.

    Sign and size of an eigenfunction mean nothing by themselves: weights make up for them.
    """
    return function / function.flat[np.argmax(np.abs(function))]


def draw_curves(axes: Axes, x: ArrayLike, functions: Array) -> None:
    """Draw eigenfunctions, shape (J, n), at most as many as there are kinds of lines."""
    for j, (phi, (color, dashes)) in enumerate(zip(functions, LINES, strict=False), start=1):
        axes.plot(x, to_peak(phi), color=color, linestyle=dashes, lw=1.6, label=rf"$\varphi_{j}$")
    axes.axhline(0.0, color="0.85", lw=0.8, zorder=0)
