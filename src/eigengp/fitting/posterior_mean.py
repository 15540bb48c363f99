"""The posterior mean of the full GP, after a fit with nearest neighbours.

Neighbours learn the model, and their error bars stay; the mean from all rows is better wherever
functions are smooth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from eigengp._typing import Array
from eigengp.backend.threads import speed_up_passes
from eigengp.data.neighbors import NeighborSource
from eigengp.gp.blocks import RowBlock
from eigengp.gp.conjugate_gradients import Preconditioner, SymmetricKernelMatrix, solve
from eigengp.gp.linalg import FactorizationError, cholesky, guarded, leave_one_out, solve_both
from eigengp.gp.vecchia import VecchiaPass
from eigengp.kernels import Kernel

_FEW_ROWS = 3_000  # The largest number of rows for which the covariance is factorised.
# The largest number of rows: half of the kernel matrix then takes 1.8 GB in float32.
_MOST_ROWS = 30_000
# The largest number of entries of the kernel matrix for each second of `max_time`.
_ENTRIES_PER_SECOND = 8e7
# Relative residuals. Errors of quadratic forms are of second order, so that probes need less.
_TOLERANCE, _PROBE_TOLERANCE = 1e-3, 3e-2
_PROBES = 3
_HELD_OUT, _LEAST_SHARE = 1_000, 10  # The largest number of held-out rows, at most one in so many.
_MOST_ITERATIONS = 400
# The largest number of inducing points of the preconditioner, the fewest rows for each, and the
# largest number of features of all rows: smooth functions need many points.
_POINTS, _ROWS_PER_POINT, _MOST_FEATURES = 1_000, 4, 10_000_000
_NEIGHBORS = 15  # The number of neighbours of the preconditioner.


@dataclass(frozen=True)
class PosteriorMean:
    """The posterior mean of the full GP.

    Parameters
    ----------
    coefficients : array of shape (N,)
        `a = C⁻¹y`; the mean is `k(x, X) a`.
    errors : array of shape (n,)
        Leave-one-out errors of the first n rows.
    held_out : array of shape (h,) or None
        Errors of the last h rows, predicted from the others. Leave-one-out errors of many rows are
        approximate, and these are not. None where leave-one-out is exact.
    """

    coefficients: Array
    errors: Array
    held_out: Array | None = None


def is_affordable(n_rows: int, seconds: float | None) -> bool:
    """Return whether memory and `max_time` allow the kernel matrix of all rows."""
    return n_rows <= _MOST_ROWS and (seconds is None or n_rows**2 <= _ENTRIES_PER_SECOND * seconds)


def find_posterior_mean(
    model: VecchiaPass,
    source: NeighborSource,
    variance: Array,
    is_over: Callable[[], bool] = lambda: False,
) -> PosteriorMean | None:
    """Solve `C a = y` with `C = k(X, X) + σ² S⁻¹`; None if that fails or time is over.

    The exact leave-one-out error of a row is `a_i / [C⁻¹]_ii`, and `1 / [C⁻¹]_ii` its variance. Of
    many rows that is not known. Neighbours know it up to a factor: they leave more open than all
    rows do, by about as much everywhere. Random signs `z` find the mean factor `c` of n rows, since
    `E zᵀV^½ C⁻¹ V^½z = Σ v_i [C⁻¹]_ii = n c`; the errors are then about `a_i v_i / c`.

    Parameters
    ----------
    model : VecchiaPass
        Kernel and noise.
    source : NeighborSource
        The rows with their neighbours.
    variance : array of shape (n,)
        Leave-one-out variances of the first n rows by their neighbours, for rows that count once.
    is_over : callable
        Returns whether time is over.
    """
    rows, kernel = source.rows, model.features.kernel
    noise = model.noise_variance / rows.weight + model.jitter * model.features.prior_variance(
        rows.X
    )
    try:
        if rows.n_rows <= _FEW_ROWS:
            return _factorize(kernel, rows, noise, variance.size)
        sigma2 = model.noise_variance
        own = variance + (sigma2 / rows.weight - sigma2)[: variance.size]
        with speed_up_passes(_POINTS):
            K = SymmetricKernelMatrix.of(kernel, rows.X, source.n_threads)
            return _iterate(_System(K, noise, _precondition(model, source), is_over), rows, own)
    except (FactorizationError, np.linalg.LinAlgError):
        return None


def _factorize(kernel: Kernel, rows: RowBlock, noise: Array, n_errors: int) -> PosteriorMean:
    """Solve by Cholesky, with exact leave-one-out errors."""
    C = kernel.at(rows.X).matrix(rows.X)
    C.flat[:: rows.n_rows + 1] += noise
    L = guarded(cholesky, C)
    a = solve_both(L, rows.y)
    return PosteriorMean(a, leave_one_out(L, a)[0][:n_errors])


def _precondition(model: VecchiaPass, source: NeighborSource) -> Preconditioner:
    """Make the preconditioner, with many inducing points and few neighbours."""
    n = source.n_rows
    points = source.rows.X[: max(1, min(_POINTS, n // _ROWS_PER_POINT, _MOST_FEATURES // n))]
    model = VecchiaPass.of(model.features.kernel, points, model.noise_variance, model.jitter)
    near = np.hstack([source.index[:, :-1][:, :_NEIGHBORS], source.index[:, -1:]])
    return Preconditioner.of(model.forward(replace(source, index=near)), source.n_threads)


def _iterate(system: _System, rows: RowBlock, variance: Array) -> PosteriorMean | None:
    """Solve by conjugate gradients; None if they do not converge."""
    if not variance.size:
        a = system.solve(rows.y[:, None], np.array([_TOLERANCE]))
        return None if a is None else PosteriorMean(a[:, 0], np.empty(0))
    n = rows.n_rows
    count = n - min(_HELD_OUT, n // _LEAST_SHARE)
    probes, seen = _draw_probes(variance, n), rows.y.copy()
    seen[count:] = 0.0
    tolerance = np.array([_TOLERANCE, _TOLERANCE, *_PROBES * [_PROBE_TOLERANCE]])
    found = system.solve(np.column_stack([seen, rows.y, probes]), tolerance, count)
    if found is None:
        return None
    held_out = (rows.y - system.K.multiply(found[:, :1])[:, 0])[count:]
    factor = float(np.vdot(probes, found[:, 2:])) / (_PROBES * variance.size)
    errors = found[: variance.size, 1] * variance / factor
    return PosteriorMean(found[:, 1].copy(), errors, held_out)


def _draw_probes(variance: Array, n_rows: int) -> Array:
    """Return `V^½ z` for random signs `z` of the first rows, shape (N, k)."""
    probes = np.zeros((n_rows, _PROBES))
    signs = np.random.RandomState(0).choice([-1.0, 1.0], (variance.size, _PROBES))
    probes[: variance.size] = np.sqrt(variance)[:, None] * signs
    return probes


class _System(NamedTuple):
    """The equations `C x = b`, with what solves them."""

    K: SymmetricKernelMatrix
    noise: Array  # The diagonal of `C − K`.
    preconditioner: Preconditioner
    is_over: Callable[[], bool]

    def solve(self, right: Array, tolerance: Array, count: int | None = None) -> Array | None:
        """Return the solutions, shape (N, k); None if the iteration does not converge.

        With `count`, the first column solves the equations of the first rows alone, and its other
        entries are zero. All columns share products with the matrix, which memory limits.
        """
        preconditioner = self.preconditioner

        def multiply(p: Array) -> Array:
            product = self.K.multiply(p) + self.noise[:, None] * p
            if count is not None:
                product[count:, 0] = 0.0
            return product

        if count is not None:
            preconditioner = preconditioner.hold_out(count)
        more = tolerance, _MOST_ITERATIONS, self.is_over
        found = solve(multiply, preconditioner.solve, right, *more)
        return found.x if np.all(found.errors <= tolerance) else None
