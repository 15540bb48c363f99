"""What "auto" means: the settings of EigenGP that depend on the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eigengp.backend.namespace import is_numpy
from eigengp.data.array_source import ArraySource
from eigengp.fitting.training import Training

_NEIGHBOURS_FROM = 1_000
"""So few rows are described by eigenfunctions alone."""
_NEIGHBOURS_UP_TO = 100_000
"""So many rows, with their features, are held in memory without being asked."""


@dataclass(frozen=True)
class Choices:
    """The settings of one fit."""

    residual: str | None
    noise: str
    best_kernel: bool
    """Whether the kernel is chosen."""
    or_plain: bool
    """Whether the local residual is to prove itself."""


def chosen(estimator: Any, training: Training) -> Choices:
    """Return the settings of an estimator, resolved against the rows."""
    residual = estimator.residual
    local = residual == "local" or (residual == "auto" and _suits(estimator, training))
    if local and estimator.optimization != "sequential":
        raise ValueError(
            f"residual='local' has an optimization of its own, not {estimator.optimization!r}; "
            "leave optimization at 'sequential'."
        )
    noise = estimator.noise
    if noise == "auto":
        noise = "varying" if local else "constant"
    if residual == "auto":
        residual = "local" if local else None
    kernel = estimator.kernel
    best = local and isinstance(kernel, str) and kernel == "auto"
    return Choices(residual, noise, best, local and estimator.residual == "auto")


def _suits(estimator: Any, training: Training) -> bool:
    """Say whether rows and settings leave room for neighbours that nobody asked for."""
    rows = training.rows
    asked = (
        estimator.optimization != "sequential"
        or estimator.n_inducing is not None
        or not isinstance(estimator.init, str)
        or estimator.device is not None
        or estimator.precision != "double"
        or estimator.max_iter == 0
        or not estimator.guard
        or estimator._without_rows
    )
    if asked or not isinstance(rows, ArraySource) or not is_numpy(rows.X):
        return False
    return _NEIGHBOURS_FROM <= rows.n_rows <= _NEIGHBOURS_UP_TO
