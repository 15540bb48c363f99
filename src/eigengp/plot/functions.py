"""Plots of functions of one or two inputs: predictions and eigenfunctions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from eigengp._typing import Array
from eigengp.estimators.base import GPRegressor
from eigengp.estimators.eigengp import EigenGPRegressor
from eigengp.inspection import feature_names, inducing_points_of, plain_inputs, plain_rows, ranges
from eigengp.plot.marks import (
    draw_band,
    draw_crosses,
    draw_curves,
    draw_edge_points,
    draw_mean,
    draw_rows,
    panels,
    to_peak,
)
from eigengp.plot.palette import LINES, MAP, MODEL_COLOR

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CURVE, _SIDE, _MARGIN = 400, 80, 0.03
_LEVELS = 6
_ALPHAS = (0.18, 0.3)


def prediction(
    model: GPRegressor,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    coverage: Sequence[float] = (0.5, 0.9),
    ax: Any = None,
) -> Any:
    """Draw the predictions of a model of one or two inputs, with data and inducing points.

    Parameters
    ----------
    model : GPRegressor
        A fitted model of one input, drawn as a curve with bands, or of two, drawn as maps of mean
        and standard deviation (noise included) side by side.
    X, y : arrays of shapes (n, D) and (n,), or None
        Data to show, which set the range; the default range is the mean of the training inputs
        plus and minus two standard deviations. Maps do not show targets.
    coverage : sequence of float
        The coverages of the prediction intervals drawn as bands.
    ax : Axes, array of two Axes or None
        Where to draw.

    Returns
    -------
    ax : Axes, or array of two Axes
        The axes drawn on.

    Examples
    --------
    >>> import numpy as np, matplotlib
    >>> matplotlib.use("agg")
    >>> from eigengp import EigenGPRegressor, plot
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> model = EigenGPRegressor(8, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> ax = plot.prediction(model, X, np.sin(X[:, 0]))
    >>> ax.get_xlabel()
    'x0'
    """
    rows = None if X is None else plain_rows(model, X)
    n_inputs = _one_or_two(model, "prediction", "EffectDisplay")
    if n_inputs == 1:
        with panels(ax) as (axes,):
            _curve(axes, model, rows, y, coverage)
        return axes
    sides, points = _make_mesh(model, rows)
    with panels(ax, 2, sharex=True, sharey=True) as both, plain_inputs():
        found = model.predict(points, return_std=True)
        for axes, values, title in zip(both, found, ("mean", "standard deviation"), strict=True):
            axes.figure.colorbar(_map(axes, sides, values), ax=axes, pad=0.02)
            axes.set_title(title)
            _mark(axes, model, rows)
        _name_inputs(both, model)
    return both


def eigenfunctions(
    model: EigenGPRegressor, X: ArrayLike | None = None, *, count: int | None = None, ax: Any = None
) -> Any:
    """Draw the leading eigenfunctions of a model of one or two inputs.

    Each is divided by its value of largest magnitude: sign and scale are arbitrary.

    Parameters
    ----------
    model : EigenGPRegressor
        A fitted model.
    X : array of shape (n, D) or None
        Data that set the range; see `prediction`.
    count : int or None
        How many to draw; the default is at most five curves, or six maps.
    ax : Axes, array of Axes or None
        Where to draw: one Axes for curves, one for each eigenfunction for maps.

    Returns
    -------
    ax : Axes or array of Axes
        The axes drawn on.
    """
    if not isinstance(model, EigenGPRegressor):
        raise TypeError(f"{type(model).__name__} has no eigenfunctions; EigenGPRegressor has.")
    rows = None if X is None else plain_rows(model, X)
    n_inputs = _one_or_two(model, "eigenfunctions", "the method `eigenfunctions` of the model")
    count = min(count or len(LINES) + n_inputs - 1, model.weights_.shape[0])
    if n_inputs == 1:
        (x,) = _make_lines(model, rows, _CURVE)
        with panels(ax) as (axes,), plain_inputs():
            draw_curves(axes, x, model.eigenfunctions(x[:, None]).T[:count])
            axes.set(xlabel=feature_names(model)[0], ylabel="eigenfunctions (scaled)")
            axes.margins(x=0)
        return axes
    sides, points = _make_mesh(model, rows)
    with panels(ax, count, sharex=True, sharey=True) as several, plain_inputs():
        functions = model.eigenfunctions(points).T
        for j, axes in enumerate(several):
            image = _map(axes, sides, to_peak(functions[j]), vmin=-1.0, vmax=1.0)
            axes.set_title(rf"$\varphi_{{{j + 1}}}$")
        several[0].figure.colorbar(image, ax=several, pad=0.01, label="scaled")
        _name_inputs(several, model)
    return several


def _one_or_two(model: GPRegressor, name: str, instead: str) -> int:
    n_inputs = len(feature_names(model))
    if n_inputs > 2:
        raise ValueError(
            f"{name} draws functions of one or two inputs, but the model has {n_inputs}; use "
            f"{instead}."
        )
    return n_inputs


def _make_lines(model: GPRegressor, rows: Array | None, n_points: int) -> list[Array]:
    """Return equally spaced values of each input over its range, with a margin."""
    ends = ranges(model, rows)
    ends = ends + _MARGIN * np.diff(ends, axis=1) * [-1.0, 1.0]
    return [np.linspace(low, high, n_points) for low, high in ends]


def _make_mesh(model: GPRegressor, rows: Array | None) -> tuple[list[Array], Array]:
    """Return the values of both inputs, and all pairs of them as rows, shape (n, 2)."""
    sides = _make_lines(model, rows, _SIDE)
    return sides, np.column_stack([each.ravel() for each in np.meshgrid(*sides)])


def _curve(
    axes: Axes, model: GPRegressor, rows: Array | None, y: Any, coverage: Sequence[float]
) -> None:
    (x,) = _make_lines(model, rows, _CURVE)
    axes.set_xlim(x[0], x[-1])
    if rows is not None and y is not None:
        draw_rows(axes, rows[:, 0], np.asarray(y, dtype=np.float64))
    with plain_inputs():
        for i, share in enumerate(sorted(coverage, reverse=True)):
            low, high = model.predict_interval(x[:, None], share)
            label = f"{100 * share:g} % interval"
            draw_band(axes, x, low, high, MODEL_COLOR, label, _ALPHAS[min(i, 1)])
        draw_mean(axes, x, model.predict(x[:, None]), MODEL_COLOR)
    points = inducing_points_of(model)
    if points is not None:
        draw_edge_points(axes, points[:, 0])
    axes.set(xlabel=feature_names(model)[0], ylabel="prediction")


def _map(axes: Axes, sides: list[Array], values: Array, **limits: Any) -> Any:
    """Draw a map; contours, dashed below zero, show heights without colour."""
    heights = values.reshape(_SIDE, _SIDE)
    image = axes.pcolormesh(*sides, heights, cmap=MAP, rasterized=True, **limits)
    if np.ptp(values) > 0.0:
        levels = np.linspace(values.min(), values.max(), _LEVELS + 2)[1:-1]
        colors = np.where(np.arange(_LEVELS) < _LEVELS // 2, "white", "black").tolist()
        dashes = np.where(levels < 0.0, "--", "-").tolist()
        lines: dict[str, Any] = {"linestyles": dashes, "linewidths": 0.7, "alpha": 0.7}
        axes.contour(*sides, heights, levels, colors=colors, **lines)
    return image


def _mark(axes: Axes, model: GPRegressor, rows: Array | None) -> None:
    """Mark data and inducing points in a map."""
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
    if rows is not None:
        x, y = rows.T
        axes.scatter(x, y, s=8, color="white", edgecolors="0.3", linewidths=0.4, label="data")
    points = inducing_points_of(model)
    if points is not None:
        draw_crosses(axes, points)


def _name_inputs(several: Any, model: GPRegressor) -> None:
    across, up = feature_names(model)
    for axes in several:
        axes.set(xlabel=across, ylabel=up)
        axes.label_outer()
