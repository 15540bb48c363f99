"""Vecchia's nearest-neighbour approximation of the residual, and its pull-back.

EigenGP+ keeps the residual `k_r = k − k̃`, what the features leave out, on the diagonal alone,
with `k̃(x, z) = g(x)ᵀg(z)` and the whitened features `g(x) = Fᵀk(x)`, `F Fᵀ = K_BB⁻¹`. Here each
row is conditioned on its nearest rows among those before it, which leaves whitened rows

    κ_i = Σ_j w_ij g_j,    η_i = Σ_j w_ij y_j

that are independent with variance one given the coefficients `z` of `g`. The log marginal
likelihood is that of a linear model in them, `G = I + Σ κ κᵀ`, with `Σ ln d` in place of `n ln σ²`;
if every row had all rows before it as neighbours, this would be the full GP. In the coordinates of
`k(x)` the same sums would lose half of their digits where `K_BB` is nearly singular.

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
from functools import reduce
from operator import iadd
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from eigengp._typing import Array
from eigengp.backend.loops import list_pairs, load_loops
from eigengp.backend.namespace import Additive
from eigengp.gp.blocks import RowBlock
from eigengp.gp.evidence import FactorEvidence, Outcome, PassAdjoint
from eigengp.gp.linalg import CholeskyFactor, FactorizationError, cholesky, solve_lower
from eigengp.gp.sums import Kept, RowAdjoint, Sums, SumsAdjoint
from eigengp.kernels import Kernel, KernelColumns, PullBack


class Neighborhoods(NamedTuple):
    """Some sets of rows: neighbours, then the row itself.

    `present` and `weight` are None where all members are there, and where each counts once.
    """

    X: Array
    """The inputs of all members, shape (n, s, D)."""
    at: NDArray[np.intp]
    """The numbers in a table of features of all members, or of the neighbours alone, (n, s)."""
    present: NDArray[np.bool_] | None = None
    """Which members there are, shape (n, s); another row stands in for those that are not."""
    weight: Array | None = None
    """How often each counts, shape (n, s)."""

    @classmethod
    def of(cls, rows: RowBlock, index: NDArray[np.intp]) -> Neighborhoods:
        """Look up the members; −1 means none, for which the row itself stands in."""
        present = index >= 0
        at = index
        if all_there := bool(present.all()):
            at = np.ascontiguousarray(at)
        else:
            at = np.where(present, at, at[:, -1:])
        weight = None if rows.sample_weight is None else rows.sample_weight[at]
        return cls(rows.X[at], at, None if all_there else present, weight)


@dataclass
class Table:
    """The whitened features of all members of neighbourhoods, each computed once."""

    G: Array
    """`g = Fᵀk` of each, shape (N, M), whose products are `k̃`."""
    back: dict[int, PullBack] = field(default_factory=dict)
    """The pull-back of `k(x, B)` for the block that begins at each number."""
    occurrences: tuple[Any, ...] = ()
    """Where each row is a member; see `NeighborSource.occurrences`."""

    @classmethod
    def of(cls, features: KernelColumns, factor: Array, source: Any, keep: bool = False) -> Table:
        """Compute features block by block; `keep` what a pull-back needs."""
        table = cls(np.empty((source.rows.n_rows, features.points.shape[0])))

        def fill(at: slice) -> None:
            X = source.rows.X[at]
            if keep:
                K, table.back[at.start] = features.forward(X)
            else:
                K = features.matrix(X)
            np.matmul(K, factor, out=table.G[at])

        if keep:
            table.occurrences = source.occurrences
        source.map(fill, source.blocks)
        return table


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
        self, hoods: Neighborhoods, explained: Array, own: Array | None = None
    ) -> tuple[Array, Callable[[Array], Array]]:
        """Return the packed `R` of each neighbourhood, and its pull-back to the kernel.

        The pull-back may overwrite the cotangent. It leaves the jitter out where `k(x, x)` is one
        number for all rows.

        Parameters
        ----------
        hoods : Neighborhoods
            Who belongs together.
        explained : array of shape (N, M)
            `g` of the table, whose products are `k̃`.
        own : array of shape (n, M) or None
            `g` of the last members, where the table holds their neighbours alone.
        """
        first, second = list_pairs(hoods.X.shape[1])
        diagonal = np.flatnonzero(first == second)
        R, back = self.kernel.stack(hoods.X)
        prior = R[:, diagonal]
        load_loops().subtract_products(explained, hoods.at, R)
        if own is not None:
            last = np.flatnonzero(second == second[-1])
            between = np.empty(hoods.at.shape)
            load_loops().project(explained, hoods.at, own, between)
            R[:, last[:-1]] -= between
            R[:, -1] -= np.einsum("nm,nm->n", own, own)
        R[:, diagonal] += self.noise(hoods) + self.jitter * prior
        if hoods.present is not None:
            R *= hoods.present[:, first] & hoods.present[:, second]
            R[:, diagonal] += ~hoods.present

        def pull_back(R_bar: Array) -> Array:
            if self.kernel.constant_diagonal is None:
                R_bar[:, diagonal] *= 1.0 + self.jitter
            return back(R_bar)

        return R, pull_back

    def noise(self, hoods: Neighborhoods) -> Array | float:
        """Return the noise variance of all members, less where a row counts more, (n, s)."""
        return self.noise_variance if hoods.weight is None else self.noise_variance / hoods.weight


def innovation_weights(R: Array, s: int) -> Array:
    """Return `w = L⁻ᵀe`, shape (n, s), and replace each packed `R` of `s` rows by its factor."""
    if load_loops().factorize(R) >= 0:
        raise FactorizationError(
            "The covariance of a row and its neighbours is not positive definite. Likely causes: "
            "duplicated rows with different targets at a tiny noise, or inputs of a huge scale. "
            "Start from a larger noise variance, or merge the duplicates."
        )
    w = np.zeros((R.shape[0], s))
    w[:, -1] = 1.0
    load_loops().solve(R, w, True)
    return w


def innovation_pull_back(L: Array, w: Array, w_bar: Array) -> Array:
    """Return `p`, of which `R̄ = −½ (p wᵀ + w pᵀ)` is made, shape (n, s)."""
    p = solve_stack(L, w_bar)
    p -= 0.5 * np.einsum("ns,ns->n", w_bar, w)[:, None] * w
    return p


def solve_stack(L: Array, r: Array) -> Array:
    """Return `R⁻¹r` for packed factors of `R`, or of its first rows, shape (n, m)."""
    x, loops = np.array(r), load_loops()
    loops.solve(L, x, False)
    loops.solve(L, x, True)
    return x


@dataclass
class Tape:
    """What the pull-back of a pass needs."""

    table: Table
    L: Array
    """The packed factors, shape (N, P)."""
    back: dict[int, Any] = field(default_factory=dict)
    """The kernel's pull-back for the neighbourhoods that begin at each number."""


