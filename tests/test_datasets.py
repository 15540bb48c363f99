"""Data sets are made as stated, found in the stated order, and never taken on trust."""

from __future__ import annotations

import errno
import os
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

from eigengp import ExactGPRegressor, datasets
from eigengp.datasets import Dataset, entries
from eigengp.datasets.lookup import Entry
from eigengp.datasets.storage import Rows, read_cache, write_cache

FETCHERS = {
    "snelson": datasets.fetch_snelson,
    "nonstationary": datasets.fetch_nonstationary,
    "california": datasets.fetch_california,
    "protein": datasets.fetch_protein,
    "pole": datasets.fetch_pole,
    "kin40k": datasets.fetch_kin40k,
}
# Rows, inputs, mean and standard deviation of the target, and how far the last two are rounded.
STATED = {
    "california": (20_640, 8, 2.0686, 1.1540, 5e-5),
    "protein": (45_730, 9, 7.7485, 6.1183, 5e-5),
    "pole": (15_000, 26, 28.945, 41.726, 5e-4),
    "kin40k": (40_000, 8, 0.000, 0.997, 5e-4),
}
N_TRAIN = {"california": 10_000, "protein": 20_000, "pole": 10_000, "kin40k": 10_000}
WITHOUT_DOWNLOAD = ("snelson", "nonstationary", "kin40k")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a fresh data folder for scikit-learn; no network, and no data but what a test puts."""
    path = tmp_path / "home"
    monkeypatch.delenv("EIGENGP_DATA", raising=False)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(path))
    for name in ("fetch_california_housing", "fetch_openml"):
        monkeypatch.setattr(sklearn.datasets, name, refuse)
    return path


def refuse(**settings: object) -> Bunch:
    raise AssertionError(f"a download was tried: {settings}")


def like(entry: Entry, seed: int = 0, n_rows: int | None = None) -> Rows:
    """Return random rows with the counts and moments that the entry asks for."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows or entry.n_rows, entry.n_inputs))
    y = rng.normal(size=len(X))
    y = entry.target_mean + entry.target_std * (y - y.mean()) / y.std(ddof=1)
    return X, y, tuple(f"input{i}" for i in range(entry.n_inputs))


def write_parquet(path: Path, columns: dict[str, Any]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(columns), path)


def put(folder: Path, name: str, rows: Rows) -> None:
    X, y, names = rows
    write_parquet(
        folder / f"{name}.parquet", dict(zip(names, X.T, strict=True)) | {"target": y.copy()}
    )


def serve(monkeypatch: pytest.MonkeyPatch, name: str, rows: Rows) -> list[dict[str, Any]]:
    """Let one of scikit-learn's fetchers return the rows, and note how it is called."""
    calls: list[dict[str, Any]] = []

    def fetch(**settings: Any) -> Bunch:
        calls.append(settings)
        return Bunch(data=rows[0], target=rows[1], feature_names=list(rows[2]))

    monkeypatch.setattr(sklearn.datasets, name, fetch)
    return calls


