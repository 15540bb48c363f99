"""`eigengp fit`: learn a model from a table and write it to a file."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from eigengp._format import format_number, quoted
from eigengp.cli.commands import options
from eigengp.cli.commands.evaluate import compute_scores, show_scores
from eigengp.cli.commands.methods import (
    CLASSIFIER,
    METHODS,
    NON_GAUSSIAN,
    Method,
    Name,
    check_settings,
)
from eigengp.cli.commands.session import Session, open_session

MethodName = Annotated[Name, typer.Option(metavar="NAME", help="The method; see below.")]
_LEVEL = 0.9
_FIRST_ROWS = 100_000
"""The rows of a large table from which the encoding is learned."""


def fit(
    data: options.Data,
    target: options.Target,
    model: options.ModelFile,
    method: MethodName = Name.AUTO,
    components: options.Components = None,
    kernel: options.KernelName = None,
    likelihood: options.Likelihood = None,
    max_time: options.MaxTime = None,
    device: options.Device = None,
    holdout: options.Holdout = 0.0,
    page: options.ReportPage = None,
    drop: options.Drop = None,
    only: options.Only = None,
    categorical: options.Categorical = None,
    weights: options.Weights = None,
    expand_dates: options.ExpandDates = True,
    decimal: options.Decimal = None,
    thousands: options.Thousands = None,
    encoding: options.Encoding = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Learn a model from a table and write it to a file.

    A target of text, or of true and false, makes it a classification. Inputs may hold numbers,
    text, dates and missing values. Columns that are constant, empty or name the rows are ignored,
    and rows without a target are dropped.
    """
    settings = {
        "n_components": components,
        "kernel": kernel,
        "likelihood": likelihood,
        "max_time": max_time,
        "device": device,
    }
    check_settings(method, settings)
    sign = options.find_decimal_option(decimal, thousands)
    if not 0.0 <= holdout < 1.0:
        raise typer.BadParameter(f"{holdout} is not in [0, 1).", param_hint="'--holdout'")
    with open_session(as_json, quiet, debug) as out:
        from eigengp import io
        from eigengp.cli.commands.models import SavedModel
        from eigengp.cli.commands.report import check_reportable, write_report
        from eigengp.inspection import group_effects

        out.check_output_path(model, [io.SUFFIX])
        if page is not None:
            out.check_output_path(page, [".html"])
        columns = ColumnOptions(target, weights, drop, only, categorical, expand_dates, sign)
        training = TrainingData.read(data, columns, out, holdout, seed, encoding)
        if page is not None:
            check_reportable(training.schema.labels or likelihood in NON_GAUSSIAN)
        regressor = training.choose_method(method).build(settings, seed, verbose=out.verbose)
        seconds = training.fit(regressor)
        groups = training.schema.encoder.feature_groups_
        about = training.describe(data)
        about["fit"] = {
            "method": "classification" if training.schema.labels else str(method),
            "seed": seed,
            "seconds": seconds,
            "effects": group_effects(regressor, training.rows[0], groups, random_state=seed),
            "holdout": training.calibrate(regressor, out),
        }
        io.save(regressor, model, about=about)
        out.say(_summarize(regressor, about, model))
        if page is not None:
            write_report(SavedModel.read(model), training.table, page, (model, data))
            out.say(f"Written to {page}: open it in a browser.")
        out.write_result({"model": str(model), "data": about["data"], "fit": about["fit"]})


@dataclass(frozen=True)
class ColumnOptions:
    """The options that say which columns of a table are used, and how."""

    target: str
    weights: str | None
    drop: list[str] | None
    only: list[str] | None
    categorical: list[str] | None
    expand_dates: bool = True
    decimal: str | None = None


