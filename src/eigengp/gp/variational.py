"""Latent Gaussian processes of rows that act as Gaussian factors.

C latent functions share a kernel and inducing points `B`. With `K_BB = L Lᵀ`, `F = L⁻ᵀ` and
`Φ = k(X,B) F`, each is `f_c = Φ z_c + e_c + offset`, `z_c ~ N(0, I)`, where `e_c` is what the
inducing points leave out, of variance `k(x,x) − ‖φ(x)‖²`. Rows act on it through the factors
`exp(β f − ½ ω f²)`, with `ω` and `β` of shape (N, C), and a posterior of `z_c` is

    G_c = I + Φᵀ diag(ω_c) Φ,   h_c = G_c⁻¹ Φᵀ β_c,   q(z_c) = N(h_c, G_c⁻¹).

Sums over whitened features keep their digits whatever the factors are. `K_BB` and all rows enter
the log partition function of the factors, with the trace term `½ Σ ω (k(x,x) − ‖φ‖²)`, and
`gradient` takes it back to kernel and inducing points:

    Φ̄ = Σ_c ω_c ∘ [Φ (G_c⁻¹ − I) + Φ h_c h_cᵀ] − β_c h_cᵀ,   K̄ = Φ̄ Fᵀ,
    K̄_BB = ½ F Σ_c [G_c + G_c⁻¹ + h_c h_cᵀ − 2I] Fᵀ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import (
    Additive,
    AnyArray,
    beside,
    namespace,
    on_host,
    positive,
    row_dots,
)
from eigengp.gp.blocks import RowBlock, RowSource
from eigengp.gp.evidence import FactorEvidence, Gradient
from eigengp.gp.likelihoods import NonGaussian
from eigengp.gp.linalg import CholeskyFactor, inverse_lower
from eigengp.gp.model import EigenGP
from eigengp.gp.posterior import draw_joint
from eigengp.gp.sums import Sums
from eigengp.kernels import KernelAdjoint, KernelColumns


class Factors(NamedTuple):
    """The Gaussian factors `exp(β f − ½ ω f²)` of all rows."""

    precision: Array  # `ω`, shape (N, C).
    shift: Array  # `β`, shape (N, C).

    def take(self, block: RowBlock, like: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Return `ω` and `β` of a block, in the library and on the device of an array."""
        own = slice(block.start, block.start + block.n_rows)
        return beside(self.precision[own], like), beside(self.shift[own], like)

    def towards(self, other: Factors, step: float) -> Factors:
        """Return the factors at a fraction of the way to others."""
        if step == 1.0:
            return other
        return Factors(
            self.precision + step * (other.precision - self.precision),
            self.shift + step * (other.shift - self.shift),
        )


# Takes some rows, and mean and variance of the latent functions there, each of shape (n, C).
Use = Callable[[slice, AnyArray, AnyArray], Array]


class Exposure(NamedTuple):
    """The input that holds exposures, and the centre and scale by which it is standardised."""

    column: int
    centre: float
    scale: float


@dataclass(frozen=True)
class _FactorSums(Additive):
    A: Array  # `Φᵀ diag(ω_c) Φ`, shape (C, M, M).
    b: Array  # `Φᵀ β_c`, shape (C, M).


class TargetPosterior(ABC):
    """A posterior of latent functions, and of targets by their likelihood."""

    likelihood: NonGaussian

    @abstractmethod
    def latent(self, X: AnyArray) -> tuple[Array, Array]:
        """Return mean and variance of the latent functions, each of shape (n, C)."""

    @property
    def noise_variance(self) -> float:
        """What targets add to the variance of the latent function depends on the likelihood."""
        return float("nan")

    def mean(self, X: AnyArray) -> Array:
        """Return the mean of targets, shape (n,)."""
        return self.mean_and_variance(X)[0]

    def mean_and_variance(self, X: AnyArray) -> tuple[Array, Array]:
        """Return mean and variance of targets, each of shape (n,)."""
        return self.likelihood.predict(*map(on_host, self.latent(X)))

    def quantile(self, X: AnyArray, level: float) -> Array:
        """Return a quantile of targets, shape (n,)."""
        return self.likelihood.predict_quantile(level, *map(on_host, self.latent(X)))

    def functions(self, n_samples: int, rng: np.random.RandomState) -> Callable[[Array], Array]:
        """Draw targets; the result maps inputs (n, D) to values (n, S)."""
        return lambda X: self.likelihood.draw(self.draw_latent(X, n_samples, rng), rng)

    def _refuse(self, *_: Any) -> Any:
        raise ValueError(
            f"Derivatives, joint covariances and averages are not available for "
            f"likelihood={self.likelihood!r}; they are for Gaussian noise."
        )

    draw_latent = joint_covariance = mean_gradient = variance_gradient = average = _refuse


