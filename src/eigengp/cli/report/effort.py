"""How much a report computes: less where a prediction is costly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eigengp.gp.vecchia_posterior import VecchiaPosterior

_COSTLY_COLUMNS = 300
"""Beyond so many numbers for each row, a prediction is costly."""


@dataclass(frozen=True)
class Effort:
    """How many predictions the parts of a report may take.

    Parameters
    ----------
    shuffled_rows : int
        Rows on which the importance of inputs is measured.
    averaged_rows, steps : int
        Rows over which partial dependence is averaged, and values at which.
    moved_inputs, positions, points : int
        Inputs with a slider, positions of each, and points of a curve.
    """

    shuffled_rows: int
    averaged_rows: int
    steps: int
    moved_inputs: int
    positions: int
    points: int

    @classmethod
    def of(cls, model: Any) -> Effort:
        """Return what suits a model: less if predictions look at neighbours or at all rows."""
        posterior = model._posterior
        local = isinstance(posterior, VecchiaPosterior)
        return SMALL if local or posterior.n_columns > _COSTLY_COLUMNS else FULL


FULL = Effort(1_000, 200, 25, 4, 7, 41)
SMALL = Effort(300, 100, 15, 3, 5, 31)
