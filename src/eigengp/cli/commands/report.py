"""`eigengp report`: write one interactive page about a model and the rows of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

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
    encoding: options.Encoding = None,
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
        from eigengp.cli.commands.models import SavedModel

        out.check_output_path(page, [".html"])
        saved = SavedModel.read(model).with_target(target)
        check_reportable("likelihood_" in vars(saved.model))
        table, files = saved.read_table(data, drop, out, encoding), (model, data)
        count = write_report(saved, table, page, files, title=title, coverage=coverage)
        out.say(f"Written to {page}: {count:,} rows of {data}. Open it in a browser.")
        out.write_result({"page": str(page), "rows": count})


def check_reportable(refused: bool) -> None:
    """Raise for a classifier, and for a likelihood other than Gaussian noise."""
    if refused:
        raise ValueError(
            "A report is about a regression with Gaussian noise. For other models, use eigengp "
            "evaluate and inspect; eigengp.plot draws class_calibration, confusion_matrix and "
            "decision_regions of classifiers."
        )


def write_report(
    saved: Any, table: Any, page: Path, files: tuple[Path, Path], **options: Any
) -> int:
    """Write the page of a model, of the rows of a table and of their files; return their number."""
    from eigengp._atomic import write_atomically
    from eigengp.cli.report import Origin, Rows, build

    rows = Rows.from_table(table, saved.schema)
    model_file, data_file = files
    origin = Origin(
        model_file=model_file.name,
        data_file=data_file.name,
        versions=saved.header["versions"],
        ignored=saved.schema.ignored,
        has_schema="schema" in saved.about,
    )
    html = build(saved.model, rows, origin=origin, **options)
    write_atomically(page, html.encode())
    return int(rows.y.size)
