"""Write files in one step: they appear complete, or not at all."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


def check_target(path: Path, endings: Collection[str]) -> None:
    """Raise unless `path` names a file with one of these endings in a folder that exists."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file in it.")
    if path.suffix.lower() not in endings:
        raise ValueError(f"{path} must end in {' or '.join(endings)}.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"The folder {path.parent} does not exist; create it first.")


@contextmanager
def replace_atomically(path: Path) -> Iterator[Path]:
    """Yield an empty file beside `path`, with its ending, which replaces it at the end.

    After an error, a full disk or a kill, the previous file remains. The new file has its
    permissions; a symbolic link stays, and the file it points to is replaced. Files that killed
    processes left behind are removed.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with replace_atomically(Path(folder, "page.html")) as scratch:
    ...         _ = scratch.write_text("<p>")
    ...     [each.name for each in Path(folder).iterdir()]
    ['page.html']
    """
    path = path.resolve()
    start = f".eigengp-{re.sub('[^a-zA-Z0-9]', '', socket.gethostname())[:40]}-"
    _remove_abandoned(path.parent, start)
    scratch = path.with_name(f"{start}{os.getpid()}-{uuid4().hex[:12]}{path.suffix}")
    mode = path.stat().st_mode & 0o777 if path.exists() else None
    try:
        scratch.touch(0o666 if mode is None else 0o600, exist_ok=False)
        yield scratch
        if mode is not None:
            scratch.chmod(mode)
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def _remove_abandoned(folder: Path, start: str) -> None:
    """Remove the scratch files of processes of this machine that have ended."""
    if os.name != "posix":  # Elsewhere one cannot ask without harm whether a process runs.
        return
    for each in folder.glob(f"{start}*-*"):
        try:
            os.kill(int(each.name.removeprefix(start).partition("-")[0]), 0)
        except ProcessLookupError:
            each.unlink(missing_ok=True)
        except (ValueError, OSError, OverflowError):  # Not ours, or of another user.
            continue


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file in one step."""
    with replace_atomically(path) as scratch:
        scratch.write_bytes(content)
