"""`eigengp report`: a model and the rows of a table as one interactive page."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from eigengp.cli.commands import options
from eigengp.cli.commands.session import session


class Told(StrEnum):
    """What a user may say of rows."""

    TRAINING = "training"
    NEW = "new"


def report(
    model: options.Model,
    data: options.Data,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="PAGE", help="The page to write, .html.")
    ] = Path("report.html"),
    rows: Annotated[
        Told | None,
        typer.Option(
            help="Whether the model was learned from these rows.",
            show_default="compared with what the model remembers",
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="The heading of the page.", show_default="made of the target")
    ] = None,
    coverage: options.Coverage = 0.9,
    target: options.OtherTarget = None,
    drop: options.Drop = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Write one interactive page about a model and rows with targets.

    It shows the data, the fit, whether error bars are honest, which inputs matter, slices with
    sliders, eigenfunctions and the course of the fit, needs no network, and can be sent to others.
    """
    options.check_coverage(coverage)
    with session(as_json, quiet, debug) as said:
        from eigengp._atomic import write_whole
        from eigengp.cli.commands.models import Fitted
        from eigengp.cli.commands.places import check_place
        from eigengp.cli.report import Origin, Rows, build_from_rows

        check_place(out, [".html"], said)
        fitted = Fitted.opened(model).with_target(target)
        table = fitted.table(data, drop or [], said)
        found = Rows.of_table(table, fitted.encoding)
        lost = table.num_rows - found.y.size
        if lost:
            said.note(f"{lost} of {table.num_rows} rows have no target and are left out.")
        origin = Origin(
            model_file=model.name,
            data_file=data.name,
            made_with=fitted.header["versions"],
            learned_from=fitted.about.get("data", {}),
            ignored=fitted.encoding.ignored,
            encoded="encoding" in fitted.about,
        )
        told: Any = None if rows is None else rows.value
        page = build_from_rows(
            fitted.model, found, title=title, said=told, coverage=coverage, origin=origin
        )
        write_whole(out, page.encode())
        said.say(f"Written to {out}: {found.y.size:,} rows of {data}. Open it in a browser.")
        said.result({"page": str(out), "rows": int(found.y.size)})
