"""How good a model is on rows with targets."""

from __future__ import annotations

from typing import Any

from eigengp._typing import Array
from eigengp.cli.commands.session import Session, number

MEANINGS = {
    "nmse": "squared error; 1 is that of the mean",
    "rmse": "typical error, in the target's unit",
    "mnlp": "error bars and means together; less is better",
    "crps": "the same, in the target's unit; less is better",
    "coverage": "targets within the intervals, which should hold {level:.0%}",
}


def scores(
    model: Any, X: Array, y: Array, level: float, weights: Array | None = None
) -> dict[str, float | None]:
    """Return `inspection.scores` of a fitted model, for its intervals of this level."""
    from eigengp import inspection

    prediction, interval = model.predict(X, return_std=True), model.predict_interval(X, level)
    return inspection.scores(y, prediction, interval, weights)


def show_scores(out: Session, found: dict[str, float | None], level: float, title: str) -> None:
    """Show scores as a table, with what each means."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("score")
    table.add_column("value", justify="right")
    table.add_column("what it says", style="dim")
    for name, value in found.items():
        shown = f"{value:.1%}" if name == "coverage" and value is not None else number(value)
        label = name if name == "coverage" else name.upper()
        table.add_row(label, shown, MEANINGS[name].format(level=level))
    out.show(table)
