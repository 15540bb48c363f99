"""The two passes over the rows, each a sum over row blocks.

Rows enter the model only here. Pass 1 reduces them to M × M sums; pass 2
takes the cotangents of those sums back to the parameters.

Letters: `K` is a block's features, (n, M), `k(X,B)` unless others are used, and
`ω_n` the precision of a row, which counts `s_n` times; `k_n` stands for a row
of `K`, or of the combinations of its columns through which a row enters.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields, replace
from functools import cached_property
from threading import Lock
from typing import Any, ClassVar
from uuid import uuid4

import numpy as np

from eigengp._typing import Array
from eigengp.backend.buffers import convert, recycle
from eigengp.backend.matmul import product
from eigengp.backend.namespace import (
    AnyArray,
    Placed,
    cast,
    dtype_name,
    is_numpy,
    namespace,
    positive,
    row_dots,
)
from eigengp.gp.blocks import Additive, RowBlock
from eigengp.gp.gpu.fused import fused_for
from eigengp.kernels import PullBack
from eigengp.kernels.cross_covariance import KernelColumns


class _Light:
    """Travels light: symmetric `A` as one triangle, and nothing that can be made again."""

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
class Sums(_Light, Additive):
    """What the log marginal likelihood needs to know of the rows."""

    A: Array
    """`Σ ω_n k_n k_nᵀ`, shape (M, M)."""
    b: Array
    """`Σ ω_n y_n k_n`, shape (M,)."""
    c: float
    """`Σ ω_n y_n²`."""
    log_precision: float
    """`Σ s_n ln(ω_n/s_n)`, or what stands in its place where rows carry a residual."""
    precision: float
    """`Σ ω_n`."""
    n: float
    """`Σ s_n`, the number of rows."""
    diagonal: float = field(default=0.0, kw_only=True)
    """`Σ ω_n k(x_n,x_n)` for kernels whose diagonal varies; zero for others, which need it not."""


@dataclass(frozen=True)
class WhitenedSums(Sums):
    """Sums of `Φ = K T`, with what the cotangent of `T` needs."""

    cross: Array
    """`KᵀΩΦ`, shape (M, R)."""
    features: Array
    """`KᵀΩy`, shape (M,)."""


@dataclass(frozen=True)
class SumsAdjoint(_Light):
    """Cotangents of `A`, `b`, `c` and `log_precision`."""

    A: Array
    b: Array
    c: float
    log_precision: float
    mean: Array | None = None
    """`m`, coefficients that the rows are taken about; None is zero."""
    target_scale: float = 0.0
    """The root of the mean square of all targets."""
    diagonal: float = 0.0
    """The cotangent of `Σ ω_n k(x_n,x_n)`."""

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


@dataclass(frozen=True)
class RowAdjoint(Additive):
    """What the rows hand back."""

    theta: Array
    """The cotangent of the kernel's parameters."""
    points: Array
    """The cotangent of the points that the features stand at, shape (M, D)."""


@dataclass(frozen=True)
class ResidualAdjoint(RowAdjoint):
    """What rows with a residual hand back in addition."""

    factor: Array
    """The cotangent of `F`, shape (M, R)."""
    noise_variance: float
    """The cotangent of `σ²`."""


@dataclass
class Kept:
    """Features of row blocks on their way from pass 1 to pass 2, as far as memory reaches."""

    room: int
    _made: dict[int, tuple[AnyArray, PullBack]] = field(default_factory=dict)
    _lock: Any = field(default_factory=Lock)
    _name: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as a name: each process keeps the features of its own blocks."""
        self._name = self._name or uuid4().hex
        return _kept_here, (self._name, self.room)

    def made(
        self, features: KernelColumns, block: RowBlock, dtype: str, spare: int = 0
    ) -> AnyArray:
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

    def taken(
        self, features: KernelColumns, block: RowBlock, dtype: str, spare: int = 0
    ) -> tuple[AnyArray, PullBack]:
        """Return a block's features and their pull-back in pass 2, which needs them for good."""
        made = self._made.pop(block.start, None)
        return made or features.forward(block.X, dtype, spare)


_HERE: dict[str, Kept] = {}
_PASSES_HERE = 2
_here_lock = Lock()


def _kept_here(name: str, room: int) -> Kept:
    """Return this process' store of that name; only the last few are remembered."""
    with _here_lock:
        if name not in _HERE:
            _HERE[name] = Kept(room, _name=name)
            for oldest in list(_HERE)[:-_PASSES_HERE]:
                del _HERE[oldest]
        return _HERE[name]


