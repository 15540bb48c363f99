"""Vecchia's nearest-neighbour approximation of the residual, and its pull-back.

EigenGP+ keeps the residual `k_r = k − k̃`, what the features leave out, on the diagonal alone,
with `k̃(x, z) = k(x)ᵀ W k(z)` and `W = K_BB⁻¹`. Here each row is conditioned on its nearest rows
among those before it, which leaves whitened rows

    κ_i = Σ_j w_ij k_j,    η_i = Σ_j w_ij y_j

that are independent with variance one given the coefficients. The log marginal likelihood is that
of a linear model in them, `Λ = K_BB + Σ κ κᵀ`, with `Σ ln d` in place of `n ln σ²`; if every row
had all rows before it as neighbours, this would be the full GP.

The last row of a set of `s` rows, its neighbours first, has the covariance `R = k_r + σ²I` with
them, and what is new in it is `Σ_j w_j (y_j − f_j)`, with variance one:

    w = R⁻¹e / √(eᵀR⁻¹e) = L⁻ᵀe,    R = L Lᵀ,    e the last unit vector,

so that `w = (−b, 1)/√d` with the weights `b` and the variance `d` of the best prediction from
the neighbours, and `ln d = −2 ln w_s`. The pull-back needs one more solution alone,

    R̄ = −½ (p wᵀ + w pᵀ),    p = R⁻¹w̄ − ½ (w̄ᵀw) w,

since with `u = R⁻¹e` and `w = u/√(eᵀu)` a change of `R` gives `du = −R⁻¹ dR u`, hence
`w̄ᵀdw = −(R⁻¹w̄ − ½ (w̄ᵀw) w)ᵀ dR w`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from eigengp._typing import Array
from eigengp.backend.buffers import make_buffer, recycle
from eigengp.gp.blocks import RowBlock, RowSource
from eigengp.gp.evidence import Outcome, PassAdjoint, PriorEvidence
from eigengp.gp.linalg import CholeskyFactor, FactorizationError, solve_lower
from eigengp.gp.sums import Additive, Kept, RowAdjoint, Sums, SumsAdjoint
from eigengp.kernels import Kernel, KernelColumns, PullBack


@dataclass(frozen=True)
class Neighborhoods:
    """Some rows, each with its neighbours."""

    rows: RowBlock
    """All rows."""
    index: NDArray[np.intp]
    """The numbers of the neighbours, nearest first, then of the row itself, (n, s); −1 for none."""
    start: int = 0
    """Where these are among all neighbourhoods."""

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which neighbours there are, shape (n, s)."""
        return self.index >= 0

    @property
    def at(self) -> NDArray[np.intp]:
        """The numbers of all members; the row itself stands in for those that are not there."""
        return np.where(self.present, self.index, self.index[:, -1:])


def gathered(K: Array, at: NDArray[np.intp]) -> Array:
    """Return the rows of `K` with these numbers, shape (n, s, M), in recycled memory."""
    room: Array = make_buffer((*at.shape, K.shape[1]))
    np.take(K, at, axis=0, out=room, mode="clip")
    return room


@dataclass
class Table:
    """The features of all members of neighbourhoods, each computed once."""

    K: Array
    """`k(x, B)`, shape (N, M)."""
    G: Array
    """`K F`, shape (N, M), whose products are `k̃`."""
    back: dict[int, PullBack] = field(default_factory=dict)
    """The pull-back of the block that begins at each number."""

    @classmethod
    def of(
        cls, features: KernelColumns, factor: Array, rows: RowSource, keep: bool = False
    ) -> Table:
        """Compute features block by block; `keep` what a pull-back needs."""
        shape = (rows.n_rows, features.points.shape[0])
        table = cls(np.empty(shape), np.empty(shape))

        def fill(block: RowBlock) -> float:
            at = slice(block.start, block.start + block.n_rows)
            if keep:
                table.K[at], table.back[block.start] = features.forward(block.X)
            else:
                table.K[at] = features.matrix(block.X)
            np.matmul(table.K[at], factor, out=table.G[at])
            return 0.0

        rows.total(fill)
        return table

    def pull_back(self, rows: RowSource, K_bar: Array) -> RowAdjoint:
        """Return what a cotangent of `K` gives to kernel and inducing points."""

        def term(block: RowBlock) -> RowAdjoint:
            bar = K_bar[block.start : block.start + block.n_rows]
            return RowAdjoint(*self.back.pop(block.start)(bar, overwrite=True))

        return rows.total(term)


