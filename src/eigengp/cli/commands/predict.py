"""`eigengp predict`: predictions with prediction intervals for the rows of a table."""

from __future__ import annotations

import sys
from typing import Any

from eigengp._format import make_printable
from eigengp.cli.commands import options
from eigengp.cli.commands.session import Session, command


@command
def predict(
    out: Session,
    model: options.Model,
    data: options.Data,
    path: options.Predictions = None,
    coverage: options.Coverage = 0.9,
    keep: options.Keep = None,
    encoding: options.Encoding = None,
    escape_formulas: options.EscapeFormulas = False,
) -> None:
    """Predict the rows of a table with a model.

    Writes one row for each, in the same order: mean, std (noise included), and lower and upper,
    the ends of the prediction interval of probability --coverage. A classifier writes the most
    probable class, and the probability of each. Further columns of the table are ignored.
    """
    from eigengp.cli.tables import is_large, open_model, read_table
    from eigengp.data.formats import WRITTEN, open_dataset, write_table

    out.check_output_path(path, WRITTEN)
    saved, schema = open_model(model)
    if path is not None and is_large(data) and not keep:
        level = {} if schema.labels else {"coverage": coverage}
        count = saved.model.predict_to_file(open_dataset(data, encoding), path, **level)
    else:
        table = read_table(data, schema.text_columns, encoding, schema.encoder.decimal)
        columns = _make_columns(saved.model, schema, table, coverage, keep or [])
        if escape_formulas:
            columns = {name: _escape_formulas(values) for name, values in columns.items()}
        count = table.num_rows if path is None else write_table(path, [columns])
    summary = {"rows": count, "coverage": coverage}
    if path is not None:
        out.say(f"Predicted {count:,} rows; written to {path}.")
        out.write_result({**summary, "out": str(path)})
    elif out.json:
        out.write_result({**summary, "predictions": columns})
    else:
        _write_csv(columns)


def _make_columns(
    model: Any, schema: Any, table: Any, coverage: float, kept: list[str]
) -> dict[str, Any]:
    """Return kept columns, and mean, deviation and interval, or class and probabilities."""
    from eigengp.data.columns import TableError, check_present, join
    from eigengp.data.frames import encoded_inputs

    check_present(table.column_names, kept)
    if table.num_rows == 0:
        raise TableError("The table has no rows to predict.")
    X = schema.encoder.transform(table)
    with encoded_inputs():
        if schema.labels:
            found = model._make_columns(model.predict_proba(X))
        else:
            ends = *model.predict(X, return_std=True), *model.predict_interval(X, coverage)
            found = dict(zip(("mean", "std", "lower", "upper"), ends, strict=True))
    if clash := found.keys() & kept:
        raise TableError(f"{join(sorted(clash))} cannot be kept: predictions have that name.")
    return {name: table[name].combine_chunks() for name in kept} | found


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
