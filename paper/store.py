"""Where results are kept: one line of JSON for each run, written as the run ends.

A line is written by one call and forced to the disk, so a process that is killed loses no run that
had ended. A last line that was cut off is passed over, and its run is carried out again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from paper.runs import Record, Run


class Store:
    """The results in one file.

    Parameters
    ----------
    path : Path
        The file; it and its folder are made when the first result is added.

    Examples
    --------
    >>> import tempfile
    >>> store = Store(Path(tempfile.mkdtemp()) / "runs.jsonl")
    >>> run = Run("snelson", "EigenGP", 7)
    >>> store.find(run) is None
    True
    >>> store.add({"key": run.key, "nmse": 0.004})
    >>> Store(store.path).find(run)["nmse"]
    0.004
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.broken_lines = 0
        self._records: dict[str, Record] = {}
        self._cut_off = False
        if path.exists():
            self._read(path.read_bytes())

    def _read(self, content: bytes) -> None:
        self._cut_off = bool(content) and not content.endswith(b"\n")
        for line in content.splitlines():
            try:
                record = json.loads(line)
                self._records[record["key"]] = record
            except (ValueError, KeyError, TypeError):
                self.broken_lines += 1

    def __len__(self) -> int:
        return len(self._records)

    def find(self, run: Run) -> Record | None:
        """Return the record of a run, None if it has not ended yet."""
        return self._records.get(run.key)

    def add(self, record: Record) -> None:
        """Keep a record, on the disk before this returns."""
        line = json.dumps(record, ensure_ascii=False, allow_nan=True).encode() + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write(b"\n" + line if self._cut_off else line)
            file.flush()
            os.fsync(file.fileno())
        self._cut_off = False
        self._records[record["key"]] = record
