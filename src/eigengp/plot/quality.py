"""Plots of the quality of a fit: calibration of its error bars, convergence of the learning."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from eigengp._typing import Array
from eigengp.conformal import normal_half_width
from eigengp.estimators.base import GPEstimator, GPRegressor
from eigengp.estimators.classifier import EigenGPClassifier
from eigengp.inspection import plain_inputs, plain_rows
from eigengp.metrics import coverage_curve, pit_histogram
from eigengp.plot.classes import draw_reliability
from eigengp.plot.marks import legend, panels
from eigengp.plot.palette import LINES, MODEL_COLOR, REFERENCE_COLOR, SECOND_COLOR, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CHANCE = 0.9
_MARKERS = "osD^v"


def calibration(
    model: GPEstimator, X: ArrayLike, y: ArrayLike, *, bins: int = 10, ax: Any = None
) -> Any:
    """Draw the calibration of error bars, from rows that `fit` has not seen.

    At the left, the coverage of central intervals against their probability: below the diagonal,
    error bars are too narrow. At the right, the histogram of the probability integral transform,
    which is flat if predictions are calibrated (`eigengp.metrics`). Grey bands hold 90 % of what
    calibrated predictions give for so many rows.

    For a classifier, the observed share of a class against its probability is at the left, and the
    number of rows with such probabilities at the right. With two classes it is the second class;
    with more, the most probable one of each row.

    Parameters
    ----------
    model : GPRegressor or EigenGPClassifier
        A fitted model. After `calibrate` its conformal intervals are drawn too; then pass rows
        that `calibrate` has not seen either.
    X, y : arrays of shapes (n, D) and (n,)
        Held-out rows.
    bins : int
        Number of bins of the histogram.
    ax : array of two Axes or None
        Where to draw.

    Returns
    -------
    ax : array of two Axes
        The axes drawn on.
    """
    if isinstance(model, EigenGPClassifier):
        return draw_reliability(model, X, y, ax)
    rows, targets = plain_rows(model, X), np.asarray(y, dtype=np.float64)
    with plain_inputs():
        regressor: Any = model
        mean, std = regressor.predict(rows, return_std=True)
    levels, held = coverage_curve(targets, mean, std)
    density, edges = pit_histogram(targets, mean, std, bins)
    with style():
        left, right = several = panels(ax, 2)
        _draw_coverage(left, levels, held, targets.size)
        if hasattr(model, "conformity_"):
            _draw_calibrated(left, regressor, rows, targets, levels)
        _draw_histogram(right, density, edges, targets.size)
        legend(several, ax)
    return several


def _chance(probability: Array, n_rows: int) -> Array:
    """Return the half-width of the 90 % sampling interval of a proportion."""
    return normal_half_width(_CHANCE) * np.sqrt(probability * (1.0 - probability) / n_rows)


def _draw_coverage(axes: Axes, levels: Array, held: Array, n_rows: int) -> None:
    p = np.linspace(0.0, 1.0, 101)
    off = _chance(p, n_rows)
    axes.fill_between(p, p - off, p + off, color="0.85", linewidth=0, label="chance")
    axes.plot([0, 1], [0, 1], color=REFERENCE_COLOR, lw=1.0, linestyle="--", label="calibrated")
    axes.plot(levels, held, color=MODEL_COLOR, marker="o", markersize=4, lw=1.5, label="model")
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.set(xlabel="probability of the interval", ylabel="share of targets inside")


def _draw_calibrated(axes: Axes, model: GPRegressor, X: Array, y: Array, levels: Array) -> None:
    """Add the conformal intervals, at the levels for which `calibrate` had enough rows."""
    n = model.conformity_.size
    levels = levels[levels <= n / (n + 1)]
    with plain_inputs():
        ends = [model.predict_interval(X, float(level)) for level in levels]
    held = [float(np.mean((low <= y) & (y <= high))) for low, high in ends]
    line: dict[str, Any] = {"linestyle": ":", "marker": "s", "markersize": 4, "lw": 1.5}
    axes.plot(levels, held, color=SECOND_COLOR, label="after calibrate", **line)


def _draw_histogram(axes: Axes, density: Array, edges: Array, n_rows: int) -> None:
    width = np.diff(edges)
    off = float(_chance(width[:1], n_rows)[0] / width[0])
    axes.axhspan(1.0 - off, 1.0 + off, color="0.85", linewidth=0, zorder=0)
    axes.axhline(1.0, color=REFERENCE_COLOR, lw=1.0, linestyle="--", zorder=3)
    bars: dict[str, Any] = {"facecolor": "none", "edgecolor": MODEL_COLOR, "hatch": "////"}
    axes.bar(edges[:-1], density, width, align="edge", lw=1.2, **bars)
    axes.set(xlim=(0, 1), xlabel="predicted probability below the target", ylabel="density")


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
    if not model.history_:
        raise ValueError("The fit took no iterations (max_iter=0), so there is no history to draw.")
    values = np.array([step["log_marginal_likelihood"] for step in model.history_], dtype=float)
    stages = groupby(range(values.size), key=lambda i: model.history_[i]["stage"])
    with style():
        (axes,) = panels(ax, 1)
        for i, (stage, steps) in enumerate(stages):
            shown = np.array(list(steps))
            color, dashes = LINES[i % len(LINES)]
            ends: dict[str, Any] = {"marker": _MARKERS[i % len(_MARKERS)], "markevery": [0, -1]}
            line: dict[str, Any] = {"color": color, "linestyle": dashes, "markersize": 4}
            axes.plot(shown + 1, values[shown], label=str(stage), **ends, **line)
        axes.set(xlabel="iteration", ylabel="log marginal likelihood")
        _cut_off_start(axes, values)
        legend([axes], ax)
    return axes


def _cut_off_start(axes: Axes, values: Array) -> None:
    """Start the vertical axis above the first tenth of the steps if those lie far below."""
    later, top = values[values.size // 10 :], values.max()
    low, height = later.min(), top - later.min()
    if values.min() < low - 2.0 * height and height > 0.0:
        axes.set_ylim(low - 0.08 * height, top + 0.05 * height)
        begin = f"begins at {values.min():,.4g} ▾"
        axes.text(0.99, 0.03, begin, ha="right", transform=axes.transAxes, fontsize=8.5)
