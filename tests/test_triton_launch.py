"""The fused kernels against the formulas in float64; without a GPU, in Triton's interpreter."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="the fused kernels need PyTorch")
CUDA = torch.cuda.is_available()
launch = pytest.importorskip("eigengp.gp.gpu.triton_launch", reason="the fused kernels need Triton")
SLOPES, Pulled, Tiling = launch.SLOPES, launch.Pulled, launch.Tiling

Array = NDArray[np.float64]
SMALL = Tiling(rows=32, basis=32, inner=16, warps=4, programs=6)
ACCURACY = 3e-6


pytestmark = pytest.mark.usefixtures("triton_loops")


class Problem(NamedTuple):
    X: Array
    y: Array
    weight: Array | None
    Z: Array
    C: Array
    g: Array
    mean: Array

    def tensors(self) -> list[Any]:
        """The rows and inducing points as the kernels take them."""
        arrays = (self.X, self.y, self.weight, self.Z)
        return [None if a is None else _tensor(a, torch.float32) for a in arrays]

    def sums(self, profile: str, tiling: Tiling | None = None) -> tuple[Array, ...]:
        fused = launch.sums(*self.tensors(), profile, tiling)
        return tuple(a.cpu().numpy() for a in fused)

    def pull_back(self, profile: str, tiling: Tiling | None = None) -> Pulled:
        bars = (_tensor(a, torch.float64) for a in (self.C, self.g, self.mean))
        fused = launch.pull_back(*self.tensors(), profile, *bars, tiling)
        return Pulled(*(a.cpu().numpy() for a in fused))


def _tensor(a: Array, dtype: Any) -> Any:
    return torch.as_tensor(a, dtype=dtype, device="cuda" if CUDA else "cpu")


def _float32(a: Array) -> Array:
    return a.astype(np.float32).astype(np.float64)


def _problem(
    N: int, M: int, D: int, *, weighted: bool = False, lengthscale: float | None = None
) -> Problem:
    rng = np.random.default_rng(7)

    def float32(*shape: int) -> Array:
        return _float32(rng.normal(size=shape))

    scale = lengthscale or np.sqrt(D)
    X, y, Z, s = float32(N, D), float32(N), float32(M, D), float32(N)
    C = rng.normal(size=(M, M))
    weight = _float32(s * s) if weighted else None
    g, mean = rng.normal(size=M), 0.2 * rng.normal(size=M)
    return Problem(_float32(X / scale), y, weight, _float32(Z / scale), C + C.T, g, mean)


def _features(X: Array, Z: Array, profile: str) -> tuple[Array, Array]:
    """Return `ρ` and `ρ'`, both (N, M)."""
    t = ((X[:, None, :] - Z[None, :, :]) ** 2).sum(axis=2)
    if profile == "squared_exponential":
        return np.exp(-t / 2), -np.exp(-t / 2) / 2
    r = np.sqrt(t)
    if profile == "matern12":
        rho = np.exp(-r)
        return rho, np.where(r > 1e-6, -rho / (2 * np.maximum(r, 1e-6)), 0.0)
    if profile == "matern32":
        s = np.sqrt(3) * r
        return (1 + s) * np.exp(-s), -1.5 * np.exp(-s)
    s = np.sqrt(5) * r
    return (1 + s + s**2 / 3) * np.exp(-s), -5 / 6 * (1 + s) * np.exp(-s)


def _sums(p: Problem, profile: str) -> tuple[Array, Array]:
    rho, _ = _features(p.X, p.Z, profile)
    s = np.ones_like(p.y) if p.weight is None else p.weight
    return rho.T @ (s[:, None] * rho), rho.T @ (s * p.y)


def _pull_back(p: Problem, profile: str) -> tuple[Pulled, Pulled]:
    """Return the sums over `T`, and the same with all terms made positive."""
    rho, slope = _features(p.X, p.Z, profile)
    s = np.ones_like(p.y) if p.weight is None else p.weight
    rho_bar = s[:, None] * (rho @ p.C + np.outer(p.y - rho @ p.mean, p.g))
    return _pulled(rho_bar * slope, rho_bar * rho, p.X), _pulled(
        np.abs(rho_bar * slope), np.abs(rho_bar * rho), np.abs(p.X)
    )


def _pulled(T: Array, products: Array, X: Array) -> Pulled:
    return Pulled(T.sum(axis=0), T.T @ X, T.sum(axis=1) @ X**2, products.sum())


def _check(
    p: Problem, profile: str, tiling: Tiling | None = None, accuracy: float = ACCURACY
) -> None:
    """Compare everything, relative to the largest sum of sizes of terms."""
    A, b = p.sums(profile, tiling)
    assert np.array_equal(A, A.T)
    sums, (pulled, sizes) = _sums(p, profile), _pull_back(p, profile)
    _, size_of_b = _sums(p._replace(y=np.abs(p.y)), profile)
    for found, expected, size in zip(
        (A, b, *p.pull_back(profile, tiling)),
        (*sums, *pulled),
        (sums[0], size_of_b, *sizes),
        strict=True,
    ):
        assert found.dtype == np.float64
        assert found.shape == np.shape(expected)
        assert np.abs(found - expected).max() <= accuracy * np.max(size)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("profile", SLOPES)
def test_every_profile_matches_the_formulas(profile: str, weighted: bool) -> None:
    _check(_problem(96, 30, 8, weighted=weighted), profile, SMALL)


@pytest.mark.parametrize(
    ("M", "D"), [(1, 1), (1, 17), (5, 3), (16, 8), (32, 16), (70, 1), (40, 17)]
)
def test_any_number_of_basis_points_and_inputs(M: int, D: int) -> None:
    _check(_problem(64, M, D, weighted=True), "matern32", SMALL)


@pytest.mark.parametrize(("M", "D"), [(5, 3), (100, 8), (130, 8), (70, 40)])
def test_the_default_tilings(M: int, D: int) -> None:
    _check(_problem(384, M, D), "squared_exponential")


def test_blocks_are_flushed_and_dealt_out_to_programs() -> None:
    _check(_problem(608, 20, 2), "matern52", SMALL._replace(flush=256, programs=2), accuracy=1e-6)


def test_large_cotangents_that_cancel_keep_their_digits() -> None:
    """A thousandth of the terms remains, of which float32 products keep no more."""
    p = _problem(416, 30, 2, lengthscale=2.0)
    rho, _ = _features(p.X, p.Z, "squared_exponential")
    K, _ = _features(p.Z, p.Z, "squared_exponential")
    C = np.linalg.inv(rho.T @ rho / 0.1 + K + 1e-4 * np.eye(30)) * 1e4
    p = p._replace(C=C, g=-C @ (rho.T @ p.y) / 0.1)
    assert np.abs(C).max() > 1e5
    _check(p, "squared_exponential", SMALL, accuracy=2e-5)


def test_short_lengthscales_keep_their_digits() -> None:
    """`|x|² + |z|² − 2 x·z` in float32 would be off by 2e-3 here."""
    p = _problem(224, 20, 3, lengthscale=0.01)
    p = p._replace(Z=_float32(p.X[:20] + 0.25))
    _check(p, "squared_exponential", SMALL, accuracy=1e-4)


@pytest.mark.parametrize("D", [4, 64])
@pytest.mark.parametrize("profile", SLOPES)
def test_rows_at_and_far_from_the_basis_points(profile: str, D: int) -> None:
    p = _problem(96, 20, D)
    p.X[:20], p.X[20:30], p.X[30:40, 0] = p.Z, 1e6, -1e30
    rough = profile in ("matern12", "matern32")  # `√t` of equal points is about 1e-4
    _check(p, profile, SMALL, accuracy=5e-5 if rough else ACCURACY)


def test_rows_without_weight_do_not_count() -> None:
    p = _problem(128, 20, 2)
    half = p._replace(weight=(np.arange(128) % 2).astype(np.float64))
    kept = Problem(p.X[1::2], p.y[1::2], None, *p[3:])
    for found, expected in zip(half.sums("matern52", SMALL), _sums(kept, "matern52"), strict=True):
        np.testing.assert_allclose(found, expected, atol=ACCURACY * np.abs(expected).max())
    nothing = p._replace(weight=np.zeros(128))
    assert not any(np.any(a) for a in nothing.sums("matern52", SMALL))
    assert not any(np.any(a) for a in nothing.pull_back("matern52", SMALL))


def test_the_same_rows_give_the_same_bits() -> None:
    p = _problem(128, 40, 3, weighted=True)
    first, second = ([*p.sums("matern32", SMALL), *p.pull_back("matern32", SMALL)] for _ in "ab")
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_no_cotangents_give_nothing() -> None:
    p = _problem(64, 6, 2)
    pulled = p._replace(C=np.zeros((6, 6)), g=np.zeros(6)).pull_back("matern12", SMALL)
    assert not any(np.any(a) for a in pulled)


def test_shorter_sums_keep_more_digits() -> None:
    p = _problem(224, 40, 3, weighted=True)
    expected, _ = _sums(p, "matern52")
    long, short = (
        np.abs(p.sums("matern52", tiling)[0] - expected).max() / expected.max()
        for tiling in (SMALL, SMALL._replace(flush=128))
    )
    assert short < long < ACCURACY


def test_one_piece_of_a_feature_scatters_about_the_truth() -> None:
    p = _problem(384, 40, 3)
    expected, sizes = _pull_back(p, "squared_exponential")
    exact, coarse = (
        p.pull_back("squared_exponential", SMALL._replace(pieces=pieces)) for pieces in (2, 1)
    )
    errors = [np.abs(each.TX - expected.TX).max() / sizes.TX.max() for each in (exact, coarse)]
    assert errors[0] < ACCURACY < errors[1] < 1e-4


def test_many_rows_are_summed_in_longer_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    p = _problem(384, 20, 3)
    few, _ = p.sums("matern52")
    monkeypatch.setattr(launch, "MANY_ROWS", 384)
    many, _ = p.sums("matern52")
    assert not np.array_equal(few, many)
    np.testing.assert_allclose(many, few, rtol=1e-5)


def test_rows_that_would_be_read_wrongly_are_refused() -> None:
    X, y, _, Z = _problem(100, 3, 2).tensors()
    with pytest.raises(ValueError, match="100 rows do not fill blocks of 64"):
        launch.sums(X, y, None, Z, "matern12")
    with pytest.raises(ValueError, match="contiguous float32"):
        launch.sums(X.double(), y, None, Z, "matern12")
    with pytest.raises(ValueError, match="contiguous float32"):
        launch.pull_back(X.T.contiguous().T, y, None, Z, "matern12", None, None, None)


@pytest.mark.parametrize("M", [1, 64, 65, 128, 129, 1024])
@pytest.mark.parametrize("D", [1, 8, 9, 28, 29, 64])
def test_the_blocks_of_every_tiling_fill_the_rows_that_are_promised(M: int, D: int) -> None:
    assert all(launch.ROWS % tiling.rows == 0 for tiling in launch.tiling_for(M, D))
