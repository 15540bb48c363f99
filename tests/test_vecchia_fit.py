"""The nearest-neighbour residual as a user meets it: what is chosen and why, and predictions."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import spearmanr
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from eigengp import (
    LBFGS,
    EigenGPRegressor,
    ExactGPRegressor,
    Gaussian,
    Heteroscedastic,
    Stochastic,
)
from eigengp._typing import Array
from eigengp.backend.threads import use_one_blas_thread
from eigengp.data.array_source import ArraySource
from eigengp.fitting import learn, local_learner, vecchia
from eigengp.fitting.heteroscedastic import OF_THE_MODEL, LeftOut
from eigengp.fitting.local_learner import (
    CANDIDATES,
    LocalLearner,
    Round,
    bisect_rows,
    group_nearby,
    limit_alpha,
    name_kernel,
)
from eigengp.fitting.objectives import LocalObjective, Minimum, kernel_parameters
from eigengp.fitting.progress import Clock, Monitor
from eigengp.fitting.vecchia import NeighborFit, get_largest_size
from eigengp.gp.blocks import RowBlock
from eigengp.gp.exact import ExactGP
from eigengp.gp.linalg import FactorizationError
from eigengp.gp.posterior import Posterior
from eigengp.gp.vecchia import VecchiaOutcome, VecchiaPass
from eigengp.gp.vecchia_posterior import VecchiaPosterior
from eigengp.kernels import (
    Kernel,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
    Sum,
)
from eigengp.metrics import nmse

NEIGHBORS: dict[str, Any] = {
    "residual": "neighbors",
    "optimizer": LBFGS(n_restarts=2, max_iter=15),
    "random_state": 0,
}
QUICK: dict[str, Any] = {"optimizer": LBFGS(n_restarts=1, max_iter=10), "random_state": 0}


def _heteroscedastic_data(n: int, seed: int) -> tuple[Array, Array]:
    """More waves than a few eigenfunctions can follow, with noise that grows along an input."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(n, 2))
    f = np.sin(3.0 * X[:, 0]) * np.cos(3.0 * X[:, 1]) + 0.5 * np.sin(6.0 * X[:, 0] + 5.0 * X[:, 1])
    return X, f + np.exp(0.8 * X[:, 0] - 2.0) * rng.normal(size=n)


def test_neighbours_and_heteroscedastic_noise_predict_better_than_few_eigenfunctions() -> None:
    X, y = _heteroscedastic_data(700, 0)
    Z, z = _heteroscedastic_data(1_000, 1)
    loss = {}
    for name, settings in {
        "plain": {**NEIGHBORS, "residual": None},
        "neighbors": {
            **NEIGHBORS,
            "likelihood": "gaussian",
            "kernel": "squared_exponential",
        },
        "heteroscedastic": NEIGHBORS,
    }.items():
        mean, std = EigenGPRegressor(20, **settings).fit(X, y).predict(Z, return_std=True)
        loss[name] = float(np.mean(np.log(std) + 0.5 * ((z - mean) / std) ** 2))
        assert 0.84 < np.mean(np.abs(z - mean) < 1.645 * std) < 0.96
    assert loss["neighbors"] < loss["plain"] - 0.1
    assert loss["heteroscedastic"] < loss["neighbors"] - 0.05


@pytest.mark.parametrize("n_neighbors", [199, 1_000])
def test_all_rows_as_neighbours_are_the_exact_gp(n_neighbors: int) -> None:
    X, y = _heteroscedastic_data(200, seed=0)
    settings = {**NEIGHBORS, "likelihood": "gaussian"}
    model = EigenGPRegressor(10, n_neighbors=n_neighbors, **settings).fit(X, y)
    noise = Gaussian(variance=model.noise_variance_)
    exact = ExactGPRegressor(
        kernel=model.kernel_, likelihood=noise, optimizer=LBFGS(max_iter=0)
    ).fit(X, y)
    assert_allclose(
        model.log_marginal_likelihood_, exact.log_marginal_likelihood_, rtol=1e-8, atol=1e-8
    )
    new = np.random.default_rng(1).uniform(-2.5, 2.5, size=(50, 2))
    for found, expected in zip(
        model.predict(new, return_std=True), exact.predict(new, return_std=True), strict=True
    ):
        assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