@dataclass(frozen=True)
class LatentPosterior(TargetPosterior):
    """The posterior of C latent functions, and of targets by their likelihood.

    Parameters
    ----------
    features : KernelColumns
        `k(x, B)`.
    whitening : array of shape (M, M)
        `F`.
    means : array of shape (M, C)
        `h_c` in its columns.
    roots : array of shape (C, M, M)
        Roots of the posterior covariances, `G_c⁻¹ = R_c R_cᵀ`.
    offset : array of shape (C,)
        The prior means of the latent functions.
    likelihood : NonGaussian
        What targets are, given the latent functions.
    exposure : Exposure or None
        Where exposures are, if there are any.
    calibration : tuple of (float, float)
        Factors of the mean and the standard deviation of latent functions in `latent`.
    """

    features: KernelColumns
    whitening: Array
    means: Array
    roots: Array
    offset: Array
    likelihood: NonGaussian
    exposure: Exposure | None = None
    calibration: tuple[float, float] = (1.0, 1.0)

    @property
    def n_columns(self) -> int:
        """How many features each row has."""
        return int(self.whitening.shape[0])

    def latent(self, X: AnyArray) -> tuple[Array, Array]:
        """Return mean and variance of the latent functions, each of shape (n, C)."""
        K = self.features.matrix(X)
        phi = K @ beside(self.whitening, K)
        prior = self.features.prior_variance(X)
        mean, variance = compute_moments(phi, prior, self.means, self.roots)
        mean = mean + beside(self.offset, K)
        if self.exposure is not None:
            mean = mean + compute_log_exposure(X, self.exposure)
        a, b = self.calibration
        return a * mean, b * b * variance

    def draw_latent(self, X: Array, n_samples: int, rng: np.random.RandomState) -> Array:
        """Draw the latent functions jointly at all inputs, shape (n, S, C)."""
        phi = self.features.matrix(X) @ self.whitening
        prior = self.features.kernel.matrix(X, X) - phi @ phi.T
        drawn = []
        for h, root in zip(self.means.T, self.roots, strict=True):
            z = h[:, None] + root @ rng.standard_normal((root.shape[1], n_samples))
            drawn.append(phi @ z + draw_joint(0.5 * (prior + prior.T), n_samples, rng))
        values: Array = np.stack(drawn, axis=2) + self.offset
        own = self.exposure
        return values if own is None else values + compute_log_exposure(X, own)[..., None]


def compute_log_exposure(X: Array, exposure: Exposure) -> Array:
    """Return the logarithms of exposures, which are one of the standardised inputs, (n, 1)."""
    amounts: Array = exposure.centre + exposure.scale * X[:, [exposure.column]]
    if not np.all(amounts > 0.0):
        raise ValueError("Exposures must be positive, but X contains some that are not.")
    return np.log(amounts)


def compute_moments(
    phi: AnyArray, prior: AnyArray, means: Array, roots: Array
) -> tuple[AnyArray, AnyArray]:
    """Return mean and variance of `Φ z_c + e_c` for the prior variances `k(x,x)`, each (n, C)."""
    parts = [phi @ beside(root, phi) for root in roots]
    variance = namespace(phi).concat([row_dots(own, own)[:, None] for own in parts], axis=1)
    left = positive(prior - row_dots(phi, phi))
    return phi @ beside(means, phi), variance + left[:, None]


def stack_moments(posteriors: tuple[FactorEvidence, ...]) -> tuple[Array, Array]:
    """Return the means `h_c`, shape (M, C), and the roots `R_c`, shape (C, M, M)."""
    means = np.stack([each.h for each in posteriors], axis=1)
    return means, np.stack([each.V for each in posteriors])


