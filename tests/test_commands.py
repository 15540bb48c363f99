"""The commands: what they write and say, and how they fail."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.model_selection import KFold, cross_val_score
from typer.testing import CliRunner

import eigengp
from eigengp import metrics, saving
from eigengp.cli import app
from eigengp.commands.effects import effects
from eigengp.commands.methods import METHODS, Method, Name
from eigengp.commands.picture import draw_scores
from eigengp.commands.session import Session
from eigengp.files import in_one_piece
from eigengp.tables import TableEncoding, read_table


def call(*arguments: object) -> Any:
    return CliRunner().invoke(
        app, [str(each) for each in arguments], env={"COLUMNS": "120", "NO_COLOR": "1"}
    )


def answer(*arguments: object) -> dict[str, Any]:
    """Return the JSON object of a command, which must be all that it writes."""
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    values: dict[str, Any] = json.loads(result.stdout)
    return values


def houses(n: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    area, town = rng.uniform(30, 200, n), rng.choice(["Hull", "Leeds", "York"], n)
    garden = rng.random(n) < 0.5
    price = 2.0 * area + 60.0 * (town == "York") + 20.0 * garden + rng.normal(0, 8, n)
    return {"area": area, "town": town, "garden": garden, "price": price}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a table to learn from, one to test on, and a model."""
    path = tmp_path_factory.mktemp("commands")
    for name, n, seed in (("houses", 60, 0), ("test", 30, 1)):
        pacsv.write_csv(pa.table(houses(n, seed)), path / f"{name}.csv")
    result = call(
        *("fit", path / "houses.csv", "--target", "price", "--out", path / "m.eigengp"),
        *("--method", "exact", "--holdout", "0.25", "--seed", "3"),
    )
    assert result.exit_code == 0, result.stderr
    (path / "said").write_text(result.stdout)
    return path


# The command line as a whole


