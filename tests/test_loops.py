"""The loops over small sets of rows: NumPy and Numba agree, and either is found where it should."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.testing import assert_allclose

import eigengp
from eigengp._typing import Array
from eigengp.backend import loops, loops_numpy

pytestmark = pytest.mark.core

SIZES = [(1, 1, 3), (7, 3, 5), (5, 16, 9), (3, 31, 50)]


@pytest.fixture(scope="module")
def compiled() -> ModuleType:
    pytest.importorskip("numba")
    loops.load_loops.cache_clear()
    return loops.load_loops()


def _everything(own: ModuleType, n: int, s: int, M: int) -> dict[str, Array]:
    """Return the results of all functions for the same random arguments."""
    rng = np.random.default_rng(s)
    N, P = 40, s * (s + 1) // 2
    table, at = rng.normal(size=(N, M)), rng.integers(0, N, (n, s))
    X, per_length, w = rng.normal(size=(n, s, 4)), rng.uniform(0.5, 2.0, 4), rng.normal(size=(n, s))
    for each in (table, at, X, per_length, w):
        each.flags.writeable = False  # Kernels and rows may be read-only.
    found = {"t": np.empty((n, P)), "R": np.zeros((n, P)), "outer": np.empty((n, P))}
    own.measure_distances(X, per_length, found["t"])
    found["squares"] = own.sum_squares(found["t"] - 1.0, X, per_length)
    own.subtract_products(table, at, found["R"])
    found["part"] = np.zeros((n, P))
    own.subtract_products(table, np.ascontiguousarray(at[:, : max(1, s - 1)]), found["part"])
    first, second = np.triu_indices(s)
    found["L"] = (first == second) * (1.0 + 2.0 * M * s) - found["R"]
    assert own.factorize(found["L"]) == -1
    for m in {s, max(1, s - 1)}:
        for transposed in (False, True):
            found[f"solved {m} {transposed}"] = x = w[:, :m].copy()
            own.solve(found["L"], x, transposed)
    found["combined"], found["projected"] = np.empty((n, M)), np.empty((n, s))
    own.combine(w, table, at, found["combined"])
    own.project(table, at, found["combined"], found["projected"])
    order = np.argsort(at.ravel(), kind="stable")
    starts = np.searchsorted(at.ravel()[order], np.arange(N + 1))
    found["spread"] = np.ones((N - 10, M))
    own.spread(starts[10:], order // s, w.ravel()[order], found["combined"], found["spread"])
    own.pack_outer(w, found["projected"], found["outer"])
    return found


@pytest.mark.parametrize(("n", "s", "M"), SIZES)
def test_compiled_loops_agree_with_numpy(compiled: ModuleType, n: int, s: int, M: int) -> None:
    fast, plain = _everything(compiled, n, s, M), _everything(loops_numpy, n, s, M)
    for name, expected in plain.items():
        scale = np.abs(expected).max()
        assert_allclose(fast[name], expected, rtol=0, atol=1e-12 * scale, err_msg=name)


def test_loops_are_what_they_say() -> None:
    n, s, M = SIZES[2]
    found, (first, second) = _everything(loops_numpy, n, s, M), np.triu_indices(s)
    L = np.zeros((n, s, s))
    L[:, second, first] = found["L"]
    R = (first == second) * (1.0 + 2.0 * M * s) - found["R"]
    assert_allclose((L @ L.transpose(0, 2, 1))[:, first, second], R, rtol=1e-12)
    rng = np.random.default_rng(s)
    table, at = rng.normal(size=(40, M)), rng.integers(0, 40, (n, s))
    X, per_length, w = rng.normal(size=(n, s, 4)), rng.uniform(0.5, 2.0, 4), rng.normal(size=(n, s))
    squares = ((X[:, first] - X[:, second]) * per_length) ** 2
    assert_allclose(found["t"], squares.sum(axis=2), atol=1e-12)
    assert_allclose(found["squares"], np.einsum("np,npd->d", found["t"] - 1.0, squares))
    members = table[at]
    assert_allclose(found["R"], -np.einsum("npm,npm->np", members[:, first], members[:, second]))
    assert_allclose(found["combined"], np.einsum("ns,nsm->nm", w, members), atol=1e-12)
    assert_allclose(found["projected"], np.einsum("nsm,nm->ns", members, found["combined"]))
    assert_allclose(found[f"solved {s} False"], np.linalg.solve(L, w[:, :, None])[:, :, 0])
    spread = np.ones((40, M))
    np.add.at(spread, at, w[:, :, None] * found["combined"][:, None, :])
    assert_allclose(found["spread"], spread[10:], atol=1e-12)
    p = found["projected"]
    outer = w[:, first] * p[:, second] + p[:, first] * w[:, second]
    assert_allclose(found["outer"], np.where(first == second, 0.5, 1.0) * outer, atol=1e-12)


def test_a_matrix_without_a_factor_is_named(compiled: ModuleType) -> None:
    for own in (compiled, loops_numpy):
        R = np.array([[2.0, 0.5, 1.0], [1.0, 2.0, 1.0]])
        assert own.factorize(R) >= 0
        assert own.factorize(np.full((1, 3), np.nan)) >= 0


def test_without_numba_numpy_takes_its_place_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "eigengp.backend.loops_numba", raising=False)
    loops.load_loops.cache_clear()
    with caplog.at_level(logging.INFO, "eigengp"):
        assert loops.load_loops() is loops_numpy
    assert "slower" in caplog.text
    loops.load_loops.cache_clear()


def test_numba_is_not_imported_before_it_is_needed() -> None:
    code = "import sys, eigengp; eigengp.EigenGPRegressor; print('numba' in sys.modules)"
    source = str(Path(eigengp.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("error", [ImportError("none"), OSError("disk full"), EOFError("damaged")])
def test_loops_that_cannot_be_compiled_are_those_of_numpy(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr(loops, "import_module", fail)
    loops.load_loops.cache_clear()
    try:
        assert loops.load_loops() is loops_numpy
    finally:
        loops.load_loops.cache_clear()
    assert "slower without compiled loops" in caplog.text
