"""Where learning starts: inducing points and kernels, and the free parameters of each model.

The log marginal likelihood of a sparse model has many local optima, most of them poor on
nonstationary data, so a fit has many starts. They differ in the lengthscale, over the whole
plausible range, and in the inducing points: half of the drawn ones prefer rows where the target
changes quickly.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn import config_context
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NearestNeighbors

from eigengp._typing import Array
from eigengp.fitting.objectives import (
    LEAST_METRIC,
    eigengp_parameters,
    kernel_parameters,
    spectrum_parameters,
)
from eigengp.gp.blocks import RowBlock
from eigengp.gp.model import EigenGP
from eigengp.gp.sparse_spectrum import SparseSpectrum
from eigengp.kernels import Kernel, Stationary, Warped
from eigengp.kernels.base import KernelT, get_lengthscale_range, with_lengthscale

SCARCE_ROWS_PER_INPUT = 10  # With fewer rows for each input, lengthscales over-fit.
WARPED_INPUTS = 3  # Warps are tried for at most so many inputs.
_WARP_STARTS = ((1.0, 1.0), (2.0, 1.0), (1.0, 2.0))
_WARP_MARGIN = 0.1  # The warped range exceeds that of the data by this fraction on either side.
_NEIGHBOURS = 6
# Of more rows than this and twice the number of points, one in several is used.
_PLACING_ROWS = 10_000
_SHORTENED = 8
CLEARLY = 10.0  # The gain in nats for which an optimum from a short lengthscale is preferred.
# The shortest lengthscale that is tried, in distances of nearest rows: shorter ones isolate every
# row.
_LEAST_DISTANCES = 2.0


def place_points(
    method: str | Array,
    rows: RowBlock,
    count: int,
    kernel: Kernel,
    rng: np.random.RandomState,
    learned: bool = False,
) -> Array:
    """Return `count` inducing points for a first start, shape (count, D).

    Parameters
    ----------
    method : {"kmeans", "random", "greedy"} or array of shape (M, D)
        Cluster centres, random rows, rows picked one by one where the conditional prior variance
        is largest, or the points themselves.
    rows : RowBlock
        The rows among which they are placed.
    count : int
        The number of points.
    kernel : Kernel
        The kernel for which they are placed.
    rng : RandomState
        The random number generator.
    learned : bool
        Whether the kernel is learned; clusters are then those of inputs in units of its
        lengthscales.
    """
    if isinstance(method, np.ndarray):
        return method
    stride = max(1, rows.y.size // max(_PLACING_ROWS, 2 * count))
    if method == "kmeans" and count < rows.y.size:
        unit = np.ones(rows.X.shape[1])
        if learned:
            unit /= np.maximum(kernel.metric(unit.size), LEAST_METRIC)
        weight = None if rows.sample_weight is None else rows.sample_weight[::stride]
        return unit * _cluster(rows.X[::stride] / unit, weight, count, rng)
    if method == "greedy":
        return pick_greedily(rows.X[::stride], count, kernel)
    return draw_rows(rows, count, rng)


def place_among_all(
    method: str, labelled: Array, others: Array, count: int, kernel: Kernel, rng: Any
) -> Array:
    """Return `count` inducing points of labelled and unlabelled rows together, (count, D)."""
    X = np.concatenate([labelled, others])
    rows = RowBlock(X, np.zeros(X.shape[0]))
    return place_points(method, rows, min(count, X.shape[0]), kernel, rng)


def _cluster(X: Array, weight: Array | None, count: int, rng: np.random.RandomState) -> Array:
    # Where scikit-learn looks for other libraries' arrays, it spends half of the time on that.
    dispatch = config_context(array_api_dispatch=False)
    with warnings.catch_warnings(), dispatch:
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = KMeans(count, n_init=1, max_iter=30, random_state=rng).fit(X, sample_weight=weight)
    return model.cluster_centers_.astype(np.float64)


def pick_greedily(X: Array, count: int, kernel: Kernel) -> Array:
    """Pick the rows of largest conditional prior variance, by pivoted Cholesky.

    O(n·count²) time; each step conditions the prior on the rows picked so far.
    """
    remaining = kernel.diag(X)
    least = 1e-12 * float(np.max(remaining))
    factor = np.zeros((count, X.shape[0]))
    picked = np.zeros(count, dtype=np.intp)
    for step in range(count):
        pivot = int(np.argmax(remaining))
        picked[step] = pivot
        column = kernel.matrix(X[pivot : pivot + 1], X)[0] - factor[:step, pivot] @ factor[:step]
        factor[step] = column / np.sqrt(max(remaining[pivot], least))
        remaining = np.maximum(remaining - factor[step] ** 2, 0.0)
        remaining[pivot] = -1.0
    return X[picked]


def draw_rows(
    rows: RowBlock, count: int, rng: np.random.RandomState, preference: Array | None = None
) -> Array:
    """Draw the inputs of `count` different rows at random."""
    probability = np.ones(rows.y.size) if preference is None else preference
    if rows.sample_weight is not None:
        probability = probability * rows.sample_weight
    possible = int(np.count_nonzero(probability))
    chosen = rng.choice(
        rows.y.size, count, replace=count > possible, p=probability / probability.sum()
    )
    return rows.X[chosen]


def measure_roughness(rows: RowBlock) -> Array:
    """Return how much each target differs from its neighbours, with mean one, shape (n,)."""
    k = min(_NEIGHBOURS, rows.y.size - 1)
    if k < 1:
        return np.ones(rows.y.size)
    neighbours = NearestNeighbors(n_neighbors=k).fit(rows.X).kneighbors(return_distance=False)
    change: Array = np.abs(rows.y - rows.y[neighbours].mean(axis=1))
    return change / change.mean() if change.any() else np.ones(rows.y.size)


def count_varying(X: Array, groups: Sequence[int] | None = None) -> int:
    """Return the number of inputs that are not constant, and at least one; a group is one input.

    The lengthscales that are plausible depend on it; a constant column must not change them.
    """
    varying = np.ptp(X, axis=0) > 0.0
    own = range(varying.size) if groups is None else groups
    return max(1, len({group for group, varies in zip(own, varying, strict=True) if varies}))


def make_warps(kernel: Kernel, rows: RowBlock) -> list[Warped]:
    """Return a kernel with warped inputs, from several starts.

    Targets rise from the first end of an input, so that its sign does not matter.
    """
    low, high = rows.X.min(axis=0), rows.X.max(axis=0)
    falls = rows.X.T @ (rows.weight * rows.y) < 0.0
    first, last = np.where(falls, high, low), np.where(falls, low, high)
    margin = _WARP_MARGIN * (last - first) + np.where(last < first, -1e-6, 1e-6)
    return [Warped(kernel, first - margin, last + margin, *each) for each in _WARP_STARTS]


def draw_kernels(
    kernel: KernelT, X: Array, count: int, rng: np.random.RandomState
) -> Iterator[KernelT]:
    """Yield `count` kernels with variance one, the variance of the standardised targets.

    Their lengthscales are drawn from the plausible range for inputs `X`, shape (n, D), stratified
    into `count` parts.
    """
    low, high = np.log(get_lengthscale_range(count_varying(X, kernel.groups)))
    variance = float(kernel.diag(np.ones((1, X.shape[1])))[0])  # One standard deviation away.
    unit = kernel.rescaled(np.ones(1), 1.0 / variance)
    for i in range(count):
        length = float(np.exp(low + (high - low) * (i + rng.uniform()) / count))
        yield with_lengthscale(unit, length, rng)


def shorten_lengthscales(kernel: Kernel, X: Array, dense: bool = False) -> Iterator[Kernel]:
    """Yield kernels with a short lengthscale of one input, for up to eight with the longest ones.

    An input along which the function oscillates is not found from long lengthscales. Where rows
    are dense enough to show shorter ones than are plausible, all inputs get these at once: `dense`.
    """
    if not isinstance(kernel, Stationary) or kernel.active_dims is not None:
        return
    D, metric = X.shape[1], kernel.metric(X.shape[1])
    short = 0.5 * get_lengthscale_range(count_varying(X, kernel.groups))[0]
    for d in np.argsort(metric, kind="stable")[:_SHORTENED]:
        if short * metric[d] < 1.0 and np.ptp(X[:, d]):
            own = np.arange(D) if kernel.groups is None else np.array(kernel.groups)
            lengths = np.where(own == own[d], short, kernel.lengthscale)
            yield replace(kernel, lengthscale=lengths)
    if dense and (least := find_least_lengthscale(X)) < short:
        yield replace(kernel, lengthscale=np.full(D, least))


def find_least_lengthscale(X: Array) -> float:
    """Return the shortest lengthscale that distinct rows can show, from the typical distance."""
    distinct = np.unique(X, axis=0)
    if len(distinct) < 2:
        return np.inf
    distance, _ = NearestNeighbors(n_neighbors=2).fit(distinct).kneighbors(distinct)
    return _LEAST_DISTANCES * float(np.median(distance[:, 1]))


class Family:
    """One kind of model: its starts and its free parameters. This one, the exact GP, has no points.

    Subclasses place points, and differ in some of the following.
    """

    screening_rows: int = 400  # The number of rows on which the kernel of large data is chosen.
    relocates: bool = False  # Whether points may be moved to where residuals are large.
    warms_up: bool = False  # Whether learning starts on subsets of the rows.

    # Returns the free parameters of a model, given what `eigengp_parameters` takes.
    free: ClassVar[Any] = staticmethod(lambda model, box, **how: kernel_parameters(model))

    def make_starts(
        self, template: Any, rows: RowBlock, size: int, count: int, rng: np.random.RandomState
    ) -> list[Any]:
        """Make `count` models with `size` features; the first keeps the template's kernel."""
        tried = draw_kernels(template.kernel, rows.X, count - 1, rng)
        models = [template, *(replace(template, kernel=kernel) for kernel in tried)]
        return [self.place(model, rows, size, rng) for model in models]

    def place(self, model: Any, rows: RowBlock, size: int, rng: Any, learned: bool = False) -> Any:
        """Place the points of `size` features for the kernel of the model, which may be learned."""
        return model


