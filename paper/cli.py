"""The command line of `python paper`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path

from paper.command import reproduce
from paper.experiments import EXPERIMENTS
from paper.problems import DataError
from paper.scale import FULL, QUICK
from paper.workers import WorkerDiedError

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiments and return the exit code: 0 if the page is complete."""
    given = _parser().parse_args(arguments)
    names = [name for name in EXPERIMENTS if not given.parts or name in given.parts]
    try:
        complete = reproduce(names, QUICK if given.quick else FULL, given.out, given.jobs)
    except KeyboardInterrupt:
        print("\nStopped. Finished runs are stored; the same command continues.", file=sys.stderr)
        return INTERRUPTED
    except (OSError, DataError, WorkerDiedError) as error:
        print(f"paper: {error}", file=sys.stderr)
        return 1
    return 0 if complete else 1


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="python paper",
        description="Run the experiments of the EigenGP paper and write a page with the paper's "
        "numbers beside ours. Every run is stored as it ends, so a command that was stopped "
        "continues where it was.",
    )
    parser.add_argument(
        "parts", nargs="*", type=_part, help=f"all unless named: {', '.join(EXPERIMENTS)}"
    )
    parser.add_argument("--quick", action="store_true", help="fewer runs, small data: two minutes")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for results")
    parser.add_argument("--jobs", type=_positive, default=2, help="runs at once (2)")
    return parser


def _part(text: str) -> str:
    if text not in EXPERIMENTS:
        raise ArgumentTypeError(f"{text!r} is not among {', '.join(EXPERIMENTS)}")
    return text


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"must be an integer of at least 1, got {text!r}")
    return int(text)
