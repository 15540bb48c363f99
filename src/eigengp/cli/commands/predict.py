"""`eigengp predict`: predictions with prediction intervals for the rows of a table."""

from __future__ import annotations

import sys
from typing import Any

from eigengp._format import make_printable
from eigengp.cli.commands import options
from eigengp.cli.commands.session import open_session


def predict(
    model: options.Model,
    data: options.Data,
    path: options.Predictions = None,
    coverage: options.Coverage = 0.9,
    keep: options.Keep = None,
    drop: options.Drop = None,
    encoding: options.Encoding = None,
    escape_formulas: options.EscapeFormulas = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Predict the rows of a table with a model.

    Writes one row for each, in the same order: mean, std (noise included), and lower and upper,
    the ends of the prediction interval of probability --coverage. A classifier writes the most
    probable class, and the probability of each.
    """
    options.check_coverage(coverage)
    with open_session(as_json, quiet, debug) as out:
        from eigengp.cli.commands.models import SavedModel
        from eigengp.cli.tables import is_large
        from eigengp.data.columns import TableError, check_present, join
        from eigengp.data.formats import FORMATS, open_dataset, write_table

        if path is not None:
            out.check_output_path(path, [each for each in FORMATS if each != ".tsv"])
        saved, kept = SavedModel.read(model), keep or []
        if path is not None and is_large(data) and not (kept or drop):
            level = {} if saved.schema.labels else {"coverage": coverage}
            count = saved.model.predict_to_file(open_dataset(data, encoding), path, **level)
            out.say(f"Predicted {count:,} rows; written to {path}.")
            out.write_result({"rows": count, "coverage": coverage, "out": str(path)})
            return
        table = saved.read_table(data, drop, out, encoding)
        check_present(table, kept)
        inputs = table.drop_columns([name for name in kept if name not in saved.schema.names])
        predicted = _predict_columns(saved, inputs, coverage)
        if clash := predicted.keys() & kept:
            raise TableError(f"{join(sorted(clash))} cannot be kept: predictions have that name.")
        columns = {name: table[name].combine_chunks() for name in kept} | predicted
        if escape_formulas:
            columns = {name: _escape_formulas(values) for name, values in columns.items()}
        summary = {"rows": table.num_rows, "coverage": coverage}
        if path is not None:
            write_table(path, [columns])
            out.say(f"Predicted {table.num_rows:,} rows; written to {path}.")
            out.write_result({**summary, "out": str(path)})
        elif as_json:
            out.write_result({**summary, "predictions": columns})
        else:
            _write_csv(columns)


def _predict_columns(saved: Any, table: Any, coverage: float) -> dict[str, Any]:
    """Return mean, standard deviation and the ends of the prediction interval of each row."""
    from eigengp.data.columns import TableError
    from eigengp.data.frames import encoded_inputs

    if table.num_rows == 0:
        raise TableError("The table has no rows to predict.")
    X = saved.schema.encode(table)
    with encoded_inputs():
        if hasattr(saved.model, "classes_"):
            columns: dict[str, Any] = saved.model._make_columns(saved.model.predict_proba(X))
            return columns
        mean, std = saved.model.predict(X, return_std=True)
        lower, upper = saved.model.predict_interval(X, coverage)
    return {"mean": mean, "std": std, "lower": lower, "upper": upper}


def _write_csv(columns: dict[str, Any]) -> None:
    """Write columns to standard output."""
    from io import BytesIO

    from eigengp.data.formats import import_arrow

    pa, buffer = import_arrow(), BytesIO()
    pa.csv.write_csv(pa.table(columns), buffer)
    text = buffer.getvalue().decode()
    sys.stdout.write(make_printable(text) if sys.stdout.isatty() else text)


def _escape_formulas(values: Any) -> Any:
    """Return text with an apostrophe before what a spreadsheet would take for a formula."""
    from eigengp.data.columns import get_kind, to_text
    from eigengp.data.formats import import_arrow

    if not hasattr(values, "type") or get_kind(values.type) != "category":
        return values
    pa = import_arrow()
    return pa.compute.replace_substring_regex(to_text(values), r"^([=+\-@\t\r])", r"'\1")
