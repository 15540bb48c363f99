"""From a name to checked rows: first the folder of EIGENGP_DATA, then the cache, then a download.

An entry says what a data set must look like, so that a wrong or damaged copy is never returned.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError

import numpy as np
from sklearn.datasets import get_data_home

from eigengp.datasets.dataset import Dataset
from eigengp.datasets.storage import Rows, pick, read_cache, read_parquet, write_cache

VARIABLE = "EIGENGP_DATA"
_REPLACE = "Replace it by a sound copy, or take it away."
_DELETE = "Delete it and fetch again."


@dataclass(frozen=True)
class Entry:
    """What is known of a data set before it is read, and how to read it."""

    name: str
    n_rows: int
    n_inputs: int
    target_mean: float
    target_std: float
    """Sample standard deviation, with n − 1."""
    tolerance: float
    """How far mean and standard deviation may be off: half of their last digit."""
    description: str
    files: str
    """The files that have to be there, and their columns."""
    origin: str
    """Where a person gets the data."""
    n_train: int | None = None
    n_test: int = 0
    """How many inputs there are to predict at."""
    read: Callable[[Entry, Path], Dataset] | None = None
    """Reads the Parquet files of a folder, where `read_table` will not do."""
    download: Callable[[str], Rows] | None = None
    """Downloads the rows, with scikit-learn's data folder at hand."""

    def dataset(self, rows: Rows) -> Dataset:
        """Return rows with what is known of them."""
        X, y, names = rows
        return Dataset(self.name, X, y, names, self.description, n_train=self.n_train)

    def from_folder(self, folder: Path) -> Dataset:
        """Return what the Parquet files of a folder hold."""
        return (self.read or read_table)(self, folder)


def read_table(entry: Entry, folder: Path) -> Dataset:
    """Read a file in which the column `target` is the target and all others are inputs."""
    path = folder / f"{entry.name}.parquet"
    columns = read_parquet(path)
    y = pick(columns, "target", path)
    names = tuple(name for name in columns if name != "target")
    # The shape is stated for the sake of a file without inputs.
    X = np.array([columns[name] for name in names]).reshape(len(names), y.size).T.copy()
    return entry.dataset((X, y, names))


def fetch(entry: Entry, data_home: str | os.PathLike[str] | None) -> Dataset:
    """Return a data set from the first place that has it, after a look at what was got.

    Parameters
    ----------
    entry : Entry
        Which one.
    data_home : path, optional
        The folder in which the cache `eigengp` lies; by default scikit-learn's data folder.

    Returns
    -------
    data : Dataset
        The rows.
    """
    folder = _named_folder()
    file = f"{entry.name}.parquet"
    if folder is not None and (folder / file).exists():
        return _checked(entry, entry.from_folder(folder), f"{folder / file}", _REPLACE)
    # scikit-learn makes its data folder when asked for it, so not before it is needed.
    home = get_data_home(data_home)
    cache = Path(home) / "eigengp"
    if (cache / file).exists():
        return _checked(entry, entry.from_folder(cache), f"{cache / file}", _REPLACE)
    by_hand = (
        f"put {entry.files} into {cache}, or into a folder that the environment variable "
        f"{VARIABLE} names. Source: {entry.origin}"
    )
    if entry.download is None:
        raise FileNotFoundError(f"{entry.name} is not here and cannot be downloaded: {by_hand}")
    stored = cache / f"{entry.name}.npz"
    if stored.exists():
        return _checked(entry, entry.dataset(read_cache(stored)), f"{stored}", _DELETE)
    try:
        rows = entry.download(home)
    except (URLError, ConnectionError, TimeoutError, HTTPException) as error:
        raise ConnectionError(
            f"{entry.name} could not be downloaded: {error}. Try again with a network, or {by_hand}"
        ) from error
    data = _checked(entry, entry.dataset(rows), "What was downloaded", f"Instead, {by_hand}")
    write_cache(stored, rows)
    return data


def _named_folder() -> Path | None:
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(
            f"The environment variable {VARIABLE} names {named}, which is not a folder. Correct or "
            "unset it."
        )
    return folder


def _checked(entry: Entry, data: Dataset, place: str, remedy: str) -> Dataset:
    """Return the data if they are the ones that were asked for."""
    targets = data.y if data.y_runs is None else data.y_runs
    n_test = 0 if data.X_test is None else len(data.X_test)
    unusable = np.sum(~np.isfinite(data.X)) + np.sum(~np.isfinite(targets))
    wrong = _differences(
        ("rows", targets.size, entry.n_rows, 0.0),
        ("inputs", data.X.shape[1], entry.n_inputs, 0.0),
        ("test inputs", n_test, entry.n_test, 0.0),
        ("values that are not finite", float(unusable), 0, 0.0),
    )
    # Moments say something only if the counts are right.
    wrong = wrong or _differences(
        ("as mean of the target", targets.mean(), entry.target_mean, entry.tolerance),
        ("as its standard deviation", targets.std(ddof=1), entry.target_std, entry.tolerance),
    )
    if wrong:
        raise ValueError(
            f"{place} is not the data set {entry.name}: it has {', '.join(wrong)}. {remedy}"
        )
    return data


def _differences(*facts: tuple[str, float, float, float]) -> list[str]:
    """Return in words what was found but not expected, beyond the tolerance."""
    return [
        f"{found:.7g} {what} instead of {expected:.7g}"
        for what, found, expected, tolerance in facts
        if abs(found - expected) > tolerance
    ]
