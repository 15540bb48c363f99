"""Classification beside scikit-learn: error, log loss, calibration error and seconds."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from drawing import console, new_table
from record import Results
from sklearn.datasets import load_breast_cancer, load_digits, make_moons
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from eigengp import EigenGPClassifier
from realdata import load

DATA = ("breast_cancer", "banana", "digits", "kin40k", "protein", "airline")
_TRAIN = {"breast_cancer": 380, "banana": 400, "digits": 1_200, "kin40k": 10_000, "protein": 20_000}
_AIRLINE_ROWS, _LATE = 100_000, 15.0
_MOST_TEST_ROWS, _MOST_DENSE_ROWS = 15_000, 2_000
_BINS = 15


def run(out: Path, *, data: tuple[str, ...]) -> None:
    """Measure, and print the table."""
    results = Results(out, "classify", {"test_rows": _MOST_TEST_ROWS}, ["data"])
    for name in data:
        X, y, X_test, y_test = split(name)
        for library, model in make_models(y.size).items():
            start = time.perf_counter()
            model.fit(X, y)
            seconds = time.perf_counter() - start
            p = model.predict_proba(X_test)
            record = {"library": library, "data": name, "seconds": seconds}
            record |= {"error": float(np.mean(model.classes_[p.argmax(axis=1)] != y_test))}
            record |= {"log_loss": float(log_loss(y_test, p, labels=model.classes_))}
            record |= {"calibration": measure_calibration(model.classes_, p, y_test)}
            results.extend([record])
    table = new_table(
        "classification", "data", "library", "log loss", "error", "calibration", "s", words=2
    )
    for each in results.records:
        numbers = (f"{each[key]:.4f}" for key in ("log_loss", "error", "calibration"))
        table.add_row(each["data"], each["library"], *numbers, f"{each['seconds']:.1f}")
    console.print(table)


def split(name: str) -> tuple[Any, ...]:
    """Return training and test rows of a set, split with seed 0."""
    if name == "breast_cancer":
        X, y = load_breast_cancer(return_X_y=True)
    elif name == "digits":
        X, y = load_digits(return_X_y=True)
    elif name == "banana":
        X, y = make_moons(5_300, noise=0.25, random_state=0)
    elif name == "airline":
        X, y = load("airline2001")
        y = y > _LATE
    else:
        X, y = load(name)
        y = y > np.median(y)
    n = _TRAIN.get(name, _AIRLINE_ROWS)
    order = np.random.default_rng(0).permutation(y.size)[: n + _MOST_TEST_ROWS]
    X, y = np.asarray(X[order], dtype=np.float64), np.asarray(y[order]).astype(int)
    return X[:n], y[:n], X[n:], y[n:]


def make_models(n_rows: int) -> dict[str, Any]:
    """Return the classifiers for so many rows, all with their defaults."""
    models = {
        "eigengp": EigenGPClassifier(random_state=0),
        "gradient boosting": HistGradientBoostingClassifier(random_state=0),
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=2_000)),
    }
    if n_rows <= _MOST_DENSE_ROWS:
        dense = GaussianProcessClassifier(ConstantKernel() * RBF(3.0), random_state=0)
        models["GaussianProcessClassifier"] = make_pipeline(StandardScaler(), dense)
    return models


def measure_calibration(classes: Any, p: Any, y: Any) -> float:
    """Return the expected calibration error of the most probable class, in 15 bins."""
    sure, right = p.max(axis=1), classes[p.argmax(axis=1)] == y
    bins = np.minimum((_BINS * sure).astype(int), _BINS - 1)
    gaps = [abs(float(np.sum(sure[bins == b] - right[bins == b]))) for b in range(_BINS)]
    return float(sum(gaps) / y.size)
