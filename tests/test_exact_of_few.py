"""The default for few rows: the exact GP, averaged over its hyperparameters."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import qmc

from eigengp import (
    LBFGS,
    EigenGPRegressor,
    ExactGPRegressor,
    Matern32,
    SquaredExponential,
    Stochastic,
    Warped,
    load,
)
from eigengp._typing import Array
from eigengp.data.array_source import ArraySource
from eigengp.fitting.heteroscedastic import LeaveOneOut
from eigengp.fitting.model_selection import Decision
from eigengp.fitting.objectives import PriorObjective, RowObjective, kernel_parameters
from eigengp.gp.exact import ExactGP
from eigengp.gp.exact_posterior import MixturePosterior
from eigengp.metrics import coverage, mnlp, nmse
from finite_differences import assert_close, gradient


def smooth(n: int, seed: int, n_test: int = 500):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n + n_test, 2))
    f = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] ** 2
    y = f + 0.2 * rng.normal(size=f.size)
    return X[:n], y[:n], X[n:], y[n:]


def test_leave_one_out_equals_refitting_without_the_row() -> None:
    X, y, *_ = smooth(25, 0)
    counts = np.random.default_rng(1).integers(1, 4, 25).astype(float)
    model = ExactGP(SquaredExponential([0.8, 1.1], 1.3), 0.1)
    source = ArraySource(X, y, counts, 10)
    posterior = model.posterior(model.forward(source))
    mean, variance = posterior.leave_one_out(source.take(np.arange(25)))
    for i in (0, 7, 24):
        others = np.delete(np.arange(25), i)
        without = ArraySource(X[others], y[others], counts[others], 10)
        own = model.posterior(model.forward(without)).mean_and_variance(X[[i]])
        np.testing.assert_allclose((mean[i], variance[i]), np.ravel(own), rtol=1e-9)


def test_the_prior_has_the_right_gradient() -> None:
    X, y, *_ = smooth(20, 1)
    parameters = kernel_parameters(ExactGP(Matern32([0.8, 1.1], 1.3), 0.1))
    objective = PriorObjective(RowObjective(parameters, ArraySource(X, y)), 20.0, X.shape[1])
    at = parameters.start
    assert_close(objective(at).gradient, gradient(lambda v: objective(v).value, at))


def test_a_mixture_is_the_average_of_its_parts() -> None:
    X, y, X_new, _ = smooth(30, 2, 12)
    model = EigenGPRegressor(likelihood="gaussian", random_state=0).fit(X, y)
    mixture = model._posterior
    assert isinstance(mixture, MixturePosterior)
    inputs = model._scaling.transform_inputs(X_new)
    mean, variance = mixture.mean_and_variance(inputs)
    parts = np.array([each.mean_and_variance(inputs) for each in mixture.parts])
    np.testing.assert_allclose(mean, parts[:, 0].mean(0))
    np.testing.assert_allclose(variance, parts[:, 1].mean(0) + parts[:, 0].var(0))
    np.testing.assert_allclose(np.diagonal(mixture.joint_covariance(inputs)), variance)
    share = np.full(12, 1 / 12)
    average, spread = mixture.average(inputs, share)
    latent = mixture.latent_covariance(inputs)
    np.testing.assert_allclose((average, spread), (share @ mean, share @ latent @ share))
    by_x = gradient(lambda x: float(mixture.mean_and_variance(x[None])[1][0]), inputs[0], 1e-3)
    np.testing.assert_allclose(mixture.variance_gradient(inputs[:1])[0], by_x, rtol=1e-5)
    drawn = mixture.functions(4000, np.random.RandomState(0))(inputs[:3])
    np.testing.assert_allclose(drawn.mean(1), mean[:3], atol=0.05)


def test_kernels_share_the_draws_by_their_evidence() -> None:
    X, y, *_ = smooth(40, 3)
    model = EigenGPRegressor(likelihood="gaussian", random_state=0).fit(X, y)
    drawn = Counter(type(each.features.kernel).__name__ for each in model._posterior.parts)
    evidence = {name: -score for name, score in model.selection_["kernel"].scores.items()}
    share = {name: np.exp(each - max(evidence.values())) for name, each in evidence.items()}
    for name, each in share.items():
        kind = name.split("(")[0]
        assert drawn[kind] < 2 + 64 * each / sum(share.values())
    assert len(drawn) > 1
    assert type(model.kernel_).__name__ == drawn.most_common(1)[0][0]


def test_draws_that_the_data_rule_out_do_not_widen_error_bars() -> None:
    """Rows whose inputs are all apart tell the variance, though Laplace's curvature does not."""
    rng = np.random.default_rng(5)
    first, second = np.divmod(rng.permutation(60), 6)
    y = np.exp(1.2 * rng.normal(size=60))
    X = pd.DataFrame({"a": first.astype(str), "b": second.astype(str)})
    model = EigenGPRegressor(random_state=0).fit(X[:45], y[:45])
    std = model.predict(X[45:], return_std=True)[1]
    assert std.max() < 1.15 * y[:45].std()


