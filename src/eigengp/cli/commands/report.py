"""`eigengp report`: write one interactive page about a model and the rows of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eigengp.cli.commands import options
from eigengp.cli.commands.session import open_session

Page = Annotated[
    Path, typer.Option("--out", "-o", metavar="PAGE", help="The page to write, .html.")
]
Title = Annotated[
    str | None, typer.Option(help="The title of the page.", show_default="names the target")
]


def report(
    model: options.Model,
    data: options.Data,
    page: Page = Path("report.html"),
    title: Title = None,
    coverage: options.Coverage = 0.9,
    target: options.StoredTarget = None,
    drop: options.Drop = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Write one interactive page about a model and rows with targets.

    It shows the data, the fit, the calibration of the error bars, which inputs matter, slices with
    sliders, eigenfunctions and the course of the fit. It is one file that needs no network.
    """
    options.check_coverage(coverage)
    with open_session(as_json, quiet, debug) as out:
        from eigengp._atomic import write_atomically
        from eigengp.cli.commands.models import SavedModel
        from eigengp.cli.report import Origin, Rows, build

        out.check_output_path(page, [".html"])
        saved = SavedModel.read(model).with_target(target)
        if hasattr(saved.model, "classes_"):
            raise ValueError(
                "A report is about a regression. For a classifier, use eigengp evaluate and "
                "inspect, or draw eigengp.plot.calibration, confusion_matrix and decision_regions."
            )
        table = Rows.from_table(saved.read_table(data, drop, out), saved.schema)
        origin = Origin(
            model_file=model.name,
            data_file=data.name,
            versions=saved.header["versions"],
            ignored=saved.schema.ignored,
            has_schema="schema" in saved.about,
        )
        html = build(saved.model, table, title=title, coverage=coverage, origin=origin)
        write_atomically(page, html.encode())
        out.say(f"Written to {page}: {table.y.size:,} rows of {data}. Open it in a browser.")
        out.write_result({"page": str(page), "rows": int(table.y.size)})
