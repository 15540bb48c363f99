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

_LOCAL = {"residual": "local"}
_CHOSEN = _LOCAL | {"kernel": "auto"}
_VARYING = _CHOSEN | {"noise": "varying"}
VARIANTS: dict[str, tuple[int, dict[str, Any]]] = {
    "plain": (1, {}),
    "local": (1, _LOCAL),
    "local, kernel chosen": (1, _CHOSEN),
    "local, kernel chosen, noise varying": (1, _VARYING),
    "the same, twice the basis and neighbours": (2, _VARYING | {"n_neighbors": 64}),
}
"""How many times as many basis points, and the settings."""


def run(out: Path, *, data: Sequence[str], seeds: int, size: int) -> None:
    """Measure, and print the table."""
    results = Results(out, "quality", {"size": size}, ["data", "variant", "seed"])
    for name in data:
        for seed in range(seeds):
            for variant, (times, settings) in VARIANTS.items():
                model = EigenGPRegressor(times * size, random_state=0, **settings)
                found = _measured(name, seed, model)
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
