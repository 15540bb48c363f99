"""Everything that a report shows, computed by functions of the library."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from inspect import signature
from itertools import groupby
from typing import Any

import numpy as np

from eigengp._html import describe_fit
from eigengp.cli.report.effects import (
    Explorer,
    Importance,
    PartialDependence,
    Spectrum,
    compute_partial_dependence,
    compute_slices,
    compute_spectrum,
    rank_inputs,
)
from eigengp.cli.report.quality import Quality, are_training_rows
from eigengp.cli.report.rows import Input, Rows
from eigengp.inspection import plain_inputs

_LIBRARIES = ("eigengp", "numpy", "scipy", "scikit-learn")


@dataclass(frozen=True)
class Origin:
    """The files of model and rows, as far as they are known.

    Parameters
    ----------
    model_file, data_file : str or None
        Their names.
    versions : mapping
        The versions of the libraries that wrote the model.
    ignored : mapping
        Columns of the table that are not used, each with the reason.
    has_schema : bool
        Whether the model file stores the schema of its table.
    """

    model_file: str | None = None
    data_file: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    ignored: Mapping[str, str] = field(default_factory=dict)
    has_schema: bool = False


@dataclass(frozen=True)
class Content:
    """The parts of a report."""

    model: Any
    rows: Rows
    coverage: float
    origin: Origin
    is_training: bool
    """Whether these are the training rows."""
    quality: Quality
    importance: tuple[Importance, ...]
    effects: tuple[PartialDependence, ...]
    spectrum: Spectrum | None
    explorer: Explorer
    stages: list[dict[str, Any]]

    @classmethod
    def compute(cls, model: Any, rows: Rows, *, coverage: float, origin: Origin) -> Content:
        """Compute all parts; see `eigengp.cli.report.build`."""
        with plain_inputs():
            importance = rank_inputs(model, rows)
            ranking = [each.input for each in importance]
            settings = (model, rows, ranking, coverage)
            return cls(
                model=model,
                rows=rows,
                coverage=coverage,
                origin=origin,
                is_training=are_training_rows(model, rows),
                quality=Quality.measure(model, rows, coverage),
                importance=importance,
                effects=compute_partial_dependence(*settings),
                spectrum=compute_spectrum(model, rows, ranking),
                explorer=compute_slices(*settings),
                stages=split_history(model),
            )

    @property
    def ranking(self) -> list[Input]:
        """The inputs, the most important first."""
        return [each.input for each in self.importance]

    @property
    def versions(self) -> list[tuple[str, str, str]]:
        """The libraries, with the versions that made this page and the model."""
        own = {"python": platform.python_version(), **{each: version(each) for each in _LIBRARIES}}
        return [(name, own[name], self.origin.versions.get(name, "–")) for name in own]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What was learned, as names and values."""
        model = self.model
        size = ("Features", f"{model.n_features_in_:,}")
        return [("Method", type(model).__name__), size, *describe_fit(model)]

    @property
    def settings(self) -> list[tuple[str, str]]:
        """The parameters that differ from their defaults."""
        defaults = signature(type(self.model).__init__).parameters
        given = sorted(self.model.get_params(deep=False).items())
        shown = [(name, _format_parameter(value)) for name, value in given]
        return [
            (name, text)
            for name, text in shown
            if name not in defaults or text != _format_parameter(defaults[name].default)
        ]


def split_history(model: Any) -> list[dict[str, Any]]:
    """Split the history of a fit into stages: name, iterations, seconds and values.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> step = {"stage": "learning", "log_marginal_likelihood": -3.0, "seconds": 0.1}
    >>> (stage,) = split_history(SimpleNamespace(history_=[step, step]))
    >>> stage["name"], stage["iterations"]
    ('learning', array([1., 2.]))
    """
    steps = enumerate(getattr(model, "history_", []), start=1)
    stages = []
    for name, group in groupby(steps, key=lambda pair: str(pair[1]["stage"])):
        columns = zip(
            *((at, each["seconds"], each["log_marginal_likelihood"]) for at, each in group),
            strict=True,
        )
        iterations, seconds, values = (np.array(each, dtype=np.float64) for each in columns)
        stage = {"iterations": iterations, "seconds": seconds, "values": values}
        stages.append({"name": name, **stage})
    return stages


def _format_parameter(value: Any) -> str:
    text = repr(value) if np.ndim(value) == 0 else f"array of shape {np.shape(value)}"
    return text if len(text) <= 200 else text[:199] + "…"
