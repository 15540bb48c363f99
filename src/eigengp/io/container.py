"""One file for header and arrays: safetensors, with a checksum over every byte.

The metadata of the file is one text, the same for the same model: the SHA-256
of the whole file, computed with zeros in its own place, and a header in JSON.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

from eigengp._atomic import replace_atomically
from eigengp.io.errors import SavedModelError
from eigengp.io.tree import AnArray

_LENGTH = 8
"""How many bytes say how long the table of safetensors is that follows them."""
_DIGITS = 64
_MOST_TEXT = 20_000_000
"""A longer header might not be read again: safetensors takes 10⁸ bytes, quotes included."""
_KEY = "eigengp"
_CHECKSUM = re.compile(rb'"eigengp":"sha256 ([0-9a-f]{64}) ')


def write(path: Path, header: Mapping[str, Any], arrays: Mapping[str, AnArray]) -> None:
    """Write a file, which appears under its name when it is whole.

    A full disk or a kill leaves what was there before.
    """
    text = json.dumps(header, separators=(",", ":"))
    if len(text) > _MOST_TEXT:
        raise SavedModelError(
            f"The header would have {len(text)} characters, of at most {_MOST_TEXT}; store less as "
            "`about`."
        )
    metadata = {_KEY: f"sha256 {'0' * _DIGITS} {text}"}
    content = memoryview(_safetensors().save(dict(arrays), metadata))
    at = _place_of_checksum(content)
    try:
        with replace_atomically(path) as scratch, scratch.open("wb") as file:
            file.write(content[: at.start])
            file.write(sha256(content).hexdigest().encode())
            file.write(content[at.stop :])
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        error.add_note(f"{path} was not written; what was there before is as it was.")
        raise


def read(path: Path) -> tuple[dict[str, Any], dict[str, AnArray]]:
    """Return header and arrays of a file that is as it was written.

    Raises
    ------
    SavedModelError
        If it was cut off or altered, or is something else.
    """
    safetensors = _safetensors()
    with path.open("rb") as file:
        if file.read(_LENGTH + 1)[_LENGTH:] != b"{":  # Before all of a large file is read.
            _refuse_other(path)
        file.seek(0)
        content = file.read()
    view = memoryview(content)
    try:
        at = _place_of_checksum(view)
    except SavedModelError:
        _refuse(path, content)
    found = sha256(view[: at.start])
    found.update(b"0" * _DIGITS)
    found.update(view[at.stop :])
    if found.hexdigest().encode() != view[at]:
        _refuse(path, content)
    try:
        _, _, text = _table(content)["__metadata__"][_KEY].split(" ", 2)
        header, arrays = json.loads(text), safetensors.load(content)
    except Exception as error:  # Whatever the parsers make of a file that was made with care.
        raise SavedModelError(f"{path} was not written by eigengp ({error}).") from error
    return header, arrays


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ImportError(
            f'Saved models need the package safetensors: pip install "eigengp[save]" ({error}).'
        ) from error
    return safetensors.numpy


def _table(content: bytes) -> dict[str, Any]:
    """Return where safetensors says what is, and its metadata."""
    length = int.from_bytes(content[:_LENGTH], "little")
    table: dict[str, Any] = json.loads(content[_LENGTH : _LENGTH + length])
    return table


def _place_of_checksum(content: memoryview) -> slice:
    """Return where the digits of the checksum stand; texts within the header are quoted."""
    length = int.from_bytes(content[:_LENGTH], "little")
    found = [*_CHECKSUM.finditer(content[_LENGTH : _LENGTH + length])]
    if len(found) != 1:
        raise SavedModelError("There is no checksum.")
    return slice(_LENGTH + found[0].start(1), _LENGTH + found[0].end(1))


def _refuse_other(path: Path) -> NoReturn:
    raise SavedModelError(
        f"{path} is not a saved model, or its beginning is damaged. Models are written by "
        "`model.save(path)`; nothing else can be loaded."
    )


def _refuse(path: Path, content: bytes) -> NoReturn:
    """Say what is wrong with a file whose checksum is not right."""
    try:
        table = _table(content)
        whole = _LENGTH + int.from_bytes(content[:_LENGTH], "little") + _end_of_arrays(table)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        table, whole = {}, _LENGTH + int.from_bytes(content[:_LENGTH], "little")
    if table and _KEY not in table.get("__metadata__", {}):
        _refuse_other(path)
    if len(content) < whole:
        raise SavedModelError(
            f"{path} is incomplete: it has {len(content)} of at least {whole} bytes. Copy or save "
            "the model again."
        )
    raise SavedModelError(
        f"{path} was changed or damaged after it was saved: its checksum does not match. "
        "Copy or save the "
        "model again."
    )


def _end_of_arrays(table: dict[str, Any]) -> int:
    """Return how many bytes all arrays take."""
    ends = (each["data_offsets"][1] for name, each in table.items() if name != "__metadata__")
    return max(map(int, ends), default=0)