def test_help_imports_nothing_that_computes() -> None:
    code = (
        "import sys, eigengp.cli\n"
        "heavy = {'numpy', 'scipy', 'sklearn', 'pyarrow', 'pandas', 'matplotlib', 'safetensors'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_names_commands_methods_and_exit_codes() -> None:
    shown = call("--help").stdout
    for word in (
        "fit",
        "predict",
        "evaluate",
        "inspect",
        "compare",
        "reproduce",
        "Exit codes: 0 all",
    ):
        assert word in shown
    methods = call("fit", "--help").stdout
    assert all(f"{name}:" in methods for name in Name)


def test_version() -> None:
    result = call("--version")
    assert (result.exit_code, result.stdout) == (0, f"eigengp {eigengp.__version__}\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("eigengp ins", ["inspect"]),
        ("eigengp fit --method eigengp-", ["eigengp-joint", "eigengp-plus"]),
        ("eigengp compare --method li", ["linear"]),
    ],
)
def test_the_shell_completes(words: str, expected: list[str]) -> None:
    environment = {
        **os.environ,
        "_EIGENGP_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    code = (
        "import sys; sys.argv[0] = 'eigengp'; from eigengp.cli import app; app(prog_name='eigengp')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.stdout.split() == expected


def test_every_method_is_there_and_is_what_it_says() -> None:
    assert set(METHODS) == set(Name)
    for method in METHODS.values():
        model = method.made(7, 5, verbose=True)
        assert model.random_state == 5
        assert model.verbose is True
        assert method.sized == hasattr(model, "n_components")
        assert getattr(model, "n_components", 7) == 7
        assert all(getattr(model, name) == value for name, value in method.settings.items())


@pytest.mark.parametrize(
    "arguments",
    [
        ("fit", "d.csv", "--out", "m.eigengp"),
        ("fit", "d.csv", "--target", "y"),
        ("fit", "d.csv", "-t", "y", "-o", "m.eigengp", "--method", "magic"),
        ("fit", "d.csv", "-t", "y", "-o", "m.eigengp", "--method", "rvm", "--components", "3"),
        ("fit", "d.csv", "-t", "y", "-o", "m.eigengp", "--holdout", "1.5"),
        ("predict", "m.eigengp"),
        ("predict", "m.eigengp", "d.csv", "--coverage", "90"),
        ("evaluate", "m.eigengp", "d.csv", "--coverage", "0"),
        ("compare", "d.csv", "-t", "y", "--method", "magic"),
        ("inspect",),
    ],
)
def test_what_is_not_understood_has_exit_code_2(arguments: tuple[str, ...]) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""


# fit


def test_fit_says_what_it_learned_and_how_good_it_is(folder: Path) -> None:
    said = (folder / "said").read_text()
    assert "On 15 rows held out:" in said
    assert "Learned price from 45 rows and 5 inputs by exact" in said
    assert "NMSE" in said


def test_a_model_is_the_one_that_python_would_have_learned(folder: Path) -> None:
    saved = saving.read(folder / "m.eigengp")
    encoding = TableEncoding.from_dict(saved.about["encoding"])
    table, test = read_table(folder / "houses.csv"), read_table(folder / "test.csv")
    held = saved.model.conformity_.size
    assert held == saved.about["data"]["held_out"] == 15
    assert saved.about["data"]["rows"] == 45
    assert saved.about["data"]["file"] == "houses.csv"
    assert saved.about["fit"]["method"] == "exact"
    assert saved.model.verbose is False
    whole = call("fit", folder / "houses.csv", "-t", "price", "-o", folder / "w.eigengp",
                 "--method", "exact", "--quiet")  # fmt: skip
    assert (whole.stdout, whole.stderr) == ("", "")
    ours = eigengp.ExactGPRegressor(random_state=0).fit(
        encoding.inputs(table), encoding.targets(table)
    )
    theirs = eigengp.load(folder / "w.eigengp")
    assert np.array_equal(
        theirs.predict(encoding.inputs(test)), ours.predict(encoding.inputs(test))
    )
    assert not hasattr(theirs, "conformity_")


def test_fit_takes_weights_components_and_columns(tmp_path: Path) -> None:
    frame = houses(40, 2)
    weight = np.where(np.arange(40) < 30, 1.0, 0.0)
    pq.write_table(pa.table({**frame, "w": weight}), tmp_path / "d.parquet")
    found = answer(
        *("fit", tmp_path / "d.parquet", "-t", "price", "-o", tmp_path / "m.eigengp"),
        *("--method", "nystrom", "--components", "5", "--weights", "w", "--only", "area"),
    )
    assert found["fit"]["method"] == "nystrom"
    assert list(found["data"]["inputs"]) == ["area"]
    model = eigengp.load(tmp_path / "m.eigengp")
    assert model.inducing_inputs_.shape == (5, 1)
    area = frame["area"][:, None]
    alone = eigengp.NystromRegressor(5, random_state=0).fit(area[:30], frame["price"][:30])
    assert np.allclose(model.predict(area), alone.predict(area), rtol=1e-6)


def test_what_fit_leaves_out_and_fills_in_is_said(tmp_path: Path) -> None:
    frame = {name: list(values) for name, values in houses(40, 2).items()}
    frame["area"][3], frame["town"][4], frame["price"][5] = None, None, None
    frame |= {"country": ["UK"] * 40, "row": list(range(40))}
    pacsv.write_csv(pa.table(frame), tmp_path / "d.csv")
    asked = ("fit", tmp_path / "d.csv", "-t", "price", "-o", tmp_path / "m.eigengp")
    refused = call(*asked)
    assert refused.exit_code == 1
    assert "The target 'price' is missing in 1 of 40 rows" in refused.stderr
    assert "Values are missing: area (1), town (1)." in refused.stderr
    result = call(*asked, "--impute", "--method", "exact")
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        "note: 1 of 40 rows have no target and are left out.",
        "note: Column 'country' is constant and is not used.",
    ]
    assert saving.read(tmp_path / "m.eigengp").about["data"]["rows"] == 39
    numbered = call(*asked, "--drop", "area", "--drop", "town", "--impute", "--method", "exact")
    assert f"note: {tmp_path / 'm.eigengp'} is there already" in numbered.stderr


def test_a_column_that_numbers_the_rows_is_pointed_out(tmp_path: Path) -> None:
    table = pa.table({"row": range(30), "x": np.sin(np.arange(30.0)), "y": np.cos(np.arange(30.0))})
    pacsv.write_csv(table, tmp_path / "d.csv")
    result = call(
        *("fit", tmp_path / "d.csv", "-t", "y", "-o", tmp_path / "m.eigengp", "--method", "exact")
    )
    assert "note: Column 'row' numbers the rows" in result.stderr