def _made(
    features: KernelColumns, block: RowBlock, dtype: str, kept: Kept | None, spare: int = 0
) -> AnyArray:
    """Return the features of a block in pass 1."""
    if kept is None:
        return features.matrix(block.X, dtype, spare)
    return kept.made(features, block, dtype, spare)


def _taken(
    features: KernelColumns, block: RowBlock, dtype: str, kept: Kept | None, spare: int = 0
) -> tuple[AnyArray, PullBack]:
    """Return the features of a block and their pull-back in pass 2."""
    if kept is None:
        return features.forward(block.X, dtype, spare)
    return kept.taken(features, block, dtype, spare)


def _wide(features: AnyArray, y: AnyArray) -> AnyArray:
    """Fill the last column of `[K, ·]`."""
    features[:, -1] = y if is_numpy(y) else cast(y, dtype_name(features))
    return features


def _taken_wide(
    features: KernelColumns, block: RowBlock, dtype: str, kept: Kept | None
) -> tuple[AnyArray, PullBack]:
    """Return `[K, y]` of a block and the pull-back of `K` in pass 2; pass 1 kept it with `y`."""
    has_targets = kept is not None and kept.holds(block)
    K, back = _taken(features, block, dtype, kept, spare=1)
    return (K if has_targets else _wide(K, block.y)), back


def _accumulate(wide: AnyArray, y: AnyArray, weight: AnyArray | None) -> Sums:
    """Return the sums of a block of `[K, y]` with `ω = s`, from one symmetric product."""
    if weight is not None:
        wide = wide * cast(namespace(wide).sqrt(weight), dtype_name(wide))[:, None]
    gram = cast(wide.T @ wide, "float64")
    return _with_counts(gram[:-1, :-1], gram[-1, :-1], y, weight)


def _with_counts(A: AnyArray, b: AnyArray, y: AnyArray, weight: AnyArray | None) -> Sums:
    """Return the sums of a block with `ω = s`, whose `A` and `b` are known."""
    xp = namespace(y)
    squares = y * y if weight is None else weight * y * y
    n = float(y.shape[0]) if weight is None else xp.sum(weight, dtype=xp.float64)
    return Sums(A, b, xp.sum(squares, dtype=xp.float64), 0.0, n, n)


def _with_scatter(sums: Sums, block: RowBlock, noise_variance: float = 1.0) -> Sums:
    """Add to `c` the scatter of targets that were merged."""
    return replace(sums, c=sums.c + block.total_scatter / noise_variance)


def _with_diagonal(sums: Sums, features: KernelColumns, block: RowBlock) -> Sums:
    """Add the sum of the prior variances of a block with `ω = s`, where these vary."""
    if features.kernel.constant_diagonal is not None:
        return sums
    xp, variance = namespace(block.y), features.prior_variance(block.X)
    return replace(sums, diagonal=xp.sum(block.weight * variance, dtype=xp.float64))


def _pulled_back(
    features: KernelColumns,
    block: RowBlock,
    bar: SumsAdjoint,
    K_bar: AnyArray,
    back: PullBack,
    K: AnyArray | None = None,
) -> RowAdjoint:
    """Weigh the cotangent of `K` and take it, and that of a varying diagonal, to the kernel."""
    weight = block.sample_weight
    if weight is not None:
        K_bar *= cast(weight, dtype_name(K_bar))[:, None]
    adjoint = back(K_bar, overwrite=True, K=K)
    theta = adjoint.theta
    if bar.diagonal and features.kernel.constant_diagonal is None:
        theta = theta + features.kernel.diag_pull_back(block.X, bar.diagonal * block.weight)
    return RowAdjoint(theta, adjoint.points)


