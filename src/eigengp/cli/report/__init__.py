"""An interactive page about a fitted model and some rows: `eigengp report`.

`content` computes what is shown by functions of the library, `figures` turns it into dictionaries
for Plotly, and `page` fills a template. The page needs no network.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from eigengp._atomic import write_atomically
from eigengp.cli.report.content import Content, Origin
from eigengp.cli.report.page import render
from eigengp.cli.report.rows import Rows

__all__ = ["Content", "Origin", "Rows", "build", "write"]


def build(
    model: Any,
    rows: Rows,
    *,
    title: str | None = None,
    coverage: float = 0.9,
    origin: Origin | None = None,
) -> str:
    """Build a page about a fitted model and some rows, as HTML that needs no other files.

    Parameters
    ----------
    model : GPRegressor
        A fitted model of this library.
    rows : Rows
        The rows, from `Rows.from_arrays` or, with mixed columns, from `Rows.from_table`.
    title : str or None
        The title of the page; None names the target.
    coverage : float
        The probability of bands and prediction intervals.
    origin : Origin or None
        The files of model and rows.

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
    content = Content.compute(model, rows, coverage=coverage, origin=origin or Origin())
    return render(content, title)


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
