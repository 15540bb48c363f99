"""One value and gradient of the evidence, beside the BLAS work that cannot be avoided.

The floor is `KᵀK` and `K·P` in float64 through NumPy with all threads. Each library takes turns
with the floor in its own process, and the best of the turns counts for each. Multiples are those of
the fastest floor of all processes: peers may come with a slower BLAS.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from common import synthetic
from drawing import console, legend_above, line, new_figure, new_table, save, title
from peers.asking import OURS, Panel
from record import Record, Results

LIBRARIES = (OURS, "gpflow", "gpytorch", "gpjax")


def run(
    panel: Panel, out: Path, *, rows: int, inputs: int, sizes: Sequence[int], turns: int
) -> None:
    """Measure, print the table and draw the picture."""
    settings = {"rows": rows, "inputs": inputs}
    results = Results(out, "evalcost", settings, ["variant", "size"])
    X, y = synthetic(rows, inputs)
    for library in panel:
        answer = panel.ask(library, "evalcost", {"X": X, "y": y}, sizes=list(sizes), turns=turns)
        results.add(answer, turns=turns)
    show(results)
    draw(results)


def variants(results: Results) -> list[tuple[str, str]]:
    """Return libraries and their variants, ours first."""
    found = dict.fromkeys((each["library"], each["variant"]) for each in results.records)
    return sorted(found, key=lambda key: LIBRARIES.index(key[0]))


def show(results: Results) -> None:
    settings = results.settings
    heading = (
        f"Value and gradient, N = {settings['rows']:,}, D = {settings['inputs']}: "
        "ms (multiple of the floor)"
    )
    columns = variants(results)
    table = new_table(heading, "M", "floor", *(title(*column) for column in columns))
    for size in sorted({record["size"] for record in results.records}):
        least = floor(results, size)
        cells = [_cell(results.of(size=size, library=a, variant=b), least) for a, b in columns]
        table.add_row(str(size), f"{1e3 * least:.1f}", *cells)
    console.print(table)


def floor(results: Results, size: int) -> float:
    """Return the seconds of the fastest floor."""
    return min(each["floor_seconds"] for each in results.of(size=size))


def _cell(records: list[Record], least: float) -> str:
    if not records:
        return "–"
    seconds = records[0]["seconds"]
    return f"{1e3 * seconds:.1f} ({seconds / least:.2f})"


def draw(results: Results) -> None:
    figure, panels = new_figure(1, 1, 6.4, 4.4)
    axes = panels[0, 0]
    order: dict[str, int] = {}
    for library, variant in variants(results):
        own = results.of(library=library, variant=variant)
        points = sorted(
            (each["size"], each["seconds"] / floor(results, each["size"])) for each in own
        )
        index = order[library] = order.get(library, -1) + 1
        axes.plot(*zip(*points, strict=True), label=title(library, variant), **line(library, index))
    axes.axhline(1.0, label="the floor", **(line("floor") | {"marker": ""}))
    sizes = sorted({record["size"] for record in results.records})
    axes.set(xscale="log", yscale="log", xlabel="inducing points M")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_xticks([], minor=True)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylabel("one value and gradient,\nmultiple of the BLAS floor")
    axes.set_title(f"N = {results.settings['rows']:,} rows, D = {results.settings['inputs']}")
    legend_above(figure, [axes], 3)
    save(figure, results.picture)
