"""Learning curves: density, error and coverage on test rows as the training rows grow.

Samples are nested: the first n rows of one permutation train, and the last 3,000 rows test. The
default is shown beside the exact GP, neighbours, eigenfunctions alone and LightGBM.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from common import Array, check_known
from drawing import console, legend_above, line, new_figure, new_table, save
from joblib import Parallel, delayed
from record import Record, Results

from eigengp import EigenGPRegressor, ExactGPRegressor
from eigengp.metrics import coverage, mnlp, nmse
from realdata import load

DATA = ("california", "kin40k", "protein", "pole")
ROWS = (30, 100, 300, 990, 1_010, 1_400, 2_000, 5_000, 10_000)
TEST_ROWS = 3_000
_MOST_EXACT = 2_000
_HIGHEST = 3.0
"""Densities worse than this are drawn at the edge."""
_STYLES = {
    "default": "eigengp",
    "exact GP": "gpjax",
    "neighbours": "gpboost",
    "eigenfunctions alone": "gpytorch",
    "LightGBM": "lightgbm",
}
"""The model, and whose line is drawn for it."""
Predicted = tuple[Array, Array]


def run(
    out: Path,
    *,
    data: Sequence[str],
    rows: Sequence[int],
    models: Sequence[str],
    seeds: int | None,
    jobs: int,
) -> None:
    """Measure, print the table and draw the picture."""
    check_known(models, MODELS)
    results = opened(out)
    todo = [
        (name, model, n, seed)
        for n in sorted(rows, reverse=True)
        for name in data
        for model in models
        for seed in range(seeds or (10 if n <= 300 else 3))
        if n <= _MOST_EXACT or model != "exact GP"
    ]
    for record in Parallel(n_jobs=jobs, return_as="generator_unordered")(
        delayed(measure)(*each) for each in todo
    ):
        results.extend([record])
    show(results)
    draw(results)


def opened(out: Path) -> Results:
    """Return the stored results."""
    return Results(out, "curve", {"test_rows": TEST_ROWS}, ["data", "model", "rows", "seed"])


def sample(name: str, n: int, seed: int) -> tuple[Array, Array, Array, Array]:
    """Return nested training rows and the same test rows, targets standardised by the former."""
    X, y = load(name)
    order = np.random.default_rng(1000 + seed).permutation(y.size)
    X, y = X[order], y[order]
    y = (y - y[:n].mean()) / y[:n].std()
    return X[:n], y[:n], X[-TEST_ROWS:], y[-TEST_ROWS:]


def measure(name: str, model: str, n: int, seed: int) -> Record:
    """Fit one model to one sample, and score it on the test rows."""
    X, y, X_test, y_test = sample(name, n, seed)
    begun = time.perf_counter()
    mean, std = MODELS[model](X, y, X_test, seed)
    scores = {
        "nmse": nmse(y_test, mean),
        "mnlp": mnlp(y_test, mean, std),
        "coverage": coverage(y_test, mean, std, level=0.9),
        "seconds": time.perf_counter() - begun,
    }
    return {"library": model, "data": name, "model": model, "rows": n, "seed": seed, **scores}


def _ours(method: Callable[..., Any], **settings: Any) -> Callable[..., Predicted]:
    def fitted(X: Array, y: Array, X_test: Array, seed: int) -> Predicted:
        model = method(random_state=seed, **settings).fit(X, y)
        mean, std = model.predict(X_test, return_std=True)
        return mean, std

    return fitted


def _lightgbm(X: Array, y: Array, X_test: Array, seed: int) -> Predicted:
    """Boosted trees stopped early on a tenth of the rows, whose errors give the error bar."""
    if find_spec("lightgbm") is None:
        raise ValueError("LightGBM is not installed: pip install lightgbm, or leave it out.")
    from lightgbm import LGBMRegressor, early_stopping

    held_out = max(3, len(y) // 10)
    few = {"min_child_samples": max(1, min(20, len(y) // 10))}
    model = LGBMRegressor(
        n_estimators=2_000, learning_rate=0.05, n_jobs=1, verbose=-1, random_state=seed, **few
    )
    rows = (X[held_out:], y[held_out:])
    held = (X[:held_out], y[:held_out])
    model.fit(*rows, eval_set=[held], callbacks=[early_stopping(50, verbose=False)])
    std = float(np.sqrt(np.mean((held[1] - model.predict(held[0])) ** 2)))
    mean = np.asarray(model.predict(X_test))
    return mean, np.full(mean.shape, std)


MODELS: dict[str, Callable[..., Predicted]] = {
    "default": _ours(EigenGPRegressor),
    "exact GP": _ours(ExactGPRegressor),
    "neighbours": _ours(EigenGPRegressor, residual="neighbors"),
    "eigenfunctions alone": _ours(EigenGPRegressor, residual=None),
    "LightGBM": _lightgbm,
}


def mean_of(results: Results, score: str, **fields: Any) -> tuple[float, float, int]:
    """Return mean, standard error and number of a score over the seeds."""
    found = [each[score] for each in results.of(**fields)]
    finite = np.array([np.inf if each is None else each for each in found])
    spread = float(finite.std(ddof=1) / np.sqrt(finite.size)) if finite.size > 1 else 0.0
    return (float(finite.mean()) if found else np.nan), spread, finite.size


def show(results: Results) -> None:
    columns = ("data", "rows", "model", "NMSE", "MNLP", "90 % intervals hold", "s", "seeds")
    table = new_table("Means over the seeds", *columns, words=3)
    for name in DATA:
        for n in sorted({each["rows"] for each in results.of(data=name)}):
            for model in MODELS:
                fields = {"data": name, "rows": n, "model": model}
                error, density, held, seconds = (
                    mean_of(results, score, **fields)
                    for score in ("nmse", "mnlp", "coverage", "seconds")
                )
                if density[2]:
                    numbers = f"{error[0]:.4f}", f"{density[0]:.3f} ± {density[1]:.3f}"
                    rest = f"{100 * held[0]:.1f} %", f"{seconds[0]:.1f}", str(density[2])
                    table.add_row(name, f"{n:,}", model, *numbers, *rest)
        table.add_section()
    console.print(table)


def draw(results: Results) -> None:
    figure, axes = new_figure(1, len(DATA), 13.0, 3.6)
    for at, name in zip(axes[0], DATA, strict=True):
        at.set(title=name, xscale="log", xlabel="training rows")
        for model, style in _STYLES.items():
            rows = sorted({each["rows"] for each in results.of(data=name, model=model)})
            values = [mean_of(results, "mnlp", data=name, model=model, rows=n)[0] for n in rows]
            if not rows:
                continue
            at.plot(rows, np.minimum(values, _HIGHEST), label=model, **line(style))
    axes[0, 0].set_ylabel("MNLP, lower is better")
    legend_above(figure, list(axes[0]), len(_STYLES))
    save(figure, results.picture)
