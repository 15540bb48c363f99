"""Tables: what is read from files, what of it becomes an input, and what is refused."""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from eigengp.cli.tables import (
    Column,
    TableEncoding,
    TableError,
    TableWarning,
    labelled,
    read_table,
    summary,
)

HOUSES = {
    "area": [50.0, 80.0, 65.0, 120.0],
    "town": ["Hull", "Leeds", "Hull", "York"],
    "garden": [True, False, False, True],
    "price": [1, 3, 2, 6],
}


def gaps() -> dict[str, list[Any]]:
    return {
        "area": [50.0, None, 60.0, 130.0],
        "town": ["Hull", "Leeds", None, "Hull"],
        "garden": [True, False, True, None],
        "full": [1, 2, 3, 4],
        "price": [1, 3, 2, 6],
    }


# Reading


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
    expected = TableEncoding.learned(HOUSES, "price").inputs(HOUSES)
    assert np.array_equal(TableEncoding.learned(read, "price").inputs(read), expected)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_is_that_of_the_first_line(separator: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"a{separator}b\n1{separator}x\n2{separator}\n")
    assert read_table(path).to_pydict() == {"a": [1, 2], "b": ["x", None]}


def test_all_rows_of_a_csv_file_have_a_say_in_the_type(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n" + "1\n" * 600_000 + "2.5\n")
    assert read_table(path)["a"].type == pa.float64()


def test_several_files_are_one_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "b.csv").write_text("x\n2.5\n")
    assert read_table(str(tmp_path / "*.csv"))["x"].to_pylist() == [1.0, 2.5]


def test_columns_of_text_stay_text_whatever_they_look_like(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("shop,x\n01,1\n2,2\n")
    assert read_table(path, text=["shop", "elsewhere"])["shop"].to_pylist() == ["01", "2"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a,a\n1,2\n", "several columns of the same name: a"),
        (b",a\n0,2\n", "Column 1 of the table has no name"),
        (b"a,b\n1,2\n1,2,3\n", "cannot be read"),
        (b"", "cannot be read"),
        (b"a,b\n\xff\xfe\xfd,1\n" * 3, "cannot be read|no inputs"),
    ],
)
def test_a_table_that_is_none_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(TableError, match=said):
        TableEncoding.learned(read_table(path), "b")


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").touch()
    with pytest.raises(TableError, match=r"ends in none of \.parquet"):
        read_table(tmp_path / "a.xlsx")
    with pytest.raises(FileNotFoundError, match="There is no file"):
        read_table(tmp_path / "absent.csv")


def test_frames_of_any_kind_are_encoded_alike() -> None:
    frame = pd.DataFrame(HOUSES)
    expected = TableEncoding.learned(HOUSES, "price").inputs(HOUSES)
    for each in (frame, pa.table(HOUSES), frame.assign(town=frame["town"].astype("category"))):
        assert np.array_equal(TableEncoding.learned(each, "price").inputs(each), expected)
    with pytest.raises(TableError, match="no table that PyArrow understands"):
        TableEncoding.learned([1, 2], "price")


# Encoding


def test_numbers_flags_and_categories_become_columns() -> None:
    encoding = TableEncoding.learned(HOUSES, "price")
    assert encoding.feature_names == ("area", "town=Hull", "town=Leeds", "town=York", "garden")
    assert encoding.groups == {"area": [0], "town": [1, 2, 3], "garden": [4]}
    assert encoding.inputs(HOUSES).tolist() == [
        [50, 1, 0, 0, 1],
        [80, 0, 1, 0, 0],
        [65, 1, 0, 0, 0],
        [120, 0, 0, 1, 1],
    ]
    assert encoding.targets(HOUSES).tolist() == [1, 3, 2, 6]
    assert encoding.sample_weight(HOUSES) is None


def test_an_unknown_category_is_none_of_those_known_and_is_named() -> None:
    encoding = TableEncoding.learned(HOUSES, "price")
    new = {"area": [1.0, 2.0], "town": ["Whitby", "York"], "garden": [True, True]}
    with pytest.warns(TableWarning, match=r"'town' has 1 rows .* not seen \(Whitby\)"):
        assert encoding.inputs(new).tolist() == [[1, 0, 0, 0, 1], [2, 0, 0, 1, 1]]


def test_whole_numbers_can_be_names() -> None:
    shops = {"shop": [7, 8, 7], "x": [1.0, 2.0, 3.0], "y": [0, 1, 2]}
    encoding = TableEncoding.learned(shops, "y", categorical=["shop"])
    assert encoding.text_columns == ("shop",)
    expected = [[1, 0, 1], [0, 1, 2], [1, 0, 3]]
    assert encoding.inputs(shops).tolist() == expected
    assert encoding.inputs({**shops, "shop": ["7", "8", "7"]}).tolist() == expected


