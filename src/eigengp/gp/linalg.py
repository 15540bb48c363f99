"""Factorisations that do not fail in silence, and their pull-backs.

LAPACK is called directly: for the small matrices of a small problem the checks of the general
routines cost more than the factorisation.

A kernel matrix of nearby points is singular to working precision. A small jitter on the diagonal
fixes that. It is increased as needed, with a warning, and finally an error names the likely causes.

`CholeskyFactor` and `Spectrum` take the kernel matrix of the inducing points to the prior of the
coefficients: the latent function is `f(x) = k(x,B) F z` with `z ~ N(0, I)`, and a factor `F` of
shape (M, R) is all that distinguishes the stages of EigenGP. The log marginal likelihood depends on
`F` through `W = F Fᵀ` alone, so its cotangent always has the form `F̄ = 2 W̄ F`; both pull-backs
rest on that.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from scipy import linalg
from scipy.linalg import lapack

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, beside, is_numpy, namespace, on_host
from eigengp.backend.threads import find_address
from eigengp.gp.blocks import RowBlock

T = TypeVar("T")

_ESCALATIONS = 6
_FIRST_RELATIVE_JITTER = 1e-10
_BROADENING = 1e-7
_ROUNDING = 1e-14
_COINCIDENT = 1e-8
_SYMMETRISED = 256
_LEAST_FREE = 0.1  # The smallest `1 − h` of a row with the leverage `h`.


class FactorizationError(ValueError):
    """A covariance matrix could not be factorised, whatever jitter was added."""


class JitterWarning(UserWarning):
    """More jitter was needed than was asked for."""


def cholesky(K: AnyArray) -> AnyArray:
    """Return the lower triangular `L` with `K = L Lᵀ`; raise `LinAlgError` if there is none."""
    if is_numpy(K):
        L, info = lapack.dpotrf(K, lower=1)
        diagonal = L.diagonal()
    else:
        L, info = _torch().linalg.cholesky_ex(K)
        diagonal = on_host(L.diagonal())
    if int(info) != 0 or not np.all(np.isfinite(diagonal)):
        raise linalg.LinAlgError("the matrix is not positive definite, or not finite")
    return L


def _torch() -> Any:
    """Return PyTorch, whose tensors alone are factorised outside of NumPy."""
    import torch

    return torch


def guarded(
    factorize: Callable[[AnyArray], T],
    K: AnyArray,
    points: str = "inducing points",
    remedy: str = "use fewer of them, or a larger jitter",
) -> T:
    """Return `factorize(K)`, adding growing jitter to the diagonal while it fails.

    Parameters
    ----------
    factorize : callable
        Takes a symmetric matrix; raises `LinAlgError` where it cannot do its work.
    K : array of shape (M, M)
        The matrix, already with the jitter that was asked for.
    points, remedy : str
        What the matrix is of, and what helps if it is singular, for the messages.

    Raises
    ------
    FactorizationError
        If even a jitter of one ten-thousandth of the matrix' scale does not help.
    """
    try:
        return factorize(K)
    except linalg.LinAlgError:
        pass
    scale, xp = float(K.diagonal().mean()), namespace(K)
    for step in range(_ESCALATIONS + 1):
        jitter = scale * _FIRST_RELATIVE_JITTER * 10.0**step
        try:
            eye = xp.eye(K.shape[0], dtype=K.dtype, device=K.device)
            result = factorize(K + jitter * eye)
        except linalg.LinAlgError:
            continue
        warnings.warn(
            f"The kernel matrix of the {points} is nearly singular: {jitter:.1e} was added to its "
            f"diagonal. Remove duplicated {points}, or {remedy}.",
            JitterWarning,
            stacklevel=3,
        )
        return result
    raise FactorizationError(
        f"A {K.shape[0]} x {K.shape[0]} covariance matrix of scale {scale:.2e} is not positive "
        f"definite, even with {scale * _FIRST_RELATIVE_JITTER * 10.0**_ESCALATIONS:.1e} added to "
        f"its diagonal. Likely causes: duplicated {points}, constant columns, or inputs of a huge "
        "scale that make all points look alike. Remedies: standardise the inputs "
        f"(standardize=True), drop constant columns, or {remedy}."
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


def solve_lower(L: AnyArray, B: AnyArray, transposed: bool = False) -> AnyArray:
    """Return `L⁻¹ B`, or `L⁻ᵀ B`, by substitution; both are arrays of one library."""
    if L.shape != (B.shape[0], B.shape[0]):  # LAPACK would print a message, and solve nothing.
        raise linalg.LinAlgError(f"shapes {tuple(L.shape)} and {tuple(B.shape)} do not agree")
    if is_numpy(L):
        return lapack.dtrtrs(L, B, lower=1, trans=int(transposed))[0]
    columns = B[:, None] if B.ndim == 1 else B
    factor = L.T if transposed else L
    solution = _torch().linalg.solve_triangular(factor, columns, upper=transposed)
    return solution[:, 0] if B.ndim == 1 else solution


def solve_both(L: AnyArray, right: AnyArray) -> AnyArray:
    """Return `(L Lᵀ)⁻¹ right` where `right` is, computed where `L` is."""
    half = solve_lower(L, beside(right, L))
    return beside(solve_lower(L, half, transposed=True), right)


def inverse_lower(L: Array) -> Array:
    """Return `L⁻¹`, which is lower triangular too; other threads go on meanwhile."""
    inverse, n = np.array(L, dtype=np.float64, order="F"), ctypes.c_int(L.shape[0])
    info, size = ctypes.c_int(), ctypes.byref(n)
    kind: list[Any] = [ctypes.c_char_p(each) for each in (b"L", b"N")]
    call = ctypes.CFUNCTYPE(None, *6 * [ctypes.c_void_p])(find_address("dtrtri"))
    call(*kind, size, inverse.ctypes.data, size, ctypes.byref(info))
    return np.tril(inverse)


def inverse_from(L: Array) -> Array:
    """Return `(L Lᵀ)⁻¹`."""
    lower, _ = lapack.dpotri(L, lower=1)  # Zeros above the diagonal stay.
    inverse: Array = lower + lower.T
    inverse.flat[:: inverse.shape[0] + 1] *= 0.5
    return inverse


def sum_log_diagonal(L: AnyArray) -> float:
    """Return `Σ ln L_nn`, half of the log determinant of `L Lᵀ`."""
    diagonal = L.diagonal()
    return float(np.log(diagonal if is_numpy(L) else on_host(diagonal)).sum())


def inverse_diagonal(L: AnyArray) -> Array:
    """Return the diagonal of `(L Lᵀ)⁻¹` in NumPy, shape (N,)."""
    if not is_numpy(L):
        return on_host(_torch().cholesky_inverse(L).diagonal())
    inverse = inverse_lower(L)
    return np.asarray(np.einsum("in,in->n", inverse, inverse))


def leave_one_out(L: AnyArray, solved: Array) -> tuple[Array, Array]:
    """Return errors and variances of targets, each predicted from all others, both of shape (N,).

    With the covariance `C = L Lᵀ` of the targets, `a = C⁻¹y` and `d = diag(C⁻¹)` they are `a/d` and
    `1/d`; the variance has the noise of the row in it.
    """
    d = inverse_diagonal(L)
    return solved / d, 1.0 / d


def leave_one_out_moments(
    rows: RowBlock, mean: Array, linear: Array, own: Array, noise_variance: float
) -> tuple[Array, Array]:
    """Return mean and variance of training rows as if each had been left out, of shape (n,).

    The influence of a row on the coefficients is removed: given them it was an
    observation with the variance `d_w`, which is `d` with `σ²/weight` for `σ²`,
    so with `h = tᵀP t/d_w` its error grows by `1/(1 − h)`, and its variance is
    `d + tᵀP t/(1 − h)`.

    Parameters
    ----------
    rows : RowBlock
        The rows.
    mean : array of shape (n,)
        What they are predicted to be by all rows.
    linear : array of shape (n,)
        `tᵀP t`, the variance by the coefficients.
    own : array of shape (n,)
        `d`, the variance given the coefficients, noise included.
    noise_variance : float
        `σ²`.
    """
    counted = 1.0 if rows.sample_weight is None else rows.sample_weight
    weighted = own - noise_variance + noise_variance / counted
    free = np.maximum(1.0 - linear / weighted, _LEAST_FREE)
    return rows.y - (rows.y - mean) / free, own + linear / free


def into_inverse(L: AnyArray) -> AnyArray:
    """Return `(L Lᵀ)⁻¹`, shape (N, N), in the memory of `L`, which is lost, if that is NumPy's."""
    if not is_numpy(L):
        return _torch().cholesky_inverse(L)
    inverse, _ = lapack.dpotri(L, lower=1, overwrite_c=1)
    for i in range(0, inverse.shape[0], _SYMMETRISED):
        j = i + _SYMMETRISED
        inverse[i:j, j:] = inverse[j:, i:j].T
        corner = np.tril(inverse[i:j, i:j])
        inverse[i:j, i:j] = corner + np.tril(corner, -1).T
    return inverse.T


