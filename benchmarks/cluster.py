"""One value and gradient on Dask workers of one thread each: speed and what travels."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from common import synthetic
from drawing import console, new_table
from record import Results
from timing import best_of

from eigengp import SquaredExponential
from eigengp._typing import Array
from eigengp.backend.threads import speed_up_passes
from eigengp.data.dask_source import DaskSource, align
from eigengp.gp.model import EigenGP, Jitter

_ROUNDS = 3
"""One worker and two are measured in turn so many times, since machines have moods."""


def run(out: Path, *, rows: int, size: int, turns: int) -> None:
    """Measure, and print the table."""
    inputs = 8
    X, y = synthetic(rows, inputs)
    kernel = SquaredExponential(np.full(inputs, 2.0))
    model = EigenGP(kernel, X[:size].copy(), 0.05, size, jitter=Jitter(1e-6))
    settings = {"rows": rows, "inputs": inputs, "size": size}
    results = Results(out, "cluster", settings, ["workers"])
    found = [_measured(model, X, y, workers, turns) for _ in range(_ROUNDS) for workers in (1, 2)]
    for workers in (1, 2):
        own = [each for each in found if each["workers"] == workers]
        allowed = 2 * workers * (size**2 + size * inputs) * 8
        results.extend([min(own, key=itemgetter("seconds")) | {"allowed": allowed}])
    first = results.of(workers=1)[0]
    heading = f"Value and gradient on Dask, N = {rows:,}, M = {size}, {os.cpu_count()} cores"
    table = new_table(heading, "workers", "s", "speed", "bytes moved", "bound", "ln p(y)")
    for each in results.records:
        table.add_row(
            str(each["workers"]),
            f"{each['seconds']:.2f}",
            f"{first['seconds'] / each['seconds']:.2f}",
            f"{each['bytes']:,}",
            f"{each['allowed']:,}",
            f"{-each['value']:.9g}",
        )
    console.print(table)


@dataclass(frozen=True)
class Counted(DaskSource):
    """A source that counts what it sends: terms, and all sums but the first that a worker adds."""

    sent: list[int] = field(default_factory=list)
    sums: dict[str, Any] = field(default_factory=dict)

    def _submit(self, function: Any, *arguments: Any, worker: str) -> Any:
        self.sent.extend(len(each) for each in arguments if isinstance(each, bytes))
        for first, *_ in (each for each in arguments if isinstance(each, list)):
            del self.sums[first.key]
        future = super()._submit(function, *arguments, worker=worker)
        self.sums[future.key] = future
        return future


def _measured(model: EigenGP, X: Array, y: Array, workers: int, turns: int) -> dict[str, Any]:
    """Start so many workers with one thread each, alone on the machine, and measure them."""
    import dask.array as da
    import distributed

    size = model.inducing_points.shape[0]
    chunk = -(-X.shape[0] // (4 * workers))
    lazy = da.from_array(X, chunks=(chunk, X.shape[1])), da.from_array(y, chunks=chunk)
    with (
        speed_up_passes(size),
        distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        source = DaskSource.of(client, *align(*lazy)).sized(size)
        model.evaluate(source)
        counted = Counted(**vars(source))
        outcome, _ = model.evaluate(counted)
        moved = sum(counted.sent) + sum(len(each.result()) for each in counted.sums.values())
        (seconds,) = best_of(turns, lambda: model.evaluate(source))
    record = {"library": "eigengp", "workers": workers, "seconds": seconds, "bytes": moved}
    return record | {"value": outcome.value}
