"""`eigengp fit`: what it learns, says and refuses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import eigengp
from command_line import answer, call, houses
from eigengp import io
from eigengp.cli import tables
from eigengp.cli.commands.methods import METHODS, Method
from eigengp.cli.commands.options import KernelName, name_model
from eigengp.cli.commands.training import may_identify
from eigengp.cli.tables import read_table
from eigengp.kernels import KERNELS


def test_fit_says_what_it_learned_and_how_good_it_is(folder: Path) -> None:
    said = (folder / "said").read_text()
    assert "On 15 held-out rows:" in said
    assert "Learned price from 45 rows and 3 inputs by exact" in said
    assert "NMSE" in said


def test_a_model_is_the_one_that_python_would_have_learned(folder: Path) -> None:
    saved = io.read(folder / "m.eigengp")
    table, test = read_table(folder / "houses.csv"), read_table(folder / "test.csv")
    held = saved.model.conformity_.size
    assert held == saved.about["data"]["held_out"] == 15
    assert saved.about["data"]["rows"] == 45
    assert saved.about["data"]["file"] == "houses.csv"
    assert saved.about["fit"]["method"] == "exact"
    assert saved.model.verbose is None
    whole = call("fit", folder / "houses.csv", "-t", "price", "-o", folder / "w.eigengp",
                 "--method", "exact", "--quiet")  # fmt: skip
    assert (whole.stdout, whole.stderr) == ("", "")
    ours = eigengp.ExactGPRegressor(random_state=0).fit(table, "price")
    theirs = eigengp.load(folder / "w.eigengp")
    X = test.select(list(ours.feature_names_in_))
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
    assert np.allclose(
        model.predict(pa.table({"area": area[:, 0]})), alone.predict(area), rtol=1e-6
    )


def test_what_fit_leaves_out_and_fills_in_is_said(tmp_path: Path) -> None:
    frame = {name: list(values) for name, values in houses(40, 2).items()}
    frame["area"][3], frame["town"][4], frame["price"][5] = None, None, None
    frame |= {"country": ["UK"] * 40, "row": list(range(40))}
    pacsv.write_csv(pa.table(frame), tmp_path / "d.csv")
    asked = ("fit", tmp_path / "d.csv", "-t", "price", "-o", tmp_path / "m.eigengp")
    result = call(*asked, "--method", "exact")
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        "note: 1 of 40 rows have no target and are dropped.",
        "note: Column 'country' is constant and is ignored.",
    ]
    assert io.read(tmp_path / "m.eigengp").about["data"]["rows"] == 39
    numbered = call(*asked, "--drop", "area", "--drop", "town", "--method", "exact")
    assert f"note: {tmp_path / 'm.eigengp'} exists and will be replaced." in numbered.stderr


def test_the_model_file_has_the_name_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    rows = "".join(f"{np.sin(i):.3f},7\n" for i in range(12))
    (tmp_path / "data" / "my houses.csv").write_text(f"x,price\n{rows}")
    monkeypatch.chdir(tmp_path)
    result = call("fit", "data/my houses.csv", "-t", "price", "--method", "exact")
    assert "from 12 rows and 1 input by exact" in result.stdout
    assert "note: 'price' has the same value in all rows." in result.stderr
    assert (tmp_path / "my houses.eigengp").exists()
    assert name_model(Path("data/*.csv")) == Path("model.eigengp")


def test_the_command_line_knows_all_kernels() -> None:
    assert set(get_args(get_args(get_args(KernelName)[0])[0])) == {"auto", *KERNELS}


def test_a_column_that_numbers_the_rows_is_pointed_out(tmp_path: Path) -> None:
    table = pa.table({"row": range(30), "x": np.sin(np.arange(30.0)), "y": np.cos(np.arange(30.0))})
    pacsv.write_csv(table, tmp_path / "d.csv")
    result = call(
        *("fit", tmp_path / "d.csv", "-t", "y", "-o", tmp_path / "m.eigengp", "--method", "exact")
    )
    assert "note: Column 'row' has a different whole number in each row" in result.stderr


def test_many_whole_numbers_without_repetition_may_be_identifiers() -> None:
    numbers = 7.0 * np.random.default_rng(0).permutation(150)
    assert may_identify(numbers)
    assert not may_identify(numbers[:50])  # Few, and they do not count the rows.
    assert not may_identify(np.append(numbers, numbers[0]))
    assert not may_identify(numbers + 0.5)
    assert not may_identify(np.append(numbers, np.nan))


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
    monkeypatch.setitem(METHODS, "exact", Method("Never", ""))
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


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("a,y\n1,\n2,\n", (), "Column 'y' has no values in any row."),
        ("a,y\n1,2\n", (), "The table has only one row, so all of its columns are constant."),
        ("a,y\n1,2\n3,4\n", ("--holdout", "1"), "--holdout must be less than 1"),
        (
            "a,y\n" + "".join(f"{i % 7},H-{i}\n" for i in range(40)),
            (),
            "Column 'y' has other text in nearly every row",
        ),
        (
            "a,y\n" + "".join(f"{i % 7},2024-01-{1 + i:02d}\n" for i in range(28)),
            (),
            "Column 'y' must be numeric: it holds dates",
        ),
    ],
)
def test_a_table_without_rows_to_learn_from_is_refused(
    content: str, options: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    (tmp_path / "d.csv").write_text(content)
    result = call("fit", tmp_path / "d.csv", "-t", "y", "-o", tmp_path / "m.eigengp", *options)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"eigengp: {said}")
    assert not (tmp_path / "m.eigengp").exists()


def test_an_american_table_needs_no_option(tmp_path: Path) -> None:
    rows = "".join(f'{i},"{1000 + 37 * i:,}","${(1000 + 37 * i) * 5:,}"\n' for i in range(1, 40, 3))
    (tmp_path / "d.csv").write_text(f",Square Feet,Price\n{rows}")
    model = tmp_path / "m.eigengp"
    result = call("fit", tmp_path / "d.csv", "-t", "Price", "-o", model, "--method", "exact")
    assert result.exit_code == 0, result.stderr
    assert result.stderr.splitlines()[:2] == [
        "note: Column 1 has no name, as the index of a pandas frame, and is ignored.",
        "note: Numbers such as 1,234 are read as thousands, since commas separate the columns; "
        "pass --decimal , if they have decimals.",
    ]
    assert io.read(model).about["data"]["target"]["max"] == (1000 + 37 * 37) * 5
    found = answer("predict", model, tmp_path / "d.csv")["predictions"]["mean"]
    assert found[0] == pytest.approx(1037 * 5, rel=1e-2)


def test_the_report_says_that_its_rows_were_held_out(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    asked = ("fit", folder / "houses.csv", "-t", "price", "-o", tmp_path / "m.eigengp")
    assert call(*asked, "--method", "exact", "--holdout", "0.25", "--report", page).exit_code == 0
    assert page.read_text().count("These rows were held out.") == 2
    assert "right by construction, because these are the same rows" in page.read_text()
    assert call(*asked, "--method", "exact", "--report", page).exit_code == 0
    assert "These are training rows." in page.read_text()


def test_a_model_of_few_held_out_rows_can_be_used(folder: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.eigengp"
    asked = ("-t", "price", "-o", model, "--method", "exact", "--holdout", "0.08")
    result = call("fit", folder / "houses.csv", *asked)
    assert "note: Intervals are calibrated on at least 9 rows, not 5." in result.stderr
    assert not hasattr(io.read(model).model, "conformity_")
    assert call("predict", model, folder / "test.csv").exit_code == 0


def write_messy(path: Path, n: int = 120, encoding: str = "utf-8") -> pd.DataFrame:
    """Write a table with odd names, identifiers, dates, gaps and decimal commas."""
    rng = np.random.default_rng(5)
    area, town = rng.uniform(30, 200, n), rng.integers(0, 12, n)
    day = np.datetime64("2021-01-01") + rng.integers(0, 1000, n)
    season = np.sin(2 * np.pi * day.astype(int) / 365.2425)
    price = 3000.0 * area + 20_000.0 * town + 30_000.0 * season + 5_000.0 * rng.normal(size=n)
    frame = pd.DataFrame(
        {
            "Kunden-Nr.": [f"K-{i:04d}" for i in range(n)],
            "Größe (m²)": [f"{each:.1f}".replace(".", ",") for each in area],
            "Ort / Stadt": [f"Ört {each}" for each in town],
            "verkauft am": pd.to_datetime(day).strftime("%d.%m.%Y"),
            "Baujahr": [None if i % 9 == 0 else 1950 + i % 70 for i in range(n)],
            "Preis €": [
                f"{each:,.2f}".replace(",", " ").replace(".", ",").replace(" ", ".")
                for each in price
            ],
        }
    )
    frame.to_csv(path, index=False, sep=";", encoding=encoding)
    return frame


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_messy_file_becomes_a_model_and_a_page_in_one_command(
    tmp_path: Path, encoding: str
) -> None:
    path, page = tmp_path / "häuser 1.csv", tmp_path / "page.html"
    write_messy(path, encoding=encoding)
    model = tmp_path / "m.eigengp"
    result = call(
        *("fit", path, "-t", "Preis €", "-o", model, "--report", page, "--method", "exact")
    )
    assert result.exit_code == 0, result.stderr
    assert "note: Column 'Kunden-Nr.' is an identifier and is ignored." in result.stderr
    assert "Größe (m²)" in page.read_text()
    found = answer("evaluate", model, path)
    assert found["nmse"] < 0.05
    assert len(answer("predict", model, path)["predictions"]["mean"]) == 120
    assert {each["name"] for each in answer("inspect", model)["inputs"]} == {
        *("Größe (m²)", "Ort / Stadt", "verkauft am", "Baujahr")
    }


def test_the_same_frame_is_fitted_in_python(tmp_path: Path) -> None:
    frame = write_messy(tmp_path / "d.csv")
    model = eigengp.ExactGPRegressor(random_state=0).fit(frame, "Preis €")
    answer("fit", tmp_path / "d.csv", "-t", "Preis €", "-o", tmp_path / "m.eigengp",
           "--method", "exact")  # fmt: skip
    inputs = frame.drop(columns="Preis €")
    theirs = eigengp.load(tmp_path / "m.eigengp").predict(inputs)
    np.testing.assert_allclose(model.predict(inputs), theirs, rtol=1e-6)


def test_fit_takes_the_settings_of_the_model(tmp_path: Path) -> None:
    pacsv.write_csv(pa.table(houses(40, 2)), tmp_path / "d.csv")
    asked = ("fit", tmp_path / "d.csv", "-t", "price", "-o", tmp_path / "m.eigengp")
    options = ("--kernel", "matern32", "--likelihood", "gaussian", "--max-time", "30")
    assert call(*asked, *options, "--device", "cpu").exit_code == 0
    model = eigengp.load(tmp_path / "m.eigengp")
    assert (model.kernel, model.likelihood, model.max_time) == ("matern32", "gaussian", 30.0)
    assert model.device == "cpu"
    wrong = call(*asked, "--kernel", "magic")
    assert wrong.exit_code == 2
    assert "Invalid value for '--kernel'" in wrong.stderr
    assert "Invalid parameter 'max_time'" in call(*asked, *options[-2:], "--method", "fitc").stderr
    assert call(*asked, "--likelihood", "magic").exit_code == 2
    assert call(*asked, "--max-time", "-1").exit_code == 2


def test_fit_takes_a_likelihood_of_counts(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 3.0, 60)
    pacsv.write_csv(pa.table({"x": x, "n": rng.poisson(np.exp(x))}), tmp_path / "d.csv")
    model, page = tmp_path / "m.eigengp", tmp_path / "page.html"
    asked = ("fit", tmp_path / "d.csv", "-t", "n", "-o", model, "--likelihood", "poisson")
    refused = call(*asked, "--report", page)
    assert "Gaussian noise" in refused.stderr
    assert not model.exists()
    assert call(*asked, "-m", "8").exit_code == 0
    assert min(answer("predict", model, tmp_path / "d.csv")["predictions"]["lower"]) >= 0.0
    assert answer("evaluate", model, tmp_path / "d.csv")["nmse"] < 0.5
    assert "Poisson" in call("inspect", model).stdout
    assert "Gaussian noise" in call("report", model, tmp_path / "d.csv", "-o", page).stderr


def test_numbers_with_a_comma_need_a_flag(tmp_path: Path) -> None:
    x = np.arange(1_100, 9_000, 200)
    lines = [f'"{each // 1000},{each % 1000:03d}";{each % 7}' for each in x]
    (tmp_path / "d.csv").write_text("x;y\n" + "\n".join(lines))
    asked = (
        "fit",
        tmp_path / "d.csv",
        "-t",
        "y",
        "-o",
        tmp_path / "m.eigengp",
        "--method",
        "exact",
    )
    refused = call(*asked)
    assert refused.exit_code == 1
    assert "such as '1,100'" in refused.stderr
    assert "--decimal" in refused.stderr
    for option, sign, largest in (("--decimal", ",", 8.9), ("--thousands", ",", 8_900.0)):
        assert answer(*asked, option, sign)["data"]["inputs"]["x"]["max"] == largest
    assert call(*asked, "--decimal", ";").exit_code == 2
    assert call(*asked, "--decimal", ",", "--thousands", ",").exit_code == 2


def test_an_encoding_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    write_messy(path, encoding="cp1252")
    asked = ("fit", path, "-t", "Preis €", "-o", tmp_path / "m.eigengp", "--method", "exact")
    refused = call(*asked)
    assert refused.exit_code == 1
    assert "--encoding" in refused.stderr
    assert call(*asked, "--encoding", "cp1252").exit_code == 0
    assert "There is no encoding 'magic'" in call(*asked, "--encoding", "magic").stderr


def test_dates_have_no_seasons_if_asked(tmp_path: Path) -> None:
    path, model = tmp_path / "d.csv", tmp_path / "m.eigengp"
    write_messy(path)
    asked = ("fit", path, "-t", "Preis €", "-o", model, "--method", "exact", "--no-expand-dates")
    assert call(*asked).exit_code == 0
    (date,) = [c for c in eigengp.load(model).encoder_.columns_ if c.kind == "date"]
    assert date.periods == ()


def test_tables_larger_than_memory_are_read_in_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = houses(40, 2)
    frame["price"] = [None, *frame["price"][1:]]
    pacsv.write_csv(pa.table(frame), tmp_path / "d.csv")
    asked = ("fit", tmp_path / "d.csv", "-t", "price", "--method", "exact", "--drop", "garden")
    assert call(*asked, "-o", tmp_path / "whole.eigengp").exit_code == 0
    monkeypatch.setattr(tables, "MEMORY_SHARE", 0.0)
    chunks = answer(*asked, "-o", tmp_path / "m.eigengp")
    assert chunks["notes"] == ["The table is too large for the memory: it is read in chunks."]
    assert chunks["data"]["rows"] == 39
    predicted = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for name, out in zip(("whole", "m"), predicted, strict=True):
        model = tmp_path / f"{name}.eigengp"
        assert call("predict", model, tmp_path / "d.csv", "-o", out).exit_code == 0
    first, second = (pacsv.read_csv(each)["mean"].to_numpy() for each in predicted)
    np.testing.assert_allclose(first, second, rtol=1e-6)
    assert "--holdout needs" in call(*asked, "-o", model, "--holdout", "0.2").stderr


@pytest.mark.parametrize("labels", [("no", "yes"), ("false", "true")])
def test_a_target_of_text_or_flags_is_classified(tmp_path: Path, labels: tuple[str, str]) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=80)
    names = np.array(labels)[(x > 0.2).astype(int)]
    data, model = tmp_path / "rows.csv", tmp_path / "model.eigengp"
    lines = [f"{a},{b},{name}" for a, b, name in zip(x, rng.normal(size=80), names, strict=True)]
    data.write_text("a,b,kind\n" + "\n".join(lines))
    command = ("fit", data, "--target", "kind", "-o", model, "--components", "10")
    page = tmp_path / "page.html"
    said = call(*command, "--holdout", "0.25", "--report", page).stdout
    assert page.read_text().count("These rows were held out.") == 2
    assert "by classification" in said
    assert "accuracy" in said
    columns = answer("predict", model, data)["predictions"]
    assert list(columns) == ["class", f"probability_{labels[0]}", f"probability_{labels[1]}"]
    assert set(columns["class"]) == set(labels)
    scores = answer("evaluate", model, data)
    assert scores["accuracy"] > 0.9
    assert 0.0 < scores["log_loss"] < 0.3
    assert "Classes" in call("inspect", model).stdout
    assert call("report", model, data, "-o", page).exit_code == 0
    assert "These rows were held out." not in page.read_text()
    assert "Confusion matrix" in page.read_text()
    assert "is for numbers" in call(*command, "--method", "fitc").stderr
    assert "is for numbers" in call("compare", data, "--target", "kind").stderr


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_labels_beside_text_dates_and_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    rng = np.random.default_rng(1)
    size = rng.normal(size=90)
    town = np.array(["Hull", "Leeds", "York"])[rng.integers(0, 3, 90)]
    sold = [(size[i] + (town[i] == "Hull") > 0.3) if i else None for i in range(90)]
    columns = {
        "size": [None if i % 10 == 3 else v for i, v in enumerate(size)],
        "town": town,
        "day": np.datetime64("2024-01-01") + rng.integers(0, 300, 90),
        "sold": sold,
    }
    data = tmp_path / f"rows.{ending}"
    write = pacsv.write_csv if ending == "csv" else pq.write_table
    write(pa.table(columns), data)
    found = []
    for share in (0.25, 0.0):
        monkeypatch.setattr(tables, "MEMORY_SHARE", share)
        model, out = tmp_path / f"{share}.eigengp", tmp_path / f"{share}.csv"
        command = ("fit", data, "-t", "sold", "-o", model, "-m", "10", "--max-time", "30")
        assert answer(*command, "--kernel", "matern52")["fit"]["method"] == "classification"
        assert call("predict", model, data, "-o", out).exit_code == 0
        found.append(pacsv.read_csv(out))
        assert answer("evaluate", model, data)["accuracy"] > 0.8
    assert found[0].column_names == ["class", "probability_false", "probability_true"]
    assert eigengp.load(model).kernel == "matern52"
    for name in found[0].column_names[1:]:
        np.testing.assert_allclose(found[0][name].to_numpy(), found[1][name].to_numpy(), atol=1e-5)


def test_a_target_of_numbers_can_be_made_classes(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=60)
    pacsv.write_csv(pa.table({"x": x, "sick leave": (x > 0.2).astype(int)}), tmp_path / "d.csv")
    asked = ("fit", tmp_path / "d.csv", "-t", "sick leave", "-o", tmp_path / "m.eigengp")
    assert "--categorical 'sick leave' makes them classes" in call(*asked).stderr
    found = answer(*asked, "--categorical", "sick leave")
    assert found["fit"]["method"] == "classification"
    assert eigengp.load(tmp_path / "m.eigengp").classes_.tolist() == ["0", "1"]
    scores = answer("evaluate", tmp_path / "m.eigengp", tmp_path / "d.csv")
    assert scores["accuracy"] > 0.9
