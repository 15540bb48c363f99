"""Colours, line styles and sizes of all plots."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

MODEL_COLOR = "#0072B2"
DATA_COLOR = "#9A9A9A"
TRUTH_COLOR = "#000000"
REFERENCE_COLOR = "0.35"
# Okabe and Ito's colours, each with its own dashes.
LINES: tuple[tuple[str, Any], ...] = (
    ("#0072B2", "-"),
    ("#E69F00", "--"),
    ("#009E73", "-."),
    ("#CC79A7", ":"),
    ("#D55E00", (0, (5, 1, 1, 1, 1, 1))),
)
MAP = "viridis"  # Its lightness increases monotonically, so that it is readable in grey.
# Settings of Matplotlib.
STYLE: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.labelsize": 9.5,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "font.size": 9.5,
}


def style(**more: Any) -> AbstractContextManager[None]:
    """Draw with these settings of Matplotlib, and with further ones by name."""
    try:
        import matplotlib
    except ImportError:
        raise ImportError(
            'Plots need Matplotlib; install it with pip install "eigengp[plot]".'
        ) from None
    return matplotlib.rc_context(STYLE | more)
