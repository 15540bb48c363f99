"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole, or not at all.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_whole(Path(folder, "page.html"), b"<p>")
    ...     [each.name for each in Path(folder).iterdir()]
    ['page.html']
    """
    partial = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
