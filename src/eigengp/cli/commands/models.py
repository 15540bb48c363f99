"""Saved models, with the schema of their tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from eigengp import io
from eigengp.cli.tables import TableSchema
from eigengp.estimators.base import GPRegressor


def open_model(path: Path, target: str | None = None) -> tuple[io.Saved, TableSchema]:
    """Read a model that was written by `fit` or saved from Python, and the schema of its table.

    The inputs of a model saved from Python are numbers, and its target is the one given.
    """
    saved = io.read(path)
    model, classifies = saved.model, hasattr(saved.model, "classes_")
    usable = isinstance(model, GPRegressor) or classifies
    if not usable or hasattr(model, "output_covariance_"):
        raise io.SavedModelError(
            f"{path} holds a {type(model).__name__}, which the command line does not support; "
            "load it in Python with eigengp.load."
        )
    roles = {"target": "", "labels": classifies} | saved.about.get("schema", {})
    schema = TableSchema.of_model(model, **roles)
    return saved, replace(schema, target=target or schema.target)
