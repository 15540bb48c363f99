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
from eigengp.io import SavedModelError
from eigengp.io.tree import Writer, make_value

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
    encoder = clone(TableEncoder(max_categories=9, categorical=["shop"]).fit({"shop": [1, 2]}))
    assert (encoder.max_categories, encoder.categorical) == (9, ["shop"])
    with pytest.raises(ValueError, match="not fitted"):
        encoder.transform({"shop": [1]})


def test_an_unknown_level_is_as_far_from_all_levels_as_they_are_from_each_other() -> None:
    encoder = TableEncoder().fit(HOUSES)
    new = {"area": [1.0, 2.0], "town": ["Whitby", "York"], "garden": [True, True]}
    with pytest.warns(TableWarning, match=r"'town' has 1 rows with levels .* \(Whitby\)"):
        whitby, york = encoder.transform(new)[:, 1:4]
    assert york.tolist() == [0, 0, 1]
    np.testing.assert_allclose(np.sum((np.eye(3) - whitby) ** 2, axis=1), 2.0)


def test_many_levels_are_about_equally_far_apart() -> None:
    towns = [f"town {i % 400}" for i in range(2_000)]
    encoder = TableEncoder().fit({"town": [*towns, None]})
    encoded = encoder.transform({"town": [*towns[:400], None]})
    assert encoded.shape == (401, 128) == (401, encoder.get_feature_names_out().size)
    np.testing.assert_allclose(np.sum(encoded**2, axis=1), 1.0)
    apart = (2.0 - 2.0 * encoded @ encoded.T)[np.triu_indices(401, 1)]
    assert abs(np.mean(apart) - 2.0) < 0.01
    assert np.std(apart) < 0.2
    assert apart.min() > 0.9
    assert set(encoder.lengthscale_groups_) == {0}
    with pytest.warns(TableWarning, match=r"2 rows with levels .* \(Hull, York\)"):
        unseen = encoder.transform({"town": ["Hull", "York", "town 0"]})
    assert np.array_equal(unseen[2], encoded[0])
    assert np.abs(unseen[:2] @ np.vstack([encoded, unseen[1]]).T)[:, :-1].max() < 0.6
    assert encoder.fit({"town": 2 * towns[:300]}).transform({"town": towns[:1]}).tolist() == (
        encoded[:1].tolist()
    )


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


def test_missing_values_are_filled_and_marked() -> None:
    encoder = TableEncoder().fit(gaps())
    areas = (*[50.0] * 5, *[60.0] * 6, *[130.0] * 5)
    assert encoder.columns_ == (
        Column("area", "number", (), 60.0, True, draws=areas),
        Column("town", "category", ("Hull", "Leeds"), indicator=True),
        Column("garden", "flag", (), 1.0, True, draws=(*[0.0] * 5, *[1.0] * 11)),
        Column("full", "number", (), 2.5, False),
    )
    assert encoder.transform(gaps()).tolist() == [
        [50, 0, 1, 0, 0, 1, 0, 1],
        [60, 1, 0, 1, 0, 0, 0, 2],
        [60, 0, 0, 0, 1, 1, 0, 3],
        [130, 0, 1, 0, 0, 1, 1, 4],
    ]
    with pytest.warns(TableWarning, match=r"that had none in fit: full \(4\)"):
        assert encoder.transform({**gaps(), "full": [None] * 4})[:, -1].tolist() == [2.5] * 4


def test_a_missing_value_in_a_full_category_is_an_unknown_level() -> None:
    encoder = TableEncoder().fit(HOUSES)
    with pytest.warns(TableWarning, match=r"had none in fit: town \(1\)"):
        row = encoder.transform({"area": [1.0], "town": pa.array([None]), "garden": [True]})
    assert np.array_equal(row[0, 1:4], encoder.columns_[1].unknown)


def test_features_of_a_category_and_of_a_season_share_a_lengthscale() -> None:
    days = pd.date_range("2023-01-01", periods=800, freq="D")
    frame = {"x": range(800), "day": days, "town": ["a", "b", "c", None] * 200}
    encoder = TableEncoder().fit(frame)
    assert encoder.get_feature_names_out().tolist() == [
        *("x", "day: trend", "day: year sine", "day: year cosine"),
        *("day: week sine", "day: week cosine"),
        *("town=a", "town=b", "town=c", "town is missing"),
    ]
    assert encoder.lengthscale_groups_ == (0, 1, 2, 2, 3, 3, 4, 4, 4, 4)


@pytest.mark.parametrize(
    ("days", "periods"),
    [
        (pd.date_range("2024-01-01", periods=100, freq="D"), ("week",)),
        (pd.date_range("2020-01-01", periods=40, freq="MS"), ("year",)),
        (pd.date_range("2024-01-01", periods=400, freq="h"), ("week", "day")),
        (pd.date_range("2000-01-01", periods=20, freq="YS"), ()),
    ],
)
def test_dates_have_the_seasons_that_they_cover(days: Any, periods: tuple[str, ...]) -> None:
    (column,) = TableEncoder().fit({"when": days}).columns_
    assert (column.kind, column.periods) == ("date", periods)
    (plain,) = TableEncoder(expand_dates=False).fit({"when": days}).columns_
    assert plain.feature_names == ("when: trend",)


def test_dates_of_all_types_are_encoded_alike() -> None:
    days = pd.date_range("2023-01-01", periods=500, freq="D")
    expected = TableEncoder().fit_transform({"when": days})
    for form in ("%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%Y-%m-%d %H:%M:%S"):
        text = {"when": days.strftime(form).tolist()}
        np.testing.assert_allclose(TableEncoder().fit_transform(text), expected)
    zoned = pl.DataFrame({"when": days.tz_localize("UTC")})
    np.testing.assert_allclose(TableEncoder().fit_transform(zoned), expected)
    assert expected[0, 0] == pytest.approx(2023.0, abs=0.01)


