"""What a model does with its inputs: importance, partial dependence, slices, eigenfunctions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.inspection import permutation_importance

from eigengp._typing import Array
from eigengp.backend.namespace import on_host
from eigengp.cli.report.rows import Input, Rows
from eigengp.conformal import normal_half_width
from eigengp.gp.vecchia_posterior import VecchiaPosterior

_COSTLY_COLUMNS = 300
_SHUFFLED_VALUES = 20_000
_MAX_EFFECTS = 6
_MAX_EIGENFUNCTIONS = 6
_MAX_CURVES = 4
_CURVE_POINTS = 101
_MAP_POINTS = 41


@dataclass(frozen=True)
class Resolution:
    """How many predictions the parts of a report use.

    Parameters
    ----------
    shuffled_rows : int
        Rows for the permutation importance.
    averaged_rows, steps : int
        Rows to average partial dependence over, and values of the input.
    sliders, positions, points : int
        Inputs with a slider, positions of each, and points of a curve.
    """

    shuffled_rows: int
    averaged_rows: int
    steps: int
    sliders: int
    positions: int
    points: int

    @classmethod
    def choose(cls, model: Any) -> Resolution:
        """Choose the lower resolution for a model with costly predictions."""
        posterior = model._posterior
        costly = isinstance(posterior, VecchiaPosterior) or posterior.n_columns > _COSTLY_COLUMNS
        return LOW if costly else HIGH


HIGH = Resolution(1_000, 200, 25, 4, 7, 41)
LOW = Resolution(300, 100, 15, 3, 5, 31)


@dataclass(frozen=True)
class Importance:
    """The importance of an input.

    Parameters
    ----------
    input : Input
        The input.
    importance : float
        The growth of the RMSE when its values are shuffled among the rows.
    relevance : float
        The largest `input_relevance` of its features.
    """

    input: Input
    importance: float
    relevance: float


# scikit-learn ships no types, so its classes are Any to mypy.
class _InputModel(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A fitted model that takes the values of inputs instead of features."""

    def __init__(self, model: Any, inputs: Sequence[Input]) -> None:
        self.model = model
        self.inputs = inputs

    def fit(self, X: Array, y: Array) -> _InputModel:
        """Do nothing."""
        return self

    def predict(self, values: Array) -> Array:
        """Predict from the value of each input, shape (n, number of inputs)."""
        points = np.zeros((values.shape[0], self.model.n_features_in_))
        for each, own in zip(self.inputs, values.T, strict=True):
            points = each.set_values(points, own)
        return np.asarray(self.model.predict(points))


