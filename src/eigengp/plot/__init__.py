"""Pictures of fitted models, drawn by Matplotlib.

Each function takes a fitted model and returns the axes that it drew on; `ax` says where to draw,
and None makes a figure of its own. Colours can be told apart by colour-blind readers, and line
styles, markers and lightness say the same in grey. Matplotlib is imported when something is drawn.
"""

from eigengp.plot.effects import basis_points, partial_dependence, relevance, slices
from eigengp.plot.functions import eigenfunctions, prediction
from eigengp.plot.quality import calibration, convergence

__all__ = [
    "basis_points",
    "calibration",
    "convergence",
    "eigenfunctions",
    "partial_dependence",
    "prediction",
    "relevance",
    "slices",
]
