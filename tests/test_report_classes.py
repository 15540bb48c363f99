"""The page about a classifier says what the model predicts, and works in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from scipy.special import expit
from sklearn.calibration import calibration_curve
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss, recall_score
from typer.testing import CliRunner

from browsing import PHONE, WIDE, Opened, drawn
from eigengp import LBFGS, EigenGPClassifier, inspection, io
from eigengp._typing import Array
from eigengp.cli.app import app
from eigengp.cli.report import Rows, build
from eigengp.cli.report.effects import compute_partial_dependence, predict_band
from eigengp.cli.report.page import collect
from houses import EVIL
from test_report import Page, floats

TOWNS = (EVIL, "<b>Hull</b>", "York")


def draw_rows(n: int, n_classes: int) -> tuple[Array, Any]:
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 3))
    f = np.stack([2.0 * X[:, 0], np.sin(2.0 * X[:, 1]), np.zeros(n)], axis=1)[:, -n_classes:]
    y = np.argmax(f + 0.3 * rng.normal(size=f.shape), axis=1)
    return X, np.array(TOWNS[:n_classes])[y]


@cache
def fitted(n_classes: int) -> tuple[Any, Array, Any]:
    X, y = draw_rows(120, n_classes)
    optimizer = LBFGS(max_iter=4)
    model = EigenGPClassifier(
        12, kernel="squared_exponential", residual=None, optimizer=optimizer, random_state=0
    )
    return model.fit(X, y), X, y


@cache
def content(n_classes: int) -> dict[str, Any]:
    model, *_ = fitted(n_classes)
    X, y = draw_rows(150, n_classes)
    return collect(model, Rows.from_arrays(model, X, y, "town"), 0.9)


@cache
def page(n_classes: int) -> Page:
    model, X, y = fitted(n_classes)
    return Page(build(model, Rows.from_arrays(model, X, y, "town")))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_scores_and_mistakes_are_those_of_scikit_learn(n_classes: int) -> None:
    model, *_ = fitted(n_classes)
    X, y = draw_rows(150, n_classes)
    own, p, guess = content(n_classes), model.predict_proba(X), model.predict(X)
    assert own["scores"]["accuracy"] == pytest.approx(accuracy_score(y, guess))
    assert own["scores"]["log_loss"] == pytest.approx(log_loss(y, p, labels=model.classes_))
    np.testing.assert_array_equal(own["found"].confusion, confusion_matrix(y, guess))
    recall = [each[2] for each in own["found"].table]
    np.testing.assert_allclose(recall, recall_score(y, guess, average=None))
    heat = own["drawn"]["confusion"]["data"][0]
    assert heat["text"] == confusion_matrix(y, guess).tolist()
    np.testing.assert_allclose(np.diag(heat["z"]), recall)


def test_calibration_is_that_of_scikit_learn() -> None:
    model, *_ = fitted(2)
    X, y = draw_rows(150, 2)
    p = model.predict_proba(X)[:, 1]
    (choice,) = content(2)["drawn"]["calibration"]["choices"]
    share, mean = calibration_curve(y == model.classes_[1], p, n_bins=10)
    measured = choice["data"][2]
    np.testing.assert_allclose(measured["x"], mean)
    np.testing.assert_allclose(measured["y"], share)
    (counts,) = content(2)["drawn"]["counts"]["choices"]
    assert counts["data"][0]["y"].sum() == 150


def test_histograms_count_the_rows_of_each_class() -> None:
    X, y = draw_rows(150, 3)
    choices = content(3)["drawn"]["probabilities"]["choices"]
    classes = fitted(3)[0].classes_
    assert [each["label"] for each in choices] == classes.tolist()
    for choice, name in zip(choices, classes, strict=True):
        own, others = (trace["y"].sum() for trace in choice["data"])
        assert (own, others) == (np.sum(y == name), np.sum(y != name))
    assert X.shape[0] == 150


def test_bands_hold_the_latent_function_or_its_draws() -> None:
    model, X, _ = fitted(2)
    p, lower, upper = predict_band(model, X, 0.9)
    np.testing.assert_allclose(p, model.predict_proba(X))
    mean, variance = model._by_blocks(model._posterior.latent, X)
    np.testing.assert_allclose(lower[:, 1], expit(mean[:, 0] - 1.6448536 * np.sqrt(variance[:, 0])))
    np.testing.assert_allclose(lower[:, 0], 1.0 - upper[:, 1])
    model, X, _ = fitted(3)
    p, lower, upper = predict_band(model, X, 0.9)
    inside = (lower <= p) & (p <= upper)
    assert inside.mean() > 0.95
    assert np.all(lower < upper)


def test_effects_are_averages_of_probabilities() -> None:
    model, X, y = fitted(3)
    rows = Rows.from_arrays(model, X, y, "town")
    (effect,) = compute_partial_dependence(model, rows, rows.inputs[1:2], 0.9, range(3))
    points = X.copy()
    points[:, 1] = effect.grid[5]
    np.testing.assert_allclose(effect.mean[:, 5], model.predict_proba(points).mean(axis=0))
    traces = content(3)["drawn"]["effect-0"]["data"]
    assert len(traces) == 3
    assert [trace["mode"] for trace in content(2)["drawn"]["effect-0"]["data"]] == ["lines"] * 2


@pytest.mark.parametrize("n_classes", [2, 3])
def test_sliders_show_the_probability_there(n_classes: int) -> None:
    model, *_ = fitted(n_classes)
    first, *others = content(n_classes)["explorer"]
    axis = content(n_classes)["drawn"]["explorer"]["axes"][0]
    X, y = draw_rows(150, n_classes)
    point = Rows.from_arrays(model, X, y, "town").typical
    for each in others:
        point = each.input.set_values(point, each.positions[-1])
    points = first.input.set_values(np.tile(point, (first.grid.size, 1)), first.grid)
    last = slice(-first.grid.size, None)  # Of the last class, with all sliders at their end.
    np.testing.assert_allclose(floats(axis["mean"])[last], model.predict_proba(points)[:, -1], 1e-5)
    assert np.all(floats(axis["lower"]) <= floats(axis["upper"]))


def test_the_map_is_of_the_two_most_important_inputs() -> None:
    model, X, y = fitted(2)
    rows = Rows.from_arrays(model, X, y, "town")
    found = collect(model, rows, 0.9)
    first, second = (each.input for each in found["importance"][:2])
    heat = found["drawn"]["map"]["choices"][0]["data"][0]
    point = first.set_values(rows.typical, heat["x"][3])
    point = second.set_values(point, heat["y"][7])
    np.testing.assert_allclose(heat["z"][7, 3], model.predict_proba(point[None])[0, 1])


def test_a_model_of_one_input_has_no_map() -> None:
    X, y = draw_rows(60, 2)
    settings: dict[str, Any] = {"kernel": "squared_exponential", "random_state": 0}
    model = EigenGPClassifier(6, optimizer=LBFGS(max_iter=1), **settings).fit(X[:, :1], y)
    html = build(model, Rows.from_arrays(model, X[:, :1], y))
    assert "Two inputs at once" not in html


@pytest.mark.parametrize("n_classes", [2, 3])
def test_names_of_classes_are_plain_text(n_classes: int) -> None:
    own = page(n_classes)
    assert not any(text.startswith("window.broken") for text in own.texts["script"])
    assert len([tag for tag, _ in own.tags if tag == "script"]) == 3
    assert not any(tag == "b" for tag, attrs in own.tags if "Hull" in str(attrs))
    ticks = own.figures["confusion"]["layout"]["yaxis"]["ticktext"]
    assert all("<" not in each for each in ticks)
    assert EVIL in own.texts["th"]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_all_figures_have_a_place_and_sections_are_those_of_classes(n_classes: int) -> None:
    own = page(n_classes)
    ids = {attrs.get("id") for _, attrs in own.tags}
    assert {f"figure-{name}" for name in own.figures} <= ids
    assert {"confusion", "probabilities", "calibration", "counts", "map"} <= set(own.figures)
    assert ("kind" in ids) == (n_classes == 3)
    assert "eigenfunctions" not in ids


def test_many_classes_show_the_most_frequent() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(160, 2))
    y = np.concatenate([np.arange(9), rng.integers(0, 6, 151)])
    optimizer = LBFGS(max_iter=1)
    model = EigenGPClassifier(
        8, kernel="squared_exponential", optimizer=optimizer, random_state=0
    ).fit(X, y)
    found = collect(model, Rows.from_arrays(model, X, y), 0.9)
    assert found["kinds"] == list("012345")
    assert len(found["drawn"]["calibration"]["choices"]) == 7
    assert "the 6 most frequent" in build(model, Rows.from_arrays(model, X, y))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_command_line_serves_labels_of_text(tmp_path: Path, n_classes: int) -> None:
    X, y = draw_rows(120, n_classes)
    columns = {**dict(zip("abc", X.T, strict=True)), "town": np.array(list("xyz"))[:n_classes]}
    columns["town"] = columns["town"][np.searchsorted(np.unique(y), y)]
    data, model, html = tmp_path / "d.csv", tmp_path / "m.eigengp", tmp_path / "page.html"
    pacsv.write_csv(pa.table(columns), data)

    def call(*arguments: object) -> str:
        result = CliRunner().invoke(app, list(map(str, arguments)))
        assert result.exit_code == 0, result.output
        return result.output

    asked = (
        "--components",
        10,
        "--kernel",
        "squared_exponential",
        "--report",
        html,
        "--holdout",
        0.2,
    )
    assert "by classification" in call("fit", data, "--target", "town", "-o", model, *asked)
    html.unlink()
    call("report", model, data, "-o", html)
    sections = re.findall('<section id="([a-z]+)"', html.read_text())
    assert sections == ["data", "fit", "calibration", "inputs", "slices", "convergence", "model"]
    assert "model.predict_proba(X)" in html.read_text()
    assert "Classes" in call("inspect", model)
    predicted = call("predict", model, data, "--json")
    assert all(f"probability_{name}" in predicted for name in "xyz"[:n_classes])
    with inspection.plain_inputs():
        p = io.load(model).predict_proba(X)
    scores = inspection.class_scores(columns["town"], p, list("xyz")[:n_classes])
    assert f"{scores['accuracy']:.1%}" in call("evaluate", model, data)


@pytest.fixture(scope="module")
def opened(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    model, X, y = fitted(3)
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(build(model, Rows.from_arrays(model, X, y, "town")))
    with drawn(browser, path, WIDE, color_scheme="light") as opened:
        yield opened


def test_a_browser_draws_every_figure_without_complaint(opened: Opened) -> None:
    places = opened.tab.locator(".plot").all()
    assert len(places) == len(page(3).figures)
    for place in places:
        assert place.locator("svg.main-svg").count() >= 1
    harmless = "Too many auto-margin redraws"
    assert [each for each in opened.complaints if harmless not in each] == []
    shade = "document.getElementById('figure-confusion').data[0].colorscale[1][1]"
    assert opened.tab.evaluate(shade).startswith("rgb")


def test_menus_choose_the_class(opened: Opened) -> None:
    curve = "[...document.getElementById('figure-explorer').data[1].y]"
    before = opened.tab.evaluate(curve)
    opened.tab.locator("#kind").select_option("2")
    after = opened.tab.evaluate(curve)
    assert max(abs(a - b) for a, b in zip(before, after, strict=True)) > 0.05
    bars = "document.getElementById('figure-probabilities').data[0].name"
    first = opened.tab.evaluate(bars)
    opened.tab.locator("select[data-figure=probabilities]").select_option("1")
    assert opened.tab.evaluate(bars) != first


def test_nothing_is_wider_than_a_phone(opened: Opened) -> None:
    opened.tab.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    opened.tab.wait_for_timeout(500)
    assert opened.tab.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
