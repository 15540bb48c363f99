"""Plots of each input: relevance, slices, partial dependence, inducing points."""

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
)
from eigengp.plot.palette import DATA_COLOR, MODEL_COLOR, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_PANELS = 6
_BAR = 0.34


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
    with style():
        (axes,) = panels(ax, 1, height=max(1.3, _BAR * len(shown) + 0.5))
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
    """Draw predictions as each input varies, the others held at a reference row.

    Parameters
    ----------
    model : GPRegressor
        A fitted model.
    X : array of shape (n, D)
        Rows that give the values of the inputs; ticks along the edge show them.
    features : list of int or str, or None
        The inputs; None is the six with the largest effects.
    reference : array of shape (D,) or None
        The reference row, marked by a dotted line; None is the median of each input.
    coverage : float
        The coverage of the prediction intervals drawn as a band.
    ax : array of Axes or None
        Where to draw, one for each input.

    Returns
    -------
    ax : array of Axes
        The axes drawn on.
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
    """Draw the partial dependence of the prediction on each input: its average over rows.

    The band is a credible interval of the average; see `eigengp.inspection.partial_dependence`.

    Parameters
    ----------
    model : GPRegressor
        A fitted model.
    X : array of shape (n, D)
        Rows to average over; ticks along the edge show their values.
    features : list of int or str, or None
        The inputs; None is the six with the largest effects.
    coverage : float
        The probability that the band contains the average.
    max_rows : int
        The largest number of rows to average over.
    ax : array of Axes or None
        Where to draw, one for each input.

    Returns
    -------
    ax : array of Axes
        The axes drawn on.
    """
    rows = plain_rows(model, X)
    effects = [
        inspection.partial_dependence(model, rows, feature, coverage=coverage, max_rows=max_rows)
        for feature in _shown(model, features)
    ]
    band = f"{100 * coverage:g} % for the average"
    return _draw_effects(effects, rows, "average prediction", band, ax)


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
    with style():
        several = panels(ax, len(pairs))
        for axes, (across, up) in zip(several, pairs, strict=True):
            if rows is not None:
                data = rows[:, across], rows[:, up]
                axes.scatter(*data, s=7, color=DATA_COLOR, alpha=0.6, linewidths=0, label="data")
            draw_crosses(axes, points[:, [across, up]])
            axes.set(xlabel=names[across], ylabel=names[up])
        legend(several, ax)
    return several


def _shown(model: GPRegressor, features: Sequence[int | str] | None) -> Sequence[int | str]:
    return leading_inputs(model, _MOST_PANELS) if features is None else features


def _draw_effects(
    effects: list[Effect], rows: Array, label: str, band: str, ax: Any, reference: Any = None
) -> Any:
    """Draw one panel for each input, with a common vertical axis."""
    with style():
        several = panels(ax, len(effects), sharey=True)
        for axes, effect in zip(several, effects, strict=True):
            x = effect.grid
            if x.size <= inspection.MAX_LEVELS:
                _draw_levels(axes, effect, f"{label}, {band}")
            else:
                draw_band(axes, x, effect.lower, effect.upper, MODEL_COLOR, band)
                draw_mean(axes, x, effect.mean, MODEL_COLOR, label)
            values = rows[:, effect.feature]
            draw_rug(axes, values[(values >= x[0]) & (values <= x[-1])])
            if reference is not None:
                at = reference[effect.feature]
                axes.axvline(at, color="black", lw=0.9, linestyle=":", zorder=1, label="reference")
            axes.set_xlabel(effect.name)
        legend(several, ax)
    return several


def _draw_levels(axes: Axes, effect: Effect, label: str) -> None:
    """Draw an input of few distinct values: a point with an error bar at each."""
    widths = np.abs(np.stack([effect.lower, effect.upper]) - effect.mean)
    points: dict[str, Any] = {"fmt": "o", "markersize": 4, "capsize": 4, "color": MODEL_COLOR}
    axes.errorbar(effect.grid, effect.mean, yerr=widths, label=label, **points)
    axes.margins(x=0.1)