def rank_inputs(model: Any, rows: Rows, resolution: Resolution) -> tuple[Importance, ...]:
    """Measure the permutation importance of each input on a sample of the rows, largest first."""
    count = min(resolution.shuffled_rows, max(50, _SHUFFLED_VALUES // len(rows.inputs)))
    few = rows.sample(count)
    means = permutation_importance(
        _InputModel(model, rows.inputs),
        np.column_stack([each.get_values(few.X) for each in rows.inputs]),
        few.y,
        scoring="neg_root_mean_squared_error",
        n_repeats=3,
        random_state=0,
    ).importances_mean
    relevance = np.asarray(model.input_relevance())
    found = [
        Importance(each, float(own), float(relevance[list(each.features)].max()))
        for each, own in zip(rows.inputs, means, strict=True)
    ]
    return tuple(sorted(found, key=lambda each: (-each.importance, -each.relevance)))


@dataclass(frozen=True)
class PartialDependence:
    """The average prediction when an input has the same value in all rows, with a band."""

    input: Input
    grid: Array
    mean: Array
    lower: Array
    upper: Array


def compute_partial_dependence(
    model: Any, rows: Rows, inputs: Sequence[Input], coverage: float, resolution: Resolution
) -> tuple[PartialDependence, ...]:
    """Compute the partial dependence on the first inputs, with bands of this coverage."""
    X, found = rows.sample(resolution.averaged_rows).X, []
    for each in inputs[:_MAX_EFFECTS]:
        grid = each.make_grid(rows.X, resolution.steps)
        points = [each.set_values(X, np.full(len(X), value)) for value in grid]
        mean, std = np.array([model.predict_average(own) for own in points]).T
        half = normal_half_width(coverage) * std
        found.append(PartialDependence(each, grid, mean, mean - half, mean + half))
    return tuple(found)


@dataclass(frozen=True)
class Slice:
    """Predictions along one input, for all combinations of positions of the other sliders.

    Parameters
    ----------
    along : int
        The index of the input among the sliders.
    grid : array of shape (G,)
        Its values.
    mean, half : arrays of shape (P₁, …, P_k, G)
        Predictions, and half the width of their intervals.
    """

    along: int
    grid: Array
    mean: Array
    half: Array


@dataclass(frozen=True)
class Explorer:
    """The inputs with sliders, their positions, and all curves that they can select.

    `starts` are the positions nearest to the typical row.
    """

    inputs: tuple[Input, ...]
    positions: tuple[Array, ...]
    starts: tuple[int, ...]
    slices: tuple[Slice, ...]

    @property
    def labels(self) -> list[list[str]]:
        """The positions of each slider as texts."""
        pairs = zip(self.inputs, self.positions, strict=True)
        return [[each.format_value(value) for value in own] for each, own in pairs]


def compute_slices(
    model: Any, rows: Rows, ranking: Sequence[Input], coverage: float, resolution: Resolution
) -> Explorer:
    """Predict along each of the first inputs, for all positions of the others."""
    inputs = tuple(ranking[: resolution.sliders])
    positions = tuple(each.choose_positions(rows.X, resolution.positions) for each in inputs)
    typical, slices = rows.typical, []
    starts = tuple(
        int(np.argmin(np.abs(own - each.get_typical(typical[None]))))
        for each, own in zip(inputs, positions, strict=True)
    )
    for along, each in enumerate(inputs):
        grid = each.make_grid(rows.X, resolution.points)
        others = [pair for pair in zip(inputs, positions, strict=True) if pair[0] is not each]
        points = _make_points(typical, [*others, (each, grid)])
        ends = model.predict_interval(points.reshape(-1, typical.size), coverage)
        lower, upper = (np.asarray(end).reshape(points.shape[:-1]) for end in ends)
        slices.append(Slice(along, grid, 0.5 * (lower + upper), 0.5 * (upper - lower)))
    return Explorer(inputs, positions, starts, tuple(slices))


def _make_points(typical: Array, moved: Sequence[tuple[Input, Array]]) -> Array:
    """Combine all values of some inputs, others at a typical row; shape (G₁, …, G_k, D)."""
    values = np.meshgrid(*(own for _, own in moved), indexing="ij")
    points = np.broadcast_to(typical, (*values[0].shape, typical.size))
    for (each, _), own in zip(moved, values, strict=True):
        points = each.set_values(points, own)
    return points


@dataclass(frozen=True)
class Spectrum:
    """The eigenfunctions, as curves and maps through a typical row.

    Parameters
    ----------
    weights, eigenvalues : arrays of shape (R,)
        The prior variance of each eigenfunction, and its eigenvalue.
    shown : tuple of int
        The indices of those drawn: the largest weights.
    curves : tuple of (Input, array of shape (G,), array of shape (G, K))
        The input, its values, and the eigenfunctions there.
    maps : tuple or None
        Two inputs, the values of each, shapes (G,) and (H,), and the eigenfunctions, shape
        (K, H, G). None unless two inputs are numbers.
    """

    weights: Array
    eigenvalues: Array
    shown: tuple[int, ...]
    curves: tuple[tuple[Input, Array, Array], ...]
    maps: tuple[Input, Input, Array, Array, Array] | None


def compute_spectrum(model: Any, rows: Rows, ranking: Sequence[Input]) -> Spectrum | None:
    """Evaluate the leading eigenfunctions along the first inputs; None for a model without."""
    if not hasattr(model, "eigenvalues_"):
        return None
    weights, eigenvalues = (np.asarray(on_host(w)) for w in (model.weights_, model.eigenvalues_))
    shown = np.argsort(-weights, kind="stable")[:_MAX_EIGENFUNCTIONS]
    typical = rows.typical

    def evaluate(*moved: tuple[Input, Array]) -> Array:
        points = _make_points(typical, moved)
        values = np.asarray(model.eigenfunctions(points.reshape(-1, typical.size)))[:, shown]
        return values.reshape(*points.shape[:-1], shown.size)

    grids = [(each, each.make_grid(rows.X, _CURVE_POINTS)) for each in ranking[:_MAX_CURVES]]
    curves = tuple((each, grid, evaluate((each, grid))) for each, grid in grids)
    numbers, maps = [each for each in ranking if each.codes is None][:2], None
    if len(numbers) == 2:
        first, second = ((each, each.make_grid(rows.X, _MAP_POINTS)) for each in numbers)
        values = np.transpose(evaluate(first, second), (2, 1, 0))
        maps = (first[0], second[0], first[1], second[1], values)
    return Spectrum(weights, eigenvalues, tuple(map(int, shown)), curves, maps)
