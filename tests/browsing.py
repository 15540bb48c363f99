"""A headless browser, and a page that is open in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
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
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"needs a Chromium: install one so that {' or '.join(BROWSERS)} is on the PATH")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, args=list(QUIET))
        yield browser
        browser.close()


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
