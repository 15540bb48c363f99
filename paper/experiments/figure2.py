"""Figure 2: predictions of the sparse methods on data set 1 with 7 and with 10 basis functions."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from eigengp.metrics import nmse
from paper import drawing
from paper.experiments.experiment import Experiment, rms_gap, searched
from paper.methods import METHODS
from paper.problems import FIRST, problem
from paper.runs import Run
from paper.scale import Scale
from paper.section import Cell, Claim, Picture, Results, Section, Table, spoken, verdict

SHOWN_SIZES = (7, 10)
SHOWN = ("Nyström", "SSGP", "FITC", "EigenGP", "EigenGP+")
_TABLED = ("Nyström", "Nyström*", "SSGP", "FITC", "EigenGP", "EigenGP+")
_TURN = (3.5, 4.5)
_GOOD, _POOR = 0.05, 0.5
"""An NMSE that counts as good; how much larger an MNLP must be to count as poor."""
_LIMITS = (-3.6, 2.8)


def _run(scale: Scale, method: str, size: int) -> Run:
    return searched(scale, FIRST, method, size)


def _exact(scale: Scale) -> Run:
    return searched(scale, FIRST, "exact GP", None)


def _runs(scale: Scale) -> list[Run]:
    sparse = [_run(scale, method, size) for size in SHOWN_SIZES for method in _TABLED]
    return [_exact(scale), *sparse]


def _section(results: Results) -> Section:
    return Section(
        lead=(
            "Data set 1 with M = 7 and with M = 10 basis functions for every method. The exact "
            "GP's mean is dashed; crosses mark inducing points. SSGP has none: its basis functions "
            "are cosines and sines."
        ),
        pictures=[_picture(results)],
        tables=[_table(results)],
        claims=[
            _nystrom(results),
            _ssgp(results),
            _more_waves(results),
            _fitc(results),
            _variance(results),
            _larger(results),
            _similar_mean(results),
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
            "Mean and two standard deviations of each method, M = 7 and M = 10. The Nyström method "
            "leaves the vertical range; a number at the edge counts inducing points outside the "
            "panel."
        ),
        columns=2,
        draw=lambda columns: _draw(results, columns),
    )


def _draw(results: Results, columns: int) -> Figure:
    scale = results.scale
    task = problem(FIRST, 0)
    cases = [(method, size) for method in SHOWN for size in SHOWN_SIZES]
    rows = len(cases) // columns
    figure, axes = drawing.new_figure(rows, columns, height=2.0, sharex=True)
    for panel, (method, size) in zip(axes, cases, strict=True):
        record = results[_run(scale, method, size)]
        drawing.draw_panel(panel, task, record, "exact GP", _LIMITS)
        panel.set_ylabel("y")
        panel.set_title(f"{method}, M = {size}", color=METHODS[method].color, weight="bold")
    for panel in axes[-columns:]:
        panel.set_xlabel("x")
    drawing.prediction_legend(figure, axes[-1], 5 if columns > 1 else 3)
    return figure


def _table(results: Results) -> Table:
    rows = []
    for method in _TABLED:
        records = [results[_run(results.scale, method, size)] for size in SHOWN_SIZES]
        cells = [Cell(spoken(record[name])) for record in records for name in ("nmse", "mnlp")]
        rows.append((method, cells))
    head = ["method", *(f"{name}, M = {size}" for size in SHOWN_SIZES for name in ("NMSE", "MNLP"))]
    return Table(
        "The fits of the figure.", "Against the exact GP's mean on [−1, 7], one run.", head, rows
    )


def _nystrom(results: Results) -> Claim:
    error = results[_run(results.scale, "Nyström", 7)]["nmse"]
    return Claim(
        "The Nyström method does not fit well.",
        verdict(error > 1.0, error > _GOOD),
        f"NMSE {spoken(error)} at M = 7; a constant prediction has about 1.",
    )


def _ssgp(results: Results) -> Claim:
    task = problem(FIRST, 0)
    x = task.X_test[:, 0]
    outside = (x < task.X.min()) | (x > task.X.max())
    exact = float(np.ptp(task.y_test[outside]))
    records = [results[_run(results.scale, "SSGP", size)] for size in SHOWN_SIZES]
    swings = [float(np.ptp(np.array(each["curves"]["mean"])[outside])) for each in records]
    wide = [swing > 1.5 * exact for swing in swings]
    return Claim(
        "The prediction of SSGP oscillates outside the range of the training samples, and still "
        "does with M = 10.",
        verdict(all(wide), any(wide)),
        f"Outside the data its mean spans {spoken(swings[0])} with M = 7 and {spoken(swings[1])} "
        f"with M = 10, the exact GP's {spoken(exact)}.",
    )


def _more_waves(results: Results) -> Claim:
    few, more = (results[_run(results.scale, "SSGP", size)]["nmse"] for size in SHOWN_SIZES)
    return Claim(
        "Increasing the number of basis functions would improve SSGP's predictions.",
        verdict(more < 0.8 * few, more < few),
        f"NMSE {spoken(few)} with M = 7, {spoken(more)} with M = 10.",
    )


def _fitc(results: Results) -> Claim:
    task = problem(FIRST, 0)
    fitc, ours = (
        rms_gap(results[_run(results.scale, method, 7)], task, _TURN)
        for method in ("FITC", "EigenGP")
    )
    return Claim(
        "FITC fails to capture the turns of the data accurately for x near 4, while EigenGP can.",
        verdict(fitc > 2 * ours, fitc > ours),
        f"Root mean square gap to the exact GP on (3.5, 4.5) at M = 7: FITC {spoken(fitc)}, "
        f"EigenGP {spoken(ours)}.",
    )


def _variance(results: Results) -> Claim:
    task = problem(FIRST, 0)
    far = int(np.argmax(task.X_test[:, 0]))
    exact = results[_exact(results.scale)]["curves"]["std"][far]
    closer, told = [], []
    for size in SHOWN_SIZES:
        plain, plus = (
            results[_run(results.scale, method, size)]["curves"]["std"][far]
            for method in ("EigenGP", "EigenGP+")
        )
        closer.append(bool(abs(np.log(plus / exact)) < abs(np.log(plain / exact))))
        told.append(f"with M = {size} EigenGP+ {spoken(plus)}, EigenGP {spoken(plain)}")
    return Claim(
        "EigenGP+ gives better predictive variance far from the training data, with M = 7 and "
        "with M = 10.",
        verdict(all(closer), any(closer)),
        f"Standard deviation at x = {task.X_test[far, 0]:.1f}: exact GP {spoken(exact)}; "
        + "; ".join(told)
        + ".",
    )


def _similar_mean(results: Results) -> Claim:
    """Compare the two means with each other, not each with the exact GP."""
    task = problem(FIRST, 0)
    x = task.X_test[:, 0]
    inside = (x >= task.X.min()) & (x <= task.X.max())
    plain, plus = (
        np.array(results[_run(results.scale, method, 10)]["curves"]["mean"])
        for method in ("EigenGP", "EigenGP+")
    )
    centre = float(task.y.mean())
    everywhere = nmse(plain, plus, train_mean=centre)
    within_data = nmse(plain[inside], plus[inside], train_mean=centre)
    return Claim(
        "With M = 10 EigenGP+ has a similar predictive mean to EigenGP.",
        verdict(everywhere < _GOOD, within_data < _GOOD),
        f"NMSE of one mean against the other: {spoken(everywhere)} on [−1, 7], "
        f"{spoken(within_data)} inside the range of the data.",
    )


def _larger(results: Results) -> Claim:
    records = {method: results[_run(results.scale, method, 10)] for method in _TABLED}
    good = [records[method]["nmse"] < _GOOD for method in ("FITC", "EigenGP", "EigenGP+")]
    least = records["EigenGP"]["mnlp"] + _POOR
    poor = [records[method]["mnlp"] > least for method in ("Nyström", "Nyström*")]
    told = ", ".join(
        f"{method} {spoken(record['nmse'])} / {spoken(record['mnlp'])}"
        for method, record in records.items()
    )
    return Claim(
        "With M = 10 both versions of the Nyström method give poor predictive distributions, and "
        "FITC, EigenGP and EigenGP+ give good predictions.",
        verdict(all(good) and all(poor), all(good) or all(poor)),
        f"NMSE / MNLP at M = 10: {told}.",
    )


FIGURE_2 = Experiment("figure2", "Figure 2 · Predictions of the sparse methods", _runs, _section)
