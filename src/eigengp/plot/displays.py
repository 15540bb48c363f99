"""Displays in the manner of scikit-learn: the numbers of a plot, and how to draw them.

`from_estimator` computes the numbers and draws them; `plot` draws them again. Axes are in `ax_`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike

from eigengp import inspection
from eigengp._typing import Array
from eigengp.conformal import normal_half_width
from eigengp.estimators.base import GPRegressor
from eigengp.inspection import Effect, Predictions, leading_inputs, plain_rows
from eigengp.metrics import pit_histogram
from eigengp.plot.marks import draw_band, draw_mean, draw_rug, panels
from eigengp.plot.palette import DATA_COLOR, MODEL_COLOR, REFERENCE_COLOR

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PredictionKind = Literal["actual_vs_predicted", "residual_vs_predicted", "calibration"]
EffectKind = Literal["partial_dependence", "accumulated", "slice"]
_BINS, _CHANCE = 10, 0.9
_MOST_PANELS = 6
_MOST_BARS = 300  # Interval bars are drawn for at most so many rows.


@dataclass
class PredictionDisplay:
    """Predictions of rows whose targets are known: errors, intervals and calibration.

    Parameters
    ----------
    predictions : Predictions
        Targets, predictions and intervals, from `eigengp.inspection.predict_rows`.

    Attributes
    ----------
    ax_ : Axes, or array of two Axes for "calibration"
        Where `plot` has drawn.

    Examples
    --------
    >>> import numpy as np, matplotlib
    >>> matplotlib.use("agg")
    >>> from eigengp import EigenGPRegressor
    >>> from eigengp.plot import PredictionDisplay
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> model = EigenGPRegressor(8, random_state=0).fit(X[::2], y[::2])
    >>> display = PredictionDisplay.from_estimator(model, X[1::2], y[1::2])
    >>> display.ax_.get_xlabel()
    'predicted'
    """

    predictions: Predictions

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        kind: PredictionKind = "actual_vs_predicted",
        coverage: float = 0.9,
        ax: Any = None,
    ) -> Self:
        """Predict held-out rows and draw the result.

        Parameters
        ----------
        estimator : regressor
            A fitted model whose `predict` takes `return_std=True`, of this library or another. Its
            intervals are those of `predict_interval` if it has this method, so that the intervals
            after `calibrate` are conformal; otherwise they are those of a normal distribution.
        X, y : arrays of shapes (n, D) and (n,)
            Rows that neither `fit` nor `calibrate` has seen.
        kind, ax
            See `plot`.
        coverage : float
            The coverage of the prediction intervals.

        Returns
        -------
        display : PredictionDisplay
            The numbers and the axes.
        """
        return cls(inspection.predict_rows(estimator, X, y, coverage)).plot(kind=kind, ax=ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        y_std: ArrayLike,
        *,
        kind: PredictionKind = "actual_vs_predicted",
        coverage: float = 0.9,
        ax: Any = None,
    ) -> Self:
        """Draw given predictions, with intervals of a normal distribution.

        Parameters
        ----------
        y_true, y_pred, y_std : arrays of shape (n,)
            Targets, predictive means, and standard deviations with the noise included.
        kind, ax
            See `plot`.
        coverage : float
            The coverage of the prediction intervals.

        Returns
        -------
        display : PredictionDisplay
            The numbers and the axes.
        """
        found = Predictions.of_normal(y_true, y_pred, y_std, coverage)
        return cls(found).plot(kind=kind, ax=ax)

    def plot(self, *, kind: PredictionKind = "actual_vs_predicted", ax: Any = None) -> Self:
        """Draw the predictions.

        Parameters
        ----------
        kind : str
            "actual_vs_predicted": targets against predictions. "residual_vs_predicted": their
            difference. In both, bars are prediction intervals, of 300 rows at most; targets
            outside their intervals are black. "calibration": at the left, the fraction of targets
            inside central intervals against the probability of these; below the diagonal,
            intervals are too narrow. At the right, the histogram of the probability integral
            transform, flat if predictions are calibrated. Grey bands contain 90 % of the values
            that calibrated predictions give for so many rows.
        ax : Axes, array of two Axes for "calibration", or None
            Where to draw; None makes a new figure.

        Returns
        -------
        display : PredictionDisplay
            This display, with `ax_`.
        """
        _check_kind(kind, get_args(PredictionKind))
        calibration = kind == "calibration"
        with panels(ax, 2 if calibration else 1) as several:
            if calibration:
                _draw_calibration(several, self.predictions)
            else:
                _draw_errors(several[0], self.predictions, kind == "residual_vs_predicted")
        self.ax_ = several if calibration else several[0]
        return self


@dataclass
class EffectDisplay:
    """How predictions change with each input.

    Parameters
    ----------
    effects : list of Effect
        One for each input, from `eigengp.inspection`.
    rows : array of shape (n, D)
        Rows whose values are marked along the edge.
    kind : str
        See `from_estimator`.
    coverage : float
        The coverage of the bands.
    reference : array of shape (D,) or None
        The values at which the other inputs are held, for "slice".

    Attributes
    ----------
    ax_ : array of Axes
        Where `plot` has drawn, one for each input.
    """

    effects: list[Effect]
    rows: Array
    kind: EffectKind
    coverage: float
    reference: Array | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: GPRegressor,
        X: ArrayLike,
        features: Sequence[int | str] | None = None,
        *,
        kind: EffectKind = "partial_dependence",
        reference: ArrayLike | None = None,
        coverage: float = 0.9,
        max_rows: int = 500,
        ax: Any = None,
    ) -> Self:
        """Compute the effects of inputs and draw them.

        Parameters
        ----------
        estimator : GPRegressor
            A fitted model.
        X : array of shape (n, D)
            Rows to average over, which also give the range of each input.
        features : list of int or str, or None
            The inputs; None is the six with the largest effects.
        kind : str
            "partial_dependence": the average prediction with the input set to the same value in
            all rows. If inputs are correlated, this average includes rows unlike any in the data.
            "accumulated": accumulated local effects, which move each row only to the ends of a
            narrow bin around its own value, and so stay among the data. "slice": the prediction
            with the other inputs held at a reference row, with prediction intervals.
        reference : array of shape (D,) or None
            The reference row of "slice", drawn as a dotted line; None is the median of each input.
        coverage : float
            The coverage of the bands: credible intervals of averages, or prediction intervals for
            "slice".
        max_rows : int
            The largest number of rows to average over.
        ax : array of Axes or None
            Where to draw, one for each input; None makes a new figure.

        Returns
        -------
        display : EffectDisplay
            The numbers and the axes.
        """
        rows = plain_rows(estimator, X)
        chosen = leading_inputs(estimator, _MOST_PANELS) if features is None else features
        held = np.median(rows, axis=0) if reference is None else np.ravel(np.asarray(reference))
        _check_kind(kind, get_args(EffectKind))
        compute: Any = partial(inspection.slice_at, reference=held)
        if kind != "slice":
            averages = inspection.partial_dependence, inspection.accumulated_effects
            compute = partial(averages[kind == "accumulated"], max_rows=max_rows)
        effects = [compute(estimator, rows, feature, coverage=coverage) for feature in chosen]
        return cls(effects, rows, kind, coverage, held if kind == "slice" else None).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw one panel for each input, with a common vertical axis.

        Parameters
        ----------
        ax : array of Axes or None
            Where to draw, one for each input; None makes a new figure.

        Returns
        -------
        display : EffectDisplay
            This display, with `ax_`.
        """
        labels = {"accumulated": "accumulated effect", "slice": "prediction"}
        label = labels.get(self.kind, "average prediction")
        band = "of observations" if self.kind == "slice" else "for the average"
        with panels(ax, len(self.effects), sharey=True) as several:
            for axes, effect in zip(several, self.effects, strict=True):
                _draw_effect(axes, effect, label, f"{100 * self.coverage:g} % {band}")
                x, values = effect.grid, self.rows[:, effect.feature]
                draw_rug(axes, values[(values >= x[0]) & (values <= x[-1])])
                if self.reference is not None:
                    line = {"color": "black", "lw": 0.9, "linestyle": ":", "label": "reference"}
                    axes.axvline(self.reference[effect.feature], zorder=1, **line)
                axes.set_xlabel(effect.name)
        self.ax_ = several
        return self


