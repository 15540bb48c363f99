"""Standardised rows, and the box around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eigengp.data.array_source import ArraySource
from eigengp.data.frames import Frame
from eigengp.data.open import ReadOptions, open_dataset
from eigengp.data.standardize import Scaling, StandardizedSource, Summary, standardize_rows


def make_source(weighted: bool = False) -> ArraySource:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) * [1e-6, 1.0, 1e6] + [1.0, 0.0, -1e9]
    weight = rng.integers(0, 3, size=200).astype(float) if weighted else None
    return ArraySource(X, 3.0 + 5.0 * rng.normal(size=200), weight, block_rows=33)


def test_standardised_rows_have_mean_zero_and_variance_one() -> None:
    source = make_source()
    rows = StandardizedSource(source, Scaling.of(source.total(Summary.of), True)).take(
        np.arange(200)
    )
    np.testing.assert_allclose(rows.X.mean(axis=0), 0.0, atol=1e-8)
    np.testing.assert_allclose(rows.X.std(axis=0), 1.0)
    assert rows.y.mean() == pytest.approx(0.0, abs=1e-12)
    assert rows.y.std() == pytest.approx(1.0)


def test_weights_count_as_repetitions_in_the_scaling() -> None:
    source = make_source(weighted=True)
    assert source.sample_weight is not None
    times = source.sample_weight.astype(int)
    repeated = ArraySource(np.repeat(source.X, times, axis=0), np.repeat(source.y, times))
    weighted, plain = (
        Scaling.of(source.total(Summary.of), True),
        Scaling.of(repeated.total(Summary.of), True),
    )
    np.testing.assert_allclose(weighted.input_centre, plain.input_centre)
    np.testing.assert_allclose(weighted.input_scale, plain.input_scale)
    assert weighted.target_scale == pytest.approx(plain.target_scale)


@pytest.mark.parametrize("centred", [False, True])
def test_without_standardising_inputs_share_a_scale(centred: bool) -> None:
    scaling = Scaling.of(make_source().total(Summary.of), False, centred)
    assert np.ptp(scaling.input_scale) == 0.0
    assert scaling.target_centre == (pytest.approx(make_source().y.mean()) if centred else 0.0)
    assert scaling.target_scale == pytest.approx(make_source().y.std())


def test_what_is_constant_up_to_rounding_keeps_its_magnitude_as_scale() -> None:
    X = np.column_stack([np.full(9, 1e5), np.zeros(9), 1e5 + 1e-11 * np.arange(9)])
    scaling = Scaling.of(ArraySource(X, np.full(9, -4.0)).total(Summary.of), True)
    np.testing.assert_allclose(scaling.input_scale, [1e5, 1.0, 1e5])
    assert scaling.target_scale == 4.0


@pytest.mark.parametrize("standardize", [True, False, "robust"])
def test_extent_is_the_box_around_all_standardised_rows(standardize: Any) -> None:
    source = make_source()
    options = ReadOptions("a", standardize, 0)
    with open_dataset(Frame(source.X, source.y, None), options) as dataset:
        rows = dataset.source.take(np.arange(dataset.n_rows))
    np.testing.assert_array_equal(dataset.extent.low, rows.X.min(axis=0))
    np.testing.assert_array_equal(dataset.extent.high, rows.X.max(axis=0))


def test_only_few_rows_are_standardised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(size=(500, 2)).astype(np.float32)
    source = ArraySource(X, X[:, 0], None, block_rows=90)
    scaling, enough = Scaling.of(source.total(Summary.of), True), 4 * 500 * 3 * 8
    own = standardize_rows(source, scaling, enough)
    assert isinstance(own, ArraySource)
    assert own.X.dtype == np.float64
    other = StandardizedSource(source, scaling)
    assert isinstance(standardize_rows(source, scaling, enough - 1), StandardizedSource)
    batches = (each.batches(70, np.random.RandomState(3)) for each in (own, other))
    for found, expected in zip(*batches, strict=True):
        np.testing.assert_array_equal(found.X, expected.X)
        np.testing.assert_array_equal(found.y, expected.y)
    strict = pytest.importorskip("array_api_strict")
    elsewhere = ArraySource(strict.asarray(X), strict.asarray(X[:, 0]))
    there = standardize_rows(elsewhere, scaling, enough)
    assert isinstance(there, ArraySource)
    np.testing.assert_allclose(np.asarray(there.X), own.X, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr("eigengp.data.standardize.COPIED_ROWS", 499)
    assert isinstance(standardize_rows(elsewhere, scaling, enough), StandardizedSource)
