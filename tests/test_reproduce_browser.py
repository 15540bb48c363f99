"""A browser shows the page whole, on a wide screen and on a telephone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from eigengp.reproduce.experiments import EXPERIMENTS
from eigengp.reproduce.page import PAGE

SIZES = {"wide": (1280, 900), "phone": (390, 844)}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@dataclass
class Opened:
    """The page in the browser, and what the browser complained of or asked for."""

    tab: Any
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is on this machine")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture(scope="module", params=SIZES)
def opened(request: pytest.FixtureRequest, browser: Any, tiny_run: Path) -> Iterator[Opened]:
    width, height = SIZES[request.param]
    context = browser.new_context(viewport={"width": width, "height": height}, offline=True)
    opened = Opened(context.new_page())
    opened.tab.on("console", lambda message: opened.complaints.append(message.text))
    opened.tab.on("pageerror", lambda error: opened.complaints.append(str(error)))
    opened.tab.on("requestfailed", lambda request: opened.complaints.append(request.url[:80]))
    opened.tab.on("request", lambda request: opened.asked.append(request.url))
    opened.tab.goto((tiny_run / PAGE).as_uri(), wait_until="load")
    yield opened
    context.close()


def is_phone(opened: Opened) -> bool:
    return opened.tab.viewport_size["width"] == SIZES["phone"][0]


def test_nothing_is_wider_than_the_screen(opened: Opened) -> None:
    width = opened.tab.evaluate("document.documentElement.scrollWidth")
    assert width <= opened.tab.viewport_size["width"]
    sections = opened.tab.evaluate(
        "[...document.querySelectorAll('section')].map(each => each.getBoundingClientRect().right)"
    )
    assert len(sections) == len(EXPERIMENTS) + 1
    assert max(sections) <= opened.tab.viewport_size["width"]


def test_every_picture_is_shown_in_the_form_for_the_screen(opened: Opened) -> None:
    pictures = opened.tab.evaluate(
        """[...document.images].map(each => ({
            loaded: each.complete && each.naturalWidth > 0,
            shown: each.getBoundingClientRect().width,
            current: each.currentSrc,
            wide: each.src,
            narrow: each.parentElement.querySelector('source').srcset,
        }))"""
    )
    assert len(pictures) == 4
    for picture in pictures:
        assert picture["loaded"]
        assert picture["shown"] > 250
        assert picture["wide"] != picture["narrow"]
        assert picture["current"] == picture["narrow" if is_phone(opened) else "wide"]


def test_tables_and_verdicts_can_be_seen(opened: Opened) -> None:
    for kind in ("table", ".badge", ".claim", ".tiles li", "figcaption"):
        found = opened.tab.locator(kind).all()
        assert len(found) >= 3
        assert all(each.is_visible() for each in found)
    table = opened.tab.locator("#table1 table").first
    assert "paper: 0.006 ± 0.001" in table.inner_text()
    box = table.locator("xpath=..").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= opened.tab.viewport_size["width"]


def test_wide_tables_scroll_in_their_own_frame(opened: Opened) -> None:
    frames = opened.tab.evaluate(
        """[...document.querySelectorAll('.scroll')].map(each => {
            each.scrollLeft = 1e6;
            const last = each.querySelector('thead th:last-child').getBoundingClientRect();
            return last.right - each.getBoundingClientRect().right;
        })"""
    )
    assert max(frames) <= 1


def test_every_link_leads_to_its_part(opened: Opened) -> None:
    links = opened.tab.locator("nav a").all()
    assert len(links) == len(EXPERIMENTS) + 1
    for link in links:
        target = link.get_attribute("href")
        link.click()
        assert opened.tab.evaluate("location.hash") == target
        section = opened.tab.locator(f"section{target}")
        assert section.count() == 1
        top = section.bounding_box()["y"]
        assert 0 <= top < opened.tab.viewport_size["height"]


def test_the_browser_asks_for_nothing_else_and_has_no_complaint(opened: Opened) -> None:
    assert opened.complaints == []
    assert opened.asked[0].endswith(f"/{PAGE}")
    assert {url.partition(":")[0] for url in opened.asked[1:]} <= {"data"}