def test_selection_tells_of_kernel_and_noise() -> None:
    X, y = _heteroscedastic_data(400, 0)
    model = EigenGPRegressor(10, likelihood="heteroscedastic", **NEIGHBORS).fit(X, y)
    kernel, noise = model.selection_["kernel"], model.selection_["likelihood"]
    single = {each.__name__ for each in CANDIDATES}
    rough = "RationalQuadratic + Matern12"
    assert set(kernel.scores) < single | {
        "RationalQuadratic + RationalQuadratic",
        rough,
        f"RationalQuadratic + {rough}",
    }
    assert len(kernel.scores) == 3
    assert kernel.chosen == min(kernel.scores, key=lambda name: kernel.scores[name])
    assert kernel.reason == "leave-one-out loss of the best 3 kernels of local GPs"
    assert name_kernel(model.kernel_) == kernel.chosen
    assert set(noise.scores) == {OF_THE_MODEL, "constant", "eigenfunctions", "neighbors"}
    assert noise.chosen in noise.scores
    lines = str(model.selection_).splitlines()
    names = ["residual", "kernel", "posterior_mean", "weights", "likelihood"]
    assert [line.partition(":")[0] for line in lines] == names
    assert lines[0] == "residual: neighbors (given)"
    assert f"{kernel.chosen} {kernel.scores[kernel.chosen]:.4g}" in lines[1]


def test_a_sum_of_kernels_is_found_where_the_function_is_one() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (600, 2))
    kernel = SquaredExponential(2.0, 1.0) + Matern12(1.0, 0.2)
    K = kernel(X) + 1e-4 * np.eye(600)
    rows = RowBlock(X, np.linalg.cholesky(K) @ rng.normal(size=600))
    first = SquaredExponential([1.0, 1.0], 1.0)
    start = ExactGP(first, 0.1)
    learner = LocalLearner(rows, Monitor(False), 1)
    found = learner.learn_kernels(start, 25)[0]
    losses = next(iter(learner.losses.values()))
    assert losses["RationalQuadratic + Matern12"] < losses["SquaredExponential"]
    assert losses["RationalQuadratic + Matern12"] < losses["RationalQuadratic"]
    assert name_kernel(found.kernel) in losses


def test_candidates_side_by_side_are_those_one_after_another() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (250, 2))
    rows = RowBlock(X, np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=250))
    first = SquaredExponential([1.0, 1.0], 1.0)
    start = ExactGP(first, 0.1)
    found = []
    for n_threads in (1, 4):
        learner = LocalLearner(rows, Monitor(False), n_threads)
        with use_one_blas_thread():
            model = learner.learn_kernels(start, 3)[0]
        steps = [(each["stage"], each["iteration"]) for each in learner.monitor.history]
        found.append((model.kernel, model.noise_variance, learner.losses, learner.n_iter, steps))
    assert found[0] == found[1]


def test_a_rational_quadratic_leaves_the_plateau_of_large_alpha() -> None:
    stuck = RationalQuadratic([1.0, 2.0], 1.5, alpha=900.0)
    assert limit_alpha(stuck).alpha == 10.0  # type: ignore[attr-defined]
    both = limit_alpha(stuck + Matern12([1.0, 2.0]))
    assert isinstance(both, Sum)
    assert both.left == replace(stuck, alpha=10.0)
    assert both.right == Matern12([1.0, 2.0])
    free = RationalQuadratic([1.0, 2.0], 1.5, alpha=0.5)
    assert limit_alpha(free) == free


def _local_rows(weighted: bool) -> RowBlock:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (90, 2))
    y = np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=90)
    if not weighted:
        return RowBlock(X, y)
    return RowBlock(X, y, rng.integers(1, 4, 90).astype(float), scatter=rng.uniform(0.0, 0.1, 90))


