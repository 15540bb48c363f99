"""Whether the rows of a report are those that the model was learned from.

Every model remembers the centres and scales that brought its training rows to order one. Rows whose
centres and scales are the same are, for all practical purposes, the training rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from eigengp.cli.report.rows import Rows
from eigengp.data.array_source import ArraySource
from eigengp.data.standardize import Scaling, Summary
from eigengp.gp.blocks import RowBlock

Kind: TypeAlias = Literal["training", "new", "other"]
_SAME = 1e-6
_MATCHING = "Means and spreads of all columns are those that the model was learned from."
_SAID_TRAINING = "They were said to be the rows that the model was learned from."
_SAID_NEW = (
    "They were said to be new to the model, and they are not the table that it was learned from."
)
_WITH_HELD_OUT = (
    "There are as many as in the table that the model was fitted to, of which {kept:,} were "
    "learned from and {held:,} were held out."
)
_DIFFERING = (
    "Means and spreads of the columns differ from those that the model was learned from. Whether "
    "some of the rows were among its training rows, or have been added to them since, cannot be "
    "known."
)


@dataclass(frozen=True)
class Provenance:
    """Where rows come from: training, new by the user's word, or not the training table."""

    kind: Kind
    title: str
    explanation: str
    short: str
    """What it means for the scores."""

    @classmethod
    def of(
        cls,
        model: Any,
        rows: Rows,
        said: Literal["training", "new"] | None,
        learned_from: Mapping[str, Any],
    ) -> Provenance:
        """Compare rows with what a model remembers of those it was learned from.

        Parameters
        ----------
        model : GPRegressor
            A fitted model.
        rows : Rows
            What is compared.
        said : {"training", "new"} or None
            What the user says of them; None leaves it to the comparison.
        learned_from : mapping
            What is stored with the model about its training table: "rows" and "held_out".
        """
        same = _same_scaling(model, rows)
        if said == "new" and same:
            raise ValueError(
                "The rows were said to be new, but their means and spreads are exactly those that "
                "the model was learned from. Report on other rows, or do not call them new."
            )
        if same or said == "training":
            return cls(
                "training",
                "These are training rows",
                _MATCHING if same else _SAID_TRAINING,
                "Errors on new rows are usually larger than the ones shown here.",
            )
        if said == "new":
            return cls(
                "new",
                "These are new rows",
                _SAID_NEW,
                "The scores show what to expect of predictions for rows like these.",
            )
        held, kept = learned_from.get("held_out"), learned_from.get("rows")
        if isinstance(held, int) and isinstance(kept, int) and 0 < held == rows.y.size - kept:
            return cls(
                "other",
                "Most of these may be training rows",
                _WITH_HELD_OUT.format(held=held, kept=kept),
                "If that is so, errors on new rows are usually larger than the ones shown here.",
            )
        return cls(
            "other",
            "These are not the training rows as a whole",
            _DIFFERING,
            "If none of them was, the scores show what to expect of predictions.",
        )


def _same_scaling(model: Any, rows: Rows) -> bool:
    """Say whether rows have the centres and scales that a model remembers."""
    kept = model._scaling
    source = ArraySource.of(RowBlock(rows.X, rows.y, rows.weight), rows.X.shape[1])
    own = Scaling.measured(source, Summary.of(source), model.standardize)
    inputs = np.abs(own.input_centre - kept.input_centre) / kept.input_scale
    ratios = np.append(own.input_scale / kept.input_scale, own.target_scale / kept.target_scale)
    target = abs(own.target_centre - kept.target_centre) / kept.target_scale
    return bool(max(inputs.max(), target, np.abs(ratios - 1.0).max()) < _SAME)
