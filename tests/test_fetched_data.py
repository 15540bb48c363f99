"""Fetched data are never taken on trust, and a cache file is whole or not there."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigengp import datasets
from eigengp.datasets import entries
from eigengp.datasets.storage import read_cache, write_cache
from fake_data import (
    files,
    like,
    put,
    serve,
    write_parquet,
)

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda X, y: (X[:-1], y[:-1]), "20639 rows instead of 20640"),
        (lambda X, y: (X[:, :7], y), "7 inputs instead of 8"),
        (lambda X, y: (X[:, :0], y), "0 inputs instead of 8"),
        (lambda X, y: (X[:0], y[:0]), "0 rows instead of 20640"),
        (lambda X, y: (X, y + 0.001), "2.0696 as mean of the target instead of 2.0686"),
        (lambda X, y: (X, 2.0686 + 2 * (y - 2.0686)), "2.308 as its standard deviation instead of"),
        (lambda X, y: (np.where(X > 3.0, np.nan, X), y), "values that are not finite instead of 0"),
        (lambda X, y: (X, np.where(y > 5.0, np.inf, y)), "values that are not finite instead of 0"),
    ],
)
@pytest.mark.parametrize("place", ["named", "placed", "kept", "served"])
def test_wrong_rows_are_refused_wherever_they_come_from(
    place: str,
    change: Callable[[Any, Any], tuple[Any, Any]],
    complaint: str,
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, y, names = like(entries.CALIFORNIA)
    X, y = change(X, y)
    rows = X, y, names[: X.shape[1]]
    remedy = "Replace it by a sound copy"
    if place == "named":
        put(tmp_path / "named", "california", rows)
        monkeypatch.setenv("EIGENGP_DATA", str(tmp_path / "named"))
    elif place == "placed":
        put(home / "eigengp", "california", rows)
    elif place == "kept":
        write_cache(home / "eigengp" / "california.npz", rows)
        remedy = "Delete it and fetch again"
    else:
        serve(monkeypatch, "fetch_california_housing", rows)
        remedy = "Instead, put california.parquet"
    with pytest.raises(ValueError, match="is not the data set california") as caught:
        datasets.fetch_california()
    assert complaint in str(caught.value)
    assert remedy in str(caught.value)
    assert place != "served" or files(home) == []


@pytest.mark.parametrize("keep", [0, 10, 1000, -10])
def test_a_cut_off_cache_file_is_refused_by_name(keep: int, home: Path) -> None:
    path = home / "eigengp" / "pole.npz"
    write_cache(path, like(entries.POLE))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"pole\.npz is damaged .* Delete it and fetch again"):
        datasets.fetch_pole()


def test_a_changed_or_foreign_cache_file_is_refused_by_name(home: Path) -> None:
    path = home / "eigengp" / "pole.npz"
    write_cache(path, like(entries.POLE))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"pole\.npz is damaged"):
        datasets.fetch_pole()
    X, y, names = like(entries.POLE)
    np.savez(path, X=X, y=y)
    with pytest.raises(ValueError, match=r"pole\.npz is damaged .*feature_names"):
        datasets.fetch_pole()
    np.savez(path, X=X[:-1], y=y, feature_names=np.array(names))
    with pytest.raises(ValueError, match=r"pole\.npz is damaged \(inputs \(14999, 26\), targets"):
        datasets.fetch_pole()


def test_a_damaged_parquet_file_and_a_missing_column_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.setenv("EIGENGP_DATA", str(tmp_path))
    path = tmp_path / "pole.parquet"
    put(tmp_path, "pole", like(entries.POLE))
    content = path.read_bytes()
    for damaged in (b"", b"no table", content[:-100], content[:100] + content[5000:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"Cannot read .*pole\.parquet.*sound copy"):
            datasets.fetch_pole()
    write_parquet(path, {"a": [1.0], "b": [2.0]})
    with pytest.raises(ValueError, match=r"pole\.parquet has no column 'target', only a, b"):
        datasets.fetch_pole()
    write_parquet(path, {"a": ["text"], "target": [2.0]})
    with pytest.raises(ValueError, match=r"Cannot read .*pole\.parquet"):
        datasets.fetch_pole()


def test_snelsons_test_inputs_have_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y, _ = like(entries.SNELSON)
    write_parquet(tmp_path / "snelson.parquet", {"x": X[:, 0], "y": y})
    monkeypatch.setenv("EIGENGP_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"snelson_test\.parquet is missing"):
        datasets.fetch_snelson()
    write_parquet(tmp_path / "snelson_test.parquet", {"x": np.arange(300.0)})
    with pytest.raises(ValueError, match="300 test inputs instead of 301"):
        datasets.fetch_snelson()
    write_parquet(tmp_path / "snelson_test.parquet", {"x": np.arange(301.0)})
    data = datasets.fetch_snelson()
    np.testing.assert_array_equal(data.X, X)
    np.testing.assert_array_equal(data.X_test, np.arange(301.0)[:, None])


def test_the_ten_runs_are_told_apart_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EIGENGP_DATA", str(tmp_path))
    y = like(entries.NONSTATIONARY)[1].reshape(10, 200)
    run, x = np.repeat(np.arange(1, 11), 200), np.tile(np.linspace(0.0, 3.0, 200), 10)
    # Runs may be interleaved: the column `run` says what belongs together.
    order = np.arange(2000).reshape(10, 200).T.ravel()
    table = {"run": run[order], "x": x[order], "y": y.ravel()[order]}
    grid = np.linspace(0.0, 3.0, 500)
    test = {"x": grid, "f": grid * np.sin(grid**3)}
    write_parquet(tmp_path / "nonstationary.parquet", table)
    write_parquet(tmp_path / "nonstationary_test.parquet", test)
    data = datasets.fetch_nonstationary()
    for number in (1, 7, 10):
        np.testing.assert_array_equal(data.run(number).y, y[number - 1])
    with pytest.raises(ValueError, match=r"from 1 to 10 .* got 0"):
        data.run(0)

    write_parquet(tmp_path / "nonstationary_test.parquet", test | {"f": grid})
    with pytest.raises(ValueError, match="f is not x·sin"):
        datasets.fetch_nonstationary()
    write_parquet(tmp_path / "nonstationary_test.parquet", test)
    write_parquet(
        tmp_path / "nonstationary.parquet", table | {"x": x[order] + 0.1 * (run[order] == 3)}
    )
    with pytest.raises(ValueError, match="have different inputs"):
        datasets.fetch_nonstationary()


@pytest.mark.parametrize(
    "failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]
)
def test_a_failure_in_the_middle_leaves_no_file_behind(
    failure: BaseException, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def half(file: Any, **_: object) -> None:
        file.write(b"PK half of it")
        file.flush()
        seen.extend(files(home / "eigengp"))
        raise failure

    monkeypatch.setattr(np, "savez_compressed", half)
    serve(monkeypatch, "fetch_openml", like(entries.POLE))
    with pytest.raises(type(failure)) as caught:
        datasets.fetch_pole()
    if isinstance(failure, OSError):
        assert "Make room, or name another folder as data_home" in caught.value.__notes__[0]
    # What a kill would have left at that moment does not bear the name of the cache.
    assert len(seen) == 1
    assert seen[0].startswith(".")
    assert files(home) == ["eigengp"]


def test_a_failure_keeps_the_file_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "small.npz"
    rows = np.ones((2, 1)), np.ones(2), ("x",)
    write_cache(path, rows)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_cache(path, (np.zeros((2, 1)), np.zeros(2), ("z",)))
    assert files(tmp_path) == ["small.npz"]
    X, _, names = read_cache(path)
    np.testing.assert_array_equal(X, rows[0])
    assert names == ("x",)
