"""Where results go: checked before the work, written in one piece after it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from eigengp.commands.session import Session


def check_place(path: Path, endings: Collection[str], out: Session) -> None:
    """Raise unless a file can be written here later; say so if one is there already.

    Parameters
    ----------
    path : Path
        The file.
    endings : collection of str
        Those that it may have.
    out : Session
        Where to remark.
    """
    if path.suffix.lower() not in endings:
        raise ValueError(f"{path} must end in {' or '.join(endings)}.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file in it.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"The folder {path.parent} is not there; make it first.")
    try:
        TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise PermissionError(f"{path} cannot be written: {error.strerror}.") from error
    if path.exists():
        out.note(f"{path} is there already; it is replaced when the new one is whole.")


@contextmanager
def in_one_piece(path: Path) -> Iterator[Path]:
    """Give a name to write to, with the same ending, and move the file to its place at the end."""
    scratch = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield scratch
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)
