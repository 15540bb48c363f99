"""`eigengp compare`: cross-validate all methods on one table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from statistics import fmean
from typing import Annotated, Any

import typer

from eigengp._format import format_number, quoted
from eigengp.cli.commands import options
from eigengp.cli.commands.fit import ColumnOptions, TrainingData
from eigengp.cli.commands.methods import Name
from eigengp.cli.commands.session import Session, open_session

BASELINES = ("mean", "linear", "boosting")
LEVEL = 0.9
_CHOICES = (*BASELINES, *map(str, Name))


def _check_methods(names: list[str] | None) -> list[str]:
    for name in names or ():
        if name not in _CHOICES:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(_CHOICES)}.")
    return [name for name in _CHOICES if name in (names or _CHOICES)]


def _complete_method(incomplete: str) -> list[str]:
    return [name for name in _CHOICES if name.startswith(incomplete)]


Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        metavar="NAME",
        help=f"A method to compare, one of {', '.join(_CHOICES)}; may be repeated.",
        show_default="all",
        callback=_check_methods,
        autocompletion=_complete_method,
    ),
]


def compare(
    data: options.Data,
    target: options.Target,
    methods: Methods = None,
    folds: Annotated[int, typer.Option(min=2, help="Number of folds.")] = 3,
    rows: Annotated[int, typer.Option(min=10, help="Sample at most this many rows.")] = 500,
    components: Annotated[
        int, typer.Option("--components", "-m", min=1, help="As in fit, for all methods but auto.")
    ] = 30,
    drop: options.Drop = None,
    only: options.Only = None,
    categorical: options.Categorical = None,
    encoding: options.Encoding = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Cross-validate all methods on a table, beside three baselines of scikit-learn.

    Sorted by squared error. The baselines (mean, linear model and boosted trees) have the same
    error bar for all rows. Columns are encoded once, from all rows. All methods take some minutes;
    --method, --rows and --folds reduce the time.
    """
    with open_session(as_json, quiet, debug) as out:
        from eigengp.cli.commands.comparison import CrossValidation

        columns = ColumnOptions(target, None, drop, only, categorical)
        training = TrainingData.read(data, columns, out, encoding=encoding)
        if training.schema.labels:
            raise ValueError(
                f"compare is for numbers, but {quoted(target)} holds labels; use eigengp fit "
                "--holdout for a classification."
            )
        X, y, _ = training.rows
        X, y = _sample(X, y, rows, seed, out)
        validation = CrossValidation(X, y, folds, components, seed, training.schema.encoder)
        with _show_progress(len(methods or ()), out) as step:
            results = validation.run(methods or [], step, out)
        out.show(_make_table(results, f"{target}, {len(y):,} rows, {folds} folds:"))
        out.write_result({"rows": len(y), "folds": folds, "level": LEVEL, "methods": results})


def _sample(X: Any, y: Any, rows: int, seed: int, out: Session) -> tuple[Any, Any]:
    """Draw at most `rows` rows."""
    import numpy as np

    if len(y) <= rows:
        return X, y
    out.note(f"A sample of {rows:,} of {len(y):,} rows is used; --rows changes its size.")
    chosen = np.sort(np.random.RandomState(seed).permutation(len(y))[:rows])
    return X[chosen], y[chosen]


@contextmanager
def _show_progress(count: int, out: Session) -> Iterator[Any]:
    """Yield a function that shows which method is being fitted."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=Console(stderr=True),
        disable=not out.shows_progress,
        transient=True,
    ) as bar:
        task = bar.add_task("", total=count, completed=-1)
        yield lambda name: bar.update(task, advance=1, description=name)


def _make_table(results: list[dict[str, Any]], title: str) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("method", no_wrap=True)
    for name in ("NMSE", "RMSE", "MNLP", "CRPS", f"in {LEVEL:.0%}", "s/fit"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in results:
        if "error" in each:
            table.add_row(each["name"], "failed")
            continue
        errors = [format_number(fmean(each[name])) for name in ("nmse", "rmse", "mnlp", "crps")]
        inside, seconds = f"{fmean(each['coverage']):.0%}", f"{each['seconds']:.2f}"
        style = "dim" if each["name"] in BASELINES else ""
        table.add_row(each["name"], *errors, inside, seconds, style=style)
    return table