@pytest.mark.parametrize("weighted", [False, True])
def test_local_gps_have_the_gradient_of_finite_differences(weighted: bool) -> None:
    rows = _local_rows(weighted)
    groups = [rows.picked(each) for each in bisect_rows(rows.X, np.arange(90), 25)]
    kernel = RationalQuadratic([1.0, 2.0], 1.5) + Matern32([0.7, 0.9])
    free = kernel_parameters(ExactGP(kernel, 0.1))
    objective = LocalObjective(free, groups, 1)
    found = objective(free.start).gradient
    for i, step in enumerate(1e-5 * np.eye(found.size)):
        up, down = (objective(free.start + sign * step).value for sign in (1.0, -1.0))
        assert_allclose(found[i], (up - down) / 2e-5, rtol=1e-5, atol=1e-8)


def test_one_local_gp_is_the_exact_gp() -> None:
    rows = _local_rows(False)
    model = ExactGP(Matern52([1.0, 2.0]), 0.1)
    own = LocalObjective(kernel_parameters(model), [rows], 1)
    expected = model.forward(ArraySource(rows.X, rows.y, None, 90))
    assert_allclose(own(own.parameters.start).value, expected.value / 90)


@pytest.mark.parametrize(("n_rows", "size"), [(1, 5), (7, 7), (100, 30), (101, 10)])
def test_groups_hold_each_row_once_and_are_of_similar_size(n_rows: int, size: int) -> None:
    X = np.random.default_rng(0).normal(size=(n_rows, 3))
    groups = list(bisect_rows(X, np.arange(n_rows), size))
    assert sorted(np.concatenate(groups)) == list(range(n_rows))
    sizes = [each.size for each in groups]
    assert len(groups) == -(-n_rows // size)
    assert max(sizes) <= size
    assert max(sizes) <= min(sizes) + 2


def test_local_gps_learn_the_kernel_of_a_smooth_function() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (900, 2))
    K = SquaredExponential([1.0, 3.0], 1.0)(X) + 0.01 * np.eye(900)
    rows = RowBlock(X, np.linalg.cholesky(K) @ rng.normal(size=900))
    start = ExactGP(SquaredExponential([1.5, 1.5], 1.0), 0.1)
    learner = LocalLearner(rows, Monitor(False), 1)
    own = Round(900, 400, 25, 25, 1, 1.0)
    found = learner.learn_in_round(
        own, start, group_nearby(learner.rows, start.kernel, 900, 400), 25
    )
    assert isinstance(found.kernel, SquaredExponential)
    assert_allclose(found.kernel.lengthscale, [1.0, 3.0], rtol=0.15)
    assert_allclose(found.noise_variance, 0.01, rtol=0.1)


@pytest.mark.parametrize(("n_inputs", "scale"), [(1, 0.003), (5, 0.06)], ids=["dense", "one of 5"])
def test_oscillations_are_found_from_short_lengthscales(n_inputs: int, scale: float) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.7, 1.7, (2_000, n_inputs))
    y = np.sin(X[:, 0] / scale) + X[:, -1] + 0.1 * rng.normal(size=2_000)
    start = ExactGP(SquaredExponential(np.ones(n_inputs)), 0.1, compiled=True)
    learner: Any = LocalLearner(RowBlock(X, y), Monitor(False), 1)
    learner.plan = (Round(1_000, 100, 15, 10, 1, 1.0),)
    lengths = []
    for learner.shortens in (True, False):
        found: Any = learner.learn_kernels(start, 15)[0].kernel
        while isinstance(found, Sum):
            found = found.left
        lengths.append(found.lengthscale[0])
    assert lengths[0] < 5.0 * scale
    assert lengths[1] > 100.0 * scale  # The function is noise from all other starts.


