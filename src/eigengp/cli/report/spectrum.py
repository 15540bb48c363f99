"""The eigenfunctions of a model along its most important inputs, and what each may contribute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import on_host
from eigengp.cli.report.rows import Input, Rows

_SHOWN = 6
_ALONG = 4
_POINTS = 101
_MAP_POINTS = 41


@dataclass(frozen=True)
class Spectrum:
    """Eigenfunctions as curves and maps through a typical row.

    Parameters
    ----------
    weights, eigenvalues : arrays of shape (R,)
        The prior variance of each eigenfunction, and its eigenvalue.
    shown : tuple of int
        Which are drawn: those of largest weight.
    curves : tuple of (Input, array of shape (G,), array of shape (G, K))
        Along which input, at which values, and the eigenfunctions there.
    maps : tuple or None
        The same over two inputs: both, the values of each, shapes (G,) and (H,), and the
        eigenfunctions, shape (K, H, G). None if there are not two that are numbers.
    """

    weights: Array
    eigenvalues: Array
    shown: tuple[int, ...]
    curves: tuple[tuple[Input, Array, Array], ...]
    maps: tuple[Input, Input, Array, Array, Array] | None


def spectrum(model: Any, rows: Rows, ranking: Sequence[Input]) -> Spectrum | None:
    """Evaluate the leading eigenfunctions; None for a model that has none.

    Parameters
    ----------
    model : GPRegressor
        A fitted model.
    rows : Rows
        Say where data are, and which row is typical.
    ranking : sequence of Input
        Inputs, the most important first.
    """
    if not hasattr(model, "eigenfunctions"):
        return None
    weights, eigenvalues = (
        np.asarray(on_host(each)) for each in (model.weights_, model.eigenvalues_)
    )
    shown = np.argsort(-weights, kind="stable")[:_SHOWN]
    typical = rows.typical

    def values(points: Array) -> Array:
        flat = points.reshape(-1, typical.size)
        found = np.asarray(model.eigenfunctions(flat))[:, shown]
        return found.reshape(*points.shape[:-1], shown.size)

    curves = []
    for along in ranking[:_ALONG]:
        grid = along.grid(rows.X, _POINTS)
        curves.append((along, grid, values(along.put(_copies(typical, grid.shape), grid))))
    numbers = [each for each in ranking if each.codes is None][:2]
    maps = None
    if len(numbers) == 2:
        first, second = numbers
        across, up = (each.grid(rows.X, _MAP_POINTS) for each in numbers)
        horizontal, vertical = np.meshgrid(across, up)
        points = second.put(first.put(_copies(typical, horizontal.shape), horizontal), vertical)
        maps = (first, second, across, up, np.moveaxis(values(points), -1, 0))
    return Spectrum(weights, eigenvalues, tuple(int(each) for each in shown), tuple(curves), maps)


def _copies(point: Array, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(point, (*shape, point.size))