def test_columns_that_tell_nothing_are_left_out_and_may_be_there_again() -> None:
    frame = {**HOUSES, "country": ["UK"] * 4, "floor": [0] * 4, "note": [None] * 4, "id": [*"abcd"]}
    encoding = TableEncoding.learned(frame, "price", drop=["id"])
    assert encoding.ignored == {
        "id": "left out",
        "country": "constant",
        "floor": "constant",
        "note": "empty",
    }
    assert encoding.inputs(frame).shape == (4, 5)
    assert encoding.inputs(HOUSES).shape == (4, 5)
    with pytest.raises(TableError, match="No column is left to learn from"):
        TableEncoding.learned(frame, "price", only=["country"])


def test_only_some_columns_may_be_taken_and_one_may_hold_weights() -> None:
    encoding = TableEncoding.learned(HOUSES, "price", only=["garden"], weights="area")
    assert encoding.feature_names == ("garden",)
    weights = encoding.sample_weight(HOUSES)
    assert weights is not None
    assert weights.tolist() == HOUSES["area"]
    with pytest.raises(TableError, match="must not be negative, nor all zero"):
        encoding.sample_weight({"area": [1.0, -1.0]})


def test_missing_values_are_refused_with_their_number() -> None:
    with pytest.raises(TableError, match=r"area \(1\), town \(1\), garden \(1\).*--impute"):
        TableEncoding.learned(gaps(), "price")
    encoding = TableEncoding.learned(HOUSES, "price")
    with pytest.raises(TableError, match=r"missing: area \(1\)\."):
        encoding.inputs({**HOUSES, "area": [1.0, 2.0, float("nan"), 3.0]})


def test_missing_values_are_filled_in_and_marked() -> None:
    encoding = TableEncoding.learned(gaps(), "price", impute=True)
    assert encoding.columns == (
        Column("area", "number", (), 60.0, True),
        Column("town", "category", ("Hull", "Leeds"), "Hull", True),
        Column("garden", "flag", (), 1.0, True),
        Column("full", "number", (), 2.5, False),
    )
    assert encoding.inputs(gaps()).tolist() == [
        [50, 0, 1, 0, 0, 1, 0, 1],
        [60, 1, 0, 1, 0, 0, 0, 2],
        [60, 0, 1, 0, 1, 1, 0, 3],
        [130, 0, 1, 0, 0, 1, 1, 4],
    ]
    with pytest.warns(TableWarning, match=r"none were in the training data: full \(4\)"):
        assert encoding.inputs({**gaps(), "full": [None] * 4})[:, -1].tolist() == [2.5] * 4


def test_all_that_is_wrong_is_said_at_once() -> None:
    n = 60
    frame = {
        "sold": pd.date_range("2024-01-01", periods=n),
        "id": [f"H{i}" for i in range(n)],
        "area": [None, *range(1, n)],
        "both": [[1, 2]] * n,
        "price": [None, *range(1, n)],
    }
    with pytest.raises(TableError) as caught:
        TableEncoding.learned(frame, "price")
    for said in (
        "The target 'price' is missing in 1 of 60 rows",
        "Dates and times are no inputs: sold.",
        "--drop sold",
        "These are no inputs: both (list<",
        "Column 'id' has 60 different texts in 60 rows, such as 'H0': too many to be categories",
        "--drop id",
        "Values are missing: area (1)",
    ):
        assert said in str(caught.value)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([f"{i + 1}/2/2024" for i in range(12)], "these are dates"),
        ([f"{i},000" for i in range(12)], "these seem to be numbers; mend .* such as '0,000'"),
        ([*map(str, range(11)), "?"], r"these seem to be numbers; mend .* such as '\?'"),
        ([f"street {i}" for i in range(12)], "more like names or identifiers"),
        ([f"c{i % 51}" for i in range(600)], r"51 different texts in 600 rows.*\(at most 50\)"),
    ],
)
def test_what_many_texts_may_be_is_guessed(texts: list[str], said: str) -> None:
    with pytest.raises(TableError, match=said):
        TableEncoding.learned({"x": texts, "y": list(range(len(texts)))}, "y")


def test_fifty_categories_are_not_too_many() -> None:
    texts = [f"c{i % 50}" for i in range(600)]
    encoding = TableEncoding.learned({"x": texts, "y": list(range(600))}, "y")
    assert len(encoding.feature_names) == 50


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["a", "b", "c", "d"], "must be made of numbers, but is of type string"),
        ([True, False, True, False], "must be made of numbers, but is of type bool"),
        ([1.0, None, float("nan"), 2.0], "missing in 2 of 4 rows"),
        ([1.0, float("inf"), 3.0, 2.0], "infinite in 1 rows"),
    ],
)
def test_the_target_is_made_of_numbers_none_of_them_missing(values: list[Any], said: str) -> None:
    with pytest.raises(TableError, match=said):
        TableEncoding.learned({**HOUSES, "price": values}, "price")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"area": ["50 m", "a", "b", "c"]}, r"'area' held numbers .* holds text \('50 m'\)"),
        ({"garden": [0, 1, 0, 1]}, r"'garden' held true or false .* holds numbers \(0\)"),
        ({"town": [True, False, True, True]}, "'town' held text .* holds true or false"),
        ({"area": pd.date_range("2024-01-01", periods=4)}, "'area' held numbers .* timestamp"),
        ({"loft": [1, 2, 3, 4], "a b": [1] * 4}, r"not fitted with: loft, a b.*--drop 'a b'"),
        ({"area": [1.0, float("inf"), 2.0, 3.0]}, "Values are infinite: area"),
    ],
)
def test_other_columns_than_those_of_fit_are_refused(change: dict[str, Any], said: str) -> None:
    encoding = TableEncoding.learned(HOUSES, "price")
    with pytest.raises(TableError, match=said):
        encoding.inputs({**HOUSES, **change})