class Never(Method):
    """A method that must not be reached."""

    def made(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("The fit was begun.")


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("absent/m.eigengp", "The folder .*absent is not there"),
        ("m.pickle", "m.pickle must end in .eigengp"),
        ("folder.eigengp", "is a folder"),
        ("locked/m.eigengp", "cannot be written: Permission denied"),
    ],
)
def test_a_place_that_cannot_be_written_is_noticed_before_the_fit(
    out: str, said: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder.eigengp").mkdir()
    (tmp_path / "locked").mkdir()

    def refuse(**_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    if "locked" in out:  # The superuser may write anywhere, so the system has to be stood in for.
        monkeypatch.setattr("eigengp.commands.places.TemporaryFile", refuse)
    monkeypatch.setitem(METHODS, Name.EXACT, Never("", ""))
    asked = ("fit", folder / "houses.csv", "-t", "price", "--method", "exact")
    result = call(*asked, "-o", tmp_path / out)
    assert result.exit_code == 1
    assert re.search(said, result.stderr)
    assert len(result.stderr.splitlines()) == 1


def test_an_interrupted_fit_leaves_the_model_that_was_there(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.eigengp"
    path.write_bytes(b"before")

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(eigengp.ExactGPRegressor, "fit", interrupt)
    asked = ("fit", folder / "houses.csv", "-t", "price", "-o", path, "--method", "exact")
    result = call(*asked)
    assert result.exit_code == 130
    assert result.stderr.endswith("eigengp: Interrupted; nothing was written.\n")
    assert path.read_bytes() == b"before"
    assert [each.name for each in tmp_path.iterdir()] == ["m.eigengp"]


# predict, evaluate, inspect


def expected(folder: Path, coverage: float) -> dict[str, Any]:
    saved, table = saving.read(folder / "m.eigengp"), read_table(folder / "test.csv")
    X = TableEncoding.from_dict(saved.about["encoding"]).inputs(table)
    mean, std = saved.model.predict(X, return_std=True)
    lower, upper = saved.model.predict_interval(X, coverage)
    return {"mean": mean, "std": std, "lower": lower, "upper": upper}


def test_predictions_go_to_standard_output_or_to_a_file(folder: Path, tmp_path: Path) -> None:
    model, data = folder / "m.eigengp", folder / "test.csv"
    wanted = expected(folder, 0.8)
    plain = call("predict", model, data, "--coverage", "0.8")
    assert plain.stderr == ""
    (tmp_path / "stdout.csv").write_text(plain.stdout)
    for name in ("p.parquet", "p.csv", "p.feather"):
        result = call("predict", model, data, "--out", tmp_path / name, "--coverage", "0.8")
        assert result.stdout == f"Predicted 30 rows; written to {tmp_path / name}.\n"
    for name in ("stdout.csv", "p.parquet", "p.csv", "p.feather"):
        table = read_table(tmp_path / name)
        assert table.column_names == ["mean", "std", "lower", "upper"]
        for column in table.column_names:
            assert np.array_equal(table[column].to_numpy(), wanted[column])
    found = answer("predict", model, data, "--coverage", "0.8")
    assert found["predictions"]["upper"] == wanted["upper"].tolist()


def test_columns_can_be_kept_or_left_out(folder: Path, tmp_path: Path) -> None:
    model, path = folder / "m.eigengp", tmp_path / "new.csv"
    table = read_table(folder / "test.csv").append_column("id", pa.array(range(30)))
    pacsv.write_csv(table, path)
    refused = call("predict", model, path)
    assert refused.exit_code == 1
    assert "not fitted with: id. Leave them out: --drop id." in refused.stderr
    assert call("predict", model, path, "--keep", "name").exit_code == 1
    kept = answer("predict", model, path, "--keep", "id", "--keep", "town")["predictions"]
    assert list(kept) == ["id", "town", "mean", "std", "lower", "upper"]
    assert kept["id"] == list(range(30))
    left = answer("predict", model, path, "--drop", "id", "--drop", "nothing")
    assert left["predictions"]["mean"] == kept["mean"]
    assert left["notes"] == [f"There is no column nothing to leave out of {path}."]


def test_an_unknown_category_is_a_note(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("area,town,garden\n100,Whitby,true\n")
    result = call("predict", folder / "m.eigengp", path)
    assert result.exit_code == 0
    assert "note: Column 'town' has 1 rows of categories" in result.stderr
    assert "(Whitby)" in result.stderr
    assert len(result.stdout.splitlines()) == 2
    assert call("predict", folder / "m.eigengp", path, "--quiet").stderr == ""
    path.write_text("area,town,garden\n")
    assert "no rows" in call("predict", folder / "m.eigengp", path).stderr


def test_evaluate_measures_what_metrics_do(folder: Path, tmp_path: Path) -> None:
    frame = {**houses(30, 1)}
    y, wanted = frame["price"], expected(folder, 0.8)
    found = answer("evaluate", folder / "m.eigengp", folder / "test.csv", "--coverage", "0.8")
    mean, std = wanted["mean"], wanted["std"]
    assert found["rows"] == 30
    assert found["calibrated"] is True
    assert found["nmse"] == pytest.approx(metrics.nmse(y, mean))
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)))
    assert found["mnlp"] == pytest.approx(metrics.mnlp(y, mean, std))
    assert found["crps"] == pytest.approx(metrics.crps_gaussian(y, mean, std))
    inside = (wanted["lower"] <= y) & (y <= wanted["upper"])
    assert found["coverage"] == pytest.approx(np.mean(inside))
    assert found["nmse"] < 0.05
    shown = call("evaluate", folder / "m.eigengp", folder / "test.csv").stdout
    assert "should hold 90%" in shown
    some = pa.table({**frame, "price": [None, *y[1:].tolist()]})
    pacsv.write_csv(some, tmp_path / "some.csv")
    fewer = answer("evaluate", folder / "m.eigengp", tmp_path / "some.csv")
    assert fewer["rows"] == 29
    assert fewer["notes"] == ["1 of 30 rows have no target and are left out."]
    nothing = call("predict", folder / "m.eigengp", folder / "test.csv", "--coverage", "0.99")
    assert "15 calibration rows cannot guarantee" in nothing.stderr


def test_inspect_tells_what_was_learned(folder: Path) -> None:
    found, model = answer("inspect", folder / "m.eigengp"), eigengp.load(folder / "m.eigengp")
    assert found["class"] == "ExactGPRegressor"
    assert found["versions"]["eigengp"] == eigengp.__version__
    assert found["noise_std"] == pytest.approx(np.sqrt(model.noise_variance_))
    assert found["log_evidence_per_row"] == pytest.approx(model.log_marginal_likelihood_ / 45)
    assert [each["name"] for each in found["inputs"]] == ["area", "town", "garden"]
    relevance = dict(zip(("area", "town", "garden"), found["inputs"], strict=True))
    assert relevance["area"]["features"]["area"] == pytest.approx(model.input_relevance()[0])
    assert relevance["town"]["relevance"] == pytest.approx(model.input_relevance()[1:4].max())
    assert found["inputs"][0]["effect"] > 0.7
    assert found["eigenfunctions"] == []
    shown = call("inspect", folder / "m.eigengp").stdout
    for word in ("45 rows of houses.csv, and 15 held out", "SquaredExponential", "calibrated", "█"):
        assert word in shown


def test_models_from_python_are_understood(tmp_path: Path) -> None:
    frame = read_table_of(tmp_path, houses(40, 2), ["area", "garden", "price"])
    X = frame[["area"]]
    model = eigengp.EigenGPRegressor(4, n_restarts=2, max_iter=5, random_state=0)
    model.fit(X, frame["price"]).save(tmp_path / "m.eigengp")
    asked = (tmp_path / "m.eigengp", tmp_path / "d.csv", "--drop", "garden")
    found = answer("predict", *asked, "--drop", "price")["predictions"]
    assert np.array_equal(found["mean"], model.predict(X))
    unknown = call("evaluate", *asked)
    assert "name the column with --target" in unknown.stderr
    assert answer("evaluate", *asked, "--target", "price")["nmse"] < 1.0
    told = answer("inspect", tmp_path / "m.eigengp")
    assert sum(told["eigenfunctions"]) == pytest.approx(1.0)
    assert told["basis"] == {"basis points": len(model.inducing_inputs_)}
    shown = call("inspect", tmp_path / "m.eigengp").stdout
    assert "eigenfunction" in shown
    assert "relevance" in shown


def read_table_of(folder: Path, frame: dict[str, Any], names: list[str]) -> Any:
    table = pa.table({name: frame[name] for name in names})
    pacsv.write_csv(table, folder / "d.csv")
    return read_table(folder / "d.csv").to_pandas()


# compare


def test_compare_agrees_with_scikit_learn(folder: Path, tmp_path: Path) -> None:
    found = answer(
        *("compare", folder / "houses.csv", "-t", "price", "--folds", "3", "--components", "4"),
        *("--method", "mean", "--method", "linear", "--method", "exact", "--rows", "50"),
        *("--out", tmp_path / "picture.png"),
    )
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert found["rows"] == 50
    assert found["notes"] == ["50 of 60 rows are compared on; --rows takes more."]
    results = {each["name"]: each for each in found["methods"]}
    assert [each["name"] for each in found["methods"]][-1] == "mean"
    assert set(results) == {"mean", "linear", "exact"}
    table = read_table(folder / "houses.csv")
    encoding = TableEncoding.learned(table, "price")
    chosen = np.sort(np.random.RandomState(0).permutation(60)[:50])
    X, y = encoding.inputs(table)[chosen], encoding.targets(table)[chosen]
    parts = KFold(3, shuffle=True, random_state=0)
    exact = eigengp.ExactGPRegressor(random_state=0)
    wanted = -cross_val_score(exact, X, y, scoring=metrics.mnlp_scorer, cv=parts)
    assert results["exact"]["mnlp"] == pytest.approx(wanted.tolist())
    wanted = -cross_val_score(DummyRegressor(), X, y, scoring=metrics.nmse_scorer, cv=parts)
    assert results["mean"]["nmse"] == pytest.approx(wanted.tolist())
    assert np.mean(results["linear"]["nmse"]) < 0.1


def test_a_method_that_fails_does_not_stop_the_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Method):
        def made(self, *_: Any, **__: Any) -> Any:
            raise ValueError("too many\nrows")

    monkeypatch.setitem(METHODS, Name.EXACT, Failing("", ""))
    asked = ("compare", folder / "houses.csv", "-t", "price", "--method", "exact")
    result = call(*asked, "--method", "mean", "--folds", "2")
    assert result.exit_code == 0
    assert "note: exact failed: too many rows" in result.stderr
    assert result.stdout.index("mean") < result.stdout.index("exact")
    assert "failed" in result.stdout