@pytest.mark.parametrize(("noise", "grows"), [(0.05, True), (3.0, False)])
def test_inducing_points_are_added_while_the_held_out_set_gains(
    noise: float, grows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eigengp.fitting.vecchia._FIRST_SIZE", 4)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1_100, 4))
    y = np.sin(X[:, 0] + X[:, 1]) + X[:, 2] * X[:, 3] + noise * rng.normal(size=1_100)
    model = EigenGPRegressor(kernel="squared_exponential", **NEIGHBORS).fit(X, y)
    decision = model.selection_["n_components"]
    *enough, last = losses = {int(size): loss for size, loss in decision.scores.items()}
    taken = last if losses[last] < losses[enough[-1]] - 0.01 else enough[-1]
    assert decision.chosen == str(taken)
    assert model.inducing_points_.shape[0] == taken
    assert (taken > 4) == grows


def test_a_size_whose_trial_fails_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eigengp.fitting.vecchia._FIRST_SIZE", 8)
    own = NeighborFit.run_pass

    def fails_beyond(
        self: NeighborFit, model: VecchiaPass, seen: RowBlock, rows: RowBlock, count: int = 32
    ) -> tuple[VecchiaOutcome, VecchiaPosterior]:
        if model.features.points.shape[0] > 8:
            raise FactorizationError
        return own(self, model, seen, rows, count)

    monkeypatch.setattr(NeighborFit, "run_pass", fails_beyond)
    model = EigenGPRegressor(**NEIGHBORS).fit(*_heteroscedastic_data(400, 0))
    assert model.selection_["n_components"].scores["16"] == np.inf
    assert model.inducing_points_.shape[0] == 8


@pytest.mark.parametrize(
    ("n_rows", "seconds", "size"),
    [
        (9_975, None, 399),
        (100_000, None, 400),
        (20_000, 5.0, 60),
        (100_000, 600.0, 400),
        (10, 9, 1),
    ],
)
def test_the_largest_default_size_leaves_memory_and_time(
    n_rows: int, seconds: float | None, size: int
) -> None:
    assert get_largest_size(n_rows, seconds) == size


def test_given_points_are_checked_before_anything_is_learned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learned: list[int] = []
    monkeypatch.setattr(LocalLearner, "learn_in_round", lambda *given: learned.append(1))
    X, y = _heteroscedastic_data(150, 0)
    with pytest.raises(ValueError, match="3 columns but X has 2 features"):
        EigenGPRegressor(inducing_points=np.zeros((9, 3)), **NEIGHBORS).fit(X, y)
    assert not learned


def test_given_points_stay_where_they_are() -> None:
    X, y = _heteroscedastic_data(150, 0)
    model = EigenGPRegressor(inducing_points=X[:9], kernel="matern32", **NEIGHBORS).fit(X, y)
    assert_allclose(model.inducing_points_, X[:9])


def test_the_tolerance_of_the_optimizer_ends_learning() -> None:
    X, y = _heteroscedastic_data(150, 0)
    own = {**NEIGHBORS, "kernel": "matern32"}
    full = EigenGPRegressor(9, **own).fit(X, y)
    early = EigenGPRegressor(9, **{**own, "optimizer": LBFGS(max_iter=15, tol=0.1)}).fit(X, y)
    assert 0 < early.n_iter_ < full.n_iter_


def test_a_short_round_is_short_for_sums_too(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []

    def note(objective: Any, max_iter: int, *others: Any) -> Minimum:
        steps.append(max_iter)
        return Minimum(objective.parameters.template, objective.parameters.start, 0.0, 0.0)

    monkeypatch.setattr(local_learner, "minimize", note)
    X, y = _heteroscedastic_data(150, 0)
    both = Matern32([1.0, 1.0]) + Matern12([1.0, 1.0])
    model = ExactGP(both, 0.1)
    for limit in (None, 3.0):
        learner = LocalLearner(RowBlock(X, y), Monitor(False, clock=Clock(limit)), 1)
        learner.learn_kernels(model, 25, given=True)
    assert steps == [10, 10, 15, 10, 15]


def test_a_size_that_was_asked_for_is_taken_without_a_trial() -> None:
    X, y = _heteroscedastic_data(400, 0)
    model = EigenGPRegressor(10, **NEIGHBORS).fit(X, y)
    assert "n_components" not in model.selection_
    assert model.inducing_points_.shape[0] == 10


def test_a_fitted_model_can_be_stored_and_drawn_from() -> None:
    X, y = _heteroscedastic_data(300, 0)
    model = EigenGPRegressor(10, likelihood="heteroscedastic", **NEIGHBORS).fit(X, y)
    mean, cov = model.predict(X[:20], return_cov=True)
    _, std = model.predict(X[:20], return_std=True)
    assert_allclose(np.sqrt(np.diagonal(cov)), std)
    again = pickle.loads(pickle.dumps(model))
    assert_allclose(again.predict(X[:20]), mean, rtol=1e-12)
    drawn = model.sample_y(X[:20], 400, random_state=0)
    assert_allclose(drawn.mean(axis=1), mean, atol=0.3)
    assert model.eigenfunctions(X[:5]).shape == (5, 10)


def test_the_units_of_the_data_do_not_matter() -> None:
    X, y = _heteroscedastic_data(300, 0)
    one = EigenGPRegressor(10, **NEIGHBORS).fit(X, y)
    other = EigenGPRegressor(10, **NEIGHBORS).fit(1024.0 * X, 256.0 * y)
    assert_allclose(other.predict(1024.0 * X), 256.0 * one.predict(X), rtol=1e-6, atol=1e-6)
    shift = np.log(256.0) * y.size
    assert_allclose(other.log_marginal_likelihood_ + shift, one.log_marginal_likelihood_, rtol=1e-6)


def test_far_from_the_data_error_bars_are_about_those_of_the_prior() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(450, 2))
    y = np.sin(2.0 * X[:, 0]) * np.cos(X[:, 1]) + 0.2 * rng.normal(size=450)
    model = EigenGPRegressor(15, likelihood="heteroscedastic", **NEIGHBORS).fit(X, y)
    _, std = model.predict([[6.0, 6.0]], return_std=True)
    prior = np.sqrt(model.kernel_.constant_diagonal + model.noise_variance_)
    assert 0.5 * prior < std[0] < 2.0 * prior


def test_rows_of_little_weight_hardly_change_the_noise() -> None:
    X, y = _heteroscedastic_data(400, 0)
    Z, z = _heteroscedastic_data(100, 1)
    weight = np.concatenate([np.ones(400), np.full(100, 1e-8)])
    model = EigenGPRegressor(10, likelihood="heteroscedastic", **NEIGHBORS)
    alone = model.fit(X, y).predict(X[:50], return_std=True)[1]
    both = np.concatenate([X, Z]), np.concatenate([y, 30.0 * z])
    junk = model.fit(*both, sample_weight=weight).predict(X[:50], return_std=True)[1]
    assert np.median(junk / alone) < 1.5


def test_a_refit_with_other_settings_leaves_nothing_behind() -> None:
    X, y = _heteroscedastic_data(150, 0)
    model = EigenGPRegressor(10, likelihood="heteroscedastic", **NEIGHBORS).fit(X, y)
    assert hasattr(model, "leave_one_out_errors_")
    model.set_params(residual=None, likelihood="gaussian")
    with pytest.raises(AttributeError) as caught:
        model.partial_fit(X, y)
    assert "cannot continue a fit that keeps its rows" in str(caught.value.__cause__)
    assert str(model.fit(X, y).selection_) == "residual: None (given)"
    assert not hasattr(model, "leave_one_out_errors_")
    together = model.sample_y(X[:5], random_state=3)
    assert_allclose(model.sample_y(X[:2], random_state=3), together[:2])
    assert hasattr(model.partial_fit(X, y), "weights_")


def test_noiseless_data_can_choose_a_kernel() -> None:
    X = np.linspace(0.0, 1.0, 300)[:, None]
    y = np.sin(3.0 * X[:, 0])
    model = EigenGPRegressor(20, **NEIGHBORS).fit(X, y)
    assert np.max(np.abs(model.predict(X) - y)) < 0.01


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"optimizer": LBFGS("joint")}, "strategy='joint' learns prior variances"),
    ({"optimizer": LBFGS("direct")}, "strategy='direct' learns prior variances"),
    ({"optimizer": Stochastic()}, "optimizer=Stochastic() keeps no rows"),
    ({"inducing_points": 30}, "n_components equal to the 30 inducing points"),
    ({"inducing_points": np.zeros((12, 2))}, "n_components equal to the 12 inducing points"),
    ({"precision": "mixed"}, "double precision, not precision='mixed'"),
    ({"precision": "single"}, "double precision, not precision='single'"),
]


