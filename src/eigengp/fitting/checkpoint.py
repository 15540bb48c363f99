"""Evaluations on the disk, so that a fit that was killed goes on where it was.

Learning is deterministic: the same start leads to the same points. A journal
holds what was found at each of them, and the same fit, begun anew, is told
instead of going over the rows. So it ends at the same optimum to the last bit,
with the optimiser's memory as it would have been. Records are only ever
appended, each with its checksum; one that was cut off is as if it never was.
"""

from __future__ import annotations

import errno
import json
import os
import warnings
import zlib
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b, sha256
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO

import numpy as np

from eigengp._atomic import write_atomically
from eigengp._typing import Array
from eigengp.data.open import Dataset
from eigengp.fitting.optimizer import Evaluation, Objective
from eigengp.fitting.settings import Settings

_MAGIC = b"EigenGP checkpoint 1\n"
_FRAME = Struct("<IQ")
"""Checksum and length of what follows."""
_KEY_BYTES = 16
_FULL = (errno.ENOSPC, errno.EDQUOT)


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written; the fit goes on without."""


class Checkpoint:
    """The evaluations of one fit.

    Parameters
    ----------
    path : Path
        The file; made if it is not there, and gone on with if it is.
    fingerprint : str
        Tells this fit from others.
    rng : RandomState
        Makes the draws of the fit; put back to where it was when the journal began.

    Raises
    ------
    ValueError
        If the file is of another fit, or no checkpoint at all.
    """

    def __init__(self, path: Path, fingerprint: str, rng: np.random.RandomState) -> None:
        self.path = path
        self._known: dict[bytes, Evaluation] = {}
        self._end = self._load(fingerprint, rng) if path.exists() else 0
        self._file: BinaryIO | None = None
        if not self._end:
            state = rng.get_state(legacy=False)
            header = {"fingerprint": fingerprint, "rng": _plain(state)}
            try:
                self._create(_framed(json.dumps(header).encode()))
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                self._give_up(error)
                return
        self._file = path.open("r+b")
        self._file.truncate(self._end)

    def __len__(self) -> int:
        return len(self._known)

    def _create(self, header: bytes) -> None:
        write_atomically(self.path, _MAGIC + header)
        self._end = len(_MAGIC) + len(header)

    def _load(self, fingerprint: str, rng: np.random.RandomState) -> int:
        """Read all whole records, and return where they end: 0 if not even the header is whole."""
        content = self.path.read_bytes()
        if not content.startswith(_MAGIC[: len(content)]):
            raise ValueError(f"{self.path} is not a checkpoint. Name another file.")
        records = list(_records(content))
        if not records:
            return 0
        header = json.loads(records[0][0])
        if header["fingerprint"] != fingerprint:
            raise ValueError(
                f"The checkpoint {self.path} belongs to a fit with other data or settings. Remove "
                "it to begin anew, or name another file."
            )
        rng.set_state(header["rng"])
        for record, _ in records[1:]:
            numbers = np.frombuffer(record[_KEY_BYTES:], dtype=np.float64)
            found = Evaluation(float(numbers[0]), numbers[2:].copy(), float(numbers[1]))
            self._known[record[:_KEY_BYTES]] = found
        return records[-1][1]

    def found(self, key: bytes) -> Evaluation | None:
        """Return what was found at a point, if it was."""
        return self._known.get(key)

    def add(self, key: bytes, evaluation: Evaluation) -> None:
        """Keep what was found at a point; a disk that is full ends the journal, not the fit."""
        self._known[key] = evaluation
        if self._file is None:
            return
        numbers = np.concatenate([[evaluation.value, evaluation.evidence], evaluation.gradient])
        record = _framed(key + numbers.tobytes())
        try:
            self._file.seek(self._end)
            self._file.write(record)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            self._give_up(error)
        else:
            self._end += len(record)

    def _give_up(self, error: OSError) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.truncate(self._end)
        self.close()
        warnings.warn(
            f"The checkpoint {self.path} cannot be written any more ({error.strerror}); it keeps "
            f"what it had, and the fit goes on.",
            CheckpointWarning,
            stacklevel=2,
        )

    def close(self) -> None:
        """Leave the file as it is."""
        if self._file is not None:
            file, self._file = self._file, None
            with suppress(OSError):
                file.close()

    def remove(self) -> None:
        """Close the journal of a fit that has ended well: it is of no more use."""
        self.close()
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True)
class CheckpointedObjective:
    """An objective that is asked only where the journal knows nothing.

    Parameters
    ----------
    objective : Objective
        What is evaluated.
    journal : Checkpoint
        What was found before.
    name : str
        Tells this objective from others of the same fit.
    """

    objective: Objective
    journal: Checkpoint
    name: str

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Lower and upper bound of each entry."""
        return self.objective.bounds

    def __call__(self, vector: Array) -> Evaluation:
        """Evaluate, or remember."""
        key = blake2b(self.name.encode() + vector.tobytes(), digest_size=_KEY_BYTES).digest()
        known = self.journal.found(key)
        if known is None:
            known = self.objective(vector)
            self.journal.add(key, known)
        return known


def _framed(content: bytes) -> bytes:
    return _FRAME.pack(zlib.crc32(content), len(content)) + content


def _records(content: bytes) -> Any:
    """Yield each whole record after the first line, and where it ends."""
    at = len(_MAGIC)
    while at + _FRAME.size <= len(content):
        checksum, size = _FRAME.unpack_from(content, at)
        end = at + _FRAME.size + size
        record = content[at + _FRAME.size : end]
        if end > len(content) or zlib.crc32(record) != checksum:
            return
        yield record, end
        at = end


def _plain(state: Any) -> Any:
    """Return the state of a generator as JSON can hold it."""
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
    return state.tolist() if isinstance(state, np.ndarray) else state


def open_checkpoint(
    path: str | Path, settings: Settings, dataset: Dataset, rng: np.random.RandomState
) -> Checkpoint:
    """Open the checkpoint of a fit with these settings and data.

    Data are told apart by the number of rows, and by means, scales and ends of the columns.
    """
    parameters = dict(settings.parameters)
    for name in ("verbose", "optimizer", "optimizer__checkpoint"):
        parameters.pop(name, None)
    if not isinstance(settings.random_state, int):
        parameters.pop("random_state", None)
    about = sha256(f"{settings.reading.name} {dataset.n_rows}".encode())
    for name, value in sorted(parameters.items()):
        about.update(f"{name} {value!r}".encode())
        if hasattr(value, "__array__"):
            about.update(np.asarray(value).tobytes())
    scaling, summary = dataset.scaling, dataset.summary
    numbers = (scaling.input_centre, scaling.input_scale, summary.low, summary.high)
    for each in (*numbers, np.array([scaling.target_centre, scaling.target_scale])):
        about.update(each.tobytes())
    return Checkpoint(Path(path), about.hexdigest(), rng)
