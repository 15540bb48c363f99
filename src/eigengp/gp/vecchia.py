"""Vecchia's nearest-neighbour approximation of the residual.

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
the neighbours, and `ln d = −2 ln w_s`. There is no way back: kernels are learned from local GPs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import iadd
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from eigengp._typing import Array
from eigengp.backend.loops import find_loops
from eigengp.backend.namespace import AnyArray
from eigengp.backend.threads import map_in_threads, recycle
from eigengp.gp.blocks import RowBlock
from eigengp.gp.evidence import FactorEvidence, Outcome, PassAdjoint
from eigengp.gp.linalg import CholeskyFactor, FactorizationError, cholesky, solve_lower
from eigengp.gp.sums import Kept, Sums, SumsAdjoint
from eigengp.kernels import Kernel, KernelColumns


class Neighborhoods(NamedTuple):
    """Some sets of rows: neighbours, then the row itself."""

    X: AnyArray
    """The inputs of all members, shape (n, s, D)."""
    at: AnyArray
    """The numbers in a table of features of all members, or of the neighbours alone, (n, s); −1
    means none."""
    noise: AnyArray
    """The noise variance of each, shape (n, s)."""

    @classmethod
    def of(cls, rows: RowBlock, index: NDArray[np.intp], noise: float) -> Neighborhoods:
        """Look up the members."""
        if rows.sample_weight is None:
            return cls(rows.X[index], index, np.full(index.shape, noise))
        return cls(rows.X[index], index, noise / rows.sample_weight[index])


@dataclass
class Table:
    """The whitened features of all members of neighbourhoods, each computed once."""

    G: Array
    """`g = Fᵀk` of each, shape (N, M), whose products are `k̃`."""

    @classmethod
    def of(cls, features: KernelColumns, factor: Array, source: Any) -> Table:
        """Compute features block by block."""
        table = cls(np.empty((source.rows.n_rows, features.points.shape[0])))

        def fill(at: slice) -> None:
            np.matmul(features.matrix(source.rows.X[at]), factor, out=table.G[at])

        map_in_threads(fill, source.blocks, source.n_threads)
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

    def whiten(
        self,
        hoods: Neighborhoods,
        G: AnyArray,
        w: AnyArray,
        kappa: AnyArray,
        own: AnyArray | None = None,
    ) -> AnyArray:
        """Set `w` and `κ`; return packed factors of `R`, in memory that may be recycled.

        All arrays are NumPy's, or on one device of PyTorch.

        Parameters
        ----------
        hoods : Neighborhoods
            Who belongs together.
        G : array of shape (N, M)
            The table of features, whose products are `k̃`.
        w, kappa : arrays of shapes (n, s) and (n, M)
            Where the results are written.
        own : array of shape (n, M) or None
            `g` of the last members, where the table holds their neighbours alone.
        """
        R, loops = self.kernel.stack(hoods.X), find_loops(hoods.X)
        own = G[:0] if own is None else own
        if loops.whiten(R, G, hoods.at, own, hoods.noise, self.jitter, w, kappa) >= 0:
            raise FactorizationError(
                "The covariance of a row and its neighbours is not positive definite. Likely "
                "causes: duplicated rows with different targets at a tiny noise, or inputs of a "
                "huge scale. Start from a larger noise variance, or merge the duplicates."
            )
        return R


def solve_stack(L: Array, r: Array) -> Array:
    """Return `R⁻¹r` for packed factors of `R`, or of its first rows, shape (n, m)."""
    x, loops = np.array(r), find_loops(r)
    loops.solve(L, x, False)
    loops.solve(L, x, True)
    return x


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

    @classmethod
    def of(cls, kernel: Kernel, points: Array, noise_variance: float, jitter: float) -> VecchiaPass:
        """Return the pass of a kernel with these inducing points.

        `jitter` is added to the diagonals of `K_BB` and of neighbourhoods, relative to `k(x, x)`.
        """
        features = kernel.at(points)
        gram = np.array(features.matrix(points))
        gram.flat[:: gram.shape[0] + 1] += jitter * features.prior_scale
        return cls(features, noise_variance, CholeskyFactor.of(gram, whitens=True), jitter)

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
        gamma, kept
            Ignored.
        """
        table = Table.of(self.features, self.prior_factor, source)
        if source.is_complete:
            sums, whitened = self._sums_of_all(source.rows, table), None
        else:
            sums, whitened = self._whiten_all(source, table)
        evidence = FactorEvidence(sums, np.ones(sums.b.size), 1.0)
        return VecchiaOutcome(self, evidence, None, self.prior_factor, whitened=whitened)

    def _whiten_all(self, source: Any, table: Table) -> tuple[Sums, Whitened]:
        """Whiten all rows, and return their sums."""
        n, s = source.index.shape
        kappa = np.empty((n, table.G.shape[1]))
        whitened = Whitened(source.index, np.empty((n, s)), kappa, np.empty(n))

        def whiten(rows: slice) -> None:
            self._whiten(source, rows, table, whitened)

        map_in_threads(whiten, source.chunks, source.n_threads)
        # Neither the groups nor the order of their sums depend on the number of threads.
        parts = map_in_threads(
            lambda rows: self._sums(source, rows, whitened), source.groups, source.n_threads
        )
        return reduce(iadd, parts), whitened

    def _whiten(self, source: Any, rows: slice, table: Table, whitened: Whitened) -> None:
        """Whiten some rows."""
        hoods = Neighborhoods.of(source.rows, source.index[rows], self.noise_variance)
        w = whitened.w[rows]
        recycle(self.residual.whiten(hoods, table.G, w, whitened.kappa[rows]))
        np.einsum("ns,ns->n", w, source.rows.y[hoods.at], out=whitened.eta[rows])

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
        """Raise an error: kernels are learned from local GPs."""
        raise NotImplementedError("The nearest-neighbour residual has no gradient.")
