"""The paper's two synthetic data sets: NMSE and MNLP of EigenGP, EigenGP* and EigenGP+.

Data set 1 compares with the mean of the exact GP, which has mean zero, hence
standardize=False there. Data set 2 is x·sin(x³), the authors' ten draws.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from common import Array, scores, table
from joblib import Parallel, delayed

from eigengp import EigenGPRegressor, SquaredExponential

MODELS: dict[str, dict[str, Any]] = {
    "EigenGP": {},
    "EigenGP*": {"optimization": "joint"},
    "EigenGP+": {"residual": "diagonal"},
}


def snelson() -> tuple[Array, Array, Array, Array]:
    frame, grid = table("snelson"), table("snelson_test").to_numpy(float)
    X, y = frame[["x"]].to_numpy(float), frame["y"].to_numpy(float)
    grid = grid[(grid[:, 0] >= -1) & (grid[:, 0] <= 7)]
    kernel = SquaredExponential(0.61234, 0.87702**2)
    truth = kernel(grid, X) @ np.linalg.solve(kernel(X) + 0.28222**2 * np.eye(y.size), y)
    return X, y, grid, truth


def nonstationary(run: int) -> tuple[Array, Array, Array, Array]:
    frame, grid = table("nonstationary"), table("nonstationary_test")
    rows = frame[frame["run"] == run + 1]
    X, y = rows[["x"]].to_numpy(float), rows["y"].to_numpy(float)
    return X, y, grid[["x"]].to_numpy(float), grid["f"].to_numpy(float)


def one(data_set: int, seed: int, size: int, settings: dict[str, Any]) -> tuple[float, ...]:
    X, y, grid, truth = snelson() if data_set == 1 else nonstationary(seed)
    start = time.perf_counter()
    model = EigenGPRegressor(size, random_state=seed, **settings).fit(X, y)
    seconds = time.perf_counter() - start
    mean, std = model.predict(grid, return_std=True)
    return (*scores(truth, mean, std, float(y.mean())), seconds, model.weights_.size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    runs, jobs = (args := parser.parse_args()).runs, args.jobs
    print("data  M   model               NMSE     ± s.e.     MNLP    ± s.e.   seconds  kept")
    cases = [(1, 7, {"standardize": False}), (1, 7, {"standardize": False, "guard": False})]
    cases += [(2, 14, {}), (2, 14, {"guard": False}), (2, 50, {}), (2, 50, {"guard": False})]
    for data_set, size, common in cases:
        for name, own in MODELS.items():
            work = (delayed(one)(data_set, seed, size, common | own) for seed in range(runs))
            out = np.array(Parallel(jobs)(work))
            mean, error = out.mean(axis=0), out.std(axis=0, ddof=1) / np.sqrt(runs)
            label = name + (" no guard" if "guard" in common else "")
            print(
                f"{data_set}    {size:3d}   {label:18s} {mean[0]:.5f} ± {error[0]:.5f}  "
                f"{mean[1]:.4f} ± {error[1]:.4f}  {mean[2]:6.2f}  {mean[3]:4.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
