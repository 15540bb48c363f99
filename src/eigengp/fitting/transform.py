"""The transform of skewed targets, chosen by leave-one-out predictions of an exact GP.

With the map m and its slope m′, the log density of a target is that of `m(y)` plus `ln m′(y)`, so
maps can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone

from eigengp._typing import Array
from eigengp.backend.namespace import beside, on_host
from eigengp.data.array_source import ArraySource
from eigengp.data.open import Dataset
from eigengp.data.standardize import Scaling, Summary, reweight, standardize_rows
from eigengp.fitting.exact import predict_left_out
from eigengp.fitting.learn import choose_residual, make_start
from eigengp.fitting.model_selection import Decision
from eigengp.fitting.run import Run, begin_run
from eigengp.fitting.settings import LBFGS, Settings
from eigengp.gp.linalg import FactorizationError
from eigengp.gp.target_maps import (
    MAPS,
    TargetMap,
    YeoJohnsonMap,
    check_map,
    compute_moments,
)
from eigengp.kernels import Kernel

# The largest numbers of rows from which the GP is learned, and that are left out.
_ROWS = 300, 2_000
# The required improvement in nats per row, and in standard errors.
_LEAST_GAIN, _ERRORS = 0.01, 2.0
# The largest number of rows with which maps are compared, for each second of `max_time`.
_COMPARED_PER_SECOND = 200
_SAME = YeoJohnsonMap(1.0)
_TINY = 1e-12  # The least leave-one-out variance, of which rounding can leave nothing.
# What a summary has of each column, the target last.
_COLUMNS = ("mean", "squares", "low", "high")


@contextmanager
def begin_transformed_run(dataset: Dataset, settings: Settings) -> Iterator[Run]:
    """Start a run on transformed targets, if the settings ask for that."""
    dataset, decisions = transform_targets(dataset, settings)
    with begin_run(dataset, settings) as run:
        run.decisions.extend(decisions)
        yield run


def transform_targets(dataset: Dataset, settings: Settings) -> tuple[Dataset, list[Decision]]:
    """Return the rows, with transformed targets if they are to be, and what was decided."""
    asked, constant = settings.transform, settings.reading.mean in ("constant", "zero")
    rows: Any = dataset.rows
    if asked == "auto":
        seconds = np.inf if settings.max_time is None else settings.max_time
        short = dataset.n_rows > _COMPARED_PER_SECOND * seconds
        given = settings.learns_nothing or isinstance(settings.kernel, Kernel)
        if short or given or dataset.has_two_values or not constant:
            return dataset, []
    if not isinstance(rows, ArraySource):
        raise TypeError(
            "A transform of the targets is learned from all of them, in memory. Read the rows "
            "into arrays, or transform the column of the target yourself."
        )
    if not constant:
        raise ValueError("A transform of the targets needs mean='constant' or mean='zero'.")
    y = on_host(rows.y)
    weight = np.ones(y.size) if rows.sample_weight is None else on_host(rows.sample_weight)
    if asked == "auto":
        return _choose(dataset, MAPS["yeo-johnson"](y, weight), settings)
    return map_targets(dataset, _make_map(asked, y, weight), settings), []


def map_targets(dataset: Dataset, own: TargetMap, settings: Settings) -> Dataset:
    """Return rows in memory with mapped targets, standardised anew."""
    assert isinstance(dataset.rows, ArraySource)
    options = settings.reading
    y = on_host(dataset.rows.y)
    rows = replace(dataset.rows, y=beside(own.values(y), dataset.rows.y))
    found = rows.total(Summary.of)
    ends = {name: getattr(dataset.summary, name).copy() for name in _COLUMNS}
    for name, column in ends.items():
        column[-1] = getattr(found, name)[-1]
    summary = replace(dataset.summary, **ends)
    fresh = Scaling.of(found, standardize=True, centred=options.mean == "constant")
    units = {name: getattr(fresh, name) for name in ("target_centre", "target_scale")}
    scaling = replace(dataset.scaling, **units)
    learned, _ = reweight(rows, summary, options.weight)
    assert isinstance(learned, ArraySource)
    weight, slopes, source = learned.sample_weight, own.log_slope(y), dataset.source
    if isinstance(source, ArraySource):  # Whose inputs need no second copy.
        values = (on_host(rows.y) - scaling.target_centre) / scaling.target_scale
        source = replace(source, y=beside(values, source.y))
    else:
        source = standardize_rows(learned, scaling, options.memory)
    return replace(
        dataset,
        rows=rows,
        source=source,
        scaling=scaling,
        summary=summary,
        target_map=own,
        log_slope=float(slopes.sum() if weight is None else on_host(weight) @ slopes),
    )


def _make_map(asked: Any, y: Array, weight: Array) -> TargetMap:
    if isinstance(asked, str):
        return MAPS[asked](y, weight)
    check_map(asked, y)
    own: TargetMap = asked
    if not np.all(np.isfinite(own.log_slope(y))):
        raise ValueError(f"log_slope(y) of transform={own!r} is not finite at all targets.")
    return own


def _choose(dataset: Dataset, own: TargetMap, settings: Settings) -> tuple[Dataset, list[Decision]]:
    """Compare a map with the identity on few rows."""
    optimizer: Any = settings.optimizer
    if isinstance(optimizer, LBFGS):
        optimizer = clone(optimizer).set_params(checkpoint=None)
    brief = replace(settings, optimizer=optimizer, verbose=False)
    with begin_run(dataset, brief) as run:
        residual, _ = choose_residual(run)
    if settings.noise == "auto" and residual not in ("exact", "neighbors"):
        return dataset, []
    mapped = map_targets(dataset, own, settings)
    try:
        before, after = _score(dataset, brief, _SAME), _score(mapped, brief, own)
    except FactorizationError:
        return dataset, []
    better = _is_clear(after[0] - before[0], _LEAST_GAIN)
    if residual == "neighbors":  # Many rows show how noise depends on the input, and its quantiles.
        better = better and _is_clear(before[1] - after[1])
    losses = {"None": -float(before[0].mean()), "yeo-johnson": -float(after[0].mean())}
    reason = f"leave-one-out negative log density of {before[0].size:,} rows"
    decision = Decision("transform", "yeo-johnson" if better else "None", reason, losses)
    return mapped if better else dataset, [decision]


def _score(dataset: Dataset, settings: Settings, own: TargetMap) -> tuple[Array, Array]:
    """Return leave-one-out log densities and squared errors of some rows, times their weights."""
    order = np.random.RandomState(0).permutation(dataset.n_rows)
    with begin_run(dataset, settings) as run:
        few, rows = (run.source.take(order[:count]) for count in _ROWS)
        mean, variance = predict_left_out(run, make_start(run), few, rows)
    unit, centre = dataset.scaling.target_scale, dataset.scaling.target_centre
    values, mean = centre + unit * rows.y, centre + unit * mean
    std = unit * np.sqrt(np.maximum(variance, _TINY))
    y = own.targets(values)
    density = own.log_slope(y) - 0.5 * ((values - mean) / std) ** 2 - np.log(std)
    squares = (y - compute_moments(own, mean, std)[0]) ** 2
    return rows.weight * density, rows.weight * squares


def _is_clear(gains: Array, least: float = 0.0) -> bool:
    """Return whether a sum of gains is more than two standard errors above zero, and large."""
    return bool(gains.sum() > max(_ERRORS * np.sqrt(gains @ gains), least * gains.size))