@dataclass(frozen=True)
class TrainingData:
    """A table to learn from: its schema, its rows (X, y, weights), and those held out.

    Of a table that is too large for the memory, `table` are the first rows, and `dataset` all.
    """

    schema: Any
    table: Any
    rows: Any
    held_out: Any = None
    dataset: Any = None

    @classmethod
    def read(
        cls,
        data: Path,
        columns: ColumnOptions,
        out: Session,
        holdout: float = 0.0,
        seed: int = 0,
        encoding: str | None = None,
    ) -> TrainingData:
        """Read a table, hold rows out, and learn the encoding from the others."""
        from eigengp.cli.tables import (
            TableSchema,
            drop_unlabelled,
            is_large,
            open_rows,
            read_table,
        )
        from eigengp.data.formats import import_arrow

        given = {name: value for name, value in vars(columns).items() if value is not None}
        if is_large(data):
            out.note("The table is too large for the memory: it is read in chunks.")
            if holdout:
                raise ValueError("--holdout needs a table that fits into memory.")
            dataset = open_rows(data, columns.target, encoding)
            table = dataset.head(_FIRST_ROWS)
            schema = TableSchema.learn(table, **given)
            _note_useless(table, schema, out)
            dataset = dataset.replace_schema(
                import_arrow().schema([dataset.schema.field(name) for name in schema.used])
            )
            return cls(schema, table, schema.split(table), None, dataset)
        table, held = read_table(data, columns.categorical or (), encoding), None
        table = drop_unlabelled(table, columns.target)
        if holdout:
            table, held = _split(table, holdout, seed)
        schema = TableSchema.learn(table, **given)
        _note_useless(table, schema, out)
        return cls(schema, table, schema.split(table), None if held is None else schema.split(held))

    def choose_method(self, name: Name) -> Method:
        """Return the method of a name; labels have a classifier of their own."""
        if not self.schema.labels:
            return METHODS[name]
        if name != Name.AUTO:
            raise ValueError(
                f"--method {name} is for numbers, but {quoted(self.schema.target)} holds labels; "
                "leave --method out for classification."
            )
        return CLASSIFIER

    def fit(self, model: Any) -> float:
        """Fit a model and return the seconds it took."""
        began = time.perf_counter()
        from eigengp.data.frames import encoded_inputs

        X, y, weights = self.rows
        if self.dataset is not None and self.schema.labels:
            X, y, weights = self._read_labelled()
        elif self.dataset is not None:
            X, y, weights = self.dataset, self.schema.target, self.schema.weights
        with encoded_inputs(self.schema.encoder):
            model.fit(X, y, sample_weight=weights).set_params(verbose=None)
        return round(time.perf_counter() - began, 3)

    def _read_labelled(self) -> Any:
        """Encode all rows in chunks: a classifier needs them at once, and its labels as text."""
        import numpy as np

        from eigengp.data.formats import import_arrow

        tables = map(import_arrow().Table.from_batches, ([b] for b in self.dataset.to_batches()))
        parts = zip(*(self.schema.split(each) for each in tables if each.num_rows), strict=True)
        return (None if part[0] is None else np.concatenate(part) for part in parts)

    def describe(self, data: Path) -> dict[str, Any]:
        """Return what is stored with the model."""
        from eigengp.cli.tables import summarize_table

        held = 0 if self.held_out is None else len(self.held_out[1])
        summary = summarize_table(self.table, self.schema)
        if self.dataset is not None:
            summary["rows"] = self.dataset.count_rows()
        stored = {"file": data.name, **summary, "held_out": held}
        return {"schema": self.schema.to_dict(), "data": stored}

    def calibrate(self, model: Any, out: Session) -> dict[str, float | None] | None:
        """Score a model on the held-out rows, then calibrate it on them."""
        if self.held_out is None:
            return None
        X, y, _ = self.held_out
        from eigengp.data.frames import encoded_inputs

        scores = compute_scores(model, self.held_out, _LEVEL)
        if not self.schema.labels:
            with encoded_inputs():
                model.calibrate(X, y)
        if not out.quiet:
            show_scores(out, scores, _LEVEL, f"On {y.size:,} held-out rows:")
        return scores


def _note_useless(table: Any, schema: Any, out: Session) -> None:
    """Note the columns that are ignored, and those that only number the rows."""
    import numpy as np

    for name, why in schema.encoder.ignored_.items():
        out.note(f"Column {quoted(name)} is {why} and is ignored.")
    for column in schema.encoder.columns_:
        numeric = column.kind == "number"
        if numeric and np.all(np.diff(column.read(table[column.name])) == 1.0):
            out.note(
                f"Column {quoted(column.name)} numbers the rows; --drop it if it has no meaning."
            )


def _split(table: Any, holdout: float, seed: int) -> tuple[Any, Any]:
    """Split a table at random into rows to learn from and rows to hold out."""
    import numpy as np
    from sklearn.model_selection import train_test_split

    kept, held = train_test_split(
        np.arange(table.num_rows), test_size=holdout, random_state=seed, shuffle=True
    )
    return table.take(np.sort(kept)), table.take(np.sort(held))


def _summarize(model: Any, about: dict[str, Any], path: Path) -> str:
    """Return what was learned, in two lines."""
    data, learned = about["data"], about["fit"]
    evidence = float(model.log_marginal_likelihood_)
    if hasattr(model, "classes_"):
        known = f"{len(model.classes_)} classes"
    elif hasattr(model, "likelihood_"):
        known = repr(model.likelihood_)
    else:
        known = f"noise ± {format_number(float(model.noise_variance_) ** 0.5)}"
    return (
        f"Learned {data['target']['name']} from {data['rows']:,} rows and "
        f"{model.n_features_in_} inputs by {learned['method']} in {learned['seconds']:.1f} s; "
        f"{known}, log marginal likelihood {format_number(evidence)}.\n"
        f"Written to {path}; `eigengp inspect {path}` shows what it learned."
    )
