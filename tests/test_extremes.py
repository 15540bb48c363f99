"""Values at the ends of what numbers can be: far inputs, tiny constants, huge and tiny units."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eigengp import (
    LBFGS,
    EigenGPRegressor,
    ExactGPRegressor,
    FITCRegressor,
    Gaussian,
    RVMRegressor,
    SSGPRegressor,
    VFERegressor,
)
from eigengp.gp.heteroscedastic import VarianceScale
from eigengp.gp.target_maps import YeoJohnsonMap
from saved_models import fitted, rows

SHORT = LBFGS(n_restarts=1, max_iter=2)
ALL: dict[str, Any] = {
    "default": lambda: EigenGPRegressor(optimizer=SHORT, random_state=0),
    "eigenfunctions": lambda: EigenGPRegressor(
        8, residual=None, optimizer=SHORT, likelihood="heteroscedastic", random_state=0
    ),
    "neighbors": lambda: EigenGPRegressor(
        8, residual="neighbors", optimizer=SHORT, likelihood="heteroscedastic", random_state=0
    ),
    "Matérn 1/2": lambda: ExactGPRegressor("matern12", optimizer=SHORT, random_state=0),
    "FITC": lambda: FITCRegressor(8, optimizer=SHORT, random_state=0),
    "VFE": lambda: VFERegressor(8, optimizer=SHORT, random_state=0),
    "SSGP": lambda: SSGPRegressor(8, optimizer=SHORT, random_state=0),
    "RVM": lambda: RVMRegressor(lengthscale=1.0),
}


@pytest.mark.parametrize(
    "kind", ["sequential", "neighbors", "heteroscedastic", "exact", "FITC", "VFE", "SSGP", "RVM"]
)
def test_far_inputs_fall_back_to_the_prior(kind: str) -> None:
    model = fitted(kind)
    far = np.array([[sign * 10.0**power, 0.5] for power in range(4, 309) for sign in (-1.0, 1.0)])
    near = rows(5, seed=2)[0]
    mean, std = model.predict(np.vstack([near, far]), return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0.0).all()
    assert std.max() < 10.0
    np.testing.assert_allclose(mean[:5], model.predict(near), rtol=1e-9)
    if kind != "SSGP":  # Its prior is periodic.
        np.testing.assert_allclose(mean[5:], mean[5], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(std[5:], std[5], rtol=1e-4)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("value", [0.1 + 0.2 - 0.3, 1e-13, -1e-300, 5e-324])
def test_a_tiny_constant_is_a_constant(name: str, value: float) -> None:
    X, y = rows(30)
    model = ALL[name]().fit(np.c_[X, np.full(30, value)], y)
    assert np.isfinite(model.predict(np.c_[X, np.full(30, value)])).all()
    constant = ALL[name]().fit(X, np.full(30, value))
    np.testing.assert_allclose(constant.predict(X), value, rtol=1e-9, atol=1e-140)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("unit", [1e-300, 1e-170, 1e-142, 1e145, 1e200, 1e307])
def test_units_whose_squares_are_no_numbers_are_refused(name: str, unit: float) -> None:
    X, y = rows(30)
    with pytest.raises(ValueError, match=r"The target (has values of size|varies by) .*its unit"):
        ALL[name]().fit(X, unit * (y - 0.5))
    with pytest.raises(ValueError, match=r"Input 1 (has values of size|varies by) .*its unit"):
        ALL[name]().fit((X - 0.5) * [1.0, unit], y)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("unit", [2.0**-460, 2.0**460])
def test_other_units_do_not_matter(name: str, unit: float) -> None:
    X, y = rows(30)
    one, other = ALL[name]().fit(X, y), ALL[name]().fit(unit * X, unit * y)
    mean, std = other.predict(unit * X, return_std=True)
    np.testing.assert_allclose(mean / unit, one.predict(X), rtol=1e-6, atol=1e-8)
    assert np.isfinite(std).all()


@pytest.mark.parametrize("name", ALL)
def test_rows_that_are_predicted_perfectly_raise_no_warning(name: str) -> None:
    X = rows(120)[0]  # So many that leave-one-out scores them.
    np.testing.assert_allclose(ALL[name]().fit(X, np.ones(120)).predict(X), 1.0)


@pytest.mark.filterwarnings("ignore:There are only 1 distinct")
def test_rows_with_one_input_can_have_heteroscedastic_noise() -> None:
    model = ALL["eigenfunctions"]().fit(np.ones((3, 1)), [0.0, 1.0, 0.0], [6e3, 3e-4, 5e-6])
    assert np.isfinite(model.predict([[1.0]], return_std=True)).all()


def test_error_bars_of_heteroscedastic_noise_have_a_bound() -> None:
    scale = VarianceScale(np.zeros(1), np.full((1, 1), 1e4), np.zeros(1), -np.ones(1), np.ones(1))
    factors = scale(np.ones(3), np.array([[-1.0], [0.0], [1.0]]))
    np.testing.assert_allclose(factors, np.exp([-18.0, 0.0, 18.0]))


def test_a_map_of_huge_targets_is_that_of_their_unit() -> None:
    y = np.random.default_rng(0).standard_cauchy(40)
    assert 0.0 <= YeoJohnsonMap.of(1e106 * y, np.ones(40)).power <= 2.0


def test_transformed_targets_of_huge_size_are_refused_or_predicted() -> None:
    X, y = rows(30)
    model = ALL["VFE"]().set_params(likelihood=Gaussian(transform="yeo-johnson"))
    with pytest.raises(ValueError, match="The target has values of size 1e"):
        model.fit(X, np.where(y > 0.5, 1e200, 0.0))
    model.fit(X, np.where(y > 0.5, 1.6e117, 0.0))
    mean, std = model.predict(np.vstack([X, 1e6 * X]), return_std=True)
    assert np.isfinite([mean, std]).all()


def test_units_far_apart_have_a_kernel() -> None:
    X, y = rows(20)
    for unit in (1e-100, 1e100):
        model = ExactGPRegressor("linear", optimizer=SHORT).fit(X * unit, y / unit)
        assert np.isfinite(model.predict(X * unit)).all()


@pytest.mark.parametrize("n_rows", [1, 2, 3])
def test_a_few_rows_of_many_inputs_are_fitted(n_rows: int) -> None:
    X = np.random.default_rng(0).normal(size=(n_rows, 30))
    model = EigenGPRegressor(random_state=0).fit(X, X[:, 0])
    assert np.isfinite(model.predict(X, return_std=True)).all()
