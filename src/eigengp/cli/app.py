"""The command line `eigengp`; each command has a file in `commands/`."""

from __future__ import annotations

from typing import Annotated

import typer

import eigengp
from eigengp.cli.commands.compare import compare
from eigengp.cli.commands.evaluate import evaluate
from eigengp.cli.commands.fit import fit
from eigengp.cli.commands.inspect import inspect
from eigengp.cli.commands.methods import describe_methods
from eigengp.cli.commands.predict import predict
from eigengp.cli.commands.report import report

__all__ = ["app", "main"]

_EXIT_CODES = (
    "Exit codes: 0 success, 1 a problem with data, model or files, 2 invalid options, 130 "
    "interrupted."
)

app = typer.Typer(
    help="Gaussian-process regression for tables, with prediction intervals.",
    epilog=_EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(requested: bool) -> None:
    if requested:
        print(f"eigengp {eigengp.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Gaussian-process regression for tables, with prediction intervals."""


app.command(epilog=describe_methods())(fit)
for command in (predict, evaluate, inspect, compare, report):
    app.command()(command)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
