"""Plots of fitted models, drawn by Matplotlib.

Each function takes a fitted model and returns the axes that it drew on; `ax` gives the axes to draw
on, and None makes a new figure. Colour-blind readers can tell the colours apart, and line styles,
markers and lightness distinguish curves in grey. Matplotlib is imported on first use.
"""

from eigengp.plot.classes import confusion_matrix, decision_regions
from eigengp.plot.effects import inducing_points, partial_dependence, relevance, slices
from eigengp.plot.functions import eigenfunctions, prediction
from eigengp.plot.quality import calibration, convergence

__all__ = [
    "calibration",
    "confusion_matrix",
    "convergence",
    "decision_regions",
    "eigenfunctions",
    "inducing_points",
    "partial_dependence",
    "prediction",
    "relevance",
    "slices",
]
