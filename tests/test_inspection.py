"""What a model says of one input: relevance, slices, partial dependence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from eigengp import (
    LBFGS,
    EigenGPRegressor,
    ExactGPRegressor,
    FITCRegressor,
    Matern12,
    Matern52,
    NystromRegressor,
    RVMRegressor,
    SquaredExponential,
    SSGPRegressor,
    VFERegressor,
    inspection,
)
from eigengp._typing import Array
from eigengp.gp.sensitivity import total_indices

QUICK: dict[str, Any] = {"optimizer": LBFGS(n_restarts=1, max_iter=15), "random_state": 0}
METHODS: dict[str, Any] = {
    "EigenGP": EigenGPRegressor(8, **QUICK),
    "EigenGP+": EigenGPRegressor(8, residual="diagonal", **QUICK),
    "neighbors": EigenGPRegressor(
        8,
        residual="neighbors",
        n_neighbors=6,
        **(QUICK | {"optimizer": LBFGS(n_restarts=1, max_iter=3)}),
    ),
    "FITC": FITCRegressor(8, **QUICK),
    "VFE": VFERegressor(8, **QUICK),
    "Nystrom": NystromRegressor(30, random_state=0),
    "ExactGP": ExactGPRegressor(**QUICK),
    "SSGP": SSGPRegressor(8, **QUICK),
    "RVM": RVMRegressor(lengthscale=1.0),
}


def make_data(n: int = 70) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(n, 3)) * [1.0, 50.0, 0.01]
    y = 100.0 + 10 * np.sin(X[:, 0]) + 0.1 * X[:, 1] + rng.normal(size=n)
    return X, y


X, y = make_data()
SINGLE = [[0], [1], [2]]


@pytest.fixture(scope="module", params=METHODS)
def model(request: pytest.FixtureRequest) -> Any:
    return METHODS[request.param].fit(X, y)


@pytest.fixture(scope="module")
def eigengp() -> EigenGPRegressor:
    names = ["age", "income", "<b>"]
    frame = pd.DataFrame(X, columns=names)
    return EigenGPRegressor(10, optimizer=LBFGS(n_restarts=1, max_iter=30), random_state=0).fit(
        frame, y
    )


def kept(kernel: Any, **settings: Any) -> ExactGPRegressor:
    return ExactGPRegressor(kernel, optimizer=LBFGS(max_iter=0), **settings).fit(X, y)


def test_relevance_of_a_squared_exponential_is_its_closed_form() -> None:
    lengths = np.array([0.5, 2.0, 20.0]) * X.std(axis=0)
    expected = 1 - 1 / np.sqrt(1 + 2 * (X.std(axis=0) / lengths) ** 2)
    for standardize in (True, False):
        model = kept(SquaredExponential(lengths), standardize=standardize)
        np.testing.assert_allclose(model.input_relevance(), expected, atol=2e-4)


def test_relevance_of_a_sum_is_the_mean_by_variance() -> None:
    smooth, rough = SquaredExponential(3 * X.std(axis=0), 3.0), Matern12(X.std(axis=0), 1.0)
    both = kept(smooth + rough).input_relevance()
    parts = 0.75 * kept(smooth).input_relevance() + 0.25 * kept(rough).input_relevance()
    np.testing.assert_allclose(both, parts, rtol=1e-6)
    product = kept(smooth * rough).input_relevance()
    assert np.all(product > np.maximum(kept(smooth).input_relevance(), 0.0))


def test_relevance_is_what_drawn_functions_owe_to_an_input() -> None:
    """The definition itself: Sobol's total index of functions of the prior."""
    rng = np.random.default_rng(1)
    kernel = Matern52(np.array([1.0, 60.0, 0.2]), 4.0)
    apart = np.zeros((20_000, 3))
    apart[:, 0] = X[:, 0].std() * (rng.normal(size=20_000) - rng.normal(size=20_000))
    rho = kernel(apart, np.zeros((1, 3)))[:, 0] / 4.0
    here, anew = 2.0 * rng.normal(size=(2, 20_000))
    there = rho * here + np.sqrt(1 - rho**2) * anew
    index = 0.5 * np.mean((here - there) ** 2) / 4.0
    assert kept(kernel).input_relevance()[0] == pytest.approx(index, abs=0.015)


def test_relevance_of_waves_is_that_of_their_frequencies() -> None:
    model = SSGPRegressor(6, **QUICK).fit(X, y)
    exact = 1 - np.mean(np.exp(-((model.spectral_points_ * X.std(axis=0)) ** 2)), axis=0)
    np.testing.assert_allclose(model.input_relevance(), exact, atol=2e-3)


def test_effects_are_close_to_those_over_all_rows(model: Any) -> None:
    effects = model.input_effects()
    np.testing.assert_allclose(effects, total_indices(model.predict, X, SINGLE), atol=0.35)
    assert effects[2] < 0.05 < 0.3 < min(effects[:2])


