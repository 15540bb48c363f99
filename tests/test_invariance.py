"""Order, sign, shift and scale of the inputs, and constant columns, do not change where fits start.

Learning magnifies the rounding that such a change brings, so that predictions of short fits agree
to less than they would if starts alone mattered; other starts differ by far more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from eigengp import (
    LBFGS,
    EigenGPRegressor,
    ExactGPRegressor,
    RVMRegressor,
    SSGPRegressor,
    VFERegressor,
)

CHANGES: dict[str, Callable[[Any], Any]] = {
    "order": lambda X: X[:, [2, 0, 1]],
    "sign": lambda X: X * [1, -1, 1],
    "constant column": lambda X: np.column_stack([X, np.full(len(X), 0.3)]),
    "constant first": lambda X: np.column_stack([np.full(len(X), 0.3), X]),
    "shift": lambda X: X + np.array([3.0, -7.0, 0.1]),
    "scale": lambda X: X * [3.0, 0.01, 1000.0],
}


def _start(max_iter: int = 0, **settings: Any) -> dict[str, Any]:
    return {"optimizer": LBFGS(max_iter=max_iter, n_restarts=2), "random_state": 0, **settings}


STARTS: dict[str, Callable[[], Any]] = {
    "k-means": lambda: EigenGPRegressor(8, residual=None, **_start()),
    "random points": lambda: VFERegressor(8, inducing_points="random", **_start()),
    "greedy points": lambda: EigenGPRegressor(
        8, residual=None, inducing_points="greedy", **_start()
    ),
    "spectral points": lambda: SSGPRegressor(8, **_start()),
    "exact": lambda: ExactGPRegressor(**_start(3)),
    "RVM": lambda: RVMRegressor(lengthscale=0.8, random_state=0),
}
FITS: dict[str, tuple[Callable[[], Any], float]] = {
    "eigenfunctions": (lambda: EigenGPRegressor(8, residual=None, **_start(3)), 2e-3),
    "neighbors": (
        lambda: EigenGPRegressor(8, residual="neighbors", kernel="matern32", **_start(3)),
        2e-3,
    ),
    "VFE": (lambda: VFERegressor(8, **_start(3)), 2e-3),
}


def _rows(n: int, rounded: bool) -> tuple[Any, Any]:
    rng = np.random.default_rng(n)
    X = rng.uniform(-2, 2, (n, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * rng.normal(size=n)
    return X, y.round(1) if rounded else y


def _find_difference(make: Callable[[], Any], change: str, n: int, rounded: bool) -> float:
    """Return the largest difference of predictions, relative to the range of the targets."""
    (X, y), new, change_inputs = _rows(n, rounded), _rows(20, False)[0], CHANGES[change]
    before = make().fit(X, y).predict(new)
    after = make().fit(change_inputs(X), y).predict(change_inputs(new))
    return float(np.abs(after - before).max() / np.ptp(y))


@pytest.mark.parametrize("rounded", [False, True], ids=["targets differ", "targets repeat"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", STARTS)
def test_starts_do_not_depend_on_how_inputs_are_given(
    name: str, change: str, rounded: bool
) -> None:
    assert _find_difference(STARTS[name], change, 60, rounded) < 1e-6


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", FITS)
def test_short_fits_hardly_depend_on_how_inputs_are_given(name: str, change: str) -> None:
    make, bound = FITS[name]
    assert _find_difference(make, change, 60, rounded=True) < bound


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kernel", ["matern52", "auto"])
def test_draws_of_hyperparameters_do_not_depend_on_how_inputs_are_given(
    kernel: str, change: str
) -> None:
    def make() -> Any:
        return EigenGPRegressor(kernel=kernel, residual="exact", **_start(5))

    assert _find_difference(make, change, 60, rounded=True) < 1e-6


def test_a_constant_column_keeps_the_prior_mean_of_its_lengthscale() -> None:
    X, y = _rows(60, False)
    model = EigenGPRegressor(kernel="matern52", residual="exact", **_start(5))
    model.fit(CHANGES["constant first"](X), y)
    length = model.kernel_.lengthscale[0] / model._scaling.input_scale[0]
    assert length == pytest.approx(3.0 * np.sqrt(3.0))
