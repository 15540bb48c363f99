"""A saved model together with the table that it was fitted to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eigengp.cli.commands.session import Session
from eigengp.cli.tables import Column, TableEncoding, TableError, read_table


@dataclass(frozen=True)
class Fitted:
    """What `fit` has stored, or a model that was saved from Python.

    Parameters
    ----------
    model : GPRegressor
        The fitted model.
    encoding : TableEncoding
        How a table becomes its inputs.
    about, header : dict
        What else is in the file.
    """

    model: Any
    encoding: TableEncoding
    about: dict[str, Any]
    header: dict[str, Any]

    @classmethod
    def opened(cls, path: Path) -> Fitted:
        """Read a file; columns of a model from Python are numbers with the names that it has."""
        from eigengp import io
        from eigengp.estimators.base import GPRegressor

        saved = io.read(path)
        if not isinstance(saved.model, GPRegressor):
            raise io.SavedModelError(
                f"{path} holds a {type(saved.model).__name__}, which has no commands; load it in "
                "Python with eigengp.load."
            )
        stored = saved.about.get("encoding")
        if stored is not None:
            encoding = TableEncoding.from_dict(stored)
        else:
            names = saved.header["feature_names"]
            names = names or [f"x{at}" for at in range(saved.header["n_features"])]
            encoding = TableEncoding(tuple(Column(name, "number") for name in names), target="")
        return cls(saved.model, encoding, saved.about, saved.header)

    def with_target(self, target: str | None) -> Fitted:
        """Return it with the column of the targets, which a model from Python does not know."""
        name = target or self.encoding.target
        if not name:
            raise TableError("The model does not know its target; name the column with --target.")
        return replace(self, encoding=replace(self.encoding, target=name))

    def table(self, path: Path, drop: list[str], out: Session) -> Any:
        """Read a table for this model without some columns."""
        table = read_table(path, text=self.encoding.text_columns)
        absent = [name for name in drop if name not in table.column_names]
        if absent:
            out.note(f"There is no column {', '.join(absent)} to leave out of {path}.")
        return table.drop_columns([name for name in drop if name not in absent])
