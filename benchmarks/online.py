"""Batches of kin40k: one pass of learning from a stream beside the fit of all rows at once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from drawing import console, new_table
from record import Results

from eigengp import EigenGPRegressor, Stochastic
from eigengp.metrics import mnlp, nmse
from realdata import load

BATCH, TRAIN = 1_000, 36_000


def run(out: Path, *, size: int) -> None:
    """Measure, and print the table."""
    X, y = load("kin40k")
    order = np.random.default_rng(0).permutation(y.size)
    train, test = order[:TRAIN], order[TRAIN:]
    results = Results(out, "online", {"size": size, "batch": BATCH}, ["variant"])

    def batch_by_batch(optimizer: Any) -> EigenGPRegressor:
        model = EigenGPRegressor(size, optimizer=optimizer, random_state=0)
        for rows in np.array_split(train, TRAIN // BATCH):
            model.partial_fit(X[rows], y[rows])
        return model

    works = {
        "all rows at once": lambda: EigenGPRegressor(size, residual=None, random_state=0).fit(
            X[train], y[train]
        ),
        "one pass, stochastic": lambda: batch_by_batch(Stochastic()),
        "first batch, then exact updates": lambda: batch_by_batch("auto"),
    }
    for variant, work in works.items():
        start = time.perf_counter()
        model = work()
        seconds = time.perf_counter() - start
        mean, std = model.predict(X[test], return_std=True)
        record = {"library": "eigengp", "variant": variant, "seconds": seconds}
        record |= {"nmse": nmse(y[test], mean), "mnlp": mnlp(y[test], mean, std)}
        results.extend([record])
    table = new_table(f"kin40k, {TRAIN:,} rows, M = {size}", "how", "NMSE", "MNLP", "s", words=1)
    for each in results.records:
        numbers = (f"{each['nmse']:.4f}", f"{each['mnlp']:.3f}", f"{each['seconds']:.1f}")
        table.add_row(each["variant"], *numbers)
    console.print(table)
