"""Sources without their held-out rows."""

from __future__ import annotations

import numpy as np
import pytest

from eigengp.data.array_source import ArraySource
from eigengp.data.holdout import ManyTrainingRows, TrainingRows
from eigengp.gp.model import EigenGP
from eigengp.kernels import SquaredExponential


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
