"""`eigengp fit`: learn a model from a table and write it to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from eigengp._format import format_count, quoted
from eigengp.cli.commands import options
from eigengp.cli.commands.evaluate import compute_scores, show_scores
from eigengp.cli.commands.methods import CLASSIFIER, METHODS, Name, build_model
from eigengp.cli.commands.session import Session, command

MethodName = Annotated[Name, typer.Option(metavar="NAME", help="The method; see below.")]
# The options that are parameters of a model.
_SETTINGS = {"n_components", "kernel", "likelihood", "max_time", "device"}
# The coverage of intervals, and the fewest rows that can guarantee it.
_LEVEL, _CALIBRATION_ROWS = 0.9, 9


@command
def fit(
    out: Session,
    data: options.Data,
    target: options.Target,
    model: options.ModelFile = None,
    method: MethodName = "auto",
    n_components: options.Components = None,
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
) -> None:
    """Fit a model to a table and write it to a file.

    If the target is text or boolean, the model is a classifier. Inputs may hold numbers, text,
    dates and missing values. Columns that are constant, empty or identifiers are ignored, and
    rows without a target are dropped.
    """
    decimal = options.find_decimal(decimal, thousands)
    given = {name: value for name, value in locals().items() if value is not None}  # Options.
    from eigengp.cli.commands.training import TrainingData

    model = options.name_model(data) if model is None else model
    out.check_output_path(model, [".eigengp"])
    out.check_output_path(page, [".html"])
    roles = {name: given[name] for name in options.ROLES & given.keys()}
    training = TrainingData.read(out, data, roles, encoding, holdout, seed)
    own = _choose_method(method, training.schema)
    settings = {name: given[name] for name in _SETTINGS & given.keys()}
    estimator = build_model(own, seed, out.verbose, **settings)
    _learn(out, training, estimator, str(method), data, model, page)


def _choose_method(name: Name, schema: Any) -> Any:
    """Return the method of a name; labels have a classifier of their own."""
    if not schema.labels:
        return METHODS[name]
    if name != "auto":
        raise ValueError(
            f"--method {name} is for numbers, but {quoted(schema.target)} holds labels; leave "
            "--method out for classification."
        )
    return CLASSIFIER


def _learn(
    out: Session, training: Any, model: Any, method: str, data: Path, path: Path, page: Path | None
) -> None:
    """Fit, score and save a model, say what it is, and write its page."""
    from eigengp import io
    from eigengp.cli.commands.report import check_reportable, write_report
    from eigengp.cli.tables import open_model
    from eigengp.inspection import group_effects

    schema, seed = training.schema, model.random_state
    if page is not None:
        known = getattr(model, "likelihood", None)
        check_reportable(not schema.labels and known in get_args(options.OtherLikelihood))
    name = "classification" if schema.labels else method
    learned: dict[str, Any] = {"method": name, "seed": seed, "seconds": training.fit(model)}
    groups = schema.encoder.feature_groups_
    learned["effects"] = group_effects(model, training.rows[0], groups, random_state=seed)
    learned["holdout"] = _calibrate(out, training, model) if training.held_out else None
    about = {**training.describe(data), "fit": learned}
    io.save(model, path, about=about)
    rows, inputs = about["data"]["rows"], len(schema.encoder.columns_)
    out.say(
        f"Learned {schema.target} from {format_count(rows, 'row')} and "
        f"{format_count(inputs, 'input')}{'' if name == 'auto' else f' by {name}'} in "
        f"{learned['seconds']:.1f} s.\n"
        f"Written to {path}; `eigengp inspect {path}` shows what it learned."
    )
    if page is not None:
        held_out = training.held_out is not None
        write_report(out, *open_model(path), training.shown, page, (path, data), held_out)
    out.write_result({"model": str(path), "data": about["data"], "fit": learned})


def _calibrate(out: Session, training: Any, model: Any) -> dict[str, float | None]:
    """Score a model on the held-out rows, then calibrate it on them."""
    from eigengp.data.frames import encoded_inputs

    scores = compute_scores(model, training.held_out, _LEVEL)
    X, y, _ = training.held_out
    if y.size < _CALIBRATION_ROWS:
        out.note(f"Intervals are calibrated on at least {_CALIBRATION_ROWS} rows, not {y.size}.")
    elif not training.schema.labels:
        with encoded_inputs():
            model.calibrate(X, y)
    if not out.quiet:
        show_scores(out, scores, _LEVEL, f"On {y.size:,} held-out rows:")
    return scores
