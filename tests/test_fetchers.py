"""Data sets are found in the stated order, and where they are not, the error helps."""

from __future__ import annotations

import sys
from collections.abc import Callable
from http.client import IncompleteRead
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest

from eigengp import ExactGPRegressor, datasets
from eigengp.datasets import entries
from eigengp.datasets.storage import write_cache
from fake_data import (
    FETCHERS,
    N_TRAIN,
    STATED,
    WITHOUT_DOWNLOAD,
    fail,
    files,
    like,
    put,
    serve,
)

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize("name", FETCHERS)
def test_the_real_files_are_read_and_nothing_is_written(
    name: str,
    named_folder: Callable[[str], Path],
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EIGENGP_DATA", str(named_folder(f"{name}.parquet")))
    data = FETCHERS[name]()
    assert data.name == name
    assert data.n_train == N_TRAIN.get(name)
    assert data.X.flags.c_contiguous
    assert data.X.dtype == data.y.dtype == np.float64
    if name in STATED:
        n_rows, n_inputs, mean, std, tolerance = STATED[name]
        assert data.X.shape == (n_rows, n_inputs)
        assert data.y.mean() == pytest.approx(mean, abs=tolerance)
        assert data.y.std(ddof=1) == pytest.approx(std, abs=tolerance)
        assert [part.y.size for part in data.split()] == [N_TRAIN[name], n_rows - N_TRAIN[name]]
    assert not home.exists()


def test_snelsons_set_is_the_one_with_the_known_exact_gp(
    paper_data: Callable[[str], Any],
) -> None:
    data = paper_data("snelson")
    assert paper_data("snelson_test")["x"][[0, -1]].tolist() == [-3.0, 10.0]
    model = ExactGPRegressor(standardize=False, n_restarts=1, random_state=0)
    model.fit(data["x"][:, None], data["y"])
    assert float(np.ravel(model.kernel_.lengthscale)[0]) == pytest.approx(0.61234, rel=1e-2)
    assert np.sqrt(model.noise_variance_) == pytest.approx(0.28222, rel=1e-2)


def test_the_authors_ten_draws_have_the_stated_noise_and_differ(
    paper_data: Callable[[str], Any],
) -> None:
    data = paper_data("nonstationary")
    noise = data["y"] - datasets.nonstationary_function(data["x"])
    noise = np.array([noise[data["run"] == number] for number in range(1, 11)])
    np.testing.assert_allclose(noise.std(axis=1), 0.5, rtol=0.2)
    assert np.abs(np.corrcoef(noise) - np.eye(10)).max() < 0.3


def test_california_has_the_split_of_the_benchmarks(
    named_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = pytest.importorskip("pandas")
    folder = named_folder("california.parquet")
    monkeypatch.setenv("EIGENGP_DATA", str(folder))
    frame = pandas.read_parquet(folder / "california.parquet")
    order = np.random.default_rng(0).permutation(len(frame))
    train, test = datasets.fetch_california().split(seed=0)
    np.testing.assert_array_equal(train.y, frame["target"].to_numpy()[order[:10_000]])
    np.testing.assert_array_equal(test.X, frame.drop(columns="target").to_numpy()[order[10_000:]])
    assert train.feature_names[:2] == ("MedInc", "HouseAge")


def test_the_named_folder_comes_before_the_cache_and_the_cache_before_a_download(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, placed, kept, served = (like(entries.CALIFORNIA, seed) for seed in range(4))
    calls = serve(monkeypatch, "fetch_california_housing", served)
    put(tmp_path / "named", "california", named)
    monkeypatch.setenv("EIGENGP_DATA", str(tmp_path / "named"))
    write_cache(home / "eigengp" / "california.npz", kept)
    np.testing.assert_array_equal(datasets.fetch_california().y, named[1])
    np.testing.assert_array_equal(datasets.fetch_california().X, named[0])

    (tmp_path / "named" / "california.parquet").unlink()
    np.testing.assert_array_equal(datasets.fetch_california().X, kept[0])
    put(home / "eigengp", "california", placed)
    np.testing.assert_array_equal(datasets.fetch_california().y, placed[1])
    assert not calls

    (home / "eigengp" / "california.parquet").unlink()
    (home / "eigengp" / "california.npz").unlink()
    data = datasets.fetch_california()
    np.testing.assert_array_equal(data.y, served[1])
    assert data.feature_names == served[2]
    assert calls == [{"data_home": str(home)}]


def test_a_download_is_kept_and_not_repeated(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = like(entries.PROTEIN)
    calls = serve(monkeypatch, "fetch_openml", rows)
    first = datasets.fetch_protein(data_home=tmp_path / "elsewhere")
    second = datasets.fetch_protein(data_home=str(tmp_path / "elsewhere"))
    assert [call["data_id"] for call in calls] == [44963]
    np.testing.assert_array_equal(first.X, second.X)
    np.testing.assert_array_equal(first.y, second.y)
    assert first.feature_names == second.feature_names == rows[2]
    assert first.n_train == second.n_train == 20_000
    assert files(tmp_path / "elsewhere") == ["eigengp", "eigengp/protein.npz"]
    assert not home.exists()


def test_the_inputs_of_pole_are_shifted_to_begin_at_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, names = like(entries.POLE)
    calls = serve(monkeypatch, "fetch_openml", (X, y, names))
    data = datasets.fetch_pole()
    assert [call["data_id"] for call in calls] == [44133]
    np.testing.assert_array_equal(data.X, X - X.min(axis=0))
    np.testing.assert_array_equal(data.y, y)


def test_a_wrong_or_empty_variable_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, "fetch_california_housing", like(entries.CALIFORNIA))
    monkeypatch.setenv("EIGENGP_DATA", str(tmp_path / "mistyped"))
    with pytest.raises(FileNotFoundError, match=r"mistyped, which is not a folder. Correct or"):
        datasets.fetch_california()
    monkeypatch.setenv("EIGENGP_DATA", "")
    assert datasets.fetch_california().X.shape == (20_640, 8)


def test_columns_come_from_the_file_alone_and_not_from_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "version=3"
    put(folder, "california", like(entries.CALIFORNIA))
    monkeypatch.setenv("EIGENGP_DATA", str(folder))
    assert datasets.fetch_california().feature_names == like(entries.CALIFORNIA)[2]


@pytest.mark.parametrize("name", WITHOUT_DOWNLOAD)
def test_sets_without_a_download_say_which_file_goes_where(name: str, home: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        FETCHERS[name]()
    message = str(caught.value)
    assert f"put {name}.parquet" in message
    assert str(home / "eigengp") in message
    assert "EIGENGP_DATA" in message
    assert "Source: " in message


@pytest.mark.parametrize("name", ["california", "protein", "pole"])
@pytest.mark.parametrize(
    "error",
    [
        URLError("Name or service not known"),
        ConnectionResetError("reset by peer"),
        TimeoutError("timed out"),
        IncompleteRead(b"half"),
    ],
)
def test_without_a_network_the_error_says_which_file_goes_where(
    name: str, error: Exception, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch, error)
    with pytest.raises(ConnectionError, match=f"{name} could not be downloaded") as caught:
        FETCHERS[name]()
    message = str(caught.value)
    assert f"put {name}.parquet" in message
    assert str(home / "eigengp") in message
    assert "EIGENGP_DATA" in message
    assert caught.value.__cause__ is error
    assert files(home) == []


def test_without_pyarrow_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pole.parquet").touch()
    monkeypatch.setenv("EIGENGP_DATA", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r'pip install "eigengp\[data\]"'):
        datasets.fetch_pole()


def test_the_cache_needs_no_pyarrow(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cache(home / "eigengp" / "pole.npz", like(entries.POLE))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert datasets.fetch_pole().X.shape == (15_000, 26)
