"""Both passes over plain rows on a CUDA GPU, each in one kernel that keeps features on the chip.

The general path writes every feature to the GPU's memory and reads it several
times; here they never leave the registers. The sums are the same, so whatever
can be said of the general path holds, up to the rounding of float32.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

from eigengp.backend.namespace import AnyArray, Placed, is_numpy
from eigengp.kernels import (
    KernelAdjoint,
    KernelColumns,
    Matern12,
    Matern32,
    Matern52,
    SquaredExponential,
)
from eigengp.kernels.stationary import StationaryColumns

_PROFILES: dict[type, str] = {
    SquaredExponential: "squared_exponential",
    Matern12: "matern12",
    Matern32: "matern32",
    Matern52: "matern52",
}
_MOST_POINTS, _MOST_INPUTS = 1024, 64
_BLOCK = 128  # The kernels take whole blocks of rows; as many as `triton_launch.ROWS`.


def fused_for(features: KernelColumns, X: AnyArray, dtype: str) -> Fused | None:
    """Return the fused passes where they can be used: float32, on CUDA, for these features."""
    if dtype != "float32" or is_numpy(X) or not getattr(X, "is_cuda", False) or not _available():
        return None
    if not isinstance(features, StationaryColumns) or features.points.shape[0] > _MOST_POINTS:
        return None
    kernel = features.kernel
    if kernel.active_dims is not None or type(kernel) not in _PROFILES:
        return None
    if X.shape[1] > _MOST_INPUTS or X.shape[0] < _BLOCK:
        return None
    return Fused(features)


@cache
def _available() -> bool:
    return find_spec("triton") is not None and find_spec("torch") is not None


@dataclass(frozen=True)
class Fused:
    """The two passes for one kernel at its points."""

    columns: StationaryColumns

    @staticmethod
    def whole(n_rows: int) -> int:
        """Return how many of so many rows fill blocks; the rest is left to the general path."""
        return n_rows - n_rows % _BLOCK

    def sums(self, X: Any, y: Any, weight: Any | None) -> tuple[Any, Any]:
        """Return `A` and `b` of a block; with `K = a ρ` they are `a²` and `a` times those of ρ."""
        from eigengp.gp.gpu import triton_launch

        a = self.columns.kernel.variance
        with _on_device_of(X):
            A, b = triton_launch.sums(*self._prepare(X, y, weight))
        return a * a * A, a * b

    def _prepare(self, X: Any, y: Any, weight: Any | None) -> Any:
        """Return rows and points as the GPU's code takes them, and its name of the profile.

        Inputs are centred on the points, in units of the lengthscales; all is in float32.
        """
        import torch

        scaled, profile = self.columns.scale_points(X), _PROFILES[type(self.columns.kernel)]
        shift = torch.broadcast_to(-scaled.centre * scaled.per_length, (X.shape[1],))
        scale = torch.broadcast_to(scaled.per_length, shift.shape)
        X = torch.addcmul(shift.to(X.dtype), X, scale.to(X.dtype))
        own = (None if a is None else a.float().contiguous() for a in (X, y, weight, scaled.points))
        return *own, profile

    def pull_back(
        self,
        X: Any,
        y: Any,
        weight: Any | None,
        about: Placed,
        pieces: int = 2,
        target_scale: float = 0.0,
    ) -> KernelAdjoint:
        """Return what a block hands back; `K̄ = ρ (a Q) + (y − ρ (a m)) b̄ᵀ`, and `T = a K̄ ∘ ρ'`.

        Parameters
        ----------
        X, y, weight : tensors
            The rows.
        about : Placed
            `[Q, b̄, m]`, shape (M + 2, M).
        pieces : {1, 2}
            Float16 that make up a feature where it meets `Q`.
        target_scale : float
            The size of targets, of which these may be the small ones.
        """
        import torch

        from eigengp.gp.gpu import triton_launch

        scaled, a = self.columns.scale_points(X), self.columns.kernel.variance
        bars = about.beside(torch.empty(0, dtype=torch.float64, device=X.device))
        tiling = triton_launch.tiling_for(*scaled.points.shape)[1]._replace(pieces=pieces)
        with _on_device_of(X):
            bars = (a * bars[:-2], bars[-2], a * bars[-1])
            own: Any = (*self._prepare(X, y, weight), *bars, tiling, target_scale)
            pulled = triton_launch.pull_back(*own)
        column, TX, squares, value = (a * each for each in pulled)
        return scaled.assemble(TX, column, squares, [value])


def _on_device_of(X: Any) -> AbstractContextManager[Any]:
    """Triton launches on the current device, which need not be that of the rows."""
    import torch

    return torch.cuda.device(X.device) if X.is_cuda else nullcontext()
