"""A fitted model and some rows as one interactive page: `eigengp report`.

What is shown is computed in Python by the library's own functions (`content` and what it names),
the figures are plain dictionaries (`figures`), and the page is a template (`page`). It needs no
network and can be sent to others as it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from numpy.typing import ArrayLike

from eigengp._atomic import write_whole
from eigengp.cli.report.content import Content, Origin
from eigengp.cli.report.page import rendered
from eigengp.cli.report.rows import Rows

__all__ = ["Content", "Origin", "Rows", "build", "build_from_rows", "write"]


def build(
    model: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    target: str | None = None,
    title: str | None = None,
    said: Literal["training", "new"] | None = None,
    coverage: float = 0.9,
) -> str:
    """Return a page about a fitted model and some rows.

    Parameters
    ----------
    model : GPRegressor
        A fitted model of this library.
    X : array or frame of shape (n, D)
        Inputs.
    y : array or series of shape (n,)
        Targets.
    target : str or None
        What the target is called; None takes the name of `y`, or "target".
    title : str or None
        The heading of the page; None makes one.
    said : {"training", "new"} or None
        Whether the model was learned from these rows. None compares them with what the model
        remembers.
    coverage : float
        The probability of bands and intervals.

    Returns
    -------
    page : str
        HTML that needs nothing else.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import EigenGPRegressor
    >>> from eigengp.cli.report import build
    >>> X = np.random.default_rng(0).uniform(size=(60, 1))
    >>> model = EigenGPRegressor(5, n_restarts=1, max_iter=5, random_state=0).fit(X, X[:, 0])
    >>> "These are training rows" in build(model, X, X[:, 0])
    True
    """
    rows = Rows.of(model, X, y, target)
    return build_from_rows(model, rows, title=title, said=said, coverage=coverage)


def build_from_rows(
    model: Any,
    rows: Rows,
    *,
    title: str | None = None,
    said: Literal["training", "new"] | None = None,
    coverage: float = 0.9,
    origin: Origin | None = None,
) -> str:
    """Return a page about a fitted model and rows with mixed columns (`Rows.of_table`).

    Parameters
    ----------
    model : GPRegressor
        A fitted model of this library.
    rows : Rows
        The rows.
    title, said, coverage
        As in `build`.
    origin : Origin or None
        Which files model and rows are from.
    """
    content = Content.of(model, rows, coverage=coverage, said=said, origin=origin or Origin())
    return rendered(content, title)


def write(model: Any, X: ArrayLike, y: ArrayLike, path: str | Path, **options: Any) -> Path:
    """Write a page about a fitted model and some rows.

    Parameters
    ----------
    model, X, y
        As in `build`.
    path : path
        The file, which appears when it is whole.
    **options
        Those of `build`.

    Returns
    -------
    path : Path
        The page.
    """
    page = build(model, X, y, **options)
    write_whole(Path(path), page.encode())
    return Path(path)