def _check_kind(kind: str, kinds: tuple[str, ...]) -> None:
    if kind not in kinds:
        raise ValueError(f"kind must be one of {', '.join(map(repr, kinds))}, got {kind!r}.")


def _draw_errors(axes: Axes, found: Predictions, residuals: bool) -> None:
    """Draw targets or residuals against predictions; bars are intervals, of some rows.

    Points are black if the target is outside its interval.
    """
    mean, inside = found.y_pred, found.inside
    y, low, high = np.array([found.y_true, found.lower, found.upper]) - residuals * mean
    rows = np.unique(np.linspace(0, y.size - 1, min(y.size, _MOST_BARS)).astype(int))
    bars: dict[str, Any] = {"colors": MODEL_COLOR, "alpha": 0.3, "lw": 1.2, "zorder": 1}
    bars["label"] = f"{100 * found.level:g} % interval"
    axes.vlines(mean[rows], low[rows], high[rows], **bars)
    for own, color, name in ((inside, DATA_COLOR, "inside"), (~inside, "black", "outside")):
        point: dict[str, Any] = {"s": 9, "linewidths": 0, "color": color, "zorder": 3}
        axes.scatter(mean[own], y[own], label=f"{name} ({np.mean(own):.0%})", **point)
    line: dict[str, Any] = {"color": REFERENCE_COLOR, "lw": 1.0, "linestyle": "--", "zorder": 4}
    axes.axline((mean[0], 0.0 if residuals else mean[0]), slope=float(not residuals), **line)
    axes.set(xlabel="predicted", ylabel="observed − predicted" if residuals else "observed")


