"""Classification beside other libraries: error, log loss, calibration error and seconds."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from drawing import console, new_table
from peers.asking import OURS, Panel
from peers.protocol import score_classes
from record import Results
from sklearn.datasets import load_breast_cancer, load_digits, make_moons
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from eigengp import EigenGPClassifier
from realdata import VARIABLE, data_folder, load

DATA = ("breast_cancer", "banana", "digits", "kin40k", "protein", "airline")
_AIRLINE_ROWS, _LATE = 100_000, 15.0
_MOST_TEST_ROWS, _MOST_DENSE_ROWS, _LARGE_ROWS = 15_000, 2_000, 5_000
LIBRARIES = (OURS, "gpflow", "gpboost")
_SIZES = {
    "breast_cancer": (380, 30),
    "banana": (400, 2),
    "digits": (1_200, 64),
    "kin40k": (10_000, 8),
    "protein": (20_000, 9),
    "airline": (_AIRLINE_ROWS, 8),
}
_SHORT = "eigengp, one kernel"
_TITLES = {
    OURS: "`EigenGPClassifier()`",
    _SHORT: 'with `kernel="squared_exponential"`',
    "GaussianProcessClassifier": "`GaussianProcessClassifier`",
    "gpflow": "GPflow SVGP",
    "gpboost": "GPBoost",
    "gradient boosting": "`HistGradientBoostingClassifier`",
    "logistic regression": "logistic regression",
}
_POINTS, _MARKS = 400, (300, 1_000, 3_000)
"""Inducing points of GPflow's SVGP, and the iterations after which it is scored."""
_CPU_LIMIT = 900
"""Seconds of CPU time after which another library is stopped."""
_SPLITS = {"banana": 5}
"""How many splits, with consecutive seeds, a set has; others have one."""


def run(panel: Panel, out: Path, *, data: tuple[str, ...], seed: int) -> None:
    """Measure, and print the table."""
    settings = {"test_rows": _MOST_TEST_ROWS, "seed": seed}
    results = Results(out, "classify", settings, ["data", "seed", "iteration"])
    for name, own in [(each, seed + i) for each in data for i in range(_SPLITS.get(each, 1))]:
        X, y, X_test, y_test = split(name, own)
        for library, model in make_models(y.size).items() if OURS in panel else ():
            start, before = time.perf_counter(), time.process_time()
            model.fit(X, y)
            record = {"library": library, "data": name, "seconds": time.perf_counter() - start}
            record |= {"cpu_seconds": time.process_time() - before, "seed": own}
            results.extend([record | score_classes(model.predict_proba(X_test), y_test)])
        scaler = StandardScaler().fit(X)
        arrays = {"X": scaler.transform(X), "X_test": scaler.transform(X_test)}
        arrays |= {"y": y.astype(float), "y_test": y_test.astype(float)}
        for library in (each for each in panel if each != OURS):
            options = {"size": _POINTS, "marks": _MARKS, "cpu_limit": _CPU_LIMIT}
            answer = panel.ask(library, "classify", arrays, **options)
            if answer.error and not answer.records:
                nothing = {"library": library, "iteration": None, "log_loss": None}
                answer.records = [nothing | {"error": None, "why": answer.error}]
            results.add(answer, data=name, seed=own)
    table = new_table(
        "classification",
        "data",
        "seed",
        "library",
        "log loss",
        "error",
        "calibration",
        "s",
        words=3,
    )
    for each in (each for each in results.records if each["log_loss"] is not None):
        numbers = (f"{each[key]:.4f}" for key in ("log_loss", "error", "calibration"))
        steps = f", {each['iteration']} steps" if each.get("iteration") else ""
        row = each["data"], str(each["seed"]), each["library"] + steps
        table.add_row(*row, *numbers, f"{each['seconds']:.1f}")
    console.print(table)


