"""Files larger than memory: the same numbers as from arrays, and errors that name the place."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context

from eigengp import LBFGS, EigenGPRegressor, ExactGPRegressor, FITCRegressor
from eigengp.data import array_source
from eigengp.data.array_source import ArraySource
from eigengp.data.formats import write_table
from eigengp.data.holdout import TrainingRows
from eigengp.data.standardize import Scaling, StandardizedSource, Summary
from eigengp.data.stream_source import FileTable, StreamSource, read_ahead
from eigengp.gp.blocks import RowBlock

pa = pytest.importorskip("pyarrow")
csv, dataset, feather, parquet = (
    pytest.importorskip(f"pyarrow.{name}") for name in ("csv", "dataset", "feather", "parquet")
)

N, D = 6_000, 3
rng = np.random.default_rng(0)
X = rng.normal(size=(N, D)) * [1.0, 20.0, 0.1] + [0.0, 1e3, 0.0]
y = np.sin(X[:, 0]) + 0.05 * (X[:, 1] - 1e3) + 0.1 * rng.normal(size=N)
weight = rng.integers(1, 4, N).astype(float)
NAMES = ["a", "b", "c"]


def table(**extra: Any) -> Any:
    columns = dict(zip(NAMES, X.T, strict=True)) | {"target": y} | extra
    return pa.table(columns)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_source, "_MOST_CHUNK_ROWS", 700)


def write(folder: Path, ending: str, data: Any) -> Path:
    path = folder / f"data{ending}"
    if ending == ".parquet":
        parquet.write_table(data, path, row_group_size=1_500)
    elif ending == ".feather":
        feather.write_feather(data, path, chunksize=900)
    else:
        options = csv.WriteOptions(delimiter="\t" if ending == ".tsv" else ",")
        csv.write_csv(data, path, options)
    return path


def model(**settings: Any) -> EigenGPRegressor:
    optimizer = LBFGS(n_restarts=1, max_iter=6)
    return EigenGPRegressor(12, residual=None, optimizer=optimizer, random_state=0, **settings)


@pytest.mark.parametrize("ending", [".parquet", ".feather", ".csv", ".tsv"])
def test_rows_come_back_as_they_were_written(tmp_path: Path, ending: str) -> None:
    source = StreamSource(FileTable.of(write(tmp_path, ending, table()), "target"))
    assert (source.n_rows, source.n_features) == (N, D)
    starts = source.total(lambda block: [block.start])
    assert starts[0] == 0
    assert np.all(np.diff(starts) > 0)
    rows = np.array([0, 699, 700, 3_333, N - 1])
    found = source.take(rows)
    np.testing.assert_array_equal(found.X, X[rows])
    np.testing.assert_array_equal(found.y, y[rows])
    assert source.take(np.array([], dtype=int)).X.shape == (0, D)


def test_sums_and_views_are_those_of_arrays(tmp_path: Path) -> None:
    path = write(tmp_path, ".parquet", table(w=weight))
    mine = StreamSource(FileTable.of(path, "target", "w"))
    theirs = ArraySource(X, y, weight)
    own, other = mine.total(Summary.of), theirs.total(Summary.of)
    assert own.weight == other.weight
    for name in ("mean", "squares", "low", "high"):
        np.testing.assert_allclose(getattr(own, name), getattr(other, name), rtol=1e-12)
    scaling = Scaling.of(own, True)
    kept = [
        TrainingRows(StandardizedSource(source, scaling), 7).total(lambda b: b.X.sum(axis=0))
        for source in (mine, theirs)
    ]
    np.testing.assert_allclose(kept[0], kept[1], rtol=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_fit_from_a_file_is_that_from_arrays(tmp_path: Path, weighted: bool) -> None:
    path = write(tmp_path, ".parquet", table(w=weight))
    data = dataset.dataset(str(path))
    if weighted:
        own = model().fit(data, "target", sample_weight="w")
        other = model().fit(X, y, sample_weight=weight)
    else:
        pruned = write(tmp_path, ".feather", table())
        own, other = model().fit(pruned, "target"), model().fit(X, y)
    assert own.log_marginal_likelihood_ == other.log_marginal_likelihood_
    np.testing.assert_array_equal(own.inducing_points_, other.inducing_points_)
    assert list(own.feature_names_in_) == NAMES
    mean, std = own.predict(path, return_std=True)
    expected = other.predict(X, return_std=True)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-12)
    np.testing.assert_allclose(std, expected[1], rtol=1e-12)
    np.testing.assert_array_equal(own.predict(path), mean)


def test_many_files_are_one_table(tmp_path: Path) -> None:
    for i, part in enumerate(np.array_split(np.arange(N), 3)):
        parquet.write_table(table().take(part), tmp_path / f"part{i}.parquet")
    for where in (tmp_path, f"{tmp_path}/part*.parquet"):
        source = StreamSource(FileTable.of(where, "target"))
        np.testing.assert_array_equal(source.take(np.arange(N)).X, X)


def test_few_rows_and_methods_that_need_them_all_are_read_at_once(tmp_path: Path) -> None:
    few = write(tmp_path, ".parquet", table().slice(0, 300))
    own = model().fit(few, "target")
    other = model().fit(X[:300], y[:300])
    assert own.log_marginal_likelihood_ == other.log_marginal_likelihood_
    assert list(own.feature_names_in_) == NAMES
    exact = ExactGPRegressor(optimizer=LBFGS(n_restarts=1, max_iter=2)).fit(few, "target")
    named = pd.DataFrame(X[:300], columns=NAMES)
    np.testing.assert_allclose(exact.predict(few), exact.predict(named))


def test_rows_that_fit_the_limit_are_read_once(tmp_path: Path) -> None:
    reads = []

    class Counted(FileTable):
        def chunks(self) -> Iterator[RowBlock]:
            reads.append(1)
            return super().chunks()

    path = write(tmp_path, ".parquet", table())
    for limit, expected in ((N * (D + 1) * 8, 1), (N * 8, 3)):
        reads.clear()
        source = StreamSource(Counted.of(path, "target"), limit)
        sums = [source.total(lambda block: block.y.sum()) for _ in range(3)]
        assert len(reads) == expected
        assert len(set(sums)) == 1


def test_a_fit_reads_once_what_half_the_working_memory_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []
    chunks = FileTable.chunks

    def counted(self: FileTable) -> Iterator[RowBlock]:
        reads.append(1)
        return chunks(self)

    monkeypatch.setattr(FileTable, "chunks", counted)
    path = write(tmp_path, ".parquet", table())
    held = model().fit(path, "target")
    few = len(reads)
    reads.clear()
    with config_context(working_memory=N * (D + 1) * 8 / 2**20):  # Half of it is too little.
        again = model().fit(path, "target")
    assert len(reads) > 2 * few
    np.testing.assert_array_equal(again.inducing_points_, held.inducing_points_)


def test_single_precision_columns_stay_so(tmp_path: Path) -> None:
    narrow = pa.table({name: X[:, j].astype(np.float32) for j, name in enumerate(NAMES)})
    path = write(tmp_path, ".parquet", narrow.append_column("target", pa.array(y)))
    chunk = next(FileTable.of(path, "target").chunks())
    assert chunk.X.dtype == np.float32
    assert chunk.y.dtype == np.float64


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_a_missing_value_is_named_with_its_row(tmp_path: Path, ending: str) -> None:
    holes = [None if i == 4_321 else float(v) for i, v in enumerate(X[:, 1])]
    path = write(tmp_path, ending, table().set_column(1, "b", pa.array(holes)))
    with pytest.raises(ValueError, match="Column 'b' has a missing or infinite value in row 4321"):
        model().set_params(categorical_features=None).fit(path, "target")


def test_what_is_not_a_number_is_named(tmp_path: Path) -> None:
    spoilt = y.copy()
    spoilt[17] = np.inf
    path = write(tmp_path, ".parquet", table().set_column(3, "target", pa.array(spoilt)))
    with pytest.raises(ValueError, match=r"Column 'target' has a missing .* value in row 17"):
        model().fit(path, "target")
    words = table(city=["here"] * N)
    numeric, feather = model(categorical_features=None), write(tmp_path, ".feather", words)
    with pytest.raises(ValueError, match="Column 'city' holds string, not numbers"):
        numeric.fit(feather, "target")
    with pytest.raises(ValueError, match="no column 'price'; there are a, b"):
        model().fit(path, "price")
    negative = write(tmp_path, ".parquet", table(w=-weight))
    with pytest.raises(ValueError, match="'w' has a negative weight in row 0"):
        model().fit(negative, "target", sample_weight="w")


def test_text_in_a_late_row_of_a_csv_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "late.csv"
    lines = ["a,target", *(f"{i},{i}.5" for i in range(200_000)), "oops,1.0"]
    path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=r"cannot be read: .*oops"):
        model().fit(path, "target")


def test_whole_numbers_first_and_fractions_later_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "late.csv"
    size = 400_000
    lines = ["a,target", *(f"{i % 7},{i % 3}" for i in range(size)), "0.5,1.25"]
    path.write_text("\n".join(lines))
    found = StreamSource(FileTable.of(path, "target")).take(np.array([size]))
    assert (float(found.X[0, 0]), float(found.y[0])) == (0.5, 1.25)


def test_bad_names_are_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"There is no file .*nowhere"):
        model().fit(tmp_path / "nowhere.parquet", "target")
    (tmp_path / "data.xlsx").write_text("x")
    with pytest.raises(ValueError, match=r"ends in none of \.parquet"):
        model().fit(tmp_path / "data.xlsx", "target")
    path = write(tmp_path, ".parquet", table())
    with pytest.raises(TypeError, match="y is the name of one of their columns"):
        model().fit(path, y)
    (tmp_path / "torn.parquet").write_bytes(path.read_bytes()[:2_000])
    with pytest.raises(ValueError, match=r"cannot be read|Could not open|Parquet"):
        model().fit(tmp_path / "torn.parquet", "target")


def test_odd_folders_and_names(tmp_path: Path) -> None:
    odd = tmp_path / "data[1].parquet"
    parquet.write_table(table(), odd)
    assert FileTable.of(odd, "target").n_rows == N
    (tmp_path / "other.csv").write_text("a,target\n1,2\n")
    with pytest.raises(ValueError, match="files of several formats"):
        FileTable.of(tmp_path, "target")
    flags = tmp_path / "flags.csv"
    flags.write_text("a,target\ntrue,1\nfalse,2\n")
    np.testing.assert_array_equal(next(FileTable.of(flags, "target").chunks()).X[:, 0], [1.0, 0.0])
    empty = tmp_path / "empty.parquet"
    parquet.write_table(table().slice(0, 0), empty)
    with pytest.raises(ValueError, match="has no rows"):
        model().fit(empty, "target")
    with pytest.raises(ValueError, match="no rows to predict"):
        model().fit(odd, "target").predict(empty)
    with pytest.raises(ValueError, match=r"raise max_rows \(now 100\)"):
        ExactGPRegressor(max_rows=100).fit(odd, "target")


def test_batches_are_as_large_as_asked_for(tmp_path: Path) -> None:
    source = StreamSource(FileTable.of(write(tmp_path, ".parquet", table()), "target"))
    parts = list(source.batches(1_100, np.random.RandomState(0)))
    assert [part.y.shape[0] for part in parts] == [1_100] * 5 + [500]
    np.testing.assert_array_equal(np.concatenate([part.X for part in parts]), X)


@pytest.mark.parametrize("ending", [".parquet", ".feather", ".csv"])
def test_predictions_go_to_a_file(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path, ".parquet", table(other=np.arange(N)))
    fitted = FITCRegressor(10, optimizer=LBFGS(n_restarts=1, max_iter=0), random_state=0)
    fitted.fit(write(tmp_path, ".feather", table()), "target")
    out = tmp_path / f"predicted{ending}"
    assert fitted.predict_to_file(path, out, coverage=0.9) == N
    found = StreamSource(FileTable.of(out, features=["mean", "std", "lower", "upper"]))
    rows = found.take(np.arange(N)).X
    mean, std = fitted.predict(path, return_std=True)
    np.testing.assert_allclose(rows[:, 0], mean, rtol=1e-9)
    np.testing.assert_allclose(rows[:, 3] - rows[:, 2], 2 * 1.6448536 * std, rtol=1e-6)
    with pytest.raises(TypeError, match="predict for arrays"):
        fitted.predict_to_file(X, out)
    with pytest.raises(ValueError, match=r"must end in \.parquet or \.pq"):
        fitted.predict_to_file(path, tmp_path / "predicted.txt")


def test_an_error_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    assert write_table(out, [{"mean": np.ones(3)}]) == 3
    before = out.read_bytes()

    def broken() -> Iterator[dict[str, Any]]:
        yield {"mean": np.ones(3)}
        raise ValueError("torn")

    with pytest.raises(ValueError, match="torn"):
        write_table(out, broken())
    with pytest.raises(ValueError, match="no rows"):
        write_table(out, [])
    assert out.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["out.parquet"]


def test_columns_are_found_by_name_when_predicting(tmp_path: Path) -> None:
    fitted = model().fit(write(tmp_path, ".parquet", table()), "target")
    shuffled = write(tmp_path, ".feather", table().select(["c", "a", "target", "b"]))
    named = pd.DataFrame(X, columns=NAMES)
    np.testing.assert_allclose(fitted.predict(shuffled), fitted.predict(named))
    with pytest.raises(ValueError, match="no column 'b'"):
        fitted.predict(write(tmp_path, ".feather", table().select(["c", "a"])))
    with pytest.raises(ValueError, match="return_cov needs arrays"):
        fitted.predict(shuffled, return_cov=True)
    unnamed = model().fit(X, y)
    with pytest.raises(ValueError, match="The file has 2 columns"):
        unnamed.predict(shuffled)


def test_memory_maps_are_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    own, other = model().fit(mapped, y), model().fit(X, y)
    assert own.log_marginal_likelihood_ == other.log_marginal_likelihood_


def test_reading_ahead_ends_with_its_user() -> None:
    def endless() -> Iterator[int]:
        i = 0
        while True:
            yield i
            i += 1

    stream = read_ahead(endless)
    assert [next(stream) for _ in range(4)] == [0, 1, 2, 3]
    stream.close()
    assert not [each for each in threading.enumerate() if each.name.startswith("eigengp-reader")]

    def broken() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    stream = read_ahead(broken)
    assert next(stream) == 1
    with pytest.raises(OSError, match="gone"):
        next(stream)