@pytest.mark.parametrize(("settings", "reason"), IMPOSSIBLE, ids=str)
def test_neighbours_that_are_not_possible_are_refused(
    settings: dict[str, Any], reason: str
) -> None:
    X, y = _heteroscedastic_data(50, 0)
    with pytest.raises(ValueError, match=re.escape("residual='neighbors' is not possible: ")) as it:
        EigenGPRegressor(10, **{**NEIGHBORS, **settings}).fit(X, y)
    assert reason in str(it.value)


AUTOMATIC: list[tuple[dict[str, Any], str]] = [
    ({"optimizer": LBFGS("joint", n_restarts=1, max_iter=2)}, IMPOSSIBLE[0][1]),
    ({"optimizer": Stochastic(n_restarts=1)}, IMPOSSIBLE[2][1]),
    *IMPOSSIBLE[3:],
    ({"optimizer": LBFGS(max_iter=0)}, "max_iter=0 learns nothing"),
]


@pytest.mark.usefixtures("short_search")
@pytest.mark.parametrize(("settings", "reason"), AUTOMATIC, ids=str)
def test_selection_says_why_there_are_no_neighbours(
    settings: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learn, "_NEIGHBORS_FROM", 300)
    optimizer = LBFGS(n_restarts=1, max_iter=2)
    X, y = _heteroscedastic_data(400, 0)
    model = EigenGPRegressor(10, **{"optimizer": optimizer, "random_state": 0, **settings})
    decision = model.fit(X, y).selection_["residual"]
    assert decision.chosen == "None"
    assert reason in decision.reason
    assert str(model.selection_).splitlines()[0] == f"residual: None ({decision.reason})"
    assert isinstance(model._posterior, Posterior)


