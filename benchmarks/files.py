"""A fit from Parquet files beside the same fit in memory: seconds, peak memory, evidence.

Each fit has a process of its own. Peak memory is that of the whole process, libraries included.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

Record = dict[str, Any]
SIZE, ITERATIONS = 200, 20
GENERATED_ROWS, GENERATED_SIZE, GENERATED_ITERATIONS = 20_000_000, 50, 3
_PART = 1_000_000


def run(out: Path, *, data: Path, generated: int) -> None:
    """Measure, and print the table."""
    from drawing import console, new_table
    from record import Results

    settings = {"size": SIZE, "iterations": ITERATIONS}
    results = Results(out, "files", settings, ["data", "variant", "rows"])
    airline = data / "airline2001.parquet"
    for variant in ("memory", "file"):
        results.extend([_asked(airline, "target", variant, SIZE, ITERATIONS)])
    for rows in (generated // 4, generated):
        with tempfile.TemporaryDirectory() as folder:
            generate(Path(folder), rows)
            found = _asked(Path(folder), "y", "file", GENERATED_SIZE, GENERATED_ITERATIONS)
        results.extend([found | {"data": "generated"}])
    columns = ("data", "from", "rows", "M", "seconds", "peak MB", "ln p(y) per row")
    table = new_table("Fits from files and in memory", *columns, words=2)
    for each in results.records:
        table.add_row(
            each["data"],
            each["variant"],
            f"{each['rows']:,}",
            str(each["basis"]),
            f"{each['seconds']:.1f}",
            f"{each['megabytes']:.0f}",
            f"{each['evidence'] / each['rows']:.12f}",
        )
    console.print(table)


def generate(folder: Path, rows: int) -> None:
    """Write normal inputs and `sin(x₁) + x₂x₃ + noise` to Parquet files of a million rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for part, start in enumerate(range(0, rows, _PART)):
        rng = np.random.default_rng(part)
        count = min(_PART, rows - start)
        X = rng.standard_normal((count, 8), dtype=np.float32)
        y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(count)
        columns = {f"x{j}": X[:, j] for j in range(8)} | {"y": y.astype(np.float32)}
        path = folder / f"part{part:04}.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=1 << 17)


def _asked(path: Path, target: str, variant: str, size: int, iterations: int) -> Record:
    order = {"path": str(path), "target": target, "variant": variant}
    order |= {"size": size, "iterations": iterations}
    command = [sys.executable, __file__, json.dumps(order)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: Record = json.loads(answer.splitlines()[-1])
    return {"library": "eigengp", "data": path.stem, "variant": variant, "basis": size, **found}


def fit(order: Record) -> Record:
    """Fit once, and say what it took."""
    from eigengp import LBFGS, EigenGPRegressor

    optimizer = LBFGS(max_iter=order["iterations"])
    model = EigenGPRegressor(order["size"], optimizer=optimizer, random_state=0)
    start = time.perf_counter()
    if order["variant"] == "memory":
        import pyarrow.parquet as pq

        table = pq.read_table(order["path"])
        y = table.column(order["target"]).to_numpy().astype(np.float64)
        inputs = [name for name in table.column_names if name != order["target"]]
        X = np.column_stack([table.column(name).to_numpy() for name in inputs])
        del table
        model.fit(X, y)
        rows = y.size
    else:
        import pyarrow.dataset

        rows = pyarrow.dataset.dataset(order["path"]).count_rows()
        model.fit(order["path"], order["target"])
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    evidence = model.log_marginal_likelihood_
    return {"rows": rows, "seconds": seconds, "megabytes": peak, "evidence": evidence}


if __name__ == "__main__":
    print(json.dumps(fit(json.loads(sys.argv[1]))))
