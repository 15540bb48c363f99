"""`eigengp evaluate`: measure a model on rows with targets."""

from __future__ import annotations

from typing import Any

from eigengp._format import format_number
from eigengp.cli.commands import options
from eigengp.cli.commands.session import DIM, RIGHT, Session, command

_MEANINGS = {
    "nmse": "squared error; 1 is that of the mean",
    "rmse": "root mean squared error, in the target's unit",
    "mnlp": "mean negative log density; lower is better",
    "crps": "continuous ranked probability score, in the target's unit; lower is better",
    "accuracy": "rows whose most probable class is right",
    "log_loss": "mean negative log probability of the class; lower is better",
    "calibration_error": "mean gap between probability and frequency of the chosen class",
    "coverage": "targets inside their prediction intervals; {level:.0%} expected",
}


@command
def evaluate(
    out: Session,
    model: options.Model,
    data: options.Data,
    coverage: options.Coverage = 0.9,
    target: options.StoredTarget = None,
    encoding: options.Encoding = None,
) -> None:
    """Score a model on rows that it was not fitted to.

    Rows without a target are dropped, and columns that the model does not use are ignored.
    """
    from eigengp.cli.tables import drop_unlabelled, open_model, read_table
    from eigengp.data.columns import TableError

    saved, schema = open_model(model, target)
    whole = read_table(data, schema.text_columns, encoding, schema.encoder.decimal)
    table = drop_unlabelled(whole, schema.target)
    if table.num_rows == 0:
        raise TableError(f"No row of {data} has a target {schema.target!r}.")
    fitted = saved.about.get("data") or {}
    if data.name == fitted.get("file") and table.num_rows == fitted["rows"] + fitted["held_out"]:
        out.note(
            "The model was fitted to a table of this name and size. If these are its rows, the "
            "scores are better than on new rows."
        )
    scores = compute_scores(saved.model, schema.split(table), coverage)
    show_scores(out, scores, coverage, f"{model} on {table.num_rows:,} rows of {data}:")
    known = {"level": coverage, "calibrated": hasattr(saved.model, "conformity_")}
    out.write_result({"rows": table.num_rows, **scores, **known})


def compute_scores(model: Any, rows: Any, level: float) -> dict[str, float | None]:
    """Score a fitted model on rows (X, y, weights), with prediction intervals of this level."""
    from eigengp import inspection

    X, y, weights = rows
    with inspection.plain_inputs():
        if hasattr(model, "classes_"):
            return inspection.class_scores(y, model.predict_proba(X), model.classes_, weights)
        prediction, interval = model.predict(X, return_std=True), model.predict_interval(X, level)
    density = inspection.measure_log_density(model, X, y)
    return inspection.scores(y, prediction, interval, weights, density)


def show_scores(out: Session, scores: dict[str, float | None], level: float, title: str) -> None:
    """Show scores and their meanings as a table."""
    rows = []
    for name, value in scores.items():
        percent = name in ("coverage", "accuracy") and value is not None
        shown = f"{value:.1%}" if percent else format_number(value)
        label = name.upper() if len(name) == 4 else name.replace("_", " ")
        rows.append((label, shown, _MEANINGS[name].format(level=level)))
    out.show({"score": {}, "value": RIGHT, "meaning": DIM}, rows, title)
