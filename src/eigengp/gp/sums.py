"""What two passes over the rows exchange with the M × M work between them.

Pass 1 reduces the rows, block by block, to M × M sums; pass 2 takes the cotangents of those sums
back to the parameters. How rows enter is the matter of each approximation: `approximations`,
`residual` and `vecchia`.

Letters: `K` is a block's features, (n, M), `k(X,B)` unless others are used, and
`ω_n` the precision of a row, which counts `s_n` times; `k_n` stands for a row
of `K`, or of the combinations of its columns through which a row enters.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from functools import cached_property
from threading import Lock
from typing import Any, ClassVar

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import (
    Additive,
    AnyArray,
    Placed,
    cast,
    dtype_name,
    is_numpy,
    namespace,
)
from eigengp.gp.blocks import RowBlock
from eigengp.kernels import KernelColumns, PullBack


class _Packed:
    """Is pickled without what can be made again, and symmetric `A` as one triangle."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __getstate__(self) -> dict[str, Any]:
        state = {each.name: getattr(self, each.name) for each in fields(self)}
        A = state["A"]
        if is_numpy(A):
            state["A"] = A[np.triu_indices(A.shape[0])]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        packed = state["A"]
        if packed.ndim == 1:
            M = (int(np.sqrt(8 * packed.size + 1)) - 1) // 2
            A = np.empty((M, M))
            A[np.triu_indices(M)] = packed
            A.T[np.triu_indices(M)] = packed
            state = {**state, "A": A}
        self.__dict__.update(state)


@dataclass(frozen=True)
class Sums(_Packed, Additive):
    """What the log marginal likelihood needs to know of the rows."""

    A: Array  # `Σ ω_n k_n k_nᵀ`, shape (M, M).
    b: Array  # `Σ ω_n y_n k_n`, shape (M,).
    c: float  # `Σ ω_n y_n²`.
    # `Σ s_n ln(ω_n/s_n)`, or what stands in its place where rows carry a residual.
    log_precision: float
    precision: float  # `Σ ω_n`.
    n: float  # `Σ s_n`, the number of rows.
    # `Σ ω_n k(x_n,x_n)` for kernels whose diagonal varies; zero for others, which need it not.
    diagonal: float = field(default=0.0, kw_only=True)


@dataclass(frozen=True)
class SumsAdjoint(_Packed):
    """Cotangents of `A`, `b`, `c` and `log_precision`."""

    A: Array
    b: Array
    c: float
    log_precision: float
    mean: Array | None = None  # `m`, coefficients that the rows are taken about; None is zero.
    target_scale: float = 0.0  # The root of the mean square of all targets.
    diagonal: float = 0.0  # The cotangent of `Σ ω_n k(x_n,x_n)`; zero where `k(x,x)` does not vary.

    @cached_property
    def about_mean(self) -> Array:
        """`2Ā + m b̄ᵀ`, which `K` meets where `y − Km` stands for `y`, shape (M, M).

        In `2Ā = (P + m mᵀ)/σ²`, but for the trace term, the second part is by
        far the larger; it takes `K` to fitted values, and these nearly cancel
        the targets.
        """
        return 2.0 * self.A + np.outer(self.centre, self.b)

    @cached_property
    def stacked(self) -> Placed:
        """`[2Ā, b̄]`, which takes `[K, y]` to `2KĀ + y b̄ᵀ`, shape (M + 1, M)."""
        return Placed(np.vstack([2.0 * self.A, self.b]))

    @cached_property
    def residual(self) -> Placed:
        """What takes `[K, y]` to `y − Km`, shape (M + 1,)."""
        return Placed(np.append(-self.centre, 1.0))

    @cached_property
    def about(self) -> Placed:
        """`[2Ā + m b̄ᵀ, b̄, m]`; all but the last row take `[K, y − Km]` to `2KĀ + y b̄ᵀ`."""
        return Placed(np.vstack([self.about_mean, self.b, self.centre]))

    @property
    def centre(self) -> Array:
        """`m`, zeros where rows are not taken about anything, shape (M,)."""
        return np.zeros_like(self.b) if self.mean is None else self.mean


@dataclass
class Kept:
    """Features that pass 1 keeps for pass 2, block by block, while there is room."""

    room: int  # How many bytes are left.
    _made: dict[int, tuple[AnyArray, PullBack]] = field(default_factory=dict)
    _lock: Any = field(default_factory=Lock)

    def __reduce__(self) -> tuple[Any, ...]:
        """Be pickled without features and room: other processes compute them again."""
        return Kept, (0,)

    def make(self, features: KernelColumns, block: RowBlock, dtype: str, spare: int) -> AnyArray:
        """Return a block's features in pass 1, and keep them while there is room."""
        size = features.kept_arrays * block.X.shape[0] * (features.points.shape[0] + spare)
        size *= 8 if dtype == "float64" else 4
        with self._lock:
            fits = size <= self.room
            self.room -= size if fits else 0
        if not fits:
            return features.matrix(block.X, dtype, spare)
        self._made[block.start] = made = features.forward(block.X, dtype, spare)
        return made[0]

    def holds(self, block: RowBlock) -> bool:
        """Return whether a block's features are kept."""
        return block.start in self._made

    def take(self, block: RowBlock) -> tuple[AnyArray, PullBack] | None:
        """Return a block's features and their pull-back in pass 2, if they were kept."""
        return self._made.pop(block.start, None)


def make_features(
    features: KernelColumns, block: RowBlock, dtype: str, kept: Kept | None, targets: bool = False
) -> AnyArray:
    """Return the features `K` of a block in pass 1, or `[K, y]` with `targets`."""
    spare = int(targets)
    if kept is None:
        K = features.matrix(block.X, dtype, spare)
    else:
        K = kept.make(features, block, dtype, spare)
    if targets:
        K[:, -1] = cast(block.y, dtype)
    return K


def take_features(
    features: KernelColumns, block: RowBlock, dtype: str, kept: Kept | None, targets: bool = False
) -> tuple[AnyArray, PullBack]:
    """Return the same in pass 2, and the pull-back of `K`."""
    found = kept.take(block) if kept else None
    if found:
        return found
    K, back = features.forward(block.X, dtype, int(targets))
    if targets:
        K[:, -1] = cast(block.y, dtype)
    return K, back


def accumulate(
    wide: AnyArray, block: RowBlock, precision: AnyArray | None, noise_variance: float = 1.0
) -> Sums:
    """Return the sums of a block of `[K, y]`, from one symmetric product.

    Parameters
    ----------
    wide : array of shape (n, M + 1)
        `[K, y]`.
    block : RowBlock
        The rows.
    precision : array of shape (n,) or None
        `ω`; None is one.
    noise_variance : float
        The part of the noise that `ω` contains, which the scatter of merged targets needs.
    """
    if precision is not None:
        wide = wide * cast(namespace(wide).sqrt(precision), dtype_name(wide))[:, None]
    gram = cast(wide.T @ wide, "float64")
    return complete_sums(gram[:-1, :-1], gram[-1, :-1], block, precision, noise_variance)


def complete_sums(
    A: AnyArray,
    b: AnyArray,
    block: RowBlock,
    precision: AnyArray | None,
    noise_variance: float = 1.0,
) -> Sums:
    """Return the sums of a block whose `A` and `b` are known; see `accumulate`."""
    y, xp = block.y, namespace(block.y)
    squares = y * y if precision is None else precision * y * y
    c = xp.sum(squares, dtype=xp.float64) + block.total_scatter / noise_variance
    n = float(y.shape[0]) if precision is None else xp.sum(precision, dtype=xp.float64)
    return Sums(A, b, c, 0.0, n, n)
