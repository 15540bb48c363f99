"""Pictures of how good a fit is: are its error bars honest, and has learning converged."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from eigengp._typing import Array
from eigengp.conformal import coverage_curve, normal_half_width, pit_histogram
from eigengp.estimators.base import GPRegressor
from eigengp.inspection import plain_inputs, plain_rows
from eigengp.plot.marks import legend, panels, together
from eigengp.plot.palette import LINES, MODEL_COLOR, REFERENCE_COLOR, SECOND_COLOR, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CHANCE = 0.9
_MARKERS = "osD^v"


def calibration(
    model: GPRegressor, X: ArrayLike, y: ArrayLike, *, bins: int = 10, ax: Any = None
) -> Any:
    """Draw whether error bars are honest, by rows that `fit` has not seen.

    At the left, how often central intervals held the target against how often they should: below
    the diagonal, error bars are too narrow. At the right, the histogram of the predictive
    distribution function at the targets, which is flat if predictions are honest
    (`eigengp.conformal`). Grey bands show what chance alone does, nine times in ten.

    Parameters
    ----------
    model : GPRegressor
        A fitted model. After `calibrate` its intervals are drawn beside those of the posterior;
        show rows then that `calibrate` has not seen either.
    X, y : arrays of shapes (n, D) and (n,)
        The rows.
    bins : int
        How many bars.
    ax : array of two Axes or None
        Where to draw.

    Returns
    -------
    ax : array of two Axes
        Where it was drawn.
    """
    rows, targets = plain_rows(model, X), np.asarray(y, dtype=np.float64)
    with plain_inputs():
        mean, std = model.predict(rows, return_std=True)
    levels, held = coverage_curve(targets, mean, std)
    density, edges = pit_histogram(targets, mean, std, bins)
    with style():
        left, right = several = panels(ax, 2)
        _draw_coverage(left, levels, held, targets.size)
        if hasattr(model, "conformity_"):
            _draw_calibrated(left, model, rows, targets, levels)
        _draw_histogram(right, density, edges, targets.size)
        legend(several, ax)
    return together(several)


def _chance(probability: Array, n_rows: int) -> Array:
    """Return how far a share of so many rows lies from its probability by chance."""
    return normal_half_width(_CHANCE) * np.sqrt(probability * (1.0 - probability) / n_rows)


def _draw_coverage(axes: Axes, levels: Array, held: Array, n_rows: int) -> None:
    p = np.linspace(0.0, 1.0, 101)
    off = _chance(p, n_rows)
    axes.fill_between(p, p - off, p + off, color="0.85", linewidth=0, label="chance")
    axes.plot([0, 1], [0, 1], color=REFERENCE_COLOR, lw=1.0, linestyle="--", label="honest")
    axes.plot(levels, held, color=MODEL_COLOR, marker="o", markersize=4, lw=1.5, label="model")
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.set(xlabel="probability of the interval", ylabel="share of targets inside")


def _draw_calibrated(axes: Axes, model: GPRegressor, X: Array, y: Array, levels: Array) -> None:
    """Add the intervals of `calibrate`, as far as it had rows enough for them."""
    n = model.conformity_.size
    levels = levels[levels <= n / (n + 1)]
    with plain_inputs():
        ends = [model.predict_interval(X, float(level)) for level in levels]
    held = [float(np.mean((low <= y) & (y <= high))) for low, high in ends]
    axes.plot(
        levels,
        held,
        color=SECOND_COLOR,
        linestyle=":",
        marker="s",
        markersize=4,
        lw=1.5,
        label="after calibrate",
    )


def _draw_histogram(axes: Axes, density: Array, edges: Array, n_rows: int) -> None:
    width = np.diff(edges)
    off = float(_chance(width[:1], n_rows)[0] / width[0])
    axes.axhspan(1.0 - off, 1.0 + off, color="0.85", linewidth=0, zorder=0)
    axes.axhline(1.0, color=REFERENCE_COLOR, lw=1.0, linestyle="--", zorder=3)
    axes.bar(
        edges[:-1],
        density,
        width,
        align="edge",
        facecolor="none",
        edgecolor=MODEL_COLOR,
        hatch="////",
        lw=1.2,
    )
    axes.set(xlim=(0, 1), xlabel="predicted probability below the target", ylabel="density")


def convergence(model: GPRegressor, *, ax: Axes | None = None) -> Axes:
    """Draw the log evidence after each iteration, stage by stage (`history_`).

    A start far below all the rest is left out of the picture, which then says so.

    Parameters
    ----------
    model : GPRegressor
        A fitted model.
    ax : Axes or None
        Where to draw.

    Returns
    -------
    ax : Axes
        Where it was drawn.
    """
    check_is_fitted(model)
    if not model.history_:
        raise ValueError("Nothing was learned (max_iter=0), so there is no history to draw.")
    with style():
        (axes,) = panels(ax, 1)
        done = 0
        stages = groupby(model.history_, key=lambda step: step["stage"])
        for i, (stage, steps) in enumerate(stages):
            evidence = np.array([step["log_marginal_likelihood"] for step in steps], dtype=float)
            color, dashes = LINES[i % len(LINES)]
            axes.plot(
                done + 1 + np.arange(evidence.size),
                evidence,
                color=color,
                linestyle=dashes,
                marker=_MARKERS[i % len(_MARKERS)],
                markersize=4,
                markevery=[0, -1] if evidence.size > 1 else None,
                label=str(stage),
            )
            done += evidence.size
        axes.set(xlabel="iteration", ylabel="log evidence")
        _leave_out_the_start(axes, model)
        legend([axes], ax)
    return axes


def _leave_out_the_start(axes: Axes, model: GPRegressor) -> None:
    """End the picture above the first tenth of the steps where those lie far below."""
    values = np.array([step["log_marginal_likelihood"] for step in model.history_], dtype=float)
    later, top = values[values.size // 10 :], values.max()
    low, height = later.min(), top - later.min()
    if values.min() < low - 2.0 * height and height > 0.0:
        axes.set_ylim(low - 0.08 * height, top + 0.05 * height)
        begin = f"begins at {values.min():,.4g} ▾"
        axes.text(0.99, 0.03, begin, ha="right", transform=axes.transAxes, fontsize=8.5)
