"""The whole program: look for data, carry out runs, draw the page."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from paper.experiments import EXPERIMENTS
from paper.page import write_page
from paper.problems import SOURCES, find_missing
from paper.progress import Bars
from paper.runs import Run, with_starts
from paper.scale import Scale
from paper.section import Results
from paper.store import Store
from paper.workers import Failure, carry_out

RUNS = "runs.jsonl"


def reproduce(
    parts: Sequence[str], scale: Scale, out: Path, jobs: int, console: Console | None = None
) -> bool:
    """Carry out experiments of the paper and write the page.

    Parameters
    ----------
    parts : sequence of str
        Keys of `EXPERIMENTS`.
    scale : Scale
        `FULL`, `QUICK`, or one in between.
    out : Path
        The folder for results; what is stored there is not run again.
    jobs : int
        How many runs at once.
    console : Console or None
        Where to report.

    Returns
    -------
    complete : bool
        Whether all that was asked for is on the page.
    """
    console = Console() if console is None else console
    began = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    store = Store(out / RUNS)
    missing = find_missing(_needed(parts, scale, store))
    remarks = [f"{SOURCES[name].title} is left out: {why}" for name, why in missing.items()]
    for remark in remarks:
        _say(f"Note: {remark}", console, style="yellow")
    scale = replace(scale, large=tuple(name for name in scale.large if name not in missing))
    failures = _carry_out(parts, scale, store, jobs, console)
    path = write_page(Results(store, scale), out, remarks)
    minutes, seconds = divmod(round(time.perf_counter() - began), 60)
    _say(f"Done in {minutes} min {seconds} s. Open {path}", console)
    if failures:
        lost = f"Failed: {len(failures)} of the runs, so their parts of the page are not complete"
        _say(f"{lost}; the same command tries them again.", console, style="red")
    return not failures and not missing


def _needed(parts: Sequence[str], scale: Scale, store: Store) -> set[str]:
    """Return the large data sets that are still to be run."""
    runs = [run for name in parts for run in EXPERIMENTS[name].runs(scale)]
    return {run.data for run in runs if store.find(run) is None and run.data in scale.large}


def _carry_out(
    parts: Sequence[str], scale: Scale, store: Store, jobs: int, console: Console
) -> list[Failure]:
    runs = {name: with_starts(EXPERIMENTS[name].runs(scale)) for name in parts}
    everything: list[Run] = list(dict.fromkeys(run for own in runs.values() for run in own))
    done = {run for run in everything if store.find(run) is not None}
    if store.broken_lines:
        _say(f"Passed over in {store.path}: {store.broken_lines} cut off.", console)
    if done:
        _say(f"{len(done)} of {len(everything)} runs are stored already in {store.path}.", console)
    with Bars(console, runs, done) as bars:
        return carry_out(everything, store, jobs, bars)


def _say(text: str, console: Console, style: str | None = None) -> None:
    """Print a line as it is: paths may hold brackets, and are to be copied."""
    console.print(text, style=style, markup=False, soft_wrap=True)
