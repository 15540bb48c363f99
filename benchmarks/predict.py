"""Rows predicted in a second: the mean alone, and the mean with its standard deviation.

Ours stands beside its floor, the bare arithmetic in float64 in as many threads, with which it takes
turns. Models are not trained, since that does not change what a prediction costs; LightGBM is.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from common import synthetic
from drawing import console, line, new_figure, new_table, save, title
from matplotlib.ticker import NullFormatter
from peers.asking import OURS, Panel
from record import Record, Results

LIBRARIES = (OURS, "gpflow", "gpytorch", "gpjax", "gpboost", "lightgbm", "sklearn")
KINDS = ("mean", "mean and std")
FLOOR = "floor"


def run(panel: Panel, out: Path, settings: Record, *, turns: int) -> None:
    """Measure, print the table and draw the picture."""
    results = Results(out, "predict", settings, ["variant", "what"])
    X, y = synthetic(settings["train_rows"], settings["inputs"])
    X_new, _ = synthetic(settings["rows"], settings["inputs"], seed=1)
    arrays = {"X": X, "y": y, "X_new": X_new}
    for library in panel:
        answer = panel.ask(library, "predict", arrays, size=settings["size"], turns=turns)
        results.add(answer, turns=turns)
    show(results)
    draw(results)


def ordered(results: Results) -> list[Record]:
    """Return the records by kind, library by library."""
    found = sorted(results.records, key=lambda each: LIBRARIES.index(each["library"]))
    return [record for what in KINDS for record in found if record["what"] == what]


def name_of(record: Record) -> str:
    """Return what a record is called."""
    if record["variant"] == FLOOR:
        return "bare arithmetic"
    return title(record["library"], record["variant"])


def show(results: Results) -> None:
    s = results.settings
    heading = f"Predictions, D = {s['inputs']}, M = {s['size']}, {s['train_rows']:,} training rows"
    columns = ("what", "method", "rows", "seconds", "rows a second", "multiple of the floor")
    table = new_table(heading, *columns, words=2)
    for record in ordered(results):
        floor = results.of(library=OURS, variant=FLOOR, what=record["what"])
        pace = record["seconds"] / record["rows"]
        ratio = pace * floor[0]["rows_per_second"] if floor else None
        table.add_row(
            record["what"],
            name_of(record),
            f"{record['rows']:,}",
            f"{record['seconds']:.3f}",
            f"{record['rows_per_second']:,.0f}",
            "–" if ratio is None else f"{ratio:.2f}",
        )
    console.print(table)


def draw(results: Results) -> None:
    figure, panels = new_figure(1, 2, 9.6, 3.8)
    for axes, what in zip(panels[0], KINDS, strict=True):
        records = [each for each in ordered(results) if each["what"] == what]
        records.sort(key=lambda each: each["rows_per_second"])
        for place, record in enumerate(records):
            speed, is_floor = record["rows_per_second"], record["variant"] == FLOOR
            style = line(record["library"]) | ({"marker": "|", "color": "0.4"} if is_floor else {})
            axes.plot(speed, place, **(style | {"markersize": 9, "markeredgewidth": 2}))
            beside = {"xytext": (8, 0), "textcoords": "offset points", "va": "center"}
            axes.annotate(_short(speed), (speed, place), fontsize=8, **beside)
        axes.set_yticks(range(len(records)), [name_of(record) for record in records])
        axes.set(xscale="log", xlabel="rows a second", title=what)
        axes.xaxis.set_minor_formatter(NullFormatter())  # Every point has its number beside it.
        axes.margins(x=0.15, y=0.08)
        decade = np.floor(np.log10(min(each["rows_per_second"] for each in records)))
        axes.set_xlim(left=10.0**decade / 1.5)  # Small differences are to look small.
    save(figure, results.picture)


def _short(value: float) -> str:
    return f"{value / 1e6:.2g} M" if value >= 1e6 else f"{value / 1e3:.3g} k"