@dataclass(frozen=True)
class LatentModel:
    """Kernel and inducing points of latent functions, on rows that act as factors.

    Parameters
    ----------
    model : EigenGP
        Kernel, inducing points and jitter; its noise is not used.
    source : RowSource
        The rows, in any library's arrays; only their inputs are used.
    keep : bool
        Whether to keep the whitened features of all rows in memory.
    earlier : tuple of FactorEvidence
        The posterior of earlier rows, which takes the place of the prior; empty if there are none.
    """

    model: EigenGP
    source: RowSource
    keep: bool = True
    earlier: tuple[FactorEvidence, ...] = ()
    _kept: dict[int, AnyArray] = field(default_factory=dict, init=False)

    @cached_property
    def whitening(self) -> Array:
        """`F`, shape (M, M)."""
        return CholeskyFactor.of(self.model.gram.matrix).matrix

    def _phi(self, block: RowBlock) -> AnyArray:
        """Return the whitened features of a block, shape (n, M)."""
        phi = self._kept.get(block.start)
        if phi is None:
            K = self.model.features.matrix(block.X)
            phi = K @ beside(self.whitening, K)
            if self.keep:
                self._kept[block.start] = phi
        return phi

    def condition(self, factors: Factors) -> tuple[FactorEvidence, ...]:
        """Return the posterior of each latent function given the factors of all rows."""

        def term(block: RowBlock) -> _FactorSums:
            phi, xp = self._phi(block), namespace(block.X)
            omega, beta = factors.take(block, phi)
            weighted = [phi * xp.sqrt(omega[:, c : c + 1]) for c in range(omega.shape[1])]
            return _FactorSums(xp.stack([each.T @ each for each in weighted]), beta.T @ phi)

        found = self.source.total(term)
        for c, old in enumerate(self.earlier):
            found.A[c] += old.sums.A
            found.b[c] += old.sums.b
        return tuple(_make_evidence(A, b) for A, b in zip(found.A, found.b, strict=True))

    def visit(self, posteriors: tuple[FactorEvidence, ...], use: Use) -> Array:
        """Return the sum of `use` over blocks of rows."""
        moments = stack_moments(posteriors)

        def term(block: RowBlock) -> Array:
            prior = self.model.features.prior_variance(block.X)
            own = slice(block.start, block.start + block.n_rows)
            return use(own, *compute_moments(self._phi(block), prior, *moments))

        return self.source.total(term)

    def get_divergence(self, posteriors: tuple[FactorEvidence, ...]) -> float:
        """Return `KL(q‖p) = ½ Σ_c [ln|G_c| + h_cᵀh_c − tr(I − G_c⁻¹)]`, or that to an earlier `q`.

        For an earlier posterior `N(h', G'⁻¹)` with `G' = LLᵀ`, the terms are `ln|G| − ln|G'|`,
        `‖Lᵀ(h − h')‖²` and `‖LᵀV‖² − M`.
        """
        if not self.earlier:
            terms = [p.log_determinant + p.mean_norm - p.determined for p in posteriors]
            return 0.5 * sum(terms)
        total = 0.0
        for each, old in zip(posteriors, self.earlier, strict=True):
            apart, spread = old.L_G.T @ (each.h - old.h), old.L_G.T @ each.V
            total += each.log_determinant - old.log_determinant - each.h.size
            total += float(apart @ apart + np.sum(spread * spread))
        return 0.5 * total

    def gradient(self, factors: Factors, posteriors: tuple[FactorEvidence, ...]) -> Gradient:
        """Return the gradient of the negative log partition function with the trace term."""
        F, identity = self.whitening, np.eye(self.whitening.shape[0])
        spread = [each.V @ each.V.T for each in posteriors]
        inner = [each - identity for each in spread]
        kernel = self.model.kernel
        constant = kernel.constant_diagonal

        def term(block: RowBlock) -> KernelAdjoint:
            K, back = self.model.features.forward(block.X)
            xp, F = namespace(K), beside(self.whitening, K)
            phi, (omega, beta) = K @ F, factors.take(block, K)
            bar = xp.zeros_like(phi)
            for c, each in enumerate(posteriors):
                h = beside(each.h, K)
                bar += omega[:, c : c + 1] * (phi @ beside(inner[c], K))
                bar += (omega[:, c] * (phi @ h) - beta[:, c])[:, None] * h
            adjoint, half = back(bar @ F.T, overwrite=True), 0.5 * xp.sum(omega, axis=1)
            at = block.X, half
            if constant is not None:
                at = block.X[:1, :], xp.sum(half, keepdims=True)
            return KernelAdjoint(adjoint.theta + kernel.diag_adjoint(*at).theta, adjoint.points)

        rows = self.source.total(term)
        total = sum(
            each.sums.A + S + np.outer(each.h, each.h) - identity
            for each, S in zip(posteriors, spread, strict=True)
        )
        gram = self.model.gram_pull_back(0.5 * F @ total @ F.T)
        return Gradient(rows.theta + gram.theta, rows.points + gram.points, 0.0, None)


def _make_evidence(A: Array, b: Array) -> FactorEvidence:
    return FactorEvidence(Sums(A, b, 0.0, 0.0, 0.0, 0.0), np.ones(b.size), 1.0)


def recover_evidence(posterior: LatentPosterior) -> tuple[FactorEvidence, ...]:
    """Return the sums behind a posterior: with `G = R⁻ᵀR⁻¹`, they are `G − I` and `G h`."""
    found = []
    for h, root in zip(posterior.means.T, posterior.roots, strict=True):
        L = inverse_lower(np.ascontiguousarray(root.T))
        G = L @ L.T
        found.append(_make_evidence(G - np.eye(h.size), G @ h))
    return tuple(found)
