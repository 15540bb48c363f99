"""The full GP: every row its own inducing point, O(N³) time and O(N²) memory.

Letters: `C = K + σ² S⁻¹` with `K = k(X,X)` and `s_n`, how often row n counts;
`C = L Lᵀ`, `a = C⁻¹y`. A row that stands `s` times is one row with the noise
`σ²/s`, and the copies' own scatter `q = Σ (y_i − ȳ)²`, zero where their targets are equal, adds
`½ [(s−1) ln 2πσ² + ln s + q/σ²]`.

Predictions use the exact kernel between new inputs and all training rows. Those of the full GP and
of the Nyström method differ only in the covariance `C` of the training targets, which is dense in
the one and of low rank in the other. `μ(x) = k(x,X) C⁻¹y` and `k(x,x) − k(x,X) C⁻¹ k(X,x)` are the
same formulas, but the second is a variance only if `C` and the kernel belong together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import (
    AnyArray,
    Placed,
    beside,
    is_numpy,
    on_host,
    positive,
    row_dots,
)
from eigengp.backend.threads import recycle
from eigengp.gp.blocks import RowBlock, RowSource
from eigengp.gp.evidence import LOG_2PI, Gradient
from eigengp.gp.linalg import (
    cholesky,
    factorize_in_place,
    guarded,
    into_inverse,
    inverse_diagonal,
    inverse_lower,
    invert_in_place,
    solve_both,
    solve_lower,
    sum_log_diagonal,
)
from eigengp.gp.posterior import Posterior, draw_joint
from eigengp.kernels import Kernel, KernelColumns, Stationary
from eigengp.kernels.gram import gram, list_terms, pull_back_gram

_ADVICE = ("training rows", "start from a larger noise variance")
"""What a singular covariance is of, and what helps."""
_DEVICE_FROM = 1_000
"""Fewer rows than this are faster in NumPy."""
_DEVICE_ENTRIES = 1 << 26
"""The number of entries of a block on a device, of which several arrays exist at once."""


@dataclass(frozen=True)
class DenseCovariance:
    """`C = L Lᵀ`, the covariance of the full GP."""

    L: AnyArray
    """In NumPy, or on a device, where all products with it are then computed."""

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

    Q: Array
    """Shape (N, R)."""
    precision: Array
    """The diagonal of `Ω`, shape (N,)."""

    def solve(self, right: Array) -> Array:
        """Return `C⁻¹ right`, for a vector or a matrix."""
        weighted = (self.precision * right.T).T
        rest: Array = weighted - (self.precision * (self.Q @ (self.Q.T @ weighted)).T).T
        return rest

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

    features: KernelColumns
    """`k(x, X)` with the training inputs `X`."""
    coefficients: Array
    """`C⁻¹y`, shape (N,)."""
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

        With `d = diag(C⁻¹)` they are `y − a/d` and `1/d`, for rows of any weight. `1/d` has the
        noise `σ²/weight` of the row in it; the variance of a single new observation has `σ²`.
        """
        assert isinstance(self.covariance, DenseCovariance)
        d = inverse_diagonal(self.covariance.L)
        own = self.noise_variance / rows.weight
        return rows.y - self.coefficients / d, 1.0 / d - own + self.noise_variance

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
        open_ = self.features.prior_variance(X) > self.covariance.quadratic(K)
        bar = -2.0 * self.covariance.solve(K.T).T * open_[:, None]
        own = open_[:, None] * self.features.kernel.diag_input_gradient(X)
        return self.features.input_gradient(X, bar) + own

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
class DeviceBlocks:
    """All rows of an exact GP on a device of PyTorch."""

    rows: RowBlock

    @classmethod
    def of(cls, rows: RowBlock, device: str) -> DeviceBlocks:
        """Move rows from NumPy to a device."""
        import torch

        return cls(rows.map_arrays(lambda array: torch.as_tensor(array, device=device), 0))

    def total(self, term: Callable[[RowBlock], Any]) -> Any:
        """Return the sum of `term(block)` over blocks of rows."""
        n = self.rows.n_rows
        size = max(1, _DEVICE_ENTRIES // n)
        cuts = (self.rows.cut(i)[1].cut(size)[0] for i in range(0, n, size))
        return reduce(add, map(term, cuts))


@dataclass(frozen=True)
class ExactOutcome:
    """The log marginal likelihood of the full GP, and what its posterior needs."""

    value: float
    """`−ln p(y)`."""
    n: float
    """The number of rows, each counted as often as it weighs."""
    rows: RowBlock
    """All rows."""
    L: AnyArray | None
    """With `C = L Lᵀ`; None once the gradient has used up its memory."""
    solved: Array
    """`a = C⁻¹y`, shape (N,)."""


@dataclass(frozen=True)
class ExactGP:
    """The model: a kernel and the noise.

    Parameters
    ----------
    kernel : Kernel
        The GP prior.
    noise_variance : float
        `σ²`.
    device : str or None
        A device of PyTorch, on which the matrices of enough rows are; None is NumPy.
    """

    kernel: Kernel
    noise_variance: float
    device: str | None = None

    def forward(self, source: RowSource | RowBlock, gamma: float = 0.0) -> ExactOutcome:
        """Return the log marginal likelihood; `gamma` has no effect, for nothing is left out.

        The rows of a source are treated in its blocks, those of a block all at once.

        `−ln p(y) = ½ yᵀa + Σ ln L_nn + ½ Σ [s_n ln 2π + (s_n − 1) ln σ² + ln s_n + q_n/σ²]`.
        """
        rows = source if isinstance(source, RowBlock) else source.take(np.arange(source.n_rows))
        L = self._factorize(source, rows)
        s, solved = rows.weight, solve_both(L, rows.y)
        own = LOG_2PI * s + (s - 1.0) * np.log(self.noise_variance) + np.log(s)
        value = 0.5 * float(rows.y @ solved) + sum_log_diagonal(L)
        if rows.scatter is not None:
            value += 0.5 * rows.total_scatter / self.noise_variance
        value += 0.5 * float(own.sum())
        return ExactOutcome(value, float(s.sum()), rows, L, solved)

    def _factorize(self, source: RowSource | RowBlock, rows: RowBlock) -> AnyArray:
        """Return `L`; in recycled memory, if compiled loops know the kernel."""
        terms = self._list_terms(source)
        if terms:
            C = gram(terms, rows.X)
            C.flat[:: rows.n_rows + 1] += self.noise_variance / rows.weight
            if factorize_in_place(C) and np.all(np.isfinite(C.diagonal())):
                return C
        return guarded(cholesky, self._covariance(self._blocks(source, rows), rows), *_ADVICE)

    def _list_terms(self, source: RowSource | RowBlock) -> list[Stationary]:
        """Return the terms of the kernel if compiled loops do the work for these rows."""
        if not isinstance(source, RowBlock) or self._blocks(source, source) is not source:
            return []
        return list_terms(self.kernel)

    def _blocks(self, source: RowSource | RowBlock, rows: RowBlock) -> Any:
        """Return the rows in blocks: those of the source, or on the device."""
        few = self.device is None or rows.n_rows < _DEVICE_FROM
        return source if few else DeviceBlocks.of(rows, str(self.device))

    def _covariance(self, blocks: Any, rows: RowBlock) -> AnyArray:
        """Return `C`, each block of rows filling its own part, shape (N, N)."""
        noise = self.noise_variance / rows.weight
        diagonal = self.kernel.diag(rows.X) + noise
        columns, n = self.kernel.at(rows.X), rows.n_rows
        if blocks is rows:
            C: AnyArray = columns.matrix(rows.X)
        else:
            on_device = isinstance(blocks, DeviceBlocks)
            C = blocks.rows.X.new_empty((n, n)) if on_device else np.empty((n, n))

            def fill(block: RowBlock) -> int:
                C[block.start : block.start + block.n_rows] = columns.matrix(block.X)
                return block.n_rows

            blocks.total(fill)
        if is_numpy(C):
            np.fill_diagonal(C, diagonal)
        else:
            C.diagonal().copy_(beside(diagonal, C))
        return C

    def posterior(self, outcome: ExactOutcome) -> ConditionalPosterior:
        """Return the posterior after `forward`."""
        if outcome.L is None:
            raise ValueError("The gradient has used up this outcome; call `forward` again.")
        features = self.kernel.at(outcome.rows.X)
        covariance = DenseCovariance(outcome.L)
        return ConditionalPosterior(features, outcome.solved, covariance, self.noise_variance)

    def evaluate(
        self, source: RowSource | RowBlock, gamma: float = 0.0
    ) -> tuple[ExactOutcome, Gradient]:
        """Return the log marginal likelihood and its gradient.

        `C̄ = ½ (C⁻¹ − a aᵀ)` is pulled back through the kernel block by block:
        no array is larger than N × N, and `C⁻¹` takes the place of `L`.
        """
        outcome = self.forward(source, gamma)
        rows, terms = outcome.rows, self._list_terms(source)
        if terms:
            inverse: Any = outcome.L
            invert_in_place(inverse)
            theta = pull_back_gram(terms, rows.X, inverse, outcome.solved)
            diagonal = inverse.diagonal().copy()
            recycle(inverse)
            return self._with_gradient(outcome, theta, diagonal)
        inverse = into_inverse(outcome.L)
        a, columns = beside(outcome.solved, inverse), self.kernel.at(rows.X)

        def pull_back(block: RowBlock) -> AnyArray:
            start = 0 if block is rows else block.start
            part = slice(start, start + block.n_rows)
            bar = 0.5 * (inverse[part] - a[part, None] * a)
            return columns.forward(block.X)[1](bar, overwrite=True).theta

        blocks = self._blocks(source, rows)
        theta = on_host(pull_back(rows) if blocks is rows else blocks.total(pull_back))
        return self._with_gradient(outcome, theta, on_host(inverse.diagonal()))

    def _with_gradient(
        self, outcome: ExactOutcome, theta: Array, inverse: Array
    ) -> tuple[ExactOutcome, Gradient]:
        """Add the gradient with respect to the noise, given the diagonal of `C⁻¹`."""
        rows = outcome.rows
        noise_bar = 0.5 * float(np.sum((inverse - outcome.solved**2) / rows.weight))
        log_noise = self.noise_variance * noise_bar + 0.5 * (outcome.n - rows.n_rows)
        if rows.scatter is not None:
            log_noise -= 0.5 * rows.total_scatter / self.noise_variance
        return replace(outcome, L=None), Gradient(theta, rows.X[:0], log_noise)


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
