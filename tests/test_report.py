"""What a report says is what the library's functions say, and nothing on the page breaks it."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import root_mean_squared_error
from typer.testing import CliRunner

from eigengp import LBFGS, EigenGPRegressor, ExactGPRegressor, inspection, io, metrics
from eigengp._atomic import write_atomically
from eigengp._format import format_number
from eigengp._typing import Array
from eigengp.cli import report
from eigengp.cli.app import app
from eigengp.cli.commands.evaluate import compute_scores
from eigengp.cli.report import Rows, build, write
from eigengp.cli.report.effects import (
    compute_partial_dependence,
    compute_slices,
    rank_inputs,
)
from eigengp.cli.report.figures import (
    _band,
    draw_partial_dependence,
    draw_slices,
    encode,
    escape,
    panel,
)
from eigengp.cli.report.page import are_training_rows, collect
from eigengp.cli.tables import TableSchema
from eigengp.data.frames import encoded_inputs
from houses import EVIL, TOWNS, fitted, table
from test_methods import METHODS, WITH_OPTIMIZER

quiet_methods = pytest.mark.filterwarnings(
    "ignore::eigengp.NegativeVarianceWarning",
    "ignore:The relevance vector machine has not converged",
)


@pytest.fixture(autouse=True)
def _take_encoded_rows() -> Iterator[None]:
    """The rows of a page are encoded already."""
    with encoded_inputs():
        yield


class Page(HTMLParser):
    """The tags, tables and scripts of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open.append(tag)
        if tag in ("th", "td", "script", "option", "h1", "title"):
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in self.texts:
            self.texts[self._open[-1]][-1] += data

    @property
    def figures(self) -> Any:
        (text,) = [each for each in self.texts["script"] if each.startswith("{")]
        return json.loads(text, parse_constant=lambda name: pytest.fail(name))


def floats(spec: Any) -> Array:
    spec = encode(spec) if isinstance(spec, np.ndarray) else spec
    return np.frombuffer(base64.b64decode(spec["bdata"]), dtype=spec["dtype"]).astype(float)


@cache
def houses() -> tuple[Any, Any, Rows]:
    return fitted(table())


@cache
def content() -> dict[str, Any]:
    model, schema, rows = houses()
    return collect(model, rows, 0.9, {"ignored": schema.ignored})


@cache
def page() -> Page:
    model, _, rows = houses()
    return Page(build(model, rows))


def quick(n_components: int, *, max_iter: int, **settings: Any) -> EigenGPRegressor:
    optimizer = LBFGS(n_restarts=1, max_iter=max_iter)
    return EigenGPRegressor(n_components, optimizer=optimizer, random_state=0, **settings)


def line_model() -> tuple[EigenGPRegressor, Array, Array]:
    X = np.random.default_rng(0).uniform(-1.0, 1.0, size=(60, 3))
    y = 2.0 * X[:, 1] + 0.1 * np.sin(9.0 * X[:, 2])
    model = quick(8, max_iter=10)
    return model.fit(X, y), X, y


def test_scores_on_the_page_are_those_of_the_metrics() -> None:
    model, _, rows = houses()
    mean, std = model.predict(rows.X, return_std=True)
    expected = {
        "NMSE": metrics.nmse(rows.y, mean),
        "RMSE": root_mean_squared_error(rows.y, mean),
        "MNLP": metrics.mnlp(rows.y, mean, std),
        "CRPS": metrics.crps_gaussian(rows.y, mean, std),
        "Coverage of 90\N{NO-BREAK SPACE}%": metrics.coverage(rows.y, mean, std, level=0.9),
    }
    assert list(content()["scores"].values()) == pytest.approx(list(expected.values()))
    cells = page().texts["td"]
    assert set(expected) <= set(page().texts["th"])
    for value in expected.values():
        assert format_number(value) in cells


def test_calibration_on_the_page_is_that_of_the_library() -> None:
    model, _, rows = houses()
    mean, std = model.predict(rows.X, return_std=True)
    levels, held = metrics.coverage_curve(rows.y, mean, std)
    trace = page().figures["coverage"]["data"][1]
    np.testing.assert_allclose(floats(trace["x"]), levels)
    np.testing.assert_allclose(floats(trace["y"]), held)
    density, _ = metrics.pit_histogram(rows.y, mean, std)
    np.testing.assert_allclose(floats(page().figures["pit"]["data"][0]["y"]), density)
    assert content()["sharpness"] == pytest.approx(metrics.sharpness(std))


