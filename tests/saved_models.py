"""Small fitted models of every kind that can be saved, and all that they say.

Run as a program it writes the files that every later version must read, and
keeps those that exist.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from eigengp import (
    LBFGS,
    EigenGPRegressor,
    ExactGPRegressor,
    FITCRegressor,
    Heteroscedastic,
    Matern12,
    Matern32,
    Matern52,
    NystromRegressor,
    PowerEPRegressor,
    RationalQuadratic,
    RVMRegressor,
    SquaredExponential,
    SSGPRegressor,
    Stochastic,
    VFERegressor,
)

Rows = tuple[np.ndarray, np.ndarray]

_SHORT: dict[str, Any] = {"optimizer": LBFGS(n_restarts=1, max_iter=2), "random_state": 0}
_MIXTURE = Matern52(0.5) + SquaredExponential([0.4, 0.6]) * Matern32(0.8, variance=2.0)
KINDS: dict[str, Callable[[], Any]] = {
    "sequential": lambda: EigenGPRegressor(5, **_SHORT),
    "joint": lambda: EigenGPRegressor(
        5, kernel=_MIXTURE, optimizer=LBFGS("joint", n_restarts=1, max_iter=2), random_state=0
    ),
    "nothing learned": lambda: EigenGPRegressor(
        5, optimizer=LBFGS(n_restarts=1, max_iter=0), random_state=0
    ),
    "fewer eigenfunctions": lambda: EigenGPRegressor(
        3, inducing_points=5, precision="mixed", **_SHORT
    ),
    "diagonal": lambda: EigenGPRegressor(5, residual="diagonal", standardize=False, **_SHORT),
    "linear mean": lambda: EigenGPRegressor(5, mean="linear", **_SHORT),
    "neighbors": lambda: EigenGPRegressor(5, residual="neighbors", n_neighbors=6, **_SHORT),
    "heteroscedastic": lambda: EigenGPRegressor(
        5,
        residual="neighbors",
        n_neighbors=6,
        likelihood="heteroscedastic",
        kernel="auto",
        **_SHORT,
    ),
    "heteroscedastic alone": lambda: EigenGPRegressor(
        5, residual=None, likelihood=Heteroscedastic(variance=0.1), **_SHORT
    ),
    "stochastic": lambda: EigenGPRegressor(
        5,
        optimizer=Stochastic(batch_size=50, n_restarts=1, max_iter=1),
        random_state=0,
    ),
    "exact": lambda: ExactGPRegressor(RationalQuadratic(0.5), **_SHORT),
    "FITC": lambda: FITCRegressor(5, inducing_points=rows(5, seed=3)[0], **_SHORT),
    "VFE": lambda: VFERegressor(5, kernel=Matern12(0.5), **_SHORT),
    "power EP": lambda: PowerEPRegressor(5, **_SHORT),
    "SSGP": lambda: SSGPRegressor(6, **_SHORT),
    "Nyström": lambda: NystromRegressor(5, **_SHORT),
    "RVM": lambda: RVMRegressor(lengthscale=0.6),
}

SAVED = Path(__file__).parent / "saved"
KEPT = {"exact": 20, "joint": 30, "heteroscedastic": 100, "SSGP": 30, "stochastic": 40}
"""Of which kinds there are files, and of how many rows each model was learned."""


def rows(count: int, seed: int = 0) -> Rows:
    """Draw rows with two inputs."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(count, 2))
    return X, np.sin(5.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=count)


@cache
def fitted(kind: str) -> Any:
    """Return a fitted model that is not to be changed; no two tests learn it twice."""
    return KINDS[kind]().fit(*rows(110))


def answers(model: Any) -> dict[str, Any]:
    """Return all that a model says of new inputs."""
    X = 1.4 * rows(12, seed=1)[0] - 0.2
    mean, std = model.predict(X, return_std=True)
    varying = "heteroscedastic" in str(getattr(model, "likelihood", None)).lower()
    found = {
        "mean": mean,
        "std": std,
        "mean alone": model.predict(X),
        "covariance": model.predict(X, return_cov=True)[1],
        "interval": np.stack(model.predict_interval(X, 0.8)),
        "gradient": np.asarray(model.predict_gradient(X, not varying)),
        "functions": model.sample_y(X, 3, random_state=5),
        "evidence": np.array(model.log_marginal_likelihood()),
    }
    for name in ("eigenfunctions", "raw_variance"):
        if hasattr(model, name):
            found[name] = getattr(model, name)(X)
    return found


def keep(kind: str, version: int) -> None:
    """Write a model and what it says, unless it is there."""
    path = SAVED / f"{kind}-{version}.eigengp"
    if path.exists():
        return
    model = KINDS[kind]().fit(*rows(KEPT[kind]))
    if kind in ("joint", "stochastic"):
        model.partial_fit(*rows(10, seed=4))
    model.save(path)
    said = {name: value.tolist() for name, value in answers(model).items()}
    path.with_suffix(".json").write_text(json.dumps(said) + "\n")


def assert_same_answers(model: Any, other: Any) -> None:
    """Compare two models to the last bit."""
    expected, found = answers(model), answers(other)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name, strict=True)


if __name__ == "__main__":
    from eigengp.io.models import FORMAT

    for each in KEPT:
        keep(each, FORMAT)