def test_indices_of_known_functions() -> None:
    points = np.random.default_rng(0).normal(size=(900, 3)) * [2.0, 1.0, 0.0] + [1.0, 0.0, 4.0]
    linear = total_indices(lambda X: X[:, 0] + 4 * X[:, 1] + X[:, 2], points, SINGLE)
    np.testing.assert_allclose(linear, [0.2, 0.8, 0.0], atol=0.08)
    together = total_indices(lambda X: (X[:, 0] - 1) * X[:, 1], points, [[0, 2], [1], [2]])
    np.testing.assert_allclose(together, [1.0, 1.0, 0.0], atol=0.15)
    assert linear[2] == together[2] == 0.0
    flat = total_indices(lambda X: np.ones(len(X)), points, SINGLE)
    np.testing.assert_array_equal(flat, np.zeros(3))


def test_an_index_is_the_mean_over_pairs_of_points() -> None:
    points = np.random.default_rng(1).normal(size=(9, 2))
    values = points[:, 0] * np.exp(points[:, 1])
    index = total_indices(lambda X: X[:, 0] * np.exp(X[:, 1]), points, [[1]])
    pairs = points[:, None, 0] * np.exp(points[None, :, 1])
    by_hand = np.sum((pairs - values[:, None]) ** 2) / (9 * 8)
    assert index == pytest.approx([min(1.0, 0.5 * by_hand / values.var())])


def test_a_linear_effect_is_seen_though_its_lengthscale_is_long() -> None:
    model = ExactGPRegressor(**QUICK).fit(X, 3 * X[:, 0] + 0.01 * np.sin(X[:, 1]))
    assert model.input_relevance()[0] < 0.3
    np.testing.assert_allclose(model.input_effects(), [1.0, 0.0, 0.0], atol=0.2)


def test_a_constant_input_does_not_matter_and_units_do_not_either() -> None:
    constant = np.column_stack([X[:, 0], np.full(len(X), 7.0)])
    for standardize in (True, False):
        model = ExactGPRegressor(optimizer=LBFGS(max_iter=0), standardize=standardize).fit(
            constant, y
        )
        assert model.input_relevance()[1] == 0.0
        assert model.input_effects()[1] < 1e-20
        assert model.input_effects()[0] > 0.8
    plain = EigenGPRegressor(5, **QUICK).fit(X, y)
    scaled = EigenGPRegressor(5, **QUICK).fit(X * [1024.0, 8.0, 2.0], y)
    for share in ("input_relevance", "input_effects"):
        here, there = (getattr(each, share)() for each in (plain, scaled))
        np.testing.assert_allclose(here, there, rtol=1e-6)


def test_an_average_has_the_mean_and_variance_of_the_joint_posterior(model: Any) -> None:
    rows = X[:12] + 0.3 * X.std(axis=0)
    mean, std = model.predict_average(rows)
    each, joint = model.predict(rows, return_cov=True)
    variance = joint.mean() - model.noise_variance_ / len(rows)
    assert mean == pytest.approx(each.mean(), rel=1e-9)
    assert std**2 == pytest.approx(max(variance, 0.0), rel=1e-5, abs=1e-9 * y.var())


def test_an_average_over_the_same_row_again_and_again_is_that_row(model: Any) -> None:
    once, many = model.predict_average(X[:1]), model.predict_average(np.repeat(X[:1], 9, axis=0))
    assert many == pytest.approx(once, rel=1e-9)


def test_a_slice_varies_one_input_alone(eigengp: EigenGPRegressor) -> None:
    reference, values = [0.5, 20.0, 0.01], np.array([-2.0, 0.0, 2.0])
    effect = inspection.slice_at(
        eigengp, X, "age", values=values, reference=reference, coverage=0.8
    )
    rows = pd.DataFrame([[v, 20.0, 0.01] for v in values], columns=eigengp.feature_names_in_)
    lower, upper = eigengp.predict_interval(rows, 0.8)
    assert (effect.feature, effect.name) == (0, "age")
    np.testing.assert_array_equal(effect.grid, values)
    np.testing.assert_allclose(effect.mean, eigengp.predict(rows))
    np.testing.assert_allclose([effect.lower, effect.upper], [lower, upper])


def test_slices_span_the_rows_through_their_medians(eigengp: EigenGPRegressor) -> None:
    for feature in (0, 1, -1):
        effect, column = inspection.slice_at(eigengp, X, feature), X[:, feature]
        np.testing.assert_allclose(effect.grid[[0, -1]], np.quantile(column, [0.01, 0.99]))
        assert effect.grid.size == 100
        held = inspection.slice_at(eigengp, X, feature, reference=np.median(X, axis=0))
        np.testing.assert_array_equal(effect.mean, held.mean)


def test_partial_dependence_is_the_average_with_an_honest_band(eigengp: EigenGPRegressor) -> None:
    values = np.array([-1.0, 1.5])
    effect = inspection.partial_dependence(eigengp, X, "age", values=values, coverage=0.95)
    for g, value in enumerate(values):
        rows = pd.DataFrame(X, columns=eigengp.feature_names_in_).assign(age=value)
        each, joint = eigengp.predict(rows, return_cov=True)
        assert effect.mean[g] == pytest.approx(each.mean())
        std = np.sqrt(joint.mean() - eigengp.noise_variance_ / len(X))
        half = 0.5 * (effect.upper[g] - effect.lower[g])
        assert half == pytest.approx(1.959964 * std, rel=1e-5)


