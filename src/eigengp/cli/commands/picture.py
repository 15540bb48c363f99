"""The picture of `compare`: how large the errors of each method are, fold by fold."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from eigengp._atomic import in_one_piece

_PANELS = {
    "nmse": "NMSE: squared error\n(1 is that of the mean)",
    "mnlp": "MNLP: means and error bars\n(less is better)",
}
_COLORS = {"mean": "0.55", "linear": "0.55", "boosting": "0.55"}
_COLOR = "#0072B2"


def check_drawing() -> None:
    """Raise if Matplotlib is not here: better known before the work than after it."""
    try:
        import_module("matplotlib")
    except ImportError as error:
        raise ImportError(
            f'A picture needs Matplotlib: pip install "eigengp[plot]" ({error}).'
        ) from error


def draw_scores(found: list[dict[str, Any]], path: Path) -> None:
    """Draw the scores of all methods that did not fail, a dot for each fold, the mean a bar.

    Parameters
    ----------
    found : list of dict
        From `cross_validated`; the first is on top.
    path : Path
        The picture: PNG, SVG or PDF. It appears when it is whole.
    """
    from matplotlib.figure import Figure

    from eigengp.plot import palette

    shown = [each for each in found if "error" not in each]
    if not shown:
        raise ValueError("No method could be fitted, so there is nothing to draw.")
    # The salt makes the same scores the same SVG file.
    with palette.style(**{"svg.hashsalt": "eigengp"}):
        figure = Figure(figsize=(7.0, 1.1 + 0.28 * len(shown)), layout="constrained")
        panels = figure.subplots(1, len(_PANELS))
        for panel, (score, title) in zip(panels, _PANELS.items(), strict=True):
            _draw(panel, shown, score, title)
        panels[0].set_xscale("log")
        panels[1].set_yticklabels([])
        with in_one_piece(path) as scratch:
            figure.savefig(scratch, dpi=150)


def _draw(panel: Any, shown: list[dict[str, Any]], score: str, title: str) -> None:
    heights = range(len(shown))
    for height, each in zip(heights, shown, strict=True):
        color, values = _COLORS.get(each["name"], _COLOR), each[score]
        panel.plot(values, [height] * len(values), "o", color=color, alpha=0.35, ms=4, mew=0)
        panel.plot([sum(values) / len(values)], [height], "|", color=color, ms=13, mew=2.5)
    panel.set_yticks(list(heights), [each["name"] for each in shown])
    panel.invert_yaxis()
    panel.set_title(title)
    panel.grid(axis="x", color="0.92")
    panel.set_axisbelow(True)
