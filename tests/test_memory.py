"""Memory beyond the data does not grow with the number of rows."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from sklearn import config_context
from threadpoolctl import threadpool_limits

from eigengp import LBFGS, EigenGPClassifier, EigenGPRegressor


def extra_peak(n: int, residual: str | None, mebibytes: float = 1.0) -> int:
    """Return the most bytes that a fit takes beyond its rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    y = np.sin(X[:, 0])
    optimizer = LBFGS(n_restarts=1, max_iter=1)
    model = EigenGPRegressor(40, residual=residual, optimizer=optimizer, random_state=0)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    # How many blocks two threads hold at once depends on the moment.
    with threadpool_limits(1), config_context(working_memory=mebibytes):
        model.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak - before


@pytest.mark.parametrize("residual", [None, "diagonal"])
def test_extra_memory_is_flat_in_the_number_of_rows(residual: str | None) -> None:
    small, large = extra_peak(200_000, residual), extra_peak(400_000, residual)
    assert large < 1.2 * small


def test_features_are_stored_as_far_as_working_memory_allows() -> None:
    little, much = (extra_peak(60_000, None, mebibytes) for mebibytes in (1.0, 30.0))
    features = 8 * 60_000 * 40
    assert little < 0.75 * features < features < much < little + 31 * 2**20


def test_classes_keep_few_numbers_per_row(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_KEPT_FEATURES", "_EXACT_FACTORS"):  # As for many rows.
        monkeypatch.setattr(f"eigengp.fitting.bound.{name}", 0)
    peaks = []
    for n in (100_000, 200_000):
        X = np.random.default_rng(0).normal(size=(n, 2))
        optimizer = LBFGS(max_iter=0)
        model = EigenGPClassifier(5, kernel="matern32", optimizer=optimizer, random_state=0)
        tracemalloc.start()
        with threadpool_limits(1):
            model.fit(X, X[:, 0] > 0.0)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    inputs, labels, factors = 8 * 2, 8 * 2, 4 * 9
    assert peaks[1] - peaks[0] < 100_000 * (inputs + labels + factors + 16)
