"""How well a model predicts the rows of a report, and whether its error bars are honest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eigengp import inspection, metrics
from eigengp._typing import Array
from eigengp.cli.report.rows import Rows

_SHOWN_ROWS = 2_000
_PIT_BINS = 10
_NMSE = "squared error beside that of the mean: 0 is perfect, 1 no better"
_NO_NMSE = "not defined: all targets are the same"


@dataclass(frozen=True)
class Score:
    """A number that judges predictions, and how to read it."""

    name: str
    value: float | None
    """None where the rows do not define it."""
    meaning: str


@dataclass(frozen=True)
class Quality:
    """Predictions for all rows, and what they are worth.

    Parameters
    ----------
    targets, mean, std : arrays of shape (n,)
        Observed values, predictions, and their standard deviations with the noise included.
    scores : tuple of Score
        The metrics of `eigengp.metrics`.
    coverage : pair of arrays
        Probabilities, and how often intervals of each held the target.
    pit : pair of arrays
        The density of the probability integral transform, and the edges of its bins.
    sharpness : float
        The root mean square of the standard deviations.
    shown : array
        Which rows are drawn: all, or a random sample of them.
    """

    targets: Array
    mean: Array
    std: Array
    scores: tuple[Score, ...]
    coverage: tuple[Array, Array]
    pit: tuple[Array, Array]
    sharpness: float
    shown: Any

    @classmethod
    def of(cls, model: Any, rows: Rows, coverage: float) -> Quality:
        """Predict all rows and judge the predictions.

        Parameters
        ----------
        model : GPRegressor
            A fitted model.
        rows : Rows
            The rows; their weights count for the scores alone.
        coverage : float
            The probability of the interval whose coverage is among the scores.
        """
        mean, std = (np.asarray(each) for each in model.predict(rows.X, return_std=True))
        return cls(
            rows.y,
            mean,
            std,
            _scores(model, rows, mean, std, coverage),
            metrics.coverage_curve(rows.y, mean, std),
            metrics.pit_histogram(rows.y, mean, std, bins=_PIT_BINS),
            metrics.sharpness(std),
            sampled(rows.y.size, _SHOWN_ROWS),
        )

    @property
    def residuals(self) -> Array:
        """Observed less predicted, shape (n,)."""
        return self.targets - self.mean


def sampled(n: int, count: int) -> Any:
    """Return `count` of `n` rows drawn at random, always the same, in their order; or all."""
    if n <= count:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, count, replace=False))


def _scores(model: Any, rows: Rows, mean: Array, std: Array, coverage: float) -> tuple[Score, ...]:
    percent = f"{100 * coverage:g} %"
    lower, upper = (np.asarray(each) for each in model.predict_interval(rows.X, coverage))
    found = inspection.scores(rows.y, (mean, std), (lower, upper), rows.weight)
    said = {
        "nmse": ("NMSE", _NMSE if found["nmse"] is not None else _NO_NMSE),
        "rmse": ("RMSE", "root mean squared error, in the units of the target"),
        "mnlp": (
            "MNLP",
            "mean negative log predictive density: judges means and error bars; lower is better",
        ),
        "crps": (
            "CRPS",
            "continuous ranked probability score, in the units of the target; lower is better",
        ),
        "coverage": (
            f"Coverage of {percent}",
            f"share of rows in their {percent} interval; {coverage:g} is honest",
        ),
    }
    return tuple(Score(name, found[key], text) for key, (name, text) in said.items())
