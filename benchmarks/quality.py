"""What each ingredient buys: test error, density and coverage with it and without."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import SETS, split
from drawing import console, new_table
from record import Results

from eigengp import EigenGPRegressor, metrics

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "local": {"residual": "local"},
    "local, kernel chosen": {"residual": "local", "kernel": "auto"},
    "local, kernel chosen, noise varying": {
        "residual": "local",
        "kernel": "auto",
        "noise": "varying",
    },
    "the same, twice the basis and neighbours": {
        "residual": "local",
        "kernel": "auto",
        "noise": "varying",
        "n_neighbors": 64,
    },
}


def run(out: Path, *, data: Sequence[str], seeds: int, size: int) -> None:
    """Measure, and print the table."""
    results = Results(out, "quality", {"size": size}, ["data", "variant", "seed"])
    for name in data:
        for seed in range(seeds):
            for variant, settings in VARIANTS.items():
                basis = size * 2 if "n_neighbors" in settings else size
                found = _measured(name, seed, EigenGPRegressor(basis, random_state=0, **settings))
                results.extend([{"library": "eigengp", "variant": variant, **found}])
    columns = ("data", "method", "NMSE", "MNLP", "90 % coverage", "fit, s", "predict, s")
    table = new_table(f"Means over {seeds} splits, M = {size}", *columns, words=2)
    for name in data:
        for variant in VARIANTS:
            own = results.of(data=name, variant=variant)
            mean = {
                key: float(np.mean([each[key] for each in own]))
                for key in ("nmse", "mnlp", "coverage", "seconds", "predicting")
            }
            table.add_row(
                name,
                variant,
                f"{mean['nmse']:.4f}",
                f"{mean['mnlp']:.3f}",
                f"{mean['coverage']:.3f}",
                f"{mean['seconds']:.1f}",
                f"{mean['predicting']:.1f}",
            )
        table.add_section()
    console.print(table)


def _measured(name: str, seed: int, model: EigenGPRegressor) -> dict[str, Any]:
    """Fit and predict one split."""
    X, y, X_test, y_test = split(name, seed)
    start = time.perf_counter()
    model.fit(X, y)
    fitted = time.perf_counter()
    mean, std = model.predict(X_test, return_std=True)
    ended = time.perf_counter()
    return {
        "data": name,
        "seed": seed,
        "nmse": float(metrics.nmse(y_test, mean)),
        "mnlp": float(metrics.mnlp(y_test, mean, std)),
        "coverage": float(metrics.coverage(y_test, mean, std, level=0.9)),
        "seconds": fitted - start,
        "predicting": ended - fitted,
        "kernel": type(model.kernel_).__name__,
    }


ALL = tuple(SETS)
