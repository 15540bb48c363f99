"""The relevance vector machine as a regressor: its width and its attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from eigengp import Matern52, RVMRegressor, SquaredExponential
from eigengp._typing import Array
from eigengp.baselines.rvm.regressor import WidthChoice, choose_width, with_width
from eigengp.gp.blocks import RowBlock

SEED = 0


def make_data(n: int = 120, seed: int = SEED) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(0.0, 9.0, size=n))[:, None]
    return X, 3.0 + np.sin(X[:, 0]) + 0.2 * rng.normal(size=n)


X, y = make_data()


@pytest.mark.parametrize("settings", [{}, {"standardize": False}, {"kernel": Matern52(7.0, 3.0)}])
def test_attributes_reproduce_the_evidence_in_the_units_of_the_data(
    settings: dict[str, Any],
) -> None:
    inputs, targets = 50.0 * X + 7.0, 1e3 * y
    model = RVMRegressor(lengthscale=40.0 if "standardize" in settings else 0.5, **settings)
    model.fit(inputs, targets)
    Phi = model.kernel_(inputs, model.relevance_vectors_)
    C = (Phi / model.precisions_) @ Phi.T + model.noise_variance_ * np.eye(y.size)
    dense = multivariate_normal(np.full(y.size, model.target_mean_), C).logpdf(targets)
    assert model.log_marginal_likelihood_ == pytest.approx(dense, rel=1e-8)
    assert model.kernel_.variance == pytest.approx(1.0)
    assert model.relevance_vectors_.shape[0] < 40


def test_relevance_vectors_are_rows() -> None:
    vectors = RVMRegressor(lengthscale=0.4).fit(X, y).relevance_vectors_
    assert np.abs(vectors - X[:, 0]).min(axis=1).max() < 1e-12


def test_a_given_lengthscale_is_kept_in_its_own_units() -> None:
    assert RVMRegressor(lengthscale=0.4).fit(X, y).lengthscale_ == pytest.approx(0.4)
    model = RVMRegressor(lengthscale=1.3, standardize=False).fit(X, y)
    assert model.lengthscale_ == pytest.approx(1.3)
    np.testing.assert_allclose(model.kernel_.lengthscale, [1.3], rtol=1e-12)
    assert model.cv_errors_ is None


def test_cross_validation_finds_a_good_width() -> None:
    model = RVMRegressor(n_folds=4, n_jobs=1, random_state=0).fit(X, y)
    X_test, y_test = make_data(400, seed=1)
    assert model.score(X_test, y_test) > 0.89
    assert model.lengthscale_ in model.cv_lengthscales_
    assert 0.03 < model.cv_errors_.min() < 0.08 < model.cv_errors_.max()
    lower, upper = model.predict_interval(X_test)
    assert 0.8 < np.mean((lower < y_test) & (y_test < upper)) < 0.98


def test_processes_do_not_change_what_cross_validation_finds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eigengp.baselines.rvm.regressor.N_WIDTHS", 3)
    told: list[float] = []
    rows = RowBlock((X - X.mean()) / X.std(), (y - y.mean()) / y.std())
    one, two = (
        choose_width(SquaredExponential(), rows, 3, n_jobs, np.random.RandomState(0), told.append)
        for n_jobs in (1, 2)
    )
    np.testing.assert_allclose(one.errors, two.errors, rtol=1e-8)
    np.testing.assert_allclose(one.evidences, two.evidences, rtol=1e-8)
    assert len(told) == 2 * 3 * 3
    assert np.all(np.isfinite(told))


def test_among_equal_errors_the_evidence_decides() -> None:
    lengthscales, evidences = np.array([0.1, 0.2, 0.4, 0.8]), np.array([9.0, 5.0, 6.0, 4.0])
    errors, spread = np.array([1.0, 0.52, 0.55, 0.5]), np.full(4, 0.1)
    assert WidthChoice(lengthscales, errors, spread, evidences).best == 0.4
    assert WidthChoice(lengthscales, errors, 0.01 * spread, evidences).best == 0.8
    errors[3] = np.inf
    assert WidthChoice(lengthscales, errors, 0.01 * spread, evidences).best == 0.2


def test_a_width_is_the_same_for_all_inputs_and_the_variance_one() -> None:
    kernel = with_width(Matern52([1.0, 2.0], 3.0), 0.7, 2)
    np.testing.assert_allclose(kernel.lengthscale, [0.7, 0.7])
    assert kernel.variance == pytest.approx(1.0)


def test_lengthscales_are_compared_on_a_thousand_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(kind: Any, rows: RowBlock, *_: Any) -> WidthChoice:
        assert rows.n_rows == 1_000
        return WidthChoice(np.array([1.0]), np.zeros(1), np.zeros(1), np.zeros(1))

    monkeypatch.setattr("eigengp.baselines.rvm.regressor.choose_width", choose)
    X = np.linspace(0.0, 6.0, 1_200)[:, None]
    model = RVMRegressor(max_iter=20, tol=1e-3).fit(X, np.sin(X[:, 0]))
    assert model.lengthscale_ == 1.0
