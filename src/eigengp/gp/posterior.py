"""Predictions: what the rows taught, as a Gaussian over the coefficients.

`f(x) = k(x)ᵀa` with the features `k(x)` and `a ~ N(m, V Vᵀ)`. A posterior
holds no rows, only M × M arrays, and every variance is a sum of squares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from eigengp._typing import Array
from eigengp.backend.namespace import (
    AnyArray,
    Placed,
    beside,
    cast,
    namespace,
    on_host,
    positive,
    row_dots,
)
from eigengp.backend.threads import product, recycle
from eigengp.gp.blocks import RowBlock
from eigengp.gp.evidence import Outcome
from eigengp.gp.linalg import leave_one_out_moments
from eigengp.gp.precision import Arithmetic
from eigengp.kernels import Kernel, KernelColumns


class Predictive(Protocol):
    """What every fitted model can say of new inputs."""

    @property
    def n_columns(self) -> int:
        """How many numbers a row becomes on the way: inducing points, or training rows."""

    def mean(self, X: AnyArray) -> AnyArray:
        """Return the predictive mean, shape (n,)."""

    def mean_and_variance(self, X: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Return mean and variance of noisy observations, each of shape (n,)."""

    def joint_covariance(self, X: AnyArray) -> AnyArray:
        """Return the joint covariance of noisy observations at `X`, shape (n, n)."""

    def mean_gradient(self, X: AnyArray) -> AnyArray:
        """Return `d mean/d x`, shape (n, D)."""

    def variance_gradient(self, X: AnyArray) -> AnyArray:
        """Return `d variance/d x`, shape (n, D)."""

    def average(self, X: Array, share: Array) -> tuple[float, float]:
        """Return mean and variance of `Σ_n share_n f(x_n)`, the noise left out.

        Parameters
        ----------
        X : array of shape (n, D)
            Different inputs, in NumPy.
        share : array of shape (n,)
            The weight of each, of any sign.
        """

    def functions(
        self, n_samples: int, rng: np.random.RandomState
    ) -> Callable[[AnyArray], AnyArray]:
        """Draw latent functions; the result maps inputs (n, D) to values (n, S)."""


