"""The posterior mean of the full GP by preconditioned conjugate gradients, in O(N²) time.

The mean is `k(x, X) a` with `C a = y` and `C = K + Δ`, where `K = k(X, X)` and `Δ = σ² S⁻¹` is the
noise of rows that count `s_n` times. Conjugate gradients need products with `K` alone. Eigenvalues
of `C` spread over many orders of magnitude, so that the iteration needs a preconditioner: the
covariance `P` of the nearest-neighbour (Vecchia) approximation. There `U (y − G z)` has
independent entries of variance one given the coefficients `z` of the whitened features `G`, where
row n of the sparse `U` has the weights of row n and its neighbours. With `κ = U G` and the
posterior covariance `V Vᵀ = (I + κᵀκ)⁻¹` of `z`, the lemma of Woodbury gives

    P⁻¹ = Uᵀ (I − H Hᵀ) U,    H = κ V.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import iadd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from eigengp._typing import Array
from eigengp.backend.loops import load_loops
from eigengp.backend.namespace import row_dots
from eigengp.backend.threads import cut_rows, map_in_threads, map_rows, sum_in_threads
from eigengp.gp.linalg import cholesky, solve_lower
from eigengp.gp.vecchia import VecchiaOutcome
from eigengp.kernels import Kernel

_BLOCK = 1_024  # The number of rows and columns of a block.
# The largest number of iterations in which errors are not halved: where the noise is below the
# rounding of the kernel matrix, they never fall.
_PATIENCE = 100


class _Block(NamedTuple):
    """One block of a symmetric matrix."""

    rows: slice
    columns: slice
    values: NDArray[np.float32]


@dataclass(frozen=True)
class SymmetricKernelMatrix:
    """`K = k(X, X)` in float32, of which the blocks on and above the diagonal are kept.

    Parameters
    ----------
    blocks : list of _Block
        The blocks, in order of their rows.
    n_threads : int
        The number of threads of a product.
    """

    blocks: Sequence[_Block]
    n_threads: int = 1

    @classmethod
    def of(cls, kernel: Kernel, X: Array, n_threads: int = 1) -> SymmetricKernelMatrix:
        """Compute the blocks for rows of shape (N, D)."""
        parts = cut_rows(X.shape[0], _BLOCK)
        columns = [kernel.at(X[part]) for part in parts]
        pairs = [(i, j) for i in range(len(parts)) for j in range(i, len(parts))]

        def compute(pair: tuple[int, int]) -> _Block:
            i, j = pair
            values = columns[j].matrix(X[parts[i]], "float32")
            return _Block(parts[i], parts[j], np.array(values, np.float32, order="C"))

        return cls(map_in_threads(compute, pairs, n_threads), n_threads)

    def multiply(self, x: Array) -> Array:
        """Return `K x`, shape (N, k): products of blocks in float32, their sums in float64.

        Missing last rows of `x` are zero.
        """
        k, n = x.shape[1], self.blocks[-1].rows.stop
        low = np.zeros((k, n), dtype=np.float32)
        low[:, : x.shape[0]] = x.T
        loops = load_loops()

        def stripe(own: Sequence[_Block]) -> Array:
            total = np.zeros((k, n))
            for rows, columns, values in own:
                left, right = (np.ascontiguousarray(low[:, part]) for part in (rows, columns))
                product, transposed = np.empty_like(left), np.zeros_like(right)
                loops.multiply_block(values, left, right, product, transposed)
                total[:, rows] += product
                if rows != columns:
                    total[:, columns] += transposed
            return total

        return sum_in_threads(stripe, self.blocks, self.n_threads).T


@dataclass(frozen=True)
class Preconditioner:
    """`P⁻¹ = Uᵀ (I − H Hᵀ) U`, the inverse covariance of the Vecchia approximation.

    Parameters
    ----------
    U : sparse array of shape (N, N)
        The weights of each row and its neighbours.
    H : array of shape (N, M)
        See the head of this file.
    n_threads : int
        The number of threads.
    first : (int, array of shape (M, M)) or None
        See `hold_out`.
    """

    U: sparse.csr_array
    H: Array
    n_threads: int = 1
    first: tuple[int, Array] | None = None

    @classmethod
    def of(cls, outcome: VecchiaOutcome, n_threads: int = 1) -> Preconditioner:
        """Return that of a pass over all rows."""
        whitened, V = outcome.whitened, outcome.evidence.V
        assert whitened is not None
        kappa = whitened.kappa
        U = whitened.make_matrix(kappa.shape[0])
        H = map_rows(lambda rows: kappa[rows] @ V, kappa.shape[0], _BLOCK, n_threads)
        return cls(U, H, n_threads)

    def hold_out(self, count: int) -> Preconditioner:
        """Let the first column of a product be that of the first `count` rows alone.

        They have no neighbours among the others, of which `H` has the part `H₂`. Without these, the
        posterior covariance of the coefficients is `V (I − H₂ᵀH₂)⁻¹ Vᵀ`.
        """
        last = self.H[count:]
        return replace(self, first=(count, cholesky(np.eye(last.shape[1]) - last.T @ last)))

    def solve(self, r: Array) -> Array:
        """Return `P⁻¹ r`, shape (N, k)."""
        u, H, n = self.U @ r, self.H, self.H.shape[0]
        if self.first is not None:
            u[self.first[0] :, 0] = 0.0
        blocks, n_threads = cut_rows(n, _BLOCK), self.n_threads
        parts = map_in_threads(lambda rows: H[rows].T @ u[rows], blocks, n_threads)
        inner = reduce(iadd, parts)
        if self.first is not None:
            L = self.first[1]
            inner[:, 0] = solve_lower(L, solve_lower(L, inner[:, 0]), transposed=True)
        u -= map_rows(lambda rows: H[rows] @ inner, n, _BLOCK, n_threads)
        if self.first is not None:
            u[self.first[0] :, 0] = 0.0
        return np.asarray(self.U.T @ u)


class Solution(NamedTuple):
    """What conjugate gradients found."""

    x: Array  # Shape (N, k).
    errors: Array  # `‖b − C x‖ / ‖b‖` of each column, as the recursion has it, shape (k,).
    n_iter: int


def solve(
    multiply: Callable[[Array], Array],
    precondition: Callable[[Array], Array],
    right: Array,
    tolerance: float | Array,
    max_iter: int,
    is_over: Callable[[], bool] = lambda: False,
) -> Solution:
    """Solve `C x = b` for several `b` side by side; products with `C` are shared.

    Parameters
    ----------
    multiply, precondition : callable
        Return `C p` and `P⁻¹ r` for arrays of shape (N, k).
    right : array of shape (N, k)
        The right-hand sides.
    tolerance : float or array of shape (k,)
        The relative residual of each column at which to stop.
    max_iter : int
        The largest number of iterations.
    is_over : callable
        Returns after each iteration whether time is over.
    """
    x, r = np.zeros_like(right), right.copy()
    size = np.maximum(np.linalg.norm(right, axis=0), np.finfo(np.float64).tiny)
    z = precondition(r)
    p, inner = z, _dots(r, z)
    errors, n_iter = np.linalg.norm(r, axis=0) / size, 0
    least, since = np.inf, 0
    while n_iter < max_iter and np.any(errors > tolerance) and not is_over():
        worst = float(np.max(errors / tolerance))
        if worst < 0.5 * least:
            least, since = worst, n_iter
        elif n_iter - since >= _PATIENCE:
            break
        product = multiply(p)
        step = _ratio(inner, _dots(p, product))
        x += step * p
        r -= step * product
        z = precondition(r)
        before, inner = inner, _dots(r, z)
        p = z + _ratio(inner, before) * p
        errors, n_iter = np.linalg.norm(r, axis=0) / size, n_iter + 1
    return Solution(x, errors, n_iter)


def _dots(left: Array, right: Array) -> Array:
    """Return the inner products of columns, shape (k,)."""
    return row_dots(left.T, right.T)


def _ratio(above: Array, below: Array) -> Array:
    """Return the quotients; zero for columns that are solved already."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0.0)