@pytest.mark.usefixtures("short_search")
def test_selection_says_that_rows_are_few_or_many_or_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, y = _heteroscedastic_data(60, 0)
    model = EigenGPRegressor(5, optimizer=LBFGS(n_restarts=1, max_iter=2), random_state=0)
    assert str(model.fit(X, y).selection_) == "residual: None (fewer than 1,000 rows)"
    monkeypatch.setattr(learn, "_NEIGHBORS_FROM", 20)
    monkeypatch.setattr(learn, "_NEIGHBORS_UP_TO", 50)
    assert str(model.fit(X, y).selection_) == "residual: None (more than 50 rows)"
    monkeypatch.setattr(learn, "_NEIGHBORS_UP_TO", 100)
    first = clone(model).partial_fit(X, y)
    assert str(first.selection_) == "residual: None (partial_fit keeps no rows)"
    assert str(first.partial_fit(X, y).selection_) == str(first.selection_)
    for residual in (None, "diagonal"):
        model.set_params(residual=residual).fit(X, y)
        assert str(model.selection_) == f"residual: {residual} (given)"


def test_the_cpu_by_name_is_no_obstacle() -> None:
    X, y = _heteroscedastic_data(60, 0)
    named, default = (
        EigenGPRegressor(5, device=device, **NEIGHBORS).fit(X, y) for device in ("cpu", None)
    )
    assert_allclose(named.predict(X), default.predict(X), rtol=1e-12)


def test_what_needs_other_rows_is_refused() -> None:
    X, y = _heteroscedastic_data(400, 0)
    model = EigenGPRegressor(10, likelihood="heteroscedastic", **NEIGHBORS).fit(X, y)
    with pytest.raises(AttributeError, match="has no attribute 'partial_fit'"):
        model.partial_fit(X, y)
    with pytest.raises(ValueError, match="cannot be differentiated"):
        model.predict_gradient(X[:2], return_variance=True)
    assert model.predict_gradient(X[:2]).shape == (2, 2)


def test_by_default_neighbours_are_used_from_enough_rows_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learn, "_NEIGHBORS_FROM", 300)
    X, y = _heteroscedastic_data(400, 0)
    model = EigenGPRegressor(15, **QUICK).fit(X, y)
    assert isinstance(model._posterior, VecchiaPosterior)
    assert str(model.selection_["residual"]) == "residual: neighbors (300 to 10,000,000 rows)"
    few = EigenGPRegressor(15, **QUICK).fit(X[:200], y[:200])
    assert isinstance(few._posterior, Posterior)