@dataclass(frozen=True)
class PlainRows:
    """Rows that enter through their features `K`, all with the noise `σ²`.

    `ω_n = s_n`, and `σ²` is applied to the sums afterwards. The cheapest
    way, for stage 1, and the one that mixed precision makes cheaper.
    """

    features: KernelColumns
    made: str = "float64"
    """The data type of features."""
    pulled: str = "float64"
    """The data type of the products of pass 2."""
    pieces: int = 0
    """Float16 that make up a feature in the products of a fused pass 2: one is faster, two keep
    more digits, and none leaves the rows to the general path."""

    def sums(self, block: RowBlock, kept: Kept | None = None) -> Sums:
        """Pass 1, one block."""
        on_gpu = not is_numpy(block.X)
        fused = fused_for(self.features, block.X, self.made) if on_gpu else None
        if fused:
            whole, rest = block.cut(fused.whole(block.n_rows))
            A, b = fused.sums(whole.X, whole.y, whole.sample_weight)
            own = _with_counts(A, b, whole.y, whole.sample_weight)
            return own + PlainRows(self.features).sums(rest) if rest.n_rows else own
        wide = _wide(_made(self.features, block, self.made, kept, spare=1), block.y)
        sums = _accumulate(wide, block.y, block.sample_weight)
        sums = _with_diagonal(_with_scatter(sums, block), self.features, block)
        if kept is None or not kept.holds(block):
            recycle(wide)
        return sums

    def pull_back(self, block: RowBlock, bar: SumsAdjoint, kept: Kept | None = None) -> RowAdjoint:
        """Pass 2: `K̄ = ω ∘ (2KĀ + y b̄ᵀ)`, pulled back through the kernel.

        It is formed as `K (2Ā + m b̄ᵀ) + (y − Km) b̄ᵀ`, in which far less cancels.
        """
        on_gpu = self.pieces and not is_numpy(block.X)
        fused = fused_for(self.features, block.X, self.pulled) if on_gpu else None
        if fused:
            whole, rest = block.cut(fused.whole(block.n_rows))
            weight = whole.sample_weight
            pieces = self.pieces if weight is None else 2
            adjoint = fused.pull_back(whole.X, whole.y, weight, bar.about, pieces, bar.target_scale)
            own = RowAdjoint(adjoint.theta, adjoint.points)
            if rest.n_rows:
                own += PlainRows(self.features).pull_back(rest, bar)
            return own
        K, back = _taken_wide(self.features, block, self.made, kept)
        residual = K @ bar.residual.beside(K)
        wide = _wide(K if self.pulled == self.made else convert(K, self.pulled), residual)
        if K is not wide:
            recycle(K)
        K_bar = product(wide, bar.about.beside(wide)[:-1, :])
        pulled = _pulled_back(self.features, block, bar, K_bar, back, wide)
        recycle(K_bar)
        recycle(wide)
        return pulled


@dataclass(frozen=True)
class WhitenedRows:
    """Rows that enter through `Φ = K T`, the eigenfunctions with unit prior variance.

    Eigenfunctions with small eigenvalues lose their digits in `Tᵀ(KᵀK)T`
    and keep them in `(KT)ᵀ(KT)`, for about twice the work, and only in
    float64. The sums do not depend on noise and weights: stage 2 needs them
    once.
    """

    features: KernelColumns
    whitening: Array
    """`T`, shape (M, R)."""

    @cached_property
    def _T(self) -> Placed:
        """`T`, and a one through which targets pass: it takes `[K, y]` to `[Φ, y]`."""
        M, R = self.whitening.shape
        passing = np.zeros((M + 1, R + 1))
        passing[:M, :R] = self.whitening
        passing[M, R] = 1.0
        return Placed(passing)

    def sums(self, block: RowBlock, kept: Kept | None = None) -> Sums:
        """Pass 1, one block; with what a pull-back needs where `kept` says that one is to come."""
        K = _wide(_made(self.features, block, "float64", kept, spare=1), block.y)
        wide, s = product(K, self._T.beside(K)), block.sample_weight
        sums = _with_scatter(_accumulate(wide, block.y, s), block)
        sums = _with_diagonal(sums, self.features, block)
        if kept is not None:
            weighted = wide if s is None else wide * cast(s, dtype_name(K))[:, None]
            cross = cast(K[:, :-1].T @ weighted, "float64")
            sums = WhitenedSums(**vars(sums), cross=cross[:, :-1], features=cross[:, -1])
        if kept is None or not kept.holds(block):
            recycle(K)
        recycle(wide)
        return sums

    def pull_back(self, block: RowBlock, bar: SumsAdjoint, kept: Kept | None = None) -> RowAdjoint:
        """Pass 2: `K̄ = ω ∘ (2 Φ Ā + y b̄ᵀ) Tᵀ`, with `Φ` formed first to keep its digits."""
        K, back = _taken_wide(self.features, block, "float64", kept)
        T = self._T.beside(K)
        wide = product(K, T)
        K_bar = product(wide, bar.stacked.beside(K) @ T[:-1, :-1].T)
        recycle(wide)
        pulled = _pulled_back(self.features, block, bar, K_bar, back)
        recycle(K_bar)
        recycle(K)
        return pulled


