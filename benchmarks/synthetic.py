"""The paper's two synthetic data sets: NMSE and MNLP of every method of its comparison.

Data set 1 compares with the mean of the exact GP, which has mean zero, hence
standardize=False there. Data set 2 is x·sin(x³), the authors' ten draws.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from common import Array
from joblib import Parallel, delayed

import eigengp
from eigengp import SquaredExponential, datasets
from eigengp.metrics import mnlp, nmse

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "exact GP": ("ExactGPRegressor", {}),
    "Nyström": ("NystromRegressor", {}),
    "Nyström*": ("NystromRegressor", {"optimize": True}),
    "FITC": ("FITCRegressor", {}),
    "VFE": ("VFERegressor", {}),
    "power EP 0.5": ("PowerEPRegressor", {"alpha": 0.5}),
    "SSGP": ("SSGPRegressor", {}),
    "RVM": ("RVMRegressor", {}),
    "EigenGP": ("EigenGPRegressor", {}),
    "EigenGP*": ("EigenGPRegressor", {"optimization": "joint"}),
    "EigenGP+": ("EigenGPRegressor", {"residual": "diagonal"}),
    "EigenGP no guard": ("EigenGPRegressor", {"guard": False}),
    "EigenGP* no guard": ("EigenGPRegressor", {"optimization": "joint", "guard": False}),
    "EigenGP+ no guard": ("EigenGPRegressor", {"residual": "diagonal", "guard": False}),
}
WITHOUT_SIZE = ("exact GP", "RVM")


def snelson() -> tuple[Array, Array, Array, Array]:
    data = datasets.fetch_snelson()
    assert data.X_test is not None
    X, y, grid = data.X, data.y, data.X_test
    grid = grid[(grid[:, 0] >= -1) & (grid[:, 0] <= 7)]
    kernel = SquaredExponential(0.61234, 0.87702**2)
    truth = kernel(grid, X) @ np.linalg.solve(kernel(X) + 0.28222**2 * np.eye(y.size), y)
    return X, y, grid, truth


def nonstationary(run: int) -> tuple[Array, Array, Array, Array]:
    data = datasets.fetch_nonstationary().run(run + 1)
    assert data.X_test is not None
    assert data.f_test is not None
    return data.X, data.y, data.X_test, data.f_test


def one(data_set: int, seed: int, size: int, name: str) -> tuple[float, ...]:
    X, y, grid, truth = snelson() if data_set == 1 else nonstationary(seed)
    class_name, own = METHODS[name]
    settings = own if name in WITHOUT_SIZE else own | {"n_components": size}
    model = getattr(eigengp, class_name)(random_state=seed, standardize=data_set != 1, **settings)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eigengp.NegativeVarianceWarning)
        model.fit(X, y)
        seconds = time.perf_counter() - start
        mean, std = model.predict(grid, return_std=True)
    return nmse(truth, mean, train_mean=float(y.mean())), mnlp(truth, mean, std), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--sizes", nargs="+", default=["1:7", "2:14"], help="data set : M")
    args = parser.parse_args()
    print("data  M   model               NMSE     ± s.e.     MNLP    ± s.e.   seconds")
    for case in args.sizes:
        data_set, size = map(int, case.split(":"))
        for name in args.methods:
            work = (delayed(one)(data_set, seed, size, name) for seed in range(args.runs))
            out = np.array(Parallel(args.jobs)(work))
            mean, error = out.mean(axis=0), out.std(axis=0, ddof=1) / np.sqrt(args.runs)
            print(
                f"{data_set}    {size:3d}   {name:18s} {mean[0]:.5f} ± {error[0]:.5f}  "
                f"{mean[1]:.4f} ± {error[1]:.4f}  {mean[2]:6.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
