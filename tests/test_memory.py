"""Memory beyond the data does not grow with the number of rows."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from eigengp import EigenGPRegressor


def extra_peak(n: int, residual: str | None) -> int:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    y = np.sin(X[:, 0])
    model = EigenGPRegressor(
        40, residual=residual, n_restarts=1, max_iter=1, memory_limit="1MB", random_state=0
    )
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    with threadpool_limits(1):  # How many blocks two threads hold at once depends on the moment.
        model.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak - before


@pytest.mark.parametrize("residual", [None, "diagonal"])
def test_extra_memory_is_flat_in_the_number_of_rows(residual: str | None) -> None:
    small, large = extra_peak(90_000, residual), extra_peak(300_000, residual)
    assert large < 1.2 * small
