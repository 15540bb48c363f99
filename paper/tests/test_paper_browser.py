"""A browser shows the page whole, on a wide screen and on a telephone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browsing import PHONE, WIDE, Opened, shown
from paper.experiments import EXPERIMENTS
from paper.page import PAGE

SIZES = {"wide": WIDE, "phone": PHONE}


@pytest.fixture(scope="module", params=SIZES)
def opened(request: pytest.FixtureRequest, browser: Any, tiny_run: Path) -> Iterator[Opened]:
    with shown(browser, tiny_run / PAGE, SIZES[request.param]) as opened:
        yield opened


def is_phone(opened: Opened) -> bool:
    return opened.tab.viewport_size["width"] == PHONE[0]


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
