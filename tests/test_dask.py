"""Dask: the same numbers from a cluster, lost workers included, and little on the wire."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from eigengp import LBFGS, EigenGPRegressor, ExactGPRegressor, SquaredExponential
from eigengp.data.array_source import ArraySource
from eigengp.data.dask_source import DaskSource, align, get_client
from eigengp.gp.model import EigenGP, Jitter

distributed = pytest.importorskip("distributed")
da, dd = (pytest.importorskip(f"dask.{name}") for name in ("array", "dataframe"))

pytestmark = pytest.mark.filterwarnings("ignore")

N, D = 6_000, 3
rng = np.random.default_rng(0)
X = rng.normal(size=(N, D))
y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=N)
weight = rng.integers(1, 4, N).astype(float)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Two worker processes of one thread each."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, protocol="tcp"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def model(**settings: Any) -> EigenGPRegressor:
    optimizer = LBFGS(n_restarts=1, max_iter=1)
    return EigenGPRegressor(12, residual=None, optimizer=optimizer, random_state=0, **settings)


def lazy(chunk: int = 700) -> tuple[Any, Any]:
    return da.from_array(X, chunks=(chunk, 2)), da.from_array(y, chunks=N)


def test_sums_and_rows_are_those_of_arrays(client: Any) -> None:
    mine = DaskSource.of(client, *align(*lazy(), weight))
    theirs = ArraySource(X, y, weight)
    assert (mine.n_rows, mine.n_features) == (N, D)
    assert len(mine.groups) == 2
    own, other = (
        each.total(lambda b: (b.X * b.weight[:, None]).T @ b.X) for each in (mine, theirs)
    )
    np.testing.assert_allclose(own, other, rtol=1e-12)
    rows = np.array([0, 1, 2_999, 3_000, 5_999])
    found = mine.take(rows)
    np.testing.assert_array_equal(found.X, X[rows])
    np.testing.assert_array_equal(found.weight, weight[rows])


def test_a_fit_on_a_cluster_is_that_of_arrays(client: Any) -> None:
    own, other = model().fit(*lazy()), model().fit(X, y)
    assert own.log_marginal_likelihood_ == pytest.approx(other.log_marginal_likelihood_, rel=1e-9)
    np.testing.assert_allclose(own.inducing_points_, other.inducing_points_, rtol=1e-5, atol=1e-6)
    mean, std = own.predict(lazy()[0], return_std=True)
    assert isinstance(mean, da.Array)
    expected = own.predict(X, return_std=True)
    np.testing.assert_allclose(mean.compute(), expected[0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(std.compute(), expected[1], rtol=1e-12)
    np.testing.assert_allclose(own.predict(lazy()[0]).compute(), expected[0], atol=1e-12)


def test_dataframes_keep_their_names(client: Any) -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(price=y, w=weight)
    table = dd.from_pandas(frame, npartitions=5)
    own = model().fit(table, "price", sample_weight="w")
    other = model().fit(frame[["a", "b", "c"]], y, sample_weight=weight)
    assert list(own.feature_names_in_) == ["a", "b", "c"]
    assert own.log_marginal_likelihood_ == pytest.approx(other.log_marginal_likelihood_, rel=1e-9)
    found = own.predict(table).compute()
    np.testing.assert_allclose(found, own.predict(frame[["a", "b", "c"]]), rtol=1e-10, atol=1e-12)


def test_few_rows_are_computed_at_once(client: Any) -> None:
    few = da.from_array(X[:200], chunks=50), da.from_array(y[:200], chunks=50)
    own, other = model().fit(*few), model().fit(X[:200], y[:200])
    assert own.log_marginal_likelihood_ == other.log_marginal_likelihood_
    ExactGPRegressor(optimizer=LBFGS(n_restarts=1, max_iter=1)).fit(*few)


def test_little_travels(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    M = 200
    source = DaskSource.of(client, *align(*lazy(3_000))).sized(M)
    kernel = SquaredExponential(np.full(D, 0.5))
    own = EigenGP(kernel, X[:M].copy(), 0.1, M, jitter=Jitter(1e-6))
    own.evaluate(source)
    futures, sent = [], []
    submit = DaskSource._submit

    def record(self: DaskSource, function: Any, *arguments: Any, worker: str) -> Any:
        futures.append(submit(self, function, *arguments, worker=worker))
        sent.append(sum(len(each) for each in arguments if isinstance(each, bytes)))
        return futures[-1]

    monkeypatch.setattr(DaskSource, "_submit", record)
    outcome, gradient = own.evaluate(source)
    moved = sum(sent) + sum(len(each.result()) for each in futures)
    assert moved <= 2 * 2 * (M**2 + M * D) * 8
    expected, known = own.evaluate(ArraySource(X, y))
    assert outcome.value == pytest.approx(expected.value, rel=1e-10)
    np.testing.assert_allclose(
        gradient.inducing_points, known.inducing_points, rtol=1e-6, atol=1e-6
    )


def test_missing_values_are_named(client: Any) -> None:
    holes = X.copy()
    holes[4_321, 1] = np.nan
    with pytest.raises(ValueError, match="X has a missing or infinite value in row 4321, column 1"):
        model().fit(da.from_array(holes, chunks=(1_000, D)), y)
    with pytest.raises(ValueError, match="one value for each of the 6000 rows"):
        model().fit(lazy()[0], y[:-1])
    with pytest.raises(ValueError, match="sample_weight must not be negative"):
        model().fit(*lazy(), sample_weight=-weight)
    with pytest.raises(TypeError, match="only if X is a dataframe"):
        model().fit(lazy()[0], "price")
    with pytest.raises(ValueError, match="at least one non-zero"):
        model().fit(*lazy(), sample_weight=0.0 * weight)
    fitted = model().fit(X, y)
    with pytest.raises(ValueError, match="missing or infinite value in row 3"):
        fitted.predict(
            da.from_array(np.where(np.arange(12).reshape(4, 3) == 9, np.nan, 1.0))
        ).compute()
    with pytest.raises(ValueError, match="fitted with 3 features"):
        fitted.predict(lazy()[0][:, :2])
    with pytest.raises(ValueError, match="return_cov needs arrays"):
        fitted.predict(lazy()[0], return_cov=True)


def test_empty_partitions_are_passed_over(client: Any) -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(price=y)
    table = dd.from_pandas(frame.assign(row=np.arange(N)), npartitions=6)
    part = table[(table.row < 900) | (table.row >= 3_100)].drop(columns="row")
    rows = np.r_[0:900, 3_100:N]
    own, other = model().fit(part, "price"), model().fit(frame.iloc[rows, :3], y[rows])
    assert own.log_marginal_likelihood_ == pytest.approx(other.log_marginal_likelihood_, rel=1e-9)
    found = own.predict(part).compute()
    np.testing.assert_allclose(found, own.predict(frame.iloc[rows, :3]), rtol=1e-9, atol=1e-10)


def test_lazy_predictions_are_those_of_their_moment(client: Any) -> None:
    own = model().fit(X, y)
    before, lazily = own.predict(X), own.predict(lazy()[0])
    own.partial_fit(X, y + 10.0)
    np.testing.assert_allclose(lazily.compute(), before, rtol=1e-9, atol=1e-10)


def test_a_cluster_is_made_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> None:
        raise ValueError("No clients found")

    monkeypatch.setattr(distributed, "get_client", nobody)
    own, other = model().fit(*lazy(2_000)), model().fit(X, y)
    assert own.log_marginal_likelihood_ == pytest.approx(other.log_marginal_likelihood_, rel=1e-9)


def test_the_active_client_is_used(client: Any) -> None:
    with get_client() as found:
        assert found is client


def test_a_lost_worker_costs_time_and_nothing_else(client: Any) -> None:
    whole = model().fit(*lazy())
    victim = next(iter(client.run(os.getpid).values()))

    def kill() -> None:
        time.sleep(0.2)
        os.kill(victim, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    fits = []
    while killer.is_alive() or len(fits) < 2:
        fits.append(model().fit(*lazy()))
    killer.join()
    assert victim not in client.run(os.getpid).values()
    for each in fits:
        np.testing.assert_allclose(each.inducing_points_, whole.inducing_points_, rtol=1e-8)
        assert each.log_marginal_likelihood_ == pytest.approx(
            whole.log_marginal_likelihood_, rel=1e-10
        )
