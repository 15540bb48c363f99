"""Sources without their held-out rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn import config_context

from eigengp import LBFGS, EigenGPRegressor
from eigengp.data.array_source import ArraySource
from eigengp.data.holdout import ManyTrainingRows, TrainingRows, sample_rows
from eigengp.data.standardize import Scaling, StandardizedSource, Summary, standardize_rows
from eigengp.gp.blocks import RowBlock
from eigengp.gp.model import EigenGP
from eigengp.kernels import Kernel, Matern32, SquaredExponential


def make_source(weighted: bool = False) -> ArraySource:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) * [1e-6, 1.0, 1e6] + [1.0, 0.0, -1e9]
    weight = rng.integers(0, 3, size=200).astype(float) if weighted else None
    return ArraySource(X, 3.0 + 5.0 * rng.normal(size=200), weight, block_rows=33)


@pytest.mark.parametrize("weighted", [False, True])
def test_held_out_and_training_rows_are_all_rows_and_never_both(weighted: bool) -> None:
    source = make_source(weighted)
    training = TrainingRows(source, stride=5)
    kept = training.total(lambda block: block.y.tolist())
    held = training.take_held_out()
    assert sorted([*kept, *held.y]) == sorted(source.y)
    assert 10 <= held.y.size <= 80
    assert (held.sample_weight is not None) == weighted
    assert set(training.take(np.arange(200)).y) == set(kept)
    assert training.n_rows == 200
    assert training.n_features == 3


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_held_out_of_very_many_are_taken_off_each_sum(weighted: bool) -> None:
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(400, 2)), rng.normal(size=400)
    weight = rng.uniform(0.5, 2.0, size=400) if weighted else None
    source = ArraySource(X, y, weight, block_rows=90)
    split = ManyTrainingRows.of(source, 30)
    held = split.take_held_out()
    keep = np.setdiff1d(np.arange(400), split.held_rows)
    rest = ArraySource(X[keep], y[keep], None if weight is None else weight[keep])
    model = EigenGP(SquaredExponential(np.ones(2)), X[:6], 0.1, 6)
    (own, gradient), (other, expected) = model.evaluate(split), model.evaluate(rest)
    assert own.value == pytest.approx(other.value, rel=1e-11)
    np.testing.assert_allclose(gradient.inducing_points, expected.inducing_points, atol=1e-9)
    np.testing.assert_array_equal(held.y, y[split.held_rows])
    assert split.take(np.arange(400)).y.tolist() == y[keep].tolist()
    assert split.n_rows == 400


def test_rows_on_a_device_are_copied_without_the_held_out_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(5)
    X, y, weight = rng.normal(size=(400, 2)), rng.normal(size=400), rng.uniform(0.5, 2.0, size=400)
    host = ArraySource(X, y, weight, block_rows=90)
    arrays = (torch.asarray(each) for each in (X, y, weight))
    there = ArraySource(*arrays, block_rows=90)
    scaling = Scaling.of(host.total(Summary.of), True)
    model = EigenGP(SquaredExponential(np.ones(2)), X[:6], 0.1, 6)
    expected = model.value(ManyTrainingRows.of(standardize_rows(host, scaling, 1 << 30), 30))
    for few in (True, False):
        for module in ("standardize", "holdout"):
            monkeypatch.setattr(f"eigengp.data.{module}.COPIED_ROWS", 400 if few else 399)
        split = ManyTrainingRows.of(standardize_rows(there, scaling, 1 << 30), 30)
        assert (split._copied is not None) == few
        assert model.value(split) == pytest.approx(expected, rel=1e-11)


def test_samples_of_very_many_rows_are_drawn_without_replacement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = ArraySource(np.zeros((100, 1)), np.arange(100.0))
    for slow_from in (99, 100):
        monkeypatch.setattr("eigengp.data.holdout._SLOW_FROM", slow_from)
        drawn = [sample_rows(source, 60, np.random.RandomState(seed)).y for seed in (0, 0, 1)]
        assert np.unique(drawn[0]).size == 60
        np.testing.assert_array_equal(drawn[0], np.sort(drawn[0]))
        np.testing.assert_array_equal(drawn[0], drawn[1])
        assert not np.array_equal(drawn[0], drawn[2])


def _training(source: ArraySource, memory: int) -> TrainingRows:
    scaling = Scaling.of(source.total(Summary.of), True)
    return TrainingRows(standardize_rows(source, scaling, memory), 5)


@pytest.mark.parametrize("kernel", [SquaredExponential(1.0), SquaredExponential(1.0) * Matern32(2)])
@pytest.mark.parametrize("weighted", [False, True])
def test_kept_rows_give_the_same_bits_in_every_pass(kernel: Kernel, weighted: bool) -> None:
    source = make_source(weighted)
    if source.sample_weight is not None:
        source.sample_weight[:] += 1.0
    kept, anew = _training(source, 1 << 20), _training(source, 0)
    assert isinstance(kept.source, ArraySource)
    assert isinstance(anew.source, StandardizedSource)
    model = EigenGP(kernel.with_ard(3), kept.take(np.arange(10)).X[:6], 0.1, 6)
    expected, gradient = model.evaluate(anew)
    for _ in range(2):
        found, own = replace(model).evaluate(kept)
        assert found.value == expected.value
        np.testing.assert_array_equal(own.inducing_points, gradient.inducing_points)
        np.testing.assert_array_equal(own.theta, gradient.theta)
    rows = np.arange(0, 200, 7)
    np.testing.assert_array_equal(kept.take(rows).X, anew.take(rows).X)


def test_blocks_are_made_once_with_contiguous_columns() -> None:
    seen: list[RowBlock] = []

    def keep(block: RowBlock) -> float:
        seen.append(block)
        return float(block.n_rows)

    kept = _training(make_source(), 1 << 20)
    assert kept.total(keep) == kept.total(keep)
    half = len(seen) // 2
    assert {id(block) for block in seen[:half]} == {id(block) for block in seen[half:]}
    assert all(block.X.flags.f_contiguous for block in seen)
    counts: list[int] = []
    larger = kept.sized(1)
    assert larger.total(lambda block: counts.append(block.n_rows) or 1) == len(counts) == 1


@pytest.mark.parametrize(("working_memory", "kind"), [(1, ArraySource), (0, StandardizedSource)])
def test_a_fit_standardises_few_rows_once(
    working_memory: int, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[TrainingRows] = []
    evaluate = EigenGP.evaluate

    def watched(self: EigenGP, source: TrainingRows, gamma: float = 0.0) -> object:
        seen.append(source)
        return evaluate(self, source, gamma)

    monkeypatch.setattr(EigenGP, "evaluate", watched)
    X = np.random.default_rng(0).normal(size=(2_000, 2))
    optimizer = LBFGS(n_restarts=1, max_iter=2)
    model = EigenGPRegressor(8, residual=None, optimizer=optimizer, random_state=0)
    with config_context(working_memory=working_memory):
        model.fit(X, np.sin(X[:, 0]))
    assert isinstance(seen[-1], TrainingRows)
    assert isinstance(seen[-1].source, kind)