@dataclass(frozen=True)
class CholeskyFactor:
    """Stage 1, all eigenfunctions with the weights of the GP prior: `F = L⁻ᵀ`.

    `K_BB = L Lᵀ` gives `W = K_BB⁻¹`, so `C = K_XB K_BB⁻¹ K_BX + σ²I`, at the
    price of a Cholesky factorisation and with nothing that can diverge.
    """

    gram: Array  # `K_BB`, with all jitter that was needed.
    L: Array

    @classmethod
    def of(cls, gram: Array, whitens: bool = False) -> CholeskyFactor:
        """Factorise `K_BB`, shape (M, M); also compute `F` if it whitens features."""
        own = guarded(lambda K: cls(K, cholesky(K)), gram)
        if whitens:
            _ = own.matrix
        return own

    @cached_property
    def matrix(self) -> Array:
        """`F`, shape (M, M)."""
        return np.ascontiguousarray(inverse_lower(self.L).T)

    @cached_property
    def inverse(self) -> Array:
        """`K_BB⁻¹`, shape (M, M)."""
        return inverse_from(self.L)

    def pull_back(self, F_bar: Array) -> Array:
        """Return `K̄_BB`, shape (M, M).

        `W = K⁻¹` gives `K̄ = −W W̄ W = −½ F (Fᵀ F̄) Fᵀ`, since `F̄ = 2 W̄ F`.
        """
        inner = self.matrix.T @ F_bar
        return -0.25 * self.matrix @ (inner + inner.T) @ self.matrix.T

    def general_pull_back(self, F_bar: Array) -> Array:
        """Return `K̄_BB` where the factor matters itself and not through `W` alone, shape (M, M).

        `dF = −F dLᵀ F` gives `L̄ = −tril(F F̄ᵀ F)`, and `dL = L Φ(L⁻¹ dK L⁻ᵀ)`, where `Φ` takes the
        lower triangle with half of the diagonal, gives `K̄ = F Φ(LᵀL̄) Fᵀ`, made symmetric.
        """
        F = self.matrix
        L_bar = -np.tril(F @ F_bar.T @ F)
        inner = np.tril(self.L.T @ L_bar)
        inner.flat[:: inner.shape[0] + 1] *= 0.5
        gram_bar = F @ inner @ F.T
        return 0.5 * (gram_bar + gram_bar.T)

    def weights_pull_back(self, W_bar: Array) -> Array:
        """Return `K̄_BB = −W W̄ W` for the symmetric cotangent of `W` itself, shape (M, M)."""
        return -self.inverse @ W_bar @ self.inverse


