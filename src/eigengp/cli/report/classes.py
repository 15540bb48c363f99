"""What a report says of a classifier: probabilities, mistakes, calibration, effects on both."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from eigengp import inspection
from eigengp._typing import Array
from eigengp.cli.report import effects, figures
from eigengp.cli.report.effects import Slider
from eigengp.cli.report.figures import Figure
from eigengp.cli.report.rows import Input, Rows
from eigengp.conformal import normal_half_width

_DRAWS, _BLOCK_ROWS = 200, 2_000
"""Draws of the latent functions of several classes, for so many rows at once."""
_MOST_CLASSES, _MOST_COUNTS = 6, 12
"""Menus and curves have the most frequent classes; counts are written where there are few."""
_BINS, _CHANCE = 10, 0.9
"""The bins of a calibration curve, and the probability of its grey bars."""
_SIDE = 31
"""The values of each input of a map."""


class CalibrationCurve(NamedTuple):
    """How often a class occurs where it has a probability, one entry for each bin with rows."""

    probability: Array
    """The mean predicted probability of the rows in a bin."""
    share: Array
    """The share of these rows that are of the class."""
    n_rows: NDArray[np.intp]
    """The number of rows."""
    chance: Array
    """Half of the 90 % sampling interval of the share, if probabilities are calibrated."""

    @classmethod
    def of(cls, p: Array, hit: NDArray[np.bool_]) -> CalibrationCurve:
        """Compare the probabilities of a class with whether each row is of it."""
        bins = np.minimum((_BINS * p).astype(int), _BINS - 1)
        count = np.bincount(bins, minlength=_BINS)
        full = count > 0
        count = count[full]
        mean = np.bincount(bins, p, _BINS)[full] / count
        share = np.bincount(bins, hit, _BINS)[full] / count
        chance = normal_half_width(_CHANCE) * np.sqrt(mean * (1.0 - mean) / count)
        return cls(mean, share, count, chance)


class Probabilities:
    """The predicted probabilities of rows, and their true classes.

    Parameters
    ----------
    model : EigenGPClassifier
        A fitted classifier.
    rows : Rows
        The rows.
    """

    def __init__(self, model: Any, rows: Rows) -> None:
        self.names: list[str] = np.asarray(model.classes_).astype(str).tolist()
        self.p: Array = model.predict_proba(rows.X)
        self.scores = inspection.class_scores(rows.y, self.p, model.classes_, rows.weight)
        labels = np.asarray(rows.y).astype(str).tolist()
        self.true = np.array([self.names.index(each) for each in labels])
        self.chosen: NDArray[np.intp] = np.argmax(self.p, axis=1)

    @cached_property
    def shown(self) -> list[int]:
        """The classes of menus and curves: the second of two, else the most frequent."""
        if len(self.names) == 2:
            return [1]
        count = np.bincount(self.true, minlength=len(self.names))
        return np.sort(np.argsort(-count, kind="stable")[:_MOST_CLASSES]).tolist()

    @cached_property
    def confusion(self) -> Array:
        """How many rows of each class (first axis) are predicted as each class."""
        found: Array = confusion_matrix(self.true, self.chosen, labels=range(len(self.names)))
        return found

    @cached_property
    def table(self) -> list[tuple[str, int, float, float]]:
        """Name, number of rows, recall and precision of each class."""
        every = range(len(self.names))
        found = precision_recall_fscore_support(
            self.true, self.chosen, labels=every, zero_division=np.nan
        )
        precision, recall, _, count = (each.tolist() for each in found)
        return list(zip(self.names, count, recall, precision, strict=True))

    @cached_property
    def curves(self) -> list[tuple[str, CalibrationCurve]]:
        """The calibration of the most probable class, and of those shown."""
        found = [
            (self.names[c], CalibrationCurve.of(self.p[:, c], self.true == c)) for c in self.shown
        ]
        if len(self.names) == 2:
            return found
        right = self.chosen == self.true
        best = CalibrationCurve.of(self.p.max(axis=1), right)
        return [("the most probable class", best), *found]


class Effect(NamedTuple):
    """The average probabilities when an input has the same value in all rows."""

    input: Input
    grid: Array
    mean: Array
    """Shape (G, C)."""
    lower: Array
    """The averages of the lower ends of the intervals, shape (G, C)."""
    upper: Array


class Map(NamedTuple):
    """The probabilities along two inputs, the others at a typical row."""

    inputs: tuple[Input, Input]
    grids: tuple[Array, Array]
    p: Array
    """Shape (G₁, G₂, C)."""


def predict_band(model: Any, X: Array, coverage: float) -> tuple[Array, Array, Array]:
    """Return probabilities, and the ends of their central credible intervals, each (n, C).

    With two classes these ends are the quantiles of the latent function, else those of draws.
    """
    mean, variance = model._by_blocks(model._posterior.latent, X)
    p, half = model.likelihood_.predict_classes(mean, variance), normal_half_width(coverage)
    if mean.shape[1] == 1:
        apart = half * np.sqrt(variance)
        low, high = expit(mean - apart), expit(mean + apart)
        return p, np.hstack([1.0 - high, low]), np.hstack([1.0 - low, high])
    z, ends = np.random.default_rng(0).standard_normal((_DRAWS, 1, mean.shape[1])), []
    for i in range(0, len(X), _BLOCK_ROWS):
        own = slice(i, i + _BLOCK_ROWS)
        drawn = softmax(mean[own] + z * np.sqrt(variance[own]), axis=2)
        ends.append(np.quantile(drawn, [0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage], axis=0))
    lower, upper = np.concatenate(ends, axis=1)
    return p, lower, upper


def compute_effects(
    model: Any, rows: Rows, inputs: Sequence[Input], coverage: float
) -> list[Effect]:
    """Compute the partial dependence of the probabilities on the first inputs."""
    X, found = effects.sample_averaged(rows), []
    for each, grid in effects.choose_grids(rows, inputs):
        points = np.concatenate([each.set_values(X, np.full(len(X), value)) for value in grid])
        parts = predict_band(model, points, coverage)
        found.append(Effect(each, grid, *(p.reshape(grid.size, len(X), -1).mean(1) for p in parts)))
    return found


def compute_slices(
    model: Any, rows: Rows, inputs: Sequence[Input], shown: Sequence[int], coverage: float
) -> list[Slider]:
    """Predict the probabilities of the classes shown along each of the first inputs."""
    count, found = 3 if len(shown) > 1 else effects.count_sliders(model), []
    for each, own, start, grid, points in effects.place_sliders(rows, inputs[:count]):
        parts = predict_band(model, points.reshape(-1, points.shape[-1]), coverage)
        shape = (len(shown),) * (len(shown) > 1) + points.shape[:-1]
        values = (p[:, shown].T.reshape(shape) for p in parts)
        found.append(Slider(each, own, start, grid, *values))
    return found


def compute_map(model: Any, rows: Rows, inputs: Sequence[Input]) -> Map | None:
    """Predict along the two first inputs; None for a model of one input."""
    if len(inputs) < 2:
        return None
    first, second = inputs[:2]
    grids = first.make_grid(rows.X, _SIDE), second.make_grid(rows.X, _SIDE)
    points = effects.make_points(rows.typical, list(zip((first, second), grids, strict=True)))
    p = model.predict_proba(points.reshape(-1, points.shape[-1]))
    return Map((first, second), grids, p.reshape(*points.shape[:-1], -1))


def collect(model: Any, rows: Rows, inputs: Sequence[Input], coverage: float) -> dict[str, Any]:
    """Compute what a page about a classifier shows; `inputs` are the most important first."""
    found = Probabilities(model, rows)
    dependence = compute_effects(model, rows, inputs, coverage)
    explorer = compute_slices(model, rows, inputs, found.shown, coverage)
    chart = compute_map(model, rows, inputs)
    two = len(found.names) == 2
    label = f"probability of {found.names[1]}" if two else "probability"
    drawn = {
        "confusion": draw_confusion(found),
        "probabilities": draw_probabilities(found),
        "calibration": draw_calibration(found),
        "counts": draw_counts(found),
        "explorer": figures.draw_slices(explorer, label, "probability", coverage, [-0.02, 1.02]),
        **draw_effects(found, dependence),
    }
    if chart is not None:
        drawn["map"] = draw_map(found, chart)
    return {
        "template": "classes.html",
        "found": found,
        "scores": found.scores,
        "kinds": [found.names[c] for c in found.shown],
        "effects": dependence,
        "explorer": explorer,
        "map": chart,
        "drawn": drawn,
    }


def draw_confusion(found: Probabilities) -> Figure:
    """Draw the confusion matrix; shades are shares of the rows of a class."""
    names = [figures.escape(each) for each in found.names]
    share = found.confusion / np.maximum(found.confusion.sum(axis=1, keepdims=True), 1)
    places = list(range(len(names)))
    heat = {
        **figures.heat(places, places, share),
        "text": found.confusion.tolist(),
        "hovertemplate": "%{text} rows of %{y} as %{x} (%{z:.1%})<extra></extra>",
        "showscale": False,
    }
    if len(names) <= _MOST_COUNTS:
        heat["texttemplate"] = "%{text}"
    axis = {"tickvals": places, "ticktext": names}
    return figures.panel(
        [heat], "predicted", "true class", xaxis=axis, yaxis={**axis, "autorange": "reversed"}
    )


def draw_probabilities(found: Probabilities) -> Figure:
    """Draw how the probabilities of a class are distributed, over its rows and over others."""
    choices, edges = [], np.linspace(0.0, 1.0, 21)
    for c in found.shown:
        own, name = found.true == c, figures.escape(found.names[c])
        traces = []
        for at, title, colour in ((own, name, "@blue"), (~own, "other rows", "@orange")):
            count, _ = np.histogram(found.p[at, c], edges)
            look = {"name": title, "marker": {"color": colour}, "opacity": 0.65}
            traces.append({**figures.bars(0.5 * (edges[1:] + edges[:-1]), count), **look})
        options: Figure = {"barmode": "overlay", "showlegend": True, "xaxis": {"range": [0, 1]}}
        figure = figures.panel(traces, "predicted probability", "rows", **options)
        choices.append({"label": found.names[c], **figure})
    return {"choices": choices}


def draw_calibration(found: Probabilities) -> Figure:
    """Draw frequency against probability; grey bars are what chance does to calibrated ones."""
    choices, axis = [], {"range": [-0.02, 1.02], "tickformat": ".0%"}
    for name, curve in found.curves:
        p, error = curve.probability, {"type": "data", "array": curve.chance, "width": 0}
        chance = figures.line(p, p, "@none", "chance", mode="markers")
        chance |= {"error_y": {**error, "color": "@soft", "thickness": 6}, "opacity": 0.45}
        traces = [
            figures.line([0, 1], [0, 1], "@soft", "calibrated", dash="dash"),
            chance,
            figures.line(p, curve.share, "@blue", "measured", mode="lines+markers"),
        ]
        options: Figure = {"xaxis": axis, "yaxis": axis, "showlegend": True}
        figure = figures.panel(traces, "predicted probability", "share of rows", **options)
        choices.append({"label": name, **figure})
    return {"choices": choices}


def draw_counts(found: Probabilities) -> Figure:
    """Draw how many rows have each probability."""
    choices = []
    for name, curve in found.curves:
        bars = figures.bars(curve.probability, curve.n_rows)
        options: Figure = {"xaxis": {"range": [0, 1]}, "bargap": 0.06}
        figure = figures.panel([bars], "predicted probability", "rows", **options)
        choices.append({"label": name, **figure})
    return {"choices": choices}


def draw_effects(found: Probabilities, drawn: Sequence[Effect]) -> dict[str, Figure]:
    """Draw the average probabilities of the classes shown; a band for one."""
    result, axis = {}, {"range": [-0.02, 1.02]}
    for index, each in enumerate(drawn):
        mode = "lines" if each.input.codes is None else "markers"
        if len(found.shown) == 1:
            parts = (values[:, found.shown[0]] for values in (each.mean, each.lower, each.upper))
            traces = figures.band(each.input, each.grid, *parts)
        else:
            traces = [
                figures.line(each.grid, each.mean[:, c], colour, name, mode=mode)
                for c, colour in zip(found.shown, figures.COLOURS, strict=False)
                for name in [figures.escape(found.names[c])]
            ]
        name = figures.escape(each.input.name)
        more: Figure = {"yaxis": axis, "showlegend": len(found.shown) > 1}
        figure = figures.panel(traces, name, "average probability", each.input, **more)
        result[f"effect-{index}"] = figure
    return result


def draw_map(found: Probabilities, drawn: Map) -> Figure:
    """Draw the probability of a class along two inputs, with a line where it is one half."""
    (first, second), (x, y) = drawn.inputs, drawn.grids
    upward = figures.panel([], figures.escape(second.name), "", second)["layout"]["xaxis"]
    half = {"start": 0.5, "end": 0.5, "size": 1, "coloring": "none"}
    look = {"line": {"color": "@ink", "width": 2}, "showscale": False, "hoverinfo": "skip"}
    choices = []
    for c in found.shown:
        z = drawn.p[:, :, c].T
        traces = [figures.heat(x, y, z)]
        if first.codes is None and second.codes is None:
            traces.append({"type": "contour", "x": x, "y": y, "z": z, "contours": half, **look})
        figure = figures.panel(traces, figures.escape(first.name), "", first, yaxis=upward)
        figure["data"][0] |= {"hovertemplate": "%{x}, %{y}: %{z:.3f}<extra></extra>"}
        choices.append({"label": found.names[c], **figure})
    return {"choices": choices}
