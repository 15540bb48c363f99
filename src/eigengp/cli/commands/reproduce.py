"""`eigengp reproduce`: the paper's experiments."""

from __future__ import annotations

import sys
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer


class Part(StrEnum):
    """What of the paper to reproduce."""

    ALL = "all"
    FIGURE_1 = "figure1"
    FIGURE_2 = "figure2"
    TABLE_1 = "table1"
    FIGURE_3 = "figure3"
    RVM = "rvm"
    FIGURE_4 = "figure4"


def reproduce(
    parts: Annotated[
        list[Part] | None, typer.Argument(help="Which parts; all unless named.", show_default=False)
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Built-in data and fewer runs: two minutes.")
    ] = False,
    out: Annotated[
        Path, typer.Option(help="Folder for results; what is stored there is not run again.")
    ] = Path("results"),
    jobs: Annotated[
        int, typer.Option(min=1, help="Runs at once; each has its share of the cores.")
    ] = 2,
) -> None:
    """Re-run the experiments of the EigenGP paper and write a page with the paper's numbers beside.

    Every run is stored as it ends, so that a command that was stopped goes on where it was.
    """
    try:
        from eigengp.reproduce.availability import DataError
        from eigengp.reproduce.command import reproduce as carry_out
        from eigengp.reproduce.experiments import EXPERIMENTS
        from eigengp.reproduce.scale import FULL, QUICK
        from eigengp.reproduce.workers import WorkerDiedError

        import_module("matplotlib")  # It draws last, but whether it is here is better known first.
    except ImportError as error:
        print(f'eigengp: pip install "eigengp[reproduce]" is needed ({error}).', file=sys.stderr)
        raise typer.Exit(1) from error
    chosen = {part.value for part in parts or [Part.ALL]}
    names = [name for name in EXPERIMENTS if name in chosen or Part.ALL.value in chosen]
    try:
        complete = carry_out(names, QUICK if quick else FULL, out, jobs)
    except KeyboardInterrupt:
        print("\nStopped. What had ended is stored; the same command goes on.", file=sys.stderr)
        raise typer.Exit(130) from None
    except (OSError, DataError, WorkerDiedError) as error:
        print(f"eigengp: {error}", file=sys.stderr)
        raise typer.Exit(1) from error
    if not complete:
        raise typer.Exit(1)
