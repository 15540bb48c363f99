"""The full GP beside scikit-learn's: one value and gradient of the evidence.

Each side runs in a process of its own, so that its peak memory is its own.
The first evaluation gives the memory, the second the time; the two sides take
turns, and the best of the turns counts.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from common import Array

NOISE = 0.1


def data(n_rows: int, n_inputs: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_inputs))
    return X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + NOISE * rng.normal(size=n_rows)


def ours(X: Array, y: Array) -> Callable[[], tuple[float, Array]]:
    from eigengp import SquaredExponential
    from eigengp.fitting.subset import EXACT_BLOCK_ROWS
    from eigengp.flow.exact import ExactGP
    from eigengp.sources.arrays import ArraySource

    model = ExactGP(SquaredExponential(np.full(X.shape[1], 5.0), 2.0), NOISE**2)
    source = ArraySource(X, y, block_rows=EXACT_BLOCK_ROWS)

    def evaluate() -> tuple[float, Array]:
        outcome, gradient = model.evaluate(source)
        return -outcome.value, -np.append(gradient.theta, gradient.log_noise_variance)

    return evaluate


def theirs(X: Array, y: Array) -> Callable[[], tuple[float, Array]]:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel(2.0) * RBF(np.full(X.shape[1], 5.0)) + WhiteKernel(NOISE**2)
    model = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None)
    model.X_train_, model.y_train_, model.kernel_ = X, y, kernel

    def evaluate() -> tuple[float, Array]:
        value, gradient = model.log_marginal_likelihood(kernel.theta, eval_gradient=True)
        return value, np.concatenate([gradient[1:-1], gradient[:1], gradient[-1:]])

    return evaluate


def measure(side: str, n_rows: int, n_inputs: int) -> dict[str, Any]:
    """Return seconds, peak memory beyond what was there before, value and gradient."""
    evaluate = {"ours": ours, "sklearn": theirs}[side](*data(n_rows, n_inputs))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    value, gradient = evaluate()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    start = time.perf_counter()
    evaluate()
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "MB": peak / 1024, "value": value, "gradient": gradient.tolist()}


def in_process(side: str, args: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, __file__, "--side", side, "--rows", str(args.rows)]
    command += ["--inputs", str(args.inputs)]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(out.stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--inputs", type=int, default=20)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--side", choices=["ours", "sklearn"])
    args = parser.parse_args()
    if args.side:
        print(json.dumps(measure(args.side, args.rows, args.inputs)))
        return
    turns = [(in_process("ours", args), in_process("sklearn", args)) for _ in range(args.turns)]
    best = [
        {key: min(turn[side][key] for turn in turns) for key in ("seconds", "MB")}
        for side in (0, 1)
    ]
    print(f"N = {args.rows}, D = {args.inputs}: value and gradient, best of {args.turns}")
    for name, own in zip(("eigengp", "scikit-learn"), best, strict=True):
        print(f"{name:13s} {own['seconds']:7.3f} s  {own['MB']:8.1f} MB beyond the data")
    print(f"{'ratio':13s} {best[1]['seconds'] / best[0]['seconds']:7.1f}    ", end="")
    print(f"{best[1]['MB'] / best[0]['MB']:8.1f}")
    mine, other = turns[0]
    gap = np.abs(np.subtract(mine["gradient"], other["gradient"])).max()
    scale = np.abs(other["gradient"]).max()
    print(f"evidence differs by {abs(mine['value'] / other['value'] - 1):.1e}, ", end="")
    print(f"gradient by {gap / scale:.1e}, relative")


if __name__ == "__main__":
    main()
