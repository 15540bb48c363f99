"""Precision and memory: what they may change, and what they must not."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from sklearn import config_context

from eigengp import LBFGS, EigenGPRegressor, Matern32, SquaredExponential
from eigengp._typing import Array
from eigengp.backend.threads import make_buffer, product, recycle, reuse_buffers
from eigengp.data.array_source import ArraySource
from eigengp.data.standardize import Extent
from eigengp.fitting import settings
from eigengp.fitting.objectives import RowObjective, eigengp_parameters, minimize
from eigengp.fitting.settings import choose_precision, get_working_memory
from eigengp.gp.approximations import PlainRows, PriorPass, SpectralPass
from eigengp.gp.blocks import RowBlock
from eigengp.gp.model import EigenGP, Jitter
from eigengp.gp.precision import (
    KEPT_BYTES,
    PRECISIONS,
    Arithmetic,
    measure_residual_scatter,
    measure_rounding,
)
from eigengp.gp.sums import Kept
from eigengp.kernels import Kernel
from eigengp.metrics import nmse

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3_000, 3))
y = np.sin(1.5 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * RNG.normal(size=3_000)
SPREAD = X[:: 3_000 // 20][:20]
MODEL = EigenGP(SquaredExponential(np.full(3, 1.2)), SPREAD, 0.1, 20, jitter=Jitter(1e-6))
SOURCE = ArraySource(X, y, block_rows=700, n_threads=2)
BADLY_SCALED = {
    "shifted": (1.0, 1e6),
    "huge": (1e9, 0.0),
    "tiny": (1e-9, 1e-7),
}


def gradient_of(model: EigenGP, source: ArraySource = SOURCE) -> tuple[float, Array]:
    value, gradient = model.value_and_gradient(source)
    parts = (gradient.theta, gradient.inducing_points.ravel(), [gradient.log_noise_variance])
    return value, np.concatenate(parts)


@pytest.mark.parametrize("kernel", [SquaredExponential, Matern32])
@pytest.mark.parametrize("limit", [0, 150_000, 1 << 30])
def test_what_is_kept_between_passes_changes_no_bit(kernel: type[Kernel], limit: int) -> None:
    model = replace(MODEL, kernel=kernel(np.full(3, 1.2)))
    whole = replace(model, arithmetic=Arithmetic("double", limit))
    value, gradient = gradient_of(whole)
    expected = gradient_of(model)
    assert value == expected[0]
    np.testing.assert_array_equal(gradient, expected[1])


def test_kept_features_stay_within_their_room_and_are_given_up_once() -> None:
    block = SOURCE.take(np.arange(100))
    features, size = MODEL.features, 100 * 21 * 8
    kept = Kept(size)
    first = kept.make(features, block, "float64", spare=1)
    assert kept.room == 0
    second = replace(block, start=100)
    np.testing.assert_array_equal(kept.make(features, second, "float64", spare=1), first)
    found = kept.take(block)
    assert found is not None
    assert found[0] is first
    assert kept.take(block) is None


def test_reused_memory_changes_no_bit() -> None:
    expected = gradient_of(MODEL)
    with reuse_buffers():
        for _ in range(3):
            found = gradient_of(replace(MODEL))
            assert found[0] == expected[0]
            np.testing.assert_array_equal(found[1], expected[1])


def test_memory_is_used_again_only_inside_the_context() -> None:
    ones = np.ones((200, 100))

    def where(x: Array) -> int:
        return int(x.__array_interface__["data"][0])

    with reuse_buffers():
        first = product(ones, ones.T)
        address = where(first)
        recycle(first)
        recycle(first)
        second, third = product(ones[:150], ones.T), product(ones, ones.T)
        assert where(second) == address != where(third)
        np.testing.assert_array_equal(second, np.full((150, 200), 100.0))
    recycle(second)
    assert product(ones, ones.T).base is None


def test_what_was_never_taken_is_not_held() -> None:
    with reuse_buffers():
        for _ in range(5):
            recycle(np.ones((300, 300)))
        assert make_buffer((300, 300)).base.size < 2 * 8 * 300 * 300


def test_fitted_models_are_pickled_without_copies_for_torch() -> None:
    torch = pytest.importorskip("torch")
    model = EigenGPRegressor(5, optimizer=LBFGS(n_restarts=1, max_iter=2), random_state=0).fit(
        X[:100], y[:100]
    )
    expected = model.predict(X[:3])
    model._posterior.mean(torch.asarray(X[:3]))
    model._scaling.transform_inputs(torch.asarray(X[:3]))
    stored = pickle.dumps(model)
    assert b"torch" not in stored
    np.testing.assert_array_equal(pickle.loads(stored).predict(X[:3]), expected)


def test_memory_is_64_mib_unless_scikit_learn_is_told_otherwise() -> None:
    assert get_working_memory() == Arithmetic().memory_limit == KEPT_BYTES == 64 << 20
    for mebibytes in (0, 0.5, 1, 128):
        with config_context(working_memory=mebibytes):
            assert get_working_memory() == mebibytes * 2**20
    assert get_working_memory() == KEPT_BYTES


@pytest.mark.parametrize("mebibytes", [0, 1, 300])
def test_a_fit_follows_working_memory_and_is_the_same(
    mebibytes: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def noting(memory_limit: int) -> Kept:
        seen.append(memory_limit)
        return Kept(memory_limit)

    monkeypatch.setattr("eigengp.gp.model.Kept", noting)
    optimizer = LBFGS(n_restarts=1, max_iter=2)
    model = EigenGPRegressor(20, residual=None, optimizer=optimizer, random_state=0)
    expected = model.fit(X, y).predict(X[:9])
    assert KEPT_BYTES in seen
    seen.clear()
    with config_context(working_memory=mebibytes):
        found = model.fit(X, y).predict(X[:9])
    assert mebibytes * 2**20 in seen
    np.testing.assert_array_equal(found, expected)


def test_float32_gradients_are_close_where_inducing_points_are_well_conditioned() -> None:
    value, expected = gradient_of(MODEL)
    for precision, tolerance in (("mixed", 1e-4), ("single", 1e-3)):
        own, gradient = gradient_of(replace(MODEL, arithmetic=Arithmetic(precision)))
        assert own == pytest.approx(value, rel=1e-5)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(gradient, expected, rtol=0.0, atol=tolerance * scale)
        assert not np.array_equal(gradient, expected)


@pytest.mark.parametrize("step", [0.3, 0.1, 0.03])
def test_the_rounding_of_a_gradient_is_foreseen(step: float) -> None:
    """The estimate is for one entry, and the worst of some dozens is what is found."""
    points = np.vstack([SPREAD[:10], SPREAD[:10] + step])
    model = replace(MODEL, inducing_points=points, n_components=20)
    evidence = model.forward(SOURCE).evidence
    foreseen = 6e-8 * measure_rounding(evidence.sums_adjoint(), evidence.sums)
    expected = gradient_of(model)[1]
    found = gradient_of(replace(model, arithmetic=Arithmetic("mixed")))[1]
    error = np.abs(found - expected).max() / evidence.sums.n
    assert 0.0 < error < 30.0 * foreseen + 1e-7


@pytest.mark.parametrize("step", [0.3, 0.1, 0.03])
def test_what_float32_features_do_to_residuals_is_foreseen(step: float) -> None:
    points = np.vstack([SPREAD[:10], SPREAD[:10] + step])
    model = replace(MODEL, inducing_points=points, n_components=20)
    evidence = model.forward(SOURCE).evidence
    bar, sums = evidence.sums_adjoint(), evidence.sums
    foreseen = 6e-8 * (measure_residual_scatter(bar, sums) + measure_rounding(bar, sums))
    block = RowBlock(SOURCE.X, SOURCE.y)
    expected = PlainRows(model.features).pull_back(block, bar).points
    found = PlainRows(model.features, "float32", "float32").pull_back(block, bar).points
    error = np.abs(found - expected).max() / sums.n
    assert foreseen / 30.0 < error < 30.0 * foreseen


def test_mixed_precision_does_not_use_float32_where_it_would_show() -> None:
    close = replace(MODEL, inducing_points=np.vstack([SPREAD[:10], SPREAD[:10] + 1e-4]))
    mixed = replace(close, arithmetic=Arithmetic("mixed"))
    np.testing.assert_allclose(gradient_of(mixed)[1], gradient_of(close)[1], rtol=1e-9)


def close_points(step: float, noise_variance: float) -> EigenGP:
    return replace(
        MODEL,
        inducing_points=np.vstack([SPREAD[:10], SPREAD[:10] + step]),
        noise_variance=noise_variance,
        arithmetic=Arithmetic("single"),
    )


def test_single_precision_makes_sums_in_float64_where_digits_would_be_lost() -> None:
    single = close_points(1e-3, 1e-4)
    mixed = replace(single, arithmetic=Arithmetic("mixed"))
    (found, own), (expected, other) = single.evaluate(SOURCE), mixed.evaluate(SOURCE)
    assert isinstance(found.flow, PriorPass)
    assert found.value == expected.value
    np.testing.assert_array_equal(own.inducing_points, other.inducing_points)


def test_float32_is_chosen_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = 1_000_000, 100_000_000
    for asked in PRECISIONS:
        on_cpu = "double" if asked == "auto" else asked
        assert choose_precision(asked, None, many) == on_cpu
        assert choose_precision(asked, "cpu:0", few) == on_cpu
        for fast in (True, False):
            monkeypatch.setattr(settings, "_has_fast_float64", lambda _, fast=fast: fast)
            assert choose_precision(asked, "cuda", many) == asked
            slow = "mixed" if asked == "auto" else asked
            assert choose_precision(asked, "cuda", few) == ("double" if fast else slow)


def test_the_first_chip_of_a_generation_has_fast_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    for capability, fast in (((9, 0), True), ((8, 0), True), ((8, 9), False), ((12, 0), False)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, own=capability: own)
        assert (choose_precision("single", "cuda", 1_000) == "double") is fast


def test_roundings_of_float32_that_cancel_are_trusted_where_a_worst_case_is_not() -> None:
    many = ArraySource(SOURCE.X, SOURCE.y, np.full(SOURCE.n_rows, 1e9))
    spread = replace(MODEL, arithmetic=Arithmetic("single"), noise_variance=1e-2)
    assert isinstance(spread.forward(many).flow, PriorPass)
    assert isinstance(replace(spread, arithmetic=Arithmetic()).forward(many).flow, SpectralPass)


def test_every_precision_enters_whitened_where_float64_would_lose_digits() -> None:
    for precision in PRECISIONS:
        close = replace(close_points(1e-6, 1e-9), arithmetic=Arithmetic(precision))
        assert isinstance(close.forward(SOURCE).flow, SpectralPass)


@pytest.mark.parametrize(("precision", "per_row"), [("mixed", 1e-5), ("single", 1e-2)])
def test_the_optimum_agrees_with_that_of_double_precision(precision: str, per_row: float) -> None:
    inputs = np.linspace(-2.0, 2.0, 1_200)[:, None]
    targets = np.sin(3.0 * inputs[:, 0]) + 0.3 * np.random.default_rng(0).normal(size=1_200)
    source, points = ArraySource(inputs, targets), np.linspace(-1.8, 1.8, 5)[:, None]
    start = EigenGP(SquaredExponential(np.full(1, 0.8)), points, 0.1, 5, jitter=Jitter(1e-6))

    def optimum(precision: str) -> float:
        own = replace(start, arithmetic=Arithmetic(precision))
        free = eigengp_parameters(own, Extent(inputs.min(axis=0), inputs.max(axis=0)))
        found = minimize(RowObjective(free, source), 500, 1e-13)
        return replace(found.model, arithmetic=Arithmetic()).value(source)

    assert abs(optimum(precision) - optimum("double")) / 1_200 < per_row


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("case", BADLY_SCALED)
def test_every_precision_copes_with_badly_scaled_data(precision: str, case: str) -> None:
    scale, shift = BADLY_SCALED[case]
    inputs, targets = scale * X + shift, scale * y - shift
    settings = {"residual": None, "optimizer": LBFGS(n_restarts=1, max_iter=60), "random_state": 0}
    model = EigenGPRegressor(20, precision=precision, **settings)
    model.fit(inputs[:2_500], targets[:2_500])
    mean, std = model.predict(inputs[2_500:], return_std=True)
    assert nmse(targets[2_500:], mean, train_mean=float(targets[:2_500].mean())) < 0.2
    error = (targets[2_500:] - mean) / std
    assert 0.8 < float(np.sqrt(np.mean(error**2))) < 1.25


def test_predictions_in_float32_are_those_in_float64() -> None:
    settings = {"residual": None, "optimizer": LBFGS(n_restarts=1, max_iter=30), "random_state": 0}
    model = EigenGPRegressor(20, **settings).fit(X, y)
    expected = model.predict(X, return_std=True)
    for precision in ("mixed", "single"):
        other = replace(model._posterior, arithmetic=Arithmetic(precision))
        mean, variance = other.mean_and_variance(model._scaling.transform_inputs(X))
        unit = model._scaling.target_scale
        shift = np.abs(model._scaling.target_centre + unit * mean - expected[0])
        assert np.all(shift < 1e-2 * expected[1])
        np.testing.assert_allclose(unit * np.sqrt(variance), expected[1], rtol=1e-3)
