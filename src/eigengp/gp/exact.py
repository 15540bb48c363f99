"""The full GP: every row its own inducing point, O(N³) time and O(N²) memory.

Letters: `C = K + σ² S⁻¹` with `K = k(X,X)` and `s_n`, how often row n counts;
`C = L Lᵀ`, `a = C⁻¹y`. A row that stands `s` times is one row with the noise
`σ²/s`, and the copies' own scatter `q = Σ (y_i − ȳ)²`, zero where their targets are equal, adds
`½ [(s−1) ln 2πσ² + ln s + q/σ²]`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from eigengp._typing import Array
from eigengp.backend.loops import find_loops
from eigengp.backend.namespace import AnyArray, beside, is_numpy, on_host
from eigengp.backend.threads import cut_rows, find_address, make_buffer, recycle
from eigengp.gp.blocks import RowBlock, RowSource
from eigengp.gp.evidence import LOG_2PI, Gradient
from eigengp.gp.exact_posterior import ConditionalPosterior, DenseCovariance
from eigengp.gp.linalg import cholesky, guarded, into_inverse, solve_both, sum_log_diagonal
from eigengp.kernels import Kernel, KernelAdjoint
from eigengp.kernels.composite import describe_terms, pull_back_terms

# What a singular covariance is of, and what helps.
_ADVICE = ("training rows", "start from a larger noise variance")
_DEVICE_FROM = 1_000  # Fewer rows than this are faster in NumPy.
# The number of entries of a block on a device, of which several arrays exist at once.
_DEVICE_ENTRIES = 1 << 26


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
        cuts = cut_rows(n, max(1, _DEVICE_ENTRIES // n))
        return reduce(add, (term(self.rows.part(rows)) for rows in cuts))


@dataclass(frozen=True)
class ExactOutcome:
    """The log marginal likelihood of the full GP, and what its posterior needs."""

    value: float  # `−ln p(y)`.
    n: float  # The number of rows, each counted as often as it weighs.
    rows: RowBlock  # All rows.
    L: AnyArray | None  # With `C = L Lᵀ`; None once the gradient has used up its memory.
    solved: Array  # `a = C⁻¹y`, shape (N,).


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
    compiled : bool
        Whether compiled loops evaluate blocks of rows if they know the kernel. Loading them takes
        a moment, which pays off for many blocks.
    input_map : array of shape (D, D) or None
        `W` of the inputs `z = x W` that the kernel sees; None is the identity. Rows are then given
        as a block.
    """

    kernel: Kernel
    noise_variance: float
    device: str | None = None
    compiled: bool = False
    input_map: Array | None = None

    def forward(self, source: RowSource | RowBlock, gamma: float = 0.0) -> ExactOutcome:
        """Return the log marginal likelihood; `gamma` has no effect, for nothing is left out.

        The rows of a source are treated in its blocks, those of a block all at once.

        `−ln p(y) = ½ yᵀa + Σ ln L_nn + ½ Σ [s_n ln 2π + (s_n − 1) ln σ² + ln s_n + q_n/σ²]`.
        """
        return self._condition(self._map_inputs(source))[0]

    def _map_inputs(self, source: Any) -> Any:
        """Return the rows with the inputs that the kernel sees."""
        return source if self.input_map is None else source.map_inputs(self.input_map)

    def _condition(
        self, source: RowSource | RowBlock, with_gradient: bool = False
    ) -> tuple[ExactOutcome, tuple[Array, Array] | None]:
        """Factorise `C` and solve; with the derivatives if compiled loops make them.

        These are by `kernel.theta` and by the inputs, and `C⁻¹` has then taken the place of `L`.
        """
        rows = source if isinstance(source, RowBlock) else source.take(np.arange(source.n_rows))
        s, scatter = rows.weight, 0.5 * rows.total_scatter / self.noise_variance
        noise, blocks, found = self.noise_variance / s, self._blocks(source, rows), None
        own = LOG_2PI * s + (s - 1.0) * np.log(self.noise_variance) + np.log(s)
        if self.compiled and blocks is rows:
            found = self._evaluate_compiled(rows, noise, with_gradient)
        if found is None:
            L = guarded(cholesky, self._covariance(blocks, rows, noise), *_ADVICE)
            found = L, solve_both(L, rows.y), sum_log_diagonal(L), None
        L, a, log_root, slopes = found
        value = 0.5 * float(rows.y @ a) + log_root + scatter + 0.5 * float(own.sum())
        return ExactOutcome(value, float(s.sum()), rows, L, a), slopes

    def _evaluate_compiled(
        self, rows: RowBlock, noise: Array, with_gradient: bool
    ) -> tuple[Array, Array, float, tuple[Array, Array] | None] | None:
        """Return `L`, `a`, `Σ ln L_nn` and derivatives by compiled loops; None if they cannot.

        They do not know the kernel, or there is no `L`. With a gradient the lower half of `C⁻¹`
        takes the place of that of `L`. With `T = C̄ ∘ ρ'(t)` the derivative with respect to `ln ℓ_d`
        is `−2 variance Σ_ij T_ij (x_id − x_jd)²/ℓ_d²`, and by `x_id` it is
        `4 variance Σ_j T_ij (x_id − x_jd)/ℓ_d²`.
        """
        n, D = rows.X.shape
        terms = describe_terms(self.kernel, D)
        if terms is None:
            return None
        given = np.ascontiguousarray(rows.X), *terms, noise
        loops = find_loops(rows.X)
        if not hasattr(loops, "evaluate_gram"):
            return None
        matrix, a = make_buffer((n, n), order="F"), np.empty(n)
        sums = np.zeros((len(terms[0]) if with_gradient else 0, D + 2))
        by_inputs = np.zeros((D if with_gradient and self.input_map is not None else 0, n))
        more = np.ascontiguousarray(rows.y), find_address("dpotrf"), find_address("dpotri")
        log_root = loops.evaluate_gram(*given, *more, matrix.T, a, sums, by_inputs)
        if not np.isfinite(log_root):
            recycle(matrix)
            return None
        if not with_gradient:
            return matrix, a, log_root, None
        return matrix, a, log_root, (pull_back_terms(self.kernel, sums), by_inputs.T)

    def _blocks(self, source: RowSource | RowBlock, rows: RowBlock) -> Any:
        """Return the rows in blocks: those of the source, or on the device."""
        few = self.device is None or rows.n_rows < _DEVICE_FROM
        return source if few else DeviceBlocks.of(rows, str(self.device))

    def _covariance(self, blocks: Any, rows: RowBlock, noise: Array) -> AnyArray:
        """Return `C`, each block of rows filling its own part, shape (N, N)."""
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

    def evaluate(self, source: Any, gamma: float = 0.0) -> tuple[ExactOutcome, Gradient]:
        """Return the log marginal likelihood and its gradient.

        `C̄ = ½ (C⁻¹ − a aᵀ)` is pulled back through the kernel block by block:
        no array is larger than N × N, and `C⁻¹` takes the place of `L`. With `Z̄` of the mapped
        inputs `Z = X W`, that of the map is `W̄ = Xᵀ Z̄`; it takes the place of inducing points.
        """
        mapped = self._map_inputs(source)
        outcome, slopes = self._condition(mapped, with_gradient=True)
        if slopes is None:
            theta, by_inputs, diagonal = self._pull_back(mapped, outcome)
        else:
            inverse: Any = outcome.L
            (theta, by_inputs), diagonal = slopes, inverse.diagonal().copy()
            recycle(inverse)
        rows = outcome.rows
        noise_bar = 0.5 * float(np.sum((diagonal - outcome.solved**2) / rows.weight))
        log_noise = self.noise_variance * noise_bar + 0.5 * (outcome.n - rows.n_rows)
        log_noise -= 0.5 * rows.total_scatter / self.noise_variance
        by_map = rows.X[:0] if self.input_map is None else source.X.T @ by_inputs
        return replace(outcome, L=None), Gradient(theta, by_map, log_noise)

    def _pull_back(
        self, source: RowSource | RowBlock, outcome: ExactOutcome
    ) -> tuple[Array, Array, Array]:
        """Return the derivatives by `kernel.theta` and by the inputs, and the diagonal of `C⁻¹`."""
        rows, inverse = outcome.rows, into_inverse(outcome.L)
        a, columns = beside(outcome.solved, inverse), self.kernel.at(rows.X)

        def pull_back(block: RowBlock) -> KernelAdjoint:
            start = 0 if block is rows else block.start
            part = slice(start, start + block.n_rows)
            bar = 0.5 * (inverse[part] - a[part, None] * a)
            return columns.forward(block.X)[1](bar, overwrite=True)

        blocks = self._blocks(source, rows)
        found = pull_back(rows) if blocks is rows else blocks.total(pull_back)
        by_inputs = 2.0 * on_host(found.points)  # The matrix is symmetric.
        return on_host(found.theta), by_inputs, on_host(inverse.diagonal())