def test_a_missing_date_is_as_far_from_all_seasons() -> None:
    days = [None, *pd.date_range("2023-01-01", periods=500, freq="D").date]
    encoded = TableEncoder().fit_transform({"when": days})
    assert encoded[0, 1:].tolist() == [0, 0, 0, 0, 1]
    np.testing.assert_allclose(np.sum(encoded[1:, 1:3] ** 2, axis=1), 1.0)


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["1,5", "2,25", "-3"], [1.5, 2.25, -3.0]),
        (["1.234,5 €", "7 €", "-"], [1234.5, 7.0, np.nan]),
        (["$1,234.50", "$12", "n/a"], [1234.5, 12.0, np.nan]),
        (["1 234", "56", "7"], [1234.0, 56.0, 7.0]),
        (["12%", "3.5%", "7%"], [12.0, 3.5, 7.0]),
    ],
)
def test_numbers_in_text_are_recognised(texts: list[str], numbers: list[float]) -> None:
    encoder = TableEncoder().fit({"x": texts})
    (column,) = encoder.columns_
    assert column.kind == "number"
    expected = np.where(np.isnan(numbers), np.nanmedian(numbers), numbers)
    assert encoder.transform({"x": texts})[:, 0].tolist() == expected.tolist()


def test_numbers_with_a_comma_may_need_the_decimal_sign() -> None:
    unclear = {"x": ["1,234", "5,678", "9,012"]}
    with pytest.raises(TableError, match=r"such as '1,234', which may be .*--decimal"):
        TableEncoder().fit(unclear)
    assert TableEncoder(decimal=",").fit_transform(unclear)[0, 0] == 1.234
    assert TableEncoder(decimal=".").fit_transform(unclear)[0, 0] == 1234.0
    other = {**unclear, "y": ["1,5", "2,5", "3,5"]}
    assert TableEncoder().fit_transform(other)[0].tolist() == [1.234, 1.5]


@pytest.mark.parametrize("texts", [["01234", "4567", "00891"], ["7", "8", "7"], ["a", "1,5", "b"]])
def test_codes_and_names_are_no_numbers(texts: list[str]) -> None:
    (column,) = TableEncoder().fit({"x": texts}).columns_
    assert column.kind == "category"


def test_single_errors_among_numbers_are_named() -> None:
    spoilt = {"x": ["12o", *(f"{i % 30},5" for i in range(60))]}
    with pytest.raises(TableError, match=r"holds numbers, but also text: .* such as '12o'"):
        TableEncoder().fit(spoilt)
    assert TableEncoder(categorical=["x"]).fit(spoilt).columns_[0].kind == "category"


def test_a_column_declared_as_a_category_is_one_though_most_levels_are_numbers() -> None:
    stations = pd.Series(["c266", *(str(i % 30) for i in range(60))], dtype="category")
    (column,) = TableEncoder().fit(pd.DataFrame({"station": stations})).columns_
    assert column.kind == "category"
    assert len(column.categories) == 31


def test_a_cell_that_is_no_number_is_named_with_its_column() -> None:
    encoder = TableEncoder().fit({"price": ["$1,250.50", "$20.00", "$3.00"]})
    with pytest.raises(TableError, match="Column 'price': 'none yet' is not a number"):
        encoder.transform({"price": ["none yet", "x"]})


def test_text_that_names_the_rows_is_ignored() -> None:
    frame = {"x": range(30), "id": [f"street {i}" for i in range(30)]}
    assert TableEncoder().fit(frame).ignored_ == {"id": "an identifier"}
    frame["id"][::3] = [None] * 10  # The share is that of the known values.
    assert TableEncoder().fit(frame).ignored_ == {"id": "an identifier"}


def test_objects_of_several_types_become_text() -> None:
    frame = pd.DataFrame({"mixed": [1, "a", None, "a", 1, 1]}, dtype=object)
    assert TableEncoder().fit(frame).columns_[0].categories == ("1", "a")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"area": ["50 m", "a", "b", "c"]}, r"'area' held numbers .* holds text \('50 m'\)"),
        ({"garden": [0, 1, 0, 1]}, r"'garden' held true or false .* holds numbers \(0\)"),
        ({"area": pd.date_range("2024-01-01", periods=4)}, "'area' held numbers .* dates"),
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


def _store(value: Any) -> Any:
    """Return what a file would make of a value."""
    writer = Writer()
    node = json.loads(json.dumps(writer.node(value, "The encoder")))
    return make_value(node, writer.arrays)


def test_an_encoder_is_stored_fitted_or_not() -> None:
    encoder = TableEncoder(categorical={"rooms"}, max_categories=2)
    assert _store(encoder).get_params() == encoder.get_params()
    again = _store(encoder.fit({**HOUSES, "rooms": [1, 2, 3, 2]}))
    assert vars(again).keys() == vars(encoder).keys()
    assert again.columns_ == encoder.columns_
    assert again.get_feature_names_out().tolist() == encoder.get_feature_names_out().tolist()
    encoder.columns_ = 3  # type: ignore[assignment]
    with pytest.raises(SavedModelError, match="columns_ of a saved TableEncoder is a int"):
        _store(encoder)


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
    encoder, problem = TableEncoder(), ""
    try:
        encoder.fit(first)
    except TableError as error:
        problem = str(error)
    if problem:
        assert "No input column" in problem or "would be called" in problem
        return
    again = _store(encoder)
    assert again.columns_ == encoder.columns_
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
            ones = encoder.feature_groups_[column.name]
            assert set(encoder.transform(first)[:, ones].sum(axis=1)) == {1.0}
