"""`eigengp compare`: methods side by side, and the effects of inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.model_selection import KFold, cross_val_score

import eigengp
from command_line import answer, call
from eigengp import metrics
from eigengp.cli.tables import TableSchema, read_table
from eigengp.data.frames import encoded_inputs
from eigengp.inspection import group_effects


def test_compare_agrees_with_scikit_learn(folder: Path) -> None:
    found = answer(
        *("compare", folder / "houses.csv", "-t", "price", "--folds", "3", "--components", "4"),
        *("--method", "mean", "--method", "linear", "--method", "exact", "--method", "auto"),
        *("--rows", "50"),
    )
    assert found["rows"] == 50
    assert found["notes"] == ["A sample of 50 of 60 rows is used; --rows changes its size."]
    results = {each["name"]: each for each in found["methods"]}
    assert [each["name"] for each in found["methods"]][-1] == "mean"
    assert set(results) == {"mean", "linear", "exact", "auto"}
    table = read_table(folder / "houses.csv")
    schema = TableSchema.learn(table, "price")
    chosen = np.sort(np.random.RandomState(0).permutation(60)[:50])
    X, y = (values[chosen] for values in schema.split(table)[:2])
    parts = KFold(3, shuffle=True, random_state=0)
    exact = eigengp.ExactGPRegressor(random_state=0)
    with encoded_inputs(schema.encoder):
        wanted = -cross_val_score(exact, X, y, scoring=metrics.mnlp_scorer, cv=parts)
    assert results["exact"]["mnlp"] == pytest.approx(wanted.tolist())
    default = eigengp.EigenGPRegressor(random_state=0)
    with encoded_inputs(schema.encoder):
        wanted = -cross_val_score(default, X, y, scoring=metrics.mnlp_scorer, cv=parts)
    assert results["auto"]["mnlp"] == pytest.approx(wanted.tolist())
    wanted = -cross_val_score(DummyRegressor(), X, y, scoring=metrics.nmse_scorer, cv=parts)
    assert results["mean"]["nmse"] == pytest.approx(wanted.tolist())
    assert np.mean(results["linear"]["nmse"]) < 0.1


def test_a_method_that_fails_does_not_stop_the_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ValueError("too many\nrows")

    monkeypatch.setattr(eigengp.ExactGPRegressor, "fit", fail)
    asked = ("compare", folder / "houses.csv", "-t", "price", "--method", "exact")
    result = call(*asked, "--method", "mean", "--folds", "2")
    assert result.exit_code == 0
    assert "note: exact failed: too many rows" in result.stderr
    assert result.stderr.splitlines()[1:] == ["1 of 2 methods: exact", "2 of 2 methods: mean"]
    assert result.stdout.index("mean") < result.stdout.index("exact")
    assert "failed" in result.stdout


def test_thousands_are_read_where_the_option_says_so(tmp_path: Path) -> None:
    size = np.arange(1_001, 1_041)
    lines = [f'"{each:,}",{each * 5}' for each in size]  # Nothing else shows what 1,001 is.
    (tmp_path / "d.csv").write_text("\n".join(["size,price", *lines]))
    asked = ("compare", tmp_path / "d.csv", "-t", "price", "--method", "linear", "--folds", "2")
    assert "--decimal" in call(*asked).stderr
    (found,) = answer(*asked, "--decimal", ".")["methods"]
    assert max(found["nmse"]) < 0.01


def test_effects_are_the_shares_of_the_variance() -> None:
    class Plane:
        def predict(self, X: Any) -> Any:
            return 2.0 * X[:, 0] + X[:, 1] - X[:, 2]

    X = np.random.default_rng(0).normal(size=(4000, 4))
    found = group_effects(cast(Any, Plane()), X, {"a": [0], "both": [1, 2], "none": [3]})
    assert found["a"] == pytest.approx(4 / 6, abs=0.05)
    assert found["both"] == pytest.approx(2 / 6, abs=0.05)
    assert found["none"] == 0.0
