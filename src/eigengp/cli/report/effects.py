"""What a model does with its inputs: importance, partial dependence, slices, eigenfunctions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from eigengp import inspection
from eigengp._typing import Array
from eigengp.backend.namespace import on_host
from eigengp.cli.report.rows import Input, Rows, sample_rows
from eigengp.gp.latent import NeighborLatent
from eigengp.gp.vecchia_posterior import VecchiaPosterior

_EFFECT_ROWS = 300
_AVERAGED_ROWS, _STEPS = 200, 25
_POSITIONS, _POINTS = 7, 41
_MAX_EFFECTS = 6
_MAX_EIGENFUNCTIONS = 6
_MAX_CURVES = 4
_CURVE_POINTS = 101


class Importance(NamedTuple):
    """The importance of an input."""

    input: Input
    effect: float
    """The share of the variance of the predictions that is due to it (total Sobol index)."""
    relevance: float
    """Its `input_relevance`."""


def rank_inputs(model: Any, rows: Rows) -> list[Importance]:
    """Measure the effect of each input on a sample of the rows, largest first."""
    groups = {each.name: each.features for each in rows.inputs}
    effects = inspection.group_effects(model, rows.X, groups, max_rows=_EFFECT_ROWS)
    names, shares = inspection.feature_names(model), model.input_relevance().tolist()
    relevance = dict(zip(names, shares, strict=True))
    found = [
        Importance(each, effects.get(each.name, 0.0), relevance[each.name]) for each in rows.inputs
    ]
    return sorted(found, key=lambda each: (-each.effect, -each.relevance))


class PartialDependence(NamedTuple):
    """The average prediction when an input has the same value in all rows, with a band.

    `accumulated` has accumulated local effects, for numbers.
    """

    input: Input
    grid: Array
    mean: Array
    lower: Array
    upper: Array
    accumulated: inspection.Effect | None


def compute_partial_dependence(
    model: Any, rows: Rows, inputs: Sequence[Input], coverage: float
) -> list[PartialDependence]:
    """Compute the partial dependence on the first inputs, with bands of this coverage."""
    X, found = sample_averaged(rows), []
    for each, grid in choose_grids(rows, inputs):
        sets = ((each.set_values(X, np.full(len(X), value)),) for value in grid)
        average = inspection.average_over(model, sets, coverage)
        number = each.codes is None and len(each.features) == 1 and np.ptp(grid) > 0.0
        moved = inspection.accumulated_effects(model, X, each.name) if number else None
        found.append(PartialDependence(each, grid, *average, moved))
    return found


def sample_averaged(rows: Rows) -> Array:
    """Return the rows over which effects are averaged."""
    X: Array = rows.X[sample_rows(len(rows.X), _AVERAGED_ROWS)]
    return X


def choose_grids(rows: Rows, inputs: Sequence[Input]) -> Iterator[tuple[Input, Array]]:
    """Yield the first inputs with the values at which effects are computed."""
    for each in inputs[:_MAX_EFFECTS]:
        yield each, each.make_grid(rows.X, _STEPS)


class Slider(NamedTuple):
    """An input with a slider, and predictions along it for all positions of the other sliders."""

    input: Input
    positions: Array
    start: int
    """The position nearest to the typical row."""
    grid: Array
    """Values of the input, shape (G,)."""
    mean: Array
    """Predictions, shape (P₁, …, P_k, G); of several classes, that of each along a first axis."""
    lower: Array
    """The lower ends of their intervals, of the same shape."""
    upper: Array

    @property
    def labels(self) -> list[str]:
        """The positions as texts."""
        return [self.input.format_value(value) for value in self.positions]


def compute_slices(
    model: Any, rows: Rows, ranking: Sequence[Input], coverage: float
) -> list[Slider]:
    """Predict along each of the first inputs, for all positions of the others."""
    found = []
    for each, own, start, grid, points in place_sliders(rows, ranking[: count_sliders(model)]):
        ends = model.predict_interval(points.reshape(-1, points.shape[-1]), coverage)
        lower, upper = (np.asarray(end).reshape(points.shape[:-1]) for end in ends)
        found.append(Slider(each, own, start, grid, 0.5 * (lower + upper), lower, upper))
    return found


def count_sliders(model: Any) -> int:
    """Return how many inputs have sliders: fewer where predictions are costly."""
    costly = isinstance(model._posterior, VecchiaPosterior | NeighborLatent)
    return 3 if costly else 4


def place_sliders(
    rows: Rows, inputs: Sequence[Input]
) -> Iterator[tuple[Input, Array, int, Array, Array]]:
    """Yield each input with its positions, where it starts, its grid, and the points to predict.

    The points combine its grid with all positions of the others, shape (P₁, …, P_k, G, D).
    """
    typical = rows.typical
    positions = [(each, each.choose_positions(rows.X, _POSITIONS)) for each in inputs]
    for each, own in positions:
        grid = each.make_grid(rows.X, _POINTS)
        others = [pair for pair in positions if pair[0] is not each]
        start = int(np.argmin(np.abs(own - each.get_typical(typical[None]))))
        yield each, own, start, grid, make_points(typical, [*others, (each, grid)])


def make_points(typical: Array, moved: Sequence[tuple[Input, Array]]) -> Array:
    """Combine all values of some inputs, others at a typical row; shape (G₁, …, G_k, D)."""
    values = np.meshgrid(*(own for _, own in moved), indexing="ij")
    points = np.broadcast_to(typical, (*values[0].shape, typical.size))
    for (each, _), own in zip(moved, values, strict=True):
        points = each.set_values(points, own)
    return points


class Spectrum(NamedTuple):
    """The eigenfunctions, as curves through a typical row."""

    weights: Array
    """The prior variance of each eigenfunction, shape (R,)."""
    eigenvalues: Array
    """The eigenvalue of each, shape (R,)."""
    shown: tuple[int, ...]
    """The indices of those drawn: the largest weights."""
    curves: list[tuple[Input, Array, Array]]
    """Inputs, their values, shape (G,), and the eigenfunctions there, shape (G, K)."""


def compute_spectrum(model: Any, rows: Rows, ranking: Sequence[Input]) -> Spectrum | None:
    """Evaluate the leading eigenfunctions along the first inputs; None for a model without."""
    if not hasattr(model, "eigenvalues_"):
        return None
    weights, eigenvalues = (np.asarray(on_host(w)) for w in (model.weights_, model.eigenvalues_))
    shown = np.argsort(-weights, kind="stable")[:_MAX_EIGENFUNCTIONS]
    curves = []
    for each in ranking[:_MAX_CURVES]:
        grid = each.make_grid(rows.X, _CURVE_POINTS)
        values = model.eigenfunctions(make_points(rows.typical, [(each, grid)]))
        curves.append((each, grid, np.asarray(values)[:, shown]))
    return Spectrum(weights, eigenvalues, tuple(map(int, shown)), curves)
