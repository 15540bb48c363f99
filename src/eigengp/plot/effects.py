"""Pictures of what each input does: relevance, slices, partial dependence, basis points."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from eigengp import inspection
from eigengp._typing import Array
from eigengp.estimators.base import GPRegressor
from eigengp.inspection import Effect, feature_names, leading_inputs, plain_rows
from eigengp.plot.marks import (
    draw_band,
    draw_crosses,
    draw_mean,
    draw_rug,
    legend,
    panels,
    together,
)
from eigengp.plot.palette import DATA_COLOR, MODEL_COLOR, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_PANELS = 6
_BAR = 0.34


def relevance(model: GPRegressor, *, count: int = 20, ax: Axes | None = None) -> Axes:
    """Draw how much each input matters, the one of the largest effect at the top.

    The full bar is its effect, the share of the prediction's variance that goes with it
    (`input_effects`); the hatched one its relevance to the learned prior, how fast the function
    may vary along it (`input_relevance`).

    Parameters
    ----------
    model : GPRegressor
        A fitted model.
    count : int
        At most so many inputs are drawn.
    ax : Axes or None
        Where to draw.

    Returns
    -------
    ax : Axes
        Where it was drawn.
    """
    shown = leading_inputs(model, count)
    names, places = feature_names(model), np.arange(len(shown))
    with style():
        (axes,) = panels(ax, 1, height=max(1.3, _BAR * len(shown) + 0.5))
        effects = axes.barh(
            places - 0.19,
            model.input_effects()[shown],
            height=0.36,
            color=MODEL_COLOR,
            label="effect (prediction)",
        )
        axes.bar_label(effects, fmt="{:.2f}", padding=3, fontsize=8.5)
        axes.barh(
            places + 0.19,
            model.input_relevance()[shown],
            height=0.3,
            facecolor="none",
            edgecolor=DATA_COLOR,
            hatch="/////",
            label="relevance (prior)",
        )
        axes.set_yticks(places, [names[d] for d in shown])
        axes.tick_params(axis="y", length=0)
        axes.set(xlim=(0.0, 1.1), xticks=np.linspace(0, 1, 6), xlabel="share of the variance")
        axes.invert_yaxis()
        legend([axes], ax)
    return axes


def slices(
    model: GPRegressor,
    X: ArrayLike,
    *,
    features: Sequence[int | str] | None = None,
    reference: ArrayLike | None = None,
    coverage: float = 0.9,
    ax: Any = None,
) -> Any:
    """Draw predictions along one input after the other, the rest held at a reference row.

    Parameters
    ----------
    model : GPRegressor
        A fitted model.
    X : array of shape (n, D)
        Rows that say which values inputs take; ticks along the edge show them.
    features : list of int or str, or None
        The inputs; None is the six of the largest effect.
    reference : array of shape (D,) or None
        The row; None is the median of each input. A dotted line marks it.
    coverage : float
        The probability with which the band holds a new observation.
    ax : array of Axes or None
        Where to draw, one for each input.

    Returns
    -------
    ax : array of Axes
        Where it was drawn.
    """
    rows = plain_rows(model, X)
    held = np.median(rows, axis=0) if reference is None else np.ravel(np.asarray(reference, float))
    effects = inspection.slices(
        model, rows, features=_shown(model, features), reference=held, coverage=coverage
    )
    band = f"{100 * coverage:g} % of observations"
    return _draw_effects(effects, rows, "prediction", band, ax, held)


def partial_dependence(
    model: GPRegressor,
    X: ArrayLike,
    *,
    features: Sequence[int | str] | None = None,
    coverage: float = 0.9,
    max_rows: int = 500,
    ax: Any = None,
) -> Any:
    """Draw the prediction averaged over rows, against one input after the other.

    The band is that of the average; see `eigengp.inspection.partial_dependence`.

    Parameters
    ----------
    model : GPRegressor
        A fitted model.
    X : array of shape (n, D)
        Rows to average over; ticks along the edge show their values.
    features : list of int or str, or None
        The inputs; None is the six of the largest effect.
    coverage : float
        The probability with which the band holds the average.
    max_rows : int
        Of more rows than this, so many are averaged over.
    ax : array of Axes or None
        Where to draw, one for each input.

    Returns
    -------
    ax : array of Axes
        Where it was drawn.
    """
    rows = plain_rows(model, X)
    effects = [
        inspection.partial_dependence(model, rows, feature, coverage=coverage, max_rows=max_rows)
        for feature in _shown(model, features)
    ]
    band = f"{100 * coverage:g} % for the average"
    return _draw_effects(effects, rows, "average prediction", band, ax)


def basis_points(
    model: GPRegressor, X: ArrayLike | None = None, *, count: int = 3, ax: Any = None
) -> Any:
    """Draw where the basis points lie, over the data in grey, for pairs of inputs.

    Parameters
    ----------
    model : GPRegressor
        A fitted model with basis points, or relevance vectors, and at least two inputs.
    X : array of shape (n, D) or None
        Data to show.
    count : int
        How many inputs, those of the largest effect, are paired with each other.
    ax : array of Axes or None
        Where to draw, one for each pair.

    Returns
    -------
    ax : array of Axes
        Where it was drawn.
    """
    names, points = feature_names(model), inspection.basis_points_of(model)
    if points is None:
        raise TypeError(f"{type(model).__name__} has no basis points.")
    if len(names) < 2 or count < 2:
        raise ValueError(
            "Pairs need two inputs; for a model of one input `prediction` marks basis points."
        )
    rows = None if X is None else plain_rows(model, X)
    pairs = list(combinations(leading_inputs(model, count), 2))
    with style():
        several = panels(ax, len(pairs))
        for axes, (across, up) in zip(several, pairs, strict=True):
            if rows is not None:
                data = rows[:, across], rows[:, up]
                axes.scatter(*data, s=7, color=DATA_COLOR, alpha=0.6, linewidths=0, label="data")
            draw_crosses(axes, points[:, [across, up]])
            axes.set(xlabel=names[across], ylabel=names[up])
        legend(several, ax)
    return together(several)


def _shown(model: GPRegressor, features: Sequence[int | str] | None) -> Sequence[int | str]:
    return leading_inputs(model, _MOST_PANELS) if features is None else features


def _draw_effects(
    effects: list[Effect],
    rows: Array,
    what: str,
    band: str,
    ax: Any,
    reference: Array | None = None,
) -> Any:
    """Draw one panel for each input, with the same heights."""
    with style():
        several = panels(ax, len(effects), sharey=True)
        for axes, effect in zip(several, effects, strict=True):
            if effect.grid.size <= inspection.FEW:
                _draw_values(axes, effect, what, band)
            else:
                draw_band(axes, effect.grid, effect.lower, effect.upper, MODEL_COLOR, band)
                draw_mean(axes, effect.grid, effect.mean, MODEL_COLOR, what)
            draw_rug(axes, _inside(rows[:, effect.feature], effect.grid))
            if reference is not None:
                at = reference[effect.feature]
                axes.axvline(at, color="black", lw=0.9, linestyle=":", zorder=1, label="reference")
            axes.set_xlabel(effect.name)
        legend(several, ax)
    return together(several)


def _inside(values: Array, grid: Array) -> Array:
    return values[(values >= grid[0]) & (values <= grid[-1])]


def _draw_values(axes: Axes, effect: Effect, what: str, band: str) -> None:
    """Draw an input of few different values: a point and a bar at each."""
    axes.errorbar(
        effect.grid,
        effect.mean,
        yerr=np.abs(np.stack([effect.lower, effect.upper]) - effect.mean),
        linestyle="none",
        marker="o",
        markersize=4,
        capsize=4,
        color=MODEL_COLOR,
        label=f"{what}, {band}",
    )
    axes.margins(x=0.1)
