"""Options and arguments of the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Sign = Literal[".", ","]
ROLES = {"target", "weights", "drop", "only", "categorical", "expand_dates", "decimal"}
"""The options that are parameters of `TableSchema.learn`."""
OtherLikelihood = Literal["student_t", "poisson", "negative_binomial", "quantile"]
"""Likelihoods that are not Gaussian."""
Data = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="The table: CSV, TSV, Parquet or Arrow, recognised by its suffix.",
        show_default=False,
    ),
]
Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model written by fit.", show_default=False)
]
Target = Annotated[
    str, typer.Option("--target", "-t", help="The column to predict.", show_default=False)
]
StoredTarget = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        metavar="COLUMN",
        help="The column with the targets.",
        show_default="as in fit",
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option("--drop", metavar="COLUMN", help="Drop a column; may be repeated."),
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="COLUMN", help="Use only this input; may be repeated."),
]
Categorical = Annotated[
    list[str] | None,
    typer.Option(
        "--categorical",
        metavar="COLUMN",
        help="Treat a column of integers as categories; may be repeated.",
    ),
]
ExpandDates = Annotated[
    bool,
    typer.Option(
        help="Give dates the seasons of year, week and day beside their trend, where they cover "
        "them."
    ),
]
Decimal = Annotated[
    Sign | None,
    typer.Option(help="The decimal sign of numbers such as 1,234.", show_default="recognised"),
]
Thousands = Annotated[
    Sign | None,
    typer.Option(help="The sign between thousands in 1,234.", show_default="recognised"),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The encoding of a CSV file, such as latin-1.",
        show_default="UTF-8 or UTF-16",
    ),
]
MaxTime = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", min=0.0, help="About how long to learn.", show_default="no limit"
    ),
]
KernelName = Annotated[
    str | None,
    typer.Option(
        "--kernel",
        metavar="NAME",
        help="The kernel, such as matern52.",
        show_default="chosen by the method",
    ),
]
Likelihood = Annotated[
    Literal["auto", "gaussian", "heteroscedastic", OtherLikelihood] | None,
    typer.Option(
        metavar="NAME",
        help="The distribution of the targets, such as gaussian or heteroscedastic.",
        show_default="chosen by the method",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Where to compute: cpu, cuda or auto.", show_default="cpu"),
]
ReportPage = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="PAGE",
        help="Also write a page about the model and these rows, .html; see `eigengp report`.",
        show_default="none",
    ),
]
Weights = Annotated[
    str | None,
    typer.Option("--weights", metavar="COLUMN", help="The column with the weight of each row."),
]
Components = Annotated[
    int | None,
    typer.Option(
        "--components",
        "-m",
        min=1,
        help="Number of eigenfunctions, inducing points or frequencies: more capture finer detail "
        "but take longer.",
        show_default="chosen by the method",
    ),
]
Holdout = Annotated[
    float,
    typer.Option(
        min=0.0,
        max=1.0,
        help="Fraction of rows, such as 0.2, to hold out for scoring the model and calibrating its "
        "prediction intervals.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seeds all random choices.")]
Coverage = Annotated[
    float,
    typer.Option(
        min=0.0,
        max=1.0,
        help="The probability that a prediction interval contains a new observation.",
    ),
]
ModelFile = Annotated[
    Path,
    typer.Option(
        "--out", "-o", metavar="MODEL", help="The file to write, .eigengp.", show_default=False
    ),
]
Predictions = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="The file to write: Parquet, Arrow or CSV, recognised by its suffix.",
        show_default="CSV to standard output",
    ),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        "--keep",
        metavar="COLUMN",
        help="Copy a column, such as an identifier, beside the predictions; may be repeated.",
    ),
]
EscapeFormulas = Annotated[
    bool,
    typer.Option(
        "--escape-formulas",
        help="Put an apostrophe before kept text that a spreadsheet would take for a formula "
        "(=, +, -, @).",
    ),
]


def find_decimal(decimal: Sign | None, thousands: Sign | None) -> Sign | None:
    """Return the decimal sign that two options ask for."""
    if thousands is None:
        return decimal
    if decimal == thousands:
        raise typer.BadParameter("is the decimal sign too.", param_hint="'--thousands'")
    return "," if thousands == "." else "."
