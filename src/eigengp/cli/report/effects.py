"""What a model does with its inputs: importance, partial dependence, slices, eigenfunctions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, softmax

from eigengp import inspection
from eigengp._typing import Array
from eigengp.backend.namespace import on_host
from eigengp.cli.report.rows import Input, Rows, sample_rows
from eigengp.conformal import normal_half_width
from eigengp.gp.latent import NeighborLatent
from eigengp.gp.vecchia_posterior import VecchiaPosterior

_EFFECT_ROWS = 300
_AVERAGED_ROWS, _STEPS = 200, 25
_POSITIONS, _POINTS = 7, 41
_MAX_EFFECTS = 6
_MAX_EIGENFUNCTIONS = 6
_MAX_CURVES = 4
_CURVE_POINTS = 101
# Draws of the latent functions of several classes, for so many rows at once.
_DRAWS, _BLOCK_ROWS = 200, 2_000


class Importance(NamedTuple):
    """The importance of an input."""

    input: Input
    # The share of the variance of the predictions that is due to it (total Sobol index).
    effect: float
    relevance: float  # Its `input_relevance`.


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


def predict_band(model: Any, X: Array, coverage: float) -> tuple[Array, Array, Array]:
    """Return predictions with the ends of their intervals, for each class if there are classes.

    Those of a regression have the shape (n,). Probabilities, of
    shape (n, C), have central credible intervals: with two classes these are quantiles of the
    latent function, else those of draws.
    """
    if not hasattr(model, "classes_"):
        lower, upper = map(np.asarray, model.predict_interval(X, coverage))
        return np.asarray(model.predict(X)), lower, upper
    mean, variance = model._by_blocks(model._posterior.latent, X)
    p, half = model.likelihood_.predict_classes(mean, variance), normal_half_width(coverage)
    if mean.shape[1] == 1:
        apart = half * np.sqrt(variance)
        low, high = expit(mean - apart), expit(mean + apart)
        return p, np.hstack([1.0 - high, low]), np.hstack([1.0 - low, high])
    z, ends = np.random.default_rng(0).standard_normal((_DRAWS, 1, mean.shape[1])), []
    for i in range(0, len(X), _BLOCK_ROWS):
        own = slice(i, i + _BLOCK_ROWS)
        drawn = softmax(mean[own] + z * np.sqrt(variance[own]), axis=2)
        ends.append(np.quantile(drawn, [0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage], axis=0))
    lower, upper = np.concatenate(ends, axis=1)
    return p, lower, upper


class PartialDependence(NamedTuple):
    """The average prediction when an input has the same value in all rows, with a band.

    `accumulated` has accumulated local effects, for numbers in a regression.
    """

    input: Input
    grid: Array
    mean: Array  # Shape (G,); of several classes (K, G).
    lower: Array
    upper: Array
    accumulated: inspection.Effect | None = None


def compute_partial_dependence(
    model: Any, rows: Rows, inputs: Sequence[Input], coverage: float, shown: Any = ()
) -> list[PartialDependence]:
    """Compute the partial dependence on the first inputs, with bands of this coverage.

    `shown` are the indices of classes. The band of a probability is the average of those of rows.
    """
    X, found = rows.X[sample_rows(len(rows.X), _AVERAGED_ROWS)], []
    for each in inputs[:_MAX_EFFECTS]:
        grid, moved = each.make_grid(rows.X, _STEPS), None
        sets = [each.set_values(X, np.full(len(X), value)) for value in grid]
        if len(shown):
            parts = predict_band(model, np.concatenate(sets), coverage)
            mean, lower, upper = (_pick(p, shown, (grid.size, len(X))).mean(axis=-1) for p in parts)
        else:
            mean, lower, upper = inspection.average_over(model, ((own,) for own in sets), coverage)
            if each.codes is None and len(each.features) == 1 and np.ptp(grid) > 0.0:
                moved = inspection.accumulated_effects(model, X, each.name)
        found.append(PartialDependence(each, grid, mean, lower, upper, moved))
    return found


def _pick(values: Array, shown: Sequence[int], shape: tuple[int, ...]) -> Array:
    """Return predictions in this shape; of several classes, those shown along a first axis."""
    if len(shown):
        values = values.T[shown if len(shown) > 1 else shown[0]]
    return values.reshape(*values.shape[:-1], *shape)


class Slider(NamedTuple):
    """An input with a slider, and predictions along it for all positions of the other sliders."""

    input: Input
    positions: Array
    start: int  # The position nearest to the typical row.
    grid: Array  # Values of the input, shape (G,).
    # Predictions, shape (P₁, …, P_k, G); of several classes, that of each along a first axis.
    mean: Array
    lower: Array  # The lower ends of their intervals, of the same shape.
    upper: Array

    @property
    def labels(self) -> list[str]:
        """The positions as texts."""
        return [self.input.format_value(value) for value in self.positions]


def compute_slices(
    model: Any, rows: Rows, ranking: Sequence[Input], coverage: float, shown: Sequence[int] = ()
) -> list[Slider]:
    """Predict along each of the first inputs, for all positions of the others.

    There are fewer where predictions are costly, or of several classes.
    """
    costly = isinstance(model._posterior, VecchiaPosterior | NeighborLatent) or len(shown) > 1
    typical, found = rows.typical, []
    positions = [
        (each, each.choose_positions(rows.X, _POSITIONS)) for each in ranking[: 3 if costly else 4]
    ]
    for each, own in positions:
        grid = each.make_grid(rows.X, _POINTS)
        others = [pair for pair in positions if pair[0] is not each]
        start = int(np.argmin(np.abs(own - each.get_typical(typical[None]))))
        points = make_points(typical, [*others, (each, grid)])
        parts = predict_band(model, points.reshape(-1, typical.size), coverage)
        values = (_pick(p, shown, points.shape[:-1]) for p in parts)
        found.append(Slider(each, own, start, grid, *values))
    return found


def make_points(typical: Array, moved: Sequence[tuple[Input, Array]]) -> Array:
    """Combine all values of some inputs, others at a typical row; shape (G₁, …, G_k, D)."""
    values = np.meshgrid(*(own for _, own in moved), indexing="ij")
    points = np.broadcast_to(typical, (*values[0].shape, typical.size))
    for (each, _), own in zip(moved, values, strict=True):
        points = each.set_values(points, own)
    return points


class Spectrum(NamedTuple):
    """The eigenfunctions, as curves through a typical row."""

    weights: Array  # The prior variance of each eigenfunction, shape (R,).
    eigenvalues: Array  # The eigenvalue of each, shape (R,).
    shown: tuple[int, ...]  # The indices of those drawn: the largest weights.
    # Inputs, their values, shape (G,), and the eigenfunctions there, shape (G, K).
    curves: list[tuple[Input, Array, Array]]


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
