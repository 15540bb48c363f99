"""Plots of a fit and its inputs: convergence, relevance and inducing points."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from eigengp import inspection
from eigengp._typing import Array
from eigengp.estimators.base import GPRegressor
from eigengp.inspection import feature_names, leading_inputs, plain_rows, split_history
from eigengp.plot.marks import draw_crosses, panels
from eigengp.plot.palette import DATA_COLOR, LINES, MODEL_COLOR

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BAR = 0.34
_MARKERS = "osD^v"


def relevance(model: GPRegressor, *, count: int = 20, ax: Axes | None = None) -> Axes:
    """Draw how much each input matters, the largest effect at the top.

    The full bar is the effect, the total Sobol index of the prediction (`input_effects`); the
    hatched bar is the relevance, the total Sobol index expected under the learned prior
    (`input_relevance`).

    Parameters
    ----------
    model : GPRegressor
        A fitted model.
    count : int
        The largest number of inputs to draw.
    ax : Axes or None
        Where to draw.

    Returns
    -------
    ax : Axes
        The axes drawn on.
    """
    shown = leading_inputs(model, count)
    names, places = feature_names(model), np.arange(len(shown))
    with panels(ax, height=max(1.3, _BAR * len(shown) + 0.5)) as (axes,):
        effect: dict[str, Any] = {"color": MODEL_COLOR, "label": "effect (prediction)"}
        bars = axes.barh(places - 0.19, model.input_effects()[shown], height=0.36, **effect)
        axes.bar_label(bars, fmt="{:.2f}", padding=3, fontsize=8.5)
        prior: dict[str, Any] = {"facecolor": "none", "edgecolor": DATA_COLOR, "hatch": "/////"}
        prior["label"] = "relevance (prior)"
        axes.barh(places + 0.19, model.input_relevance()[shown], height=0.3, **prior)
        axes.set_yticks(places, [names[d] for d in shown])
        axes.tick_params(axis="y", length=0)
        axes.set(xlim=(0.0, 1.1), xticks=np.linspace(0, 1, 6), xlabel="share of the variance")
        axes.invert_yaxis()
    return axes


def inducing_points(
    model: GPRegressor, X: ArrayLike | None = None, *, count: int = 3, ax: Any = None
) -> Any:
    """Draw the inducing points, over the data in grey, for pairs of inputs.

    Parameters
    ----------
    model : GPRegressor
        A fitted model with inducing points or relevance vectors, and at least two inputs.
    X : array of shape (n, D) or None
        Data to show.
    count : int
        The number of inputs to pair with each other, those with the largest effects.
    ax : array of Axes or None
        Where to draw, one for each pair.

    Returns
    -------
    ax : array of Axes
        The axes drawn on.
    """
    names, points = feature_names(model), inspection.inducing_points_of(model)
    if points is None:
        raise TypeError(
            f"This {type(model).__name__} has no inducing points; fit an EigenGPRegressor with "
            "n_components=…."
        )
    if len(names) < 2 or count < 2:
        raise ValueError(
            "Pairs need two inputs; for a model of one input `prediction` marks inducing points."
        )
    rows = None if X is None else plain_rows(model, X)
    pairs = list(combinations(leading_inputs(model, count), 2))
    with panels(ax, len(pairs)) as several:
        for axes, (across, up) in zip(several, pairs, strict=True):
            if rows is not None:
                data = rows[:, across], rows[:, up]
                axes.scatter(*data, s=7, color=DATA_COLOR, alpha=0.6, linewidths=0, label="data")
            draw_crosses(axes, points[:, [across, up]])
            axes.set(xlabel=names[across], ylabel=names[up])
    return several


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