@pytest.mark.parametrize("settings", [{"guard": False}, {"inducing_points": 15}], ids=str)
def test_guard_and_inducing_points_do_not_change_the_residual(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learn, "_NEIGHBORS_FROM", 300)
    X, y = _heteroscedastic_data(400, 0)
    model = EigenGPRegressor(15, **QUICK, **settings).fit(X, y)
    assert model.selection_["residual"].chosen == "neighbors"
    given = EigenGPRegressor(inducing_points=X[:15], **QUICK).fit(X, y)
    assert given.selection_["residual"].chosen == "neighbors"


@pytest.mark.parametrize("residual", [None, "diagonal"])
def test_noise_is_heteroscedastic_without_neighbours_too(residual: str | None) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(900, 1))
    spread = np.exp(X[:, 0] - 1.0)
    y = np.sin(2.0 * X[:, 0]) + spread * rng.normal(size=900)
    model = EigenGPRegressor(
        12,
        residual=residual,
        likelihood=Heteroscedastic(),
        optimizer=LBFGS(n_restarts=2),
        random_state=0,
    ).fit(X, y)
    # With the diagonal residual the model's own variances follow the noise already.
    chosen = "eigenfunctions" if residual is None else OF_THE_MODEL
    assert model.selection_["likelihood"].chosen == chosen
    std = model.predict(X, return_std=True)[1]
    assert spearmanr(std, spread)[0] > 0.9
    _, cov = model.predict(X[:5], return_cov=True)
    assert_allclose(np.sqrt(np.diagonal(cov)), std[:5])
    lower, upper = model.predict_interval(X, 0.9)
    assert 0.87 < np.mean((lower <= y) & (y <= upper)) < 0.93
    model.partial_fit(X[:10], y[:10])
    assert np.corrcoef(np.log(model.predict(X, return_std=True)[1]), np.log(std))[0, 1] > 0.9


@pytest.mark.parametrize("residual", [None, "neighbors"])
def test_little_time_is_a_few_steps_and_still_predicts(residual: str | None) -> None:
    X, y = _heteroscedastic_data(1_500, 0)
    Z, z = _heteroscedastic_data(500, 1)
    optimizer = LBFGS(n_restarts=1)
    model = EigenGPRegressor(
        max_time=0.01, residual=residual, optimizer=optimizer, random_state=0
    ).fit(X, y)
    stages = {each["stage"] for each in model.history_}
    assert model.n_iter_ <= len(stages) + 3  # One step of each stage, the kernels' heats included.
    assert model.inducing_points_.shape[0] == (40 if residual else 100)
    assert np.mean((model.predict(Z) - z) ** 2) < np.var(z)


def test_time_is_shared_among_stages() -> None:
    clock = Clock(1_000.0)
    clock.spread(0.5, 2)
    assert 0.2 < clock._share <= 0.26
    clock.allow(0.0)
    assert clock.is_over()
    assert not Clock(None).is_over()


@parametrize_with_checks(
    [
        EigenGPRegressor(
            3,
            residual="neighbors",
            likelihood="heteroscedastic",
            optimizer=LBFGS(n_restarts=1, max_iter=2),
            random_state=0,
        ),
        EigenGPRegressor(),
    ]
)
def test_scikit_learn_estimator_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_all_rows_as_neighbours_predict_with_heteroscedastic_noise() -> None:
    rng = np.random.default_rng(0)
    X = np.tile(np.linspace(0, 4, 33), 20)[:, None]
    y = np.sin(2 * X[:, 0]) + 0.05 * np.exp(0.6 * X[:, 0]) * rng.normal(size=660)
    model = EigenGPRegressor(5, likelihood="heteroscedastic", n_neighbors=40, **NEIGHBORS).fit(X, y)
    _, std = model.predict(np.array([[0.1], [3.9]]), return_std=True)
    assert np.all(np.isfinite(std))


