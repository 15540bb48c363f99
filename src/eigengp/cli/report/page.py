"""The page of a report: one HTML file with its figures, styles and scripts."""

from __future__ import annotations

from shlex import quote
from typing import Any

from eigengp._format import format_number
from eigengp.cli.report import figures
from eigengp.cli.report.content import Content
from eigengp.cli.tables import describe_column

_RESIDUAL_INPUTS = 8


def render(content: Content, title: str | None) -> str:
    """Render the page.

    Parameters
    ----------
    content : Content
        What to show.
    title : str or None
        The title; None names the target.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError(
            f'The report needs further packages: pip install "eigengp[report]" ({error}).'
        ) from error
    environment = Environment(
        loader=PackageLoader("eigengp.cli.report"),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.filters |= {"number": format_number, "quote": quote, "repr": repr}
    environment.filters["column"] = describe_column
    environment.globals["zip"] = zip
    return environment.get_template("report.html").render(
        content=content,
        title=title or f"How well is {content.rows.target} predicted?",
        percent=f"{100 * content.coverage:g}\N{NO-BREAK SPACE}%",
        drawn=draw_figures(content),
        # The text "</script" ends a script even inside a string.
        plotly=get_plotlyjs().replace("</script", "<\\/script"),
    )


def draw_figures(content: Content) -> dict[str, Any]:
    """Return all figures by name."""
    target, quality, spectrum = content.rows.target, content.quality, content.spectrum
    residual_inputs = content.ranking[:_RESIDUAL_INPUTS]
    found = {
        "predicted": figures.draw_predictions(quality, target),
        "residuals": figures.draw_residuals(quality, content.rows, residual_inputs),
        "coverage": figures.draw_coverage(quality),
        "pit": figures.draw_pit(quality),
        "importance": figures.draw_importance(content.importance),
        "explorer": figures.draw_slices(content.explorer, target, f"{100 * content.coverage:g} %"),
        "history": figures.draw_history(content.stages),
        **figures.draw_partial_dependence(content.effects),
    }
    if spectrum is not None:
        found["weights"] = figures.draw_weights(spectrum)
        found["curves"] = figures.draw_eigenfunctions(spectrum)
        found["maps"] = figures.draw_maps(spectrum)
    return {name: figure for name, figure in found.items() if figure is not None}
