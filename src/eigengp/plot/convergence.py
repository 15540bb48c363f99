"""The plot of convergence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from eigengp._typing import Array
from eigengp.estimators.base import GPRegressor
from eigengp.inspection import split_history
from eigengp.plot.marks import panels
from eigengp.plot.palette import LINES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKERS = "osD^v"


def convergence(model: GPRegressor, *, ax: Axes | None = None) -> Axes:
    """Draw the log marginal likelihood after each iteration, stage by stage (`history_`).

    First iterations far below all others are cut off, with a note of the first value.

    Parameters
    ----------
    model : GPRegressor
        A fitted model.
    ax : Axes or None
        Where to draw.

    Returns
    -------
    ax : Axes
        The axes drawn on.
    """
    check_is_fitted(model)
    stages = split_history(model)
    if not stages:
        raise ValueError("The fit took no iterations (max_iter=0), so there is no history to draw.")
    with panels(ax) as (axes,):
        for i, stage in enumerate(stages):
            color, dashes = LINES[i % len(LINES)]
            ends: dict[str, Any] = {"marker": _MARKERS[i % len(_MARKERS)], "markevery": [0, -1]}
            line: dict[str, Any] = {"color": color, "linestyle": dashes, "markersize": 4}
            drawn = stage["iterations"], stage["values"]
            axes.plot(*drawn, label=stage["name"], **ends, **line)
        axes.set(xlabel="iteration", ylabel="log marginal likelihood")
        _cut_off_start(axes, np.concatenate([stage["values"] for stage in stages]))
    return axes


def _cut_off_start(axes: Axes, values: Array) -> None:
    """Start the vertical axis above the first tenth of the steps if those lie far below."""
    later, top = values[values.size // 10 :], values.max()
    low, height = later.min(), top - later.min()
    if values.min() < low - 2.0 * height and height > 0.0:
        axes.set_ylim(low - 0.08 * height, top + 0.05 * height)
        begin = f"begins at {values.min():,.4g} ▾"
        axes.text(0.99, 0.03, begin, ha="right", transform=axes.transAxes, fontsize=8.5)
