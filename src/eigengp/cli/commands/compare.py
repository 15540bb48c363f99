"""`eigengp compare`: all methods on one table, cross-validated."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from eigengp.cli.commands import options
from eigengp.cli.commands.methods import Name
from eigengp.cli.commands.session import Session, number, session

_BASELINES = ("mean", "linear", "boosting")
_CHOICES = (*_BASELINES, *(name for name in Name if name != Name.AUTO))
_PICTURES = (".png", ".svg", ".pdf")
_LEVEL = 0.9


def _checked(names: list[str] | None) -> list[str]:
    for name in names or ():
        if name not in _CHOICES:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(_CHOICES)}.")
    return [str(name) for name in _CHOICES if name in (names or _CHOICES)]


def _completed(incomplete: str) -> list[str]:
    return [str(name) for name in _CHOICES if name.startswith(incomplete)]


def compare(
    data: options.Data,
    target: options.Target,
    picture: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="A picture to draw: PNG, SVG or PDF."),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"A method to compare, one of {', '.join(_CHOICES)}; may be repeated.",
            show_default="all",
            callback=_checked,
            autocompletion=_completed,
        ),
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Parts, each of which is left out once.")] = 3,
    rows: Annotated[int, typer.Option(min=10, help="At most so many rows, drawn at random.")] = 500,
    components: Annotated[
        int, typer.Option("--components", "-m", min=1, help="Of each method that has some.")
    ] = 30,
    impute: options.Impute = False,
    drop: options.Drop = None,
    only: options.Only = None,
    categorical: options.Categorical = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Compare all methods on a table by cross-validation, beside plain ones of scikit-learn.

    The best by squared error come first. The mean, a linear model and boosted trees, each with one
    error bar for all rows, show what there is to beat. Columns are encoded once, from all rows. All
    methods take some minutes; --method, --rows and --folds make it less.
    """
    with session(as_json, quiet, debug) as out:
        from eigengp.cli.commands.fit import Wanted
        from eigengp.cli.commands.picture import check_drawing, draw_scores
        from eigengp.cli.commands.places import check_place

        if picture is not None:
            check_place(picture, _PICTURES, out)
            check_drawing()
        wanted = Wanted(target, impute, drop or [], only, categorical or [], None)
        X, y, _ = wanted.read(data, 0.0, seed, out).rows
        X, y = _drawn(X, y, rows, seed, out)
        study = Study(X, y, folds, components, seed)
        found = study.results(method or [], out)
        out.show(_table(found, f"{target}, {len(y):,} rows, {folds} folds:"))
        if picture is not None:
            draw_scores(found, picture)
            out.say(f"Drawn in {picture}.")
        out.result({"rows": len(y), "folds": folds, "level": _LEVEL, "methods": found})


def _drawn(X: Any, y: Any, rows: int, seed: int, out: Session) -> tuple[Any, Any]:
    """Return at most so many rows."""
    import numpy as np

    if len(y) <= rows:
        return X, y
    out.note(f"{rows:,} of {len(y):,} rows are compared on; --rows takes more.")
    chosen = np.sort(np.random.RandomState(seed).permutation(len(y))[:rows])
    return X[chosen], y[chosen]


@dataclass(frozen=True)
class Study:
    """A cross-validation: its rows, its folds, and how methods are set."""

    X: Any
    y: Any
    folds: int
    components: int
    seed: int

    def results(self, names: list[str], out: Session) -> list[dict[str, Any]]:
        """Return the scores of each method on each fold, the smallest squared error first.

        A method that fails has the key "error" instead.
        """
        found: list[dict[str, Any]] = []
        with _progress(len(names), out) as step:
            for name in names:
                step(name)
                try:
                    found.append({"name": name, **self._scored(name)})
                except (ValueError, ArithmeticError, MemoryError) as error:
                    found.append({"name": name, "error": " ".join(str(error).split())})
                    out.note(f"{name} failed: {found[-1]['error']}")
        return sorted(found, key=lambda each: _mean(each["nmse"]) if "nmse" in each else math.inf)

    def _scored(self, name: str) -> dict[str, Any]:
        """Return the scores of each fold, and the seconds of a fit."""
        from sklearn.model_selection import KFold, cross_validate

        from eigengp import metrics
        from eigengp.cli.commands.candidates import candidate

        scoring = {
            "nmse": metrics.nmse_scorer,
            "rmse": "neg_root_mean_squared_error",
            "mnlp": metrics.mnlp_scorer,
            "crps": metrics.crps_scorer,
            "coverage": metrics.make_probabilistic_scorer(metrics.coverage, level=_LEVEL),
        }
        estimator = candidate(name, self.components, self.seed)
        parts = KFold(self.folds, shuffle=True, random_state=self.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = cross_validate(
                estimator, self.X, self.y, scoring=scoring, cv=parts, error_score="raise"
            )
        signs = {score: 1.0 if score == "coverage" else -1.0 for score in scoring}
        scores = {score: (sign * found[f"test_{score}"]).tolist() for score, sign in signs.items()}
        return {"seconds": float(found["fit_time"].mean()), **scores}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


@contextmanager
def _progress(count: int, out: Session) -> Iterator[Any]:
    """Show which method is being fitted, if somebody watches."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not out.draws, transient=True) as bar:
        task = bar.add_task("", total=count, completed=-1)
        yield lambda name: bar.update(task, advance=1, description=name)


def _table(found: list[dict[str, Any]], title: str) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("method", no_wrap=True)
    for name in ("NMSE", "RMSE", "MNLP", "CRPS", f"in {_LEVEL:.0%}", "s/fit"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in found:
        if "error" in each:
            table.add_row(each["name"], "failed")
            continue
        shown = [number(_mean(each[name])) for name in ("nmse", "rmse", "mnlp", "crps")]
        share, seconds = f"{_mean(each['coverage']):.0%}", f"{each['seconds']:.2f}"
        style = "dim" if each["name"] in _BASELINES else ""
        table.add_row(each["name"], *shown, share, seconds, style=style)
    return table
