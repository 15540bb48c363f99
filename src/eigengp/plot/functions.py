"""Pictures of functions of one or two inputs: predictions and eigenfunctions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from eigengp._typing import Array
from eigengp.estimators.base import GPRegressor
from eigengp.estimators.eigengp import EigenGPRegressor
from eigengp.inspection import basis_points_of, feature_names, plain_inputs, plain_rows, ranges
from eigengp.plot.marks import (
    draw_band,
    draw_crosses,
    draw_curves,
    draw_edge_points,
    draw_mean,
    draw_rows,
    legend,
    panels,
    to_peak,
    together,
)
from eigengp.plot.palette import LINES, MAP, MODEL_COLOR, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CURVE, _SIDE = 400, 80
_MARGIN, _LEVELS = 0.03, 6
_ALPHAS = (0.18, 0.3)


def prediction(
    model: GPRegressor,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    coverage: Sequence[float] = (0.5, 0.9),
    ax: Any = None,
) -> Any:
    """Draw what a model of one or two inputs predicts, with data and basis points.

    Parameters
    ----------
    model : GPRegressor
        A fitted model of one input, drawn as a curve with bands, or of two, drawn as maps of mean
        and standard deviation (noise included) side by side.
    X, y : arrays of shapes (n, D) and (n,), or None
        Data to show, and how far to draw; without them the picture is two standard deviations of
        the training inputs wide. A map shows no targets.
    coverage : sequence of float
        The probabilities with which bands hold a new observation.
    ax : Axes, array of two Axes or None
        Where to draw.

    Returns
    -------
    ax : Axes, or array of two Axes
        Where it was drawn.

    Examples
    --------
    >>> import numpy as np, matplotlib
    >>> matplotlib.use("agg")
    >>> from eigengp import EigenGPRegressor, plot
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> model = EigenGPRegressor(8, n_restarts=2, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> ax = plot.prediction(model, X, np.sin(X[:, 0]))
    >>> ax.get_xlabel()
    'x0'
    """
    rows = None if X is None else plain_rows(model, X)
    n_inputs = _one_or_two(model, "prediction", "slices or partial_dependence")
    with style():
        if n_inputs == 1:
            (axes,) = panels(ax, 1)
            _curve(axes, model, rows, y, coverage)
            legend([axes], ax)
            return axes
        both = panels(ax, 2, sharex=True, sharey=True)
        _maps(both, model, rows)
        legend(both, ax)
        return together(both)


def eigenfunctions(
    model: EigenGPRegressor, X: ArrayLike | None = None, *, count: int | None = None, ax: Any = None
) -> Any:
    """Draw the leading eigenfunctions of a model of one or two inputs.

    Each is scaled to its peak, which points upwards: sign and size mean nothing by themselves.

    Parameters
    ----------
    model : EigenGPRegressor
        A fitted model.
    X : array of shape (n, D) or None
        How far to draw; None is two standard deviations of the training inputs.
    count : int or None
        How many; None is at most five curves, or six maps.
    ax : Axes, array of Axes or None
        Where to draw: one Axes for curves, as many as eigenfunctions for maps.

    Returns
    -------
    ax : Axes or array of Axes
        Where they were drawn.
    """
    if not isinstance(model, EigenGPRegressor):
        raise TypeError(f"{type(model).__name__} has no eigenfunctions; EigenGPRegressor has.")
    rows = None if X is None else plain_rows(model, X)
    n_inputs = _one_or_two(model, "eigenfunctions", "the method `eigenfunctions` of the model")
    most = len(LINES) if n_inputs == 1 else model.weights_.shape[0]
    count = min(count or len(LINES) + n_inputs - 1, most, model.weights_.shape[0])
    with style():
        if n_inputs == 1:
            (axes,) = panels(ax, 1)
            x = _line(model, rows)
            with plain_inputs():
                draw_curves(axes, x, model.eigenfunctions(x[:, None]).T[:count])
            axes.set(xlabel=feature_names(model)[0], ylabel="eigenfunctions, to their peaks")
            axes.margins(x=0)
            legend([axes], ax)
            return axes
        several = panels(ax, count, sharex=True, sharey=True)
        _eigenmaps(several, model, rows)
        return together(several)


def _one_or_two(model: GPRegressor, picture: str, instead: str) -> int:
    n_inputs = len(feature_names(model))
    if n_inputs > 2:
        raise ValueError(
            f"{picture} draws functions of one or two inputs, but the model has {n_inputs}; use "
            f"{instead}."
        )
    return n_inputs


def _line(model: GPRegressor, rows: Array | None) -> Array:
    ((low, high),) = _wider(ranges(model, rows))
    return np.linspace(low, high, _CURVE)


def _wider(ends: Array) -> Array:
    """Return ranges with a margin, shape (D, 2)."""
    return ends + _MARGIN * np.diff(ends, axis=1) * [-1.0, 1.0]


def _curve(
    axes: Axes, model: GPRegressor, rows: Array | None, y: Any, coverage: Sequence[float]
) -> None:
    x = _line(model, rows)
    axes.set_xlim(x[0], x[-1])
    if rows is not None and y is not None:
        draw_rows(axes, rows[:, 0], np.asarray(y, dtype=np.float64))
    with plain_inputs():
        for i, share in enumerate(sorted(coverage, reverse=True)):
            low, high = model.predict_interval(x[:, None], share)
            label = f"{100 * share:g} % interval"
            draw_band(axes, x, low, high, MODEL_COLOR, label, _ALPHAS[min(i, 1)])
        draw_mean(axes, x, model.predict(x[:, None]), MODEL_COLOR)
    points = basis_points_of(model)
    if points is not None:
        draw_edge_points(axes, points[:, 0])
    axes.set(xlabel=feature_names(model)[0], ylabel="prediction")


class _Mesh(NamedTuple):
    """A lattice over two inputs."""

    x: Array
    y: Array

    @classmethod
    def over(cls, model: GPRegressor, rows: Array | None) -> _Mesh:
        x, y = (np.linspace(low, high, _SIDE) for low, high in _wider(ranges(model, rows)))
        return cls(x, y)

    @property
    def rows(self) -> Array:
        """Its points as rows, shape (n, 2)."""
        return np.column_stack([each.ravel() for each in np.meshgrid(self.x, self.y)])

    def field(self, values: Array) -> Array:
        """Return values at the points as a picture."""
        return values.reshape(self.y.size, self.x.size)


def _maps(both: list[Axes], model: GPRegressor, rows: Array | None) -> None:
    mesh = _Mesh.over(model, rows)
    with plain_inputs():
        mean, std = model.predict(mesh.rows, return_std=True)
    for axes, values, title in zip(both, (mean, std), ("mean", "standard deviation"), strict=True):
        image = _map(axes, mesh, mesh.field(values))
        axes.figure.colorbar(image, ax=axes, pad=0.02)
        axes.set_title(title)
        _mark(axes, model, rows)
    _name_inputs(both, model)


def _eigenmaps(several: list[Axes], model: EigenGPRegressor, rows: Array | None) -> None:
    mesh = _Mesh.over(model, rows)
    with plain_inputs():
        values = model.eigenfunctions(mesh.rows)
    for j, axes in enumerate(several):
        image = _map(axes, mesh, to_peak(mesh.field(values[:, j])), (-1.0, 1.0))
        axes.set_title(rf"$\varphi_{{{j + 1}}}$")
    axes.figure.colorbar(image, ax=several, pad=0.01, label="to its peak")
    _name_inputs(several, model)


def _map(axes: Axes, mesh: _Mesh, values: Array, limits: tuple[Any, Any] = (None, None)) -> Any:
    """Draw a map; contours, dashed below zero, tell heights apart where colours do not."""
    image = axes.pcolormesh(
        mesh.x, mesh.y, values, cmap=MAP, vmin=limits[0], vmax=limits[1], rasterized=True
    )
    if np.ptp(values) > 0.0:
        levels = np.linspace(values.min(), values.max(), _LEVELS + 2)[1:-1]
        axes.contour(
            mesh.x,
            mesh.y,
            values,
            levels,
            colors=np.where(np.arange(_LEVELS) < _LEVELS // 2, "white", "black").tolist(),
            linestyles=np.where(levels < 0.0, "--", "-").tolist(),
            linewidths=0.7,
            alpha=0.7,
        )
    return image


def _mark(axes: Axes, model: GPRegressor, rows: Array | None) -> None:
    """Mark data and basis points in a map."""
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
    if rows is not None:
        x, y = rows.T
        axes.scatter(x, y, s=8, color="white", edgecolors="0.3", linewidths=0.4, label="data")
    points = basis_points_of(model)
    if points is not None:
        draw_crosses(axes, points)


def _name_inputs(several: list[Axes], model: GPRegressor) -> None:
    across, up = feature_names(model)
    for axes in several:
        axes.set(xlabel=across, ylabel=up)
        axes.label_outer()