@dataclass(frozen=True)
class Posterior:
    """The posterior of a latent function, and of noisy observations of it."""

    features: KernelColumns
    mean_coefficients: Array  # `m`, shape (M,).
    covariance_root: Array  # `V`, shape (M, R).
    noise_variance: float
    # `F`, shape (M, R), where predictions carry the residual `k − k̃`; else None.
    prior_factor: Array | None = None
    # Where given, the residual acts between inputs too, not on the diagonal alone.
    kernel: Kernel | None = None
    arithmetic: Arithmetic = field(default_factory=Arithmetic)
    n_columns: int = field(init=False, repr=False)  # How many features each row has.
    _m: Placed = field(init=False, repr=False, compare=False)
    _V: Placed = field(init=False, repr=False, compare=False)
    _F: Placed | None = field(init=False, repr=False, compare=False)
    _mean_type: str = field(init=False, repr=False, compare=False)
    _variance_type: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        F = self.prior_factor
        object.__setattr__(self, "n_columns", self.mean_coefficients.size)
        object.__setattr__(self, "_m", Placed(self.mean_coefficients))
        object.__setattr__(self, "_V", Placed(self.covariance_root))
        object.__setattr__(self, "_F", None if F is None else Placed(F))
        object.__setattr__(self, "_mean_type", self._type_for(self.mean_coefficients))
        object.__setattr__(self, "_variance_type", self._type_for(self.covariance_root))

    @classmethod
    def of(cls, model: Any, outcome: Outcome, residual: bool = False) -> Posterior:
        """Return the posterior of a model after a pass over the rows, perhaps with the residual."""
        (m, V), T = (outcome.evidence.mean, outcome.evidence.V), outcome.to_coefficients
        if T is not None:
            m, V = T @ m, T @ V
        F = outcome.flow.prior_factor if residual else None
        return cls(model.features, m, V, model.noise_variance, F, arithmetic=model.arithmetic)

    def mean(self, X: AnyArray) -> AnyArray:
        """Return the predictive mean, shape (n,): O(M) for each row."""
        K = self.features.matrix(X, self._mean_type)
        mean = cast(K @ self._m.beside(K), "float64")
        recycle(K)
        return mean

    def mean_and_variance(self, X: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Return mean and variance of noisy observations, each of shape (n,)."""
        K = self.features.matrix(X, self._mean_type)
        mean = cast(K @ self._m.beside(K), "float64")
        own = cast(K, self._variance_type)
        latent = product(own, self._V.beside(own))
        variance = cast(row_dots(latent, latent), "float64") + self.noise_variance
        recycle(latent)
        if self._F is not None:
            variance = variance + self._left_out(X, own)
        recycle(K)
        return mean, variance

    def _type_for(self, coefficients: Array) -> str:
        """Return the data type of features that meet these coefficients."""
        if self.arithmetic.precision == "double":
            return "float64"
        size = self.features.prior_scale**2 * float(np.vdot(coefficients, coefficients))
        return self.arithmetic.prediction_for(size / self.noise_variance)

    def latent_covariance(self, X: AnyArray) -> AnyArray:
        """Return the joint covariance of the function and its residual at `X`, shape (n, n)."""
        K = self.features.matrix(X)
        latent = K @ self._V.beside(K)
        return latent @ latent.T + self._joint_residual(X, K)

    def joint_covariance(self, X: AnyArray) -> AnyArray:
        """Return the joint covariance of noisy observations at `X`, shape (n, n)."""
        return self.latent_covariance(X) + beside(self.noise_variance * np.eye(X.shape[0]), X)

    def _joint_residual(self, X: AnyArray, K: AnyArray) -> AnyArray:
        """Return the covariance of what the features leave out, shape (n, n)."""
        xp = namespace(K)
        eye = xp.eye(X.shape[0], dtype=K.dtype, device=K.device)
        diagonal = eye * self._left_out(X, K)
        if self.kernel is not None and self._F is not None:
            explained = K @ self._F.beside(K)
            between = self.kernel.matrix(X, X) - explained @ explained.T
            return (1.0 - eye) * 0.5 * (between + between.T) + diagonal
        return diagonal

    def _left_out(self, X: AnyArray, K: AnyArray) -> AnyArray:
        """Return the residual variance `k(x,x) − ‖Fᵀk‖²`, never negative, shape (n,)."""
        xp = namespace(K)
        if self._F is None:
            return xp.zeros(K.shape[0], dtype=xp.float64, device=K.device)
        explained = K @ self._F.beside(K)
        rest = self.features.prior_variance(X) - row_dots(explained, explained)
        return positive(cast(rest, "float64"))

    def mean_gradient(self, X: AnyArray) -> AnyArray:
        """Return `d mean/d x`, shape (n, D)."""
        m = beside(self.mean_coefficients, X)
        return self.features.input_gradient(
            X, namespace(X).broadcast_to(m, (X.shape[0], m.shape[0]))
        )

    def variance_gradient(self, X: AnyArray) -> AnyArray:
        """Return `d variance/d x`, shape (n, D): `2 V Vᵀk`, less `2 F Fᵀk` with the residual."""
        K = self.features.matrix(X)
        V = self._V.beside(K)
        bar = 2.0 * (K @ V) @ V.T
        if self._F is None:
            return self.features.input_gradient(X, bar)
        F = self._F.beside(K)
        unclipped = cast(self._left_out(X, K) > 0.0, "float64")
        bar -= 2.0 * unclipped[:, None] * ((K @ F) @ F.T)
        own = self.features.kernel.diag_adjoint(X, unclipped)
        return self.features.input_gradient(X, bar) + own.points

    def average(self, X: Array, share: Array) -> tuple[float, float]:
        """See `Predictive.average`: the average feature `k̄ = Σ share_n k(x_n)` is all it takes.

        The mean is `k̄ᵀm` and the variance `‖Vᵀk̄‖²`, at O(n·M), and that of what the features
        leave out: independent from input to input at O(n), or jointly at O(n²).
        """
        K = self.features.matrix(X)
        average = share @ K
        latent = average @ self.covariance_root
        variance = float(latent @ latent)
        if self.kernel is not None:
            variance += float(share @ self._joint_residual(X, K) @ share)
        elif self._F is not None:
            variance += float(share**2 @ self._left_out(X, K))
        return float(average @ self.mean_coefficients), variance

    def leave_one_out(self, rows: RowBlock) -> tuple[Array, Array]:
        """Return mean and variance of training rows, each predicted from the others."""
        mean, total = self.mean_and_variance(rows.X)
        latent = self.features.matrix(rows.X) @ self.covariance_root
        linear = row_dots(latent, latent)
        return leave_one_out_moments(rows, mean, linear, total - linear, self.noise_variance)

    def functions(
        self, n_samples: int, rng: np.random.RandomState
    ) -> Callable[[AnyArray], AnyArray]:
        """Draw whole latent functions; the result maps inputs (n, D) to values (n, S).

        A residual that acts between inputs is drawn at all of them together. That of EigenGP+ is
        independent between distinct inputs, and a function of the input: equal inputs share it.
        """
        noise = rng.standard_normal((self.covariance_root.shape[1], n_samples))
        drawn = Placed(self.mean_coefficients[:, None] + self.covariance_root @ noise)
        own = self._F is not None and self.kernel is None
        seed = int(rng.randint(1 << 62, dtype=np.int64)) if own else 0

        def values(X: AnyArray) -> AnyArray:
            K = self.features.matrix(X)
            values = K @ drawn.beside(K)
            if self.kernel is not None:
                residual = on_host(self._joint_residual(X, K))
                values += beside(draw_joint(residual, n_samples, rng), K)
            elif own:
                root = np.sqrt(on_host(self._left_out(X, K)))[:, None]
                values += beside(root * draw_by_input(on_host(X), n_samples, seed), K)
            return values

        return values


def draw_by_input(X: Array, n_samples: int, seed: int) -> Array:
    """Return independent standard normal numbers that are functions of the input, shape (n, S).

    The bits of an input are hashed (SplitMix64), so that an input has the same numbers wherever it
    is evaluated, and distinct inputs have different ones.
    """
    bits = np.ascontiguousarray(X + 0.0, dtype=np.float64).view(np.uint64)
    state = np.full(bits.shape[0], seed, dtype=np.uint64)
    for column in bits.T:
        state = _mix(state ^ column)
    steps = _mix(np.arange(1, n_samples + 1, dtype=np.uint64))
    uniform = (_mix(state[:, None] ^ steps) >> np.uint64(11)) + 0.5
    return np.asarray(ndtri(uniform * 2.0**-53))


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the finalising step of SplitMix64, which takes all bits to all bits."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def draw_joint(covariance: Array, n_samples: int, rng: np.random.RandomState) -> Array:
    """Draw from a joint Gaussian of mean zero, shape (n, S).

    The covariance is factorised by its eigenvectors, and what is negative in
    it, by rounding or in the Nyström method, is left out.
    """
    lam, U = np.linalg.eigh(covariance)
    root: Array = U * np.sqrt(np.maximum(lam, 0.0))
    return root @ rng.standard_normal((covariance.shape[0], n_samples))