@pytest.mark.parametrize(
    "kernel", [Matern32(), RationalQuadratic(), RationalQuadratic() + Matern12()]
)
def test_a_kernel_without_arguments_is_learned_on_inputs_of_any_scale(kernel: Kernel) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (1_100, 3)) * np.array([1e4, 1.0, 1e-3])
    y = np.sin(X[:, 0] / 5e3) + X[:, 1] * X[:, 2] * 1e3 + 0.1 * rng.normal(size=1_100)
    model = EigenGPRegressor(
        kernel=kernel, residual="neighbors", likelihood="gaussian", random_state=0
    ).fit(X[:1_000], y[:1_000])
    assert nmse(y[1_000:], model.predict(X[1_000:])) < 0.05


def test_leave_one_out_scores_repeated_inputs_beyond_its_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scored: list[LeftOut] = []
    score = vecchia.score

    def note(posterior: Any, left_out: LeftOut) -> Any:
        scored.append(left_out)
        return score(posterior, left_out)

    monkeypatch.setattr(vecchia, "score", note)
    monkeypatch.setattr(vecchia, "_LEFT_OUT_ROWS", 200)
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (1_200, 2))
    X[1_160:] = X[:40]
    y = np.sin(3 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=1_200)
    settings = {"kernel": "matern32", "optimizer": LBFGS(max_iter=3), "random_state": 0}
    EigenGPRegressor(12, residual="neighbors", **settings).fit(X, y)
    rows, number, (mean, *_), *_ = scored[0]
    n_rows = np.bincount(number)
    assert mean.size == n_rows.size == 210
    assert np.all(n_rows[200:] == 2)
    assert np.sqrt(np.mean((rows.y - mean[number]) ** 2)) < 0.5
    for each in range(200, 210):
        assert np.ptp(rows.X[number == each], axis=0).max() == 0.0


@pytest.mark.parametrize("kernel", [SquaredExponential(), SquaredExponential(0.2)])
def test_a_given_kernel_is_learned_where_there_is_no_noise(kernel: Kernel) -> None:
    x = np.random.default_rng(0).uniform(size=(120, 1))
    y = np.sin(8.0 * x[:, 0])
    model = EigenGPRegressor(kernel=kernel, residual="neighbors", random_state=0).fit(x, y)
    assert np.sqrt(np.mean((model.predict(x) - y) ** 2)) < 0.02


def test_the_kernel_with_the_lowest_leave_one_out_loss_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, y = _heteroscedastic_data(400, 0)
    own = NeighborFit._get_loss

    def prefer(self: NeighborFit, predicted: Any) -> float:
        chosen = isinstance(predicted.model.features.kernel, Sum)
        return own(self, predicted) - 100.0 * chosen * len(
            predicted.model.features.kernel.parameters
        )

    monkeypatch.setattr(NeighborFit, "_get_loss", prefer)
    kernel = EigenGPRegressor(10, **NEIGHBORS).fit(X, y).selection_["kernel"]
    assert kernel.chosen == max(kernel.scores, key=len)


def test_a_kernel_that_cannot_be_conditioned_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = _heteroscedastic_data(400, 0)
    own = NeighborFit.condition

    def fail(self: NeighborFit, model: VecchiaPass) -> Any:
        if isinstance(model.features.kernel, Sum):
            raise FactorizationError
        return own(self, model)

    monkeypatch.setattr(NeighborFit, "condition", fail)
    model = EigenGPRegressor(10, **NEIGHBORS).fit(X, y)
    assert not isinstance(model.kernel_, Sum)


def test_rounds_of_equally_many_groups_have_keys_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys: list[object] = []
    own = local_learner.minimize

    def note(*given: Any) -> Any:
        keys.append(given[-1])
        return own(*given)

    monkeypatch.setattr(local_learner, "minimize", note)
    rows = _local_rows(False)
    learner, model = LocalLearner(rows, Monitor(False), 1), ExactGP(Matern52([1.0, 2.0]), 0.1)
    for size in (20, 40):
        learner.learn_in_round(Round(size, size, 1, 1, 1, 1.0), model, [rows.cut(size)[0]], 1)
    assert keys[0] != keys[1]
