"""The look of all pictures: colours, lines and sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MODEL_COLOR = "#0072B2"
SECOND_COLOR = "#D55E00"
DATA_COLOR = "#9A9A9A"
TRUTH_COLOR = "#000000"
REFERENCE_COLOR = "0.35"
LINES: tuple[tuple[str, Any], ...] = (
    ("#0072B2", "-"),
    ("#E69F00", "--"),
    ("#009E73", "-."),
    ("#CC79A7", ":"),
    ("#D55E00", (0, (5, 1, 1, 1, 1, 1))),
)
"""Okabe and Ito's colours, each with dashes of its own."""
MAP = "viridis"
"""Grows lighter all the way, so that it reads in grey."""
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
"""How Matplotlib draws here."""


@contextmanager
def style(**more: Any) -> Iterator[None]:
    """Draw in this look, with more of Matplotlib's settings by name if given."""
    try:
        import matplotlib
    except ImportError:
        raise ImportError(
            'Pictures need Matplotlib; install it with pip install "eigengp[plot]".'
        ) from None
    with matplotlib.rc_context(STYLE | more):
        yield
