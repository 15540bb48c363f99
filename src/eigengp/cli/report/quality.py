"""How well a model predicts the rows of a report, and whether they are its training rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eigengp import inspection, metrics
from eigengp._typing import Array
from eigengp.cli.report.rows import Rows, sample_rows
from eigengp.data.array_source import ArraySource
from eigengp.data.standardize import Scaling, Summary
from eigengp.gp.blocks import RowBlock
from eigengp.inspection import Predictions

_DRAWN_ROWS = 2_000
_PIT_BINS = 10
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Quality:
    """Predictions for all rows, and their scores.

    Parameters
    ----------
    predictions : Predictions
        Targets, predictions and intervals.
    scores : dict
        From `inspection.scores`; NMSE is None if all targets are equal.
    pit : pair of arrays
        The density of the probability integral transform, and the edges of its bins.
    sharpness : float
        The root mean square of the standard deviations.
    drawn : array
        Indices of the rows that are drawn: all, or a random sample.
    """

    predictions: Predictions
    scores: dict[str, float | None]
    pit: tuple[Array, Array]
    sharpness: float
    drawn: Any

    @classmethod
    def measure(cls, model: Any, rows: Rows, coverage: float) -> Quality:
        """Predict and score all rows.

        Parameters
        ----------
        model : GPRegressor
            A fitted model.
        rows : Rows
            The rows; their weights are used for the scores only.
        coverage : float
            The probability of the prediction interval whose coverage is among the scores.
        """
        found = inspection.predict_rows(model, rows.X, rows.y, coverage)
        prediction = found.y_pred, found.y_std
        return cls(
            found,
            inspection.scores(rows.y, prediction, (found.lower, found.upper), rows.weight),
            metrics.pit_histogram(rows.y, *prediction, bins=_PIT_BINS),
            metrics.sharpness(found.y_std),
            sample_rows(rows.y.size, _DRAWN_ROWS),
        )


def are_training_rows(model: Any, rows: Rows) -> bool:
    """Return whether rows have the centres and scales that a model was fitted with."""
    kept = model._scaling
    source = ArraySource.of(RowBlock(rows.X, rows.y, rows.weight), rows.X.shape[1])
    encoder = getattr(model, "encoder_", None)
    groups = None if encoder is None else encoder.lengthscale_groups_
    own = Scaling.measure(source, source.total(Summary.of), model.standardize, groups=groups)
    apart = [np.abs(own.input_centre - kept.input_centre) / kept.input_scale]
    apart.append(np.abs(own.input_scale / kept.input_scale - 1.0))
    if kept.mean is None and kept.target_centre != 0.0:  # Else targets are less their mean.
        apart.append(np.abs(own.target_centre - kept.target_centre) / kept.target_scale)
        apart.append(np.abs(own.target_scale / kept.target_scale - 1.0))
    return bool(max(np.max(each) for each in apart) < _TOLERANCE)
