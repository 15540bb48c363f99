"""What a report says of a classifier: probabilities, mistakes, calibration, effects on both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from eigengp import inspection
from eigengp._typing import Array
from eigengp.cli.report import effects, figures
from eigengp.cli.report.figures import Choices, Figure, with_menu
from eigengp.cli.report.rows import Input, Rows
from eigengp.conformal import normal_half_width

# Menus and curves have the most frequent classes; counts are written where there are few.
_MOST_CLASSES, _MOST_COUNTS = 6, 12
_BINS, _CHANCE = 10, 0.9  # The bins of a calibration curve, and the probability of its grey bars.
_SIDE = 31  # The values of each input of a map.
_ENDS = [-0.02, 1.02]  # The ends of an axis of probabilities.


class CalibrationCurve(NamedTuple):
    """How often a class occurs where it has a probability, one entry for each bin with rows."""

    probability: Array  # The mean predicted probability of the rows in a bin.
    share: Array  # The share of these rows that are of the class.
    n_rows: NDArray[np.intp]  # The number of rows.
    # Half of the 90 % sampling interval of the share, if probabilities are calibrated.
    chance: Array

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

    Attributes
    ----------
    shown : list of int
        The classes of menus and curves: the second of two, else the most frequent.
    confusion : array of shape (C, C)
        How many rows of each class (first axis) are predicted as each class.
    table : list of tuples
        Name, number of rows, recall and precision of each class.
    curves : list of tuples
        The calibration of the most probable of several classes, and of those shown, by name.
    """

    def __init__(self, model: Any, rows: Rows) -> None:
        self.names: list[str] = np.asarray(model.classes_).astype(str).tolist()
        self.p: Array = model.predict_proba(rows.X)
        self.scores = inspection.class_scores(rows.y, self.p, model.classes_, rows.weight)
        true = list(map(self.names.index, np.asarray(rows.y).astype(str).tolist()))
        self.true, chosen, every = np.array(true), np.argmax(self.p, axis=1), range(len(self.names))
        self.confusion: Array = confusion_matrix(true, chosen, labels=every)
        parts = precision_recall_fscore_support(true, chosen, labels=every, zero_division=np.nan)
        precision, recall, _, count = (each.tolist() for each in parts)
        self.table = list(zip(self.names, count, recall, precision, strict=True))
        frequent = np.argsort(-np.array(count), kind="stable")[:_MOST_CLASSES]
        self.shown: list[int] = [1] if len(every) == 2 else np.sort(frequent).tolist()
        curves = {self.names[c]: (self.p[:, c], self.true == c) for c in self.shown}
        if len(every) > 2:
            best = {"the most probable class": (self.p.max(axis=1), chosen == self.true)}
            curves = best | curves
        self.curves = [(name, CalibrationCurve.of(*own)) for name, own in curves.items()]


def collect(model: Any, rows: Rows, inputs: Sequence[Input], coverage: float) -> dict[str, Any]:
    """Compute what a page about a classifier shows; `inputs` are the most important first."""
    found = Probabilities(model, rows)
    dependence = effects.compute_partial_dependence(model, rows, inputs, coverage, found.shown)
    explorer = effects.compute_slices(model, rows, inputs, coverage, found.shown)
    kinds = [found.names[c] for c in found.shown]
    several = kinds if len(kinds) > 1 else []
    label = "probability" if several else f"probability of {kinds[0]}"
    drawn = {
        "confusion": draw_confusion(found),
        "probabilities": draw_probabilities(found),
        "calibration": draw_calibration(found),
        "counts": draw_counts(found),
        "explorer": figures.draw_slices(explorer, label, "probability", coverage, _ENDS),
        **figures.draw_partial_dependence(dependence, "average probability", _ENDS, several),
    }
    if len(inputs) > 1:
        drawn["map"] = draw_map(model, rows, inputs, found)
    return {
        "template": "classes.html",
        "found": found,
        "scores": found.scores,
        "kinds": kinds,
        "effects": dependence,
        "explorer": explorer,
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


@with_menu
def draw_probabilities(found: Probabilities) -> Choices:
    """Draw how the probabilities of a class are distributed, over its rows and over others."""
    edges = np.linspace(0.0, 1.0, 21)
    for c in found.shown:
        own, name = found.true == c, figures.escape(found.names[c])
        traces = []
        for at, title, colour in ((own, name, "@blue"), (~own, "other rows", "@orange")):
            count, _ = np.histogram(found.p[at, c], edges)
            look = {"name": title, "marker": {"color": colour}, "opacity": 0.65}
            traces.append({**figures.bars(0.5 * (edges[1:] + edges[:-1]), count), **look})
        options: Figure = {"barmode": "overlay", "showlegend": True, "xaxis": {"range": [0, 1]}}
        yield found.names[c], figures.panel(traces, "predicted probability", "rows", **options)


@with_menu
def draw_calibration(found: Probabilities) -> Choices:
    """Draw frequency against probability; grey bars are what chance does to calibrated ones."""
    axis = {"range": _ENDS, "tickformat": ".0%"}
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
        yield name, figures.panel(traces, "predicted probability", "share of rows", **options)


@with_menu
def draw_counts(found: Probabilities) -> Choices:
    """Draw how many rows have each probability."""
    options: Figure = {"xaxis": {"range": [0, 1]}, "bargap": 0.06}
    for name, curve in found.curves:
        bars = figures.bars(curve.probability, curve.n_rows)
        yield name, figures.panel([bars], "predicted probability", "rows", **options)


@with_menu
def draw_map(model: Any, rows: Rows, inputs: Sequence[Input], found: Probabilities) -> Choices:
    """Draw the probability of a class along two inputs, with a line where it is one half."""
    first, second = inputs[:2]
    x, y = first.make_grid(rows.X, _SIDE), second.make_grid(rows.X, _SIDE)
    points = effects.make_points(rows.typical, [(second, y), (first, x)])
    p = model.predict_proba(points.reshape(-1, points.shape[-1]))
    upward = figures.panel([], figures.escape(second.name), "", second)["layout"]["xaxis"]
    half = {"start": 0.5, "end": 0.5, "size": 1, "coloring": "none"}
    look = {"line": {"color": "@ink", "width": 2}, "showscale": False, "hoverinfo": "skip"}
    for c in found.shown:
        z = p[:, c].reshape(points.shape[:-1])
        traces = [figures.heat(x, y, z)]
        if first.codes is None and second.codes is None:
            traces.append({"type": "contour", "x": x, "y": y, "z": z, "contours": half, **look})
        figure = figures.panel(traces, figures.escape(first.name), "", first, yaxis=upward)
        figure["data"][0] |= {"hovertemplate": "%{x}, %{y}: %{z:.3f}<extra></extra>"}
        yield found.names[c], figure
