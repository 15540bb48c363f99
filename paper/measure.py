"""Carry out one run: fit, predict, and write down all that the page and its figures need."""

from __future__ import annotations

import os
import platform
import time
import warnings
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np

from eigengp import metrics
from eigengp.backend.threads import count_available_threads
from paper.methods import build
from paper.problems import Problem, problem
from paper.runs import Record, Run

N_EIGENFUNCTIONS = 5
_DIGITS = 8
_LEARNED = ("inducing_points_", "spectral_points_", "relevance_vectors_", "weights_")


def measure(run: Run, start: Record | None = None) -> Record:
    """Return the record of a run.

    Parameters
    ----------
    run : Run
        What to fit.
    start : Record or None
        The record of `run.start`, whose kernel and noise the fit begins from.
    """
    task = problem(run.data, run.seed)
    if run.share > 1:
        task = task.thinned(run.share, run.seed)
    model = build(
        run.method,
        run.size,
        seed=run.seed,
        standardize=task.standardize,
        options=dict(run.options),
        start=start and start["hyperparameters"],
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        began = time.perf_counter()
        model.fit(task.X, task.y)
        fitted = time.perf_counter()
        mean, std = model.predict(task.X_test, return_std=True)
        ended = time.perf_counter()
    record: Record = {
        "key": run.key,
        "data": run.data,
        "method": run.method,
        "size": run.size,
        "seed": run.seed,
        "options": dict(run.options),
        "nmse": metrics.nmse(task.y_test, mean, train_mean=float(task.y.mean())),
        "mnlp": metrics.mnlp(task.y_test, mean, std),
        "seconds": fitted - began,
        "prediction_seconds": ended - fitted,
        "iterations": int(model.n_iter_),
        "log_evidence": float(model.log_marginal_likelihood_),
        "hyperparameters": _hyperparameters(model),
        "warnings": sorted({str(each.message) for each in caught}),
        "setting": _setting(),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if task.is_curve:
        record |= _curves(model, task, mean, std)
    return record


def _hyperparameters(model: Any) -> dict[str, Any]:
    kernel = model.kernel_
    found = {
        "lengthscale": rounded(np.atleast_1d(kernel.lengthscale)),
        "variance": float(kernel.variance),
        "noise_variance": float(model.noise_variance_),
    }
    for name in _LEARNED:
        if hasattr(model, name):
            found[name.rstrip("_")] = rounded(getattr(model, name))
    return found


def _curves(model: Any, task: Problem, mean: Any, std: Any) -> Record:
    curves = {"mean": rounded(mean), "std": rounded(std)}
    if hasattr(model, "eigenfunctions"):
        values = model.eigenfunctions(task.X_test).T[:N_EIGENFUNCTIONS]
        curves["eigenfunctions"] = rounded(values)
    return {"curves": curves}


def rounded(values: Any) -> list[Any]:
    """Return an array as lists of numbers with eight significant digits."""
    values = np.asarray(values, dtype=np.float64)
    if values.ndim > 1:
        return [rounded(row) for row in values]
    return [float(f"{value:.{_DIGITS}g}") for value in values]


@cache
def _setting() -> dict[str, Any]:
    """Return what the numbers depend on beside the code."""
    packages = ("eigengp", "numpy", "scipy", "scikit-learn")
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": count_available_threads(),
    }
