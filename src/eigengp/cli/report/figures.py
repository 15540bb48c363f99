"""The figures of a report, as the page hands them to Plotly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eigengp._format import number as written
from eigengp.cli.report.convergence import Stage
from eigengp.cli.report.influence import AverageEffect, Influence
from eigengp.cli.report.quality import Quality
from eigengp.cli.report.rows import Input, Rows
from eigengp.cli.report.slices import Explorer
from eigengp.cli.report.spectrum import Spectrum
from eigengp.cli.report.traces import (
    COLOURS,
    Figure,
    banded,
    level,
    line,
    numbers,
    panel,
    plain,
    points,
    with_categories,
)

_SHOWN_BARS = 15


def predicted_against_observed(quality: Quality, target: str) -> Figure:
    """Return points of predictions and observations, and the line on which they would agree."""
    mean, y = quality.mean[quality.shown], quality.targets[quality.shown]
    ends = [float(min(mean.min(), y.min())), float(max(mean.max(), y.max()))]
    return panel(
        [line(ends, ends, "@soft", dash="dash"), points(mean, y)],
        f"predicted {plain(target)}",
        f"observed {plain(target)}",
    )


def residuals(quality: Quality, rows: Rows, ranking: Sequence[Input]) -> Figure:
    """Return residuals against the prediction, or against one of the most important inputs."""
    y = quality.residuals[quality.shown]
    known: list[Input | None] = [None, *ranking]
    choices = []
    for each in known:
        name = "the prediction" if each is None else each.name
        x = quality.mean[quality.shown] if each is None else each.values(rows.X[quality.shown])
        figure = panel([points(x, y)], plain(name), "observed − predicted", shapes=[level(0.0)])
        choices.append({"label": name, **with_categories(figure, each)})
    return {"choices": choices}


def coverage_curve(quality: Quality) -> Figure:
    """Return how often intervals of each probability held the target, beside the honest line."""
    levels, held = quality.coverage
    measured = line(levels, held, "@blue", "measured", mode="lines+markers")
    return panel(
        [line([0, 1], [0, 1], "@soft", "honest", dash="dash"), measured],
        "probability of the interval",
        "share of rows inside",
        xaxis={"range": [0, 1.02], "tickformat": ".0%"},
        yaxis={"range": [0, 1.02], "tickformat": ".0%"},
        showlegend=True,
    )


def pit_histogram(quality: Quality) -> Figure:
    """Return the histogram of the probability integral transform, flat if honest."""
    density, edges = quality.pit
    centres = 0.5 * (edges[1:] + edges[:-1])
    bars = {
        "type": "bar",
        "x": numbers(centres),
        "y": numbers(density),
        "marker": {"color": "@blue"},
    }
    return panel(
        [bars],
        "predictive distribution function",
        "density",
        shapes=[level(1.0)],
        xaxis={"range": [0, 1]},
        bargap=0.06,
    )


def importance_bars(found: Sequence[Influence]) -> Figure:
    """Return the importance of the leading inputs as bars, the largest on top."""
    leading = list(reversed(found[:_SHOWN_BARS]))
    places = list(range(len(leading)))
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": [each.importance for each in leading],
        "y": places,
        "marker": {"color": "@blue"},
        "hovertemplate": "%{x:.4g}<extra></extra>",
    }
    ticks = {"tickvals": places, "ticktext": [plain(each.input.name) for each in leading]}
    figure = panel([bars], "growth of RMSE", "", yaxis={**ticks, "automargin": True})
    return {**figure, "height": 110 + 26 * len(leading)}


def effect_curve(effect: AverageEffect, ends: tuple[float, float]) -> Figure:
    """Return a partial dependence with its band; all share the ends of the vertical axis."""
    traces = banded(effect.input, effect.grid, effect.mean, effect.lower, effect.upper)
    figure = panel(traces, plain(effect.input.name), "average", yaxis={"range": ends})
    return with_categories(figure, effect.input)


def weight_bars(found: Spectrum) -> Figure:
    """Return the prior variance of each eigenfunction, on a logarithmic axis."""
    bars = {
        "type": "bar",
        "x": list(range(1, found.weights.size + 1)),
        "y": numbers(found.weights),
        "marker": {"color": "@blue"},
        "hovertemplate": "eigenfunction %{x}: %{y:.4g}<extra></extra>",
    }
    return panel([bars], "eigenfunction", "prior variance", yaxis={"type": "log"}, bargap=0.15)


def eigenfunction_curves(found: Spectrum) -> Figure:
    """Return the leading eigenfunctions along one input at a time."""
    choices = []
    for along, grid, values in found.curves:
        mode = "lines" if along.codes is None else "markers"
        traces = [
            line(grid, own, COLOURS[place], f"φ{number + 1}", mode=mode)
            for place, (number, own) in enumerate(zip(found.shown, values.T, strict=True))
        ]
        figure = panel(traces, plain(along.name), "eigenfunction", showlegend=True)
        choices.append({"label": along.name, **with_categories(figure, along)})
    return {"choices": choices}


def eigenfunction_maps(found: Spectrum) -> Figure | None:
    """Return one leading eigenfunction at a time over the two most important numbers."""
    if found.maps is None:
        return None
    first, second, across, up, values = found.maps
    choices = []
    for number, own in zip(found.shown, values, strict=True):
        largest = float(np.abs(own).max()) or 1.0
        trace = {
            "type": "heatmap",
            "x": numbers(across),
            "y": numbers(up),
            "z": numbers(own, "f4"),
            "zmin": -largest,
            "zmax": largest,
            "zsmooth": "best",
            "colorscale": "@diverging",
            "colorbar": {"thickness": 12, "outlinewidth": 0},
            "hovertemplate": "%{x:.4g}, %{y:.4g}: %{z:.4g}<extra></extra>",
        }
        label = f"φ{number + 1}, prior variance {written(found.weights[number])}"
        figure = panel([trace], plain(first.name), plain(second.name))
        choices.append({"label": label, **figure})
    return {"choices": choices}


def explorer_curves(found: Explorer, target: str, band: str) -> Figure:
    """Return what the sliders choose from: for each input a grid of curves."""
    axes = []
    for each in found.slices:
        along = found.inputs[each.along]
        low, high = float((each.mean - each.half).min()), float((each.mean + each.half).max())
        room = 0.04 * (high - low or 1.0)
        ends = {"range": [low - room, high + room]}
        figure = panel([], plain(along.name), plain(target), yaxis=ends)
        axes.append(
            {
                **with_categories(figure, along),
                "x": numbers(each.grid),
                "sizes": list(each.mean.shape),
                "mean": numbers(each.mean.ravel(), "f4"),
                "half": numbers(each.half.ravel(), "f4"),
                "labels": [along.label(value) for value in each.grid],
                "curve": along.codes is None,
            }
        )
    return {"axes": axes, "band": band, "starts": list(found.starts)}


def evidence_curves(found: Sequence[Stage]) -> Figure:
    """Return the evidence against seconds, or against iterations."""
    values = np.concatenate([stage.evidence for stage in found])
    values = values[np.isfinite(values)]
    low, high = float(np.quantile(values, 0.1)), float(values.max())
    room = 0.05 * (high - low or 1.0)
    choices = []
    for label in ("seconds", "iterations"):
        traces = [
            line(
                getattr(stage, label),
                stage.evidence,
                COLOURS[place % len(COLOURS)],
                plain(stage.name),
                mode="lines+markers",
            )
            for place, stage in enumerate(found)
        ]
        figure = panel(
            traces,
            label,
            "log evidence",
            showlegend=True,
            yaxis={"range": [low - room, high + room]},
        )
        choices.append({"label": label, **figure})
    return {"choices": choices}
