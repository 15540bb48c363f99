"""Options and arguments of the commands; those without names are called like their parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

Sign = Literal[".", ","]
_Radial = Literal["squared_exponential", "matern52", "matern32", "matern12", "rational_quadratic"]
# Likelihoods that are not Gaussian.
OtherLikelihood = Literal["student_t", "poisson", "negative_binomial", "quantile"]
# The options that are parameters of `TableSchema.learn`.
ROLES = {"target", "weights", "drop", "only", "categorical", "expand_dates", "decimal"}


def _option(metavar: str | None, help: str, *names: str, **more: Any) -> Any:  # noqa: A002
    """Return an option whose value the help calls `metavar`."""
    return typer.Option(*names, metavar=metavar, help=help, **more)


def _argument(metavar: str, help: str) -> Any:  # noqa: A002
    return typer.Argument(metavar=metavar, help=help, show_default=False)


_CHOSEN: dict[str, Any] = {"show_default": "chosen by the method"}
_RECOGNISED: dict[str, Any] = {"show_default": "recognised"}
_SHARE: dict[str, Any] = {"min": 0.0, "max": 1.0}

Data = Annotated[
    Path, _argument("DATA", "The table: CSV, TSV, Parquet or Arrow, recognised by its suffix.")
]
Model = Annotated[Path, _argument("MODEL", "A model written by fit.")]
Target = Annotated[
    str, _option("COLUMN", "The column to predict.", "--target", "-t", show_default=False)
]
StoredTarget = Annotated[
    str | None,
    _option("COLUMN", "The column with the targets.", "--target", "-t", show_default="as in fit"),
]
Drop = Annotated[list[str] | None, _option("COLUMN", "Drop a column; may be repeated.")]
Only = Annotated[list[str] | None, _option("COLUMN", "Use only this input; may be repeated.")]
Categorical = Annotated[
    list[str] | None,
    _option(
        "COLUMN",
        "Treat a column of integers as categories, or the target as classes; may be repeated.",
    ),
]
Weights = Annotated[str | None, _option("COLUMN", "The column with the weight of each row.")]
Keep = Annotated[
    list[str] | None,
    _option("COLUMN", "Copy a column, such as an identifier, to the predictions; may be repeated."),
]
ExpandDates = Annotated[
    bool,
    _option(None, "Encode dates as a trend and the seasons that they cover (year, week, day)."),
]
Decimal = Annotated[
    Sign | None, _option("SIGN", "The decimal separator, for numbers such as 1,234.", **_RECOGNISED)
]
Thousands = Annotated[
    Sign | None,
    _option("SIGN", "The thousands separator, for numbers such as 1,234.", **_RECOGNISED),
]
Encoding = Annotated[
    str | None,
    _option("NAME", "The encoding of CSV files, such as cp1252.", show_default="UTF-8 or UTF-16"),
]
MaxTime = Annotated[
    float | None,
    _option("SECONDS", "Approximate time limit of the fit.", min=0.0, show_default="no limit"),
]
KernelName = Annotated[
    Literal["auto", _Radial, "periodic", "additive", "linear", "polynomial"] | None,
    _option("NAME", "The kernel, such as matern52.", **_CHOSEN),
]
Likelihood = Annotated[
    Literal["auto", "gaussian", "heteroscedastic", OtherLikelihood] | None,
    _option("NAME", "The distribution of the targets, such as heteroscedastic.", **_CHOSEN),
]
Device = Annotated[
    str | None, _option("NAME", "The device: cpu, cuda or auto.", show_default="cpu")
]
ReportPage = Annotated[
    Path | None, _option("PAGE", "Also write a report, .html; see `eigengp report`.", "--report")
]
Components = Annotated[
    int | None,
    _option(
        None,
        "Number of eigenfunctions, inducing points or frequencies: more capture finer detail but "
        "take longer.",
        *("--components", "-m"),
        min=1,
        **_CHOSEN,
    ),
]
Holdout = Annotated[
    float,
    _option(
        None,
        "Fraction of rows, such as 0.2, to hold out for scores and calibrated intervals.",
        **_SHARE,
    ),
]
Seed = Annotated[int, _option(None, "Seed of the random numbers.", min=0)]
Coverage = Annotated[float, _option(None, "Probability of the prediction intervals.", **_SHARE)]
ModelFile = Annotated[
    Path | None,
    _option(
        "MODEL", "The file to write, .eigengp.", "--out", "-o", show_default="named after DATA"
    ),
]
Predictions = Annotated[
    Path | None,
    _option(
        "FILE",
        "The file to write: Parquet, Arrow or CSV, recognised by its suffix.",
        *("--out", "-o"),
        show_default="CSV to standard output",
    ),
]
_FORMULAS = "Put an apostrophe before kept text that a spreadsheet would take for a formula."
EscapeFormulas = Annotated[bool, typer.Option("--escape-formulas", help=_FORMULAS)]


def name_model(data: Path) -> Path:
    """Return the file in the current folder for the model of a table; patterns have no name."""
    name = data.resolve().name.split(".")[0]
    return Path(f"{name if name and not set(name) & set('*?[') else 'model'}.eigengp")


def find_decimal(decimal: Sign | None, thousands: Sign | None) -> Sign | None:
    """Return the decimal separator that two options ask for."""
    if thousands is None:
        return decimal
    if decimal == thousands:
        raise typer.BadParameter("is also the decimal separator.", param_hint="'--thousands'")
    return "," if thousands == "." else "."
