"""Ask a library to do something in a process of its own, in whichever environment has it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from common import check_known
from rich.console import Console
from timing import Array

Record = dict[str, Any]
_FLOAT64 = {"JAX_ENABLE_X64": "1"}
"""JAX reads this when it is imported."""
_BENCHMARKS = Path(__file__).resolve().parents[1]
_console = Console(stderr=True, highlight=False)


@dataclass(frozen=True)
class Library:
    """What is compared: how it is called in tables, and what Python imports."""

    title: str
    package: str


OURS = "eigengp"
LIBRARIES = {
    OURS: Library("EigenGP", "eigengp"),
    "gpflow": Library("GPflow", "gpflow"),
    "gpytorch": Library("GPyTorch", "gpytorch"),
    "gpjax": Library("GPJax", "gpjax"),
    "gpboost": Library("GPBoost", "gpboost"),
    "lightgbm": Library("LightGBM", "lightgbm"),
    "xgboost": Library("XGBoost", "xgboost"),
    "catboost": Library("CatBoost", "catboost"),
    "sklearn": Library("scikit-learn", "sklearn"),
}


@dataclass
class Answer:
    """What a library answered; `error` says why it stopped, if it did."""

    library: str
    records: list[Record] = field(default_factory=list)
    versions: Record = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True)
class Panel:
    """The libraries that take part, each with the interpreter that has it."""

    interpreters: dict[str, Path]

    @classmethod
    def of(
        cls,
        able: Sequence[str],
        peers: Sequence[Path] | None,
        only: Sequence[str] | None = None,
        skip: Sequence[str] | None = None,
    ) -> Panel:
        """Find the libraries that can do a task, without those that are not wanted.

        A peer is looked for in the environments of `peers`, in their order. This library runs in
        the environment of this process.
        """
        check_known([*(only or ()), *(skip or ())], able)
        found: dict[str, Path] = {}
        for library in able:
            if library in (skip or ()) or library not in (only or able):
                continue
            places = [Path(sys.executable)] if library == OURS else peers or ()
            # Absolute, since it runs in another folder; unresolved, since a link is what it is.
            place = next((each.absolute() for each in places if _has(each, library)), None)
            if place is not None:
                found[library] = place
            elif peers or only:
                _console.print(f"[yellow]{library}: in none of the environments named; left out.")
        return cls(found)

    def __iter__(self) -> Iterator[str]:
        return iter(self.interpreters)

    def ask(
        self, library: str, task: str, arrays: dict[str, Array] | None = None, **options: Any
    ) -> Answer:
        """Have a library carry out a task, and return all it answered."""
        return ask(self.interpreters[library], library, task, arrays or {}, options)


def ask(python: Path, library: str, task: str, arrays: dict[str, Array], options: Record) -> Answer:
    """Run `peers.with_<library>` with this interpreter, and return all it answered."""
    answer = Answer(library)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as errors:
        file = Path(folder) / "arrays.npz"
        np.savez(file, **arrays)
        order = json.dumps({"task": task, "arrays": str(file), "options": options})
        command = [str(python), "-W", "ignore", "-m", f"peers.with_{library}", order]
        process = subprocess.Popen(
            command,
            cwd=_BENCHMARKS,
            env=os.environ | _FLOAT64,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            _listen(process, answer)
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            answer.error = _last_line(errors) or f"exit status {process.returncode}"
            if process.returncode == -signal.SIGXCPU:
                answer.error = f"not within {options['cpu_limit']} s of CPU time"
            _console.print(f"[red]{library}, {task}: {answer.error}")
    return answer


def _listen(process: subprocess.Popen[str], answer: Answer) -> None:
    assert process.stdout is not None
    with _console.status(f"{LIBRARIES[answer.library].title} …"):
        for line in process.stdout:
            record = json.loads(line)
            if "versions" in record:
                answer.versions = record["versions"]
            else:
                answer.records.append({"library": answer.library} | record)
        process.wait()


def _last_line(errors: IO[str]) -> str:
    errors.seek(0)
    lines = [line.strip() for line in errors if line.strip()]
    return lines[-1] if lines else ""


def _has(python: Path, library: str) -> bool:
    package = LIBRARIES[library].package
    test = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
    try:
        # -P keeps the current folder out of the search.
        return subprocess.run([str(python), "-P", "-c", test], check=False).returncode == 0
    except OSError as error:
        raise ValueError(f"{python} is no Python interpreter: {error.strerror}.") from error
