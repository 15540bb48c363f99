"""One run: a method on one draw of a data set, named so that its result can be found again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

import eigengp
import realdata

_WITHOUT_EFFECT = ("cli", "export", "io", "plot")
"""The folders of the package that results do not depend on."""
_OWN = ("methods.py", "problems.py", "measure.py", "data/*.csv")
"""The files of this folder that they depend on."""

Record: TypeAlias = dict[str, Any]
"""What is stored of a run; `paper.measure` makes it."""


@dataclass(frozen=True)
class Run:
    """What to fit.

    Parameters
    ----------
    data : str
        The name of a problem (see `paper.problems`).
    method : str
        A key of `METHODS`.
    size : int or None
        The number of basis functions; None for methods without one.
    seed : int
        Which draw or split of the data, and the seed of the method.
    options : tuple of (str, value)
        Settings beyond those of the method.
    share : int
        Fit on one row in so many.
    start : Run or None
        The run whose kernel and noise this one begins from.
    """

    data: str
    method: str
    size: int | None = None
    seed: int = 0
    options: tuple[tuple[str, Any], ...] = ()
    share: int = 1
    start: Run | None = None

    @property
    def label(self) -> str:
        """What a person calls it."""
        size = "" if self.size is None else f", M = {self.size}"
        part = "" if self.share == 1 else f", 1/{self.share} of the rows"
        return f"{self.method}{size} on {self.data}{part}, run {self.seed + 1}"

    @property
    def key(self) -> str:
        """What its result is stored under; results of other code are not taken for it."""
        return f"eigengp {code()}: {self._whole}"

    @property
    def _whole(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in self.options)
        start = "" if self.start is None else f" from [{self.start._whole}]"
        return f"{self.label} ({options}){start}"

    @property
    def before(self) -> tuple[Run, ...]:
        """The runs that have to end before this one, the first of all first."""
        return () if self.start is None else (*self.start.before, self.start)


def with_starts(runs: Iterable[Run]) -> list[Run]:
    """Return the runs, each once, with those they begin from before all others."""
    runs = list(runs)
    together = dict.fromkeys([*(start for run in runs for start in run.before), *runs])
    return sorted(together, key=lambda run: len(run.before))


@cache
def code() -> str:
    """Return the version of the package and a digest of the sources that results depend on."""
    package, here = Path(eigengp.__file__).parent, Path(__file__).resolve().parent
    files = [
        path
        for path in sorted(package.rglob("*.py"))
        if path.relative_to(package).parts[0] not in _WITHOUT_EFFECT
    ]
    files += [path for pattern in _OWN for path in sorted(here.glob(pattern))]
    files.append(Path(realdata.__file__))
    digest = sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    return f"{eigengp.__version__}+{digest[:12]}"
