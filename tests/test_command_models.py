"""`eigengp predict`, `evaluate` and `inspect`: what they make of a stored model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

import eigengp
from command_line import answer, call, houses
from eigengp import io, metrics
from eigengp.cli.tables import read_table


def read_table_of(folder: Path, frame: dict[str, Any], names: list[str]) -> Any:
    table = pa.table({name: frame[name] for name in names})
    pacsv.write_csv(table, folder / "d.csv")
    return read_table(folder / "d.csv").to_pandas()


def expected(folder: Path, coverage: float) -> dict[str, Any]:
    saved, table = io.read(folder / "m.eigengp"), read_table(folder / "test.csv")
    X = table.select(list(saved.model.feature_names_in_))
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


def test_further_columns_are_ignored_or_kept(folder: Path, tmp_path: Path) -> None:
    model, path = folder / "m.eigengp", tmp_path / "new.csv"
    table = read_table(folder / "test.csv").append_column("id", pa.array(range(30)))
    pacsv.write_csv(table, path)
    assert call("predict", model, path, "--keep", "name").exit_code == 1
    kept = answer("predict", model, path, "--keep", "id", "--keep", "town")["predictions"]
    assert list(kept) == ["id", "town", "mean", "std", "lower", "upper"]
    assert kept["id"] == list(range(30))
    assert answer("predict", model, path)["predictions"]["mean"] == kept["mean"]


def test_an_unknown_category_is_a_note(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("area,town,garden\n100,Whitby,true\n")
    result = call("predict", folder / "m.eigengp", path)
    assert result.exit_code == 0
    assert "note: Column 'town' has 1 rows with levels that were not in fit" in result.stderr
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
    assert "90% expected" in shown
    some = pa.table({**frame, "price": [None, *y[1:].tolist()]})
    pacsv.write_csv(some, tmp_path / "some.csv")
    assert found["notes"] == []
    (note,) = answer("evaluate", folder / "m.eigengp", folder / "houses.csv")["notes"]
    assert note.startswith("The model was fitted to a table of this name and size.")
    fewer = answer("evaluate", folder / "m.eigengp", tmp_path / "some.csv")
    assert fewer["rows"] == 29
    assert fewer["notes"] == ["1 of 30 rows have no target and are dropped."]
    nothing = call("predict", folder / "m.eigengp", folder / "test.csv", "--coverage", "0.99")
    assert "15 calibration rows cannot guarantee" in nothing.stderr


def test_inspect_tells_what_was_learned(folder: Path) -> None:
    found, model = answer("inspect", folder / "m.eigengp"), eigengp.load(folder / "m.eigengp")
    assert found["class"] == "ExactGPRegressor"
    assert found["versions"]["eigengp"] == eigengp.__version__
    assert found["noise_std"] == pytest.approx(np.sqrt(model.noise_variance_))
    assert found["log_marginal_likelihood"] == pytest.approx(model.log_marginal_likelihood_)
    assert [each["name"] for each in found["inputs"]] == ["area", "town", "garden"]
    relevance = dict(zip(("area", "town", "garden"), found["inputs"], strict=True))
    assert relevance["area"]["relevance"] == pytest.approx(model.input_relevance()[0])
    assert relevance["town"]["relevance"] == pytest.approx(model.input_relevance()[1])
    assert found["inputs"][0]["effect"] > 0.7
    assert found["eigenfunctions"] == []
    shown = call("inspect", folder / "m.eigengp").stdout
    for word in (
        "45 rows of houses.csv, 15 more held out",
        "SquaredExponential",
        "calibrated",
        "█",
    ):
        assert word in shown


def test_models_from_python_are_understood(tmp_path: Path) -> None:
    frame = read_table_of(tmp_path, houses(40, 2), ["area", "garden", "price"])
    X = frame[["area"]]
    optimizer = eigengp.LBFGS(n_restarts=2, max_iter=5)
    model = eigengp.EigenGPRegressor(4, optimizer=optimizer, random_state=0)
    model.fit(X, frame["price"]).save(tmp_path / "m.eigengp")
    asked = (tmp_path / "m.eigengp", tmp_path / "d.csv")
    found = answer("predict", *asked)["predictions"]
    assert np.array_equal(found["mean"], model.predict(X))
    unknown = call("evaluate", *asked)
    assert "pass --target" in unknown.stderr
    assert answer("evaluate", *asked, "--target", "price")["nmse"] < 1.0
    told = answer("inspect", tmp_path / "m.eigengp")
    assert sum(told["eigenfunctions"]) == pytest.approx(1.0)
    assert told["sizes"] == {"eigenfunctions": 4, "inducing points": len(model.inducing_points_)}
    shown = call("inspect", tmp_path / "m.eigengp").stdout
    assert "eigenfunction" in shown
    assert "relevance" in shown