def fail(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fetch(**_: object) -> Bunch:
        raise error

    for name in ("fetch_california_housing", "fetch_openml"):
        monkeypatch.setattr(sklearn.datasets, name, fetch)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# --- made on the spot ----------------------------------------------------------------------------


def test_the_nonstationary_set_is_x_sin_x_cubed_plus_noise_on_an_even_grid() -> None:
    data = datasets.make_nonstationary(n=4000, noise=0.5, random_state=0)
    x = data.X[:, 0]
    np.testing.assert_array_equal(x, np.linspace(0.0, 3.0, 4000))
    noise = data.y - x * np.sin(x**3)
    assert abs(noise.mean()) < 4 * 0.5 / np.sqrt(4000)
    assert noise.std() == pytest.approx(0.5, rel=0.05)
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < 0.06
    assert data.X_test is not None
    np.testing.assert_array_equal(data.X_test[:, 0], np.linspace(0.0, 3.0, 500))
    np.testing.assert_array_equal(data.f_test, datasets.nonstationary_function(data.X_test[:, 0]))


def test_without_noise_the_targets_are_the_function() -> None:
    data = datasets.make_nonstationary(n=7, noise=0.0)
    np.testing.assert_array_equal(data.y, datasets.nonstationary_function(data.X[:, 0]))


def test_the_grids_are_those_of_the_authors(
    shared_data: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EIGENGP_DATA", str(shared_data("nonstationary.parquet").parent))
    made, theirs = datasets.make_nonstationary(), datasets.fetch_nonstationary()
    np.testing.assert_allclose(made.X, theirs.X, atol=1e-15)
    np.testing.assert_allclose(made.X_test, theirs.X_test, atol=1e-15)
    np.testing.assert_allclose(made.f_test, theirs.f_test, atol=1e-13)


def test_the_snelson_like_rows_scatter_about_the_curve_and_are_thin_near_the_left_end() -> None:
    data = datasets.make_snelson_like(n=20_000, random_state=0)
    x = data.X[:, 0]
    noise = data.y - datasets.snelson_like_function(x)
    assert abs(noise.mean()) < 4 * 0.28 / np.sqrt(20_000)
    assert noise.std() == pytest.approx(0.28, rel=0.02)
    assert x.min() >= 0.0
    assert x.max() <= 6.0
    assert np.mean((x > 0.5) & (x < 1.0)) == pytest.approx(0.04, abs=0.006)
    assert np.mean(x < 0.5) == pytest.approx(0.095, abs=0.009)
    assert np.mean(x > 3.5) == pytest.approx(0.865 / 2, abs=0.015)


def test_the_exact_gp_learns_from_snelson_like_rows_what_it_learns_from_snelsons() -> None:
    data = datasets.make_snelson_like(n=200, random_state=1)
    model = ExactGPRegressor(standardize=False, n_restarts=1, random_state=0).fit(data.X, data.y)
    assert float(np.ravel(model.kernel_.lengthscale)[0]) == pytest.approx(0.612, rel=0.15)
    assert np.sqrt(model.kernel_.variance) == pytest.approx(0.877, rel=0.15)
    assert np.sqrt(model.noise_variance_) == pytest.approx(0.282, rel=0.1)


@pytest.mark.parametrize("make", [datasets.make_nonstationary, datasets.make_snelson_like])
def test_a_seed_is_the_same_rows_and_another_seed_others(make: Callable[..., Dataset]) -> None:
    first, second, other = make(random_state=3), make(random_state=3), make(random_state=4)
    np.testing.assert_array_equal(first.X, second.X)
    np.testing.assert_array_equal(first.y, second.y)
    assert not np.array_equal(first.y, other.y)
    rng = np.random.RandomState(3)
    np.testing.assert_array_equal(make(random_state=rng).y, first.y)
    assert not np.array_equal(make(random_state=rng).y, first.y)
    assert first.X.shape == (200, 1)
    assert first.X.dtype == first.y.dtype == np.float64


def test_makers_refuse_sizes_and_noise_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        datasets.make_snelson_like(n=0)
    for noise in (-0.1, np.nan, np.inf):
        with pytest.raises(ValueError, match="noise must be finite and not negative"):
            datasets.make_nonstationary(noise=noise)


# --- the data set as an object -------------------------------------------------------------------


def test_a_split_is_the_permutation_of_the_benchmarks() -> None:
    data = datasets.make_snelson_like(n=50, random_state=0)
    train, test = data.split(30, seed=5)
    order = np.random.default_rng(5).permutation(50)
    np.testing.assert_array_equal(train.X, data.X[order[:30]])
    np.testing.assert_array_equal(train.y, data.y[order[:30]])
    np.testing.assert_array_equal(test.X, data.X[order[30:]])
    np.testing.assert_array_equal(test.y, data.y[order[30:]])


def test_a_split_takes_the_usual_size_unless_told_and_needs_one() -> None:
    data = Dataset("small", np.zeros((9, 1)), np.arange(9.0), ("x",), "", n_train=6)
    assert [part.y.size for part in data.split()] == [6, 3]
    assert [part.y.size for part in data.split(2)] == [2, 7]
    with pytest.raises(ValueError, match=r"small has no usual split: say how many of its 6 rows"):
        data.split()[0].split()
    for n_train in (0, 9, 10, -1):
        with pytest.raises(ValueError, match=rf"from 1 to 8 for small, got {n_train}"):
            data.split(n_train)


def test_a_split_of_runs_splits_every_run() -> None:
    X, runs = np.arange(4.0)[:, None], np.arange(8.0).reshape(2, 4)
    data = Dataset("two", X, runs[0], ("x",), "", y_runs=runs)
    train, _ = data.split(3)
    np.testing.assert_array_equal(train.run(2).y, train.run(1).y + 4.0)
    assert repr(data) == "<Dataset two: 4 rows, 1 input, 2 runs>"


def test_runs_count_from_one() -> None:
    data = datasets.make_nonstationary(n=5)
    assert data.run(1) is data
    for number in (0, 2):
        with pytest.raises(ValueError, match=rf"from 1 to 1 for nonstationary, got {number}"):
            data.run(number)


def test_arrays_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="do not belong together"):
        Dataset("odd", np.zeros((3, 2)), np.zeros(3), ("a",), "")


# --- the real files ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FETCHERS)
def test_the_real_files_are_read_and_nothing_is_written(
    name: str,
    shared_data: Callable[[str], Path],
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EIGENGP_DATA", str(shared_data(f"{name}.parquet").parent))
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
    shared_data: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EIGENGP_DATA", str(shared_data("snelson.parquet").parent))
    data = datasets.fetch_snelson()
    assert data.X_test is not None
    assert data.X_test[[0, -1], 0].tolist() == [-3.0, 10.0]
    model = ExactGPRegressor(standardize=False, n_restarts=1, random_state=0).fit(data.X, data.y)
    assert float(np.ravel(model.kernel_.lengthscale)[0]) == pytest.approx(0.61234, rel=1e-2)
    assert np.sqrt(model.noise_variance_) == pytest.approx(0.28222, rel=1e-2)


def test_the_authors_ten_draws_have_the_stated_noise_and_differ(
    shared_data: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EIGENGP_DATA", str(shared_data("nonstationary.parquet").parent))
    data = datasets.fetch_nonstationary()
    truth = datasets.nonstationary_function(data.X[:, 0])
    noise = np.array([data.run(number).y - truth for number in range(1, 11)])
    assert data.n_runs == 10
    np.testing.assert_array_equal(data.y, data.run(1).y)
    np.testing.assert_allclose(noise.std(axis=1), 0.5, rtol=0.2)
    assert np.abs(np.corrcoef(noise) - np.eye(10)).max() < 0.3


def test_california_has_the_split_of_the_benchmarks(
    shared_data: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = pytest.importorskip("pandas")
    path = shared_data("california.parquet")
    monkeypatch.setenv("EIGENGP_DATA", str(path.parent))
    frame = pandas.read_parquet(path)
    order = np.random.default_rng(0).permutation(len(frame))
    train, test = datasets.fetch_california().split(seed=0)
    np.testing.assert_array_equal(train.y, frame["target"].to_numpy()[order[:10_000]])
    np.testing.assert_array_equal(test.X, frame.drop(columns="target").to_numpy()[order[10_000:]])
    assert train.feature_names[:2] == ("MedInc", "HouseAge")


# --- which place comes first ---------------------------------------------------------------------


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


# --- nothing to be had ---------------------------------------------------------------------------


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


# --- what is got is checked ----------------------------------------------------------------------


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


# --- the cache is whole or not there -------------------------------------------------------------


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
    assert seen[0].startswith(".pole.npz.")
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
