"""`TableEncoder`: which columns it encodes, how, and which it refuses."""

from __future__ import annotations

import json
import pickle
import warnings
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from eigengp import ExactGPRegressor, TableEncoder, TableError, TableWarning
from eigengp.data.encode import Column

HOUSES: dict[str, list[Any]] = {
    "area": [50.0, 80.0, 65.0, 120.0],
    "town": ["Hull", "Leeds", "Hull", "York"],
    "garden": [True, False, False, True],
}
ENCODED = [[50, 1, 0, 0, 1], [80, 0, 1, 0, 0], [65, 1, 0, 0, 0], [120, 0, 0, 1, 1]]


def gaps() -> dict[str, list[Any]]:
    return {
        "area": [50.0, None, 60.0, 130.0],
        "town": ["Hull", "Leeds", None, "Hull"],
        "garden": [True, False, True, None],
        "full": [1, 2, 3, 4],
    }


def test_numbers_flags_and_categories_become_features() -> None:
    encoder = TableEncoder().fit(HOUSES)
    names = ["area", "town=Hull", "town=Leeds", "town=York", "garden"]
    assert encoder.get_feature_names_out().tolist() == names
    assert encoder.feature_groups_ == {"area": [0], "town": [1, 2, 3], "garden": [4]}
    assert encoder.feature_names_in_.tolist() == list(HOUSES)
    assert encoder.transform(HOUSES).tolist() == ENCODED


def categories(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(town=frame["town"].astype("category"))


@pytest.mark.parametrize(
    "make",
    [pd.DataFrame, pl.DataFrame, pa.table, lambda table: categories(pd.DataFrame(table))],
    ids=["pandas", "Polars", "PyArrow", "categorical dtype"],
)
def test_tables_of_all_libraries_are_encoded_alike(make: Any) -> None:
    encoder = TableEncoder().fit(HOUSES)
    assert encoder.transform(make(HOUSES)).tolist() == ENCODED
    assert TableEncoder().fit_transform(make(HOUSES)).tolist() == ENCODED


def test_what_is_not_a_table_is_refused() -> None:
    with pytest.raises(TableError, match="not a table that PyArrow can read"):
        TableEncoder().fit([1, 2])
    with pytest.raises(TableError, match="no rows"):
        TableEncoder().fit({"x": pa.array([], pa.float64())})


def test_the_encoder_sits_in_a_pipeline_and_is_cross_validated() -> None:
    rng = np.random.default_rng(0)
    area, town = rng.uniform(30, 200, 60), rng.choice(["Hull", "York"], 60)
    frame, price = pd.DataFrame({"area": area, "town": town}), 2.0 * area + 60.0 * (town == "York")
    model = make_pipeline(TableEncoder(), ExactGPRegressor(random_state=0))
    assert cross_val_score(model, frame, price, cv=2).min() > 0.9
    stored = pickle.loads(pickle.dumps(model.fit(frame, price)))
    np.testing.assert_array_equal(stored.predict(frame[::-1]), model.predict(frame)[::-1])


def test_the_output_can_be_a_frame() -> None:
    with config_context(transform_output="pandas"):
        frame = TableEncoder().fit_transform(pd.DataFrame(HOUSES, index=[*"abcd"]))
    assert frame.columns.tolist()[1:3] == ["town=Hull", "town=Leeds"]
    assert frame.index.tolist() == [*"abcd"]
    polars = TableEncoder().set_output(transform="polars").fit_transform(pl.DataFrame(HOUSES))
    assert polars["area"].to_list() == HOUSES["area"]


def test_clones_are_not_fitted() -> None:
    encoder = clone(TableEncoder(impute=True, categorical=["shop"]).fit({"shop": [1, 2]}))
    assert encoder.get_params() == {"impute": True, "categorical": ["shop"]}
    with pytest.raises(ValueError, match="not fitted"):
        encoder.transform({"shop": [1]})


def test_unknown_categories_become_zeros_and_are_named() -> None:
    encoder = TableEncoder().fit(HOUSES)
    new = {"area": [1.0, 2.0], "town": ["Whitby", "York"], "garden": [True, True]}
    with pytest.warns(TableWarning, match=r"'town' has 1 rows with unknown .* \(Whitby\)"):
        assert encoder.transform(new).tolist() == [[1, 0, 0, 0, 1], [2, 0, 0, 1, 1]]


def test_integers_can_be_categories() -> None:
    shops = {"shop": [7, 8, 7], "x": [1.0, 2.0, 3.0]}
    encoder = TableEncoder(categorical=["shop"]).fit(shops)
    expected = [[1, 0, 1], [0, 1, 2], [1, 0, 3]]
    assert encoder.transform(shops).tolist() == expected
    assert encoder.transform({**shops, "shop": ["7", "8", "7"]}).tolist() == expected
    with pytest.raises(TableError, match="There is no column 'shops'; did you mean 'shop'"):
        TableEncoder(categorical=["shops"]).fit(shops)


def test_constant_and_empty_columns_are_ignored_and_may_be_absent_later() -> None:
    frame = {**HOUSES, "country": ["UK"] * 4, "floor": [0] * 4, "note": [None] * 4}
    encoder = TableEncoder().fit(frame)
    assert encoder.ignored_ == {"country": "constant", "floor": "constant", "note": "empty"}
    assert encoder.transform(frame).tolist() == encoder.transform(HOUSES).tolist() == ENCODED
    with pytest.raises(TableError, match="No input column is left"):
        TableEncoder().fit({"country": ["UK"] * 4})


def test_missing_values_are_refused_with_their_number() -> None:
    with pytest.raises(
        TableError, match=r"area \(1\), town \(1\), garden \(1\).*--impute"
    ) as caught:
        TableEncoder().fit(gaps())
    assert caught.value.columns == ("area", "town", "garden")
    with pytest.raises(TableError, match=r"missing: area \(1\)\."):
        TableEncoder().fit(HOUSES).transform({**HOUSES, "area": [1.0, 2.0, float("nan"), 3.0]})


def test_missing_values_are_imputed_and_marked() -> None:
    encoder = TableEncoder(impute=True).fit(gaps())
    assert encoder.columns_ == (
        Column("area", "number", (), 60.0, True),
        Column("town", "category", ("Hull", "Leeds"), "Hull", True),
        Column("garden", "flag", (), 1.0, True),
        Column("full", "number", (), 2.5, False),
    )
    assert encoder.transform(gaps()).tolist() == [
        [50, 0, 1, 0, 0, 1, 0, 1],
        [60, 1, 0, 1, 0, 0, 0, 2],
        [60, 0, 1, 0, 1, 1, 0, 3],
        [130, 0, 1, 0, 0, 1, 1, 4],
    ]
    with pytest.warns(TableWarning, match=r"that had none in fit: full \(4\)"):
        assert encoder.transform({**gaps(), "full": [None] * 4})[:, -1].tolist() == [2.5] * 4


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([f"{i + 1}/2/2024" for i in range(12)], "these look like dates"),
        ([f"{i},000" for i in range(12)], "these look like numbers; correct .* such as '0,000'"),
        ([*map(str, range(11)), "?"], r"these look like numbers; correct .* such as '\?'"),
        ([f"street {i}" for i in range(12)], "these look like names or identifiers"),
        ([f"c{i % 51}" for i in range(600)], r"51 different texts in 600 rows.*\(at most 50\)"),
    ],
)
def test_the_meaning_of_many_texts_is_guessed(texts: list[str], said: str) -> None:
    with pytest.raises(TableError, match=said):
        TableEncoder().fit({"x": texts})