@dataclass(frozen=True)
class Residual:
    """The covariance of the residual and the noise.

    Parameters
    ----------
    kernel : Kernel
        `k`.
    noise_variance : float
        `σ²`.
    jitter : float
        Added to the diagonal, relative to `k(x, x)`.
    """

    kernel: Kernel
    noise_variance: float
    jitter: float

    def stack(
        self, hoods: Neighborhoods, explained: Array
    ) -> tuple[Array, Callable[[Array], Array]]:
        """Return `R` of each neighbourhood, (n, s, s), and its pull-back to the kernel.

        The pull-back may overwrite the cotangent. It leaves the jitter out where `k(x, x)` is one
        number for all rows.

        Parameters
        ----------
        hoods : Neighborhoods
            Who belongs together.
        explained : array of shape (n, s, M)
            `K F` of the members, whose products are `k̃`.
        """
        at, present, noise = hoods.at, hoods.present, self.noise(hoods)
        R, back = self.kernel.stack(hoods.rows.X[at])
        diagonal = np.arange(at.shape[1])
        prior = R[:, diagonal, diagonal]
        R -= explained @ explained.transpose(0, 2, 1)
        R[:, diagonal, diagonal] += noise + self.jitter * prior
        if not present.all():
            R *= present[:, :, None] & present[:, None, :]
            R[:, diagonal, diagonal] += ~present

        def pull_back(R_bar: Array) -> Array:
            if self.kernel.constant_diagonal is None:
                R_bar[:, diagonal, diagonal] *= 1.0 + self.jitter
            return back(R_bar)

        return R, pull_back

    def noise(self, hoods: Neighborhoods) -> Array:
        """Return the noise variance of all members, less where a row counts more, (n, s)."""
        weight = hoods.rows.sample_weight
        noise: Array = np.full(hoods.index.shape, self.noise_variance)
        return noise if weight is None else noise / weight[hoods.at]


def cholesky_stack(K: Array) -> Array:
    """Return the lower triangular factors of many small matrices, shape (n, s, s)."""
    try:
        return cast(Array, np.linalg.cholesky(K))
    except np.linalg.LinAlgError:
        raise FactorizationError(
            "The covariance of a row and its neighbours is not positive definite. Likely causes: "
            "duplicated rows with different targets at a tiny noise, or inputs of a huge scale. "
            "Start from a larger noise variance, or merge the duplicates."
        ) from None


def solve_stack(L: Array, r: Array, transposed: bool = False) -> Array:
    """Return `L⁻¹ r`, or `L⁻ᵀ r`, for many small triangular matrices at once, shape (n, s)."""
    x = np.array(r)
    s = x.shape[1]
    order = range(s - 1, -1, -1) if transposed else range(s)
    for j in order:
        row, done = (L[:, j + 1 :, j], x[:, j + 1 :]) if transposed else (L[:, j, :j], x[:, :j])
        x[:, j] -= np.einsum("nk,nk->n", row, done)
        x[:, j] /= L[:, j, j]
    return x


def innovation_weights(R: Array) -> tuple[Array, Array]:
    """Return the factors `L` of each `R`, (n, s, s), and `w = L⁻ᵀe`, (n, s)."""
    L = cholesky_stack(R)
    last = np.zeros(R.shape[:2])
    last[:, -1] = 1.0
    return L, solve_stack(L, last, transposed=True)


def innovation_pull_back(L: Array, w: Array, w_bar: Array) -> Array:
    """Return `p`, of which `R̄ = −½ (p wᵀ + w pᵀ)` is made, shape (n, s)."""
    p = solve_stack(L, solve_stack(L, w_bar), transposed=True)
    p -= 0.5 * np.einsum("ns,ns->n", w_bar, w)[:, None] * w
    return p


@dataclass
class Tape:
    """What the pull-back of a pass needs."""

    table: Table
    L: Array
    """Shape (N, s, s)."""
    back: dict[int, Any] = field(default_factory=dict)
    """The kernel's pull-back for the neighbourhoods that begin at each number."""


@dataclass(frozen=True)
class Whitened:
    """All whitened rows."""

    index: NDArray[np.intp]
    """The numbers of the members of each neighbourhood, shape (N, s); see `Neighborhoods`."""
    w: Array
    """Shape (N, s)."""
    kappa: Array
    """Shape (N, M)."""
    eta: Array
    """Shape (N,)."""

    def make_matrix(self, n_rows: int, coefficients: Array | None = None) -> sparse.csr_array:
        """Return the sparse matrix `U` with `η = U y`, or with other coefficients, (N, n_rows)."""
        present = self.index >= 0
        values = np.where(present, self.w if coefficients is None else coefficients, 0.0)
        columns = np.where(present, self.index, 0).ravel()
        starts = np.arange(0, columns.size + 1, self.index.shape[1])
        return sparse.csr_array((values.ravel(), columns, starts), (self.w.shape[0], n_rows))