@dataclass(frozen=True)
class Spectrum:
    """The eigen-decomposition `K_BB = U diag(λ) Uᵀ`, largest eigenvalue first.

    The top R eigenfunctions enter as `F = T diag(√v)` with the whitening
    `T = U_R diag(1/√λ)`. The shrinkage `v_j = M w_j/λ_j` is the weight of an
    eigenfunction relative to the one it has under the GP prior: `v = 1` is
    stage 1. With the paper's `φ_j(x) = (√M/λ_j) k(x,B) u_j` the j-th column
    of `F` is `u_j √M √w_j/λ_j`, as it should be.
    """

    values: Array  # `λ`, shape (M,).
    vectors: Array  # `U`, eigenvectors as columns, shape (M, M).

    @classmethod
    def of(cls, gram: Array) -> Spectrum:
        """Decompose `K_BB`, shape (M, M)."""
        return cls(*guarded(descending_eigh, gram))

    def tied(self, per_eigenfunction: Array) -> Array:
        """Average within groups of eigenvalues that coincide, shape (R,).

        Their eigenvectors are arbitrary within the group, so weights of
        their own would mean nothing; the logarithms of the weights, and the
        cotangents of those, are averaged instead.
        """
        lam = self.values[: per_eigenfunction.size]
        apart = lam[:-1] - lam[1:] > _COINCIDENT * lam[:-1]
        group = np.concatenate([[0], np.cumsum(apart)]).astype(np.intp)
        mean: Array = np.bincount(group, per_eigenfunction) / np.bincount(group)
        return mean[group]

    def shrinkage(self, weights: Array) -> Array:
        """Return `v_j = M w_j/λ_j` for the paper's prior variances `w_j`, shape (R,)."""
        return weights * self.values.size / self.values[: weights.size]

    def weights(self, shrinkage: Array) -> Array:
        """Return `w_j = v_j λ_j/M`, shape (R,)."""
        return shrinkage * self.values[: shrinkage.size] / self.values.size

    def shrinkage_pull_back(self, log_shrinkage_bar: Array) -> Array:
        """Return what `ln v = ln w − ln λ + const` adds to `K̄_BB` when `w` is held, (M, M)."""
        U = self.vectors[:, : log_shrinkage_bar.size]
        return -(U * (log_shrinkage_bar / self.values[: log_shrinkage_bar.size])) @ U.T

    def whitening(self, n_components: int) -> Array:
        """Return `T = U_R diag(1/√λ)`, shape (M, R)."""
        return self.vectors[:, :n_components] / np.sqrt(self.values[:n_components])

    def pull_back(self, T_bar: Array, shrinkage: Array) -> Array:
        """Pull the cotangent of `T` back to `K_BB`, with `v` held; shape (M, M).

        What is differentiated depends on `T` through `W = U diag(g) Uᵀ`,
        `g_j = v_j/λ_j` (zero beyond R), so by Daleckii and Krein
        `K̄ = U (D ∘ UᵀW̄U) Uᵀ` with the divided differences
        `D_ij = (g_j − g_i)/(λ_j − λ_i)`. They split into
        `−½(v_i + v_j)/(λ_i λ_j)`, which is smooth and all there is when `v`
        is constant, and `½(1/λ_i + 1/λ_j)·(v_j − v_i)/(λ_j − λ_i)`, which
        has a pole where eigenvalues with different weights meet: the model
        itself jumps there, as the two exchange their weights. Only that
        part is broadened, `1/δ → δ/(δ² + ε²)`, and stays finite.

        `UᵀW̄U` is read off `Q = Uᵀ T̄ diag(1/√λ)`, where `q_ij = 2 (UᵀW̄U)_ij g_j`.
        Of `q_ij` and `q_ji` the one with the larger `g` is used, so that
        nothing is divided by a vanishing weight.
        """
        lam, U, R = self.values, self.vectors, shrinkage.size
        M = lam.size
        v = np.zeros(M)
        v[:R] = shrinkage
        g = v / lam
        Q = np.zeros((M, M))
        Q[:, :R] = U.T @ (T_bar / np.sqrt(lam[:R]))
        W_bar_times_g = 0.5 * np.where(g >= g[:, None], Q, Q.T)

        smooth = -0.5 * (v[:, None] + v) / np.outer(lam, lam)
        pole = 0.5 * (1.0 / lam[:, None] + 1.0 / lam) * (v - v[:, None]) * self._inverse_gaps
        largest = np.maximum(g[:, None], g)
        D = np.divide(smooth + pole, largest, out=np.zeros((M, M)), where=largest > 0.0)
        gram_bar = U @ (D * W_bar_times_g) @ U.T
        return 0.5 * (gram_bar + gram_bar.T)

    @cached_property
    def _inverse_gaps(self) -> Array:
        """`δ/(δ² + ε²)` with `δ_ij = λ_j − λ_i` and `ε` relative to both, shape (M, M)."""
        lam = self.values
        gap = lam - lam[:, None]
        width = np.maximum(_BROADENING * np.sqrt(np.outer(lam, lam)), _ROUNDING * lam[0])
        return gap / (gap**2 + width**2)
