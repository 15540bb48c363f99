"""Stand-ins for the files and downloads of data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.datasets
from sklearn.utils import Bunch

from eigengp import datasets
from eigengp.datasets.lookup import Entry
from eigengp.datasets.storage import Rows

FETCHERS = {
    "snelson": datasets.fetch_snelson,
    "nonstationary": datasets.fetch_nonstationary,
    "california": datasets.fetch_california,
    "protein": datasets.fetch_protein,
    "pole": datasets.fetch_pole,
    "kin40k": datasets.fetch_kin40k,
}
# Rows, inputs, mean and standard deviation of the target, and how far the last two are rounded.
STATED = {
    "california": (20_640, 8, 2.0686, 1.1540, 5e-5),
    "protein": (45_730, 9, 7.7485, 6.1183, 5e-5),
    "pole": (15_000, 26, 28.945, 41.726, 5e-4),
    "kin40k": (40_000, 8, 0.000, 0.997, 5e-4),
}
N_TRAIN = {"california": 10_000, "protein": 20_000, "pole": 10_000, "kin40k": 10_000}
WITHOUT_DOWNLOAD = ("snelson", "nonstationary", "kin40k")


def like(entry: Entry, seed: int = 0, n_rows: int | None = None) -> Rows:
    """Return random rows with the counts and moments that the entry asks for."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows or entry.n_rows, entry.n_inputs))
    y = rng.normal(size=len(X))
    y = entry.target_mean + entry.target_std * (y - y.mean()) / y.std(ddof=1)
    return X, y, tuple(f"input{i}" for i in range(entry.n_inputs))


def write_parquet(path: Path, columns: dict[str, Any]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(columns), path)


def put(folder: Path, name: str, rows: Rows) -> None:
    X, y, names = rows
    write_parquet(
        folder / f"{name}.parquet", dict(zip(names, X.T, strict=True)) | {"target": y.copy()}
    )


def serve(monkeypatch: pytest.MonkeyPatch, name: str, rows: Rows) -> list[dict[str, Any]]:
    """Let one of scikit-learn's fetchers return the rows, and note how it is called."""
    calls: list[dict[str, Any]] = []

    def fetch(**settings: Any) -> Bunch:
        calls.append(settings)
        return Bunch(data=rows[0], target=rows[1], feature_names=list(rows[2]))

    monkeypatch.setattr(sklearn.datasets, name, fetch)
    return calls


def fail(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fetch(**_: object) -> Bunch:
        raise error

    for name in ("fetch_california_housing", "fetch_openml"):
        monkeypatch.setattr(sklearn.datasets, name, fetch)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
