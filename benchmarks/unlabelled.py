"""Few labels and many rows: what unlabelled rows add, on clusters, curves and neither."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from drawing import console, new_table
from record import Results
from sklearn.datasets import make_moons

from eigengp import LBFGS, EigenGPClassifier, EigenGPRegressor, Gaussian, SquaredExponential

DATA = ("moons", "rings", "clusters", "sine")
_ROWS, _PER_CLASS, _POINTS = 1_000, 5, 200
_LENGTHSCALES, _COMPONENTS = (0.2, 0.4, 0.8), (4, 8, 16)


def run(out: Path, *, seeds: int) -> None:
    """Measure the share of wrong signs of held-out rows, and print the table."""
    results = Results(out, "unlabelled", {"rows": _ROWS, "per_class": _PER_CLASS}, ["data"])
    for name in DATA:
        found: dict[str, list[float]] = {}
        for seed in range(seeds):
            X, y, X_test, y_test = make_rows(name, seed)
            known = choose_labels(y, seed)
            partly = np.where(known, y, np.nan)
            models = {
                "labelled rows, default": EigenGPRegressor(random_state=0).fit(X[known], y[known]),
                "labelled rows, classifier": EigenGPClassifier(random_state=0).fit(
                    X[known], y[known]
                ),
                "labelled rows, eigenfunctions": fit_eigenfunctions(X[known], y[known]),
                "all rows, eigenfunctions": fit_eigenfunctions(X, partly),
            }
            for each, model in models.items():
                wrong = float(np.mean(np.sign(model.predict(X_test)) != y_test))
                found.setdefault(each, []).append(wrong)
        results.extend(
            {"library": each, "data": name, "error": float(np.mean(wrong)), "seeds": seeds}
            for each, wrong in found.items()
        )
    table = new_table("ten labels of 1,000 rows", "data", "model", "error", words=2)
    for each in results.records:
        table.add_row(each["data"], each["library"], f"{each['error']:.3f}")
    console.print(table)


def fit_eigenfunctions(X: Any, y: Any) -> EigenGPRegressor:
    """Fit a few eigenfunctions; the log marginal likelihood chooses lengthscale and number."""
    fits = []
    size = min(_POINTS, len(y))
    for lengthscale, components in product(_LENGTHSCALES, _COMPONENTS):
        kernel = SquaredExponential(lengthscale * float(np.mean(X.std(axis=0))))
        model = EigenGPRegressor(
            min(components, size),
            inducing_points=size,
            residual=None,
            kernel=kernel,
            likelihood=Gaussian(0.1),
            optimizer=LBFGS(max_iter=0, n_restarts=1),
            random_state=0,
        )
        fits.append(model.fit(X, y))
    return max(fits, key=lambda each: each.log_marginal_likelihood_)


def make_rows(name: str, seed: int) -> tuple[Any, ...]:
    """Return training and test rows with targets −1 and 1."""
    rng, n = np.random.default_rng(seed), 2 * _ROWS
    y = rng.integers(0, 2, n)
    if name == "moons":
        X, y = make_moons(n, noise=0.08, random_state=seed)
    elif name == "rings":
        angle, radius = rng.uniform(0, 2 * np.pi, n), 0.5 + 0.5 * y + 0.06 * rng.normal(size=n)
        X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    elif name == "clusters":
        centres = 2.0 * rng.normal(size=(4, 5))
        X = centres[2 * y + rng.integers(0, 2, n)] + 0.5 * rng.normal(size=(n, 5))
    else:  # The density of the rows says nothing about the classes.
        X = rng.uniform(-1, 1, (n, 2))
        y = X[:, 1] > 0.5 * np.sin(4.0 * X[:, 0])
    y = 2.0 * y - 1.0
    return X[:_ROWS], y[:_ROWS], X[_ROWS:], y[_ROWS:]


def choose_labels(y: Any, seed: int) -> Any:
    """Return which rows are labelled: a few of each class."""
    rng, known = np.random.default_rng(100 + seed), np.zeros(y.size, dtype=bool)
    for label in np.unique(y):
        known[rng.choice(np.flatnonzero(y == label), _PER_CLASS, replace=False)] = True
    return known
