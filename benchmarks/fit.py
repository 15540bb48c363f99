"""Test error against seconds, everything included but the import, on four data sets.

Ours: a fit of its own, in a process of its own, for each number of iterations, and the default
call. Peers: one fit each, with the errors along the way where the library has a way to see them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from common import Array, check_known
from drawing import console, legend_above, line, new_figure, new_table, save, title
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter
from peers.asking import OURS, Panel
from record import Record, Results

from realdata import SETS, split

LIBRARIES = (OURS, "gpflow", "gpytorch", "gpjax", "gpboost", "lightgbm", "sklearn")
RIVAL = "gpflow"
BUDGETS = (5, 10, 20, 30, 40, 100)
# Each in a process of its own: a second fit in the same one would find everything warm.
CHOICES: dict[str, list[Record]] = {"gpytorch": [{"optimizer": "Adam"}, {"optimizer": "L-BFGS"}]}
MARKS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100)


def run(
    panel: Panel,
    out: Path,
    *,
    data: Sequence[str],
    size: int,
    rows: int | None,
    iterations: int,
    budgets: Sequence[int],
) -> None:
    """Fit, print the tables and draw the picture."""
    check_known(data, SETS)
    settings = {"size": size, "rows": rows, "seed": 0, "iterations": iterations}
    results = Results(out, "fit", settings, ["data", "variant"])
    for name in data:
        arrays = rows_of(name, rows)
        for library in panel:
            choices = CHOICES.get(library, [{}])
            if library == OURS:
                choices = [{"max_iter": budget} for budget in (*budgets, None)]
            for choice in choices:
                options = {"size": size, "iterations": iterations, "marks": MARKS} | choice
                results.add(panel.ask(library, "fit", arrays, **options), data=name)
    show(results)
    show_headline(results)
    draw(results)


def rows_of(name: str, rows: int | None) -> dict[str, Array]:
    """Return the split with inputs standardised too: a service to those who do not do it."""
    X, y, X_test, y_test = split(name)
    return standardized({"X": X[:rows], "y": y[:rows], "X_test": X_test, "y_test": y_test})


def standardized(arrays: dict[str, Array]) -> dict[str, Array]:
    """Return the arrays with inputs that have mean zero and variance one in the training rows."""
    X = arrays["X"]
    centre, spread = X.mean(axis=0), X.std(axis=0)
    spread = np.where(spread > 0.0, spread, 1.0)
    return arrays | {name: (arrays[name] - centre) / spread for name in ("X", "X_test")}


def finals(results: Results, **fields: str) -> list[Record]:
    """Return the finished fits, ours in the order of their seconds."""
    found = results.of(final=True, **fields)
    return sorted(found, key=lambda each: (LIBRARIES.index(each["library"]), each["seconds"]))


def show(results: Results) -> None:
    heading = f"Finished fits, M = {results.settings['size']} where there are inducing points"
    columns = ("data", "method", "NMSE", "MNLP", "seconds", "of these compiling")
    table = new_table(heading, *columns, words=2)
    for name in _names(results):
        for record in finals(results, data=name):
            compiling = record.get("compile_seconds")
            table.add_row(
                name,
                title(record["library"], record["variant"]),
                _number(record["nmse"], ".4f"),
                _number(record["mnlp"], ".3f"),
                _number(record["seconds"], ".1f"),
                "" if compiling is None else f"{compiling:.1f}",
            )
        table.add_section()
    console.print(table)


def show_headline(results: Results) -> None:
    """Print how long the first of our fits takes that is as good as the rival's last."""
    rival = title(RIVAL)
    table = new_table(
        f"The first of our fits that reaches both NMSE and MNLP of {rival} at its end",
        "data",
        f"{rival}: NMSE / MNLP",
        "iterations",
        "seconds",
        "ours: NMSE / MNLP",
        "fit",
        "seconds",
        "ratio",
    )
    for name in _names(results):
        for theirs in finals(results, data=name, library=RIVAL):
            left = [name, _errors(theirs), str(theirs["iteration"]), f"{theirs['seconds']:.1f}"]
            table.add_row(*left, *_answer(theirs, finals(results, data=name, library=OURS)))
    if table.row_count:
        console.print(table)


def _answer(theirs: Record, ours: list[Record]) -> list[str]:
    first = next((own for own in ours if _reaches(own, theirs)), None)
    if first is None:
        return ["not reached" if ours else "not run", "–", "–", "–"]
    ratio = theirs["seconds"] / first["seconds"]
    return [_errors(first), first["variant"], f"{first['seconds']:.1f}", f"{ratio:.1f}"]


def _reaches(own: Record, theirs: Record) -> bool:
    pairs = [(own[key], theirs[key]) for key in ("nmse", "mnlp")]
    return all(None not in pair and pair[0] <= pair[1] for pair in pairs)


def _errors(record: Record) -> str:
    return f"{_number(record['nmse'], '.4f')} / {_number(record['mnlp'], '.3f')}"


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _names(results: Results) -> list[str]:
    present = {record["data"] for record in results.records}
    return [name for name in SETS if name in present]


def draw(results: Results) -> None:
    names = _names(results)
    figure, panels = new_figure(2, len(names), 3.2 * max(2, len(names)) + 0.6, 6.4)
    for column, name in enumerate(names):
        for row, key in enumerate(("nmse", "mnlp")):
            axes = panels[row, column]
            axes.set(xscale="log", yscale="log" if key == "nmse" else "linear")
            _draw_panel(axes, results.of(data=name), key)
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter(NullFormatter())
        panels[0, column].set_title(name)
        panels[0, column].yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
        panels[0, column].yaxis.set_major_formatter("{x:g}")
        panels[0, column].yaxis.set_minor_formatter(NullFormatter())
        panels[1, column].set_xlabel("seconds, all included")
    panels[0, 0].set_ylabel("test NMSE")
    panels[1, 0].set_ylabel("test MNLP, nats")
    legend_above(figure, list(panels.ravel()), 3 if len(names) < 3 else 5)
    save(figure, results.picture)


def _draw_panel(axes: Axes, records: list[Record], key: str) -> None:
    for library in LIBRARIES:
        own = [each for each in records if each["library"] == library and each[key] is not None]
        for index, (label, points) in enumerate(_lines(library, own).items()):
            points = sorted(points, key=lambda each: each["seconds"])
            x, y = ([each[name] for each in points] for name in ("seconds", key))
            axes.plot(x, y, label=label, **line(library, index))
    seen = [each[key] for each in records if each[key] is not None]
    ends = [each[key] for each in records if each.get("final") and each[key] is not None]
    if ends:
        axes.set_ylim(*_limits(seen, ends, key))


def _limits(seen: list[float], ends: list[float], key: str) -> tuple[float, float]:
    """Return limits that show all finished fits; the first iterations of some lie far off."""
    if key == "nmse":
        return 0.85 * min(seen), 1.1 * min(max(seen), 2.0 * max(ends))
    reach = max(ends) - min(seen) + 0.1
    return min(seen) - 0.05 * reach, min(max(seen) + 0.05 * reach, max(ends) + 0.6 * reach)


def _lines(library: str, records: list[Record]) -> dict[str, list[Record]]:
    """Return what is joined by a line: our fits all, those of a peer by variant."""
    lines: dict[str, list[Record]] = {}
    for record in records:
        variant = record["variant"]
        if library == OURS:
            variant = "default call" if variant == "default" else "by iterations"
        lines.setdefault(title(library, variant), []).append(record)
    return lines
