"""Several outputs: linear combinations of latent functions, each output with its own noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.special import ndtri

from eigengp._typing import Array
from eigengp.gp.likelihoods.base import Expectation, NonGaussian

_LEAST_NOISE = 1e-6
_FIRST_NOISE = 0.1


@dataclass(frozen=True)
class Coregionalized(NonGaussian):
    """P outputs `y_p = Σ_c W_pc f_c + ε_p`, `ε_p ~ N(0, σ_p²)`, of which any may be missing.

    The latent functions share a kernel `k` of variance one, so that outputs have the covariance
    `(W Wᵀ)_{pp'} k(x, x')`: the intrinsic coregionalization model (Bonilla, Chai and Williams,
    2008). `q` is independent between latent functions. With `ρ_p = 1/σ_p²` for outputs that a row
    has and zero for others, and residuals `r_p = y_p − W_p μ`,

        ℓ = −½ Σ_p [ρ_p r_p² + ln 2πσ_p²] − ½ Σ_c v_c Σ_p ρ_p W_pc²,

    so that `ω_c = Σ_p ρ_p W_pc²` and `∂ℓ/∂μ_c = Σ_p ρ_p W_pc r_p`. Given the moments of the latent
    functions, `W` and `σ²` have closed forms, those of a linear regression.

    Parameters
    ----------
    targets : array of shape (N, P)
        Standardised targets, NaN where missing; the `y` of a row is its number.
    mixing : array of shape (P, C) or None
        `W`; None is the start.
    noise : array of shape (P,) or None
        `σ²`; None is the start.
    """

    targets: Array
    mixing: Array | None = None
    noise: Array | None = None

    learns_offset: ClassVar[bool] = False
    refits: ClassVar[bool] = True

    @property
    def n_latent(self) -> int:  # type: ignore[override]
        """As many latent functions as outputs."""
        return int(self.targets.shape[1])

    def start(self, y: Array, weight: Array) -> tuple[Coregionalized, Array, float]:
        """See `NonGaussian.start`: a factor of the correlations, the fullest output first."""
        P = self.n_latent
        if self.mixing is not None:
            return self, np.zeros(P), 1.0
        known = np.isfinite(self.targets)
        filled = np.where(known, self.targets, 0.0)
        both = known.T.astype(float) @ known
        R = (filled.T @ filled) / np.maximum(both, 1.0) * np.minimum(1.0, both / 10.0)
        spread = np.sqrt(np.where(np.diag(R) > 0.0, np.diag(R), 1.0))  # Constant: zero.
        lam, U = np.linalg.eigh(0.9 * R / np.outer(spread, spread))
        R = (U * np.maximum(lam, 0.0)) @ U.T + 0.1 * np.eye(P)
        order = np.argsort(-known.sum(axis=0), kind="stable")
        mixing = np.zeros((P, P))
        mixing[order] = np.linalg.cholesky(R[np.ix_(order, order)])
        return replace(self, mixing=mixing, noise=np.full(P, _FIRST_NOISE)), np.zeros(P), 1.0

    @property
    def _learned(self) -> tuple[Array, Array]:
        """`W` and `σ²` after the start."""
        assert self.mixing is not None
        assert self.noise is not None
        return self.mixing, self.noise

    def _at(self, y: Array) -> tuple[Array, Array]:
        """Return targets with zeros where missing, and which are not, each of shape (n, P)."""
        own = self.targets[y.astype(int)]
        known = np.isfinite(own)
        return np.where(known, own, 0.0), known.astype(float)

    def expect(self, y: Array, mean: Array, variance: Array) -> Expectation:
        """See `NonGaussian.expect`."""
        (own, known), (W, noise) = self._at(y), self._learned
        rho = known / noise
        r = (own - mean @ W.T) * known
        precision = rho @ (W * W)
        value = -0.5 * (rho * r * r + known * np.log(2.0 * np.pi * noise)).sum(axis=1)
        value -= 0.5 * (precision * variance).sum(axis=1)
        return Expectation(value, (rho * r) @ W, -0.5 * precision)

    def refit(self, y: Array, weight: Array, mean: Array, variance: Array) -> Coregionalized:
        """See `NonGaussian.refit`."""
        (own, known), P = self._at(y), self.n_latent
        mixing, noise = np.empty((P, P)), np.empty(P)
        for p in range(P):
            s = weight * known[:, p]
            second = (mean * s[:, None]).T @ mean + np.diag(s @ variance)
            first = mean.T @ (s * own[:, p])
            ridge = 1e-6 * np.trace(second) / P + 1e-12
            mixing[p] = W = np.linalg.solve(second + ridge * np.eye(P), first)
            total = s @ own[:, p] ** 2 - 2.0 * (W @ first) + W @ second @ W
            noise[p] = max(total / max(s.sum(), 1e-300), _LEAST_NOISE)
        return replace(self, mixing=mixing, noise=noise)

    def predict(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return mean and variance of all outputs, each of shape (n, P)."""
        W, noise = self._learned
        return mean @ W.T, variance @ (W * W).T + noise

    def predict_quantile(self, level: float, mean: Array, variance: Array) -> Array:
        """Return a quantile of all outputs, shape (n, P)."""
        centre, spread = self.predict(mean, variance)
        quantile: Array = centre + float(ndtri(level)) * np.sqrt(spread)
        return quantile

    def draw(self, f: Array, rng: np.random.RandomState) -> Array:
        """Draw all outputs given latent values of shape (n, S, C), shape (n, S, P)."""
        W, noise = self._learned
        values: Array = f @ W.T
        return values + np.sqrt(noise) * rng.standard_normal(values.shape)
