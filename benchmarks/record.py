"""Results in one JSON file for each benchmark, with the versions and the hardware behind them."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from peers.asking import Answer
from threadpoolctl import threadpool_info

Record = dict[str, Any]
_ROOT = Path(__file__).resolve().parents[1]


class Results:
    """What a benchmark has found so far, on the disk after each answer.

    A benchmark can be run in pieces: what is measured again replaces what it was, and every record
    names the run it comes from. Results with other settings are never mixed.

    Parameters
    ----------
    folder : Path
        Where the file lies.
    name : str
        The benchmark.
    settings : dict
        What all records have in common.
    keys : sequence of str
        The fields that tell records apart, beside the library.
    """

    def __init__(self, folder: Path, name: str, settings: Record, keys: Sequence[str]) -> None:
        self.name, self.folder, self.settings = name, folder, settings
        self._keys = ("library", *keys)
        self._run = datetime.now(UTC).isoformat(timespec="seconds")
        self.runs: dict[str, Record] = {self._run: environment()}
        self.records: list[Record] = []
        if self.path.exists():
            self._read()

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / f"{self.name}.json"

    @property
    def picture(self) -> Path:
        """The file of the picture."""
        return self.folder / f"{self.name}.png"

    def _read(self) -> None:
        stored = json.loads(self.path.read_text())
        if stored["settings"] != self.settings:
            raise ValueError(
                f"{self.path} holds results with other settings ({_said(stored['settings'])}; "
                f"now {_said(self.settings)}). Remove it, or name another folder with --out."
            )
        self.runs = stored["runs"] | self.runs
        self.records = stored["records"]

    def add(self, answer: Answer, **common: Any) -> None:
        """Keep an answer; `common` is added to each of its records."""
        if answer.versions:
            self.add_versions(answer.library, **answer.versions)
        if answer.error:
            failure = {"library": answer.library} | common | {"error": answer.error}
            self.runs[self._run]["failures"].append(failure)
        self.extend({**record, **common} for record in answer.records)

    def add_versions(self, library: str, **versions: str) -> None:
        """Keep the versions of a library and of what it stands on."""
        self.runs[self._run]["libraries"][library] = versions

    def extend(self, records: Iterable[Record]) -> None:
        """Keep records, in place of those that they measure again, and write the file."""
        fresh = [_finite(record) | {"run": self._run} for record in records]
        known = {self._key(record) for record in fresh}
        self.records = [each for each in self.records if self._key(each) not in known] + fresh
        self._write()

    def of(self, **fields: Any) -> list[Record]:
        """Return the records with these fields."""
        wanted = fields.items()
        return [each for each in self.records if all(each.get(k) == v for k, v in wanted)]

    def _key(self, record: Record) -> tuple[Any, ...]:
        return tuple(record.get(name) for name in self._keys)

    def _write(self) -> None:
        used = {record["run"] for record in self.records} | {self._run}
        content = {
            "benchmark": self.name,
            "settings": self.settings,
            "runs": {name: run for name, run in self.runs.items() if name in used},
            "records": self.records,
        }
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, (text + "\n").encode())


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that is either the old one or the whole new one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(content)
    beside.replace(path)


def environment() -> Record:
    """Return what the numbers depend on beside the code."""
    packages = ("eigengp", "numpy", "scipy", "scikit-learn", "threadpoolctl")
    return {
        "commit": _output("git", "-C", str(_ROOT), "describe", "--always", "--dirty"),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "blas": [
            {key: pool[key] for key in ("internal_api", "version", "num_threads")}
            for pool in threadpool_info()
            if pool["user_api"] == "blas"
        ],
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": available_cores(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_average": round(os.getloadavg()[0], 2),
        "gpu": _output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"),
        "libraries": {},
        "failures": [],
    }


def available_cores() -> int:
    """Return how many cores this process and its children may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _finite(value: Any) -> Any:
    """Replace what JSON has no number for by None."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _said(settings: Record) -> str:
    return ", ".join(f"{key} {value}" for key, value in settings.items())
