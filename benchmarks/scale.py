"""Seconds and memory of one value and gradient as the rows grow, from 10⁴ to 10⁷.

Each number of rows has a process of its own, which makes its data in place, so that the peak of its
resident memory beyond the data is that of the evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from drawing import console, line, new_figure, new_table, save
from peers.asking import OURS, Panel
from record import Results

ROWS = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
FITTED_FROM = 100_000


def run(out: Path, rows: Sequence[int], *, inputs: int, size: int, turns: int) -> None:
    """Measure, print the table and draw the picture."""
    results = Results(out, "scale", {"inputs": inputs, "size": size}, ["rows"])
    panel = Panel.of([OURS], None)
    for count in rows:
        options = {"rows": count, "rows_in_all": max(rows), "inputs": inputs, "size": size}
        answer = panel.ask(OURS, "scale", turns=turns, **options)
        results.add(answer, turns=turns)
    show(results)
    draw(results)


def points(results: Results) -> tuple[list[int], list[float], list[float]]:
    """Return rows, seconds and megabytes, in the order of the rows."""
    found = sorted(results.records, key=lambda each: each["rows"])
    seconds = [each["seconds"] for each in found]
    return [each["rows"] for each in found], seconds, [each["megabytes"] or 0.0 for each in found]


def fitted_line(results: Results) -> tuple[float, float] | None:
    """Return exponent and factor of `seconds = factor · N^exponent`, for 10⁵ rows and more."""
    rows, seconds, _ = points(results)
    large = [(n, s) for n, s in zip(rows, seconds, strict=True) if n >= FITTED_FROM]
    if len(large) < 2:
        return None
    exponent, constant = np.polyfit(*np.log(large).T, 1)
    return float(exponent), float(np.exp(constant))


def show(results: Results) -> None:
    s = results.settings
    heading = f"One value and gradient, D = {s['inputs']}, M = {s['size']}, float64"
    table = new_table(heading, "N", "seconds", "ns for a row", "MB beyond the data")
    for count, seconds, megabytes in zip(*points(results), strict=True):
        numbers = (f"{seconds:.4g}", f"{1e9 * seconds / count:,.0f}", f"{megabytes:.1f}")
        table.add_row(f"{count:,}", *numbers)
    console.print(table)
    found = fitted_line(results)
    if found:
        console.print(f"seconds grow as N^{found[0]:.3f} from {FITTED_FROM:,} rows on")


def draw(results: Results) -> None:
    rows, seconds, megabytes = points(results)
    figure, panels = new_figure(1, 2, 8.4, 3.6)
    left, right = panels[0]
    left.plot(rows, seconds, label="measured", **(line(OURS) | {"linestyle": "none"}))
    found = fitted_line(results)
    if found:
        ends = np.array([max(FITTED_FROM, rows[0]), rows[-1]])
        fit = line("floor") | {"marker": ""}
        left.plot(ends, found[1] * ends ** found[0], label=f"$N^{{{found[0]:.3f}}}$", **fit)
    left.set(yscale="log", ylabel="seconds of one value and gradient")
    left.legend()
    right.plot(rows, megabytes, **line(OURS))
    right.set(ylim=(0, 1.2 * max(*megabytes, 1.0)), ylabel="peak memory beyond the data, MB")
    for axes in (left, right):
        axes.set(xscale="log", xlabel="rows N")
    left.set_title(f"D = {results.settings['inputs']}, M = {results.settings['size']}, float64")
    save(figure, results.picture)
