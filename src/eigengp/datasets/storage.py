"""Data sets on disk: Parquet files that others made, and a cache of our own.

The cache needs NumPy alone, and a file of it is either complete or not there.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import IO, TypeAlias
from zipfile import BadZipFile

import numpy as np

from eigengp._atomic import replace_atomically
from eigengp._typing import Array

Rows: TypeAlias = tuple[Array, Array, tuple[str, ...]]
"""Inputs (n, D), targets (n,) and the D names of the inputs."""

# What NumPy and zipfile raise at one flipped bit or another.
_DAMAGE = (BadZipFile, EOFError, KeyError, OSError, RuntimeError, ValueError, zlib.error)


def read_parquet(path: Path) -> dict[str, Array]:
    """Return the columns of a Parquet file as float64 arrays, in the order of the file.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    columns : dict of arrays of shape (n,)
        The columns by name.
    """
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError as error:
        raise ImportError(
            f'{path} is a Parquet file, which needs pyarrow: pip install "eigengp[data]".'
        ) from error
    try:
        # Unlike read_table, ParquetFile adds no columns for folders named like key=value.
        with parquet.ParquetFile(path) as file:
            table = file.read()
        return {
            name: np.array(column.to_numpy(), dtype=np.float64)
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path} is missing: put it there.") from error
    # pyarrow reports damage as either of the two.
    except (OSError, ValueError) as error:
        raise ValueError(f"Cannot read {path}: {error} Replace it by a sound copy.") from error


def pick(columns: Mapping[str, Array], name: str, path: Path) -> Array:
    """Return one column, or say which there are."""
    if name not in columns:
        raise ValueError(
            f"{path} has no column {name!r}, only {', '.join(columns)}. Rename the column that is "
            "meant, or replace the file."
        )
    return columns[name]


def read_cache(path: Path) -> Rows:
    """Return the rows of a cache file.

    Parameters
    ----------
    path : Path
        What `write_cache` wrote.

    Returns
    -------
    X, y, feature_names : Rows
        The rows.
    """
    # Opened here, since np.load leaves a damaged file open.
    with path.open("rb") as file:
        try:
            return _load(file)
        except _DAMAGE as error:
            raise ValueError(
                f"The cache file {path} is damaged ({error}). Delete it and fetch again."
            ) from error


def _load(file: IO[bytes]) -> Rows:
    with np.load(file, allow_pickle=False) as stored:
        X, y = (np.asarray(stored[name], dtype=np.float64) for name in ("X", "y"))
        names = tuple(stored["feature_names"].tolist())
    if X.shape != (y.size, len(names)):
        raise ValueError(f"inputs {X.shape}, targets {y.shape} and {len(names)} names")
    return X, y, names


def write_cache(path: Path, rows: Rows) -> None:
    """Write rows to a temporary file in the same folder, which then takes the name in one step.

    A full disk or a kill leaves what was there before.

    Parameters
    ----------
    path : Path
        The file, whose folder is made if need be; the ending is .npz.
    rows : Rows
        Inputs, targets and names.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "eigengp" / "tiny.npz"
    ...     write_cache(path, (np.array([[1.0], [2.0]]), np.array([3.0, 4.0]), ("x",)))
    ...     read_cache(path)
    (array([[1.],
           [2.]]), array([3., 4.]), ('x',))
    """
    X, y, names = rows
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_atomically(path) as scratch, scratch.open("xb") as file:
            np.savez_compressed(file, X=X, y=y, feature_names=np.array(names))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        error.add_note(f"{path} was not written. Make room, or name another folder as data_home.")
        raise