def test_kernels_share_the_draws_where_rows_count_by_their_noise() -> None:
    rng = np.random.default_rng(5)
    X = rng.uniform(-2, 2, (300, 5))
    y = np.sin(2 * X[:, 0] + X[:, 1]) + 0.3 * X[:, 2]
    y += (0.1 + 0.8 * (X[:, 0] > 0)) * rng.normal(size=300)
    model = EigenGPRegressor(random_state=0).fit(X, y)
    assert model.selection_["weights"].chosen == "by noise"
    assert len({type(each.features.kernel) for each in model._posterior.own.parts}) > 1


def _additive(n: int) -> tuple[Array, Array]:
    X = np.random.default_rng(n).uniform(-2, 2, (n, 6))
    return X, np.sin(2 * X[:, 0]) + np.abs(X[:, 1]) + 0.5 * X[:, 2] ** 2 + np.cos(3 * X[:, 3])


def test_functions_of_one_input_each_are_told_from_interactions() -> None:
    X, f = _additive(120)
    y = f + 0.1 * np.random.default_rng(0).normal(size=120)
    X_new, f_new = _additive(1_000)
    model = EigenGPRegressor(random_state=0).fit(X, y)
    assert model.selection_["kernel"].chosen.startswith("Additive + ")
    alone = EigenGPRegressor(kernel="squared_exponential", random_state=0).fit(X, y)
    assert nmse(f_new, model.predict(X_new)) < 0.1 * nmse(f_new, alone.predict(X_new))
    constant = np.insert(X, 2, 1.0, axis=1), np.insert(X_new, 2, 1.0, axis=1)
    wider = EigenGPRegressor(random_state=0).fit(constant[0], y)
    np.testing.assert_array_equal(wider.predict(constant[1]), model.predict(X_new))


def test_few_rows_without_noise_are_not_taken_for_noise() -> None:
    rng = np.random.default_rng(3)
    bounds = np.array([[-5.0, 0.0], [10.0, 15.0]])

    def branin(X: Array) -> Array:
        bend = X[:, 1] - 5.1 / (4 * np.pi**2) * X[:, 0] ** 2 + 5 / np.pi * X[:, 0] - 6
        return bend**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(X[:, 0]) + 10

    X = qmc.scale(qmc.Sobol(2, rng=0).random(32)[:20], *bounds)
    X_new = rng.uniform(*bounds, (1_000, 2))
    model = EigenGPRegressor(random_state=0).fit(X, branin(X))
    assert nmse(branin(X_new), model.predict(X_new)) < 0.01  # 0.03 from much noise alone.


@pytest.mark.parametrize("given", [{"kernel": "matern32"}, {"likelihood": "gaussian"}])
def test_one_kernel_is_used_where_it_is_given_or_some_rows_chose_it(given: dict) -> None:
    X, y, *_ = smooth(40 if "kernel" in given else 320, 3)
    model = EigenGPRegressor(random_state=0, **given).fit(X, y)
    posterior = getattr(model._posterior, "own", model._posterior)
    assert len({type(each.features.kernel) for each in posterior.parts}) == 1


@pytest.mark.parametrize(("n", "least"), [(10, 0.70), (30, 0.80), (100, 0.85)])
def test_error_bars_of_few_rows_hold(n: int, least: float) -> None:
    found = []
    for seed in range(5):
        X, y, X_new, y_new = smooth(n, seed)
        default = EigenGPRegressor(random_state=0).fit(X, y).predict(X_new, return_std=True)
        exact = ExactGPRegressor(random_state=0).fit(X, y).predict(X_new, return_std=True)
        found.append([coverage(y_new, *default), mnlp(y_new, *default), mnlp(y_new, *exact)])
    held, density, density_of_exact = np.mean(found, axis=0)
    assert held >= least
    assert density <= density_of_exact + 0.05


def test_many_inputs_do_not_make_it_over_confident() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 60))
    y = X[:, 0] + np.sin(X[:, 1]) + 0.2 * rng.normal(size=500)
    model = EigenGPRegressor(random_state=0).fit(X[:120], y[:120])
    assert "×" in model.selection_["likelihood"].chosen
    assert coverage(y[120:], *model.predict(X[120:], return_std=True)) > 0.8


