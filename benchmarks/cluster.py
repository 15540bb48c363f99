"""One value and gradient on Dask workers of one thread each: speed and what travels."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from common import synthetic
from drawing import console, new_table
from record import Results
from timing import best_of

from eigengp import SquaredExponential
from eigengp.flow.model import EigenGP, Jitter
from eigengp.sources.cluster import DaskSource, aligned


def run(out: Path, *, rows: int, size: int, turns: int) -> None:
    """Measure, and print the table."""
    import dask.array as da
    import distributed

    inputs = 8
    X, y = synthetic(rows, inputs)
    kernel = SquaredExponential(np.full(inputs, 2.0))
    model = EigenGP(kernel, X[:size].copy(), 0.05, size, jitter=Jitter(1e-6))
    settings = {"rows": rows, "inputs": inputs, "size": size}
    results = Results(out, "cluster", settings, ["workers"])
    for workers in (1, 2):
        chunk = -(-rows // (4 * workers))
        with (
            distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address=None
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            lazy = da.from_array(X, chunks=(chunk, inputs)), da.from_array(y, chunks=chunk)
            source = DaskSource.of(client, *aligned(*lazy)).sized(size)
            outcome, _ = model.evaluate(source)
            before = source.traffic.bytes
            model.evaluate(source)
            moved = source.traffic.bytes - before
            (seconds,) = best_of(turns, lambda s=source: model.evaluate(s))
        allowed = 2 * workers * (size**2 + size * inputs) * 8
        record = {"library": "eigengp", "workers": workers, "seconds": seconds, "bytes": moved}
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
