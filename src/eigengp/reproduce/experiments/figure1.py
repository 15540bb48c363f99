"""Figure 1: five basis functions, with basis points from k-means and with learned ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eigengp.reproduce import drawing
from eigengp.reproduce.experiments.experiment import Experiment, searched
from eigengp.reproduce.problems import problem
from eigengp.reproduce.runs import Record, Run
from eigengp.reproduce.scale import Scale
from eigengp.reproduce.section import Claim, Picture, Results, Section, spoken, verdict
from eigengp.typing import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE = 5
_HARD_PART = (3.0, 5.0)
_TITLES = ("k-means basis points, the exact GP's width", "learned by the evidence")


def _pair(scale: Scale) -> tuple[Run, Run]:
    """Return the run with fixed basis points and the one with learned ones."""
    exact = searched(scale, scale.first, "exact GP", None)
    fixed = Run(scale.first, "EigenGP", SIZE, options=(("max_iter", 0),), start=exact)
    return fixed, searched(scale, scale.first, "EigenGP", SIZE)


def _runs(scale: Scale) -> list[Run]:
    return list(_pair(scale))


def _section(results: Results) -> Section:
    records = [results[run] for run in _pair(results.scale)]
    return Section(
        lead=(
            f"Data set 1 with M = {SIZE} basis points: once they are the centres that k-means "
            "finds, and the kernel is that of the exact GP; once everything is learned by "
            "maximising the evidence."
        ),
        pictures=[_picture(results.scale, records)],
        claims=[_closeness(results.scale, records), _locality(records)],
    )


def _picture(scale: Scale, records: list[Record]) -> Picture:
    return Picture(
        name="figure1",
        alt=(
            "Two columns. Above, predictions with five basis points against the exact GP's mean: "
            "off with k-means, close when learned. Below, the five eigenfunctions of each."
        ),
        caption=(
            "Above: data, mean and two standard deviations, the exact GP's mean (dashed), basis "
            "points (crosses). Below: the five eigenfunctions, largest eigenvalue first."
        ),
        columns=2,
        draw=lambda columns: _draw(scale, records, columns),
    )


def _draw(scale: Scale, records: list[Record], columns: int) -> Figure:
    task = problem(scale.first, 0)
    x = task.X_test[:, 0]
    figure, axes = drawing.new_figure(4 // columns, columns, sharex=True)
    above, below = (axes[:2], axes[2:]) if columns == 2 else (axes[::2], axes[1::2])
    for panel, lower, record, title in zip(above, below, records, _TITLES, strict=True):
        drawing.draw_rows(panel, task.X, task.y)
        drawing.draw_prediction(panel, x, record)
        drawing.draw_truth(panel, x, task.y_test, "exact GP")
        panel.set(title=title, ylabel="y", ylim=(-3.4, 2.6), xlim=(x[0], x[-1]))
        drawing.draw_eigenfunctions(lower, x, record)
        lower.set(ylabel="eigenfunction", xlabel="x")
        lower.legend(ncols=5, loc="upper center", handlelength=1.6, columnspacing=0.8)
        lower.margins(y=0.2)
    drawing.prediction_legend(figure, above[0], 5 if columns == 2 else 3)
    return figure


def _closeness(scale: Scale, records: list[Record]) -> Claim:
    fixed, learned = (record["nmse"] for record in records)
    task = problem(scale.first, 0)
    x = task.X_test[:, 0]
    part = (x > _HARD_PART[0]) & (x < _HARD_PART[1])
    gaps = [_rmse(record, task.y_test, part) for record in records]
    holds = learned < 0.1 * fixed and gaps[1] < 0.5 * gaps[0]
    return Claim(
        "With learned hyperparameters EigenGP comes very close to the full GP with only five basis "
        "functions; with k-means it fails to capture the trend, above all for x in (3, 5).",
        verdict(holds, learned < fixed),
        f"NMSE against the exact GP's mean: {spoken(fixed)} with k-means, {spoken(learned)} "
        f"learned. Root mean square gap on (3, 5): {spoken(gaps[0])} against {spoken(gaps[1])}.",
    )


def _rmse(record: Record, truth: Array, part: NDArray[np.bool_]) -> float:
    gap = np.array(record["curves"]["mean"])[part] - truth[part]
    return float(np.sqrt(np.mean(gap**2)))


def _locality(records: list[Record]) -> Claim:
    spread = [_unevenness(record) for record in records]
    extent = [_extent(record) for record in records]
    even, local = spread[1] > 1.5 * spread[0], extent[1] < extent[0]
    return Claim(
        "K-means spaces basis points almost evenly, so eigenfunctions are smooth and global; the "
        "evidence spaces them unevenly, so they are more localised and adapt to the function.",
        verdict(even and local, even or local),
        f"Gaps between neighbouring basis points vary by {spread[0]:.0%} of their mean with "
        f"k-means and by {spread[1]:.0%} when learned. The share of the range where an "
        "eigenfunction exceeds a tenth of its peak is, on average, "
        f"{extent[0]:.0%} and {extent[1]:.0%}.",
    )


def _unevenness(record: Record) -> float:
    points = np.sort(np.array(record["hyperparameters"]["inducing_inputs"]).ravel())
    gaps = np.diff(points)
    return float(gaps.std() / gaps.mean())


def _extent(record: Record) -> float:
    size = np.abs(np.array(record["curves"]["eigenfunctions"]))
    return float(np.mean(size > 0.1 * size.max(axis=1, keepdims=True)))


FIGURE_1 = Experiment("figure1", "Figure 1 · What learning the basis points does", _runs, _section)
