"""The residual between neighbours: pull-backs, and the full GP where all rows are neighbours."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import spearmanr
from sklearn.utils.estimator_checks import parametrize_with_checks

from eigengp import EigenGPRegressor
from eigengp.estimators import choices
from eigengp.estimators.left_out import varied
from eigengp.estimators.local import LocalFit, largest_size
from eigengp.fitting.clock import Clock
from eigengp.fitting.varying import learn_varying
from eigengp.flow.exact import ExactGP
from eigengp.flow.linalg import FactorizationError
from eigengp.flow.local import LocalOutcome
from eigengp.flow.local_posterior import LocalPosterior
from eigengp.flow.model import EigenGP, Jitter
from eigengp.flow.posterior import Posterior
from eigengp.flow.rows import RowBlock
from eigengp.kernels import (
    Kernel,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
)
from eigengp.sources.arrays import ArraySource
from eigengp.sources.neighbours import Nearest, NeighbourSource, nearest_before
from eigengp.typing import Array
from finite_differences import assert_close
from finite_differences import gradient as numerical_gradient

KERNELS = [
    SquaredExponential([0.8, 1.5], 1.3),
    Matern12([0.8, 1.5], 1.3),
    Matern32([0.8, 1.5], 1.3),
    Matern52([0.8, 1.5], 1.3),
    RationalQuadratic([0.8, 1.5], 1.3, alpha=0.7),
    SquaredExponential([0.8, 1.5], 0.7) + Matern32([2.0, 0.5], 0.4),
    SquaredExponential([0.8, 1.5], 0.7) * Matern52([2.0, 0.5], 0.4),
]


def _rows(n: int = 40, weighted: bool = False, seed: int = 0) -> RowBlock:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=n)
    return RowBlock(X, y, rng.integers(1, 4, n).astype(float) if weighted else None)


def _model(kernel: Kernel, rows: RowBlock, noise: float = 0.2) -> EigenGP:
    return EigenGP(kernel, rows.X[:7] + 0.1, noise, 7, jitter=Jitter(1e-6), local=True)


def _source(rows: RowBlock, count: int = 5, n_threads: int = 1) -> NeighbourSource:
    return NeighbourSource.of(rows, np.ones(2), count, n_threads)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_stack_is_the_kernel_and_its_pull_back_the_derivative(kernel: Kernel) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3, 4, 2))
    K, back = kernel.stack(X)
    for each, points in zip(K, X, strict=True):
        assert_allclose(each, kernel.matrix(points, points), atol=1e-12)
    K_bar = rng.normal(size=K.shape)
    K_bar += K_bar.transpose(0, 2, 1)

    def value(theta: Array) -> float:
        return float(np.vdot(K_bar, kernel.with_theta(theta).stack(X)[0]))

    assert_close(back(K_bar), numerical_gradient(value, kernel.theta))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_gradient_is_the_derivative(kernel: Kernel, weighted: bool) -> None:
    rows = _rows(weighted=weighted)
    model, source = _model(kernel, rows), _source(rows)
    _, gradient = model.value_and_gradient(source)
    by_theta = numerical_gradient(
        lambda theta: replace(model, kernel=kernel.with_theta(theta)).value(source), kernel.theta
    )
    assert_close(gradient.theta, by_theta)
    by_points = numerical_gradient(
        lambda B: replace(model, inducing_inputs=B).value(source), model.inducing_inputs
    )
    assert_close(gradient.inducing_inputs, by_points)
    by_noise = numerical_gradient(
        lambda ln: replace(model, noise_variance=float(np.exp(ln[0]))).value(source),
        np.log([model.noise_variance]),
    )
    assert_close(gradient.log_noise_variance, by_noise[0])


@pytest.mark.parametrize("weighted", [False, True])
def test_all_rows_as_neighbours_give_the_full_gp(weighted: bool) -> None:
    rows = _rows(weighted=weighted)
    kernel = Matern32([0.8, 1.5], 1.3)
    local = replace(_model(kernel, rows), jitter=Jitter(1e-12))
    exact = ExactGP(kernel, local.noise_variance)
    expected = exact.forward(ArraySource.of(rows)).value
    assert_allclose(local.value(_source(rows, rows.n_rows - 1)), expected, rtol=1e-7)


def test_threads_do_not_change_the_sums() -> None:
    rows = _rows(700)
    model = _model(Matern32([0.8, 1.5], 1.3), rows)
    one, two = (model.value_and_gradient(_source(rows, 5, n)) for n in (1, 2))
    assert_allclose(one[0], two[0], rtol=1e-12)
    assert_allclose(one[1].inducing_inputs, two[1].inducing_inputs, rtol=1e-8, atol=1e-10)


def test_neighbours_come_before_and_the_nearest_is_first() -> None:
    points = np.random.default_rng(0).normal(size=(900, 3))
    found = nearest_before(points, 4)
    assert (found < np.arange(900)[:, None]).all()
    assert (found[4:] >= 0).all()
    distance = np.linalg.norm(points[found] - points[:, None], axis=2)
    assert (np.diff(distance[4:], axis=1) >= -1e-12).all()
    assert found[1].tolist() == [0, -1, -1, -1]


def _posterior(model: EigenGP, rows: RowBlock, count: int) -> LocalPosterior:
    outcome = model.forward(_source(rows, rows.n_rows - 1))
    assert isinstance(outcome, LocalOutcome)
    return LocalPosterior.of(outcome, rows, Nearest.of(rows.X, np.ones(2), count), count)


@pytest.mark.parametrize("weighted", [False, True])
def test_predictions_from_all_rows_are_those_of_the_full_gp(weighted: bool) -> None:
    rows = _rows(weighted=weighted)
    model = replace(_model(Matern32([0.8, 1.5], 1.3), rows), jitter=Jitter(1e-12))
    posterior = _posterior(model, rows, rows.n_rows)
    exact = ExactGP(model.kernel, model.noise_variance)
    expected = exact.posterior(exact.forward(ArraySource.of(rows)))
    X = np.random.default_rng(1).normal(size=(9, 2))
    for found, wanted in zip(
        posterior.mean_and_variance(X), expected.mean_and_variance(X), strict=True
    ):
        assert_allclose(found, wanted, rtol=1e-6)
    assert_allclose(posterior.mean(X), expected.mean(X), rtol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_row_left_out_is_predicted_as_if_it_had_not_been_there(weighted: bool) -> None:
    rows = _rows(weighted=weighted)
    model = replace(_model(Matern32([0.8, 1.5], 1.3), rows), jitter=Jitter(1e-12))
    posterior = _posterior(model, rows, rows.n_rows)
    own = np.arange(rows.n_rows)
    index = Nearest.of(rows.X, np.ones(2), rows.n_rows - 1).others(rows.X, own)
    mean, variance, _ = posterior.left_out(rows, index)
    for i in (0, 7, 23):
        others = rows.picked(np.delete(own, i))
        exact = ExactGP(model.kernel, model.noise_variance)
        expected = exact.posterior(exact.forward(ArraySource.of(others)))
        wanted = expected.mean_and_variance(rows.X[i : i + 1])
        assert_allclose([mean[i], variance[i]], np.ravel(wanted), rtol=1e-6)


def test_gradients_of_predictions_are_derivatives_with_the_neighbours_held() -> None:
    rows = _rows()
    posterior = _posterior(_model(Matern52([0.8, 1.5], 1.3), rows), rows, rows.n_rows)
    x = np.array([[0.2, -0.4]])
    mean = numerical_gradient(lambda at: float(posterior.mean(at)[0]), x)
    assert_close(posterior.mean_gradient(x), mean)
    variance = numerical_gradient(lambda at: float(posterior.mean_and_variance(at)[1][0]), x)
    assert_close(posterior.variance_gradient(x), variance)


def test_a_varying_noise_is_found_where_there_is_one_and_only_there() -> None:
    rng = np.random.default_rng(0)
    signs = rng.normal(size=(2_000, 6))
    variance = np.ones(2_000)
    noise = rng.normal(size=2_000)
    flat = learn_varying(noise, variance, signs, 3)
    assert flat.name == "as it is"
    assert flat.scale is None
    narrow = learn_varying(3.0 * noise, variance, signs, 3)
    assert narrow.name == "constant"
    assert narrow.scale is not None
    assert_allclose(narrow.scale(variance, signs), 9.0, rtol=0.1)
    varied = learn_varying(noise * np.exp(0.5 * signs[:, 1]), variance, signs, 3)
    assert varied.name == "neighbours"
    assert varied.scale is not None
    found = varied.scale(variance, signs)
    assert np.corrcoef(np.log(found), signs[:, 1])[0, 1] > 0.9
    assert varied.losses[varied.name] < varied.losses["constant"] - 0.1


def test_a_few_wild_rows_do_not_make_error_bars_vary() -> None:
    rng = np.random.default_rng(2)
    signs = rng.normal(size=(1_500, 30))
    wild = learn_varying(rng.standard_t(2.0, size=1_500), np.full(1_500, 4.0), signs, 1)
    assert wild.name in ("as it is", "constant")


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
    monkeypatch.setattr("eigengp.estimators.local._FIRST_SIZE", 10)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1_100, 4))
    y = np.sin(X[:, 0] + X[:, 1]) + X[:, 2] * X[:, 3] + noise * rng.normal(size=1_100)
    model = EigenGPRegressor(kernel="auto", **LOCAL).fit(X, y)
    losses = model.selection_["n_components"]
    *enough, last = losses
    taken = last if losses[last] < losses[enough[-1]] - 0.01 else enough[-1]
    assert model.inducing_inputs_.shape[0] == taken
    assert (taken > 10) == grows


def test_a_size_whose_trial_fails_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eigengp.estimators.local._FIRST_SIZE", 8)
    own = LocalFit._outcome

    def fails_beyond(self: LocalFit, model: EigenGP, rows: RowBlock, count: int) -> LocalOutcome:
        if model.n_components > 8:
            raise FactorizationError
        return own(self, model, rows, count)

    monkeypatch.setattr(LocalFit, "_outcome", fails_beyond)
    model = EigenGPRegressor(kernel="auto", **LOCAL).fit(*_varying_data(400, 0))
    assert model.selection_["n_components"][16] == np.inf
    assert model.inducing_inputs_.shape[0] == 8


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
    assert model.inducing_inputs_.shape[0] == 10


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
    assert isinstance(model._posterior, LocalPosterior)
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


def test_left_out_rows_of_a_model_without_neighbours_are_those_of_one_that_never_saw_them() -> None:
    rows = _rows()
    model = replace(_model(Matern32([0.8, 1.5], 1.3), rows), local=False)
    posterior = varied(model, model.forward(ArraySource.of(rows)))
    mean, variance, _ = posterior.left_out(rows)
    for i in (0, 7, 23):
        others = rows.picked(np.delete(np.arange(rows.n_rows), i))
        without = model.posterior(model.forward(ArraySource.of(others)))
        wanted = without.mean_and_variance(rows.X[i : i + 1])
        assert_allclose([mean[i], variance[i]], np.ravel(wanted), rtol=1e-6)


@pytest.mark.parametrize("residual", [None, "local"])
def test_little_time_is_a_few_steps_and_still_predicts(residual: str | None) -> None:
    X, y = _varying_data(1_500, 0)
    Z, z = _varying_data(500, 1)
    settings: dict[str, Any] = {"residual": residual, "n_restarts": 1, "random_state": 0}
    model = EigenGPRegressor(max_time=0.01, **settings).fit(X, y)
    stages = {each["stage"] for each in model.history_}
    assert model.n_iter_ <= len(stages) + 3  # One step of each stage, the kernels' heats included.
    assert model.inducing_inputs_.shape[0] == (50 if residual else 100)
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
