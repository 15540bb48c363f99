"""Real data are found where they are said to be, checked, and split as everywhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from http.client import IncompleteRead
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import sklearn.datasets
from sklearn.utils import Bunch

import realdata

DOWNLOADED = ("california", "protein", "pole")
FETCHERS = dict.fromkeys(DOWNLOADED, "fetch_openml") | {"california": "fetch_california_housing"}


def like(name: str, seed: int = 0) -> realdata.Rows:
    """Return random rows with the counts and moments of a set."""
    facts, rng = realdata.SETS[name], np.random.default_rng(seed)
    X, y = rng.normal(size=(facts.n_rows, facts.n_inputs)), rng.normal(size=facts.n_rows)
    return X, facts.mean + facts.std * (y - y.mean()) / y.std(ddof=1)


def write_parquet(path: Path, columns: dict[str, Any]) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(columns), path)


def put(folder: Path, name: str, rows: realdata.Rows) -> None:
    X, y = rows
    columns = {f"input{i}": column for i, column in enumerate(X.T)}
    write_parquet(folder / f"{name}.parquet", columns | {"target": y})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the named folder, which is empty; whatever is downloaded fails the test."""
    path = tmp_path / "version=3"  # Columns come from the file alone, not from its path.
    path.mkdir()
    monkeypatch.setenv(realdata.VARIABLE, str(path))
    for fetcher in set(FETCHERS.values()):
        serve(monkeypatch, fetcher, AssertionError("a download was tried"))
    return path


def serve(
    monkeypatch: pytest.MonkeyPatch, fetcher: str, answer: realdata.Rows | BaseException
) -> list[dict[str, Any]]:
    """Let one of scikit-learn's fetchers return rows or raise, and note how it is called."""
    calls: list[dict[str, Any]] = []

    def fetch(**settings: Any) -> Bunch:
        calls.append(settings)
        if isinstance(answer, BaseException):
            raise answer
        return Bunch(data=answer[0], target=answer[1])

    monkeypatch.setattr(sklearn.datasets, fetcher, fetch)
    return calls


@pytest.mark.parametrize("name", realdata.SETS)
def test_a_file_of_the_named_folder_is_read(name: str, folder: Path) -> None:
    rows = like(name)
    put(folder, name, rows)
    X, y = realdata.load(name)
    np.testing.assert_array_equal(X, rows[0])
    np.testing.assert_array_equal(y, rows[1])
    assert X.flags.c_contiguous


@pytest.mark.parametrize("name", realdata.SETS)
def test_the_real_files_are_those_that_are_described(name: str) -> None:
    folder = realdata.data_folder()
    if folder is None or not (folder / f"{name}.parquet").exists():
        source = realdata.SETS[name].source
        pytest.skip(f"{realdata.VARIABLE} names no folder with {name}.parquet (source: {source})")
    X, y, X_test, y_test = realdata.split(name)
    facts = realdata.SETS[name]
    assert X.shape == (facts.n_train, facts.n_inputs)
    assert len(X_test) == len(y_test) == facts.n_rows - facts.n_train
    assert (y.mean(), y.std()) == (pytest.approx(0.0, abs=1e-9), pytest.approx(1.0))


@pytest.mark.parametrize("name", DOWNLOADED)
def test_what_is_not_there_is_downloaded(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = like(name)
    calls = serve(monkeypatch, FETCHERS[name], rows)
    X, y = realdata.load(name)
    np.testing.assert_array_equal(X, rows[0])
    np.testing.assert_array_equal(y, rows[1])
    ids = {"california": None, "protein": 44963, "pole": 44133}
    assert [call.get("data_id") for call in calls] == [ids[name]]


def test_a_split_is_a_permutation_with_targets_standardised_by_the_training_rows(
    folder: Path,
) -> None:
    rows = like("pole")
    put(folder, "pole", rows)
    order = np.random.default_rng(3).permutation(15_000)
    y = rows[1][order[:10_000]]
    X_train, y_train, X_test, y_test = realdata.split("pole", seed=3)
    np.testing.assert_array_equal(X_train, rows[0][order[:10_000]])
    np.testing.assert_array_equal(X_test, rows[0][order[10_000:]])
    np.testing.assert_allclose(y_train, (y - y.mean()) / y.std(), atol=1e-12)
    np.testing.assert_allclose(y_test, (rows[1][order[10_000:]] - y.mean()) / y.std(), atol=1e-12)


def test_a_set_without_a_download_says_which_file_goes_where(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"put kin40k\.parquet .* EIGENGP_DATA .* Source: "):
        realdata.load("kin40k")


@pytest.mark.parametrize("name", DOWNLOADED)
@pytest.mark.parametrize(
    "error",
    [URLError("no"), ConnectionResetError("reset"), TimeoutError("late"), IncompleteRead(b"half")],
)
def test_without_a_network_the_error_says_which_file_goes_where(
    name: str, error: Exception, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, FETCHERS[name], error)
    with pytest.raises(ConnectionError, match=rf"{name} could not be downloaded.*{name}\.parquet"):
        realdata.load(name)


def test_a_wrong_variable_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(realdata.VARIABLE, str(tmp_path / "mistyped"))
    with pytest.raises(FileNotFoundError, match="mistyped, which is not a folder"):
        realdata.load("california")


def test_without_the_variable_the_folder_beside_the_checkout_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(realdata.VARIABLE, "")
    monkeypatch.setattr(realdata, "_BESIDE", tmp_path / "none")
    assert realdata.data_folder() is None
    monkeypatch.setattr(realdata, "_BESIDE", tmp_path)
    assert realdata.data_folder() == tmp_path


def test_without_pyarrow_the_error_names_the_extra(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pole.parquet").touch()
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r'pip install "eigengp\[data\]"'):
        realdata.load("pole")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda X, y: (X[:-1], y[:-1]), r"shape \(20639, 8\) instead of \(20640, 8\)"),
        (lambda X, y: (X[:, :7], y), r"shape \(20640, 7\)"),
        (lambda X, y: (X, y + 0.001), "mean 2.0696 and"),
        (lambda X, y: (X, 2.0686 + 2 * (y - 2.0686)), "standard deviation 2.308 instead"),
        (lambda X, y: (np.where(X > 3.0, np.nan, X), y), "not finite"),
        (lambda X, y: (X, np.where(y > 5.0, np.inf, y)), "not finite"),
    ],
)
@pytest.mark.parametrize("place", ["folder", "download"])
def test_wrong_rows_are_refused_wherever_they_come_from(
    place: str,
    change: Callable[[Any, Any], Any],
    complaint: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = change(*like("california"))
    if place == "folder":
        put(folder, "california", rows)
    else:
        serve(monkeypatch, "fetch_california_housing", rows)
    with pytest.raises(ValueError, match=f"california.*{complaint}.*replace it by a sound copy"):
        realdata.load("california")


def test_a_damaged_file_and_a_missing_column_are_named(folder: Path) -> None:
    path = folder / "pole.parquet"
    put(folder, "pole", like("pole"))
    content = path.read_bytes()
    for damaged in (b"", b"no table", content[:-100], content[:100] + content[5000:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"Cannot read .*pole\.parquet.*sound copy"):
            realdata.load("pole")
    for columns in ({"a": [1.0], "b": [2.0]}, {"a": ["text"], "target": [2.0]}):
        write_parquet(path, columns)
        with pytest.raises(ValueError, match=r"Cannot read .*pole\.parquet"):
            realdata.load("pole")
