"""The campaign: faults by the thousand, and how many of them kept what is promised.

Cases are numbered, and a number always makes the same case. They run in batches, in one process or
several. Each batch is on the disk when it and those before it have ended, so that a campaign that
was stopped continues where it was.
"""

from __future__ import annotations

import multiprocessing
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from drawing import console, new_table
from faults import ENDS, Check
from record import Record, Results

Batch = tuple[str, int, int]
"""A part, its first case, and the number of cases."""
BATCHES = {"fits": 100, "files": 100, "tables": 50}
"""Cases in a batch of a part; the slower ones have fewer."""
_BATCH = 20
_LONGEST = 120
"""Seconds after which a case counts as hung."""
PARTS = {
    "fits": "1 to 60 rows, all estimators",
    "larger fits": "100 to 2,000 rows",
    "likelihoods": "classes, counts, heavy tails, quantiles, several outputs; 1 to 60 rows",
    "files": "damaged and forged model files",
    "tables": "malformed tables on the command line",
    "kills": "fit, save, predictions, command; full disk",
    "processes": "fork, spawn, loky, threads",
    "resources": "Dask workers killed, memory limits, full disks",
}


def run(
    out: Path,
    *,
    counts: dict[str, int],
    again: bool,
    minutes: float | None = None,
    jobs: int = 1,
) -> bool:
    """Run what is not stored yet, print the counts, and return whether no promise was broken."""
    sizes = {part: BATCHES.get(part, _BATCH) for part in counts}
    results = Results(out, "campaign", {"batch": _BATCH, **BATCHES}, ["part", "first", "count"])
    batches = []
    for part, count in counts.items():
        for first in range(0, count, sizes[part]):
            size = min(sizes[part], count - first)
            stored = results.of(part=part, first=first, count=size)
            if not stored or (again and stored[0]["failures"]):
                batches.append((part, first, size))
    for record in _run_batches(batches, time.monotonic() + 60.0 * (minutes or 1e9), jobs):
        results.extend([record])
    show(results.records)
    return not any(each["failures"] for each in results.records)


def _run_batches(batches: list[Batch], ends: float, jobs: int) -> Iterable[Record]:
    """Yield the records of batches, in order; start none after the time `ends`."""
    if jobs == 1:
        yield from (run_batch(*each) for each in batches if time.monotonic() < ends)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for record in pool.map(_run_in_time, batches, [ends] * len(batches)):
            if record is not None:
                yield record


def _run_in_time(batch: Batch, ends: float) -> Record | None:
    return run_batch(*batch) if time.monotonic() < ends else None


def get_check(part: str) -> Check:
    """Return the function that runs a case of a part."""
    from faults import files, fits, processes, resources, tables

    return {
        "fits": fits.check,
        "larger fits": fits.check_many_rows,
        "likelihoods": fits.check_likelihoods,
        "files": files.check,
        "tables": tables.check,
        "kills": processes.check_kills,
        "processes": processes.check,
        "resources": resources.check,
    }[part]


def run_batch(part: str, first: int, count: int) -> Record:
    """Run some cases, and return how they ended."""
    check, ended, failures = get_check(part), Counter[str](), list[Record]()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            try:
                with _at_most(_LONGEST):
                    ended[check(seed, Path(folder))] += 1
            except Exception as error:
                failures.append({"seed": seed, **_describe(error)})
    seconds = round(time.perf_counter() - began, 1)
    record: Record = {"library": "eigengp", "part": part, "first": first, "count": count}
    return record | {end: ended[end] for end in ENDS} | {"failures": failures, "seconds": seconds}


def _describe(error: BaseException) -> Record:
    """Return what a failure says, and where in the library it arose."""
    frames = [
        each for each in traceback.extract_tb(error.__traceback__) if "eigengp" in each.filename
    ]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return {"error": type(error).__name__, "message": str(error)[:200], "where": where}


@contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    """Raise `TimeoutError` in a block that takes longer."""

    def stop(*_: Any) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def make_text(records: list[Record]) -> str:
    """Return the counts of each part as a table of Markdown."""
    heads = ("part", "cases", *ENDS, "failed", "minutes")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for part, what in PARTS.items():
        own = [each for each in records if each["part"] == part]
        sums = [f"{sum(each[name] for each in own):,}" for name in ("count", *ENDS)]
        failed = sum(len(each["failures"]) for each in own)
        minutes = sum(each["seconds"] for each in own) / 60.0
        lines.append(f"| {part}: {what} | {' | '.join(sums)} | {failed} | {minutes:.1f} |")
    return "\n".join(lines) + "\n"


def show(records: list[Record]) -> None:
    """Print the counts of each part, and what failed."""
    table = new_table("The campaign", "part", "cases", *ENDS, "failed", "s", words=1)
    for part in PARTS:
        own = [each for each in records if each["part"] == part]
        sums = [sum(each[name] for each in own) for name in ("count", *ENDS)]
        failed = sum(len(each["failures"]) for each in own)
        seconds = sum(each["seconds"] for each in own)
        table.add_row(part, *map(str, sums), str(failed), f"{seconds:.0f}")
    console.print(table)
    for record in records:
        for each in record["failures"]:
            console.print(record["part"], each, markup=False)
