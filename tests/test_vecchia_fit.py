"""The local residual as a user meets it: what is chosen, and what comes of it."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import spearmanr
from sklearn.utils.estimator_checks import parametrize_with_checks

from eigengp import EigenGPRegressor
from eigengp._typing import Array
from eigengp.fitting import model_selection as choices
from eigengp.fitting.progress import Clock
from eigengp.fitting.vecchia_fit import LocalFit, largest_size
from eigengp.gp.blocks import RowBlock
from eigengp.gp.linalg import FactorizationError
from eigengp.gp.model import EigenGP
from eigengp.gp.posterior import Posterior
from eigengp.gp.vecchia import VecchiaOutcome
from eigengp.gp.vecchia_posterior import VecchiaPosterior

LOCAL: dict[str, Any] = {"residual": "local", "random_state": 0, "max_iter": 15, "n_restarts": 2}


def _varying_data(n: int, seed: int) -> tuple[Array, Array]:
    """More waves than a few eigenfunctions can follow, with noise that grows along an input."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(n, 2))
    f = np.sin(3.0 * X[:, 0]) * np.cos(3.0 * X[:, 1]) + 0.5 * np.sin(6.0 * X[:, 0] + 5.0 * X[:, 1])
    return X, f + np.exp(0.8 * X[:, 0] - 2.0) * rng.normal(size=n)


def test_neighbours_and_varying_noise_predict_better_than_few_eigenfunctions() -> None:
    X, y = _varying_data(700, 0)
    Z, z = _varying_data(1_000, 1)
    loss = {}
    for name, settings in {
        "plain": {**LOCAL, "residual": None},
        "local": {**LOCAL, "noise": "constant", "kernel": None},
        "varying": LOCAL,
    }.items():
        mean, std = EigenGPRegressor(20, **settings).fit(X, y).predict(Z, return_std=True)
        loss[name] = float(np.mean(np.log(std) + 0.5 * ((z - mean) / std) ** 2))
        assert 0.84 < np.mean(np.abs(z - mean) < 1.645 * std) < 0.96
    assert loss["local"] < loss["plain"] - 0.1
    assert loss["varying"] < loss["local"] - 0.05


def test_the_choice_is_told() -> None:
    X, y = _varying_data(400, 0)
    model = EigenGPRegressor(10, noise="varying", kernel="auto", **LOCAL).fit(X, y)
    first, last = model.selection_["kernel"].values()
    smooth = {"SquaredExponential", "RationalQuadratic"}
    assert set(first) == smooth | {"Matern52", "Matern32", "Matern12"}
    assert set(last) == set(sorted(first, key=first.__getitem__)[:3])
    assert type(model.kernel_).__name__ == min(last, key=last.__getitem__)
    kinds = {"as it is", "constant", "eigenfunctions", "neighbours"}
    assert set(model.selection_["noise"]) == kinds


