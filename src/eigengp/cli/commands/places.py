"""Where results go: checked before the work."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryFile

from eigengp.cli.commands.session import Session


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
