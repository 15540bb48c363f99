"""How far the function depends on each input: under the learned prior, and as it is predicted."""

from __future__ import annotations

from typing import Any

import numpy as np

from eigengp._typing import Array
from eigengp.gp.sensitivity import total_indices
from eigengp.gp.sparse_spectrum import SpectralFeatures
from eigengp.gp.vecchia_posterior import VecchiaPosterior
from eigengp.kernels import Kernel

# The number of own points from which a model shows effects at them, and the largest number.
_FEWEST_POINTS, _MOST_POINTS = 20, 100


def correlate(model: Any, apart: Array) -> Array:
    """Return `k(x, x + δ)/k(x, x)` for differences δ in the units of the data, shape (n,).

    Where `k(x, x)` varies, `1 − ½ E(f(x) − f(x′))²/k` of pairs about the centre of the data,
    with `k` a mean over them.
    """
    centre, own = model._scaling.input_centre, model._scaling.unit_map
    apart = apart if own is None else apart @ own
    kernel: Kernel = model.kernel_
    kernel = kernel.with_ard(apart.shape[1])
    if kernel.constant_diagonal is not None:
        matrix = kernel.matrix(apart, np.zeros((1, apart.shape[1])))
        return np.asarray(matrix[:, 0] / kernel.constant_diagonal)
    x, z = (centre + sign * 0.5 * apart for sign in (1.0, -1.0))
    between = np.array([kernel.matrix(a[None], b[None])[0, 0] for a, b in zip(x, z, strict=True)])
    own = 0.5 * (kernel.diag(x) + kernel.diag(z))
    return np.asarray(1.0 - (own - between) / np.mean(own))


def measure_effects(model: Any) -> Array:
    """Return Sobol's total index of the predictive mean by each input; see `input_effects`."""
    points, groups, scale = _get_own_points(model), model._input_groups, model._scaling.target_scale
    if np.ndim(scale) == 0:
        return total_indices(model._mean_alone, points, groups)
    outputs = (lambda X, p=p: model._mean_alone(X)[:, p] for p in range(scale.size))
    return np.asarray(np.mean([total_indices(each, points, groups) for each in outputs], axis=0))


def _get_own_points(model: Any) -> Array:
    """Return inputs at which a model knows the function, in the units of the data."""
    posterior, scaling = model._posterior, model._scaling
    points = np.empty((0, scaling.n_columns))
    if isinstance(posterior, VecchiaPosterior):
        points = posterior.rows.X
    elif not isinstance(posterior.features, SpectralFeatures):
        points = posterior.features.points
    if len(points) < _FEWEST_POINTS:
        size = (_MOST_POINTS, scaling.n_columns)
        points = np.sqrt(3.0) * np.random.default_rng(0).uniform(-1.0, 1.0, size)
    steps = np.linspace(0, len(points) - 1, min(_MOST_POINTS, len(points)))
    return scaling.restore_inputs(points[steps.astype(int)])
