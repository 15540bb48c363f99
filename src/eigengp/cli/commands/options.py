"""Options and arguments that several commands understand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="The table: CSV, TSV, Parquet or Arrow, by its ending.",
        show_default=False,
    ),
]
Model = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="A model that fit has written.", show_default=False),
]
Target = Annotated[
    str, typer.Option("--target", "-t", help="The column to predict.", show_default=False)
]
OtherTarget = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        metavar="COLUMN",
        help="The column with the targets.",
        show_default="that of fit",
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option("--drop", metavar="COLUMN", help="Leave a column out; may be repeated."),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only", metavar="COLUMN", help="Learn from this column alone, or from those repeated."
    ),
]
Categorical = Annotated[
    list[str] | None,
    typer.Option(
        "--categorical", metavar="COLUMN", help="Whole numbers that are names; may be repeated."
    ),
]
Impute = Annotated[
    bool,
    typer.Option(
        "--impute",
        help="Fill missing values in (median, most frequent), with a further input that says "
        "where; leave out rows without a target.",
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
        help="Eigenfunctions, basis points or frequencies: more are finer and slower.",
        show_default="100, or a quarter of few rows",
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Makes all random choices.")]
Coverage = Annotated[
    float,
    typer.Option(
        "--coverage", help="The probability with which an interval holds a new observation."
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Write one JSON object to standard output, nothing else.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No remarks and no progress.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error came from.")]


def check_coverage(coverage: float) -> None:
    """Refuse what is no probability."""
    if not 0.0 < coverage < 1.0:
        raise typer.BadParameter(
            f"{coverage} must lie between 0 and 1; 90 % is 0.9.", param_hint="'--coverage'"
        )
