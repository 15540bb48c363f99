"""Factorisations that do not fail in silence.

LAPACK is called directly: for the small matrices of a small problem the
checks of the general routines cost more than the factorisation.

A kernel matrix of nearby points is singular to working precision. A small jitter on the diagonal
fixes that. It is increased as needed, with a warning, and finally an error names the likely causes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple, TypeVar, cast

import numpy as np
from scipy import linalg
from scipy.linalg import lapack

from eigengp._typing import Array

T = TypeVar("T")

_ESCALATIONS = 6
_FIRST_RELATIVE_JITTER = 1e-10


class FactorizationError(ValueError):
    """A covariance matrix could not be factorised, whatever jitter was added."""


class JitterWarning(UserWarning):
    """More jitter was needed than was asked for."""


def cholesky(K: Array) -> Array:
    """Return the lower triangular `L` with `K = L Lᵀ`; raise `LinAlgError` if there is none."""
    L, info = lapack.dpotrf(K, lower=1)
    if info != 0 or not np.all(np.isfinite(np.diagonal(L))):
        raise linalg.LinAlgError("the matrix is not positive definite, or not finite")
    return cast(Array, L)


class Advice(NamedTuple):
    """What a kernel matrix is of, and what helps if it is singular."""

    points: str
    remedy: str


_INDUCING = Advice("inducing points", "use fewer of them, or a larger jitter")


def guarded(factorize: Callable[[Array], T], K: Array, advice: Advice = _INDUCING) -> T:
    """Return `factorize(K)`, adding growing jitter to the diagonal while it fails.

    Parameters
    ----------
    factorize : callable
        Takes a symmetric matrix; raises `LinAlgError` where it cannot do its work.
    K : array of shape (M, M)
        The matrix, already with the jitter that was asked for.
    advice : Advice
        For the messages.

    Raises
    ------
    FactorizationError
        If even a jitter of one ten-thousandth of the matrix' scale does not help.
    """
    try:
        return factorize(K)
    except linalg.LinAlgError:
        pass
    scale = float(np.mean(np.diagonal(K)))
    for step in range(_ESCALATIONS + 1):
        jitter = scale * _FIRST_RELATIVE_JITTER * 10.0**step
        try:
            result = factorize(K + jitter * np.eye(K.shape[0]))
        except linalg.LinAlgError:
            continue
        warnings.warn(
            f"The kernel matrix of the {advice.points} is nearly singular: {jitter:.1e} was "
            f"added to its diagonal. Remove duplicated {advice.points}, or {advice.remedy}.",
            JitterWarning,
            stacklevel=3,
        )
        return result
    raise FactorizationError(
        f"A {K.shape[0]} x {K.shape[0]} covariance matrix of scale {scale:.2e} is not positive "
        f"definite, even with {scale * _FIRST_RELATIVE_JITTER * 10.0**_ESCALATIONS:.1e} added to "
        f"its diagonal. Likely causes: duplicated {advice.points}, constant columns, or inputs of "
        "a huge scale that make all points look alike. Remedies: standardise the inputs "
        f"(standardize=True), drop constant columns, or {advice.remedy}."
    )


def descending_eigh(K: Array) -> tuple[Array, Array]:
    """Return eigenvalues in descending order, all positive, and eigenvectors as columns."""
    if not np.all(np.isfinite(K)):
        raise linalg.LinAlgError("the matrix holds NaN or infinity")
    values, vectors, info = lapack.dsyevd(K, lower=1)
    if info != 0:
        raise linalg.LinAlgError("the eigen-decomposition did not converge")
    if values[0] <= 1e-15 * values[-1]:
        raise linalg.LinAlgError("the matrix is not positive definite")
    return values[::-1].copy(), np.ascontiguousarray(vectors[:, ::-1])


def solve_lower(L: Array, B: Array, transposed: bool = False) -> Array:
    """Return `L⁻¹ B`, or `L⁻ᵀ B`, by substitution."""
    solution, _ = lapack.dtrtrs(L, B, lower=1, trans=int(transposed))
    return cast(Array, solution)


def inverse_lower(L: Array) -> Array:
    """Return `L⁻¹`, which is lower triangular too."""
    inverse, _ = lapack.dtrtri(L, lower=1)
    return cast(Array, np.tril(inverse))


def inverse_from(L: Array) -> Array:
    """Return `(L Lᵀ)⁻¹`."""
    lower, _ = lapack.dpotri(L, lower=1)  # Zeros above the diagonal stay.
    inverse: Array = lower + lower.T
    inverse.flat[:: inverse.shape[0] + 1] *= 0.5
    return inverse


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
