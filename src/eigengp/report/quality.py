"""How well a model predicts the rows of a report, and whether its error bars are honest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import root_mean_squared_error

from eigengp import calibration, metrics
from eigengp.report.rows import Rows
from eigengp.typing import Array

_SHOWN_ROWS = 2_000
_PIT_BINS = 10


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
            calibration.coverage_curve(rows.y, mean, std),
            calibration.pit_histogram(rows.y, mean, std, bins=_PIT_BINS),
            calibration.sharpness(std),
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
    y, percent = rows.y, f"{100 * coverage:g} %"
    weight: dict[str, Any] = {"sample_weight": rows.weight}
    held = metrics.coverage(y, mean, std, level=coverage, **weight)
    found = [
        _nmse(y, mean, rows.weight),
        Score(
            "RMSE",
            float(root_mean_squared_error(y, mean, **weight)),
            "root mean squared error, in the units of the target",
        ),
        Score(
            "MNLP",
            metrics.mnlp(y, mean, std, **weight),
            "mean negative log predictive density: judges means and error bars; lower is better",
        ),
        Score(
            "CRPS",
            metrics.crps_gaussian(y, mean, std, **weight),
            "continuous ranked probability score, in the units of the target; lower is better",
        ),
        Score(
            f"Coverage of {percent}",
            held,
            f"share of rows in their {percent} interval; {coverage:g} is honest",
        ),
    ]
    if hasattr(model, "conformity_"):
        lower, upper = (np.asarray(each) for each in model.predict_interval(rows.X, coverage))
        inside = (lower <= y) & (y <= upper)
        found.append(
            Score(
                f"Coverage of {percent}, calibrated",
                float(np.average(inside, weights=rows.weight)),
                "the same for the intervals that calibrate() made",
            )
        )
    return tuple(found)


def _nmse(y: Array, mean: Array, weight: Array | None) -> Score:
    """Return the error beside that of the mean of these rows, if they differ."""
    try:
        value = metrics.nmse(y, mean, sample_weight=weight)
    except ValueError:
        return Score("NMSE", None, "not defined: all targets are the same")
    return Score("NMSE", value, "squared error beside that of the mean: 0 is perfect, 1 no better")