@dataclass(frozen=True)
class VecchiaOutcome(Outcome):
    """What a pass over the rows found."""

    whitened: Whitened | None = None
    """None where every row has all earlier rows as neighbours."""
    tape: Tape | None = None


@dataclass(frozen=True)
class _Pulled(Additive):
    """Sums over rows on the way back."""

    theta: Array
    noise: float
    trace: float
    """`Σ R̄_jj`."""
    cross: Array
    """`Σ ϖ κᵀ`, shape (M, M)."""


@dataclass(frozen=True)
class VecchiaPass:
    """All eigenfunctions with the weights of the prior, and the residual between neighbours.

    Parameters
    ----------
    features : KernelColumns
        `k(x, B)`.
    noise_variance : float
        `σ²`.
    factor : CholeskyFactor
        Of `K_BB`.
    jitter : float
        Added to the diagonal of neighbourhoods, relative to `k(x, x)`.
    """

    features: KernelColumns
    noise_variance: float
    factor: CholeskyFactor
    jitter: float = 0.0

    @property
    def prior_factor(self) -> Array:
        """See `Pass.prior_factor`."""
        return self.factor.matrix

    @property
    def residual(self) -> Residual:
        """The covariance of what the features leave out."""
        return Residual(self.features.kernel, self.noise_variance, self.jitter)

    def forward(self, source: Any, gamma: float = 0.0, kept: Kept | None = None) -> VecchiaOutcome:
        """See `Pass.forward`; the residual does what the trace term is for.

        Parameters
        ----------
        source : NeighborSource
            Rows with their neighbours.
        gamma : float
            Ignored.
        kept : Kept or None
            Given where there will be a way back.
        """
        keep, (n, s) = kept is not None, source.index.shape
        table = Table.of(self.features, self.prior_factor, source.members, keep)
        if source.is_complete and not keep:
            sums = self._sums_of_all(Neighborhoods(source.rows, source.own), table)
            return VecchiaOutcome(self, PriorEvidence(sums, self.factor, 1.0), None, None)
        kappa = np.empty((n, table.K.shape[1]))
        whitened = Whitened(source.index, np.empty((n, s)), kappa, np.empty(n))
        tape = Tape(table, np.empty((n, s, s))) if keep else None
        sums = source.total(lambda hoods: self._sums(hoods, table, whitened, tape))
        evidence = PriorEvidence(sums, self.factor, 1.0)
        return VecchiaOutcome(self, evidence, None, None, whitened=whitened, tape=tape)

    def _sums(
        self, hoods: Neighborhoods, table: Table, whitened: Whitened, tape: Tape | None
    ) -> Sums:
        at, n = hoods.at, hoods.index.shape[0]
        K, G = gathered(table.K, at), gathered(table.G, at)
        R, back = self.residual.stack(hoods, G)
        recycle(G)
        L, w = innovation_weights(R)
        kappa = (w[:, None, :] @ K)[:, 0, :]
        recycle(K)
        eta = np.einsum("ns,ns->n", w, hoods.rows.y[at])
        rows = slice(hoods.start, hoods.start + n)
        whitened.w[rows], whitened.kappa[rows], whitened.eta[rows] = w, kappa, eta
        if tape is not None:
            tape.L[rows], tape.back[hoods.start] = L, back
        log_precision = 2.0 * float(np.log(w[:, -1]).sum())
        return self._sums_of_whitened(hoods.rows, at[:, -1], kappa, eta, log_precision)

    def _sums_of_all(self, hoods: Neighborhoods, table: Table) -> Sums:
        """Return the sums where every row has all earlier rows as neighbours.

        `hoods` is one neighbourhood of all rows. With its covariance `R = L Lᵀ`, the whitened rows
        are `L⁻¹K` and `L⁻¹y`: O(N³) for all rows instead of each, and the result is the exact GP.
        """
        R, _ = self.residual.stack(hoods, table.G[None])
        L = cholesky_stack(R)[0]
        whitened = solve_lower(L, np.column_stack([table.K, hoods.rows.y]))
        log_precision = -2.0 * float(np.log(np.diagonal(L)).sum())
        own = np.arange(hoods.rows.n_rows)
        return self._sums_of_whitened(
            hoods.rows, own, whitened[:, :-1], whitened[:, -1], log_precision
        )

    def _sums_of_whitened(
        self,
        rows: RowBlock,
        own: NDArray[np.intp],
        kappa: Array,
        eta: Array,
        log_precision: float,
    ) -> Sums:
        """Return the sums of whitened rows; `own` are their numbers."""
        n, c = float(own.size), float(eta @ eta)
        if rows.scatter is not None:
            c += float(rows.scatter[own].sum()) / self.noise_variance
        if rows.sample_weight is not None:
            weight = rows.sample_weight[own]
            n = float(weight.sum())
            extra = (weight - 1.0) * np.log(self.noise_variance) + np.log(weight)
            log_precision -= float(extra.sum())
        return Sums(kappa.T @ kappa, kappa.T @ eta, c, log_precision, n, n)

    def pull_back(self, source: Any, outcome: Outcome, bar: SumsAdjoint) -> PassAdjoint:
        """See `Pass.pull_back`.

        With `W = K_BB⁻¹` and `ϖ_i = Σ_j p_ij k_j`, the features receive
        `k̄_j = Σ_i w_ij (κ̄_i + W ϖ_i) + p_ij W κ_i`, and
        `W̄ = ½ Σ_i (ϖ_i κ_iᵀ + κ_i ϖ_iᵀ)`.
        """
        assert isinstance(outcome, VecchiaOutcome)
        evidence, whitened, tape = outcome.evidence, outcome.whitened, outcome.tape
        assert isinstance(evidence, PriorEvidence)
        assert whitened is not None
        assert tape is not None
        p, through_w = np.empty_like(whitened.w), np.empty_like(whitened.kappa)

        def term(hoods: Neighborhoods) -> _Pulled:
            return self._pulled(hoods, whitened, tape, bar, p, through_w)

        pulled = source.total(term)
        through_p = whitened.kappa @ self.factor.inverse
        n = source.rows.n_rows
        K_bar = whitened.make_matrix(n).T @ through_w
        K_bar += whitened.make_matrix(n, p).T @ through_p
        adjoint = tape.table.pull_back(source.members, K_bar)
        cross = 0.5 * (pulled.cross + pulled.cross.T)
        gram = evidence.gram_adjoint(bar) + self.factor.weights_pull_back(cross)
        theta = adjoint.theta + pulled.theta
        kernel, points = self.features.kernel, self.features.points
        if kernel.constant_diagonal is not None:
            theta += kernel.diag_pull_back(points[:1], np.array([self.jitter * pulled.trace]))
        replicates = 0.5 * (outcome.n - source.n_rows) / self.noise_variance
        if source.rows.scatter is not None:
            scatter = float(source.rows.scatter[source.index[:, -1]].sum())
            replicates -= 0.5 * scatter / self.noise_variance**2
        return PassAdjoint(theta, adjoint.points, gram, pulled.noise + replicates)

    def _pulled(
        self,
        hoods: Neighborhoods,
        whitened: Whitened,
        tape: Tape,
        bar: SumsAdjoint,
        p_out: Array,
        through_w: Array,
    ) -> _Pulled:
        at, rows = hoods.at, slice(hoods.start, hoods.start + hoods.index.shape[0])
        w, kappa, eta = whitened.w[rows], whitened.kappa[rows], whitened.eta[rows]
        kappa_bar = 2.0 * kappa @ bar.A + np.outer(eta, bar.b)
        eta_bar = kappa @ bar.b + 2.0 * bar.c * eta
        members = gathered(tape.table.K, at)
        w_bar = (members @ kappa_bar[:, :, None])[:, :, 0] + eta_bar[:, None] * hoods.rows.y[at]
        w_bar *= hoods.present
        w_bar[:, -1] += 2.0 * bar.log_precision / w[:, -1]
        p = innovation_pull_back(tape.L[rows], w, w_bar)
        outer = p[:, :, None] * w[:, None, :]
        theta = tape.back.pop(hoods.start)(-0.5 * (outer + outer.transpose(0, 2, 1)))
        mixed = (p[:, None, :] @ members)[:, 0, :]
        recycle(members)
        p_out[rows], through_w[rows] = p, kappa_bar + mixed @ self.factor.inverse
        share = p * w
        noise = -np.vdot(share, self.residual.noise(hoods)) / self.noise_variance
        return _Pulled(theta, float(noise), -float(share.sum()), mixed.T @ kappa)
