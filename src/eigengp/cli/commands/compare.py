"""`eigengp compare`: cross-validate all methods on one table."""

from __future__ import annotations

from statistics import fmean
from typing import Annotated, Any

import typer

from eigengp._format import format_number, quoted
from eigengp.cli.commands import options
from eigengp.cli.commands.methods import METHODS
from eigengp.cli.commands.session import RIGHT, Session, command

LEVEL = 0.9
_CHOICES = ("mean", "linear", "boosting", *METHODS)


def _check_methods(names: list[str] | None) -> list[str]:
    for name in names or ():
        if name not in _CHOICES:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(_CHOICES)}.")
    return names or list(_CHOICES)


Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        metavar="NAME",
        help=f"A method to compare, one of {', '.join(_CHOICES)}; may be repeated.",
        show_default="all",
        callback=_check_methods,
        autocompletion=lambda incomplete: [n for n in _CHOICES if n.startswith(incomplete)],
    ),
]


@command
def compare(
    out: Session,
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
    decimal: options.Decimal = None,
    encoding: options.Encoding = None,
    seed: options.Seed = 0,
) -> None:
    """Compare methods on a table by cross-validation, with three baselines of scikit-learn.

    Methods are sorted by squared error. The baselines (mean, linear model and boosted trees) have
    the same standard deviation for all rows. Columns are encoded once, from all rows. Comparing
    all methods takes some minutes; --method, --rows and --folds reduce the time.
    """
    given = {name: value for name, value in locals().items() if value is not None}
    from eigengp.cli.commands.comparison import cross_validate_methods
    from eigengp.cli.commands.training import TrainingData

    roles = {name: given[name] for name in options.ROLES & given.keys()}
    training = TrainingData.read(out, data, roles, encoding)
    if training.schema.labels:
        raise ValueError(
            f"compare is for numbers, but {quoted(target)} holds labels; use eigengp fit --holdout "
            "for a classification."
        )
    results, count = cross_validate_methods(
        out, training, methods or [], rows, folds, components, seed
    )
    _show(out, results, f"{target}, {count:,} rows, {folds} folds:")
    out.write_result({"rows": count, "folds": folds, "level": LEVEL, "methods": results})


def _show(out: Session, results: list[dict[str, Any]], title: str) -> None:
    shown = []
    for each in results:
        cells = ["failed"]
        if "error" not in each:
            cells = [format_number(fmean(each[name])) for name in ("nmse", "rmse", "mnlp", "crps")]
            cells += [f"{fmean(each['coverage']):.0%}", f"{each['seconds']:.2f}"]
        shown.append([each["name"], *cells])
    names = ("NMSE", "RMSE", "MNLP", "CRPS", f"in {LEVEL:.0%}", "s/fit")
    out.show({"method": {"no_wrap": True}, **dict.fromkeys(names, RIGHT)}, shown, title)
