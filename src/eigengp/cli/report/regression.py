"""What a report says of a regression: predictions, error bars, effects, eigenfunctions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eigengp import inspection, metrics
from eigengp.cli.report import effects, figures
from eigengp.cli.report.rows import Input, Rows, sample_rows

_RESIDUAL_INPUTS = 8
_DRAWN_ROWS = 2_000


def collect(model: Any, rows: Rows, inputs: Sequence[Input], coverage: float) -> dict[str, Any]:
    """Compute what a page about a regression shows; `inputs` are the most important first."""
    found = inspection.predict_rows(model, rows.X, rows.y, coverage)
    predicted, interval = (found.y_pred, found.y_std), (found.lower, found.upper)
    pit, shown = metrics.pit_histogram(*found.normal), sample_rows(rows.y.size, _DRAWN_ROWS)
    density = inspection.measure_log_density(model, rows.X, rows.y)
    dependence = effects.compute_partial_dependence(model, rows, inputs, coverage)
    spectrum = effects.compute_spectrum(model, rows, inputs)
    explorer = effects.compute_slices(model, rows, inputs, coverage)
    drawn = {
        "predicted": figures.draw_predictions(found, shown, rows.target),
        "residuals": figures.draw_residuals(found, shown, rows, inputs[:_RESIDUAL_INPUTS]),
        "coverage": figures.draw_coverage(found),
        "pit": figures.draw_pit(*pit),
        "explorer": figures.draw_slices(explorer, rows.target, "prediction", coverage),
        **figures.draw_partial_dependence(dependence),
    }
    if spectrum is not None:
        drawn["weights"] = figures.draw_weights(spectrum)
        drawn["curves"] = figures.draw_eigenfunctions(spectrum)
    return {
        "template": "report.html",
        "predictions": found,
        "scores": inspection.scores(rows.y, predicted, interval, rows.weight, density),
        "pit": pit,
        "sharpness": metrics.sharpness(found.y_std),
        "shown": shown,
        "effects": dependence,
        "spectrum": spectrum,
        "kinds": [],
        "explorer": explorer,
        "drawn": drawn,
    }
