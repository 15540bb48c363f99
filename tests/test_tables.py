"""Tables of the command line: files, and the roles of their columns."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from eigengp import TableError, TableWarning
from eigengp.cli.tables import (
    TableSchema,
    drop_unlabelled,
    find_point,
    read_table,
    summarize_table,
)
from eigengp.data.formats import open_dataset

HOUSES = {
    "area": [50.0, 80.0, 65.0, 120.0],
    "town": ["Hull", "Leeds", "Hull", "York"],
    "garden": [True, False, False, True],
    "price": [1, 3, 2, 6],
}


@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz", "parquet", "feather", "arrow"])
def test_every_format_gives_the_same_table(ending: str, tmp_path: Path) -> None:
    table, path = pa.table(HOUSES), tmp_path / f"houses.{ending}"
    if ending == "parquet":
        pq.write_table(table, path)
    elif ending in ("feather", "arrow"):
        feather.write_feather(table, path, compression="uncompressed")
    else:
        text = table.to_pandas().to_csv(index=False, sep="\t" if ending == "tsv" else ",")
        path.write_bytes(gzip.compress(text.encode()) if ending.endswith("gz") else text.encode())
    read = read_table(path)
    assert read.to_pydict() == HOUSES
    expected = TableSchema.learn(HOUSES, "price").split(HOUSES)[0]
    assert np.array_equal(TableSchema.learn(read, "price").split(read)[0], expected)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_is_that_of_the_first_line(separator: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"a{separator}b\n1{separator}x\n2{separator}\n")
    assert read_table(path).to_pydict() == {"a": [1, 2], "b": ["x", None]}


def test_the_type_of_a_csv_column_follows_from_all_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n" + "1\n" * 600_000 + "2.5\n")
    assert read_table(path)["a"].type == pa.float64()


def test_several_files_are_one_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "b.csv").write_text("x\n2.5\n")
    assert read_table(str(tmp_path / "*.csv"))["x"].to_pylist() == [1.0, 2.5]


def test_columns_of_text_stay_text(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("shop,x\n01,1\n2,2\n")
    assert read_table(path, text=["shop", "absent"])["shop"].to_pylist() == ["01", "2"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a,a\n1,2\n", "Several columns have the same name: a"),
        (b"a,,c\n0,1,2\n", "Column 2 of the table has no name"),
        (b"a,b\n1,2\n1,2,3\n", "cannot be read.*The first line must name the columns"),
        (b"", "cannot be read"),
        (b"a,b\n\xff\xfe\xfd,1\n" * 3, "cannot be read|not supported"),
        ("größe,b\n1,2\n".encode("cp1252"), "a.csv cannot be read: .*--encoding cp1252"),
        ("a,b\nKöln,2\n".encode("cp1252"), "a.csv cannot be read: .*--encoding cp1252"),
        (b"a,b\n1,2\n", "has only one row"),
    ],
)
def test_files_that_are_no_tables_are_refused(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(TableError, match=said):
        TableSchema.learn(read_table(path), "b")


def test_large_files_in_another_encoding_are_refused_too(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("größe,b\n1,2\n".encode("cp1252"))
    with pytest.raises(ValueError, match=r"a.csv cannot be read: .*--encoding cp1252"):
        open_dataset(path)
    assert open_dataset(path, "cp1252").schema.names == ["größe", "b"]


def test_numbers_with_a_point_are_thousands_where_others_have_decimal_commas(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a;p;price\n5,12;2.547;1.000\n9,5;950;4.301\n1,25;13.803;999\n")
    schema = TableSchema.learn(read_table(path), "price")
    X, y, _ = schema.split(read_table(path))
    assert X.tolist() == [[5.12, 2547.0], [9.5, 950.0], [1.25, 13803.0]]
    assert y.tolist() == [1000.0, 4301.0, 999.0]
    assert schema.text_columns == ("a", "p")
    path.write_text("p;price\n2.547;1.000\n950;4.301\n13.803;999\n")
    _, y, _ = TableSchema.learn(read_table(path, decimal=","), "price", decimal=",").split(
        read_table(path, decimal=",")
    )
    assert y.tolist() == [1000.0, 4301.0, 999.0]


def test_the_index_of_a_pandas_frame_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    frame = pd.DataFrame({"x": np.sin(np.arange(20.0)), "y": np.cos(np.arange(20.0))})
    frame.to_csv(path)
    with pytest.warns(TableWarning, match="Column 1 has no name.*ignored"):
        table = read_table(path)
    assert table.column_names == ["x", "y"]
    assert open_dataset(path).schema.names == ["x", "y"]
    assert open_dataset(path).head(2).to_pydict() == frame[:2].to_dict("list")


def test_a_table_of_a_spreadsheet_loses_its_empty_columns_and_its_total(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = "1;20,5;1,5;;\n2;21,5;2,5;;\n3;25,0;4,0;;\n"
    path.write_bytes(f"Nr.;T [°C];y;;\n{rows};Summe;8,0;;\n".encode("cp1252"))
    with pytest.warns(TableWarning, match="without names and values are ignored: 4, 5"):
        table = read_table(path, encoding="cp1252")
    assert table.column_names == ["Nr.", "T [°C]", "y"]
    with pytest.warns(TableWarning, match="last row is dropped: its target is the sum"):
        kept = drop_unlabelled(table, "y")
    assert kept["Nr."].to_pylist() == [1, 2, 3]
    assert drop_unlabelled(kept, "y").num_rows == 3
    for last in ("4;26,0;8,0", ";;4,0"):  # Inputs are known; the target is not the sum.
        path.write_text(f"Nr.;T;y;;\n{rows}{last};;\n".replace(";;\n", "\n"))
        assert drop_unlabelled(read_table(path), "y").num_rows == 4


def test_a_comma_that_separates_columns_separates_thousands_too(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('a,y\n"1,234",1\n"2,345",2\n')
    with pytest.warns(TableWarning, match="1,234 are read as thousands"):
        sign = find_point(path, read_table(path))
    assert TableSchema.learn(read_table(path), "y", **sign).split(read_table(path))[0].tolist() == [
        [1234.0],
        [2345.0],
    ]
    path.write_text("a;y\n1,234;1\n2,345;2\n")
    assert find_point(path, read_table(path)) == {}
    path.write_text('a,y\n"0,234",1\n"2,345",2\n')  # No thousands begin with a zero.
    assert find_point(path, read_table(path)) == {}
    X, _, _ = TableSchema.learn(read_table(path), "y").split(read_table(path))
    assert X.tolist() == [[0.234], [2.345]]


@pytest.mark.parametrize(
    ("first", "sign"), [("a\n1.5\n2", {"decimal": "."}), ("a\n1\n2", {}), ("a;b\n1.5;2,5", {})]
)
def test_other_numbers_show_that_the_decimal_sign_is_a_point(
    first: str, sign: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(first + "\n")
    assert find_point(path, read_table(path)) == sign


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").touch()
    with pytest.raises(TableError, match=r"must end in one of \.parquet"):
        read_table(tmp_path / "a.xlsx")
    with pytest.raises(FileNotFoundError, match="There is no file"):
        read_table(tmp_path / "absent.csv")


def test_a_table_is_split_into_inputs_targets_and_weights() -> None:
    X, y, weights = TableSchema.learn(HOUSES, "price").split(HOUSES)
    assert X.shape == (4, 5)
    assert y.tolist() == HOUSES["price"]
    assert weights is None
    schema = TableSchema.learn(HOUSES, "price", only=["garden"], weights="area")
    X, _, weights = schema.split(HOUSES)
    assert X.tolist() == [[1], [0], [0], [1]]
    assert weights is not None
    assert weights.tolist() == HOUSES["area"]


def test_dropped_columns_are_recorded_and_may_be_there_again() -> None:
    frame = {**HOUSES, "country": ["UK"] * 4, "id": [*"abcd"]}
    schema = TableSchema.learn(frame, "price", drop=["id"])
    assert schema.ignored == {"id": "dropped", "country": "constant"}
    more = {**HOUSES, "loft": [1, 2, 3, 4]}
    assert schema.split(frame)[0].tolist() == schema.split(more)[0].tolist()
    assert schema.text_columns == ("town",)
    again = TableSchema(schema.encoder, **json.loads(json.dumps(schema.to_dict())))
    assert again.ignored == schema.ignored


def test_all_problems_are_reported_at_once() -> None:
    n = 60
    frame = {
        "sold": pd.date_range("2024-01-01", periods=n),
        "id": [f"H{i}" for i in range(n)],
        "area": [None, *range(1, n)],
        "both": [[1, 2]] * n,
        "odd": ["12o", *(f"{i % 30},5" for i in range(1, n))],
        "far": [float("inf"), *range(1, n)],
        "price": [None, *range(1, n)],
    }
    with pytest.raises(TableError) as caught:
        TableSchema.learn(frame, "price")
    for said in (
        "Columns of these types are not supported: both (list<",
        "Column 'odd' holds numbers, but also text: correct or empty cells such as '12o'",
        "Values are infinite: far (1)",
        "To drop columns: --drop both --drop odd --drop far.",
    ):
        assert said in str(caught.value)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1.0, None, float("nan"), 2.0], "missing or infinite in 2 of 4 rows"),
        ([1.0, float("inf"), 3.0, 2.0], "missing or infinite in 1 of 4 rows"),
    ],
)
def test_targets_must_be_known_and_finite(values: list[Any], said: str) -> None:
    with pytest.raises(TableError, match=said):
        TableSchema.learn(HOUSES, "price").split({**HOUSES, "price": values})


@pytest.mark.parametrize("values", [["a", "b", "a", "c"], [True, False, True, False]])
def test_a_target_of_text_or_flags_holds_labels(values: list[Any]) -> None:
    table = {**HOUSES, "price": values}
    schema = TableSchema.learn(table, "price")
    assert schema.labels
    assert schema.split(table)[1].tolist() == [str(each).lower() for each in values]
    assert TableSchema(schema.encoder, **schema.to_dict()).labels
    assert summarize_table(table, schema)["target"]["kind"] == "category"
    with pytest.raises(TableError, match="missing or infinite in 1 of 4 rows"):
        schema.split({**HOUSES, "price": [*values[:3], None]})
    with pytest.raises(TableError, match="must be numeric"):
        TableSchema.learn(HOUSES, "price").split({**HOUSES, "price": [*"abcd"]})


def test_absent_columns_are_named() -> None:
    with pytest.raises(TableError, match="There is no column 'cost'; there are area, town"):
        TableSchema.learn(HOUSES, "cost")
    with pytest.raises(TableError, match="There is no column 'prices'; did you mean 'price'"):
        TableSchema.learn(HOUSES, "prices")
    with pytest.raises(TableError, match="cannot be both an input and the target or weights"):
        TableSchema.learn(HOUSES, "price", drop=["price"])


def test_rows_without_a_target_are_dropped() -> None:
    frame = {"x": [1, 2, 3], "y": [0.5, None, float("nan")]}
    with pytest.warns(TableWarning, match="2 of 3 rows have no target and are dropped"):
        assert drop_unlabelled(frame, "y").to_pydict() == {"x": [1], "y": [0.5]}


def test_a_summary_describes_rows_target_and_inputs() -> None:
    frame = {
        "area": [50.0, None, 60.0, 130.0],
        "town": ["Hull", "Leeds", None, "Hull"],
        "price": [1, 3, 2, 6],
    }
    found = summarize_table(frame, TableSchema.learn(frame, "price"))
    assert found["rows"] == 4
    target = {"name": "price", "kind": "number", "missing": 0, "distinct": 4}
    numbers = {"mean": 3.0, "std": pytest.approx(np.std([1, 3, 2, 6])), "min": 1.0, "max": 6.0}
    bars = found["target"].pop("bars")
    assert found["target"] == target | numbers
    assert (len(bars), max(bars), bars[0], bars[1]) == (16, 1.0, 1.0, 0.0)
    assert found["inputs"]["town"] == {
        "kind": "category",
        "missing": 1,
        "distinct": 2,
        "counts": {"Hull": 2, "Leeds": 1},
        "bars": [1.0, 0.5],
    }
    assert found["inputs"]["area"]["mean"] == 80.0
