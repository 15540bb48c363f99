"""The transform of skewed targets, which few rows choose by their log marginal likelihood.

With the map m and its slope m′, the log marginal likelihood of targets is that of `m(y)` plus
`Σ ln m′(y)`, so maps can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone

from eigengp._typing import Array
from eigengp.backend.namespace import on_host
from eigengp.data.array_source import ArraySource
from eigengp.data.open import Dataset, map_targets
from eigengp.fitting.exact import measure_loss
from eigengp.fitting.learn import choose_residual, make_start
from eigengp.fitting.model_selection import Decision
from eigengp.fitting.run import Run, begin_run
from eigengp.fitting.settings import LBFGS, Settings
from eigengp.gp.target_maps import MAPS, TargetMap, YeoJohnsonMap, check_map, measure_normality

_ROWS = 300
"""The largest number of rows on which maps are compared."""
_CLEAR_GAIN = 5.0
"""The gain in nats for which targets are transformed: very strong evidence for Kass and Raftery."""
_LEAST_SECONDS = 2.0
"""The least `max_time` with which maps are compared."""
_SAME = YeoJohnsonMap(1.0)


@contextmanager
def begin_transformed_run(dataset: Dataset, settings: Settings) -> Iterator[Run]:
    """Start a run on transformed targets, if the settings ask for that."""
    dataset, decisions = transform_targets(dataset, settings)
    with begin_run(dataset, settings) as run:
        run.decisions.extend(decisions)
        yield run


def transform_targets(dataset: Dataset, settings: Settings) -> tuple[Dataset, list[Decision]]:
    """Return the rows, with transformed targets if they are to be, and what was decided."""
    asked, rows, mean = settings.transform, dataset.rows, settings.reading.mean
    in_memory, constant = isinstance(rows, ArraySource), mean in ("constant", "zero")
    if asked is None or (asked == "auto" and not (in_memory and constant)):
        return dataset, []
    if not in_memory:
        raise TypeError(
            "A transform of the targets is learned from all of them, in memory. Read the rows "
            "into arrays, or transform the column of the target yourself."
        )
    if not constant:
        raise ValueError("A transform of the targets needs mean='constant' or mean='zero'.")
    y = on_host(rows.y)
    weight = np.ones(y.size) if rows.sample_weight is None else on_host(rows.sample_weight)
    if asked != "auto":
        return map_targets(dataset, _make_map(asked, y, weight), settings.reading), []
    short = settings.max_time is not None and settings.max_time < _LEAST_SECONDS
    if short or settings.learns_nothing or np.ptp(y) == 0.0:
        return dataset, []
    own = MAPS["yeo-johnson"](y, weight)
    gain = measure_normality(own, y, weight) - measure_normality(_SAME, y, weight)
    return _choose(dataset, own, settings) if gain > _CLEAR_GAIN else (dataset, [])


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
    number = np.random.RandomState(0).permutation(dataset.n_rows)[:_ROWS]
    slopes = own.log_slope(dataset.rows.take(number).y)
    mapped, losses = map_targets(dataset, own, settings.reading), {}
    for name, rows, added in (("None", dataset, 0.0 * slopes), ("yeo-johnson", mapped, slopes)):
        with begin_run(rows, brief) as run:
            if settings.noise == "auto" and choose_residual(run)[0] not in ("exact", "neighbors"):
                return dataset, []
            few = run.source.take(number)
            unit = np.log(rows.scaling.target_scale) - np.average(added, weights=few.weight)
            losses[name] = measure_loss(run, few, make_start(run)) + float(unit)
    gain = (losses["None"] - losses["yeo-johnson"]) * float(few.weight.sum())
    chosen = "yeo-johnson" if gain > _CLEAR_GAIN else "None"
    reason = f"negative log marginal likelihood of {number.size:,} rows, per row"
    return dataset if chosen == "None" else mapped, [Decision("transform", chosen, reason, losses)]
