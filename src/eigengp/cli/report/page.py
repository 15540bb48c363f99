"""The page of a report: one HTML file with its figures, styles and scripts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from shlex import quote
from typing import Any

import numpy as np

from eigengp import inspection
from eigengp._format import format_number
from eigengp._html import describe_fit
from eigengp.cli.report import classes, effects, figures, regression
from eigengp.cli.report.rows import Rows
from eigengp.cli.tables import describe_column
from eigengp.io.models import get_versions

_TOLERANCE = 1e-6


def build(
    model: Any,
    rows: Rows,
    *,
    title: str | None = None,
    coverage: float = 0.9,
    origin: Mapping[str, Any] | None = None,
) -> str:
    """Build a page about a fitted model and some rows, as HTML that needs no other files.

    Parameters
    ----------
    model : GPRegressor or EigenGPClassifier
        A fitted model of this library.
    rows : Rows
        The rows, from `Rows.from_arrays` or, with mixed columns, from `Rows.from_table`.
    title : str or None
        The title of the page; None names the target.
    coverage : float
        The probability of bands and prediction intervals.
    origin : mapping or None
        The names of the files, "model_file" and "data_file"; the "versions" of the libraries that
        wrote the model; columns that are not used, "ignored", each with the reason; "held_out",
        whether the rows are known to be held out.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import EigenGPRegressor
    >>> from eigengp.cli.report import Rows, build
    >>> X = np.random.default_rng(0).uniform(size=(60, 1))
    >>> model = EigenGPRegressor(5, random_state=0).fit(X, X[:, 0])
    >>> "These are training rows" in build(model, Rows.from_arrays(model, X, X[:, 0]))
    True
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
    json: dict[str, Any] = {"allow_nan": False, "separators": (",", ":")}
    environment.policies["json.dumps_kwargs"] = json | {"default": figures.encode}
    environment.filters |= {"number": format_number, "quote": quote, "column": describe_column}
    environment.filters["repr"] = repr
    environment.globals["zip"] = zip
    content = collect(model, rows, coverage, origin)
    return environment.get_template(content["template"]).render(
        content,
        title=title or f"How well is {rows.target} predicted?",
        percent=f"{100 * coverage:g}\N{NO-BREAK SPACE}%",
        # The text "</script" ends a script even inside a string.
        plotly=get_plotlyjs().replace("</script", "<\\/script"),
    )


def collect(
    model: Any, rows: Rows, coverage: float, origin: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Compute everything that a report shows, by functions of the library."""
    part = classes if hasattr(model, "classes_") else regression
    with inspection.plain_inputs():
        importance = effects.rank_inputs(model, rows)
        own = part.collect(model, rows, [each.input for each in importance], coverage)
    stages, unknown = inspection.split_history(model), dict.fromkeys(("model_file", "data_file"))
    drawn = {
        "importance": figures.draw_importance(importance),
        "history": figures.draw_history(stages),
        **own["drawn"],
    }
    return {
        "model": model,
        "rows": rows,
        "origin": {**unknown, "ignored": {}, "held_out": False, **(origin or {})},
        "is_training": are_training_rows(model, rows),
        "importance": importance,
        "stages": stages,
        "facts": [
            ("Method", type(model).__name__),
            ("Settings", repr(model)),
            *describe_fit(model),
        ],
        "versions": (get_versions(), (origin or {}).get("versions", {})),
        "spectrum": None,
        **own,
        "drawn": {name: own for name, own in drawn.items() if own.get("choices", True)},
    }


def are_training_rows(model: Any, rows: Rows) -> bool:
    """Return whether rows have the means that a model was fitted with."""
    kept, apart = model._scaling, []
    average = partial(np.average, axis=0, weights=rows.weight)
    if model.standardize != "robust":
        apart.append((average(rows.X) - kept.input_centre) / kept.input_scale)
    if kept.mean is None and kept.target_centre != 0.0:  # Else targets are less their mean.
        own = model._target_map
        values = rows.y if own is None else own.values(rows.y)
        apart.append((average(values) - kept.target_centre) / kept.target_scale)
    return bool(apart) and max(np.max(np.abs(each)) for each in apart) < _TOLERANCE
