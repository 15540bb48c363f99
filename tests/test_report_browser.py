"""A browser works the report: sliders, menus and themes, by mouse and by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browsing import PHONE, WIDE, Opened, drawn, scroll_to, shown
from eigengp.cli.report import build
from houses import EVIL, fitted, table

CURVE = "[...document.getElementById('figure-explorer').data[1].y]"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
INK = "document.getElementById('figure-predicted').layout.font.color"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model, _, rows = fitted(table(60))
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(build(model, rows))
    return path


@pytest.fixture(scope="module")
def opened(browser: Any, written: Path) -> Iterator[Opened]:
    with drawn(browser, written, WIDE, color_scheme="light") as opened:
        yield opened


def settle(opened: Opened) -> None:
    """Wait until the browser has drawn what was asked for."""
    opened.tab.evaluate(
        """new Promise(done => { requestAnimationFrame(() => setTimeout(done, 0));
          setTimeout(done, 500); })"""
    )


def until(opened: Opened, holds: str) -> None:
    """Wait until something holds; the page forbids what Playwright would do for it."""
    for _ in range(200):
        if opened.tab.evaluate(holds):
            return
        opened.tab.wait_for_timeout(25)
    pytest.fail(f"{holds} did not come true")


def title(opened: Opened, name: str) -> str:
    return opened.tab.evaluate(f"document.getElementById('figure-{name}').layout.xaxis.title.text")


def test_every_figure_is_drawn(opened: Opened) -> None:
    places = opened.tab.locator(".plot").all()
    assert len(places) >= 12
    for place in places:
        assert place.locator("svg.main-svg").count() >= 1
        assert place.bounding_box()["height"] >= 200


def test_a_slider_moves_the_curve_by_mouse_and_keyboard(opened: Opened) -> None:
    slider = opened.tab.locator("#slider-1")
    for _ in range(20):  # Figures that are still drawn move it.
        scroll_to(slider)
        slider.click(position={"x": 2, "y": 10}, force=True)
        settle(opened)
        if slider.input_value() == "0":
            break
    assert slider.input_value() == "0"
    before = opened.tab.evaluate(CURVE)
    words = opened.tab.locator("#slice-words").inner_text()
    said = slider.get_attribute("aria-valuetext")
    opened.tab.keyboard.press("ArrowRight")
    opened.tab.keyboard.press("End")
    settle(opened)
    assert slider.input_value() == slider.get_attribute("max")
    assert slider.get_attribute("aria-valuetext") != said
    assert opened.tab.locator("[data-slider='1'] output").inner_text() == slider.get_attribute(
        "aria-valuetext"
    )
    after = opened.tab.evaluate(CURVE)
    assert max(abs(a - b) for a, b in zip(before, after, strict=True)) > 1.0
    assert opened.tab.locator("#slice-words").inner_text() != words


def test_the_curve_runs_along_the_input_that_is_chosen(opened: Opened) -> None:
    first = title(opened, "explorer")
    names = opened.tab.locator("#along option").all_inner_texts()
    assert EVIL in names
    other = names.index("rooms")
    opened.tab.locator("#along").select_option(str(other))
    settle(opened)
    assert title(opened, "explorer") == "rooms" != first
    assert opened.tab.locator(f"#slider-{other}").is_disabled()
    assert opened.tab.locator("#slider-0").is_enabled()
    category = names.index("town")
    opened.tab.locator("#along").select_option(str(category))
    settle(opened)
    trace = "document.getElementById('figure-explorer').data[0]"
    assert opened.tab.evaluate(f"[{trace}.mode, {trace}.y.length]") == ["markers", 3]
    opened.tab.locator("#along").select_option("0")


@pytest.mark.parametrize("name", ["residuals", "curves", "history"])
def test_menus_change_the_axis_of_their_figure(opened: Opened, name: str) -> None:
    before = title(opened, name)
    menu = opened.tab.locator(f"select[data-figure={name}]")
    menu.focus()
    opened.tab.keyboard.press("ArrowDown")
    settle(opened)
    assert menu.input_value() == "1"
    assert title(opened, name) != before


def test_eigenfunctions_are_those_along_the_input_that_is_chosen(opened: Opened) -> None:
    values = "document.getElementById('figure-curves').layout.xaxis.title.text"
    before = opened.tab.evaluate(values)
    opened.tab.locator("select[data-figure=curves]").select_option("2")
    settle(opened)
    assert opened.tab.evaluate(values) != before


def test_names_are_shown_and_not_run(opened: Opened) -> None:
    assert opened.tab.evaluate("window.broken === undefined")
    ticks = opened.tab.locator("#figure-importance .ytick").all_text_contents()
    assert any(each.startswith("</script><script") for each in ticks)
    assert "$price$ <i>net</i>" in opened.tab.locator("h1").inner_text()
    axis = opened.tab.locator("#figure-predicted .g-xtitle").text_content()
    assert axis == "predicted $price$ <i>net</i>"


def test_details_open_by_keyboard(opened: Opened) -> None:
    summary = opened.tab.locator("#calibration summary")
    hidden = opened.tab.locator("#calibration details table").first
    assert not hidden.is_visible()
    summary.focus()
    opened.tab.keyboard.press("Enter")
    assert hidden.is_visible()


def test_the_keyboard_reaches_every_control_and_shows_where_it_is(opened: Opened) -> None:
    opened.tab.locator("h1").evaluate("each => { each.tabIndex = -1; each.focus(); }")
    reached = []
    for _ in range(60):
        opened.tab.keyboard.press("Tab")
        now = opened.tab.evaluate(
            """(() => { const now = document.activeElement, style = getComputedStyle(now);
              return [now.id || now.dataset.figure || now.tagName, style.outlineStyle]; })()"""
        )
        if now[0] == "BODY":
            break
        assert now[1] != "none"
        reached.append(now[0])
    wanted = ["residuals", "along", "slider-1", "slider-2", "curves", "history"]
    assert [each for each in reached if each in wanted] == wanted


def test_every_control_and_table_has_a_name(opened: Opened) -> None:
    unnamed = opened.tab.evaluate(
        """[...document.querySelectorAll('main select, main input')].filter(each =>
          !each.labels.length && !document.getElementById(each.getAttribute('aria-labelledby')))
          .length"""
    )
    assert unnamed == 0
    tables = opened.tab.locator("table").count()
    assert tables == opened.tab.locator("table > caption").count() >= 8


def test_nothing_is_wider_than_the_screen(opened: Opened) -> None:
    for width, height in (PHONE, WIDE):
        opened.tab.set_viewport_size({"width": width, "height": height})
        until(opened, f"document.documentElement.scrollWidth <= {width}")
        widest = "Math.max(...[...document.querySelectorAll('.plot svg')].map(e => e.clientWidth))"
        until(opened, f"{widest} < {width}")


def test_paper_is_light_and_holds_the_figures(opened: Opened) -> None:
    scroll_to(opened.tab.locator("#figure-predicted"))
    light = opened.tab.evaluate(INK)
    opened.tab.locator("input[name=theme][value=dark]").evaluate("each => each.click()")
    scroll_to(opened.tab.locator("#figure-predicted"))
    until(opened, f"{INK} !== '{light}'")
    dark = opened.tab.evaluate(INK)
    assert opened.tab.pdf(format="A4").startswith(b"%PDF")
    opened.tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    widths = opened.tab.evaluate(
        "[...document.querySelectorAll('svg.main-svg')].map(each => each.clientWidth)"
    )
    assert max(widths) <= 700
    assert opened.tab.evaluate(INK) == light != dark
    opened.tab.evaluate("dispatchEvent(new Event('afterprint'))")
    scroll_to(opened.tab.locator("#figure-predicted"))
    until(opened, f"{INK} === '{dark}'")


def test_the_theme_is_switched_and_remembered(opened: Opened) -> None:
    themes = opened.tab.locator("input[name=theme]")
    opened.tab.locator("input[name=theme][value=light]").evaluate("each => each.click()")
    scroll_to(opened.tab.locator("#figure-predicted"))
    settle(opened)
    light = opened.tab.evaluate(BACKGROUND)
    light_ink = opened.tab.evaluate(INK)
    opened.tab.locator("input[name=theme][value=light]").press("ArrowRight")
    scroll_to(opened.tab.locator("#figure-predicted"))
    until(opened, f"{INK} !== '{light_ink}'")
    assert themes.nth(2).is_checked()
    until(opened, f"{BACKGROUND} !== '{light}'")
    opened.tab.reload()
    until(opened, "document.documentElement.dataset.drawn === 'yes'")
    assert themes.nth(2).is_checked()
    until(opened, f"{BACKGROUND} !== '{light}'")
    opened.tab.locator("input[name=theme][value=auto]").evaluate("each => each.click()")
    until(opened, f"{BACKGROUND} === '{light}'")
    opened.tab.emulate_media(color_scheme="dark")
    until(opened, f"{BACKGROUND} !== '{light}'")


def test_without_javascript_the_tables_remain(browser: Any, written: Path) -> None:
    with shown(browser, written, PHONE, java_script_enabled=False) as plain:
        assert plain.tab.get_by_text("The figures need JavaScript").is_visible()
        assert plain.tab.locator("#fit table").is_visible()
        assert not plain.tab.locator("#figure-explorer").is_visible()
        assert not plain.tab.locator("select").first.is_visible()


def test_the_browser_asks_for_nothing_else_and_has_no_complaint(opened: Opened) -> None:
    # Plotly says so, and goes on, where a busy machine measures text late.
    harmless = "Too many auto-margin redraws"
    assert [each for each in opened.complaints if harmless not in each] == []
    assert opened.asked[0].endswith("/report.html")
    assert {url.partition(":")[0] for url in opened.asked} <= {"file", "data", "blob"}
    assert {url for url in opened.asked if url.startswith("file")} == {opened.asked[0]}
