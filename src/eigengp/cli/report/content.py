"""All that a report says, computed by the library's own functions."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from inspect import signature
from shlex import quote
from typing import Any, Literal

import numpy as np

from eigengp._format import number
from eigengp.backend.namespace import on_host
from eigengp.cli.report.convergence import Stage, stages
from eigengp.cli.report.effort import Effort
from eigengp.cli.report.influence import AverageEffect, Influence, average_effects, influences
from eigengp.cli.report.provenance import Provenance
from eigengp.cli.report.quality import Quality
from eigengp.cli.report.rows import Input, Rows
from eigengp.cli.report.slices import Explorer, explored
from eigengp.cli.report.spectrum import Spectrum, spectrum
from eigengp.cli.report.summary import ColumnSummary, summarised
from eigengp.inspection import plain_inputs

_OF_ARRAYS = """\
import eigengp

model = eigengp.load({file!r})
mean, std = model.predict(X, return_std=True)
"""
_OF_TABLES = """\
from eigengp import io
from eigengp.cli.tables import TableEncoding, read_table

saved = io.read({file!r})
encoding = TableEncoding.from_dict(saved.about["encoding"])
X = encoding.inputs(read_table("new.csv", text=encoding.text_columns))
mean, std = saved.model.predict(X, return_std=True)
"""
_LIBRARIES = ("eigengp", "numpy", "scipy", "scikit-learn")


@dataclass(frozen=True)
class Origin:
    """Where model and rows were read from, as far as it is known."""

    model_file: str | None = None
    data_file: str | None = None
    made_with: Mapping[str, str] = field(default_factory=dict)
    """The versions that made the model."""
    learned_from: Mapping[str, Any] = field(default_factory=dict)
    """The summary of the training table that is stored with the model."""
    ignored: Mapping[str, str] = field(default_factory=dict)
    """Columns of the table that are no inputs, and why."""
    encoded: bool = False
    """Whether the file of the model says how its inputs are made of a table."""


@dataclass(frozen=True)
class Content:
    """What the page shows, part by part."""

    model: Any
    rows: Rows
    coverage: float
    origin: Origin
    columns: tuple[ColumnSummary, ...]
    provenance: Provenance
    quality: Quality
    influences: tuple[Influence, ...]
    effects: tuple[AverageEffect, ...]
    spectrum: Spectrum | None
    explorer: Explorer
    stages: tuple[Stage, ...]

    @classmethod
    def of(
        cls,
        model: Any,
        rows: Rows,
        *,
        coverage: float,
        said: Literal["training", "new"] | None,
        origin: Origin,
    ) -> Content:
        """Compute everything; see `eigengp.cli.report.build`."""
        with plain_inputs():
            effort = Effort.of(model)
            found = influences(model, rows, effort)
            ranking = [each.input for each in found]
            return cls(
                model,
                rows,
                coverage,
                origin,
                summarised(rows.columns),
                Provenance.of(model, rows, said, origin.learned_from),
                Quality.of(model, rows, coverage),
                found,
                average_effects(model, rows, ranking, coverage, effort),
                spectrum(model, rows, ranking),
                explored(model, rows, ranking, coverage, effort),
                stages(model),
            )

    @property
    def ranking(self) -> list[Input]:
        """The inputs, the most important first."""
        return [each.input for each in self.influences]

    @property
    def coverage_pairs(self) -> list[tuple[float, float]]:
        """Probabilities and measured shares, one pair after the other."""
        return list(zip(*self.quality.coverage, strict=True))

    @property
    def pit_bins(self) -> list[tuple[float, float, float]]:
        """Where each bin of the transform begins and ends, and its density."""
        density, edges = self.quality.pit
        return list(zip(edges[:-1], edges[1:], density, strict=True))

    def labels(self, slider: int) -> list[str]:
        """Return what the positions of a slider are called."""
        moved, positions = self.explorer.inputs[slider], self.explorer.positions[slider]
        return [moved.label(value) for value in positions]

    @property
    def usage(self) -> str:
        """Python that loads the model and predicts."""
        text = _OF_TABLES if self.origin.encoded else _OF_ARRAYS
        return text.format(file=self.origin.model_file)

    @property
    def shell(self) -> str:
        """The command that predicts."""
        return f"eigengp predict {quote(self.origin.model_file or '')} new.csv --out predicted.csv"

    @property
    def versions(self) -> list[tuple[str, str, str]]:
        """The libraries, and which version of each made this page and the model."""
        own = {"python": platform.python_version(), **{each: version(each) for each in _LIBRARIES}}
        return [(name, own[name], self.origin.made_with.get(name, "–")) for name in own]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What was learned, as names and values."""
        model = self.model
        found = [
            ("Method", type(model).__name__),
            ("Inputs of the model", f"{model.n_features_in_:,}"),
            ("Kernel", type(model.kernel_).__name__),
            ("Noise, standard deviation", number(float(model.noise_variance_) ** 0.5)),
            ("Log evidence", f"{float(model.log_marginal_likelihood_):,.2f}"),
            ("Iterations", f"{int(model.n_iter_):,}"),
        ]
        points = getattr(model, "inducing_points_", None)
        if points is not None:
            found.insert(2, ("Basis points", f"{on_host(points).shape[0]:,}"))
        if self.spectrum is not None:
            found.insert(3, ("Eigenfunctions", f"{self.spectrum.weights.size:,}"))
        return found

    @property
    def settings(self) -> list[tuple[str, str]]:
        """The parameters that are not at their defaults."""
        defaults = signature(type(self.model).__init__).parameters
        given = self.model.get_params(deep=False)
        return [
            (name, _short(value))
            for name, value in sorted(given.items())
            if name not in defaults or _short(value) != _short(defaults[name].default)
        ]


def _short(value: Any) -> str:
    text = repr(value) if np.ndim(value) == 0 else f"array of shape {np.shape(value)}"
    return text if len(text) <= 200 else text[:199] + "…"
