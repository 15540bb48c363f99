"""One file for header and arrays: safetensors, with a checksum over every byte.

The metadata of the file is one text, the same for the same model: the SHA-256
of the whole file, computed with zeros in its own place, and a header in JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import safetensors.numpy as safetensors
from numpy.typing import NDArray

from eigengp._atomic import replace_atomically

AnArray = NDArray[Any]

_LENGTH = 8  # How many bytes say how long the table of safetensors is that follows them.
_ZEROS = b"0" * 64
# A longer header might not be read again: safetensors takes 10⁸ bytes, quotes included.
_MOST_TEXT = 20_000_000
_KEY = "eigengp"
# Stands before the checksum, and nowhere else: texts within the header are quoted.
_MARK = b'"eigengp":"sha256 '


class SavedModelError(ValueError):
    """A model cannot be saved, or a file is not, or no longer, a saved model."""


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
    content = safetensors.save(dict(arrays), {_KEY: f"sha256 {_ZEROS.decode()} {text}"})
    at, digest = _find_checksum(content)
    try:
        with replace_atomically(path) as scratch, scratch.open("wb") as file:
            file.write(memoryview(content)[: at.start])
            file.write(digest)
            file.write(memoryview(content)[at.stop :])
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
    with path.open("rb") as file:
        content = file.read(_LENGTH + 1)
        if content[_LENGTH:] == b"{":  # Else all of a large file would be read in vain.
            content += file.read()
    at, digest = _find_checksum(content)
    if at.start < len(_MARK):
        raise SavedModelError(
            f"{path} is not a saved model, or its beginning is damaged. Models are written by "
            "`model.save(path)`; nothing else can be loaded."
        )
    if content[at] != digest:
        raise SavedModelError(
            f"{path} is incomplete, or was changed or damaged after it was saved: its checksum "
            f"does not match its {len(content)} bytes. Copy or save the model again."
        )
    try:
        length = int.from_bytes(content[:_LENGTH], "little")
        table = json.loads(content[_LENGTH : _LENGTH + length])
        _, _, text = table["__metadata__"][_KEY].split(" ", 2)
        header, arrays = json.loads(text), safetensors.load(content)
    except Exception as error:  # Whatever the parsers make of a file that was made with care.
        raise SavedModelError(f"{path} was not written by eigengp ({error}).") from error
    return header, arrays


def _find_checksum(content: bytes) -> tuple[slice, bytes]:
    """Return where the checksum stands, and what it should be; without a mark it stands at 0."""
    start = content.find(_MARK) + len(_MARK)
    at = slice(start, start + len(_ZEROS)) if start >= len(_MARK) else slice(0, 0)
    digest = sha256(memoryview(content)[: at.start])
    digest.update(_ZEROS)
    digest.update(memoryview(content)[at.stop :])
    return at, digest.hexdigest().encode()
