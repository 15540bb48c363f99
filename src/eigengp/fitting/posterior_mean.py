"""The posterior mean of the full GP, after a fit with nearest neighbours.

Neighbours learn the model, and their error bars stay; the mean from all rows is better wherever
functions are smooth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from eigengp._typing import Array
from eigengp.gp.conjugate_gradients import Preconditioner, SymmetricKernelMatrix, solve
from eigengp.gp.linalg import FactorizationError, cholesky, guarded, inverse_lower, solve_lower
from eigengp.gp.vecchia_posterior import VecchiaPosterior

_FEW_ROWS = 3_000
"""The largest number of rows for which the covariance is factorised."""
_MOST_ROWS = 30_000
"""The largest number of rows: half of the kernel matrix then takes 1.8 GB in float32."""
_ENTRIES_PER_SECOND = 5e6
"""The largest number of entries of the kernel matrix for each second of `max_time`."""
_POINTS, _ROWS_PER_POINT = 1_000, 4
"""The largest number of inducing points of the preconditioner, and the fewest rows for each."""
_TOLERANCE, _PROBE_TOLERANCE = 1e-3, 3e-2
"""Relative residuals. Errors of quadratic forms are of second order, so that probes need less."""
_PROBES = 3
_MOST_ITERATIONS = 400


@dataclass(frozen=True)
class PosteriorMean:
    """The posterior mean of the full GP.

    Parameters
    ----------
    coefficients : array of shape (N,)
        `a = C⁻¹y`; the mean is `k(x, X) a`.
    errors : array of shape (n,)
        Leave-one-out errors of the first n rows.
    """

    coefficients: Array
    errors: Array


def is_affordable(n_rows: int, seconds: float | None) -> bool:
    """Return whether memory and `max_time` allow the kernel matrix of all rows."""
    return n_rows <= _MOST_ROWS and (seconds is None or n_rows**2 <= _ENTRIES_PER_SECOND * seconds)


def find_posterior_mean(
    posterior: VecchiaPosterior,
    variance: Array,
    n_threads: int,
    is_over: Callable[[], bool] = lambda: False,
) -> PosteriorMean | None:
    """Solve `C a = y` with `C = k(X, X) + σ² S⁻¹`; None if that fails or time is over.

    The exact leave-one-out error of a row is `a_i / [C⁻¹]_ii`, and `1 / [C⁻¹]_ii` its variance. Of
    many rows that is not known. Neighbours know it up to a factor: they leave more open than all
    rows do, by about as much everywhere. Random signs `z` find the mean factor `c` of n rows, since
    `E zᵀV^½ C⁻¹ V^½z = Σ v_i [C⁻¹]_ii = n c`; the errors are then about `a_i v_i / c`.

    Parameters
    ----------
    posterior : VecchiaPosterior
        Kernel, noise and rows.
    variance : array of shape (n,)
        Leave-one-out variances of the first n rows by their neighbours, for rows that count once.
    n_threads : int
        The number of threads.
    is_over : callable
        Returns whether time is over.
    """
    rows, sigma2 = posterior.rows, posterior.noise_variance
    kernel = posterior.features.kernel
    noise = sigma2 / rows.weight + posterior.flow.jitter * kernel.diag(rows.X)
    try:
        if rows.n_rows <= _FEW_ROWS:
            return _factorize(posterior, noise, variance.size)
        own = variance + (sigma2 / rows.weight - sigma2)[: variance.size]
        return _iterate(posterior, noise, own, n_threads, is_over)
    except (FactorizationError, np.linalg.LinAlgError):
        return None


def _factorize(posterior: VecchiaPosterior, noise: Array, count: int) -> PosteriorMean:
    """Solve by Cholesky, with exact leave-one-out errors of the first `count` rows."""
    rows = posterior.rows
    C = posterior.features.kernel.matrix(rows.X, rows.X)
    C.flat[:: rows.n_rows + 1] += noise
    L = guarded(cholesky, C)
    a = solve_lower(L, solve_lower(L, rows.y), transposed=True)
    inverse = inverse_lower(L)
    precision = np.einsum("nm,nm->m", inverse, inverse)
    return PosteriorMean(a, a[:count] / precision[:count])


def _iterate(
    posterior: VecchiaPosterior,
    noise: Array,
    variance: Array,
    n_threads: int,
    is_over: Callable[[], bool],
) -> PosteriorMean | None:
    """Solve by conjugate gradients; None if they do not converge."""
    rows, kernel = posterior.rows, posterior.features.kernel
    n = rows.n_rows
    probes = _draw_probes(variance, n)
    points = rows.X[: min(_POINTS, n // _ROWS_PER_POINT)]
    preconditioner = Preconditioner.of(kernel, rows.X, noise, points)
    K = SymmetricKernelMatrix.of(kernel, rows.X, n_threads)
    tolerance = np.array([_TOLERANCE, *probes.shape[1] * [_PROBE_TOLERANCE]])
    found = solve(
        lambda p: K.multiply(p) + noise[:, None] * p,
        preconditioner.solve,
        np.column_stack([rows.y, probes]),
        tolerance,
        _MOST_ITERATIONS,
        is_over,
    )
    if not np.all(found.errors <= tolerance):
        return None
    a = found.x[:, 0]
    factor = float(np.vdot(probes, found.x[:, 1:])) / max(1, variance.size * probes.shape[1])
    return PosteriorMean(a, a[: variance.size] * variance / (factor or 1.0))


def _draw_probes(variance: Array, n_rows: int) -> Array:
    """Return `V^½ z` for random signs `z` of the first rows, shape (N, k); none without rows."""
    count = variance.size
    probes = np.zeros((n_rows, _PROBES if count else 0))
    signs = np.random.RandomState(0).choice([-1.0, 1.0], (count, probes.shape[1]))
    probes[:count] = np.sqrt(variance)[:, None] * signs
    return probes
