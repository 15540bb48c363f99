"""`eigengp evaluate`: how good a model is on rows with targets."""

from __future__ import annotations

from eigengp.cli.commands import options
from eigengp.cli.commands.session import session


def evaluate(
    model: options.Model,
    data: options.Data,
    coverage: options.Coverage = 0.9,
    target: options.OtherTarget = None,
    drop: options.Drop = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Measure how good a model is on rows with targets that it has not seen.

    Rows without a target are left out.
    """
    options.check_coverage(coverage)
    with session(as_json, quiet, debug) as out:
        from eigengp.cli.commands.models import Fitted
        from eigengp.cli.commands.scores import scores, show_scores
        from eigengp.cli.tables import TableError, labelled

        fitted = Fitted.opened(model).with_target(target)
        encoding, table = fitted.encoding, fitted.table(data, drop or [], out)
        rows = labelled(table, encoding.target)
        lost = table.num_rows - rows.num_rows
        if rows.num_rows == 0:
            raise TableError(f"No row of {data} has a target {encoding.target!r}.")
        if lost:
            out.note(f"{lost} of {table.num_rows} rows have no target and are left out.")
        known = encoding.weights in table.column_names
        weights = encoding.sample_weight(rows) if known else None
        found = scores(
            fitted.model, encoding.inputs(rows), encoding.targets(rows), coverage, weights
        )
        show_scores(out, found, coverage, f"{model} on {rows.num_rows:,} rows of {data}:")
        calibrated = hasattr(fitted.model, "conformity_")
        out.result({"rows": rows.num_rows, **found, "level": coverage, "calibrated": calibrated})
