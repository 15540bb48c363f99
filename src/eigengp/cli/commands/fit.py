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
from eigengp.cli.commands.methods import CLASSIFIER, METHODS, Method, Name, check_components
from eigengp.cli.commands.session import Session, open_session

MethodName = Annotated[Name, typer.Option(metavar="NAME", help="The method; see below.")]
_LEVEL = 0.9


def fit(
    data: options.Data,
    target: options.Target,
    model: options.ModelFile,
    method: MethodName = Name.AUTO,
    components: options.Components = None,
    holdout: options.Holdout = 0.0,
    impute: options.Impute = False,
    drop: options.Drop = None,
    only: options.Only = None,
    categorical: options.Categorical = None,
    weights: options.Weights = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Learn a model from a table and write it to a file.

    A target of text, or of true and false, makes it a classification. Text inputs become one input
    of zeros and ones per category. Constant columns are ignored; drop dates and columns of
    identifiers.
    """
    check_components(method, components)
    if not 0.0 <= holdout < 1.0:
        raise typer.BadParameter(f"{holdout} is not in [0, 1).", param_hint="'--holdout'")
    with open_session(as_json, quiet, debug) as out:
        from eigengp import io
        from eigengp.inspection import group_effects

        out.check_output_path(model, [io.SUFFIX])
        columns = ColumnOptions(target, weights, drop, only, categorical, impute)
        training = TrainingData.read(data, columns, out, holdout, seed)
        regressor = training.choose_method(method).build(components, seed, out.shows_progress)
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
        out.write_result({"model": str(model), "data": about["data"], "fit": about["fit"]})


@dataclass(frozen=True)
class ColumnOptions:
    """The options that say which columns of a table are used, and how."""

    target: str
    weights: str | None
    drop: list[str] | None
    only: list[str] | None
    categorical: list[str] | None
    impute: bool


@dataclass(frozen=True)
class TrainingData:
    """A table to learn from: its schema, its rows (X, y, weights), and those held out."""

    schema: Any
    table: Any
    rows: Any
    held_out: Any = None

    @classmethod
    def read(
        cls, data: Path, columns: ColumnOptions, out: Session, holdout: float = 0.0, seed: int = 0
    ) -> TrainingData:
        """Read a table, hold rows out, and learn the encoding from the others."""
        from eigengp.cli.tables import TableSchema, drop_unlabelled, read_table

        table, held = read_table(data, text=columns.categorical or ()), None
        if columns.impute:
            table = drop_unlabelled(table, columns.target)
        if holdout:
            table, held = _split(table, holdout, seed)
        given = {name: value for name, value in vars(columns).items() if value is not None}
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
        X, y, weights = self.rows
        model.fit(X, y, sample_weight=weights).set_params(verbose=False)
        return round(time.perf_counter() - began, 3)

    def describe(self, data: Path) -> dict[str, Any]:
        """Return what is stored with the model."""
        from eigengp.cli.tables import summarize_table

        held = 0 if self.held_out is None else len(self.held_out[1])
        summary = summarize_table(self.table, self.schema)
        stored = {"file": data.name, **summary, "held_out": held}
        return {"schema": self.schema.to_dict(), "data": stored}

    def calibrate(self, model: Any, out: Session) -> dict[str, float | None] | None:
        """Score a model on the held-out rows, then calibrate it on them."""
        if self.held_out is None:
            return None
        X, y, _ = self.held_out
        scores = compute_scores(model, self.held_out, _LEVEL)
        if not self.schema.labels:
            model.calibrate(X, y)
        if not out.quiet:
            show_scores(out, scores, _LEVEL, f"On {y.size:,} held-out rows:")
        return scores


def _note_useless(table: Any, schema: Any, out: Session) -> None:
    """Note the columns that are ignored, and those that only number the rows."""
    import numpy as np

    from eigengp.data.encode import to_numbers

    for name, why in schema.encoder.ignored_.items():
        out.note(f"Column {quoted(name)} is {why} and is ignored.")
    for column in schema.encoder.columns_:
        numeric = column.kind == "number"
        if numeric and np.all(np.diff(to_numbers(table[column.name])) == 1.0):
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
    else:
        known = f"noise ± {format_number(float(model.noise_variance_) ** 0.5)}"
    return (
        f"Learned {data['target']['name']} from {data['rows']:,} rows and "
        f"{model.n_features_in_} inputs by {learned['method']} in {learned['seconds']:.1f} s; "
        f"{known}, log marginal likelihood {format_number(evidence)}.\n"
        f"Written to {path}; `eigengp inspect {path}` shows what it learned."
    )
