"""Data frames as inputs: names that tell columns apart, and columns that hold numbers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np


def check_frame(X: Any) -> None:
    """Raise where the columns of a frame, of pandas or Polars, cannot be inputs.

    scikit-learn keeps and compares their names; this says which column is at fault where it
    would not.
    """
    if type(X).__name__ == "LazyFrame":
        raise TypeError("X is a lazy frame, which holds no rows yet; pass X.collect().")
    if isinstance(X, np.ndarray) or not hasattr(X, "columns"):
        return
    names = list(X.columns)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            f"X has more than one column named {twice[0]!r}; give each input a name of its own."
        )
    for name in names:
        _check_column(name, np.asarray(X[name]))


def _check_column(name: Any, values: Any) -> None:
    if values.dtype.kind in "mM":
        raise ValueError(
            f"Column {name!r} of X holds dates or times, but inputs are numbers: turn it into "
            "some, such as days since the first, or leave it out."
        )
    if values.dtype.kind in "biufc":
        return
    text = next((value for value in values if not _is_number(value)), None)
    if text is not None:
        raise ValueError(
            f"Column {name!r} of X holds text such as {str(text)!r}, but inputs are numbers: "
            "encode it, for instance by scikit-learn's OneHotEncoder in a ColumnTransformer, or "
            "leave it out."
        )


def _is_number(value: Any) -> bool:
    """Say whether a value reads as a number; what is missing is not judged here."""
    try:
        float(value)
    except ValueError:
        return False
    except TypeError:
        pass
    return True
