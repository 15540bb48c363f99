"""Order and sign of the inputs and constant columns do not change fits; shift and scale hardly.

Few rows are learned from with their inputs in an order of their own, without constant ones. Another
shift or scale brings rounding, which learning magnifies; other starts differ by far more.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigengp import (
    LBFGS,
    EigenGPRegressor,
    ExactGPRegressor,
    FITCRegressor,
    RVMRegressor,
    SSGPRegressor,
    VFERegressor,
    load,
)
from eigengp.kernels import (
    Linear,
    Matern32,
    Periodic,
    RationalQuadratic,
    SquaredExponential,
    Warped,
)

CHANGES: dict[str, Callable[[Any], Any]] = {
    "order": lambda X: X[:, [2, 0, 1]],
    "sign": lambda X: X * [1, -1, 1],
    "constant column": lambda X: np.column_stack([X, np.full(len(X), 0.3)]),
    "all of them": lambda X: np.insert(X[:, [2, 0, 1]] * [1, -1, 1], 0, 0.3, axis=1),
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
FITS: dict[str, Callable[[], Any]] = {
    "eigenfunctions": lambda: EigenGPRegressor(8, residual=None, **_start(3)),
    "neighbors": lambda: EigenGPRegressor(8, residual="neighbors", kernel="matern32", **_start(3)),
    "VFE": lambda: VFERegressor(8, **_start(3)),
    "FITC": lambda: FITCRegressor(8, **_start(8)),
    "SSGP": lambda: SSGPRegressor(8, **_start(8)),
    "default": lambda: EigenGPRegressor(random_state=0),
    "Student t": lambda: EigenGPRegressor(8, likelihood="student_t", **_start(2)),
    "robust": lambda: ExactGPRegressor(standardize="robust", **_start(3)),
    "one scale": lambda: VFERegressor(8, standardize=False, **_start(3)),
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


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", STARTS)
def test_starts_do_not_depend_on_how_inputs_are_given(name: str, change: str) -> None:
    assert _find_difference(STARTS[name], change, 60, rounded=True) < 1e-6


@pytest.mark.parametrize("name", FITS)
def test_order_sign_and_constant_inputs_do_not_change_a_bit(name: str) -> None:
    X, y = _rows(40, rounded=True)
    rows = X.round() if name in ("VFE", "neighbors") else X  # Rows that repeat, and ties.
    new, change = _rows(20, False)[0], CHANGES["all of them"]
    one, other = FITS[name]().fit(rows, y), FITS[name]().fit(change(rows), y)
    np.testing.assert_array_equal(other.predict(change(new)), one.predict(new))


@pytest.mark.parametrize("n", [520, 2_050])
def test_signs_do_not_change_a_bit_where_local_gps_learn(n: int) -> None:
    rng = np.random.default_rng(n)
    X, new = rng.normal(size=(n, 2)), rng.normal(size=(20, 2))
    y = np.sin(2 * (X[:, 0] - X[:, 1])) + 0.3 * rng.normal(size=n)
    one, other = (EigenGPRegressor(**_start(3)).fit(s * X, y).predict(s * new) for s in (1, -1))
    np.testing.assert_array_equal(other, one)


@pytest.mark.parametrize("change", ["shift", "scale"])
@pytest.mark.parametrize("name", ["eigenfunctions", "neighbors", "VFE"])
def test_shift_and_scale_hardly_change_short_fits(name: str, change: str) -> None:
    assert _find_difference(FITS[name], change, 40, rounded=True) < 2e-3


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kernel", ["matern52", "auto"])
def test_draws_of_hyperparameters_do_not_depend_on_how_inputs_are_given(
    kernel: str, change: str
) -> None:
    def make() -> Any:
        return EigenGPRegressor(kernel=kernel, residual="exact", **_start(5))

    assert _find_difference(make, change, 60, rounded=True) < 1e-6


@pytest.mark.parametrize("name", ["eigenfunctions", "neighbors", "SSGP", "robust", "default"])
def test_what_is_learned_is_in_the_order_of_the_inputs(name: str, tmp_path: Path) -> None:
    X, y = _rows(40, False)
    whole, order = np.column_stack([np.full(len(X), 0.3), X[:, [2, 0, 1]]]), [2, 3, 1]
    one, other = FITS[name]().fit(X, y), FITS[name]().fit(whole, y)
    assert (one._scaling.columns, other.n_features_in_) != (other._scaling.columns, 3)
    matrices = one.kernel_(X[:9]), other.kernel_(whole[:9])
    np.testing.assert_allclose(matrices[1], matrices[0], rtol=1e-12)
    np.testing.assert_array_equal(other.predict_gradient(whole)[:, order], one.predict_gradient(X))
    assert not other.predict_gradient(whole)[:, 0].any()
    np.testing.assert_allclose(other.input_relevance()[order], one.input_relevance(), rtol=1e-9)
    effects = other.input_effects()
    np.testing.assert_allclose(effects[order], one.input_effects(), atol=1e-9)
    assert effects[0] < 1e-20
    for points in ("inducing_points_", "spectral_points_"):
        if hasattr(one, points):
            np.testing.assert_array_equal(getattr(other, points)[:, order], getattr(one, points))
    other.save(tmp_path / "model.eigengp")
    np.testing.assert_array_equal(load(tmp_path / "model.eigengp").predict(whole), one.predict(X))


@pytest.mark.parametrize(
    "kernel",
    [
        Matern32([0.3, 2.0]),
        Linear([0.3, 2.0], center=[1.0, -1.0]) * Periodic(0.7, [2.0, 3.0]),
        Warped(RationalQuadratic([0.3, 2.0]), [-2.0, -3.0], [2.0, 3.0], [0.5, 2.0]),
        SquaredExponential(0.5, active_dims=[1]) + Linear(active_dims=[0], center=[0.2]),
    ],
)
def test_an_embedded_kernel_uses_its_own_inputs(kernel: Any) -> None:
    X = _rows(8, False)[0]
    whole = np.column_stack([X[:, 1], np.zeros(8), X[:, 0]])
    np.testing.assert_allclose(kernel.embed((2, 0), 3)(whole), kernel(X[:, :2]), rtol=1e-12)


def test_an_input_that_varies_later_counts_in_partial_fit() -> None:
    X, y = _rows(60, False)
    first = np.column_stack([X[:, 1:], np.full(60, 0.3)])
    model = EigenGPRegressor(8, residual=None, **_start(3)).partial_fit(first, y)
    model.partial_fit(np.column_stack([X[:, 1:], X[:, 0]]), y)
    assert model.predict_gradient(first)[:, 2].any()