@pytest.mark.parametrize(("noise", "grows"), [(0.05, True), (3.0, False)])
def test_the_basis_grows_while_rows_held_out_gain(
    noise: float, grows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eigengp.fitting.vecchia_fit._FIRST_SIZE", 10)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1_100, 4))
    y = np.sin(X[:, 0] + X[:, 1]) + X[:, 2] * X[:, 3] + noise * rng.normal(size=1_100)
    model = EigenGPRegressor(kernel="auto", **LOCAL).fit(X, y)
    losses = model.selection_["n_components"]
    *enough, last = losses
    taken = last if losses[last] < losses[enough[-1]] - 0.01 else enough[-1]
    assert model.inducing_points_.shape[0] == taken
    assert (taken > 10) == grows


def test_a_size_whose_trial_fails_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eigengp.fitting.vecchia_fit._FIRST_SIZE", 8)
    own = LocalFit._outcome

    def fails_beyond(self: LocalFit, model: EigenGP, rows: RowBlock, count: int) -> VecchiaOutcome:
        if model.n_components > 8:
            raise FactorizationError
        return own(self, model, rows, count)

    monkeypatch.setattr(LocalFit, "_outcome", fails_beyond)
    model = EigenGPRegressor(kernel="auto", **LOCAL).fit(*_varying_data(400, 0))
    assert model.selection_["n_components"][16] == np.inf
    assert model.inducing_points_.shape[0] == 8


@pytest.mark.parametrize(
    ("n_rows", "seconds", "size"),
    [
        (9_975, None, 399),
        (100_000, None, 400),
        (20_000, 5.0, 50),
        (100_000, 600.0, 400),
        (10, 9, 1),
    ],
)
def test_the_largest_basis_leaves_memory_and_time(
    n_rows: int, seconds: float | None, size: int
) -> None:
    assert largest_size(n_rows, seconds) == size


def test_a_size_that_was_asked_for_is_taken_without_a_trial() -> None:
    X, y = _varying_data(400, 0)
    model = EigenGPRegressor(10, kernel="auto", **LOCAL).fit(X, y)
    assert "n_components" not in model.selection_
    assert model.inducing_points_.shape[0] == 10


def test_a_fitted_model_can_be_stored_and_drawn_from() -> None:
    X, y = _varying_data(300, 0)
    model = EigenGPRegressor(10, noise="varying", **LOCAL).fit(X, y)
    mean, cov = model.predict(X[:20], return_cov=True)
    _, std = model.predict(X[:20], return_std=True)
    assert_allclose(np.sqrt(np.diagonal(cov)), std)
    again = pickle.loads(pickle.dumps(model))
    assert_allclose(again.predict(X[:20]), mean, rtol=1e-12)
    drawn = model.sample_y(X[:20], 400, random_state=0)
    assert_allclose(drawn.mean(axis=1), mean, atol=0.3)
    assert model.eigenfunctions(X[:5]).shape == (5, 10)


def test_the_units_of_the_data_do_not_matter() -> None:
    X, y = _varying_data(300, 0)
    one = EigenGPRegressor(10, **LOCAL).fit(X, y)
    other = EigenGPRegressor(10, **LOCAL).fit(1024.0 * X, 256.0 * y)
    assert_allclose(other.predict(1024.0 * X), 256.0 * one.predict(X), rtol=1e-6, atol=1e-6)
    shift = np.log(256.0) * y.size
    assert_allclose(other.log_marginal_likelihood_ + shift, one.log_marginal_likelihood_, rtol=1e-6)


def test_far_from_the_data_error_bars_are_about_those_of_the_prior() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(450, 2))
    y = np.sin(2.0 * X[:, 0]) * np.cos(X[:, 1]) + 0.2 * rng.normal(size=450)
    model = EigenGPRegressor(15, noise="varying", **LOCAL).fit(X, y)
    _, std = model.predict([[6.0, 6.0]], return_std=True)
    prior = np.sqrt(model.kernel_.total_variance + model.noise_variance_)
    assert 0.5 * prior < std[0] < 2.0 * prior


def test_rows_of_little_weight_have_little_say_in_the_noise() -> None:
    X, y = _varying_data(400, 0)
    Z, z = _varying_data(100, 1)
    weight = np.concatenate([np.ones(400), np.full(100, 1e-8)])
    model = EigenGPRegressor(10, noise="varying", **LOCAL)
    alone = model.fit(X, y).predict(X[:50], return_std=True)[1]
    both = np.concatenate([X, Z]), np.concatenate([y, 30.0 * z])
    junk = model.fit(*both, sample_weight=weight).predict(X[:50], return_std=True)[1]
    assert np.median(junk / alone) < 1.5


def test_a_refit_with_other_settings_leaves_nothing_behind() -> None:
    X, y = _varying_data(150, 0)
    model = EigenGPRegressor(10, noise="varying", **LOCAL).fit(X, y)
    model.set_params(residual=None, noise="constant")
    with pytest.raises(ValueError, match="keeps no rows"):
        model.partial_fit(X, y)
    assert not hasattr(model.fit(X, y), "selection_")
    together = model.sample_y(X[:5], random_state=3)
    assert_allclose(model.sample_y(X[:2], random_state=3), together[:2])
    assert hasattr(model.partial_fit(X, y), "weights_")


