"""Saved models, and the tables that they are used with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from eigengp import io
from eigengp.cli.commands.session import Session
from eigengp.cli.tables import TableSchema, read_table
from eigengp.data.columns import join
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


def read_rows(
    out: Session, schema: TableSchema, path: Path, drop: list[str] | None, encoding: str | None
) -> Any:
    """Read a table for a model, without some columns."""
    table = read_table(path, schema.text_columns, encoding)
    absent = [name for name in drop or () if name not in table.column_names]
    if absent:
        out.note(f"There is no column {join(absent)} to drop in {path}.")
    return table.drop_columns([name for name in drop or () if name not in absent])
