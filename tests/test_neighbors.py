"""Searches for the nearest rows: exact and approximate, with duplicates, saved and loaded."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from sklearn.base import clone

import eigengp
from eigengp import LBFGS, EigenGPRegressor
from eigengp._typing import Array
from eigengp.backend import loops_numpy
from eigengp.data import neighbors as searches
from eigengp.data.neighbors import (
    Approximate,
    Exact,
    Nearest,
    build_index,
    find_nearest_before,
)

pytest.importorskip("faiss", reason='needs pip install "eigengp[neighbors]"')

Numbers = NDArray[np.intp]


def _uniform(n: int, D: int = 8) -> Array:
    return np.random.default_rng(0).uniform(size=(n, D))


def _clustered(n: int, D: int = 8) -> Array:
    rng = np.random.default_rng(1)
    centres, widths = 5.0 * rng.normal(size=(30, D)), rng.uniform(0.1, 1.0, size=(30, D))
    where = rng.integers(30, size=n)
    return centres[where] + widths[where] * rng.normal(size=(n, D))


def _recall(found: Numbers, expected: Numbers) -> float:
    common = [np.intersect1d(*pair).size for pair in zip(found, expected, strict=True)]
    return float(np.mean(common)) / expected.shape[1]


def _made_small(patch: pytest.MonkeyPatch) -> None:
    """Make few points many, and let cells be as small beside them."""
    small = {"_CELL_SIZE": 10, "_CELLS_SEARCHED": 64}
    for name, value in {**small, "_FLAT_TREE_FROM": 50_000}.items():
        patch.setattr(searches, name, value)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    _made_small(monkeypatch)


@pytest.mark.parametrize("points", [_uniform, _clustered])
def test_nearly_all_of_the_nearest_are_found_and_the_nearest_first(
    points: Callable[[int], Array],
) -> None:
    among, X = np.split(points(20_500), [20_000])
    index = Approximate.of(among)
    found = index.find_nearest(X, 65)
    assert _recall(found, Exact.of(among).find_nearest(X, 65)) >= 0.99
    distance = np.linalg.norm(among[found] - X[:, None], axis=2)
    assert (np.diff(distance, axis=1) >= 0.0).all()


def test_points_far_from_zero_and_in_large_units_lose_nothing() -> None:
    among, X = np.split(4e6 + 1e3 * _uniform(20_200), [20_000])
    found = Approximate.of(among).find_nearest(X, 20)
    assert _recall(found, Exact.of(among).find_nearest(X, 20)) >= 0.99


def test_an_input_very_far_away_finds_points_without_complaint() -> None:
    found = Approximate.of(_uniform(4_100)).find_nearest(np.full((1, 8), 1e200), 5)
    assert np.unique(found).size == 5


def _duplicated() -> Array:
    """Return 5,000 points: one 600 times, eighty 20 times each, and others once."""
    points = _clustered(5_000)
    points[:600] = points[0]
    points[600:2_200] = np.repeat(points[600:680], 20, axis=0)
    return points[np.random.default_rng(2).permutation(5_000)]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("count", [10, 64])
def test_others_are_as_near_as_can_be_and_never_the_point_itself(count: int) -> None:
    points, own = _duplicated(), np.arange(5_000)
    approximate = Nearest(Approximate.of(points), np.ones(8), count).find_others(points, own)
    exact = Nearest.of(points, np.ones(8), count).find_others(points, own)
    assert approximate.shape == (5_000, count)
    assert (approximate != own[:, None]).all()
    assert (approximate >= 0).all()
    assert (np.diff(np.sort(approximate, axis=1), axis=1) > 0).all()
    distances = [
        np.linalg.norm(points[found] - points[:, None], axis=2) for found in (approximate, exact)
    ]
    assert_allclose(*(each.mean() for each in distances), rtol=1e-3)
    assert np.mean(np.isclose(*distances, atol=1e-6)) >= 0.98


def test_others_without_a_point_that_the_search_missed() -> None:
    class Missing:
        n_points = 9

        def find_nearest(self, X: Array, count: int) -> Numbers:
            return np.tile(np.arange(count), (X.shape[0], 1))

    nearest = Nearest(Missing(), np.ones(1), 3)
    found = nearest.find_others(np.zeros((2, 1)), np.array([8, 1]))
    assert found.tolist() == [[0, 1, 2], [0, 2, 3]]


def test_few_distinct_points_still_give_as_many_as_asked_for() -> None:
    places = _uniform(3)
    points = np.repeat(places, 2_000, axis=0)
    found = Approximate.of(points).find_nearest(places[[0, 2]], 2_500)
    assert [np.unique(each).size for each in found] == [2_500, 2_500]
    next_one = np.argsort(np.linalg.norm(places - places[[0, 2], None], axis=2), axis=1)[:, 1]
    for each, own, other in zip(found // 2_000, (0, 2), next_one, strict=True):
        assert_array_equal(each, np.repeat([own, other], [2_000, 500]))


def test_what_is_not_in_the_nearest_cells_is_found_by_the_exact_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    among, X = np.split(_uniform(4_300), [4_200])
    complete = Approximate._search_cells

    def cut(self: Approximate, X: Array, count: int) -> Numbers:
        found = complete(self, X, count)
        found[::2, count // 2 :] = -1
        return found

    monkeypatch.setattr(Approximate, "_search_cells", cut)
    found = Approximate.of(among).find_nearest(X, 12)
    assert_array_equal(found[::2], Exact.of(among).find_nearest(X, 12)[::2])


@pytest.mark.parametrize("by", ["numba", "numpy", "torch"])
def test_neighbours_among_those_before(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    points = _clustered(700)
    points[40:60] = points[3]
    if by == "torch":
        there = pytest.importorskip("torch").as_tensor(points)
        monkeypatch.setattr(searches, "_PAIRS_ON_DEVICE", 100_000)
        found = searches._scan(there.T, there, there.new_tensor(range(700)), 12).numpy()
    else:
        if by == "numpy":
            monkeypatch.setattr(searches, "find_loops", lambda _: loops_numpy)
        found = find_nearest_before(points, 12)
    apart = np.linalg.norm(points[:, None] - points, axis=2)
    for i in range(700):
        nearest = np.sort(apart[i, :i])[:12]
        assert_allclose(apart[i, found[i, : nearest.size]], nearest, atol=1e-6)
        assert (found[i, nearest.size :] == -1).all()
        assert (found[i, : nearest.size] < i).all()
        assert np.unique(found[i, : nearest.size]).size == nearest.size
    if by == "numba":  # The others round distances, so that ties are broken by chance.
        assert_array_equal(found[45, :6], [3, 40, 41, 42, 43, 44])


def test_the_same_whenever_and_with_however_many_threads() -> None:
    import faiss

    among, X = np.split(_uniform(20_300), [20_000])
    first = Approximate.of(among)
    expected = first.find_nearest(X, 30)
    before = faiss.omp_get_max_threads()
    try:
        faiss.omp_set_num_threads(4)
        again = Approximate.of(among)
        assert faiss.omp_get_max_threads() == 4
        assert_array_equal(again.find_nearest(X, 30), expected)
    finally:
        faiss.omp_set_num_threads(before)
    one_by_one = np.vstack([first.find_nearest(x[None], 30) for x in X])
    assert_array_equal(one_by_one, expected)
    assert_array_equal(pickle.loads(pickle.dumps(first)).find_nearest(X, 30), expected)


def _kind(points: Array) -> type:
    return type(build_index(points))


def test_the_search_is_approximate_where_many_points_are_slow_to_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uniform, flat, many = _uniform(20_000), _uniform(20_000, 3), _uniform(20_000, 11)
    assert _kind(uniform) is Exact
    monkeypatch.setattr(searches, "_MANY_POINTS", 15_000)
    monkeypatch.setattr(searches, "_TREE_FROM", 15_000)
    assert _kind(uniform) is Approximate
    assert _kind(many) is Approximate
    assert _kind(flat) is Exact
    monkeypatch.setattr(searches, "find_spec", lambda name: None)
    assert _kind(uniform) is Exact


def _rows(n: int, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(n, 3))
    return X, np.sin(3.0 * X[:, 0]) * np.cos(2.0 * X[:, 1]) + X[:, 2] + 0.1 * rng.normal(size=n)


def _model() -> EigenGPRegressor:
    return EigenGPRegressor(
        8,
        residual="neighbors",
        n_neighbors=12,
        kernel="squared_exponential",
        optimizer=LBFGS(n_restarts=1, max_iter=2),
        random_state=0,
    )


@pytest.fixture(scope="module")
def fitted() -> dict[str, EigenGPRegressor]:
    with pytest.MonkeyPatch.context() as patch:
        _made_small(patch)
        exact = _model().fit(*_rows(4_500))
        patch.setattr(searches, "_MANY_POINTS", 4_096)
        return {"exact": exact, "approximate": _model().fit(*_rows(4_500))}


@pytest.mark.usefixtures("small")
def test_a_model_is_nearly_the_one_with_the_exact_search(
    fitted: dict[str, EigenGPRegressor],
) -> None:
    search = fitted["approximate"]._posterior.search
    assert isinstance(search.index, Approximate)
    X, y = _rows(300, seed=1)
    mean, std = fitted["exact"].predict(X, return_std=True)
    near_mean, near_std = fitted["approximate"].predict(X, return_std=True)
    assert np.abs(near_mean - mean).max() < 0.1 * std.min()
    assert_allclose(near_std, std, rtol=0.02)
    assert np.sqrt(np.mean((near_mean - y) ** 2)) < 0.2


@pytest.mark.usefixtures("small")
def test_a_model_is_the_same_when_it_is_fitted_again(
    fitted: dict[str, EigenGPRegressor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searches, "_MANY_POINTS", 4_096)
    X, _ = _rows(50, seed=1)
    again = clone(fitted["approximate"]).fit(*_rows(4_500))
    assert_array_equal(again.predict(X), fitted["approximate"].predict(X))


@pytest.mark.usefixtures("small")
def test_a_saved_model_answers_as_before_to_the_last_bit(
    fitted: dict[str, EigenGPRegressor], tmp_path: Path
) -> None:
    X, _ = _rows(200, seed=1)
    for name, model in fitted.items():
        model.save(tmp_path / f"{name}.eigengp")
        again = eigengp.load(tmp_path / f"{name}.eigengp")
        assert type(again._posterior.search.index) is type(model._posterior.search.index)
        for found, expected in zip(
            again.predict(X, return_std=True), model.predict(X, return_std=True), strict=True
        ):
            assert_array_equal(found, expected)


def test_what_needs_faiss_says_so(
    fitted: dict[str, EigenGPRegressor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.eigengp"
    fitted["approximate"].save(path)
    monkeypatch.setattr(searches, "find_spec", lambda name: None)
    needed = r'pip install "eigengp\[neighbors\]"'
    with pytest.raises(ImportError, match=needed):
        Approximate.of(_uniform(10))
    with pytest.raises(ImportError, match=f"model.eigengp: .*{needed}"):
        eigengp.load(path)
    monkeypatch.setattr(searches, "_MANY_POINTS", 4_096)
    assert isinstance(_model().fit(*_rows(100))._posterior.search.index, Exact)