def test_names_of_columns_can_neither_add_tags_nor_end_a_script() -> None:
    assert not any(text.startswith("window.broken") for text in page().texts["script"])
    assert len([tag for tag, _ in page().tags if tag == "script"]) == 3
    assert not any(tag == "i" for tag, _ in page().tags)
    assert EVIL in page().texts["th"]
    assert EVIL in page().texts["option"]
    model, _, rows = houses()
    raw = build(model, rows, title="{{ 7 * 7 }} <img src=x onerror=alert(1)>")
    assert EVIL not in raw
    assert "<img" not in raw.partition("<script")[0]
    assert "{{ 7 * 7 }} &lt;img" in raw


def test_plotly_is_given_names_as_plain_texts() -> None:
    figures = page().figures
    choices = figures["residuals"]["choices"]
    assert EVIL in [each["label"] for each in choices]
    titles = [each["layout"]["xaxis"]["title"]["text"] for each in choices]
    assert all("<" not in title for title in titles)
    (ticks,) = [each["layout"]["xaxis"]["ticktext"] for each in choices if each["label"] == "town"]
    assert ticks == [escape(each) for each in sorted(TOWNS)]
    assert ticks[0] == "&lt;b&gt;Ulm&lt;/b&gt;"


def test_the_page_asks_for_nothing_from_elsewhere() -> None:
    for _, attrs in page().tags:
        for name in ("src", "href", "action", "srcset", "data", "poster"):
            target = attrs.get(name)
            assert target is None or target.startswith(("#", "data:"))
    (policy,) = [a["content"] for _, a in page().tags if a.get("http-equiv")]
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy


def test_sliders_show_what_the_model_predicts_there() -> None:
    model, _, rows = houses()
    first, *others = found = content()["explorer"]
    names = [each.input.name for each in content()["importance"][:4]]
    assert [each.input.name for each in found] == names
    (axis, *_), along = draw_slices(found, "price", "prediction", 0.9)["axes"], first
    at = tuple(each.positions.size - 1 - (place == 0) for place, each in enumerate(others))
    point = rows.typical
    for each, position in zip(others, at, strict=True):
        point = each.input.set_values(point, each.positions[position])
    points = first.input.set_values(np.tile(point, (along.grid.size, 1)), along.grid)
    lower, upper = model.predict_interval(points, 0.9)
    sizes = axis["sizes"]
    assert sizes == [*(each.positions.size for each in others), along.grid.size]
    start = np.ravel_multi_index(at, sizes[:-1]) * sizes[-1]
    curve = slice(start, start + sizes[-1])
    tolerance = {"rtol": 1e-5, "atol": 1e-4}
    np.testing.assert_allclose(floats(axis["mean"])[curve], (lower + upper) / 2, **tolerance)
    np.testing.assert_allclose(floats(axis["lower"])[curve], lower, **tolerance)
    np.testing.assert_allclose(floats(axis["upper"])[curve], upper, **tolerance)


def test_importance_orders_inputs_by_what_they_do() -> None:
    model, X, y = line_model()
    found = rank_inputs(model, Rows.from_arrays(model, X, y))
    assert [each.input.name for each in found] == ["x1", "x2", "x0"]
    assert found[0].effect > 10.0 * found[1].effect
    assert [each.effect for each in found] == pytest.approx(
        [model.input_effects()[d] for d in (1, 2, 0)], abs=0.1
    )
    relevance = model.input_relevance()
    assert [each.relevance for each in found] == pytest.approx([*relevance[[1, 2]], relevance[0]])


def test_categories_are_shuffled_and_set_as_one_input() -> None:
    model, _, rows = houses()
    names = [each.input.name for each in content()["importance"]]
    assert sorted(names) == sorted([EVIL, "rooms", "town", "garden"])
    (town,) = [each for each in rows.inputs if each.name == "town"]
    (effect,) = compute_partial_dependence(model, rows, [town], 0.9)
    few = rows.X
    expected = [model.predict(town.set_values(few, np.float64(place))).mean() for place in range(3)]
    np.testing.assert_allclose(effect.mean, expected)
    assert np.all(effect.upper > effect.mean)


def test_a_number_that_is_set_is_not_missing() -> None:
    model, _, rows = houses()
    (area,) = [each for each in rows.inputs if each.name == EVIL]
    (effect,) = compute_partial_dependence(model, rows, [area], 0.9)
    points = rows.X.copy()
    points[:, list(area.features)] = effect.grid[3], 0.0
    assert effect.mean[3] == pytest.approx(model.predict(points).mean())