@dataclass(frozen=True)
class InducingFamily(Family):
    """Models with inducing points, such as EigenGP and FITC.

    Parameters
    ----------
    method : str or array of shape (M, D)
        How inducing points are placed; see `place_points`.
    n_components : int or None
        The number R of eigenfunctions; None is one for each inducing point. All starts have as
        many, since hyperparameters that suit all M eigenfunctions can be poor for the first R.
    relocates : bool
        False if the points are given, and not to be moved.
    """

    method: str | Array
    n_components: int | None = None
    relocates: bool = True
    screening_rows = 1_000
    warms_up = True
    free = staticmethod(eigengp_parameters)

    def make_starts(
        self, template: EigenGP, rows: RowBlock, size: int, count: int, rng: np.random.RandomState
    ) -> list[EigenGP]:
        """See `Family.make_starts`; k-means replaces given points of another number.

        Starts differ in their inducing points too, unless these are given; every fourth has those
        of the first.
        """
        given = isinstance(self.method, np.ndarray) and len(self.method) == size
        method = self.method if self.relocates or given else "kmeans"
        placed = place_points(method, rows, size, template.kernel, rng)
        first = self._put(template, placed, size)
        if count == 1:
            return [first]
        starts, rough = [first], 0.5 + 0.5 * measure_roughness(rows)
        for i, kernel in enumerate(draw_kernels(template.kernel, rows.X, count - 1, rng)):
            points = placed
            if not given and i % 4:
                points = draw_rows(rows, size, rng, rough if i % 2 else None)
            starts.append(replace(first, kernel=kernel, inducing_points=points))
        return starts

    def place(
        self, model: EigenGP, rows: RowBlock, size: int, rng: Any, learned: bool = False
    ) -> EigenGP:
        """See `Family.place`."""
        points = place_points(self.method, rows, size, model.kernel, rng, learned)
        return self._put(model, points, size)

    def _put(self, model: EigenGP, points: Array, size: int) -> EigenGP:
        R = size if self.n_components is None else min(self.n_components, size)
        return replace(model, inducing_points=points, n_components=R)