def test_columns_that_are_not_there_are_named() -> None:
    encoding = TableEncoding.learned(HOUSES, "price")
    with pytest.raises(TableError, match=r"lacks columns .* area, garden; it has town"):
        encoding.inputs({"town": ["Hull"]})
    with pytest.raises(TableError, match="There is no column 'cost'; there are area, town"):
        TableEncoding.learned(HOUSES, "cost")
    with pytest.raises(TableError, match="There is no column 'prices'; did you mean 'price'"):
        TableEncoding.learned(HOUSES, "prices")
    with pytest.raises(TableError, match="cannot be target or weights and an input as well"):
        TableEncoding.learned(HOUSES, "price", drop=["price"])
    with pytest.raises(TableError, match="no rows"):
        TableEncoding.learned({"x": pa.array([], pa.float64()), "y": []}, "y")


def test_two_inputs_of_one_name_are_refused() -> None:
    frame = {**HOUSES, "town=Hull": [1, 2, 3, 4]}
    with pytest.raises(TableError, match="would be called town=Hull"):
        TableEncoding.learned(frame, "price")


def test_an_encoding_of_another_version_is_refused() -> None:
    stored = TableEncoding.learned(HOUSES, "price").as_dict()
    with pytest.raises(TableError, match="a later version"):
        TableEncoding.from_dict({**stored, "version": 2})
    with pytest.raises(TableError, match="describes no encoding"):
        TableEncoding.from_dict({"version": 1})


def test_rows_without_a_target_can_be_left_out() -> None:
    frame = {"x": [1, 2, 3], "y": [0.5, None, float("nan")]}
    assert labelled(frame, "y").to_pydict() == {"x": [1], "y": [0.5]}


def test_a_summary_says_what_the_table_held() -> None:
    found = summary(gaps(), TableEncoding.learned(gaps(), "price", impute=True))
    assert found["rows"] == 4
    assert found["target"] == {
        "name": "price",
        "mean": 3.0,
        "std": pytest.approx(np.std([1, 3, 2, 6])),
        "min": 1.0,
        "max": 6.0,
    }
    assert found["inputs"]["town"] == {
        "kind": "category",
        "missing": 1,
        "counts": {"Hull": 2, "Leeds": 1},
    }
    assert found["inputs"]["area"]["mean"] == 80.0


# Properties

NAMES = st.text("abcxyz =é", min_size=1, max_size=4)
VALUES = {
    "number": st.floats(allow_nan=False, allow_infinity=False, width=32),
    "whole": st.integers(-(2**40), 2**40),
    "flag": st.booleans(),
    "category": st.sampled_from(["a", "b", "ü", "long text"]),
}


@st.composite
def frames(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two frames with the same columns, the first of which something can be learned from."""
    kinds = draw(st.dictionaries(NAMES, st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
    both: list[dict[str, Any]] = []
    for least in (2, 1):
        n = draw(st.integers(least, 6))
        column = {
            name: st.lists(st.none() | VALUES[kind], min_size=n, max_size=n)
            for name, kind in kinds.items()
        }
        both.append({name: draw(values) for name, values in column.items()})
    return both[0], both[1]


def learned_or_said(frame: Any, target: str) -> tuple[TableEncoding | None, str]:
    try:
        return TableEncoding.learned(frame, target, impute=True), ""
    except TableError as error:
        return None, str(error)


@given(frames(), st.randoms(use_true_random=False))
def test_any_frame_of_the_same_columns_becomes_a_finite_array(
    pair: tuple[dict[str, Any], dict[str, Any]], random: Any
) -> None:
    first, second = pair
    target = "the target"
    first = {**first, target: list(range(len(next(iter(first.values())))))}
    encoding, said = learned_or_said(first, target)
    if encoding is None:
        assert any(word in said for word in ("No column is left", "would be called"))
        return
    again = TableEncoding.from_dict(encoding.as_dict())
    assert again == encoding
    names = list(second)
    random.shuffle(names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableWarning)
        for frame in (first, second):
            n = len(next(iter(frame.values())))
            array = encoding.inputs(frame)
            assert array.shape == (n, len(encoding.feature_names))
            assert np.isfinite(array).all()
            assert array.dtype == np.float64
        assert np.array_equal(again.inputs({name: second[name] for name in names}), array)
    for column in encoding.columns:
        if column.kind == "category":
            ones = encoding.groups[column.name][: len(column.categories)]
            assert set(encoding.inputs(first)[:, ones].sum(axis=1)) == {1.0}
