"""Restarts, search, optimizer, objectives and progress."""

from __future__ import annotations

import io
import time
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from eigengp import LBFGS, EigenGPRegressor
from eigengp._typing import Array
from eigengp.data.array_source import ArraySource
from eigengp.data.standardize import Extent
from eigengp.datasets import make_nonstationary
from eigengp.fitting import initialization
from eigengp.fitting.initialization import (
    InducingFamily,
    measure_roughness,
    pick_greedily,
    place_points,
)
from eigengp.fitting.objectives import (
    Evaluation,
    Parameters,
    Part,
    RowObjective,
    eigengp_parameters,
    minimize,
)
from eigengp.fitting.progress import Clock, Monitor
from eigengp.fitting.restarts import FirstStage, Search, _double_points, _list_sizes
from eigengp.fitting.settings import Plan
from eigengp.fitting.stages import WeightObjective
from eigengp.gp.blocks import RowBlock
from eigengp.gp.linalg import FactorizationError
from eigengp.gp.model import EigenGP, Jitter
from eigengp.kernels import Matern32, SquaredExponential
from eigengp.kernels.base import get_lengthscale_range, with_lengthscale
from finite_differences import assert_close, gradient

RNG = np.random.RandomState(0)
X = np.sort(RNG.uniform(-1.7, 1.7, size=(80, 1)), axis=0)
Y = np.where(X[:, 0] > 0, np.sin(12 * X[:, 0]), 0.0) + 0.1 * RNG.normal(size=80)
ROWS = RowBlock(X, Y)
SOURCE = ArraySource(X, Y)
BOX = Extent(X.min(axis=0), X.max(axis=0))


