"""Frames as data of `fit` and `predict`: columns by name, categories, dates, gaps."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from sklearn.base import clone

import eigengp
from eigengp import (
    LBFGS,
    EigenGPClassifier,
    EigenGPRegressor,
    ExactGPRegressor,
    FITCRegressor,
    FitWarning,
    Gaussian,
    RVMRegressor,
    SquaredExponential,
    SSGPRegressor,
    TableEncoder,
    TableError,
    TableWarning,
    inspection,
)
from eigengp.data.frames import read_targets
from eigengp.data.stream_source import FileTable

N = 90
RNG = np.random.default_rng(3)
LEVEL = RNG.integers(0, 6, N)
FRAME = pd.DataFrame(
    {
        "area": RNG.normal(size=N),
        "town": pd.Series([f"t{i}" for i in LEVEL]).where(np.arange(N) % 10 > 0),
        "garden": RNG.random(N) < 0.5,
        "sold": pd.date_range("2020-01-01", periods=N, freq="9D"),
        "rooms": pd.array([None if i % 7 == 0 else i % 5 for i in range(N)], dtype="Int64"),
    }
)
PRICE = FRAME["area"].to_numpy() + 0.5 * LEVEL + 0.1 * RNG.normal(size=N)
TABLE = FRAME.assign(price=PRICE)
MAKERS = {
    "pandas": lambda frame: frame,
    "Polars": pl.from_pandas,
    "PyArrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "arrow dtypes": lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
}
any_library = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def quick(**parameters: Any) -> ExactGPRegressor:
    optimizer = LBFGS(n_restarts=1, max_iter=20)
    return ExactGPRegressor(optimizer=optimizer, random_state=0, **parameters)


@any_library
def test_frames_of_all_libraries_are_fitted_alike(make: Any) -> None:
    expected = quick().fit(FRAME, PRICE).predict(FRAME)
    model = quick().fit(make(TABLE), "price")
    np.testing.assert_allclose(model.predict(make(FRAME)), expected, rtol=1e-6)
    assert model.feature_names_in_.tolist() == FRAME.columns.tolist()
    assert model.n_features_in_ == 5
    assert np.corrcoef(expected, PRICE)[0, 1] > 0.95


def test_the_default_regressor_takes_frames_and_stores_its_encoder(tmp_path: Path) -> None:
    model = EigenGPRegressor(random_state=0).fit(TABLE, "price")
    model.save(tmp_path / "m.eigengp")
    again = eigengp.load(tmp_path / "m.eigengp")
    np.testing.assert_array_equal(again.predict(FRAME), model.predict(FRAME))
    assert again.encoder_.columns_ == model.encoder_.columns_
    assert model.input_effects().shape == model.input_relevance().shape == (5,)
    assert int(np.argmax(model.input_effects())) in (0, 1)
    assert "town" in model._repr_html_()
    assert not hasattr(clone(model), "encoder_")


@pytest.mark.parametrize("kind", [FITCRegressor, SSGPRegressor])
def test_other_regressors_take_frames(kind: Any) -> None:
    model = kind(8, optimizer=LBFGS(n_restarts=1, max_iter=5), random_state=0).fit(TABLE, "price")
    assert np.isfinite(model.predict(FRAME, return_std=True)).all()


def test_other_baselines_and_classifiers_take_frames() -> None:
    assert np.isfinite(RVMRegressor(lengthscale=1.0).fit(TABLE, "price").predict(FRAME)).all()
    labels = np.where(np.median(PRICE) < PRICE, "dear", "cheap")
    optimizer = LBFGS(max_iter=10)
    classifier = EigenGPClassifier(optimizer=optimizer, random_state=0)
    classifier.fit(FRAME.assign(label=labels), "label")
    assert classifier.score(FRAME, labels) > 0.9


def test_a_frame_of_numbers_is_not_encoded() -> None:
    numbers = FRAME[["area", "garden"]]
    model = quick().fit(numbers, PRICE)
    assert not hasattr(model, "encoder_")
    expected = quick().fit(numbers.to_numpy(dtype=float), PRICE)
    np.testing.assert_array_equal(model.predict(numbers), expected.predict(numbers.to_numpy(float)))


def test_columns_must_come_in_the_same_order() -> None:
    model = quick().fit(FRAME, PRICE)
    with pytest.raises(ValueError, match="must be in the same order"):
        model.predict(FRAME[FRAME.columns[::-1]])
    with pytest.raises(ValueError, match="unseen at fit time"):
        model.predict(FRAME.rename(columns={"area": "size"}))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        rows = model.predict(FRAME.to_numpy(dtype=object)[:3])
    np.testing.assert_allclose(rows, model.predict(FRAME[:3]))


def test_the_category_has_one_correlation_for_all_pairs_of_levels() -> None:
    model = quick().fit(FRAME[["area", "town"]], PRICE)
    levels = model.encoder_.transform(
        {"area": [0.0] * 7, "town": ["t0", "t1", "t2", "t3", "t4", "t5", None]}
    )
    K = model.kernel_(levels) / model.kernel_.variance
    rho = K[0, 1]
    assert 0.0 < rho < 1.0
    np.testing.assert_allclose(K, np.where(np.eye(7), 1.0, rho))
    assert model.kernel_.theta.size == 3  # area, town, variance


def test_a_new_level_is_a_new_draw_from_the_prior() -> None:
    model = quick().fit(FRAME[["area", "town"]], PRICE)
    rows = pd.DataFrame({"area": [0.0, 0.0], "town": ["t1", "new"]})
    with pytest.warns(TableWarning, match="treated as new levels"):
        mean, std = model.predict(rows, return_std=True)
    assert std[1] > 2.0 * std[0]
    assert abs(mean[1] - PRICE.mean()) < 1.0


@pytest.mark.filterwarnings("ignore::eigengp.TableWarning")
def test_shared_lengthscales_beat_one_for_each_level() -> None:
    rng = np.random.default_rng(0)
    effects, level = rng.normal(size=30), rng.integers(0, 30, 220)
    x = rng.uniform(-2.0, 2.0, 220)
    truth = np.sin(2.0 * x) + effects[level]
    y = truth + 0.3 * rng.normal(size=220)
    frame = pd.DataFrame({"x": x, "town": [f"t{i}" for i in level]})
    model = EigenGPRegressor(random_state=0).fit(frame[:150], y[:150])
    error = np.sqrt(np.mean((model.predict(frame[150:]) - truth[150:]) ** 2))
    one_hot = np.column_stack([x, np.eye(30)[level]])
    other = EigenGPRegressor(random_state=0).fit(one_hot[:150], y[:150])
    assert error < np.sqrt(np.mean((other.predict(one_hot[150:]) - truth[150:]) ** 2))
    assert error < 0.3


def test_categories_are_given_by_name_index_or_mask() -> None:
    X = np.column_stack([FRAME["area"], LEVEL])
    frame = pd.DataFrame(X, columns=["area", "shop"])
    expected = quick(categorical_features=["shop"]).fit(frame, PRICE).predict(frame)
    for given in ([1], [False, True], [-1]):
        model = quick(categorical_features=given).fit(X, PRICE)
        np.testing.assert_allclose(model.predict(X), expected)
        assert not hasattr(model, "feature_names_in_")
    with pytest.raises(ValueError, match="X has 3 features, but ExactGPRegressor is expecting 2"):
        model.predict(np.column_stack([X, X[:, 0]]))
    for wrong, said in (([2], "fit X"), (["town"], "no column 'town'"), ([True], "fit X")):
        with pytest.raises(ValueError, match=said):
            quick(categorical_features=wrong).fit(frame, PRICE)


def test_an_encoder_sets_how_columns_are_encoded(tmp_path: Path) -> None:
    encoder = TableEncoder(expand_dates=False, max_categories=3)
    model = quick(categorical_features=encoder).fit(FRAME, PRICE)
    assert not hasattr(encoder, "columns_")
    assert model.encoder_.max_categories == 3
    model.save(tmp_path / "m.eigengp")
    assert eigengp.load(tmp_path / "m.eigengp").categorical_features.max_categories == 3
    plain = quick(categorical_features=TableEncoder()).fit(FRAME[["area"]], PRICE)
    assert hasattr(plain, "encoder_")


def test_a_given_kernel_has_shared_lengthscales_too() -> None:
    model = quick(kernel=SquaredExponential()).fit(FRAME[["area", "town"]], PRICE)
    assert model.kernel_.groups == (0, 1, 1, 1, 1, 1, 1, 1)
    assert np.unique(model.kernel_.lengthscale[1:]).size == 1


def test_targets_and_weights_are_taken_by_name() -> None:
    weight = np.where(np.arange(N) < 60, 1.0, 0.0)
    model = quick().fit(TABLE.assign(w=weight), "price", sample_weight="w")
    alone = quick().fit(FRAME[:60], PRICE[:60])
    assert model.feature_names_in_.tolist() == FRAME.columns.tolist()
    np.testing.assert_allclose(model.predict(FRAME), alone.predict(FRAME), rtol=0.2, atol=0.3)
    with pytest.raises(ValueError, match="There is no column 'prices'; did you mean 'price'"):
        quick().fit(TABLE, "prices")
    with pytest.raises(ValueError, match="names a column, but X has no named columns"):
        quick().fit(FRAME[["area"]].to_numpy(), "price")


def test_numbers_in_text_are_targets() -> None:
    text = [f"{value:.4f}".replace(".", ",") for value in PRICE]
    model = quick().fit(FRAME.assign(price=text), "price")
    expected = quick().fit(FRAME, PRICE.round(4))
    np.testing.assert_allclose(model.predict(FRAME), expected.predict(FRAME))


@pytest.mark.parametrize(
    "labels",
    [np.where(LEVEL > 2, "yes", "no"), LEVEL > 2, pd.Categorical(np.where(LEVEL > 2, "a", "b"))],
)
def test_classes_are_sent_to_the_classifier(labels: Any) -> None:
    for given in (labels, list(labels)):
        with pytest.raises(ValueError, match="Use EigenGPClassifier for classes"):
            EigenGPRegressor().fit(FRAME[["area"]], given)
    with pytest.raises(ValueError, match="Use EigenGPClassifier for classes"):
        EigenGPRegressor().fit(FRAME[["area"]].assign(label=labels), "label")


def test_files_with_text_dates_and_gaps_are_fitted_like_frames(tmp_path: Path) -> None:
    TABLE.to_csv(tmp_path / "all.csv", index=False)
    FRAME.to_parquet(tmp_path / "inputs.parquet")
    model = quick().fit(tmp_path / "all.csv", "price")
    expected = quick().fit(FRAME, PRICE).predict(FRAME)
    np.testing.assert_allclose(model.predict(tmp_path / "inputs.parquet"), expected, rtol=1e-6)
    assert model.predict_to_file(tmp_path / "inputs.parquet", tmp_path / "out.csv") == N
    assert model.feature_names_in_.tolist() == FRAME.columns.tolist()


def test_large_files_are_encoded_chunk_by_chunk(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    level = rng.integers(0, 5, 6_000)
    frame = pd.DataFrame({"x": rng.normal(size=6_000), "town": [f"t{i}" for i in level]})
    frame["y"] = frame["x"] + level
    frame.to_csv(tmp_path / "d.csv", index=False, sep=";")
    optimizer = LBFGS(n_restarts=1, max_iter=10)
    settings: Any = {"residual": None, "optimizer": optimizer, "random_state": 0}
    model = EigenGPRegressor(10, **settings).fit(tmp_path / "d.csv", "y")
    assert model.score(frame[["x", "town"]], frame["y"]) > 0.9


@pytest.mark.parametrize(
    ("texts", "inputs"),
    [(["1.234,50", "7,25", "12"], ["a", "b", "a"]), (["1.234"], ["0,5", "2,5"])],
)
def test_targets_of_files_may_be_numbers_in_text(
    texts: list[str], inputs: list[str], tmp_path: Path
) -> None:
    rows = [(inputs[i % len(inputs)], texts[i % len(texts)]) for i in range(12)]
    written = pd.DataFrame(rows, columns=["x", "price"]).convert_dtypes()
    pa.parquet.write_table(pa.Table.from_pandas(written), tmp_path / "d.parquet")
    encoder = TableEncoder().fit(written[["x"]])
    table = FileTable.of(tmp_path / "d.parquet", "price", encoder=encoder)
    y = np.concatenate([block.y for block in table.chunks()])
    known = {"1.234,50": 1234.5, "7,25": 7.25, "12": 12.0, "1.234": 1234.0}
    assert y.tolist() == [known[text] for _, text in rows]


def test_targets_in_text_may_be_missing() -> None:
    for missing in (None, np.nan, pd.NA):
        y = pd.Series(["$1,250.50", missing, "12.5%"], dtype=object)
        np.testing.assert_array_equal(read_targets([[0.0]] * 3, y), [1250.5, np.nan, 12.5])


def test_partial_fit_takes_frames() -> None:
    optimizer = LBFGS(n_restarts=1, max_iter=10)
    model = EigenGPRegressor(10, residual=None, optimizer=optimizer, random_state=0)
    model.partial_fit(FRAME[:60], PRICE[:60]).partial_fit(FRAME[60:], PRICE[60:])
    assert np.corrcoef(model.predict(FRAME), PRICE)[0, 1] > 0.8


def test_inspection_takes_frames() -> None:
    model = quick().fit(FRAME, PRICE)
    assert inspection.slice_at(model, FRAME, "garden").grid.tolist() == [0.0, 1.0]
    effect = inspection.partial_dependence(model, FRAME, "area", values=[-1.0, 1.0])
    assert effect.mean[1] > effect.mean[0] + 1.0
    with pytest.raises(ValueError, match="'town' is not one number"):
        inspection.partial_dependence(model, FRAME, "town")


def test_columns_of_odd_types_are_named() -> None:
    with pytest.raises(TableError, match=r"not supported: both \(list"):
        quick().fit(pd.DataFrame({"both": [[1]] * 3 + [[2]], "x": range(4)}), range(4))


@pytest.mark.parametrize(
    "kind", [pl.Categorical, pl.Enum([f"t{i}" for i in range(8)])], ids=["categorical", "enum"]
)
def test_categories_of_polars_are_text(kind: Any) -> None:
    town = pl.Series("town", [f"t{i % 4}" for i in range(30)] + [None])
    frame, text = pl.DataFrame({"town": town.cast(kind)}), pl.DataFrame({"town": town})
    encoder = TableEncoder().fit(frame)
    assert np.array_equal(encoder.transform(frame), TableEncoder().fit_transform(text))


def test_periods_of_pandas_are_dates() -> None:
    months = pd.period_range("2020-01", periods=30, freq="M")
    both = [
        TableEncoder().fit_transform(pd.DataFrame({"month": each}))
        for each in (months, months.to_timestamp())
    ]
    assert np.array_equal(*both)


def test_columns_that_cannot_be_read_are_named() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "phase": [1j, 2.0]})
    with pytest.raises(TableError, match="Column 'phase' cannot be read"):
        TableEncoder().fit(frame)


def test_missing_values_in_arrays_are_an_error_that_names_the_frame() -> None:
    X = np.array([[1.0, np.nan], [2.0, 3.0], [3.0, 1.0]])
    with pytest.raises(ValueError, match=r"Input X contains NaN. Pass a frame"):
        quick().fit(X, [1.0, 2.0, 3.0])
    quick().fit(pd.DataFrame(X), [1.0, 2.0, 3.0])


def test_targets_to_transform_are_taken_by_name() -> None:
    y = np.exp(PRICE)
    model = quick(likelihood=Gaussian(transform="log"))
    one = clone(model).fit(FRAME.assign(price=y), "price")
    other = clone(model).fit(FRAME, y)
    assert np.array_equal(one.predict(FRAME), other.predict(FRAME))


def test_a_fit_that_ends_early_names_the_parameter() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with pytest.warns(FitWarning, match="raise max_time"):
            EigenGPRegressor(max_time=0.05, random_state=0).fit(X, X[:, 0])


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
@pytest.mark.parametrize("mixed", [True, False])
def test_frames_may_have_rows_without_a_label(make: Any, mixed: bool) -> None:
    x, town = RNG.normal(size=40), [f"t{i % 3}" for i in range(40)]
    inputs = {"x": x, "town": town} if mixed else {"x": x, "z": x**2}
    label = [None if i % 5 == 0 else "high" if x[i] > 0.0 else "low" for i in range(40)]
    settings: dict[str, Any] = {"optimizer": LBFGS(max_iter=3), "random_state": 0}
    model = EigenGPClassifier(8, kernel="matern52", **settings)
    model.fit(make({**inputs, "label": label}), "label")
    assert model.classes_.tolist() == ["high", "low"]
    assert list(model.feature_names_in_) == list(inputs)
    assert np.mean(model.predict(make(inputs)) == np.where(x > 0.0, "high", "low")) > 0.9
    y = np.where(np.arange(40) % 5 == 0, np.nan, x)
    number = EigenGPRegressor(8, **settings).fit(make({**inputs, "y": y}), "y")
    assert list(number.feature_names_in_) == list(inputs)
    for fitted in (model, number):
        assert fitted.selection_["unlabelled"].chosen == "8 rows"


def test_numeric_targets_of_two_values_name_the_classifier() -> None:
    X = np.random.default_rng(0).normal(size=(120, 1))
    y = np.where(X[:, 0] > 0.0, 1.0, 0.0)
    with pytest.warns(FitWarning, match="EigenGPClassifier predicts their probabilities"):
        quick().fit(X, y)
    with pytest.warns(FitWarning, match="two distinct values"):
        quick().fit(pd.DataFrame({"x": X[:, 0], "y": y.astype(int)}), "y")
    for labels in (pd.Series(y), pl.Series(y), y.astype(int).tolist()):
        with pytest.warns(FitWarning, match="two distinct values"):
            quick().fit(X, labels)
    quick().fit(X, y + 0.001 * X[:, 0])
    quick().fit(X[:60], y[:60])
    EigenGPRegressor(4, likelihood="poisson", optimizer=LBFGS(max_iter=1)).fit(X, y)


@pytest.mark.parametrize(
    ("fit", "said"),
    [
        (lambda: quick().fit(TABLE, "sold"), "y holds dates or times"),
        (lambda: quick().fit(pl.from_pandas(TABLE), "sold"), "y holds dates or times"),
        (lambda: quick().fit(FRAME[["area"]], [d.date() for d in FRAME["sold"]]), "y holds dates"),
        (lambda: quick().fit(TABLE[["price"]], "price"), "X has no columns beside 'price'"),
        (lambda: quick().fit(dict(TABLE), "price"), r"X is a mapping; pass a frame"),
        (lambda: quick().fit(TABLE[:1], "price"), "The table has only one row"),
        (
            lambda: quick().fit(FRAME.drop(columns="sold").to_numpy(), PRICE),
            "could not convert string to float: 't.'. Pass a frame",
        ),
    ],
)
def test_what_cannot_be_fitted_is_refused_with_a_reason(fit: Any, said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        fit()
