"""What the settings of a fit with a non-Gaussian likelihood ask for: kernels, exposures, sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from eigengp.fitting.initialization import WARPED_INPUTS, make_warps
from eigengp.fitting.run import Run
from eigengp.fitting.settings import LBFGS
from eigengp.gp.blocks import RowBlock
from eigengp.gp.likelihoods import Coregionalized, NonGaussian
from eigengp.gp.variational import Exposure
from eigengp.kernels import KERNELS, Kernel, Stationary
from eigengp.kernels.base import get_lengthscale_range

_CANDIDATES = ("squared_exponential", "matern52", "matern32", "matern12")
# All of so many rows are inducing points, or so many points of more rows.
ALL_UP_TO, _POINTS = 500, 200
# With one latent function and from so many to so many rows there are so many inducing points.
_MORE_FROM, _MORE_UP_TO, _MORE_POINTS = 5_000, 200_000, 400
# With `max_time`, N·C·M² is at most so many for each second, but there are so many points.
_PRODUCTS_PER_SECOND, _LEAST_POINTS = 100_000_000, 20


def refuse_settings(run: Run) -> None:
    """Raise if a setting is for one output with Gaussian noise only."""
    settings, own = run.settings, run.settings.likelihood
    several = isinstance(own, Coregionalized)
    what = "several outputs" if several else f"likelihood={own!r}"
    optimizer, mean = settings.optimizer, settings.reading.mean
    obstacles = {
        f"residual={settings.residual!r}": settings.has_weights and settings.residual != "auto",
        f"optimizer={optimizer!r}": not isinstance(optimizer, LBFGS)
        or optimizer.strategy not in ("auto", "sequential")
        or optimizer.exact_start,
        f"precision={settings.precision!r}": settings.precision not in ("auto", "double"),
        f"mean={mean!r}": mean != "constant" and not settings.reading.scales_targets,
        "partial_fit": not settings.keeps_rows,
    }
    for name, refused in obstacles.items():
        if refused:
            raise ValueError(
                f"{name} is for one output with Gaussian noise, and cannot be combined with "
                f"{what}: that posterior is found by rounds over all rows in memory."
            )


def find_exposure(run: Run, likelihood: NonGaussian) -> Exposure | None:
    """Return the input that holds exposures, with its centre and scale."""
    own, scaling = likelihood.exposure, run.dataset.scaling
    if own is None:
        return None
    names = run.dataset.feature_names
    known = list(range(run.dataset.n_features)) if isinstance(own, int) else list(names or ())
    if own not in known:
        raise ValueError(f"exposure={own!r} is not one of the inputs; there are {known}.")
    if np.isfinite(scaling.knee):
        raise ValueError("An exposure cannot be combined with standardize='robust'.")
    column = known.index(own)
    centre, scale = scaling.input_centre[column], scaling.input_scale[column]
    return Exposure(column, float(centre), float(scale))


def make_kernels(run: Run, rows: RowBlock, variance: float, exposure: int | None) -> list[Kernel]:
    """Return the kernels to compare, with the prior variance to start from."""
    own, scaling, D = run.settings.kernel, run.dataset.scaling, run.dataset.n_features
    if isinstance(own, Kernel):
        per_unit = 1.0 / scaling.input_scale
        shift, unit = -scaling.input_centre * per_unit, scaling.target_scale**2
        given = own.with_ard(D).rescaled(per_unit, 1.0 / unit, shift).with_ard(D)
        return [given.with_groups(run.dataset.groups)]
    dims = None if exposure is None else tuple(d for d in range(D) if d != exposure)
    if dims == ():
        raise ValueError("X has no inputs beside the exposure.")
    low, high = get_lengthscale_range(run.dataset.n_varying)
    made = []
    for name in _CANDIDATES if own == "auto" else (own,):
        kind: Any = KERNELS[name]
        first = {"lengthscale": np.sqrt(low * high)} if issubclass(kind, Stationary) else {}
        kernel = kind(active_dims=dims, **first)
        scale = variance / float(kernel.diag(np.ones((1, D)))[0])
        kernel = kernel.rescaled(np.ones(D), scale).with_ard(D)
        made.append(kernel.with_groups(run.dataset.groups))
    if len(made) > 1 and dims is None and D <= WARPED_INPUTS and run.dataset.groups is None:
        made += make_warps(made[0], rows)
    return made


def choose_size(run: Run, default: int) -> int:
    """Return the number of inducing points: that of the settings, or the default."""
    settings, points = run.settings, run.settings.inducing_points
    given = settings.n_inducing if isinstance(points, str) else points.shape[0]
    if given and settings.n_components not in (None, given):
        raise ValueError(
            f"A likelihood other than Gaussian noise has as many components as inducing points, "
            f"got n_components={settings.n_components} and {given} inducing points."
        )
    return int(given or settings.n_components or default)


def get_default_size(run: Run, likelihood: NonGaussian) -> int:
    """Return the default number of inducing points without neighbours, by the number of rows."""
    n, C, limit = run.dataset.n_rows, likelihood.n_latent, run.settings.max_time
    size = n if n <= (ALL_UP_TO if C == 1 else _POINTS) else _POINTS
    if C == 1 and _MORE_FROM <= n <= _MORE_UP_TO:
        size = _MORE_POINTS
    if limit is not None:
        size = min(size, max(_LEAST_POINTS, round(np.sqrt(_PRODUCTS_PER_SECOND * limit / (n * C)))))
    return size
