"""`eigengp report`: write one interactive page about a model and the rows of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from eigengp.cli.commands import options
from eigengp.cli.commands.session import Session, command

Page = Annotated[
    Path, typer.Option("--out", "-o", metavar="PAGE", help="The page to write, .html.")
]
Title = Annotated[
    str | None, typer.Option(help="The title of the page.", show_default="names the target")
]


@command
def report(
    out: Session,
    model: options.Model,
    data: options.Data,
    page: Page = Path("report.html"),
    title: Title = None,
    coverage: options.Coverage = 0.9,
    target: options.StoredTarget = None,
    encoding: options.Encoding = None,
) -> None:
    """Write an interactive HTML report about a model and rows with targets.

    It shows the data, the fit, the calibration of the error bars, the importance of the inputs,
    slices with sliders, eigenfunctions and convergence. It is one file that works offline.
    """
    from eigengp.cli.tables import open_model, read_table

    out.check_output_path(page, [".html"])
    saved, schema = open_model(model, target)
    check_reportable("likelihood_" in vars(saved.model) and not schema.labels)
    table = read_table(data, schema.text_columns, encoding, schema.encoder.decimal)
    more: dict[str, Any] = {"title": title, "coverage": coverage}
    count = write_report(out, saved, schema, table, page, (model, data), **more)
    out.write_result({"page": str(page), "rows": count})


def check_reportable(refused: bool) -> None:
    """Raise for a regression with a likelihood other than Gaussian noise."""
    if refused:
        raise ValueError(
            "A report is about classes, or a regression with Gaussian noise. For other models, use "
            "eigengp evaluate and inspect."
        )


def write_report(
    out: Session,
    saved: Any,
    schema: Any,
    table: Any,
    page: Path,
    files: tuple[Path, Path],
    held_out: bool = False,
    **more: Any,
) -> int:
    """Write the page of a model, of the rows of a table and of their files; return their number."""
    from eigengp._atomic import write_atomically
    from eigengp.cli.report import Rows, build

    rows, names = Rows.from_table(table, schema), [each.name for each in files]
    origin: dict[str, Any] = dict(zip(("model_file", "data_file"), names, strict=True))
    origin |= {"versions": saved.header["versions"], "ignored": schema.ignored}
    origin["held_out"] = held_out
    write_atomically(page, build(saved.model, rows, origin=origin, **more).encode())
    out.say(f"Written to {page}: {rows.y.size:,} rows of {files[1]}. Open it in a browser.")
    return int(rows.y.size)