def test_a_function_that_speeds_up_is_warped() -> None:
    x = np.linspace(0, 3, 200)[:, None]
    f = x[:, 0] * np.sin(x[:, 0] ** 3)
    y = f + 0.5 * np.random.default_rng(0).normal(size=200)
    model = EigenGPRegressor(random_state=0).fit(x, y)
    assert isinstance(model.kernel_, Warped)
    assert nmse(f, model.predict(x)) < 0.02  # The exact GP with one lengthscale has 0.03.


def test_a_line_is_continued() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, (100, 1))
    model = EigenGPRegressor(random_state=0).fit(x, 2 * x[:, 0] + 0.5 * rng.normal(size=100))
    mean, std = model.predict([[15.0]], return_std=True)
    assert abs(mean[0] - 30.0) < 1.0
    assert std[0] < 1.5


def test_heteroscedastic_noise_of_the_exact_model() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (1000, 1))
    y = np.sin(2 * X[:, 0]) + np.exp(0.8 * X[:, 0] - 1.5) * rng.normal(size=1000)
    model = EigenGPRegressor(random_state=0).fit(X[:600], y[:600])
    low, high = model.predict([[-1.5], [1.5]], return_std=True)[1]
    assert high > 3 * low
    lower, upper = model.predict_interval(X[600:])
    assert 0.85 < np.mean((y[600:] >= lower) & (y[600:] <= upper)) < 0.95


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({}, "exact"),
        ({"kernel": "matern32"}, "exact"),
        ({"n_components": 5}, "None"),
        ({"inducing_points": 5}, "None"),
        ({"residual": None}, "None"),
        ({"residual": "diagonal"}, "diagonal"),
        ({"optimizer": Stochastic(batch_size=20)}, "None"),
        ({"optimizer": LBFGS("joint", max_iter=3)}, "None"),
        ({"precision": "mixed"}, "None"),
    ],
    ids=str,
)
def test_what_is_given_is_obeyed(given: dict, chosen: str) -> None:
    X, y, *_ = smooth(60, 0)
    model = EigenGPRegressor(random_state=0, **given).fit(X, y)
    assert model.selection_["residual"].chosen == chosen
    if "kernel" in given:
        assert isinstance(model.kernel_, Matern32)


def test_exact_with_eigenfunctions_is_refused() -> None:
    X, y, *_ = smooth(30, 0)
    with pytest.raises(ValueError, match="n_components is given"):
        EigenGPRegressor(5, residual="exact").fit(X, y)
    with pytest.raises(ValueError, match=r"optimizer=Stochastic\(\) keeps no rows"):
        EigenGPRegressor(residual="exact", optimizer=Stochastic()).fit(X, y)


def test_attributes_of_eigenfunctions_say_how_to_get_them() -> None:
    X, y, X_new, _ = smooth(30, 0)
    model = EigenGPRegressor(random_state=0).fit(X, y)
    for name in ("inducing_points_", "weights_", "eigenvalues_"):
        assert not hasattr(model, name)
        with pytest.raises(AttributeError, match="n_components"):
            getattr(model, name)
    with pytest.raises(AttributeError, match="n_components"):
        model.eigenfunctions(X_new)
    with pytest.raises(AttributeError, match="partial_fit"):
        model.partial_fit(X, y)


def test_another_fit_forgets_the_eigenfunctions() -> None:
    X, y, *_ = smooth(30, 0)
    model = EigenGPRegressor(5, optimizer=LBFGS(n_restarts=1, max_iter=3)).fit(X, y)
    model.set_params(n_components="auto").fit(X, y)
    assert not {"_spectrum", "weights_", "jitter_"} & vars(model).keys()


def test_everything_a_regressor_has_works(tmp_path: Path) -> None:
    X, y, X_new, _ = smooth(150, 0, 20)
    model = EigenGPRegressor(random_state=0).fit(X, y)
    model.save(tmp_path / "m.eigengp")
    again = load(tmp_path / "m.eigengp")
    for mine, other in zip(
        *(each.predict(X_new, return_std=True) for each in (model, again)), strict=True
    ):
        np.testing.assert_array_equal(mine, other)
    assert model.sample_y(X_new, 3).shape == (20, 3)
    assert model.predict_gradient(X_new).shape == (20, 2)
    assert model.input_relevance().shape == model.input_effects().shape == (2,)
    assert model.predict_average(X_new)[1] > 0
    covariance = model.predict(X_new, return_cov=True)[1]
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), model.predict(X_new, True)[1])
    equal = EigenGPRegressor(random_state=0).fit(X, y)
    np.testing.assert_array_equal(equal.predict(X_new), model.predict(X_new))


