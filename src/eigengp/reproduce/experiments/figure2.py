"""Figure 2: predictions of the sparse methods on data set 1 with 7 and with 10 basis functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eigengp.reproduce import drawing
from eigengp.reproduce.experiments.experiment import Experiment, searched
from eigengp.reproduce.methods import METHODS
from eigengp.reproduce.problems import problem
from eigengp.reproduce.runs import Record, Run
from eigengp.reproduce.scale import Scale
from eigengp.reproduce.section import Cell, Claim, Picture, Results, Section, Table, spoken, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = (7, 10)
SHOWN = ("Nyström", "SSGP", "FITC", "EigenGP", "EigenGP+")
_TABLED = ("Nyström", "Nyström*", "SSGP", "FITC", "EigenGP", "EigenGP+")
_TURN = (3.5, 4.5)
_LIMITS = (-3.6, 2.8)


def _run(scale: Scale, method: str, size: int) -> Run:
    return searched(scale, scale.first, method, size)


def _exact(scale: Scale) -> Run:
    return searched(scale, scale.first, "exact GP", None)


def _runs(scale: Scale) -> list[Run]:
    sparse = [_run(scale, method, size) for size in SIZES for method in _TABLED]
    return [_exact(scale), *sparse]


def _section(results: Results) -> Section:
    return Section(
        lead=(
            "Data set 1 with M = 7 and with M = 10 basis functions for every method. The exact "
            "GP's mean is dashed; crosses mark basis points. SSGP has waves instead of points."
        ),
        pictures=[_picture(results)],
        tables=[_table(results)],
        claims=[
            _nystrom(results),
            _ssgp(results),
            _fitc(results),
            _plus(results),
            _larger(results),
        ],
    )


def _picture(results: Results) -> Picture:
    return Picture(
        name="figure2",
        alt=(
            "Predictions of Nyström, SSGP, FITC, EigenGP and EigenGP+ on data set 1 with 7 and 10 "
            "basis functions, each with its error band and the exact GP's mean."
        ),
        caption=(
            "Mean and two standard deviations of each method, M = 7 and M = 10. The vertical axis "
            "is cut where the Nyström method leaves it."
        ),
        columns=2,
        draw=lambda columns: _draw(results, columns),
    )


def _draw(results: Results, columns: int) -> Figure:
    scale = results.scale
    task = problem(scale.first, 0)
    x = task.X_test[:, 0]
    cases = [(method, size) for method in SHOWN for size in SIZES]
    rows = len(cases) // columns
    figure, axes = drawing.new_figure(rows, columns, height=2.0, sharex=True)
    for panel, (method, size) in zip(axes, cases, strict=True):
        drawing.draw_rows(panel, task.X, task.y)
        drawing.draw_prediction(panel, x, results[_run(scale, method, size)])
        drawing.draw_truth(panel, x, task.y_test, "exact GP")
        panel.set(ylim=_LIMITS, xlim=(x[0], x[-1]), ylabel="y")
        panel.set_title(f"{method}, M = {size}", color=METHODS[method].color, weight="bold")
    for panel in axes[-columns:]:
        panel.set_xlabel("x")
    drawing.prediction_legend(figure, axes[-1], 5 if columns > 1 else 3)
    return figure


def _table(results: Results) -> Table:
    rows = []
    for method in _TABLED:
        records = [results[_run(results.scale, method, size)] for size in SIZES]
        cells = [Cell(spoken(record[name])) for record in records for name in ("nmse", "mnlp")]
        rows.append((method, cells))
    head = ["method", *(f"{name}, M = {size}" for size in SIZES for name in ("NMSE", "MNLP"))]
    return Table("The fits of the figure, against the exact GP's mean on [−1, 7].", head, rows)


def _nystrom(results: Results) -> Claim:
    ours = results[_run(results.scale, "EigenGP", 7)]["nmse"]
    theirs = results[_run(results.scale, "Nyström", 7)]["nmse"]
    return Claim(
        "The Nyström method does not fit well (Figure 2a); EigenGP is several orders of magnitude "
        "better.",
        verdict(theirs > 100 * ours, theirs > ours),
        f"NMSE {spoken(theirs)} against {spoken(ours)} at M = 7.",
    )


def _ssgp(results: Results) -> Claim:
    task = problem(results.scale.first, 0)
    x = task.X_test[:, 0]
    outside = (x < task.X.min()) | (x > task.X.max())
    swing = {
        method: _swing(results[_run(results.scale, method, 7)], outside)
        for method in ("SSGP", "EigenGP")
    }
    exact = float(np.ptp(task.y_test[outside]))
    oscillates = swing["SSGP"] > 1.5 * max(exact, swing["EigenGP"])
    return Claim(
        "The prediction of SSGP oscillates outside the range of the training samples.",
        verdict(oscillates, swing["SSGP"] > swing["EigenGP"]),
        f"Outside the data its mean spans {spoken(swing['SSGP'])}, the exact GP's "
        f"{spoken(exact)}, EigenGP's {spoken(swing['EigenGP'])}.",
    )


def _swing(record: Record, part: NDArray[np.bool_]) -> float:
    return float(np.ptp(np.array(record["curves"]["mean"])[part]))


def _fitc(results: Results) -> Claim:
    task = problem(results.scale.first, 0)
    x = task.X_test[:, 0]
    part = (x > _TURN[0]) & (x < _TURN[1])
    gaps = {}
    for method in ("FITC", "EigenGP"):
        mean = np.array(results[_run(results.scale, method, 7)]["curves"]["mean"])
        gaps[method] = float(np.sqrt(np.mean((mean - task.y_test)[part] ** 2)))
    ratio = gaps["FITC"] / gaps["EigenGP"]
    return Claim(
        "FITC fails to capture the turns of the data accurately for x near 4, while EigenGP can.",
        verdict(ratio > 2, ratio > 1),
        "Root mean square gap to the exact GP on (3.5, 4.5) at M = 7: FITC "
        f"{spoken(gaps['FITC'])}, EigenGP {spoken(gaps['EigenGP'])}."
        + (
            " With many starts instead of one, FITC finds a better optimum than in the paper."
            if ratio <= 2
            else ""
        ),
    )


def _plus(results: Results) -> Claim:
    task = problem(results.scale.first, 0)
    far = int(np.argmax(task.X_test[:, 0]))
    std = {
        method: results[_run(results.scale, method, 7)]["curves"]["std"][far]
        for method in ("EigenGP", "EigenGP+")
    }
    exact = results[_exact(results.scale)]["curves"]["std"][far]
    errors = [results[_run(results.scale, method, 7)]["nmse"] for method in ("EigenGP", "EigenGP+")]
    honest = abs(np.log(std["EigenGP+"] / exact)) < abs(np.log(std["EigenGP"] / exact))
    worse = errors[1] > errors[0]
    return Claim(
        "EigenGP+ has better predictive variance far from the data; its mean is slightly worse.",
        verdict(honest and worse, honest or worse),
        f"Standard deviation at x = {task.X_test[far, 0]:.1f}: exact GP {spoken(exact)}, EigenGP+ "
        f"{spoken(std['EigenGP+'])}, EigenGP {spoken(std['EigenGP'])}. NMSE {spoken(errors[1])} "
        f"against {spoken(errors[0])}.",
    )


def _larger(results: Results) -> Claim:
    nmse = {method: results[_run(results.scale, method, 10)]["nmse"] for method in _TABLED}
    good = max(nmse[method] for method in ("FITC", "EigenGP", "EigenGP+"))
    poor = {method: nmse[method] > 10 * good for method in ("Nyström", "Nyström*")}
    numbers = ", ".join(f"{method} {spoken(value)}" for method, value in nmse.items())
    return Claim(
        "With M = 10 both versions of the Nyström method still predict poorly, and FITC, EigenGP "
        "and EigenGP+ predict well.",
        verdict(all(poor.values()) and good < 0.05, good < 0.05),
        f"NMSE at M = 10: {numbers}.",
    )


FIGURE_2 = Experiment("figure2", "Figure 2 · Predictions of the sparse methods", _runs, _section)
