"""Evaluations of a fit on disk, so that a killed fit resumes and ends at the same optimum.

Learning is deterministic: the same start leads to the same points. An SQLite database stores the
evaluation at each point. When the same fit starts again, it reads them back instead of passing over
the rows, and the optimiser repeats its steps exactly. A digest in each record detects damaged
records and those of another fit.
"""

from __future__ import annotations

import json
import sqlite3
import warnings
from collections.abc import Iterable, Mapping
from hashlib import blake2b, sha256
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from eigengp._typing import Array

_TABLE = "records (key BLOB, content BLOB, digest BLOB)"
_Record = tuple[bytes, bytes, bytes]
_Evaluation = tuple[float, Array, float]  # Value, gradient and log marginal likelihood.
# Length of the Mersenne Twister's state; NumPy does not check that a position lies in it.
_WORDS = 624


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written; the fit continues without it."""


class Checkpoint:
    """The evaluations of one fit, in a file.

    Every evaluation is on disk when `add` returns. The first record holds the
    fingerprint and the state of the random number generator.

    Parameters
    ----------
    path : Path
        The file; created if it does not exist, else resumed from.
    fingerprint : str
        Identifies the fit.
    rng : RandomState
        The random number generator of the fit; reset to its state when the checkpoint was created.

    Raises
    ------
    ValueError
        If the file belongs to another fit, is damaged, or is not a checkpoint.
    """

    def __init__(self, path: Path, fingerprint: str, rng: np.random.RandomState) -> None:
        self.path = path
        self._fingerprint = fingerprint.encode()
        self._known: dict[bytes, _Evaluation] = {}
        self._database: sqlite3.Connection | None = None
        try:
            records = self._read()
            if records:
                self._restore(records, rng)
        except Exception as error:  # A crafted file may fail in any way.
            self.close()
            raise self.make_error(error if str(error).isprintable() else "it is damaged") from error
        if not records:
            # A write-ahead log needs one sync per record; an exclusive lock spares its index file.
            start = ("PRAGMA journal_mode = WAL", f"CREATE TABLE IF NOT EXISTS {_TABLE}")
            self._write(self._fingerprint, _dump(rng), *start)

    def __len__(self) -> int:
        return len(self._known)

    def _read(self) -> list[_Record]:
        """Open the file and return its records: none if it is new or empty."""
        if self.path.exists() and not self.path.is_file():
            raise ValueError("it is not a regular file")
        if self.path.exists() and self.path.stat().st_size == 1:  # SQLite treats it as empty.
            raise ValueError("file is not a database")
        database = self._database = sqlite3.connect(
            self.path.absolute(), isolation_level=None, check_same_thread=False
        )
        database.executescript("PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = FULL")
        tables = database.execute("SELECT sql FROM sqlite_master").fetchall()
        if not tables:
            return []
        if tables != [(f"CREATE TABLE {_TABLE}",)]:
            raise ValueError("it is a database with other tables")
        return database.execute("SELECT * FROM records ORDER BY rowid").fetchall()

    def _restore(self, records: list[_Record], rng: np.random.RandomState) -> None:
        (fingerprint, text, _), *evaluations = records
        if fingerprint != self._fingerprint:
            raise ValueError("it belongs to a fit with other data or settings")
        if any(digest != self._digest(key, content) for key, content, digest in records):
            raise ValueError("a record is damaged")
        for key, content, _ in evaluations:
            numbers = np.frombuffer(content, dtype=np.float64)
            if len(numbers) < 2 or not np.isfinite(numbers).all():
                raise ValueError("a record is damaged")
            self._known[key] = float(numbers[0]), numbers[2:].copy(), float(numbers[1])
        state = json.loads(text)
        if 0 <= state["state"].get("pos", 0) <= _WORDS:
            rng.set_state(state)
        if _dump(rng) != text:
            raise ValueError("its random state is damaged")

    def _digest(self, key: bytes, content: bytes) -> bytes:
        return blake2b(self._fingerprint + key + content, digest_size=16).digest()

    def look_up(self, key: bytes) -> _Evaluation | None:
        """Return the stored evaluation at a point, or None."""
        return self._known.get(key)

    def add(self, key: bytes, evaluation: _Evaluation) -> None:
        """Store the evaluation at a point; a full disk ends the checkpoint, not the fit."""
        value, gradient, evidence = evaluation
        numbers = np.concatenate([[value, evidence], gradient])
        if np.isfinite(numbers).all():  # Others are rare and evaluated again.
            self._known[key] = evaluation
            self._write(key, numbers.tobytes())

    def _write(self, key: bytes, content: bytes, *before: str) -> None:
        if self._database is None:
            return
        try:
            for statement in before:
                self._database.execute(statement)
            record = key, content, self._digest(key, content)
            self._database.execute("INSERT INTO records VALUES (?, ?, ?)", record)
        except sqlite3.Error as error:
            self.close()
            warnings.warn(
                f"The checkpoint {self.path} cannot be written any more ({error}); it keeps its "
                "records, and the fit continues.",
                CheckpointWarning,
                stacklevel=2,
            )

    def make_error(self, reason: object) -> ValueError:
        """Return the error for a file that cannot be used."""
        return ValueError(
            f"The checkpoint {self.path} cannot be used: {reason}. Name another file, or remove "
            "this one to start again."
        )

    def close(self) -> None:
        """Close the file and keep it."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def remove(self) -> None:
        """Close and delete the checkpoint after a successful fit."""
        self.close()
        for ending in ("", "-wal"):
            self.path.with_name(self.path.name + ending).unlink(missing_ok=True)


def open_checkpoint(
    path: str | Path,
    settings: Mapping[str, object],
    summary: Iterable[ArrayLike],
    rng: np.random.RandomState,
) -> Checkpoint:
    """Open the checkpoint of the fit that has these settings and data.

    Parameters
    ----------
    path : path
        The file.
    settings : mapping
        Everything the result depends on besides the data; compared by `repr`,
        arrays by their entries.
    summary : iterable of numbers or arrays
        Summary statistics of the data that do not depend on how rows are split
        into blocks, such as number of rows, means, scales and ranges.
    rng : RandomState
        The random number generator of the fit.

    Raises
    ------
    ValueError
        If the file cannot be used for this fit.
    """
    fingerprint = sha256()
    for name, value in sorted(settings.items()):
        fingerprint.update(f"{name} {value!r}\n".encode())
        if hasattr(value, "__array__"):
            fingerprint.update(np.asarray(value).tobytes())
    for number in summary:
        fingerprint.update(np.asarray(number, dtype=np.float64).tobytes())
    return Checkpoint(Path(path), fingerprint.hexdigest(), rng)


def _dump(rng: np.random.RandomState) -> bytes:
    state = rng.get_state(legacy=False)
    return json.dumps(state, default=np.ndarray.tolist, allow_nan=False).encode()