@dataclass(frozen=True)
class Whitened:
    """All whitened rows."""

    index: NDArray[np.intp]
    """The numbers of the members of each neighbourhood, nearest first, then of the row itself,
    shape (N, s); −1 for none."""
    w: Array
    """Shape (N, s)."""
    kappa: Array
    """Shape (N, M)."""
    eta: Array
    """Shape (N,)."""

    def make_matrix(self, n_rows: int) -> sparse.csr_array:
        """Return the sparse matrix `U` with `η = U y`, shape (N, n_rows)."""
        present = self.index >= 0
        values = np.where(present, self.w, 0.0)
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


class _Back(NamedTuple):
    """What the way back leaves for each row."""

    p: Array
    """Shape (N, s)."""
    through_w: Array
    """`κ̄ + ϖ`, shape (N, M)."""


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
        table = Table.of(self.features, self.prior_factor, source, keep)
        if source.is_complete and not keep:
            return self._conclude(self._sums_of_all(source.rows, table))
        kappa = np.empty((n, table.G.shape[1]))
        whitened = Whitened(source.index, np.empty((n, s)), kappa, np.empty(n))
        tape = Tape(table, np.empty((n, s * (s + 1) // 2))) if keep else None
        source.map(lambda rows: self._whiten(source, rows, table, whitened, tape), source.chunks)
        parts = source.map(lambda rows: self._sums(source, rows, whitened), source.groups)
        return self._conclude(reduce(iadd, parts), whitened, tape)

    def _conclude(
        self, sums: Sums, whitened: Whitened | None = None, tape: Tape | None = None
    ) -> VecchiaOutcome:
        """Return what the sums say."""
        evidence = FactorEvidence(sums, np.ones(sums.b.size), 1.0)
        return VecchiaOutcome(self, evidence, None, self.prior_factor, whitened=whitened, tape=tape)

    def _whiten(
        self, source: Any, rows: slice, table: Table, whitened: Whitened, tape: Tape | None
    ) -> None:
        """Whiten some rows."""
        hoods = Neighborhoods.of(source.rows, source.index[rows])
        R, back = self.residual.stack(hoods, table.G)
        w = innovation_weights(R, hoods.at.shape[1])
        load_loops().combine(w, table.G, hoods.at, whitened.kappa[rows])
        np.einsum("ns,ns->n", w, source.rows.y[hoods.at], out=whitened.eta[rows])
        whitened.w[rows] = w
        if tape is not None:
            tape.L[rows], tape.back[rows.start] = R, back

    def _sums(self, source: Any, rows: slice, whitened: Whitened) -> Sums:
        """Return the sums of some whitened rows."""
        log_precision = 2.0 * float(np.log(whitened.w[rows, -1]).sum())
        own, kappa, eta = source.index[rows, -1], whitened.kappa[rows], whitened.eta[rows]
        return self._sums_of_whitened(source.rows, own, kappa, eta, log_precision)

    def _sums_of_all(self, rows: RowBlock, table: Table) -> Sums:
        """Return the sums where every row has all earlier rows as neighbours.

        With the covariance `R = L Lᵀ` of all rows, the whitened rows are `L⁻¹g` and `L⁻¹y`: O(N³)
        for all rows instead of each, and the result is the exact GP.
        """
        R = self.features.kernel.matrix(rows.X, rows.X) - table.G @ table.G.T
        noise = self.noise_variance / rows.weight
        R.flat[:: rows.n_rows + 1] += noise + self.jitter * self.features.kernel.diag(rows.X)
        L = cholesky(R)
        whitened = solve_lower(L, np.column_stack([table.G, rows.y]))
        log_precision = -2.0 * float(np.log(np.diagonal(L)).sum())
        own = np.arange(rows.n_rows)
        return self._sums_of_whitened(rows, own, whitened[:, :-1], whitened[:, -1], log_precision)

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

        With `ϖ_i = Σ_j p_ij g_j`, the features receive `ḡ_j = Σ_i w_ij (κ̄_i + ϖ_i) + p_ij κ_i`.
        """
        assert isinstance(outcome, VecchiaOutcome)
        whitened, tape = outcome.whitened, outcome.tape
        assert whitened is not None
        assert tape is not None
        back = _Back(np.empty_like(whitened.w), np.empty_like(whitened.kappa))
        chunks = source.map(
            lambda rows: self._pulled(source, rows, whitened, tape, bar, back), source.chunks
        )
        pulled = reduce(iadd, chunks)
        adjoint, inner = self._pull_back_features(source, whitened, tape.table, back)
        theta = adjoint.theta + pulled.theta
        kernel, points = self.features.kernel, self.features.points
        if kernel.constant_diagonal is not None:
            theta += kernel.diag_pull_back(points[:1], np.array([self.jitter * pulled.trace]))
        replicates = 0.5 * (outcome.n - source.n_rows) / self.noise_variance
        if source.rows.scatter is not None:
            scatter = float(source.rows.scatter[source.index[:, -1]].sum())
            replicates -= 0.5 * scatter / self.noise_variance**2
        gram = self.factor.whitened_pull_back(inner)
        return PassAdjoint(theta, adjoint.points, gram, pulled.noise + replicates)

    def _pulled(
        self,
        source: Any,
        rows: slice,
        whitened: Whitened,
        tape: Tape,
        bar: SumsAdjoint,
        back: _Back,
    ) -> _Pulled:
        """Pull the sums back to the covariances of some neighbourhoods."""
        hoods, loops = Neighborhoods.of(source.rows, source.index[rows]), load_loops()
        w, kappa, eta = whitened.w[rows], whitened.kappa[rows], whitened.eta[rows]
        kappa_bar = np.matmul(kappa, 2.0 * bar.A, out=back.through_w[rows])
        kappa_bar += np.outer(eta, bar.b)
        eta_bar = kappa @ bar.b + 2.0 * bar.c * eta
        w_bar = np.empty_like(w)
        loops.project(tape.table.G, hoods.at, kappa_bar, w_bar)
        w_bar += eta_bar[:, None] * source.rows.y[hoods.at]
        if hoods.present is not None:
            w_bar *= hoods.present
        w_bar[:, -1] += 2.0 * bar.log_precision / w[:, -1]
        p = innovation_pull_back(tape.L[rows], w, w_bar)
        R_bar = tape.L[rows]  # Of no more use.
        loops.pack_outer(-p, w, R_bar)
        theta = tape.back.pop(rows.start)(R_bar)
        mixed = np.empty_like(kappa)
        loops.combine(p, tape.table.G, hoods.at, mixed)
        kappa_bar += mixed
        back.p[rows] = p
        share = p * w
        noise = -float(np.sum(share if hoods.weight is None else share / hoods.weight))
        return _Pulled(theta, noise, -float(share.sum()))

    def _pull_back_features(
        self, source: Any, whitened: Whitened, table: Table, back: _Back
    ) -> tuple[RowAdjoint, Array]:
        """Return what features give to kernel and inducing points, and `Σ g ḡᵀ`, to `F`."""
        loops, (order, sets, starts) = load_loops(), table.occurrences
        w, p = whitened.w.ravel()[order], back.p.ravel()[order]
        G_bar = np.zeros_like(table.G)

        def term(rows: slice) -> RowAdjoint:
            own = starts[rows.start : rows.stop + 1]
            loops.spread(own, sets, w, back.through_w, G_bar[rows])
            loops.spread(own, sets, p, whitened.kappa, G_bar[rows])
            K_bar = (self.prior_factor @ G_bar[rows].T).T
            return RowAdjoint(*table.back.pop(rows.start)(K_bar, overwrite=True))

        adjoint = reduce(iadd, source.map(term, source.blocks))
        inner = source.map(lambda rows: table.G[rows].T @ G_bar[rows], source.row_groups)
        return adjoint, reduce(iadd, inner)
