"""`eigengp fit`: learn a model from a table and write it to a file."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from eigengp.cli.commands import options
from eigengp.cli.commands.methods import METHODS, Name, check_components
from eigengp.cli.commands.session import Session, number, session

_LEVEL = 0.9


def fit(
    data: options.Data,
    target: options.Target,
    model: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="MODEL", help="The file to write, .eigengp.", show_default=False
        ),
    ],
    method: Annotated[
        Name, typer.Option(metavar="NAME", help="How to learn; see below.")
    ] = Name.AUTO,
    components: options.Components = None,
    holdout: Annotated[
        float,
        typer.Option(
            help="Share of rows, such as 0.2, that is held out: to measure how good the model is, "
            "and to make its intervals hold what they promise."
        ),
    ] = 0.0,
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

    Text becomes one input of ones and zeros for each category; dates, and texts that are all
    different, have to be left out; constant columns are.
    """
    check_components(method, components)
    if not 0.0 <= holdout < 1.0:
        raise typer.BadParameter(f"{holdout} is no share of the rows.", param_hint="'--holdout'")
    with session(as_json, quiet, debug) as out:
        from eigengp import io
        from eigengp.cli.commands.effects import effects
        from eigengp.cli.commands.places import check_place

        check_place(model, [io.SUFFIX], out)
        wanted = Wanted(target, impute, drop or [], only, categorical or [], weights)
        learned = wanted.read(data, holdout, seed, out)
        began = time.perf_counter()
        regressor = METHODS[method].made(components, seed, verbose=out.draws)
        regressor.fit(learned.rows.X, learned.rows.y, sample_weight=learned.rows.weights)
        regressor.set_params(verbose=False)
        seconds = round(time.perf_counter() - began, 3)
        held = learned.calibrated(regressor, out)
        fitted = {
            "method": str(method),
            "seed": seed,
            "seconds": seconds,
            "effects": effects(regressor, learned.rows.X, learned.encoding.groups, seed),
            "holdout": held,
        }
        about = {**learned.about(data), "fit": fitted}
        io.save(regressor, model, about=about)
        out.say(_said(regressor, about, model))
        out.result({"model": str(model), "data": about["data"], "fit": fitted})


@dataclass(frozen=True)
class Wanted:
    """Which columns of a table are to be learned from, and how."""

    target: str
    impute: bool
    drop: list[str]
    only: list[str] | None
    categorical: list[str]
    weights: str | None

    def read(self, data: Path, holdout: float, seed: int, out: Session) -> Learned:
        """Read a table, hold rows out, and learn the encoding from the others."""
        from eigengp.cli.tables import TableEncoding, labelled, read_table

        table = read_table(data, text=self.categorical)
        if self.impute:
            whole, table = table.num_rows, labelled(table, self.target)
            if whole > table.num_rows:
                lost = whole - table.num_rows
                out.note(f"{lost} of {whole} rows have no target and are left out.")
        held = None
        if holdout:
            table, held = _split(table, holdout, seed)
        encoding = TableEncoding.learned(
            table,
            self.target,
            impute=self.impute,
            drop=self.drop,
            only=self.only,
            weights=self.weights,
            categorical=self.categorical,
        )
        _remark(table, encoding, out)
        rows = Rows.of(encoding, table)
        return Learned(encoding, table, rows, None if held is None else Rows.of(encoding, held))


class Rows(NamedTuple):
    """Inputs (n, D), targets (n,), and how often each counts (n,), if not all the same."""

    X: Any
    y: Any
    weights: Any

    @classmethod
    def of(cls, encoding: Any, table: Any) -> Rows:
        """Take them from a table."""
        return cls(encoding.inputs(table), encoding.targets(table), encoding.sample_weight(table))


@dataclass(frozen=True)
class Learned:
    """What was learned of a table, its rows to learn from, and those held out."""

    encoding: Any
    table: Any
    rows: Rows
    held: Rows | None

    def about(self, data: Path) -> dict[str, Any]:
        """Return what is stored with the model."""
        from eigengp.cli.tables import summary

        held = 0 if self.held is None else len(self.held.y)
        found = {"file": data.name, **summary(self.table, self.encoding), "held_out": held}
        return {"encoding": self.encoding.as_dict(), "data": found}

    def calibrated(self, model: Any, out: Session) -> dict[str, Any] | None:
        """Score a model on the rows held out, and calibrate it by them."""
        if self.held is None:
            return None
        from eigengp.cli.commands.scores import scores, show_scores

        X, y, weights = self.held
        found = scores(model, X, y, _LEVEL, weights)
        model.calibrate(X, y)
        if not out.quiet:
            show_scores(out, found, _LEVEL, f"On {y.size:,} rows held out:")
        return found


def _remark(table: Any, encoding: Any, out: Session) -> None:
    """Say which columns are of no use, and which may be of none."""
    for name, why in encoding.ignored.items():
        if why != "left out":
            out.note(f"Column {name!r} is {why} and is not used.")
    for name in _counting_columns(table, encoding):
        out.note(f"Column {name!r} numbers the rows; --drop it if that means nothing.")


def _counting_columns(table: Any, encoding: Any) -> list[str]:
    """Return the inputs that only number the rows of a table, one after the other."""
    import numpy as np

    from eigengp.cli.tables.columns import as_numbers

    numbers = (each.name for each in encoding.columns if each.kind == "number")
    return [name for name in numbers if np.all(np.diff(as_numbers(table[name])) == 1.0)]


def _split(table: Any, holdout: float, seed: int) -> tuple[Any, Any]:
    """Return rows to learn from, and rows to hold out, drawn at random and in their order."""
    import numpy as np
    from sklearn.model_selection import train_test_split

    kept, held = train_test_split(
        np.arange(table.num_rows), test_size=holdout, random_state=seed, shuffle=True
    )
    return table.take(np.sort(kept)), table.take(np.sort(held))


def _said(model: Any, about: dict[str, Any], path: Path) -> str:
    """Return what was learned, in two lines."""
    data, learned = about["data"], about["fit"]
    noise = float(model.noise_variance_) ** 0.5
    return (
        f"Learned {data['target']['name']} from {data['rows']:,} rows and "
        f"{model.n_features_in_} inputs by {learned['method']} in {learned['seconds']:.1f} s; "
        f"noise ± {number(noise)}, log evidence {number(float(model.log_marginal_likelihood_))}.\n"
        f"Written to {path}; `eigengp inspect {path}` shows what it learned."
    )
