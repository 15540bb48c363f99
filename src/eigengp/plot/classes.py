"""Plots of classifiers: decision regions, calibration of probabilities, confusion matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import ConfusionMatrixDisplay

from eigengp.estimators.classifier import EigenGPClassifier
from eigengp.inspection import feature_names, plain_inputs, plain_rows
from eigengp.plot.functions import make_mesh
from eigengp.plot.marks import draw_calibration, draw_histogram, find_chance, panels
from eigengp.plot.palette import LINES, MAP

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIDE, _MARGIN, _BINS = 150, 0.1, 10
_MARKERS = "os^Dv"


def decision_regions(
    model: EigenGPClassifier, X: ArrayLike, y: ArrayLike | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draw where each class is the most probable one, for two inputs.

    The shade is the probability of the most probable class, and lines are where it changes. With
    two classes, the shade is the probability of the second, with lines at 0.1, 0.5 and 0.9.

    Parameters
    ----------
    model : EigenGPClassifier
        A fitted classifier of two inputs.
    X : array of shape (n, 2)
        Rows that set the range.
    y : array of shape (n,) or None
        Their labels, which are drawn.
    ax : Axes or None
        Where to draw.

    Returns
    -------
    ax : Axes
        The axes drawn on.
    """
    rows, names = plain_rows(model, X), feature_names(model)
    if len(names) != 2:
        raise ValueError(f"decision_regions draws two inputs, but the model has {len(names)}.")
    sides, mesh = make_mesh(model, rows, _SIDE, _MARGIN)
    with plain_inputs():
        p = model.predict_proba(mesh)
    two = p.shape[1] == 2
    shown = (p[:, 1] if two else p.max(axis=1)).reshape(_SIDE, _SIDE)
    with panels(ax, height=3.6) as (axes,):
        limits = {"vmin": 0.0 if two else 1.0 / p.shape[1], "vmax": 1.0}
        image = axes.pcolormesh(*sides, shown, cmap=MAP, alpha=0.6, rasterized=True, **limits)
        label = f"probability of {model.classes_[1]}" if two else "probability of the likeliest"
        axes.figure.colorbar(image, ax=axes, pad=0.02, label=label)
        if two:
            axes.contour(*sides, shown, [0.1, 0.5, 0.9], colors="0.2", linewidths=(0.7, 1.5, 0.7))
        else:
            best = p.argmax(axis=1).reshape(_SIDE, _SIDE)
            for c in range(p.shape[1]):
                axes.contour(*sides, best == c, [0.5], colors="0.2", linewidths=1.2)
        for c, label in enumerate(model.classes_.tolist() if y is not None else ()):
            own = rows[np.asarray(y) == label]
            mark: dict[str, Any] = {"marker": _MARKERS[c % len(_MARKERS)], "edgecolors": "white"}
            axes.scatter(*own.T, s=20, color=LINES[c % len(LINES)][0], label=str(label), **mark)
        axes.set(xlabel=names[0], ylabel=names[1])
    return axes


def confusion_matrix(
    model: EigenGPClassifier, X: ArrayLike, y: ArrayLike, *, ax: Axes | None = None
) -> Axes:
    """Draw how many rows of each class are predicted as each class.

    Parameters
    ----------
    model : EigenGPClassifier
        A fitted classifier.
    X, y : arrays of shapes (n, D) and (n,)
        Held-out rows.
    ax : Axes or None
        Where to draw.

    Returns
    -------
    ax : Axes
        The axes drawn on.
    """
    rows = plain_rows(model, X)
    with panels(ax, height=3.6) as (axes,), plain_inputs():
        looks: dict[str, Any] = {"cmap": "Blues", "colorbar": False, "ax": axes}
        ConfusionMatrixDisplay.from_predictions(
            np.asarray(y), model.predict(rows), labels=model.classes_, **looks
        )
    return axes


def class_calibration(
    model: EigenGPClassifier, X: ArrayLike, y: ArrayLike, *, ax: Any = None
) -> Any:
    """Draw frequency against probability of a class at the left, and a histogram at the right.

    With two classes it is the second class; with more, the most probable one of each row. Grey
    bars contain 90 % of the frequencies that calibrated probabilities give for so many rows.

    Parameters
    ----------
    model : EigenGPClassifier
        A fitted classifier.
    X, y : arrays of shapes (n, D) and (n,)
        Held-out rows.
    ax : array of two Axes or None
        Where to draw.

    Returns
    -------
    ax : array of two Axes
        The axes drawn on.
    """
    rows, labels = plain_rows(model, X), np.asarray(y)
    with plain_inputs():
        p = model.predict_proba(rows)
    two = p.shape[1] == 2
    chosen = p[:, 1] if two else p.max(axis=1)
    hit = labels == (model.classes_[1] if two else model.classes_[p.argmax(axis=1)])
    bins = np.minimum((_BINS * chosen).astype(int), _BINS - 1)
    count = np.bincount(bins, minlength=_BINS)
    full = count > 0
    mean = np.bincount(bins, chosen, _BINS)[full] / count[full]
    share = np.bincount(bins, hit.astype(float), _BINS)[full] / count[full]
    with panels(ax, 2) as (left, right):
        off = find_chance(mean, count[full])
        left.errorbar(mean, mean, off, fmt="none", ecolor="0.75", lw=5, label="chance")
        draw_calibration(left, mean, share)
        what = f"class {model.classes_[1]}" if two else "the likeliest class"
        left.set(xlabel=f"predicted probability of {what}", ylabel="observed share")
        draw_histogram(right, count)
        right.set(xlabel="predicted probability", ylabel="rows")
    return np.array([left, right])