def make_model(size: int = 6) -> EigenGP:
    kernel = SquaredExponential(np.array([0.4]))
    return EigenGP(kernel, X[:: 80 // size][:size], 0.1, size, jitter=Jitter(relative=1e-6))


@dataclass(frozen=True)
class Bowl:
    """A quadratic that cannot be evaluated where its first entry exceeds a wall."""

    wall: float = np.inf

    @property
    def parameters(self) -> Parameters[Array]:
        free = Part(np.zeros(2), np.full(2, -5.0), np.full(2, 5.0), lambda _, own: own, np.array)
        return Parameters(np.zeros(2), (free,))

    def __call__(self, vector: Array) -> Evaluation:
        if vector[0] > self.wall:
            raise FactorizationError("beyond the wall")
        value = float(np.sum((vector - [1.0, 2.0]) ** 2))
        return Evaluation(value, 2 * (vector - [1.0, 2.0]), value)


def test_the_optimizer_finds_the_minimum_and_reports_each_iteration() -> None:
    told: list[float] = []
    found = minimize(Bowl(), 50, on_iteration=told.append)
    np.testing.assert_allclose(found.vector, [1.0, 2.0], atol=1e-6)
    assert len(told) == found.n_iter
    assert told == sorted(told, reverse=True)


def test_the_optimizer_steps_back_from_points_that_cannot_be_factorised() -> None:
    found = minimize(Bowl(wall=0.5), 50)
    assert found.vector[0] <= 0.5
    assert found.value < 5.0


def test_the_optimizer_raises_only_if_the_start_itself_fails() -> None:
    with pytest.raises(FactorizationError, match="wall"):
        minimize(Bowl(wall=-1.0), 50)


def test_no_iterations_evaluate_the_start() -> None:
    found = minimize(Bowl(), 0)
    assert (found.value, found.n_iter) == (5.0, 0)


@pytest.mark.parametrize("residual", [False, True])
def test_packing_is_undone_by_unpacking(residual: bool) -> None:
    model = replace(make_model(), shrinkage=np.linspace(0.2, 0.9, 6), residual=residual)
    parameters = eigengp_parameters(model, BOX, basis=True, weights=True)
    again = parameters.unpack(parameters.start)
    np.testing.assert_allclose(again.kernel.theta, model.kernel.theta)
    np.testing.assert_allclose(again.inducing_points, model.inducing_points)
    np.testing.assert_allclose(again.shrinkage, model.shrinkage)
    low, high = parameters.bounds
    assert low.shape == high.shape == parameters.start.shape
    assert (high[-1] == 0.0) == residual


def test_stage_2_without_rows_equals_stage_2_with_rows() -> None:
    parameters = eigengp_parameters(make_model(), BOX, basis=False, weights=True)
    vector = np.log(np.linspace(0.1, 2.0, 7))
    fast = WeightObjective.of(parameters, SOURCE)(vector)
    slow = RowObjective(parameters, SOURCE)(vector)
    assert fast.value == pytest.approx(slow.value, rel=1e-12)
    assert_close(fast.gradient, slow.gradient, 1e-10)
    objective = WeightObjective.of(parameters, SOURCE)
    assert_close(fast.gradient, gradient(lambda v: objective(v).value, vector), 1e-7)


@pytest.mark.parametrize("learned", [False, True])
def test_sums_of_stage_2_stand_for_a_pass_over_the_rows(learned: bool) -> None:
    model = make_model()
    objective = WeightObjective.of(
        eigengp_parameters(model, BOX, basis=False, weights=True), SOURCE
    )
    weights = np.linspace(0.3, 2.0, model.n_components) if learned else None
    other = replace(model, noise_variance=0.3, shrinkage=weights)
    assert objective.knows(other)
    own, known = objective.compute_outcome(other), other.forward(SOURCE)
    assert own.value == pytest.approx(known.value, rel=1e-9)
    for found, expected in zip(
        other.posterior(own).mean_and_variance(X[:9]),
        other.posterior(known).mean_and_variance(X[:9]),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-7)
    moved = replace(model, inducing_points=model.inducing_points + 0.1)
    assert not objective.knows(moved)
    assert not objective.knows(replace(model, kernel=SquaredExponential(np.array([9.0]))))


def test_the_guard_changes_the_objective_and_not_the_log_marginal_likelihood() -> None:
    parameters = eigengp_parameters(make_model(), BOX)
    vector = parameters.start
    plain, guarded = (RowObjective(parameters, SOURCE, gamma)(vector) for gamma in (0.0, 0.3))
    assert guarded.evidence == plain.evidence == plain.value
    assert guarded.value > plain.value


def test_greedy_points_are_different_rows_that_explain_the_prior() -> None:
    kernel = SquaredExponential(np.array([0.4]))
    points = pick_greedily(X, 10, kernel)
    assert np.unique(points, axis=0).shape == (10, 1)

    def left_out(B: Array) -> float:
        K = kernel(X, B)
        return 80 - float(np.trace(K @ np.linalg.solve(kernel(B) + 1e-9 * np.eye(10), K.T)))

    assert left_out(points) < left_out(X[:10])
    everything = pick_greedily(np.zeros((3, 1)), 3, kernel)
    assert np.all(np.isfinite(everything))


def test_greedy_points_of_many_rows_come_from_some_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initialization, "_PLACING_ROWS", 30)
    rows, kernel = RowBlock(np.arange(90.0)[:, None], np.zeros(90)), SquaredExponential(np.ones(1))
    points = place_points("greedy", rows, 9, kernel, np.random.RandomState(0))
    assert set(points[:, 0] % 3) == {0.0}


@pytest.mark.parametrize("method", ["kmeans", "random", "greedy", X[:5]])
def test_restarts_differ_in_lengthscale_and_inducing_points(method: str | Array) -> None:
    family = InducingFamily(method)
    starts = family.make_starts(make_model(5), ROWS, 5, 9, np.random.RandomState(0))
    assert len(starts) == 9
    assert starts[0].kernel == make_model(5).kernel
    lengths = [float(start.kernel.lengthscale[0]) for start in starts[1:]]
    assert lengths == sorted(lengths)
    assert lengths[-1] / lengths[0] > 20
    same = [np.array_equal(s.inducing_points, starts[0].inducing_points) for s in starts]
    assert all(same) == (not isinstance(method, str))


def test_kmeans_spreads_over_sorted_rows_and_copes_with_fewer_rows_than_points() -> None:
    many = RowBlock(np.linspace(0, 1, 25_000)[:, None], np.zeros(25_000))
    centres = place_points("kmeans", many, 20, make_model().kernel, np.random.RandomState(0))
    assert centres.min() < 0.1
    assert centres.max() > 0.9
    few = place_points("kmeans", ROWS, 90, make_model().kernel, np.random.RandomState(0))
    assert few.shape == (90, 1)


def test_roughness_prefers_the_wild_side() -> None:
    rough = measure_roughness(ROWS)
    assert rough.mean() == pytest.approx(1.0)
    assert rough[X[:, 0] > 0].mean() > 1.5 * rough[X[:, 0] < 0].mean()
    np.testing.assert_array_equal(measure_roughness(RowBlock(X[:1], Y[:1])), [1.0])
    np.testing.assert_array_equal(measure_roughness(RowBlock(X, np.zeros(80))), np.ones(80))


def test_lengthscales_worth_trying_grow_with_the_dimension() -> None:
    ranges = [get_lengthscale_range(d) for d in (1, 2, 8, 100)]
    assert all(low < high for low, high in ranges)
    assert [low for low, _ in ranges] == sorted(low for low, _ in ranges)


def test_parts_of_a_sum_start_at_different_lengthscales() -> None:
    kernel = SquaredExponential(np.ones(2)) + Matern32(np.ones(2))
    moved = with_lengthscale(kernel, 3.0, np.random.RandomState(0))
    assert not np.allclose(moved.left.lengthscale, moved.right.lengthscale)
    assert moved.left.variance == 1.0


def test_halving_and_relocation_only_ever_improve() -> None:
    told: list[float] = []
    family, rng = InducingFamily("kmeans"), np.random.RandomState(0)
    search = Search(family, SOURCE, ROWS, BOX, 0.1, told.append)
    model = make_model()
    starts = family.make_starts(model, ROWS, len(model.inducing_points), 6, rng)
    best = search.choose_best(starts)
    assert best.value <= min(search.run(start, 20).value for start in starts) + 1e-9
    assert search.relocate(best, rng).value <= best.value
    assert len(told) > 6


def test_starts_have_as_many_eigenfunctions_as_the_fit() -> None:
    family = InducingFamily("kmeans", n_components=4)
    starts = family.make_starts(make_model(), ROWS, 6, 3, np.random.RandomState(0))
    assert {(len(each.inducing_points), each.n_components) for each in starts} == {(6, 4)}
    few = family.make_starts(make_model(), ROWS, 3, 1, np.random.RandomState(0))
    assert few[0].n_components == 3
    placed = family.place(few[0], ROWS, 7, np.random.RandomState(0))
    assert (len(placed.inducing_points), placed.n_components) == (7, 4)


def test_doubled_points_leave_the_log_marginal_likelihood_as_it_is() -> None:
    model = make_model()
    for size in (8, 15):
        points = _double_points(model, size, 1e-3, np.random.RandomState(0))
        assert points.shape == (size, model.inducing_points.shape[1])
        doubled = replace(model, inducing_points=points)
        assert doubled.value(SOURCE) == pytest.approx(model.value(SOURCE), rel=1e-3)


def test_sizes_grow_to_the_size_asked_for() -> None:
    assert _list_sizes(14) == [14]
    assert _list_sizes(50) == [12, 17, 24, 35, 50]
    assert _list_sizes(100)[0] == 25


def test_progress_is_a_moving_bar_on_a_terminal_and_one_line_elsewhere() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, redrawn in ((Terminal(), 4), (io.StringIO(), 0)):
        monitor = Monitor(True, n_rows=10.0, offset=-2.0, stream=stream)
        with monitor.stage("stage 1", 5):
            for value in (3.0, 2.0, 1.0):
                monitor.step(value)
        assert stream.getvalue().count("\r") == redrawn
        assert stream.getvalue().endswith("\n")
        assert "-12.000" in stream.getvalue()
        assert [step["log_marginal_likelihood"] for step in monitor.history] == [-32, -22, -12]


def test_progress_shows_by_itself_on_a_terminal_after_two_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        clock = Clock(60.0, now[0])
        monitor = Monitor(None, stream=stream, clock=clock, _started=now[0], _drawn=now[0])
        with monitor.stage("stage 1", 5):
            monitor.step(1.0)
            assert stream.getvalue() == ""
            now[0] += 10.0
            monitor.step(1.0)
            assert bool(stream.getvalue()) == shown
            assert ("50 s left" in stream.getvalue()) == shown


def test_a_clock_has_time_for_the_first_step() -> None:
    clock = Clock(100.0)
    assert not clock.is_over()
    assert not clock.was_over
    assert Clock(100.0, time.monotonic() - 91.0).is_over()


def test_progress_is_a_line_every_five_seconds_in_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    now, stream = [100.0], io.StringIO()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monitor = Monitor(2, stream=stream, _started=100.0, _drawn=100.0)
    with monitor.stage("stage 1", 50):
        for _ in range(13):
            now[0] += 1.0
            monitor.step(1.0)
    assert len(stream.getvalue().splitlines()) == 2


def test_many_inducing_points_start_with_a_noise_that_suits_them() -> None:
    plan = Plan(6, 6, n_restarts=1, max_iter=5, tol=1e-9, settled=True)
    run: Any = SimpleNamespace(rng=RNG, monitor=Monitor(False))
    stage = FirstStage(run, InducingFamily("kmeans"), plan, SOURCE)
    careless = replace(make_model(), noise_variance=1e-6)
    careful = stage._choose_noise(careless)
    assert careful.noise_variance > 1e-3
    assert careful.value(SOURCE) < careless.value(SOURCE)


@pytest.mark.parametrize(("size", "largest"), [(10, 0.01), (20, 0.02)])
def test_fewer_eigenfunctions_than_points_are_learned_as_well(size: int, largest: float) -> None:
    rng = np.random.default_rng(5)
    inputs = rng.uniform(-2, 2, (600, 2))
    truth = np.sin(2 * inputs[:, 0]) + 0.3 * inputs[:, 1] ** 2 + 5
    noisy = truth + 0.2 * rng.normal(size=600)
    train, test = slice(200), slice(200, None)
    options = {"residual": None, "random_state": 0}
    fewer = EigenGPRegressor(6, inducing_points=size, **options).fit(inputs[train], noisy[train])
    equal = EigenGPRegressor(6, **options).fit(inputs[train], noisy[train])
    error = np.mean((fewer.predict(inputs[test]) - truth[test]) ** 2)
    assert error <= largest * truth[test].var()
    assert fewer.log_marginal_likelihood_ > equal.log_marginal_likelihood_


def test_fewer_eigenfunctions_are_learned_on_nonstationary_data() -> None:
    data = make_nonstationary(200, random_state=0)
    model = EigenGPRegressor(10, inducing_points=14, residual=None, guard=False, random_state=0)
    error = np.mean((model.fit(data.X, data.y).predict(data.X_test) - data.f_test) ** 2)
    assert error <= 0.05 * data.f_test.var()


def test_warming_up_finds_an_input_along_which_the_function_oscillates() -> None:
    rng = np.random.RandomState(3)
    X = rng.uniform(0.0, 3.0, size=(9_000, 3))
    f = X[:, 0] * np.sin(X[:, 0] ** 3) + np.sin(3.0 * X[:, 1])
    y = f + 0.5 * rng.standard_normal(9_000)
    settings: Any = {"residual": None, "optimizer": LBFGS(max_iter=10)}
    models = [EigenGPRegressor(36, random_state=seed, **settings).fit(X, y) for seed in range(3)]
    errors = [np.mean((model.predict(X) - f) ** 2) for model in models]
    assert np.median(errors) < 0.2 * np.var(f)  # Which optimum is found depends on rounding.
    assert all(model.kernel_.lengthscale[0] < 0.5 for model in models)