def test_accumulated_effects_are_drawn_beside_partial_dependence() -> None:
    model, X, y = line_model()
    rows = Rows.from_arrays(model, X, y)
    (effect,) = compute_partial_dependence(model, rows, [rows.inputs[1]], 0.9)
    expected = inspection.accumulated_effects(model, X, 1)
    assert effect.accumulated is not None
    np.testing.assert_allclose(effect.accumulated.mean, expected.mean)
    traces = draw_partial_dependence([effect])["effect-0"]["data"]
    assert [trace["line"]["dash"] for trace in traces] == ["solid", "solid", "dot"]


def test_dates_are_set_and_shown_as_dates() -> None:
    days = np.datetime64("2021-01-01") + np.arange(0, 900, 9)
    columns = {"when": [None, *days[1:].astype(object)], "price": np.arange(100.0)}
    schema = TableSchema.learn(columns, "price")
    rows = Rows.from_table(columns, schema)
    (when,) = rows.inputs
    values = when.get_values(rows.X)
    assert np.isnan(values[0])
    np.testing.assert_allclose(values[1:], days[1:].astype("datetime64[ms]").astype(float), atol=1)
    np.testing.assert_allclose(when.set_values(rows.X, values), rows.X, atol=1e-6)
    assert when.format_value(values[5] + 1.0) == str(days[5])
    with encoded_inputs(schema.encoder):
        model = quick(5, max_iter=2).fit(rows.X, rows.y)
    explorer = compute_slices(model, rows, rows.inputs, 0.9)
    assert (
        draw_slices(explorer, "price", "prediction", 0.9)["axes"][0]["layout"]["xaxis"]["type"]
        == "date"
    )


def test_curves_along_dates_show_the_seasons_that_they_can() -> None:
    days = np.datetime64("2015-01-01") + np.arange(1_200)
    columns = {"when": days.astype(object).tolist(), "price": np.arange(1_200.0)}
    rows = Rows.from_table(columns, TableSchema.learn(columns, "price"))
    (when,) = rows.inputs
    assert when.column.periods == ("year", "week")
    steps = np.diff(when.make_grid(rows.X, 25)) / 86_400_000.0
    np.testing.assert_allclose(steps, 14.0)  # Whole weeks, and 26 points in a year.


def test_many_categories_have_few_names_at_the_axis_and_all_where_the_mouse_is() -> None:
    names = [f"t{i:02}" for i in range(45)]
    columns = {"town": names * 4, "price": [float(i) for i in range(180)]}
    rows = Rows.from_table(columns, TableSchema.learn(columns, "price"))
    (town,) = rows.inputs
    grid = town.make_grid(rows.X, 25)
    figure = panel(_band(town, grid, grid, grid, grid), "town", "price", town)
    assert figure["layout"]["xaxis"]["ticktext"] == names[::4]
    assert figure["data"][0]["text"] == names


def test_years_have_no_comma() -> None:
    columns = {"built": [1950.0, 2001.0, 1988.0], "price": [1.0, 2.0, 3.0]}
    (built,) = Rows.from_table(columns, TableSchema.learn(columns, "price")).inputs
    assert [built.format_value(each) for each in (1950.0, 23_456.0)] == ["1950", "23,456"]


def test_values_of_an_input_come_back_unknown_categories_included() -> None:
    _, schema, _ = houses()
    houses_ = table(40, seed=1)
    strange = houses_.set_column(2, "town", [["Atlantis", *houses_["town"].to_pylist()[1:]]])
    with pytest.warns(UserWarning, match="Atlantis"):
        rows = Rows.from_table(strange, schema)
    again = np.zeros_like(rows.X)
    for each in rows.inputs:
        again = each.set_values(again, each.get_values(rows.X))
    np.testing.assert_array_equal(again, rows.X)
    (town,) = [each for each in rows.inputs if each.name == "town"]
    assert town.format_value(town.get_values(rows.X)[0]) == "unknown"


