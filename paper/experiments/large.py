"""The runs on the large data sets, which all but the RVM begin from the same exact GP."""

from __future__ import annotations

from typing import Any

from paper.runs import Record, Run
from paper.scale import Scale
from paper.section import Results

CURVES = ("EigenGP", "EigenGP*", "EigenGP, guarded", "FITC", "SSGP")
"""The methods that are drawn."""
NYSTROM = ("Nyström", "Nyström*")
"""Those that would leave the axes."""
_TENTH = 10


def start_run(scale: Scale, data: str) -> Run:
    """Return the exact GP on a tenth of the rows."""
    return Run(data, "exact GP", options=(("max_iter", scale.max_iter),), share=_TENTH)


def sized_run(scale: Scale, data: str, method: str, size: int) -> Run:
    """Return the run of a method with `size` basis functions, from the common start."""
    options: dict[str, Any] = {"max_iter": scale.max_iter, "n_restarts": 1}
    if method == "Nyström":
        options = {"max_iter": 0}
    if method == "EigenGP*":
        options["strategy"] = "direct"
    return Run(data, method, size, 0, tuple(options.items()), start=start_run(scale, data))


def rvm_run(scale: Scale, data: str) -> Run:
    """Return the RVM, which has neither that start nor a size."""
    return Run(data, "RVM", options=scale.rvm_large)


def large_runs(scale: Scale) -> list[Run]:
    """Return all of them, the longest first, so that no worker is left with one at the end."""
    found = [start_run(scale, data) for data in scale.large]
    found += [rvm_run(scale, data) for data in scale.large]
    for size in reversed(scale.sizes):
        found += [
            sized_run(scale, data, method, size)
            for data in scale.large
            for method in (*CURVES, *NYSTROM)
        ]
    return found


def curve(results: Results, data: str, method: str) -> list[Record]:
    """Return the records of a method, the smallest basis first."""
    return [results[sized_run(results.scale, data, method, size)] for size in results.scale.sizes]


def seconds(record: Record) -> str:
    """Return the training seconds as a person would write them."""
    value = record["seconds"]
    return f"{value:.1f} s" if value < 9.95 else f"{value:.0f} s"
