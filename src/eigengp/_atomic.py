"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


@contextmanager
def in_one_piece(path: Path) -> Iterator[Path]:
    """Give a name to write to, beside `path` and with its ending; in the end it is moved there.

    An error, a full disk or a kill leaves what was there before.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with in_one_piece(Path(folder, "page.html")) as scratch:
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


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole, or not at all."""
    with in_one_piece(path) as scratch:
        scratch.write_bytes(content)