def test_many_rows_are_thinned_and_the_rows_of_the_user_stay(eigengp: EigenGPRegressor) -> None:
    before = X.copy()
    few = inspection.partial_dependence(eigengp, X, 0, values=[1.0], max_rows=2)
    ends = X[[0, -1]].copy()
    ends[:, 0] = 1.0
    with inspection.plain_inputs():
        assert few.mean[0] == pytest.approx(eigengp.predict_average(ends)[0])
    np.testing.assert_array_equal(X, before)


def test_columns_of_a_frame_are_found_by_name(eigengp: EigenGPRegressor) -> None:
    frame = pd.DataFrame(X, columns=eigengp.feature_names_in_).assign(other=1.0)
    shuffled = frame[["other", "<b>", "income", "age"]]
    np.testing.assert_array_equal(inspection.plain_rows(eigengp, shuffled), X)
    with pytest.raises(ValueError, match="lacks the columns income"):
        inspection.plain_rows(eigengp, frame.drop(columns="income"))


def test_few_different_values_are_looked_at_one_by_one() -> None:
    np.testing.assert_array_equal(inspection.grid([3, 1, 1, 2]), [1.0, 2.0, 3.0])
    np.testing.assert_allclose(inspection.grid(np.arange(101.0), 8), np.linspace(1, 99, 8))
    stray = np.append(np.arange(1000.0), 1e9)
    assert inspection.grid(stray)[-1] < 1000


def test_errors_say_what_to_do(eigengp: EigenGPRegressor) -> None:
    with pytest.raises(ValueError, match="no input named 'agee'; there are age, income"):
        inspection.feature_index(eigengp, "agee")
    with pytest.raises(ValueError, match="counted from 0"):
        inspection.feature_index(eigengp, 3)
    with pytest.raises(ValueError, match="2 columns but the model has 3 inputs"):
        inspection.slice_at(eigengp, X[:, :2], 0)
    with pytest.raises(NotFittedError):
        inspection.feature_names(EigenGPRegressor())
    with pytest.raises(ValueError, match="coverage must be strictly between 0 and 1"):
        inspection.partial_dependence(eigengp, X, 0, values=[0.0], coverage=1.0)


def test_accumulated_effects_add_up_differences_within_bins(model: Any) -> None:
    effect = inspection.accumulated_effects(model, X, 1)
    assert np.all(np.diff(effect.grid) > 0)
    assert np.all(effect.lower < effect.mean)
    rows = np.concatenate([X, X])
    place = np.clip(np.searchsorted(effect.grid, X[:, 1]), 1, effect.grid.size - 1)
    rows[:, 1] = np.concatenate([effect.grid[place - 1], effect.grid[place]])
    low, high = np.split(model.predict(rows), 2)
    steps = [np.mean((high - low)[place == k]) for k in range(1, effect.grid.size)]
    np.testing.assert_allclose(np.diff(effect.mean), steps, rtol=1e-6, atol=1e-6)
    middle = 0.5 * (effect.mean[place - 1] + effect.mean[place]).mean()
    assert middle == pytest.approx(0.5 * (low + high).mean(), rel=1e-6)


def test_accumulated_effects_stay_among_the_data() -> None:
    """y = x0 on rows with x1 = x0: nothing is known elsewhere, which bends partial dependence."""
    rng = np.random.default_rng(0)
    first = rng.uniform(-2, 2, size=80)
    rows = np.column_stack([first, first + 0.05 * rng.normal(size=80)])
    model = ExactGPRegressor(SquaredExponential([0.5, 0.5]), optimizer=LBFGS(max_iter=0))
    model.fit(rows, 3.0 * first)
    kinds = (inspection.accumulated_effects, inspection.partial_dependence)
    accumulated, partial = (
        sum(np.ptp(compute(model, rows, d).mean) for d in (0, 1)) for compute in kinds
    )
    true = 3.0 * np.ptp(first)
    assert 0.75 * true < accumulated < 1.1 * true
    assert partial < 0.5 * true


def test_the_difference_of_two_rows_has_its_own_error_bar() -> None:
    model = ExactGPRegressor(**QUICK).fit(X, y)
    mean, std = model.predict_average(X[:2], weights=[1.0, -1.0])
    expected = model.predict(X[:2])
    covariance = model.predict(X[:2], return_cov=True)[1] - model.noise_variance_ * np.eye(2)
    assert mean == pytest.approx(expected[0] - expected[1])
    assert std**2 == pytest.approx([1, -1] @ covariance @ [1, -1], rel=1e-6)
    with pytest.raises(ValueError, match="weights must have the shape"):
        model.predict_average(X[:2], weights=[1.0])
