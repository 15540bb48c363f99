"""Stochastic variational inference: all parameters are learned from batches.

The weights `z` of the whitened eigenfunctions have a variational posterior `q(z) = N(m, S)`. The
evidence lower bound (ELBO)

    Σ_n E_q[ln N(y_n | φ_nᵀz, σ²)] − KL(q ‖ N(0, I)),   φ_n = Fᵀk_n,

equals the log marginal likelihood if q is the posterior. A batch of n rows represents all N rows,
with the factor `s = N/n`. Its natural gradient moves the precision `Λ = S⁻¹` and `Λm` towards
`I + s ΦᵀΦ/σ²` and `s Φᵀy/σ²` (Hensman, Fusi and Lawrence, 2013), a moving average of the sums.
Kernel, inducing points and noise follow the ordinary gradient of the bound. A reservoir sample of
the rows is used for further steps and for the final posterior.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from eigengp._typing import Array
from eigengp.data.array_source import ArraySource
from eigengp.data.open import Dataset
from eigengp.data.standardize import Extent
from eigengp.fitting.objectives import eigengp_parameters
from eigengp.fitting.progress import Monitor
from eigengp.gp.approximations import WhitenedRows, WhitenedSums
from eigengp.gp.blocks import RowBlock, RowSource, joined, regrouped
from eigengp.gp.evidence import Gradient
from eigengp.gp.linalg import CholeskyFactor, cholesky, inverse_from
from eigengp.gp.model import EigenGP
from eigengp.gp.sums import Kept, Sums, SumsAdjoint

_FIRST_MOMENT, _SECOND_MOMENT, _TINY = 0.9, 0.999, 1e-10
FIRST_ITERATIONS = 30  # Iterations of L-BFGS on a sample of the rows, before the batches.
_KEPT_ROWS = 10_000
_REPLAYS = 29  # Steps on rows of the reservoir after each batch.
# The initial step size, and the number of steps after which it decays.
_FIRST_LENGTH, _LONG_STEPS = 0.03, 100.0
# The decay exponent and the smallest value of the natural-gradient step size.
_FORGETS, _SLOWEST_BELIEF = 0.6, 0.02


@dataclass(frozen=True)
class Belief:
    """`q(z) = N(m, S)` in its natural parameters."""

    precision: Array  # `Λ = S⁻¹`, shape (M, M).
    shift: Array  # `Λ m`, shape (M,).

    @classmethod
    def prior(cls, size: int) -> Belief:
        """Return the prior `N(0, I)`."""
        return cls(np.eye(size), np.zeros(size))

    @classmethod
    def condition(cls, sums: Sums, noise_variance: float, times: float) -> Belief:
        """Return the posterior given the rows of the sums, each repeated `times` times."""
        weight = times / noise_variance
        return cls(np.eye(sums.b.size) + weight * sums.A, weight * sums.b)

    def move_towards(self, other: Belief, rate: float) -> Belief:
        """Take a natural-gradient step towards another belief."""
        return Belief(
            (1.0 - rate) * self.precision + rate * other.precision,
            (1.0 - rate) * self.shift + rate * other.shift,
        )

    def compute_moments(self) -> tuple[Array, Array]:
        """Return `m` and `S`."""
        S = inverse_from(cholesky(self.precision))
        return S @ self.shift, S


@dataclass(frozen=True)
class Step:
    """The result of one step."""

    value: float  # The expected negative log-likelihood of all rows, estimated from the batch.
    gradient: Gradient
    belief: Belief


def step_on_batch(
    model: EigenGP, belief: Belief, batch: RowSource, n_rows: float, rate: float
) -> Step:
    """Update the belief by a batch, and compute the gradient of the bound by other parameters.

    Parameters
    ----------
    model : EigenGP
        The model, with the weights of the GP prior.
    belief : Belief
        The belief before the batch.
    batch : RowSource
        The rows of the batch.
    n_rows : float
        `N`, the number of all rows.
    rate : float
        The natural-gradient step size, between 0 and 1.
    """
    prior, s2 = CholeskyFactor.of(model.gram.matrix), model.noise_variance
    rows, kept = WhitenedRows(model.features, prior.matrix), Kept(model.arithmetic.memory_limit)
    sums = batch.total(lambda block: rows.sums(block, kept))
    assert isinstance(sums, WhitenedSums)
    times = n_rows / sums.n
    belief = belief.move_towards(Belief.condition(sums, s2, times), rate)
    m, S = belief.compute_moments()
    second = S + np.outer(m, m)
    bar = SumsAdjoint(0.5 * times * second / s2, -times * m / s2, 0.5 / s2, -0.5)
    pulled = batch.total(lambda block: rows.pull_back(block, bar, kept))
    F_bar = 2.0 * sums.cross @ bar.A + np.outer(sums.features, bar.b)
    gram_bar = model.gram_pull_back(prior.general_pull_back(F_bar))
    missed = times * float(sums.c - 2.0 * sums.b @ m + np.vdot(sums.A, second))
    gradient = Gradient(
        theta=pulled.theta + gram_bar.theta,
        inducing_points=pulled.points + gram_bar.points,
        log_noise_variance=0.5 * (n_rows - missed / s2),
    )
    value = 0.5 * (n_rows * np.log(2.0 * np.pi * s2) + missed / s2)
    return Step(float(value), gradient, belief)


@dataclass
class Adam:
    """The Adam optimiser (Kingma and Ba, 2015)."""

    _mean: Array | float = 0.0
    _square: Array | float = 0.0
    _count: int = 0

    def step(self, gradient: Array, length: float) -> Array:
        """Return the change of the parameters, about `length` in each entry."""
        self._count += 1
        self._mean = _FIRST_MOMENT * self._mean + (1.0 - _FIRST_MOMENT) * gradient
        self._square = _SECOND_MOMENT * self._square + (1.0 - _SECOND_MOMENT) * gradient**2
        mean = self._mean / (1.0 - _FIRST_MOMENT**self._count)
        square = self._square / (1.0 - _SECOND_MOMENT**self._count)
        return -length * mean / (np.sqrt(square) + _TINY)


@dataclass
class Reservoir:
    """A random sample of all rows so far, without replacement (Vitter, 1985).

    Parameters
    ----------
    capacity : int
        The largest number of kept rows.
    rng : RandomState
        The random number generator.
    seen : int
        The number of rows so far.
    rows : RowBlock
        The kept rows.
    """

    capacity: int
    rng: np.random.RandomState
    seen: int = 0
    rows: RowBlock = field(default_factory=RowBlock.empty)

    def add(self, batch: RowBlock) -> None:
        """Add the rows of a batch to the sampled stream."""
        count = batch.n_rows
        if self.seen == 0:
            self.rows = replace(RowBlock.empty(batch.X.shape[1]), sample_weight=np.empty(0))
        batch = replace(batch, sample_weight=batch.weight)
        room = max(0, min(count, self.capacity - self.seen))
        self.rows = joined([self.rows, batch.cut(room)[0]])  # A copy, to be written in.
        places = self.rng.randint(0, np.arange(self.seen + room, self.seen + count) + 1)
        for row, place in enumerate(places.tolist(), start=room):
            if place < self.capacity:
                self.rows.X[place], self.rows.y[place] = batch.X[row], batch.y[row]
                self.rows.weight[place] = batch.weight[row]
        self.seen += count

    def draw(self, count: int) -> RowBlock:
        """Draw some of the kept rows."""
        held = self.rows.n_rows
        return self.rows.picked(self.rng.choice(held, min(count, held), replace=False))


@dataclass
class StochasticLearner:
    """Model and belief, updated batch by batch.

    After each batch the learner takes further steps on kept rows: they need not be read, and many
    streams have too few batches.

    Parameters
    ----------
    box : Extent
        The box around the inputs; inducing points stay near it.
    model : EigenGP
        The current model.
    reservoir : Reservoir
        A sample of the rows so far.
    belief : Belief
        The current belief about the weights.
    optimizer : Adam
        The optimiser of all other parameters.
    weight : float
        The total weight of the rows so far.
    steps : int
        The number of steps so far.
    """

    box: Extent
    model: EigenGP
    reservoir: Reservoir
    belief: Belief
    optimizer: Adam = field(default_factory=Adam)
    weight: float = 0.0
    steps: int = 0

    @classmethod
    def begin(cls, box: Extent, model: EigenGP, rng: np.random.RandomState) -> StochasticLearner:
        """Start from a model learned on a sample of the rows."""
        belief = Belief.prior(model.inducing_points.shape[0])
        return cls(box, model, Reservoir(_KEPT_ROWS, rng), belief)

    def learn(self, dataset: Dataset, batch_size: int, passes: int, monitor: Monitor) -> None:
        """Pass over all rows `passes` times, or once without learning if `passes` is 0."""
        for number in range(max(1, passes)):
            with monitor.stage("batches", -(-dataset.n_rows // batch_size)):
                for batch in dataset.source.batches(batch_size, self.reservoir.rng):
                    shown = self.absorb(batch, number == 0, passes > 0)
                    over = np.isfinite(shown) and monitor.step(shown)
                    if number and over:
                        break
            if monitor.clock.is_over():
                break

    def extend(self, rows: RowBlock, batch_size: int, learn: bool) -> None:
        """Learn from more standardised rows."""
        for batch in regrouped([rows], batch_size):
            self.absorb(batch, learn=learn)

    def absorb(self, batch: RowBlock, fresh: bool = True, learn: bool = True) -> float:
        """Learn from a batch, and return its estimate of the negative log-likelihood per row.

        Parameters
        ----------
        batch : RowBlock
            Standardised rows.
        fresh : bool
            Whether the rows are new, not those of an earlier pass.
        learn : bool
            Whether to learn; otherwise rows are only kept.
        """
        if fresh:
            self.weight += float(np.sum(batch.weight))
            self.reservoir.add(batch)
        if not (learn and np.any(batch.weight > 0.0)):
            return np.nan
        shown = self._learn(batch)
        for _ in range(_REPLAYS):
            drawn = self.reservoir.draw(batch.n_rows)
            if np.any(drawn.weight > 0.0):
                self._learn(drawn)
        return shown

    def _learn(self, rows: RowBlock) -> float:
        """Take one step."""
        batch = ArraySource.of(rows, self.model.inducing_points.shape[0])
        self.steps += 1
        rate = max(_SLOWEST_BELIEF, self.steps**-_FORGETS)
        step = step_on_batch(self.model, self.belief, batch, self.weight, rate)
        free = eigengp_parameters(self.model, self.box)
        length = _FIRST_LENGTH / np.sqrt(1.0 + self.steps / _LONG_STEPS)
        change = self.optimizer.step(free.pack_gradient(step.gradient) / self.weight, length)
        self.model = free.unpack(np.clip(free.start + change, *free.bounds))
        self.belief = step.belief
        return step.value / self.weight
