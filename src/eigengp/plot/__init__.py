"""Plots of fitted models, drawn by Matplotlib.

Displays follow scikit-learn's pattern: `PredictionDisplay.from_estimator(model, X, y)`. Functions
take a fitted model and return the axes that they drew on. `ax` gives the axes to draw on, and None
makes a new figure. Colour-blind readers can tell the colours apart, and line styles, markers and
lightness distinguish curves in grey. Matplotlib is imported on first use.
"""

from eigengp.plot.displays import EffectDisplay, PredictionDisplay
from eigengp.plot.effects import convergence, inducing_points, relevance
from eigengp.plot.functions import eigenfunctions, prediction

__all__ = [
    "EffectDisplay",
    "PredictionDisplay",
    "convergence",
    "eigenfunctions",
    "inducing_points",
    "prediction",
    "relevance",
]
