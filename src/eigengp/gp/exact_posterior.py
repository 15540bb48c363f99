"""Predictions of the full GP and of the Nyström method.

Predictions use the exact kernel between new inputs and all training rows. Those of the full GP and
of the Nyström method differ only in the covariance `C` of the training targets, which is dense in
the one and of low rank in the other. `μ(x) = k(x,X) C⁻¹y` and `k(x,x) − k(x,X) C⁻¹ k(X,x)` are the
same formulas, but the second is a variance only if `C` and the kernel belong together.

With few rows many hyperparameters are plausible, and one optimum is over-confident. Predictions may
be the average of those of some draws from their posterior.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import (
    AnyArray,
    Placed,
    beside,
    is_numpy,
    namespace,
    on_host,
    positive,
    row_dots,
)
from eigengp.gp.blocks import RowBlock
from eigengp.gp.linalg import inverse_lower, leave_one_out, solve_both, solve_lower
from eigengp.gp.posterior import Posterior, draw_joint
from eigengp.kernels import KernelColumns


@dataclass(frozen=True)
class DenseCovariance:
    """`C = L Lᵀ`, the covariance of the full GP."""

    L: AnyArray  # In NumPy, or on a device, where all products with it are then computed.

    def __getstate__(self) -> dict[str, Any]:
        """Keep `L` in NumPy: a device need not be there in another process."""
        return {"L": on_host(self.L)}

    def solve(self, right: AnyArray) -> AnyArray:
        """Return `C⁻¹ right`, for a vector or a matrix."""
        return solve_both(self.L, right)

    def quadratic(self, K: AnyArray) -> AnyArray:
        """Return the diagonal of `K C⁻¹ Kᵀ`, a sum of squares, for `K` of shape (n, N)."""
        half = self._half(K)
        return beside(row_dots(half, half), K)

    def explained(self, K: AnyArray) -> AnyArray:
        """Return `K C⁻¹ Kᵀ`, shape (n, n)."""
        half = self._half(K)
        return beside(half @ half.T, K)

    def _half(self, K: AnyArray) -> AnyArray:
        """Return `K L⁻ᵀ`, shape (n, N), on the device of `L` or, if that is NumPy's, of `K`.

        The array API standard has products alone for it.
        """
        if is_numpy(K) or not is_numpy(self.L):
            return solve_lower(self.L, beside(K, self.L).T).T
        return K @ self._inverse_factor.beside(K).T

    @cached_property
    def _inverse_factor(self) -> Placed:
        return Placed(inverse_lower(self.L))


@dataclass(frozen=True)
class LowRankCovariance:
    """`C = K̃ + Ω⁻¹` with `K̃` of low rank, hence `C⁻¹ = Ω − Ω Q Qᵀ Ω`, `Q = k(X,B) V`."""

    Q: Array  # Shape (N, R).
    precision: Array  # The diagonal of `Ω`, shape (N,).

    def solve(self, right: Array) -> Array:
        """Return `C⁻¹ right`, for a vector or a matrix."""
        weighted = (self.precision * right.T).T
        return weighted - (self.precision * (self.Q @ (self.Q.T @ weighted)).T).T

    def quadratic(self, K: AnyArray) -> AnyArray:
        """Return the diagonal of `K C⁻¹ Kᵀ`, a difference, for `K` of shape (n, N)."""
        weighted, projected = self._project(K)
        return row_dots(weighted, K) - row_dots(projected, projected)

    def explained(self, K: AnyArray) -> AnyArray:
        """Return `K C⁻¹ Kᵀ`, shape (n, n)."""
        weighted, projected = self._project(K)
        return weighted @ K.T - projected @ projected.T

    def _project(self, K: AnyArray) -> tuple[AnyArray, AnyArray]:
        weighted = K * beside(self.precision, K)
        return weighted, weighted @ beside(self.Q, K)


@dataclass(frozen=True)
class ConditionalPosterior:
    """A posterior that keeps all training rows."""

    features: KernelColumns  # `k(x, X)` with the training inputs `X`.
    coefficients: Array  # `C⁻¹y`, shape (N,).
    covariance: DenseCovariance | LowRankCovariance
    noise_variance: float

    @property
    def n_columns(self) -> int:
        """How many training rows there are."""
        return self.coefficients.size

    @cached_property
    def _coefficients(self) -> Placed:
        return Placed(self.coefficients)

    def _matrix(self, X: AnyArray) -> AnyArray:
        """Return `k(x, X)`, on the device of `C` where that is not NumPy's."""
        factor = getattr(self.covariance, "L", None)
        return self.features.matrix(X if factor is None or is_numpy(factor) else beside(X, factor))

    def mean(self, X: AnyArray) -> AnyArray:
        """Return the predictive mean, shape (n,): O(N) for each row."""
        K = self._matrix(X)
        return beside(K @ self._coefficients.beside(K), X)

    def mean_and_raw_variance(self, X: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Return the mean and `k(x,x) − k(x,X) C⁻¹ k(X,x)` as it comes, without noise."""
        K = self._matrix(X)
        raw = self.features.prior_variance(X) - beside(self.covariance.quadratic(K), X)
        return beside(K @ self._coefficients.beside(K), X), raw

    def mean_and_variance(self, X: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Return mean and variance of noisy observations; the latent part never negative."""
        mean, raw = self.mean_and_raw_variance(X)
        return mean, positive(raw) + self.noise_variance

    def leave_one_out(self, rows: RowBlock) -> tuple[Array, Array]:
        """Return mean and variance of all training rows, each predicted from the others.

        The variance has the noise `σ²` of a single new observation in it, whatever the row weighs.
        """
        assert isinstance(self.covariance, DenseCovariance)
        errors, variance = leave_one_out(self.covariance.L, self.coefficients)
        own = self.noise_variance / rows.weight
        return rows.y - errors, variance - own + self.noise_variance

    def latent_covariance(self, X: AnyArray) -> AnyArray:
        """Return the joint covariance of the function at `X`, shape (n, n)."""
        K = self.features.matrix(X)
        joint = self.features.kernel.matrix(X, X) - self.covariance.explained(K)
        return 0.5 * (joint + joint.T)

    def joint_covariance(self, X: AnyArray) -> AnyArray:
        """Return the joint covariance of noisy observations at `X`, shape (n, n)."""
        return self.latent_covariance(X) + beside(self.noise_variance * np.eye(X.shape[0]), X)

    def mean_gradient(self, X: Array) -> Array:
        """Return `d mean/d x`, shape (n, D)."""
        bar = np.broadcast_to(self.coefficients, (X.shape[0], self.coefficients.size))
        return self.features.input_gradient(X, bar)

    def variance_gradient(self, X: Array) -> Array:
        """Return `d variance/d x`, shape (n, D); zero where the variance is held at zero."""
        K = self.features.matrix(X)
        unclipped = self.features.prior_variance(X) > self.covariance.quadratic(K)
        bar = -2.0 * self.covariance.solve(K.T).T * unclipped[:, None]
        own = self.features.kernel.diag_adjoint(X, 1.0 * unclipped)
        return self.features.input_gradient(X, bar) + own.points

    def average(self, X: Array, share: Array) -> tuple[float, float]:
        """See `Predictive.average`: `k(x,·)` averaged over the inputs, at O(n·(n + N) + N²)."""
        average = share @ self.features.matrix(X)
        prior = float(share @ self.features.kernel.matrix(X, X) @ share)
        raw = prior - float(self.covariance.quadratic(average[None])[0])
        return float(average @ self.coefficients), max(raw, 0.0)

    def functions(self, n_samples: int, rng: np.random.RandomState) -> Callable[[Array], Array]:
        """Draw latent functions; the result maps all inputs of interest at once to values.

        See `draw_joint`.
        """

        def values(X: Array) -> Array:
            return self.mean(X)[:, None] + draw_joint(self.latent_covariance(X), n_samples, rng)

        return values


@dataclass(frozen=True)
class MixturePosterior:
    """The average of several posteriors of the same rows.

    It has the mean `μ = mean_s μ_s` and the variance `mean_s v_s + var_s μ_s`.

    Parameters
    ----------
    parts : tuple of ConditionalPosterior
        One posterior for each draw of the hyperparameters; all count alike.
    """

    parts: tuple[ConditionalPosterior, ...]

    @property
    def features(self) -> KernelColumns:
        """`k(x, X)` of the first draw, with the training inputs `X`."""
        return self.parts[0].features

    @property
    def noise_variance(self) -> float:
        """The average noise variance."""
        return float(np.mean([each.noise_variance for each in self.parts]))

    @property
    def n_columns(self) -> int:
        """How many numbers a row becomes on the way."""
        return self.parts[0].n_columns

    def mean(self, X: AnyArray) -> AnyArray:
        """Return the predictive mean, shape (n,)."""
        return _average(each.mean(X) for each in self.parts)

    def mean_and_variance(self, X: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Return mean and variance of noisy observations, each of shape (n,)."""
        return _combine([each.mean_and_variance(X) for each in self.parts])

    def leave_one_out(self, rows: RowBlock) -> tuple[Array, Array]:
        """Return mean and variance of all training rows, each predicted from the others."""
        return _combine([each.leave_one_out(rows) for each in self.parts])

    def latent_covariance(self, X: AnyArray) -> AnyArray:
        """Return the joint covariance of the function at `X`, shape (n, n)."""
        within = _average(each.latent_covariance(X) for each in self.parts)
        means = [each.mean(X) for each in self.parts]
        apart = namespace(X).stack(means) - _average(means)
        return within + apart.T @ apart / len(means)

    def joint_covariance(self, X: AnyArray) -> AnyArray:
        """Return the joint covariance of noisy observations at `X`, shape (n, n)."""
        return self.latent_covariance(X) + beside(self.noise_variance * np.eye(X.shape[0]), X)

    def mean_gradient(self, X: Array) -> Array:
        """Return `d mean/d x`, shape (n, D)."""
        return _average(each.mean_gradient(X) for each in self.parts)

    def variance_gradient(self, X: Array) -> Array:
        """Return `d variance/d x`, shape (n, D)."""
        slopes = [each.mean_gradient(X) for each in self.parts]
        apart = [each.mean(X) - self.mean(X) for each in self.parts]
        between = (2.0 * d[:, None] * s for d, s in zip(apart, slopes, strict=True))
        within = _average(each.variance_gradient(X) for each in self.parts)
        return within + _average(between)

    def average(self, X: Array, share: Array) -> tuple[float, float]:
        """See `Predictive.average`."""
        means, variances = zip(*(each.average(X, share) for each in self.parts), strict=True)
        return float(np.mean(means)), float(np.mean(variances) + np.var(means))

    def functions(self, n_samples: int, rng: np.random.RandomState) -> Callable[[Array], Array]:
        """Draw latent functions, each from one of the parts."""
        chosen = rng.randint(len(self.parts), size=n_samples)

        def values(X: Array) -> Array:
            drawn = np.empty((X.shape[0], n_samples))
            for part in np.unique(chosen):
                own = np.flatnonzero(chosen == part)
                drawn[:, own] = self.parts[part].functions(own.size, rng)(X)
            return drawn

        return values


def _average(values: Iterable[AnyArray]) -> AnyArray:
    found = list(values)
    return sum(found[1:], start=found[0]) / len(found)


def _combine(parts: list[tuple[AnyArray, AnyArray]]) -> tuple[AnyArray, AnyArray]:
    """Return mean and variance of a mixture, from those of its parts."""
    mean = _average(mean for mean, _ in parts)
    return mean, _average(variance + (own - mean) ** 2 for own, variance in parts)


def nystrom_posterior(
    low_rank: Posterior, features: KernelColumns, rows: RowBlock
) -> ConditionalPosterior:
    """Return the predictions of the Nyström method, which keep the exact kernel.

    Parameters
    ----------
    low_rank : Posterior
        The posterior of stage 1, whose `V` gives `Q = k(X,B) V`.
    features : KernelColumns
        Its features `k(x, B)`.
    rows : RowBlock
        All training rows.
    """
    Q = features.matrix(rows.X) @ low_rank.covariance_root
    covariance = LowRankCovariance(Q, rows.weight / low_rank.noise_variance)
    at_rows = features.kernel.at(rows.X)
    solved = covariance.solve(rows.y)
    return ConditionalPosterior(at_rows, solved, covariance, low_rank.noise_variance)
