"""The full GP: every row its own inducing point, O(N³) time and O(N²) memory.

Letters: `C = K + σ² S⁻¹` with `K = k(X,X)` and `s_n`, how often row n counts;
`C = L Lᵀ`, `a = C⁻¹y`. A row that stands `s` times is one row with the noise
`σ²/s`, and the copies' own scatter `q = Σ (y_i − ȳ)²`, zero where their targets are equal, adds
`½ [(s−1) ln 2πσ² + ln s + q/σ²]`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import (
    AnyArray,
    beside,
    is_numpy,
    load_loops,
    on_host,
)
from eigengp.backend.threads import make_buffer, recycle
from eigengp.gp.blocks import RowBlock, RowSource
from eigengp.gp.evidence import LOG_2PI, Gradient
from eigengp.gp.exact_posterior import ConditionalPosterior, DenseCovariance
from eigengp.gp.linalg import (
    cholesky,
    factorize_in_place,
    guarded,
    into_inverse,
    invert_in_place,
    solve_both,
    sum_log_diagonal,
)
from eigengp.kernels import Kernel, Stationary, Sum

_ADVICE = ("training rows", "start from a larger noise variance")
"""What a singular covariance is of, and what helps."""
_DEVICE_FROM = 1_000
"""Fewer rows than this are faster in NumPy."""
_DEVICE_ENTRIES = 1 << 26
"""The number of entries of a block on a device, of which several arrays exist at once."""


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
    terms: Sequence[Stationary] = ()
    """The kernels whose sum the kernel is, if compiled loops made `L`, in recycled memory."""


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
    """

    kernel: Kernel
    noise_variance: float
    device: str | None = None
    compiled: bool = False

    def forward(self, source: RowSource | RowBlock, gamma: float = 0.0) -> ExactOutcome:
        """Return the log marginal likelihood; `gamma` has no effect, for nothing is left out.

        The rows of a source are treated in its blocks, those of a block all at once.

        `−ln p(y) = ½ yᵀa + Σ ln L_nn + ½ Σ [s_n ln 2π + (s_n − 1) ln σ² + ln s_n + q_n/σ²]`.
        """
        rows = source if isinstance(source, RowBlock) else source.take(np.arange(source.n_rows))
        L, terms = self._factorize(source, rows)
        s, solved = rows.weight, solve_both(L, rows.y)
        own = LOG_2PI * s + (s - 1.0) * np.log(self.noise_variance) + np.log(s)
        value = 0.5 * float(rows.y @ solved) + sum_log_diagonal(L)
        value += 0.5 * rows.total_scatter / self.noise_variance
        value += 0.5 * float(own.sum())
        return ExactOutcome(value, float(s.sum()), rows, L, solved, terms)

    def _factorize(
        self, source: RowSource | RowBlock, rows: RowBlock
    ) -> tuple[AnyArray, Sequence[Stationary]]:
        """Return `L`, and the terms of the kernel if compiled loops did the work."""
        blocks = self._blocks(source, rows)
        terms = _list_terms(self.kernel) if self.compiled and blocks is rows else []
        C = _make_gram(terms, rows.X) if terms else None
        if C is not None:
            C.flat[:: rows.n_rows + 1] += self.noise_variance / rows.weight
            if factorize_in_place(C) and np.all(np.isfinite(C.diagonal())):
                return C, terms
        return guarded(cholesky, self._covariance(blocks, rows), *_ADVICE), []

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
        rows = outcome.rows
        if outcome.terms:
            inverse: Any = outcome.L
            invert_in_place(inverse)
            theta = _pull_back_gram(outcome.terms, rows.X, inverse, outcome.solved)
            diagonal = inverse.diagonal().copy()
            recycle(inverse)
        else:
            theta, diagonal = self._pull_back(source, outcome)
        noise_bar = 0.5 * float(np.sum((diagonal - outcome.solved**2) / rows.weight))
        log_noise = self.noise_variance * noise_bar + 0.5 * (outcome.n - rows.n_rows)
        log_noise -= 0.5 * rows.total_scatter / self.noise_variance
        return replace(outcome, L=None), Gradient(theta, rows.X[:0], log_noise)

    def _pull_back(
        self, source: RowSource | RowBlock, outcome: ExactOutcome
    ) -> tuple[Array, Array]:
        """Return the gradient with respect to `kernel.theta`, and the diagonal of `C⁻¹`."""
        rows, inverse = outcome.rows, into_inverse(outcome.L)
        a, columns = beside(outcome.solved, inverse), self.kernel.at(rows.X)

        def pull_back(block: RowBlock) -> AnyArray:
            start = 0 if block is rows else block.start
            part = slice(start, start + block.n_rows)
            bar = 0.5 * (inverse[part] - a[part, None] * a)
            return columns.forward(block.X)[1](bar, overwrite=True).theta

        blocks = self._blocks(source, rows)
        theta = on_host(pull_back(rows) if blocks is rows else blocks.total(pull_back))
        return theta, on_host(inverse.diagonal())


def _list_terms(kernel: Kernel) -> list[Stationary]:
    """Return the kernels whose sum a kernel is, if compiled loops know them all; else nothing.

    Known are stationary kernels with a `decay` and sums of them.
    """
    if isinstance(kernel, Sum):
        left, right = _list_terms(kernel.left), _list_terms(kernel.right)
        return left + right if left and right else []
    return [kernel] if isinstance(kernel, Stationary) and kernel.decay is not None else []


def _make_gram(terms: Sequence[Stationary], X: Array) -> Array | None:
    """Return the lower half of `k(X, X)`, zero above the diagonal, in the order of Fortran.

    Nothing is stored beside the matrix. None if there are no compiled loops.
    """
    points = [_scale(each, X) for each in terms]
    upper, loops = make_buffer((X.shape[0], X.shape[0])), load_loops()
    if not hasattr(loops, "add_gram"):
        return None
    for number, (each, own) in enumerate(zip(terms, points, strict=True)):
        loops.add_gram(own, np.array(each.decay), each.variance, number == 0, upper)
    return upper.T


def _pull_back_gram(terms: Sequence[Stationary], X: Array, inverse: Array, a: Array) -> Array:
    """Return `Σ_ij ½ (C⁻¹ − a aᵀ)_ij dk(x_i, x_j)/dθ`.

    `inverse` is `C⁻¹`, of which entries on and below the diagonal are read. With `T = C̄ ∘ ρ'(t)`
    the derivative with respect to `ln ℓ_d` is `−2 variance Σ_ij T_ij (x_id − x_jd)²/ℓ_d²`.
    """
    found = []
    for each in terms:
        points = _scale(each, X)
        sums = np.zeros(points.shape[0] + 2)
        load_loops().pull_back_gram(points, np.array(each.decay), inverse.T, a, sums)
        lengths = -2.0 * sums[:-2]
        if np.ndim(each.lengthscale) == 0:
            lengths = lengths.sum(keepdims=True)
        elif each.groups is not None:
            lengths = each.sum_groups(lengths)
        n_others = len(each.parameters) - lengths.size
        found.append(each.variance * np.concatenate([lengths, sums[-2:][:n_others]]))
    return np.concatenate(found)


def _scale(kernel: Stationary, X: Array) -> Array:
    """Return the inputs in units of the lengthscales, shape (D, n)."""
    if kernel.active_dims is not None:
        X = X[:, list(kernel.active_dims)]
    return np.ascontiguousarray((X / np.asarray(kernel.lengthscale)).T)