def test_missing_values_are_values_of_their_input() -> None:
    columns = {
        "size": [1.0, None, 3.0, 7.0],
        "town": ["Ulm", "Bonn", None, "Ulm"],
        "new": [True, True, False, None],
        "price": [1.0, 2.0, 3.0, 4.0],
    }
    schema = TableSchema.learn(columns, "price")
    rows = Rows.from_table(columns, schema)
    size, town, new = rows.inputs
    np.testing.assert_array_equal(size.get_values(rows.X), [1.0, np.nan, 3.0, 7.0])
    assert [town.format_value(each) for each in town.get_values(rows.X)] == [
        "Ulm",
        "Bonn",
        "missing",
        "Ulm",
    ]
    assert [new.format_value(each) for each in new.get_values(rows.X)] == [
        "true",
        "true",
        "false",
        "missing",
    ]
    again = np.full_like(rows.X, -1.0)
    for each in rows.inputs:
        again = each.set_values(again, each.get_values(rows.X))
    np.testing.assert_array_equal(again, rows.X)
    assert (size.get_typical(rows.X), size.column.fill) == (3.0, 3.0)
    np.testing.assert_array_equal(rows.typical[list(size.features)], [3.0, 0.0])


def test_columns_are_summarised_as_they_were_given() -> None:
    gaps, rooms, town, garden, price = content()["rows"].columns
    assert gaps["missing"] == table()[EVIL].null_count > 0
    assert (rooms["kind"], rooms["distinct"], rooms["min"], rooms["max"]) == ("number", 5, 1.0, 5.0)
    assert town["kind"] == "category"
    assert sum(town["counts"].values()) == 150
    assert (garden["kind"], garden["distinct"]) == ("flag", 2)
    assert price["missing"] == 0


def test_training_rows_are_recognised() -> None:
    model, X, y = line_model()

    def recognised(rows: Any) -> bool:
        return are_training_rows(model, Rows.from_arrays(model, X[rows], y[rows]))

    assert recognised(slice(None))
    assert recognised(np.random.default_rng(0).permutation(60))
    assert not recognised(slice(40))


def test_a_weighted_table_is_recognised_and_scored_as_evaluate_does() -> None:
    houses_ = table(60).append_column("weight", [np.linspace(0.5, 2.0, 60)])
    target = houses_.column_names[4]
    schema = TableSchema.learn(houses_, target, weights="weight")
    rows = Rows.from_table(houses_, schema)
    with encoded_inputs(schema.encoder):
        model = quick(5, max_iter=2).fit(rows.X, rows.y, sample_weight=rows.weight)
    assert are_training_rows(model, rows)
    expected = compute_scores(model, (rows.X, rows.y, rows.weight), 0.9)
    assert collect(model, rows, 0.9)["scores"] == pytest.approx(expected)


@quiet_methods
@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_report_and_only_eigengp_has_eigenfunctions(name: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(50, 2))
    model = clone(METHODS[name])
    settings = {"optimizer": LBFGS(n_restarts=1, max_iter=3)} if name in WITH_OPTIMIZER else {}
    model.set_params(**settings).fit(X, np.sin(X[:, 0]) + X[:, 1])
    html = build(model, Rows.from_arrays(model, X, np.sin(X[:, 0]) + X[:, 1]))
    ids = re.findall('<section id="([a-z]+)"', html)
    assert ("eigenfunctions" in ids) == (name == "EigenGP")
    assert len(ids) == 7 + (name == "EigenGP")
    assert f"<td>{type(model).__name__}</td>" in html


def test_the_exact_model_of_the_default_has_a_report() -> None:
    X = np.linspace(0.0, 6.0, 30)[:, None]
    optimizer = LBFGS(max_iter=3)
    model = EigenGPRegressor(optimizer=optimizer, random_state=0).fit(X, np.sin(X[:, 0]))
    html = build(model, Rows.from_arrays(model, X, np.sin(X[:, 0])))
    assert "eigenfunctions" not in re.findall('<section id="([a-z]+)"', html)


def test_one_input_has_one_curve() -> None:
    X = np.linspace(0.0, 6.0, 50)[:, None]
    model = quick(5, max_iter=5).fit(X, np.sin(X[:, 0]))
    found = Page(build(model, Rows.from_arrays(model, X, np.sin(X[:, 0])))).figures
    assert len(found["curves"]["choices"]) == 1
    assert found["explorer"]["axes"][0]["sizes"] == [41]


def test_many_rows_are_scored_but_a_sample_is_drawn() -> None:
    model, _, _ = line_model()
    X = np.random.default_rng(1).uniform(-1.0, 1.0, size=(2_500, 3))
    y = 2.0 * X[:, 1]
    found = collect(model, Rows.from_arrays(model, X, y), 0.9)
    assert found["shown"].size == np.unique(found["shown"]).size == 2_000
    assert found["scores"]["rmse"] == pytest.approx(root_mean_squared_error(y, model.predict(X)))
    assert "2,000 rows drawn at random" in build(model, Rows.from_arrays(model, X, y))


