"""Write files in one step: they appear complete, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


@contextmanager
def replace_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, with its ending, which replaces it at the end.

    After an error, a full disk or a kill, the previous file remains.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with replace_atomically(Path(folder, "page.html")) as scratch:
    ...         _ = scratch.write_text("<p>")
    ...     [each.name for each in Path(folder).iterdir()]
    ['page.html']
    """
    scratch = path.with_name(f".{uuid4().hex}.{path.name}")
    try:
        yield scratch
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file in one step."""
    with replace_atomically(path) as scratch:
        scratch.write_bytes(content)
