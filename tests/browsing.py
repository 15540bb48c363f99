"""A headless browser, and a page that is open in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

WIDE, PHONE = (1280, 900), (390, 844)
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


@contextmanager
def started() -> Iterator[Any]:
    """Start a browser, or skip where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if _find_browser() is None:
        pytest.skip(f"needs a Chromium: install one so that {' or '.join(BROWSERS)} is on the PATH")
    with playwright.sync_playwright() as running, _launch(running.chromium) as browser:
        yield browser


@contextmanager
def _launch(kind: Any) -> Iterator[Any]:
    browser = kind.launch(executable_path=_find_browser(), args=list(QUIET))
    yield browser
    browser.close()


def _find_browser() -> str | None:
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@contextmanager
def shown(browser: Any, page: Path, size: tuple[int, int], **options: Any) -> Iterator[Opened]:
    """Open a page on a screen of this size, without a network."""
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height}, offline=True, **options
    )
    opened = Opened(context.new_page())
    opened.tab.on("console", lambda message: opened.complaints.append(message.text))
    opened.tab.on("pageerror", lambda error: opened.complaints.append(str(error)))
    opened.tab.on("requestfailed", lambda request: opened.complaints.append(request.url[:80]))
    opened.tab.on("request", lambda request: opened.asked.append(request.url))
    opened.tab.goto(page.as_uri(), wait_until="load")
    yield opened
    context.close()


@contextmanager
def drawn(browser: Any, page: Path, size: tuple[int, int], **options: Any) -> Iterator[Opened]:
    """Open a page and draw all of its figures, which are drawn when they are first seen.

    On a busy machine a browser may stop to draw frames; then another one is started.
    """
    from playwright.sync_api import TimeoutError as OutOfTime

    with ExitStack() as stack:
        for attempt in range(3):
            opened = stack.enter_context(shown(browser, page, size, **options))
            try:
                for place in opened.tab.locator(".plot").all():
                    scroll_to(place)
                    place.locator("svg.main-svg").first.wait_for(state="attached")
                break
            except OutOfTime:
                if attempt == 2:
                    raise
                browser = stack.enter_context(_launch(browser.browser_type))
        yield opened


def scroll_to(place: Any) -> None:
    """Scroll an element into view; Playwright would wait until frames show it at rest."""
    place.evaluate("each => each.scrollIntoView({block: 'center'})")