def test_calibrated_intervals_are_the_bands() -> None:
    model, X, y = line_model()
    rows = Rows.from_arrays(model, X, y, None)

    def measure() -> Array:
        first = compute_slices(model, rows, rows.inputs, 0.9)[0]
        return 0.5 * (first.upper - first.lower)

    plain_half = measure()
    model.calibrate(X, y + 1.0)
    wide = measure()
    np.testing.assert_allclose(wide / plain_half, (wide / plain_half).flat[0])
    assert wide.flat[0] > 2.0 * plain_half.flat[0]
    lower, upper = model.predict_interval(X, 0.9)
    held = collect(model, rows, 0.9)["scores"]["coverage"]
    assert held == pytest.approx(np.mean((lower <= y) & (y <= upper)))


def test_targets_that_are_all_the_same_leave_nmse_out() -> None:
    model, X, _ = line_model()
    rows = Rows.from_arrays(model, X, np.full(len(X), 2.0), None)
    assert collect(model, rows, 0.9)["scores"]["nmse"] is None
    assert "not defined: all targets are equal" in build(model, rows)


def test_a_model_without_history_says_so() -> None:
    _, X, y = line_model()
    model = quick(5, max_iter=0).fit(X, y)
    html = build(model, Rows.from_arrays(model, X, y))
    assert "has no history" in html
    assert "history" not in Page(html).figures


def test_numbers_keep_their_digits() -> None:
    values = np.array([1.7e9 + 0.25, -1.0, 0.0, 3.5])
    np.testing.assert_array_equal(floats(encode(values)), values)


def test_all_figures_have_a_place_on_the_page() -> None:
    ids = {attrs.get("id") for _, attrs in page().tags}
    assert {f"figure-{name}" for name in content()["drawn"]} <= ids
    for tag, attrs in page().tags:
        if "plot" in (attrs.get("class") or "").split():
            assert tag == "div"
            assert attrs["role"] == "img"
            assert attrs["aria-label"]


def test_a_page_is_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, X, y = line_model()
    path = write(model, X, y, tmp_path / "page.html", target="height", title="Heights")
    assert Page(path.read_text()).texts["h1"] == ["Heights"]

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, b"")
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]
    assert path.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_with_text_and_dates_have_a_page(library: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = {
        "area": rng.uniform(size=40),
        "town": rng.choice(["Hull", "York"], 40),
        "day": np.datetime64("2024-01-01", "ns") + np.arange(40) * np.timedelta64(3, "D"),
    }
    frame = pytest.importorskip(library).DataFrame(columns)
    y = columns["area"] + (columns["town"] == "York")
    model = ExactGPRegressor(optimizer=LBFGS(n_restarts=1, max_iter=2)).fit(frame, y)
    with encoded_inputs(False):
        page = Page(write(model, frame, y, tmp_path / "page.html").read_text())
        with pytest.raises(ValueError, match="'area' is an input"):
            write(model, frame, y, tmp_path / "page.html", target="area")
    assert {"town", "day"} <= set(page.texts["option"])


def test_without_plotly_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    model, X, y = line_model()
    with pytest.raises(ImportError, match=r"eigengp\[report\]"):
        report.build(model, Rows.from_arrays(model, X, y))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a saved model and its table."""
    import pyarrow.parquet as pq

    path = tmp_path_factory.mktemp("report")
    model, schema, _ = houses()
    about = {"schema": schema.to_dict(), "data": {"rows": 150, "held_out": 0}}
    io.save(model, path / "houses.eigengp", about=about)
    pq.write_table(table(), path / "houses.parquet")
    return path


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_the_command_writes_the_page_of_a_saved_model(folder: Path) -> None:
    out = folder / "houses.html"
    result = run(folder / "houses.eigengp", folder / "houses.parquet", "--out", out, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"page": str(out), "rows": 150, "notes": []}
    html = out.read_text()
    assert "These are training rows" in html
    assert "eigengp.load(&#39;houses.eigengp&#39;)" in html
    assert "eigengp predict houses.eigengp new.csv" in html


def test_the_command_says_what_is_wrong(folder: Path) -> None:
    model, data = folder / "houses.eigengp", folder / "houses.parquet"
    wrong = run(model, data, "--out", folder / "page.pdf")
    assert (wrong.exit_code, "must end in .html" in wrong.stderr) == (1, True)
    assert run(model, data, "--coverage", "90").exit_code == 2
