"""The noise level that smooths the mean best, by leave-one-out.

The log marginal likelihood weighs noise and function as if noise were normal and the kernel right.
Counts and skewed targets are noisier where they are large, which short lengthscales with little
noise imitate, and the mean then follows single rows. A kernel that lacks a part of the function
calls that part noise, and the mean is then too smooth. Leave-one-out errors show both. Variances
are fitted to leave-one-out residuals afterwards, so only the mean depends on the level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from eigengp._typing import Array
from eigengp.backend.threads import map_in_threads
from eigengp.fitting.model_selection import Decision
from eigengp.gp.blocks import RowBlock
from eigengp.gp.exact import ExactGP
from eigengp.gp.linalg import FactorizationError, leave_one_out

_FACTOR = 4.0
_MOST_FACTORS = 4  # The noise variance is multiplied or divided by up to so many factors.
# The noise variance is not divided below this fraction of the variance of the targets.
_LEAST_NOISE = 1e-4
_GAIN = 0.05
_ERRORS = 2.0  # The required improvement, relative to the squared errors, and in standard errors.


def choose_noise(
    model: ExactGP, groups: Sequence[RowBlock], n_threads: int = 1
) -> tuple[ExactGP, list[Decision]]:
    """Multiply the noise variance by what leave-one-out squared errors call for, if clearly.

    A mean that is not better than a constant is smoothed without further proof.

    Parameters
    ----------
    model : ExactGP
        With learned kernel and noise.
    groups : sequence of RowBlock
        Standardised rows, each group an exact GP.
    n_threads : int
        The number of threads.
    """
    first = _sum_squares(model, (1.0, _FACTOR, 1.0 / _FACTOR), groups, n_threads)
    if first[1.0] is None:
        return model, []
    found = {1.0: first[1.0]}
    for step in (_FACTOR, 1.0 / _FACTOR):
        for power in range(1, 1 + _MOST_FACTORS if len(found) == 1 else 1):
            factor = step**power
            if step < 1.0 and model.noise_variance * factor < _LEAST_NOISE:
                break
            again = first if power == 1 else _sum_squares(model, (factor,), groups, n_threads)
            squares = again[factor]
            if squares is None or not squares.sum() < found[step ** (power - 1)].sum():
                break
            found[factor] = squares
    constant = sum(float(rows.weight @ rows.y**2) + rows.total_scatter for rows in groups)
    useless = found[1.0].sum() > constant
    least = _GAIN * found[1.0].sum()
    clear = [f for f in found if f == 1.0 or _is_clear(found[1.0] - found[f], least, useless)]
    best = min(clear, key=lambda f: found[f].sum())
    if best == 1.0:
        return model, []
    n = sum(float(rows.weight.sum()) for rows in groups)
    scores = {f"× {f:.3g}": float(squares.sum()) / n for f, squares in found.items()}
    reason = "leave-one-out mean squared error"
    decision = Decision("noise", f"× {best:.3g}", reason, scores)
    return replace(model, noise_variance=model.noise_variance * best), [decision]


def _is_clear(gain: Array, least: float, useless: bool) -> bool:
    """Return whether the sum of gains is large and, unless the mean is useless, significant."""
    error = 0.0 if useless else _ERRORS * np.sqrt(gain @ gain)
    return bool(gain.sum() > max(least, error))


def _sum_squares(
    model: ExactGP, factors: Sequence[float], groups: Sequence[RowBlock], n_threads: int
) -> dict[float, Array | None]:
    """Return the leave-one-out squared errors of the rows of each distinct input, summed, (n,).

    There is one array for each factor of the noise variance; None where there is no factorisation.
    """

    def measure(task: tuple[float, RowBlock]) -> Array | None:
        other = replace(model, noise_variance=model.noise_variance * task[0])
        try:
            return _sum_squares_of_group(other, task[1])
        except FactorizationError:
            return None

    tasks = [(factor, rows) for factor in factors for rows in groups]
    parts = iter(map_in_threads(measure, tasks, n_threads))
    found: dict[float, Array | None] = {}
    for factor in factors:
        known = [own for own in (next(parts) for _ in groups) if own is not None]
        found[factor] = np.concatenate(known) if len(known) == len(groups) else None
    return found


def _sum_squares_of_group(model: ExactGP, rows: RowBlock) -> Array:
    """Return the same for one group.

    With all w rows of an input left out, it is predicted to be `N(μ, v)`. Where their targets
    differ, each row is left out alone: the other `w − 1` rows move that prediction by the share
    `g = (w − 1) v/((w − 1) v + σ²)` to their mean, so with the mean ȳ and scatter q of the rows,
    the sum is `w (1 − g)² (ȳ − μ)² + q (1 + g/(w − 1))²`.
    """
    outcome = model.forward(rows)
    errors, variance = leave_one_out(outcome.L, outcome.solved)
    squares = errors**2
    if rows.scatter is None:
        return rows.weight * squares
    latent = np.maximum(variance - model.noise_variance / rows.weight, 0.0)
    others = np.maximum(rows.weight - 1.0, 0.0)
    per_row = latent / (others * latent + model.noise_variance)
    alone = rows.weight * (1.0 - others * per_row) ** 2 * squares
    alone += rows.scatter * (1.0 + per_row) ** 2
    return np.where(rows.scatter > 0.0, alone, rows.weight * squares)
