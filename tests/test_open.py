"""Kinds of data that a user registers: the same numbers as from arrays, in `fit` and `predict`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from eigengp import LBFGS, EigenGPRegressor, ExactGPRegressor, FITCRegressor
from eigengp.data import open as opening
from eigengp.data.frames import Frame
from eigengp.data.open import ReadOptions, open_dataset, register
from eigengp.data.stream_source import StreamSource
from eigengp.gp.blocks import RowBlock

N = 6_000
rng = np.random.default_rng(0)
X = rng.normal(size=(N, 2))
y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=N)
weight = rng.integers(1, 4, N).astype(float)
NAMES = ["east", "north"]


@dataclass(frozen=True)
class Query:
    """A table of an SQLite database, as a user passes it to `fit`."""

    database: Path
    table: str


@dataclass(frozen=True)
class SqlTable:
    """The columns of a query that are read."""

    query: Query
    features: Sequence[str]
    target: str | None
    weight: str | None

    @property
    def n_rows(self) -> int:
        return int(self._rows("count(*)").fetchone()[0])

    @property
    def n_features(self) -> int:
        return len(self.features)

    def chunks(self) -> Iterator[RowBlock]:
        others = [name for name in (self.target, self.weight) if name is not None]
        cursor, start, D = self._rows(", ".join([*self.features, *others])), 0, self.n_features
        while rows := cursor.fetchmany(1_000):
            values = np.array(rows, dtype=float)
            targets = values[:, D] if self.target else np.zeros(len(rows))
            yield RowBlock(values[:, :D], targets, values[:, -1] if self.weight else None, start)
            start += len(rows)

    def _rows(self, columns: str) -> sqlite3.Cursor:
        connection = sqlite3.connect(self.query.database, check_same_thread=False)
        return connection.execute(f"SELECT {columns} FROM {self.query.table}")


def open_query(
    X: Query,
    target: str | None = None,
    weight: str | None = None,
    features: Sequence[str] | None = None,
) -> SqlTable:
    names = [row[1] for row in sqlite3.connect(X.database).execute(f"PRAGMA table_info({X.table})")]
    for name in (target, weight, *(features or ())):
        if name is not None and name not in names:
            raise ValueError(f"There is no column {name!r} in {X.table}.")
    own = [name for name in names if name not in (target, weight)]
    return SqlTable(X, own if features is None else list(features), target, weight)


@dataclass(frozen=True)
class Archive:
    """A NumPy archive with the arrays `X`, `y` and `weight`, by its path."""

    path: str
    features: Sequence[str]
    weight: str | None

    @classmethod
    def of(cls, X: Any, target: Any = None, weight: Any = None, features: Any = None) -> Archive:
        names = [f"x{d}" for d in range(np.load(X)["X"].shape[1])]
        return cls(X, features or names, weight)

    @property
    def n_rows(self) -> int:
        return int(np.load(self.path)["y"].size)

    @property
    def n_features(self) -> int:
        return len(self.features)

    def chunks(self) -> Iterator[RowBlock]:
        arrays = np.load(self.path)
        yield RowBlock(arrays["X"], arrays["y"], arrays[self.weight] if self.weight else None)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_OPENERS", list(opening._OPENERS))
    register(lambda X: isinstance(X, Query), open_query)
    register(lambda X: isinstance(X, str) and X.endswith(".npz"), Archive.of)


@pytest.fixture
def query(tmp_path: Path) -> Query:
    database = tmp_path / "houses.db"
    frame = pd.DataFrame(X, columns=NAMES).assign(price=y, times=weight)
    with sqlite3.connect(database) as connection:
        frame.to_sql("houses", connection, index=False)
        frame.iloc[:300].to_sql("few", connection, index=False)
        frame.iloc[:0].to_sql("none", connection, index=False)
        frame[NAMES[::-1]].to_sql("new", connection, index=False)
    return Query(database, "houses")


def model(**settings: Any) -> EigenGPRegressor:
    optimizer = LBFGS(n_restarts=1, max_iter=4)
    return EigenGPRegressor(12, residual=None, optimizer=optimizer, random_state=0, **settings)


def test_a_fit_from_a_registered_table_is_that_from_arrays(query: Query) -> None:
    options = ReadOptions("test", True, 1 << 20)
    with open_dataset(Frame(query, "price", "times"), options) as dataset:
        assert isinstance(dataset.rows, StreamSource)
        assert list(dataset.feature_names) == NAMES
    own = model().fit(query, "price", sample_weight="times")
    other = model().fit(X, y, sample_weight=weight)
    assert own.log_marginal_likelihood_ == pytest.approx(other.log_marginal_likelihood_, rel=1e-10)
    np.testing.assert_allclose(own.inducing_points_, other.inducing_points_, rtol=1e-6)
    assert list(own.feature_names_in_) == NAMES


def test_predictions_for_a_registered_table_find_columns_by_name(query: Query) -> None:
    frame = pd.DataFrame(X, columns=NAMES)
    fitted = model().fit(frame, y)
    mean, std = fitted.predict(Query(query.database, "new"), return_std=True)
    expected = fitted.predict(frame, return_std=True)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-10)
    np.testing.assert_allclose(std, expected[1], rtol=1e-10)
    np.testing.assert_array_equal(fitted.predict(query), mean)
    with pytest.raises(ValueError, match="return_cov needs arrays"):
        fitted.predict(query, return_cov=True)
    with pytest.raises(ValueError, match="no rows to predict"):
        fitted.predict(Query(query.database, "none"))


def test_few_rows_and_methods_that_need_them_all_are_read_at_once(query: Query) -> None:
    few, frame = Query(query.database, "few"), pd.DataFrame(X[:300], columns=NAMES)
    optimizer = LBFGS(n_restarts=1, max_iter=2)
    for estimator in (
        model(),
        ExactGPRegressor(optimizer=optimizer),
        FITCRegressor(10, optimizer=optimizer, random_state=0),
    ):
        own = estimator.fit(few, "price", sample_weight="times").predict(few)
        expected = estimator.fit(frame, y[:300], sample_weight=weight[:300]).predict(frame)
        np.testing.assert_allclose(own, expected, rtol=1e-10, atol=1e-12)


def test_errors_of_a_registered_table_reach_the_user(query: Query) -> None:
    with pytest.raises(ValueError, match="no column 'rent' in houses"):
        model().fit(query, "rent")
    with pytest.raises(ValueError, match="has no rows"):
        model().fit(Query(query.database, "none"), "price")
    with pytest.raises(ValueError, match=r"max_rows \(now 100\)"):
        ExactGPRegressor(max_rows=100).fit(query, "price")
    with pytest.raises(TypeError, match="y is the name"):
        model().fit(query, y)
    with pytest.raises(TypeError, match="partial_fit takes arrays"):
        model().partial_fit(query, "price")


def test_the_kind_that_was_registered_last_is_asked_first(tmp_path: Path) -> None:
    path = str(tmp_path / "rows.npz")
    np.savez(path, X=X[:400], y=y[:400], weight=weight[:400])
    own = model().fit(path, "y", sample_weight="weight")
    other = model().fit(X[:400], y[:400], sample_weight=weight[:400])
    np.testing.assert_array_equal(own.predict(path), other.predict(X[:400]))
    with pytest.raises(FileNotFoundError):
        model().fit(str(tmp_path / "rows.parquet"), "y")