def split(name: str, seed: int) -> tuple[Any, ...]:
    """Return training and test rows of a set, split at random."""
    if name == "breast_cancer":
        X, y = load_breast_cancer(return_X_y=True)
    elif name == "digits":
        X, y = load_digits(return_X_y=True)
    elif name == "banana":
        X, y = make_moons(5_300, noise=0.25, random_state=seed)
    elif name == "airline":
        X, delay = _read_airline()
        y = delay > _LATE
    else:
        X, y = load(name)
        y = y > np.median(y)
    n = _SIZES[name][0]
    order = np.random.default_rng(seed).permutation(y.size)[: n + _MOST_TEST_ROWS]
    X, y = np.asarray(X[order], dtype=np.float64), np.asarray(y[order]).astype(int)
    return X[:n], y[:n], X[n:], y[n:]


def make_text(out: Path) -> str:
    """Return the stored numbers as a table in Markdown; of several iterations the last counts.

    They are averages over the splits that all libraries have.
    """
    records = json.loads((out / "classify.json").read_text())["records"]
    splits: dict[tuple[str, str], dict[int, Any]] = {}
    for each in sorted(records, key=lambda each: each.get("iteration") or 0):
        splits.setdefault((each["data"], each["library"]), {})[each["seed"]] = each
    seeds: dict[str, set[int]] = {}
    for (name, _), own in splits.items():
        seeds[name] = seeds.get(name, own.keys()) & own.keys()
    found = {key: _average([own[i] for i in seeds[key[0]]]) for key, own in splits.items()}
    libraries = [name for name in _TITLES if any(each["library"] == name for each in records)]
    lines = [
        f"| data (training rows × inputs) | {' | '.join(_TITLES[each] for each in libraries)} |",
        "|---" * (len(libraries) + 1) + "|",
    ]
    for name in DATA:
        own = {each: found[name, each] for each in libraries if (name, each) in found}
        if not own:
            continue
        finished = [each for each in own if own[each]["log_loss"] is not None]
        best = min(finished, key=lambda each: own[each]["log_loss"])
        cells = [_format_cell(own.get(each), bold=each == best) for each in libraries]
        rows, inputs = _SIZES[name]
        more = f", {len(seeds[name])} splits" if len(seeds[name]) > 1 else ""
        title = f"{name.replace('_', ' ')} ({rows:,} × {inputs}{more})"
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _average(records: list[Any]) -> Any:
    """Return the mean scores and seconds of the splits of a library."""
    if any(each["log_loss"] is None for each in records):
        return records[-1]
    names = ("log_loss", "error", "cpu_seconds")
    return {name: float(np.mean([each[name] for each in records])) for name in names}


def _format_cell(record: dict[str, Any] | None, bold: bool) -> str:
    if record is None:
        return "–"
    if record["log_loss"] is None:
        return str(record["why"])
    loss, seconds = f"{record['log_loss']:.3f}", record["cpu_seconds"]
    percent = f"{100.0 * record['error']:.1f} %"
    spent = f"{seconds:,.0f}" if seconds >= 10.0 else f"{seconds:.2g}"
    return f"{f'**{loss}**' if bold else loss} / {percent} / {spent} s"


def _read_airline() -> tuple[Any, Any]:
    folder = data_folder()
    if folder is None:
        raise FileNotFoundError(f"airline needs airline2001.parquet in the folder of {VARIABLE}.")
    table = pq.read_table(folder / "airline2001.parquet")
    X = np.column_stack([table[name].to_numpy() for name in table.column_names[:-1]])
    return X, table["target"].to_numpy()


def make_models(n_rows: int) -> dict[str, Any]:
    """Return the classifiers for so many rows; ours also without a comparison of kernels."""
    models = {
        "eigengp": EigenGPClassifier(random_state=0),
        "gradient boosting": HistGradientBoostingClassifier(random_state=0),
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=2_000)),
    }
    if n_rows <= _MOST_DENSE_ROWS:
        dense = GaussianProcessClassifier(ConstantKernel() * RBF(3.0), random_state=0)
        models["GaussianProcessClassifier"] = make_pipeline(StandardScaler(), dense)
    if n_rows >= _LARGE_ROWS:
        models[_SHORT] = EigenGPClassifier(kernel="squared_exponential", random_state=0)
    return models