@dataclass(frozen=True)
class ResidualRows:
    """Rows that carry the variance which the features leave out (EigenGP+, FITC, power EP).

    They enter through `Φ = K F`, whose prior is white, with `ω_n = 1/λ_n`,
    `λ_n = σ²/s_n + α r_n` and `r_n = max(0, k(x_n,x_n) − ‖φ_n‖²)`: the `s_n` observations of a row
    have the same input and share its residual. Power EP with `0 < α < 1` adds
    `(1−α)/(2α) ln(1 + α r_n s_n/σ²)` to the negative log likelihood of each row, which together
    with `½ ln λ_n` and what `s_n` observations add to their mean makes
    `½ [s_n ln σ² + ln(1 + α r_n s_n/σ²)/α]`; as α → 0 that is what the trace term makes of it,
    `½ s_n [ln σ² + r_n/σ²]`.
    """

    features: KernelColumns
    factor: Array
    """`F`, shape (M, R)."""
    noise_variance: float
    power: float = 1.0
    """`α`, between 0 (not included) and 1."""
    shared: bool = True
    """Whether the observations of a row share its residual (EigenGP+); else each has its own, and
    a row is `s_n` rows with `s = 1`."""

    @cached_property
    def _F(self) -> Placed:
        return Placed(self.factor)

    def _counts(self, block: RowBlock) -> tuple[AnyArray, AnyArray]:
        """Return how many observations share a residual, and how often that occurs, (n,)."""
        weight = block.weight
        one = namespace(weight).ones_like(weight)
        return (weight, one) if self.shared else (one, weight)

    def sums(self, block: RowBlock, kept: Kept | None = None) -> Sums:
        """Pass 1, one block."""
        K = _made(self.features, block, "float64", kept)
        Phi, xp = K @ self._F.beside(K), namespace(K)
        s2, alpha, (s, times) = self.noise_variance, self.power, self._counts(block)
        rest = cast(self.features.prior_variance(block.X) - row_dots(Phi, Phi), "float64")
        share = alpha * positive(rest)
        y = cast(block.y, dtype_name(K))
        wide = xp.concat([Phi, y[:, None]], axis=1)
        own = _with_scatter(_accumulate(wide, block.y, times * s / (s2 + share * s)), block, s2)
        log_variance = s * float(np.log(s2)) + xp.log1p(share * s / s2) / alpha
        total = xp.sum(times * log_variance, dtype=xp.float64)
        return replace(own, log_precision=-total, n=xp.sum(block.weight, dtype=xp.float64))

    def pull_back(
        self, block: RowBlock, bar: SumsAdjoint, kept: Kept | None = None
    ) -> ResidualAdjoint:
        """Pass 2: `Φ̄ = ω ∘ (2 Φ Ā + y b̄ᵀ) − 2 r̄ ∘ Φ`, then `K̄ = Φ̄ Fᵀ` and `F̄ = Kᵀ Φ̄`.

        With the cotangent `ω̄_n = φ_nᵀĀφ_n + y_n b̄ᵀφ_n + c̄ y_n²` of the
        precisions, `r̄_n = −ω_n (α ω_n ω̄_n + l̄)` where the residual is not
        clipped, and the noise receives
        `−ω_n (ω_n ω̄_n/s_n + l̄ (1 + (α s_n − 1) r_n/σ²)) − c̄ scatter_n/σ⁴`.
        """
        K, back = _taken(self.features, block, "float64", kept)
        xp, dtype, s2, alpha = namespace(K), dtype_name(K), self.noise_variance, self.power
        F, stacked, y = self._F.beside(K), bar.stacked.beside(K), cast(block.y, dtype)
        Phi = K @ F
        Phi_A, b_bar = Phi @ stacked[:-1, :], stacked[-1, :]
        quadratic = 0.5 * row_dots(Phi, Phi_A) + y * (Phi @ b_bar + bar.c * y)
        rest = cast(self.features.prior_variance(block.X) - row_dots(Phi, Phi), "float64")
        residual = positive(rest)
        s, times = self._counts(block)
        variance = s2 + alpha * residual * s
        precision = times * s / variance
        through = cast(quadratic, "float64") / variance
        own = bar.log_precision * (1.0 + (alpha * s - 1.0) * residual / s2)
        residual_bar = -precision * (alpha * s * through + bar.log_precision)
        residual_bar = xp.where(rest > 0.0, residual_bar, 0.0 * rest)

        Phi_bar = cast(precision, dtype)[:, None] * (Phi_A + y[:, None] * b_bar)
        Phi_bar -= cast(2.0 * residual_bar, dtype)[:, None] * Phi
        adjoint = back(Phi_bar @ F.T, overwrite=True)
        return ResidualAdjoint(
            theta=adjoint.theta + self.features.kernel.diag_pull_back(block.X, residual_bar),
            points=adjoint.points,
            factor=cast(K.T @ Phi_bar, "float64"),
            noise_variance=-xp.sum(precision * (through + own))
            - bar.c * block.total_scatter / s2**2,
        )