def test_fifty_categories_are_not_too_many() -> None:
    encoder = TableEncoder().fit({"x": [f"c{i % 50}" for i in range(600)]})
    assert encoder.get_feature_names_out().size == 50


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"area": ["50 m", "a", "b", "c"]}, r"'area' held numbers .* holds text \('50 m'\)"),
        ({"garden": [0, 1, 0, 1]}, r"'garden' held true or false .* holds numbers \(0\)"),
        ({"town": [True, False, True, True]}, "'town' held text .* holds true or false"),
        ({"area": pd.date_range("2024-01-01", periods=4)}, "'area' held numbers .* timestamp"),
        ({"area": [1.0, float("inf"), 2.0, 3.0]}, "Values are infinite: area"),
    ],
)
def test_other_types_than_in_fit_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(TableError, match=said):
        TableEncoder().fit(HOUSES).transform({**HOUSES, **change})


def test_absent_columns_are_named_and_others_are_ignored() -> None:
    encoder = TableEncoder().fit(HOUSES)
    with pytest.raises(TableError, match=r"lacks columns .* area, garden\. It has town"):
        encoder.transform({"town": ["Hull"]})
    assert encoder.transform({**HOUSES, "loft": ["?"] * 4}).tolist() == ENCODED


def test_two_features_of_one_name_are_refused() -> None:
    with pytest.raises(TableError, match="would be called town=Hull"):
        TableEncoder().fit({**HOUSES, "town=Hull": [1, 2, 3, 4]})


def test_a_stored_encoder_is_checked() -> None:
    stored = TableEncoder().fit(HOUSES).to_dict()
    with pytest.raises(TableError, match="a later version"):
        TableEncoder.from_dict({**stored, "version": 2})
    with pytest.raises(TableError, match="not a stored table encoder"):
        TableEncoder.from_dict({"version": 1})


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
    """Return two frames with the same columns."""
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


@given(frames(), st.randoms(use_true_random=False))
def test_any_frame_of_the_same_columns_becomes_a_finite_array(
    pair: tuple[dict[str, Any], dict[str, Any]], random: Any
) -> None:
    first, second = pair
    encoder, problem = TableEncoder(impute=True), ""
    try:
        encoder.fit(first)
    except TableError as error:
        problem = str(error)
    if problem:
        assert "No input column" in problem or "would be called" in problem
        return
    again = TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    assert again.to_dict() == encoder.to_dict()
    names = list(second)
    random.shuffle(names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableWarning)
        for frame in (first, second):
            array = encoder.transform(frame)
            assert array.shape == (len(frame[names[0]]), encoder.get_feature_names_out().size)
            assert np.isfinite(array).all()
            assert array.dtype == np.float64
        assert np.array_equal(again.transform({name: second[name] for name in names}), array)
    for column in encoder.columns_:
        if column.kind == "category":
            ones = encoder.feature_groups_[column.name][: len(column.categories)]
            assert set(encoder.transform(first)[:, ones].sum(axis=1)) == {1.0}