def test_a_fit_can_be_resumed(tmp_path: Path) -> None:
    X, y, X_new, _ = smooth(60, 0, 5)
    whole = EigenGPRegressor(random_state=0).fit(X, y)
    optimizer = LBFGS(checkpoint=tmp_path / "c")
    stored = EigenGPRegressor(random_state=0, optimizer=optimizer).fit(X, y)
    np.testing.assert_array_equal(whole.predict(X_new), stored.predict(X_new))
    assert not (tmp_path / "c").exists()


def test_many_rows_learn_from_a_sample() -> None:
    X, y, X_new, y_new = smooth(2_300, 0)
    model = EigenGPRegressor(residual="exact", kernel="matern52", likelihood="gaussian").fit(X, y)
    assert nmse(y_new, model.predict(X_new)) < 0.1


def test_rows_count_by_their_noise_where_it_is_heteroscedastic() -> None:
    def draw(n: int, seed: int) -> tuple[Array, Array, Array, Array]:
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2, 2, (n, 2))
        noise = np.exp(0.8 * X[:, 0] - 1.5)
        truth = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] ** 2
        return X, truth + noise * rng.normal(size=n), truth, noise

    X, y, _, _ = draw(400, 0)
    X_test, y_test, truth, noise = draw(3_000, 1)
    model = EigenGPRegressor(random_state=0).fit(X, y)
    assert model.selection_["weights"].chosen == "by noise"
    equal = EigenGPRegressor(random_state=0, likelihood="gaussian").fit(X, y)
    error, other = (np.mean((each.predict(X_test) - truth) ** 2) for each in (model, equal))
    assert error < other
    lower, upper = model.predict_interval(X_test, 0.9)
    held = (lower <= y_test) & (y_test <= upper)
    quartile = np.digitize(noise, np.quantile(noise, [0.25, 0.5, 0.75]))
    shares = [held[quartile == k].mean() for k in range(4)]
    assert min(shares) >= 0.83
    assert max(shares) <= 0.97


@pytest.mark.parametrize(("square", "chosen"), [(1.01, "by noise"), (1.05, "equal")])
def test_reweighted_rows_need_a_mean_that_is_not_worse(square: float, chosen: str) -> None:
    decisions = [Decision("likelihood", "constant", "", {"constant": loss}) for loss in (0.2, 0.1)]
    equal, other = (
        LeaveOneOut(None, decision=each, square=own)
        for each, own in zip(decisions, (1.0, square), strict=True)
    )
    best, decision = equal.choose_weights(other)
    assert best.square == (square if chosen == "by noise" else 1.0)
    assert decision.chosen == chosen


def test_an_input_that_numbers_subjects_has_a_short_lengthscale() -> None:
    rng = np.random.default_rng(0)
    rate, subject = 1.0 + 0.2 * rng.normal(size=50), np.repeat(np.arange(50), 12)
    time = np.tile(np.arange(0.0, 24.0, 2.0), 50)
    X = np.column_stack([time, subject, subject // 13])
    y = 40.0 + 1.5 * rate[subject] * time**1.5 + 2.0 * rng.normal(size=600)
    seen, new = np.split(rng.permutation(600), [400])
    model = EigenGPRegressor(random_state=0).fit(X[seen], y[seen])
    assert nmse(y[new], model.predict(X[new])) < 0.01


def test_the_variance_factor_of_wide_data_counts_rows_by_their_weights() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 12))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    y[:6] += 8.0 * rng.choice([-1.0, 1.0], 6)  # Rows that hardly count.
    weight = np.where(np.arange(60) < 6, 1e-3, 1.0)
    settings = {"optimizer": LBFGS(max_iter=10), "kernel": "squared_exponential", "random_state": 0}
    counted = EigenGPRegressor(**settings).fit(X, y, sample_weight=weight)
    without = EigenGPRegressor(**settings).fit(X[6:], y[6:])
    found, expected = (
        float(str(model.selection_["likelihood"].chosen).split("×")[1])
        for model in (counted, without)
    )
    assert found == pytest.approx(expected, rel=0.5)


@pytest.mark.parametrize(
    ("n", "n_inputs", "given", "chosen"),
    [
        (1_000, 5, {}, "exact"),
        (1_001, 5, {}, "neighbors"),
        (1_001, 3, {}, "exact"),
        (1_001, 110, {}, "exact"),
        (1_001, 5, {"kernel": "matern32"}, "exact"),
        (2_001, 3, {}, "neighbors"),
    ],
)
def test_few_inputs_scarce_rows_and_given_kernels_keep_the_exact_gp_for_more_rows(
    n: int, n_inputs: int, given: dict, chosen: str
) -> None:
    X = np.random.default_rng(0).normal(size=(n, n_inputs))
    model = EigenGPRegressor(optimizer=LBFGS(max_iter=1), likelihood="gaussian", **given)
    assert model.fit(X, np.sin(X[:, 0])).selection_["residual"].chosen == chosen
