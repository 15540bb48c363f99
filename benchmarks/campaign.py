"""The campaign: faults by the thousand, and how many of them kept what is promised.

Cases are numbered, and a number always makes the same case. They run in batches, each of which is
on the disk when it ends: a campaign that was stopped goes on where it was.
"""

from __future__ import annotations

import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from drawing import console, new_table
from faults import ENDS, Check
from record import Record, Results

BATCH = 100
_LONGEST = 120
"""Seconds after which a case counts as hung."""
PARTS = {
    "fits": "1 to 60 rows, all estimators",
    "larger fits": "100 to 2,000 rows",
    "files": "damaged and forged model files",
    "tables": "malformed tables on the command line",
    "kills": "fit, save, predictions, command; full disk",
    "processes": "fork, spawn, loky, threads",
    "resources": "Dask workers killed, memory limits, full disks",
}


def run(out: Path, *, counts: dict[str, int], again: bool, minutes: float | None = None) -> bool:
    """Run what is not stored yet, print the counts, and return whether no promise was broken."""
    results = Results(out, "campaign", {"batch": BATCH}, ["part", "first", "count"])
    ends = time.monotonic() + 60.0 * (minutes or 1e9)
    for part, count in counts.items():
        for first in range(0, count, BATCH):
            size = min(BATCH, count - first)
            stored = results.of(part=part, first=first, count=size)
            if stored and not (again and stored[0]["failures"]):
                continue
            if time.monotonic() < ends:
                results.extend([run_batch(part, first, size)])
    show(results.records)
    return not any(each["failures"] for each in results.records)


def get_check(part: str) -> Check:
    """Return the function that runs a case of a part."""
    from faults import files, fits, processes, resources, tables

    return {
        "fits": fits.check,
        "larger fits": fits.check_many_rows,
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