def test_a_picture_without_matplotlib_is_refused_first(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = call("compare", folder / "houses.csv", "-t", "price", "-o", tmp_path / "a.png")
    assert result.exit_code == 1
    assert 'pip install "eigengp[plot]"' in result.stderr


def test_a_picture_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        draw_scores([{"name": "exact", "error": "odd"}], tmp_path / "a.png")

    def half(path: Path) -> None:
        with in_one_piece(path) as scratch:
            assert scratch.suffix == path.suffix
            scratch.write_text("half")
            raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"):
        half(tmp_path / "b.svg")
    assert list(tmp_path.iterdir()) == []


def test_effects_are_the_shares_of_the_variance() -> None:
    class Plane:
        def predict(self, X: Any) -> Any:
            return 2.0 * X[:, 0] + X[:, 1] - X[:, 2]

    X = np.random.default_rng(0).normal(size=(4000, 4))
    found = effects(Plane(), X, {"a": [0], "both": [1, 2], "none": [3]}, seed=0)
    assert found["a"] == pytest.approx(4 / 6, abs=0.05)
    assert found["both"] == pytest.approx(2 / 6, abs=0.05)
    assert found["none"] == 0.0


# How commands fail


@pytest.mark.parametrize("command", ["predict", "evaluate", "inspect"])
def test_what_is_no_model_is_said_in_one_line(command: str, folder: Path, tmp_path: Path) -> None:
    data = () if command == "inspect" else (folder / "test.csv",)
    for path, said in ((folder / "said", "is not a saved model"), (tmp_path / "no", "No such")):
        result = call(command, path, *data)
        assert result.exit_code == 1
        assert result.stdout == ""
        assert result.stderr.startswith("eigengp: ")
        assert said in result.stderr
        assert len(result.stderr.splitlines()) == 1
        machine = call(command, path, *data, "--json")
        assert said in json.loads(machine.stdout)["error"]
        assert machine.exit_code == 1


def test_debug_shows_where_an_error_came_from(folder: Path) -> None:
    result = call("inspect", folder / "said", "--debug")
    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("eigengp: ")


def test_a_fault_of_the_program_is_told_from_one_of_the_data(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*_: Any) -> None:
        raise KeyError("inside")

    monkeypatch.setattr("eigengp.commands.facts.facts_of", fault)
    result = call("inspect", folder / "m.eigengp")
    assert result.exit_code == 1
    assert result.stderr == "eigengp: Unexpected KeyError: 'inside' (--debug shows where)\n"


def test_progress_is_drawn_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Session().draws
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert Session().draws
    assert not Session(quiet=True).draws
    assert not Session(json=True).draws


def test_every_name_of_the_package_can_be_imported() -> None:
    assert set(eigengp._HOMES) <= set(eigengp.__all__)
    for name in eigengp.__all__:
        assert getattr(eigengp, name) is not None
    assert set(eigengp.__all__) <= set(dir(eigengp))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        eigengp.nothing  # noqa: B018
