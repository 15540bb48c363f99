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
from eigengp.cli.report.quality import Role
from eigengp.cli.report.rows import Rows

__all__ = ["Content", "Origin", "Rows", "build", "build_from_rows", "write"]


def build(
    model: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    target: str | None = None,
    title: str | None = None,
    role: Role | None = None,
    coverage: float = 0.9,
) -> str:
    """Build a page about a fitted model and some rows.

    Parameters
    ----------
    model : GPRegressor
        A fitted model of this library.
    X : array or frame of shape (n, D)
        Inputs.
    y : array or series of shape (n,)
        Targets.
    target : str or None
        The name of the target; None takes the name of `y`, or "target".
    title : str or None
        The title of the page; None names the target.
    role : {"training", "new"} or None
        Whether the model was fitted to these rows. None compares them with the scaling of the
        training rows.
    coverage : float
        The probability of bands and prediction intervals.

    Returns
    -------
    page : str
        HTML that needs no other files.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import EigenGPRegressor
    >>> from eigengp.cli.report import build
    >>> X = np.random.default_rng(0).uniform(size=(60, 1))
    >>> model = EigenGPRegressor(5, random_state=0).fit(X, X[:, 0])
    >>> "These are training rows" in build(model, X, X[:, 0])
    True
    """
    rows = Rows.from_arrays(model, X, y, target)
    return build_from_rows(model, rows, title=title, role=role, coverage=coverage)


def build_from_rows(
    model: Any,
    rows: Rows,
    *,
    title: str | None = None,
    role: Role | None = None,
    coverage: float = 0.9,
    origin: Origin | None = None,
) -> str:
    """Build a page about a fitted model and rows with mixed columns (`Rows.from_table`).

    Parameters
    ----------
    model : GPRegressor
        A fitted model of this library.
    rows : Rows
        The rows.
    title, role, coverage
        As in `build`.
    origin : Origin or None
        The files of model and rows.
    """
    content = Content.compute(model, rows, coverage=coverage, role=role, origin=origin or Origin())
    return render(content, title)


def write(model: Any, X: ArrayLike, y: ArrayLike, path: str | Path, **options: Any) -> Path:
    """Write a page about a fitted model and some rows.

    Parameters
    ----------
    model, X, y
        As in `build`.
    path : path
        The file, which is replaced in one step.
    **options
        Those of `build`.

    Returns
    -------
    path : Path
        The page.
    """
    page = build(model, X, y, **options)
    write_atomically(Path(path), page.encode())
    return Path(path)
