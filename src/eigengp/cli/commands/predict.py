"""`eigengp predict`: predictions with error bars for the rows of a table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from eigengp.cli.commands import options
from eigengp.cli.commands.session import session


def predict(
    model: options.Model,
    data: options.Data,
    path: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="What to write: Parquet, Arrow or CSV, by its ending.",
            show_default="CSV to standard output",
        ),
    ] = None,
    coverage: options.Coverage = 0.9,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep",
            metavar="COLUMN",
            help="Copy a column, such as an identifier, beside the predictions; may be repeated.",
        ),
    ] = None,
    drop: options.Drop = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Predict the rows of a table with a model.

    Writes one row for each, in their order: mean, std (the noise included), and lower and upper,
    between which a new observation lies with the probability of --coverage.
    """
    options.check_coverage(coverage)
    with session(as_json, quiet, debug) as out:
        from eigengp.cli.commands.models import Fitted
        from eigengp.cli.commands.places import check_place
        from eigengp.cli.tables import TableError
        from eigengp.data.formats import FORMATS, write_table

        if path is not None:
            check_place(path, [each for each in FORMATS if each != ".tsv"], out)
        fitted, kept = Fitted.opened(model), keep or []
        table = fitted.table(data, drop or [], out)
        absent = [name for name in kept if name not in table.column_names]
        if absent:
            raise TableError(f"There is no column {', '.join(absent)} to keep in {data}.")
        known = fitted.encoding.known_columns
        inputs = table.drop_columns([name for name in kept if name not in known])
        columns = {name: table[name].combine_chunks() for name in kept}
        columns.update(predicted(fitted, inputs, coverage))
        if path is not None:
            write_table(path, [columns])
            out.say(f"Predicted {table.num_rows:,} rows; written to {path}.")
            out.result({"rows": table.num_rows, "out": str(path), "coverage": coverage})
        elif as_json:
            plain = {name: values.tolist() for name, values in columns.items()}
            out.result({"rows": table.num_rows, "coverage": coverage, "predictions": plain})
        else:
            write_csv(columns)


def predicted(fitted: Any, table: Any, coverage: float) -> dict[str, Any]:
    """Return mean, standard deviation and the ends of the interval for each row."""
    from eigengp.cli.tables import TableError

    if table.num_rows == 0:
        raise TableError("The table has no rows to predict.")
    X = fitted.encoding.inputs(table)
    mean, std = fitted.model.predict(X, return_std=True)
    lower, upper = fitted.model.predict_interval(X, coverage)
    return {"mean": mean, "std": std, "lower": lower, "upper": upper}


def write_csv(columns: dict[str, Any]) -> None:
    """Write columns to standard output."""
    from io import BytesIO

    from eigengp.data.formats import arrow

    pa, buffer = arrow(), BytesIO()
    pa.csv.write_csv(pa.table(columns), buffer)
    sys.stdout.write(buffer.getvalue().decode())
