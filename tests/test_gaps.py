"""Rows with missing values: draws, weights, and the variance of what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import eigengp
from eigengp import EigenGPRegressor, TableEncoder
from eigengp.estimators.gaps import draw_gaps, find_gaps, is_changed, measure_gaps

N = 260


def houses(seed: int = 0) -> tuple[pd.DataFrame, Any]:
    """A price per area, which is missing in a tenth of the rows."""
    rng = np.random.default_rng(seed)
    area, share = rng.uniform(20.0, 250.0, N), rng.uniform(0.0, 40.0, N)
    frame = pd.DataFrame({"area": area, "share": share, "town": rng.choice(list("ABCD"), N)})
    price = 3.2 * area + 40.0 * (frame["town"] == "A") - 0.8 * share + 9.0 * rng.normal(size=N)
    frame.loc[rng.uniform(size=N) < 0.1, "area"] = np.nan
    return frame, price.to_numpy()


def test_gaps_are_filled_with_quantiles_of_known_values_and_the_mark_is_removed() -> None:
    day = pd.to_datetime(["2020-01-01", None, "2022-01-01", "2024-01-01"])
    table = {"x": [1.0, 2.0, None, 4.0], "flag": [True, None, False, True], "day": day}
    encoder = TableEncoder(expand_dates=False).fit(table)
    X = encoder.transform(table)
    names = encoder.get_feature_names_out().tolist()
    assert find_gaps(encoder, X).tolist() == [False, True, True, False]
    drawn = draw_gaps(encoder, X)
    assert drawn.shape == (16, 4, 6)
    assert np.array_equal(drawn[:, [0, 3]], np.broadcast_to(X[[0, 3]], (16, 2, 6)))
    marks = [names.index(f"{each} is missing") for each in table]
    assert not drawn[..., marks].any()
    assert np.array_equal(drawn[:, 1, 0], np.full(16, 2.0))
    levels, counts = np.unique(drawn[:, 2, 0], return_counts=True)
    assert (levels.tolist(), counts.tolist()) == ([1.0, 2.0, 4.0], [5, 6, 5])
    assert set(drawn[:, 1, names.index("flag")]) == {0.0, 1.0}
    assert np.unique(drawn[:, 1, names.index("day: trend")].round()).tolist() == [2020, 2022, 2024]


def test_the_variance_of_a_linear_function_is_that_of_the_input() -> None:
    frame, price = houses()
    model = EigenGPRegressor(kernel="squared_exponential", random_state=0).fit(frame, price)
    X = model.encoder_.transform(frame)
    found = measure_gaps(model, X) * model._scaling.target_scale**2
    gap = frame["area"].isna().to_numpy()
    assert not found[~gap].any()
    np.testing.assert_allclose(found[gap], 3.2**2 * np.nanvar(frame["area"]), rtol=0.1)


def test_rows_without_the_main_input_are_predicted_like_the_mean_with_wide_intervals() -> None:
    errors, inside = [], []
    for seed in range(3):
        frame, price = houses(seed)
        gap, train = frame["area"].isna().to_numpy(), np.arange(N) < 160
        model = EigenGPRegressor(random_state=0).fit(frame[train], price[train])
        mean, std = model.predict(frame[~train], return_std=True)
        error = price[~train] - mean
        assert np.mean(error[~gap[~train]] ** 2) < 0.01 * price.var()
        errors += [(error**2 / price.var())[gap[~train]]]
        inside += [(np.abs(error) < 1.645 * std)[gap[~train]]]
    assert np.concatenate(errors).mean() < 1.5
    assert np.concatenate(inside).mean() > 0.75


def test_the_order_and_the_number_of_rows_do_not_matter_for_predictions() -> None:
    frame, price = houses()
    model = EigenGPRegressor(kernel="squared_exponential", random_state=0).fit(frame, price)
    gap = frame["area"].isna()
    mean, std = model.predict(frame, return_std=True)
    for rows in (frame[::-1].index, frame.index[gap]):
        some_mean, some_std = model.predict(frame.loc[rows], return_std=True)
        np.testing.assert_allclose(some_mean, mean[rows], rtol=1e-9)
        np.testing.assert_allclose(some_std, std[rows], rtol=1e-9)
    covariance = model.predict(frame[gap], return_cov=True)[1]
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std[gap], rtol=1e-6)


def test_a_model_of_rows_with_gaps_is_stored(tmp_path: Path) -> None:
    frame, price = houses()
    model = EigenGPRegressor(kernel="squared_exponential", random_state=0).fit(frame, price)
    model.save(tmp_path / "m.eigengp")
    stored = eigengp.load(tmp_path / "m.eigengp")
    for own, other in zip(
        *(m.predict(frame, return_std=True) for m in (model, stored)), strict=True
    ):
        assert np.array_equal(own, other)


@pytest.mark.parametrize(
    ("before", "changed"), [(None, True), ([1.0, 0.3], False), ([1.0, 0.01], True)]
)
def test_weights_change_by_more_than_a_factor_of_two(before: Any, changed: bool) -> None:
    given = None if before is None else np.array(before)
    assert is_changed(np.array([1.0, 0.2]), given) is changed
