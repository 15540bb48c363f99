"""The page: one HTML file that holds its figures, its styles and its scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eigengp._format import number
from eigengp.cli.report import figures
from eigengp.cli.report.content import Content
from eigengp.cli.report.influence import AverageEffect
from eigengp.cli.report.traces import Figure

_NEEDED = 'The report needs more: pip install "eigengp[report]" ({}).'
_RESIDUAL_INPUTS = 8


def rendered(content: Content, title: str | None) -> str:
    """Return the page.

    Parameters
    ----------
    content : Content
        What to show.
    title : str or None
        The heading; None makes one of the target's name.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError(_NEEDED.format(error)) from error
    environment = Environment(
        loader=PackageLoader("eigengp.cli.report"),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.filters["number"] = number
    template = environment.get_template("report.html")
    return template.render(
        content=content,
        title=title or f"How well is {content.rows.target} predicted?",
        percent=f"{100 * content.coverage:g}\N{NO-BREAK SPACE}%",
        drawn=drawn(content),
        effects=[_in_words(effect) for effect in content.effects],
        # A script ends where its text says so, whatever the string it stands in.
        plotly=get_plotlyjs().replace("</script", "<\\/script"),
    )


def drawn(content: Content) -> dict[str, Any]:
    """Return all figures by their names."""
    target, quality = content.rows.target, content.quality
    percent = f"{100 * content.coverage:g} %"
    found: dict[str, Any] = {
        "predicted": figures.predicted_against_observed(quality, target),
        "residuals": figures.residuals(quality, content.rows, content.ranking[:_RESIDUAL_INPUTS]),
        "coverage": figures.coverage_curve(quality),
        "pit": figures.pit_histogram(quality),
        "importance": figures.importance_bars(content.influences),
        "explorer": figures.explorer_curves(content.explorer, target, percent),
    }
    ends = _shared_ends(content.effects)
    for place, effect in enumerate(content.effects):
        found[f"effect-{place}"] = figures.effect_curve(effect, ends)
    if content.spectrum is not None:
        found["weights"] = figures.weight_bars(content.spectrum)
        found["curves"] = figures.eigenfunction_curves(content.spectrum)
        maps: Figure | None = figures.eigenfunction_maps(content.spectrum)
        if maps is not None:
            found["maps"] = maps
    if any(np.isfinite(stage.evidence).any() for stage in content.stages):
        found["evidence"] = figures.evidence_curves(content.stages)
    return found


def _shared_ends(effects: Sequence[AverageEffect]) -> tuple[float, float]:
    """Return ends of an axis on which all effects can be compared."""
    low = min(float(each.lower.min()) for each in effects)
    high = max(float(each.upper.max()) for each in effects)
    room = 0.04 * (high - low or 1.0)
    return low - room, high + room


def _in_words(effect: AverageEffect) -> dict[str, str]:
    """Return the ends of an effect as a table and a screen reader tell them."""
    lowest, highest = int(np.argmin(effect.mean)), int(np.argmax(effect.mean))

    def at(place: int) -> str:
        return f"{number(effect.mean[place])} at {effect.input.label(effect.grid[place])}"

    return {
        "name": effect.input.name,
        "lowest": at(lowest),
        "highest": at(highest),
        "range": number(effect.mean[highest] - effect.mean[lowest]),
    }