class SpectralFamily(Family):
    """Models with spectral points, drawn from the spectral density of the kernel at first."""

    screening_rows = 1_000
    warms_up = True
    # Weights are integrated out, and the box does not bound points.
    free = staticmethod(lambda model, box, **how: spectrum_parameters(model))

    def place(
        self, model: SparseSpectrum, rows: RowBlock, size: int, rng: Any, learned: bool = False
    ) -> SparseSpectrum:
        """See `Family.place`; a spectral point is two features.

        Inputs are taken in the order of their correlations with the targets, with the same signs,
        so that their own order and signs do not matter; constant ones have frequency zero.
        """
        along = rows.X.T @ (rows.weight * rows.y)
        along[np.ptp(rows.X, axis=0) == 0.0] = 0.0
        order = np.argsort(-np.abs(along), kind="stable")[: count_varying(rows.X)]
        drawn = model.kernel.draw_frequencies((size + 1) // 2, order.size, rng)
        points = np.zeros((drawn.shape[0], along.size))
        points[:, order] = np.where(along[order] < 0.0, -drawn, drawn)
        return replace(model, spectral_points=points)


def share_lengthscale(kernel: Kernel) -> Kernel | None:
    """Return a kernel with one lengthscale for all inputs; None if it has no other form."""
    if not isinstance(kernel, Stationary) or np.size(kernel.lengthscale) == 1 or kernel.groups:
        return None
    length = float(np.mean(kernel.lengthscale))
    return type(kernel)(length, kernel.variance, active_dims=kernel.active_dims)
