"""One value and gradient on Dask workers of one thread each: speed and what travels."""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
from common import synthetic
from drawing import console, new_table
from record import Results
from timing import best_of

from eigengp import SquaredExponential
from eigengp.flow.model import EigenGP, Jitter
from eigengp.sources.cluster import DaskSource, aligned
from eigengp.sources.threads import at_work
from eigengp.typing import Array


def run(out: Path, *, rows: int, size: int, turns: int) -> None:
    """Measure, and print the table."""
    inputs = 8
    X, y = synthetic(rows, inputs)
    kernel = SquaredExponential(np.full(inputs, 2.0))
    model = EigenGP(kernel, X[:size].copy(), 0.05, size, jitter=Jitter(1e-6))
    settings = {"rows": rows, "inputs": inputs, "size": size}
    results = Results(out, "cluster", settings, ["workers"])
    counts = (1, 2)
    with ExitStack() as stack:
        stack.enter_context(at_work(size))
        sources = [_on_workers(stack, X, y, workers).sized(size) for workers in counts]
        outcomes = [model.evaluate(each)[0] for each in sources]
        moved = [_bytes_moved(model, each) for each in sources]
        seconds = best_of(turns, *(partial(model.evaluate, each) for each in sources))
    for workers, took, sent, outcome in zip(counts, seconds, moved, outcomes, strict=True):
        allowed = 2 * workers * (size**2 + size * inputs) * 8
        record = {"library": "eigengp", "workers": workers, "seconds": took, "bytes": sent}
        results.extend([record | {"allowed": allowed, "value": outcome.value}])
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


def _on_workers(stack: ExitStack, X: Array, y: Array, workers: int) -> DaskSource:
    """Start so many workers, each with one thread, and give them the rows."""
    import dask.array as da
    import distributed

    cluster = distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, dashboard_address=None
    )
    client = stack.enter_context(distributed.Client(stack.enter_context(cluster)))
    chunk = -(-X.shape[0] // (4 * workers))
    lazy = da.from_array(X, chunks=(chunk, X.shape[1])), da.from_array(y, chunks=chunk)
    return DaskSource.of(client, *aligned(*lazy))


def _bytes_moved(model: EigenGP, source: DaskSource) -> int:
    before = source.traffic.bytes
    model.evaluate(source)
    return source.traffic.bytes - before
