"""What the tests of the paper's experiments share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that a tiny reproduction has left, to be read and not written."""
    from tiny_reproduction import reproduced

    base = tmp_path_factory.getbasetemp()
    return reproduced(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return a headless browser, or skip where there is none."""
    from browsing import started

    with started() as browser:
        yield browser
