"""One value and gradient of this checkout beside another one, in interleaved pairs.

    git worktree add ../before REVISION
    python benchmarks/evalcost_pairs.py ../before/src

Both run in their own process with one BLAS thread, and take turns. A turn is the least CPU time of
four evaluations of `log_marginal_likelihood` with its gradient; the median ratio of five pairs
counts. Writes `results/evalcost_pairs.json`.
"""

from __future__ import annotations

import inspect
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve()
SIZES, PAIRS, CALLS = (50, 200, 400), 5, 4
ROWS, INPUTS = 20_000, 9


def serve() -> None:
    """Answer each number of inducing points on standard input with seconds and value."""
    import numpy as np

    from eigengp import SquaredExponential, log_marginal_likelihood

    known = inspect.signature(log_marginal_likelihood).parameters
    name = next(each for each in ("inducing_points", "inducing_inputs") if each in known)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, INPUTS))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=ROWS)
    B = X[rng.choice(ROWS, max(SIZES), replace=False)]
    common = {"kernel": SquaredExponential(3.0), "noise_variance": 0.05, "eval_gradient": True}
    for line in sys.stdin:
        seconds, value = [], 0.0
        for _ in range(CALLS):
            began = time.process_time()
            value, _gradient = log_marginal_likelihood(X, y, **{name: B[: int(line)]}, **common)
            seconds.append(time.process_time() - began)
        print(json.dumps([min(seconds), value]), flush=True)


def start(source: str) -> subprocess.Popen[str]:
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    environment = {**os.environ, **one, "PYTHONPATH": source}
    command = [sys.executable, str(HERE), "--serve"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)


def ask(process: subprocess.Popen[str], size: int) -> tuple[float, float]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{size}\n")
    process.stdin.flush()
    seconds, value = json.loads(process.stdout.readline())
    return seconds, value


def main(base: str) -> None:
    both = {"before": start(base), "after": start(str(HERE.parents[1] / "src"))}
    found = []
    for size in SIZES:
        for process in both.values():
            ask(process, size)  # The first call is not counted.
        turns = []
        for pair in range(PAIRS):
            order = sorted(both, reverse=bool(pair % 2))
            turns.append({name: ask(both[name], size) for name in order})
        ratios = [turn["after"][0] / turn["before"][0] for turn in turns]
        record = {"size": size, "ratio": statistics.median(ratios), "ratios": ratios}
        for name in both:
            record[f"{name}_seconds"] = statistics.median(turn[name][0] for turn in turns)
            record[f"{name}_value"] = turns[0][name][1]
        found.append(record)
        print(f"M = {size}: {record['ratio']:.3f}", flush=True)
    for process in both.values():
        process.communicate()
    settings = {"rows": ROWS, "inputs": INPUTS, "pairs": PAIRS, "calls": CALLS}
    path = HERE.parent / "results" / "evalcost_pairs.json"
    path.write_text(json.dumps({"settings": settings, "records": found}, indent=1) + "\n")


if __name__ == "__main__":
    if "--serve" in sys.argv:
        serve()
    else:
        main(sys.argv[1])