def test_noiseless_data_can_choose_a_kernel() -> None:
    X = np.linspace(0.0, 1.0, 300)[:, None]
    y = np.sin(3.0 * X[:, 0])
    model = EigenGPRegressor(20, kernel="auto", **LOCAL).fit(X, y)
    assert np.max(np.abs(model.predict(X) - y)) < 0.01


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimization": "joint"}, "optimization of its own"),
        ({"n_inducing": 30}, "keeps all eigenfunctions"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    X, y = _varying_data(50, 0)
    with pytest.raises(ValueError, match=message):
        EigenGPRegressor(10, **{**LOCAL, **settings}).fit(X, y)


def test_what_needs_other_rows_is_refused() -> None:
    X, y = _varying_data(400, 0)
    model = EigenGPRegressor(10, noise="varying", **LOCAL).fit(X, y)
    with pytest.raises(AttributeError, match="has no attribute 'partial_fit'"):
        model.partial_fit(X, y)
    with pytest.raises(ValueError, match="cannot be differentiated"):
        model.predict_gradient(X[:2], return_variance=True)
    assert model.predict_gradient(X[:2]).shape == (2, 2)


def test_the_call_without_arguments_looks_at_neighbours_where_that_pays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choices, "_NEIGHBOURS_FROM", 300)
    X, y = _varying_data(400, 0)
    quick: dict[str, Any] = {"max_iter": 10, "random_state": 0, "n_restarts": 1}
    model = EigenGPRegressor(15, **quick).fit(X, y)
    assert isinstance(model._posterior, VecchiaPosterior)
    assert model.selection_["residual"]["local"] < model.selection_["residual"]["none"]
    assert isinstance(EigenGPRegressor(15, **quick).fit(X[:200], y[:200])._posterior, Posterior)
    for settings in ({"optimization": "joint"}, {"init": X[:15]}, {"guard": False}):
        plain = EigenGPRegressor(15, **{**quick, **settings}).fit(X, y)
        assert isinstance(plain._posterior, Posterior)
    assert isinstance(EigenGPRegressor(15, **quick).partial_fit(X, y)._posterior, Posterior)


def test_where_neighbours_do_not_pay_the_model_is_that_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choices, "_NEIGHBOURS_FROM", 300)
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(400, 3))
    y = np.sin(2.0 * X[:, 0]) + 0.5 * rng.normal(size=400)
    quick: dict[str, Any] = {"max_iter": 10, "random_state": 0, "n_restarts": 1}
    chosen = EigenGPRegressor(8, **quick).fit(X, y)
    plain = EigenGPRegressor(8, residual=None, **quick).fit(X, y)
    assert chosen.selection_["residual"]["local"] >= chosen.selection_["residual"]["none"]
    assert_allclose(chosen.predict(X), plain.predict(X), rtol=1e-10)


@pytest.mark.parametrize("residual", [None, "diagonal"])
def test_error_bars_vary_without_neighbours_too(residual: str | None) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(900, 1))
    spread = np.exp(X[:, 0] - 1.0)
    y = np.sin(2.0 * X[:, 0]) + spread * rng.normal(size=900)
    settings: dict[str, Any] = {"residual": residual, "n_restarts": 2, "random_state": 0}
    model = EigenGPRegressor(12, noise="varying", **settings).fit(X, y)
    std = model.predict(X, return_std=True)[1]
    assert spearmanr(std, spread)[0] > 0.9
    _, cov = model.predict(X[:5], return_cov=True)
    assert_allclose(np.sqrt(np.diagonal(cov)), std[:5])
    lower, upper = model.predict_interval(X, 0.9)
    assert 0.87 < np.mean((lower <= y) & (y <= upper)) < 0.93
    model.partial_fit(X[:10], y[:10])
    assert np.corrcoef(np.log(model.predict(X, return_std=True)[1]), np.log(std))[0, 1] > 0.9


@pytest.mark.parametrize("residual", [None, "local"])
def test_little_time_is_a_few_steps_and_still_predicts(residual: str | None) -> None:
    X, y = _varying_data(1_500, 0)
    Z, z = _varying_data(500, 1)
    settings: dict[str, Any] = {"residual": residual, "n_restarts": 1, "random_state": 0}
    model = EigenGPRegressor(max_time=0.01, **settings).fit(X, y)
    stages = {each["stage"] for each in model.history_}
    assert model.n_iter_ <= len(stages) + 3  # One step of each stage, the kernels' heats included.
    assert model.inducing_points_.shape[0] == (50 if residual else 100)
    assert np.mean((model.predict(Z) - z) ** 2) < np.var(z)


def test_time_is_shared_among_stages() -> None:
    clock = Clock(1_000.0)
    clock.spread(0.5, 0, 2)
    assert 0.2 < clock._share <= 0.26
    clock.allow(0.0)
    assert clock.is_over()
    assert not Clock(None).is_over()


@parametrize_with_checks(
    [EigenGPRegressor(3, noise="varying", **{**LOCAL, "max_iter": 2, "n_restarts": 1})]
)
def test_scikit_learn_estimator_checks(estimator: Any, check: Any) -> None:
    check(estimator)
