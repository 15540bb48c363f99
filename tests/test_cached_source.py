"""Rows that are kept as views show them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn import config_context
from threadpoolctl import threadpool_limits

from eigengp import LBFGS, EigenGPRegressor
from eigengp.backend.threads import use_one_blas_thread
from eigengp.data.array_source import ArraySource
from eigengp.data.cached_source import CachedSource, cache_blocks
from eigengp.data.holdout import ManyTrainingRows, TrainingRows
from eigengp.data.standardize import Scaling, StandardizedSource, Summary
from eigengp.gp.blocks import RowBlock, RowSource
from eigengp.gp.model import EigenGP
from eigengp.kernels import Kernel, Matern32, SquaredExponential

ENOUGH = 4 * 500 * 3 * 8


def _source(weighted: bool = False) -> ArraySource:
    rng = np.random.default_rng(0)
    X = 3.0 * rng.normal(size=(500, 2)) + 1.0
    weight = rng.integers(1, 3, size=500).astype(float) if weighted else None
    return ArraySource(X, np.sin(X[:, 0]) + X[:, 1], weight, block_rows=90)


def _training(source: ArraySource) -> TrainingRows:
    return TrainingRows(StandardizedSource(source, Scaling.of(Summary.of(source), True)), 5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("views", [_training, lambda source: source])
def test_kept_blocks_give_the_same_bits_in_every_pass(weighted: bool, views: object) -> None:
    assert callable(views)
    source = views(_source(weighted))
    kept = cache_blocks(source, 2 * ENOUGH)
    assert isinstance(kept, CachedSource)
    model = EigenGP(SquaredExponential(np.ones(2)), _source().X[:8], 0.1, 8)
    expected, gradient = model.evaluate(source)
    for _ in range(2):
        found, own = replace(model).evaluate(kept)
        assert found.value == expected.value
        np.testing.assert_array_equal(own.inducing_points, gradient.inducing_points)
        np.testing.assert_array_equal(own.theta, gradient.theta)


def test_blocks_are_made_once_with_inputs_in_one_piece() -> None:
    seen: list[RowBlock] = []

    def keep(block: RowBlock) -> float:
        seen.append(block)
        return float(block.n_rows)

    source = _training(_source())
    kept = cache_blocks(source, ENOUGH)
    assert kept.total(keep) == kept.total(keep) == source.total(lambda block: float(block.n_rows))
    half = len(seen) // 2
    assert {id(block) for block in seen[:half]} == {id(block) for block in seen[half:]}
    assert all(block.X.flags.f_contiguous for block in seen)


def test_rows_are_taken_through_the_views() -> None:
    source = _training(_source())
    rows = np.arange(0, 500, 7)
    np.testing.assert_array_equal(cache_blocks(source, ENOUGH).take(rows).X, source.take(rows).X)
    assert cache_blocks(source, ENOUGH).n_rows == 500
    assert cache_blocks(source, ENOUGH).n_features == 2


def test_batches_are_those_of_the_views() -> None:
    source = StandardizedSource(_source(), Scaling.of(Summary.of(_source()), True))
    own, other = (
        each.batches(70, np.random.RandomState(3))
        for each in (cache_blocks(source, ENOUGH), source)
    )
    for found, expected in zip(own, other, strict=True):
        np.testing.assert_array_equal(found.X, expected.X)
        np.testing.assert_array_equal(found.y, expected.y)


@pytest.mark.parametrize("kernel", [Matern32(1.0), SquaredExponential(1.0) * Matern32(2.0)])
def test_kept_blocks_give_the_same_bits_with_other_kernels(kernel: Kernel) -> None:
    source = _training(_source())
    model = EigenGP(kernel.with_ard(2), _source().X[:8], 0.1, 8)
    expected, gradient = model.evaluate(source)
    found, own = replace(model).evaluate(cache_blocks(source, ENOUGH))
    assert found.value == expected.value
    np.testing.assert_array_equal(own.theta, gradient.theta)


def test_threads_that_come_and_go_do_not_move_blocks() -> None:
    source = _source()
    with threadpool_limits(2, user_api="blas"):
        kept = cache_blocks(_source(), ENOUGH)
        assert kept.total(lambda block: float(block.n_rows)) == source.n_rows
        with use_one_blas_thread():
            assert kept.total(lambda block: float(block.n_rows)) == source.n_rows


@pytest.mark.parametrize(("working_memory", "kind"), [(1, CachedSource), (0, TrainingRows)])
def test_a_fit_keeps_few_rows(
    working_memory: int, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[RowSource] = []
    evaluate = EigenGP.evaluate

    def watched(self: EigenGP, source: RowSource, gamma: float = 0.0) -> object:
        seen.append(source)
        return evaluate(self, source, gamma)

    monkeypatch.setattr(EigenGP, "evaluate", watched)
    X = np.random.default_rng(0).normal(size=(2_000, 2))
    optimizer = LBFGS(n_restarts=1, max_iter=2)
    model = EigenGPRegressor(8, residual=None, optimizer=optimizer, random_state=0)
    with config_context(working_memory=working_memory):
        model.fit(X, np.sin(X[:, 0]))
    assert isinstance(seen[-1], kind)


def test_other_blocks_are_made_anew() -> None:
    kept = cache_blocks(_training(_source()), ENOUGH)
    counts: list[int] = []
    assert kept.total(lambda block: float(block.n_rows)) > 0
    larger = kept.sized(1)
    assert isinstance(larger, CachedSource)
    assert larger.total(lambda block: counts.append(block.n_rows) or float(block.n_rows)) == sum(
        counts
    )
    assert len(counts) == 1


def test_only_few_rows_in_numpy_are_kept() -> None:
    source = _source()
    many = ManyTrainingRows.of(source, 30)
    assert cache_blocks(many, ENOUGH) is many
    assert cache_blocks(source, ENOUGH - 1) is source
    weighted = _source(weighted=True)
    assert cache_blocks(weighted, ENOUGH) is weighted
    strict = pytest.importorskip("array_api_strict")
    other = ArraySource(strict.asarray(source.X), strict.asarray(source.y), None, block_rows=90)
    assert cache_blocks(other, ENOUGH) is other
