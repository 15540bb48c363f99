"""Which checkpoint belongs to which fit."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from eigengp.data.summary import Summary
from eigengp.data.views import Scaling
from eigengp.fitting.checkpoint import Checkpoint


def journal_for(
    estimator: Any, n_rows: int, summary: Summary, scaling: Scaling, rng: np.random.RandomState
) -> Checkpoint | None:
    """Return the journal that the estimator asks for, one of the same data and settings.

    Data are told apart by how many rows they have, and by means, scales and
    ends of their columns, which are the same however rows are cut up.
    """
    path = getattr(estimator, "checkpoint", None)
    if path is None:
        return None
    settings = estimator.get_params(deep=False)
    for name in ("checkpoint", "verbose"):
        settings.pop(name)
    if not isinstance(estimator.random_state, int):
        settings.pop("random_state")
    about = sha256(f"{type(estimator).__name__} {n_rows}".encode())
    for name, value in sorted(settings.items()):
        about.update(f"{name} {value!r}".encode())
        if hasattr(value, "__array__"):
            about.update(np.asarray(value).tobytes())
    numbers = (scaling.input_centre, scaling.input_scale, summary.low, summary.high)
    for each in (*numbers, np.array([scaling.target_centre, scaling.target_scale])):
        about.update(each.tobytes())
    return Checkpoint(Path(path), about.hexdigest(), rng)
