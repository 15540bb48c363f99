"""The table that `fit` and `compare` learn from."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from eigengp._format import quoted
from eigengp._typing import Array
from eigengp.cli.commands.session import Session
from eigengp.cli.tables import (
    TableSchema,
    drop_unlabelled,
    find_point,
    is_large,
    read_table,
    summarize_table,
)
from eigengp.data.columns import check_present
from eigengp.data.formats import import_arrow, open_dataset
from eigengp.data.frames import encoded_inputs

_MANY_ROWS = 100  # From so many on, different whole numbers may identify them.
_FIRST_ROWS = 100_000  # The rows of a large table from which the encoding is learned.


@dataclass(frozen=True)
class TrainingData:
    """A table to learn from: its schema, its rows (X, y, weights), and those held out.

    Of a table that is too large for the memory, `table` are the first rows, and `dataset` all.
    `shown` are the rows of a report: those held out, if there are some.
    """

    schema: TableSchema
    table: Any
    rows: Any
    held_out: Any = None
    dataset: Any = None
    shown: Any = None

    @classmethod
    def read(
        cls,
        out: Session,
        path: Path,
        roles: dict[str, Any],
        encoding: str | None,
        holdout: float = 0.0,
        seed: int = 0,
    ) -> TrainingData:
        """Read a table, hold rows out, and learn the encoding from the others.

        `roles` are the parameters of `TableSchema.learn`.
        """
        if holdout == 1.0:
            raise ValueError("--holdout must be less than 1: the other rows are fitted.")
        dataset = held = None
        if is_large(path):
            out.note("The table is too large for the memory: it is read in chunks.")
            if holdout:
                raise ValueError("--holdout needs a table that fits into memory.")
            whole, target = open_dataset(path, encoding), roles["target"]
            check_present(whole.schema.names, [target])
            missing = import_arrow().compute.field(target).is_null(nan_is_null=True)
            dataset = whole.filter(~missing)
            table = dataset.head(_FIRST_ROWS)
        else:
            text, decimal = roles.get("categorical", ()), roles.get("decimal")
            whole = read_table(path, text, encoding, decimal)
            table = drop_unlabelled(whole, roles["target"])
            roles = roles if decimal else find_point(path, whole, encoding) | roles
        if holdout:
            parts = train_test_split(np.arange(len(table)), test_size=holdout, random_state=seed)
            table, held = (table.take(np.sort(part)) for part in parts)
        schema = TableSchema.learn(table, **roles)
        _note_columns(table, schema, out)
        if dataset is not None:
            used = {*schema.encoder.feature_names_in_, schema.target, schema.weights}
            fields = [each for each in dataset.schema if each.name in used]
            dataset = dataset.replace_schema(import_arrow().schema(fields))
        held_out = None if held is None else schema.split(held)
        shown = table if held is None else held
        return cls(schema, table, schema.split(table), held_out, dataset, shown)

    def fit(self, model: Any) -> float:
        """Fit a model and return the seconds it took."""
        began = time.perf_counter()
        X, y, weights = self.rows
        if self.dataset is not None and self.schema.labels:
            X, y, weights = self._read_labelled()
        elif self.dataset is not None:
            X, y, weights = self.dataset, self.schema.target, self.schema.weights
        with encoded_inputs(self.schema.encoder), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "y has only two")  # There is a note already.
            model.fit(X, y, sample_weight=weights).set_params(verbose=None)
        return round(time.perf_counter() - began, 3)

    def _read_labelled(self) -> Any:
        """Encode all rows in chunks: a classifier needs them at once, and its labels as text."""
        tables = map(import_arrow().Table.from_batches, ([b] for b in self.dataset.to_batches()))
        parts = zip(*(self.schema.split(each) for each in tables if each.num_rows), strict=True)
        return (None if part[0] is None else np.concatenate(part) for part in parts)

    def describe(self, path: Path) -> dict[str, Any]:
        """Return what is stored with the model."""
        summary = summarize_table(self.table, self.schema)
        if self.dataset is not None:
            summary["rows"] = self.dataset.count_rows()
        held = 0 if self.held_out is None else len(self.held_out[1])
        data = {"file": path.name, **summary, "held_out": held}
        return {"schema": self.schema.to_dict(), "data": data}


def may_identify(numbers: Array) -> bool:
    """Return whether numbers count the rows, or are many whole numbers without repetition."""
    if numbers.size < _MANY_ROWS:
        return bool(np.all(np.diff(numbers) == 1.0))
    return bool(np.all(numbers % 1.0 == 0.0)) and np.unique(numbers).size == numbers.size


def _note_columns(table: Any, schema: TableSchema, out: Session) -> None:
    """Note the columns that are ignored or only number the rows, and a target of two numbers."""
    for name, why in schema.encoder.ignored_.items():
        out.note(f"Column {quoted(name)} is {why} and is ignored.")
    for column in schema.encoder.columns_:
        if column.kind == "number" and may_identify(column.read(table[column.name])):
            out.note(
                f"Column {quoted(column.name)} has a different whole number in each row; --drop it "
                "if it is an identifier."
            )
    values = 0 if schema.labels else np.unique(schema.read_target(table)).size
    if values == 1:
        out.note(f"{quoted(schema.target)} has the same value in all rows.")
    if values == 2:
        option = f"--categorical {quote(schema.target)}"
        out.note(f"{quoted(schema.target)} has two values; {option} makes them classes.")
