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

from dataclasses import dataclass, field, fields
from functools import cached_property, reduce
from operator import iadd
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from eigengp._typing import Array
from eigengp.backend.loops import find_loops
from eigengp.backend.namespace import AnyArray, cast, dtype_name, is_numpy, namespace
from eigengp.backend.threads import map_in_threads, recycle
from eigengp.gp.blocks import RowBlock
from eigengp.gp.evidence import FactorEvidence, Outcome, PassAdjoint
from eigengp.gp.linalg import CholeskyFactor, FactorizationError, cholesky, solve_lower
from eigengp.gp.sums import Kept, Sums, SumsAdjoint
from eigengp.kernels import Kernel, KernelColumns
from eigengp.kernels.composite import LoopColumns

# The number of neighbourhoods at once, and the largest number of their pairs.
_CHUNK, _CHUNK_PAIRS = 256, 1_000_000
# The number of rows whose features are computed at once; columns whose length is a power of two
# share few places of the cache.
_BLOCK = 500
# The largest number of sums over rows that are added in order, and the least rows of each.
_GROUPS, _LEAST_GROUP = 16, 512


def solve_stack(L: Array, r: Array) -> Array:
    """Return `R⁻¹r` for packed factors of `R`, or of its first rows, shape (n, m)."""
    x, loops = np.array(r), find_loops(r)
    loops.solve(L, x, False)
    loops.solve(L, x, True)
    return x


