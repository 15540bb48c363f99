"""Elements that the plots share: panels, legends, data, bands, curves and inducing points."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from eigengp._typing import Array
from eigengp.plot.palette import DATA_COLOR, LINES, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDE, _NARROW, _HEIGHT = 3.3, 5.0, 2.8
_CROSSES: dict[str, Any] = {
    "linestyle": "none",
    "marker": "x",
    "markersize": 6,
    "markeredgewidth": 1.5,
    "color": "black",
}


@contextmanager
def panels(ax: Any, count: int = 1, height: float = _HEIGHT, **options: Any) -> Iterator[Any]:
    """Draw on `count` axes in our style, those given or those of a new figure, with one legend.

    The legend stands above the panels of a new figure, or in the first of the given panels.
    """
    with style():
        several = _make_panels(count, height, **options) if ax is None else _take_panels(ax, count)
        yield several
        found: dict[str, Any] = {}
        for axes in several:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                found.setdefault(label, handle)
        if found and ax is None:
            figure: Any = several[0].figure
            columns = 3 if figure.get_figwidth() <= _NARROW else 5
            figure.legend(found.values(), found, loc="outside upper left", ncols=columns)
        elif found:
            several[0].legend(found.values(), found, frameon=True, framealpha=0.8)


def _take_panels(ax: Any, count: int) -> Any:
    given = np.ravel(np.asarray(ax, dtype=object))
    if given.size != count:
        raise ValueError(
            f"This plot has {count} panels, but ax holds {given.size}; pass that many axes, or "
            "ax=None for a new figure."
        )
    return given


def _make_panels(count: int, height: float, **options: Any) -> Any:
    """Return the axes of a new figure, row by row."""
    from matplotlib import pyplot

    columns = min(3, count)
    rows = -(-count // columns)
    size = (_NARROW if columns == 1 else _WIDE * columns, height * rows + 0.4)
    figure, made = pyplot.subplots(
        rows, columns, figsize=size, layout="constrained", squeeze=False, **options
    )
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.06)
    for spare in made.flat[count:]:
        figure.delaxes(spare)
    return made.ravel()[:count]


def draw_rows(axes: Axes, x: ArrayLike, y: ArrayLike) -> None:
    """Draw the training rows."""
    axes.scatter(x, y, s=9, color=DATA_COLOR, linewidths=0, label="data", zorder=1)


def draw_band(
    axes: Axes, x: Array, low: Array, high: Array, color: str, label: str, alpha: float = 0.2
) -> None:
    """Draw a band between two curves."""
    axes.fill_between(x, low, high, color=color, alpha=alpha, linewidth=0, label=label, zorder=2)


def draw_mean(axes: Axes, x: Array, mean: Array, color: str, label: str = "mean") -> None:
    """Draw a predicted curve."""
    axes.plot(x, mean, color=color, lw=1.8, label=label, zorder=3)


def draw_edge_points(axes: Axes, points: Array, label: str = "inducing points") -> None:
    """Mark points along the lower edge, and count those outside the panel at its sides."""
    low, high = axes.get_xlim()
    left, right = points < low, points > high
    text: dict[str, Any] = {"va": "center", "transform": axes.transAxes, "fontsize": 8.5}
    if left.any():
        axes.text(0.01, 0.12, f"◂ {left.sum()}", ha="left", **text)
    if right.any():
        axes.text(0.99, 0.12, f"{right.sum()} ▸", ha="right", **text)
    shown, along = points[~(left | right)], axes.get_xaxis_transform()
    if shown.size:
        own: dict[str, Any] = {"label": label, "clip_on": False, "zorder": 5} | _CROSSES
        axes.plot(shown, np.full(shown.size, 0.05), transform=along, **own)


def draw_crosses(axes: Axes, points: Array) -> None:
    """Draw inducing points, shape (M, 2), with a white outline."""
    from matplotlib import patheffects

    halo = [patheffects.withStroke(linewidth=3.0, foreground="white")]
    axes.plot(*points.T, path_effects=halo, label="inducing points", **_CROSSES)


def draw_rug(axes: Axes, values: Array) -> None:
    """Mark the values of an input by ticks along the lower edge."""
    ticks = _CROSSES | {"marker": "|", "markersize": 9, "markeredgewidth": 0.6, "color": DATA_COLOR}
    along = axes.get_xaxis_transform()
    axes.plot(values, np.zeros(values.size), transform=along, label="data", zorder=1, **ticks)


def to_peak(function: Array) -> Array:
    """Return a function's values divided by the one of largest magnitude.

    Sign and scale of an eigenfunction are arbitrary.
    """
    return function / function.flat[np.argmax(np.abs(function))]


def draw_curves(axes: Axes, x: ArrayLike, functions: Array) -> None:
    """Draw eigenfunctions, shape (J, n), at most as many as there are line styles."""
    for j, (phi, (color, dashes)) in enumerate(zip(functions, LINES, strict=False), start=1):
        axes.plot(x, to_peak(phi), color=color, linestyle=dashes, lw=1.6, label=rf"$\varphi_{j}$")
    axes.axhline(0.0, color="0.85", lw=0.8, zorder=0)
