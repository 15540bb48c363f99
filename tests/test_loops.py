"""The loops over small sets of rows: NumPy and Numba agree, and either is found where it should."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import eigengp
from eigengp._typing import Array
from eigengp.backend import loops, loops_numpy
from eigengp.gp import exact
from eigengp.gp.blocks import RowBlock
from eigengp.gp.exact import ExactGP
from eigengp.kernels import (
    Additive,
    Kernel,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    SquaredExponential,
    Stationary,
)
from eigengp.kernels.composite import KernelProduct, LoopColumns, describe_terms

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
    found = {"t": np.empty((n, P))}
    first, second = np.triu_indices(s)
    own.measure_distances(X, per_length, found["t"])
    K = np.zeros((n, P))
    K[:, first == second] = 1.0 + 2.0 * M * s
    noise, members = rng.uniform(0.1, 0.2, (n, s)), np.array(at)
    members[:, : s // 2] = np.where(rng.uniform(size=(n, s // 2)) < 0.3, -1, at[:, : s // 2])
    found["L"], found["w"], found["kappa"] = K.copy(), np.empty((n, s)), np.empty((n, M))
    outputs = (found["w"], found["kappa"])
    assert own.whiten(found["L"], table, members, table[:0], noise, 0.5, *outputs) == -1
    for name, dtype in (("apart", np.float64), ("rounded", np.float32)):
        G, last = table.astype(dtype), table[at[:, -1]].astype(dtype)
        outputs = (np.empty((n, s)), np.empty((n, M), dtype))
        others, L = np.ascontiguousarray(members[:, :-1]), K.astype(dtype)
        assert own.whiten(L, G, others, last, noise, 0.5, *outputs) == -1
        found |= dict(zip((f"w {name}", f"kappa {name}"), outputs, strict=True))
    near = np.empty((n, 6), dtype=np.intp)
    limit = np.arange(n) + 2
    own.find_nearest(
        X[:, 0].copy(), np.ascontiguousarray(table[:, :1].repeat(4, axis=1).T), limit, near
    )
    found["near"] = near.astype(float)
    V, left, right = (rng.normal(size=each).astype(np.float32) for each in ((n, s), (3, n), (3, s)))
    rows, found["columns"] = np.empty((3, n), np.float32), np.ones((3, s), np.float32)
    own.multiply_block(V, left, right, rows, found["columns"])
    found["rows"] = rows
    for m in {s, max(1, s - 1)}:
        for transposed in (False, True):
            found[f"solved {m} {transposed}"] = x = w[:, :m].copy()
            own.solve(found["L"], x, transposed)
    return found


@pytest.mark.parametrize(("n", "s", "M"), SIZES)
def test_compiled_loops_agree_with_numpy(compiled: ModuleType, n: int, s: int, M: int) -> None:
    fast, plain = _everything(compiled, n, s, M), _everything(loops_numpy, n, s, M)
    for name, expected in plain.items():
        scale = np.abs(expected).max(initial=0.0)
        rounding = 1e-6 if expected.dtype == np.float32 or "rounded" in name else 1e-12
        assert_allclose(fast[name], expected, rtol=0, atol=rounding * scale, err_msg=name)


@pytest.mark.parametrize("count", [1, 7, 64, 600])
def test_of_equally_distant_points_the_earlier_are_nearer(compiled: ModuleType, count: int) -> None:
    rng = np.random.default_rng(0)
    points = rng.integers(0, 12, (2, 9_000)).astype(float)  # More than are scanned at once.
    X, limit = points[:, :30].T.copy(), np.full(30, 9_000)
    limit[:9] = 0, 1, 2, 6, 511, 512, 513, 8_192, 8_193
    found = np.empty((30, count), dtype=np.intp)
    compiled.find_nearest(X, points, limit, found)
    for x, last, own in zip(X, limit, found, strict=True):
        order = np.argsort(((points[:, :last].T - x) ** 2).sum(axis=1), kind="stable")[:count]
        assert own.tolist() == order.tolist() + [-1] * (count - order.size)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_loops_take_arrays_of_torch(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    as_tensor = pytest.importorskip("torch").as_tensor
    monkeypatch.setattr(loops_numpy, "_GATHERED_ON_DEVICE", 100)  # In several parts.
    rng, (n, s, M) = np.random.default_rng(0), SIZES[2]
    X, noise, G = rng.normal(size=(n, s, 3)), rng.uniform(0.1, 0.2, (n, s)), rng.normal(size=(9, M))
    G, at = (0.2 * G).astype(dtype), rng.integers(-1, 9, (n, s - 1))
    kernel = SquaredExponential(np.array([1.0, 2.0, 0.5])) + Periodic(active_dims=[1])
    K, results = kernel.stack(X) + 2.0, []
    assert_allclose(kernel.stack(as_tensor(X)), kernel.stack(X), atol=1e-14)
    for to in (np.array, as_tensor):
        w, kappa = to(np.empty((n, s))), to(np.empty((n, M), dtype))
        R, x = to(K.copy()), to(noise.copy())
        given = (to(each) for each in (G, at, G[:n], noise))
        assert loops_numpy.whiten(R, *given, 0.5, w, kappa) == -1
        loops_numpy.solve(R, x, False)
        results.append((R, w, kappa, x))
    for here, there in zip(*results, strict=True):
        assert_allclose(there, here, atol=1e-12 if dtype == "float64" else 1e-5)
    R = as_tensor(np.full((1, 3), np.nan))
    own, none = as_tensor(np.zeros((1, 2))), as_tensor(np.zeros((1, 2), np.int64))
    assert loops_numpy.whiten(R, own, none, own[:0], own, 0.0, own.clone(), own.clone()) >= 0


def test_loops_are_what_they_say() -> None:
    n, s, M = SIZES[2]
    found, (first, second) = _everything(loops_numpy, n, s, M), np.triu_indices(s)
    rng = np.random.default_rng(s)
    table, at = rng.normal(size=(40, M)), rng.integers(0, 40, (n, s))
    X, per_length, w = rng.normal(size=(n, s, 4)), rng.uniform(0.5, 2.0, 4), rng.normal(size=(n, s))
    noise, there = rng.uniform(0.1, 0.2, (n, s)), np.ones((n, s), dtype=bool)
    there[:, : s // 2] = rng.uniform(size=(n, s // 2)) >= 0.3
    G = table[at] * there[:, :, None]
    R = (1.0 + 2.0 * M * s) * 1.5 * np.eye(s) - G @ G.transpose(0, 2, 1)
    R += noise[:, :, None] * np.eye(s)
    R = np.where(there[:, :, None] & there[:, None], R, np.eye(s))
    L = np.zeros((n, s, s))
    L[:, second, first] = found["L"]
    assert_allclose(L @ L.transpose(0, 2, 1), R, atol=1e-9)
    e = np.eye(s)[:, -1:]
    assert_allclose(found["w"], np.linalg.solve(L.transpose(0, 2, 1), e)[:, :, 0], atol=1e-12)
    assert_allclose(found["kappa"], np.einsum("ns,nsm->nm", found["w"], G), atol=1e-12)
    assert_allclose(found["kappa apart"], found["kappa"], atol=1e-12)
    squares = ((X[:, first] - X[:, second]) * per_length) ** 2
    assert_allclose(found["t"], squares.sum(axis=2), atol=1e-12)
    assert_allclose(found[f"solved {s} False"], np.linalg.solve(L, w[:, :, None])[:, :, 0])


def test_a_matrix_without_a_factor_is_named(compiled: ModuleType) -> None:
    at, w, kappa = np.zeros((2, 2), dtype=np.intp), np.empty((2, 2)), np.empty((2, 1))
    for own in (compiled, loops_numpy):
        for R in (np.array([[2.0, 0.5, 1.0], [1.0, 2.0, 1.0]]), np.full((2, 3), np.nan)):
            G = np.zeros((1, 1))
            assert own.whiten(R, G, at, G[:0], np.zeros((2, 2)), 0.0, w, kappa) >= 0


@pytest.mark.parametrize(
    "kernel",
    [SquaredExponential(), Matern12(), Matern32(), Matern52(), RationalQuadratic(alpha=0.7)],
    ids=repr,
)
def test_compiled_profiles_are_those_of_the_kernels(
    compiled: ModuleType, kernel: Stationary
) -> None:
    t = np.concatenate([[0.0, 1e-300, 1e-9], np.geomspace(1e-6, 1e4, 200), [1e9, 1e300]])
    terms: Any = describe_terms(kernel, 1)
    per_length, known = terms
    X, zero = np.sqrt(t)[:, None], np.zeros((t.size, 1))
    at, rho = np.arange(t.size)[:, None], np.empty((t.size, 3))
    compiled.fill_stack(X, at, zero, per_length, known, rho)
    assert_allclose(rho[:, 1], kernel.profile(t), rtol=1e-12, atol=1e-290)
    rounded = rho[:-2].astype(np.float32)
    compiled.fill_stack(X, at[:-2], zero[:-2], per_length, known.astype(np.float32), rounded)
    assert_allclose(rounded, rho[:-2], rtol=2e-5, atol=1e-30)
    near = t[:-2] < 10.0
    assert_allclose(rounded[near], rho[:-2][near], rtol=1e-6)


@pytest.mark.parametrize("last", ["a row", "apart", "far"])
def test_stacks_keep_the_digits_of_points_that_are_near_each_other(
    compiled: ModuleType, last: str
) -> None:
    kernel = Matern32([0.5, 2.0], 1.3) + RationalQuadratic(alpha=9.0, active_dims=[1])
    rng = np.random.default_rng(0)
    X, at = 1e3 + rng.normal(size=(30, 2)), rng.integers(0, 30, (3, 20))
    points = X[at]
    if last == "far":
        points[:, -1] = 1e9
    given = (at, None) if last == "a row" else (at[:, :-1].copy(), points[:, -1].copy())
    columns: Any = LoopColumns.of(kernel.at(X))
    exact, rounded = (columns.stack(X, *given, dtype) for dtype in ("float64", "float32"))
    assert_allclose(exact, kernel.stack(points), rtol=1e-12)
    assert rounded.dtype == np.float32
    assert_allclose(rounded, exact, rtol=0, atol=2e-6)


def test_loops_know_stationary_kernels_and_their_sums_alone(compiled: ModuleType) -> None:
    rng = np.random.default_rng(0)
    kernel, X, Z = Matern32([0.5, 2.0], 1.3) + Matern12(), rng.normal(size=(9, 2)), np.eye(2)
    columns = LoopColumns.of(kernel.at(Z))
    assert columns is not None
    assert_allclose(columns.matrix(np.asfortranarray(X)), kernel.matrix(X, Z), rtol=1e-13)
    assert LoopColumns.of((kernel + Periodic()).at(Z)) is None
    assert LoopColumns.of((kernel * Matern12()).at(Z)) is None


@pytest.mark.parametrize("n_points", [700, 4_000])
@pytest.mark.parametrize(
    "kernel",
    [
        SquaredExponential(0.7, 1.3),
        Matern52([1.0, 0.8, 2.0]) + RationalQuadratic([0.5, 2.0], alpha=0.7, active_dims=[2, 0]),
        Matern12(0.9) + Matern32([2.0, 1.0, 1.0], 0.4) + SquaredExponential(1.5),
        Additive(0.8, 1.3) + Additive([1.0, 2.0], groups=[0, 0], active_dims=[2, 0]),
    ],
    ids=repr,
)
def test_products_need_no_matrix_and_are_rounded_where_that_is_far_below_the_noise(
    compiled: ModuleType, kernel: Kernel, n_points: int
) -> None:
    rng = np.random.default_rng(0)
    X, Z, v = (rng.normal(size=size) for size in ((40, 3), (n_points, 3), n_points))
    expected, terms = kernel.matrix(X, Z) @ v, describe_terms(kernel, 3)
    assert terms is not None
    for noise, atol in ((1e-9, 1e-10), (1.0, 2e-4)):
        found = KernelProduct(terms, Z, v, noise)(X)
        assert_allclose(found, expected, atol=atol)
        exact = noise < 1.0 or n_points < 4_000
        assert (np.abs(found - expected).max() < 1e-10) == exact


def test_products_are_in_float64_where_float32_has_a_systematic_error(
    compiled: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    kernel, X, Z = Matern52(0.8), rng.normal(size=(40, 2)), rng.normal(size=(4_000, 2))
    v, multiply = rng.normal(size=4_000), KernelProduct._multiply

    def shifted(self: KernelProduct, X: Array, dtype: type) -> Array:
        return multiply(self, X, dtype) + (0.1 if dtype is np.float32 else 0.0)

    monkeypatch.setattr(KernelProduct, "_multiply", shifted)
    terms = describe_terms(kernel, 2)
    assert terms is not None
    found = KernelProduct(terms, Z, v, 1.0)(X)
    assert_allclose(found, kernel.matrix(X, Z) @ v, atol=1e-10)


def test_without_compiled_loops_no_memory_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "find_loops", lambda _: loops_numpy)
    X = np.arange(4.0)[:, None]
    rows, plain = RowBlock(X, X[:, 0]), ExactGP(Matern52(), 0.1)
    expected = plain.forward(rows).value
    monkeypatch.delattr(exact, "make_buffer")
    assert replace(plain, compiled=True).forward(rows).value == expected


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