@dataclass(frozen=True)
class Whitened:
    """All whitened rows."""

    # The numbers of the members of each neighbourhood, nearest first, then of the row itself, shape
    # (N, s); −1 for none.
    index: NDArray[np.intp]
    w: Array  # Shape (N, s).
    kappa: Array  # Shape (N, M).
    eta: Array  # Shape (N,).

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

    # `m` and `V` of the coefficients of `k(x)`, of shapes (M,) and (M, M).
    coefficients: tuple[Array, Array] = field(kw_only=True)
    whitened: Whitened | None = None  # None where every row has all earlier rows as neighbours.


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

    def __getstate__(self) -> dict[str, Any]:
        """Keep the fields alone: the rest can be made again."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def _compiled(self) -> LoopColumns | None:
        return LoopColumns.of(self.features)

    def evaluate_features(self, X: AnyArray) -> AnyArray:
        """Return `k(x, B)`, shape (n, M), by compiled loops if they know the kernel."""
        if is_numpy(X) and self._compiled is not None:
            return self._compiled.matrix(X)
        return self.features.matrix(X)

    def _stack(self, X: AnyArray, at: AnyArray, own: AnyArray | None, dtype: str) -> AnyArray:
        """Return what `LoopColumns.stack` returns, also where compiled loops do not know."""
        if is_numpy(X) and self._compiled is not None:
            return self._compiled.stack(X, at, own, dtype)
        sets = X[at] if own is None else namespace(X).concat([X[at], own[:, None]], axis=1)
        return cast(self.features.kernel.stack(sets), dtype)

    @property
    def prior_factor(self) -> Array:
        """See `Pass.prior_factor`."""
        return self.factor.matrix

    def forward(self, source: Any, gamma: float = 0.0, kept: Kept | None = None) -> VecchiaOutcome:
        """See `Pass.forward`; the residual does what the trace term is for.

        Parameters
        ----------
        source : NeighborSource
            Rows with their neighbours.
        gamma, kept
            Ignored.
        """
        rows, (n, s) = source.rows, source.index.shape
        G = np.empty((rows.n_rows, self.features.points.shape[0]))  # Of each row once.

        def fill(at: slice) -> None:
            np.matmul(self.features.matrix(rows.X[at]), self.prior_factor, out=G[at])

        map_in_threads(fill, _cut(rows.n_rows, _BLOCK), source.n_threads)
        if source.is_complete:
            sums, whitened = self._sums_of_all(rows, G), None
        else:
            arrays = np.empty((n, s)), np.empty((n, G.shape[1])), np.empty(n)
            whitened = Whitened(source.index, *arrays)
            sums = self._whiten_all(rows, G, whitened, source.n_threads)
        evidence = FactorEvidence(sums, np.ones(sums.b.size), 1.0)
        F = self.prior_factor
        own = F @ evidence.mean, F @ evidence.V
        return VecchiaOutcome(self, evidence, None, F, coefficients=own, whitened=whitened)

    def whiten(
        self,
        X: AnyArray,
        at: AnyArray,
        noise: AnyArray,
        G: AnyArray,
        w: AnyArray,
        kappa: AnyArray,
        own: tuple[AnyArray, AnyArray] | None = None,
    ) -> AnyArray:
        """Set `w` and `κ` of sets of rows: neighbours, then the row itself.

        Returns the packed factors of `R`, in memory that may be recycled. All arrays are NumPy's,
        or on one device of PyTorch.

        Parameters
        ----------
        X : array of shape (N, D)
            The table of inputs.
        at : array of shape (n, s)
            The numbers in the tables of all members, or of the neighbours alone; −1 means none.
        noise : array of shape (n, s)
            The noise variance of each.
        G : array of shape (N, M)
            The table of whitened features `g = Fᵀk`, whose products are `k̃`. The factors have its
            type.
        w, kappa : arrays of shapes (n, s) and (n, M)
            Where the results are written.
        own : pair of arrays of shapes (n, D) and (n, M), or None
            Inputs and `g` of the last members, where the tables hold their neighbours alone.
        """
        x, g = (None, G[:0]) if own is None else own
        R = self._stack(X, at, x, dtype_name(G))
        if find_loops(X).whiten(R, G, at, g, noise, self.jitter, w, kappa) >= 0:
            raise FactorizationError(
                "The covariance of a row and its neighbours is not positive definite. Likely "
                "causes: duplicated rows with different targets at a tiny noise, or inputs of a "
                "huge scale. Start from a larger noise variance, or merge the duplicates."
            )
        return R

    def _whiten_all(self, rows: RowBlock, G: Array, whitened: Whitened, n_threads: int) -> Sums:
        """Whiten all rows, and return their sums."""
        n, s = whitened.index.shape
        noise = self.noise_variance / rows.weight

        def whiten(part: slice) -> None:
            at, w = whitened.index[part], whitened.w[part]
            recycle(self.whiten(rows.X, at, noise[at], G, w, whitened.kappa[part]))
            np.einsum("ns,ns->n", w, rows.y[at], out=whitened.eta[part])

        def add(part: slice) -> Sums:
            log_precision = 2.0 * float(np.log(whitened.w[part, -1]).sum())
            own, kappa, eta = whitened.index[part, -1], whitened.kappa[part], whitened.eta[part]
            return self._sums_of_whitened(rows, own, kappa, eta, log_precision)

        chunk = max(1, min(_CHUNK, 2 * _CHUNK_PAIRS // (s * (s + 1))))
        map_in_threads(whiten, _cut(n, chunk), n_threads)
        # Neither the groups nor the order of their sums depend on the number of threads.
        groups = _cut(n, max(_LEAST_GROUP, -(-n // _GROUPS)))
        return reduce(iadd, map_in_threads(add, groups, n_threads))

    def _sums_of_all(self, rows: RowBlock, G: Array) -> Sums:
        """Return the sums where every row has all earlier rows as neighbours.

        With the covariance `R = L Lᵀ` of all rows, the whitened rows are `L⁻¹g` and `L⁻¹y`: O(N³)
        for all rows instead of each, and the result is the exact GP.
        """
        R = self.features.kernel.matrix(rows.X, rows.X) - G @ G.T
        noise = self.noise_variance / rows.weight
        R.flat[:: rows.n_rows + 1] += noise + self.jitter * self.features.kernel.diag(rows.X)
        L = cholesky(R)
        whitened = solve_lower(L, np.column_stack([G, rows.y]))
        log_precision = -2.0 * float(np.log(np.diagonal(L)).sum())
        own = np.arange(rows.n_rows)
        return self._sums_of_whitened(rows, own, whitened[:, :-1], whitened[:, -1], log_precision)

    def _sums_of_whitened(
        self, rows: RowBlock, own: NDArray[np.intp], kappa: Array, eta: Array, log_precision: float
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


def _cut(n: int, size: int) -> list[slice]:
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]
