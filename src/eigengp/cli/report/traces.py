"""What figures are made of: lines, points and bands as Plotly draws them, in plain dictionaries.

The page replaces a colour such as "@blue" by the one of the light or the dark theme. Names that
users gave are escaped by `plain`, since Plotly takes tags in its texts for markup.
"""

from __future__ import annotations

import base64
import html
from typing import Any, TypeAlias

import numpy as np

from eigengp._typing import Array
from eigengp.cli.report.rows import Input

Figure: TypeAlias = dict[str, Any]
COLOURS = ("@blue", "@orange", "@green", "@pink", "@red", "@sky")
_LONGEST_NAME, _BEGINNING, _END = 28, 16, 11


def plain(text: str) -> str:
    """Return a text that Plotly shows as it is, without markup and formulas, and not too long.

    Examples
    --------
    >>> plain("<b>a & b</b>")
    '&lt;b&gt;a &amp; b&lt;/b&gt;'
    >>> plain("$price$")
    '&#36;price&#36;'
    """
    short = text if len(text) <= _LONGEST_NAME else f"{text[:_BEGINNING]}…{text[-_END:]}"
    return html.escape(short, quote=False).replace("$", "&#36;")


def numbers(values: Array, dtype: str = "f8") -> Figure:
    """Return numbers as Plotly reads them from few bytes: in base64.

    Examples
    --------
    >>> numbers(np.array([0.0]), "f4")
    {'dtype': 'f4', 'bdata': 'AAAAAA=='}
    """
    flat = np.ascontiguousarray(values, dtype=f"<{dtype}")
    spec = {"dtype": dtype, "bdata": base64.b64encode(flat.tobytes()).decode()}
    return spec if flat.ndim == 1 else {**spec, "shape": ", ".join(map(str, flat.shape))}


def panel(traces: list[Figure], x: str, y: str, **layout: Any) -> Figure:
    """Return a figure with one pair of axes, named `x` and `y`; both are already plain texts."""
    axes = {
        "xaxis": {"title": {"text": x}, **layout.pop("xaxis", {})},
        "yaxis": {"title": {"text": y}, **layout.pop("yaxis", {})},
    }
    return {"data": traces, "layout": {"showlegend": False, **axes, **layout}}


def with_categories(figure: Figure, along: Input | None) -> Figure:
    """Return a figure whose horizontal axis names the categories of an input, if it has any."""
    if along is None or along.codes is None:
        return figure
    names = {
        "tickvals": list(range(len(along.categories))),
        "ticktext": [plain(each) for each in along.categories],
        "range": [-0.5, len(along.categories) - 0.5],
    }
    layout = {**figure["layout"], "xaxis": {**figure["layout"]["xaxis"], **names}}
    traces = [{**trace, "hovertemplate": "%{y:.4g}<extra></extra>"} for trace in figure["data"]]
    return {**figure, "data": traces, "layout": layout}


def line(
    x: Any, y: Any, colour: str, name: str = "", dash: str = "solid", mode: str = "lines"
) -> Figure:
    """Return a line, points, or both."""
    return {
        "type": "scatter",
        "mode": mode,
        "x": _coordinates(x),
        "y": _coordinates(y),
        "name": name,
        "line": {"color": colour, "dash": dash, "width": 2},
        "marker": {"color": colour, "size": 5},
        "hovertemplate": "%{x:.4g}, %{y:.4g}" + ("" if name else "<extra></extra>"),
    }


def points(x: Array, y: Array) -> Figure:
    """Return points that show where they lie thick."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": numbers(x),
        "y": numbers(y),
        "marker": {"color": "@blue", "size": 5, "opacity": 0.45},
        "hovertemplate": "%{x:.4g}, %{y:.4g}<extra></extra>",
    }


def banded(along: Input, grid: Array, mean: Array, lower: Array, upper: Array) -> list[Figure]:
    """Return a curve with its band, or points with error bars for categories."""
    if along.codes is not None:
        bars = {"type": "data", "array": numbers(upper - mean), "color": "@blue"}
        return [{**points(grid, mean), "error_y": bars, "marker": {"color": "@blue", "size": 9}}]
    ends = line(np.concatenate([grid, grid[::-1]]), np.concatenate([upper, lower[::-1]]), "@none")
    band = {**ends, "fill": "toself", "fillcolor": "@band", "hoverinfo": "skip"}
    del band["hovertemplate"]
    return [band, line(grid, mean, "@blue")]


def level(height: float) -> Figure:
    """Return a line across the figure."""
    ends = {"x0": 0, "x1": 1, "xref": "paper", "y0": height, "y1": height}
    return {"type": "line", **ends, "line": {"color": "@soft", "dash": "dash", "width": 1.5}}


def _coordinates(values: Any) -> Any:
    return numbers(values) if isinstance(values, np.ndarray) else values
