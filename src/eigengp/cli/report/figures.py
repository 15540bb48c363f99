"""The figures of a report as dictionaries for Plotly.

The page replaces a colour such as "@blue" by that of the light or dark theme. `escape` makes the
names of users safe, since Plotly interprets tags in its texts.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from typing import Any, TypeAlias

import numpy as np

from eigengp._typing import Array
from eigengp.cli.report.effects import Importance, PartialDependence, Slider, Spectrum
from eigengp.cli.report.rows import Input, Rows
from eigengp.inspection import Predictions

Figure: TypeAlias = dict[str, Any]
Choices: TypeAlias = Iterator[tuple[str, Figure]]
COLOURS = ("@blue", "@orange", "@green", "@pink", "@red", "@sky")
_MAX_BARS = 15
_MOST_TICKS = 12  # The largest number of categories that have their name at an axis.


def with_menu(draw: Callable[..., Choices]) -> Callable[..., Figure]:
    """Make one figure of those that a function yields, each with its name in a menu."""

    @wraps(draw)
    def draw_all(*args: Any) -> Figure:
        return {"choices": [{"label": label, **figure} for label, figure in draw(*args)]}

    return draw_all


def draw_predictions(found: Predictions, shown: Any, target: str) -> Figure:
    """Draw predictions against observations of the rows shown."""
    mean, y = found.y_pred[shown], found.y_true[shown]
    ends = [float(min(mean.min(), y.min())), float(max(mean.max(), y.max()))]
    traces = [line(ends, ends, "@soft", dash="dash"), _points(mean, y)]
    return panel(traces, f"predicted {escape(target)}", f"observed {escape(target)}")


@with_menu
def draw_residuals(found: Predictions, shown: Any, rows: Rows, inputs: Sequence[Input]) -> Choices:
    """Draw residuals against the prediction, or against an input."""
    residuals, y = (found.y_true - found.y_pred)[shown], "observed − predicted"
    zero: Figure = {"shapes": [_level(0.0)]}
    yield (
        "the prediction",
        panel([_points(found.y_pred[shown], residuals)], "the prediction", y, **zero),
    )
    for each in inputs:
        traces = [_points(each.get_values(rows.X[shown]), residuals)]
        yield each.name, panel(traces, escape(each.name), y, each, **zero)


def draw_coverage(found: Predictions) -> Figure:
    """Draw the measured coverage of intervals against their probability."""
    measured = line(*found.coverage_curve, "@blue", "measured", mode="lines+markers")
    percent = {"range": [0, 1.02], "tickformat": ".0%"}
    return panel(
        [line([0, 1], [0, 1], "@soft", "calibrated", dash="dash"), measured],
        "probability of the interval",
        "share of rows inside",
        xaxis=percent,
        yaxis=percent,
        showlegend=True,
    )


def draw_pit(density: Array, edges: Array) -> Figure:
    """Draw the histogram of the probability integral transform."""
    traces = [bars(0.5 * (edges[1:] + edges[:-1]), density)]
    options: Figure = {"shapes": [_level(1.0)], "xaxis": {"range": [0, 1]}, "bargap": 0.06}
    return panel(traces, "predictive distribution function", "density", **options)


def draw_importance(ranking: Sequence[Importance]) -> Figure:
    """Draw the importance of the first inputs as bars, the largest on top."""
    shown = list(reversed(ranking[:_MAX_BARS]))
    places = list(range(len(shown)))
    found = bars([each.effect for each in shown], places, "%{x:.4g}<extra></extra>")
    ticks = {"tickvals": places, "ticktext": [escape(each.input.name) for each in shown]}
    axis = {**ticks, "automargin": True}
    figure = panel([{**found, "orientation": "h"}], "share of the variance", "", yaxis=axis)
    return {**figure, "height": 110 + 26 * len(shown)}


def draw_partial_dependence(
    effects: Sequence[PartialDependence], y: str = "average", ends: Any = None, names: Any = ()
) -> dict[str, Figure]:
    """Draw partial dependences, on the same vertical axis, from `ends` or as wide as they are.

    One has a band; those of several classes, which have `names`, are lines.
    """
    drawn = [end for each in effects for end in (each.lower, each.upper)]
    drawn += [each.accumulated.mean for each in effects if each.accumulated is not None]
    axis, figures = {"range": ends or _pad(np.concatenate(drawn))}, {}
    for index, each in enumerate(effects):
        if names:
            traces = _draw_lines(each.input, each.grid, each.mean, map(escape, names))
        else:
            traces = _band(each.input, each.grid, each.mean, each.lower, each.upper)
        if each.accumulated is not None:
            grid, mean = each.accumulated.grid, each.accumulated.mean
            shown = (grid >= each.grid[0]) & (grid <= each.grid[-1])
            traces.append(line(grid[shown], mean[shown], "@orange", dash="dot"))
        x, more = escape(each.input.name), {"yaxis": axis, "showlegend": bool(names)}
        figures[f"effect-{index}"] = panel(traces, x, y, each.input, **more)
    return figures


def _draw_lines(along: Input, grid: Array, values: Array, names: Iterable[str]) -> list[Figure]:
    """Return a line for each row of `values`, or points for categories."""
    mode = "lines" if along.codes is None else "markers"
    return [
        line(grid, own, colour, name, mode=mode)
        for own, name, colour in zip(values, names, COLOURS, strict=False)
    ]


def draw_weights(spectrum: Spectrum) -> Figure:
    """Draw the prior variance of each eigenfunction, on a logarithmic axis."""
    numbers = list(range(1, spectrum.weights.size + 1))
    hover = "eigenfunction %{x}: %{y:.4g}<extra></extra>"
    traces = [bars(numbers, spectrum.weights, hover)]
    options: Figure = {"yaxis": {"type": "log"}, "bargap": 0.15}
    return panel(traces, "eigenfunction", "prior variance", **options)


@with_menu
def draw_eigenfunctions(spectrum: Spectrum) -> Choices:
    """Draw the leading eigenfunctions along one input at a time."""
    names = [f"φ{number + 1}" for number in spectrum.shown]
    for along, grid, values in spectrum.curves:
        traces = _draw_lines(along, grid, values.T, names)
        yield along.name, panel(traces, escape(along.name), "eigenfunction", along, showlegend=True)


def draw_slices(
    sliders: Sequence[Slider], label: str, what: str, coverage: float, ends: Any = None
) -> Figure:
    """Return all curves that the sliders select from, for each input.

    `label` titles the vertical axis, whose ends are those of the curves unless given, and `what`
    says what a curve is.
    """
    axes = []
    for own, _, _, grid, mean, lower, upper in sliders:
        axis = {"range": ends or _pad(np.array([lower, upper]))}
        curves = {"mean": mean, "lower": lower, "upper": upper}
        axes.append(
            {
                **panel([], escape(own.name), escape(label), own, yaxis=axis),
                "x": grid,
                "sizes": list(mean.shape),
                **{name: values.ravel().astype("f4") for name, values in curves.items()},
                "labels": [own.format_value(value) for value in grid],
                "curve": own.codes is None,
            }
        )
    return {"axes": axes, "line": what, "band": f"{100 * coverage:g} %"}


@with_menu
def draw_history(stages: Sequence[dict[str, Any]]) -> Choices:
    """Draw the log marginal likelihood against seconds or iterations, if it was ever finite."""
    values = np.concatenate([stage["values"] for stage in stages]) if stages else np.empty(0)
    values = values[np.isfinite(values)]
    for label in ("seconds", "iterations") if values.size else ():
        traces = [
            line(stage[label], stage["values"], colour, escape(stage["name"]), mode="lines+markers")
            for stage, colour in zip(stages, COLOURS * len(stages), strict=False)
        ]
        axis = {"range": _pad(values[values >= np.quantile(values, 0.1)])}
        yield label, panel(traces, label, "log marginal likelihood", showlegend=True, yaxis=axis)


def escape(text: str) -> str:
    """Escape markup and formulas for Plotly, and shorten long texts.

    Examples
    --------
    >>> escape("<b>a & b</b>")
    '&lt;b&gt;a &amp; b&lt;/b&gt;'
    >>> escape("$price$")
    '&#36;price&#36;'
    """
    short = text if len(text) <= 28 else f"{text[:16]}…{text[-11:]}"
    return html.escape(short, quote=False).replace("$", "&#36;")


def encode(values: Array) -> Figure:
    """Encode an array as Plotly reads it, in base64.

    Examples
    --------
    >>> encode(np.array([0.0], dtype="f4"))
    {'dtype': 'f4', 'bdata': 'AAAAAA=='}
    """
    kind = np.dtype("i4") if values.dtype.kind == "i" else values.dtype  # It has no long integers.
    little = values.astype(kind.newbyteorder("<"))
    found = {"dtype": little.dtype.str[1:], "bdata": base64.b64encode(little.tobytes()).decode()}
    return found if values.ndim == 1 else {**found, "shape": ",".join(map(str, values.shape))}


def panel(
    traces: list[Figure], x: str, y: str, along: Input | None = None, **layout: Any
) -> Figure:
    """Return a figure with axes titled `x` and `y`; the ticks name the categories of `along`."""
    xaxis = {"title": {"text": x}, **layout.pop("xaxis", {})}
    yaxis = {"title": {"text": y}, **layout.pop("yaxis", {})}
    if along is not None and along.codes is not None:
        count = len(along.categories)
        names = [escape(each) for each in along.categories]
        places = list(range(0, count, -(-count // _MOST_TICKS)))  # Names that overlap say nothing.
        ticks = {"tickvals": places, "ticktext": [names[i] for i in places]}
        xaxis |= {**ticks, "range": [-0.5, count - 0.5]}
        traces = [_name_points(trace, names) for trace in traces]
    if along is not None and along.is_date:
        xaxis["type"] = "date"
    layout = {"showlegend": False, "xaxis": xaxis, "yaxis": yaxis, **layout}
    return {"data": traces, "layout": layout}


def _name_points(trace: Figure, names: list[str]) -> Figure:
    """Return a trace whose points, if there is one for each category, show its name."""
    if not np.array_equal(trace["x"], np.arange(len(names))):
        return {**trace, "hovertemplate": "%{y:.4g}<extra></extra>"}
    return {**trace, "text": names, "hovertemplate": "%{text}: %{y:.4g}<extra></extra>"}


def line(
    x: Any, y: Any, colour: str, name: str = "", dash: str = "solid", mode: str = "lines"
) -> Figure:
    """Return a line, points, or both."""
    return {
        "type": "scatter",
        "mode": mode,
        "x": x,
        "y": y,
        "name": name,
        "line": {"color": colour, "dash": dash, "width": 2},
        "marker": {"color": colour, "size": 5},
        "hovertemplate": "%{x:.4g}, %{y:.4g}" + ("" if name else "<extra></extra>"),
    }


def _points(x: Array, y: Array) -> Figure:
    """Return transparent points."""
    marker = {"color": "@blue", "size": 5, "opacity": 0.45}
    return {**line(x, y, "@blue", mode="markers"), "marker": marker}


def bars(x: Any, y: Any, hover: str = "%{x:.4g}, %{y:.4g}<extra></extra>") -> Figure:
    """Return bars."""
    return {"type": "bar", "x": x, "y": y, "marker": {"color": "@blue"}, "hovertemplate": hover}


def _band(along: Input, grid: Array, mean: Array, lower: Array, upper: Array) -> list[Figure]:
    """Return a curve with its band, or points with error bars for categories."""
    if along.codes is not None:
        error: Figure = {"type": "data", "array": upper - mean, "arrayminus": mean - lower}
        error |= {"symmetric": False, "color": "@blue"}
        return [{**_points(grid, mean), "error_y": error, "marker": {"color": "@blue", "size": 9}}]
    ends = line(np.concatenate([grid, grid[::-1]]), np.concatenate([upper, lower[::-1]]), "@none")
    area = {**ends, "fill": "toself", "fillcolor": "@band", "hoverinfo": "skip"}
    del area["hovertemplate"]
    return [area, line(grid, mean, "@blue")]


def heat(x: Any, y: Any, shares: Array) -> Figure:
    """Return a map of shares between zero and one."""
    shades = {"colorscale": [[0, "@paper"], [1, "@blue"]], "zmin": 0, "zmax": 1}
    return {"type": "heatmap", "x": x, "y": y, "z": shares, **shades}


def _level(height: float) -> Figure:
    """Return a horizontal line across the figure."""
    ends = {"x0": 0, "x1": 1, "xref": "paper", "y0": height, "y1": height}
    return {"type": "line", **ends, "line": {"color": "@soft", "dash": "dash", "width": 1.5}}


def _pad(values: Array) -> list[float]:
    """Return the ends of an axis with some room around values."""
    low, high = float(values.min()), float(values.max())
    room = 0.04 * (high - low or 1.0)
    return [low - room, high + room]
