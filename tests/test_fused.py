"""The fused passes are the plain ones; without a GPU they run in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eigengp import Matern12, Matern32, Matern52, RationalQuadratic, SquaredExponential
from eigengp.gp import precision
from eigengp.gp.approximations import PlainRows
from eigengp.gp.blocks import RowBlock
from eigengp.gp.evidence import PriorEvidence
from eigengp.gp.gpu.fused import Fused, fused_for
from eigengp.gp.linalg import CholeskyFactor
from eigengp.gp.sums import SumsAdjoint
from eigengp.kernels import Stationary
from eigengp.kernels.stationary import StationaryColumns

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("triton_loops")

RNG = np.random.default_rng(0)
N, D, M = 256, 3, 9
X = RNG.normal(size=(N, D)).astype(np.float32).astype(np.float64)
y = np.sin(X[:, 0]).astype(np.float32).astype(np.float64)
WEIGHT = RNG.uniform(0.5, 2.0, size=N).astype(np.float32).astype(np.float64)
LENGTHS = np.array([1.0, 2.0, 0.7])
KERNELS: list[Stationary] = [
    SquaredExponential(LENGTHS, 1.7),
    Matern12(LENGTHS, 0.6),
    Matern32(LENGTHS),
    Matern52(LENGTHS),
]


def fused(kernel: Stationary) -> Fused:
    columns = kernel.at(X[:M] + 0.1)
    assert isinstance(columns, StationaryColumns)
    return Fused(columns)


def tensors(weighted: bool) -> tuple[Any, Any, Any]:
    own = torch.asarray(WEIGHT, dtype=torch.float32) if weighted else None
    return torch.asarray(X, dtype=torch.float32), torch.asarray(y, dtype=torch.float32), own


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
@pytest.mark.parametrize("weighted", [False, True])
def test_fused_passes_are_the_plain_ones(kernel: Stationary, weighted: bool) -> None:
    rows = PlainRows(kernel.at(X[:M] + 0.1))
    block = RowBlock(X, y, WEIGHT if weighted else None)
    sums = rows.sums(block).on_host()
    A, b = fused(kernel).sums(*tensors(weighted))
    np.testing.assert_allclose(A.numpy(), sums.A, rtol=0.0, atol=1e-5 * sums.A.max())
    np.testing.assert_allclose(b.numpy(), sums.b, rtol=0.0, atol=1e-5 * np.abs(sums.b).max())

    prior = CholeskyFactor.of(kernel(X[:M] + 0.1) + 1e-6 * np.eye(M))
    bar = PriorEvidence(sums, 1.0, 0.1, prior).sums_adjoint()
    expected = rows.pull_back(block, bar)
    found = fused(kernel).pull_back(*tensors(weighted), bar.about)
    for name in ("theta", "points"):
        known = getattr(expected, name)
        own = getattr(found, name).numpy()
        np.testing.assert_allclose(own, known, rtol=0.0, atol=2e-4 * np.abs(known).max())


def test_rows_with_small_targets_among_larger_ones_lose_nothing() -> None:
    kernel = KERNELS[0]
    rows = PlainRows(kernel.at(X[:M] + 0.1))
    sums = rows.sums(RowBlock(X, y)).on_host()
    prior = CholeskyFactor.of(kernel(X[:M] + 0.1) + 1e-6 * np.eye(M))
    bar = PriorEvidence(sums, 1.0, 1e-3, prior).sums_adjoint()
    assert bar.target_scale == pytest.approx(np.sqrt(np.mean(y**2)))
    expected = rows.pull_back(RowBlock(X, 0.0 * y), bar)
    inputs, targets, _ = tensors(weighted=False)
    found = fused(kernel).pull_back(inputs, 0.0 * targets, None, bar.about, 2, bar.target_scale)
    scale = np.abs(expected.theta).max()
    np.testing.assert_allclose(found.theta.numpy(), expected.theta, rtol=0.0, atol=1e-4 * scale)


@pytest.mark.parametrize(
    ("scatter", "residual_scatter", "pieces"), [(0.01, 1.0, 1), (10.0, 1.0, 2), (0.01, 1e4, 0)]
)
def test_a_fused_pull_back_is_not_used_where_its_residuals_would_be_rounded(
    scatter: float, residual_scatter: float, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"rounding": 1.0, "scatter": scatter, "residual_scatter": residual_scatter}
    for name, value in found.items():
        monkeypatch.setattr(precision, f"measure_{name}", lambda *_, value=value: value)
    sums = PlainRows(KERNELS[0].at(X[:M])).sums(RowBlock(X, y))
    bar = SumsAdjoint(np.eye(M), np.ones(M), 0.5, -0.5)
    assert precision.choose_pull_back(bar, sums, 1.0) == ("float32", pieces)


def test_the_fused_passes_are_for_float32_on_cuda_alone() -> None:
    features = KERNELS[0].at(X[:M])
    assert fused_for(features, X, "float32") is None
    assert fused_for(features, torch.asarray(X), "float32") is None


def test_rows_that_fill_no_block_take_the_general_path(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = KERNELS[0]
    general = PlainRows(kernel.at(X[:M]), "float32", "float32", pieces=2)
    rows, weight = np.vstack([X, X[:37] + 0.5]), np.linspace(0.5, 2.0, N + 37)
    block = RowBlock(torch.asarray(rows), torch.asarray(rows[:, 0]), torch.asarray(weight))
    bar = SumsAdjoint(np.eye(M), np.ones(M), 0.5, -0.5, 0.1 * np.ones(M))
    expected = general.sums(block).on_host(), general.pull_back(block, bar).on_host()
    columns = kernel.at(X[:M])
    assert isinstance(columns, StationaryColumns)
    monkeypatch.setattr(
        "eigengp.gp.approximations.fused_for",
        lambda _, rows, dtype: Fused(columns) if dtype == "float32" else None,
    )
    found = general.sums(block).on_host(), general.pull_back(block, bar).on_host()
    for own, known in zip(found, expected, strict=True):
        for name, value in vars(known).items():
            scale = max(1.0, float(np.abs(value).max()))
            np.testing.assert_allclose(getattr(own, name), value, rtol=0.0, atol=1e-4 * scale)


def test_the_block_is_that_of_the_kernels() -> None:
    launch = pytest.importorskip("eigengp.gp.gpu.triton_launch")
    assert Fused.whole(launch.ROWS - 1) == 0
    assert Fused.whole(2 * launch.ROWS + 5) == 2 * launch.ROWS


class OnCuda:
    """Looks like rows on a GPU."""

    is_cuda = True
    shape = (N, D)


def test_kernels_and_precisions_that_have_no_fused_passes_take_the_general_ones() -> None:
    features = KERNELS[0].at(X[:M])
    assert fused_for(features, OnCuda(), "float32") is not None
    assert fused_for(features, OnCuda(), "float64") is None
    for kernel in (RationalQuadratic(LENGTHS), KERNELS[0] + KERNELS[1]):
        assert fused_for(kernel.at(X[:M]), OnCuda(), "float32") is None
