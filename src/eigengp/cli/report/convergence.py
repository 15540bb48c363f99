"""How the evidence grew while a model was learned."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from eigengp._typing import Array


@dataclass(frozen=True)
class Stage:
    """One stage of a fit: the evidence after each of its iterations."""

    name: str
    iterations: Array
    """Counted over all stages, shape (n,)."""
    seconds: Array
    """Since the beginning of the fit, shape (n,)."""
    evidence: Array
    """The log evidence, shape (n,)."""


def stages(model: Any) -> tuple[Stage, ...]:
    """Return the stages of a fit in their order; none if the model keeps no history.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> step = {"stage": "learning", "log_marginal_likelihood": -3.0, "seconds": 0.1}
    >>> (only,) = stages(SimpleNamespace(history_=[step, step]))
    >>> only.name, only.iterations
    ('learning', array([1., 2.]))
    """
    counted = list(enumerate(getattr(model, "history_", []), start=1))
    found = []
    for name, steps in groupby(counted, key=lambda pair: str(pair[1]["stage"])):
        held = list(steps)
        columns = [
            [number for number, _ in held],
            [step["seconds"] for _, step in held],
            [step["log_marginal_likelihood"] for _, step in held],
        ]
        found.append(Stage(name, *(np.array(each, dtype=np.float64) for each in columns)))
    return tuple(found)
