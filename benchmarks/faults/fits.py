"""Fits of all estimators to rows of all kinds: finite predictions, or a refusal that says why."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import eigengp
from eigengp import (
    LBFGS,
    EigenGPClassifier,
    EigenGPRegressor,
    ExactGPRegressor,
    FITCRegressor,
    Gaussian,
    NystromRegressor,
    PowerEPRegressor,
    RVMRegressor,
    SSGPRegressor,
    Stochastic,
    VFERegressor,
)
from faults import promise

Array = NDArray[np.float64]
Rng = np.random.Generator

STATIONARY = ("squared_exponential", "matern12", "matern32", "matern52", "rational_quadratic")
KERNELS = (*STATIONARY, "periodic", "linear", "polynomial")
_BAD = 0.03
"""The share of tables with a value that must be refused."""


def check(seed: int, folder: Path) -> str:
    """Fit an estimator to a few rows."""
    return fit_and_check(seed, folder, few=True)


def check_many_rows(seed: int, folder: Path) -> str:
    """Fit an estimator to 100 to 2,000 rows."""
    return fit_and_check(seed, folder, few=False)


def fit_and_check(seed: int, folder: Path, few: bool) -> str:
    """Fit what a seed describes, and check predictions, warnings and inputs."""
    rng = np.random.default_rng([seed, few])
    X, y, weight = make_rows(rng, few)
    model = make_model(rng, len(y), few)
    usable = _spoil(rng, X, y)
    before = X.copy(), y.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", UserWarning)
        try:
            model.fit(X, y, weight) if weight is not None else model.fit(X, y)
        except ValueError as error:
            if usable and not _explained(error):
                raise
            return "refused"
        if not usable:
            unlabelled = bool(np.isnan(y).any())
            ignored = weight is not None and not weight.all()
            promise(unlabelled or ignored, "unusable values were accepted")
            return "predicted"  # The row has no target, or does not count.
        _check_predictions(model, X, rng)
        if rng.random() < 0.1:
            _check_again(model, X, y, weight, folder)
    promise(np.array_equal(X, before[0]) and np.array_equal(y, before[1]), "inputs were changed")
    return "predicted"


def check_likelihoods(seed: int, folder: Path) -> str:
    """Fit classes, counts, heavy tails, quantiles or several outputs to a few rows."""
    rng = np.random.default_rng([seed, 2])
    X, y, weight = make_rows(rng)
    optimizer = LBFGS(n_restarts=1, max_iter=int(rng.integers(0, 5)))
    kernel = str(rng.choice((*STATIONARY, "auto")))
    settings: dict[str, Any] = {"kernel": kernel, "optimizer": optimizer, "random_state": 0}
    size = int(rng.integers(1, max(2, min(len(y), 20))))
    kind = int(rng.integers(6))
    order = np.argsort(np.argsort(y))
    if kind < 2:
        model: Any = EigenGPClassifier(size, **settings)
        y = np.array(["low", "middle", "high"])[order * (2 + kind) // len(y)]
    elif kind < 5:
        counts = str(rng.choice(["poisson", "negative_binomial"]))
        likelihood = ("student_t", counts, "quantile")[kind - 2]
        model = EigenGPRegressor(size, likelihood=likelihood, **settings)
        y = rng.poisson(np.exp(order / len(y))).astype(float) if kind == 3 else y
    else:
        model = EigenGPRegressor(size, **settings)
        y = np.column_stack([y, rng.normal(size=len(y))])
        y[1:, 1][rng.random(len(y) - 1) < 0.3] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", UserWarning)
        try:
            model.fit(X, y, weight) if weight is not None else model.fit(X, y)
        except ValueError as error:
            stated = ("at least two classes", "fewer than two values")
            if not (_explained(error) or any(each in str(error) for each in stated)):
                raise
            return "refused"
        values = model.predict_proba(X) if kind < 2 else np.stack(model.predict(X, return_std=True))
        promise(bool(np.isfinite(values).all()), "a prediction is not finite")
        promise(kind > 1 or np.allclose(values.sum(axis=1), 1.0), "probabilities do not add to one")
        if rng.random() < 0.1:
            path = folder / "model.eigengp"
            model.save(path)
            again = eigengp.load(path).predict(X)
            promise(np.array_equal(again, model.predict(X)), "a loaded model differs")
    return "predicted"


def _explained(error: ValueError) -> bool:
    """Return whether an error names a limit that `docs/limitations.md` states."""
    stated = ("at least as many different inputs", "is not possible", "Change its unit")
    return any(each in str(error) for each in stated)


def _check_predictions(model: Any, X: Array, rng: Rng) -> None:
    spread = X.std(axis=0, dtype=np.float64) + 1e-3 * np.abs(X).max(axis=0)
    stationary = str(getattr(model, "kernel", "auto")) in (*STATIONARY, "auto")
    far = 10.0 ** rng.uniform(1, 30 if stationary else 3, (4, 1))  # Others extrapolate.
    far = far * rng.choice([-1.0, 1.0], (4, X.shape[1]))
    new = X[:5] + spread * rng.normal(size=(len(X[:5]), X.shape[1]))
    rows = np.vstack([X[:10], new, X[:1] + far * spread])
    rows = np.clip(rows, np.finfo(X.dtype).min, np.finfo(X.dtype).max).astype(X.dtype)
    mean, std = model.predict(rows, return_std=True)
    promise(mean.shape == std.shape == (len(rows),), "shape of predictions")
    promise(bool(np.isfinite(mean).all()), "a mean is not finite")
    promise(bool(np.isfinite(std).all()), "a standard deviation is not finite")
    promise(bool((std >= 0.0).all()), "a variance is negative")
    low, high = model.predict_interval(rows, 0.8)
    promise(bool((low <= high).all()), "an interval is empty")
    promise(np.array_equal(mean, model.predict(rows, return_std=True)[0]), "predictions differ")


def _check_again(model: Any, X: Array, y: Array, weight: Any, folder: Path) -> None:
    """Check that a file and a second fit give the same to the last bit."""
    mean = model.predict(X)
    path = folder / "model.eigengp"
    model.save(path)
    promise(np.array_equal(eigengp.load(path).predict(X), mean), "a loaded model differs")
    again = eigengp.load(path)
    if getattr(again, "max_time", None) is not None:
        return  # Such a fit depends on the clock.
    again.fit(X, y, weight) if weight is not None else again.fit(X, y)
    promise(np.array_equal(again.predict(X), mean), "a second fit differs")


def make_rows(rng: Rng, few: bool = True) -> tuple[Array, Array, Array | None]:
    """Return inputs, targets and weights of a random kind."""
    n = int(rng.integers(1, 61)) if few else int(10.0 ** rng.uniform(2.0, 3.3))
    D = int(rng.choice([1, 1, 2, 3, 4, 8])) if rng.random() < 0.95 else 30
    X = np.column_stack([rng.choice(COLUMNS)(rng, n) * _unit(rng) for _ in range(D)])
    if rng.random() < 0.2:
        X = X[rng.integers(0, max(1, n // 3), n)]  # Rows stand several times.
    y = rng.choice(TARGETS)(rng, X) * _unit(rng)
    weight = rng.choice(WEIGHTS)(rng, n) if rng.random() < 0.3 else None
    dtype = np.float32 if rng.random() < 0.1 and max(np.abs(X).max(), 1.0) < 1e15 else np.float64
    return np.ascontiguousarray(X, dtype), y, weight


def _unit(rng: Rng) -> float:
    """Return the unit of a column: mostly one, or any that squares allow."""
    return 1.0 if rng.random() < 0.6 else float(10.0 ** rng.uniform(-120.0, 120.0))


def _with_outlier(rng: Rng, n: int) -> Array:
    values = rng.normal(size=n)
    values[0] = 10.0 ** rng.uniform(1.0, 12.0)
    return values


def _size(X: Array) -> float:
    return max(float(np.abs(X).max()), 1e-140)


COLUMNS: list[Callable[[Rng, int], Array]] = [
    lambda rng, n: rng.normal(size=n),
    lambda rng, n: rng.uniform(size=n),
    lambda rng, n: rng.integers(-3, 4, n).astype(float),
    lambda rng, n: np.arange(n, dtype=float),
    lambda rng, n: np.full(n, rng.choice([0.0, 1.0, 0.1 + 0.2 - 0.3, -1e-300, 1e9])),
    lambda rng, n: rng.standard_cauchy(n),
    lambda rng, n: 1e8 + rng.normal(size=n),
    lambda rng, n: rng.choice([0.0, 1.0], n),
    lambda rng, n: np.exp(3.0 * rng.normal(size=n)),
    _with_outlier,
]
TARGETS: list[Callable[[Rng, Array], Array]] = [
    lambda rng, X: np.sin(9.0 * X[:, 0] / _size(X)) + 0.1 * rng.normal(size=len(X)),
    lambda rng, X: rng.normal(size=len(X)),
    lambda rng, X: np.full(len(X), rng.choice([0.0, -3.0, 1e-17, 1e6])),
    lambda rng, X: rng.choice([0.0, 1.0], len(X)),
    lambda rng, X: X @ rng.normal(size=X.shape[1]) / _size(X),
    lambda rng, X: rng.standard_cauchy(len(X)),
    lambda rng, X: np.exp(2.0 * rng.normal(size=len(X))),
    lambda rng, X: _with_outlier(rng, len(X)),
]
WEIGHTS: list[Callable[[Rng, int], Array]] = [
    lambda rng, n: rng.uniform(0.5, 2.0, n),
    lambda rng, n: rng.integers(1, 4, n).astype(float),
    lambda rng, n: np.append(rng.integers(0, 2, n - 1), 1).astype(float),
    lambda rng, n: 10.0 ** rng.uniform(-6.0, 6.0, n),
]


def _spoil(rng: Rng, X: Array, y: Array) -> bool:
    """Make some tables unusable, in place; return whether a table is usable."""
    if rng.random() > _BAD:
        return True
    column = X[:, int(rng.integers(X.shape[1]))] if rng.random() < 0.5 else y
    value = rng.choice([np.nan, np.inf, -np.inf, 1e200, -1e160])
    column[int(rng.integers(len(y)))] = value if column.dtype == np.float64 else np.nan
    return False


def make_model(rng: Rng, n: int, few: bool = True) -> Any:
    """Return an estimator with random parameters, of which a fit takes little time."""
    optimizer = LBFGS(
        str(rng.choice(["auto", "sequential", "joint", "direct"])),
        n_restarts=1,
        max_iter=int(rng.integers(0, 6)),
    )
    size = int(rng.integers(1, max(2, min(n, 20))))
    common: dict[str, Any] = {
        "random_state": 0,
        "standardize": rng.choice([True, False, "robust"], p=[0.7, 0.1, 0.2]),
        "kernel": str(rng.choice(KERNELS if rng.random() < 0.3 else STATIONARY)),
    }
    if common["standardize"] != "robust":
        common["standardize"] = str(common["standardize"]) == "True"
    learned = {**common, "mean": str(rng.choice(["constant", "zero", "linear"], p=[0.8, 0.1, 0.1]))}
    sparse = {
        **learned,
        "inducing_points": str(rng.choice(["auto", "kmeans", "random", "greedy"])),
        "precision": str(rng.choice(["double", "mixed", "single"], p=[0.8, 0.1, 0.1])),
        "optimizer": LBFGS(n_restarts=1, max_iter=optimizer.max_iter),
    }
    spectral = {**sparse, "kernel": str(rng.choice(STATIONARY[:-1]))}
    del spectral["inducing_points"]
    kind = int(rng.integers(10))
    if kind <= 2:
        return _make_eigengp(rng, size, sparse, optimizer)
    models: list[Callable[[], Any]] = [
        lambda: EigenGPRegressor(max_time=0.5 if few else 2.0, random_state=0),
        lambda: ExactGPRegressor(**learned, optimizer=sparse["optimizer"]),
        lambda: FITCRegressor(size, **sparse),
        lambda: VFERegressor(size, **sparse),
        lambda: PowerEPRegressor(size, alpha=float(rng.uniform(0.1, 1.0)), **sparse),
        lambda: SSGPRegressor(size, **spectral),
        lambda: rng.choice([_make_rvm, _make_nystrom, _make_transformed])(rng, size, sparse),
    ]
    return models[kind - 3]()


def _make_eigengp(rng: Rng, size: int, sparse: dict[str, Any], optimizer: Any) -> Any:
    residual = rng.choice(np.array([None, "diagonal", "neighbors", "exact", "auto"], dtype=object))
    if residual in ("neighbors", "exact"):  # Others of these settings are not possible with them.
        optimizer, sparse = sparse["optimizer"], {**sparse, "precision": "double"}
        sparse["inducing_points"] = "auto"
    likelihood = str(rng.choice(["auto", "gaussian", "heteroscedastic"]))
    if rng.random() < 0.1:
        optimizer, residual = Stochastic(batch_size=16, max_iter=1, n_restarts=1), None
    settings = {**sparse, "optimizer": optimizer, "residual": residual, "likelihood": likelihood}
    if rng.random() < 0.3:
        settings["kernel"] = "auto"
    count = "auto" if residual == "exact" else size
    return EigenGPRegressor(count, n_neighbors=int(rng.integers(1, 30)), **settings)


def _make_rvm(rng: Rng, size: int, sparse: dict[str, Any]) -> Any:
    lengthscale = "cv" if rng.random() < 0.2 else float(10.0 ** rng.uniform(-2, 2))
    kernel = str(rng.choice(STATIONARY))
    settings = {"max_iter": 20, "n_folds": 2, "n_jobs": 1, "kernel": kernel, "random_state": 0}
    return RVMRegressor(lengthscale=lengthscale, standardize=sparse["standardize"], **settings)


def _make_nystrom(rng: Rng, size: int, sparse: dict[str, Any]) -> Any:
    return NystromRegressor(size, **{**sparse, "optimizer": None})


def _make_transformed(rng: Rng, size: int, sparse: dict[str, Any]) -> Any:
    tame = {"mean": "constant", "kernel": str(rng.choice(STATIONARY))}  # No extrapolation.
    likelihood = Gaussian(transform=str(rng.choice(["auto", "yeo-johnson"])))
    settings = {**sparse, **tame, "likelihood": likelihood}
    return EigenGPRegressor(size, residual=None, **settings)