def _draw_calibration(both: Any, found: Predictions) -> None:
    """Draw the coverage curve and the histogram of the probability integral transform."""
    left, right = both
    ideal: dict[str, Any] = {"color": REFERENCE_COLOR, "lw": 1.0, "linestyle": "--"}
    n_rows, p = found.y_true.size, np.linspace(0.0, 1.0, 101)
    off = _find_chance(p, n_rows)
    left.fill_between(p, p - off, p + off, color="0.85", linewidth=0, label="chance")
    left.plot([0, 1], [0, 1], label="calibrated", **ideal)
    curve: dict[str, Any] = {"color": MODEL_COLOR, "marker": "o", "markersize": 4, "lw": 1.5}
    left.plot(*found.coverage_curve, label="model", **curve)
    left.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    left.set(xlabel="probability of the interval", ylabel="fraction of targets inside")
    density, edges = pit_histogram(*found.normal, _BINS)
    half = float(_BINS * _find_chance(np.array(1.0 / _BINS), n_rows))
    right.axhspan(1.0 - half, 1.0 + half, color="0.85", linewidth=0, zorder=0)
    right.axhline(1.0, zorder=3, **ideal)
    bars: dict[str, Any] = {"facecolor": "none", "edgecolor": MODEL_COLOR, "hatch": "////"}
    right.bar(edges[:-1], density, 1.0 / _BINS, align="edge", lw=1.2, **bars)
    right.set(xlim=(0, 1), xlabel="predicted probability below the target", ylabel="density")


def _find_chance(probability: Array, n_rows: int) -> Array:
    """Return the half-width of the 90 % sampling interval of a proportion of so many rows."""
    return normal_half_width(_CHANCE) * np.sqrt(probability * (1.0 - probability) / n_rows)


def _draw_effect(axes: Axes, effect: Effect, label: str, band: str) -> None:
    """Draw a curve with a band, or points with error bars for an input of few values."""
    if effect.grid.size > inspection.MAX_LEVELS:
        draw_band(axes, effect.grid, effect.lower, effect.upper, MODEL_COLOR, band)
        draw_mean(axes, effect.grid, effect.mean, MODEL_COLOR, label)
        return
    widths = np.abs(np.stack([effect.lower, effect.upper]) - effect.mean)
    points: dict[str, Any] = {"fmt": "o", "markersize": 4, "capsize": 4, "color": MODEL_COLOR}
    axes.errorbar(effect.grid, effect.mean, yerr=widths, label=f"{label}, {band}", **points)
    axes.margins(x=0.1)
