"""Figure 1: five basis functions, with inducing points from k-means and with learned ones."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from paper import drawing
from paper.experiments.experiment import Experiment, rms_gap, searched, within
from paper.problems import FIRST, problem
from paper.runs import Record, Run
from paper.scale import Scale
from paper.section import Claim, Picture, Results, Section, spoken, verdict

SIZE = 5
_HARD_PART, _RIGHT = (3.0, 5.0), (4.0, 6.0)
_CLOSE = 0.02
"""An NMSE that counts as very close."""
_ALMOST_EVEN = 0.3
"""How much gaps may vary, relative to their mean, and still be almost even."""
_MATCHES = 0.9
"""A correlation that counts as a good match."""
_LIMITS = (-3.4, 2.6)
_TITLES = ("k-means points, kernel of the exact GP", "everything learned")


def _runs(scale: Scale) -> list[Run]:
    """Return the run with fixed inducing points and the one with learned ones."""
    exact = searched(scale, FIRST, "exact GP", None)
    fixed = Run(FIRST, "EigenGP", SIZE, options=(("max_iter", 0),), start=exact)
    return [fixed, searched(scale, FIRST, "EigenGP", SIZE)]


def _section(results: Results) -> Section:
    records = [results[run] for run in _runs(results.scale)]
    return Section(
        lead=(
            f"Data set 1 with M = {SIZE} inducing points, which the paper calls basis points. "
            "First they are k-means centres and the kernel is that of the exact GP; then "
            "everything is learned by maximising the log marginal likelihood."
        ),
        pictures=[_picture(results.scale, records)],
        claims=[
            _closeness(results.scale, records),
            _locality(records),
            _likeness(results.scale, records),
        ],
    )


def _picture(scale: Scale, records: list[Record]) -> Picture:
    return Picture(
        name="figure1",
        alt=(
            "Predictions with five inducing points from k-means and with five learned ones, "
            "against the exact GP's mean; below them the five eigenfunctions of each."
        ),
        caption=(
            "Above: data, mean and two standard deviations, the exact GP's mean (dashed), inducing "
            "points (crosses). Below: the five eigenfunctions, largest eigenvalue first, each "
            "scaled to its peak."
        ),
        columns=2,
        draw=lambda columns: _draw(scale, records, columns),
    )


def _draw(scale: Scale, records: list[Record], columns: int) -> Figure:
    task = problem(FIRST, 0)
    figure, axes = drawing.new_figure(4 // columns, columns, sharex=True)
    above, below = (axes[:2], axes[2:]) if columns == 2 else (axes[::2], axes[1::2])
    for panel, lower, record, title in zip(above, below, records, _TITLES, strict=True):
        drawing.draw_panel(panel, task, record, "exact GP", _LIMITS)
        panel.set(title=title, ylabel="y")
        drawing.draw_eigenfunctions(lower, task.X_test[:, 0], record)
        lower.set(ylabel="eigenfunction / peak", xlabel="x")
        lower.legend(ncols=5, loc="upper center", handlelength=1.6, columnspacing=0.8)
        lower.margins(y=0.2)
    drawing.prediction_legend(figure, above[0], 5 if columns == 2 else 3)
    return figure


def _closeness(scale: Scale, records: list[Record]) -> Claim:
    fixed, learned = (record["nmse"] for record in records)
    task = problem(FIRST, 0)
    gaps = [rms_gap(record, task, _HARD_PART) for record in records]
    close = learned < _CLOSE and gaps[1] < 0.5 * gaps[0]
    return Claim(
        "With learned hyperparameters EigenGP comes very close to the full GP with only five basis "
        "functions; with k-means it differs significantly, above all for x in (3, 5).",
        verdict(close and fixed > 10 * learned, learned < 0.5 * fixed),
        f"NMSE against the exact GP's mean: {spoken(fixed)} with k-means, {spoken(learned)} "
        f"learned. Root mean square gap on (3, 5): {spoken(gaps[0])} against {spoken(gaps[1])}.",
    )


def _locality(records: list[Record]) -> Claim:
    uneven = [_unevenness(record) for record in records]
    extent = [_extent(record) for record in records]
    spaced = uneven[0] < _ALMOST_EVEN < uneven[1]
    local = extent[1] < extent[0]
    return Claim(
        "K-means spaces basis points almost evenly, so eigenfunctions are smooth and global; the "
        "evidence spaces them unevenly, so they are more localised.",
        verdict(spaced and local, spaced or local),
        f"Gaps between neighbouring points vary by {uneven[0]:.0%} of their mean with "
        f"k-means and by {uneven[1]:.0%} when learned. The share of the range where an "
        "eigenfunction exceeds a tenth of its peak is, on average, "
        f"{extent[0]:.0%} and {extent[1]:.0%}.",
    )


def _likeness(scale: Scale, records: list[Record]) -> Claim:
    task = problem(FIRST, 0)
    inside = within(task, _RIGHT)
    alike = []
    for record in records:
        functions = np.array(record["curves"]["eigenfunctions"])[:, inside]
        alike.append(max(abs(np.corrcoef(phi, task.y_test[inside])[0, 1]) for phi in functions))
    return Claim(
        "Learned eigenfunctions adapt to the function they fit: one of them matches the data on "
        "the right well.",
        verdict(alike[1] > _MATCHES and alike[1] > alike[0], alike[1] > alike[0]),
        "Largest correlation of an eigenfunction with the exact GP's mean on (4, 6): "
        f"{alike[1]:.2f} when learned, {alike[0]:.2f} with k-means.",
    )


def _unevenness(record: Record) -> float:
    points = np.sort(np.array(record["hyperparameters"]["inducing_points"]).ravel())
    gaps = np.diff(points)
    return float(gaps.std() / gaps.mean())


def _extent(record: Record) -> float:
    size = np.abs(np.array(record["curves"]["eigenfunctions"]))
    return float(np.mean(size > 0.1 * size.max(axis=1, keepdims=True)))


FIGURE_1 = Experiment(
    "figure1", "Figure 1 · What learning the inducing points does", _runs, _section
)
