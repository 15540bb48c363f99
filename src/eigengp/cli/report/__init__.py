"""An interactive page about a fitted model and some rows: `eigengp report`.

`effects` computes what the model does with its inputs, `figures` makes dictionaries for Plotly, and
`page` fills a template with these and what other functions of the library say. The page needs no
network.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from eigengp._atomic import write_atomically
from eigengp.cli.report.page import build
from eigengp.cli.report.rows import Rows

__all__ = ["Rows", "build", "write"]


def write(
    model: Any,
    X: ArrayLike,
    y: ArrayLike,
    path: str | Path,
    *,
    target: str | None = None,
    **options: Any,
) -> Path:
    """Write a page about a fitted model and some rows.

    Parameters
    ----------
    model : GPRegressor
        A fitted model of this library.
    X : array or frame of shape (n, D)
        Inputs.
    y : array or series of shape (n,)
        Targets.
    path : path
        The file, which is replaced in one step.
    target : str or None
        The name of the target; None takes the name of `y`, or "target".
    **options
        Those of `build`.

    Returns
    -------
    path : Path
        The page.
    """
    page = build(model, Rows.from_arrays(model, X, y, target), **options)
    write_atomically(Path(path), page.encode())
    return Path(path)
