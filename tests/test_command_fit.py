"""`eigengp fit`: what it learns, says and refuses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import eigengp
from command_line import answer, call, houses
from eigengp import io
from eigengp.cli.commands.methods import METHODS, Method, Name
from eigengp.cli.tables import TableSchema, read_table


def test_fit_says_what_it_learned_and_how_good_it_is(folder: Path) -> None:
    said = (folder / "said").read_text()
    assert "On 15 held-out rows:" in said
    assert "Learned price from 45 rows and 5 inputs by exact" in said
    assert "NMSE" in said


def test_a_model_is_the_one_that_python_would_have_learned(folder: Path) -> None:
    saved = io.read(folder / "m.eigengp")
    schema = TableSchema.from_dict(saved.about["schema"])
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
    ours = eigengp.ExactGPRegressor(random_state=0).fit(*schema.split(table))
    theirs = eigengp.load(folder / "w.eigengp")
    X = schema.encode(test)
    assert np.array_equal(theirs.predict(X), ours.predict(X))
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
    assert model.inducing_points_.shape == (5, 1)
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
        "note: 1 of 40 rows have no target and are dropped.",
        "note: Column 'country' is constant and is ignored.",
    ]
    assert io.read(tmp_path / "m.eigengp").about["data"]["rows"] == 39
    numbered = call(*asked, "--drop", "area", "--drop", "town", "--impute", "--method", "exact")
    assert f"note: {tmp_path / 'm.eigengp'} exists and is replaced." in numbered.stderr


def test_a_column_that_numbers_the_rows_is_pointed_out(tmp_path: Path) -> None:
    table = pa.table({"row": range(30), "x": np.sin(np.arange(30.0)), "y": np.cos(np.arange(30.0))})
    pacsv.write_csv(table, tmp_path / "d.csv")
    result = call(
        *("fit", tmp_path / "d.csv", "-t", "y", "-o", tmp_path / "m.eigengp", "--method", "exact")
    )
    assert "note: Column 'row' numbers the rows" in result.stderr


class Never(Method):
    """A method that must not be reached."""

    def build(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("The fit was begun.")


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("absent/m.eigengp", "The folder .*absent does not exist"),
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
        monkeypatch.setattr("eigengp.cli.commands.session.TemporaryFile", refuse)
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


@pytest.mark.parametrize("labels", [("no", "yes"), ("false", "true")])
def test_a_target_of_text_or_flags_is_classified(tmp_path: Path, labels: tuple[str, str]) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=80)
    names = np.array(labels)[(x > 0.2).astype(int)]
    data, model = tmp_path / "rows.csv", tmp_path / "model.eigengp"
    lines = [f"{a},{b},{name}" for a, b, name in zip(x, rng.normal(size=80), names, strict=True)]
    data.write_text("a,b,kind\n" + "\n".join(lines))
    command = ("fit", data, "--target", "kind", "-o", model, "--components", "10")
    said = call(*command, "--holdout", "0.25").stdout
    assert "by classification" in said
    assert "accuracy" in said
    columns = answer("predict", model, data)["predictions"]
    assert list(columns) == ["class", f"probability_{labels[0]}", f"probability_{labels[1]}"]
    assert set(columns["class"]) == set(labels)
    scores = answer("evaluate", model, data)
    assert scores["accuracy"] > 0.9
    assert 0.0 < scores["log_loss"] < 0.3
    assert "Classes" in call("inspect", model).stdout
    page = tmp_path / "page.html"
    assert "evaluate" in call("report", model, data, "-o", page).stderr
    assert "is for numbers" in call(*command, "--method", "fitc").stderr
    assert "is for numbers" in call("compare", data, "--target", "kind").stderr
