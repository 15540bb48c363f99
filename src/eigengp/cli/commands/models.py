"""Saved models, with the schema of the table that they were fitted to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eigengp.cli.commands.session import Session
from eigengp.cli.tables import TableSchema, read_table
from eigengp.data.columns import TableError, join
from eigengp.data.encode import TableEncoder


@dataclass(frozen=True)
class SavedModel:
    """A model that was written by `fit` or saved from Python.

    Parameters
    ----------
    model : GPRegressor or EigenGPClassifier
        The fitted model.
    schema : TableSchema
        How a table becomes its inputs.
    about, header : dict
        What else the file contains.
    """

    model: Any
    schema: TableSchema
    about: dict[str, Any]
    header: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> SavedModel:
        """Read a file; the inputs of a model saved from Python are numbers."""
        from eigengp import io
        from eigengp.estimators.base import GPRegressor

        saved = io.read(path)
        own, classifies = saved.model, hasattr(saved.model, "classes_")
        usable = isinstance(own, GPRegressor) or classifies
        if not usable or hasattr(own, "output_covariance_"):
            raise io.SavedModelError(
                f"{path} holds a {type(own).__name__}, which the command line does not support; "
                "load it in Python with eigengp.load."
            )
        encoder = getattr(own, "encoder_", None)
        if encoder is None:
            names = saved.header["feature_names"]
            names = names or [f"x{index}" for index in range(saved.header["n_features"])]
            encoder = TableEncoder().fit({name: [0.0, 1.0] for name in names})
        schema = TableSchema(encoder, "", labels=classifies)
        if "schema" in saved.about:
            schema = TableSchema.from_dict(saved.about["schema"], encoder)
        return cls(saved.model, schema, saved.about, saved.header)

    def with_target(self, target: str | None) -> SavedModel:
        """Return a copy with this target; models saved from Python have none."""
        name = target or self.schema.target
        if not name:
            raise TableError("The model file does not name a target; pass --target.")
        return replace(self, schema=replace(self.schema, target=name))

    def read_table(
        self, path: Path, drop: list[str] | None, out: Session, encoding: str | None = None
    ) -> Any:
        """Read a table for this model, without some columns."""
        table = read_table(path, self.schema.text_columns, encoding)
        absent = [name for name in drop or () if name not in table.column_names]
        if absent:
            out.note(f"There is no column {join(absent)} to drop in {path}.")
        return table.drop_columns([name for name in drop or () if name not in absent])
